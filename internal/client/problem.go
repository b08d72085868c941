package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Problem is a refusal. As an error it reads as the server's own words.
type Problem struct {
	Status      int
	Code        string // "" when something between here and the server has answered
	Detail      string
	PublicState string // of the execution that it is about, where the code has it
	Errors      []ProblemError
}

// ProblemError is one mistake of a request.
type ProblemError struct{ In, Pointer, Detail string }

func problem(a Answer) error {
	var p struct {
		Code, Detail string
		PublicState  string `json:"public_state"`
		Errors       []ProblemError
	}
	if json.Unmarshal(a.Body, &p) != nil || p.Code == "" {
		return &Problem{Status: a.Status}
	}
	return &Problem{Status: a.Status, Code: p.Code, Detail: p.Detail, PublicState: p.PublicState, Errors: p.Errors}
}

func (p *Problem) Error() string {
	if p.Code == "" {
		return fmt.Sprintf("the server answered %d %s", p.Status, http.StatusText(p.Status))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", p.Detail, p.Code)
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s %s: %s", e.In, e.Pointer, e.Detail)
	}
	return b.String()
}

// Code returns the code of a refusal, and "" of any other error.
func Code(err error) string {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Code
	}
	return ""
}

// Temporary says whether the same request may well be answered later: the server was not reached, has no time now, or has failed.
func Temporary(err error) bool {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Status >= http.StatusInternalServerError || p.Status == http.StatusTooManyRequests || p.Code == "idempotency_in_flight"
	}
	if errors.Is(err, context.Canceled) {
		return false
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Op != "parse" && !strings.Contains(e.Err.Error(), "unsupported protocol scheme")
	}
	_, malformed := errors.AsType[*json.SyntaxError](err)
	_, mistyped := errors.AsType[*json.UnmarshalTypeError](err)
	return !malformed && !mistyped // else an answer that broke off
}

// retryAfter returns what a server asks to wait, in seconds as flowapi says it.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
