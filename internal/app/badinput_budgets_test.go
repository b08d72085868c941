package app_test

import (
	"encoding/json"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// ofBudgets are the cases that no schema knows of budgets and quotas.
func (w *badWorld) ofBudgets() []badCase {
	budget, quota := "/v1/budgets/"+w.params["budget_id"], "/v1/quotas/"+w.params["quota_id"]
	nobody := `"` + w.params["flow_id"] + `"` // neither a budget nor a quota nor an execution
	var all []badCase
	refused := func(operation, name, path, body string, code fault.Code, pointer string) {
		c := badCase{operation: operation, name: name, method: "POST", path: path, body: body, code: code, pointer: pointer}
		if pointer != "" {
			c.in = fault.InBody
		}
		all = append(all, c)
	}
	refused("createBudget", "a parent that is not there", "/v1/budgets", `{"parent_id":`+nobody+`}`, fault.CodeNotFound, "")
	refused("createBudget", "a dimension with a space", "/v1/budgets", `{"hard_limits":{"a b":1}}`, fault.CodeValidationFailed, "/hard_limits/a b")
	refused("createBudget", "a limit below 0", "/v1/budgets", `{"soft_limits":{"a":-1}}`, fault.CodeValidationFailed, "/soft_limits/a")
	refused("createBudget", "a limit beyond what is exact", "/v1/budgets", `{"hard_limits":{"a":9007199254740992}}`, fault.CodeValidationFailed, "/hard_limits/a")
	refused("createBudget", "an interval and a schedule", "/v1/budgets", `{"reset_interval_ms":1000,"schedule":{"cron":"@daily","time_zone":"UTC"}}`, fault.CodeValidationFailed, "/schedule")
	refused("createBudget", "a schedule that is none", "/v1/budgets", `{"schedule":{"cron":"often","time_zone":"UTC"}}`, fault.CodeValidationFailed, "/schedule/cron")
	refused("createBudget", "a schedule with seconds", "/v1/budgets", `{"schedule":{"cron":"0 0 0 * * *","time_zone":"UTC"}}`, fault.CodeValidationFailed, "/schedule/cron")
	refused("createBudget", "a schedule that never comes", "/v1/budgets", `{"schedule":{"cron":"0 0 30 2 *","time_zone":"UTC"}}`, fault.CodeValidationFailed, "/schedule/cron")
	refused("createBudget", "a time zone that is none", "/v1/budgets", `{"schedule":{"cron":"@daily","time_zone":"Nowhere/Town"}}`, fault.CodeValidationFailed, "/schedule/time_zone")
	for name, body := range map[string]string{"a dimension with a space": `{"hard_limits":{"a b":1}}`, "a dimension without a name": `{"hard_limits":{"":null}}`} {
		all = append(all, badCase{operation: "patchBudget", name: name, method: "PATCH", path: budget, body: body, code: fault.CodeValidationFailed})
	}
	refused("topUpBudget", "a dimension that has no limit", budget+"/topup", `{"dimensions":{"cents":1}}`, fault.CodeValidationFailed, "/dimensions/cents")
	refused("topUpBudget", "more than can be counted", budget+"/topup", `{"dimensions":{"tokens":9007199254740991}}`, fault.CodeOutOfRange, "/dimensions/tokens")
	refused("spendBudget", "an execution that is not there", budget+"/spend", `{"dimensions":{"tokens":1},"execution_id":`+nobody+`}`, fault.CodeNotFound, "")
	report := func(name, members string, code fault.Code, pointer string) {
		refused("reportUsage", name, budget+"/usage", `{"dimensions":{"tokens":1},`+members+`}`, code, pointer)
	}
	fence, _ := json.Marshal(w.mine.Fence)
	refused("reportUsage", "less than nothing", budget+"/usage", `{"dimensions":{"tokens":-1}}`, fault.CodeValidationFailed, "/dimensions/tokens")
	refused("reportUsage", "half of it", budget+"/usage", `{"dimensions":{"tokens":0.5}}`, fault.CodeValidationFailed, "/dimensions/tokens")
	refused("reportUsage", "a dimension with a slash", budget+"/usage", `{"dimensions":{"a/b":1}}`, fault.CodeValidationFailed, "/dimensions/a~1b")
	report("handle and fence", `"handle":"`+w.mine.Handle+`","fence":`+string(fence), fault.CodeValidationFailed, "/fence")
	report("a fence of nobody", `"fence":`+string(fence), fault.CodeValidationFailed, "/execution_id")
	report("a handle that is none", `"handle":"x"`, fault.CodeInvalidHandle, "")
	report("a handle of another execution", `"handle":"`+w.other.Handle+`","execution_id":"`+w.mine.Execution.ID.String()+`"`, fault.CodeInvalidHandle, "")
	report("an execution that is not there", `"execution_id":`+nobody, fault.CodeNotFound, "")
	refused("createQuota", "a tag's key", "/v1/quotas", `{"key_tag":"Team"}`, fault.CodeInvalidTagKey, "/key_tag")
	refused("admitExecution", "an execution that is not there", quota+"/admissions", `{"execution_id":`+nobody+`}`, fault.CodeNotFound, "")
	all = append(all,
		badCase{operation: "setLaneQuotas", name: "a quota that is not there", method: "PUT", path: "/v1/lanes/bad", body: `{"quota_policy_ids":[` + nobody + `]}`, code: fault.CodeNotFound},
		badCase{operation: "setLaneQuotas", name: "a quota twice", method: "PUT", path: "/v1/lanes/bad", body: `{"quota_policy_ids":[` + nobody + `,` + nobody + `]}`,
			code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/quota_policy_ids"})
	refused("createExecution", "a quota that is not there", "/v1/executions", `{"lane":"ci","quota_policy_ids":[`+nobody+`]}`, fault.CodeNotFound, "")
	refused("createExecution", "a budget twice", "/v1/executions", `{"lane":"ci","budget_ids":[`+nobody+`,`+nobody+`]}`, fault.CodeValidationFailed, "/budget_ids")
	refused("createExecution", "an estimate of another form", "/v1/executions", `{"lane":"ci","estimate":{"a b":1}}`, fault.CodeValidationFailed, "/estimate/a b")
	refused("createExecutions", "an estimate below 0", "/v1/executions/batch", `{"executions":[{"lane":"ci","estimate":{"a":-1}}]}`, fault.CodeValidationFailed, "/executions/0/estimate/a")
	return all
}
