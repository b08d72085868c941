package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

func tokenCommand(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make, list and revoke API tokens"}
	c := clientFlags(cmd, env)
	cmd.AddCommand(tokenCreate(env, c), tokenList(env, c), tokenRevoke(env, c))
	return cmd
}

func tokenCreate(env environment, c *connection) *cobra.Command {
	var name, role string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token and print it, once", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := oapi.CreateToken{Name: name, Role: oapi.Role(role)}
			if c.Namespace != "" {
				in.Namespace = &c.Namespace
			}
			if ttl > 0 {
				in.ExpiresAt = new(oapi.Time(time.Now().Add(ttl)))
			}
			made, raw := oapi.CreatedToken{}, []byte(nil)
			raw, err := c.withoutNamespace().call(cmd.Context(), "POST", "/v1/admin/tokens", in, &made)
			if err != nil || made.Token == nil {
				return err
			}
			if c.json {
				_, err = env.out.Write(raw)
				return err
			}
			_, err = fmt.Fprintln(env.out, *made.Token)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what the token is for")
	cmd.Flags().StringVar(&role, "role", "", "viewer, worker, operator or admin")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long it is good for; for ever without it")
	_ = cmd.MarkFlagRequired("name")
	_ = cmd.MarkFlagRequired("role")
	return cmd
}

func tokenList(env environment, c *connection) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list oapi.TokenList
			raw, err := c.call(cmd.Context(), "GET", "/v1/admin/tokens?limit=500", nil, &list)
			if err != nil {
				return err
			}
			if c.json {
				_, err = env.out.Write(raw)
				return err
			}
			w := tabwriter.NewWriter(env.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tNAME\tROLE\tNAMESPACE\tPREFIX\tLAST USED\tSTATE")
			for _, t := range list.Items {
				state, used := "valid", "never"
				if t.LastUsedAt != nil {
					used = t.LastUsedAt.String()
				}
				switch {
				case t.RevokedAt != nil:
					state = "revoked"
				case t.ExpiresAt != nil && t.ExpiresAt.Time().Before(time.Now()):
					state = "expired"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.TokenID, t.Name, t.Role, t.Namespace, t.Prefix, used, state)
			}
			return w.Flush()
		},
	}
}

func tokenRevoke(env environment, c *connection) *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN_ID", Short: "Revoke a token", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := uuid.Parse(args[0])
			if err != nil {
				return usageError{fmt.Errorf("%q is not the id of a token; see flowapi token list", args[0])}
			}
			if _, err := c.call(cmd.Context(), "DELETE", "/v1/admin/tokens/"+id.String(), nil, nil); err != nil {
				return err
			}
			_, err = fmt.Fprintln(env.out, "revoked")
			return err
		},
	}
}

// withoutNamespace returns the client for a request whose body names the namespace.
func (c *connection) withoutNamespace() *connection {
	plain := *c
	plain.Namespace = ""
	return &plain
}
