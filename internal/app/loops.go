package app

import (
	"context"
	"time"

	"github.com/flowapi/flowapi/internal/reconcile"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	budgetrepo "github.com/flowapi/flowapi/internal/repo/budget"
	executionrepo "github.com/flowapi/flowapi/internal/repo/execution"
	graphrepo "github.com/flowapi/flowapi/internal/repo/graph"
	"github.com/flowapi/flowapi/internal/repo/keyring"
	runrepo "github.com/flowapi/flowapi/internal/repo/run"
	streamrepo "github.com/flowapi/flowapi/internal/repo/stream"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
	workerrepo "github.com/flowapi/flowapi/internal/repo/worker"
)

const (
	batch     = 250 // rows of one background transaction
	bulkBatch = 50  // executions of one, each of which is a change of its own
	rare      = time.Minute
)

// work lists the work that time brings.
func (a *App) work() []reconcile.Loop {
	limited := func(work func(ctx context.Context, limit int) (int, error)) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) { return work(ctx, batch) }
	}
	safety, retention := a.store.Poll(), a.cfg.Retention
	if retention.EventAge == 0 {
		retention.EventAge = 30 * 24 * time.Hour
	}
	if retention.EventRows == 0 {
		retention.EventRows = 10_000_000
	}
	return []reconcile.Loop{
		{Name: executionrepo.Loop, Work: limited(a.executions.Pass), NextDue: a.executions.NextDue, Every: safety},
		{Name: executionrepo.BulkLoop, Work: func(ctx context.Context) (int, error) { return a.executions.WorkBulk(ctx, bulkBatch) }, NextDue: a.executions.NextBulk, Every: safety},
		{Name: "bulk_jobs", Work: limited(a.executions.ForgetBulk), Every: rare},
		{Name: streamrepo.Loop, Work: limited(a.streams.Trim), NextDue: a.streams.NextDue, Every: safety},
		{Name: workerrepo.Loop, Work: limited(a.workers.Sweep), NextDue: a.workers.NextDue, Every: safety},
		{Name: waitrepo.Loop, Work: limited(a.waits.Pass), NextDue: a.waits.NextDue, Every: safety},
		{Name: executionrepo.WaitpointLoop, Work: limited(a.executions.ExpireWaitpoints), NextDue: a.executions.NextWaitpoint, Every: safety},
		{Name: backlog.Loop, Work: a.graphs.Work, NextDue: a.graphs.NextWork, Every: safety},
		{Name: runrepo.Loop, Work: a.runs.Pass, NextDue: a.runs.NextDue, Every: safety},
		{Name: executionrepo.AdmissionLoop, Work: limited(a.executions.OpenDue), NextDue: a.executions.NextOpen, Every: safety},
		{Name: budgetrepo.Loop, Work: limited(a.budgets.Pass), NextDue: a.budgets.NextDue, Every: safety},
		{Name: "budget_keys", Work: limited(a.budgets.ExpireKeys), Every: rare},
		{Name: "budget_ledger", Work: limited(a.budgets.ExpireLedger), Every: rare},
		{Name: "quota_starts", Work: limited(a.quotas.Trim), Every: rare},
		{Name: "quota_keys", Work: limited(a.quotas.Forget), Every: rare},
		{Name: "claim_buckets", Work: limited(a.executions.Retire), Every: rare},
		{Name: graphrepo.BuildLoop, Work: limited(a.graphs.Clean), NextDue: a.graphs.NextClean, Every: rare},
		{Name: "external_events", Work: limited(a.waits.Expire), Every: rare},
		{Name: "suspend_keys", Work: limited(a.executions.ExpireSuspendKeys), Every: rare},
		{Name: "flow_retention", Work: limited(a.flows.Retain), Every: time.Hour},
		{Name: "execution_keys", Work: limited(a.executions.ExpireKeys), Every: rare},
		{Name: keyring.Loop, Work: a.keys.Forget, Every: rare},
		{Name: "idempotency_keys", Work: limited(a.store.ExpireKeys), Every: rare},
		{Name: "event_retention", Work: func(ctx context.Context) (int, error) {
			return a.store.TrimEvents(ctx, retention.EventAge, retention.EventRows)
		}, Every: rare},
	}
}
