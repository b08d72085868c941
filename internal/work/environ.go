package work

import (
	"slices"
	"strconv"
	"strings"

	"github.com/flowapi/flowapi/internal/client"
)

// environLimit is the longest value that is put into an environment: some systems take no more than twice as much.
const environLimit = 64 << 10

// environ returns the environment of the command of a claim. What an outer job may have left there is replaced or removed.
func (w *worker) environ(c *client.Claim, result, inputs string) []string {
	e := &c.Execution
	set := []struct{ name, value string }{
		{"FLOWAPI_URL", w.Client.URL},
		{"FLOWAPI_TOKEN", w.Client.Token},
		{"FLOWAPI_NAMESPACE", w.Client.Namespace},
		{"FLOWAPI_EXECUTION_ID", e.ID},
		{"FLOWAPI_FLOW_ID", e.FlowID},
		{"FLOWAPI_KEY", e.Key},
		{"FLOWAPI_KIND", e.Kind},
		{"FLOWAPI_LANE", e.Lane},
		{"FLOWAPI_WORKER_ID", w.WorkerID},
		{"FLOWAPI_ATTEMPT_INDEX", strconv.Itoa(c.Fence.AttemptIndex)},
		{"FLOWAPI_CLAIM_KIND", c.Kind},
		{"FLOWAPI_HANDLE", c.Handle},
		{"FLOWAPI_PAYLOAD", short(e.Payload)},
		{"FLOWAPI_PAYLOAD_ENCODING", e.PayloadEncoding},
		{"FLOWAPI_INPUTS", short(c.Inputs)},
		{"FLOWAPI_INPUTS_FILE", inputs},
		{"FLOWAPI_RESULT", result},
	}
	env := slices.DeleteFunc(slices.Clone(w.Environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.ContainsFunc(set, func(s struct{ name, value string }) bool { return s.name == name })
	})
	for _, s := range set {
		if s.value != "" {
			env = append(env, s.name+"="+s.value)
		}
	}
	return env
}

// short returns a document that fits into an environment, or nothing.
func short(document []byte) string {
	if len(document) > environLimit {
		return ""
	}
	return string(document)
}
