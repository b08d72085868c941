package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/flowapi/flowapi/internal/client"
)

func tailCommand(env environment) *cobra.Command {
	var topics, types []string
	var after int64
	var frames string
	cmd := &cobra.Command{
		Use: "tail [FLOW_ID]", Short: "Follow what happens, or what an execution puts out",
		Long: `Follow the log of events, or that of one flow with its steps and executions, until Ctrl-C. A broken connection is made again, and the
log goes on where it was. With --json every event is one line of JSON.

With --frames follow the output of an execution instead, from its beginning to its end, over all of its attempts from the current one
on: what it wrote to standard output goes to standard output, and the rest to standard error.`,
		Example: `  flowapi tail --topic completion --topic lease
  flowapi tail --after 0 01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01
  flowapi tail --frames 01985c3e-7b20-7d41-8a63-5e2c9f7b1c02`,
		Args: cobra.MaximumNArgs(1),
	}
	c := clientFlags(cmd, env)
	jsonMeans(cmd, "print each event, or each frame, as one line of JSON")
	flags := cmd.Flags()
	flags.StringArrayVar(&topics, "topic", nil, "only events of this topic; may be repeated")
	flags.StringArrayVar(&types, "type", nil, "only events of this type; may be repeated")
	flags.Int64Var(&after, "after", 0, "begin after this event, 0 is the beginning; from now on without it")
	flags.StringVar(&frames, "frames", "", "follow the output of this `execution`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if frames != "" {
			if len(args) > 0 || len(topics) > 0 || len(types) > 0 || flags.Changed("after") {
				return usageError{errors.New("--frames goes with no flow, topic, type or event")}
			}
			id, err := parseID("an execution", frames)
			if err != nil {
				return err
			}
			return tailFrames(cmd.Context(), c, env, id)
		}
		query := url.Values{"topic": topics, "type": types}
		if flags.Changed("after") {
			query.Set("after", strconv.FormatInt(after, 10))
		}
		path := "/v1/events/stream"
		if len(args) == 1 {
			id, err := parseID("a flow", args[0])
			if err != nil {
				return err
			}
			path = "/v1/flows/" + id + "/events/stream"
		}
		return tailEvents(cmd.Context(), c, env, path+"?"+query.Encode())
	}
	return cmd
}

// follow follows a stream until Ctrl-C. A server that cannot be reached in the first place is an error, as in any other command.
func follow(ctx context.Context, c *connection, env environment, s client.Stream) error {
	reached := false
	s.Opened = func() { reached = true }
	s.Lost = func(err error) error {
		if err != nil && !reached {
			return err
		}
		if err != nil {
			fmt.Fprintf(env.err, "flowapi: %v; trying again\n", err)
		}
		return nil
	}
	if err := c.Follow(ctx, s); ctx.Err() == nil {
		return err
	}
	return nil
}

func tailEvents(ctx context.Context, c *connection, env environment, path string) error {
	return follow(ctx, c, env, client.Stream{Path: path, Message: func(m client.Message) error {
		switch m.Event {
		case "bye", "lagged":
			return nil
		case "reset":
			fmt.Fprintf(env.err, "flowapi: events before here are not kept any more: %s\n", m.Data)
			return nil
		}
		if c.json {
			return printJSON(env.out, m.Data)
		}
		var e client.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return fmt.Errorf("event %s: %w", m.ID, err)
		}
		return printEvent(env.out, &e)
	}})
}

// printEvent prints an event as one line: when, what, about what, who, and the data.
func printEvent(w io.Writer, e *client.Event) error {
	about := e.ExecutionID
	if about == "" {
		about = e.FlowID
	}
	if about == "" {
		about = "-"
	}
	_, err := fmt.Fprintf(w, "%s  %d  %-22s %s  %s  %s\n", e.At.Local().Format(time.TimeOnly), e.ID, e.Type, about, e.Actor, e.Data)
	return err
}

func tailFrames(ctx context.Context, c *connection, env environment, execution string) error {
	return follow(ctx, c, env, client.Stream{
		Path: "/v1/executions/" + execution + "/attempts/current/stream",
		Message: func(m client.Message) error {
			switch {
			case m.Event == "end":
				return client.ErrEnded
			case c.json && m.Event == "frame":
				return printJSON(env.out, m.Data)
			case m.Event == "reset":
				fmt.Fprintf(env.err, "flowapi: a part of the output is not kept any more: %s\n", m.Data)
			case m.Event == "frame":
				var f client.Frame
				if err := json.Unmarshal(m.Data, &f); err != nil {
					return err
				}
				return printFrame(env, &f)
			}
			return nil
		},
	})
}

func printFrame(env environment, f *client.Frame) error {
	var err error
	switch f.Kind {
	case "stdout":
		_, err = env.out.Write(f.Payload)
	case "stderr":
		_, err = env.err.Write(f.Payload)
	}
	return err
}
