package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Budgets and quotas decide in the transaction that claims. What they do not let pass holds up its whole bucket, which is closed until
// there is room again: however many stand in it, nobody looks at them meanwhile. reference: flows-streams-budgets.md 6.7, 6.9.

// heldUp is what one limit holds up: all buckets whose terms name its place, or the one whose head expects to spend more than is left.
type heldUp struct {
	hold     execution.Hold
	buckets  []openBucket
	terms    execution.Terms // that were checked
	estimate map[string]int64
	locked   bool // when it was found
}

// nothingLeft rolls a claim back that got nothing, because of limits: the buckets are closed in a transaction of their own, whose
// effect is not that of the claim.
type nothingLeft struct {
	held []heldUp
	more bool // there are buckets that were not looked at
}

func (h *nothingLeft) Error() string {
	return fmt.Sprintf("%d limits hold up what is there", len(h.held))
}

// mostHeld bounds how many limits one claim finds reached.
const mostHeld = 100

// mostRounds bounds how often a claim that gets nothing begins anew, with what it has found held up closed.
const mostRounds = 100

// limited runs a transaction that takes what limits allow, until it has got something or everything was looked at: errNoWork.
func limited[T any](ctx context.Context, r *Repo, write func() (T, error)) (T, error) {
	for range mostRounds {
		got, err := write()
		none, ok := errors.AsType[*nothingLeft](err)
		if !ok {
			return got, err
		}
		if err := r.shut(ctx, none.held); err != nil {
			return *new(T), err
		}
		if !none.more {
			break
		}
	}
	return *new(T), errNoWork
}

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

// look says, without locking anything, what holds up an execution with such terms that is expected to spend an estimate.
func (r *Repo) look(q *store.Queries, t execution.Terms, estimate map[string]int64) (*execution.Hold, error) {
	if hold, err := r.quotas.Look(q, t.Quotas); hold != nil || err != nil || len(t.Budgets) == 0 {
		return hold, err
	}
	return r.budgets.Look(q, t.Budgets, estimate)
}

// check locks what terms name, and says how many executions with them may be claimed, each of which is expected to spend an
// estimate, or what holds them up.
func (r *Repo) check(tx *store.Tx, t execution.Terms, estimate map[string]int64) (room int64, hold *execution.Hold, err error) {
	room, hold, err = r.quotas.Check(tx, t.Quotas)
	if err != nil || hold != nil || len(t.Budgets) == 0 {
		return room, hold, err
	}
	hold, err = r.budgets.Check(tx, t.Budgets, estimate)
	return room, hold, err
}

// enter notes that e, whose terms were checked, is claimed.
func (r *Repo) enter(tx *store.Tx, e *execution.Execution, t execution.Terms) execution.Allowance {
	if r.quotas.Take(tx, e.ID, t.Quotas) {
		e.Admitted = true
	}
	if len(t.Budgets) == 0 {
		return execution.Allowance{}
	}
	return r.budgets.Take(tx, e.ID, t.Budgets, e.Estimate())
}

// admit takes e, which somebody claims by name, if its terms allow it. It returns CodeBudgetExhausted or CodeRateLimited.
func (r *Repo) admit(tx *store.Tx, before, e *execution.Execution) (execution.Allowance, error) {
	t, err := r.termsOf(&tx.Queries, before)
	if err != nil || t.None() {
		return execution.Allowance{}, err
	}
	_, hold, err := r.check(tx, t, before.Estimate())
	if err != nil {
		return execution.Allowance{}, err
	}
	if hold != nil {
		return execution.Allowance{}, refusedBy(hold, tx)
	}
	return r.enter(tx, e, t), nil
}

func refusedBy(h *execution.Hold, tx *store.Tx) error {
	if h.By == execution.HeldByBudget {
		return fault.New(fault.CodeBudgetExhausted, "%s Raise its limit with POST /v1/budgets/%s/topup, or wait for its reset.", h.Detail, h.ID).With("budget_id", h.ID).With("dimension", h.Key)
	}
	f := fault.New(fault.CodeRateLimited, "%s Claim it again later.", h.Detail).With("quota_id", h.ID)
	if !h.Until.IsZero() {
		f = f.With("retry_after_ms", h.Until.Sub(tx.Now()).Milliseconds())
	}
	return f
}

// shut closes buckets that are held up, unless that is over. Each limit is looked at in a transaction of its own.
func (r *Repo) shut(ctx context.Context, held []heldUp) error {
	ctx = call.With(ctx, call.Engine(call.From(ctx).Namespace))
	for i := range held {
		if err := store.Do(ctx, r.store, func(tx *store.Tx) error { return r.shutOne(tx, &held[i]) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repo) shutOne(tx *store.Tx, held *heldUp) error {
	hold, err := r.stillHeld(tx, held)
	if err != nil || hold == nil || hold.ID != held.hold.ID || hold.Key != held.hold.Key {
		return err
	}
	var closed int64
	for chunk := range store.Chunks(held.buckets) {
		ids := make([]int64, len(chunk))
		for i, b := range chunk {
			ids[i] = b.ID
		}
		n, err := tx.Exec(`UPDATE claim_buckets SET held_by = ?, held_id = ?, held_key = ?, held_need = ?, held_detail = ?, held_since = ?, reopen_at = ? WHERE held_by IS NULL AND id IN ?`,
			string(hold.By), store.ID(hold.ID), hold.Key, hold.Need, hold.Detail, store.Millis(tx.Now()), store.Millis(hold.ReopenAt()), store.List(ids))
		if err != nil {
			return fmt.Errorf("close %d claim buckets: %w", len(ids), err)
		}
		closed += n
	}
	tx.Alarm(AdmissionLoop, hold.ReopenAt())
	if closed > 0 && hold.By == execution.HeldByQuota {
		return r.quotas.Refused(tx, hold)
	}
	return nil
}

// stillHeld says what holds up now what a claim has found held up. Where that is because of what those at the head of a bucket are
// expected to spend, others may stand there since: the bucket is locked, which those who come to stand in it wait for, and looked at again.
func (r *Repo) stillHeld(tx *store.Tx, held *heldUp) (least *execution.Hold, err error) {
	if len(held.estimate) == 0 {
		_, least, err = r.check(tx, held.terms, nil)
		return least, err
	}
	bucket := held.buckets[0].ID
	var locked []int64
	if err := tx.Select(&locked, `SELECT id FROM claim_buckets WHERE id = ?`+tx.ForUpdate(), bucket); err != nil {
		return nil, fmt.Errorf("lock claim bucket %d: %w", bucket, err)
	}
	list, _, err := standingIn(tx, bucket, mostBehind)
	if err != nil {
		return nil, err
	}
	for i := range list {
		_, hold, err := r.check(tx, held.terms, list[i].Estimate())
		if err != nil || hold == nil {
			return nil, err
		}
		if least == nil || hold.Need < least.Need {
			least = hold
		}
	}
	return least, nil
}

// without returns the buckets that are not among others.
func without(open, others []openBucket) []openBucket {
	gone := make(map[int64]bool, len(others))
	for _, b := range others {
		gone[b.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(open), func(b openBucket) bool { return gone[b.ID] })
}

// limitsOf returns what an execution, or a flow, is attached to. It returns CodeNotFound for a budget or a quota that there is not.
func (r *Repo) limitsOf(q *store.Queries, namespace string, budgets, quotas []uuid.UUID, estimate map[string]int64) (*execution.Limits, error) {
	l := execution.Limits{BudgetIDs: budgets, QuotaIDs: quotas, Estimate: estimate}
	var err error
	if len(budgets) > 0 {
		if l.Budgets, err = r.budgets.Attach(q, namespace, budgets); err != nil {
			return nil, err
		}
	}
	if len(quotas) > 0 {
		if l.Quotas, err = r.quotas.Attach(q, namespace, quotas); err != nil {
			return nil, err
		}
	}
	if l.None() {
		return nil, nil
	}
	return &l, nil
}

// attached remembers what a transaction has looked up: the items of a batch mostly have the same limits.
type attached map[string]*execution.Limits

type attachedKey struct{}

// limitsIn is limitsOf for what is about to be made.
func (r *Repo) limitsIn(tx *store.Tx, in *execution.Create) (*execution.Limits, error) {
	if len(in.BudgetIDs)+len(in.QuotaIDs) == 0 {
		return r.limitsOf(&tx.Queries, in.Namespace, nil, nil, in.Estimate)
	}
	known, name := store.Local[attached](tx, attachedKey{}), fmt.Sprint(in.BudgetIDs, in.QuotaIDs)
	l, ok := (*known)[name]
	if !ok {
		var err error
		if l, err = r.limitsOf(&tx.Queries, in.Namespace, in.BudgetIDs, in.QuotaIDs, nil); err != nil {
			return nil, err
		}
		if *known == nil {
			*known = attached{}
		}
		(*known)[name] = l
	}
	if len(in.Estimate) > 0 {
		return l.Expecting(in.Estimate), nil
	}
	return l, nil
}

// LimitsOf is what the members of a flow are attached to. It returns CodeNotFound.
func (r *Repo) LimitsOf(q *store.Queries, namespace string, budgets, quotas []uuid.UUID) (*execution.Limits, error) {
	return r.limitsOf(q, namespace, budgets, quotas, nil)
}
