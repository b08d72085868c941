package execution

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

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
