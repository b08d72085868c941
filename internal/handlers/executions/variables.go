package executions

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// variables returns a claim as assignments that a POSIX shell can eval: what is in them cannot become anything but a value.
// Without a claim they are empty, so that none of an earlier claim is left.
func variables(claims []execution.Claim) string {
	names := []string{"EXECUTION_ID", "KIND", "HANDLE", "ATTEMPT_INDEX", "LEASE_EPOCH", "LEASE_EXPIRES_AT", "PAYLOAD", "INPUTS"}
	values := make([]string, len(names))
	if len(claims) > 0 {
		e := &claims[0].Execution
		payload := string(shape.Document(e.Payload, e.PayloadEncoding))
		if payload == "" {
			payload = "null"
		}
		values = []string{e.ID.String(), e.Kind, e.Fence().Handle(), strconv.Itoa(e.AttemptIndex), strconv.FormatInt(e.Lease.Epoch, 10),
			wire.Time(e.Lease.ExpiresAt).String(), payload, given(&claims[0])}
	}
	var b strings.Builder
	for i, name := range names {
		b.WriteString(name + "='" + strings.ReplaceAll(values[i], "'", `'\''`) + "'\n")
	}
	return b.String()
}

// given returns the inputs of a claim as JSON.
func given(c *execution.Claim) string {
	b, err := json.Marshal(inputs(c))
	if err != nil {
		return "{}" // what was stored can be written
	}
	return string(b)
}
