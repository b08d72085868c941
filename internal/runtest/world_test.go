package runtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/proptest"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// world is one run of the property: a model, and the servers that are held to it.
type world struct {
	*rapid.T
	*model
	n     int
	batch int
	clock *store.Clock
	sides []*side
	began int64
	ids   uint32
	keyed int // Idempotency-Keys used
	names map[string]string
	story []string
	did   map[string]int
	kind  string // of the step under way

	// What the step under way has done.
	refused bool
	resumed *run
}

// side is one of the servers.
type side struct {
	proptest.Side
	w       *world
	people  string // the token of those who answer gates
	handles map[int]string
	items   map[*item]uuid.UUID
	cursor  int64
	events  map[int64]string // when each was written
	trails  map[string][]string
	seen    snapshot
}

func newWorld(t *testing.T, rt *rapid.T, n, batch int, servers []*proptest.Server, c *proptest.Counts) *world {
	w := &world{T: rt, n: n, batch: batch, clock: servers[0].Clock, did: c.Did, names: map[string]string{}}
	for _, server := range servers {
		s := &side{Side: server.Side(t, n), w: w, handles: map[int]string{}, items: map[*item]uuid.UUID{}, events: map[int64]string{}, trails: map[string][]string{}}
		s.people = s.Post("/v1/admin/tokens", map[string]any{"name": "people", "role": "operator", "namespace": s.Namespace}).Want(http.StatusCreated).Str("token")
		s.cursor = s.Newest()
		w.sides = append(w.sides, s)
	}
	w.began = w.clock.Now().UnixMilli()
	w.model = &model{now: w.began, reached: c.Reached, times: map[int64]bool{}, spills: batch < mostWorks}
	return w
}

// id returns an id that is new, and larger than those before it or not. name is what it is called in a failure.
func (w *world) id(name string) uuid.UUID {
	w.ids++
	id := uuid.UUID{6: 0x70, 8: 0x80}
	id[0] = rapid.Byte().Draw(w.T, "id")
	id[1], id[2], id[3] = byte(w.n>>16), byte(w.n>>8), byte(w.n)
	id[13], id[14], id[15] = byte(w.ids>>16), byte(w.ids>>8), byte(w.ids)
	w.names[id.String()] = name
	return id
}

// each lets all sides do the same at the same time.
func (w *world) each(do func(s *side)) {
	w.Helper()
	proptest.Each(w.T, w.sides, w.kind, func() []string { return w.story }, do)
}

func (w *world) note(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%7d  %s", w.now-w.began, w.named(fmt.Sprintf(format, args...))))
}

// named puts names in the place of ids, for who reads a failure.
func (w *world) named(text string) string {
	for id, name := range w.names {
		text = strings.ReplaceAll(text, id, name)
	}
	return text
}

// request is what a side is asked.
type request struct {
	method, path string
	body         func(s *side) map[string]any
	people       bool // it is sent by those who answer gates, and not by an engine
}

// constant is a body that is the same for all.
func constant(body map[string]any) func(*side) map[string]any {
	return func(*side) map[string]any { return body }
}

// ask sends the same to all servers, when the model has done it already, and insists on a status below 300, or on the refusal. Some of it
// carries an Idempotency-Key, and is sent again.
func (w *world) ask(q request, refused *refusal, then ...func(s *side, r *apitest.Response)) {
	w.Helper()
	code := "done"
	if refused != nil {
		code, w.refused = refused.code, true
		w.reach("code: " + code)
	} else {
		w.did[w.kind]++
	}
	var headers []string
	if q.method == http.MethodPost && w.chance("Idempotency-Key", 8) {
		w.keyed++
		headers = []string{fmt.Sprintf("Idempotency-Key: %d-%d-%d", w.batch, w.n, w.keyed)} // a database locks keys for all its schemas: the tests beside this one have others
	}
	w.note("%s %s %s -> %s", q.method, q.path, proptest.Must(json.Marshal(q.body(w.sides[0]))), code)
	w.each(func(s *side) {
		client, body := s.Client, q.body(s)
		if q.people {
			client = client.As(s.people)
		}
		var sent any
		if body != nil {
			sent = body
		}
		r := client.Do(q.method, q.path, sent, headers...)
		s.judge(r, refused)
		for _, do := range then {
			if refused == nil {
				do(s, r)
			}
		}
		if headers != nil && refused == nil && r.Status != http.StatusNoContent {
			again := client.Do(q.method, q.path, sent, headers...)
			if again.Status != r.Status || !bytes.Equal(again.Body, r.Body) || again.Header.Get("Idempotent-Replay") != "true" {
				s.Failf("the same Idempotency-Key is answered otherwise: %d\n%s\nafter %d\n%s", again.Status, again.Body, r.Status, r.Body)
			}
		}
	})
}

// judge compares an answer with what was to be expected.
func (s *side) judge(r *apitest.Response, refused *refusal) {
	switch {
	case refused == nil && r.Status >= 300:
		s.Failf("it refuses: %d\n%s", r.Status, s.w.named(string(r.Body)))
	case refused == nil:
		return
	case r.Status < 400:
		s.Failf("it does what is to be refused with %s: %d\n%s", refused.code, r.Status, s.w.named(string(r.Body)))
	}
	problem := proptest.Decode[map[string]any](r.Body)
	if problem["code"] != refused.code {
		s.Failf("it refuses with %v, want %s\n%s", problem["code"], refused.code, s.w.named(string(r.Body)))
	}
	for name, want := range refused.facts {
		if it, ok := want.(*item); ok {
			want = s.items[it]
		}
		if got := problem[name]; fmt.Sprint(got) != fmt.Sprint(want) {
			s.Failf("the refusal %s says %s %v, want %v\n%s", refused.code, name, got, want, s.w.named(string(r.Body)))
		}
	}
}

// begin makes two runs that are under way, with some steps, so that there is something to begin with.
func (w *world) begin() {
	w.step(kind{name: "begin", do: createFlow})
	for range 2 {
		for _, do := range []func(*world) bool{createRun, lease, start, insertStep, insertStep, insertStep, addItems} {
			w.step(kind{name: "begin", do: do})
		}
	}
}

// step is one step: what is asked, all that follows from it, and the comparison. It says whether there was anything to do it with.
func (w *world) step(k kind) bool {
	w.kind, w.refused, w.resumed = k.name, false, nil
	w.because, w.either = false, false
	if !k.do(w) {
		return false
	}
	w.follow()
	w.pass()
	restart := w.chance("restart", 12) && w.chance("really", 8)
	if restart {
		w.note("the servers begin anew")
		w.reach("restart")
	}
	w.each(func(s *side) {
		if restart {
			s.Restart()
		}
		s.Settle()
		s.look()
		s.compare()
	})
	return true
}

// advance moves the clock.
func (w *world) advance(to int64) {
	w.clock.Advance(time.Duration(to-w.now) * time.Millisecond)
	w.now = to
	w.note("time passes")
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

func draw[T any](w *world, label string, of ...T) T { return rapid.SampledFrom(of).Draw(w.T, label) }

// chance is true once in so many times.
func (w *world) chance(label string, of int) bool {
	return rapid.IntRange(0, of-1).Draw(w.T, label) == of-1
}
