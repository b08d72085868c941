package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/term"

	"github.com/flowapi/flowapi/internal/client"
	"github.com/flowapi/flowapi/internal/watch"
)

// outputLimit is how long reading what failed members have written may take.
const outputLimit = 20 * time.Second

// vigil is the wait for the end of a flow.
type vigil struct {
	*connection
	env     environment
	options *submitOptions
	flow    string
	address string

	tree        *watch.Tree // on a terminal
	lines       *watch.Lines
	progress    io.Writer
	interactive bool
	last        *watch.Snapshot
	asking      bool
	told        bool // that the server does not answer
}

func newVigil(c *connection, env environment, o *submitOptions, flow, address string) *vigil {
	v := &vigil{connection: c, env: env, options: o, flow: flow, address: address, progress: env.out}
	if c.json {
		v.progress = env.err
	}
	f, ok := v.progress.(*os.File)
	if ok && term.IsTerminal(int(f.Fd())) && env.getenv("TERM") != "dumb" {
		size := func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil || width == 0 || height == 0 {
				return 80, 24
			}
			return width, height
		}
		v.tree = &watch.Tree{Out: f, Size: size, Color: env.getenv("NO_COLOR") == ""}
		v.interactive = term.IsTerminal(int(os.Stdin.Fd()))
	} else {
		v.lines = &watch.Lines{Out: v.progress}
	}
	return v
}

// wait waits until the flow has ended, or there is no more reason to, and returns how that is said in an exit code.
func (v *vigil) wait(ctx context.Context, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	seen, trouble, done := make(chan *watch.Snapshot), make(chan error), make(chan error, 1)
	var follower sync.WaitGroup
	follower.Go(func() {
		done <- watch.Follow(ctx, &v.Client, v.flow, func(s *watch.Snapshot) { offer(ctx, seen, s) }, func(err error) { offer(ctx, trouble, err) })
	})
	defer follower.Wait()
	defer cancel()
	var late <-chan time.Time
	if v.options.timeout > 0 {
		late = time.After(v.options.timeout)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var answers <-chan string
	for {
		select {
		case s := <-seen:
			v.last, v.told = s, false
			if err := v.show(); err != nil {
				return err
			}
			switch {
			case s.Flow.Ended():
				return v.end(ctx, map[string]int{"finished": 0, "failed": exitFailed, "cancelled": exitCancelled}[s.Flow.Status])
			case s.Person && v.options.onApproval:
				return v.end(ctx, exitPerson)
			}
		case err := <-trouble:
			v.troubled(err)
		case err := <-done:
			return err
		case <-tick.C:
			if v.tree != nil && v.last != nil {
				if err := v.show(); err != nil {
					return err
				}
			}
		case <-late:
			if v.last != nil && v.last.Person {
				return v.end(ctx, exitPerson)
			}
			return v.end(ctx, exitRunsOn)
		case <-signals:
			if !v.interactive || v.asking {
				return v.end(ctx, exitRunsOn)
			}
			answers = v.ask()
		case answer := <-answers:
			answers = nil
			if answer != "c" {
				return v.end(ctx, exitRunsOn)
			}
			if err := v.cancel(ctx); err != nil {
				return err
			}
		}
	}
}

// offer hands something over, unless ctx ends before it is taken.
func offer[T any](ctx context.Context, c chan<- T, value T) {
	select {
	case c <- value:
	case <-ctx.Done():
	}
}

func (v *vigil) show() error {
	switch {
	case v.asking:
		return nil
	case v.tree != nil:
		return v.tree.Draw(v.last, time.Now())
	default:
		return v.lines.Show(v.last, time.Now())
	}
}

// troubled says once that the server does not answer.
func (v *vigil) troubled(err error) {
	if v.told || v.asking {
		return
	}
	v.told = true
	fmt.Fprintf(v.env.err, "flowapi: %v; trying again\n", err)
	if v.tree != nil {
		v.tree.Leave()
	}
}

// ask asks a person whether to detach or to cancel. Another Ctrl-C detaches, too.
func (v *vigil) ask() <-chan string {
	v.asking = true
	v.tree.Leave()
	fmt.Fprint(v.progress, "\ndetach or cancel? [d/c] ")
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // without an answer it detaches
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	return answers
}

// cancel cancels the flow. It is waited for as before.
func (v *vigil) cancel(ctx context.Context) error {
	v.asking = false
	body := map[string]any{"reason": "cancelled from the terminal of flowapi submit", "grace_ms": 10_000}
	r := client.Request{Method: http.MethodPost, Path: "/v1/flows/" + v.flow + "/cancel", Body: body, Key: uuid.NewString()}
	_, err := v.Insist(ctx, r, nil, v.troubled)
	if client.Code(err) == "already_terminal" {
		return nil
	}
	return err
}

// end says how it has ended and returns the exit code.
func (v *vigil) end(ctx context.Context, code int) error {
	ctx, cancel := context.WithTimeout(ctx, outputLimit)
	defer cancel()
	outputs := map[string]watch.Output{}
	if v.last != nil && (code == exitFailed || v.options.junit != "") {
		outputs = v.outputs(ctx)
	}
	switch {
	case code == exitFailed:
		watch.Explain(v.progress, v.last, outputs)
	case code == exitCancelled && v.last.Flow.Cancellation != nil:
		c := v.last.Flow.Cancellation
		fmt.Fprintf(v.progress, "\ncancelled by %s: %s\n", c.Actor, c.Reason)
	case code == exitRunsOn || code == exitPerson:
		fmt.Fprintf(v.progress, "\nthe flow runs on: %s\n", v.address)
		if v.last != nil {
			watch.Questions(v.progress, v.last)
		}
		fmt.Fprintf(v.progress, "to follow it: flowapi tail %s\nto cancel it: flowapi cancel %s\n", v.flow, v.flow)
	}
	var failures []error
	if v.options.junit != "" && v.last != nil {
		failures = append(failures, v.report(outputs))
	}
	if v.json {
		failures = append(failures, v.document(code))
	}
	if err := errors.Join(failures...); err != nil {
		fmt.Fprintf(v.env.err, "flowapi: %v\n", err)
		if code == 0 {
			code = exitFailed
		}
	}
	if code == 0 {
		return nil
	}
	return exitError{code}
}

// outputs reads what the failed members have written. What cannot be read is left out.
func (v *vigil) outputs(ctx context.Context) map[string]watch.Output {
	outputs := map[string]watch.Output{}
	for _, n := range watch.Failed(v.last) {
		out, err := watch.OutputOf(ctx, &v.Client, n)
		if err != nil {
			fmt.Fprintf(v.env.err, "flowapi: the output of %s: %v\n", n.Name(), err)
			continue
		}
		outputs[n.ID] = out
	}
	return outputs
}

// report writes the JUnit report.
func (v *vigil) report(outputs map[string]watch.Output) error {
	f, err := os.Create(v.options.junit)
	if err != nil {
		return err
	}
	return errors.Join(watch.JUnit(f, v.last, outputs, time.Now()), f.Close())
}

// document writes what there is to know as one JSON document.
func (v *vigil) document(code int) error {
	names := map[int]string{0: "finished", exitFailed: "failed", exitCancelled: "cancelled", exitRunsOn: "runs_on", exitPerson: "waits_for_person"}
	all := struct {
		URL     string          `json:"url"`
		FlowID  string          `json:"flow_id"`
		Outcome string          `json:"outcome"`
		Code    int             `json:"exit_code"`
		Flow    json.RawMessage `json:"flow"`
		Graph   json.RawMessage `json:"graph"`
	}{URL: v.address, FlowID: v.flow, Outcome: names[code], Code: code}
	if v.last != nil {
		all.Flow, all.Graph = v.last.RawFlow, v.last.RawGraph
	}
	enc := json.NewEncoder(v.env.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(all)
}
