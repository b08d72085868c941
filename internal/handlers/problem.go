package handlers

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/handlers/answer"
)

// problems writes every refusal of the server.
type problems struct{ log zerolog.Logger }

// write answers r with err, in this order of questions: was the request given up because the client hung up (the connection
// is cut: silence would be sent as an empty 200 to a client that only closed its half), was the request answered before (that answer is sent again), is it a 5xx (it is logged, with its whole chain), has an answer begun
// (nothing is written), and else a problem document.
func (p problems) write(w http.ResponseWriter, r *http.Request, err error) {
	p.refuse(w, r, err, func(problem answer.Problem) { send(w, problem) })
}

// refuse is write with another form of the document.
func (p problems) refuse(w http.ResponseWriter, r *http.Request, err error, send func(answer.Problem)) {
	x := exchangeOf(r)
	if errors.Is(r.Context().Err(), context.Canceled) && errors.Is(err, context.Canceled) {
		x.gone = true
		p.log.Debug().Err(err).Str("request_id", x.id).Msg("client hung up")
		if !x.response.begun() {
			panic(http.ErrAbortHandler)
		}
		return
	}
	if replayed, ok := errors.AsType[*call.Replayed](err); ok {
		p.replay(w, r, replayed)
		return
	}
	problem := answer.ProblemOf(err)
	if problem.Status >= http.StatusInternalServerError {
		p.log.Error().Err(err).Str("request_id", x.id).Str("operation", x.operation.name()).Str("code", string(problem.Code)).
			Msg("request failed")
	}
	if x.response.begun() {
		return
	}
	x.response.restart()
	problem.Instance = redact(r.URL.Path)
	problem.RequestID = x.id
	send(problem)
}

// send writes a problem document with the headers that belong to its status.
func send(w http.ResponseWriter, problem answer.Problem) {
	body, _ := problem.MarshalJSON() // its members are strings and numbers: it cannot fail
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	for _, name := range []string{"Content-Length", "Content-Encoding", "ETag", "Location"} {
		h.Del(name) // of the answer that did not come about
	}
	switch problem.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusMethodNotAllowed:
		if allowed, ok := problem.Facts["allowed"].([]string); ok {
			h.Set("Allow", strings.Join(allowed, ", "))
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", retryAfter(problem.Facts))
	}
	if problem.Code == fault.CodeIdempotencyInFlight {
		h.Set("Retry-After", retryAfter(problem.Facts))
	}
	w.WriteHeader(problem.Status)
	_, _ = w.Write(append(body, '\n')) //nolint:gosec // a client that is gone does not read it; it is JSON, and says so
}

// retryAfter returns the fact retry_after_ms in whole seconds, rounded up, and one second without it.
func retryAfter(facts map[string]any) string {
	var wait time.Duration
	switch ms := facts["retry_after_ms"].(type) {
	case int:
		wait = time.Duration(ms) * time.Millisecond
	case int64:
		wait = time.Duration(ms) * time.Millisecond
	}
	return strconv.FormatInt(max(1, int64((wait+time.Second-1)/time.Second)), 10)
}

// replay sends an answer that was given before to a request with the same Idempotency-Key.
func (p problems) replay(w http.ResponseWriter, r *http.Request, replayed *call.Replayed) {
	was := replayed.Answer
	h := w.Header()
	h.Set("Idempotent-Replay", "true")
	if was.Location != "" {
		h.Set("Location", was.Location)
	}
	if was.ETag != "" {
		h.Set("ETag", was.ETag)
	}
	if was.Status == 0 {
		was.Status = http.StatusOK
	}
	if len(was.Body) == 0 {
		w.WriteHeader(was.Status)
		return
	}
	h.Set("Content-Type", contentTypeOf(was.Body))
	w.WriteHeader(was.Status)
	if _, err := w.Write(was.Body); err != nil {
		p.log.Debug().Err(err).Str("request_id", exchangeOf(r).id).Msg("replay was not read")
	}
}

// contentTypeOf tells the two kinds of answers apart that a POST gives: JSON, and the shell lines of a claim.
func contentTypeOf(body []byte) string {
	if body[0] == '{' || body[0] == '[' {
		return "application/json"
	}
	return "text/plain; charset=utf-8"
}

// secret is what the token of a waitpoint ends with.
var secret = regexp.MustCompile(`\.[0-9a-fA-F]{64}`)

// redact returns path without the secret that it may carry: the link to an approval is its token, also where a client has mistaken
// what is around it.
func redact(path string) string {
	const page = waitpoint.ApprovePath
	if i := strings.Index(strings.ToLower(path), page); i >= 0 && i+len(page) <= len(path) {
		return path[:i] + page + "…"
	}
	if strings.IndexByte(path, '.') >= 0 {
		path = secret.ReplaceAllLiteralString(path, ".…")
	}
	return path
}
