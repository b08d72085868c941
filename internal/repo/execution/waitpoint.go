package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// WaitpointLoop is the name of the sweep over waitpoints that nobody suspended on in time.
const WaitpointLoop = "waitpoints"

// waitpointRow is a stored waitpoint.
type waitpointRow struct {
	ID           store.ID     `db:"id"`
	ExecutionID  store.ID     `db:"execution_id"`
	AttemptIndex int          `db:"attempt_index"`
	SuspensionID store.ID     `db:"suspension_id"`
	Key          string       `db:"waitpoint_key"`
	Kid          string       `db:"kid"`
	State        string       `db:"state"`
	Approval     store.JSON   `db:"approval"`
	Title        store.Text   `db:"title"` // of the approval
	Prompt       store.Text   `db:"prompt"`
	CreatedAt    store.Millis `db:"created_at"`
	ActivatedAt  store.Millis `db:"activated_at"`
	ExpiresAt    store.Millis `db:"expires_at"`
	ClosedAt     store.Millis `db:"closed_at"`
	CloseReason  store.Text   `db:"close_reason"`
	Signals      int          `db:"signal_count"`
}

const waitpointColumns = "id, execution_id, attempt_index, suspension_id, waitpoint_key, kid, state, approval, title, prompt, created_at, activated_at, expires_at, closed_at, close_reason, signal_count"

func (r *waitpointRow) waitpoint() (execution.Waitpoint, error) {
	w := execution.Waitpoint{ID: uuid.UUID(r.ID), ExecutionID: uuid.UUID(r.ExecutionID), AttemptIndex: r.AttemptIndex, SuspensionID: uuid.UUID(r.SuspensionID), Key: r.Key,
		Kid: r.Kid, State: execution.WaitpointState(r.State), CreatedAt: time.Time(r.CreatedAt), ActivatedAt: time.Time(r.ActivatedAt), ExpiresAt: time.Time(r.ExpiresAt),
		ClosedAt: time.Time(r.ClosedAt), CloseReason: string(r.CloseReason), Signals: r.Signals}
	if r.Approval != nil {
		if err := json.Unmarshal(r.Approval, &w.Approval); err != nil {
			return w, store.Corrupt("waitpoint", w.ID, err)
		}
		w.Approval.Title, w.Approval.Prompt = string(r.Title), string(r.Prompt)
	}
	return w, nil
}

// insertWaitpoint stores a new waitpoint. It returns CodeAlreadyExists when its id is taken.
func insertWaitpoint(tx *store.Tx, w *execution.Waitpoint) error {
	var approval store.JSON
	var title, prompt store.Text
	if w.Approval != nil {
		title, prompt = store.Text(w.Approval.Title), store.Text(w.Approval.Prompt)
		var err error
		if approval, err = json.Marshal(w.Approval); err != nil {
			return fmt.Errorf("waitpoint %s: %w", w.ID, err)
		}
	}
	n, err := tx.Exec(`INSERT INTO waitpoints (`+waitpointColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		store.ID(w.ID), store.ID(w.ExecutionID), w.AttemptIndex, store.ID(w.SuspensionID), w.Key, w.Kid, string(w.State), approval, title, prompt, store.Millis(w.CreatedAt),
		store.Millis(w.ActivatedAt), store.Millis(w.ExpiresAt), store.Millis(w.ClosedAt), store.Text(w.CloseReason), w.Signals)
	switch {
	case err != nil:
		return fmt.Errorf("make waitpoint %s: %w", w.ID, err)
	case n == 0:
		return fault.New(fault.CodeAlreadyExists, "There is a waitpoint %s already. Choose another id, or none.", w.ID)
	}
	return nil
}

// moveWaitpoint writes where a waitpoint stands now.
func moveWaitpoint(tx *store.Tx, w *execution.Waitpoint) error {
	err := tx.ExecOne(`UPDATE waitpoints SET state = ?, suspension_id = ?, activated_at = ?, expires_at = ?, closed_at = ?, close_reason = ?, signal_count = ? WHERE id = ?`,
		string(w.State), store.ID(w.SuspensionID), store.Millis(w.ActivatedAt), store.Millis(w.ExpiresAt), store.Millis(w.ClosedAt), store.Text(w.CloseReason), w.Signals, store.ID(w.ID))
	if err != nil {
		return fmt.Errorf("update waitpoint %s: %w", w.ID, err)
	}
	return nil
}

// findWaitpoint returns a waitpoint of an execution. It returns CodeNotFound.
func findWaitpoint(q *store.Queries, executionID, id uuid.UUID) (execution.Waitpoint, error) {
	var found waitpointRow
	if err := q.Find(&found, "waitpoint", id, `SELECT `+waitpointColumns+` FROM waitpoints WHERE id = ? AND execution_id = ?`, store.ID(id), store.ID(executionID)); err != nil {
		return execution.Waitpoint{}, err
	}
	return found.waitpoint()
}

// counted says how many waitpoints an execution has had, and how many signals came to them.
func counted(tx *store.Tx, id uuid.UUID) (waitpoints, signals int, err error) {
	var n struct {
		Waitpoints int `db:"waitpoints"`
		Signals    int `db:"signals"`
	}
	if err := tx.Get(&n, `SELECT count(*) AS waitpoints, coalesce(sum(signal_count), 0) AS signals FROM waitpoints WHERE execution_id = ?`, store.ID(id)); err != nil {
		return 0, 0, fmt.Errorf("count the waitpoints of %s: %w", id, err)
	}
	return n.Waitpoints, n.Signals, nil
}

// room refuses, with CodeWaitpointLimit, more waitpoints than an execution may have.
func room(tx *store.Tx, id uuid.UUID, more int) error {
	n, _, err := counted(tx, id)
	if err == nil && n+more > execution.MaxOfExecution {
		return fault.New(fault.CodeWaitpointLimit, "Execution %s has had %d waitpoints, and may have %d. Suspend on those that there are, or go on in another execution.", id, n, execution.MaxOfExecution).With("limit", execution.MaxOfExecution)
	}
	return err
}

// mintedRef is what the token of a waitpoint is made from again.
type mintedRef struct {
	ID  uuid.UUID `json:"waitpoint_id"`
	Key string    `json:"waitpoint_key"`
	Kid string    `json:"kid"`
}

func refsOf(minted []execution.Minted) []mintedRef {
	refs := make([]mintedRef, len(minted))
	for i := range minted {
		refs[i] = mintedRef{minted[i].ID, minted[i].Key, minted[i].Kid}
	}
	return refs
}

// again makes the tokens of an earlier answer again.
func again(ring waitpoint.Ring, executionID uuid.UUID, refs []mintedRef, now time.Time) ([]execution.Minted, error) {
	minted := make([]execution.Minted, len(refs))
	for i, old := range refs {
		token, err := ring.Again(old.Kid, executionID, old.ID, now)
		if err != nil {
			return nil, err
		}
		minted[i] = execution.Minted{Waitpoint: execution.Waitpoint{ID: old.ID, ExecutionID: executionID, Key: old.Key, Kid: old.Kid}, Token: token}
	}
	return minted, nil
}

// CreateWaitpoint makes a waitpoint for f's owner, to be handed out before it is suspended on. Errors: CodeNotFound, those of
// [execution.Execution.Check], CodeAlreadyExists and CodeWaitpointLimit. reference: executions.md 2.14.
func (r *Repo) CreateWaitpoint(ctx context.Context, f execution.Fence, w execution.Waitpoint, ttl time.Duration) (execution.Minted, error) {
	type ref struct {
		Execution uuid.UUID `json:"execution_id"`
		Waitpoint uuid.UUID `json:"waitpoint_id"`
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Minted) error {
		e, err := r.State(tx, f.ExecutionID)
		if err != nil {
			return err
		}
		tx.Later()
		if w.ID == uuid.Nil {
			w.ID = store.NewID()
		}
		made, told, err := e.Prepare(f, w, ttl, tx.Now())
		if err != nil {
			return err
		}
		if err := room(tx, e.ID, 1); err != nil {
			return err
		}
		if *out, err = r.mint(tx, made); err != nil {
			return err
		}
		if err := insertWaitpoint(tx, &out.Waitpoint); err != nil {
			return err
		}
		tx.Emit(told)
		tx.Alarm(WaitpointLoop, made.ExpiresAt)
		tx.Hide()
		tx.Refer(ref{e.ID, w.ID})
		return nil
	}, store.Reload(func(ctx context.Context, old ref) (execution.Minted, error) {
		return r.token(ctx, old.Execution, old.Waitpoint, func(*execution.Execution, *execution.Waitpoint) error { return nil })
	}))
}

// mint makes the token of a new waitpoint.
func (r *Repo) mint(tx *store.Tx, w execution.Waitpoint) (execution.Minted, error) {
	ring, err := r.keys.Ring(&tx.Queries)
	if err != nil {
		return execution.Minted{}, err
	}
	token, err := ring.Mint(w.ExecutionID, w.ID)
	if err != nil {
		return execution.Minted{}, err
	}
	w.Kid = token.Kid()
	return execution.Minted{Waitpoint: w, Token: token}, nil
}

// WaitpointToken returns a waitpoint with its token. It returns CodeNotFound, also for one that takes no signals any more: its
// token opens nothing.
func (r *Repo) WaitpointToken(ctx context.Context, id, waitpointID uuid.UUID) (out execution.Minted, err error) {
	return r.token(ctx, id, waitpointID, func(e *execution.Execution, w *execution.Waitpoint) error {
		if _, err := w.Takes(e, r.store.Now()); err != nil {
			return fault.New(fault.CodeNotFound, "Waitpoint %s takes no signals any more: it has no token.", waitpointID).With("resource", "waitpoint")
		}
		return nil
	})
}

func (r *Repo) token(ctx context.Context, id, waitpointID uuid.UUID, check func(e *execution.Execution, w *execution.Waitpoint) error) (out execution.Minted, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		e, err := find(q, call.From(ctx).Namespace, id, "")
		if err != nil {
			return err
		}
		w, err := findWaitpoint(q, id, waitpointID)
		if err != nil {
			return err
		}
		if err := check(&e, &w); err != nil {
			return err
		}
		ring, err := r.keys.Ring(q)
		if err != nil {
			return err
		}
		token, err := ring.Again(w.Kid, id, waitpointID, q.Now())
		out = execution.Minted{Waitpoint: w, Token: token}
		return err
	})
	return out, err
}

// Waitpoints lists the waitpoints of an execution that take signals, by their ids; one that has ended has none. It returns CodeNotFound.
func (r *Repo) Waitpoints(ctx context.Context, id uuid.UUID, after page.Cursor, limit int) (out page.Page[execution.ListedWaitpoint], err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		e, err := find(q, call.From(ctx).Namespace, id, "")
		if err != nil || e.Lifecycle == execution.Terminal {
			return err
		}
		where := store.NewWhere(`execution_id = ? AND (state = 'active' OR state = 'pending' AND attempt_index = ?)`, store.ID(id), e.OpenAttempt())
		where.If(!after.IsZero(), `id > ?`, store.ID(after.ID))
		if limit, err = store.Fit(q, limit, "approval", `waitpoints WHERE `+where.String()+` ORDER BY id`, where.Args()...); err != nil {
			return fmt.Errorf("list the waitpoints of %s: %w", id, err)
		}
		var rows []waitpointRow
		if err := q.Select(&rows, `SELECT `+waitpointColumns+` FROM waitpoints WHERE `+where.String()+` ORDER BY id LIMIT ?`, where.Args(limit+1)...); err != nil {
			return fmt.Errorf("list the waitpoints of %s: %w", id, err)
		}
		at := page.Of(rows, limit, func(w waitpointRow) page.Cursor { return page.Cursor{At: 1, ID: uuid.UUID(w.ID)} })
		out = page.Page[execution.ListedWaitpoint]{Items: make([]execution.ListedWaitpoint, len(at.Items)), Next: at.Next}
		ring, err := r.keys.Ring(q)
		if err != nil {
			return err
		}
		for i := range at.Items {
			if out.Items[i], err = r.listed(q, ring, &e, &at.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

func (r *Repo) listed(q *store.Queries, ring waitpoint.Ring, e *execution.Execution, found *waitpointRow) (execution.ListedWaitpoint, error) {
	w, err := found.waitpoint()
	if err != nil {
		return execution.ListedWaitpoint{}, err
	}
	token, err := ring.Again(w.Kid, w.ExecutionID, w.ID, q.Now())
	if err != nil {
		return execution.ListedWaitpoint{}, err
	}
	out := execution.ListedWaitpoint{Waitpoint: w, Fingerprint: token.Fingerprint(), Kid: token.Kid(), Names: []string{}}
	if w.State != execution.WaitpointActive || !e.Suspension.Open() {
		return out, nil
	}
	open, err := r.waits.Waits(q, []uuid.UUID{e.Suspension.ID})
	if of, ok := open[e.Suspension.ID]; ok {
		out.Names = of.Condition.Names(w.Key)
	}
	return out, err
}

// CloseWaitpoint closes a waitpoint, for the owner of its execution or, without a fence, for an operator. One that is closed stays
// as it is. It returns CodeNotFound and what [execution.Execution.Check] says.
func (r *Repo) CloseWaitpoint(ctx context.Context, id, waitpointID uuid.UUID, f *execution.Fence, reason string) (execution.Waitpoint, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Waitpoint) error {
		e, err := r.State(tx, id)
		if err != nil {
			return err
		}
		tx.Later()
		if f != nil {
			if err := e.Check(*f, tx.Now()); err != nil {
				return err
			}
		}
		if *out, err = findWaitpoint(&tx.Queries, id, waitpointID); err != nil || out.State == execution.WaitpointClosed {
			return err
		}
		*out, err = closeWaitpoint(tx, &e, *out, reason)
		return err
	})
}

func closeWaitpoint(tx *store.Tx, e *execution.Execution, w execution.Waitpoint, reason string) (execution.Waitpoint, error) {
	closed, told := w.Close(e, reason, tx.Now())
	if err := moveWaitpoint(tx, &closed); err != nil {
		return w, err
	}
	tx.Emit(told)
	return closed, nil
}

// ExpireWaitpoints closes up to limit waitpoints that nobody suspended on in time, and returns how many. Those of an execution
// that is in other hands are left for the next time.
func (r *Repo) ExpireWaitpoints(ctx context.Context, limit int) (int, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		var rows []waitpointRow
		err := tx.Select(&rows, `SELECT id, execution_id FROM waitpoints WHERE state = 'pending' AND expires_at <= ? ORDER BY expires_at LIMIT ?`, store.Millis(tx.Queries.Now()), limit)
		if err != nil {
			return fmt.Errorf("read waitpoints that have expired: %w", err)
		}
		for i := range rows {
			acted, err := r.expireWaitpoint(tx, uuid.UUID(rows[i].ID), uuid.UUID(rows[i].ExecutionID))
			if err != nil {
				return err
			}
			if acted {
				*out++
			}
		}
		return nil
	}, store.Background())
}

func (r *Repo) expireWaitpoint(tx *store.Tx, id, executionID uuid.UUID) (bool, error) {
	var held []row
	if err := tx.Select(&held, selectByID+tx.SkipLocked(), store.ID(executionID)); err != nil || len(held) == 0 {
		return false, err
	}
	tx.Later()
	var found waitpointRow
	if err := tx.Get(&found, `SELECT `+waitpointColumns+` FROM waitpoints WHERE id = ?`, store.ID(id)); err != nil {
		return false, fmt.Errorf("read waitpoint %s: %w", id, err)
	}
	found.Approval = nil // one that cannot be read expires, too
	w, err := found.waitpoint()
	if err != nil || w.State != execution.WaitpointPending || w.ExpiresAt.After(tx.Now()) {
		return false, err
	}
	e, err := held[0].execution()
	if err != nil {
		tx.Report(err)
		e = execution.Execution{ID: executionID, Namespace: held[0].Namespace}
	}
	tx.Call = call.Engine(held[0].Namespace)
	_, err = closeWaitpoint(tx, &e, w, execution.NeverCommitted)
	return true, err
}

// NextWaitpoint returns when the next pending waitpoint expires, zero for never.
func (r *Repo) NextWaitpoint(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT min(expires_at) FROM waitpoints WHERE state = 'pending'`)
}
