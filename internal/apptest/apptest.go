// Package apptest starts the whole server for a test, on both databases, with a clock that the test moves.
package apptest

import (
	"context"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// The heap of a test is small, so that at Go's own pace a tenth of its time would be collecting. The race detector takes a multiple
// of it, so it has an end.
var _, _ = debug.SetGCPercent(800), debug.SetMemoryLimit(1 << 30)

// Server is a running server and an anonymous client of it, which is admin.
type Server struct {
	*apitest.Client
	App   *app.App
	Clock *store.Clock
	URL   string // of the database
	Moves bool   // its time goes on by itself

	tb   testing.TB
	stop func()
}

// Databases runs fn against a server on each database, as parallel subtests.
func Databases(t *testing.T, fn func(t *testing.T, s *Server)) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) { fn(t, Start(t, url)) })
}

// Start starts a server on a database, for as long as the test runs.
func Start(tb testing.TB, url string, change ...func(*app.Config)) *Server {
	tb.Helper()
	s := start(tb, url, &store.Clock{}, (*app.App).Run, change...)
	s.Moves = true
	return s
}

// Still starts a server on which nothing happens by itself: what time brings happens in Advance and Settle only. Several
// may share a clock.
func Still(tb testing.TB, url string, clock *store.Clock, change ...func(*app.Config)) *Server {
	tb.Helper()
	return start(tb, url, clock, func(*app.App, context.Context) error { return nil }, change...)
}

func start(tb testing.TB, url string, clock *store.Clock, run func(*app.App, context.Context) error, change ...func(*app.Config)) *Server {
	tb.Helper()
	s := &Server{tb: tb, Clock: clock, URL: url}
	cfg := app.Config{DatabaseURL: url, Version: "test", Clock: s.Clock, Patience: 5, Poll: time.Hour, Log: zerolog.New(zerolog.NewTestWriter(tb)).Level(zerolog.WarnLevel)}
	if strings.HasPrefix(url, "postgres") { // SQLite has it beside its file
		cfg.Waitpoints.Secret = []byte("the master secret of PostgreSQL in tests")
	}
	for _, c := range change {
		c(&cfg)
	}
	s.Clock = cfg.Clock
	a, err := app.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	s.App = a
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- run(a, ctx) }()
	server := httptest.NewServer(a.Handler)
	spec, err := oapi.Spec()
	if err != nil {
		tb.Fatal(err)
	}
	s.Client = apitest.New(tb, server.URL, spec)
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		a.Drain()
		server.Close()
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("run: %v", err)
		}
		if err := a.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	}
	tb.Cleanup(func() { // a test that has ended keeps its cleanups until all have, and the server must not stay with them
		s.stop()
		s.Client, s.App, s.stop = nil, nil, nil
	})
	return s
}

// Stop stops the server as a restart would; the database stays.
func (s *Server) Stop() { s.stop() }

// Advance moves the clock and lets everything happen that is due then.
func (s *Server) Advance(d time.Duration) {
	s.tb.Helper()
	s.Clock.Advance(d)
	s.Settle()
}

// Settle lets everything happen that is due now.
func (s *Server) Settle() {
	s.tb.Helper()
	if err := s.App.Settle(s.tb.Context()); err != nil {
		s.tb.Fatal(err)
	}
}
