package execution

import (
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

// heldBucket is a bucket that a limit holds up.
type heldBucket struct {
	bucket   openBucket
	estimate map[string]int64 // of whoever was to leave it next
}

// heldUp rolls a claim back that got nothing, because of limits: the buckets are closed in a transaction of their own, whose effect is
// not that of the claim.
type heldUp struct{ buckets []heldBucket }

func (h *heldUp) Error() string { return fmt.Sprintf("%d claim buckets are held up", len(h.buckets)) }

// mostHeld bounds how many buckets one claim closes.
const mostHeld = 100

// candidate is an execution that may be claimed, if its terms allow it.
type candidate struct {
	execution.Execution
	bucket int64
}

// pick goes through the best of what stands in open buckets and whose terms allow it, until use has taken n. It returns how many
// executions were touched, with those that cannot be read, and what is held up.
func (r *Repo) pick(tx *store.Tx, open []openBucket, n int, use func(e *execution.Execution, terms execution.Terms) (bool, error)) (touched int, held []heldBucket, err error) {
	for n > 0 && len(open) > 0 && len(held) < mostHeld {
		ranked, err := heads(tx, open, n)
		if err != nil {
			return touched, nil, fmt.Errorf("rank claim buckets: %w", err)
		}
		if len(ranked) == 0 {
			break
		}
		terms, room, full, err := r.rooms(tx, ranked)
		if err != nil {
			return touched, nil, err
		}
		if len(full) > 0 {
			held, open = append(held, full...), without(open, bucketsOf(full)...)
			continue
		}
		found, shelved, err := best(tx, ranked, room, n)
		if err != nil {
			return touched, nil, err
		}
		touched += shelved
		tx.Later()                   // these were locked just now
		if len(found)+shelved == 0 { // others are taking what is in these: there are more
			open = without(open, ranked...)
		}
		for i := range found {
			c := &found[i]
			at := slices.IndexFunc(open, func(b openBucket) bool { return b.ID == c.bucket })
			if at < 0 { // held up since
				continue
			}
			t := terms[c.bucket]
			if _, hold, err := r.check(tx, t, c.Estimate()); err != nil {
				return touched, nil, err
			} else if hold != nil {
				held, open = append(held, heldBucket{open[at], c.Estimate()}), slices.Delete(slices.Clone(open), at, at+1)
				continue
			}
			took, err := use(&c.Execution, t)
			if err != nil {
				return touched, nil, err
			}
			touched++
			if !took {
				continue
			}
			n--
			if full, err := r.full(tx, t); err != nil {
				return touched, nil, err
			} else if full { // nobody needs to look into it again to find that out
				held, open = append(held, heldBucket{open[at], nil}), slices.Delete(slices.Clone(open), at, at+1)
			}
		}
	}
	return touched, held, nil
}

// rooms reads the terms of buckets, and says how many may leave each of them at most; those that nobody may leave are full.
func (r *Repo) rooms(tx *store.Tx, ranked []openBucket) (terms map[int64]execution.Terms, room map[int64]int64, full []heldBucket, err error) {
	terms, room = map[int64]execution.Terms{}, map[int64]int64{}
	var all execution.Terms
	for _, b := range ranked {
		if b.Terms == "" {
			continue
		}
		t, err := execution.ParseTerms(b.Terms)
		if err != nil {
			return nil, nil, nil, store.Corrupt("claim bucket", b.ID, err)
		}
		terms[b.ID] = t
		all.Quotas, all.Budgets = append(all.Quotas, t.Quotas...), append(all.Budgets, t.Budgets...)
	}
	if len(terms) > 1 { // in one order
		if err := errors.Join(r.quotas.Lock(tx, all.Quotas), r.budgets.Lock(tx, all.Budgets)); err != nil {
			return nil, nil, nil, err
		}
	}
	for _, b := range ranked {
		t, limited := terms[b.ID]
		if !limited {
			continue
		}
		n, hold, err := r.check(tx, t, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		if room[b.ID] = n; hold != nil {
			full = append(full, heldBucket{b, nil})
		}
	}
	return terms, room, full, nil
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

// full says whether nobody with such terms may be claimed any more.
func (r *Repo) full(tx *store.Tx, t execution.Terms) (bool, error) {
	if t.None() {
		return false, nil
	}
	_, hold, err := r.check(tx, t, nil)
	return hold != nil, err
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

// shut closes buckets that are held up, unless that is over.
func (r *Repo) shut(ctx context.Context, held []heldBucket) error {
	return store.Do(call.With(ctx, call.Engine(call.From(ctx).Namespace)), r.store, func(tx *store.Tx) error { return r.shutIn(tx, held) })
}

func (r *Repo) shutIn(tx *store.Tx, held []heldBucket) error {
	for _, h := range held {
		t, err := execution.ParseTerms(h.bucket.Terms)
		if err != nil {
			return store.Corrupt("claim bucket", h.bucket.ID, err)
		}
		_, hold, err := r.check(tx, t, h.estimate)
		if err != nil {
			return err
		}
		if hold == nil {
			continue
		}
		n, err := tx.Exec(`UPDATE claim_buckets SET held_by = ?, held_id = ?, held_key = ?, held_need = ?, held_detail = ?, held_since = ?, reopen_at = ? WHERE id = ? AND held_by IS NULL`,
			string(hold.By), store.ID(hold.ID), hold.Key, hold.Need, hold.Detail, store.Millis(tx.Now()), store.Millis(hold.ReopenAt()), h.bucket.ID)
		if err != nil {
			return fmt.Errorf("close claim bucket %d: %w", h.bucket.ID, err)
		}
		tx.Alarm(AdmissionLoop, hold.ReopenAt())
		if n > 0 && hold.By == execution.HeldByQuota {
			if err := r.quotas.Refused(tx, hold); err != nil {
				return err
			}
		}
	}
	return nil
}

func bucketsOf(held []heldBucket) []openBucket {
	out := make([]openBucket, len(held))
	for i := range held {
		out[i] = held[i].bucket
	}
	return out
}

// without returns the buckets that are not among others.
func without(open []openBucket, others ...openBucket) []openBucket {
	return slices.DeleteFunc(slices.Clone(open), func(b openBucket) bool {
		return slices.ContainsFunc(others, func(o openBucket) bool { return o.ID == b.ID })
	})
}

// ids of what an execution asks for are resolved once, when it is made.

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

// LimitsOf is what the members of a flow are attached to. It returns CodeNotFound.
func (r *Repo) LimitsOf(q *store.Queries, namespace string, budgets, quotas []uuid.UUID) (*execution.Limits, error) {
	return r.limitsOf(q, namespace, budgets, quotas, nil)
}
