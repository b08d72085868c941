// Package client is what the command line says to a server, over HTTP and nothing else: calls, calls that are repeated until
// they are answered, and streams that go on over broken connections. It knows no package of the server; its types are the parts
// of the contract that the command line reads.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// callTimeout is how long an answer may take, beside what was asked to wait.
const callTimeout = time.Minute

// Client is a server as one caller sees it.
type Client struct {
	URL       string
	Token     string
	Namespace string
	HTTP      *http.Client // http.DefaultClient when nil
}

// Request is one call.
type Request struct {
	Method  string
	Path    string
	Body    any           // sent as JSON, a json.RawMessage as it is; nothing when nil
	Key     string        // Idempotency-Key: what makes repeating it harmless
	Wait    time.Duration // Prefer: wait
	Timeout time.Duration // a minute, and Wait, when 0
}

// Answer is what a call was answered with, unless that was a refusal.
type Answer struct {
	Status     int
	RetryAfter time.Duration // what the server asks for before the next call
	Body       []byte
}

// Do sends r once and decodes the answer into out, unless that is nil or there is no content. A refusal is a *Problem.
func (c *Client) Do(ctx context.Context, r Request, out any) (Answer, error) {
	timeout := r.Timeout
	if timeout == 0 {
		timeout = callTimeout + r.Wait
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := c.request(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	resp, err := c.http().Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header), Body: body}
	if a.Status >= http.StatusBadRequest {
		return a, problem(a)
	}
	if out == nil || len(body) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return a, fmt.Errorf("%s %s is answered with what this version does not understand: %w", r.Method, r.Path, err)
	}
	return a, nil
}

func (c *Client) http() *http.Client {
	if c.HTTP == nil {
		return http.DefaultClient
	}
	return c.HTTP
}

func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
	body, err := encode(r.Body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, c.Address(r.Path), body)
	if err != nil {
		return nil, err
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if c.Namespace != "" {
		req.Header.Set("Flowapi-Namespace", c.Namespace)
	}
	if r.Key != "" {
		req.Header.Set("Idempotency-Key", r.Key)
	}
	if r.Wait > 0 {
		req.Header.Set("Prefer", "wait="+strconv.Itoa(int(math.Ceil(r.Wait.Seconds()))))
	}
	return req, nil
}

// encode returns a body as JSON, with the text that it was given.
func encode(body any) (io.Reader, error) {
	switch body := body.(type) {
	case nil:
		return http.NoBody, nil
	case json.RawMessage:
		return bytes.NewReader(body), nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(body)
	return &b, err
}

// Address returns the URL of a path of the server.
func (c *Client) Address(path string) string { return strings.TrimSuffix(c.URL, "/") + path }

// Insist sends r until it is answered or refused for good, or ctx ends, and then returns what was wrong last. A request that
// must not have its effect twice has a Key. trouble is told of what makes it try again, unless it is nil.
func (c *Client) Insist(ctx context.Context, r Request, out any, trouble func(error)) (Answer, error) {
	var backoff Backoff
	for {
		a, err := c.Do(ctx, r, out)
		if err == nil || !Temporary(err) {
			return a, err
		}
		if ctx.Err() != nil {
			return a, errors.Join(context.Cause(ctx), err)
		}
		if trouble != nil {
			trouble(err)
		}
		if !Sleep(ctx, backoff.Next(a.RetryAfter)) {
			return a, errors.Join(context.Cause(ctx), err)
		}
	}
}
