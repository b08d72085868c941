package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/flowapi/flowapi/internal/client"
)

func replayCommand(env environment) *cobra.Command {
	var from []string
	var execution string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "replay FLOW_ID | --execution ID", Short: "Run again what failed",
		Long: `Run the failed executions of a flow again, and all that was skipped because of them; what ended well keeps its result. With --from only
those executions, by their keys or ids, and what was skipped because of them. Or one execution by itself.`,
		Example: `  flowapi replay 01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01 --dry-run
  flowapi replay 01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01 --from test --from lint
  flowapi replay --execution 01985c3e-7b20-7d41-8a63-5e2c9f7b1c02`,
		Args: cobra.MaximumNArgs(1),
	}
	c := clientFlags(cmd, env)
	flags := cmd.Flags()
	flags.StringVar(&execution, "execution", "", "run this execution again")
	flags.StringArrayVar(&from, "from", nil, "the key or the id of an execution of the flow; may be repeated; the failed ones without it")
	flags.BoolVar(&dryRun, "dry-run", false, "only tell what would run again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 0) == (execution == "") {
			return usageError{errors.New("name a flow, or an --execution")}
		}
		r := client.Request{Method: http.MethodPost, Key: uuid.NewString(), Body: struct{}{}}
		if execution != "" {
			id, err := parseID("an execution", execution)
			if err != nil {
				return err
			}
			if len(from) > 0 || dryRun {
				return usageError{errors.New("--from and --dry-run are for flows")}
			}
			r.Path = "/v1/executions/" + id + "/replay"
		} else {
			id, err := parseID("a flow", args[0])
			if err != nil {
				return err
			}
			body := map[string]any{"from": "failed", "dry_run": dryRun}
			if len(from) > 0 {
				body["from"] = from
			}
			r.Path, r.Body = "/v1/flows/"+id+"/replay", body
		}
		var done struct{ Replayed, Kept []member }
		answer, err := c.Do(cmd.Context(), r, &done)
		switch {
		case err != nil:
			return err
		case c.json:
			return printJSON(env.out, answer.Body)
		case execution != "":
			_, err = fmt.Fprintf(env.out, "runs again: %s\n", execution)
			return err
		}
		again := "runs again"
		if dryRun {
			again = "would run again"
		}
		_, err = fmt.Fprintf(env.out, "%s: %s\nkept: %s\n", again, names(done.Replayed), names(done.Kept))
		return err
	}
	return cmd
}

// member names an execution of a flow.
type member struct {
	Key string
	ID  string `json:"execution_id"`
}

// names lists members by their keys, or by their ids where they have none.
func names(members []member) string {
	if len(members) == 0 {
		return "nothing"
	}
	list := make([]string, len(members))
	for i, m := range members {
		list[i] = m.Key
		if m.Key == "" {
			list[i] = m.ID
		}
	}
	return strings.Join(list, ", ")
}
