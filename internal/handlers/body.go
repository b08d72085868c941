package handlers

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// sentBody is a request's body in memory: it may be read, and read again after a Seek.
type sentBody struct{ bytes.Reader }

func (*sentBody) Close() error { return nil }

// trusted is the announced length that memory is set aside for before the bytes are there.
const trusted = 64 << 10

// readBody returns the bytes of r's body, nil for none. A body of more than limit bytes is refused with
// payload_too_large, before it is read when its length was announced.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close") // rather than read on to the end
		return nil, tooLarge(limit)
	}
	limited := http.MaxBytesReader(w, r.Body, limit)
	var data []byte
	var err error
	if r.ContentLength > 0 && r.ContentLength <= trusted {
		data = make([]byte, r.ContentLength)
		_, err = io.ReadFull(limited, data)
	} else {
		data, err = io.ReadAll(limited)
	}
	if err == nil {
		return data, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		w.Header().Set("Connection", "close")
		return nil, tooLarge(limit)
	}
	return nil, fault.Invalid(fault.CodeMalformedJSON, "", "The body ends before its announced length. Send the request again.").Because(err)
}

func tooLarge(limit int64) *fault.Error {
	return fault.New(fault.CodePayloadTooLarge, "The body is larger than the %d bytes that this route takes. Send less, or in several requests.", limit).
		With("limit_bytes", limit)
}

// setBody gives data to whoever reads the body next; a body without bytes is none.
func setBody(r *http.Request, data []byte) {
	r.ContentLength = int64(len(data))
	if len(data) == 0 {
		r.Body = http.NoBody
		return
	}
	again := &sentBody{}
	again.Reset(data)
	r.Body = again
}
