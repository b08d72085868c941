package flow

import (
	"strings"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
)

// RollupState says in one word how the members of a flow stand.
type RollupState string

// The words.
const (
	RollupOpen      RollupState = "open"      // they wait for workers
	RollupRunning   RollupState = "running"   // somebody works on one
	RollupBlocked   RollupState = "blocked"   // they wait for time, for a signal, or for one another
	RollupCompleted RollupState = "completed" // all have ended, and none badly that counts
	RollupFailed    RollupState = "failed"    // all have ended
)

// Rollup is what the members of a flow add up to.
type Rollup struct {
	Counts map[execution.Public]int64 // without those that are 0
	// Unforgiven says, once all have ended, that a member ended badly that nothing made up for: it leads to no group of
	// dependencies, or to one that was not satisfied.
	Unforgiven bool
}

// blocked are the states of members that nobody can claim now.
var blocked = []execution.Public{execution.PublicSuspended, execution.PublicDelayed, execution.PublicRateLimited, execution.PublicWaitingChildren}

// Total returns how many members there are.
func (r *Rollup) Total() int64 {
	var n int64
	for _, c := range r.Counts {
		n += c
	}
	return n
}

// Open returns how many have not ended.
func (r *Rollup) Open() int64 {
	n := r.Total()
	for _, p := range execution.Ends() {
		n -= r.Counts[p]
	}
	return n
}

// Bad returns how many ended badly: failed, expired or cancelled.
func (r *Rollup) Bad() int64 {
	return r.Counts[execution.PublicFailed] + r.Counts[execution.PublicExpired] + r.Counts[execution.PublicCancelled]
}

// State returns the word. reference: flows-streams-budgets.md 1.3, with the rule of auto_finish for the ends.
func (r *Rollup) State() RollupState {
	switch {
	case r.Open() == 0 && r.Unforgiven:
		return RollupFailed
	case r.Open() == 0:
		return RollupCompleted
	case r.Counts[execution.PublicActive] > 0:
		return RollupRunning
	}
	for _, p := range blocked {
		if r.Counts[p] > 0 {
			return RollupBlocked
		}
	}
	return RollupOpen
}

// Complete ends a running flow that ends by itself, all members of which have ended: failed when some of them, whose names are
// given, ended badly, else finished; cancelled when that was asked for. Any other flow stays as it is.
func (f Flow) Complete(unforgiven []string, more bool, by event.By) (Change, error) {
	switch {
	case !f.AutoFinish || f.Status != Running:
		return Change{Flow: f}, nil
	case f.CancelRequested:
		return f.Cancel(CancelRequest{Policy: CancelAll}, by)
	case len(unforgiven) == 0:
		return f.Finish(nil, 0, by)
	}
	reason := "these members did not end well: " + strings.Join(unforgiven, ", ")
	if more {
		reason += " and others"
	}
	return f.Fail(reason, by)
}

// CancelRequest is how a flow is to be cancelled.
type CancelRequest struct {
	Policy CancelPolicy
	Reason string
	// GraceMS is how long, in milliseconds, the workers of members that are held have to end them.
	GraceMS int64
}
