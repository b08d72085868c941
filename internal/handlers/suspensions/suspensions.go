// Package suspensions holds the operations by which executions wait for somebody outside: suspending, waitpoints and their
// tokens, signals and approvals, and the inbox of what waits for a person.
package suspensions

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Executions is the store of executions and of their waitpoints.
type Executions interface {
	Suspend(ctx context.Context, f execution.Fence, req execution.SuspendRequest) (execution.SuspendReport, error)
	CreateWaitpoint(ctx context.Context, f execution.Fence, w execution.Waitpoint, ttl time.Duration) (execution.Minted, error)
	WaitpointToken(ctx context.Context, id, waitpoint uuid.UUID) (execution.Minted, error)
	Waitpoints(ctx context.Context, id uuid.UUID, after page.Cursor, limit int) (page.Page[execution.ListedWaitpoint], error)
	CloseWaitpoint(ctx context.Context, id, waitpoint uuid.UUID, f *execution.Fence, reason string) (execution.Waitpoint, error)
	Signal(ctx context.Context, in execution.SignalRequest) (execution.Signalled, error)
	Signals(ctx context.Context, id uuid.UUID, all bool, after page.Cursor, limit int) (page.Page[wait.Kept], error)
	Asking(ctx context.Context, executions []uuid.UUID) (map[uuid.UUID]execution.Asking, error)
}

// Waits is the store of open waits.
type Waits interface {
	Inbox(ctx context.Context, f wait.Filter, after page.Cursor, limit int) (page.Page[wait.Wait], error)
}

// Gates is the store of gates.
type Gates interface {
	Asked(ctx context.Context, stepIDs []uuid.UUID) (map[uuid.UUID]run.GateAt, error)
}

// Handlers are the operations on suspensions.
type Handlers struct {
	Executions Executions
	Waits      Waits
	Gates      Gates
	PublicURL  func(ctx context.Context) string // where people reach this server, without a slash at the end
}
