package app_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// rootToken is the admin token that the server is started with.
const rootToken = "root-token-of-the-tests"

// accessTest is a server that nobody may call without a token. Its flows are in the namespace red.
type accessTest struct {
	*flowTest
	tokens map[string]string // by role, of the namespace red
}

// accessCall is a request that succeeds for whom it is allowed.
type accessCall struct {
	method, path string
	body         any
	headers      []string
}

// accessRow is one operation: who may call it, and how.
type accessRow struct {
	operation string
	roles     string // beside admin
	hidden    string // what of another namespace it is about, which is not found; "" for nothing
	call      func(a *accessTest) accessCall
}

const (
	readers   = "viewer operator"
	operators = "operator"
	workers   = "worker operator"
	everybody = "viewer worker operator"
	admins    = ""
	roots     = "*" // admins of all namespaces
)

func asked(method, path string, body any) accessCall {
	return accessCall{method: method, path: path, body: body}
}

// accessRows is every operation of the contract.
var accessRows = slices.Concat([]accessRow{
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
	{"createExecution", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPost, "/v1/executions", `{"lane":"idle",`+of(a.at("running").ID)+`}`)
	}},
	{"createExecutions", operators, "", func(*accessTest) accessCall {
		return asked(http.MethodPost, "/v1/executions/batch", `{"executions":[{"lane":"idle"}]}`)
	}},
	{"createExecutionFromOctets", operators, "", func(*accessTest) accessCall {
		return accessCall{http.MethodPost, "/v1/executions/octets?lane=idle", []byte{0}, []string{"Content-Type: application/octet-stream"}}
	}},
	{"listExecutions", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/executions", nil) }},
	{"getExecution", everybody, "execution", func(a *accessTest) accessCall { return asked(http.MethodGet, a.execution(""), nil) }},
	{"getExecutionState", everybody, "execution", func(a *accessTest) accessCall { return asked(http.MethodGet, a.execution("/state"), nil) }},
	{"getExecutionResult", everybody, "execution", func(a *accessTest) accessCall {
		c := a.claimed()
		a.workers("busy").report(c, "complete", `"result":1`).Want(http.StatusOK)
		return asked(http.MethodGet, "/v1/executions/"+c.Execution.ID.String()+"/result", nil)
	}},
	{"getExecutionPayload", everybody, "execution", func(a *accessTest) accessCall { return asked(http.MethodGet, a.execution("/payload"), nil) }},
	{"getExecutionContext", everybody, "execution", func(a *accessTest) accessCall { return asked(http.MethodGet, a.execution("/context"), nil) }},
	{"countExecutions", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/executions/counts", nil) }},
	{"startBulk", operators, "", func(*accessTest) accessCall {
		return asked(http.MethodPost, "/v1/executions/bulk", `{"action":"cancel","filter":{"lane":"nothing"}}`)
	}},
	{"getBulk", readers, "bulk job", func(a *accessTest) accessCall { return asked(http.MethodGet, a.bulk(""), nil) }},
	{"stopBulk", operators, "bulk job", func(a *accessTest) accessCall { return asked(http.MethodPost, a.bulk("/stop"), nil) }},
	{"operatorCancelExecution", operators, "execution", func(a *accessTest) accessCall {
		return asked(http.MethodPost, a.execution("/operator-cancel"), `{"reason":"x"}`)
	}},
	{"revokeLease", operators, "execution", func(a *accessTest) accessCall {
		return asked(http.MethodPost, "/v1/executions/"+a.claimed().Execution.ID.String()+"/revoke-lease", nil)
	}},
	{"setExecutionPriority", operators, "execution", func(a *accessTest) accessCall {
		return asked(http.MethodPut, a.execution("/priority"), `{"priority":1}`)
	}},
	{"replayExecution", operators, "execution", func(a *accessTest) accessCall {
		c := a.claimed()
		a.workers("busy").report(c, "complete", "").Want(http.StatusOK)
		return asked(http.MethodPost, "/v1/executions/"+c.Execution.ID.String()+"/replay", nil)
	}},
	{"resumeExecution", operators, "execution", func(a *accessTest) accessCall {
		c := a.claimed()
		a.workers("busy").report(c, "wait-children", "").Want(http.StatusOK)
		return asked(http.MethodPost, "/v1/executions/"+c.Execution.ID.String()+"/resume", nil)
	}},
	{"operatorClaimExecution", operators, "execution", func(a *accessTest) accessCall { return asked(http.MethodPost, a.execution("/operator-claim"), nil) }},
	{"explainExecution", everybody, "execution", func(a *accessTest) accessCall { return asked(http.MethodGet, a.execution("/explain"), nil) }},
	{"listExecutionTags", everybody, "execution", func(a *accessTest) accessCall { return asked(http.MethodGet, a.execution("/tags"), nil) }},
	{"getExecutionTag", everybody, "execution", func(a *accessTest) accessCall {
		e := a.workers("idle").create(`"tags":{"a.b":"c"}`)
		return asked(http.MethodGet, "/v1/executions/"+e.ID.String()+"/tags/a.b", nil)
	}},
	{"setExecutionTag", operators, "execution", func(a *accessTest) accessCall {
		return asked(http.MethodPut, a.execution("/tags/a.b"), `{"value":"c"}`)
	}},
	{"listAttempts", everybody, "execution", func(a *accessTest) accessCall { return asked(http.MethodGet, a.execution("/attempts"), nil) }},
	{"claimExecutions", workers, "", func(*accessTest) accessCall {
		return asked(http.MethodPost, "/v1/claims", `{"lane":"nothing","worker_id":"w"}`)
	}},
	{"renewExecution", workers, "execution", func(a *accessTest) accessCall { return a.report("renew", "") }},
	{"reportProgress", workers, "execution", func(a *accessTest) accessCall { return a.report("progress", `,"pct":1`) }},
	{"completeExecution", workers, "execution", func(a *accessTest) accessCall { return a.report("complete", "") }},
	{"failExecution", workers, "execution", func(a *accessTest) accessCall { return a.report("fail", `,"reason":"x"`) }},
	{"releaseExecution", workers, "execution", func(a *accessTest) accessCall { return a.report("release", "") }},
	{"delayExecution", workers, "execution", func(a *accessTest) accessCall { return a.report("delay", `,"delay_ms":3600000`) }},
	{"waitForChildren", workers, "execution", func(a *accessTest) accessCall { return a.report("wait-children", "") }},
	{"cancelHeldExecution", workers, "execution", func(a *accessTest) accessCall { return a.report("cancel", "") }},
	{"suspendExecution", workers, "execution", func(a *accessTest) accessCall { return a.report("suspend", ","+waitForGo) }},
	{"createWaitpoint", workers, "execution", func(a *accessTest) accessCall { return a.report("waitpoints", `,"waitpoint_key":"k"`) }},
	{"listWaitpoints", everybody, "execution", func(a *accessTest) accessCall { return asked(http.MethodGet, a.execution("/waitpoints"), nil) }},
	{"getWaitpointToken", operators, "execution", func(a *accessTest) accessCall {
		c, w := a.prepared()
		return asked(http.MethodGet, operatorPath(c.Execution.ID, "waitpoints/"+w.WaitpointID.String()+"/token"), nil)
	}},
	{"closeWaitpoint", workers, "execution", func(a *accessTest) accessCall {
		c, w := a.prepared()
		return asked(http.MethodPost, operatorPath(c.Execution.ID, "waitpoints/"+w.WaitpointID.String()+"/close"), `{"handle":"`+c.Handle+`"}`)
	}},
	{"deliverSignal", everybody, "execution", func(a *accessTest) accessCall {
		c, w := a.prepared()
		return asked(http.MethodPost, operatorPath(c.Execution.ID, "signals"), `{"waitpoint_id":"`+w.WaitpointID.String()+`","token":"`+w.Token+`","signal_name":"go"}`)
	}},
	{"listSignals", everybody, "execution", func(a *accessTest) accessCall { return asked(http.MethodGet, a.execution("/signals"), nil) }},
	{"decideApproval", operators, "execution", func(a *accessTest) accessCall {
		c, w := a.prepared()
		return asked(http.MethodPost, operatorPath(c.Execution.ID, "approvals"), `{"waitpoint_id":"`+w.WaitpointID.String()+`","decision":"approved"}`)
	}},
	{"grantClaim", workers, "", func(*accessTest) accessCall {
		return asked(http.MethodPost, "/v1/workers/w/claim-grants", `{"lane":"nothing","worker_instance_id":"w","grant_ttl_ms":1000}`)
	}},
	{"claimGranted", workers, "execution", func(a *accessTest) accessCall {
		w := a.workers("granted")
		w.create("")
		return a.use(w.reserved(`"grant_ttl_ms":60000`), "claim")
	}},
	{"grantReclaim", workers, "execution", func(a *accessTest) accessCall {
		return asked(http.MethodPost, a.revoked()+"/reclaim-grants", `{"worker_id":"w1","worker_instance_id":"w1","grant_ttl_ms":60000}`)
	}},
	{"reclaimGranted", workers, "execution", func(a *accessTest) accessCall {
		path := a.revoked()
		answer := a.Post(path+"/reclaim-grants", `{"worker_id":"w1","worker_instance_id":"w1","grant_ttl_ms":60000}`).Want(http.StatusOK)
		return a.use(answerAs[oapi.Grant](answer), "reclaim")
	}},
	{"listLeases", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/leases", nil) }},
	{"listLanes", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/lanes", nil) }},
	{"pauseLane", operators, "", func(*accessTest) accessCall { return asked(http.MethodPost, "/v1/lanes/never/pause", nil) }},
	{"resumeLane", operators, "", func(*accessTest) accessCall { return asked(http.MethodPost, "/v1/lanes/never/resume", nil) }},
	{"appendFrames", workers, "execution", func(a *accessTest) accessCall { return a.report("frames", `,"frames":[{"payload":"x"}]`) }},
	{"readStream", everybody, "execution", func(a *accessTest) accessCall {
		return asked(http.MethodGet, streamPath(a.claimed().Execution.ID, 0, "?limit=10"), nil)
	}},
	{"tailStream", everybody, "execution", func(a *accessTest) accessCall {
		return asked(http.MethodGet, streamPath(a.claimed().Execution.ID, 0, "/tail"), nil)
	}},
	{"readSummary", everybody, "execution", func(a *accessTest) accessCall {
		c := a.claimed()
		a.workers("busy").append(c, `"payload":"{}","mode":"summary"`)
		return asked(http.MethodGet, "/v1/executions/"+c.Execution.ID.String()+"/attempts/0/summary", nil)
	}},
	{"completeExecutions", workers, "", func(a *accessTest) accessCall {
		c := a.claimed()
		return asked(http.MethodPost, "/v1/completions", `{"items":[{"execution_id":"`+c.Execution.ID.String()+`","handle":"`+c.Handle+`"}]}`)
	}},
	{"listEvents", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/events", nil) }},
	{"streamEvents", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/events/stream", nil) }},
	{"subscribeCompletions", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/completions", nil) }},
	{"subscribeLeases", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/leases", nil) }},
	{"subscribeSignals", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/signals", nil) }},
	{"subscribeOperator", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/operator", nil) }},
	{"subscribeInstanceTags", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/instance-tags", nil) }},
	{"listWorkers", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/workers", nil) }},
	{"registerWorker", workers, "", func(*accessTest) accessCall {
		return asked(http.MethodPut, workersPath(uuid.NewString()), accessRegistration)
	}},
	{"heartbeatWorker", workers, "", func(a *accessTest) accessCall { return asked(http.MethodPost, a.registered()+"/heartbeat", nil) }},
	{"drainWorker", operators, "", func(a *accessTest) accessCall { return asked(http.MethodPost, a.registered()+"/drain", nil) }},
	{"removeWorker", workers, "", func(a *accessTest) accessCall { return asked(http.MethodDelete, a.registered(), nil) }},
	{"prune", admins, "", func(*accessTest) accessCall { return asked(http.MethodPost, "/v1/admin/prune", `{"dry_run":true}`) }},
	{"listTokens", admins, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/admin/tokens", nil) }},
	{"createToken", admins, "", func(*accessTest) accessCall {
		return asked(http.MethodPost, "/v1/admin/tokens", `{"name":"x","role":"viewer"}`)
	}},
	{"revokeToken", admins, "token", func(a *accessTest) accessCall {
		return asked(http.MethodDelete, "/v1/admin/tokens/"+a.Post("/v1/admin/tokens", `{"name":"x","role":"viewer","namespace":"red"}`).Want(http.StatusCreated).Str("token_id"), nil)
	}},
	{"listWaitpointSecrets", roots, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/admin/waitpoint-secrets", nil) }},
	{"seedWaitpointSecret", roots, "", func(a *accessTest) accessCall {
		return asked(http.MethodPost, "/v1/admin/waitpoint-secrets", `{"kid":"`+a.As(rootToken).Get("/v1/admin/waitpoint-secrets").Want(http.StatusOK).Str("current_kid")+`"}`)
	}},
	{"rotateWaitpointSecret", roots, "", func(*accessTest) accessCall {
		return asked(http.MethodPost, "/v1/admin/waitpoint-secrets/rotate", nil)
	}},
	{"getMeta", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/meta", nil) }},
}, runAccessRows, budgetAccessRows)

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

const accessRegistration = `{"worker_id":"w","lanes":[],"capabilities":[],"liveness_ttl_ms":86400000}`

// registered is the path of a new worker.
func (a *accessTest) registered() string {
	a.t.Helper()
	path := workersPath(uuid.NewString())
	a.Do(http.MethodPut, path, accessRegistration).Want(http.StatusCreated)
	return path
}

// execution is the path of a part of a new execution.
func (a *accessTest) execution(part string) string {
	a.t.Helper()
	return "/v1/executions/" + a.workers("idle").create("").ID.String() + part
}

// claimed is a new execution in the hands of a worker.
func (a *accessTest) claimed() oapi.Claim {
	a.t.Helper()
	w := a.workers("busy")
	w.create("")
	return w.claim("")
}

// prepared is a new execution in the hands of a worker, which has made a waitpoint.
func (a *accessTest) prepared() (oapi.Claim, oapi.MintedWaitpoint) {
	a.t.Helper()
	c := a.claimed()
	return c, answerAs[oapi.MintedWaitpoint](a.workers("busy").report(c, "waitpoints", `"waitpoint_key":"k"`).Want(http.StatusCreated))
}

// revoked is the path of a new execution whose owner has lost it.
func (a *accessTest) revoked() string {
	a.t.Helper()
	path := "/v1/executions/" + a.claimed().Execution.ID.String()
	a.Post(path+"/revoke-lease", nil).Want(http.StatusOK)
	return path
}

// use is the use of a grant.
func (a *accessTest) use(g oapi.Grant, op string) accessCall {
	a.t.Helper()
	return asked(http.MethodPost, operatorPath(g.ExecutionID, op), `{"grant_id":"`+g.GrantID.String()+`","worker_id":"w1","worker_instance_id":"w1"}`)
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

// bulk is the path of a new bulk job, or of what belongs to it.
func (a *accessTest) bulk(part string) string {
	a.t.Helper()
	path := a.Post("/v1/executions/bulk", `{"action":"cancel","filter":{"lane":"nothing"}}`).Want(http.StatusAccepted).Header.Get("Location")
	a.server.Advance(0) // it has ended
	return path + part
}

func (a *accessTest) report(verb, more string) accessCall {
	a.t.Helper()
	c := a.claimed()
	return asked(http.MethodPost, "/v1/executions/"+c.Execution.ID.String()+"/"+verb, `{"handle":"`+c.Handle+`"`+more+`}`)
}

// accessDatabases runs fn on servers that have an admin token.
func accessDatabases(t *testing.T, fn func(t *testing.T, a *accessTest)) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Start(t, url, func(c *app.Config) { c.Token = rootToken })
		x := flowsOn(t, s, "red")
		x.Client = x.As(rootToken)
		fn(t, &accessTest{flowTest: x, tokens: map[string]string{}})
	})
}

// token makes a token and returns its secret.
func (a *accessTest) token(role, namespace string, more ...string) string {
	a.t.Helper()
	members := joined(append([]string{fmt.Sprintf(`"name":"%s of %s","role":%q,"namespace":%q`, role, namespace, role, namespace)}, more...)...)
	return a.Post("/v1/admin/tokens", "{"+members+"}").Want(http.StatusCreated).Str("token")
}

// on returns the same test, reporting to a subtest.
func (a *accessTest) on(t *testing.T) *accessTest {
	t.Helper()
	x := *a.flowTest
	x.t, x.Client = t, a.For(t)
	return &accessTest{flowTest: &x, tokens: a.tokens}
}

// TestAccess_Roles: each operation, with each role, in each namespace. engine.md "Security"; http.md "Namespace", codes 401, 403
// and 404; C5 NT-06, 07 and 16; D5 46.
func TestAccess_Roles(t *testing.T) {
	t.Parallel()
	accessDatabases(t, func(t *testing.T, a *accessTest) {
		for _, role := range []string{"viewer", "worker", "operator", "admin"} {
			a.tokens[role] = a.token(role, "red")
		}
		a.tokens["foreign"] = a.token("admin", "blue")
		for _, row := range accessRows {
			t.Run(row.operation, func(t *testing.T) { a.on(t).row(row) })
		}
		a.covers()
	})
}

func (a *accessTest) row(row accessRow) {
	a.t.Helper()
	c := row.call(a)
	before := countRows(a.t, a.server)
	unauthenticated := a.request("", c).Problem(fault.CodeUnauthenticated)
	if unauthenticated.Header.Get("WWW-Authenticate") != "Bearer" {
		a.t.Errorf("%v", unauthenticated.Header)
	}
	for _, role := range []string{"viewer", "worker", "operator"} {
		if slices.Contains(strings.Fields(row.roles), role) {
			continue
		}
		needs, _, _ := strings.Cut(row.roles, " ")
		if needs == "" || row.roles == roots {
			needs = "admin"
		}
		a.facts(a.request(a.tokens[role], c).Problem(fault.CodeForbidden), map[string]any{"required_role": needs})
	}
	for _, headers := range [][]string{{"Flowapi-Namespace: red"}, nil} {
		named := c
		if headers == nil {
			named.path = withQuery(c.path, "namespace=red")
		}
		a.facts(a.request(a.tokens["foreign"], named, headers...).Problem(fault.CodeForbidden), map[string]any{"namespace": "blue"})
	}
	if row.hidden != "" {
		answer := a.request(a.tokens["foreign"], c).Problem(fault.CodeNotFound)
		a.facts(answer, map[string]any{"resource": row.hidden})
	}
	if row.roles == roots {
		a.facts(a.request(a.tokens["admin"], c).Problem(fault.CodeForbidden), map[string]any{"required_role": "admin"})
	}
	if diff := cmp.Diff(before, countRows(a.t, a.server)); diff != "" {
		a.t.Errorf("refused, and yet something was changed (-before +after):\n%s", diff)
	}
	if row.roles == roots {
		a.succeeds(rootToken, c)
		return
	}
	a.succeeds(a.tokens["admin"], c)
	for role := range strings.FieldsSeq(row.roles) {
		a.succeeds(a.tokens[role], row.call(a))
	}
}

func withQuery(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}

// limited is a test that does not wait for an answer for ever: that of a stream which should have been refused has no end.
type limited struct {
	testing.TB
	ctx context.Context
}

// Context implements testing.TB.
func (l limited) Context() context.Context { return l.ctx }

// request sends a request with a bearer token; "" is none.
func (a *accessTest) request(token string, c accessCall, headers ...string) *apitest.Response {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Second)
	defer cancel()
	return a.server.For(limited{a.t, ctx}).As(token).Do(c.method, c.path, c.body, append(slices.Clone(c.headers), headers...)...)
}

// succeeds checks that a request is answered with success. A stream is hung up when it has begun.
func (a *accessTest) succeeds(token string, c accessCall) {
	a.t.Helper()
	if strings.HasSuffix(c.path, "/stream") || strings.Contains(c.path, "/subscriptions/") {
		a.server.For(a.t).As(token).Stream(c.path).Close()
		return
	}
	if answer := a.request(token, c); answer.Status >= 300 {
		a.t.Errorf("%s %s = %d %s", c.method, c.path, answer.Status, answer.Body)
	}
}

// covers checks that the table has every operation of the contract, with the roles that it names there, and that its requests
// are of the operations that they say.
func (a *accessTest) covers() {
	a.t.Helper()
	spec, err := oapi.Spec()
	if err != nil {
		a.t.Fatal(err)
	}
	rows := map[string]accessRow{}
	for _, row := range accessRows {
		rows[row.operation] = row
	}
	parameter := regexp.MustCompile(`\{\w+\}`)
	for path, item := range spec.Paths.Map() {
		for method, declared := range item.Operations() {
			row, ok := rows[declared.OperationID]
			if !ok {
				a.t.Errorf("%s is never called", declared.OperationID)
				continue
			}
			delete(rows, declared.OperationID)
			c := row.call(a)
			called, _, _ := strings.Cut(c.path, "?")
			if pattern := "^" + parameter.ReplaceAllString(path, "[^/]+") + "$"; c.method != method || !regexp.MustCompile(pattern).MatchString(called) {
				a.t.Errorf("%s is called as %s %s", declared.OperationID, c.method, c.path)
			}
			var roles []string
			for _, role := range declared.Extensions["x-roles"].([]any) { //nolint:forcetypeassert // a panic fails the test
				roles = append(roles, fmt.Sprint(role))
			}
			if !slices.Contains(roles, "operator") && !slices.Contains(roles, "admin") {
				roles = append(roles, "operator") // may do what viewers and workers may
			}
			slices.Sort(roles)
			want := strings.Fields(row.roles)
			if row.roles == admins || row.roles == roots {
				want = []string{"admin"}
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, roles); diff != "" {
				a.t.Errorf("roles of %s (-table +contract):\n%s", declared.OperationID, diff)
			}
		}
	}
	for name := range rows {
		a.t.Errorf("%s is not in the contract", name)
	}
}

// TestAccess_Tokens: the life of a token.
func TestAccess_Tokens(t *testing.T) {
	t.Parallel()
	accessDatabases(t, func(t *testing.T, a *accessTest) {
		for name, run := range map[string]func(a *accessTest){
			"made, listed, used, revoked":                                             (*accessTest).life,
			"it expires by the server's clock":                                        (*accessTest).expires,
			"under an Idempotency-Key it is made once, and its secret not told again": (*accessTest).madeOnce,
			"an admin of one namespace has its tokens only":                           (*accessTest).namespaces,
		} {
			t.Run(name, func(t *testing.T) { run(a.on(t)) })
		}
	})
}

func (a *accessTest) life() {
	expiry := a.now().Add(time.Hour)
	made := a.Post("/v1/admin/tokens", `{"name":"builder","role":"worker","namespace":"red","expires_at":`+spelled(expiry)+`}`).Want(http.StatusCreated)
	got := flowAs[oapi.CreatedToken](made)
	secret := *got.Token
	if got.Name != "builder" || got.Role != "worker" || got.Namespace != "red" || !strings.HasPrefix(secret, got.Prefix) || len(got.Prefix) >= len(secret)/2 ||
		!got.ExpiresAt.Time().Equal(expiry) || made.Header.Get("Location") != "/v1/admin/tokens/"+got.TokenID.String() {
		a.t.Errorf("%v %s", made.Header, made.Body)
	}
	want := oapi.Token{TokenID: got.TokenID, Name: "builder", Role: "worker", Namespace: "red", Prefix: got.Prefix, CreatedAt: got.CreatedAt, ExpiresAt: got.ExpiresAt}
	listed, raw := a.listed(got.TokenID)
	if diff := cmp.Diff(want, listed); diff != "" || bytes.Contains(raw, []byte(secret)) {
		a.t.Errorf("listed %s (-want +got):\n%s", raw, diff)
	}
	worker := a.server.For(a.t).As(secret)
	worker.Post("/v1/claims", `{"lane":"idle-of-tokens","worker_id":"w"}`).Want(http.StatusNoContent)
	for _, bad := range []string{secret[:len(secret)-1], secret + "0", strings.ToUpper(secret), got.Prefix, got.Prefix + "x", got.TokenID.String(), " "} {
		a.server.For(a.t).With("Authorization: Bearer " + bad).Get("/v1/meta").Problem(fault.CodeUnauthenticated)
	}
	for range 2 { // it may be repeated
		a.Do(http.MethodDelete, "/v1/admin/tokens/"+got.TokenID.String(), nil).Want(http.StatusNoContent)
		worker.Get("/v1/meta").Problem(fault.CodeUnauthenticated)
	}
	if listed, _ := a.listed(got.TokenID); listed.RevokedAt == nil || listed.RevokedAt.Time().Before(listed.CreatedAt.Time()) {
		a.t.Errorf("%+v", listed)
	}
	a.facts(a.Do(http.MethodDelete, "/v1/admin/tokens/"+uuid.NewString(), nil).Problem(fault.CodeNotFound), map[string]any{"resource": "token"})
	events := a.Get("/v1/events?topic=admin&limit=500").Want(http.StatusOK)
	var types []string
	for _, e := range flowAs[oapi.EventList](events).Items {
		if data := docAs[map[string]any](a.t, e.Data); data["token_id"] == got.TokenID.String() {
			types = append(types, e.Type)
		}
	}
	if !slices.Equal(types, []string{"token.created", "token.revoked"}) || bytes.Contains(events.Body, []byte(secret)) {
		a.t.Errorf("the log has %v: %s", types, events.Body)
	}
	a.nowhereKept(secret)
}

// listed returns a token as the list shows it, and the list itself.
func (a *accessTest) listed(id uuid.UUID) (oapi.Token, []byte) {
	a.t.Helper()
	answer := a.Get("/v1/admin/tokens?limit=500").Want(http.StatusOK)
	items := flowAs[oapi.TokenList](answer).Items
	i := slices.IndexFunc(items, func(t oapi.Token) bool { return t.TokenID == id })
	if i < 0 {
		a.t.Fatalf("%s is not listed: %s", id, answer.Body)
	}
	return items[i], answer.Body
}

// nowhereKept looks for a secret in the rows that could have it.
func (a *accessTest) nowhereKept(secret string) {
	a.t.Helper()
	var kept [][]byte
	err := a.server.App.Store().Read(a.t.Context(), func(q *store.Queries) error {
		for _, query := range []string{`SELECT body FROM idempotency_keys WHERE body IS NOT NULL`, `SELECT hash FROM tokens`} {
			var found [][]byte
			if err := q.Select(&found, query); err != nil {
				return err
			}
			kept = append(kept, found...)
		}
		for _, query := range []string{`SELECT data FROM events`, `SELECT prefix FROM tokens`} {
			var found []string
			if err := q.Select(&found, query); err != nil {
				return err
			}
			for _, text := range found {
				kept = append(kept, []byte(text))
			}
		}
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, row := range kept {
		if bytes.Contains(row, []byte(secret)) {
			a.t.Errorf("the secret is kept in %s", row)
		}
	}
}

func (a *accessTest) expires() {
	expiry := a.now().Add(time.Hour)
	secret := a.token("viewer", "red", `"expires_at":`+spelled(expiry))
	viewer := a.server.For(a.t).As(secret)
	viewer.Get("/v1/meta").Want(http.StatusOK)
	a.reach(expiry.Add(-10 * time.Minute))
	viewer.Get("/v1/meta").Want(http.StatusOK)
	a.reach(expiry)
	viewer.Get("/v1/meta").Problem(fault.CodeUnauthenticated)
	for _, at := range []time.Time{a.now().Add(-time.Second), a.now()} {
		a.Post("/v1/admin/tokens", `{"name":"x","role":"viewer","expires_at":`+spelled(at)+`}`).Problem(fault.CodeTimerOutOfRange)
	}
}

func (a *accessTest) madeOnce() {
	key, body := "Idempotency-Key: token", `{"name":"once","role":"operator","namespace":"red"}`
	first := a.Post("/v1/admin/tokens", body, key).Want(http.StatusCreated)
	secret := first.Str("token")
	again := a.same(func() *apitest.Response { return a.Post("/v1/admin/tokens", body, key) }).Want(http.StatusCreated)
	want := first.JSON()
	want["token"] = nil
	if diff := cmp.Diff(want, again.JSON()); diff != "" || again.Header.Get("Idempotent-Replay") != "true" {
		a.t.Errorf("%v (-want +got):\n%s", again.Header, diff)
	}
	a.server.For(a.t).As(secret).Get("/v1/flows").Want(http.StatusOK)
	a.nowhereKept(secret)
}

func (a *accessTest) namespaces() {
	f := a.at("running")
	everywhere := a.server.For(a.t).As(a.token("operator", "*"))
	everywhere.Get(flowPath(f.ID)).Problem(fault.CodeNotFound) // it is not in the namespace default
	everywhere.Get(flowPath(f.ID) + "?namespace=red").Want(http.StatusOK)
	everywhere.In("red").Post(flowPath(f.ID, "finish"), nil).Want(http.StatusOK)
	if n := everywhere.In("blue").Get("/v1/flows").Want(http.StatusOK).Len("items"); n != 0 {
		a.t.Errorf("blue has %d flows", n)
	}
	red, blue := a.server.For(a.t).As(a.token("admin", "red")), a.server.For(a.t).As(a.token("admin", "blue"))
	of := func(c *apitest.Client) map[string]bool {
		found := map[string]bool{}
		for _, t := range flowAs[oapi.TokenList](c.Get("/v1/admin/tokens?limit=500").Want(http.StatusOK)).Items {
			found[t.Namespace] = true
		}
		return found
	}
	if diff := cmp.Diff(map[string]bool{"red": true}, of(red)); diff != "" {
		a.t.Errorf("red sees (-want +got):\n%s", diff)
	}
	mine := red.Post("/v1/admin/tokens", `{"name":"x","role":"viewer"}`).Want(http.StatusCreated)
	if mine.Str("namespace") != "red" {
		a.t.Errorf("%s", mine.Body)
	}
	for _, other := range []string{"blue", "*"} {
		a.refused(fault.CodeForbidden, func() *apitest.Response {
			return red.Post("/v1/admin/tokens", `{"name":"x","role":"viewer","namespace":"`+other+`"}`)
		})
	}
	path := "/v1/admin/tokens/" + mine.Str("token_id")
	a.refused(fault.CodeNotFound, func() *apitest.Response { return blue.Do(http.MethodDelete, path, nil) })
	red.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
}

// TestAccess_Anonymous: while there is no admin token, a caller on this machine needs none; after the first one, everybody does.
func TestAccess_Anonymous(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		s.Post("/v1/admin/tokens", `{"name":"v","role":"viewer"}`).Want(http.StatusCreated)
		f := s.Post("/v1/flows", `{"goal":"x"}`, "Flowapi-Namespace: red").Want(http.StatusCreated)
		if f.Str("namespace") != "red" || s.Get("/v1/flows?namespace=red").Want(http.StatusOK).Len("items") != 1 || s.Get("/v1/flows").Want(http.StatusOK).Len("items") != 0 {
			t.Errorf("%s", f.Body)
		}
		s.Get("/v1/meta", "X-Forwarded-For: 192.0.2.7").Problem(fault.CodeUnauthenticated)
		s.Get("/v1/meta", "Forwarded: for=192.0.2.7").Problem(fault.CodeUnauthenticated)

		made := s.Post("/v1/admin/tokens", `{"name":"first","role":"admin","namespace":"*","expires_at":`+spelled(s.Clock.Now().Add(time.Hour))+`}`).Want(http.StatusCreated)
		s.Get("/v1/meta").Problem(fault.CodeUnauthenticated)
		admin := s.As(made.Str("token"))
		admin.Get("/v1/flows/" + f.Str("id") + "?namespace=red").Want(http.StatusOK)
		e := admin.Get("/v1/events?type=token.created&limit=500").Want(http.StatusOK)
		if e.Str("items.0.actor") != "local" {
			t.Errorf("%s", e.Body)
		}
		second := admin.Post("/v1/admin/tokens", `{"name":"second","role":"admin","namespace":"*"}`).Want(http.StatusCreated)
		told := flowAs[oapi.EventList](admin.Get("/v1/events?type=token.created&limit=500").Want(http.StatusOK)).Items
		if told[len(told)-1].Actor != "token:first" {
			t.Errorf("%+v", told)
		}
		s.Advance(2 * time.Hour) // the first has expired
		admin.Get("/v1/meta").Problem(fault.CodeUnauthenticated)
		s.As(second.Str("token")).Do(http.MethodDelete, "/v1/admin/tokens/"+second.Str("token_id"), nil).Want(http.StatusNoContent)
		s.As(second.Str("token")).Get("/v1/meta").Problem(fault.CodeUnauthenticated)
		s.Get("/v1/meta").Problem(fault.CodeUnauthenticated) // what was closed does not open by itself
		for _, page := range []string{"/livez", "/readyz", "/openapi.json", "/problems", "/metrics"} {
			s.Get(page).Want(http.StatusOK)
		}
	})
}
