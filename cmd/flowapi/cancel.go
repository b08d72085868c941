package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/flowapi/flowapi/internal/client"
)

// cancelOptions is what the flags of flowapi cancel say.
type cancelOptions struct {
	reason, policy string
	grace          time.Duration
	wait           bool
}

// memberPause is how often a single execution is looked at until it has ended.
const memberPause = 500 * time.Millisecond

func cancelCommand(env environment) *cobra.Command {
	var o cancelOptions
	var execution string
	cmd := &cobra.Command{
		Use: "cancel FLOW_ID | --execution ID", Short: "Cancel a flow with its executions, or one execution",
		Long: `Cancel a flow and, by the policy, its executions; or one execution. Workers that hold some are asked to end them, and have until the
grace is over. With --wait the command returns when they have.`,
		Example: `  flowapi cancel 01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01 --reason 'superseded by 1.4.1' --wait
  flowapi cancel --execution 01985c3e-7b20-7d41-8a63-5e2c9f7b1c02 --grace 1m`,
		Args: cobra.MaximumNArgs(1),
	}
	c := clientFlags(cmd, env)
	flags := cmd.Flags()
	flags.StringVar(&execution, "execution", "", "cancel this execution")
	flags.StringVar(&o.reason, "reason", "cancelled from the command line", "why")
	flags.StringVar(&o.policy, "policy", "", "of a flow: cancel_all, cancel_pending or flow_only")
	flags.DurationVar(&o.grace, "grace", 10*time.Second, "how long workers may take to end what they hold")
	flags.BoolVar(&o.wait, "wait", false, "wait until everything has ended")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case (len(args) == 0) == (execution == ""):
			return usageError{errors.New("name a flow, or an --execution")}
		case o.grace < 0 || o.grace > 24*time.Hour:
			return usageError{errors.New("--grace: 0s to 24h")}
		case execution != "" && o.policy != "":
			return usageError{errors.New("--policy is for flows")}
		case execution != "":
			id, err := parseID("an execution", execution)
			if err != nil {
				return err
			}
			return c.cancelExecution(cmd.Context(), env, id, &o)
		}
		id, err := parseID("a flow", args[0])
		if err != nil {
			return err
		}
		return c.cancelFlow(cmd.Context(), env, id, &o)
	}
	return cmd
}

func (c *connection) cancelFlow(ctx context.Context, env environment, id string, o *cancelOptions) error {
	body := map[string]any{"reason": o.reason, "grace_ms": o.grace.Milliseconds()}
	if o.policy != "" {
		body["policy"] = o.policy
	}
	answer, err := c.Do(ctx, client.Request{Method: http.MethodPost, Path: "/v1/flows/" + id + "/cancel", Body: body, Key: uuid.NewString()}, nil)
	if err != nil {
		return err
	}
	var flow struct {
		Members *cancelProgress `json:"members"`
	}
	if err := json.Unmarshal(answer.Body, &flow); err != nil {
		return err
	}
	progress := flow.Members
	for o.wait && progress != nil && progress.Outstanding > 0 {
		r := client.Request{Method: http.MethodGet, Path: "/v1/flows/" + id + "/cancellation", Wait: 20 * time.Second}
		if _, err := c.Insist(ctx, r, progress, nil); err != nil {
			return err
		}
	}
	if c.json {
		return printJSON(env.out, answer.Body)
	}
	fmt.Fprintf(env.out, "cancelled %s\n", id)
	if progress != nil && progress.Outstanding > 0 {
		fmt.Fprintf(env.out, "%d of %d executions are still to end\n", progress.Outstanding, progress.Total)
	}
	if progress != nil && len(progress.Failed) > 0 {
		return fmt.Errorf("%d executions could not be cancelled: %v", len(progress.Failed), progress.Failed)
	}
	return nil
}

// cancelProgress is how far the cancellation of a flow has come.
type cancelProgress struct {
	Total       int      `json:"total"`
	Outstanding int      `json:"outstanding"`
	Failed      []string `json:"failed"`
}

func (c *connection) cancelExecution(ctx context.Context, env environment, id string, o *cancelOptions) error {
	var done struct{ Execution client.Execution }
	body := map[string]any{"reason": o.reason, "grace_ms": o.grace.Milliseconds()}
	answer, err := c.Do(ctx, client.Request{Method: http.MethodPost, Path: "/v1/executions/" + id + "/operator-cancel", Body: body, Key: uuid.NewString()}, &done)
	if err != nil {
		return err
	}
	state, raw := done.Execution.PublicState, answer.Body
	for o.wait && !client.Ended(state) {
		if !client.Sleep(ctx, memberPause) {
			return context.Cause(ctx)
		}
		var e client.Execution
		answer, err := c.Insist(ctx, client.Request{Method: http.MethodGet, Path: "/v1/executions/" + id}, &e, nil)
		if err != nil {
			return err
		}
		state, raw = e.PublicState, answer.Body
	}
	if c.json {
		return printJSON(env.out, raw)
	}
	text := state + " " + id
	if state == "active" {
		text = "its worker is asked to end " + id
	}
	_, err = fmt.Fprintln(env.out, text)
	return err
}
