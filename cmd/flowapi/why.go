package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func whyCommand(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "why EXECUTION_ID", Short: "Say why an execution is not running, and what to do",
		Example: "  flowapi why 01985c3e-7b20-7d41-8a63-5e2c9f7b1c02",
		Args:    cobra.ExactArgs(1),
	}
	c := clientFlags(cmd, env)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := parseID("an execution", args[0])
		if err != nil {
			return err
		}
		var e struct {
			Summary string
			Gates   []struct {
				Gate     string
				Met      bool
				Since    string
				Evidence json.RawMessage
				NextAt   string `json:"next_at"`
				Hint     string
			}
		}
		raw, err := c.call(cmd.Context(), "GET", "/v1/executions/"+id+"/explain", nil, &e)
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(env.out, raw)
		}
		fmt.Fprintf(env.out, "%s\n\n", e.Summary)
		w := tabwriter.NewWriter(env.out, 0, 0, 2, ' ', 0)
		for _, g := range e.Gates {
			met, more := "no", ""
			if g.Met {
				met = "ok"
			}
			if text := string(g.Evidence); text != "null" {
				more = text
			}
			fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%s\t%s\t%s", met, g.Gate, more), "\t "))
			for _, line := range []struct{ name, text string }{{"since", g.Since}, {"next at", g.NextAt}, {"what to do", g.Hint}} {
				if line.text != "" && !g.Met {
					fmt.Fprintf(w, "\t\t%s: %s\n", line.name, line.text)
				}
			}
		}
		return w.Flush()
	}
	return cmd
}
