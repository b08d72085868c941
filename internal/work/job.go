package work

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/flowapi/flowapi/internal/client"
)

// job is one execution, from its claim to its report.
type job struct {
	w      *worker
	claim  client.Claim
	output *output
	packer packer
	asked  phase                   // the server asks to cancel
	lose   context.CancelCauseFunc // ends the context in which the execution is ours
	ended  phase                   // the command has ended
	ending phase                   // its end is being reported
	sent   chan struct{}           // closed when all of the output is sent, or will never be
}

// The ways to lose an execution: to somebody else, or by what the command itself has done with it.
type (
	lostError  struct{ text string }
	endedError struct{ state string } // the command has suspended it, put it off, or ended it
)

func (e lostError) Error() string  { return e.text }
func (e endedError) Error() string { return "the execution is " + e.state }

func newJob(w *worker, c client.Claim) *job {
	return &job{w: w, claim: c, output: newOutput(2), packer: packer{epoch: c.Fence.LeaseEpoch}, asked: newPhase(), ended: newPhase(), ending: newPhase(), sent: make(chan struct{})}
}

func (j *job) path(rest string) string { return "/v1/executions/" + j.claim.Execution.ID + rest }

func (j *job) tell(what, detail string, took time.Duration) {
	e := &j.claim.Execution
	name := e.Key
	if name == "" {
		name = e.Kind
	}
	j.w.tell(Report{What: what, Execution: e.ID, Name: name, Attempt: j.claim.Fence.AttemptIndex, Took: took, Detail: detail})
}

func (j *job) heed(directives []string) {
	j.w.heed(directives)
	if slices.Contains(directives, "suspend") { // by a budget: whoever claims it later goes on
		j.lose(lostError{"it was suspended, because a budget is exhausted"})
		return
	}
	if slices.Contains(directives, "cancel") && j.asked.begin() {
		j.tell("asked to cancel", "", 0)
	}
}

// gone returns how a refusal says that the execution is not ours any more, nil if it does not.
func gone(err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok {
		return nil
	}
	switch p.Code {
	case "stale_lease", "lease_expired", "lease_revoked", "execution_not_active", "stream_closed", "already_suspended", "already_terminal", "not_found":
	default:
		return nil
	}
	switch p.PublicState {
	case "suspended", "waiting_children", "completed":
		return endedError{p.PublicState}
	default:
		return lostError{p.Detail}
	}
}

// run runs the command of the claim and reports how it ended.
func (j *job) run(ctx context.Context) {
	held, lose := context.WithCancelCause(ctx)
	j.lose = lose
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer lose(nil)
	helpers.Go(func() { j.keep(held) })
	begun := time.Now()
	dir, err := os.MkdirTemp("", "flowapi-work-")
	if err != nil {
		j.report(held, cannotStart(err), begun)
		return
	}
	defer os.RemoveAll(dir)
	p, err := j.start(dir)
	if err != nil {
		j.report(held, cannotStart(err), begun)
		return
	}
	j.tell("started", j.claim.Kind, 0)
	silent := j.pump(held, p)
	why := j.await(held, p, silent)
	j.ended.begin()
	p.finish(silent)
	<-j.sent
	j.report(held, j.outcome(why, p, filepath.Join(dir, "result")), begun)
}

// start prepares what the command finds in dir, and starts it.
func (j *job) start(dir string) (*process, error) {
	e := &j.claim.Execution
	payload := append(slices.Clone(e.Payload), '\n')
	if e.PayloadEncoding == "base64" {
		var text string
		if err := json.Unmarshal(e.Payload, &text); err != nil {
			return nil, fmt.Errorf("the payload: %w", err)
		}
		var err error
		if payload, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("the payload: %w", err)
		}
	}
	stdin, inputs := filepath.Join(dir, "payload"), filepath.Join(dir, "inputs")
	if err := os.WriteFile(stdin, payload, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(inputs, j.claim.Inputs, 0o600); err != nil {
		return nil, err
	}
	return start(j.w.Command, j.w.environ(&j.claim, filepath.Join(dir, "result"), inputs), stdin)
}

// pump moves what the command writes to the server. The channel that it returns is closed when there is nothing more to read.
func (j *job) pump(held context.Context, p *process) <-chan struct{} {
	silent := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() { j.output.read("stdout", p.out) })
	readers.Go(func() { j.output.read("stderr", p.err) })
	go func() {
		readers.Wait()
		close(silent)
	}()
	go func() {
		defer close(j.sent)
		j.send(held)
	}()
	return silent
}

// verdict is what a command has ended by.
type verdict int

const (
	itself verdict = iota
	cancelled
	released
)

// await waits until the command has ended, by itself or because it must not go on.
func (j *job) await(held context.Context, p *process, silent <-chan struct{}) verdict {
	why := itself
	select {
	case <-p.exited:
	case <-held.Done():
		if _, own := errors.AsType[endedError](context.Cause(held)); own {
			j.patience(p) // it knows, and will end by itself
		}
	case <-j.asked.begun:
		why = cancelled
	case <-j.w.givingUp.begun:
		why = released
	}
	if p.over() {
		return itself
	}
	p.stop(j.w.Grace, j.w.hurrying.begun, silent)
	return why
}

// patience waits for a command to end, as long as it may take.
func (j *job) patience(p *process) {
	timer := time.NewTimer(j.w.Grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
	case <-j.w.givingUp.begun:
	}
}
