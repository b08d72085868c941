package executions

import (
	"strconv"
	"strings"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// variables returns a claim as assignments that a POSIX shell can eval: what is in them cannot become anything but a value.
func variables(c *execution.Claim) string {
	e := &c.Execution
	payload := string(document(e.Payload, e.PayloadEncoding))
	if payload == "" {
		payload = "null"
	}
	var b strings.Builder
	for _, v := range [][2]string{
		{"EXECUTION_ID", e.ID.String()},
		{"KIND", e.Kind},
		{"HANDLE", e.Fence().Handle()},
		{"ATTEMPT_INDEX", strconv.Itoa(e.AttemptIndex)},
		{"LEASE_EPOCH", strconv.FormatInt(e.Lease.Epoch, 10)},
		{"LEASE_EXPIRES_AT", wire.Time(e.Lease.ExpiresAt).String()},
		{"PAYLOAD", payload},
		{"INPUTS", "{}"},
	} {
		b.WriteString(v[0] + "='" + strings.ReplaceAll(v[1], "'", `'\''`) + "'\n")
	}
	return b.String()
}
