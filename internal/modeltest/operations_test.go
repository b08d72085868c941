package modeltest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// kind is one kind of operation. weight says how often it is drawn: much more often when there is something for it to do.
type kind struct {
	name   string
	weight int
	fits   func(w *world) bool
	do     func(w *world)
}

// kinds are all operations.
func kinds() []kind {
	return slices.Concat(creating(), claiming(), reporting(), operating(), suspending(), granting(), registering(), reading(), passing())
}

// perform draws an operation and does it.
func (w *world) perform(all []kind) {
	total, weights := 0, make([]int, len(all))
	for i, k := range all {
		weights[i] = k.weight
		if k.fits == nil || k.fits(w) {
			weights[i] *= 6
		}
		total += weights[i]
	}
	at := w.below(total, "operation")
	for i, k := range all {
		if at -= weights[i]; at < 0 {
			w.kind = k.name
			k.do(w)
			return
		}
	}
}

// some fits when there is an execution for which something holds.
func some(holds func(w *world, e *execution) bool) func(w *world) bool {
	return func(w *world) bool {
		return slices.ContainsFunc(w.executions, func(e *execution) bool { return holds(w, e) })
	}
}

// Where an operation finds something to do.
var (
	someClaimable  = some(func(w *world, e *execution) bool { return w.claimable(e, func([]string) bool { return true }) })
	someHeld       = some(func(w *world, e *execution) bool { return w.held(e) })
	someActive     = some(func(_ *world, e *execution) bool { return e.phase == "active" })
	someCancelling = some(func(_ *world, e *execution) bool { return e.cancelling() })
	someUnheld     = some(func(w *world, e *execution) bool { return e.phase == "active" && !w.held(e) && e.grant == nil })
	someRunnable   = some(func(_ *world, e *execution) bool { return e.phase == "runnable" })
	someParked     = some(func(_ *world, e *execution) bool {
		return publicOf(e.vector) == "waiting_children" || e.phase == "suspended"
	})
	someEnding     = some(func(_ *world, e *execution) bool { return e.ending != nil })
	somePaused     = func(w *world) bool { return w.paused("a") || w.paused("b") }
	someReplay     = some(func(_ *world, e *execution) bool { return e.phase == "terminal" && e.replays < e.policy.maxReplays() })
	someClaimGrant = some(func(_ *world, e *execution) bool { return e.grant != nil && e.grant.kind == "claim" })
	someLostGrant  = some(func(_ *world, e *execution) bool { return e.grant != nil && e.grant.kind == "reclaim" })
	someRegistered = func(w *world) bool { return len(w.workers) > 0 }
	someRoom       = func(w *world) bool { return len(w.executions) < most }
)

func creating() []kind {
	return []kind{
		{"create", 5, someRoom, func(w *world) {
			if len(w.executions) >= most && w.sometimes("enough", 80) {
				return
			}
			c := w.creation(true)
			w.ask(w.model.create(c), w.sometimes("keyed", 10), func(*side) request {
				return request{method: http.MethodPost, path: "/v1/executions", body: c.body()}
			})
		}},
		{"create batch", 2, someRoom, func(w *world) {
			if len(w.executions) >= most {
				return
			}
			atomic := w.sometimes("atomic", 40)
			var all []creation
			var bodies []any
			for range 1 + w.below(3, "how many") {
				c := w.creation(!atomic)
				all, bodies = append(all, c), append(bodies, c.body())
			}
			path := "/v1/executions/batch"
			if atomic {
				path += "?atomic=true"
			}
			w.ask(w.createBatch(all, atomic), w.sometimes("keyed", 10), func(*side) request {
				return request{method: http.MethodPost, path: path, body: map[string]any{"executions": bodies}}
			})
		}},
	}
}

func claiming() []kind {
	return []kind{{"claim", 14, someClaimable, func(w *world) {
		by := w.claimant()
		limit, reclaim := draw(w, "max", 1, 1, 2, 3), !w.sometimes("no reclaim", 20)
		lanes := draw(w, "lanes", laneNames, laneNames[:1], laneNames[1:])
		body := map[string]any{"lanes": lanes, "worker_id": by.worker, "worker_instance_id": by.instance, "capabilities": by.capabilities, "lease_ttl_ms": by.ttl, "max": limit}
		if !reclaim {
			body["reclaim"] = false
		}
		want := w.model.claim(lanes, by, limit, reclaim)
		keyed := w.sometimes("keyed", 10) && len(want.Claims) > 0 // what had no effect is not kept
		w.ask(want, keyed, func(*side) request {
			return request{method: http.MethodPost, path: "/v1/claims", body: body}
		})
	}}}
}

// path is one of an execution's.
func path(e *execution, op string) string {
	return strings.TrimSuffix("/v1/executions/"+e.id.String()+"/"+op, "/")
}

// reports sends what a worker reports, with its proof.
func (w *world) reports(want answer, e *execution, op string, p proof, members map[string]any) {
	w.ask(want, w.sometimes("keyed", 10), func(s *side) request {
		return request{method: http.MethodPost, path: path(e, op), body: p.with(s, members)}
	})
}

// reporter is a kind of report.
func reporter(name string, weight int, do func(w *world, e *execution, p proof)) kind {
	return kind{name, weight, someHeld, func(w *world) {
		if e, p, found := w.proof(); found {
			do(w, e, p)
		}
	}}
}

// overrider is a kind of report that an operator makes in place of the holder.
func overrider(name string, do func(w *world, e *execution, p proof)) kind {
	return kind{name, 1, someHeld, func(w *world) {
		if e := w.where(w.held); e != nil {
			do(w, e, proof{fence: fence{override: true}})
		}
	}}
}

func complete(w *world, e *execution, p proof) {
	result := draw(w, "result", "", `{"n":1}`, "[2]")
	var members map[string]any
	if result != "" {
		members = map[string]any{"result": rawJSON(result)}
	}
	w.reports(w.model.complete(e, p.fence, result), e, "complete", p, members)
}

// rawJSON is a document that is sent as it stands.
type rawJSON string

// MarshalJSON returns the document.
func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// failing draws a failure.
func (w *world) failing() (failure, *int64, map[string]any) {
	why := failure{"boom", draw(w, "category", "", "transient", "timeout", "permanent", "cancelled", "odd")}
	after := maybe[int64](w, "retry_after_ms", 0, 700)
	members := map[string]any{"reason": why.reason}
	if why.category != "" {
		members["category"] = why.category
	}
	if after != nil {
		members["retry_after_ms"] = *after
	}
	return why, after, members
}

func fail(w *world, e *execution, p proof) {
	why, after, members := w.failing()
	w.reports(w.model.fail(e, p.fence, why, after), e, "fail", p, members)
}

func putOff(w *world, e *execution, p proof) {
	ms := span(w, "delay", -5, 1500)
	if ms >= 0 && w.sometimes("delay_ms", 50) {
		w.reports(w.model.putOff(e, p.fence, w.now+ms), e, "delay", p, map[string]any{"delay_ms": ms})
		return
	}
	w.reports(w.model.putOff(e, p.fence, w.now+ms), e, "delay", p, map[string]any{"delay_until": stamp(w.now + ms)})
}

func waitChildren(w *world, e *execution, p proof) {
	w.reports(w.model.waitChildren(e, p.fence), e, "wait-children", p, nil)
}

func reporting() []kind {
	return []kind{
		reporter("renew", 3, func(w *world, e *execution, p proof) {
			ttl := draw[int64](w, "ttl", 30000, 1000, 100)
			w.reports(w.model.renew(e, p.fence, ttl), e, "renew", p, map[string]any{"lease_ttl_ms": ttl})
		}),
		reporter("progress", 2, func(w *world, e *execution, p proof) {
			pct, message := maybe(w, "pct", 10, 100), maybe(w, "message", "", "half")
			members := map[string]any{}
			if pct != nil {
				members["pct"] = *pct
			}
			if message != nil {
				members["message"] = *message
			}
			w.reports(w.advance(e, p.fence, pct, message), e, "progress", p, members)
		}),
		reporter("complete", 4, complete),
		reporter("fail", 6, fail),
		reporter("release", 6, func(w *world, e *execution, p proof) {
			w.reports(w.model.release(e, p.fence), e, "release", p, nil)
		}),
		reporter("delay", 6, putOff),
		reporter("wait children", 4, waitChildren),
		reporter("cancel", 2, func(w *world, e *execution, p proof) {
			w.reports(w.abandon(e, p.fence, "enough"), e, "cancel", p, map[string]any{"reason": "enough"})
		}),
		{"completions", 2, someHeld, completions},
		{"report again", 2, someEnding, again},
		overrider("override complete", complete),
		overrider("override fail", fail),
		overrider("override delay", putOff),
		overrider("override wait children", waitChildren),
		{"wrong handle", 1, someHeld, func(w *world) {
			e, p, found := w.proof()
			other := w.execution()
			if !found || other == e || p.form != "handle" {
				return
			}
			w.did[w.kind]++
			w.reports(refused("invalid_handle"), other, draw(w, "report", "complete", "renew", "release", "cancel"), p, map[string]any{})
		}},
	}
}

// completions reports the end of a few at once; each stands alone.
func completions(w *world) {
	want := ok()
	var bodies []func(s *side) map[string]any
	for range 1 + w.below(3, "how many") {
		e, p, found := w.proof()
		if !found {
			return
		}
		members := map[string]any{"execution_id": e.id}
		var item answer
		if w.sometimes("fails", 50) {
			why, after, sent := w.failing()
			members["fail"] = sent
			item = w.model.fail(e, p.fence, why, after)
		} else {
			item = w.model.complete(e, p.fence, "")
		}
		if item.Code == "" {
			item = answer{Facts: map[string]string{"execution_id": e.name, "replayed": item.Facts["replayed"]}}.showing(item.Shown...)
		} else {
			item.Facts = map[string]string{"execution_id": e.name}
		}
		want.Items = append(want.Items, item)
		bodies = append(bodies, func(s *side) map[string]any { return p.with(s, members) })
	}
	w.ask(want, w.sometimes("keyed", 10), func(s *side) request {
		var items []any
		for _, body := range bodies {
			items = append(items, body(s))
		}
		return request{method: http.MethodPost, path: "/v1/completions", body: map[string]any{"items": items}}
	})
}

// again repeats the report that ended the last ownership of an execution, by the one who made it.
func again(w *world) {
	e := w.where(func(e *execution) bool { return e.ending != nil })
	if e == nil || e.ending == nil {
		return
	}
	p := proof{fence: fence{owner: e.ending.owner}, form: "handle"}
	switch e.ending.op {
	case "complete":
		complete(w, e, p)
	case "fail":
		fail(w, e, p)
	case "release":
		w.reports(w.model.release(e, p.fence), e, "release", p, nil)
	case "delay":
		putOff(w, e, p)
	case "wait_children":
		waitChildren(w, e, p)
	case "suspend":
		w.suspendAgain(e, p)
	case "cancel":
		w.reports(w.abandon(e, p.fence, "again"), e, "cancel", p, map[string]any{"reason": "again"})
	}
}

// operates sends what an operator does to e. condition is sent as If-Match.
func (w *world) operates(method string, e *execution, op string, body map[string]any, do func() answer) {
	var headers []string
	revision := e.revision
	if w.sometimes("condition", 15) {
		if w.sometimes("stale", 50) {
			revision--
		}
		if revision >= 0 {
			headers = append(headers, `If-Match: "`+strconv.FormatInt(revision, 10)+`"`)
		}
	}
	want := refused("revision_mismatch")
	if len(headers) == 0 || revision == e.revision {
		want = do()
	}
	keyed := method == http.MethodPost && w.sometimes("keyed", 10)
	w.ask(want, keyed, func(*side) request {
		return request{method: method, path: path(e, op), body: body, headers: headers}
	})
}

func operating() []kind {
	return []kind{
		{"operator-cancel", 1, someActive, func(w *world) { stopSome(w, 0) }},
		{"operator-cancel with grace", 4, someHeld, func(w *world) { stopSome(w, draw[int64](w, "grace", 1000, 100, 40000)) }},
		{"operator-cancel again", 3, someCancelling, func(w *world) { stopSome(w, draw[int64](w, "grace", 0, 0, 100, 1000, 40000, 80000)) }},
		{"revoke-lease", 2, someHeld, func(w *world) { revokeSome(w, "") }},
		{"revoke-lease by instance", 1, someHeld, func(w *world) { revokeSome(w, "by instance") }},
		{"revoke-lease by lease", 1, someHeld, func(w *world) { revokeSome(w, "by lease") }},
		{"priority", 2, someRunnable, func(w *world) {
			if e := w.where(func(e *execution) bool { return e.phase == "runnable" }); e != nil {
				priority := draw(w, "priority", 0, 1, 5, 9000, 20000, -1)
				w.operates(http.MethodPut, e, "priority", map[string]any{"priority": priority}, func() answer { return w.prioritise(e, priority) })
			}
		}},
		{"replay", 6, someReplay, func(w *world) {
			if e := w.where(func(e *execution) bool { return e.phase == "terminal" }); e != nil {
				w.operates(http.MethodPost, e, "replay", nil, func() answer { return w.model.replay(e) })
			}
		}},
		{"resume", 3, someParked, func(w *world) {
			if e := w.where(func(e *execution) bool { return publicOf(e.vector) == "waiting_children" || e.phase == "suspended" }); e != nil {
				delay := draw[int64](w, "resume_delay_ms", 0, 300, 2000)
				w.operates(http.MethodPost, e, "resume", map[string]any{"resume_delay_ms": delay}, func() answer { return w.model.resume(e, delay) })
			}
		}},
		{"operator-claim", 2, someRunnable, func(w *world) {
			if e := w.where(func(e *execution) bool { return e.phase == "runnable" }); e != nil {
				ttl := draw[int64](w, "ttl", 30000, 100)
				w.ask(w.claimByHand(e, ttl), w.sometimes("keyed", 10), func(*side) request {
					return request{method: http.MethodPost, path: path(e, "operator-claim"), body: map[string]any{"lease_ttl_ms": ttl}}
				})
			}
		}},
		{"set tag", 1, some(func(*world, *execution) bool { return true }), func(w *world) {
			e := w.execution()
			if e == nil {
				return
			}
			key, value := draw(w, "key", "team.name", "team.size", "Team"), draw(w, "value", "red", "blue")
			body := map[string]any{"value": value}
			if key == "Team" { // it is looked at before anything else
				w.ask(refused("invalid_tag_key"), false, func(*side) request {
					return request{method: http.MethodPut, path: path(e, "tags/"+key), body: body, headers: []string{`If-Match: "1000"`}}
				})
				return
			}
			w.operates(http.MethodPut, e, "tags/"+key, body, func() answer { return w.setTag(e, key, value) })
		}},
	}
}

// stopSome stops some execution.
func stopSome(w *world, grace int64) {
	fits := func(e *execution) bool { return e.phase == "active" }
	if w.kind == "operator-cancel again" {
		fits = (*execution).cancelling
	}
	e := w.where(fits)
	if e == nil {
		return
	}
	reason := draw(w, "reason", "enough", "superseded")
	body := map[string]any{"reason": reason}
	if grace > 0 {
		body["grace_ms"] = grace
	}
	w.operates(http.MethodPost, e, "operator-cancel", body, func() answer { return w.stop(e, reason, grace) })
}

// revokeSome revokes some lease.
func revokeSome(w *world, how string) {
	e := w.where(func(e *execution) bool { return e.phase == "active" })
	if e == nil {
		return
	}
	instance, lease := "", 0
	switch how {
	case "by instance":
		instance = draw(w, "instance", "i1", "i2", "i3")
	case "by lease":
		of := slices.DeleteFunc(slices.Clone(w.owners), func(o *owner) bool { return o.e != e })
		if len(of) == 0 {
			return
		}
		lease = of[len(of)-1].number
		if w.sometimes("an old lease", 30) {
			lease = of[w.below(len(of), "lease")].number
		}
	}
	w.ask(w.revoke(e, instance, lease), w.sometimes("keyed", 10), func(s *side) request {
		body := map[string]any{}
		if instance != "" {
			body["worker_instance_id"] = instance
		}
		if lease != 0 {
			body["expected_lease_id"] = s.fences[lease].LeaseID
		}
		return request{method: http.MethodPost, path: path(e, "revoke-lease"), body: body}
	})
}

func granting() []kind {
	use := func(w *world, op, kind string, do func(e *execution, g *grant, by claimant) answer) {
		e := w.where(func(e *execution) bool { return e.grant != nil && e.grant.kind == kind })
		if e == nil {
			return
		}
		g, by := w.grantFor(e), w.claimant()
		if g != nil && !w.sometimes("another worker", 35) {
			by.worker = g.worker
		}
		w.ask(do(e, g, by), w.sometimes("keyed", 10), func(s *side) request {
			body := map[string]any{"grant_id": unknown, "worker_id": by.worker, "worker_instance_id": by.instance, "lease_ttl_ms": by.ttl}
			if g != nil {
				body["grant_id"] = s.grantIDs[g.number]
			}
			return request{method: http.MethodPost, path: path(e, op), body: body}
		})
	}
	return []kind{
		{"claim-grants", 4, someClaimable, func(w *world) {
			by, lane, ttl := w.claimant(), draw(w, "lane", laneNames...), draw[int64](w, "grant ttl", 1000, 60000, 1)
			w.ask(w.grantClaim(lane, by, ttl), w.sometimes("keyed", 10), func(*side) request {
				return request{method: http.MethodPost, path: "/v1/workers/" + by.worker + "/claim-grants",
					body: map[string]any{"lane": lane, "worker_instance_id": by.instance, "capabilities": by.capabilities, "grant_ttl_ms": ttl}}
			})
		}},
		{"claim with a grant", 5, someClaimGrant, func(w *world) { use(w, "claim", "claim", w.claimGranted) }},
		{"reclaim-grants", 4, someUnheld, func(w *world) {
			e := w.where(func(e *execution) bool { return e.phase == "active" && !w.held(e) })
			if e == nil {
				return
			}
			by, ttl := w.claimant(), draw[int64](w, "grant ttl", 1000, 60000, 1)
			w.ask(w.grantReclaim(e, by, ttl), w.sometimes("keyed", 10), func(*side) request {
				return request{method: http.MethodPost, path: path(e, "reclaim-grants"),
					body: map[string]any{"worker_id": by.worker, "worker_instance_id": by.instance, "capabilities": by.capabilities, "grant_ttl_ms": ttl}}
			})
		}},
		{"reclaim with a grant", 6, someLostGrant, func(w *world) { use(w, "reclaim", "reclaim", w.reclaimGranted) }},
	}
}

func registering() []kind {
	instance := func(w *world) string { return draw(w, "instance", "i1", "i2", "i3") }
	post := func(w *world, path string, want answer, body map[string]any) {
		w.ask(want, w.sometimes("keyed", 10), func(*side) request { return request{method: http.MethodPost, path: path, body: body} })
	}
	return []kind{
		{"register worker", 1, nil, func(w *world) {
			by := draw(w, "worker", instances...)
			if w.sometimes("another id", 30) {
				by.worker = "w3"
			}
			lanes, capabilities, ttl := draw(w, "lanes", laneNames, laneNames[:1]), draw(w, "capabilities", []string{"x", "y"}, []string{"x"}, []string{}), draw[int64](w, "liveness", 30000, 30000, 30000, 1000, 100)
			w.ask(w.register(by.instance, by.worker, lanes, capabilities, ttl), false, func(*side) request {
				return request{method: http.MethodPut, path: "/v1/workers/" + by.instance,
					body: map[string]any{"worker_id": by.worker, "lanes": lanes, "capabilities": capabilities, "liveness_ttl_ms": ttl}}
			})
		}},
		{"heartbeat", 1, someRegistered, func(w *world) {
			i := instance(w)
			post(w, "/v1/workers/"+i+"/heartbeat", w.beat(i), nil)
		}},
		{"drain worker", 2, someRegistered, func(w *world) {
			i := instance(w)
			post(w, "/v1/workers/"+i+"/drain", w.drain(i), map[string]any{"reason": "update"})
		}},
		{"remove worker", 1, someRegistered, func(w *world) {
			i := instance(w)
			w.ask(w.remove(i), false, func(*side) request {
				return request{method: http.MethodDelete, path: "/v1/workers/" + i + "?reason=gone"}
			})
		}},
		{"pause lane", 1, func(w *world) bool { return !somePaused(w) && someClaimGrant(w) }, func(w *world) {
			lane, reason := draw(w, "lane", laneNames...), draw(w, "reason", "", "rest")
			body := map[string]any{}
			if reason != "" {
				body["reason"] = reason
			}
			post(w, "/v1/lanes/"+lane+"/pause", w.turn(lane, true, reason), body)
		}},
		{"resume lane", 3, somePaused, func(w *world) {
			lane := draw(w, "lane", laneNames...)
			post(w, "/v1/lanes/"+lane+"/resume", w.turn(lane, false, ""), nil)
		}},
	}
}
