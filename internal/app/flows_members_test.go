package app_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// flowMemberCases: executions that belong to a flow. model.md "Start and end", "Cancel", "Revision".
var flowMemberCases = []flowCase{
	{"a member of a created flow is paused until the flow starts", func(x *flowTest) {
		w := x.workers("members")
		f := x.create("")
		member := w.create(`"kind":"shell","key":"build",` + of(f.ID))
		if *member.FlowID != f.ID || *member.Key != "build" || member.BlockingReason != "paused_by_policy" || member.PublicState != "waiting" {
			x.t.Errorf("%+v", member)
		}
		w.none("")
		got := x.stands(f.ID, "created", 0) // members move without the revision
		if got.NodeCount != 1 || got.GraphRevision != 1 {
			x.t.Errorf("%+v", got)
		}
		x.do(f.ID, "start", "")
		if c := w.claim(""); c.Execution.ID != member.ID || c.Kind != "fresh" {
			x.t.Errorf("%+v", c)
		}
		all := x.trail(f.ID, "&scope=all")
		if all[1].Type != "execution.eligible" || all[1].Cause == nil || *all[1].Cause != all[2].ID || all[2].Type != "flow.started" {
			x.t.Errorf("the start is told as %+v", all)
		}
	}},
	{"a member of a running or waiting flow can be claimed at once", func(x *flowTest) {
		w := x.workers("members")
		for _, s := range []oapi.FlowStatus{"running", "waiting"} {
			f := x.at(s)
			member := w.create(of(f.ID))
			if w.claim("").Execution.ID != member.ID {
				x.t.Error("another one was claimed")
			}
			x.stands(f.ID, s, f.Revision)
		}
	}},
	{"start by PUT starts the members, too", func(x *flowTest) {
		w := x.workers("members")
		f := x.create("")
		w.create(of(f.ID))
		x.put(f.ID, 0, `{"goal":"x","status":"running"}`).Want(http.StatusOK)
		w.claim("")
	}},
	{"a flow with members is never answered 304: they move without its revision", func(x *flowTest) {
		f := x.at("running")
		x.Get(flowPath(f.ID), `If-None-Match: "1"`).Want(http.StatusNotModified)
		x.workers("members").create(of(f.ID))
		x.Get(flowPath(f.ID), `If-None-Match: "1"`).Want(http.StatusOK)
	}},
	{"a controller's compare-and-set is not disturbed by its workers", func(x *flowTest) {
		w := x.workers("members")
		f := x.at("running")
		w.create(of(f.ID))
		w.report(w.claim(""), "complete", "").Want(http.StatusOK)
		x.patch(f.ID, `{"state":{"a":1}}`, ifMatch(1)).Want(http.StatusOK)
	}},
	{"a flow with open members is not finished", func(x *flowTest) {
		w := x.workers("members")
		f := x.at("running")
		one, two := w.create(of(f.ID)), w.create(joined(of(f.ID), `"delay_ms":60000`))
		for _, send := range []func() *apitest.Response{
			func() *apitest.Response { return x.verb(f.ID, "finish", "") },
			func() *apitest.Response { return x.put(f.ID, 1, `{"goal":"x","status":"finished"}`) },
		} {
			x.facts(x.refused(fault.CodeOpenMembers, send, f.ID), map[string]any{"count": 2.0})
		}
		w.report(w.claim(""), "complete", "").Want(http.StatusOK)
		x.facts(x.refused(fault.CodeOpenMembers, func() *apitest.Response { return x.verb(f.ID, "finish", "") }, f.ID), map[string]any{"count": 1.0})
		x.advance(2 * time.Minute)
		w.report(w.claim(""), "fail", `"reason":"no"`).Want(http.StatusOK)
		x.do(f.ID, "finish", "")
		w.stands(one.ID, atCompleted)
		w.stands(two.ID, atFailed)
	}},
	{"cancel ends all members, and a late worker is told", func(x *flowTest) {
		w := x.workers("members")
		f := x.at("waiting")
		active, waiting, delayed := w.create(joined(of(f.ID), `"priority":9`)), w.create(of(f.ID)), w.create(joined(of(f.ID), `"delay_ms":60000`))
		c := w.claim("")
		got := x.do(f.ID, "cancel", `{"reason":"superseded"}`)
		if got.Members == nil || got.Members.Total != 3 || got.Members.Outstanding != 0 || len(got.Members.Failed) != 0 {
			x.t.Errorf("%+v", got.Members)
		}
		for _, id := range []uuid.UUID{active.ID, waiting.ID, delayed.ID} {
			if e := w.get(id); e.PublicState != "cancelled" || e.Cancellation == nil || e.Cancellation.Reason != "superseded" {
				x.t.Errorf("%+v, %+v", e, e.Cancellation)
			}
		}
		x.causes(f.ID, "flow.cancelled", map[string]int{"execution.cancelled": 3, "lease.revoked": 1})
		w.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return w.report(c, "complete", "") }, active.ID)
		if x.flow(f.ID).Members != nil {
			x.t.Error("members are only in the answer to cancel")
		}
	}},
	{"flow_only leaves the members alone, cancel_pending those that are worked on", func(x *flowTest) {
		for policy, ends := range map[string][2]string{"flow_only": {"active", "waiting"}, "cancel_pending": {"active", "cancelled"}} {
			w := x.workers(policy)
			f := x.at("running")
			active, waiting := w.create(joined(of(f.ID), `"priority":9`)), w.create(of(f.ID))
			c := w.claim("")
			x.do(f.ID, "cancel", fmt.Sprintf(`{"policy":%q}`, policy))
			if got := [2]string{string(w.get(active.ID).PublicState), string(w.get(waiting.ID).PublicState)}; got != ends {
				x.t.Errorf("%s leaves %v", policy, got)
			}
			w.report(c, "complete", `"result":1`).Want(http.StatusOK)
			w.stands(active.ID, atCompleted)
			x.stands(f.ID, "cancelled", 2)
		}
	}},
	{"fail ends all members", func(x *flowTest) {
		w := x.workers("members")
		f := x.at("running")
		one := w.create(of(f.ID))
		c := w.claim("")
		two := w.create(of(f.ID))
		x.do(f.ID, "fail", `{"reason":"no disk"}`)
		for _, id := range []uuid.UUID{one.ID, two.ID} {
			if e := w.get(id); e.PublicState != "cancelled" || e.Cancellation.Reason != "flow_failed" {
				x.t.Errorf("%+v", e)
			}
		}
		x.causes(f.ID, "flow.failed", map[string]int{"execution.cancelled": 2, "lease.revoked": 1})
		w.report(c, "renew", "").Problem(fault.CodeExecutionNotActive)
	}},
	{"what a deadline or a requested cancellation ends, ends its members", func(x *flowTest) {
		w := x.workers("members")
		var flows, members []uuid.UUID
		for _, end := range []string{"fail", "cancel"} {
			f := x.waiting(manual, `"deadline":`+spelled(x.now().Add(time.Hour)), fmt.Sprintf(`"on_timeout":%q`, end))
			flows, members = append(flows, f.ID), append(members, w.create(of(f.ID)).ID)
		}
		asked := x.waiting(manual)
		flows, members = append(flows, asked.ID), append(members, w.create(of(asked.ID)).ID)
		x.do(asked.ID, "request-cancel", "")
		x.advance(2 * time.Hour)
		x.stands(flows[0], "failed", 3)
		x.stands(flows[1], "cancelled", 3)
		x.stands(flows[2], "cancelled", 4)
		for _, id := range members {
			if e := w.get(id); e.PublicState != "cancelled" {
				x.t.Errorf("%+v", e)
			}
		}
	}},
	{"a flow that is not there, or has ended, takes no members", func(x *flowTest) {
		w := x.workers("members")
		foreign := x.in(x.namespace + "-other").at("running")
		for _, id := range []uuid.UUID{uuid.New(), foreign.ID} {
			answer := x.refused(fault.CodeNotFound, func() *apitest.Response { return x.Post("/v1/executions", w.sent(of(id))) })
			x.facts(answer, map[string]any{"resource": "flow"})
		}
		for _, s := range []oapi.FlowStatus{"finished", "failed", "cancelled"} {
			f := x.at(s)
			answer := x.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return x.Post("/v1/executions", w.sent(of(f.ID))) }, f.ID)
			x.facts(answer, map[string]any{"current_status": string(s)})
		}
	}},
	{"a key is taken once in a flow, and a refused member is not counted", func(x *flowTest) {
		w := x.workers("members")
		f, other := x.at("running"), x.at("running")
		w.create(`"key":"build",` + of(f.ID))
		x.refused(fault.CodeAlreadyExists, func() *apitest.Response { return x.Post("/v1/executions", w.sent(`"key":"build",`+of(f.ID))) }, f.ID)
		w.create(`"key":"build",` + of(other.ID))
		items := x.Post("/v1/executions/batch", `{"executions":[`+w.sent(`"key":"build",`+of(f.ID))+`,`+w.sent(`"key":"test",`+of(f.ID))+`]}`).Want(http.StatusCreated)
		if items.Str("items.0.problem.code") != "already_exists" || items.Str("items.1.execution.key") != "test" {
			x.t.Errorf("%s", items.Body)
		}
		if got := x.flow(f.ID); got.NodeCount != 2 || got.GraphRevision != 2 {
			x.t.Errorf("%d members at graph revision %d", got.NodeCount, got.GraphRevision)
		}
		if n := x.Get("/v1/executions?flow_id=" + f.ID.String()).Want(http.StatusOK).Len("items"); n != 2 {
			x.t.Errorf("%d members are listed", n)
		}
	}},
	{"the same member twice is counted once", func(x *flowTest) {
		w := x.workers("members")
		f, id := x.at("running"), uuid.NewString()
		body := w.sent(`"id":"` + id + `",` + of(f.ID))
		x.Post("/v1/executions", body).Want(http.StatusCreated)
		x.same(func() *apitest.Response { return x.Post("/v1/executions", body) }, f.ID).Want(http.StatusOK)
		body = w.sent(`"id":"` + uuid.NewString() + `",` + of(f.ID))
		for _, answer := range flowsAtOnce(6, func(int) *apitest.Response { return x.Post("/v1/executions", body) }) {
			if answer.Status != http.StatusCreated {
				answer.Want(http.StatusOK)
			}
		}
		if got := x.flow(f.ID); got.NodeCount != 2 || got.GraphRevision != 2 {
			x.t.Errorf("%d members at graph revision %d", got.NodeCount, got.GraphRevision)
		}
	}},
	{"members that join while a flow ends either end with it or are refused", func(x *flowTest) {
		w := x.workers("members")
		f := x.at("running")
		answers := flowsAtOnce(9, func(i int) *apitest.Response {
			if i == 4 {
				return x.verb(f.ID, "cancel", "")
			}
			return x.Post("/v1/executions", w.sent(of(f.ID)))
		})
		joinedBefore := 0
		for i, answer := range answers {
			switch {
			case i == 4:
				answer.Want(http.StatusOK)
			case answer.Status == http.StatusCreated:
				joinedBefore++
				if e := w.get(uuid.MustParse(answer.Str("id"))); e.PublicState != "cancelled" {
					x.t.Errorf("a member of a cancelled flow is %s", e.PublicState)
				}
			default:
				answer.Problem(fault.CodeAlreadyTerminal)
			}
		}
		if got := x.flow(f.ID); got.NodeCount != int64(joinedBefore) {
			x.t.Errorf("%d members are counted, %d joined", got.NodeCount, joinedBefore)
		}
	}},
}

// of names the flow that an execution belongs to.
func of(id uuid.UUID) string { return `"flow_id":"` + id.String() + `"` }

// causes checks what followed from the newest event of a type, at whatever remove.
func (x *flowTest) causes(id uuid.UUID, eventType string, want map[string]int) {
	x.t.Helper()
	from := map[int64]bool{}
	got := map[string]int{}
	events := x.trail(id, "&scope=all")
	for i := range events {
		e := events[len(events)-1-i]
		switch {
		case e.Type == eventType:
			from[e.ID] = true
		case e.Cause != nil && from[*e.Cause]:
			from[e.ID] = true
			got[e.Type]++
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("%s was followed by (-want +got):\n%s", eventType, diff)
	}
}
