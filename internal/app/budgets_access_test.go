package app_test

import "net/http"

// budgetAccessRows are the operations on budgets and quotas.
var budgetAccessRows = []accessRow{
	{"createBudget", operators, "", func(*accessTest) accessCall { return asked(http.MethodPost, "/v1/budgets", nil) }},
	{"listBudgets", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/budgets", nil) }},
	{"getBudget", readers, "budget", func(a *accessTest) accessCall { return a.onBudget(http.MethodGet, "", nil) }},
	{"patchBudget", operators, "budget", func(a *accessTest) accessCall { return a.onBudget(http.MethodPatch, "", `{"scope_id":"x"}`) }},
	{"deleteBudget", operators, "budget", func(a *accessTest) accessCall { return a.onBudget(http.MethodDelete, "", nil) }},
	{"reportUsage", workers, "budget", func(a *accessTest) accessCall {
		return a.onBudget(http.MethodPost, "/usage", `{"dimensions":{"tokens":1}}`)
	}},
	{"spendBudget", workers, "execution", func(a *accessTest) accessCall {
		return a.onBudget(http.MethodPost, "/spend", `{"dimensions":{"tokens":1},"execution_id":"`+a.workers("idle").create("").ID.String()+`"}`)
	}},
	{"releaseBudget", operators, "budget", func(a *accessTest) accessCall {
		return a.onBudget(http.MethodPost, "/release", `{"execution_id":"`+a.workers("idle").create("").ID.String()+`"}`)
	}},
	{"resetBudget", operators, "budget", func(a *accessTest) accessCall { return a.onBudget(http.MethodPost, "/reset", nil) }},
	{"topUpBudget", operators, "budget", func(a *accessTest) accessCall {
		return a.onBudget(http.MethodPost, "/topup", `{"dimensions":{"tokens":1}}`)
	}},
	{"listBudgetLedger", readers, "budget", func(a *accessTest) accessCall { return a.onBudget(http.MethodGet, "/ledger", nil) }},
	{"createQuota", operators, "", func(*accessTest) accessCall { return asked(http.MethodPost, "/v1/quotas", nil) }},
	{"listQuotas", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/quotas", nil) }},
	{"getQuota", readers, "quota", func(a *accessTest) accessCall { return a.onQuota(http.MethodGet, "", nil) }},
	{"deleteQuota", operators, "quota", func(a *accessTest) accessCall { return a.onQuota(http.MethodDelete, "", nil) }},
	{"admitExecution", operators, "quota", func(a *accessTest) accessCall {
		return a.onQuota(http.MethodPost, "/admissions", `{"execution_id":"`+a.workers("idle").create("").ID.String()+`"}`)
	}},
	{"listAdmissions", readers, "quota", func(a *accessTest) accessCall { return a.onQuota(http.MethodGet, "/admissions", nil) }},
	{"releaseAdmission", operators, "quota", func(a *accessTest) accessCall {
		return a.onQuota(http.MethodDelete, "/admissions/"+a.workers("idle").create("").ID.String(), nil)
	}},
	{"setLaneQuotas", operators, "", func(*accessTest) accessCall {
		return asked(http.MethodPut, "/v1/lanes/never", `{"quota_policy_ids":[]}`)
	}},
}

// onBudget is a request about a new budget.
func (a *accessTest) onBudget(method, part string, body any) accessCall {
	a.t.Helper()
	return asked(method, a.Post("/v1/budgets", `{"hard_limits":{"tokens":100}}`).Want(http.StatusCreated).Header.Get("Location")+part, body)
}

// onQuota is a request about a new quota.
func (a *accessTest) onQuota(method, part string, body any) accessCall {
	a.t.Helper()
	return asked(method, a.Post("/v1/quotas", `{"max_concurrent":1}`).Want(http.StatusCreated).Header.Get("Location")+part, body)
}
