package app_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestSuspensions_Rotation: tokens under other secrets than the present one. executions.md 6.7/84, 101; 5/26, 27.
func TestSuspensions_Rotation(t *testing.T) {
	t.Parallel()
	const minute = int64(time.Minute / time.Millisecond)
	rotate := func(x *executionTest, grace int64) {
		x.t.Helper()
		x.Post("/v1/admin/waitpoint-secrets/rotate", fmt.Sprintf(`{"grace_ms":%d}`, grace)).Want(http.StatusOK)
	}
	again := func(x *executionTest, c oapi.Claim, w oapi.MintedWaitpoint) oapi.MintedWaitpoint {
		x.t.Helper()
		got := answerAs[oapi.WaitpointToken](x.Get(fmt.Sprintf("/v1/executions/%s/waitpoints/%s/token", c.Execution.ID, w.WaitpointID)).Want(http.StatusOK))
		return oapi.MintedWaitpoint{WaitpointID: w.WaitpointID, WaitpointKey: w.WaitpointKey, Token: got.Token}
	}
	runExecutionCases(t, []executionCase{
		{"in its grace a token is good, to the last millisecond, and after it never again", func(x *executionTest) {
			x.create("")
			c := x.claim(lasting)
			s := x.suspend(c, `"reason_code":"waiting_for_signal","waitpoints":[{"waitpoint_key":"go"}],
				"resume_condition":{"Composite":{"kind":"Count","n":9,"count_kind":"DistinctSignals","waitpoints":["go"]}}`)
			w := s.Waitpoints[0]
			rotate(x, minute)
			if effect := x.signalled(c.Execution.ID, w, ""); effect != "appended_to_waitpoint" {
				x.t.Errorf("%s", effect)
			}
			if same := again(x, c, w); same.Token != w.Token {
				x.t.Error("the token has changed although it is good")
			}
			rotate(x, minute) // A, B, C: that of A is good still
			x.advance(time.Minute)
			if effect := x.signalled(c.Execution.ID, w, ""); effect != "appended_to_waitpoint" {
				x.t.Errorf("%s", effect)
			}
			x.advance(time.Millisecond)
			x.refused(fault.CodeInvalidToken, func() *apitest.Response { return x.signal(c.Execution.ID, w, "") }, c.Execution.ID)
			other := again(x, c, w)
			if other.Token == w.Token {
				x.t.Error("the token is the old one")
			}
			if effect := x.signalled(c.Execution.ID, other, ""); effect != "appended_to_waitpoint" {
				x.t.Errorf("%s", effect)
			}
		}},
		{"a secret replaced without a grace opens nothing, at once", func(x *executionTest) {
			x.create("")
			c := x.claim(lasting)
			w := x.suspend(c, waitForGo).Waitpoints[0]
			rotate(x, 0)
			x.advance(time.Millisecond)
			x.refused(fault.CodeInvalidToken, func() *apitest.Response { return x.signal(c.Execution.ID, w, "") }, c.Execution.ID)
			x.refused(fault.CodeInvalidToken, func() *apitest.Response { return x.signal(c.Execution.ID, w, "") }, c.Execution.ID)
			if effect := x.signalled(c.Execution.ID, again(x, c, w), ""); effect != "resume_condition_satisfied" {
				x.t.Errorf("%s", effect)
			}
		}},
		{"a suspension that is answered again after its secret has gone has tokens that are good", func(x *executionTest) {
			x.create("")
			c := x.claim(lasting)
			keyed := waitForGo + `,"idempotency_key":"k"`
			first := x.suspend(c, keyed).Waitpoints[0]
			rotate(x, 0)
			x.advance(time.Millisecond)
			second := x.suspend(c, keyed).Waitpoints[0]
			if second.WaitpointID != first.WaitpointID || second.Token == first.Token {
				x.t.Errorf("%+v after %+v", second.WaitpointID, first.WaitpointID)
			}
			if effect := x.signalled(c.Execution.ID, second, ""); effect != "resume_condition_satisfied" {
				x.t.Errorf("%s", effect)
			}
		}},
	})
}
