package app_test

import (
	"net/http"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// executionAccessRows are the operations on executions, their leases and lanes.
var executionAccessRows = []accessRow{
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
