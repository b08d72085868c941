package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/wait"
	flowrepo "github.com/flowapi/flowapi/internal/repo/flow"
	"github.com/flowapi/flowapi/internal/repo/store"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
	"github.com/flowapi/flowapi/internal/storetest"
)

// house is a store with the repositories of flows and waits on it, and executions that do what the test says.
type house struct {
	testing.TB
	store      *store.Store
	clock      *store.Clock
	waits      *waitrepo.Repo
	flows      *flowrepo.Repo
	executions *executions
	alarms     *alarms
}

func houses(t *testing.T, fn func(t *testing.T, h *house)) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) { fn(t, open(t, url)) })
}

func open(tb testing.TB, url string) *house {
	tb.Helper()
	h := &house{TB: tb, clock: store.StillClock(time.Now()), executions: &executions{states: map[uuid.UUID]execution.Execution{}, results: map[uuid.UUID]execution.Value{}}, alarms: &alarms{}}
	h.store = storetest.Open(tb, store.Config{URL: url, Clock: h.clock, Alarm: h.alarms.set})
	h.waits = waitrepo.New(h.store, waitrepo.Config{})
	h.flows = flowrepo.New(h.store, h.waits, h.executions, flowrepo.Config{})
	h.flows.Attach(noRuns{})
	h.waits.Attach(waitrepo.Owners{Flows: h.flows}, waitrepo.Kinds{})
	h.store.React(h.flows.Mirror())
	return h
}

// alarms remembers when the sweep of waits was last told to look.
type alarms struct {
	mu sync.Mutex
	at time.Time
}

func (a *alarms) set(loop string, at time.Time) {
	if loop == waitrepo.Loop {
		a.mu.Lock()
		a.at = at
		a.mu.Unlock()
	}
}

func (a *alarms) last() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at
}

// noRuns stands for the repository of runs: there are none.
type noRuns struct{}

func (noRuns) Seen(_ *store.Tx, id uuid.UUID) (flow.Child, error) {
	return flow.Child{}, fault.NotFound("run", id)
}

func (noRuns) EndRest(*store.Tx, uuid.UUID) error { return nil }

// executions stands for the repository of executions.
type executions struct {
	mu      sync.Mutex
	open    int
	calls   []string
	states  map[uuid.UUID]execution.Execution
	results map[uuid.UUID]execution.Value
}

func (x *executions) call(format string, args ...any) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls = append(x.calls, fmt.Sprintf(format, args...))
	return x.open
}

func (*executions) LimitsOf(*store.Queries, string, []uuid.UUID, []uuid.UUID) (*execution.Limits, error) {
	return nil, nil
}

func (x *executions) OpenMembers(*store.Tx, uuid.UUID) (int, error) { return x.call("open"), nil }

func (x *executions) UnpauseMembers(*store.Tx, uuid.UUID, int) (int, error) {
	x.call("unpause")
	return 0, nil
}

func (x *executions) CancelMembers(tx *store.Tx, _ uuid.UUID, end execution.Cascade, _ int) (execution.MembersEnded, error) {
	what := "cancel"
	if end.PendingOnly {
		what = "cancel pending"
	}
	return execution.MembersEnded{Looked: x.call("%s %s %s", what, end.Reason, tx.Call.Actor)}, nil
}

func (x *executions) CountMembers(*store.Queries, uuid.UUID, execution.Cascade) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.open, nil
}

func (x *executions) NameMembers(*store.Queries, uuid.UUID, execution.Cascade, int) (open, failed []uuid.UUID, err error) {
	return nil, nil, nil
}

func (x *executions) EndGrace(*store.Tx, uuid.UUID, uuid.UUID) error { return nil }

func (x *executions) DeleteMembers(*store.Tx, uuid.UUID) (int, error) { return x.call("delete"), nil }

func (x *executions) Follow(_ *store.Tx, id uuid.UUID) (execution.Execution, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.states[id]; ok {
		return e, nil
	}
	return execution.Execution{}, fault.NotFound("execution", id)
}

func (x *executions) ResultIn(_ *store.Tx, id uuid.UUID) (execution.Value, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if v, ok := x.results[id]; ok {
		return v, nil
	}
	return execution.Value{}, fault.NotFound("result", id)
}

var seconds = time.Second

// as returns the context of a caller.
func as(tb testing.TB, namespace string) context.Context {
	tb.Helper()
	return call.With(tb.Context(), call.Call{Namespace: namespace, Actor: "token:ci", Token: "t", Role: access.RoleOperator})
}

// keyed returns the context of a caller with an Idempotency-Key. What is rendered is the flow's revision, or nothing.
func keyed(tb testing.TB, key string) context.Context {
	tb.Helper()
	c := call.From(as(tb, "default"))
	c.Key = &call.Idempotency{Key: key, Render: func(any) (call.Answer, error) {
		return call.Answer{Status: 201, Body: make([]byte, 70<<10)}, nil
	}}
	return call.With(tb.Context(), c)
}

func (h *house) ctx() context.Context { return as(h, "default") }

// create makes a flow in a status.
func (h *house) create(s flow.Status) flow.Flow {
	h.Helper()
	made, err := h.flows.Create(h.ctx(), flow.Create{Goal: "Release 1.4", ControllerID: "ci/release", Start: s != flow.Created, State: json.RawMessage(`{"n":1}`)})
	h.no(err)
	f := made.Flow
	switch s {
	case flow.Waiting:
		f = h.park(f.ID, `{"kind":"manual"}`)
	case flow.Finished:
		f, err = h.flows.Finish(h.ctx(), f.ID, nil, nil)
	case flow.Failed:
		f, err = h.flows.Fail(h.ctx(), f.ID, nil, "no")
	case flow.Cancelled:
		var done flow.CancelOutcome
		done, err = h.flows.Cancel(h.ctx(), f.ID, nil, flow.CancelRequest{Policy: flow.CancelAll, Reason: ""})
		f = done.Flow
	default: // it is there
	}
	h.no(err)
	return f
}

// park makes a flow wait for a condition.
func (h *house) park(id uuid.UUID, condition string) flow.Flow {
	h.Helper()
	f, err := h.flows.Wait(h.ctx(), id, nil, wait.Request{Condition: json.RawMessage(condition)})
	h.no(err)
	return f
}

func (h *house) flow(id uuid.UUID) flow.Flow {
	h.Helper()
	f, err := h.flows.Flow(h.ctx(), id)
	h.no(err)
	return f
}

func (h *house) deliver(e wait.Signal) wait.Receipt {
	h.Helper()
	receipt, err := h.waits.Deliver(h.ctx(), e)
	h.no(err)
	return receipt
}

// pass moves the clock and sweeps.
func (h *house) pass(d time.Duration) int {
	h.Helper()
	h.clock.Advance(d)
	n, err := h.waits.Pass(h.Context(), 250)
	h.no(err)
	return n
}

// in returns a time from now, as documents spell it.
func (h *house) in(d time.Duration) string {
	return h.clock.Now().Add(d).Format("2006-01-02T15:04:05.000Z")
}

func (h *house) timer(d time.Duration) string { return `{"kind":"timer","at":"` + h.in(d) + `"}` }

func event1(topic, correlation string) string {
	return `{"kind":"external_event","topic":"` + topic + `","correlation_id":"` + correlation + `"}`
}

// trail returns a flow's own events, the first first.
func (h *house) trail(id uuid.UUID) []event.Event {
	h.Helper()
	p, err := h.flows.Trail(h.ctx(), id, flow.TrailFilter{}, page.Cursor{}, 500)
	h.no(err)
	list := make([]event.Event, len(p.Items))
	for i, e := range p.Items {
		list[len(list)-1-i] = e
	}
	return list
}

func types(events []event.Event) []event.Type {
	list := make([]event.Type, len(events))
	for i := range events {
		list[i] = events[i].Type
	}
	return list
}

func (h *house) no(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// is fails unless err has a code.
func (h *house) is(err error, code fault.Code) {
	h.Helper()
	if fault.CodeOf(err) != code {
		h.Fatalf("the error is %v, want %s", err, code)
	}
}

// replayed returns what a repeated request gets.
func (h *house) replayed(err error) *call.Replayed {
	h.Helper()
	again, ok := errors.AsType[*call.Replayed](err)
	if !ok {
		h.Fatalf("the error is %v, want a replay", err)
	}
	return again
}
