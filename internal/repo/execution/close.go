package execution

import (
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// StreamKey is what those wait for in the hub who follow the streams of an execution: frames, and the ends of attempts.
func StreamKey(id uuid.UUID) string { return "stream " + id.String() }

// StreamLoop is the name of the sweep over streams of which something is to go.
const StreamLoop = "streams"

// dropStreams leaves the frames of executions that are deleted to the sweep. owner is the column by which they are.
func dropStreams(tx *store.Tx, owner string, id uuid.UUID) error {
	n, err := tx.Exec(`INSERT INTO dropped_streams (execution_id, attempt_index, dropped_at) SELECT a.execution_id, a.attempt_index, CAST(? AS BIGINT) FROM attempts a
		JOIN executions e ON e.id = a.execution_id WHERE e.`+owner+` = ? AND (a.kept_frames > 0 OR a.live_frames > 0)`, store.Millis(tx.Now()), store.ID(id))
	if n > 0 {
		tx.Alarm(StreamLoop, tx.Now())
	}
	return err
}

// dropping says whether an execution that is deleted has left frames behind, which one with the same id would take for its own.
func dropping(tx *store.Tx, id uuid.UUID) (bool, error) {
	var n int
	err := tx.Get(&n, `SELECT count(*) FROM dropped_streams WHERE execution_id = ?`, store.ID(id))
	return n > 0, err
}

// closing is a stream that was closed and has frames.
type closing struct {
	Index  int                   `json:"attempt_index"`
	Reason execution.CloseReason `json:"reason"`
	Frames int64                 `json:"frame_count"`
}

// Ending an attempt closes its stream in the same statement: how a stream stands is in the attempt's row. A stream that was
// closed before stays closed since then, and gets another reason. Most attempts have no frames; the others are found by not
// being changed by the first statement, since asking each for its count would cost more than the change.
const (
	closeSet    = `UPDATE attempts SET state = ?, ended_at = ?, failure = ?, closed_at = coalesce(closed_at, ?), closed_reason = ?`
	closeEmpty  = closeSet + ` WHERE execution_id = ? AND attempt_index = ? AND frame_count = 0`
	closeFilled = closeSet + `, trim_at = CASE WHEN trim_at <= ? THEN trim_at ELSE ? END WHERE execution_id = ? AND attempt_index = ? RETURNING frame_count`
)

// closeAttempt ends an attempt, or takes it from its owner, and closes its stream. It adds to closed when that has frames.
func closeAttempt(tx *store.Tx, id store.ID, e *execution.Execution, a execution.AttemptChange, closed []closing) ([]closing, error) {
	failure, err := failureDoc(a.Failure)
	if err != nil {
		return closed, err
	}
	now := tx.Now()
	set := []any{string(a.Stage), store.Millis(a.EndedAt), failure, store.Millis(now), string(a.Close)}
	if n, err := tx.Exec(closeEmpty, append(set, id, a.Index)...); err != nil || n == 1 {
		return closed, err
	}
	gone := now.Add(e.PolicyOf().StreamRetention())
	tx.Alarm(StreamLoop, gone)
	trim := store.Millis(gone)
	it := closing{Index: a.Index, Reason: a.Close}
	err = tx.Get(&it.Frames, closeFilled, append(set, trim, trim, id, a.Index)...)
	if err == nil && a.Close != execution.ClosedReclaimed {
		closed = append(closed, it)
	}
	return closed, err
}

// tellClosed tells that streams were closed, which is a consequence of the event cause, and wakes who follows them. The end
// of the execution ends also the wait for its next attempt.
func tellClosed(tx *store.Tx, c execution.Change, closed []closing, cause store.Ref) {
	e := &c.Execution
	before := tx.Because(cause)
	for _, it := range closed {
		told := e.Event(event.StreamClosed, it)
		told.Revision = &e.Revision
		tx.Emit(told)
	}
	tx.Because(before)
	if e.Lifecycle == execution.Terminal || slices.ContainsFunc(c.Attempts, func(a execution.AttemptChange) bool { return a.Close != "" }) {
		tx.Wake(StreamKey(e.ID))
	}
}
