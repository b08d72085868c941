package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/flowapi/flowapi/internal/work"
)

const workLong = `Claim executions and run a command for each of them, without a shell.

The command gets the payload on standard input (JSON, or the bytes of a binary payload), and in its environment FLOWAPI_EXECUTION_ID,
FLOWAPI_KEY, FLOWAPI_KIND, FLOWAPI_LANE, FLOWAPI_FLOW_ID, FLOWAPI_ATTEMPT_INDEX, FLOWAPI_CLAIM_KIND (fresh, retry, replay, resumed,
reclaimed), FLOWAPI_WORKER_ID, FLOWAPI_PAYLOAD and FLOWAPI_INPUTS (up to 64 KiB of JSON; inputs of any size are in the file
FLOWAPI_INPUTS_FILE). With FLOWAPI_URL, FLOWAPI_TOKEN and FLOWAPI_HANDLE it can itself report progress, or suspend the execution.

What it writes to its standard output and error becomes the execution's stream. Exit status 0 completes the execution; its result is
the JSON that the command has written to the file FLOWAPI_RESULT, if it has. Any other status fails it, with the reason "exit status N"
and no category, so that the execution's policy decides about another try; 75 (EX_TEMPFAIL) has the category transient.

An execution that is to be cancelled has its command sent SIGTERM, with all that it has started, and SIGKILL after the grace. The same
happens when the lease is lost; then nothing is reported, since somebody else has it. While the server is away the command runs on for
as long as the lease lasts.

SIGTERM or SIGINT: no more claims, what runs may finish. A second one stops what runs and gives it back, to go on elsewhere in the
same attempt. A third one does not wait for the grace.`

// maxJobs is how many commands one worker runs at once, as many as one claim may give.
const maxJobs = 100

func workCommand(env environment) *cobra.Command {
	cfg := work.Config{}
	cmd := &cobra.Command{
		Use: "work --lane LANE [flags] -- COMMAND [ARG…]", Short: "Be a worker that runs a command for each execution", Long: workLong,
		Example: `  flowapi work --lane ci --concurrency 2 -- sh -c 'make "$FLOWAPI_KEY"'
  flowapi work --lane ci --lane nightly --capability docker -- ./ci/run`,
		Args: cobra.MinimumNArgs(1),
	}
	c := clientFlags(cmd, env)
	jsonMeans(cmd, "say what happens in lines of JSON, on standard output")
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringArrayVar(&cfg.Lanes, "lane", nil, "a lane to work in; may be repeated")
	flags.StringArrayVar(&cfg.Capabilities, "capability", nil, "something that executions may require; may be repeated")
	flags.IntVar(&cfg.Concurrency, "concurrency", 1, "how many commands run at once")
	flags.StringVar(&cfg.WorkerID, "worker-id", "", "the name of this worker; that of the machine without it")
	flags.DurationVar(&cfg.LeaseTTL, "lease-ttl", 30*time.Second, "how long a silent worker keeps what it has")
	flags.DurationVar(&cfg.Grace, "grace", 10*time.Second, "how long a command that is asked to stop may take")
	flags.DurationVar(&cfg.IdleLimit, "exit-when-idle", 0, "end when there was no work for so long; never without it")
	_ = cmd.MarkFlagRequired("lane")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg.Client, cfg.Command, cfg.Environ = &c.Client, args, os.Environ()
		if err := checkWork(&cfg); err != nil {
			return usageError{err}
		}
		cfg.Report = reporter(env, c.json)
		signals := make(chan os.Signal, 3)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(signals)
		return work.Run(context.WithoutCancel(cmd.Context()), cfg, signals)
	}
	return cmd
}

// checkWork completes a configuration and says what is wrong with it.
func checkWork(cfg *work.Config) error {
	switch {
	case len(cfg.Lanes) > 32:
		return errors.New("--lane: at most 32 lanes")
	case cfg.Concurrency < 1 || cfg.Concurrency > maxJobs:
		return fmt.Errorf("--concurrency: 1 to %d", maxJobs)
	case cfg.LeaseTTL < 100*time.Millisecond || cfg.LeaseTTL > 24*time.Hour:
		return errors.New("--lease-ttl: 100ms to 24h")
	case cfg.Grace < 0:
		return errors.New("--grace: not before now")
	}
	if cfg.WorkerID == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "worker"
		}
		cfg.WorkerID = strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) || unicode.IsControl(r) {
				return '-'
			}
			return r
		}, host)
	}
	cfg.Instance = cfg.WorkerID + "-" + uuid.NewString()[:8]
	_, err := exec.LookPath(cfg.Command[0])
	return err
}

// reporter returns what writes down what happens to a worker: for people, or as lines of JSON.
func reporter(env environment, asJSON bool) func(work.Report) {
	var mu sync.Mutex
	return func(r work.Report) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if asJSON {
			line := struct {
				At time.Time `json:"at"`
				work.Report
				TookMS int64 `json:"took_ms,omitempty"`
			}{now.UTC().Truncate(time.Millisecond), r, r.Took.Milliseconds()}
			if b, err := json.Marshal(line); err == nil {
				fmt.Fprintf(env.out, "%s\n", b)
			}
			return
		}
		text := now.Format(time.TimeOnly) + " " + r.What
		if r.Execution != "" {
			text += " " + strings.TrimSpace(r.Name+" "+r.Execution)
		}
		if r.Took > 0 {
			text += " after " + round(r.Took)
		}
		if r.Detail != "" {
			text += ": " + r.Detail
		}
		fmt.Fprintln(env.err, text)
	}
}

// round returns a duration for people.
func round(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}
