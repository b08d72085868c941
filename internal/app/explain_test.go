package app_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// explain asks why an execution is not running, and checks what holds for every answer: a gate that is not met says what to do,
// and it is claimable just when all are met.
func (x *executionTest) explain(id uuid.UUID, query string) (oapi.Explanation, map[string]oapi.Gate) {
	x.t.Helper()
	got := answerAs[oapi.Explanation](x.Get(operatorPath(id, "explain") + query).Want(http.StatusOK))
	gates, met := map[string]oapi.Gate{}, true
	for _, g := range got.Gates {
		gates[string(g.Gate)] = g
		met = met && g.Met
		if g.Met != (g.Hint == "") || g.Met && g.NextAt != nil {
			x.t.Errorf("%s: met %v, hint %q, next_at %v", g.Gate, g.Met, g.Hint, g.NextAt)
		}
	}
	if got.Claimable != met || got.Summary == "" || len(gates) != len(got.Gates) || got.ExecutionID != id || got.PublicState != x.get(id).PublicState {
		x.t.Errorf("%+v", got)
	}
	return got, gates
}

// unmet returns the gates that are not met, in their order.
func unmet(e oapi.Explanation) []string {
	var names []string
	for _, g := range e.Gates {
		if !g.Met {
			names = append(names, string(g.Gate))
		}
	}
	return names
}

// TestExplain: each condition of a claim, and that they are those of a claim. model.md, "explain"; executions.md 6.8/117.
func TestExplain(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, explainCases)
}

var explainCases = []executionCase{
	{"it agrees with what a claim does, in every phase (6.8/117)", func(x *executionTest) {
		gates := map[string]string{
			"delayed": "time", "reserved": "grant", "paused by its flow": "flow", "active": "phase", "put off": "time", "waiting for its children": "dependencies",
			"to be retried later": "time", "suspended": "phase", "resumed, later": "time",
		}
		x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, _ oapi.Claim) {
			got, byName := x.explain(id, "")
			var want []string
			if gate := gates[p.name]; gate != "" {
				want = []string{gate}
			}
			if diff := cmp.Diff(want, unmet(got)); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if gate := byName["phase"]; fromDocument[map[string]any](x.t, string(gate.Evidence))["lifecycle_phase"] != string(x.get(id).StateVector.LifecyclePhase) {
				x.t.Errorf("%s", gate.Evidence)
			}
			claimed := len(x.claims("")) == 1
			if got.Claimable != claimed {
				x.t.Errorf("it says %v: %s", got.Claimable, got.Summary)
			}
		})
		for _, outcome := range terminals {
			e, _ := x.ended(outcome, "")
			got, byName := x.explain(e.ID, "")
			if diff := cmp.Diff([]string{"phase"}, unmet(got)); diff != "" || byName["phase"].Since == nil || !byName["phase"].Since.Equal(*e.CompletedAt) {
				x.t.Errorf("%+v (-want +got):\n%s", byName["phase"], diff)
			}
			if evidence := fromDocument[map[string]any](x.t, string(byName["phase"].Evidence)); evidence["terminal_outcome"] != string(e.StateVector.TerminalOutcome) {
				x.t.Errorf("%v", evidence)
			}
		}
	}},
	{"in the moment before the sweeper comes by, too", func(x *executionTest) {
		late := []struct {
			gate string
			make func() uuid.UUID
		}{
			{"phase", func() uuid.UUID {
				e := x.create("")
				x.claim(`"lease_ttl_ms":1000`)
				return e.ID
			}},
			{"time", func() uuid.UUID { return x.create(`"delay_ms":1000`).ID }},
			{"grant", func() uuid.UUID {
				e := x.create("")
				x.reserved(`"grant_ttl_ms":1000`)
				return e.ID
			}},
		}
		for _, l := range late {
			id := l.make()
			x.unswept(id)
			x.server.Clock.Advance(time.Second)
			got, _ := x.explain(id, "")
			if diff := cmp.Diff([]string{l.gate}, unmet(got)); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			x.none("")
		}
	}},
	{"time: until when", func(x *executionTest) {
		e := x.create(`"delay_ms":3600000`)
		_, gates := x.explain(e.ID, "")
		g := gates["time"]
		if g.NextAt == nil || !g.NextAt.Equal(*e.DelayUntil) {
			x.t.Errorf("%+v", g)
		}
		want := map[string]any{"delay_until": e.DelayUntil.String(), "blocking_reason": "waiting_for_delay"}
		if diff := cmp.Diff(want, fromDocument[map[string]any](x.t, string(g.Evidence))); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.advance(time.Hour)
		if got, _ := x.explain(e.ID, ""); !got.Claimable {
			x.t.Errorf("%+v", got)
		}
	}},
	{"phase: who works on it, and until when", func(x *executionTest) {
		e := x.create("")
		c := x.claim(`"worker_id":"builder","worker_instance_id":"builder-1"`)
		_, gates := x.explain(e.ID, "")
		g, evidence := gates["phase"], fromDocument[map[string]any](x.t, string(gates["phase"].Evidence))
		if g.NextAt == nil || !g.NextAt.Equal(c.LeaseExpiresAt) || g.Since == nil || !g.Since.Equal(c.Execution.CurrentLease.AcquiredAt) ||
			evidence["worker_id"] != "builder" || evidence["worker_instance_id"] != "builder-1" || evidence["lease_expires_at"] != c.LeaseExpiresAt.String() {
			x.t.Errorf("%+v %s", g, g.Evidence)
		}
	}},
	{"grant: whose, and until when", func(x *executionTest) {
		e := x.create("")
		granted := answerAs[oapi.Grant](x.reserveAs("builder", "").Want(http.StatusOK))
		_, gates := x.explain(e.ID, "")
		g, evidence := gates["grant"], fromDocument[map[string]any](x.t, string(gates["grant"].Evidence))
		if g.NextAt == nil || !g.NextAt.Equal(granted.ExpiresAt) || g.Since == nil || evidence["worker_id"] != "builder" {
			x.t.Errorf("%+v %s", g, g.Evidence)
		}
		x.advance(10 * time.Second)
		if got, _ := x.explain(e.ID, ""); !got.Claimable {
			x.t.Errorf("%+v", got)
		}
		x.claim("")
	}},
	{"lane: who paused it, and why", func(x *executionTest) {
		e := x.create("")
		paused := x.turned("pause", `"reason":"the registry is down"`)
		got, gates := x.explain(e.ID, "")
		evidence := fromDocument[map[string]any](x.t, string(gates["lane"].Evidence))
		want := map[string]any{"lane": x.lane, "state": "paused", "actor": "local", "reason": "the registry is down"}
		if diff := cmp.Diff(want, evidence); diff != "" || gates["lane"].Since == nil || !gates["lane"].Since.Equal(*paused.Since) || !slices.Equal(unmet(got), []string{"lane"}) {
			x.t.Errorf("%v (-want +got):\n%s", unmet(got), diff)
		}
		x.none("")
		x.turned("resume", "")
		if got, _ := x.explain(e.ID, ""); !got.Claimable {
			x.t.Errorf("%+v", got)
		}
		x.claim("")
	}},
	{"flow: it has not started", func(x *executionTest) {
		f := x.Post("/v1/flows", `{"goal":"x"}`).Want(http.StatusCreated).Str("id")
		e := x.create(`"flow_id":"` + f + `"`)
		_, gates := x.explain(e.ID, "")
		if evidence := fromDocument[map[string]any](x.t, string(gates["flow"].Evidence)); evidence["flow_id"] != f {
			x.t.Errorf("%v", evidence)
		}
		x.Post("/v1/flows/"+f+"/start", nil).Want(http.StatusOK)
		if got, _ := x.explain(e.ID, ""); !got.Claimable {
			x.t.Errorf("%+v", got)
		}
		x.claim("")
	}},
	{"capabilities: of the worker that asks", func(x *executionTest) {
		e := x.create(`"required_capabilities":["go","gpu"]`)
		for _, capabilities := range [][]string{{"go"}, {"gpu", "linux"}, {"GO", "gpu"}, {"go", "gpu"}, {"gpu", "linux", "go"}, {"none"}} {
			query := "?" + url.Values{"capability": capabilities}.Encode()
			got, gates := x.explain(e.ID, query)
			able := slices.Contains(capabilities, "go") && slices.Contains(capabilities, "gpu")
			var missing []any
			for _, need := range []string{"go", "gpu"} {
				if !slices.Contains(capabilities, need) {
					missing = append(missing, need)
				}
			}
			evidence := fromDocument[map[string]any](x.t, string(gates["capabilities"].Evidence))
			want := map[string]any{"required": []any{"go", "gpu"}, "registered_workers": evidence["registered_workers"]}
			if missing != nil {
				want["missing"] = missing
			}
			if diff := cmp.Diff(want, evidence); diff != "" || got.Claimable != able || able != (unmet(got) == nil) {
				x.t.Errorf("%v: %+v (-want +got):\n%s", capabilities, got, diff)
			}
			sent := ""
			for _, c := range capabilities {
				sent += fmt.Sprintf(`,%q`, c)
			}
			answer := x.ask(`"capabilities":[` + sent[1:] + `]`)
			if (answer.Status == http.StatusOK) != got.Claimable {
				x.t.Errorf("%v: it says %v, and a claim is answered %d", capabilities, got.Claimable, answer.Status)
			}
			if answer.Status == http.StatusOK {
				x.report(answerAs[oapi.Claims](answer).Claims[0], "release", "").Want(http.StatusOK)
			}
		}
		if got, _ := x.explain(e.ID, ""); !got.Claimable { // by one that has every capability
			x.t.Errorf("%+v", got)
		}
		if _, gates := x.explain(x.create("").ID, "?capability=go"); !gates["capabilities"].Met {
			x.t.Errorf("%+v", gates["capabilities"])
		}
		x.Get(operatorPath(e.ID, "explain") + "?capability=a,b").Problem(fault.CodeInvalidCapabilities)
		x.Get(operatorPath(e.ID, "explain") + "?capability=go&worker_instance_id=w").Problem(fault.CodeValidationFailed)
	}},
	{"worker: as one that is registered sees it", func(x *executionTest) {
		e := x.create(`"required_capabilities":["go"]`)
		able, unable := "able-"+x.lane, "unable-"+x.lane
		register := func(instance, capabilities string) {
			x.t.Helper()
			x.Do(http.MethodPut, "/v1/workers/"+instance, `{"worker_id":"w1","lanes":["`+x.lane+`"],"capabilities":[`+capabilities+`],"liveness_ttl_ms":60000}`).Want(http.StatusCreated)
		}
		registered := func(want float64) {
			x.t.Helper()
			_, gates := x.explain(e.ID, "")
			if got := fromDocument[map[string]any](x.t, string(gates["capabilities"].Evidence))["registered_workers"]; got != want {
				x.t.Errorf("%v registered workers, want %v", got, want)
			}
		}
		// asks compares what is said to a worker with what its claim gets.
		asks := func(instance, capabilities string, want ...string) {
			x.t.Helper()
			got, _ := x.explain(e.ID, "?worker_instance_id="+instance)
			if diff := cmp.Diff(want, unmet(got)); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", instance, diff)
			}
			claims := x.claims(`"worker_instance_id":"` + instance + `","capabilities":[` + capabilities + `]`)
			if (len(claims) == 1) != got.Claimable {
				x.t.Errorf("%s: it says %v, and %d are claimed", instance, got.Claimable, len(claims))
			}
			for _, c := range claims {
				x.report(c, "release", "").Want(http.StatusOK)
			}
		}
		registered(0)
		register(able, `"go","linux"`)
		register(unable, `"linux"`)
		registered(1)
		asks(able, `"go","linux"`)
		asks(unable, `"linux"`, "capabilities")
		drained := x.Post("/v1/workers/"+able+"/drain", nil).Want(http.StatusOK)
		_, gates := x.explain(e.ID, "?worker_instance_id="+able)
		g := gates["worker"]
		if g.Since == nil || g.Since.String() != drained.Str("draining_since") || fromDocument[map[string]any](x.t, string(g.Evidence))["worker_instance_id"] != able {
			x.t.Errorf("%+v %s", g, g.Evidence)
		}
		asks(able, `"go","linux"`, "worker")
		x.advance(time.Minute) // nobody says any more that it lives
		registered(0)
		x.Get(operatorPath(e.ID, "explain") + "?worker_instance_id=" + able).Problem(fault.CodeWorkerNotRegistered)
		x.Get(operatorPath(e.ID, "explain") + "?worker_instance_id=nobody").Problem(fault.CodeWorkerNotRegistered)
	}},
	{"one that was lost too often: a claim only ends it", func(x *executionTest) {
		e, _ := x.lost(`"policy":{"max_reclaim_count":0}`)
		got, gates := x.explain(e.ID, "")
		if evidence := fromDocument[map[string]any](x.t, string(gates["phase"].Evidence)); !slices.Equal(unmet(got), []string{"phase"}) || evidence["lease_reclaim_count"] != 0.0 {
			x.t.Errorf("%+v %v", got, evidence)
		}
		x.none("")
		x.stands(e.ID, atFailed)
	}},
	{"several at once, each for itself", func(x *executionTest) {
		e := x.create(`"required_capabilities":["go"],"delay_ms":3600000`)
		x.turned("pause", "")
		got, _ := x.explain(e.ID, "?capability=linux")
		if diff := cmp.Diff([]string{"time", "lane", "capabilities"}, unmet(got)); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.turned("resume", "")
		x.advance(time.Hour)
		got, _ = x.explain(e.ID, "?capability=linux")
		if diff := cmp.Diff([]string{"capabilities"}, unmet(got)); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"a lost one, paused and required, as a takeover sees it", func(x *executionTest) {
		e, _ := x.lost(`"required_capabilities":["go"]`)
		if got, _ := x.explain(e.ID, "?capability=go"); !got.Claimable {
			x.t.Errorf("%+v", got)
		}
		g := x.reservedLost(e.ID, `"capabilities":["go"]`)
		got, gates := x.explain(e.ID, "?capability=go")
		if !slices.Equal(unmet(got), []string{"grant"}) || !gates["grant"].NextAt.Equal(g.ExpiresAt) {
			x.t.Errorf("%+v", got)
		}
		x.none(`"capabilities":["go"]`)
	}},
	{"asking changes nothing, and what is not there is not explained", func(x *executionTest) {
		e := x.create("")
		before := x.snapshot(e.ID)
		x.explain(e.ID, "")
		if diff := cmp.Diff(before, x.snapshot(e.ID)); diff != "" {
			x.t.Errorf("(-before +after):\n%s", diff)
		}
		x.Get(operatorPath(uuid.New(), "explain")).Problem(fault.CodeNotFound)
		x.Get("/v1/executions/7/explain").Problem(fault.CodeInvalidParameter)
	}},
}
