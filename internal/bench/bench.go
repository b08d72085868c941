// Package bench measures a flowapi server over HTTP, from a process of its own: how many executions a second it creates,
// hands out and completes, how punctual its timers are, how its events reach many subscribers, and what it needs of processor,
// memory and disk.
//
// It counts what it measures. An answer that is not a success ends the run with the problem's text; every execution must be
// claimed once and end completed; every subscriber must receive every event, in order.
package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The parts of a run.
const (
	PartOne     = "one"     // requests for one execution each
	PartBatch   = "batch"   // requests for many
	PartAhead   = "ahead"   // claims behind executions that cannot be claimed
	PartTimers  = "timers"  // what time brings, and what waiting for it costs
	PartSuspend = "suspend" // executions that wait for a signal
	PartGraph   = "graph"   // flows with members that depend on one another
	PartQuota   = "quota"   // executions of tenants of which only so many may be at work
	PartEvents  = "events"  // subscribers of the event stream
	PartFrames  = "frames"  // followers of the stream of an attempt
)

// Parts returns all parts, in the order in which they run.
func Parts() []string {
	return []string{PartOne, PartBatch, PartAhead, PartTimers, PartSuspend, PartGraph, PartQuota, PartEvents, PartFrames}
}

// Config says what to measure, and where.
type Config struct {
	Server      string        // the flowapi binary to start, on a database of its own; or
	URL         string        // a server that runs already: its processor, memory and disk are not looked at
	Self        string        // this program, which is also the subscribers' process
	Parts       []string      // none: all
	N           int           // executions of each measurement
	Connections int           // that are kept alive
	Batch       int           // executions of one request of PartBatch
	Large       int           // measure again with so many executions stored; 0: do not
	Ahead       int           // executions of PartAhead that cannot be claimed
	Timers      int           // of PartTimers, that an idle server waits for
	Rounds      int           // of PartTimers, for each kind of timer
	Idle        time.Duration // how long the idle server is watched
	Subscribers []int         // of PartEvents, one measurement each
	Rate        int           // executions created a second meanwhile
	Duration    time.Duration // for so long
	Followers   int           // of PartFrames
	FrameRate   int           // frames appended a second meanwhile, also for Duration
	FrameBatch  int           // at a time
	Log         io.Writer     // progress
}

// Run measures what cfg says. The context ends it early, with the context's error.
func Run(ctx context.Context, cfg Config) (Report, error) {
	r := run{cfg: cfg, report: Report{
		At: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		N: cfg.N, Connections: cfg.Connections, Batch: cfg.Batch,
	}}
	if len(cfg.Parts) == 0 {
		r.cfg.Parts = Parts()
	}
	if r.wants(PartOne) || r.wants(PartBatch) {
		if err := r.speed(ctx); err != nil {
			return r.report, err
		}
	}
	if r.wants(PartAhead) {
		if err := r.ahead(ctx); err != nil {
			return r.report, fmt.Errorf("claims behind others: %w", err)
		}
	}
	if r.wants(PartTimers) {
		if err := r.timers(ctx); err != nil {
			return r.report, fmt.Errorf("timers: %w", err)
		}
	}
	if r.wants(PartSuspend) {
		if err := r.suspensions(ctx); err != nil {
			return r.report, fmt.Errorf("suspensions: %w", err)
		}
	}
	if r.wants(PartGraph) {
		if err := r.graphs(ctx); err != nil {
			return r.report, fmt.Errorf("graphs: %w", err)
		}
	}
	if r.wants(PartQuota) {
		if err := r.quotas(ctx); err != nil {
			return r.report, fmt.Errorf("quotas: %w", err)
		}
	}
	if r.wants(PartEvents) {
		for _, subscribers := range cfg.Subscribers {
			if err := r.events(ctx, subscribers); err != nil {
				return r.report, fmt.Errorf("%d subscribers: %w", subscribers, err)
			}
		}
	}
	if r.wants(PartFrames) {
		if err := r.frames(ctx); err != nil {
			return r.report, fmt.Errorf("%d followers: %w", r.cfg.Followers, err)
		}
	}
	return r.report, nil
}

// run is a run under way.
type run struct {
	cfg    Config
	report Report
}

func (r *run) wants(part string) bool { return slices.Contains(r.cfg.Parts, part) }

// stored returns how many executions a server has, as far as is known here.
func stored(srv *server, api *client) int {
	if srv == nil {
		return unknown
	}
	return api.stored
}

// on calls do with a server: a fresh one, or the one that was given, for which srv is nil. The fresh one must end well.
func (r *run) on(ctx context.Context, do func(srv *server, api *client) error) (err error) {
	if r.cfg.URL != "" {
		return do(nil, newClient(strings.TrimSuffix(r.cfg.URL, "/"), r.cfg.Connections))
	}
	dir, err := os.MkdirTemp("", "flowapi-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	srv, err := start(ctx, r.cfg.Server, dir)
	if err != nil {
		return err
	}
	defer func() {
		if stopped := srv.stop(); err == nil {
			err = stopped
		}
	}()
	return do(srv, newClient(srv.url, r.cfg.Connections))
}

// speed measures one by one and in batches, on a database that begins empty and, if asked for, on a large one.
func (r *run) speed(ctx context.Context) error {
	return r.on(ctx, func(srv *server, api *client) error {
		if err := api.warmUp(ctx); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		if srv == nil {
			return r.rates(ctx, srv, api, unknown)
		}
		r.report.add(Row{Measure: "start to first answer", Value: ms(srv.started), Unit: "ms"})
		size, stored := srv.disk(ctx), api.stored
		if err := r.rates(ctx, srv, api, 0); err != nil {
			return err
		}
		r.report.add(Row{Measure: "resident memory", Value: mb(srv.memory()), Unit: "MB"})
		r.report.add(Row{Measure: "disk per lifecycle", Value: float64(srv.disk(ctx)-size) / float64(api.stored-stored), Unit: "bytes"})
		if r.cfg.Large == 0 {
			return nil
		}
		if err := r.fill(ctx, api); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
		if err := r.rates(ctx, srv, api, r.cfg.Large); err != nil {
			return err
		}
		r.report.add(Row{Measure: "resident memory", Stored: r.cfg.Large, Value: mb(srv.memory()), Unit: "MB"})
		return nil
	})
}

// rates measures the wanted parts at so many stored executions.
func (r *run) rates(ctx context.Context, srv *server, api *client, stored int) error {
	if r.wants(PartOne) {
		if err := r.oneByOne(ctx, srv, api, stored); err != nil {
			return err
		}
	}
	if r.wants(PartBatch) {
		return r.inBatches(ctx, srv, api, stored)
	}
	return nil
}

// fill stores executions until there are cfg.Large: of ten, nine have ended and one waits in a lane that nobody asks.
func (r *run) fill(ctx context.Context, api *client) error {
	ended, waiting := api.lane(), api.lane()
	for api.stored < r.cfg.Large {
		batches := min((r.cfg.Large-api.stored+fillBatch-1)/fillBatch, fillRound)
		_, err := parallel(ctx, batches, r.cfg.Connections, func(ctx context.Context, i int) error {
			if i%10 == 0 {
				_, err := api.createBatch(ctx, waiting, fillBatch)
				return err
			}
			_, err := api.lifecycleBatch(ctx, ended, fillBatch)
			return err
		})
		if err != nil {
			return err
		}
		api.stored += batches * fillBatch
		fmt.Fprintf(r.cfg.Log, "filled %d of %d\n", api.stored, r.cfg.Large)
	}
	return nil
}

const (
	fillBatch = 100
	fillRound = 1000 // batches, between two lines of progress
)
