package executions

import (
	"net/http"
	"strconv"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/handlers/ask"
)

// stored is a payload or a result as the answer, byte for byte: what the generated code sends as JSON it writes anew.
type stored struct {
	value    execution.Value
	revision int64
}

// VisitGetExecutionPayloadResponse implements oapi.GetExecutionPayloadResponseObject.
func (s stored) VisitGetExecutionPayloadResponse(w http.ResponseWriter) error { return s.send(w) }

// VisitGetExecutionResultResponse implements oapi.GetExecutionResultResponseObject.
func (s stored) VisitGetExecutionResultResponse(w http.ResponseWriter) error { return s.send(w) }

func (s stored) send(w http.ResponseWriter) error {
	kind := "application/json"
	if s.value.Encoding == execution.EncodingBase64 {
		kind = "application/octet-stream"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(s.value.Bytes)))
	w.Header().Set("ETag", ask.ETag(s.revision))
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(s.value.Bytes)
	return err
}
