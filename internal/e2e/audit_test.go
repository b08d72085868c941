package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// audit looks into a SQLite database from outside, and holds it to what clients were told. It may be asked again and again
// while the log grows: what it has seen of the log is not read twice.
type audit struct {
	events     int64
	executions map[string]*folded
}

// folded is what the events say about an execution.
type folded struct {
	public      string
	owner       string // ownership_state
	worker      string
	revision    int64
	epoch       int64
	completions int
	epochs      map[int64]string // whose each lease was: worker/lease_id
}

// eventData is what the fold needs of an event's data.
type eventData struct {
	PublicState string `json:"public_state"`
	LeaseID     string `json:"lease_id"`
	LeaseEpoch  int64  `json:"lease_epoch"`
	WorkerID    string `json:"worker_id"`
}

// check reads one snapshot of the database file and returns everything that is wrong with it.
func (a *audit) check(ctx context.Context, file string, told *ledger) error {
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=query_only(1)&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := sound(ctx, tx); err != nil {
		return err
	}
	if err := a.fold(ctx, tx); err != nil {
		return fmt.Errorf("the event log: %w", err)
	}
	if err := a.rows(ctx, tx, told); err != nil {
		return err
	}
	if err := a.attempts(ctx, tx); err != nil {
		return err
	}
	if err := kept(ctx, tx, told); err != nil {
		return err
	}
	return a.claims(told)
}

// kept looks for every answered frame and signal.
func kept(ctx context.Context, tx *sql.Tx, told *ledger) error {
	frames, signals := map[string]string{}, map[string]string{}
	var key, of string
	var id int64
	err := each(ctx, tx, `SELECT frame_key, id FROM frames`, nil, []any{&key, &id}, func() error {
		frames[key] = fmt.Sprintf("%d-%d", id>>20, id&(1<<20-1))
		return nil
	})
	if err == nil {
		err = each(ctx, tx, `SELECT event_id, effect FROM signals`, nil, []any{&key, &of}, func() error {
			signals[key] = of
			return nil
		})
	}
	if err != nil {
		return err
	}
	for key, id := range told.frames {
		if frames[key] != id {
			return fmt.Errorf("frame %s was answered as %s, and is %q", key, id, frames[key])
		}
	}
	for signal, execution := range told.signalled {
		if signals[signal] != "resume_condition_satisfied" {
			return fmt.Errorf("signal %s has woken execution %s, and is there as %q", signal, execution, signals[signal])
		}
	}
	var asleep int
	err = tx.QueryRowContext(ctx, `SELECT count(*) FROM executions e JOIN signals s ON s.execution_id = e.id AND s.suspension_id = json_extract(e.suspension, '$.suspension_id')
		WHERE e.lifecycle_phase = 'suspended' AND s.effect = 'resume_condition_satisfied'`).Scan(&asleep)
	if err != nil {
		return fmt.Errorf("count who was woken and sleeps: %w", err)
	}
	if asleep > 0 {
		return fmt.Errorf("%d executions were woken and sleep", asleep)
	}
	return nil
}

// sound asks SQLite itself.
func sound(ctx context.Context, tx *sql.Tx) error {
	var verdict string
	if err := tx.QueryRowContext(ctx, `PRAGMA integrity_check`).Scan(&verdict); err != nil {
		return fmt.Errorf("integrity_check: %w", err)
	}
	if verdict != "ok" {
		return fmt.Errorf("integrity_check: %s", verdict)
	}
	var broken int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM pragma_foreign_key_check`).Scan(&broken); err != nil || broken > 0 {
		return fmt.Errorf("%d broken foreign keys, %w", broken, err)
	}
	return nil
}

// each scans all rows of a query.
func each(ctx context.Context, tx *sql.Tx, query string, args, into []any, row func() error) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := row(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// fold reads the log on. Its ids are consecutive, and its head is where event_log says.
func (a *audit) fold(ctx context.Context, tx *sql.Tx) error {
	if a.executions == nil {
		a.executions, a.events = map[string]*folded{}, 1 // the first tells that the server has made its waitpoint secret
	}
	var id, revision int64
	var eventType, execution string
	var data []byte
	err := each(ctx, tx, `SELECT id, type, hex(execution_id), coalesce(revision, -1), data FROM events WHERE id > ? AND execution_id IS NOT NULL ORDER BY id`, []any{a.events},
		[]any{&id, &eventType, &execution, &revision, &data}, func() error {
			if id != a.events+1 {
				return fmt.Errorf("event %d follows event %d", id, a.events)
			}
			a.events = id
			var d eventData
			if err := json.Unmarshal(data, &d); err != nil {
				return err
			}
			if err := a.apply(execution, eventType, revision, d); err != nil {
				return fmt.Errorf("event %d, %s of execution %s: %w", id, eventType, execution, err)
			}
			return nil
		})
	if err != nil {
		return err
	}
	var last, count int64
	if err := tx.QueryRowContext(ctx, `SELECT last, (SELECT count(*) FROM events) FROM event_log`).Scan(&last, &count); err != nil {
		return err
	}
	if last != a.events || count != a.events {
		return fmt.Errorf("it ends with event %d, has %d events, and its head says %d", a.events, count, last)
	}
	return nil
}

// beside are the events that tell of frames and signals.
var beside = map[string]bool{"stream.closed": true, "signal.delivered": true}

// apply makes one event's transition, if it is possible.
func (a *audit) apply(execution, eventType string, revision int64, d eventData) error {
	f, known := a.executions[execution]
	if created := eventType == "execution.created"; created == known {
		return errors.New("it is created first, and once")
	}
	if !known {
		f = &folded{owner: "unowned", revision: revision, epochs: map[int64]string{}}
		a.executions[execution] = f
	}
	if beside[eventType] { // it is about something that the execution has, and no change of it
		return nil
	}
	if known && revision != f.revision && revision != f.revision+1 {
		return fmt.Errorf("revision %d follows revision %d", revision, f.revision)
	}
	f.revision = revision
	ended := f.public == "completed" || f.public == "failed" || f.public == "expired" || f.public == "cancelled"
	if ended && eventType != "lease.revoked" {
		return fmt.Errorf("it is %s", f.public)
	}
	switch eventType {
	case "execution.created":
		f.public = d.PublicState
	case "lease.acquired", "lease.reclaimed":
		want := "unowned"
		if eventType == "lease.reclaimed" {
			want = "lease_expired_reclaimable"
		}
		if f.owner != want || d.LeaseEpoch != f.epoch+1 {
			return fmt.Errorf("it is %s in epoch %d, and is given away in epoch %d", f.owner, f.epoch, d.LeaseEpoch)
		}
		f.public, f.owner, f.worker, f.epoch = "active", "leased", d.WorkerID, d.LeaseEpoch
		f.epochs[f.epoch] = d.WorkerID + "/" + d.LeaseID
	case "lease.renewed", "execution.progressed":
		if f.owner != "leased" {
			return fmt.Errorf("it is %s", f.owner)
		}
	case "lease.expired":
		if f.owner != "leased" {
			return fmt.Errorf("it is %s", f.owner)
		}
		f.owner = "lease_expired_reclaimable"
	case "lease.revoked":
		if f.owner == "unowned" || d.LeaseEpoch != f.epoch {
			return fmt.Errorf("it is %s in epoch %d, and the lease of epoch %d ends", f.owner, f.epoch, d.LeaseEpoch)
		}
		f.owner = "unowned"
	case "execution.delayed":
		f.public = "delayed"
	case "execution.eligible":
		f.public = "waiting"
	case "execution.suspended":
		f.public = "suspended"
	case "execution.resumed":
		if f.public != "suspended" {
			return fmt.Errorf("it is %s", f.public)
		}
		f.public = "waiting"
	case "execution.completed":
		f.public = "completed"
		f.completions++
	case "execution.failed":
		f.public = "failed"
		f.completions++
	default:
		return errors.New("nothing here writes this event")
	}
	return nil
}

// rows compares the executions with the log and with what clients were told.
func (a *audit) rows(ctx context.Context, tx *sql.Tx, told *ledger) error {
	var id, public, owner, creationID string
	var payload, result, worker sql.NullString
	var revision, epoch int64
	count := 0
	created, completed, failed, payloads := 0, 0, 0, map[string]bool{}
	err := each(ctx, tx, `SELECT hex(id), public_state, ownership_state, revision, lease_epoch, worker_id, CAST(payload AS TEXT), CAST(result AS TEXT),
		lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21))
		FROM executions`, nil,
		[]any{&id, &public, &owner, &revision, &epoch, &worker, &payload, &result, &creationID}, func() error {
			count++
			f, ok := a.executions[id]
			switch {
			case !ok:
				return fmt.Errorf("execution %s has no events", id)
			case f.public != public || f.owner != owner || f.revision != revision || f.epoch != epoch:
				return fmt.Errorf("execution %s is %s, %s, revision %d, epoch %d; by the log it is %s, %s, revision %d, epoch %d",
					id, public, owner, revision, epoch, f.public, f.owner, f.revision, f.epoch)
			case owner == "leased" && worker.String != f.worker:
				return fmt.Errorf("execution %s belongs to %q, by the log to %q", id, worker.String, f.worker)
			case f.completions > 1 || (f.completions == 1) != (public == "completed" || public == "failed"):
				return fmt.Errorf("execution %s is %s, with %d completions", id, public, f.completions)
			case payloads[payload.String]:
				return fmt.Errorf("two executions were made by one request: %s", payload.String)
			}
			payloads[payload.String] = true
			if want, ok := told.created[creationID]; ok {
				created++
				if want != payload.String {
					return fmt.Errorf("execution %s has the payload %s, want %s", creationID, payload.String, want)
				}
			}
			if want, ok := told.completed[creationID]; ok {
				completed++
				if public != "completed" || result.String != want {
					return fmt.Errorf("execution %s was completed with %s, and is %s with %s", creationID, want, public, result.String)
				}
			}
			if told.failed[creationID] {
				failed++
				if public != "failed" {
					return fmt.Errorf("execution %s has failed, and is %s", creationID, public)
				}
			}
			return nil
		})
	switch {
	case err != nil:
		return err
	case count != len(a.executions):
		return fmt.Errorf("there are %d executions, and %d in the log", count, len(a.executions))
	case created != len(told.created), completed != len(told.completed), failed != len(told.failed):
		return fmt.Errorf("answered writes are lost: %d of %d creations, %d of %d completions, %d of %d failures are there",
			created, len(told.created), completed, len(told.completed), failed, len(told.failed))
	}
	return nil
}

// attempts checks that the attempts of an execution are numbered, that none runs but that of the owner, and that their
// epochs do not fall.
func (a *audit) attempts(ctx context.Context, tx *sql.Tx) error {
	var id, state, owner string
	var index, epoch, total int64
	var current sql.NullInt64
	var last struct {
		id           string
		index, epoch int64
	}
	running := map[string]int{}
	err := each(ctx, tx, `SELECT hex(a.execution_id), a.attempt_index, a.state, a.lease_epoch, e.total_attempt_count, e.current_attempt_index, e.ownership_state
		FROM attempts a JOIN executions e ON e.id = a.execution_id ORDER BY a.execution_id, a.attempt_index`, nil,
		[]any{&id, &index, &state, &epoch, &total, &current, &owner}, func() error {
			if id != last.id {
				last.id, last.index, last.epoch = id, -1, 0
			}
			switch {
			case index != last.index+1 || index >= total:
				return fmt.Errorf("attempt %d of %d of execution %s follows attempt %d", index, total, id, last.index)
			case epoch <= last.epoch:
				return fmt.Errorf("attempt %d of execution %s has the epoch %d after epoch %d", index, id, epoch, last.epoch)
			case state == "started":
				running[id]++
				if index != current.Int64 || owner == "unowned" {
					return fmt.Errorf("attempt %d of execution %s runs, which is %s in attempt %d", index, id, owner, current.Int64)
				}
			}
			last.index, last.epoch = index, epoch
			return nil
		})
	if err != nil {
		return err
	}
	var leased int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM executions WHERE ownership_state = 'leased'`).Scan(&leased); err != nil {
		return err
	}
	for id, n := range running {
		if n > 1 {
			return fmt.Errorf("execution %s has %d running attempts", id, n)
		}
		if a.executions[id].owner == "leased" {
			leased--
		}
	}
	if leased != 0 {
		return fmt.Errorf("%d executions belong to somebody and have no running attempt", leased)
	}
	return nil
}

// claims looks for every answered claim in the log.
func (a *audit) claims(told *ledger) error {
	for key, by := range told.claimed {
		id, epoch := splitKey(key)
		f, ok := a.executions[id]
		if !ok || f.epochs[epoch] != by.worker+"/"+by.leaseID {
			return fmt.Errorf("%s was told that it has execution %s in epoch %d; the log knows nothing of it", by.worker, id, epoch)
		}
	}
	return nil
}
