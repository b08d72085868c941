package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/flowapi/flowapi/internal/client"
)

// connection is what every client command knows of its server.
type connection struct {
	client.Client
	json bool
}

// clientFlags adds the flags of every client command.
func clientFlags(cmd *cobra.Command, env environment) *connection {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = maxJobs // a worker has as many calls under way
	c := &connection{Client: client.Client{Token: env.getenv("FLOWAPI_TOKEN"), HTTP: &http.Client{Transport: transport}}}
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.URL, "url", env.flag("FLOWAPI_URL", "http://127.0.0.1:8080"), "the server (FLOWAPI_URL)")
	flags.StringVar(&c.Token, "token", c.Token, "the API token (FLOWAPI_TOKEN)")
	flags.StringVar(&c.Namespace, "namespace", env.getenv("FLOWAPI_NAMESPACE"), "the namespace, for a token of all namespaces (FLOWAPI_NAMESPACE)")
	flags.BoolVar(&c.json, "json", false, "print the server's answer as it is")
	return c
}

// jsonMeans says in the help what --json does, where that is not what it does elsewhere.
func jsonMeans(cmd *cobra.Command, text string) { cmd.PersistentFlags().Lookup("json").Usage = text }

// call sends a request and decodes the answer into out, unless that is nil. It returns the answer's bytes. A refusal is an
// error that reads as the server's own words.
func (c *connection) call(ctx context.Context, method, path string, in, out any) ([]byte, error) {
	answer, err := c.Do(ctx, client.Request{Method: method, Path: path, Body: in}, out)
	return answer.Body, err
}

// printJSON prints an answer as it is, as one line.
func printJSON(w io.Writer, raw []byte) error {
	_, err := fmt.Fprintln(w, strings.TrimRight(string(raw), "\n"))
	return err
}

// parseID checks an id that was given as an argument.
func parseID(of, text string) (string, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return "", usageError{fmt.Errorf("%q is not the id of %s", text, of)}
	}
	return id.String(), nil
}
