package runtest

import (
	"slices"
)

// draftChild is a child that is drawn: a new one, or one that there is.
type draftChild struct {
	child
	fresh bool
}

// takes refuses a child that cannot do work in a run.
func (m *model) takes(r *run, c *draftChild) *refusal {
	switch {
	case c.fresh && c.run != nil && r.flow != nil && r.flow.status != "running":
		return no("already_terminal")
	case c.fresh:
		return nil
	case c.work != nil && c.work.run != nil && c.work.run != r:
		return no("already_member", "run_id", c.work.run.id.String())
	case c.work != nil && m.doing(c.child).step != nil:
		return no("already_member", "run_id", r.id.String())
	case c.run != nil && slices.Contains(r.above(), c.run):
		return no("link_cycle")
	case c.run != nil && c.run.at.run != nil:
		return no("already_member", "run_id", c.run.at.run.id.String())
	}
	return nil
}

// attach lets a child do the work at a place. What it is linked to is what it is, in the same moment.
func (m *model) attach(p place, c *draftChild) {
	switch {
	case c.work != nil:
		if c.fresh {
			m.works = append(m.works, c.work)
		}
		c.work.run = p.run
	case c.fresh:
		m.create(c.run, p)
	default:
		m.reach("linked: a run that is " + c.run.status)
		c.run.at = p
		m.tell(&c.run.trail, "run.linked")
	}
	if p.item != nil {
		p.item.child = c.child
	}
	m.mirror(p, c.child)
	if p.item == nil { // only now: a step that ends with what was linked leaves nobody alone
		p.step.child = c.child
	}
}

// create adds a run that was drafted.
func (m *model) create(r *run, at place) {
	r.at, r.status = at, "pending"
	if r.flow == nil && at.run != nil {
		r.flow = at.run.flow
	}
	if r.flow != nil {
		r.flow.runs = append(r.flow.runs, r)
	}
	m.runs = append(m.runs, r)
	m.tell(&r.trail, "run.created")
}

// moved tells who waits for an execution that it has changed.
func (m *model) moved(w *work) {
	m.follows(func() {
		if p := m.doing(child{work: w}); p.step != nil {
			m.mirror(p, child{work: w})
		}
		if w.over() {
			m.call(w.run, func(on *runWait) bool { return on.work == w })
		}
	})
}

// endWork ends an execution. fence says that whoever holds it is fenced off.
func (m *model) endWork(w *work, outcome string, fence bool) {
	m.reach("work: " + outcome)
	w.phase, w.outcome = "ended", outcome
	if fence && w.epoch > 0 {
		w.epoch++
	}
	w.owner, w.lease, w.grace = nil, 0, 0
	event := "execution." + outcome
	if outcome == "success" {
		event = "execution.completed"
	}
	m.tell(&w.trail, event)
	m.moved(w)
}

// cancelWork cancels an execution; somebody who holds it has the grace.
func (m *model) cancelWork(w *work, graceUntil int64) {
	if graceUntil > m.now && w.phase == "active" && w.lease > m.now {
		m.reach("cancelled with a grace")
		if w.grace == 0 || graceUntil < w.grace {
			w.grace = graceUntil
		}
		return
	}
	m.endWork(w, "cancelled", true)
}

// passWork does what is due of an execution.
func (m *model) passWork(w *work, due func(int64) bool) {
	switch {
	case w.phase == "active" && w.grace > 0 && (due(w.grace) || due(w.deadline) || due(w.lease)):
		m.reach("due: grace")
		if r := w.run; r != nil && r.status == "cancelling" && due(r.deadline) { // which of them is first, is nobody's business
			m.beside(func() { m.endWork(w, "cancelled", true) })
		} else {
			m.endWork(w, "cancelled", true)
		}
	case due(w.deadline):
		m.reach("due: deadline")
		m.endWork(w, "expired", false)
	case w.phase == "active" && due(w.lease):
		m.reach("due: lease")
		w.lease = 0
	}
}

// result is what an execution is completed with, and what a step makes of it.
type result struct {
	json any
	out  outputs
}

// results are the kinds of results.
func results() []result {
	two := []string{"m1", "m2"}
	return []result{
		{},
		{"done", outputs{text: "done"}},
		{[]int{1, 2}, outputs{structured: "[1,2]"}},
		{map[string]any{"a": 1}, outputs{structured: `{"a":1}`}},
		{map[string]any{"context_out": "ctx", "markers_out": two, "result_text": "text", "structured_output": map[string]any{"b": 2}},
			outputs{text: "text", context: "ctx", markers: &two, structured: `{"b":2}`}},
	}
}
