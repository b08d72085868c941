// Command flowapi is the server, and its client for people and scripts. Every flag can also be set by an environment
// variable: FLOWAPI_ and the flag's name in capitals.
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

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
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
	root.AddCommand(serveCommand(env), tokenCommand(env), pruneCommand(env))
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "flowapi: %v\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// usageError is a mistake in the command line.
type usageError struct{ error }

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
