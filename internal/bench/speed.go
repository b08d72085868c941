package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// parallel calls do with 0 … n-1, from so many callers, and times the calls. The first error ends it.
func parallel(ctx context.Context, n, callers int, do func(ctx context.Context, i int) error) (timing, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	each := make([]time.Duration, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				t := time.Now()
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
				each[i] = time.Since(t)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(begin)
	return newTiming(elapsed, each), context.Cause(ctx)
}

// parallel calls do from all connections, and also takes the processor time that the server, if it was started here, uses meanwhile.
func (r *run) parallel(ctx context.Context, srv *server, n int, do func(ctx context.Context, i int) error) (timing, error) {
	before := srv.cpu()
	t, err := parallel(ctx, n, r.cfg.Connections, do)
	t.cpu = srv.cpu() - before
	return t, err
}

// oneByOne measures requests for one execution each: first all creates, then all claims, all completes; then whole
// lifecycles, on every connection one after the other.
func (r *run) oneByOne(ctx context.Context, srv *server, api *client, stored int) error {
	n, lane := r.cfg.N, api.lane()
	created, held := make([]string, n), make([]claim, n)

	t, err := r.parallel(ctx, srv, n, func(ctx context.Context, i int) (err error) {
		created[i], err = api.create(ctx, lane)
		return err
	})
	if err := errors.Join(err, distinct(created)); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	api.stored += n
	r.report.rate("create", stored, n, t)

	t, err = r.parallel(ctx, srv, n, func(ctx context.Context, i int) error {
		got, err := api.claim(ctx, lane, 1)
		if err == nil {
			held[i] = got[0]
		}
		return err
	})
	if err := errors.Join(err, same(created, idsOf(held))); err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	r.report.rate("claim", stored, n, t)

	t, err = r.parallel(ctx, srv, n, func(ctx context.Context, i int) error { return api.complete(ctx, held[i]) })
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	r.report.rate("complete", stored, n, t)

	lane = api.lane()
	t, err = r.parallel(ctx, srv, n, func(ctx context.Context, i int) (err error) {
		created[i], err = api.lifecycle(ctx, lane)
		return err
	})
	if err := errors.Join(err, distinct(created)); err != nil {
		return fmt.Errorf("lifecycle: %w", err)
	}
	api.stored += n
	r.report.rate("lifecycle: create, claim, complete", stored, n, t)
	return nil
}

// inBatches is oneByOne with requests for many executions each: the rates are of executions, the latencies of requests.
func (r *run) inBatches(ctx context.Context, srv *server, api *client, stored int) error {
	size, lane := r.cfg.Batch, api.lane()
	batches := (r.cfg.N + size - 1) / size
	n := batches * size
	name := fmt.Sprintf(", batches of %d", size)
	created, held, ended := make([][]string, batches), make([][]claim, batches), make([][]string, batches)

	t, err := r.parallel(ctx, srv, batches, func(ctx context.Context, i int) (err error) {
		created[i], err = api.createBatch(ctx, lane, size)
		return err
	})
	if err := errors.Join(err, distinct(slices.Concat(created...))); err != nil {
		return fmt.Errorf("create%s: %w", name, err)
	}
	api.stored += n
	r.report.rate("create"+name, stored, n, t)

	t, err = r.parallel(ctx, srv, batches, func(ctx context.Context, i int) (err error) {
		for len(held[i]) < size && err == nil {
			var got []claim
			got, err = api.claim(ctx, lane, size-len(held[i]))
			held[i] = append(held[i], got...)
		}
		return err
	})
	if err := errors.Join(err, same(slices.Concat(created...), idsOf(slices.Concat(held...)))); err != nil {
		return fmt.Errorf("claim%s: %w", name, err)
	}
	r.report.rate("claim"+name, stored, n, t)

	t, err = r.parallel(ctx, srv, batches, func(ctx context.Context, i int) error { return api.completeBatch(ctx, held[i]) })
	if err != nil {
		return fmt.Errorf("complete%s: %w", name, err)
	}
	r.report.rate("complete"+name, stored, n, t)

	lane = api.lane()
	t, err = r.parallel(ctx, srv, batches, func(ctx context.Context, i int) (err error) {
		ended[i], err = api.lifecycleBatch(ctx, lane, size)
		return err
	})
	if err := errors.Join(err, distinct(slices.Concat(ended...))); err != nil {
		return fmt.Errorf("lifecycle%s: %w", name, err)
	}
	api.stored += n
	r.report.rate("lifecycle"+name, stored, n, t)
	return nil
}

// distinct returns an error if an id is there twice: an execution that was made or handed out a second time.
func distinct(ids []string) error {
	if n := len(setOf(ids)); n != len(ids) {
		return fmt.Errorf("%d distinct ids in %d answers", n, len(ids))
	}
	return nil
}

// same returns an error unless what was claimed is what was created, each once.
func same(created, claimed []string) error {
	if err := distinct(claimed); err != nil {
		return err
	}
	if !maps.Equal(setOf(created), setOf(claimed)) {
		return fmt.Errorf("created %d, claimed %d, not the same ones", len(created), len(claimed))
	}
	return nil
}

func setOf(ids []string) map[string]struct{} {
	set := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		set[id] = struct{}{}
	}
	return set
}
