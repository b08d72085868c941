package app_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/pressly/goose/v3"

	"github.com/flowapi/flowapi/db/migrations"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/storetest"
)

// oldDatabase makes a database as a migration leaves it, with what the version of that time wrote into it.
func oldDatabase(t *testing.T, url string, version int64, statements func(id func(uuid.UUID) string) []string) {
	t.Helper()
	driver, dialect, folder := "sqlite", goose.DialectSQLite3, "sqlite"
	id := func(id uuid.UUID) string { return fmt.Sprintf("X'%x'", id[:]) }
	if strings.HasPrefix(url, "postgres") {
		driver, dialect, folder = "pgx", goose.DialectPostgres, "postgres"
		id = func(id uuid.UUID) string { return "'" + id.String() + "'" }
	}
	files, err := fs.Sub(migrations.Files, folder)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements(id) {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// TestMigration_executions: what an older version has left goes on: a lost execution can be taken over by those who do, what was
// completed is answered again, and its lane is on the list.
func TestMigration_executions(t *testing.T) {
	t.Parallel()
	storetest.Bare(t, func(t *testing.T, url string) {
		lost, ended, lease, attempt := uuid.New(), uuid.New(), uuid.New(), uuid.New()
		oldDatabase(t, url, 1, func(id func(uuid.UUID) string) []string {
			row := func(e uuid.UUID, state, completed, released, bucket string) string {
				return fmt.Sprintf(`INSERT INTO executions (id, namespace, lane, kind, priority, revision, lifecycle_phase, ownership_state, eligibility_state, blocking_reason,
					terminal_outcome, attempt_state, public_state, payload_encoding, required_capabilities, tags, creator, created_at, started_at, completed_at, released,
					current_attempt_index, total_attempt_count, retry_count, replay_count, lease_reclaim_count, lease_id, lease_epoch, attempt_id, worker_id, worker_instance_id,
					lease_acquired_at, claim_bucket)
					VALUES (%s, 'default', 'old', '', 0, 3, %s, 'json', '', '{}', 'local', 1000, 2000, %s, %s, 0, 1, 0, 0, 0, %s, 1, %s, 'w', 'w', 2000, %s)`,
					id(e), state, completed, released, id(lease), id(attempt), bucket)
			}
			return []string{
				`INSERT INTO capability_sets (tokens) VALUES ('')`,
				`INSERT INTO claim_buckets (namespace, lane, capability_set_id, admission_key, state) VALUES ('default', 'old', 1, '', 'open')`,
				row(lost, `'active', 'lease_expired_reclaimable', 'not_applicable', 'waiting_for_worker', 'none', 'attempt_interrupted', 'active'`, "NULL", "NULL", "1"),
				row(ended, `'terminal', 'unowned', 'not_applicable', 'none', 'success', 'attempt_terminal', 'completed'`, "3000", `'{"op":"complete"}'`, "NULL"),
				`INSERT INTO attempts (execution_id, attempt_index, attempt_type, state, worker_id, worker_instance_id, lease_epoch, started_at) VALUES (` + id(lost) + `, 0, 'initial', 'started', 'w', 'w', 1, 2000)`,
			}
		})
		x := executionsOn(t, apptest.Start(t, url), "old")
		if l := x.laneOf("old"); l == nil || *l.Depth != 1 {
			t.Errorf("%+v", l)
		}
		if got := x.stream(lost, "current", ""); got.ClosedReason == nil || *got.ClosedReason != "lease_expired" {
			t.Errorf("the stream of what was lost: %+v", got)
		}
		x.none(`"reclaim":false`)
		if c := x.claim(""); c.Execution.ID != lost || c.Kind != "reclaimed" || c.Fence.LeaseEpoch != 2 {
			t.Errorf("%+v", c)
		}
		path := "/v1/executions/" + ended.String()
		body := fmt.Sprintf(`{"fence":{"lease_id":"%s","lease_epoch":1,"attempt_id":"%s"}}`, lease, attempt)
		if r := answerAs[oapi.Report](x.Post(path+"/complete", body).Want(http.StatusOK)); !r.Replayed {
			t.Errorf("%+v", r)
		}
		x.Post(path+"/replay", nil).Want(http.StatusOK)
		x.create("")
		if n := len(x.claims(`"max":10`)); n != 2 {
			t.Errorf("%d can be claimed", n)
		}
	})
}

// TestMigration_frames: frames stay what they are when their table is made anew.
func TestMigration_frames(t *testing.T) {
	t.Parallel()
	storetest.Bare(t, func(t *testing.T, url string) {
		e, payload := uuid.New(), "X'61'"
		if strings.HasPrefix(url, "postgres") {
			payload = "'a'"
		}
		oldDatabase(t, url, 5, func(id func(uuid.UUID) string) []string {
			return []string{
				fmt.Sprintf(`INSERT INTO executions (id, namespace, lane, kind, priority, revision, lifecycle_phase, ownership_state, eligibility_state, blocking_reason,
					terminal_outcome, attempt_state, public_state, payload_encoding, required_capabilities, tags, creator, created_at, started_at, completed_at,
					current_attempt_index, total_attempt_count, retry_count, replay_count, lease_reclaim_count, lease_epoch)
					VALUES (%s, 'default', 'old', '', 0, 3, 'terminal', 'unowned', 'not_applicable', 'none', 'success', 'attempt_terminal', 'completed', 'json', '', '{}', 'local',
					1000, 2000, 3000, 0, 1, 0, 0, 0, 1)`, id(e)),
				fmt.Sprintf(`INSERT INTO attempts (execution_id, attempt_index, attempt_type, state, worker_id, worker_instance_id, lease_epoch, started_at, ended_at, closed_at,
					closed_reason, frame_count, last_frame_id, kept_frames) VALUES (%s, 0, 'initial', 'ended_success', 'w', 'w', 1, 2000, 3000, 3000, 'attempt_success', 2, 2097153, 2)`, id(e)),
				fmt.Sprintf(`INSERT INTO frames (execution_id, attempt_index, id, kind, frame_type, mode, encoding, correlation_id, frame_key, payload)
					VALUES (%s, 0, 2097152, 'stdout', 'stdout', 'durable', 'utf8', 'c', 'k', %s), (%s, 0, 2097153, 'event', 'x', 'durable', 'utf8', NULL, NULL, %s)`, id(e), payload, id(e), payload),
			}
		})
		x := executionsOn(t, apptest.Start(t, url), "old")
		got := x.stream(e, 0, "")
		if len(got.Frames) != 2 || got.Frames[0].ID != "2-0" || *got.Frames[0].CorrelationID != "c" || payloads(got.Frames) != "a a" || got.Frames[1].FrameType != "x" || got.FrameCount != 2 || got.TrimmedThrough != nil {
			t.Errorf("%+v", got)
		}
	})
}

// TestMigration_waits: a flow that waits goes on waiting when the table of waits is made anew, and the event that it waits for still
// reaches it.
func TestMigration_waits(t *testing.T) {
	t.Parallel()
	storetest.Bare(t, func(t *testing.T, url string) {
		f, w := uuid.New(), uuid.New()
		oldDatabase(t, url, 8, func(id func(uuid.UUID) string) []string {
			return []string{
				`INSERT INTO flows (id, namespace, kind, controller_id, goal, owner_session_key, requester_origin, current_step, state, status, cancel_requested, wait_id, revision,
					graph_revision, node_count, edge_count, auto_finish, tags, fields_changed, created_at, updated_at)
					VALUES (` + id(f) + `, 'default', '', '', 'old', '', '', 'init', '{}', 'waiting', 0, ` + id(w) + `, 2, 0, 0, 0, 0, '{}', '[]', 1000, 2000)`,
				`INSERT INTO waits (id, namespace, flow_id, condition, received, on_timeout, manual, title, requested_by, since)
					VALUES (` + id(w) + `, 'default', ` + id(f) + `, '{"kind":"any","of":[{"kind":"external_event","topic":"t","correlation_id":"c"},{"kind":"manual"}]}', '[]', 'fail', 1, 'old', 'local', 2000)`,
				`INSERT INTO wait_keys (namespace, topic, correlation_id, wait_id) VALUES ('default', 't', 'c', ` + id(w) + `)`,
			}
		})
		x := flowsOn(t, apptest.Start(t, url), "default")
		if inbox := x.inbox(""); len(inbox) != 1 || inbox[0].WaitID != w {
			t.Errorf("the inbox is %+v", inbox)
		}
		if receipt := x.deliver("t", "c"); len(receipt.Matched) != 1 {
			t.Errorf("the event reached %+v", receipt)
		}
		x.stands(f, oapi.FlowStatusRunning, 3)
	})
}

// TestMigration_followed: a step goes on mirroring the execution that it was linked to before executions knew that they are followed.
func TestMigration_followed(t *testing.T) {
	t.Parallel()
	storetest.Bare(t, func(t *testing.T, url string) {
		f, e := uuid.New(), uuid.New()
		oldDatabase(t, url, 10, func(id func(uuid.UUID) string) []string {
			return []string{
				`INSERT INTO lanes (namespace, lane, state, revision) VALUES ('default', 'old', 'active', 0)`,
				`INSERT INTO capability_sets (tokens) VALUES ('')`,
				`INSERT INTO claim_buckets (namespace, lane, capability_set_id, admission_key, state) SELECT 'default', 'old', id, '', 'open' FROM capability_sets`,
				fmt.Sprintf(`INSERT INTO executions (id, namespace, lane, kind, priority, revision, lifecycle_phase, ownership_state, eligibility_state, blocking_reason,
					terminal_outcome, attempt_state, public_state, payload_encoding, required_capabilities, tags, creator, created_at, total_attempt_count, retry_count,
					replay_count, lease_reclaim_count, lease_epoch, claim_bucket)
					VALUES (%s, 'default', 'old', '', 0, 0, 'runnable', 'unowned', 'eligible_now', 'waiting_for_worker', 'none', 'pending_first_attempt', 'waiting', 'json', '', '{}',
					'local', 1000, 0, 0, 0, 0, 0, 1)`, id(e)),
				`INSERT INTO flows (id, namespace, kind, controller_id, goal, owner_session_key, requester_origin, current_step, state, status, cancel_requested, revision,
					graph_revision, node_count, edge_count, auto_finish, tags, fields_changed, created_at, updated_at)
					VALUES (` + id(f) + `, 'default', '', '', 'old', '', '', 'init', '{}', 'running', 0, 1, 0, 0, 0, 0, '{}', '[]', 1000, 1000)`,
				`INSERT INTO flow_steps (id, flow_id, run_id, position, runtime, task, status, execution_id, created_at, updated_at)
					VALUES (` + id(uuid.New()) + `, ` + id(f) + `, 'r', 1, 'mirrored', 'old', 'pending', ` + id(e) + `, 1000, 1000)`,
			}
		})
		x := flowsOn(t, apptest.Start(t, url), "default")
		x.workers("old").claim("")
		x.mirrors(f, oapi.StepStatusRunning, "null")
	})
}
