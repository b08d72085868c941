package app

import (
	"context"
	"time"

	"github.com/flowapi/flowapi/internal/reconcile"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	budgetrepo "github.com/flowapi/flowapi/internal/repo/budget"
	executionrepo "github.com/flowapi/flowapi/internal/repo/execution"
	flowrepo "github.com/flowapi/flowapi/internal/repo/flow"
	graphrepo "github.com/flowapi/flowapi/internal/repo/graph"
	"github.com/flowapi/flowapi/internal/repo/keyring"
	quotarepo "github.com/flowapi/flowapi/internal/repo/quota"
	runrepo "github.com/flowapi/flowapi/internal/repo/run"
	streamrepo "github.com/flowapi/flowapi/internal/repo/stream"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
	workerrepo "github.com/flowapi/flowapi/internal/repo/worker"
)

const (
	batch     = 250 // rows of one background transaction
	bulkBatch = 50  // executions of one, each of which is a change of its own
	safety    = 5 * time.Second
	rare      = time.Minute
)

// loopsOf lists the work that time brings.
func (a *App) loopsOf(executions *executionrepo.Repo, streams *streamrepo.Repo, workers *workerrepo.Repo, waits *waitrepo.Repo, flows *flowrepo.Repo, graphs *graphrepo.Repo, runs *runrepo.Repo, budgets *budgetrepo.Repo, quotas *quotarepo.Repo, keys *keyring.Repo) []reconcile.Loop {
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
		{Name: executionrepo.Loop, Work: limited(executions.Pass), NextDue: executions.NextDue, Every: safety},
		{Name: executionrepo.BulkLoop, Work: func(ctx context.Context) (int, error) { return executions.WorkBulk(ctx, bulkBatch) }, NextDue: executions.NextBulk, Every: safety},
		{Name: "bulk_jobs", Work: limited(executions.ForgetBulk), Every: rare},
		{Name: streamrepo.Loop, Work: limited(streams.Trim), NextDue: streams.NextDue, Every: safety},
		{Name: workerrepo.Loop, Work: limited(workers.Sweep), NextDue: workers.NextDue, Every: safety},
		{Name: waitrepo.Loop, Work: limited(waits.Pass), NextDue: waits.NextDue, Every: safety},
		{Name: executionrepo.WaitpointLoop, Work: limited(executions.ExpireWaitpoints), NextDue: executions.NextWaitpoint, Every: safety},
		{Name: backlog.Loop, Work: graphs.Work, NextDue: graphs.NextWork, Every: safety},
		{Name: runrepo.Loop, Work: runs.Pass, NextDue: runs.NextDue, Every: safety},
		{Name: executionrepo.AdmissionLoop, Work: limited(executions.OpenDue), NextDue: executions.NextOpen, Every: safety},
		{Name: budgetrepo.Loop, Work: limited(budgets.Pass), NextDue: budgets.NextDue, Every: safety},
		{Name: "budget_keys", Work: limited(budgets.ExpireKeys), Every: rare},
		{Name: "budget_ledger", Work: limited(budgets.ExpireLedger), Every: rare},
		{Name: "quota_starts", Work: limited(quotas.Trim), Every: rare},
		{Name: "quota_keys", Work: limited(quotas.Forget), Every: rare},
		{Name: "claim_buckets", Work: limited(executions.Retire), Every: rare},
		{Name: graphrepo.BuildLoop, Work: limited(graphs.Clean), NextDue: graphs.NextClean, Every: rare},
		{Name: "external_events", Work: limited(waits.Expire), Every: rare},
		{Name: "suspend_keys", Work: limited(executions.ExpireSuspendKeys), Every: rare},
		{Name: "flow_retention", Work: limited(flows.Retain), Every: time.Hour},
		{Name: "execution_keys", Work: limited(executions.ExpireKeys), Every: rare},
		{Name: keyring.Loop, Work: keys.Forget, Every: rare},
		{Name: "idempotency_keys", Work: limited(a.store.ExpireKeys), Every: rare},
		{Name: "event_retention", Work: func(ctx context.Context) (int, error) {
			return a.store.TrimEvents(ctx, retention.EventAge, retention.EventRows)
		}, Every: rare},
	}
}
