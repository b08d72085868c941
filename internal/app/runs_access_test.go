package app_test

import "net/http"

// runAccessRows are the operations on runs and gates.
var runAccessRows = []accessRow{
	{"createRun", operators, "flow", func(a *accessTest) accessCall {
		return asked(http.MethodPost, "/v1/runs", `{"workflow_name":"w","flow_id":"`+a.at("running").ID.String()+`"}`)
	}},
	{"listRuns", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/runs", nil) }},
	{"getRun", everybody, "run", func(a *accessTest) accessCall { return a.onRun("running", http.MethodGet, "", "") }},
	{"deleteRun", operators, "run", func(a *accessTest) accessCall { return a.onRun("completed", http.MethodDelete, "", "") }},
	{"startRun", workers, "run", func(a *accessTest) accessCall { return a.onRun("pending", http.MethodPost, "/start", fence(1)) }},
	{"waitRun", workers, "run", func(a *accessTest) accessCall {
		return a.onRun("running", http.MethodPost, "/wait", fence(1, blockedOn))
	}},
	{"resumeRun", workers, "run", func(a *accessTest) accessCall { return a.onRun("waiting", http.MethodPost, "/resume", fence(1)) }},
	{"completeRun", workers, "run", func(a *accessTest) accessCall { return a.onRun("running", http.MethodPost, "/complete", fence(1)) }},
	{"failRun", workers, "run", func(a *accessTest) accessCall {
		return a.onRun("running", http.MethodPost, "/fail", fence(1, `"error":"x"`))
	}},
	{"cancelRun", workers, "run", func(a *accessTest) accessCall { return a.onRun("running", http.MethodPost, "/cancel", fence(1)) }},
	{"dismissRun", operators, "run", func(a *accessTest) accessCall { return a.onRun("completed", http.MethodPost, "/dismiss", "") }},
	{"acquireRunLease", workers, "run", func(a *accessTest) accessCall {
		return a.onRun("running", http.MethodPost, "/lease", `"token":"`+engineToken+`","ttl_ms":60000`)
	}},
	{"releaseRunLease", workers, "run", func(a *accessTest) accessCall {
		return a.onRun("running", http.MethodPost, "/lease/release", fence(1, `"token":"`+engineToken+`"`))
	}},
	{"insertRunStep", workers, "run", func(a *accessTest) accessCall {
		return a.onRun("running", http.MethodPost, "/steps", fence(1, `"step_name":"s","role":"agent","position":0`))
	}},
	{"listRunSteps", everybody, "run", func(a *accessTest) accessCall { return a.onRun("running", http.MethodGet, "/steps", "") }},
	{"recoverRunSteps", operators, "run", func(a *accessTest) accessCall {
		return a.onRun("running", http.MethodPost, "/steps/recover", `"steps":[]`)
	}},
	{"getRunStep", everybody, "run", func(a *accessTest) accessCall { return a.onStep(http.MethodGet, "", "") }},
	{"patchRunStep", workers, "run", func(a *accessTest) accessCall {
		return a.onStep(http.MethodPatch, "", fence(1, `"status":"running"`))
	}},
	{"addRunItems", workers, "run", func(a *accessTest) accessCall {
		return a.onStep(http.MethodPost, "/items", fence(1, `"items":[{`+ticket("1")+`}]`))
	}},
	{"listRunItems", everybody, "run", func(a *accessTest) accessCall { return a.onStep(http.MethodGet, "/items", "") }},
	{"patchRunItems", workers, "run", func(a *accessTest) accessCall { return a.onStep(http.MethodPatch, "/items", fence(1, `"updates":[]`)) }},
	{"getGate", everybody, "run", func(a *accessTest) accessCall { return a.onGate(http.MethodGet, "", "") }},
	{"approveGate", operators, "run", func(a *accessTest) accessCall { return a.onGate(http.MethodPost, "/approve", "") }},
	{"rejectGate", operators, "run", func(a *accessTest) accessCall { return a.onGate(http.MethodPost, "/reject", "") }},
	{"noteGate", operators, "run", func(a *accessTest) accessCall { return a.onGate(http.MethodPost, "/feedback", `"feedback":"x"`) }},
	{"getGateToken", operators, "run", func(a *accessTest) accessCall { return a.onGate(http.MethodGet, "/token", "") }},
	{"listGates", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/gates", nil) }},
	{"getGateStats", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/gates/stats", nil) }},
	{"getTree", everybody, "tree", func(a *accessTest) accessCall {
		return asked(http.MethodGet, "/v1/tree/"+a.runs().running("").ID.String(), nil)
	}},
	{"purgeRuns", admins, "", func(*accessTest) accessCall {
		return asked(http.MethodPost, "/v1/admin/purge-runs", `{"statuses":[],"dry_run":true}`)
	}},
}

// runs returns the same test for runs.
func (a *accessTest) runs() *runTest { return &runTest{a.flowTest} }

// onRun is a call about a new run in a status, whose generation is 1; without members it has no body.
func (a *accessTest) onRun(status, method, part, members string) accessCall {
	a.t.Helper()
	return asked(method, runPath(a.runs().at(status).ID)+part, bodyOrNone(members))
}

func bodyOrNone(members string) any {
	if members == "" {
		return nil
	}
	return "{" + members + "}"
}

// onStep is a call about a new step, of a run whose generation is 1.
func (a *accessTest) onStep(method, part, members string) accessCall {
	a.t.Helper()
	x := a.runs()
	r := x.running("")
	return asked(method, stepPath(r, x.step(r, "").ID)+part, bodyOrNone(members))
}

// onGate is a call about a new gate, which is open.
func (a *accessTest) onGate(method, part, members string) accessCall {
	a.t.Helper()
	x := a.runs()
	r := x.running("")
	return asked(method, stepPath(r, x.gate(r, "").ID, "gate")+part, bodyOrNone(members))
}
