// Command flowapi-bench measures a flowapi server over HTTP and prints one table; the same numbers go into a JSON file.
//
//	flowapi-bench                                 build a server, measure it on a SQLite file of its own
//	flowapi-bench -server bin/flowapi -only one   measure this binary, only one part
//	flowapi-bench -url http://127.0.0.1:8080      drive a server that runs already
//	BENCH_LARGE=1 flowapi-bench                   also with 1,000,000 executions stored
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/flowapi/flowapi/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "flowapi-bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == bench.Subscribe {
		return bench.RunSubscribers(ctx, args[1:], stdin, stdout)
	}
	cfg := bench.Config{Log: stderr, Subscribers: []int{100, 1000}}
	flags := flag.NewFlagSet("flowapi-bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.Server, "server", "", "the flowapi `binary` to measure (default: built from this module)")
	flags.StringVar(&cfg.URL, "url", "", "measure the server that runs at this `URL`")
	flags.IntVar(&cfg.N, "n", 20_000, "executions of each measurement")
	flags.IntVar(&cfg.Connections, "c", 64, "connections")
	flags.IntVar(&cfg.Batch, "batch", 100, "executions of one batch")
	flags.IntVar(&cfg.Rate, "rate", 500, "executions created a second before the subscribers")
	flags.DurationVar(&cfg.Duration, "for", 10*time.Second, "for so long")
	flags.IntVar(&cfg.Followers, "followers", 50, "followers of one stream of frames")
	flags.IntVar(&cfg.FrameRate, "frames", 2000, "frames appended a second before them")
	flags.IntVar(&cfg.FrameBatch, "frame-batch", 20, "frames appended at a time")
	flags.IntVar(&cfg.Ahead, "ahead", 100_000, "executions that cannot be claimed, before those that can")
	flags.IntVar(&cfg.Timers, "timers", 100_000, "timers that an idle server waits for")
	flags.IntVar(&cfg.Rounds, "rounds", 50, "timers of each kind whose lateness is measured")
	flags.DurationVar(&cfg.Idle, "idle", 30*time.Second, "watch the idle server for so long")
	only := flags.String("only", "", "measure only these `parts` of "+strings.Join(bench.Parts(), ","))
	file := flags.String("json", "bench.json", "the `file` for the numbers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if getenv("BENCH_LARGE") == "1" {
		cfg.Large = 1_000_000
	}
	if *only != "" {
		cfg.Parts = strings.Split(*only, ",")
	}
	for _, part := range cfg.Parts {
		if !slices.Contains(bench.Parts(), part) {
			return fmt.Errorf("no part %q: there are %s", part, strings.Join(bench.Parts(), ", "))
		}
	}

	var err error
	if cfg.Self, err = os.Executable(); err != nil {
		return err
	}
	if cfg.URL == "" && cfg.Server == "" {
		dir, err := os.MkdirTemp("", "flowapi-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cfg.Server = filepath.Join(dir, "flowapi")
		build := exec.CommandContext(ctx, "go", "build", "-o", cfg.Server, "github.com/flowapi/flowapi/cmd/flowapi") //nolint:gosec // the folder is one of its own
		build.Stderr = stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build the server: %w", err)
		}
	}
	report, err := bench.Run(ctx, cfg)
	if err != nil {
		return err
	}
	if err := report.Table(stdout); err != nil {
		return err
	}
	numbers, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*file, append(numbers, '\n'), 0o644) //nolint:gosec // others may read the numbers
}
