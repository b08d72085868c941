package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// client is the side of the command line that talks to a server.
type client struct {
	url       string
	token     string
	namespace string
	json      bool
}

const clientTimeout = time.Minute

// clientFlags adds the flags of every client command.
func clientFlags(cmd *cobra.Command, env environment) *client {
	c := &client{token: env.getenv("FLOWAPI_TOKEN")}
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.url, "url", env.flag("FLOWAPI_URL", "http://127.0.0.1:8080"), "the server (FLOWAPI_URL)")
	flags.StringVar(&c.token, "token", c.token, "the API token (FLOWAPI_TOKEN)")
	flags.StringVar(&c.namespace, "namespace", env.getenv("FLOWAPI_NAMESPACE"), "the namespace, for a token of all namespaces (FLOWAPI_NAMESPACE)")
	flags.BoolVar(&c.json, "json", false, "print the server's answer as it is")
	return c
}

// call sends a request and decodes the answer into out, unless that is nil. It returns the answer's bytes. A refusal is an
// error that reads as the server's own words.
func (c *client) call(ctx context.Context, method, path string, in, out any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.url, "/")+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.namespace != "" {
		req.Header.Set("Flowapi-Namespace", c.namespace)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, refusal(resp.StatusCode, b)
	}
	if out != nil {
		err = json.Unmarshal(b, out)
	}
	return b, err
}

// refusal returns a problem document as an error.
func refusal(status int, body []byte) error {
	var p struct {
		Code, Detail, RequestID string
		Errors                  []struct{ In, Pointer, Detail string }
	}
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return fmt.Errorf("the server answered %d %s", status, http.StatusText(status))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", p.Detail, p.Code)
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s %s: %s", e.In, e.Pointer, e.Detail)
	}
	return fmt.Errorf("%s", b.String())
}
