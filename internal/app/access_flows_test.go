package app_test

import (
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// flowAccessRows are the operations on flows, and what waits for people.
var flowAccessRows = []accessRow{
	{"createFlow", operators, "", func(*accessTest) accessCall { return asked(http.MethodPost, "/v1/flows", `{"goal":"x"}`) }},
	{"listFlows", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/flows", nil) }},
	{"getFlow", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.of("running"), nil) }},
	{"replaceFlow", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPut, a.of("created")+"?revision=0", `{"goal":"y"}`)
	}},
	{"patchFlow", operators, "flow", func(a *accessTest) accessCall { return asked(http.MethodPatch, a.of("running"), `{"state":{}}`) }},
	{"deleteFlow", operators, "flow", func(a *accessTest) accessCall { return asked(http.MethodDelete, a.of("finished"), nil) }},
	{"startFlow", operators, "flow", func(a *accessTest) accessCall { return asked(http.MethodPost, a.of("created", "start"), nil) }},
	{"waitFlow", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPost, a.of("running", "wait"), waitBody(manual))
	}},
	{"resumeFlow", operators, "flow", func(a *accessTest) accessCall { return asked(http.MethodPost, a.of("waiting", "resume"), nil) }},
	{"finishFlow", operators, "flow", func(a *accessTest) accessCall { return asked(http.MethodPost, a.of("running", "finish"), nil) }},
	{"failFlow", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPost, a.of("running", "fail"), `{"reason":"x"}`)
	}},
	{"requestCancelFlow", operators, "flow", func(a *accessTest) accessCall { return asked(http.MethodPost, a.of("running", "request-cancel"), nil) }},
	{"cancelFlow", operators, "flow", func(a *accessTest) accessCall { return asked(http.MethodPost, a.of("running", "cancel"), nil) }},
	{"getFlowCancellation", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.of("cancelled", "cancellation"), nil) }},
	{"ackFlowCancellation", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPost, a.of("cancelled", "cancellation", uuid.NewString(), "ack"), nil)
	}},
	{"replayFlow", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPost, a.of("finished", "replay"), `{"from":"failed"}`)
	}},
	{"buildFlowGraph", workers, "flow", func(a *accessTest) accessCall {
		return a.graph("graph", `"executions":[{"key":"x","lane":"idle"}]`)
	}},
	{"getFlowGraph", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.of("running", "graph"), nil) }},
	{"addFlowMember", workers, "flow", func(a *accessTest) accessCall { return a.graph("members", `"execution":{"lane":"idle"}`) }},
	{"stageFlowEdge", workers, "flow", func(a *accessTest) accessCall {
		f := a.create(`"graph":{"executions":[{"key":"a","lane":"edges"},{"key":"b","lane":"idle"}]}`)
		w := a.workers("edges")
		return asked(http.MethodPost, flowPath(f.ID, "edges"), fmt.Sprintf(`{"upstream_execution_id":"%s","downstream_execution_id":"%s","handle":"%s"}`,
			f.Graph.Executions["a"], f.Graph.Executions["b"], w.claim("").Handle))
	}},
	{"listFlowEdges", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.of("running", "edges"), nil) }},
	{"getFlowEdge", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.edge(""), nil) }},
	{"applyFlowEdge", operators, "flow", func(a *accessTest) accessCall { return asked(http.MethodPost, a.edge("/apply"), nil) }},
	{"setFlowEdgeGroup", operators, "flow", func(a *accessTest) accessCall {
		f := a.create(`"graph":{"executions":[{"key":"a","lane":"idle"}]}`)
		return asked(http.MethodPut, flowPath(f.ID, "edge-groups", f.Graph.Executions["a"].String()), `{"kind":"any_of"}`)
	}},
	{"listFlowEvents", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.of("running", "events"), nil) }},
	{"appendFlowEvent", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPost, a.of("running", "events"), `{"type":"custom.x"}`)
	}},
	{"streamFlowEvents", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.of("running", "events", "stream"), nil) }},
	{"listFlowSteps", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.of("running", "steps"), nil) }},
	{"insertFlowStep", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPost, a.of("running", "steps"), `{"run_id":"x","task":"x"}`)
	}},
	{"getFlowStep", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.withStep("r"), nil) }},
	{"observeFlowStep", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPut, a.withStep("x"), `{"task":"x","status":"running"}`)
	}},
	{"patchFlowStep", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPatch, a.withStep("r"), `{"status":"running"}`)
	}},
	{"listFlowTags", readers, "flow", func(a *accessTest) accessCall { return asked(http.MethodGet, a.of("running", "tags"), nil) }},
	{"getFlowTag", readers, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodGet, flowPath(a.create(`"tags":{"a.b":"c"}`).ID, "tags", "a.b"), nil)
	}},
	{"setFlowTag", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPut, a.of("running", "tags", "a.b"), `{"value":"c"}`)
	}},
	{"deliverExternalEvent", workers, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPost, "/v1/external-events", `{"topic":"t","correlation_id":"c","flow_id":"`+a.at("running").ID.String()+`"}`)
	}},
	{"listInbox", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/inbox", nil) }},
}

// of is the path of a new flow in a status, or of what belongs to it.
func (a *accessTest) of(status oapi.FlowStatus, parts ...string) string {
	a.t.Helper()
	return flowPath(a.at(status).ID, parts...)
}

// withStep is the path of a step of a new flow, which has the step r.
func (a *accessTest) withStep(runID string) string {
	a.t.Helper()
	f := a.at("running")
	a.insert(f.ID, `"run_id":"r"`).Want(http.StatusCreated)
	return flowPath(f.ID, "steps", runID)
}

// graph is a change to the graph of a flow by the worker of a member.
func (a *accessTest) graph(part, members string) accessCall {
	a.t.Helper()
	f := a.create(`"graph":{"executions":[{"key":"a","lane":"graphs"}]}`)
	return asked(http.MethodPost, flowPath(f.ID, part), "{"+members+`,"handle":"`+a.workers("graphs").claim("").Handle+`"}`)
}

// edge is the path of a new edge, or of what belongs to it.
func (a *accessTest) edge(part string) string {
	a.t.Helper()
	f := a.create(`"graph":{"executions":[{"key":"a","lane":"idle"},{"key":"b","lane":"idle","needs":["a"]}]}`)
	return flowPath(f.ID, "edges", a.Get(flowPath(f.ID, "edges")).Want(http.StatusOK).Str("items.0.edge_id")) + part
}
