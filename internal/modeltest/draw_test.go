package modeltest

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// below draws a number from 0 to n-1. All are as likely: the library's own numbers are mostly small ones.
func (w *world) below(n int, label string) int {
	return rapid.Custom(func(t *rapid.T) int {
		size, v := bits.Len(uint(n))+2, 0
		for range size {
			v *= 2
			if rapid.Bool().Draw(t, "bit") {
				v++
			}
		}
		return v * n >> size
	}).Draw(w.T, label)
}

// draw draws one of some values. The first one is the simplest.
func draw[T any](w *world, label string, from ...T) T { return from[w.below(len(from), label)] }

// sometimes is true about so often in a hundred.
func (w *world) sometimes(label string, percent int) bool { return w.below(100, label) >= 100-percent }

func span(w *world, label string, least, most int64) int64 {
	return least + int64(w.below(int(most-least+1), label))
}

// maybe is nil or one of some values.
func maybe[T any](w *world, label string, from ...T) *T {
	i := w.below(len(from)+1, label)
	if i == 0 {
		return nil
	}
	return &from[i-1]
}

// most is how many executions one run makes.
const most = 6

var (
	laneNames = []string{"a", "b"}
	instances = []claimant{{worker: "w1", instance: "i1"}, {worker: "w1", instance: "i2"}, {worker: "w2", instance: "i3"}}
)

// execution draws one that exists, nil when there is none. Those that were made last are interesting for longest.
func (w *world) execution() *execution {
	if len(w.executions) == 0 {
		return nil
	}
	return w.executions[w.below(len(w.executions), "execution")]
}

// where draws an execution for which something holds, and any one now and then.
func (w *world) where(holds func(e *execution) bool) *execution {
	var some []*execution
	for _, e := range w.executions {
		if holds(e) {
			some = append(some, e)
		}
	}
	if len(some) == 0 || w.sometimes("any execution", 25) {
		return w.execution()
	}
	return some[w.below(len(some), "fitting execution")]
}

// proof is what a worker shows.
type proof struct {
	fence
	form string
}

// proof draws what a worker shows: mostly that of the present owner, but also of earlier ones, and forged ones.
func (w *world) proof() (*execution, proof, bool) {
	var holders []*owner
	for _, o := range w.owners {
		if o.e.owner == o && o.e.phase == "active" {
			holders = append(holders, o)
		}
	}
	all := w.owners
	if len(holders) > 0 && !w.sometimes("an earlier owner", 30) {
		all = holders
	}
	if len(all) == 0 {
		return nil, proof{}, false
	}
	o := all[w.below(len(all), "owner")]
	form := "handle"
	if w.sometimes("fence", 15) {
		form = draw(w, "form", "fence", "fence without index", "other epoch", "other attempt", "other lease", "other index")
	}
	return o.e, proof{fence{owner: o, forged: len(form) > 5 && form[:5] == "other"}, form}, true
}

// unknown is an id that nobody has.
var unknown = uuid.MustParse("ffffffff-ffff-4fff-bfff-ffffffffffff")

// with adds the proof to the members of a body, as a server knows it.
func (p proof) with(s *side, members map[string]any) map[string]any {
	body := maps.Clone(members)
	if body == nil {
		body = map[string]any{}
	}
	if p.override {
		body["override"] = true
		return body
	}
	if p.form == "handle" {
		body["handle"] = s.handles[p.owner.number]
		return body
	}
	f := s.fences[p.owner.number]
	sent := map[string]any{"lease_id": f.LeaseID, "lease_epoch": f.LeaseEpoch, "attempt_id": f.AttemptID, "attempt_index": f.AttemptIndex}
	switch p.form {
	case "fence without index":
		delete(sent, "attempt_index")
	case "other epoch":
		sent["lease_epoch"] = f.LeaseEpoch + 1
	case "other attempt":
		sent["attempt_id"] = unknown
	case "other lease":
		sent["lease_id"] = unknown
	case "other index":
		sent["attempt_index"] = f.AttemptIndex + 1
	}
	body["fence"] = sent
	return body
}

// claimant draws a worker.
func (w *world) claimant() claimant {
	by := draw(w, "worker", instances...)
	by.capabilities = w.capabilities()
	by.ttl = draw[int64](w, "ttl", 30000, 1000, 100)
	return by
}

// capabilities are mostly all there are.
func (w *world) capabilities() []string {
	return draw(w, "capabilities", []string{"x", "y"}, []string{"x", "y"}, []string{"x", "y", "z"}, []string{"x"}, []string{"y"}, []string{})
}

// creation draws a new execution, or one whose id or key is known.
func (w *world) creation(keyed bool) creation {
	c := creation{
		lane: draw(w, "lane", laneNames...), priority: draw(w, "priority", 0, 0, 1, 10000, -5), needs: draw(w, "needs", []string{}, []string{}, []string{"x"}, []string{"y"}, []string{"x", "y"}),
		policy: w.policy(),
	}
	if w.sometimes("tagged", 15) {
		c.tags = map[string]string{"team.name": draw(w, "tag", "red", "blue")}
	}
	if keyed {
		c.key = draw(w, "key", "", "", "k1", "k2")
	}
	switch draw(w, "time", "", "", "", "", "", "", "", "delay_ms", "delay_until", "deadline") {
	case "delay_ms":
		c.delayMS = span(w, "delay", 0, 2000)
	case "delay_until":
		c.delayUntil = w.now + span(w, "delay", -10, 2000)
	case "deadline":
		c.deadline = w.now + span(w, "deadline", 1, 5000)
	}
	if w.sometimes("bad", 6) {
		switch c.bad = draw(w, "wrong", "invalid_capabilities", "invalid_tag_key", "timer_out_of_range"); c.bad {
		case "invalid_capabilities":
			c.needs = []string{"a b"}
		case "invalid_tag_key":
			c.tags = map[string]string{"Team": "red"}
		default:
			c.deadline = w.now
		}
	}
	if len(w.executions) > 0 && w.sometimes("known id", 15) {
		e := w.execution()
		c.id, c.name = e.id, e.name
		return c
	}
	c.id, c.name = w.newID()
	return c
}

// newID draws an id that is nobody's. Its beginning is drawn too, since the order of ids counts.
func (w *world) newID() (uuid.UUID, string) { return w.newNamed("e") }

func (w *world) newNamed(prefix string) (uuid.UUID, string) {
	n := len(w.names)
	var id uuid.UUID
	id[0] = byte(w.below(256, "id"))
	id[2], id[3], id[4], id[5] = byte(w.run>>24), byte(w.run>>16), byte(w.run>>8), byte(w.run)
	id[6], id[8], id[9], id[10] = 0x40, 0x80, byte(n>>8), byte(n)
	w.names[id] = fmt.Sprintf("%s%d", prefix, n)
	return id, w.names[id]
}

func (w *world) policy() policy {
	var p policy
	if w.sometimes("retries", 60) {
		p.Retry = &retryPolicy{Max: maybe(w, "max_retries", 1, 2, 0)}
		switch draw(w, "backoff", "", "fixed", "exponential") {
		case "fixed":
			p.Retry.Backoff = &backoff{Type: "fixed", Delay: maybe[int64](w, "delay_ms", 0, 500)}
		case "exponential":
			p.Retry.Backoff = &backoff{Type: draw(w, "type", "", "exponential"), Initial: maybe[int64](w, "initial", 3, 100), Max: maybe[int64](w, "max", 150, 1200), Multiplier: maybe(w, "multiplier", 1, 1.5, 3)}
		}
		p.Retry.Categories = draw(w, "categories", nil, nil, []string{"transient"}, []string{"timeout", "transient"})
	}
	if w.sometimes("timeouts", 50) {
		p.Timeout = &timeoutPolicy{Attempt: maybe[int64](w, "attempt_timeout", 300, 300, 2000, 0), Deadline: draw(w, "execution_deadline", nil, nil, nil, new(int64(3000)), new(int64(60000))), MaxReclaim: maybe(w, "max_reclaim", 0, 1)}
	}
	if w.sometimes("signals", 15) {
		p.MaxSignals = maybe(w, "max_signals", 2, 3)
	}
	if w.sometimes("replays", 30) {
		p.MaxReplay = maybe(w, "max_replay", 1, 0, 2)
	}
	if w.sometimes("reclaims", 40) {
		p.MaxReclaim = maybe(w, "max_reclaim", 1, 0, 2)
	}
	if w.sometimes("dedup", 20) {
		p.Dedup = maybe[int64](w, "dedup", 1000, 0)
	}
	return p
}

// body is the creation as it is sent.
func (c creation) body() map[string]any {
	body := map[string]any{"id": c.id, "lane": c.lane, "policy": c.policy}
	if c.priority != 0 {
		body["priority"] = c.priority
	}
	if len(c.needs) > 0 {
		body["required_capabilities"] = c.needs
	}
	if c.tags != nil {
		body["tags"] = c.tags
	}
	if c.delayMS > 0 {
		body["delay_ms"] = c.delayMS
	}
	if c.delayUntil > 0 {
		body["delay_until"] = stamp(c.delayUntil)
	}
	if c.deadline > 0 {
		body["deadline_at"] = stamp(c.deadline)
	}
	if c.key != "" {
		body["idempotency_key"] = c.key
	}
	return body
}

func stamp(t instant) string { return time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// tick draws how far to move the clock: a little, or to the very next thing that is due, just before it or just after.
func (w *world) step() int64 {
	dues := w.dues()
	if len(dues) > 0 && w.sometimes("to what is due", 50) {
		due := dues[min(len(dues)-1, draw(w, "which", 0, 0, 0, 1, 2))]
		return max(0, due-w.now+draw[int64](w, "beside", 0, -1, 1))
	}
	if ends := w.keyEnds(); len(ends) > 0 && w.sometimes("a key", 3) {
		return max(0, ends[0]-w.now+draw[int64](w, "beside", 0, -1))
	}
	return draw[int64](w, "step", 1, 10, 50, 100, 300, 1000, 5000)
}

// grantFor draws a grant, mostly one of e.
func (w *world) grantFor(e *execution) *grant {
	of := slices.DeleteFunc(slices.Clone(w.grants), func(g *grant) bool { return g.e != e })
	if len(of) == 0 || w.sometimes("another grant", 15) {
		if of = w.grants; len(of) == 0 || w.sometimes("no grant", 30) {
			return nil
		}
	}
	if w.sometimes("an old one", 20) {
		return of[w.below(len(of), "grant")]
	}
	return of[len(of)-1]
}
