package runtest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
)

func workKinds() []kind {
	return []kind{
		{"create execution", 2, createWork}, {"claim", 14, claim}, {"complete", 12, complete}, {"fail", 5, failWork}, {"give back", 2, giveBack}, {"suspend", 6, suspend},
		{"resume execution", 5, resumeWork}, {"cancel execution", 4, cancelWork}, {"replay execution", 2, replayWork}, {"late worker", 6, lateWorker},
	}
}

// lane is that of all executions.
const lane = "work"

func (w *work) path(more string) string { return "/v1/executions/" + w.id.String() + more }

// draftWork draws an execution that is new, and its part of a body.
func (w *world) draftWork() (*work, map[string]any) {
	x := &work{name: fmt.Sprintf("x%d", w.ids), created: w.now, phase: "runnable"}
	x.id = w.id(x.name)
	body := map[string]any{"id": x.id, "lane": lane}
	if w.chance("deadline", 8) {
		x.deadline = w.due(w.now + 4000)
		body["deadline_at"] = stamp(x.deadline)
	}
	return x, body
}

func (w *world) theWork(suits func(x *work) bool) *work {
	found := slices.DeleteFunc(slices.Clone(w.works), func(x *work) bool { return x.gone() || !suits(x) })
	if len(found) == 0 {
		return nil
	}
	return draw(w, "execution", found...)
}

func createWork(w *world) bool {
	if len(w.works) >= mostWorks {
		return false
	}
	x, body := w.draftWork()
	w.works = append(w.works, x)
	w.ask(request{method: http.MethodPost, path: "/v1/executions", body: constant(body)}, nil)
	return true
}

func claim(w *world) bool {
	n := draw(w, "max", 1, 2, 3, 10)
	until := w.due(w.now + draw[int64](w, "lease", 1000, 3000, 30_000))
	got := w.candidates()
	if len(got) == 0 && !w.chance("nothing", 10) {
		return false
	}
	got = got[:min(n, len(got))]
	owners := make([]*owner, len(got))
	body := constant(map[string]any{"lane": lane, "worker_id": "w", "max": n, "lease_ttl_ms": until - w.now})
	for i, x := range got {
		x.epoch++
		x.attempts++
		owners[i] = &owner{number: len(w.owners), of: x}
		w.owners = append(w.owners, owners[i])
		x.phase, x.owner, x.lease = "active", owners[i], until
		w.moved(x)
	}
	w.ask(request{method: http.MethodPost, path: "/v1/claims", body: body}, nil, func(s *side, a *apitest.Response) {
		var claims []struct {
			Execution struct{ ID uuid.UUID }
			Handle    string
		}
		if a.Status == http.StatusOK {
			claims = decode[struct {
				Claims []struct {
					Execution struct{ ID uuid.UUID }
					Handle    string
				}
			}](a.Body).Claims
		}
		if len(claims) != len(got) {
			s.Failf("it claims %d, want %d\n%s", len(claims), len(got), a.Body)
		}
		for i, c := range claims {
			if c.Execution.ID != got[i].id {
				s.Failf("claim %d is %s, want %s", i, w.named(c.Execution.ID.String()), got[i].name)
			}
			s.handles[owners[i].number] = c.Handle
		}
	})
	return true
}

// held draws an owner that still holds what it has claimed.
func (w *world) held() *owner {
	if x := w.theWork(func(x *work) bool { return x.owner != nil && x.lease > 0 }); x != nil {
		return x.owner
	}
	return nil
}

func (w *world) worker(o *owner, verb string, refused *refusal, more map[string]any) {
	w.ask(request{method: http.MethodPost, path: o.of.path("/" + verb), body: func(s *side) map[string]any {
		body := map[string]any{"handle": s.handles[o.number]}
		maps.Copy(body, more)
		return body
	}}, refused)
}

func complete(w *world) bool {
	o := w.held()
	if o == nil {
		return false
	}
	more, r := map[string]any{}, draw(w, "result", results()...)
	if r.json != nil {
		more["result"] = r.json
	}
	o.done, o.of.result = true, r
	w.endWork(o.of, "success", false)
	w.worker(o, "complete", nil, more)
	return true
}

func failWork(w *world) bool {
	o := w.held()
	if o == nil {
		return false
	}
	o.done, o.of.failure = true, "no"
	if o.of.grace > 0 {
		w.endWork(o.of, "cancelled", false)
	} else {
		w.endWork(o.of, "failed", false)
	}
	w.worker(o, "fail", nil, map[string]any{"reason": "no", "category": "permanent"})
	return true
}

func giveBack(w *world) bool {
	o := w.held()
	if o == nil {
		return false
	}
	o.done = true
	if x := o.of; x.grace > 0 {
		w.endWork(x, "cancelled", false)
	} else {
		x.phase, x.owner, x.lease = "runnable", nil, 0
	}
	w.worker(o, "release", nil, nil)
	return true
}

func suspend(w *world) bool {
	x := w.theWork(func(x *work) bool { return x.owner != nil && x.lease > 0 && x.grace == 0 })
	if x == nil {
		return false
	}
	o := x.owner
	o.done = true
	x.phase, x.owner, x.lease = "suspended", nil, 0
	w.moved(x)
	w.worker(o, "suspend", nil, map[string]any{"reason_code": "waiting_for_callback", "waitpoints": []any{map[string]any{"waitpoint_key": "go"}},
		"resume_condition": map[string]any{"Single": map[string]any{"waitpoint_key": "go", "matcher": "Wildcard"}}})
	return true
}

func resumeWork(w *world) bool {
	x := w.theWork(func(x *work) bool { return x.phase == "suspended" })
	if x == nil {
		return false
	}
	x.phase = "runnable"
	w.moved(x)
	w.ask(request{method: http.MethodPost, path: x.path("/resume"), body: constant(map[string]any{})}, nil)
	return true
}

func cancelWork(w *world) bool {
	grace := w.chance("grace", 2) // which is for who holds it
	x := w.theWork(func(x *work) bool { return !x.over() && (!grace || x.lease > 0) })
	if x == nil {
		return false
	}
	body := map[string]any{"reason": "not needed"}
	var until int64
	if grace {
		until = w.due(w.now + 500)
		body["grace_ms"] = until - w.now
	}
	w.follows(func() { w.model.cancelWork(x, until) }) // from what the operator does
	w.ask(request{method: http.MethodPost, path: x.path("/operator-cancel"), body: constant(body)}, nil)
	return true
}

// replayWork lets an execution run again. A step or an item whose work it did has ended with it, and stays so: it runs for itself.
func replayWork(w *world) bool {
	x := w.theWork(func(x *work) bool { return x.over() && x.replays < 10 })
	if x == nil {
		return false
	}
	w.reach("replay")
	x.phase, x.outcome, x.result, x.failure = "runnable", "", result{}, ""
	x.replays++
	if x.deadline <= w.now {
		x.deadline = 0
	}
	w.ask(request{method: http.MethodPost, path: x.path("/replay"), body: constant(map[string]any{})}, nil)
	return true
}

// lateWorker: who holds what was taken away is told so.
func lateWorker(w *world) bool {
	gone := slices.DeleteFunc(slices.Clone(w.owners), func(o *owner) bool { return o.done || o.of.gone() || o.of.owner == o && o.of.lease > 0 })
	if len(gone) == 0 {
		return false
	}
	if taken := slices.DeleteFunc(slices.Clone(gone), func(o *owner) bool { return o.of.phase != "active" }); len(taken) > 0 { // there are few of them
		gone = taken
	}
	o := draw(w, "owner", gone...)
	code := "stale_lease"
	switch x := o.of; {
	case x.phase != "active":
		code = "execution_not_active"
	case x.lost():
		code = "lease_expired"
	}
	w.did[w.kind]++
	w.worker(o, "complete", no(code), nil)
	return true
}
