package runtest

import (
	"slices"
)

// seen is the status of a step whose child it is. F4.
func (c child) seen() string {
	if w := c.work; w != nil {
		switch {
		case w.over():
			return map[string]string{"success": "completed", "failed": "failed", "cancelled": "cancelled", "expired": "timed_out"}[w.outcome]
		case w.phase == "suspended":
			return "waiting"
		case w.attempts > 0:
			return "running"
		}
		return "pending"
	}
	switch c.run.status {
	case "cancelling", "needs_resume":
		return "running"
	}
	return c.run.status
}

// itemOf is the status of an item whose child makes a step have this status.
func itemOf(status string) string {
	switch status {
	case "pending", "running", "waiting":
		return "running"
	case "timed_out":
		return "failed"
	}
	return status
}

// says are the outputs of a step whose child has ended.
func (c child) says() outputs {
	if w := c.work; w != nil {
		if w.outcome == "success" {
			return w.result.out
		}
		return outputs{err: w.failure, loose: w.outcome != "failed"}
	}
	switch c.run.status {
	case "completed":
		return outputs{text: c.run.summary}
	case "failed":
		return outputs{text: c.run.summary, err: c.run.failure, loose: c.run.failure == anyText}
	}
	return outputs{loose: true}
}

// mirror makes a step or an item equal to its child. What has ended stays as it is.
func (m *model) mirror(p place, c child) {
	if p.item != nil {
		if to := itemOf(c.seen()); slices.Contains(itemMoves[p.item.status], to) {
			m.become(p.item, to)
		}
		return
	}
	s := p.step
	to := c.seen()
	if !slices.Contains(stepMoves[s.status], to) {
		return
	}
	m.reach("mirror: " + to)
	if slices.Contains(stepEnds, to) {
		s.out.take(c.says())
		m.endStep(s, to, "")
		return
	}
	m.enter(s, to)
}

// take takes over what a child says, where it says something.
func (o *outputs) take(of outputs) {
	if of.text != "" {
		o.text = of.text
	}
	if of.context != "" {
		o.context = of.context
	}
	if of.err != "" {
		o.err = of.err
	}
	if of.markers != nil {
		o.markers = of.markers
	}
	if of.structured != "" {
		o.structured = of.structured
	}
	o.loose = o.loose || of.loose
}

// enter puts a step into running or waiting.
func (m *model) enter(s *step, to string) {
	s.status = to
	if s.started == 0 {
		s.started = m.now
	}
	if s.began == 0 {
		s.began = m.now
	}
	if to == "running" {
		m.tell(&s.trail, "run_step.started")
		return
	}
	m.tell(&s.trail, "run_step.waiting")
	if g := s.gate; g != nil && g.outcome == "pending" && !g.open {
		g.open, g.opened = true, m.now
		g.deadline = m.now + g.timeout
		m.follows(func() { m.tell(&g.trail, "gate.opened") })
	}
}

// otherwise is the outcome of a gate whose step ends otherwise than by an answer.
func (g *gate) otherwise(to string) string {
	switch {
	case to == "completed" && !g.asks():
		return "approved"
	case to == "failed" && !g.asks():
		return "rejected"
	case to == "completed", to == "skipped":
		return "skipped"
	case to == "timed_out":
		return "timed_out"
	}
	return "cancelled"
}

// endStep ends a step, its gate, and its items. outcome is that of its gate, "" for what follows from the end.
func (m *model) endStep(s *step, to, outcome string) {
	m.reach("step: " + s.status + " -> " + to)
	if !s.child.none() {
		m.orphans(s.run)
	}
	s.status, s.ended = to, m.now
	if g := s.gate; g != nil && g.outcome == "pending" {
		if g.outcome = outcome; outcome == "" {
			g.outcome = g.otherwise(to)
		}
		m.reach("gate: " + g.outcome)
		g.open, g.resolved = false, m.now
		m.tell(&g.trail, "gate."+g.outcome)
		m.follows(func() { m.tell(&s.trail, "run_step."+to) })
	} else {
		m.tell(&s.trail, "run_step."+to)
	}
	m.follows(func() {
		for _, it := range s.items {
			switch {
			case it.over():
			case to == "skipped":
				m.take(it, "skipped")
			default:
				m.take(it, "cancelled")
			}
		}
		m.call(s.run, func(on *runWait) bool { return on.step == s })
	})
}

// become puts an item into another status.
func (m *model) become(it *item, to string) {
	m.reach("item: " + it.status + " -> " + to)
	it.status = to
	if it.dispatched == 0 && (to == "running" || !it.child.none()) {
		it.dispatched = m.now
	}
	if it.over() {
		it.completed = m.now
	}
	m.tell(&it.trail, "item."+to)
}

// take puts an item into another status without its child.
func (m *model) take(it *item, to string) {
	if !it.child.none() {
		m.orphans(it.step.run)
	}
	m.become(it, to)
}

// lateGate is what becomes of a gate that nobody has answered in time.
func (m *model) lateGate(s *step) {
	m.reach("due: gate, " + s.gate.onTimeout)
	to := "failed"
	s.out.text, s.out.err, s.out.loose = "gate timed out", anyText, true
	if s.gate.onTimeout == "continue" {
		to, s.out.err = "timed_out", ""
	}
	m.endStep(s, to, "timed_out")
}

// insert adds a step that was drafted, or says which one there is.
func (m *model) insert(s *step, generation int64, running bool, c *draftChild) (there *step, _ *refusal) {
	r := s.run
	if f := r.fence(generation); f != nil {
		return nil, f
	}
	for _, old := range r.steps {
		if old.path == s.path && old.iteration == s.iteration {
			return old, nil
		}
	}
	if f := r.begins(); f != nil {
		return nil, f
	}
	if c != nil {
		if f := m.takes(r, c); f != nil {
			return nil, f
		}
	}
	r.steps = append(r.steps, s)
	s.status, s.created = "pending", m.now
	m.beside(func() {
		m.tell(&s.trail, "run_step.inserted")
		if running {
			m.enter(s, "running")
		}
		if c != nil {
			m.attach(place{r, s, nil}, c)
		}
	})
	return nil, nil
}

// update is what an engine says of a step.
type update struct {
	status string
	retry  int // the retry_count that it names, -1 for none
	say    func(s *step)
	err    *string // the step_error that it names
	child  *draftChild
}

// report is the PATCH of a step.
func (m *model) report(s *step, generation int64, u update) (applied bool, _ *refusal) {
	if f := s.run.fence(generation); f != nil {
		return false, f
	}
	if s.over() {
		if u.status == s.status {
			return false, nil
		}
		return false, no("step_terminal", "current_status", s.status, "from", s.status, "to", u.status)
	}
	if f := m.accepts(s, u); f != nil {
		return false, f
	}
	ends, retries := slices.Contains(stepEnds, u.status), u.retry >= 0 && u.retry != s.retries
	if u.child != nil {
		if f := s.run.begins(); f != nil {
			return false, f
		}
		if ends || u.status == "waiting" || s.gate != nil || !s.child.none() && !retries {
			return false, no("validation_failed")
		}
		if f := m.takes(s.run, u.child); f != nil {
			return false, f
		}
	}
	before, told := s.shown(), len(s.trail)
	switch {
	case retries:
		m.reach("retry")
		if !s.child.none() {
			m.orphans(s.run)
		}
		if u.err != nil { // it is that of the attempt that is over
			s.out.err = *u.err
		}
		s.put("failed", m.now, m.now)
		s.label, s.child, s.began = "", child{}, 0
		u.say(s)
		s.out.err = ""
		m.enter(s, "running")
	case ends:
		u.say(s)
		m.endStep(s, u.status, "")
	case u.status != s.status:
		u.say(s)
		m.enter(s, u.status)
	default:
		u.say(s)
		if s.shown() != before {
			m.beside(func() { m.tell(&s.trail, "run_step.updated") })
		} else if u.child == nil {
			return false, nil
		}
	}
	if u.child != nil {
		m.beside(func() {
			m.attach(place{s.run, s, nil}, u.child)
			if len(s.trail) == told { // else what the child is says it, too
				m.tell(&s.trail, "run_step.updated")
			}
		})
	}
	return true, nil
}

// accepts refuses what an engine may not say of a step that has not ended.
func (m *model) accepts(s *step, u update) *refusal {
	ends := slices.Contains(stepEnds, u.status)
	retries := u.retry > s.retries
	g := s.gate
	switch {
	case u.status != s.status && !slices.Contains(stepMoves[s.status], u.status):
		return illegal(s.status, u.status)
	case !ends && (u.status != s.status || retries) && s.run.begins() != nil:
		return s.run.begins()
	case !s.child.none() && u.status != s.status && !ends && !retries:
		m.reach("refused: its child is at work")
		return illegal(s.status, u.status)
	case g != nil && g.open && u.status != s.status && (!ends || u.status == "completed" && g.asks()):
		m.reach("refused: its gate is open")
		return illegal(s.status, u.status)
	}
	open := 0
	for _, it := range s.items {
		if !it.over() {
			open++
		}
	}
	switch {
	case u.status == "completed" && open > 0:
		return no("open_members", "count", open)
	case u.retry >= 0 && u.retry != s.retries && (u.retry != s.retries+1 || s.status == "pending" || u.status != "running"):
		return no("validation_failed")
	}
	return nil
}

// recovery is what an operator says of a step whose engine was lost.
type recovery struct {
	step   *step // nil for one that there is not
	status string
	text   *string
}

// recoverSteps returns what it has done, and what it has left.
func (m *model) recoverSteps(list []recovery) (recovered, skipped []*step) {
	seen := map[*step]bool{}
	for _, it := range list {
		s := it.step
		switch {
		case s == nil || seen[s]:
			continue
		case s.over():
			skipped = append(skipped, s)
		default:
			s.out = outputs{}
			if it.text != nil {
				s.out.text = *it.text
			}
			m.endStep(s, it.status, "")
			recovered = append(recovered, s)
		}
		seen[s] = true
	}
	return recovered, skipped
}

// add adds items, all or none, and says which were not there.
func (m *model) add(s *step, generation int64, drafts []*item, children []*draftChild) (all []*item, created []bool, _ *refusal) {
	if f := s.run.fence(generation); f != nil {
		return nil, nil, f
	}
	find := func(d *item, among []*item) *item {
		at := slices.IndexFunc(among, func(it *item) bool { return it.kind == d.kind && it.key == d.key })
		if at < 0 {
			return nil
		}
		return among[at]
	}
	fresh := slices.DeleteFunc(slices.Clone(drafts), func(d *item) bool { return find(d, s.items) != nil })
	if len(fresh) > 0 {
		if f := s.run.begins(); f != nil {
			return nil, nil, f
		}
		if s.over() {
			return nil, nil, no("step_terminal", "current_status", s.status)
		}
	}
	for i, d := range drafts {
		if children[i] != nil && find(d, s.items) == nil && find(d, drafts[:i]) == nil {
			if f := m.takes(s.run, children[i]); f != nil {
				return nil, nil, f
			}
		}
	}
	for i, d := range drafts {
		it := find(d, s.items)
		created = append(created, it == nil)
		if it == nil {
			it = d
			s.items = append(s.items, d)
			d.status, d.created = "pending", m.now
			m.beside(func() {
				m.tell(&d.trail, "item.added")
				if children[i] != nil {
					m.attach(place{s.run, s, d}, children[i])
				}
			})
		}
		all = append(all, it)
	}
	return all, created, nil
}

// itemUpdate is what an engine says of an item.
type itemUpdate struct {
	item   *item // nil for one that there is not
	status string
	child  *draftChild
}

// reportItems is the PATCH of items: all or none.
func (m *model) reportItems(s *step, generation int64, list []itemUpdate) *refusal {
	if f := s.run.fence(generation); f != nil {
		return f
	}
	if slices.ContainsFunc(list, func(u itemUpdate) bool { return u.item == nil }) {
		return no("not_found", "resource", "item")
	}
	for _, u := range list {
		it := u.item
		changes := u.status != it.status || u.child != nil
		switch {
		case u.status != it.status && !slices.Contains(itemMoves[it.status], u.status):
			return no("illegal_transition", "from", it.status, "to", u.status, "item_id", it)
		case changes && s.over():
			return no("step_terminal", "current_status", s.status)
		case changes && !slices.Contains(itemEnds, u.status) && s.run.begins() != nil:
			return s.run.begins()
		case u.child != nil && (!it.child.none() || u.status != "running"):
			return no("validation_failed")
		case u.child != nil:
			if f := m.takes(s.run, u.child); f != nil {
				return f
			}
		}
	}
	for _, u := range list {
		switch {
		case u.child != nil:
			m.reach("item: a child for one that is " + u.item.status)
			if u.item.dispatched == 0 {
				u.item.dispatched = m.now
			}
			u.item.status = "pending"
			m.beside(func() { m.attach(place{s.run, s, u.item}, u.child) })
		case u.status != u.item.status:
			m.take(u.item, u.status)
		}
	}
	return nil
}

// say is what somebody says to a gate.
func (m *model) say(s *step, v vote, sender string) (replayed bool, _ *refusal) {
	g := s.gate
	if g == nil {
		return false, no("not_a_gate", "role", s.role)
	}
	for _, old := range g.votes {
		if old.by == v.by && old.decision == v.decision && old.feedback == v.feedback && listOf(old.selections) == listOf(v.selections) {
			m.reach("vote: replayed")
			return true, nil
		}
	}
	switch {
	case g.outcome != "pending" && g.by != "":
		return false, no("gate_already_resolved", "state", g.outcome, "by", g.by)
	case g.outcome != "pending":
		return false, no("gate_already_resolved", "state", g.outcome)
	case !g.open && v.decision != "feedback":
		return false, illegal(s.status, v.decision)
	case v.decision != "feedback" && !g.self && (v.by == asker || sender == "engine"):
		return false, no("self_approval")
	}
	if v.selections != nil {
		for _, one := range *v.selections {
			if !slices.Contains(g.options, one) {
				return false, no("invalid_selection", "invalid", one)
			}
		}
	}
	v.at = m.now
	g.votes = append(g.votes, v)
	approvers := map[string]bool{}
	for _, old := range g.votes {
		if old.decision == "approved" {
			approvers[old.by] = true
		}
	}
	if v.decision == "feedback" || v.decision == "approved" && len(approvers) < g.need {
		m.reach("vote: " + v.decision)
		m.tell(&g.trail, "gate.voted")
		return false, nil
	}
	g.by = v.by
	if v.decision == "rejected" {
		s.out.err, s.out.loose = v.feedback, v.feedback == ""
		if v.feedback == "" {
			s.out.err = anyText
		}
		m.endStep(s, "failed", "rejected")
		return false, nil
	}
	if v.selections != nil && len(*v.selections) > 0 {
		s.out.context = golden(*v.selections)
	}
	m.endStep(s, "completed", "approved")
	return false, nil
}

// golden is G-GS. What is selected twice is there once.
func golden(selections []string) string {
	text := "User selected the following items:\n"
	for i, one := range selections {
		if !slices.Contains(selections[:i], one) {
			text += "- " + one + "\n"
		}
	}
	return text
}
