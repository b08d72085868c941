package app_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// nextReset checks when a budget is reset next.
func (x *budgetTest) nextReset(id uuid.UUID, want time.Time) {
	x.t.Helper()
	if at := x.read(id).NextResetAt; at == nil || !at.Time().Equal(want.Truncate(time.Millisecond)) {
		x.t.Errorf("next_reset_at %v, want %s", at, want)
	}
}

// now is the server's time.
func (x *budgetTest) now() time.Time { return x.server.Clock.Now() }

// TestBudgets_Resets: resets by hand and at their time. reference: flows-streams-budgets.md 6.5, 9/27, 10.7.
func TestBudgets_Resets(t *testing.T) {
	t.Parallel()
	runBudgetCases(t, budgetsResetsCases)
}

var budgetsResetsCases = []budgetCase{
	{"by hand (10.7, reset)", func(x *budgetTest) {
		id := x.tokens(10, `"reset_interval_ms":60000,"soft_limits":{"tokens":8}`)
		x.uses(id, `"tokens":9`, "soft_breach tokens 9/8")
		x.uses(id, `"tokens":2`, "hard_breach tokens 9/10")
		x.advance(10 * time.Second)
		b := x.done(id, "reset", "")
		if b.LastBreachAt != nil || b.LastBreachDimension != nil || b.BreachCount != 1 || b.SoftBreachCount != 1 || b.LastResetAt == nil || !b.LastResetAt.Time().Equal(x.now().Truncate(time.Millisecond)) {
			x.t.Errorf("%+v", b)
		}
		x.used(id, "tokens 0")
		x.nextReset(id, x.now().Add(time.Minute))
		x.uses(id, `"tokens":5`, "ok")
		x.uses(id, `"tokens":6`, "hard_breach tokens 5/10")
		x.used(id, "tokens 5")
		told := x.toldOf(id, "created", "soft_breached", "breached", "exhausted", "reset", "available", "breached", "exhausted")
		if data := eventData(x.t, told[4]); data["by"] != "request" {
			x.t.Errorf("%v", data)
		}
		x.Post(budgetPath(id, "reset"), nil).Want(http.StatusOK)
	}},
	{"when it is due, in its rhythm (reset reconciler; 9/27)", func(x *budgetTest) {
		start := x.now()
		id, never := x.tokens(10, `"reset_interval_ms":60000`), x.tokens(10)
		x.uses(id, `"tokens":10`, "ok")
		x.uses(never, `"tokens":10`, "ok")
		x.advance(time.Minute - time.Millisecond)
		x.used(id, "tokens 10")
		x.advance(time.Millisecond)
		x.used(id, "tokens 0")
		x.nextReset(id, start.Add(2*time.Minute))
		x.uses(id, `"tokens":3`, "ok")
		x.advance(3*time.Minute + 20*time.Second) // two were missed
		x.used(id, "tokens 0")
		x.nextReset(id, start.Add(5*time.Minute))
		x.advance(40 * time.Second)
		x.nextReset(id, start.Add(6*time.Minute))
		if b := x.used(never, "tokens 10"); b.LastResetAt != nil || b.NextResetAt != nil {
			x.t.Errorf("%+v", b)
		}
		told := x.toldOf(id, "created", "exhausted", "reset", "available", "reset", "reset")
		if data := eventData(x.t, told[2]); data["by"] != "schedule" {
			x.t.Errorf("%v", data)
		}
	}},
	{"one that is due lets go on what it held up, and what it had suspended", func(x *budgetTest) {
		id := x.tokens(10, `"reset_interval_ms":60000,"on_hard_limit":"suspend"`)
		held := x.limited("", id).ID
		c := x.claim(lasting)
		x.uses(id, `"tokens":10`, "ok")
		x.report(c, "renew", "").Want(http.StatusOK)
		blocked := x.limited("", id).ID
		x.none("")
		x.stands(blocked, atBudget)
		x.advance(time.Minute)
		got := map[uuid.UUID]bool{}
		for _, c := range x.claims(`"max":5,` + lasting) {
			got[c.Execution.ID] = true
		}
		if len(got) != 2 || !got[held] || !got[blocked] {
			x.t.Errorf("claimed %v", got)
		}
	}},
	{"a new interval begins a new rhythm, and none is none", func(x *budgetTest) {
		id := x.tokens(10, `"reset_interval_ms":60000`)
		x.advance(10 * time.Second)
		x.Do(http.MethodPatch, budgetPath(id), `{"reset_interval_ms":30000}`).Want(http.StatusOK)
		x.nextReset(id, x.now().Add(30*time.Second))
		x.Do(http.MethodPatch, budgetPath(id), `{"reset_interval_ms":null}`).Want(http.StatusOK)
		x.uses(id, `"tokens":1`, "ok")
		x.advance(time.Hour)
		if b := x.used(id, "tokens 1"); b.NextResetAt != nil {
			x.t.Errorf("%+v", b)
		}
	}},
	{"topping up adds to the limits that there are", func(x *budgetTest) {
		id := x.budget(`"hard_limits":{"a":10,"b":5}`)
		x.uses(id, `"a":10`, "ok")
		b := x.done(id, "topup", dimensions(`"a":3`))
		if amountsText(b.HardLimits) != "a 13, b 5" || b.Exhausted {
			x.t.Errorf("%+v", b)
		}
		x.uses(id, `"a":3`, "ok")
		x.same(func() *apitest.Response { return x.verb(id, "topup", dimensions(`"a":0`)).Want(http.StatusOK) })
		x.toldOf(id, "created", "exhausted", "topped_up", "available", "exhausted")
	}},
}

// TestBudgets_Schedule: days begin where the time zone says, also where clocks are changed.
func TestBudgets_Schedule(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		at := func(text string) time.Time {
			v, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		clock := store.StillClock(at("2027-03-27T12:00:00Z")) // a day before Berlin has summer
		x := budgetsOn(t, apptest.Still(t, url, clock), "days")
		id := x.tokens(10, `"schedule":{"cron":"0 0 * * *","time_zone":"Europe/Berlin"}`)
		x.nextReset(id, at("2027-03-27T23:00:00Z"))
		x.uses(id, `"tokens":4`, "ok")
		x.advance(11 * time.Hour)
		x.used(id, "tokens 0")
		x.nextReset(id, at("2027-03-28T22:00:00Z"))
		x.done(id, "reset", "") // by hand: the schedule stays what it is
		x.nextReset(id, at("2027-03-28T22:00:00Z"))
		x.uses(id, `"tokens":4`, "ok")
		x.advance(23*time.Hour - time.Millisecond)
		x.used(id, "tokens 4")
		x.advance(time.Millisecond)
		x.used(id, "tokens 0")
		x.nextReset(id, at("2027-03-29T22:00:00Z"))
	})
}
