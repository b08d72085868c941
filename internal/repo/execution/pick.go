package execution

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// candidate is an execution that may be claimed, if its terms allow it.
type candidate struct {
	execution.Execution
	bucket int64
}

// picking is a claim on its way through the open buckets.
type picking struct {
	repo    *Repo
	tx      *store.Tx
	open    []openBucket
	terms   map[int64]execution.Terms // of the buckets that were looked at and have any
	held    []heldUp
	taken   map[uuid.UUID]bool
	touched int  // executions that were taken or put aside
	locked  bool // limits are: none may be locked after that, since others would do so in another order
	passed  bool // others were taking what stood in some bucket
}

// pick goes through the best of what stands in open buckets and whose terms allow it, until n are taken.
func (r *Repo) pick(tx *store.Tx, open []openBucket, n int, take use) (*picking, error) {
	p := &picking{repo: r, tx: tx, open: open, terms: map[int64]execution.Terms{}, taken: map[uuid.UUID]bool{}}
	for n > 0 && len(p.open) > 0 && len(p.held) < mostHeld && !(p.locked && tx.Locks()) {
		ranked, err := heads(tx, p.open, n)
		if err != nil {
			return nil, fmt.Errorf("rank claim buckets: %w", err)
		}
		if len(ranked) == 0 {
			break
		}
		room, full, err := p.rooms(ranked)
		if err != nil {
			return nil, err
		}
		if full {
			continue
		}
		found, shelved, err := best(tx, ranked, room, n)
		if err != nil {
			return nil, err
		}
		p.touched += shelved
		tx.Later()                   // these were locked just now
		if len(found)+shelved == 0 { // others are taking what is in these: there are more
			p.open, p.passed = without(p.open, ranked), true
		}
		for i := range found {
			took, err := p.pass(&found[i], take)
			if err != nil {
				return nil, err
			}
			if took {
				n--
			}
		}
	}
	return p, nil
}

// use takes one execution, whose terms allow it, and says whether that counts.
type use func(e *execution.Execution, terms execution.Terms) (bool, error)

// pass takes a candidate, unless its limits hold it up: then one behind it that is expected to spend less may have its turn.
func (p *picking) pass(c *candidate, take use) (bool, error) {
	at := slices.IndexFunc(p.open, func(b openBucket) bool { return b.ID == c.bucket })
	if at < 0 || p.taken[c.ID] { // held up since, or taken
		return false, nil
	}
	b, t := p.open[at], p.terms[c.bucket]
	if t.None() {
		return p.take(&c.Execution, b, t, take)
	}
	_, hold, err := p.repo.check(p.tx, t, c.Estimate())
	switch {
	case err != nil:
		return false, err
	case hold != nil && len(t.Estimate) > 0:
		return p.behind(b, t, heldUp{hold: *hold, estimate: c.Estimate()}, take)
	case hold != nil:
		return false, p.hold(*hold, b, nil)
	}
	return p.take(&c.Execution, b, t, take)
}

// mostBehind bounds how many of a bucket are tried when the first of them is expected to spend more than is left.
const mostBehind = 16

// behind takes the first in a bucket that is expected to spend no more than is left. If none of the first is, the one that needs least
// holds up the bucket.
func (p *picking) behind(b openBucket, t execution.Terms, least heldUp, take use) (bool, error) {
	list, _, err := standingIn(p.tx, b.ID, mostBehind)
	if err != nil {
		return false, err
	}
	for i := range list {
		e := &list[i]
		_, hold, err := p.repo.check(p.tx, t, e.Estimate())
		if err != nil {
			return false, err
		}
		if hold == nil {
			return p.take(e, b, t, take)
		}
		if hold.Need < least.hold.Need {
			least = heldUp{hold: *hold, estimate: e.Estimate()}
		}
	}
	return false, p.hold(least.hold, b, least.estimate)
}

// take takes an execution out of a bucket, and looks whether others may follow.
func (p *picking) take(e *execution.Execution, b openBucket, t execution.Terms, take use) (bool, error) {
	p.taken[e.ID] = true
	took, err := take(e, t)
	if err != nil {
		return false, err
	}
	if p.touched++; !took || t.None() {
		return took, nil
	}
	_, hold, err := p.repo.check(p.tx, t, nil)
	if err != nil || hold == nil {
		return true, err
	}
	return true, p.hold(*hold, b, nil) // nobody needs to look into it again to find that out
}

// rooms says how many may leave each bucket at most, as far as that is limited. When a limit is reached, what it holds up is set aside
// and the rest has to be ranked again.
func (p *picking) rooms(ranked []openBucket) (room map[int64]int64, full bool, err error) {
	room = map[int64]int64{}
	var all execution.Terms
	for _, b := range ranked {
		t, err := p.termsOf(b)
		if err != nil {
			return nil, false, err
		}
		all.Quotas, all.Budgets = append(all.Quotas, t.Quotas...), append(all.Budgets, t.Budgets...)
	}
	if all.None() {
		return room, false, nil
	}
	if p.tx.Locks() { // what is held up anyway is left alone
		for _, b := range ranked {
			t := p.terms[b.ID]
			hold, err := p.repo.look(&p.tx.Queries, t, nil)
			if err != nil {
				return nil, false, err
			}
			if hold != nil {
				return nil, true, p.hold(*hold, b, nil)
			}
		}
	}
	p.locked = true
	if err := cmp.Or(p.repo.quotas.Lock(p.tx, all.Quotas), p.repo.budgets.Lock(p.tx, all.Budgets)); err != nil { // in one order
		return nil, false, err
	}
	for _, b := range ranked {
		t := p.terms[b.ID]
		if t.None() {
			continue
		}
		n, hold, err := p.repo.check(p.tx, t, nil)
		if err != nil {
			return nil, false, err
		}
		if room[b.ID] = n; hold == nil {
			continue
		}
		if !p.tx.Locks() {
			return nil, true, p.hold(*hold, b, nil)
		}
		if err := p.hold(*hold, b, nil); err != nil { // the others are locked
			return nil, false, err
		}
	}
	return room, false, nil
}

// termsOf returns the terms of a bucket.
func (p *picking) termsOf(b openBucket) (execution.Terms, error) {
	if b.Terms == "" {
		return execution.Terms{}, nil
	}
	t, known := p.terms[b.ID]
	if known {
		return t, nil
	}
	t, err := p.repo.buckets.parse(b.Terms)
	if err != nil {
		return t, store.Corrupt("claim bucket", b.ID, err)
	}
	p.terms[b.ID] = t
	return t, nil
}

// hold sets aside what a limit holds up: a bucket, and, unless that is because of what its head expects to spend, all others that the
// limit holds up as well.
func (p *picking) hold(h execution.Hold, b openBucket, estimate map[string]int64) error {
	held := heldUp{hold: h, buckets: []openBucket{b}, terms: p.terms[b.ID], estimate: estimate, locked: p.locked}
	if len(estimate) == 0 {
		for _, o := range p.open {
			if o.ID == b.ID || o.Terms == "" {
				continue
			}
			t, err := p.termsOf(o)
			if err != nil {
				return err
			}
			if t.Names(&h) {
				held.buckets = append(held.buckets, o)
			}
		}
	}
	p.open = without(p.open, held.buckets)
	p.held = append(p.held, held)
	return nil
}

// shut closes what the claim has found held up: here, or, when it got nothing, elsewhere. What it has no lock of is left to those who
// find nothing else.
func (p *picking) shut() error {
	stopped := p.locked && p.tx.Locks()
	if p.touched == 0 && (len(p.held) > 0 || stopped && p.passed) {
		return &nothingLeft{p.held, stopped || len(p.held) == mostHeld}
	}
	for i := range p.held {
		if h := &p.held[i]; p.tx.Locks() && (!h.locked || len(h.estimate) > 0) {
			continue
		}
		if err := p.repo.shutOne(p.tx, &p.held[i]); err != nil {
			return err
		}
	}
	return nil
}

// without returns the buckets that are not among others.
func without(open, others []openBucket) []openBucket {
	gone := make(map[int64]bool, len(others))
	for _, b := range others {
		gone[b.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(open), func(b openBucket) bool { return gone[b.ID] })
}
