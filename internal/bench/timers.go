package bench

import (
	"context"
	"fmt"
	"time"
)

// timers measures how late timers take effect on a server that has nothing else to do, and what a server uses that waits for
// cfg.Timers of them.
func (r *run) timers(ctx context.Context) error {
	return r.on(ctx, func(srv *server, api *client) error {
		if err := api.warmUp(ctx); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		if err := r.punctuality(ctx, srv, api); err != nil || srv == nil {
			return err
		}
		return r.idle(ctx, srv, api)
	})
}

const (
	delay      = 50 * time.Millisecond
	shortLease = 200 * time.Millisecond
	waitFor    = 5 // seconds, for a timer
)

func (r *run) punctuality(ctx context.Context, srv *server, api *client) error {
	lane := api.lane()
	err := r.lateness(ctx, srv, api, lane, fmt.Sprintf("end of a delay of %s", delay), func(ctx context.Context) (execution, time.Time, error) {
		made, err := api.createOne(ctx, fmt.Sprintf(`{"lane":%q,"delay_ms":%d`, lane, delay.Milliseconds())+work)
		return made, made.DelayUntil, err
	})
	if err != nil {
		return err
	}
	return r.lateness(ctx, srv, api, lane, fmt.Sprintf("end of a lease of %s", shortLease), func(ctx context.Context) (execution, time.Time, error) {
		if _, err := api.create(ctx, lane); err != nil {
			return execution{}, time.Time{}, err
		}
		lost, err := api.claimOnce(ctx, lane, 1, shortLease, waitFor)
		if err == nil && len(lost) == 0 {
			err = fmt.Errorf("nothing to claim in %d s", waitFor)
		}
		if err != nil {
			return execution{}, time.Time{}, err
		}
		return lost[0].Execution, lost[0].LeaseExpiresAt, nil
	})
}

// lateness measures how long after a timer's due time a claim that waits for it is answered. set sets the timer and returns
// the execution that it makes claimable, and when. The server's clock must be this machine's.
func (r *run) lateness(ctx context.Context, srv *server, api *client, lane, name string, set func(ctx context.Context) (execution, time.Time, error)) error {
	before := stored(srv, api)
	each := make([]time.Duration, r.cfg.Rounds)
	for i := range each {
		timed, due, err := set(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		held, err := api.claimOnce(ctx, lane, 1, lease, waitFor)
		each[i] = time.Since(due)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case len(held) != 1 || held[0].Execution.ID != timed.ID:
			return fmt.Errorf("%s: %s was due, and in %d s these could be claimed: %v", name, timed.ID, waitFor, idsOf(held))
		case each[i] < 0:
			return fmt.Errorf("%s: %s was claimed %s before it was due", name, timed.ID, -each[i])
		}
		if err := api.complete(ctx, held[0]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	api.stored += len(each)
	t := newTiming(0, each)
	r.report.add(Row{Measure: name + ": lateness, at most", Stored: before, Value: ms(t.quantile(1)), Unit: "ms", P50: ms(t.quantile(0.50)), P99: ms(t.quantile(0.99))})
	return nil
}

// idle measures the processor time of a server that waits for timers and does nothing else.
func (r *run) idle(ctx context.Context, srv *server, api *client) error {
	lane := api.lane()
	err := api.createMany(ctx, r.cfg.Timers, func(i int) string { return fmt.Sprintf(`{"lane":%q,"delay_ms":%d`, lane, farAway(i)) + work })
	if err != nil {
		return fmt.Errorf("create delayed executions: %w", err)
	}
	fmt.Fprintf(r.cfg.Log, "created %d timers, watching the server for %s\n", r.cfg.Timers, r.cfg.Idle)
	if err := srv.quiet(ctx); err != nil {
		return err
	}
	before, begin := srv.cpu(), time.Now()
	if err := pause(ctx, r.cfg.Idle); err != nil {
		return err
	}
	used, elapsed := srv.cpu()-before, time.Since(begin)
	if before > 0 {
		name := fmt.Sprintf("idle, %s timers to wait for: CPU, of one core", thousands(float64(r.cfg.Timers)))
		r.report.add(Row{Measure: name, Stored: stored(srv, api), Value: 100 * used.Seconds() / elapsed.Seconds(), Unit: unitShare})
	}
	return nil
}
