package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// What PartQuota does: the same work on lanes without and with a quota, one after the other, several times.
const (
	tenants      = 10
	tenantCap    = 3 // executions of one that may be at work
	quotaShare   = 4 // of the executions of a measurement, in each round
	quotaRounds  = 3
	quotaWorkers = tenants * tenantCap
)

// quotas measures what it costs that a lane lets only so many executions of each tenant be at work.
func (r *run) quotas(ctx context.Context) error {
	return r.on(ctx, func(srv *server, api *client) error {
		if err := api.warmUp(ctx); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		var quota struct {
			ID string `json:"id"`
		}
		if err := api.post(ctx, "/v1/quotas", fmt.Sprintf(`{"max_concurrent":%d,"key_tag":"org.tenant"}`, tenantCap), &quota); err != nil {
			return err
		}
		var free, limited timing
		n := max(r.cfg.N/quotaShare, 1)
		for range quotaRounds {
			for _, round := range []struct {
				sum    *timing
				quotas string
			}{{&free, ""}, {&limited, `"` + quota.ID + `"`}} {
				lane := api.lane()
				var set struct{}
				if err := api.do(ctx, "PUT", "/v1/lanes/"+lane, `{"quota_policy_ids":[`+round.quotas+`]}`, &set); err != nil {
					return err
				}
				err := api.createMany(ctx, n, func(i int) string {
					return fmt.Sprintf(`{"lane":%q,"tags":{"org.tenant":"t%d"}}`, lane, i%tenants)
				})
				if err != nil {
					return err
				}
				t, err := r.drain(ctx, srv, api, lane, n)
				if err != nil {
					return err
				}
				*round.sum = round.sum.with(t)
			}
		}
		for _, row := range []struct {
			name string
			of   timing
		}{{"claim, complete", free}, {fmt.Sprintf("claim, complete: %d tenants, %d of each at work", tenants, tenantCap), limited}} {
			r.report.rate(row.name, stored(srv, api), quotaRounds*n, row.of)
		}
		r.report.add(Row{Measure: "rate with a quota, of that without", Stored: stored(srv, api), Value: 100 * free.elapsed.Seconds() / limited.elapsed.Seconds(), Unit: "%"})
		return nil
	})
}

// drain claims and completes n executions of a lane, with as many workers as may be at work. Each waits for work when there is none for it.
func (r *run) drain(ctx context.Context, srv *server, api *client, lane string, n int) (timing, error) {
	var done atomic.Int64
	each, before := make([]time.Duration, n), srv.cpu()
	t, err := parallel(ctx, quotaWorkers, quotaWorkers, func(ctx context.Context, _ int) error {
		for done.Load() < int64(n) {
			begin := time.Now()
			held, err := api.claimOnce(ctx, lane, 1, lease, 1)
			if err != nil {
				return err
			}
			for _, h := range held {
				if err := api.complete(ctx, h); err != nil {
					return err
				}
				i := done.Add(1)
				if i > int64(n) {
					return fmt.Errorf("lane %s: more than %d executions were completed", lane, n)
				}
				each[i-1] = time.Since(begin)
			}
		}
		return nil
	})
	all := newTiming(t.elapsed, each)
	all.cpu = srv.cpu() - before
	return all, err
}
