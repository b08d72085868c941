package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// A flow's stream shows everything about the flow: itself, its steps and its members, and nothing of others.
func TestLive_flow(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		flow := func(goal string) string {
			return s.Post("/v1/flows", `{"goal":"`+goal+`","start":true}`).Want(http.StatusCreated).Str("id")
		}
		mine, other := flow("mine"), flow("other")
		path := "/v1/flows/" + mine + "/events/stream"
		follower := s.Stream(path)
		leases := s.Stream(path + "?topic=lease,completion&type=lease.acquired&type=execution.completed")
		began := s.page(t, "").next

		member := s.create("a", `,"flow_id":"`+mine+`"`)
		s.create("b", `,"flow_id":"`+other+`"`)
		s.create("c")
		s.Do(http.MethodPatch, "/v1/flows/"+mine, `{"state":{"a":1}}`).Want(http.StatusOK)
		s.Do(http.MethodPatch, "/v1/flows/"+other, `{"state":{"a":1}}`).Want(http.StatusOK)
		s.Do(http.MethodPut, "/v1/flows/"+mine+"/steps/r-1", `{"task":"t","status":"running"}`).Want(http.StatusCreated)
		s.Post("/v1/flows/"+mine+"/events", `{"type":"custom.note","data":{"n":1}}`).Want(http.StatusCreated)
		held := s.claim("a")
		s.verb(held, "complete")
		s.Post("/v1/flows/"+mine+"/finish", nil).Want(http.StatusOK)

		want := s.log(t, "flow_id="+mine)
		types := liveTypes(want)
		for _, eventType := range []string{
			"flow.created", "flow.started", "execution.created", "flow.state_updated", "step.observed", "custom.note", "lease.acquired",
			"execution.completed", "lease.revoked", "flow.finished",
		} {
			if !slices.Contains(types, eventType) {
				t.Errorf("%s is not among the flow's events %v", eventType, types)
			}
		}
		if held.ID != member {
			t.Errorf("claimed %s, want the member %s", held.ID, member)
		}
		later := slices.DeleteFunc(slices.Clone(want), func(e liveEvent) bool { return e.ID <= began })
		liveExpect(t, follower, "from now on", later)
		chosen := slices.DeleteFunc(slices.Clone(later), func(e liveEvent) bool { return e.Type != "lease.acquired" && e.Type != "execution.completed" })
		if len(chosen) != 2 {
			t.Errorf("there are %d of the chosen events, want 2", len(chosen))
		}
		liveExpect(t, leases, "topics and types", chosen)
		beginning := s.Stream(path + "?after=0")
		liveExpect(t, beginning, "from the beginning", want)
		resumed := s.Stream(path, fmt.Sprintf("Last-Event-ID: %d", want[1].ID))
		liveExpect(t, resumed, "resumed", want[2:])
		s.App.Drain()
		for _, stream := range []*apitest.Stream{follower, leases, beginning, resumed} {
			if bye := stream.Next(); bye.Type != "bye" {
				t.Errorf("an event too many: %+v", bye)
			}
		}
	})
}

func TestLive_flow_unknown(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		s.Get("/v1/flows/" + store.NewID().String() + "/events/stream").Problem(fault.CodeNotFound)
		s.Get("/v1/flows/x/events/stream").Problem(fault.CodeInvalidParameter)
		red := s.in("red").Post("/v1/flows", `{"goal":"g"}`).Want(http.StatusCreated).Str("id")
		s.Get("/v1/flows/" + red + "/events/stream").Problem(fault.CodeNotFound)
		s.in("red").Stream("/v1/flows/" + red + "/events/stream?after=0").Next()
	})
}
