package graphtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/proptest"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// world is one run: a model, and the servers that are held to it.
type world struct {
	*rapid.T
	*model
	run   int
	clock *store.Clock
	sides []*side
	ids   uint32
	story []string
	did   map[string]int
	kind  string // of the step under way

	// What the step may do beyond what it says.
	reopens  bool // groups may be undecided again
	spares   []*member
	replayed bool
}

// side is one of the servers.
type side struct {
	proptest.Side
	w       *world
	handles map[int]string
	fences  map[int]int64
	cursor  int64
	seen    snapshot
	lines   map[uuid.UUID][]string // events of each execution: completions and leases
	told    map[uuid.UUID][]string // of each flow
}

func configured(batch int) func(*app.Config) {
	return func(cfg *app.Config) { cfg.Batch = batch }
}

func newWorld(t *testing.T, rt *rapid.T, run int, servers []*proptest.Server, c *proptest.Counts) *world {
	w := &world{T: rt, run: run, did: c.Did, clock: servers[0].Clock}
	for _, server := range servers {
		s := &side{Side: server.Side(t, run), w: w, handles: map[int]string{}, fences: map[int]int64{}, lines: map[uuid.UUID][]string{}, told: map[uuid.UUID][]string{}}
		s.cursor = s.Newest()
		w.sides = append(w.sides, s)
	}
	w.model = &model{now: w.clock.Now().UnixMilli(), reached: c.Reached, times: map[int64]bool{}}
	return w
}

// id returns an id that is new, and larger than those before it or not.
func (w *world) id() uuid.UUID {
	w.ids++
	id := uuid.UUID{6: 0x70, 8: 0x80}
	id[0] = rapid.Byte().Draw(w.T, "id")
	id[1], id[2], id[3] = byte(w.run>>16), byte(w.run>>8), byte(w.run)
	id[13], id[14], id[15] = byte(w.ids>>16), byte(w.ids>>8), byte(w.ids)
	return id
}

// each lets all sides do the same at the same time.
func (w *world) each(do func(s *side)) {
	w.Helper()
	proptest.Each(w.T, w.sides, w.kind, func() []string { return w.story }, do)
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%7d  %s", w.now-w.began(), w.named(fmt.Sprintf(format, args...))))
}

func (w *world) began() int64 {
	if len(w.all) > 0 {
		return w.all[0].created
	}
	return w.now
}

// named puts names in the place of ids, for who reads a failure.
func (w *world) named(text string) string {
	for _, x := range w.all {
		text = strings.ReplaceAll(text, x.id.String(), x.name)
	}
	for _, f := range w.flows {
		text = strings.ReplaceAll(text, f.id.String(), f.name)
	}
	return text
}

// ask sends the same to all servers, and insists on a status below 300, or on a refusal with a code.
func (w *world) ask(method, path string, code string, body func(s *side) map[string]any, then ...func(s *side, r *apitest.Response)) {
	w.Helper()
	var first map[string]any
	if body != nil {
		first = body(w.sides[0])
	}
	w.tell("%s %s %s -> %s", method, path, must(json.Marshal(first)), code)
	if code == "" {
		w.did[w.kind]++
	} else {
		w.reach("code: " + code)
	}
	w.each(func(s *side) {
		var sent any
		if body != nil {
			sent = body(s)
		}
		r := s.Do(method, path, sent)
		switch got := codeOf(r); {
		case code != "" && got != code:
			s.Failf("it answers %d, want the refusal %s\n%s", r.Status, code, r.Body)
		case code == "" && r.Status >= 300:
			s.Failf("it refuses: %d\n%s", r.Status, r.Body)
		}
		for _, do := range then {
			do(s, r)
		}
	})
}

func codeOf(r *apitest.Response) string {
	if r.Status < 400 {
		return ""
	}
	return decode[struct{ Code string }](r.Body).Code
}

// settle lets everything happen that is left to do. First, it may be that the process is another one.
func (s *side) settle(restart bool) {
	if restart {
		s.Restart()
	}
	s.Settle()
}

func must[T any](v T, err error) T { return proptest.Must(v, err) }

func decode[T any](data []byte) T { return proptest.Decode[T](data) }

// step is one step: what is asked, all that follows from it, and the comparison.
func (w *world) step(k kind) {
	w.kind, w.reopens, w.spares, w.replayed = k.name, false, nil, false
	for _, x := range w.all {
		x.loose = false
	}
	if !k.do(w) {
		return
	}
	w.follow()
	restart := w.chance("restart", 50)
	if restart {
		w.tell("the servers begin anew")
		w.reach("restart")
	}
	w.each(func(s *side) {
		s.settle(restart)
		s.look()
	})
	w.adopt()
	w.finish()
	w.each((*side).compare)
	w.decided = nil
}

// adopt takes over whether a member that this step has ended was skipped or cancelled, where both would be right: it depends on
// what the server came by first.
func (w *world) adopt() {
	for _, x := range w.all {
		if !x.loose || x.gone() {
			continue
		}
		got := w.sides[0].seen.members[x.id].Public
		if got == x.outcome || got != "skipped" && got != "cancelled" {
			continue
		}
		sibling := false
		for _, e := range x.out() {
			if g := e.down.group(); g.Rest && g.Kind != "all_of" && g.State != "pending" {
				sibling = true
			}
		}
		if got == "skipped" && x.group().State != "impossible" || got == "cancelled" && !sibling && !x.flow.endsMembers() {
			continue
		}
		w.reach("either skipped or cancelled")
		x.outcome = got
		x.ends[len(x.ends)-1] = got
		for _, e := range x.out() {
			if e.how == "failed" || e.how == "skipped" {
				e.how = bucket(got)
			}
		}
	}
}

// advance moves the clock, and lets the servers do what is due.
func (w *world) advance(to int64) {
	w.clock.Advance(time.Duration(to-w.now) * time.Millisecond)
	w.now = to
	w.tell("time passes")
	w.pass()
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
