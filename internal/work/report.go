package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/flowapi/flowapi/internal/client"
)

// tempFail is EX_TEMPFAIL of sysexits.h: the same may work later.
const tempFail = 75

// deliveryLimit is how long a server is asked to take a report.
const deliveryLimit = 5 * time.Minute

// outcome is how a job ends, in the words of the contract.
type outcome struct {
	verb string // the last part of the path
	body map[string]any
	said string // what the worker says about it
	text string // and why
}

// outcome returns what is to be reported of a command that has ended.
func (j *job) outcome(why verdict, p *process, result string) outcome {
	switch why {
	case cancelled:
		return outcome{verb: "cancel", said: "cancelled"}
	case released:
		return outcome{verb: "release", said: "given back"}
	case itself:
	}
	if text := p.failure(); text != "" {
		return failed(text, p.cmd.ProcessState.ExitCode())
	}
	document, err := os.ReadFile(result) //nolint:gosec // the file that the command was told to write
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(document) == 0:
		return outcome{verb: "complete", said: "completed"}
	case err != nil:
		return failed("the result cannot be read: "+err.Error(), 0)
	case !json.Valid(document):
		return failed("the result in FLOWAPI_RESULT is not JSON", 0)
	default:
		return outcome{verb: "complete", said: "completed", body: map[string]any{"result": json.RawMessage(document)}}
	}
}

// failed is a failure. Its category is left to the policy, unless the command has said that another try may help.
func failed(text string, exitCode int) outcome {
	o := outcome{verb: "fail", said: "failed", text: text, body: map[string]any{"reason": text}}
	if exitCode == tempFail {
		o.body["category"] = "transient"
	}
	return o
}

// cannotStart is the failure of a worker, not of its command.
func cannotStart(err error) outcome {
	o := failed(fmt.Sprintf("the worker cannot start its command: %v", err), 0)
	o.body["category"] = "infra_crash"
	return o
}

// report tells the server how the job has ended, as long as the execution is ours.
func (j *job) report(held context.Context, o outcome, begun time.Time) {
	took := time.Since(begun)
	j.ending.begin()
	err := j.deliver(held, o)
	if p, ok := errors.AsType[*client.Problem](err); ok && o.verb == "complete" && (p.Status == http.StatusUnprocessableEntity || p.Status == http.StatusRequestEntityTooLarge) {
		o = failed("the result is refused: "+p.Detail, 0)
		err = j.deliver(held, o)
	}
	if err == nil {
		j.w.fine()
		j.tell(o.said, o.text, took)
		return
	}
	cause := gone(err)
	if cause == nil && held.Err() != nil {
		cause = context.Cause(held)
	}
	switch _, own := errors.AsType[endedError](cause); {
	case own:
		j.tell("left", cause.Error(), took)
	case cause != nil:
		j.tell("lost", cause.Error(), took)
	default:
		j.tell("lost", err.Error(), took)
	}
}

// deliver sends an outcome until it is answered. Who can renew the lease and not end it gives up at last, and lets it run out.
func (j *job) deliver(held context.Context, o outcome) error {
	held, cancel := context.WithTimeoutCause(held, deliveryLimit, errors.New("the server does not take the report"))
	defer cancel()
	body := map[string]any{"handle": j.claim.Handle}
	maps.Copy(body, o.body)
	var out client.Directives
	_, err := j.w.Client.Insist(held, client.Request{Method: http.MethodPost, Path: j.path("/" + o.verb), Body: body, Timeout: answerLimit}, &out, j.w.troubled)
	if err == nil {
		j.w.heed(out.Directives)
	}
	return err
}
