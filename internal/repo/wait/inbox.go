package wait

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Inbox lists the open waits of the caller's namespace that a person can answer, newest first.
func (r *Repo) Inbox(ctx context.Context, f wait.Filter, after page.Cursor, limit int) (page.Page[wait.Wait], error) {
	var list []wait.Wait
	err := r.store.Read(ctx, func(q *store.Queries) error {
		where := store.NewWhere("namespace = ? AND manual = 1", call.From(ctx).Namespace)
		where.If(f.Kind == wait.FlowWait, "flow_id IS NOT NULL")
		where.If(f.Kind == wait.WaitpointsWait, "execution_id IS NOT NULL")
		where.If(f.Kind == wait.GateWait, "run_id IS NOT NULL")
		flowID, runID := store.ID(f.FlowID), store.ID(f.RunID)
		where.If(f.FlowID != uuid.Nil, "(flow_id = ? OR execution_id IN (SELECT id FROM executions WHERE flow_id = ?) OR run_id IN (SELECT id FROM runs WHERE flow_id = ?))", flowID, flowID, flowID)
		where.If(f.RunID != uuid.Nil, "(run_id = ? OR execution_id IN (SELECT id FROM executions WHERE run_id = ?))", runID, runID)
		where.If(!after.IsZero(), "(since, id) < (?, ?)", after.At, store.ID(after.ID))
		var rows []row
		err := q.Select(&rows, "SELECT "+columns+" FROM waits WHERE "+where.String()+" ORDER BY since DESC, id DESC LIMIT ?", where.Args(limit+1)...)
		if err != nil {
			return fmt.Errorf("list the inbox: %w", err)
		}
		list, err = store.Rows(rows, (*row).wait)
		return err
	})
	return page.Of(list, limit, func(w wait.Wait) page.Cursor { return page.After(w.Since, w.ID) }), err
}
