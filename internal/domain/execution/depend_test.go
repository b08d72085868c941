package execution_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

const (
	blockedRow = "runnable unowned blocked_by_dependencies waiting_for_children none pending_first_attempt"
	pausedRow  = "runnable unowned blocked_by_lane_state paused_by_policy none pending_first_attempt"
	delayedRow = "runnable unowned not_eligible_until_time waiting_for_delay none pending_first_attempt"
	skippedRow = "terminal unowned not_applicable none skipped attempt_terminal"

	blockedDetail = "waiting for what it depends on"
	pausedDetail  = "the flow has not been started"
	delayDetail   = "delayed until 2026-11-21T09:31:40.000Z"

	toldBlocked  = `execution.blocked {"blocking_reason":"waiting_for_children"}`
	toldPaused   = `execution.blocked {"blocking_reason":"paused_by_policy"}`
	toldDelayed  = `execution.delayed {"delay_until":"2026-11-21T09:31:40.000Z","blocking_reason":"waiting_for_delay"}`
	toldEligible = `execution.eligible {"blocking_reason":"waiting_for_worker","attempt_state":"pending_first_attempt"}`
)

// made returns how to create an execution that is otherwise in some respect.
func made(change func(*execution.Create)) func(testing.TB) execution.Execution {
	return func(tb testing.TB) execution.Execution {
		tb.Helper()
		return created(tb, change)
	}
}

var (
	blocked        = made(func(in *execution.Create) { in.Blocked = true })
	blockedDelayed = made(func(in *execution.Create) { in.Blocked, in.DelayUntil = true, after(100) })
	paused         = made(func(in *execution.Create) { in.Paused = true })
	pausedDelayed  = made(func(in *execution.Create) { in.Paused, in.DelayUntil = true, after(100) })
)

func replayed(tb testing.TB, at execution.Standing) execution.Execution {
	tb.Helper()
	return must(tb)(completed(tb).Replay(at, after(20)))
}

func askedToEnd(tb testing.TB) execution.Execution {
	tb.Helper()
	return must(tb)(active(tb).CancelWithin(byOperator, 20*time.Second, after(10)))
}

// dependent are the executions that members of a graph may be, by name.
var dependent = map[string]func(testing.TB) execution.Execution{
	"created": plain(created), "delayed": delayed, "reserved": reserved, "blocked": blocked, "blocked, delayed": blockedDelayed, "paused": paused, "paused, delayed": pausedDelayed,
	"active": plain(active), "lapsed": lapsed, "retrying": retrying, "retry due": retryDue, "released": released, "waiting for the children of its attempt": withChildren,
	"completed": completed, "cancelled": cancelled, "being cancelled": askedToEnd,
	"replayed": func(tb testing.TB) execution.Execution { tb.Helper(); return replayed(tb, execution.Standing{}) },
	"replayed, blocked": func(tb testing.TB) execution.Execution {
		tb.Helper()
		return replayed(tb, execution.Standing{Blocked: true})
	},
	"replayed, paused": func(tb testing.TB) execution.Execution {
		tb.Helper()
		return replayed(tb, execution.Standing{Paused: true})
	},
	"skipped": func(tb testing.TB) execution.Execution {
		tb.Helper()
		c, _ := blocked(tb).Skip(after(5))
		return c.Execution
	},
}

// may makes a transition of what can be refused without an error.
func may(do func(e execution.Execution) (execution.Change, bool)) func(e execution.Execution) (execution.Change, error) {
	return func(e execution.Execution) (execution.Change, error) {
		c, ok := do(e)
		if !ok {
			return c, fault.New(fault.CodeIllegalTransition, "refused")
		}
		return c, nil
	}
}

func block(e execution.Execution) (execution.Change, bool) { return e.Block() }

func unblock(paused bool, seconds int) func(e execution.Execution) (execution.Change, bool) {
	return func(e execution.Execution) (execution.Change, bool) { return e.Unblock(paused, after(seconds)) }
}

func pause(e execution.Execution) (execution.Change, bool) { return e.Pause() }

func unpause(seconds int) func(e execution.Execution) (execution.Change, bool) {
	return func(e execution.Execution) (execution.Change, bool) { return e.Unpause(after(seconds)) }
}

func skip(e execution.Execution) (execution.Change, bool) { return e.Skip(after(70)) }

// TestDependencies is what becomes of members because of others, and of their flow: flows-streams-budgets.md 2.4, 2.6.
func TestDependencies(t *testing.T) {
	t.Parallel()
	runTransitions(t, dependenciesCases)
}

var dependenciesCases = []transition{
	{
		name: "block", from: plain(created), do: may(block), vector: blockedRow, public: execution.PublicWaitingChildren,
		change: func(e *execution.Execution) { e.BlockingDetail = blockedDetail }, events: []string{toldBlocked},
	},
	{
		name: "block what somebody has reserved", from: reserved, do: may(block), vector: blockedRow, public: execution.PublicWaitingChildren,
		change: func(e *execution.Execution) { e.BlockingDetail, e.Grant = blockedDetail, nil }, events: []string{toldBlocked},
	},
	{
		name: "block what is delayed: the delay is kept", from: delayed, do: may(block), vector: blockedRow, public: execution.PublicWaitingChildren,
		change: func(e *execution.Execution) { e.BlockingDetail = blockedDetail }, events: []string{toldBlocked},
	},
	{
		name: "block what is paused", from: paused, do: may(block), vector: blockedRow, public: execution.PublicWaitingChildren,
		change: func(e *execution.Execution) { e.BlockingDetail = blockedDetail }, events: []string{toldBlocked},
	},
	{
		name: "block what runs again", from: dependent["replayed"], do: may(block), public: execution.PublicWaitingChildren,
		vector: "runnable unowned blocked_by_dependencies waiting_for_children none pending_replay_attempt",
		change: func(e *execution.Execution) { e.BlockingDetail = blockedDetail }, events: []string{toldBlocked},
	},
	{
		name: "unblock", from: blocked, do: may(unblock(false, 20)), vector: waitingRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) { e.BlockingDetail = "" }, events: []string{toldEligible},
	},
	{
		name: "unblock what is delayed", from: blockedDelayed, do: may(unblock(false, 20)), vector: delayedRow, public: execution.PublicDelayed,
		change: func(e *execution.Execution) { e.BlockingDetail = delayDetail }, events: []string{toldDelayed},
	},
	{
		name: "unblock what was delayed until now", from: blockedDelayed, do: may(unblock(false, 100)), vector: waitingRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) { e.BlockingDetail, e.DelayUntil = "", time.Time{} }, events: []string{toldEligible},
	},
	{
		name: "unblock in a flow that has not started", from: blocked, do: may(unblock(true, 20)), vector: pausedRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) { e.BlockingDetail = pausedDetail }, events: []string{toldPaused},
	},
	{
		name: "unblock what runs again", from: dependent["replayed, blocked"], do: may(unblock(false, 20)), public: execution.PublicWaiting,
		vector: "runnable unowned eligible_now waiting_for_worker none pending_replay_attempt",
		change: func(e *execution.Execution) { e.BlockingDetail = "" },
		events: []string{`execution.eligible {"blocking_reason":"waiting_for_worker","attempt_state":"pending_replay_attempt"}`},
	},
	{
		name: "pause", from: reserved, do: may(pause), vector: pausedRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) { e.BlockingDetail, e.Grant = pausedDetail, nil }, events: []string{toldPaused},
	},
	{
		name: "pause what is delayed", from: delayed, do: may(pause), vector: pausedRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) { e.BlockingDetail = pausedDetail }, events: []string{toldPaused},
	},
	{
		name: "unpause", from: paused, do: may(unpause(20)), vector: waitingRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) { e.BlockingDetail = "" }, events: []string{toldEligible},
	},
	{
		name: "unpause what was delayed until now", from: pausedDelayed, do: may(unpause(100)), vector: waitingRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) { e.BlockingDetail, e.DelayUntil = "", time.Time{} }, events: []string{toldEligible},
	},
	{
		name: "skip what was never claimed", from: blocked, do: may(skip), public: execution.PublicSkipped,
		vector: "terminal unowned not_applicable none skipped none",
		change: func(e *execution.Execution) { e.BlockingDetail, e.CompletedAt = "", after(70) },
		events: []string{`execution.skipped ` + ended("skipped", `"reason":"dependency_impossible",`)},
	},
	{
		name: "skip what somebody works on", from: plain(active), do: may(skip), vector: skippedRow, public: execution.PublicSkipped,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Lease.Epoch, e.Lease.ExpiresAt, e.AttemptTimeoutAt = after(70), 2, time.Time{}, time.Time{}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedCancelled, Close: execution.ClosedDependencyImpossible, EndedAt: after(70)}},
		events: []string{`execution.skipped ` + ended("skipped", `"attempt_index":0,"reason":"dependency_impossible",`),
			`lease.revoked ` + lease(1, 1, 0, `"reason":"cancelled"`)},
	},
	{
		name: "skip what is being cancelled", from: askedToEnd, do: may(skip), vector: skippedRow, public: execution.PublicSkipped,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Lease.Epoch, e.Lease.ExpiresAt, e.AttemptTimeoutAt, e.Cancellation = after(70), 2, time.Time{}, time.Time{}, nil
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedCancelled, Close: execution.ClosedDependencyImpossible, EndedAt: after(70)}},
		events: []string{`execution.skipped ` + ended("skipped", `"attempt_index":0,"reason":"dependency_impossible",`),
			`lease.revoked ` + lease(1, 1, 0, `"reason":"cancelled"`)},
	},
	{
		name: "skip what is to be replayed", from: dependent["replayed, blocked"], do: may(skip), vector: skippedRow, public: execution.PublicSkipped,
		change: func(e *execution.Execution) { e.CompletedAt, e.BlockingDetail, e.Lease.Epoch = after(70), "", 2 },
		events: []string{`execution.skipped ` + ended("skipped", `"attempt_index":0,"reason":"dependency_impossible",`)},
	},
	{
		name: "join a flow", from: plain(created), do: func(e execution.Execution) (execution.Change, error) { return e.JoinFlow(id(9), nil), nil },
		vector: waitingRow, public: execution.PublicWaiting, change: func(e *execution.Execution) { e.FlowID = id(9) },
	},
	{
		name: "join a flow at work", from: plain(active), do: func(e execution.Execution) (execution.Change, error) { return e.JoinFlow(id(9), nil), nil },
		vector: activeRow, public: execution.PublicActive, change: func(e *execution.Execution) { e.FlowID = id(9) },
	},
	{
		name: "cancel with a grace", from: plain(active), do: cancelWithin(20, 10), vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			by := byOperator
			by.DeadlineAt = after(30)
			e.Cancellation = &by
		},
		events: []string{`execution.cancelling {"reason":"not needed","deadline_at":"2026-11-21T09:30:30.000Z"}`},
	},
	{
		name: "cancel with less of a grace: who asked first is kept", from: askedToEnd, vector: activeRow, public: execution.PublicActive,
		do: func(e execution.Execution) (execution.Change, error) {
			return e.CancelWithin(execution.Cancellation{Reason: "other", Actor: "token:else", RequestedAt: after(12)}, 5*time.Second, after(12))
		},
		change: func(e *execution.Execution) {
			by := byOperator
			by.DeadlineAt = after(17)
			e.Cancellation = &by
		},
		events: []string{`execution.cancelling {"reason":"not needed","deadline_at":"2026-11-21T09:30:17.000Z"}`},
	},
	{
		name: "the grace is for who holds it", from: blocked, do: cancelWithin(20, 10), public: execution.PublicCancelled,
		vector: "terminal unowned not_applicable none cancelled pending_first_attempt",
		change: func(e *execution.Execution) {
			e.BlockingDetail, e.CompletedAt, e.Cancellation = "", after(10), &byOperator
		},
		events: []string{`execution.cancelled ` + ended("cancelled", `"reason":"not needed",`)},
	},
	{
		name: "replay, and wait for what it depends on", from: completed, public: execution.PublicWaitingChildren,
		do: func(e execution.Execution) (execution.Change, error) {
			return e.Replay(execution.Standing{Blocked: true, Paused: true}, after(20))
		},
		vector: "runnable unowned blocked_by_dependencies waiting_for_children none pending_replay_attempt",
		change: func(e *execution.Execution) {
			e.BlockingDetail, e.Replays, e.CompletedAt = blockedDetail, 1, time.Time{}
		},
		events: []string{`operator.replayed {"replay_count":1,"branch":"normal","outcome":"success"}`, toldBlocked},
	},
	{
		name: "replay, and wait for the start of the flow", from: dependent["skipped"], public: execution.PublicWaiting,
		do: func(e execution.Execution) (execution.Change, error) {
			return e.Replay(execution.Standing{Paused: true}, after(20))
		},
		vector: "runnable unowned blocked_by_lane_state paused_by_policy none pending_replay_attempt",
		change: func(e *execution.Execution) {
			e.BlockingDetail, e.Replays, e.CompletedAt = pausedDetail, 1, time.Time{}
		},
		events: []string{`operator.replayed {"replay_count":1,"branch":"skipped_flow_member","outcome":"skipped"}`, toldPaused},
	},
}

func cancelWithin(grace, at int) func(e execution.Execution) (execution.Change, error) {
	return func(e execution.Execution) (execution.Change, error) {
		return e.CancelWithin(byOperator, time.Duration(grace)*time.Second, after(at))
	}
}

// TestDependencies_Refusals: from every state, each operation that is refused changes nothing, and each that is not makes a legal
// vector with one revision more.
func TestDependencies_Refusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do func(e execution.Execution) (execution.Change, bool)
		ok []string
	}{
		"block":   {block, []string{"created", "delayed", "reserved", "paused", "paused, delayed", "replayed", "replayed, paused"}},
		"unblock": {unblock(false, 70), []string{"blocked", "blocked, delayed", "replayed, blocked"}},
		"pause":   {pause, []string{"created", "delayed", "reserved", "replayed"}},
		"unpause": {unpause(70), []string{"paused", "paused, delayed", "replayed, paused"}},
		"skip": {skip, []string{"created", "delayed", "reserved", "blocked", "blocked, delayed", "paused", "paused, delayed", "active", "lapsed", "retrying", "retry due", "released",
			"waiting for the children of its attempt", "being cancelled", "replayed", "replayed, blocked", "replayed, paused"}},
	}
	for name, tt := range tests {
		for state, from := range dependent {
			t.Run(name+" what is "+state, func(t *testing.T) {
				t.Parallel()
				before := from(t)
				c, ok := tt.do(before)
				if diff := cmp.Diff(from(t), before); diff != "" {
					t.Errorf("it changed its receiver (-before +after):\n%s", diff)
				}
				if want := slices.Contains(tt.ok, state); ok != want {
					t.Fatalf("it is done: %t, want %t", ok, want)
				}
				if !ok {
					if diff := cmp.Diff(execution.Change{}, c); diff != "" {
						t.Errorf("a refusal changes something:\n%s", diff)
					}
					return
				}
				if n := c.Execution; !n.Legal() || n.Revision != before.Revision+1 || n.Grant != nil {
					t.Errorf("%v (legal %t) at revision %d after %d, reserved to %v", n.Vector, n.Legal(), n.Revision, before.Revision, n.Grant)
				}
				ends := slices.DeleteFunc(c.Events, func(e event.Event) bool { return e.Type.Topic() != event.TopicCompletion })
				if (name == "skip") != (len(ends) == 1) {
					t.Errorf("it tells of its end %d times", len(ends))
				}
				if l := before.Lease; l.Epoch > 0 && name == "skip" && c.Execution.Lease.Epoch <= l.Epoch {
					t.Error("who had it is not fenced off")
				}
			})
		}
	}
}

// TestDependencies_Undo: what is blocked and let go again, or paused and let go again, is as it was.
func TestDependencies_Undo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		do, undo func(e execution.Execution) (execution.Change, bool)
	}{{"block", block, unblock(false, 10)}, {"pause", pause, unpause(10)}} {
		for state, from := range dependent {
			t.Run(tt.name+" what is "+state, func(t *testing.T) {
				t.Parallel()
				before := from(t)
				c, ok := tt.do(before)
				if !ok || before.Blocking == execution.PausedByPolicy {
					return
				}
				back, ok := tt.undo(c.Execution)
				if !ok {
					t.Fatal("it cannot be undone")
				}
				want := before
				want.Revision, want.Grant = before.Revision+2, nil
				if diff := cmp.Diff(want, back.Execution); diff != "" {
					t.Errorf("(-before +after):\n%s", diff)
				}
			})
		}
	}
}

func TestExecution_Started(t *testing.T) {
	t.Parallel()
	fresh := []string{"created", "delayed", "reserved", "blocked", "blocked, delayed", "paused", "paused, delayed", "replayed", "replayed, blocked", "replayed, paused"}
	for state, from := range dependent {
		e := from(t)
		if want := !slices.Contains(fresh, state); e.Started() != want {
			t.Errorf("what is %s has started: %t", state, e.Started())
		}
	}
}

// TestCancelWithin_Ended: what has ended is cancelled by nobody, with a grace or without.
func TestCancelWithin_Ended(t *testing.T) {
	t.Parallel()
	for _, grace := range []int{0, 20} {
		c, err := cancelWithin(grace, 70)(completed(t))
		if fault.CodeOf(err) != fault.CodeAlreadyTerminal || !cmp.Equal(c, execution.Change{}) {
			t.Errorf("completed: %v", err)
		}
		before := cancelled(t)
		c, err = cancelWithin(grace, 70)(before)
		if err != nil || !cmp.Equal(c, execution.Change{Execution: before}) {
			t.Errorf("cancelled: %v: %s", err, cmp.Diff(execution.Change{Execution: before}, c))
		}
		before = askedToEnd(t)
		if c, err = cancelWithin(60, 20)(before); err != nil || !cmp.Equal(c, execution.Change{Execution: before}) {
			t.Errorf("more of a grace: %v: %s", err, cmp.Diff(execution.Change{Execution: before}, c))
		}
	}
}

// TestDependencies_Explained: an explanation tells of a member what it waits for.
func TestDependencies_Explained(t *testing.T) {
	t.Parallel()
	open := []execution.Dependency{{ID: id(4), Key: "build", Public: execution.PublicActive}, {ID: id(5), Public: execution.PublicFailed}}
	tests := []struct {
		name    string
		from    func(testing.TB) execution.Execution
		d       execution.Dependencies
		summary string
	}{
		{"open ones", blocked, execution.Dependencies{Kind: "all_of", Need: 5, Edges: 5, Satisfied: 2, Open: open[:1]},
			"It needs 5 of its 5 dependencies to end well, 2 have; it waits for build (active), 2 more."},
		{"one that has to run again", blocked, execution.Dependencies{Kind: "all_of", Need: 2, Edges: 2, Open: open},
			"It needs 2 of its 2 dependencies to end well, 0 have; it waits for build (active), " + id(5).String() + " (failed)."},
		{"too few", blocked, execution.Dependencies{Kind: "quorum", Need: 3, Edges: 1}, "It needs 3 of its dependencies to end well, and has 1."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := tt.from(t)
			x := e.Explain(execution.Situation{Lane: execution.Lane{Name: "ci"}, Needs: tt.d}, execution.Asker{}, after(10))
			checkGates(t, x)
			if x.Claimable || !strings.Contains(x.Summary, tt.summary) {
				t.Errorf("claimable %t: %s", x.Claimable, x.Summary)
			}
		})
	}
}

// TestNew_Dependent: a member that depends on others waits for them first, and for the start of its flow then.
func TestNew_Dependent(t *testing.T) {
	t.Parallel()
	e := created(t, func(in *execution.Create) { in.Blocked, in.Paused, in.Policy = true, true, json.RawMessage(`{}`) })
	if e.Vector != vector(t, blockedRow) {
		t.Errorf("it is %v", e.Vector)
	}
}
