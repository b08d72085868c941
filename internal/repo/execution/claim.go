package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/hub"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/repo/worker"
)

// aloneLess is how much less often a waiting claim looks again, where nobody woke it, when there is no other process that may have
// left work: it is only a safety net then, and a thousand waiting workers should cost nothing.
const aloneLess = 12

// errNoWork rolls a claim back that found nothing: an answer without an effect is not kept under its Idempotency-Key.
var errNoWork = errors.New("no work")

// errDraining rolls a claim back whose worker gets no more work.
var errDraining = errors.New("the worker is draining")

// Claim gives up to Max claimable executions of some lanes to a worker, the best first: priority, then age, then id. Without
// work it waits, and returns none when the time is over or the server shuts down. A worker that is
// draining gets none, and is told. reference: executions.md 2.2; model.md "Execution".
func (r *Repo) Claim(ctx context.Context, req execution.ClaimRequest) (execution.Claimed, error) {
	got, err := r.tryClaim(ctx, req)
	if err == nil && got.Claims == nil && req.Wait > 0 {
		got, err = r.waitToClaim(ctx, req)
	}
	if errors.Is(err, errDraining) {
		return execution.Claimed{Claims: []execution.Claim{}, Directives: []execution.Directive{execution.DirectiveDrain}}, nil
	}
	return got, err
}

func (r *Repo) waitToClaim(ctx context.Context, req execution.ClaimRequest) (execution.Claimed, error) {
	namespace := call.From(ctx).Namespace
	keys := []string{worker.DrainKey(namespace, req.InstanceID)}
	for _, lane := range req.Lanes {
		keys = append(keys, waitKey(namespace, lane))
	}
	waiter := r.store.Hub().Wait(keys, func(need string) bool { return req.Capabilities.Cover(execution.ParseCapabilities(need)) })
	defer waiter.Stop()
	deadline := time.NewTimer(req.Wait)
	defer deadline.Stop()
	every := r.store.Poll()
	if r.store.Alone() {
		every *= aloneLess
	}
	poll := time.NewTicker(every)
	defer poll.Stop()
	for { // armed before looking: whatever comes later wakes us
		got, err := r.tryClaim(ctx, req)
		if err != nil || got.Claims != nil {
			waiter.Stop(kindsOf(got.Claims)...)
			return got, err
		}
		select {
		case _, open := <-waiter.C():
			if !open {
				return execution.Claimed{}, nil
			}
		case <-poll.C:
		case <-deadline.C:
			return execution.Claimed{}, nil
		case <-ctx.Done():
			return execution.Claimed{}, ctx.Err()
		}
		waiter.Rearm()
	}
}

// kindsOf names the work that was taken, for the hub.
func kindsOf(claims []execution.Claim) []hub.Kind {
	kinds := make([]hub.Kind, len(claims))
	for i := range claims {
		e := &claims[i].Execution
		kinds[i] = hub.Kind{Key: waitKey(e.Namespace, e.Lane), Need: e.Required.String()}
	}
	return kinds
}

// tryClaim claims what is there now.
func (r *Repo) tryClaim(ctx context.Context, req execution.ClaimRequest) (execution.Claimed, error) {
	if err := r.buckets.learn(ctx, r.store); err != nil {
		return execution.Claimed{}, err
	}
	got, err := limited(ctx, r, func() (execution.Claimed, error) {
		return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Claimed) error {
			taken, cause := 0, error(nil)
			out.Claims, taken, cause = r.claim(tx, req)
			if cause == nil && taken == 0 {
				cause = errNoWork
			}
			tx.Refer(claimRefs(out.Claims))
			return cause
		}, store.Reload(r.reloadClaims))
	})
	if errors.Is(err, errNoWork) {
		return execution.Claimed{}, nil
	}
	return got, err
}

// claim takes the best executions. taken also counts those that ended because they were taken over too often.
func (r *Repo) claim(tx *store.Tx, req execution.ClaimRequest) (claims []execution.Claim, taken int, err error) {
	open, err := r.buckets.open(tx, tx.Call.Namespace, req.Lanes, req.InstanceID, req.Capabilities, req.Reclaim)
	if err != nil {
		return nil, 0, fmt.Errorf("claim buckets: %w", err)
	}
	p, err := r.pick(tx, open, req.Max, func(e *execution.Execution, terms execution.Terms) (bool, error) {
		c, kind, err := e.Claim(claimant(req.WorkerID, req.InstanceID, req.TTL), tx.Now())
		if err != nil {
			return false, err
		}
		claim := execution.Claim{Kind: kind}
		if kind != "" {
			claim.Allowance = r.enter(tx, &c.Execution, terms)
		}
		if err := r.save(tx, e, c, nil); err != nil {
			return false, err
		}
		if claim.Execution = c.Execution; kind != "" {
			claims = append(claims, claim)
		}
		return kind != "", nil
	})
	if err == nil {
		err = p.shut()
	}
	if err != nil {
		return nil, 0, err
	}
	return claims, p.touched, r.passInputs(&tx.Queries, claims)
}

// passInputs adds what other members have passed on.
func (r *Repo) passInputs(q *store.Queries, claims []execution.Claim) error {
	var members []uuid.UUID
	for i := range claims {
		if e := &claims[i].Execution; e.FlowID != uuid.Nil {
			members = append(members, e.ID)
		}
	}
	if len(members) == 0 {
		return nil
	}
	inputs, err := r.graph.Inputs(q, members)
	if err != nil {
		return err
	}
	for i := range claims {
		claims[i].Inputs = inputs[claims[i].Execution.ID]
	}
	return nil
}

// claimant is a worker with the ids of a new lease.
func claimant(worker, instance string, ttl time.Duration) execution.Claimant {
	return execution.Claimant{WorkerID: worker, InstanceID: instance, TTL: ttl, LeaseID: uuid.New(), AttemptID: uuid.New()}
}

// best locks and returns the n best executions of some buckets that nobody else is taking, no more of each than there is room for. It puts aside those that cannot be
// read, and says how many those were: they must not keep the others from being claimed.
func best(tx *store.Tx, ranked []openBucket, room map[int64]int64, n int) (all []candidate, shelved int, err error) {
	share, err := shares(tx, "SELECT id, priority, created_at, claim_bucket"+inBucket, ranked, room, n)
	if err != nil {
		return nil, 0, err
	}
	for _, bucket := range ranked {
		if share[bucket.ID] == 0 {
			continue
		}
		list, aside, err := standingIn(tx, bucket.ID, share[bucket.ID])
		if err != nil {
			return nil, 0, err
		}
		for i := range list {
			all = append(all, candidate{list[i], bucket.ID})
		}
		shelved += aside
	}
	if len(ranked) > 1 {
		slices.SortFunc(all, func(a, b candidate) int { return order(&a.Execution, &b.Execution) })
	}
	return all[:min(n, len(all))], shelved, nil
}

// shares says how many of the n best executions may stand in each of some buckets. They are looked at before they are read: what
// is read, or locked, and not taken would be so for nothing.
func shares(tx *store.Tx, look string, ranked []openBucket, room map[int64]int64, n int) (map[int64]int, error) {
	share := make(map[int64]int, len(ranked))
	most := func(id int64) int {
		if limit, limited := room[id]; limited {
			return int(min(int64(n), limit))
		}
		return n
	}
	if len(ranked) == 1 {
		share[ranked[0].ID] = most(ranked[0].ID)
		return share, nil
	}
	var all []row
	for _, bucket := range ranked {
		var rows []row
		if err := tx.Select(&rows, look, bucket.ID, most(bucket.ID)); err != nil {
			return nil, fmt.Errorf("look into claim bucket %d: %w", bucket.ID, err)
		}
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(a, b row) int { return order(a.place(), b.place()) })
	for _, r := range all[:min(n, len(all))] {
		share[*r.ClaimBucket]++
	}
	return share, nil
}

// claimRef is what a claim is rendered from again.
type claimRef struct {
	ID    uuid.UUID           `json:"id"`
	Epoch int64               `json:"epoch"`
	Kind  execution.ClaimKind `json:"kind"`
}

func claimRefs(claims []execution.Claim) []claimRef {
	refs := make([]claimRef, len(claims))
	for i := range claims {
		refs[i] = claimRef{claims[i].Execution.ID, claims[i].Execution.Lease.Epoch, claims[i].Kind}
	}
	return refs
}

// reloadClaims returns those of earlier claims whose handles are still good: none, but not nil, when all are over.
func (r *Repo) reloadClaims(ctx context.Context, refs []claimRef) (execution.Claimed, error) {
	claims := make([]execution.Claim, 0, len(refs))
	for _, old := range refs {
		e, err := r.Execution(ctx, old.ID)
		if err != nil && !refusal(err) {
			return execution.Claimed{}, err
		}
		if err == nil && e.Lease.Epoch == old.Epoch && e.Held(r.store.Now()) {
			claims = append(claims, execution.Claim{Execution: e, Kind: old.Kind})
		}
	}
	err := r.store.Read(ctx, func(q *store.Queries) error {
		for i := range claims {
			e := &claims[i].Execution
			if len(e.Counted()) == 0 {
				continue
			}
			var err error
			if claims[i].Allowance, err = r.budgets.Allowance(q, e.ID, e.Counted()); err != nil {
				return err
			}
		}
		return r.passInputs(q, claims)
	})
	return execution.Claimed{Claims: claims}, err
}

// RetryAfter says in how many seconds a worker without work may ask again: nil for when it likes.
func (r *Repo) RetryAfter() *int {
	select {
	case <-r.store.Hub().Done():
		return new(1) // shutting down
	default:
		return nil
	}
}
