package bench

import (
	"context"
	"fmt"
	"time"
)

// suspendWorkers is how many workers suspend and resume at the same time, and suspendRounds how often alone.
const (
	suspendWorkers = 8
	suspendRounds  = 500
)

// suspensions measures how long it takes from a suspension over its signal to the claim that goes on, by one worker and by several.
func (r *run) suspensions(ctx context.Context) error {
	return r.on(ctx, func(srv *server, api *client) error {
		if err := api.warmUp(ctx); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		for _, workers := range []int{1, suspendWorkers} {
			n, before := suspendRounds*workers, srv.cpu()
			lanes, each := make([]string, workers), make([]time.Duration, n)
			for i := range lanes {
				lanes[i] = api.lane()
			}
			t, err := parallel(ctx, workers, workers, func(ctx context.Context, worker int) error {
				return api.suspendOften(ctx, lanes[worker], each[worker*suspendRounds:(worker+1)*suspendRounds])
			})
			if err != nil {
				return err
			}
			all := newTiming(t.elapsed, each)
			all.cpu = srv.cpu() - before
			api.stored += workers
			r.report.rate(fmt.Sprintf("suspend, signal, claim resumed, %d workers", workers), stored(srv, api), n, all)
		}
		return nil
	})
}

// suspendOften suspends an execution and wakes it by a signal, again and again, and notes how long each time took until it was
// claimed.
func (c *client) suspendOften(ctx context.Context, lane string, each []time.Duration) error {
	id, err := c.create(ctx, lane)
	if err != nil {
		return err
	}
	held, err := c.claim(ctx, lane, 1)
	if err != nil {
		return err
	}
	for i := range each {
		begin := time.Now()
		next, err := c.suspendOnce(ctx, lane, held[0])
		if err != nil {
			return err
		}
		each[i] = time.Since(begin)
		if next.Kind != "resumed" || next.Execution.ID != id {
			return fmt.Errorf("a %s claim of %s, want %s resumed", next.Kind, next.Execution.ID, id)
		}
		held[0] = next
	}
	return c.complete(ctx, held[0])
}

func (c *client) suspendOnce(ctx context.Context, lane string, held claim) (claim, error) {
	var waits struct {
		Waitpoints []struct {
			ID    string `json:"waitpoint_id"`
			Token string `json:"token"`
		} `json:"waitpoints"`
	}
	path := "/v1/executions/" + held.Execution.ID
	err := c.post(ctx, path+"/suspend", `{"handle":"`+held.Handle+`","reason_code":"waiting_for_callback","timeout_ms":600000,"waitpoints":[{"waitpoint_key":"go"}],`+
		`"resume_condition":{"Single":{"waitpoint_key":"go","matcher":{"ByName":"done"}}}}`, &waits)
	if err != nil {
		return claim{}, err
	}
	if len(waits.Waitpoints) != 1 {
		return claim{}, fmt.Errorf("%d waitpoints, want one", len(waits.Waitpoints))
	}
	var taken struct {
		Effect string `json:"effect"`
	}
	w := waits.Waitpoints[0]
	err = c.post(ctx, path+"/signals", `{"waitpoint_id":"`+w.ID+`","token":"`+w.Token+`","signal_name":"done","payload":{"ok":true}}`, &taken)
	if err == nil && taken.Effect != "resume_condition_satisfied" {
		err = fmt.Errorf("the signal had the effect %q", taken.Effect)
	}
	if err != nil {
		return claim{}, err
	}
	claims, err := c.claim(ctx, lane, 1)
	if err != nil {
		return claim{}, err
	}
	return claims[0], nil
}
