// Package app puts the server together: store, repositories, reactors, loops, streams and handlers, in this order. It holds
// no rules.
package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/flowapi/flowapi/api"
	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/docspage"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers"
	"github.com/flowapi/flowapi/internal/handlers/admin"
	"github.com/flowapi/flowapi/internal/handlers/approve"
	"github.com/flowapi/flowapi/internal/handlers/budgets"
	"github.com/flowapi/flowapi/internal/handlers/events"
	"github.com/flowapi/flowapi/internal/handlers/executions"
	"github.com/flowapi/flowapi/internal/handlers/flows"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/quotas"
	"github.com/flowapi/flowapi/internal/handlers/runs"
	"github.com/flowapi/flowapi/internal/handlers/streams"
	"github.com/flowapi/flowapi/internal/handlers/suspensions"
	"github.com/flowapi/flowapi/internal/handlers/workers"
	"github.com/flowapi/flowapi/internal/hub"
	"github.com/flowapi/flowapi/internal/reconcile"
	"github.com/flowapi/flowapi/internal/repo/keyring"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/sse"
)

// Config is what the operator decides.
type Config struct {
	DatabaseURL string // a file name, or postgres://…
	PublicURL   string // where people reach this server, for links; where each caller has reached it without it
	Token       string // an admin token that is valid beside the stored ones; "" for none
	// Waitpoints is the master secret of waitpoint tokens, or the file that it is in. Without either it is in a file beside the
	// SQLite database, or in flowapi.secret for PostgreSQL.
	Waitpoints  keyring.Master
	Version     string
	Log         zerolog.Logger
	Clock       *store.Clock // the machine's without it
	Fatal       func(error)  // told of an error after which the process must end
	Retention   Retention
	Streams     int           // of one kind that may be open at a time, requests that wait for frames among them; 0 is 10,000
	StreamWrite time.Duration // the longest that one write to a stream's connection may take; 0 is 10 s
	Connections int           // to the database; see store.Config
	Patience    int           // with the database; see store.Config
	Poll        time.Duration // of what nobody told of; see store.Config
	Batch       int           // executions that one transaction changes because of another; 0 is 250
}

// master returns where the master secret of waitpoint tokens is, for a database that is this file, or none.
func (cfg *Config) master(file string) keyring.Master {
	m := cfg.Waitpoints
	switch {
	case m.Secret != nil || m.File != "":
	case file != "":
		m.File = file + ".secret"
	default:
		m.File = "flowapi.secret"
	}
	return m
}

// Retention says how much of the past is kept. The zero value has the defaults.
type Retention struct {
	EventAge  time.Duration // 30 days
	EventRows int64         // 10 million
}

// App is a server without its socket.
type App struct {
	Handler http.Handler
	// Anonymous says whether callers on the loopback interface need no token.
	Anonymous func() bool

	repos
	cfg      Config
	store    *store.Store
	hub      *hub.Hub
	loops    *reconcile.Supervisor
	tails    []*sse.Tail
	frames   *streams.Handlers
	draining atomic.Bool
	// generation of the event log, which changes only while no server runs.
	generation string
}

// operations is every operation of the contract, subject by subject.
type operations struct {
	*flowOperations
	*executionOperations
	*workerOperations
	*suspensionOperations
	*runOperations
	*budgetOperations
	*quotaOperations
	*streamOperations
	*eventOperations
	*adminOperations
}

type (
	flowOperations       = flows.Handlers
	executionOperations  = executions.Handlers
	workerOperations     = workers.Handlers
	streamOperations     = streams.Handlers
	suspensionOperations = suspensions.Handlers
	runOperations        = runs.Handlers
	budgetOperations     = budgets.Handlers
	quotaOperations      = quotas.Handlers
	eventOperations      = events.Handlers
	adminOperations      = admin.Handlers
)

var _ oapi.StrictServerInterface = operations{}

// Open opens the database and puts the server together. The caller runs [App.Run] and serves [App.Handler], and closes the
// app when both have ended.
func Open(ctx context.Context, cfg Config) (_ *App, err error) {
	if cfg.Clock == nil {
		cfg.Clock = &store.Clock{}
	}
	a := &App{cfg: cfg, hub: hub.New()}
	m := newMetrics()
	a.store, err = store.Open(ctx, store.Config{
		URL: cfg.DatabaseURL, Clock: cfg.Clock, Hub: a.hub, Fatal: cfg.Fatal, Observe: m.commit,
		Connections: cfg.Connections, Patience: cfg.Patience, Poll: cfg.Poll,
		OnError: func(err error) { cfg.Log.Error().Err(err).Msg("background work of the store failed") },
		Alarm:   func(loop string, at time.Time) { a.loops.Arm(loop, at) },
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.store.Close())
		}
	}()
	log, err := a.store.EventLog(ctx)
	if err != nil {
		return nil, err
	}
	a.generation = log.Generation
	if a.repos, err = openRepos(ctx, a.store, cfg); err != nil {
		return nil, err
	}
	a.Anonymous = a.tokens.Anonymous
	a.loops = reconcile.New(cfg.Clock.Now, func(loop string, err error) {
		cfg.Log.Error().Err(err).Str("loop", loop).Msg("background work failed")
	}, a.work()...)
	a.frames = streams.New(a.streams, a.mostStreams(), sse.Options{
		WriteTimeout: cfg.StreamWrite, Poll: a.store.Poll(),
		OnError: func(err error) { cfg.Log.Warn().Err(err).Msg("a stream of frames cannot be read") },
	})
	if err := m.watch(a); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	spec, err := oapi.Spec()
	if err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	a.Handler, err = handlers.New(handlers.Config{
		Spec: spec, Document: api.Document, Auth: a.tokens, Log: cfg.Log, Registry: m.registry, Docs: docspage.Handler(), Ready: a.ready, Now: time.Now,
		Approval: &approve.Page{Executions: a.executions, Gates: a.runs}, API: a.operations(),
	})
	return a, err
}

// operations answers every operation of the contract.
func (a *App) operations() operations {
	return operations{
		&flows.Handlers{Flows: a.flows, Graph: a.graphs, Waits: a.waits, Watch: a.watch, Done: a.hub.Done()},
		&executions.Handlers{Executions: a.executions},
		&workers.Handlers{Workers: a.workers},
		&suspensions.Handlers{Executions: a.executions, Waits: a.waits, Gates: a.runs, PublicURL: a.publicURL},
		&runs.Handlers{Runs: a.runs, PublicURL: a.publicURL, Now: a.cfg.Clock.Now},
		&budgets.Handlers{Budgets: a.budgets, Now: a.cfg.Clock.Now},
		&quotas.Handlers{Quotas: a.quotas, Now: a.cfg.Clock.Now},
		a.frames,
		&events.Handlers{
			Log: a.store, Flows: a.flows, Watch: a.watch, Done: a.hub.Done(), Feed: a.tail(events.Feed(a.store)), Completions: a.tail(events.Completions(a.store)),
			Leases: a.tail(events.Leases(a.store)), Signals: a.tail(events.Signals(a.store)), Operator: a.tail(events.Operator(a.store)),
			InstanceTags: a.tail(events.InstanceTags(a.store)),
		},
		&admin.Handlers{Tokens: a.tokens, Secrets: a.keys, Log: a.store, Version: a.cfg.Version, Database: a.store.Database(), Limits: a.limits(), Features: features},
	}
}

// publicURL is where people reach this server: as the operator says, else where this caller has reached it.
func (a *App) publicURL(ctx context.Context) string {
	if a.cfg.PublicURL != "" {
		return a.cfg.PublicURL
	}
	return call.From(ctx).Base
}

// tail returns a tail of source that Run will run.
func (a *App) tail(source sse.Source) *sse.Tail {
	t := sse.NewTail(source, a.watch, sse.Options{
		Generation: func() string { return a.generation },
		MaxStreams: a.mostStreams(), WriteTimeout: a.cfg.StreamWrite, Poll: a.store.Poll(),
		OnError: func(err error) { a.cfg.Log.Warn().Err(err).Msg("the event log cannot be read") },
	})
	a.tails = append(a.tails, t)
	return t
}

func (a *App) watch() <-chan struct{} { return a.hub.Watch(store.EventsKey) }

// Run runs the loops and the streams' readers until ctx ends.
func (a *App) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.loops.Run(ctx) })
	for _, t := range a.tails {
		g.Go(func() error { return t.Run(ctx) })
	}
	return g.Wait()
}

// Settle does all the background work that is due now, and makes every loop plan anew. For tests that have moved the clock.
func (a *App) Settle(ctx context.Context) error {
	a.loops.Poke()
	return a.loops.Settle(ctx)
}

// Store returns the store, for tests that look behind the API.
func (a *App) Store() *store.Store { return a.store }

// Waiting returns how many requests wait for frames, for tests that change what they wait for.
func (a *App) Waiting() int { return a.frames.Waiting() }

// Drain begins the end: not ready any more, streams say bye, long polls and waiting claims return. Requests under way go on.
func (a *App) Drain() {
	a.draining.Store(true)
	for _, t := range a.tails {
		t.Close()
	}
	a.frames.Close()
	a.hub.Close()
}

// Close commits what is queued and closes the database. It is called when Run and the last request have ended.
func (a *App) Close() error {
	a.Drain()
	a.frames.Wait()
	a.tokens.Close()
	return a.store.Close()
}

// ready says whether the server should get requests.
func (a *App) ready() error {
	if a.draining.Load() {
		return fault.New(fault.CodeShuttingDown, "The server is shutting down. Repeat the request, or ask another replica.")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return a.store.Ping(ctx)
}
