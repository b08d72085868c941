// Command flowapi is the server, and its client for people and scripts. What an operator sets once, such as addresses and
// tokens, can also be set by environment variables, which the flags' help names.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // the time zones of schedules, for a machine that has none

	"github.com/spf13/cobra"
)

// The exit codes. Those from 3 on are only those of flowapi submit --wait.
const (
	exitFailed    = 1
	exitUsage     = 2
	exitCancelled = 3
	exitRunsOn    = 4 // nobody waits for the flow any more
	exitPerson    = 5 // nobody waits any more for the person who has to move it
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// environment is what a command may know of the world outside.
type environment struct {
	getenv func(string) string
	out    io.Writer
	err    io.Writer
}

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	env := environment{getenv: getenv, out: stdout, err: stderr}
	root := &cobra.Command{
		Use:           "flowapi",
		Short:         "Durable flows and executions over HTTP",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(serveCommand(env), workCommand(env), submitCommand(env), tailCommand(env), whyCommand(env), decideCommand(env, approve), decideCommand(env, reject),
		cancelCommand(env), replayCommand(env), tokenCommand(env), pruneCommand(env))
	ran := false
	watchRun(root, &ran)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[exitError](err); ok {
		return e.code
	}
	fmt.Fprintf(stderr, "flowapi: %v\n", err)
	if _, ok := errors.AsType[usageError](err); ok || !ran {
		return exitUsage
	}
	return exitFailed
}

// watchRun makes the commands below cmd set ran. What fails before is a mistake in the command line.
func watchRun(cmd *cobra.Command, ran *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*ran = true
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		watchRun(c, ran)
	}
}

// usageError is a mistake in the command line.
type usageError struct{ error }

// exitError is the end of a command that has said all that there is to say.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// version names the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return info.Main.Version
}

// flag returns the value for a flag's default: its environment variable, or otherwise.
func (e environment) flag(name, otherwise string) string {
	if v := e.getenv(name); v != "" {
		return v
	}
	return otherwise
}
