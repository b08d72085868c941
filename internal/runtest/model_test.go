// Package runtest holds the server to a model of what workflow runs do: whatever engines, workers, people and time do in whatever order,
// SQLite and PostgreSQL end up where the model does. The model is written from the rules, has no code of the domain, and counts
// nothing as it goes along.
package runtest

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// model is what there is in one namespace.
type model struct {
	now     int64 // milliseconds
	flows   []*flow
	runs    []*run
	works   []*work  // executions
	owners  []*owner // of their claims
	drains  []*run   // whose children are still to be looked at, in this step
	because bool     // what is told follows from something else
	either  bool     // or it is as good as what it is told beside
	spills  bool     // what ends because of a run may do so in a later transaction
	times   map[int64]bool
	reached map[string]int
}

// flow is what runs may belong to. Its steps show them.
type flow struct {
	id     uuid.UUID
	name   string
	status string
	runs   []*run // deleted ones included
}

type run struct {
	id      uuid.UUID
	name    string
	flow    *flow
	at      place // in its parent
	deleted bool

	status     string
	generation int64
	token      string // of who holds the lease, "" for nobody
	until      int64
	wait       *runWait
	deadline   int64 // when it has to be cancelled
	reason     string
	summary    string
	failure    string
	resumes    int
	dismissed  bool
	started    int64
	ended      int64
	since      int64 // it is under way
	total      int64
	trail      []string // its own events; each is a revision
	steps      []*step
}

// place is where a child is.
type place struct {
	run  *run
	step *step
	item *item
}

// runWait is what a waiting run waits for, a child of it or nothing that is known.
type runWait struct {
	run       *run
	step      *step
	work      *work
	deadline  int64
	onTimeout string
	since     int64
}

// child is who does the work of a step or an item: one of both, or nobody.
type child struct {
	work *work
	run  *run
}

type step struct {
	id        uuid.UUID
	name      string
	run       *run
	path      string
	role      string
	position  int
	iteration int

	status   string
	retries  int
	label    string // what the engine calls who does the work
	child    child
	created  int64
	started  int64
	began    int64 // of the present attempt
	ended    int64
	out      outputs
	gate     *gate
	items    []*item
	attempts []attempt // those before the present one
	trail    []string
}

// outputs are what a step says to others.
type outputs struct {
	text, context, err string
	markers            *[]string
	structured         string
	loose              bool // text and err are the server's words
}

type attempt struct {
	status, label  string
	child          child
	started, ended int64
	err            string
	loose          bool
}

type gate struct {
	kind      string
	need      int
	timeout   int64
	onTimeout string
	options   []string
	self      bool // who asks may decide

	outcome  string
	open     bool
	opened   int64
	deadline int64
	resolved int64
	by       string // who has decided, of those that people decide
	votes    []vote // of the present attempt
	trail    []string
}

// asker is who asks at every gate.
const asker = "p0"

type vote struct {
	by, decision, feedback string
	selections             *[]string
	at                     int64
}

type item struct {
	step       *step
	kind, key  string
	status     string
	child      child
	created    int64
	dispatched int64
	completed  int64
	trail      []string
}

// work is an execution.
type work struct {
	id       uuid.UUID
	name     string
	run      *run // that it works for
	created  int64
	deadline int64

	phase    string // runnable, active, suspended, ended
	attempts int
	replays  int
	outcome  string
	epoch    int64
	owner    *owner
	lease    int64 // until when it is held; 0 when it is not
	grace    int64 // until when its worker may end it
	result   result
	failure  string
	trail    []string // completions
}

// owner is one claim.
type owner struct {
	number int
	of     *work
	done   bool
}

// refusal is what is answered to who asks for what cannot be. facts are those of it that are compared.
type refusal struct {
	code  string
	facts map[string]any
}

func no(code string, facts ...any) *refusal {
	r := &refusal{code, map[string]any{}}
	for i := 0; i < len(facts); i += 2 {
		r.facts[facts[i].(string)] = facts[i+1]
	}
	return r
}

func illegal(from, to string) *refusal { return no("illegal_transition", "from", from, "to", to) }

// moves are the transitions of A4.1, of steps, and of items. What has ended moves only by a resume.
var moves = map[string][]string{
	"pending": {"running", "cancelled", "failed"}, "running": {"waiting", "cancelling", "needs_resume", "completed", "failed", "cancelled"},
	"waiting": {"running", "cancelling", "needs_resume", "failed", "cancelled"}, "cancelling": {"cancelled"}, "needs_resume": {"running", "failed", "cancelled"},
}

var (
	runEnds   = []string{"completed", "failed", "cancelled"}
	stepEnds  = []string{"completed", "failed", "skipped", "timed_out", "cancelled"}
	itemEnds  = []string{"completed", "failed", "skipped", "cancelled"}
	stepMoves = map[string][]string{"pending": append([]string{"running", "waiting"}, stepEnds...), "running": append([]string{"waiting"}, stepEnds...), "waiting": append([]string{"running"}, stepEnds...)}
	itemMoves = map[string][]string{"pending": append([]string{"running"}, itemEnds...), "running": itemEnds}
	automatic = []string{"pr_approval", "pr_checks", "quality_gate"}
)

func (r *run) over() bool  { return slices.Contains(runEnds, r.status) }
func (s *step) over() bool { return slices.Contains(stepEnds, s.status) }
func (i *item) over() bool { return slices.Contains(itemEnds, i.status) }
func (w *work) over() bool { return w.phase == "ended" }
func (w *work) lost() bool { return w.phase == "active" && w.lease == 0 }
func (w *work) gone() bool { return w.run != nil && w.run.deleted }
func (c child) none() bool { return c == child{} }

// What is drawn is shown by its name.
func (f *flow) GoString() string  { return f.name }
func (r *run) GoString() string   { return r.name }
func (s *step) GoString() string  { return s.name }
func (i *item) GoString() string  { return i.kind + "/" + i.key }
func (w *work) GoString() string  { return w.name }
func (o *owner) GoString() string { return o.of.name }

// live says whether somebody holds the lease of a run.
func (m *model) live(r *run) bool { return r.token != "" && r.until >= m.now }

func (r *run) can(to string) bool { return slices.Contains(moves[r.status], to) }

// asks says whether people answer the gate.
func (g *gate) asks() bool { return !slices.Contains(automatic, g.kind) }

func (m *model) reach(point string) { m.reached[point]++ }

// What is told carries whether it follows from something else. Of some things it is left open.
const (
	caused  = " <"
	perhaps = " ?"
)

// tell adds an event to a trail.
func (m *model) tell(trail *[]string, what string) {
	how := ""
	switch {
	case m.either:
		how = perhaps
	case m.because:
		how = caused
	}
	*trail = append(*trail, what+how)
}

// follows does what follows from what was told last.
func (m *model) follows(do func()) {
	before := m.because
	m.because = true
	do()
	m.because = before
}

// beside does what is told beside something else: which of them is the cause, is nobody's business.
func (m *model) beside(do func()) {
	before := m.either
	m.either = true
	do()
	m.either = before
}

// aside does what may be left to a later transaction, in which there is no cause.
func (m *model) aside(do func()) {
	if m.spills {
		m.beside(do)
	} else {
		m.follows(do)
	}
}

// children returns the runs in a run.
func (m *model) children(r *run) []*run {
	return slices.DeleteFunc(slices.Clone(m.runs), func(c *run) bool { return c.at.run != r || c.deleted })
}

// worksOf returns the executions that work for a run.
func (m *model) worksOf(r *run) []*work {
	return slices.DeleteFunc(slices.Clone(m.works), func(w *work) bool { return w.run != r || w.gone() })
}

// doing returns the step or item whose child is c, nowhere when there is none.
func (m *model) doing(c child) place {
	for _, r := range m.runs {
		if r.deleted {
			continue
		}
		for _, s := range r.steps {
			if s.child == c {
				return place{r, s, nil}
			}
			for _, it := range s.items {
				if it.child == c {
					return place{r, s, it}
				}
			}
		}
	}
	return place{}
}

// awaited says whether the step or item whose child is c has not ended.
func (m *model) awaited(c child) bool {
	p := m.doing(c)
	return p.item != nil && !p.item.over() || p.item == nil && p.step != nil && !p.step.over()
}

// above returns a run and those that it is in, the nearest first.
func (r *run) above() []*run {
	var up []*run
	for at := r; at != nil; at = at.at.run {
		up = append(up, at)
	}
	return up
}

// below returns a run and all runs in it.
func (m *model) below(r *run) []*run {
	all := []*run{r}
	for i := 0; i < len(all); i++ {
		all = append(all, m.children(all[i])...)
	}
	return all
}

// candidates are what a claim gets, in its order.
func (m *model) candidates() []*work {
	found := slices.DeleteFunc(slices.Clone(m.works), func(w *work) bool { return w.gone() || w.phase != "runnable" && !w.lost() })
	slices.SortFunc(found, func(a, b *work) int {
		return cmp.Or(cmp.Compare(a.created, b.created), bytes.Compare(a.id[:], b.id[:]))
	})
	return found
}

// tick is how far two times at which something is due are from one another.
const tick = 100

// due returns a time of its own, near the given one, so that never two things are due at once. What is cancelled by its parent has the
// usual time, which is left free.
func (m *model) due(at int64) int64 {
	for at = (at + tick - 1) / tick * tick; m.times[at] || at == m.now+usual; {
		at += tick
	}
	m.times[at] = true
	return at
}

// usual is the time that the engine of a child has that is cancelled with its parent.
const usual = 5000

// next is when something is due, 0 for never.
func (m *model) next() int64 {
	var at int64
	note := func(times ...int64) {
		for _, t := range times {
			if t > m.now && (at == 0 || t < at) {
				at = t
			}
		}
	}
	for _, w := range m.works {
		if !w.gone() && !w.over() {
			note(w.deadline, w.lease, w.grace)
		}
	}
	for _, r := range m.runs {
		if r.deleted {
			continue
		}
		if r.status == "cancelling" {
			note(r.deadline)
		}
		if r.wait != nil {
			note(r.wait.deadline)
		}
		for _, s := range r.steps {
			if s.gate != nil && s.gate.open {
				note(s.gate.deadline)
			}
		}
	}
	return at
}

// pass does what is due.
func (m *model) pass() {
	due := func(t int64) bool { return t != 0 && t <= m.now }
	for _, w := range m.works {
		if !w.gone() && !w.over() {
			m.passWork(w, due)
		}
	}
	for _, r := range m.runs {
		if r.deleted {
			continue
		}
		if r.wait != nil && due(r.wait.deadline) {
			m.late(r)
		}
		for _, s := range r.steps {
			if s.gate != nil && s.gate.open && due(s.gate.deadline) {
				m.lateGate(s)
			}
		}
		if r.status == "cancelling" && due(r.deadline) {
			m.reach("due: cancel")
			m.end(r, "cancelled")
		}
	}
	m.follow()
}

// follow lets children end that nobody waits for any more, until there are none.
func (m *model) follow() {
	for len(m.drains) > 0 {
		r := m.drains[0]
		m.drains = m.drains[1:]
		m.aside(func() { m.drain(r) })
	}
}
