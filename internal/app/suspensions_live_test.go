package app_test

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// Each signal that is taken is one event, with what it did. executions.md 6.7/108.
func TestLive_signals(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		x := executionsOn(t, s.Server, "signals")
		stream := x.Stream("/v1/subscriptions/signals")
		var want []liveTold
		send := func(e oapi.Execution, w oapi.MintedWaitpoint, suspension *uuid.UUID, effect, members string, more shape) {
			t.Helper()
			got := x.receipt(e.ID, w, members)
			if string(got.Effect) != effect {
				t.Errorf("%+v, want %s", got, effect)
			}
			data := shape{"execution_id": e.ID.String(), "signal_id": got.SignalID.String(), "waitpoint_id": w.WaitpointID.String(), "waitpoint_key": w.WaitpointKey, "signal_name": "go", "signal_category": "custom",
				"source_type": "external", "source_identity": "", "effect": effect}
			maps.Copy(data, more)
			eventType := "signal.buffered"
			if suspension != nil {
				eventType, data["suspension_id"] = "signal.delivered", suspension.String()
			}
			want = append(want, liveTold{eventType, data})
		}

		y := x.in("red")
		red, _, redPoints := y.suspends("", waitForGo)
		y.signalled(red.ID, redPoints[0], "") // another namespace's

		e := x.create(`"tags":{"cairn.instance_id":"i-1"}`)
		c := x.claim(lasting)
		early := x.prepared(c, `"waitpoint_key":"early"`)
		send(e, early, nil, "buffered_for_pending_waitpoint", `"payload":{"secret":true}`, nil)
		suspended := x.suspend(c, waitOn(everyOf(onSignal("a", byName("go")), onSignal("b", wildcard)), "a", "b"))
		id, points := &suspended.SuspensionID, suspended.Waitpoints
		send(e, points[0], id, misnamed, `"signal_name":"other"`, shape{"signal_name": "other"})
		const whole = `"signal_category":"billing","source_type":"webhook","source_identity":"psp","correlation_id":"c-1","idempotency_key":"k"`
		send(e, points[0], id, appended, whole, shape{"signal_category": "billing", "source_type": "webhook", "source_identity": "psp", "correlation_id": "c-1"})
		x.signal(e.ID, points[0], whole).Want(http.StatusOK) // a duplicate is no signal
		x.signal(e.ID, oapi.MintedWaitpoint{WaitpointID: points[0].WaitpointID, Token: "no"}, "").Problem(fault.CodeInvalidToken)
		send(e, points[0], id, appendedTwice, "", nil)
		send(e, points[1], id, resumes, "", nil)
		x.signal(e.ID, points[1], "").Problem(fault.CodeWaitpointClosed)
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)

		other, _, others := x.suspends("", waitForGo)
		otherID := x.get(other.ID).Suspension.SuspensionID
		decided := x.decide(other.ID, others[0].WaitpointID, "").Want(http.StatusOK)
		want = append(want, liveTold{"signal.delivered", shape{"execution_id": other.ID.String(), "signal_id": decided.Str("signal_id"), "waitpoint_id": others[0].WaitpointID.String(), "waitpoint_key": "go",
			"signal_name": "approved", "signal_category": "approval", "source_type": "operator", "source_identity": "local", "suspension_id": otherID.String(), "effect": resumes}})

		cursors := liveAllTold(t, stream, want)
		last := want[len(want)-1].Data["signal_id"]
		resumed := x.Stream("/v1/subscriptions/signals", "Last-Event-ID: "+cursors[len(cursors)-2])
		chosen := x.Stream("/v1/subscriptions/signals?after=0&execution_id=" + other.ID.String())
		for name, stream := range map[string]*apitest.Stream{"resumed": resumed, "execution_id": chosen} {
			if _, data := nextShape(t, stream); data["signal_id"] != last {
				t.Errorf("%s: got %v, want %s", name, data, last)
			}
		}
		tagged := x.Stream("/v1/subscriptions/signals?after=0&instance_tag=i-1")
		for _, w := range want[:len(want)-1] {
			if _, data := nextShape(t, tagged); data["signal_id"] != w.Data["signal_id"] {
				t.Errorf("instance_tag: got %v, want %v", data, w)
			}
		}
		s.App.Drain()
		for name, open := range map[string]*apitest.Stream{"all": stream, "resumed": resumed, "execution_id": chosen, "instance_tag": tagged} {
			if bye := open.Next(); bye.Type != "bye" {
				t.Errorf("%s: one signal too many: %+v", name, bye)
			}
		}
	})
}

// Signals to two servers of one database wake an execution once. Acceptance 5.
func TestLive_replicas_signals(t *testing.T) {
	t.Parallel()
	a, b := liveReplicas(t)
	servers := []*executionTest{executionsOn(t, a.Server, "race"), executionsOn(t, b.Server, "race")}
	x := servers[0]
	for range 5 {
		for _, approvals := range []bool{false, true} {
			e, _, points := x.suspends("", waitForGo)
			n := len(x.events(e.ID))
			answers := atOnce(10, func(i int) *apitest.Response {
				y := servers[i%2]
				if approvals {
					return y.decide(e.ID, points[0].WaitpointID, fmt.Sprintf(`"idempotency_suffix":"s%d"`, i))
				}
				return y.signal(e.ID, points[0], fmt.Sprintf(`"idempotency_key":"k%d"`, i))
			})
			x.onceWoken(e.ID, n, answers)
		}
	}
	e, _, points := x.suspends("", waitForGo)
	n := len(x.events(e.ID))
	outcomes := map[string]int{}
	for _, answer := range atOnce(10, func(i int) *apitest.Response { return servers[i%2].signal(e.ID, points[0], `"idempotency_key":"k"`) }) {
		outcomes[answer.Want(http.StatusOK).Str("outcome")]++
	}
	if diff := cmp.Diff(map[string]int{"accepted": 1, "duplicate": 9}, outcomes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	x.toldSince(e.ID, n, "signal.delivered", "execution.resumed")
}

// Whatever comes first when signals, decisions, an operator and the timeout come at once on two servers, an execution is woken
// once, and nothing is left that waits.
func TestLive_replicas_signals_and_others(t *testing.T) {
	t.Parallel()
	url, clock := storetest.Postgres(t), store.StillClock(time.Now())
	servers := []*executionTest{executionsOn(t, apptest.Still(t, url, clock), "others"), executionsOn(t, apptest.Still(t, url, clock), "others")}
	x := servers[0]
	for range 10 {
		e, _, points := x.suspends("", waitForGo+`,"timeout_ms":60000,"timeout_behavior":"auto_resume"`)
		n := len(x.events(e.ID))
		clock.Advance(time.Minute)
		var wg sync.WaitGroup
		for i, y := range servers {
			wg.Go(func() { y.operator(e.ID, "resume", "") })
			wg.Go(func() { y.decide(e.ID, points[0].WaitpointID, fmt.Sprintf(`"idempotency_suffix":"s%d"`, i)) })
			wg.Go(func() { y.signal(e.ID, points[0], fmt.Sprintf(`"idempotency_key":"k%d"`, i)) })
			wg.Go(func() {
				if err := y.server.App.Settle(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		resumed := 0
		for _, event := range x.since(e.ID, n) {
			if event.Type == "execution.resumed" {
				resumed++
			}
		}
		if resumed != 1 {
			t.Errorf("it was woken %d times", resumed)
		}
		x.stands(e.ID, atReleased)
		x.nothingWaits(e.ID)
	}
}
