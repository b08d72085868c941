package runtest

import (
	"bytes"
	"slices"
)

// fence refuses who has another generation than the present one.
func (r *run) fence(generation int64) *refusal {
	if generation == r.generation {
		return nil
	}
	return no("lease_lost", "current_generation", r.generation)
}

// begins refuses to begin something in a run that has ended, or that is to.
func (r *run) begins() *refusal {
	switch {
	case r.over():
		return no("run_terminal", "current_status", r.status)
	case r.status == "cancelling":
		return no("run_cancelled", "reason", r.reason)
	}
	return nil
}

// move puts a run into another status.
func (m *model) move(r *run, to string) {
	m.reach("run: " + r.status + " -> " + to)
	from := r.status
	r.status = to
	if to != "waiting" {
		r.wait = nil
	}
	if r.since > 0 && (r.over() || to == "needs_resume") {
		r.total += m.now - r.since
		r.since = 0
	}
	switch {
	case r.over():
		r.ended, r.token, r.until = m.now, "", 0
	case to == "running" && from != "waiting":
		r.ended, r.since = 0, m.now
		if r.started == 0 {
			r.started = m.now
		}
	}
}

// shift moves a run and tells it, and what it is in.
func (m *model) shift(r *run, to, event string) {
	m.move(r, to)
	m.tell(&r.trail, event)
	m.follows(func() { m.changed(r) })
}

// end ends a run with all that is open in it.
func (m *model) end(r *run, to string) {
	m.move(r, to)
	m.tell(&r.trail, "run."+to)
	m.follows(func() {
		for _, s := range r.steps {
			if !s.over() {
				c := s.child.run // it may end at the same moment, and be the first
				s.out.loose = s.out.loose || c != nil && c.status == "cancelling" && c.deadline <= m.now
				m.endStep(s, "cancelled", "")
			}
		}
		m.changed(r)
	})
	m.orphans(r)
}

// changed tells what a run is in that it has changed.
func (m *model) changed(r *run) {
	if p := m.doing(child{run: r}); p.run != nil {
		m.mirror(p, child{run: r})
	}
	if r.over() {
		m.call(r.at.run, func(on *runWait) bool { return on.run == r })
	}
}

// call lets a run go on that waits for what has ended.
func (m *model) call(r *run, ended func(on *runWait) bool) {
	if r != nil && !r.deleted && r.wait != nil && ended(r.wait) {
		m.reach("resumed by its child")
		m.shift(r, "running", "run.resumed")
	}
}

// orphans has the children of a run looked at when all else is done.
func (m *model) orphans(r *run) {
	if !slices.Contains(m.drains, r) {
		m.drains = append(m.drains, r)
	}
}

// drain cancels the children of a run that nobody waits for any more. Those of one that is cancelling are asked to end with it.
func (m *model) drain(r *run) {
	for _, w := range m.worksOf(r) {
		if !w.over() && (r.over() || !m.awaited(child{work: w})) {
			m.cancelWork(w, 0)
		}
	}
	for _, c := range m.children(r) {
		if !c.over() && (r.over() || r.status != "cancelling" && c.at.step != nil && !m.awaited(child{run: c})) {
			m.cancelWith(c, m.now+usual)
		}
	}
	if r.status != "cancelling" {
		return
	}
	for _, w := range m.worksOf(r) {
		if !w.over() && (w.grace == 0 || w.grace > r.deadline) {
			m.cancelWork(w, r.deadline)
		}
	}
	for _, c := range m.children(r) {
		if !c.over() {
			m.cancelWith(c, r.deadline)
		}
	}
}

// cancelWith cancels a run because what it is in ends.
func (m *model) cancelWith(r *run, deadline int64) {
	if r.status == "cancelling" {
		return
	}
	r.reason, r.summary = "parent_cancelled", anyText
	m.stop(r, deadline, false)
}

// anyText stands for words of the server's own.
const anyText = "?"

// stop ends a run at once, or asks its engine to.
func (m *model) stop(r *run, deadline int64, atOnce bool) {
	if atOnce || !m.live(r) || !r.can("cancelling") {
		m.end(r, "cancelled")
		return
	}
	m.times[deadline] = true
	r.deadline = deadline
	m.move(r, "cancelling")
	m.tell(&r.trail, "run.cancelling")
	m.follows(func() { m.changed(r) })
	m.orphans(r)
}

// late is what becomes of a run that has waited too long.
func (m *model) late(r *run) {
	m.reach("due: wait, " + r.wait.onTimeout)
	switch r.wait.onTimeout {
	case "resume":
		m.shift(r, "running", "run.resumed")
	case "cancel":
		r.reason, r.summary = "timeout", anyText
		m.end(r, "cancelled")
	default:
		r.failure, r.summary = anyText, ""
		m.end(r, "failed")
	}
}

// Each of these is a request. It returns the refusal, or does what is asked.

func (m *model) acquire(r *run, token string, until int64) (outcome string, _ *refusal) {
	if r.over() {
		return "", no("run_terminal", "current_status", r.status)
	}
	switch {
	case r.token == token:
		r.until = until
		return "renewed", nil
	case m.live(r):
		return "", no("lease_held", "lease_until", stamp(r.until))
	case r.token != "":
		outcome = "taken_over"
	default:
		outcome = "granted"
	}
	r.token, r.until = token, until
	r.generation++
	m.tell(&r.trail, "run.leased")
	return outcome, nil
}

func (m *model) release(r *run, token string, generation int64, needsResume bool) *refusal {
	if f := r.fence(generation); f != nil {
		return f
	}
	switch {
	case r.token != token:
		return no("lease_lost", "current_generation", r.generation)
	case r.status == "cancelling":
		m.reach("release: of what is cancelling")
		m.end(r, "cancelled")
		return nil
	case needsResume && !r.can("needs_resume"):
		return illegal(r.status, "needs_resume")
	}
	r.token, r.until = "", 0
	if needsResume {
		m.shift(r, "needs_resume", "run.needs_resume")
		return nil
	}
	m.tell(&r.trail, "run.lease_released")
	return nil
}

func (m *model) start(r *run, generation int64) *refusal {
	if f := r.fence(generation); f != nil {
		return f
	}
	if r.status != "pending" {
		return illegal(r.status, "running")
	}
	m.shift(r, "running", "run.started")
	return nil
}

func (m *model) park(r *run, generation int64, on runWait) *refusal {
	if f := r.fence(generation); f != nil {
		return f
	}
	if !r.can("waiting") {
		return illegal(r.status, "waiting")
	}
	if on.run != nil && on.run.at.run != r || on.work != nil && on.work.run != r {
		return no("validation_failed")
	}
	on.since = m.now
	r.wait = &on
	m.shift(r, "waiting", "run.waiting")
	if on.run != nil && on.run.over() || on.work != nil && on.work.over() || on.step != nil && on.step.over() {
		m.reach("wait: for what has ended")
		m.follows(func() { m.shift(r, "running", "run.resumed") })
	}
	return nil
}

// goOn is the resume of a waiting run by its engine.
func (m *model) goOn(r *run, generation int64) *refusal {
	if f := r.fence(generation); f != nil {
		return f
	}
	if r.status != "waiting" {
		return no("not_resumable", "current_status", r.status)
	}
	m.shift(r, "running", "run.resumed")
	return nil
}

func (m *model) complete(r *run, generation int64, summary string) *refusal {
	if f := r.fence(generation); f != nil {
		return f
	}
	if !r.can("completed") {
		return illegal(r.status, "completed")
	}
	open := 0
	for _, s := range r.steps {
		if !s.over() {
			open++
		}
	}
	for _, c := range m.children(r) {
		if !c.over() {
			open++
		}
	}
	if open > 0 {
		return no("open_members", "count", open)
	}
	r.summary = summary
	m.end(r, "completed")
	return nil
}

func (m *model) fail(r *run, generation int64, why string) *refusal {
	if f := r.fence(generation); f != nil {
		return f
	}
	if !r.can("failed") {
		return illegal(r.status, "failed")
	}
	r.failure, r.summary = why, ""
	m.end(r, "failed")
	return nil
}

// cancel is by an operator when generation is nil, else by its engine.
func (m *model) cancel(r *run, generation *int64, message string, deadline int64) *refusal {
	if generation != nil {
		if f := r.fence(*generation); f != nil {
			return f
		}
	}
	switch {
	case !r.can("cancelled"):
		return illegal(r.status, "cancelled")
	case r.status == "cancelling" && generation == nil: // who asked first, and why, stays
		m.reach("cancel: again")
		return nil
	case r.status != "cancelling":
		r.reason = "user_requested"
		if generation != nil {
			r.reason = "engine_shutdown"
		}
		r.summary = message
	}
	m.stop(r, deadline, generation != nil)
	return nil
}

func (m *model) dismiss(r *run, dismissed bool) {
	if r.dismissed != dismissed {
		r.dismissed = dismissed
		m.tell(&r.trail, "run.dismissed")
	}
}

func (m *model) remove(r *run) *refusal {
	if !r.over() {
		return no("not_terminal", "current_status", r.status)
	}
	all, open := m.below(r), 0
	for _, c := range all {
		if !c.over() {
			open++
		}
		for _, w := range m.worksOf(c) {
			if !w.over() {
				open++
			}
		}
	}
	if open > 0 {
		return no("open_members", "count", open)
	}
	for _, c := range all {
		c.deleted = true
	}
	return nil
}

// endFlow ends a flow, and its runs with it unless the policy is flow_only.
func (m *model) endFlow(f *flow, status, policy string) {
	f.status = status
	if policy == "flow_only" {
		return
	}
	runs := slices.DeleteFunc(slices.Clone(f.runs), func(r *run) bool { return r.deleted })
	slices.SortFunc(runs, func(a, b *run) int { return bytes.Compare(a.id[:], b.id[:]) })
	m.aside(func() {
		for _, r := range runs {
			if !r.over() {
				m.reach("ended with its flow: " + r.status)
				m.cancelWith(r, m.now+usual)
			}
		}
	})
}

// inFlow is what a flow's step is whose run is in a status.
func inFlow(status string) string {
	switch status {
	case "pending", "failed", "cancelled":
		return status
	case "completed":
		return "succeeded"
	}
	return "running"
}

// again is how a resume does steps anew.
type again struct {
	restart bool
	from    *step // and what comes after it
}

func (m *model) resume(r *run, how again) *refusal {
	if r.status != "needs_resume" && r.status != "failed" && (r.status != "completed" || !how.restart) {
		return no("not_resumable", "current_status", r.status)
	}
	r.resumes++
	r.summary, r.failure, r.reason, r.deadline = "", "", "", 0
	m.shift(r, "running", "run.resumed")
	m.follows(func() {
		for _, s := range r.steps {
			switch {
			case s.again(how):
				m.reset(s, how)
			case s.status == "pending" && (how.from == nil || s.position >= how.from.position):
				m.resetItems(s, how) // some may have begun without it
			}
		}
	})
	return nil
}

// again says whether a resume does a step anew: what is at work in the hands of a child, and what people are asked, goes on.
func (s *step) again(how again) bool {
	switch {
	case s.status == "pending":
		return false
	case how.restart:
		return true
	case how.from != nil:
		return s.position >= how.from.position
	case s.over():
		return s.status == "failed" || s.status == "timed_out" || s.status == "cancelled"
	}
	return s.child.none() && (s.gate == nil || !s.gate.open)
}

// reset puts the present attempt aside and begins another one, which is pending.
func (m *model) reset(s *step, how again) {
	m.reach("reset: " + s.role + ", " + s.status)
	s.put(s.status, s.ended, m.now)
	if !s.child.none() {
		m.orphans(s.run)
	}
	s.status, s.label, s.child, s.began, s.ended, s.out = "pending", "", child{}, 0, 0, outputs{}
	if g := s.gate; g != nil {
		if g.open {
			m.reach("reset: an open gate")
			m.tell(&g.trail, "gate.cancelled")
		}
		g.outcome, g.open, g.opened, g.deadline, g.resolved, g.by = "pending", false, 0, 0, 0, ""
	}
	m.tell(&s.trail, "run_step.reset")
	m.resetItems(s, how)
}

// resetItems does items anew: all, or those that have not ended well and are not at work in the hands of a child.
func (m *model) resetItems(s *step, how again) {
	for _, it := range s.items {
		all := how.restart || how.from != nil
		if it.status == "pending" || !all && it.status != "failed" && it.status != "cancelled" && (it.over() || !it.child.none()) {
			continue
		}
		m.reach("reset: an item, " + it.status)
		if !it.child.none() {
			m.orphans(s.run)
		}
		it.status, it.child, it.dispatched, it.completed = "pending", child{}, 0, 0
		m.tell(&it.trail, "item.added")
	}
}

// put puts the present attempt aside. One that has not ended was cancelled.
func (s *step) put(status string, ended, now int64) {
	if ended == 0 {
		status, ended = "cancelled", now
	}
	s.attempts = append(s.attempts, attempt{status, s.label, s.child, s.began, ended, s.out.err, s.out.loose})
	s.retries++
	if s.gate != nil {
		s.gate.votes = nil // they are said to one attempt
	}
}
