// Package work is a worker: it claims executions and runs a command for each of them. The lease is kept while the command runs,
// what it writes becomes frames of the execution's stream, and how it ends is how the execution ends. What happens to one
// execution is a job; a job and its lease end together, whichever ends first.
package work

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/flowapi/flowapi/internal/client"
)

// Config is what a worker is.
type Config struct {
	Client       *client.Client
	Lanes        []string
	Capabilities []string
	WorkerID     string
	Instance     string // names this process among those of WorkerID
	Concurrency  int
	LeaseTTL     time.Duration
	Grace        time.Duration // how long a command that is asked to stop may take
	IdleLimit    time.Duration // end after so long without work; never when 0
	Command      []string      // is run without a shell
	Environ      []string      // what the command's environment begins with
	Report       func(Report)  // is told what happens, by several goroutines
}

// Report is something that happened to a worker.
type Report struct {
	What      string        `json:"what"`
	Execution string        `json:"execution_id,omitempty"`
	Name      string        `json:"name,omitempty"` // its key, or its kind
	Attempt   int           `json:"attempt_index"`
	Took      time.Duration `json:"-"`
	Detail    string        `json:"detail,omitempty"`
}

// The bounds of what a worker says by itself.
const (
	liveness    = 30 * time.Second // how long the register believes in a worker that is silent
	claimWait   = 20 * time.Second
	leaveLimit  = 3 * time.Second // how long taking leave may take
	renewAtMost = 5 * time.Second // a directive to cancel is heard within this time
)

// worker is a running worker. Signals take it through its phases: it claims; draining, it only finishes; giving up, it returns
// what it holds; and at last it waits for no command any more.
type worker struct {
	Config
	jobs     sync.WaitGroup
	held     sync.Map // ids of the executions that have a job
	draining phase
	givingUp phase
	hurrying phase
	trouble  trouble
}

// Run works until it is told to stop, by a signal or by the server, and until what it holds has ended. The first signal lets what
// runs finish, the second gives it back, the third kills it. An error is that the server refuses this worker.
func Run(ctx context.Context, cfg Config, signals <-chan os.Signal) error {
	w := &worker{Config: cfg, draining: newPhase(), givingUp: newPhase(), hurrying: newPhase()}
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	helpers.Go(func() { w.obey(ctx, signals) })
	claiming := w.draining.context(ctx)
	if err := w.register(claiming); err != nil {
		if w.draining.over() {
			return nil
		}
		return err
	}
	w.tell(Report{What: "ready"})
	helpers.Go(func() { w.live(ctx) })
	err := w.claimAll(ctx, claiming)
	w.jobs.Wait()
	w.leave(ctx)
	return err
}

// obey takes signals.
func (w *worker) obey(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		switch {
		case w.draining.begin():
			w.tell(Report{What: "draining", Detail: "what runs may finish; another signal gives it back"})
		case w.givingUp.begin():
			w.tell(Report{What: "giving back", Detail: "what runs is stopped; another signal kills it"})
		default:
			w.hurrying.begin()
		}
	}
}

// heed does what a directive asks of the whole worker.
func (w *worker) heed(directives []string) {
	for _, d := range directives {
		if d == "drain" && w.draining.begin() {
			w.tell(Report{What: "draining", Detail: "the server asks for it"})
		}
	}
}

// register puts the worker on the register. It goes on until it is there, or is refused.
func (w *worker) register(ctx context.Context) error {
	in := struct {
		WorkerID     string   `json:"worker_id"`
		Lanes        []string `json:"lanes"`
		Capabilities []string `json:"capabilities"`
		LivenessMS   int64    `json:"liveness_ttl_ms"`
	}{w.WorkerID, w.Lanes, append([]string{}, w.Capabilities...), liveness.Milliseconds()}
	_, err := w.Client.Insist(ctx, client.Request{Method: http.MethodPut, Path: w.path(""), Body: in, Timeout: liveness}, nil, w.troubled)
	if err == nil {
		w.fine()
	}
	return err
}

// live keeps the worker on the register.
func (w *worker) live(ctx context.Context) {
	for client.Sleep(ctx, liveness/3) {
		var answer client.Directives
		_, err := w.Client.Do(ctx, client.Request{Method: http.MethodPost, Path: w.path("/heartbeat"), Timeout: liveness / 3}, &answer)
		switch {
		case err == nil:
			w.heed(answer.Directives)
		case client.Code(err) == "worker_not_registered":
			if err := w.register(ctx); err != nil && ctx.Err() == nil {
				w.troubled(err)
			}
		case ctx.Err() == nil:
			w.troubled(err)
		}
	}
}

// leave takes the worker off the register. If it cannot, its registration lapses.
func (w *worker) leave(ctx context.Context) {
	_, err := w.Client.Do(ctx, client.Request{Method: http.MethodDelete, Path: w.path("?reason=stopped"), Timeout: leaveLimit}, nil)
	if err != nil && client.Code(err) != "worker_not_registered" {
		w.troubled(err)
	}
	w.tell(Report{What: "stopped"})
}

func (w *worker) path(rest string) string {
	return "/v1/workers/" + url.PathEscape(w.Instance) + rest
}

func (w *worker) tell(r Report) { w.Report(r) }
