package execution_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// TestOperators_refusals: every refusal of what operators and grants do, in the order of the reference. executions.md 2.3 to 2.5, 2.11.
func TestOperators_refusals(t *testing.T) {
	t.Parallel()
	for _, tt := range operatorsRefusals {
		e := tt.from(t)
		if got := fault.CodeOf(tt.call(e)); got != tt.code {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.code)
		}
		if diff := cmp.Diff(tt.from(t), e); diff != "" {
			t.Errorf("%s: refused, and yet changed (-before +after):\n%s", tt.name, diff)
		}
	}
}

// refusable is a call that is refused.
type refusable = func(e execution.Execution) error

// usesGrant uses a grant of a worker.
func usesGrant(kind execution.GrantKind, grant uuid.UUID, worker byte, lane execution.Lane, at int) refusable {
	return func(e execution.Execution) error {
		_, _, err := e.ClaimGranted(execution.Use{GrantID: grant, Kind: kind}, claimant(worker), lane, after(at))
		return err
	}
}

func reservesLost(at int, worker execution.Capabilities, lane ...execution.Lane) refusable {
	return func(e execution.Execution) error {
		_, err := e.ReserveLost(grantFor("w3"), worker, append(lane, execution.Lane{})[0], after(at))
		return err
	}
}

func claimsByHand(e execution.Execution) error {
	_, _, err := e.ClaimByHand(claimant(2), after(85))
	return err
}

func revokes(which execution.Revocation) refusable {
	return func(e execution.Execution) error {
		_, _, err := e.Revoke(which, after(20))
		return err
	}
}

func replays(e execution.Execution) error {
	_, err := e.Replay(execution.Standing{}, after(85))
	return err
}

func resumes(e execution.Execution) error { _, err := e.Resume(0, after(85)); return err }

func prioritises(e execution.Execution) error { _, err := e.Prioritise(1); return err }

func stops(e execution.Execution) error { _, err := stop(e, time.Minute, after(85)); return err }

func demanding(tb testing.TB) execution.Execution {
	e := lapsed(tb)
	e.Required = execution.Capabilities{"cuda", "go"}
	return e
}

func reclaimedOnce(tb testing.TB) execution.Execution {
	e := lapsed(tb)
	e.Reclaims = 1
	return e
}

func replayedOften(tb testing.TB) execution.Execution {
	e := cancelled(tb)
	e.Replays = 10
	return e
}

var pausedLane = execution.Lane{Name: "ci", State: execution.LanePaused}

var operatorsRefusals = []struct {
	name string
	from func(testing.TB) execution.Execution
	call refusable
	code fault.Code
}{
	{"grant: held", plain(active), usesGrant(execution.GrantsClaim, id(99), 2, execution.Lane{}, 85), fault.CodeLeaseConflict},
	{"grant: lost", lapsed, usesGrant(execution.GrantsClaim, id(99), 2, execution.Lane{}, 85), fault.CodeLeaseConflict},
	{"grant: ended", completed, usesGrant(execution.GrantsClaim, id(99), 2, execution.Lane{}, 85), fault.CodeExecutionNotLeaseable},
	{"grant: delayed", delayed, usesGrant(execution.GrantsClaim, id(99), 2, execution.Lane{}, 85), fault.CodeExecutionNotLeaseable},
	{"grant: lane paused", reserved, usesGrant(execution.GrantsClaim, id(99), 2, pausedLane, 85), fault.CodeExecutionNotLeaseable},
	{"grant: none", plain(created), usesGrant(execution.GrantsClaim, id(99), 2, execution.Lane{}, 85), fault.CodeInvalidClaimGrant},
	{"grant: another one", reserved, usesGrant(execution.GrantsClaim, id(98), 2, execution.Lane{}, 85), fault.CodeInvalidClaimGrant},
	{"grant: another worker", reserved, usesGrant(execution.GrantsClaim, id(99), 3, execution.Lane{}, 85), fault.CodeInvalidClaimGrant},
	{"grant: lapsed", reserved, usesGrant(execution.GrantsClaim, id(99), 2, execution.Lane{}, 90), fault.CodeClaimGrantExpired},
	{"reclaim: not lost", plain(active), usesGrant(execution.GrantsReclaim, id(99), 2, execution.Lane{}, 20), fault.CodeNotReclaimable},
	{"reclaim: ended", completed, usesGrant(execution.GrantsReclaim, id(99), 2, execution.Lane{}, 20), fault.CodeNotReclaimable},
	{"reclaim: lane paused", reservedLost, usesGrant(execution.GrantsReclaim, id(99), 2, pausedLane, 85), fault.CodeExecutionNotLeaseable},
	{"reclaim: no grant", lapsed, usesGrant(execution.GrantsReclaim, id(99), 2, execution.Lane{}, 85), fault.CodeGrantNotFound},
	{"reclaim: another one", reservedLost, usesGrant(execution.GrantsReclaim, id(98), 2, execution.Lane{}, 85), fault.CodeGrantNotFound},
	{"reclaim: lapsed", reservedLost, usesGrant(execution.GrantsReclaim, id(99), 2, execution.Lane{}, 90), fault.CodeGrantNotFound},
	{"reclaim: another worker", reservedLost, usesGrant(execution.GrantsReclaim, id(99), 3, execution.Lane{}, 85), fault.CodeInvalidClaimGrant},
	{"reserve lost: held", plain(active), reservesLost(20, nil), fault.CodeNotReclaimable},
	{"reserve lost: waiting", plain(created), reservesLost(20, nil), fault.CodeNotReclaimable},
	{"reserve lost: to end", cancelling, reservesLost(80, nil), fault.CodeNotReclaimable},
	{"reserve lost: lane paused", demanding, reservesLost(80, nil, pausedLane), fault.CodeExecutionNotLeaseable},
	{"reserve lost: incapable", demanding, reservesLost(80, execution.Capabilities{"go"}), fault.CodeCapabilityMismatch},
	{"reserve lost: reserved", reservedLost, reservesLost(85, nil), fault.CodeGrantExists},
	{"reserve lost: too often", reclaimedOnce, reservesLost(85, nil), fault.CodeReclaimCapExceeded},
	{"by hand: held", plain(active), claimsByHand, fault.CodeLeaseConflict},
	{"by hand: lost", lapsed, claimsByHand, fault.CodeExecutionNotEligible},
	{"by hand: ended", completed, claimsByHand, fault.CodeExecutionNotEligible},
	{"by hand: delayed", delayed, claimsByHand, fault.CodeExecutionNotEligible},
	{"by hand: reserved", reserved, claimsByHand, fault.CodeGrantExists},
	{"revoke: waiting", plain(created), revokes(execution.Revocation{}), fault.CodeExecutionNotActive},
	{"revoke: ended", completed, revokes(execution.Revocation{}), fault.CodeExecutionNotActive},
	{"revoke: another lease", plain(active), revokes(execution.Revocation{LeaseID: id(98)}), fault.CodeStaleLease},
	{"prioritise: held", plain(active), prioritises, fault.CodeExecutionNotEligible},
	{"prioritise: ended", completed, prioritises, fault.CodeExecutionNotEligible},
	{"replay: waiting", plain(created), replays, fault.CodeExecutionNotTerminal},
	{"replay: held", plain(active), replays, fault.CodeExecutionNotTerminal},
	{"replay: too often", replayedOften, replays, fault.CodeMaxReplaysExhausted},
	{"resume: waiting", plain(created), resumes, fault.CodeNotSuspended},
	{"resume: held", plain(active), resumes, fault.CodeNotSuspended},
	{"resume: delayed", delayed, resumes, fault.CodeNotSuspended},
	{"resume: ended", completed, resumes, fault.CodeNotSuspended},
	{"stop: completed", completed, stops, fault.CodeAlreadyTerminal},
}
