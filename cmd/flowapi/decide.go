package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/flowapi/flowapi/internal/client"
)

// decision is approve or reject.
type decision struct {
	verb string // the command's name
	made string // in the words of the contract
	flow string // what it does to a flow that waits for a person
}

var (
	approve = decision{"approve", "approved", "resume"}
	reject  = decision{"reject", "rejected", "fail"}
)

// question is one thing that a person is asked.
type question struct {
	flow      string // a flow that waits by itself
	execution string
	waitpoint client.Waitpoint
	title     string
}

func (q *question) String() string {
	if q.execution == "" {
		return fmt.Sprintf("flow %s: %s", q.flow, q.title)
	}
	return fmt.Sprintf("--waitpoint %s (%s) of execution %s: %s", q.waitpoint.ID, q.waitpoint.Key, q.execution, q.title)
}

func decideCommand(env environment, d decision) *cobra.Command {
	var waitpoint, reason string
	cmd := &cobra.Command{
		Use: d.verb + " EXECUTION_ID|FLOW_ID…", Short: strings.ToUpper(d.verb[:1]) + d.verb[1:] + " what an execution or a flow asks a person",
		Long: fmt.Sprintf(`Decide as an operator what an execution asks at its approval. Of a flow it is what one of its executions asks, or what it waits for
itself: to %s is to %s it then. When several questions are open they are named, and --waitpoint says which one is meant.`, d.verb, d.flow),
		Example: fmt.Sprintf("  flowapi %s 01985c3e-7b20-7d41-8a63-5e2c9f7b1c02 --reason 'looked at it'", d.verb),
		Args:    cobra.MinimumNArgs(1),
	}
	c := clientFlags(cmd, env)
	cmd.Flags().StringVar(&waitpoint, "waitpoint", "", "the id or the key of the waitpoint that is meant")
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			id, err := parseID("an execution or a flow", arg)
			if err != nil {
				return err
			}
			q, err := c.asked(cmd.Context(), id, waitpoint)
			if err != nil {
				return err
			}
			raw, err := c.decide(cmd.Context(), q, d, reason)
			if err != nil {
				return err
			}
			if c.json {
				err = printJSON(env.out, raw)
			} else {
				_, err = fmt.Fprintf(env.out, "%s: %s\n", d.made, q.title)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// asked returns the one open question of an execution or a flow, or that at a waitpoint.
func (c *connection) asked(ctx context.Context, id, waitpoint string) (*question, error) {
	open, err := c.questions(ctx, id)
	if err != nil {
		return nil, err
	}
	var meant []question
	for _, q := range open {
		if waitpoint == "" || q.waitpoint.ID == waitpoint || q.waitpoint.Key == waitpoint {
			meant = append(meant, q)
		}
	}
	switch {
	case len(meant) == 1:
		return &meant[0], nil
	case len(open) == 0:
		return nil, fmt.Errorf("nobody is asked anything by %s", id)
	}
	text := fmt.Sprintf("several questions are open in %s; which one is meant?", id)
	if len(meant) == 0 {
		text, meant = fmt.Sprintf("no waitpoint %s is open in %s, but these are:", waitpoint, id), open
	}
	for _, q := range meant {
		text += "\n  " + q.String()
	}
	return nil, errors.New(text)
}

// questions returns what is asked by an execution, or, if there is no such execution, in a flow.
func (c *connection) questions(ctx context.Context, id string) ([]question, error) {
	waitpoints, err := c.Waitpoints(ctx, id)
	if err == nil {
		return approvals(id, "", waitpoints), nil
	}
	if client.Code(err) != "not_found" {
		return nil, err
	}
	if _, err := c.Do(ctx, client.Request{Method: http.MethodGet, Path: "/v1/flows/" + id}, nil); err != nil {
		return nil, err
	}
	items, err := c.Inbox(ctx, id)
	if err != nil {
		return nil, err
	}
	var all []question
	for i := range items {
		switch item := &items[i]; item.Kind {
		case "flow_wait":
			all = append(all, question{flow: item.FlowID, title: item.Title})
		case "waitpoint":
			waitpoints, err := c.Waitpoints(ctx, item.ExecutionID)
			if err != nil {
				return nil, err
			}
			all = append(all, approvals(item.ExecutionID, item.Title, waitpoints)...)
		}
	}
	return all, nil
}

// approvals returns the questions at waitpoints: those that are put to people, or, if none is, all that are waited at.
func approvals(execution, title string, waitpoints []client.Waitpoint) []question {
	var asked, active []question
	for _, w := range waitpoints {
		q := question{execution: execution, waitpoint: w, title: title}
		switch {
		case w.Approval != nil:
			q.title = w.Approval.Title
			asked = append(asked, q)
		case w.State == "active":
			if q.title == "" {
				q.title = w.Key
			}
			active = append(active, q)
		}
	}
	if len(asked) > 0 {
		return asked
	}
	return active
}

// decide answers q, and is answered once even if the answer is lost.
func (c *connection) decide(ctx context.Context, q *question, d decision, reason string) ([]byte, error) {
	path, body := "/v1/executions/"+q.execution+"/approvals", map[string]any{"waitpoint_id": q.waitpoint.ID, "decision": d.made}
	if reason != "" {
		body["reason"] = reason
	}
	if q.execution == "" {
		path, body = "/v1/flows/"+q.flow+"/"+d.flow, map[string]any{}
		if d.flow == "fail" {
			body["reason"] = "rejected"
			if reason != "" {
				body["reason"] = "rejected: " + reason
			}
		}
	}
	answer, err := c.Do(ctx, client.Request{Method: http.MethodPost, Path: path, Body: body, Key: uuid.NewString()}, nil)
	return answer.Body, err
}
