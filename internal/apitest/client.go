// Package apitest is the client that tests talk to the API with. Every answer that passes through it is held to the
// contract, so that each test of a handler is a test of the contract too. It is for tests only.
package apitest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Client sends requests to one server, for one test. A request that cannot be sent ends the test; an answer outside the
// contract fails it.
type Client struct {
	tb       testing.TB
	base     string
	header   http.Header
	contract *contract
	client   *http.Client
}

// Serve starts a server for h that lives as long as the test, and returns a client of it.
func Serve(tb testing.TB, h http.Handler, spec *openapi3.T) *Client {
	tb.Helper()
	server := httptest.NewServer(h)
	tb.Cleanup(server.Close)
	return New(tb, server.URL, spec)
}

// New returns a client of the server at base, without a token.
func New(tb testing.TB, base string, spec *openapi3.T) *Client {
	tb.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	tb.Cleanup(transport.CloseIdleConnections)
	c := &Client{base: strings.TrimSuffix(base, "/"), header: http.Header{}, contract: newContract(spec, transport)}
	return c.For(tb)
}

// For returns a client like c that reports to tb: the one for a subtest.
func (c *Client) For(tb testing.TB) *Client {
	other := c.clone()
	other.tb = tb
	bound := *c.contract
	bound.tb = tb
	other.contract = &bound
	other.client = &http.Client{
		Transport:     &bound,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return other
}

// As returns a client like c that sends this bearer token; "" sends none.
func (c *Client) As(token string) *Client {
	if token == "" {
		return c.With("Authorization: ")
	}
	return c.With("Authorization: Bearer " + token)
}

// In returns a client like c that names this namespace.
func (c *Client) In(namespace string) *Client { return c.With("Flowapi-Namespace: " + namespace) }

// With returns a client like c that sends this header, "Name: value", with every request. An empty value sends none.
func (c *Client) With(header string) *Client {
	other := c.clone()
	setHeader(c.tb, other.header, header)
	return other
}

func (c *Client) clone() *Client {
	other := *c
	other.header = c.header.Clone()
	return &other
}

// Base returns the URL of the server, without a slash at its end.
func (c *Client) Base() string { return c.base }

// HTTP returns the client beneath, whose answers are held to the contract too.
func (c *Client) HTTP() *http.Client { return c.client }

// Do sends a request and reads its answer to the end. body is sent as it is when it is a string or []byte, nothing for
// nil, and as JSON otherwise; a body is application/json unless a header says otherwise. Headers are "Name: value".
func (c *Client) Do(method, path string, body any, headers ...string) *Response {
	c.tb.Helper()
	request := c.request(method, path, body, headers)
	answer, err := c.client.Do(request)
	if err != nil {
		c.tb.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		c.tb.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return &Response{tb: c.tb, asked: method + " " + path, Status: answer.StatusCode, Header: answer.Header, Body: data}
}

// Get is Do without a body.
func (c *Client) Get(path string, headers ...string) *Response {
	c.tb.Helper()
	return c.Do(http.MethodGet, path, nil, headers...)
}

// Post is Do with a body.
func (c *Client) Post(path string, body any, headers ...string) *Response {
	c.tb.Helper()
	return c.Do(http.MethodPost, path, body, headers...)
}

func (c *Client) request(method, path string, body any, headers []string) *http.Request {
	c.tb.Helper()
	data := bodyOf(c.tb, body)
	request, err := http.NewRequestWithContext(c.tb.Context(), method, c.base+path, bytes.NewReader(data))
	if err != nil {
		c.tb.Fatalf("%s %s: %v", method, path, err)
	}
	request.Header = c.header.Clone()
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		setHeader(c.tb, request.Header, header)
	}
	return request
}

func bodyOf(tb testing.TB, body any) []byte {
	tb.Helper()
	switch body := body.(type) {
	case nil:
		return nil
	case string:
		return []byte(body)
	case []byte:
		return body
	}
	data, err := json.Marshal(body)
	if err != nil {
		tb.Fatalf("body: %v", err)
	}
	return data
}

func setHeader(tb testing.TB, header http.Header, line string) {
	tb.Helper()
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		tb.Fatalf("header %q is not of the form Name: value", line)
	}
	if value = strings.TrimSpace(value); value == "" {
		header.Del(name)
		return
	}
	header.Set(name, value)
}
