package modeltest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// suspension is why an execution was given back until something happens outside. executions.md 1.5.
type suspension struct {
	id            uuid.UUID
	name          string
	index         int // of the attempt
	reason        string
	since         instant
	points        []*waitpoint
	condition     condition
	timeout       instant
	behavior      string
	delay         int64
	keep          keeping
	got           []*signal // in the order in which they came to it
	closed        instant
	closing, last string
}

// keeping says what becomes of waitpoints and signals when an execution goes on.
type keeping struct{ points, matched, others bool }

// waitpoint is where signals come.
type waitpoint struct {
	id                               uuid.UUID
	name, key                        string
	e                                *execution
	index                            int
	state                            string
	suspension                       *suspension
	created, activated, expires, end instant
	closing                          string
	signals                          int
}

// signal is one that was taken.
type signal struct {
	id           uuid.UUID
	name         string // of the id, or "ours"
	at           *waitpoint
	kind         string // its own name
	category     string
	sourceType   string
	source       string
	key          string
	until        instant // as long as the key is recognised
	accepted     instant
	effect       string
	counts, open bool
	to           *suspension
}

// ours stands for the id of a signal that the server has made.
const ours = "ours"

// suspending is a request to suspend.
type suspendRequest struct {
	id       uuid.UUID
	name     string
	key      string // idempotency key
	reason   string
	fresh    []*waitpoint
	pending  *waitpoint
	cond     condition
	timeout  int64 // ms from now, 0 for none
	past     bool  // it lies in the past
	behavior string
	delay    int64
	keep     keeping
}

// suspendKey is what an idempotency key of a suspension stands for.
type suspendKey struct {
	outcome, name string
	expires       instant
}

var blockings = map[string]string{"waiting_for_signal": "waiting_for_signal", "waiting_for_approval": "waiting_for_approval", "manual_pause": "paused_by_operator"}

// suspend is POST …/suspend. executions.md 2.15.
func (m *model) suspend(e *execution, f fence, r suspendRequest) answer {
	if k := e.suspendKeys[r.key]; r.key != "" && k != nil && k.expires > m.now {
		m.reach("suspend: the key is known")
		return ok("outcome", k.outcome, "suspension_id", k.name, "directives", m.directives(e))
	}
	if code := r.wrong(); code != "" {
		return refused(code)
	}
	if e.phase == "suspended" && f.is(e.owner) {
		return refused("already_suspended")
	}
	if code := m.check(e, f); code != "" {
		return refused(code)
	}
	s := &suspension{id: r.id, name: r.name, index: e.current, reason: r.reason, since: m.now, condition: r.cond, behavior: r.behavior, delay: r.delay, keep: r.keep}
	if r.timeout > 0 {
		s.timeout = m.now + r.timeout
	}
	if r.pending == nil {
		s.points = r.fresh
	} else if a, done := m.suspendOnPending(e, r, s); done {
		return a
	}
	if e.cancelling() {
		m.reach("cancelling, and then suspend")
		end := &ending{op: "suspend", owner: e.owner}
		m.cancelled(e, "")
		e.ending = end
		return m.suspended(e, r, "cancelled")
	}
	for _, p := range s.points {
		if r.pending == nil {
			p.e, p.index, p.created = e, e.current, m.now
			e.waitpoints = append(e.waitpoints, p)
		}
		p.state, p.suspension, p.activated, p.expires = "active", s, m.now, s.timeout
	}
	e.attempts[e.current].state = "suspended"
	if e.timeout != 0 {
		e.left = max(1, e.timeout-m.now)
	}
	e.suspension = s
	e.vector, e.timeout, e.expires = suspended(blockings[r.reason]), 0, 0
	e.ending = &ending{op: "suspend", owner: e.owner}
	e.change("lease.revoked suspended @"+number(e.epoch), "execution.suspended")
	return m.suspended(e, r, "suspended")
}

// suspendOnPending binds the suspension to the waitpoint that was made before it. It says whether it is answered with that:
// refused, or satisfied by what had come there already.
func (m *model) suspendOnPending(e *execution, r suspendRequest, s *suspension) (answer, bool) {
	p := r.pending
	switch {
	case p.e != e:
		return refused("not_found"), true
	case p.state != "pending" || p.index != e.current:
		return refused("waitpoint_not_pending"), true
	case p.expires <= m.now:
		return refused("pending_waitpoint_expired"), true
	}
	s.points = []*waitpoint{p}
	if !slices.Equal(r.keys(), []string{p.key}) && len(r.keys()) > 0 {
		return refused("invalid_condition"), true
	}
	for _, x := range e.signals {
		if x.at == p && x.open {
			x.open, x.to, x.counts = false, s, false
			if r.cond.holds(s.got) {
				continue // that was enough
			}
			_, x.counts = s.condition.effect(s.got, x)
			s.got = append(s.got, x)
			if x.counts {
				s.last = x.name
			}
		}
	}
	if r.cond.holds(s.got) {
		m.reach("suspend: already satisfied")
		e.suspension = s
		s.closed, s.closing = m.now, "already_satisfied"
		if s.keep.points {
			m.reach("suspend: already satisfied, and kept")
			m.returned(e, s)
			e.change("execution.resumed signal")
			return m.suspended(e, r, "already_satisfied"), true
		}
		p.state, p.suspension, p.end, p.closing = "closed", s, m.now, "resumed"
		e.change("waitpoint.closed resumed")
		return m.suspended(e, r, "already_satisfied"), true
	}
	s.last = ""
	return answer{}, false
}

// suspended answers a suspension, and keeps it under its key.
func (m *model) suspended(e *execution, r suspendRequest, outcome string) answer {
	if r.key != "" {
		keep := int64(7 * 24 * 3600 * 1000)
		if r.timeout > 0 {
			keep = min(keep, r.timeout+60_000)
		}
		if e.suspendKeys == nil {
			e.suspendKeys = map[string]*suspendKey{}
		}
		e.suspendKeys[r.key] = &suspendKey{outcome, r.name, m.now + keep}
	}
	return ok("outcome", outcome, "suspension_id", r.name, "directives", m.directives(e))
}

// keys are the waitpoints that a condition names.
func (r *suspendRequest) keys() []string {
	var keys []string
	for _, leaf := range r.cond.leaves() {
		for _, key := range leaf.keys {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// wrong says what is wrong with a request, whatever the execution.
func (r *suspendRequest) wrong() string {
	if r.cond.form == "timeout" && r.timeout == 0 && !r.past {
		return "invalid_condition"
	}
	if r.past {
		return "timer_out_of_range"
	}
	if r.pending != nil {
		return ""
	}
	var bound []string
	for _, p := range r.fresh {
		bound = append(bound, p.key)
	}
	slices.Sort(bound)
	named := r.keys()
	if slices.ContainsFunc(named, func(key string) bool { return !slices.Contains(bound, key) }) || len(bound) > 1 && !slices.Equal(named, bound) {
		return "invalid_condition"
	}
	return ""
}

// prepare is POST …/waitpoints.
func (m *model) prepare(e *execution, f fence, p *waitpoint, ttl int64) answer {
	if code := m.check(e, f); code != "" {
		return refused(code)
	}
	p.e, p.index, p.state, p.created, p.expires = e, e.current, "pending", m.now, m.now+ttl
	e.waitpoints = append(e.waitpoints, p)
	e.events = append(e.events, "waitpoint.created ")
	a := ok("waitpoint_id", p.name, "waitpoint_key", p.key)
	a.Status = 201
	return a
}

// closePoint is POST …/waitpoints/{id}/close, by an operator.
func (m *model) closePoint(e *execution, p *waitpoint, reason string) answer {
	if p.e != e {
		return refused("not_found")
	}
	if p.state != "closed" {
		p.state, p.end, p.closing = "closed", m.now, reason
		e.events = append(e.events, "waitpoint.closed "+reason)
	}
	a := m.pointFacts(p)
	return a
}

func (m *model) pointFacts(p *waitpoint) answer {
	name := ""
	if p.suspension != nil {
		name = p.suspension.name
	}
	return ok("waitpoint_id", p.name, "waitpoint_key", p.key, "execution_id", p.e.name, "attempt_index", number(p.index), "suspension_id", name, "state", p.state,
		"signal_count", number(p.signals), "created_at", m.at(p.created), "activated_at", m.at(p.activated), "expires_at", m.at(p.expires), "closed_at", m.at(p.end), "close_reason", p.closing)
}

// points is GET …/waitpoints.
func (m *model) points(e *execution) answer {
	a := ok()
	if e.phase == "terminal" {
		return a
	}
	all := slices.Clone(e.waitpoints)
	slices.SortFunc(all, func(x, y *waitpoint) int { return bytes.Compare(x.id[:], y.id[:]) })
	for _, p := range all {
		ended := e.vector.attempt == "pending_retry_attempt" || e.vector.attempt == "pending_replay_attempt"
		if p.state == "closed" || p.state == "pending" && (p.index != e.current || ended) {
			continue
		}
		item := m.pointFacts(p)
		item.Status = 0
		if p.state == "active" {
			names := ""
			for i, name := range p.suspension.condition.names(p.key) {
				if i > 0 {
					names += ","
				}
				names += name
			}
			if names != "" {
				item.Facts["required_signal_names"] = names
			}
		}
		a.Items = append(a.Items, item)
	}
	return a
}

// deliver is POST …/signals, and …/approvals for whom is trusted. executions.md 2.17.
func (m *model) deliver(e *execution, p *waitpoint, s *signal, entitled, trusted bool, delay *int64) answer {
	switch {
	case trusted && p.e != e:
		return refused("not_found")
	case !trusted && (!entitled || p.e != e):
		return refused("invalid_token")
	}
	for _, old := range e.signals {
		if old.id == s.id && s.name != ours {
			m.reach("signal: the id is known")
			return ok("outcome", "duplicate", "signal_id", old.name, "effect", old.effect)
		}
	}
	for _, old := range e.signals {
		if s.key != "" && old.key == s.key && old.at == p {
			if old.until > m.now {
				m.reach("signal: the key is known")
				return ok("outcome", "duplicate", "signal_id", old.name, "effect", old.effect)
			}
			m.reach("signal: the key was known")
		}
	}
	open := e.suspension != nil && e.suspension.closed == 0
	switch {
	case e.phase == "terminal":
		return refused("target_not_signalable")
	case p.state == "closed":
		return refused("waitpoint_closed")
	case p.state == "active" && open && p.suspension == e.suspension:
	case p.state == "pending" && p.index == e.current && e.vector.attempt != "pending_retry_attempt" && e.vector.attempt != "pending_replay_attempt" && p.expires > m.now:
	default:
		return refused("target_not_signalable")
	}
	if limit := or(e.policy.MaxSignals, 10000); limit > 0 && len(e.signals) >= limit {
		return refused("signal_limit_exceeded")
	}
	for _, old := range e.signals { // its key is free again
		if s.key != "" && old.key == s.key && old.at == p {
			old.key = ""
		}
	}
	s.at, s.accepted = p, m.now
	e.signals = append(e.signals, s)
	p.signals++
	if p.state == "pending" {
		s.effect, s.open = "buffered_for_pending_waitpoint", true
		m.reach("signal: " + s.effect)
		e.events = append(e.events, "signal.buffered "+s.effect)
		return ok("outcome", "accepted", "signal_id", s.name, "effect", s.effect)
	}
	x := e.suspension
	s.effect, s.counts = x.condition.effect(x.got, s)
	s.to = x
	x.got = append(x.got, s)
	m.reach("signal: " + s.effect)
	e.events = append(e.events, "signal.delivered "+s.effect)
	if s.effect == "resume_condition_satisfied" {
		x.last = s.name
		m.wake(e, "signal", "resumed", or(delay, x.delay))
	}
	return ok("outcome", "accepted", "signal_id", s.name, "effect", s.effect)
}

// wake lets e go on. executions.md 1.11.
func (m *model) wake(e *execution, by, closing string, delay int64) {
	e.vector = waiting("attempt_interrupted")
	if delay > 0 {
		m.reach("resumed: later")
		e.vector, e.delay = delayed("waiting_for_resume_delay", "attempt_interrupted"), m.now+delay
	}
	m.closeSuspension(e, closing)
	e.change("execution.resumed " + by)
}

// resumeSuspended is POST …/resume of what is suspended.
func (m *model) resumeSuspended(e *execution, delay int64) answer {
	m.reach("resume: suspended")
	e.events = append(e.events, "operator.resumed")
	m.wake(e, "operator", "resumed", delay)
	return answer{Status: 200}.showing(m.view(e))
}

// closeSuspension ends what e waits for, if it does.
func (m *model) closeSuspension(e *execution, closing string) {
	s := e.suspension
	if s == nil || s.closed != 0 {
		return
	}
	s.closed, s.closing = m.now, closing
	keeps := s.keep.points && e.phase == "runnable"
	for _, p := range e.waitpoints {
		switch {
		case p.suspension != s || p.state != "active":
		case keeps:
			m.reach("waitpoints: kept")
			p.state, p.suspension, p.activated, p.expires = "pending", nil, 0, m.now+24*3600*1000
		default:
			p.state, p.end, p.closing = "closed", m.now, closing
		}
	}
	if keeps {
		m.returned(e, s)
	}
}

// returned keeps the signals of a suspension for the next one.
func (m *model) returned(e *execution, s *suspension) {
	for _, x := range e.signals {
		if x.to == s && (x.counts && s.keep.matched || !x.counts && s.keep.others) {
			x.open = true
		}
	}
}

// suspensionTimesOut does what is asked for. executions.md 2.18.
func (m *model) suspensionTimesOut(e *execution) {
	s := e.suspension
	m.reach("due: suspension, " + s.behavior)
	why := &failure{"suspension_timeout:" + s.behavior, "timeout"}
	end := func(state, outcome string) {
		m.shut(e, state, why)
		e.phase = "terminal" // nothing is kept
		m.closeSuspension(e, "timed_out_"+s.behavior)
		if outcome == "cancelled" {
			e.cancellation = &cancellation{reason: why.reason, requested: m.now}
		}
		m.finish(e, outcome, why, "")
	}
	switch s.behavior {
	case "auto_resume", "auto_resume_with_timeout_signal":
		m.wake(e, "timeout", "timed_out_auto_resume", 0)
	case "escalate":
		s.reason, s.timeout = "waiting_for_operator_review", 0
		for _, p := range e.waitpoints {
			if p.suspension == s && p.state == "active" {
				p.expires = 0
			}
		}
		e.vector = suspended("paused_by_operator")
		e.change("execution.suspended")
	case "cancel":
		end("ended_cancelled", "cancelled")
	case "expire":
		end("ended_failure", "expired")
	default:
		end("ended_failure", "failed")
	}
}

// expireWaitpoints closes what nobody has suspended on in time.
func (m *model) expireWaitpoints(e *execution) {
	for _, p := range e.waitpoints {
		if p.state == "pending" && p.expires <= m.now {
			m.reach("due: waitpoint")
			p.state, p.end, p.closing = "closed", m.now, "never_committed"
			e.events = append(e.events, "waitpoint.closed never_committed")
		}
	}
}

// observe is GET …/signals.
func (m *model) observe(e *execution, all bool) answer {
	a := ok()
	if e.suspension == nil || e.suspension.index != e.current {
		return a
	}
	for _, s := range e.signals {
		if s.to == e.suspension && (all || s.counts) {
			item := ok("signal_id", s.name, "waitpoint_id", s.at.name, "waitpoint_key", s.at.key, "signal_name", s.kind, "signal_category", s.category, "source_type", s.sourceType,
				"source_identity", s.source, "accepted_at", m.at(s.accepted), "effect", s.effect)
			item.Status = 0
			a.Items = append(a.Items, item)
		}
	}
	return a
}

func (m *model) suspensionText(s *suspension) string {
	var points []string
	for _, p := range s.points {
		points = append(points, p.name+"="+p.key)
	}
	return suspensionText(s.name, s.index, s.reason, points, m.at(s.since), m.at(s.timeout), s.behavior, m.at(s.closed), s.closing, s.last)
}

func suspensionText(name string, index int, reason string, points []string, since, timeout, behavior, closed, closing, last string) string {
	text := fmt.Sprintf("%s of %d: %s at %v since %s until %s %s", name, index, reason, points, since, timeout, behavior)
	if closed != "" {
		text += fmt.Sprintf(" closed %s %s by %s", closed, closing, last)
	}
	return text
}
