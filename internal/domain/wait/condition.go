// Package wait holds what it means to wait: conditions on time, on signals from outside and on people, what satisfies them,
// and what becomes of a wait whose deadline passes. It is pure: time is an argument.
//
// A condition is satisfied by leaves that are met. A leaf that names a time is met from that time on, one that names signals
// once enough of them have come, and one that a person answers never by itself: a person ends the whole wait. So what is
// met only grows, in whatever order things happen.
//
// Conditions have two spellings: that of a flow's wait ([Parse]) and that of a suspended execution ([ParseResume]). What they
// mean is decided here once.
package wait

import (
	"slices"
	"time"
)

// Kind says what a condition asks for.
type Kind string

// The kinds.
const (
	Timer         Kind = "timer"          // until a time
	ExternalEvent Kind = "external_event" // for an event with a topic and a correlation id
	SignalOn      Kind = "signal"         // for a signal on a waitpoint
	Count         Kind = "count"          // for several distinct signals on some waitpoints
	Manual        Kind = "manual"         // for a person
	Never         Kind = "timeout"        // for the deadline alone
	Any           Kind = "any"            // for one of several
	All           Kind = "all"            // for each of several
)

// Limits of a flow's condition.
const (
	MaxDepth  = 3   // levels, the leaves' included
	MaxLeaves = 32  // of the whole condition
	MaxName   = 256 // characters of a topic or a correlation id
)

// Condition is what a wait waits for. reference: runs-and-taskflows.md B3.4; executions.md 2.16.
type Condition struct {
	Kind          Kind
	At            time.Time   // of a timer
	Topic         string      // of an external event
	CorrelationID string      // of an external event
	Waitpoints    []string    // keys of those that a signal or a count listens to
	Name          string      // of the signals that count, "" for any
	N             int         // how many a count needs
	Distinct      Distinct    // what a count counts
	Of            []Condition // of any and all
}

// Distinct says in what the signals that a count counts differ.
type Distinct string

// What they differ in.
const (
	DistinctWaitpoints Distinct = "waitpoints"
	DistinctSignals    Distinct = "signals"
	DistinctSources    Distinct = "sources"
)

// Progress says how far each leaf of a condition is, in the order in which they are written: how many signals it has that
// count, and never more than it needs.
type Progress []int

// Key is what an external event and the leaves that wait for it have in common.
type Key struct {
	Topic         string
	CorrelationID string
}

// each calls fn for every leaf, in the order in which they are written.
func (c Condition) each(fn func(i int, leaf Condition)) {
	i := 0
	var walk func(Condition)
	walk = func(c Condition) {
		if c.composite() {
			for _, part := range c.Of {
				walk(part)
			}
			return
		}
		fn(i, c)
		i++
	}
	walk(c)
}

func (c Condition) composite() bool { return c.Kind == Any || c.Kind == All }

// needs is how many signals that count a leaf is met by.
func (c Condition) needs() int {
	switch c.Kind {
	case ExternalEvent, SignalOn:
		return 1
	case Count:
		return c.N
	default:
		return 0
	}
}

// hears says whether a leaf listens to where a signal comes from.
func (c Condition) hears(s *Signal) bool {
	switch c.Kind {
	case ExternalEvent:
		return c.key() == s.Key()
	case SignalOn, Count:
		return s.Waitpoint != "" && slices.Contains(c.Waitpoints, s.Waitpoint)
	default:
		return false
	}
}

// takes says whether a signal counts for a leaf, and as what: of those that are the same, one counts. Names are compared
// character by character.
func (c Condition) takes(s *Signal) (as string, ok bool) {
	if !c.hears(s) || c.Name != "" && c.Name != s.Name {
		return "", false
	}
	switch c.Distinct {
	case DistinctWaitpoints:
		as = s.Waitpoint
	case DistinctSignals:
		as = s.ID
	case DistinctSources:
		as = s.SourceType + "\x00" + s.SourceIdentity
	}
	return as, true
}

// Progress returns how far the condition is with these signals. Their order does not matter, and neither do those that are
// there twice.
func (c Condition) Progress(received []Signal) Progress {
	return c.tally(received).progress()
}

// tally counts signals, leaf by leaf. A leaf may need a thousand, and there may be many that do: each signal is looked at once.
type tally []struct {
	leaf Condition
	has  int
	as   map[string]bool // what has counted, for a leaf that needs several
}

func (c Condition) tally(received []Signal) tally {
	var t tally
	c.each(func(_ int, leaf Condition) {
		t = append(t, struct {
			leaf Condition
			has  int
			as   map[string]bool
		}{leaf: leaf})
	})
	for i := range received {
		t.add(&received[i])
	}
	return t
}

func (t tally) progress() Progress {
	p := make(Progress, len(t))
	for i := range t {
		p[i] = t[i].has
	}
	return p
}

// add says whether a signal counts: whether some leaf needs it and has none like it.
func (t tally) add(s *Signal) (counts bool) {
	for i := range t {
		l := &t[i]
		needs := l.leaf.needs()
		if l.has >= needs {
			continue
		}
		as, ok := l.leaf.takes(s)
		if !ok || l.as[as] {
			continue
		}
		if needs > 1 {
			if l.as == nil {
				l.as = map[string]bool{}
			}
			l.as[as] = true
		}
		l.has++
		counts = true
	}
	return counts
}

// Satisfied says whether the condition holds at a time.
func (c Condition) Satisfied(p Progress, now time.Time) bool {
	at, ok := c.HoldsFrom(p)
	return ok && !at.After(now)
}

// HoldsFrom returns from when on the condition holds if no further signal comes, and whether it does so at all. The zero time
// means that it holds already.
func (c Condition) HoldsFrom(p Progress) (time.Time, bool) {
	i := 0
	return c.holdsFrom(p, &i)
}

func (c Condition) holdsFrom(p Progress, i *int) (from time.Time, ok bool) {
	if !c.composite() {
		has := p[*i]
		*i++
		return c.At, c.Kind == Timer || c.needs() > 0 && has >= c.needs()
	}
	ok = c.Kind == All
	for j, part := range c.Of {
		at, holds := part.holdsFrom(p, i)
		switch {
		case c.Kind == All:
			ok = ok && holds
			if j == 0 || at.After(from) {
				from = at
			}
		case holds && (!ok || at.Before(from)):
			ok, from = true, at
		}
	}
	if !ok {
		from = time.Time{}
	}
	return from, ok
}

// Keys returns the external events that the condition waits for and that have not come, each once.
func (c Condition) Keys(p Progress) []Key {
	var keys []Key
	c.each(func(i int, leaf Condition) {
		if leaf.Kind == ExternalEvent && p[i] == 0 && !slices.Contains(keys, leaf.key()) {
			keys = append(keys, leaf.key())
		}
	})
	return keys
}

func (c Condition) key() Key { return Key{Topic: c.Topic, CorrelationID: c.CorrelationID} }

// Answerable says whether a person is asked.
func (c Condition) Answerable() bool {
	asked := false
	c.each(func(_ int, leaf Condition) { asked = asked || leaf.Kind == Manual })
	return asked
}

// Equal says whether c and d ask for the same, part by part.
func (c Condition) Equal(d Condition) bool {
	return c.Kind == d.Kind && c.At.Equal(d.At) && c.key() == d.key() && slices.Equal(c.Waitpoints, d.Waitpoints) && c.Name == d.Name &&
		c.N == d.N && c.Distinct == d.Distinct && slices.EqualFunc(c.Of, d.Of, Condition.Equal)
}
