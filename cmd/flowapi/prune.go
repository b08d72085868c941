package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

func pruneCommand(env environment) *cobra.Command {
	var finished, failed, cancelled int32
	var dryRun bool
	cmd := &cobra.Command{Use: "prune", Short: "Delete flows that ended long ago", Args: noArgs}
	c := clientFlags(cmd, env)
	cmd.Flags().Int32Var(&finished, "finished-days", 0, "keep finished flows for so many days; as long as the server does without it")
	cmd.Flags().Int32Var(&failed, "failed-days", 0, "keep failed flows for so many days; as long as the server does without it")
	cmd.Flags().Int32Var(&cancelled, "cancelled-days", 0, "keep cancelled flows for so many days; as long as the server does without it")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "count, and delete nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var done oapi.Pruned
		given := func(flag string, days *int32) *int32 {
			if !cmd.Flags().Changed(flag) {
				return nil
			}
			return days
		}
		in := oapi.Prune{FinishedDays: given("finished-days", &finished), FailedDays: given("failed-days", &failed),
			CancelledDays: given("cancelled-days", &cancelled), DryRun: &dryRun}
		raw, err := c.call(cmd.Context(), "POST", "/v1/admin/prune", in, &done)
		if err != nil {
			return err
		}
		if c.json {
			_, err = env.out.Write(raw)
			return err
		}
		_, err = fmt.Fprintf(env.out, "flows: %d finished, %d failed, %d cancelled; executions: %d\n", done.Flows.Finished, done.Flows.Failed, done.Flows.Cancelled, done.Executions)
		return err
	}
	return cmd
}
