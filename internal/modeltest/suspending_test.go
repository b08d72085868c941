package modeltest

import (
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Where an operation on suspensions finds something to do.
var (
	someSuspended = some(func(_ *world, e *execution) bool { return e.phase == "suspended" })
	somePoint     = some(func(_ *world, e *execution) bool {
		return slices.ContainsFunc(e.waitpoints, func(p *waitpoint) bool { return p.state != "closed" })
	})
)

// learnTokens notes the tokens that a server gives out.
func (s *side) learnTokens(got *apitest.Response) {
	if got.Status != http.StatusOK && got.Status != http.StatusCreated {
		return
	}
	type minted struct {
		ID    uuid.UUID `json:"waitpoint_id"`
		Token string    `json:"token"`
	}
	var body struct {
		minted
		Waitpoints []minted `json:"waitpoints"`
	}
	got.Into(&body)
	for _, m := range append(body.Waitpoints, body.minted) {
		if m.Token == "" {
			continue
		}
		if old := s.tokens[m.ID]; old != "" && old != m.Token {
			s.Failf("waitpoint %s has two tokens", m.ID)
		}
		s.tokens[m.ID] = m.Token
	}
}

func (s *side) suspension(x *oapi.Suspension) string {
	var points []string
	for _, p := range x.Waitpoints {
		points = append(points, s.w.names[p.WaitpointID]+"="+p.WaitpointKey)
	}
	at := func(t *oapi.Time) string {
		if t == nil {
			return ""
		}
		return s.w.at(t.Time().UnixMilli())
	}
	last := or(x.CloserSignalID, "")
	if id, err := uuid.Parse(last); err == nil {
		if last = s.w.names[id]; last == "" {
			last = ours
		}
	}
	return suspensionText(s.w.names[x.SuspensionID], int(x.AttemptIndex), string(x.ReasonCode), points, s.w.at(x.Since.Time().UnixMilli()), at(x.TimeoutAt), string(x.TimeoutBehavior),
		at(x.ClosedAt), or(x.CloseReason, ""), last)
}

// conditionOn draws a condition on some waitpoints, which it mostly names all.
func (w *world) conditionOn(keys []string, depth int) condition {
	names := func() string { return draw(w, "name", "", "go", "go", "no") }
	single := func(key string) condition { return condition{form: "single", keys: []string{key}, name: names()} }
	count := func() condition {
		kind := draw(w, "count kind", "DistinctSignals", "DistinctSources", "DistinctWaitpoints")
		n := 1 + w.below(3, "n")
		if kind == "DistinctWaitpoints" {
			n = min(n, len(keys))
		}
		return condition{form: "count", keys: keys, name: draw(w, "name", "", "", "go"), n: n, count: kind}
	}
	if len(keys) > 1 || depth > 0 {
		switch {
		case depth < 2 && w.sometimes("all of", 50):
			all := condition{form: "all"}
			for _, key := range keys {
				all.of = append(all.of, single(key))
			}
			if w.sometimes("and more", 40) {
				all.of = append(all.of, w.conditionOn(keys, depth+1))
			}
			return all
		case depth > 0 && w.sometimes("a word", 10):
			return condition{form: draw(w, "word", "operator", "timeout")}
		}
		return count()
	}
	switch draw(w, "form", "single", "single", "single", "count", "all", "operator", "timeout") {
	case "single":
		return single(keys[0])
	case "count":
		return count()
	case "all":
		return condition{form: "all", of: []condition{single(keys[0]), w.conditionOn(keys, 1)}}
	case "operator":
		return condition{form: "operator"}
	}
	return condition{form: "timeout"}
}

// suspendRequest draws what a worker suspends on.
func (w *world) suspendRequest(e *execution) suspendRequest {
	r := suspendRequest{reason: draw(w, "reason", "waiting_for_signal", "waiting_for_approval", "manual_pause"),
		behavior: draw(w, "behavior", "fail", "cancel", "expire", "auto_resume", "auto_resume_with_timeout_signal", "escalate"),
		timeout:  draw[int64](w, "timeout", 0, 500, 3000, 60000), delay: draw[int64](w, "resume_delay", 0, 0, 0, 400), key: draw(w, "suspend key", "", "", "", "s1")}
	r.id, r.name = w.newNamed("s")
	if w.sometimes("keep waitpoints", 25) {
		r.keep = keeping{true, w.sometimes("keep matched", 50), w.sometimes("keep others", 50)}
	}
	r.past = w.sometimes("in the past", 3)
	pending := w.points(func(p *waitpoint) bool { return p.state == "pending" && p.e == e })
	if len(pending) > 0 && w.sometimes("a pending one", 65) || w.sometimes("any one", 5) {
		if len(pending) == 0 || w.sometimes("another one", 15) {
			pending = w.points(func(*waitpoint) bool { return true })
		}
		if len(pending) > 0 {
			r.pending = pending[w.below(len(pending), "pending")]
			r.cond = w.conditionOn([]string{r.pending.key}, 0)
			return r
		}
	}
	keys := draw(w, "keys", []string{"k1"}, []string{"k1"}, []string{"k1", "k2"}, []string{"k1", "k2", "k3"})
	for _, key := range keys {
		r.fresh = append(r.fresh, w.newPoint(key))
	}
	named := keys
	if w.sometimes("other keys", 5) {
		named = draw(w, "named", []string{"k2"}, []string{"k1", "k2"})
	}
	r.cond = w.conditionOn(named, 0)
	return r
}

func (w *world) newPoint(key string) *waitpoint {
	p := &waitpoint{key: key}
	p.id, p.name = w.newNamed("p")
	return p
}

// points returns the waitpoints for which something holds.
func (w *world) points(holds func(p *waitpoint) bool) []*waitpoint {
	var all []*waitpoint
	for _, e := range w.executions {
		for _, p := range e.waitpoints {
			if holds(p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// point draws a waitpoint, mostly an open one.
func (w *world) point() *waitpoint {
	all := w.points(func(p *waitpoint) bool { return p.state != "closed" })
	if len(all) == 0 || w.sometimes("a closed one", 12) {
		all = w.points(func(*waitpoint) bool { return true })
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.below(len(all), "waitpoint")]
}

// members are the request's, but for its proof.
func (r *suspendRequest) members(now instant) map[string]any {
	var points []any
	for _, p := range r.fresh {
		points = append(points, map[string]any{"waitpoint_id": p.id, "waitpoint_key": p.key})
	}
	if r.pending != nil {
		points = []any{map[string]any{"use_pending": r.pending.id}}
	}
	body := map[string]any{"suspension_id": r.id, "reason_code": r.reason, "waitpoints": points, "resume_condition": r.cond.body(), "timeout_behavior": r.behavior}
	if r.timeout > 0 {
		body["timeout_ms"] = r.timeout
	}
	if r.past {
		delete(body, "timeout_ms")
		body["timeout_at"] = stamp(now - 3_600_000)
	}
	if r.key != "" {
		body["idempotency_key"] = r.key
	}
	policy := map[string]any{}
	if r.delay > 0 {
		policy["resume_delay_ms"] = r.delay
	}
	if r.keep.points {
		policy["close_waitpoint_on_resume"], policy["consume_matched_signals"], policy["retain_signal_buffer_until_closed"] = false, !r.keep.matched, r.keep.others
	}
	if len(policy) > 0 {
		body["resume_policy"] = policy
	}
	return body
}

func suspend(w *world, e *execution, p proof) {
	r := w.suspendRequest(e)
	now := w.now
	w.reports(w.model.suspend(e, p.fence, r), e, "suspend", p, r.members(now))
}

// suspendOnKept suspends on a waitpoint at which signals are kept.
func suspendOnKept(w *world) {
	e := w.where(func(e *execution) bool { return keptAt(w, e) != nil })
	if e == nil || keptAt(w, e) == nil || e.owner == nil {
		return
	}
	r := w.suspendRequest(e)
	r.fresh, r.pending = nil, keptAt(w, e)
	r.cond = w.conditionOn([]string{r.pending.key}, 0)
	if w.sometimes("any signal", 50) {
		r.cond = condition{form: "single", keys: []string{r.pending.key}}
	}
	now, p := w.now, proof{fence: fence{owner: e.owner}, form: "handle"}
	w.reports(w.model.suspend(e, p.fence, r), e, "suspend", p, r.members(now))
}

// suspendTooLate suspends on a waitpoint at the moment in which it expires, or beside it.
func suspendTooLate(w *world) {
	e := w.where(func(e *execution) bool { return brief(w, e) != nil })
	if e == nil || brief(w, e) == nil {
		return
	}
	r := w.suspendRequest(e)
	r.fresh, r.pending = nil, brief(w, e)
	r.cond = w.conditionOn([]string{r.pending.key}, 0)
	w.move(max(0, r.pending.expires-w.now+draw[int64](w, "beside", 0, -1, 1)))
	now, p := w.now, proof{fence: fence{owner: e.owner}, form: "handle"}
	w.did[w.kind]++
	w.reports(w.model.suspend(e, p.fence, r), e, "suspend", p, r.members(now))
}

// brief returns a pending waitpoint that expires before the lease of whoever holds its execution.
func brief(w *world, e *execution) *waitpoint {
	for _, p := range e.waitpoints {
		if w.held(e) && p.state == "pending" && p.index == e.current && p.expires+1 < e.expires {
			return p
		}
	}
	return nil
}

// keptAt returns a pending waitpoint of what somebody holds at which a signal is kept.
func keptAt(w *world, e *execution) *waitpoint {
	if !w.held(e) {
		return nil
	}
	for _, s := range e.signals {
		if s.open && s.at.state == "pending" && s.at.index == e.current {
			return s.at
		}
	}
	return nil
}

func (w *world) suspendAgain(e *execution, p proof) { suspend(w, e, p) }

// signalTo draws a signal.
func (w *world) signalTo(e *execution) *signal {
	s := &signal{kind: draw(w, "signal name", "go", "go", "no"), category: "custom", sourceType: "external", source: draw(w, "source", "", "anna", "bert"), key: draw(w, "signal key", "", "", "", "d1")}
	if len(e.signals) > 0 && w.sometimes("a known id", 10) {
		old := e.signals[w.below(len(e.signals), "signal")]
		if old.name != ours {
			s.id, s.name = old.id, old.name
			return s
		}
	}
	s.id, s.name = w.newNamed("x")
	return s
}

func signalling(w *world) {
	p := w.point()
	if p == nil {
		return
	}
	e := p.e
	if w.sometimes("another execution", 4) {
		e = w.execution()
	}
	s := w.signalTo(e)
	token, entitled := p, true
	if w.sometimes("another token", 8) {
		if token = w.point(); token != p {
			entitled = false
		}
	}
	ttl := draw[int64](w, "dedup", 0, 0, 500)
	s.until = w.now + 24*3600*1000
	if ttl > 0 {
		s.until = w.now + ttl
	}
	delay := maybe[int64](w, "signal delay", 0, 300)
	want := w.deliver(e, p, s, entitled, false, delay)
	w.ask(want, w.sometimes("keyed", 10), func(side *side) request {
		body := map[string]any{"waitpoint_id": p.id, "token": side.tokens[token.id], "signal_name": s.kind, "signal_id": s.id, "payload": map[string]any{"n": 1}}
		if s.source != "" {
			body["source_identity"] = s.source
		}
		if s.key != "" {
			body["idempotency_key"] = s.key
		}
		if ttl > 0 {
			body["dedup_ttl_ms"] = ttl
		}
		if delay != nil {
			body["resume_delay_ms"] = *delay
		}
		return request{method: http.MethodPost, path: path(e, "signals"), body: body}
	})
}

func approving(w *world) {
	p := w.point()
	if p == nil {
		return
	}
	decision, suffix := draw(w, "decision", "approved", "rejected"), draw(w, "suffix", "", "2")
	s := &signal{name: ours, kind: decision, category: "approval", sourceType: "operator", source: "local", key: "approval:" + decision + ":local", until: w.now + 24*3600*1000}
	body := map[string]any{"waitpoint_id": p.id, "decision": decision}
	if suffix != "" {
		s.key = "approval:" + decision + ":" + suffix
		body["idempotency_suffix"] = suffix
	}
	s.key += "@" + lastOf(p)
	w.ask(w.deliver(p.e, p, s, true, true, nil), w.sometimes("keyed", 10), func(*side) request {
		return request{method: http.MethodPost, path: path(p.e, "approvals"), body: body}
	})
}

// lastOf names the suspension that a waitpoint belongs to, or was kept by.
func lastOf(p *waitpoint) string {
	switch last := p.e.suspension; {
	case p.state != "pending" && p.suspension != nil:
		return p.suspension.name
	case last != nil && slices.Contains(last.points, p):
		return last.name
	}
	return ""
}

func suspending() []kind {
	read := func(op string, model func(w *world, e *execution) answer) func(w *world) {
		return func(w *world) {
			if e := w.where(func(e *execution) bool { return len(e.waitpoints) > 0 }); e != nil {
				w.ask(model(w, e), false, func(*side) request { return request{method: http.MethodGet, path: path(e, op)} })
			}
		}
	}
	return []kind{
		reporter("suspend", 8, suspend),
		reporter("create waitpoint", 4, func(w *world, e *execution, p proof) {
			point, ttl := w.newPoint(draw(w, "key", "k1", "k2")), draw[int64](w, "expires", 60000, 60000, 500)
			w.reports(w.prepare(e, p.fence, point, ttl), e, "waitpoints", p, map[string]any{"waitpoint_id": point.id, "waitpoint_key": point.key, "expires_in_ms": ttl})
		}),
		{"suspend on what is kept", 4, some(func(w *world, e *execution) bool { return keptAt(w, e) != nil }), suspendOnKept},
		{"suspend too late", 2, some(func(w *world, e *execution) bool { return brief(w, e) != nil }), suspendTooLate},
		{"signal", 16, somePoint, signalling},
		{"approve", 2, someSuspended, approving},
		{"close waitpoint", 1, somePoint, func(w *world) {
			if p := w.point(); p != nil {
				w.ask(w.closePoint(p.e, p, "enough"), w.sometimes("keyed", 10), func(*side) request {
					return request{method: http.MethodPost, path: path(p.e, "waitpoints/"+p.id.String()+"/close"), body: map[string]any{"reason": "enough"}}
				})
			}
		}},
		{"list waitpoints", 2, somePoint, read("waitpoints", func(w *world, e *execution) answer { return w.model.points(e) })},
		{"observe", 2, somePoint, read("signals", func(w *world, e *execution) answer { return w.observe(e, false) })},
		{"observe all", 2, somePoint, read("signals?all=true", func(w *world, e *execution) answer { return w.observe(e, true) })},
	}
}
