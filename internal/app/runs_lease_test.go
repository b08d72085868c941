package app_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// takes takes a run over so often, each time by another holder whose lease lasts a second, and returns the last one's token.
func (x *runTest) takes(id uuid.UUID, times int64) string {
	x.t.Helper()
	token := ""
	for n := range times {
		token = fmt.Sprint("holder-", n)
		if got := x.hold(id, token, time.Second); got.Generation != n+1 {
			x.t.Fatalf("generation %d instead of %d", got.Generation, n+1)
		}
		x.advance(time.Second + time.Millisecond)
	}
	return token
}

// leaseIs checks an answer to who asks for a lease, against what is stored.
func (x *runTest) leaseIs(id uuid.UUID, answer *apitest.Response, outcome string, generation int64, ttl time.Duration) {
	x.t.Helper()
	got := flowAs[oapi.RunLease](answer.Want(http.StatusOK))
	if string(got.Outcome) != outcome || got.Generation != generation || !got.LeaseUntil.Equal(x.when(ttl)) || got.CancelRequested {
		x.t.Errorf("%+v, want %s at %d", got, outcome, generation)
	}
	if r := x.get(id); r.Generation != generation || r.LeaseUntil == nil || !r.LeaseUntil.Equal(got.LeaseUntil) {
		x.t.Errorf("the run has the generation %d until %v", r.Generation, r.LeaseUntil)
	}
}

// runLeaseCases: who drives a run. reference: runs-and-taskflows.md A7, G-LE, D1, C1, C2 "Persistence", lease_refresh.
func runLeaseCases() []runCase {
	return []runCase{
		{"nobody holds it: granted, generation 1 (G-LE, RS-04, RM-24)", func(x *runTest) {
			r := x.create("")
			n := len(x.events(r.ID))
			x.leaseIs(r.ID, x.lease(r.ID, "T", time.Minute), "granted", 1, time.Minute)
			told := x.told(r.ID, n, "run.leased")
			x.equalJSON("told", told[0].Data, `{"generation":1,"outcome":"granted","lease_until":`+spelled(x.now().Add(time.Minute))+`}`)
		}},
		{"the holder again: renewed, the same generation, told to nobody (G-LE, RS-04, RM-25, D1 6)", func(x *runTest) {
			r := x.create("")
			x.hold(r.ID, "T", time.Minute)
			n, before := len(x.events(r.ID)), x.get(r.ID)
			x.advance(30 * time.Second)
			x.leaseIs(r.ID, x.lease(r.ID, "T", time.Minute), "renewed", 1, time.Minute)
			x.told(r.ID, n)
			after := x.get(r.ID)
			before.LeaseUntil = after.LeaseUntil
			if diff := cmp.Diff(before, after); diff != "" {
				x.t.Errorf("more than the lease was changed:\n%s", diff)
			}
		}},
		{"another one while it is held: refused, and nothing changes (G-LE, RS-09, RM-26, D1 3)", func(x *runTest) {
			r := x.create("")
			until := x.hold(r.ID, "T", time.Hour).LeaseUntil
			answer := x.refused(fault.CodeLeaseHeld, func() *apitest.Response { return x.lease(r.ID, "U", time.Hour) }, r.ID)
			x.facts(answer, map[string]any{"lease_until": until.String(), "retryable": true})
			x.leaseIs(r.ID, x.lease(r.ID, "T", time.Hour), "renewed", 1, time.Hour)
		}},
		{"another one after it ran out: taken over, one generation more (G-LE, RS-10, RM-27)", func(x *runTest) {
			r := x.create("")
			x.takes(r.ID, 5)
			x.advance(time.Second)
			n := len(x.events(r.ID))
			x.leaseIs(r.ID, x.lease(r.ID, "U", time.Minute), "taken_over", 6, time.Minute)
			if got := eventData(x.t, x.told(r.ID, n, "run.leased")[0]); got["outcome"] != "taken_over" || got["generation"] != float64(6) {
				x.t.Errorf("told %v", got)
			}
		}},
		{"the holder after it ran out: renewed, if nobody was faster (G-LE)", func(x *runTest) {
			r := x.create("")
			token := x.takes(r.ID, 3)
			x.advance(time.Hour)
			x.leaseIs(r.ID, x.lease(r.ID, token, time.Minute), "renewed", 3, time.Minute)
			x.refused(fault.CodeLeaseHeld, func() *apitest.Response { return x.lease(r.ID, "U", time.Minute) }, r.ID)
		}},
		{"an unknown run, or one of another namespace, has no lease (G-LE, RM-23, A13 26)", func(x *runTest) {
			r := x.create("")
			x.facts(x.lease(uuid.New(), "T", time.Minute).Problem(fault.CodeNotFound), map[string]any{"resource": "run"})
			x.facts(x.refused(fault.CodeNotFound, func() *apitest.Response { return x.in("r-other").lease(r.ID, "T", time.Minute) }, r.ID), map[string]any{"resource": "run"})
		}},
		{"it is held until its very end, to the millisecond (A13 26, D1 2)", func(x *runTest) {
			r := x.create("")
			x.hold(r.ID, "T", time.Second)
			x.advance(time.Second)
			x.refused(fault.CodeLeaseHeld, func() *apitest.Response { return x.lease(r.ID, "U", time.Second) }, r.ID)
			x.advance(time.Millisecond)
			x.leaseIs(r.ID, x.lease(r.ID, "U", time.Second), "taken_over", 2, time.Second)
		}},
		{"an expired lease refuses nothing to who holds it (A7, D1 5)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, "")
			x.advance(2 * time.Hour)
			x.moved(r, s.ID, `"status":"running"`)
			x.moved(r, s.ID, `"status":"completed"`)
			x.do(r, "complete", "")
		}},
	}
}

// runLeaseEndCases: the bounds of a lease, and how it ends.
func runLeaseEndCases() []runCase {
	return []runCase{
		{"a lease lasts a second to an hour (C1 ttl, D1 7, A13 26)", func(x *runTest) {
			r := x.create("")
			for _, ttl := range []string{"999", "3600001", "0"} {
				x.points(x.refused(fault.CodeOutOfRange, func() *apitest.Response {
					return x.Post(runPath(r.ID, "lease"), `{"token":"T","ttl_ms":`+ttl+`}`)
				}, r.ID), fault.InBody, "/ttl_ms")
			}
			for _, ttl := range []string{"-1", "1.5", "null", `"60000"`} {
				x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response {
					return x.Post(runPath(r.ID, "lease"), `{"token":"T","ttl_ms":`+ttl+`}`)
				}, r.ID), fault.InBody, "/ttl_ms")
			}
			x.leaseIs(r.ID, x.lease(r.ID, "T", time.Second), "granted", 1, time.Second)
			x.leaseIs(r.ID, x.lease(r.ID, "T", time.Hour), "renewed", 1, time.Hour)
		}},
		{"what has ended has no lease, and ending gives it back (C1 lease on a terminal run, D1 8)", func(x *runTest) {
			for _, status := range []string{"completed", "failed", "cancelled"} {
				r := x.stands(x.at(status).ID, status)
				for _, token := range []string{engineToken, "U"} {
					x.facts(x.refused(fault.CodeRunTerminal, func() *apitest.Response { return x.lease(r.ID, token, time.Minute) }, r.ID), map[string]any{"current_status": status})
				}
			}
		}},
		{"who renews is told that the run is to end (A5.9, RM-17)", func(x *runTest) {
			r := x.at("running")
			x.people(r, "cancel", "").Want(http.StatusOK)
			if got := x.hold(r.ID, engineToken, time.Hour); !got.CancelRequested || got.Outcome != "renewed" {
				x.t.Errorf("%+v", got)
			}
		}},
		{"a released run is everybody's at once (A7, A13 26, D1 6)", func(x *runTest) {
			r := x.running("")
			n := len(x.events(r.ID))
			if got := x.release(r, ""); got.LeaseUntil != nil || got.Status != "running" || got.Generation != 1 {
				x.t.Errorf("released %+v", got)
			}
			x.equalJSON("told", x.told(r.ID, n, "run.lease_released")[0].Data, `{"generation":1}`)
			x.leaseIs(r.ID, x.lease(r.ID, "U", time.Minute), "granted", 2, time.Minute)
			x.leaseIs(r.ID, x.lease(r.ID, "U", time.Minute), "renewed", 2, time.Minute)
		}},
		{"what the last holder has still under way counts until somebody takes the run (decisions, D1 4 and 5)", func(x *runTest) {
			r, s, items := x.fan("1")
			x.release(r, "")
			x.patchItems(r, s.ID, itemTo(items[0], "completed")).Want(http.StatusOK)
			x.hold(r.ID, "U", time.Minute)
			answer := x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.patch(r, s.ID, `"status":"completed"`) }, r.ID)
			x.facts(answer, map[string]any{"current_generation": float64(2)})
		}},
		{"only its holder gives it back (A7)", func(x *runTest) {
			r := x.running("")
			for _, body := range []string{`"token":"U","generation":1`, `"token":"engine-1","generation":0`, `"token":"engine-1","generation":2`} {
				answer := x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.Post(runPath(r.ID, "lease", "release"), "{"+body+"}") }, r.ID)
				x.facts(answer, map[string]any{"current_generation": float64(1)})
			}
			x.release(r, "")
			again := x.refused(fault.CodeLeaseLost, func() *apitest.Response {
				return x.Post(runPath(r.ID, "lease", "release"), `{"token":"engine-1","generation":1}`)
			}, r.ID)
			x.facts(again, map[string]any{"current_generation": float64(1)})
		}},
	}
}

// runLeaseEngineCases: engines that take turns. reference: C2 lease_refresh, RW-34 to RW-39.
func runLeaseEngineCases() []runCase {
	return []runCase{
		{"a run that its engine gives up needs somebody to go on, and anybody may (A4.1, D1 6)", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", "")
			n := len(x.events(r.ID))
			x.release(r, `"needs_resume":true`)
			x.told(r.ID, n, "run.needs_resume")
			if got := x.stands(r.ID, "needs_resume"); got.LeaseUntil != nil {
				x.t.Errorf("%+v", got)
			}
			if diff := cmp.Diff(s, x.read(r, s.ID)); diff != "" {
				x.t.Errorf("the step was changed:\n%s", diff)
			}
			x.leaseIs(r.ID, x.lease(r.ID, "U", time.Minute), "granted", 2, time.Minute)
		}},
		{"a lease that is renewed in time outlives its first deadline (lease_refresh)", func(x *runTest) {
			r := x.create("")
			first := x.hold(r.ID, engineToken, time.Second).LeaseUntil
			for range 4 {
				x.advance(500 * time.Millisecond)
				x.leaseIs(r.ID, x.lease(r.ID, engineToken, time.Second), "renewed", 1, time.Second)
			}
			if got := x.get(r.ID).LeaseUntil; !got.Time().After(first.Time()) {
				x.t.Errorf("until %v, which is not after %v", got, first)
			}
			x.refused(fault.CodeLeaseHeld, func() *apitest.Response { return x.lease(r.ID, "U", time.Second) }, r.ID)
		}},
		{"stolen during the first of three steps: its write is refused, and the other two never begin (lease_refresh)", func(x *runTest) {
			r := x.running("")
			x.hold(r.ID, engineToken, time.Second)
			s := x.stepAt(r, "running", `"path":"1"`)
			x.advance(time.Second + time.Millisecond)
			x.leaseIs(r.ID, x.lease(r.ID, "thief", time.Minute), "taken_over", 2, time.Minute)
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return x.patch(r, s.ID, `"status":"completed"`) },
				func() *apitest.Response { return x.insert(r, `"path":"2","retry_count":0`) },
				func() *apitest.Response { return x.insert(r, `"path":"3","retry_count":0`) },
				func() *apitest.Response { return x.verb(r, "complete", "") },
			} {
				x.facts(x.refused(fault.CodeLeaseLost, call, r.ID), map[string]any{"current_generation": float64(2)})
			}
			x.refused(fault.CodeLeaseHeld, func() *apitest.Response { return x.lease(r.ID, engineToken, time.Second) }, r.ID)
			mine := x.get(r.ID)
			x.moved(mine, s.ID, `"status":"completed"`)
			x.do(mine, "complete", "")
			if got := x.steps(r, ""); len(got) != 1 {
				x.t.Errorf("%d steps", len(got))
			}
		}},
		{"twenty quick runs leave no lease behind (lease_refresh)", func(x *runTest) {
			for range 20 {
				r := x.running("")
				x.stepAt(r, "completed", "")
				x.do(r, "complete", "")
			}
			for _, r := range x.list("") {
				if r.LeaseUntil != nil || r.Status != "completed" {
					x.t.Errorf("%+v", r)
				}
			}
		}},
		{"only one engine begins a run (RW-34, RW-35)", func(x *runTest) {
			r := x.create("")
			if got := x.hold(r.ID, "one", time.Minute); got.Generation != 1 {
				x.t.Errorf("%+v", got)
			}
			x.refused(fault.CodeLeaseHeld, func() *apitest.Response { return x.lease(r.ID, "two", time.Minute) }, r.ID)
			x.do(x.get(r.ID), "start", "")
			x.facts(x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.verb(r, "start", fence(0)) }, r.ID), map[string]any{"current_generation": float64(1)})
		}},
	}
}

// engineCall is one call of the engine that drives a run. members are what goes with its generation.
type engineCall struct {
	name string
	call func(x *runTest, r oapi.Run, s oapi.RunStep, it oapi.RunItem) *apitest.Response
}

// engineCalls are all calls that carry a generation. reference: model.md "Run".
func engineCalls() []engineCall {
	verb := func(verb, members string) engineCall {
		return engineCall{verb, func(x *runTest, r oapi.Run, _ oapi.RunStep, _ oapi.RunItem) *apitest.Response {
			return x.verb(r, verb, members)
		}}
	}
	step := func(name, members string) engineCall {
		return engineCall{name, func(x *runTest, r oapi.Run, s oapi.RunStep, _ oapi.RunItem) *apitest.Response {
			return x.patch(r, s.ID, members)
		}}
	}
	insert := func(name, members string) engineCall {
		return engineCall{name, func(x *runTest, r oapi.Run, _ oapi.RunStep, _ oapi.RunItem) *apitest.Response {
			return x.insert(r, members)
		}}
	}
	return []engineCall{
		verb("start", ""), verb("wait", blockedOn), verb("resume", ""), verb("complete", ""), verb("fail", `"error":"late"`), verb("cancel", ""),
		verb("wait", `"blocked_on":{"type":"child"}`), verb("resume", `"restart":true,"from_step":"x"`), // wrong in other ways, too
		{"release", func(x *runTest, r oapi.Run, _ oapi.RunStep, _ oapi.RunItem) *apitest.Response {
			return x.Post(runPath(r.ID, "lease", "release"), engineBody(r, `"token":"`+engineToken+`","needs_resume":true`))
		}},
		insert("insert", `"path":"new"`), insert("insert with a child", `"path":"new","child":{"execution":{"lane":"never"}}`), insert("insert what is there", `"path":"fan"`),
		insert("insert a gate without one", `"path":"new","role":"gate"`),
		step("running", `"status":"running"`), step("waiting", `"status":"waiting"`), step("completed", `"status":"completed","result_text":"late"`), step("pending", `"status":"pending"`),
		step("retry", `"status":"running","retry_count":1`), step("a retry that cannot be", `"status":"running","retry_count":9`),
		{"patch a step that is not there", func(x *runTest, r oapi.Run, _ oapi.RunStep, _ oapi.RunItem) *apitest.Response {
			return x.patch(r, uuid.New(), `"status":"running"`)
		}},
		{"add items", func(x *runTest, r oapi.Run, s oapi.RunStep, _ oapi.RunItem) *apitest.Response {
			return x.add(r, s.ID, ticket("new"))
		}},
		{"add items that are there", func(x *runTest, r oapi.Run, s oapi.RunStep, _ oapi.RunItem) *apitest.Response {
			return x.add(r, s.ID, ticket("1"))
		}},
		{"move items", func(x *runTest, r oapi.Run, s oapi.RunStep, it oapi.RunItem) *apitest.Response {
			return x.patchItems(r, s.ID, itemTo(it, "completed"))
		}},
		{"move no items", func(x *runTest, r oapi.Run, s oapi.RunStep, _ oapi.RunItem) *apitest.Response {
			return x.patchItems(r, s.ID)
		}},
		{"move items that are not there", func(x *runTest, r oapi.Run, s oapi.RunStep, _ oapi.RunItem) *apitest.Response {
			return x.patchItems(r, s.ID, itemTo(oapi.RunItem{ID: uuid.New()}, "completed"))
		}},
	}
}

// runFenceCases: an old generation changes nothing, and is told so before anything else. reference: runs-and-taskflows.md D1 4, A13 2,
// RS-05 to RS-07, RM-08; model.md "Run".
func runFenceCases() []runCase {
	var cases []runCase
	for _, status := range runStatuses {
		cases = append(cases, runCase{"an old generation changes nothing in a run that is " + status + " (D1 4, A13 2)", func(x *runTest) { x.fences(status) }})
	}
	return append(cases,
		runCase{"a new holder's writes count, and the old one's do not, from the very takeover on (RS-05 to RS-07)", func(x *runTest) {
			r, s, items := x.fan("1")
			x.advance(2 * time.Hour)
			x.patchItems(r, s.ID, itemTo(items[0], "running")).Want(http.StatusOK) // nobody has taken it over
			x.hold(r.ID, "engine-2", time.Minute)
			x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.patchItems(r, s.ID, itemTo(items[0], "completed")) }, r.ID)
			mine := x.get(r.ID)
			x.patchItems(mine, s.ID, itemTo(items[0], "failed")).Want(http.StatusOK)
			x.moved(mine, s.ID, `"status":"completed"`)
			x.do(mine, "complete", "")
			x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.verb(r, "fail", `"error":"late"`) }, r.ID)
		}},
		runCase{"what people do asks for no generation (model.md)", func(x *runTest) {
			r := x.running("")
			asked := x.gate(r, "")
			x.advance(2 * time.Hour)
			x.hold(r.ID, "engine-2", time.Hour)
			x.answer(r, asked.ID, "approve", "").Want(http.StatusOK)
			x.people(r, "dismiss", "").Want(http.StatusOK)
			x.people(r, "cancel", "").Want(http.StatusOK)
			x.stands(r.ID, "cancelling")
		}},
	)
}

// fences makes every call of an engine with wrong generations, on a run in a status.
func (x *runTest) fences(status string) {
	x.t.Helper()
	r := x.leased("")
	s := x.step(r, `"path":"fan","role":"foreach"`)
	it := x.items(r, s.ID, "1")[0]
	x.advance(2 * time.Hour)
	x.hold(r.ID, engineToken+"b", time.Hour)
	r = x.get(r.ID)
	x.bring(r, s, status)
	r = x.stands(r.ID, status)
	before := x.snapshot(r.ID)
	for _, c := range engineCalls() {
		for _, generation := range []int64{0, r.Generation - 1, r.Generation + 1} {
			stale := r
			stale.Generation = generation
			answer := c.call(x, stale, s, it).Problem(fault.CodeLeaseLost)
			x.facts(answer, map[string]any{"current_generation": float64(r.Generation)})
		}
	}
	if diff := cmp.Diff(before, x.snapshot(r.ID)); diff != "" {
		x.t.Errorf("something was changed (-before +after):\n%s", diff)
	}
}

// bring brings a pending run with an open step into a status.
func (x *runTest) bring(r oapi.Run, s oapi.RunStep, status string) {
	x.t.Helper()
	if status != "pending" {
		x.do(r, "start", "")
	}
	switch status {
	case "waiting":
		x.do(r, "wait", blockedOn)
	case "cancelling":
		x.people(r, "cancel", "").Want(http.StatusOK)
	case "needs_resume":
		x.Post(runPath(r.ID, "lease", "release"), engineBody(r, `"token":"`+engineToken+`b","needs_resume":true`)).Want(http.StatusOK)
	case "completed":
		x.moved(r, s.ID, `"status":"failed"`)
		x.do(r, "complete", "")
	case "failed":
		x.do(r, "fail", `"error":"no disk"`)
	case "cancelled":
		x.do(r, "cancel", "")
	}
}
