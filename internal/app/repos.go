package app

import (
	"context"

	budgetrepo "github.com/flowapi/flowapi/internal/repo/budget"
	executionrepo "github.com/flowapi/flowapi/internal/repo/execution"
	flowrepo "github.com/flowapi/flowapi/internal/repo/flow"
	graphrepo "github.com/flowapi/flowapi/internal/repo/graph"
	"github.com/flowapi/flowapi/internal/repo/keyring"
	quotarepo "github.com/flowapi/flowapi/internal/repo/quota"
	runrepo "github.com/flowapi/flowapi/internal/repo/run"
	"github.com/flowapi/flowapi/internal/repo/store"
	streamrepo "github.com/flowapi/flowapi/internal/repo/stream"
	"github.com/flowapi/flowapi/internal/repo/token"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
	workerrepo "github.com/flowapi/flowapi/internal/repo/worker"
)

// repos keep the subjects, each its own.
type repos struct {
	tokens     *token.Repo
	keys       *keyring.Repo
	workers    *workerrepo.Repo
	streams    *streamrepo.Repo
	waits      *waitrepo.Repo
	executions *executionrepo.Repo
	flows      *flowrepo.Repo
	graphs     *graphrepo.Repo
	budgets    *budgetrepo.Repo
	quotas     *quotarepo.Repo
	runs       *runrepo.Repo
}

// openRepos makes the repositories, tells them of one another, and registers what reacts to their events.
func openRepos(ctx context.Context, s *store.Store, cfg Config) (r repos, err error) {
	if r.tokens, err = token.New(ctx, s, cfg.Token); err != nil {
		return r, err
	}
	if r.keys, err = keyring.Open(ctx, s, cfg.master(s.File())); err != nil {
		return r, err
	}
	r.workers, r.streams, r.waits = workerrepo.New(s), streamrepo.New(s), waitrepo.New(s, waitrepo.Config{})
	r.executions = executionrepo.New(s, r.waits, r.keys)
	r.flows = flowrepo.New(s, r.waits, r.executions, flowrepo.Config{Batch: cfg.Batch})
	r.budgets, r.quotas = budgetrepo.New(s, r.executions), quotarepo.New(s, r.executions)
	r.runs = runrepo.New(s, r.waits, r.executions, r.flows, r.keys, runrepo.Config{Batch: cfg.Batch})
	r.graphs = graphrepo.New(s, r.executions, r.flows, r.runs, graphrepo.Config{Batch: cfg.Batch})
	r.executions.Attach(r.flows, r.graphs, r.budgets, r.quotas)
	r.flows.Attach(r.runs)
	r.waits.Attach(waitrepo.Owners{Flows: r.flows, Executions: r.executions, Runs: r.runs}, waitrepo.Kinds{Executions: r.executions, Runs: r.runs})
	for _, reactor := range []store.Reactor{r.flows.Mirror(), r.flows.Reopen(), r.graphs.Resolve(), r.runs.Mirror(), r.runs.EndWithFlow(), r.runs.GoneWithFlow()} {
		s.React(reactor)
	}
	return r, r.graphs.Recover(ctx)
}
