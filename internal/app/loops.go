package app

import (
	"context"
	"time"

	"github.com/flowapi/flowapi/internal/reconcile"
	executionrepo "github.com/flowapi/flowapi/internal/repo/execution"
)

const (
	batch  = 250 // rows of one background transaction
	safety = 5 * time.Second
	rare   = time.Minute
)

// loopsOf lists the work that time brings.
func (a *App) loopsOf(execs *executionrepo.Repo) []reconcile.Loop {
	limited := func(work func(ctx context.Context, limit int) (int, error)) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) { return work(ctx, batch) }
	}
	retention := a.cfg.Retention
	if retention.EventAge == 0 {
		retention.EventAge = 30 * 24 * time.Hour
	}
	if retention.EventRows == 0 {
		retention.EventRows = 10_000_000
	}
	return []reconcile.Loop{
		{Name: executionrepo.Loop, Work: limited(execs.Pass), NextDue: execs.NextDue, Every: safety},
		{Name: "execution_keys", Work: limited(execs.ExpireKeys), Every: rare},
		{Name: "idempotency_keys", Work: limited(a.store.ExpireKeys), Every: rare},
		{Name: "event_retention", Work: func(ctx context.Context) (int, error) {
			return a.store.TrimEvents(ctx, retention.EventAge, retention.EventRows)
		}, Every: rare},
	}
}
