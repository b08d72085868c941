package runtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/repo/store"
)

// snapshot is all that a server tells of a namespace.
type snapshot struct {
	Runs    map[string]runView
	Steps   map[string]stepView
	Items   map[string]itemView
	Gates   map[string]gateView
	Works   map[string]workView
	Flows   map[string]string // how the steps of flows are that show runs
	Inbox   []string          // steps whose gates ask people
	Waits   []string          // whose waits are open
	Pending []string          // steps whose gates are open
	text    string            // as it was read
}

func newSnapshot() snapshot {
	return snapshot{Runs: map[string]runView{}, Steps: map[string]stepView{}, Items: map[string]itemView{}, Gates: map[string]gateView{}, Works: map[string]workView{}, Flows: map[string]string{}}
}

type listed struct{ Items []raw }

// look takes a snapshot, reads what was told since the last one, and holds both to the invariants.
func (s *side) look() {
	before, now := s.seen, newSnapshot()
	var text strings.Builder
	fetch := func(path string) []raw {
		data := s.Fetch(path)
		text.Write(data)
		return decode[listed](data).Items
	}
	for _, doc := range fetch("/v1/runs?limit=500") {
		v := s.readRun(doc)
		now.Runs[v.Name] = v
		at := "/v1/runs/" + decode[struct{ ID uuid.UUID }](doc).ID.String() + "/steps"
		for _, doc := range fetch(at + "?limit=500") {
			v, id := s.readStep(doc), decode[struct{ ID uuid.UUID }](doc).ID.String()
			now.Steps[v.Name] = v
			if !strings.HasPrefix(v.Counts, "0:") {
				for _, doc := range fetch(at + "/" + id + "/items?limit=500") {
					it, _ := s.readItem(doc)
					now.Items[it.Step+" "+it.Key] = it
				}
			}
			if v.Gate != "" {
				data := s.Fetch(at + "/" + id + "/gate")
				text.Write(data)
				now.Gates[v.Name] = s.readGate(data)
			}
		}
	}
	for _, doc := range fetch("/v1/executions?limit=500") {
		x := decode[struct {
			ID    uuid.UUID
			State string     `json:"public_state"`
			Run   *uuid.UUID `json:"run_id"`
		}](doc)
		now.Works[s.w.nameOf(&x.ID)] = workView{s.w.nameOf(&x.ID), x.State, s.w.nameOf(x.Run)}
	}
	for _, f := range s.w.flows {
		for _, doc := range fetch("/v1/flows/" + f.id.String() + "/steps?limit=500") {
			x := decode[struct {
				Run    uuid.UUID `json:"workflow_run_id"`
				Status string
			}](doc)
			now.Flows[f.name+" "+s.w.nameOf(&x.Run)] = x.Status
		}
	}
	now.Inbox = s.stepsIn(fetch("/v1/inbox?kind=gate&limit=500"))
	now.Pending = s.stepsIn(fetch("/v1/gates?state=pending&limit=500"))
	now.Waits = s.waits()
	now.text = text.String()
	told := s.listen()
	if s.w.refused && before.text != "" && (before.text != now.text || told > 0 || !slices.Equal(before.Waits, now.Waits)) {
		s.Failf("what was refused has changed something: %d events\n%s", told, cmp.Diff(before, now, cmpopts.IgnoreUnexported(snapshot{})))
	}
	s.seen = now
	s.hold(before, now)
}

func (s *side) stepsIn(docs []raw) []string {
	var names []string
	for _, doc := range docs {
		names = append(names, s.w.named(decode[struct {
			StepID string `json:"step_id"`
		}](doc).StepID))
	}
	slices.Sort(names)
	return names
}

// waits reads whose waits are open, behind the API.
func (s *side) waits() []string {
	var rows []struct {
		RunID  store.ID `db:"run_id"`
		StepID store.ID `db:"step_id"`
	}
	err := s.Server().App.Store().Read(s.w.Context(), func(q *store.Queries) error {
		return q.Select(&rows, "SELECT run_id, step_id FROM waits WHERE namespace = ? AND run_id IS NOT NULL", s.Namespace)
	})
	if err != nil {
		s.Failf("%v", err)
	}
	var names []string
	for _, row := range rows {
		id := uuid.UUID(row.StepID)
		if id == uuid.Nil {
			id = uuid.UUID(row.RunID)
		}
		names = append(names, s.w.nameOf(&id))
	}
	slices.Sort(names)
	return names
}

// told is an event as the feed has it.
type told struct {
	ID       int64
	Type     string
	Topic    string
	At       string
	Run      *uuid.UUID `json:"run_id"`
	Exec     *uuid.UUID `json:"execution_id"`
	Revision *int64
	Cause    *int64
	Data     struct {
		StepID   *uuid.UUID `json:"step_id"`
		ID       *uuid.UUID `json:"id"`
		ItemType string     `json:"item_type"`
		ItemID   string     `json:"item_id"`
	}
}

// listen reads what was told since the last time, and returns how much that was.
func (s *side) listen() (n int) {
	s.Sync()
	for more := true; more; {
		page := decode[struct {
			Items  []told
			Cursor int64 `json:"next_cursor"`
			More   bool
		}](s.Fetch(fmt.Sprintf("/v1/events?after=%d&limit=500", s.cursor)))
		for _, e := range page.Items {
			n++
			s.events[e.ID] = e.At
			what := e.Type
			if e.Cause != nil {
				what += caused
				if at, ok := s.events[*e.Cause]; !ok || at != e.At || *e.Cause >= e.ID {
					s.Failf("the cause of event %d (%s) is %d, which is none of its transaction", e.ID, e.Type, *e.Cause)
				}
			}
			s.hear(e, what)
		}
		s.cursor, more = page.Cursor, page.More
	}
	return n
}

// hear adds an event to the trail of what it is of.
func (s *side) hear(e told, what string) {
	w, of := s.w, ""
	kind, _, _ := strings.Cut(e.Type, ".")
	switch {
	case kind == "run" && e.Revision != nil:
		of = w.nameOf(e.Run)
		if want := int64(len(s.trails[of])); *e.Revision != want {
			s.Failf("D6 47: revision %d of %s follows on %d", *e.Revision, of, want-1)
		}
	case kind == "run_step", kind == "gate":
		of = kind + " " + w.nameOf(e.Data.StepID)
	case kind == "item":
		of = w.nameOf(e.Data.StepID) + " " + e.Data.ItemType + "/" + e.Data.ItemID
	case e.Topic == "completion":
		of = w.nameOf(e.Exec)
	default: // of what is compared nothing, or deleted
		return
	}
	s.trails[of] = append(s.trails[of], what)
}

// compare compares the last snapshot, and the trails, with the model.
func (s *side) compare() {
	w, want := s.w, newSnapshot()
	for _, r := range w.runs {
		if r.deleted {
			continue
		}
		want.Runs[r.name] = w.viewRun(r)
		s.sameTrail(r.name, r.trail)
		if r.wait != nil {
			want.Waits = append(want.Waits, r.name)
		}
		for _, x := range r.steps {
			s.wantStep(x, &want)
		}
	}
	for _, f := range w.flows {
		for _, r := range f.runs {
			want.Flows[f.name+" "+r.name] = inFlow(r.status)
		}
	}
	for _, x := range w.works {
		if !x.gone() {
			want.Works[x.name] = w.viewWork(x)
			s.sameTrail(x.name, x.trail)
		}
	}
	slices.Sort(want.Waits)
	slices.Sort(want.Inbox)
	slices.Sort(want.Pending)
	got := s.seen
	got.Runs, got.Steps = maps.Clone(got.Runs), maps.Clone(got.Steps)
	for name, v := range got.Runs {
		loosen(want.Runs[name].Summary, &v.Summary)
		loosen(want.Runs[name].Error, &v.Error)
		got.Runs[name] = v
	}
	for name, v := range got.Steps {
		v.Attempts = slices.Clone(v.Attempts)
		loosenStep(want.Steps[name], &v)
		got.Steps[name] = v
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(snapshot{})); diff != "" {
		s.Failf("it is not where the model is (-model +server):\n%s", diff)
	}
}

func (s *side) wantStep(x *step, want *snapshot) {
	w := s.w
	want.Steps[x.name] = w.viewStep(x)
	s.sameTrail("run_step "+x.name, x.trail)
	for _, it := range x.items {
		want.Items[x.name+" "+it.kind+"/"+it.key] = w.viewItem(it)
		s.sameTrail(x.name+" "+it.kind+"/"+it.key, it.trail)
	}
	g := x.gate
	if g == nil {
		return
	}
	want.Gates[x.name] = w.viewGate(x)
	s.sameTrail("gate "+x.name, g.trail)
	if !g.open {
		return
	}
	want.Waits, want.Pending = append(want.Waits, x.name), append(want.Pending, x.name)
	if g.asks() {
		want.Inbox = append(want.Inbox, x.name)
	}
}

// sameTrail compares what was told of something with what the model has told.
func (s *side) sameTrail(of string, want []string) {
	got := slices.Clone(s.trails[of])
	for i := range got {
		if i < len(want) && strings.HasSuffix(want[i], perhaps) {
			got[i] = strings.TrimSuffix(got[i], caused) + perhaps
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.Failf("what is told of %s is not the model's (-model +server; < follows from something else):\n%s", of, diff)
	}
}
