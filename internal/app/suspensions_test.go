package app_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// suspend suspends what c holds.
func (x *executionTest) suspend(c oapi.Claim, members string) oapi.SuspendedExecution {
	x.t.Helper()
	return answerAs[oapi.SuspendedExecution](x.report(c, "suspend", members).Want(http.StatusOK))
}

// signal sends a signal to a waitpoint.
func (x *executionTest) signal(id uuid.UUID, w oapi.MintedWaitpoint, members string) *apitest.Response {
	x.t.Helper()
	return x.Post("/v1/executions/"+id.String()+"/signals", executionJSON(members, fmt.Sprintf(`"waitpoint_id":"%s"`, w.WaitpointID), `"token":"`+w.Token+`"`, `"signal_name":"go"`))
}

// signalled sends a signal that is taken, and returns its effect.
func (x *executionTest) signalled(id uuid.UUID, w oapi.MintedWaitpoint, members string) oapi.SignalEffect {
	x.t.Helper()
	return answerAs[oapi.SignalReceipt](x.signal(id, w, members).Want(http.StatusOK)).Effect
}

// TestSuspensions: executions.md 6.7.
func TestSuspensions(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, []executionCase{
		{"a signal lets it go on, in the same attempt (6.7/85, 91; 6.5/71)", func(x *executionTest) {
			e := x.create("")
			c := x.claim(lasting)
			s := x.suspend(c, waitForGo)
			x.stands(e.ID, atSuspended)
			if s.Outcome != "suspended" || len(s.Waitpoints) != 1 || s.Waitpoints[0].Token == "" {
				x.t.Fatalf("%+v", s)
			}
			if effect := x.signalled(e.ID, s.Waitpoints[0], `"payload":{"n":1}`); effect != "resume_condition_satisfied" {
				x.t.Errorf("%s", effect)
			}
			x.stands(e.ID, atReleased)
			again := x.claim(lasting)
			if again.Kind != "resumed" || again.Fence.AttemptID != c.Fence.AttemptID || again.Fence.LeaseEpoch != 2 {
				x.t.Errorf("%+v", again)
			}
			x.told(e.ID, "execution.created", "lease.acquired", "lease.revoked", "execution.suspended", "signal.delivered", "execution.resumed", "lease.acquired")
		}},
	})
}
