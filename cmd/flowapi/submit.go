package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/flowapi/flowapi/internal/client"
	"github.com/flowapi/flowapi/internal/manifest"
)

const submitLong = `Submit a flow with its graph: the body of POST /v1/flows, as YAML or JSON, from a file or (-) from standard input. The address of
the flow is printed first. A request whose answer is lost is repeated without submitting twice.

With --wait the command shows how the flow gets on, as a tree on a terminal and line by line elsewhere, until it has ended, also when
the server is restarted meanwhile. A terminal's Ctrl-C asks whether to detach or to cancel; without a terminal it detaches.

Exit codes:
  0  the flow finished (without --wait: it was submitted)
  1  it failed, or the server could not be asked
  2  a mistake in the command line, the file, or the flow: nothing was submitted
  3  it was cancelled
  4  nobody waits for it any more, and it runs on: the timeout has passed, or Ctrl-C
  5  as 4, and nothing but a person can move it (at once with --exit-on-approval)`

// submitLimit is how long a server that does not answer is asked to take a flow.
const submitLimit = 30 * time.Second

// submitOptions is what the flags of flowapi submit say.
type submitOptions struct {
	wait       bool
	timeout    time.Duration
	junit      string
	onApproval bool
	publicURL  string
}

func submitCommand(env environment) *cobra.Command {
	var o submitOptions
	cmd := &cobra.Command{
		Use: "submit FILE|-", Short: "Submit a flow with its graph, and wait for its end", Long: submitLong,
		Example: `  flowapi submit pipeline.yaml --wait --timeout 30m --junit report.xml
  flowapi submit - --wait <<'END'
  goal: check
  graph:
    executions:
      - {key: lint, lane: ci}
      - {key: test, lane: ci, needs: [lint]}
  END`,
		Args: cobra.ExactArgs(1),
	}
	c := clientFlags(cmd, env)
	jsonMeans(cmd, "print the flow as JSON, with --wait its end: outcome, exit_code, url, flow, graph; all else goes to standard error")
	flags := cmd.Flags()
	flags.BoolVar(&o.wait, "wait", false, "show how the flow gets on until it has ended, and end as it does")
	flags.DurationVar(&o.timeout, "timeout", 20*time.Minute, "with --wait: how long to wait; 0 is for ever")
	flags.StringVar(&o.junit, "junit", "", "with --wait: write a JUnit XML report to this `file`")
	flags.BoolVar(&o.onApproval, "exit-on-approval", false, "with --wait: do not wait for people")
	o.publicURL = env.getenv("FLOWAPI_PUBLIC_URL")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range []string{"timeout", "junit", "exit-on-approval"} {
			if flags.Changed(name) && !o.wait {
				return usageError{fmt.Errorf("--%s goes with --wait", name)}
			}
		}
		if o.timeout < 0 {
			return usageError{errors.New("--timeout: not before now")}
		}
		document, err := readManifest(args[0], os.Stdin)
		if err != nil {
			return usageError{err}
		}
		signals := make(chan os.Signal, 3)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(signals)
		flow, raw, err := c.submit(cmd.Context(), env, args[0], document)
		if err != nil {
			return err
		}
		address := strings.TrimSuffix(c.URL, "/")
		if o.publicURL != "" {
			address = strings.TrimSuffix(o.publicURL, "/")
		}
		address += "/v1/flows/" + flow
		if c.json {
			fmt.Fprintln(env.err, address)
		} else {
			fmt.Fprintln(env.out, address)
		}
		if o.wait {
			return newVigil(c, env, &o, flow, address).wait(context.WithoutCancel(cmd.Context()), signals)
		}
		if c.json {
			return printJSON(env.out, raw)
		}
		return nil
	}
	return cmd
}

// readManifest reads a file, or standard input.
func readManifest(name string, stdin io.Reader) (*manifest.Document, error) {
	var data []byte
	var err error
	if name == "-" {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(filepath.Clean(name))
	}
	if err != nil {
		return nil, err
	}
	document, err := manifest.Parse(name, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return document, nil
}

// submit creates the flow, once, and returns its id and the server's answer. What the server refuses because of what is in it is an
// error in the usage.
func (c *connection) submit(ctx context.Context, env environment, name string, document *manifest.Document) (id string, raw []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, submitLimit, fmt.Errorf("the server has not answered for %s", submitLimit))
	defer cancel()
	told := false
	trouble := func(err error) {
		if !told {
			fmt.Fprintf(env.err, "flowapi: %v; trying again\n", err)
		}
		told = true
	}
	var flow client.Flow
	r := client.Request{Method: http.MethodPost, Path: "/v1/flows", Body: document.JSON, Key: uuid.NewString()}
	answer, err := c.Insist(ctx, r, &flow, trouble)
	p, refused := errors.AsType[*client.Problem](err)
	if !refused {
		return flow.ID, answer.Body, err
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		for i := range p.Errors {
			if line := document.Line(p.Errors[i].Pointer); line > 0 && p.Errors[i].In == "body" {
				p.Errors[i].Detail += fmt.Sprintf(" (%s:%d)", name, line)
			}
		}
		return "", nil, usageError{p}
	default:
		return "", nil, err
	}
}
