package handlers

import (
	"crypto/sha256"
	"io"
	"net/http"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

const maxIdempotencyKey = 255

// idempotencyOf returns the promise that r asks for: nil without an Idempotency-Key, and for what is not a POST. It
// returns CodeInvalidParameter for a key of the wrong form.
func idempotencyOf(r *http.Request, body []byte) (*call.Idempotency, error) {
	given := r.Header["Idempotency-Key"]
	if len(given) == 0 || r.Method != http.MethodPost {
		return nil, nil
	}
	if len(given) > 1 || !printable(given[0], maxIdempotencyKey) {
		return nil, invalid(true, []fault.Field{{
			In: fault.InHeader, Pointer: "Idempotency-Key", Detail: "must be one value of 1 to 255 printable ASCII characters",
		}})
	}
	hash := sha256.New()
	_, _ = io.WriteString(hash, r.Method+"\n"+r.URL.RequestURI()+"\n") // a hash takes all
	_, _ = hash.Write(body)
	key := &call.Idempotency{Key: given[0]}
	hash.Sum(key.Hash[:0])
	return key, nil
}

// printable reports whether s has 1 to most characters, all of them printable ASCII.
func printable(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
