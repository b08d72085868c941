package run_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
)

var (
	id     = uuid.MustParse("01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01")
	flowID = uuid.MustParse("01985c3e-7a10-7c3e-9b52-3f1d8e6a4b02")
	waitID = uuid.MustParse("01985c3f-1a10-7b3e-8b52-4f1d8e6a4b06")
	start  = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
)

const (
	token   = "engine-1"
	horizon = 24 * time.Hour
)

// at returns the time that many seconds after the start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func by(seconds int) event.By { return event.By{Actor: "token:ci", At: at(seconds)} }

// must returns the run that a verb makes.
func must(tb testing.TB) func(run.Change, error) run.Run {
	tb.Helper()
	return func(c run.Change, err error) run.Run {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return c.Run
	}
}

func fresh(tb testing.TB) run.Run {
	tb.Helper()
	return must(tb)(run.New(run.Create{ID: id, Namespace: "default", WorkflowName: "deploy", FlowID: flowID, Creator: "token:dev"}, by(0)))
}

// leased returns r with the lease of the engine, until an hour later.
func leased(tb testing.TB, r run.Run, seconds int) run.Run {
	tb.Helper()
	c, _, err := r.Acquire(token, time.Hour, by(seconds))
	return must(tb)(c, err)
}

func park(generation int64) run.Park {
	return run.Park{Generation: generation, BlockedOn: json.RawMessage(`{"type":"human_approval","gate_name":"deploy"}`)}
}

// in returns a run in a status, that an engine has at its generation 1. It holds the lease unless the run has ended or needs_resume.
func in(tb testing.TB, s run.Status) run.Run {
	tb.Helper()
	ok := must(tb)
	r := leased(tb, fresh(tb), 1)
	if s == run.Pending {
		return r
	}
	r = ok(r.Start(1, by(2)))
	switch s {
	case run.Waiting:
		return ok(r.Park(waitID, park(1), horizon, by(3)))
	case run.Cancelling:
		return ok(r.Cancel(run.Cancel{Message: "enough", Deadline: 5 * time.Second}, by(3)))
	case run.NeedsResume:
		return ok(r.Release(run.Release{Token: token, Generation: 1, NeedsResume: true}, by(3)))
	case run.Completed:
		return ok(r.Complete(1, "done", 0, by(3)))
	case run.Failed:
		return ok(r.Fail(1, "boom", "half of it", by(3)))
	case run.Cancelled:
		return ok(r.Cancel(run.Cancel{Generation: new(int64(1)), Message: "enough"}, by(3)))
	default:
		return r
	}
}

// frozen returns a copy of r that shares nothing with it.
func frozen(r run.Run) run.Run {
	if r.Wait != nil {
		r.Wait = new(*r.Wait)
	}
	if r.Cancellation != nil {
		r.Cancellation = new(*r.Cancellation)
	}
	r.Inputs, r.Definition, r.Lease.Owner = slices.Clone(r.Inputs), slices.Clone(r.Definition), slices.Clone(r.Lease.Owner)
	return r
}

// refused fails unless err has a code and these facts.
func refused(t interface {
	Helper()
	Errorf(string, ...any)
}, err error, code fault.Code, facts map[string]any) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("%v, want %q", err, code)
		return
	}
	f, _ := errors.AsType[*fault.Error](err)
	if facts == nil || f == nil {
		return
	}
	if diff := cmp.Diff(facts, f.Facts, cmp.Transformer("time", event.Stamp.Time)); diff != "" {
		t.Errorf("the facts of %s (-want +got):\n%s", code, diff)
	}
}

// pointer returns what a refusal points at.
func pointer(err error) string {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || len(f.Fields) != 1 {
		return ""
	}
	return f.Fields[0].Pointer
}

// lines returns type and data of each event, one on a line.
func lines(tb testing.TB, events []event.Event) []string {
	tb.Helper()
	var out []string
	for _, e := range events {
		data, err := json.Marshal(e.Data)
		if err != nil {
			tb.Fatal(err)
		}
		if e.RunID != id || e.Namespace != "default" || e.FlowID != flowID || e.Type.Topic() == "" {
			tb.Errorf("event %s of %q tells of run %s and flow %s", e.Type, e.Namespace, e.RunID, e.FlowID)
		}
		out = append(out, string(e.Type)+" "+string(data))
	}
	return out
}

// verbCase is what changes a status: it is called by the engine with a generation, or by somebody who has none.
type verbCase struct {
	name   string
	call   func(r run.Run, generation int64) (run.Change, error)
	fenced bool
	asks   run.Status                // what it asks for, as a refusal names it
	code   fault.Code                // of a refusal, "" for CodeIllegalTransition
	to     map[run.Status]run.Status // the same status for what is told without a transition
	other  map[run.Status]fault.Code // refusals with another code
	quiet  []run.Status              // where it changes nothing
}

func verbCases() []verbCase {
	gen := func(g int64) *int64 { return &g }
	unleased := map[run.Status]fault.Code{
		run.NeedsResume: fault.CodeLeaseLost, run.Completed: fault.CodeLeaseLost, run.Failed: fault.CodeLeaseLost, run.Cancelled: fault.CodeLeaseLost,
	}
	all := func(to run.Status, from ...run.Status) map[run.Status]run.Status {
		m := map[run.Status]run.Status{}
		for _, s := range from {
			m[s] = to
		}
		return m
	}
	late := func(how run.OnTimeout) func(run.Run, int64) (run.Change, error) {
		return func(r run.Run, _ int64) (run.Change, error) {
			if r = frozen(r); r.Wait != nil {
				r.Wait.OnTimeout = how
			}
			return r.Late(by(9))
		}
	}
	return []verbCase{
		{name: "start", fenced: true, asks: run.Running, to: all(run.Running, run.Pending),
			call: func(r run.Run, g int64) (run.Change, error) { return r.Start(g, by(9)) }},
		{name: "wait", fenced: true, asks: run.Waiting, to: all(run.Waiting, run.Running),
			call: func(r run.Run, g int64) (run.Change, error) { return r.Park(waitID, park(g), horizon, by(9)) }},
		{name: "resume by the engine", fenced: true, asks: run.Running, code: fault.CodeNotResumable, to: all(run.Running, run.Waiting, run.NeedsResume, run.Failed),
			call: func(r run.Run, g int64) (run.Change, error) { return r.Resume(run.Resume{Generation: gen(g)}, by(9)) }},
		{name: "resume", asks: run.Running, code: fault.CodeNotResumable, to: all(run.Running, run.NeedsResume, run.Failed),
			other: map[run.Status]fault.Code{run.Waiting: fault.CodeValidationFailed},
			call:  func(r run.Run, _ int64) (run.Change, error) { return r.Resume(run.Resume{}, by(9)) }},
		{name: "restart", asks: run.Running, code: fault.CodeNotResumable, to: all(run.Running, run.NeedsResume, run.Failed, run.Completed),
			other: map[run.Status]fault.Code{run.Waiting: fault.CodeValidationFailed},
			call:  func(r run.Run, _ int64) (run.Change, error) { return r.Resume(run.Resume{Restart: true}, by(9)) }},
		{name: "restart by the engine", fenced: true, asks: run.Running, code: fault.CodeNotResumable, to: all(run.Running, run.NeedsResume, run.Failed, run.Completed),
			other: map[run.Status]fault.Code{run.Waiting: fault.CodeValidationFailed},
			call: func(r run.Run, g int64) (run.Change, error) {
				return r.Resume(run.Resume{Restart: true, Generation: gen(g)}, by(9))
			}},
		{name: "resume from a step", asks: run.Running, code: fault.CodeNotResumable, to: all(run.Running, run.NeedsResume, run.Failed),
			other: map[run.Status]fault.Code{run.Waiting: fault.CodeValidationFailed},
			call:  func(r run.Run, _ int64) (run.Change, error) { return r.Resume(run.Resume{FromStep: "build"}, by(9)) }},
		{name: "resume from a step by the engine", fenced: true, asks: run.Running, code: fault.CodeNotResumable, to: all(run.Running, run.NeedsResume, run.Failed),
			other: map[run.Status]fault.Code{run.Waiting: fault.CodeValidationFailed},
			call: func(r run.Run, g int64) (run.Change, error) {
				return r.Resume(run.Resume{FromStep: "build", Generation: gen(g)}, by(9))
			}},
		{name: "late, fail", asks: run.Running, to: all(run.Failed, run.Waiting), call: late(run.TimeoutFails)},
		{name: "late, cancel", asks: run.Running, to: all(run.Cancelled, run.Waiting), call: late(run.TimeoutCancels)},
		{name: "late, resume", asks: run.Running, to: all(run.Running, run.Waiting), call: late(run.TimeoutResumes)},
		{name: "complete", fenced: true, asks: run.Completed, to: all(run.Completed, run.Running),
			call: func(r run.Run, g int64) (run.Change, error) { return r.Complete(g, "done", 0, by(9)) }},
		{name: "fail", fenced: true, asks: run.Failed, to: all(run.Failed, run.Pending, run.Running, run.Waiting, run.NeedsResume),
			call: func(r run.Run, g int64) (run.Change, error) { return r.Fail(g, "boom", "", by(9)) }},
		{name: "cancel under a lease", asks: run.Cancelled, quiet: []run.Status{run.Cancelling},
			to: map[run.Status]run.Status{run.Pending: run.Cancelled, run.Running: run.Cancelling, run.Waiting: run.Cancelling, run.NeedsResume: run.Cancelled},
			call: func(r run.Run, _ int64) (run.Change, error) {
				return r.Cancel(run.Cancel{Deadline: time.Second}, by(9))
			}},
		{name: "cancel after the lease", asks: run.Cancelled, quiet: []run.Status{run.Cancelling}, to: all(run.Cancelled, run.Pending, run.Running, run.Waiting, run.NeedsResume),
			call: func(r run.Run, _ int64) (run.Change, error) {
				return r.Cancel(run.Cancel{Deadline: time.Second}, by(2*3600))
			}},
		{name: "cancel by the engine", fenced: true, asks: run.Cancelled, to: all(run.Cancelled, run.Pending, run.Running, run.Waiting, run.Cancelling, run.NeedsResume),
			call: func(r run.Run, g int64) (run.Change, error) { return r.Cancel(run.Cancel{Generation: gen(g)}, by(9)) }},
		{name: "force", asks: run.Cancelled, to: all(run.Cancelled, run.Pending, run.Running, run.Waiting, run.Cancelling, run.NeedsResume),
			call: func(r run.Run, _ int64) (run.Change, error) { return r.Force(by(9)) }},
		{name: "release unfinished", fenced: true, asks: run.NeedsResume, other: unleased,
			to: map[run.Status]run.Status{run.Running: run.NeedsResume, run.Waiting: run.NeedsResume, run.Cancelling: run.Cancelled},
			call: func(r run.Run, g int64) (run.Change, error) {
				return r.Release(run.Release{Token: token, Generation: g, NeedsResume: true}, by(9))
			}},
		{name: "release", fenced: true, other: unleased,
			to: map[run.Status]run.Status{run.Pending: run.Pending, run.Running: run.Running, run.Waiting: run.Waiting, run.Cancelling: run.Cancelled},
			call: func(r run.Run, g int64) (run.Change, error) {
				return r.Release(run.Release{Token: token, Generation: g}, by(9))
			}},
	}
}

// TestTransitions holds the whole machine: each verb from each status. reference: runs-and-taskflows.md A4.1, A10; model.md "Run".
func TestTransitions(t *testing.T) {
	t.Parallel()
	for _, v := range verbCases() {
		for _, from := range run.Statuses() {
			t.Run(v.name+"/"+string(from), func(t *testing.T) {
				t.Parallel()
				r := in(t, from)
				before := frozen(r)
				got, err := v.call(r, 1)
				if diff := cmp.Diff(before, r); diff != "" {
					t.Errorf("the verb changed its receiver (-before +after):\n%s", diff)
				}
				if slices.Contains(v.quiet, from) {
					if diff := cmp.Diff(run.Change{Run: before}, got); err != nil || diff != "" {
						t.Errorf("%v, want nothing (-want +got):\n%s", err, diff)
					}
					return
				}
				to, moves := v.to[from]
				if !moves {
					code, facts := v.other[from], map[string]any(nil)
					switch {
					case code == fault.CodeLeaseLost:
						facts = map[string]any{"current_generation": int64(1)}
					case code == "" && v.code == "":
						code, facts = fault.CodeIllegalTransition, map[string]any{"from": from, "to": v.asks}
					case code == "":
						code, facts = v.code, map[string]any{"from": from, "to": v.asks, "current_status": from}
					}
					refused(t, err, code, facts)
					if diff := cmp.Diff(run.Change{}, got); diff != "" {
						t.Errorf("a refusal comes with a change:\n%s", diff)
					}
					return
				}
				if err != nil || got.Run.Status != to {
					t.Fatalf("it is %s, %v, want %s", got.Run.Status, err, to)
				}
				n := got.Run
				if n.Revision != before.Revision+1 || n.Generation != 1 || len(got.Events) != 1 || *got.Events[0].Revision != n.Revision || !n.UpdatedAt.After(before.UpdatedAt) {
					t.Errorf("revision %d became %d since %s, generation %d, with %v", before.Revision, n.Revision, n.UpdatedAt, n.Generation, lines(t, got.Events))
				}
				if ended := n.Status.Terminal(); ended != !n.EndedAt.IsZero() || ended && n.Lease.Owner != nil || (n.Status == run.Waiting) != (n.Wait != nil) {
					t.Errorf("a run that is %s: ended at %s, lease %v, wait %v", n.Status, n.EndedAt, n.Lease, n.Wait)
				}
			})
		}
	}
}

// TestFence: a stale generation is refused before anything else is looked at, whatever the status.
// reference: runs-and-taskflows.md D1 4, A13 2; RS-05, 06, 07.
func TestFence(t *testing.T) {
	t.Parallel()
	for _, v := range verbCases() {
		if !v.fenced {
			continue
		}
		for _, from := range run.Statuses() {
			for _, generation := range []int64{0, 2, -1} {
				r := in(t, from)
				got, err := v.call(r, generation)
				refused(t, err, fault.CodeLeaseLost, map[string]any{"current_generation": int64(1)})
				if diff := cmp.Diff(run.Change{}, got); diff != "" {
					t.Errorf("%s of a run that is %s with generation %d:\n%s", v.name, from, generation, diff)
				}
			}
		}
	}
	// What is wrong otherwise, too, is still said to be stale.
	r := in(t, run.Running)
	_, err := r.Park(waitID, run.Park{BlockedOn: json.RawMessage(`7`), Deadline: start}, horizon, by(9))
	refused(t, err, fault.CodeLeaseLost, nil)
	_, err = r.Complete(0, "", 3, by(9))
	refused(t, err, fault.CodeLeaseLost, nil)
	_, err = r.Release(run.Release{Token: "x"}, by(9))
	refused(t, err, fault.CodeLeaseLost, nil)
}

// TestCalled: a run whose child has ended goes on when it waits, and only then.
func TestCalled(t *testing.T) {
	t.Parallel()
	r := in(t, run.Waiting)
	got, err := r.Called(by(9))
	if err != nil || got.Run.Status != run.Running || got.Run.Wait != nil || got.Run.ResumeCount != 0 {
		t.Errorf("Called() = %+v, %v", got.Run, err)
	}
	if diff := cmp.Diff([]string{`run.resumed {"by":"child"}`}, lines(t, got.Events)); diff != "" {
		t.Error(diff)
	}
	for _, s := range []run.Status{run.Running, run.Cancelling, run.Cancelled} {
		r := in(t, s)
		_, err := r.Called(by(9))
		refused(t, err, fault.CodeIllegalTransition, map[string]any{"from": s, "to": run.Running})
	}
}

// TestCalled_OnlyWaiting: a child that ends begins no run, and brings none back.
func TestCalled_OnlyWaiting(t *testing.T) {
	t.Parallel()
	for _, s := range []run.Status{run.Pending, run.NeedsResume, run.Completed, run.Failed} {
		r := in(t, s)
		_, err := r.Called(by(9))
		refused(t, err, fault.CodeIllegalTransition, map[string]any{"from": s, "to": run.Running})
	}
}

// TestRun tells the life of a run, and compares all of it.
func TestRun(t *testing.T) {
	t.Parallel()
	ok := must(t)
	c, err := run.New(run.Create{
		ID: id, Namespace: "default", WorkflowName: "deploy", Inputs: json.RawMessage(` { "a" : 1 } `), Definition: json.RawMessage(`{ "title": "Deploy it" }`),
		ParentRunID: "outer", FlowID: flowID, Iteration: 2, Creator: "token:dev", Trigger: "hook", DryRun: true,
	}, by(0))
	r := ok(c, err)
	want := run.Run{
		ID: id, Namespace: "default", WorkflowName: "deploy", WorkflowTitle: "Deploy it", Status: run.Pending, Trigger: "hook", DryRun: true,
		Inputs: json.RawMessage(`{"a":1}`), Definition: json.RawMessage(`{"title":"Deploy it"}`), ParentRunID: "outer", FlowID: flowID, Iteration: 2,
		Creator: "token:dev", CreatedAt: at(0), UpdatedAt: at(0),
	}
	told := lines(t, c.Events)
	step := func(c run.Change, err error) {
		t.Helper()
		r = ok(c, err)
		told = append(told, lines(t, c.Events)...)
		if diff := cmp.Diff(want, r); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	step(run.Change{Run: r}, nil)

	want.Lease, want.Generation, want.Revision, want.UpdatedAt = run.Lease{Owner: run.OwnerOf(token), Until: at(61)}, 1, 1, at(1)
	c, _, err = r.Acquire(token, time.Minute, by(1))
	step(c, err)
	want.Status, want.StartedAt, want.ActiveSince, want.Revision, want.UpdatedAt = run.Running, at(2), at(2), 2, at(2)
	step(r.Start(1, by(2)))
	want.Status, want.Revision, want.UpdatedAt = run.Waiting, 3, at(4)
	want.Wait = &run.Wait{ID: waitID, BlockedOn: json.RawMessage(`{"type":"timer"}`), Deadline: at(60), OnTimeout: run.TimeoutResumes, Since: at(4)}
	step(r.Park(waitID, run.Park{Generation: 1, BlockedOn: json.RawMessage(` {"type": "timer"}`), Deadline: at(60), OnTimeout: run.TimeoutResumes}, horizon, by(4)))
	want.Status, want.Wait, want.Revision, want.UpdatedAt = run.Running, nil, 4, at(5)
	step(r.Resume(run.Resume{Generation: new(int64(1))}, by(5)))
	want.Status, want.Lease, want.Revision, want.UpdatedAt = run.NeedsResume, run.Lease{}, 5, at(6)
	want.TotalDuration, want.ActiveSince = 4*time.Second, time.Time{}
	step(r.Release(run.Release{Token: token, Generation: 1, NeedsResume: true}, by(6)))
	want.Status, want.ResumeCount, want.ActiveSince, want.Revision, want.UpdatedAt = run.Running, 1, at(10), 6, at(10)
	step(r.Resume(run.Resume{}, by(10)))
	want.Lease, want.Generation, want.Revision, want.UpdatedAt = run.Lease{Owner: run.OwnerOf("engine-2"), Until: at(71)}, 2, 7, at(11)
	c, _, err = r.Acquire("engine-2", time.Minute, by(11))
	step(c, err)
	want.Status, want.Error, want.ResultSummary, want.Lease, want.Revision, want.UpdatedAt = run.Failed, "boom", "half", run.Lease{}, 8, at(13)
	want.EndedAt, want.ActiveSince, want.TotalDuration = at(13), time.Time{}, 7*time.Second
	step(r.Fail(2, "boom", "half", by(13)))
	want.Status, want.Error, want.ResultSummary, want.ResumeCount, want.Revision, want.UpdatedAt = run.Running, "", "", 2, 9, at(20)
	want.EndedAt, want.ActiveSince = time.Time{}, at(20)
	step(r.Resume(run.Resume{FromStep: "build"}, by(20)))
	want.Status, want.ResultSummary, want.Revision, want.UpdatedAt, want.EndedAt = run.Completed, "done", 10, at(21), at(21)
	want.ActiveSince, want.TotalDuration = time.Time{}, 8*time.Second
	step(r.Complete(2, "done", 0, by(21)))
	want.Dismissed, want.Revision, want.UpdatedAt = true, 11, at(22)
	step(r.Dismiss(true, by(22)), nil)
	step(r.Dismiss(true, by(23)), nil)
	want.Status, want.ResultSummary, want.ResumeCount, want.Revision, want.UpdatedAt = run.Running, "", 3, 12, at(30)
	want.EndedAt, want.ActiveSince = time.Time{}, at(30)
	step(r.Resume(run.Resume{Restart: true}, by(30)))
	want.Status, want.CancelReason, want.ResultSummary, want.Revision, want.UpdatedAt, want.EndedAt = run.Cancelled, run.ByUser, "enough", 13, at(31), at(31)
	want.ActiveSince, want.TotalDuration = time.Time{}, 9*time.Second
	want.Cancellation = &run.Cancellation{Actor: "token:ci", Message: "enough", RequestedAt: at(31)}
	step(r.Cancel(run.Cancel{Message: "enough"}, by(31)))
	told = append(told, lines(t, []event.Event{r.Gone()})...)

	if diff := cmp.Diff(lifeOfRun, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// lifeOfRun is what is told of it.
var lifeOfRun = []string{
	`run.created {"workflow_name":"deploy","workflow_title":"Deploy it","trigger":"hook","dry_run":true}`,
	`run.leased {"generation":1,"outcome":"granted","lease_until":"2026-11-21T09:31:01.000Z"}`,
	`run.started {"generation":1}`,
	fmt.Sprintf(`run.waiting {"wait_id":"%s","blocked_on":{"type":"timer"},"deadline":"2026-11-21T09:31:00.000Z","on_timeout":"resume"}`, waitID),
	`run.resumed {"by":"engine"}`,
	`run.needs_resume null`,
	`run.resumed {"by":"request","resume_count":1}`,
	`run.leased {"generation":2,"outcome":"granted","lease_until":"2026-11-21T09:31:11.000Z"}`,
	`run.failed {"result_summary":"half","error":"boom","total_duration_ms":7000,"generation":2}`,
	`run.resumed {"by":"request","resume_count":2,"from_step":"build"}`,
	`run.completed {"result_summary":"done","total_duration_ms":8000,"generation":2}`,
	`run.dismissed {"dismissed":true}`,
	`run.resumed {"by":"request","resume_count":3,"restart":true}`,
	`run.cancelled {"result_summary":"enough","cancel_reason":"user_requested","total_duration_ms":9000,"generation":2}`,
	`run.deleted {"status":"cancelled"}`,
}
