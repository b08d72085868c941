package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	streamrepo "github.com/flowapi/flowapi/internal/repo/stream"
	"github.com/flowapi/flowapi/internal/storetest"
)

// streamEnd is what stream.closed tells, with the type of its cause.
type streamEnd struct {
	Attempt int    `json:"attempt_index"`
	Reason  string `json:"reason"`
	Frames  int    `json:"frame_count"`
	Cause   string `json:"-"`
}

// streamEnds returns what the log tells of the ends of an execution's streams.
func (x *executionTest) streamEnds(id uuid.UUID) []streamEnd {
	x.t.Helper()
	types := map[int64]string{}
	var all []streamEnd
	for _, e := range x.events(id) {
		types[e.ID] = e.Type
		if e.Type != "stream.closed" {
			continue
		}
		var end streamEnd
		if err := json.Unmarshal(e.Data, &end); err != nil {
			x.t.Fatal(err)
		}
		end.Cause = types[*e.Cause]
		all = append(all, end)
	}
	return all
}

// closes checks why the stream of an attempt closed, and what the log tells of all of them.
func (x *executionTest) closes(id uuid.UUID, attempt int, reason execution.CloseReason, told ...streamEnd) {
	x.t.Helper()
	got := x.stream(id, attempt, "")
	if got.ClosedReason == nil || string(*got.ClosedReason) != string(reason) || got.ClosedAt == nil {
		x.t.Errorf("attempt %d closed at %v as %v, want %s", attempt, got.ClosedAt, got.ClosedReason, reason)
	}
	if diff := cmp.Diff(told, x.streamEnds(id)); diff != "" {
		x.t.Errorf("told (-want +got):\n%s", diff)
	}
}

// TestStreams_Close is flows-streams-budgets.md 4.4, and executions.md 6.4 (52, 60).
func TestStreams_Close(t *testing.T) {
	t.Parallel()
	var all []executionCase
	for _, tt := range streamCloses {
		all = append(all, executionCase{tt.name, tt.closes})
	}
	runExecutionCases(t, append(all, streamsCloseCases...))
}

// streamClose is an end that closes the stream of an attempt.
type streamClose struct {
	name, policy string
	end          func(c oapi.Claim) func(x *executionTest)
	reason       execution.CloseReason
	cause        string
}

var streamCloses = []streamClose{
	{"complete", "", func(c oapi.Claim) func(*executionTest) { return endedByWorker(c, "complete", "") }, "attempt_success", "execution.completed"},
	{"fail", "", func(c oapi.Claim) func(*executionTest) { return endedByWorker(c, "fail", `"reason":"x"`) }, "attempt_failure", "execution.failed"},
	{"cancel by the worker", "", func(c oapi.Claim) func(*executionTest) { return endedByWorker(c, "cancel", "") }, "attempt_cancelled", "execution.cancelled"},
	{"cancel by an operator", "", func(c oapi.Claim) func(*executionTest) { return endedByOperator(c, "operator-cancel", `"reason":"x"`) }, "attempt_cancelled", "operator.cancelled"},
	{"revoke", "", func(c oapi.Claim) func(*executionTest) { return endedByOperator(c, "revoke-lease", "") }, "lease_revoked", "operator.lease_revoked"},
	{"the lease runs out (60)", "", endedByTime(31 * time.Second), "lease_expired", "lease.expired"},
	{"the attempt's timeout", `"policy":{"timeout_policy":{"attempt_timeout_ms":5000}}`, endedByTime(6 * time.Second), "expired", "execution.expired"},
	{"the deadline", `"policy":{"timeout_policy":{"execution_deadline_ms":5000}}`, endedByTime(6 * time.Second), "expired", "execution.expired"},
}

func endedByWorker(c oapi.Claim, verb, members string) func(x *executionTest) {
	return func(x *executionTest) { x.report(c, verb, members).Want(http.StatusOK) }
}

func endedByOperator(c oapi.Claim, verb, members string) func(x *executionTest) {
	return func(x *executionTest) {
		x.Post("/v1/executions/"+c.Execution.ID.String()+"/"+verb, "{"+members+"}").Want(http.StatusOK)
	}
}

func endedByTime(d time.Duration) func(oapi.Claim) func(*executionTest) {
	return func(oapi.Claim) func(*executionTest) { return func(x *executionTest) { x.advance(d) } }
}

// closes checks that the end closes a stream that was written, and one that was not.
func (e streamClose) closes(x *executionTest) {
	c := x.held(e.policy)
	x.append(c, lines(0, 3)...)
	e.end(c)(x)
	x.closes(c.Execution.ID, 0, e.reason, streamEnd{0, string(e.reason), 3, e.cause})
	silent := x.held(e.policy)
	if silent.Execution.ID == c.Execution.ID { // what was lost is claimed first
		silent = x.held(e.policy)
	}
	e.end(silent)(x)
	x.closes(silent.Execution.ID, 0, e.reason) // never wrieen: the marker, and nothing is told
}

var streamsCloseCases = []executionCase{
	{"each attempt has a stream of its own, and a failed one is closed (52)", func(x *executionTest) {
		c := x.held(retryPolicy(1))
		id := c.Execution.ID
		x.append(c, `"payload":"first"`)
		x.report(c, "fail", `"reason":"x","category":"transient"`).Want(http.StatusOK)
		x.closes(id, 0, "attempt_failure", streamEnd{0, "attempt_failure", 1, "lease.revoked"})
		x.advance(retryDelay)
		second := x.claim("")
		if got := x.stream(id, "current", ""); *got.AttemptIndex != 1 || len(got.Frames) != 0 || got.ClosedAt != nil {
			x.t.Errorf("the new attempt: %+v", got)
		}
		if got := x.append(second, `"payload":"second"`); got.FrameCount != 1 {
			x.t.Errorf("%+v", got)
		}
		if first, now := x.stream(id, 0, ""), x.stream(id, 1, ""); payloads(first.Frames) != "first" || payloads(now.Frames) != "second" {
			x.t.Errorf("%+v, %+v", first, now)
		}
		x.report(second, "complete", "").Want(http.StatusOK)
		x.closes(id, 1, "attempt_success", streamEnd{0, "attempt_failure", 1, "lease.revoked"}, streamEnd{1, "attempt_success", 1, "execution.completed"})
	}},
	{"a lost lease closes once; taking it over changes the reason, and not the time", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		x.append(c, `"payload":"first"`)
		x.advance(31 * time.Second)
		lost := streamEnd{0, "lease_expired", 1, "lease.expired"}
		x.closes(id, 0, "lease_expired", lost)
		at := x.stream(id, 0, "").ClosedAt
		x.advance(5 * time.Second)
		second := x.claim("")
		x.closes(id, 0, "reclaimed", lost)
		if got := x.stream(id, 0, ""); !got.ClosedAt.Equal(*at) {
			x.t.Errorf("closed at %s, and then at %s", at, got.ClosedAt)
		}
		x.Post("/v1/executions/"+id.String()+"/revoke-lease", nil).Want(http.StatusOK)
		x.Post("/v1/executions/"+id.String()+"/operator-cancel", `{"reason":"x"}`).Want(http.StatusOK)
		x.closes(id, 1, "lease_revoked", lost)
		if got := x.stream(id, second.Fence.AttemptIndex, ""); len(got.Frames) != 0 {
			x.t.Errorf("%+v", got)
		}
	}},
	{"taken over too often: the stream keeps its reason", func(x *executionTest) {
		c := x.held(`"policy":{"max_reclaim_count":0}`)
		x.append(c, `"payload":"x"`)
		x.advance(31 * time.Second)
		x.none("")
		x.closes(c.Execution.ID, 0, "lease_expired", streamEnd{0, "lease_expired", 1, "lease.expired"})
	}},
	{"what gives the lease back leaves the stream open", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		x.append(c, `"payload":"0"`)
		for i, verb := range []string{"release", "delay", "wait-children"} {
			x.report(c, verb, map[string]string{"delay": `"delay_ms":1000`}[verb]).Want(http.StatusOK)
			if got := x.stream(id, 0, ""); got.ClosedAt != nil || got.ClosedReason != nil {
				x.t.Errorf("%s closed it: %+v", verb, got)
			}
			x.advance(2 * time.Second)
			if verb == "wait-children" {
				x.Post("/v1/executions/"+id.String()+"/resume", nil).Want(http.StatusOK)
			}
			c = x.claim("")
			x.append(c, lines(i+1, 1)...)
		}
		if got := x.stream(id, "current", ""); payloads(got.Frames) != "0 1 2 3" || *got.AttemptIndex != 0 {
			x.t.Errorf("%+v", got)
		}
		x.report(c, "delay", `"delay_ms":1000`).Want(http.StatusOK)
		x.Post("/v1/executions/"+id.String()+"/operator-cancel", `{"reason":"x"}`).Want(http.StatusOK)
		x.closes(id, 0, "attempt_cancelled", streamEnd{0, "attempt_cancelled", 4, "operator.cancelled"})
	}},
	{"a batch of completions closes the streams of its items", func(x *executionTest) {
		a, b := x.held(""), x.held("")
		x.append(a, `"payload":"x"`)
		x.append(b, lines(0, 2)...)
		x.Post("/v1/completions", fmt.Sprintf(`{"items":[{"execution_id":"%s","handle":"%s"},{"execution_id":"%s","handle":"%s","fail":{"reason":"x"}}]}`,
			a.Execution.ID, a.Handle, b.Execution.ID, b.Handle)).Want(http.StatusOK)
		x.closes(a.Execution.ID, 0, "attempt_success", streamEnd{0, "attempt_success", 1, "execution.completed"})
		x.closes(b.Execution.ID, 0, "attempt_failure", streamEnd{0, "attempt_failure", 2, "execution.failed"})
	}},
}

// TestStreams_Keeping is flows-streams-budgets.md 4.2, 4.5, 10.5 and 9 (19).
func TestStreams_Keeping(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, streamsKeepingCases)
}

var streamsKeepingCases = []executionCase{
	{"retention_maxlen is exact, and does not lower the count (10.5)", func(x *executionTest) {
		c := x.held(`"policy":{"stream_policy":{"retention_maxlen":50}}`)
		count := int64(0)
		for i := range 20 {
			count = x.append(c, lines(10*i, 10)...).FrameCount
		}
		got := x.stream(c.Execution.ID, 0, "?limit=1000")
		if count != 200 || len(got.Frames) != 50 || got.Frames[0].Payload != "150" || got.Frames[49].Payload != "199" {
			x.t.Errorf("%d frames ever, %s", count, payloads(got.Frames))
		}
		none := x.held(`"policy":{"stream_policy":{"retention_maxlen":0}}`)
		x.append(none, lines(0, 3)...)
		if got := x.stream(none.Execution.ID, 0, ""); len(got.Frames) != 0 {
			x.t.Errorf("%+v", got)
		}
	}},
	{"best effort: durable frames survive, 64 to 100 of 100 are kept, old ones go (10.5)", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		best := `"payload":"%d","mode":"best_effort","best_effort":{"ttl_ms":5000,"maxlen_ceiling":%d}`
		x.append(c, `"payload":"kept"`, `"payload":"{\"a\":1}","mode":"summary"`)
		for i := range 100 {
			x.append(c, fmt.Sprintf(best, i, 16384))
			x.server.Clock.Advance(100 * time.Millisecond)
		}
		kept := func() (durable, live int, first string) {
			for _, f := range x.stream(id, 0, "?limit=1000").Frames {
				if f.Mode != "best_effort" {
					durable++
					continue
				}
				if live++; live == 1 {
					first = f.Payload
				}
			}
			return durable, live, first
		}
		if durable, live, first := kept(); durable != 2 || live < 64 || live > 100 || first != fmt.Sprint(100-live) {
			x.t.Errorf("%d durable frames, %d others from %s on", durable, live, first)
		}
		x.append(c, fmt.Sprintf(best, 100, 64))
		if durable, live, first := kept(); durable != 2 || live != 64 || first != "37" {
			x.t.Errorf("with a ceiling of 64: %d durable frames, %d others from %s on", durable, live, first)
		}
		x.advance(5 * time.Second) // the first 64 are from 3.7 s … 10 s ago, of a lifetime of 10 s
		if durable, live, first := kept(); durable != 2 || first == "37" || live == 0 || live >= 64 {
			x.t.Errorf("later: %d durable frames, %d others from %s on", durable, live, first)
		}
		x.advance(10 * time.Second)
		if durable, live, _ := kept(); durable != 2 || live != 0 {
			x.t.Errorf("in the end: %d durable frames, %d others", durable, live)
		}
		if rows := x.streamRows(); !strings.Contains(rows.Stands, "103 ") {
			x.t.Errorf("%s", rows.Stands)
		}
		if got := x.append(c, fmt.Sprintf(best, 7, 64)); got.FrameCount != 104 {
			x.t.Errorf("%+v", got)
		}
		if _, live, _ := kept(); live != 1 {
			x.t.Errorf("%d", live)
		}
	}},
	{"30 days after the end the frames go; counts and summary stay, and a replay is another attempt", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		x.append(c, `"payload":"{\"a\":1}","mode":"summary"`, `"payload":"x"`, `"payload":"y","mode":"best_effort","best_effort":{"ttl_ms":86400000}`)
		x.report(c, "complete", "").Want(http.StatusOK)
		x.advance(30*24*time.Hour - time.Millisecond)
		if got := x.stream(id, 0, ""); len(got.Frames) != 2 {
			x.t.Errorf("before their time: %+v", got)
		}
		x.Post("/v1/executions/"+id.String()+"/replay", nil).Want(http.StatusOK)
		again := x.claim(`"lease_ttl_ms":86400000`)
		x.append(again, `"payload":"z"`)
		x.advance(time.Millisecond)
		if got := x.stream(id, 0, ""); len(got.Frames) != 0 || *got.ClosedReason != "attempt_success" {
			x.t.Errorf("after their time: %+v", got)
		}
		if got := x.stream(id, 1, ""); payloads(got.Frames) != "z" {
			x.t.Errorf("the replay: %+v", got)
		}
		x.Get("/v1/executions/" + id.String() + "/attempts/0/summary").Want(http.StatusOK)
		if rows := x.streamRows(); !strings.Contains(rows.Stands, "3 ") {
			x.t.Errorf("%s", rows.Stands)
		}
	}},
	{"retention_ttl_ms, and what is still open", func(x *executionTest) {
		c := x.held(`"policy":{"stream_policy":{"retention_ttl_ms":60000}}`)
		open := x.held(`"policy":{"stream_policy":{"retention_ttl_ms":60000}}`)
		for i := range 3 {
			x.append(c, lines(100*i, 100)...)
		}
		x.append(open, `"payload":"x"`)
		x.report(c, "fail", `"reason":"x"`).Want(http.StatusOK)
		x.report(open, "release", "").Want(http.StatusOK)
		x.advance(59 * time.Second)
		if got := x.stream(c.Execution.ID, 0, "?limit=1000"); len(got.Frames) != 300 {
			x.t.Errorf("%d frames before their time", len(got.Frames))
		}
		x.advance(time.Second)
		if got := x.stream(c.Execution.ID, 0, "?limit=1000"); len(got.Frames) != 0 {
			x.t.Errorf("%d frames after it", len(got.Frames))
		}
		x.advance(time.Hour)
		if got := x.stream(open.Execution.ID, 0, ""); len(got.Frames) != 1 {
			x.t.Errorf("%d frames of an open stream", len(got.Frames))
		}
	}},
	{"a summary: versions, null, and what is refused (10.5)", func(x *executionTest) {
		c := x.held("")
		path := "/v1/executions/" + c.Execution.ID.String() + "/attempts/current/summary"
		if got := x.Get(path).Problem(fault.CodeNotFound).Str("resource"); got != "summary" {
			x.t.Error(got)
		}
		delta := func(patch string) string {
			doc, err := json.Marshal(patch)
			if err != nil {
				x.t.Fatal(err)
			}
			return `"mode":"summary","kind":"event","payload":` + string(doc)
		}
		if got := x.append(c, delta(`{"tokens":1,"model":"a"}`)); *got.SummaryVersion != 1 {
			x.t.Errorf("%+v", got)
		}
		began := answerAs[oapi.Summary](x.Get(path).Want(http.StatusOK))
		x.server.Clock.Advance(time.Second)
		if got := x.append(c, `"payload":"durable"`, delta(`{"tokens":2,"model":null,"cost":{"eur":"__ff_null__"}}`), delta(`{"list":[1,"__ff_null__"]}`)); *got.SummaryVersion != 3 {
			x.t.Errorf("%+v", got)
		}
		got := answerAs[oapi.Summary](x.Get(path).Want(http.StatusOK))
		if string(got.Document) != `{"tokens":2,"cost":{"eur":null},"list":[1,null]}` || got.Version != 3 || got.PatchKind != "json-merge-patch" ||
			!got.FirstAppliedAt.Equal(began.LastUpdatedAt) || got.LastUpdatedAt.Time().Sub(got.FirstAppliedAt.Time()) != time.Second {
			x.t.Errorf("%s %+v", got.Document, got)
		}
		if frames := x.stream(c.Execution.ID, 0, "").Frames; len(frames) != 4 || frames[1].Payload != "durable" || frames[2].Mode != "summary" {
			x.t.Errorf("%+v", frames)
		}
		before := string(x.Get(path).Want(http.StatusOK).Body)
		large := make([]string, 5)
		for i := range large {
			large[i] = delta(fmt.Sprintf(`{"m%d":"%s"}`, i, strings.Repeat("x", 60_000)))
		}
		x.append(c, large[:4]...)
		x.append(c, delta(`{"m0":null,"m1":null,"m2":null,"m3":null}`))
		refused := x.untouched(fault.CodePayloadTooLarge, func() *apitest.Response { return x.put(c, large...) }, c.Execution.ID)
		if f := refused.Fields(); f[0].Pointer != "/frames/4/payload" || refused.Int("limit_bytes") != 262144 {
			x.t.Errorf("%s", refused.Body)
		}
		if after := answerAs[oapi.Summary](x.Get(path)); string(after.Document) != string(got.Document) || after.Version != 8 {
			x.t.Errorf("%+v, before %s", after, before)
		}
		other := x.in("other")
		other.Get(path).Problem(fault.CodeNotFound)
	}},
	{"what goes with a flow", func(x *executionTest) {
		flow := flowsOn(x.t, x.server, "default").running("")
		c := x.held(`"flow_id":"` + flow.ID.String() + `"`)
		x.append(c, `"payload":"{}","mode":"summary"`)
		x.report(c, "complete", "").Want(http.StatusOK)
		before := x.streamRows()
		x.Post("/v1/flows/"+flow.ID.String()+"/finish", nil).Want(http.StatusOK)
		x.Do(http.MethodDelete, "/v1/flows/"+flow.ID.String(), nil).Want(http.StatusNoContent)
		x.advance(0)
		after := x.streamRows()
		if after.Frames != before.Frames-1 || after.Summaries != before.Summaries-1 {
			x.t.Errorf("%d frames and %d summaries, before %d and %d", after.Frames, after.Summaries, before.Frames, before.Summaries)
		}
	}},
}

// The frames of what is deleted are not part of its transaction: they go later, some at a time, and nobody sees them meanwhile.
func TestStreams_dropped(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		x := executionsOn(t, apptest.Still(t, url, &store.Clock{}), "dropped")
		flow := flowsOn(t, x.server, "default").running("")
		c, silent := x.held(`"flow_id":"`+flow.ID.String()+`"`), x.held(`"flow_id":"`+flow.ID.String()+`"`)
		other := x.held("")
		id := c.Execution.ID
		x.append(c, lines(0, 700)...)
		x.append(c, `"payload":"live","mode":"best_effort"`, `"payload":"{}","mode":"summary"`)
		x.append(other, `"payload":"stays"`)
		x.report(c, "complete", "").Want(http.StatusOK)
		x.report(silent, "complete", "").Want(http.StatusOK)
		x.Post("/v1/flows/"+flow.ID.String()+"/finish", nil).Want(http.StatusOK)
		x.Do(http.MethodDelete, "/v1/flows/"+flow.ID.String(), nil).Want(http.StatusNoContent)
		if rows := x.streamRows(); rows.Frames != 703 || rows.Summaries != 0 || rows.Dropped != 1 {
			t.Errorf("the deletion has left %+v", rows)
		}
		x.Get(streamPath(id, 0, "")).Problem(fault.CodeNotFound)
		again := `{"lane":"dropped","id":"` + id.String() + `"}`
		x.Post("/v1/executions", again).Problem(fault.CodeAlreadyExists)
		x.in("other").Post("/v1/executions", again).Problem(fault.CodeAlreadyExists)
		if some, err := streamrepo.New(x.server.App.Store()).Trim(t.Context(), 250); err != nil || some != 250 || x.streamRows().Frames != 453 {
			t.Errorf("a step deleted %d, %v", some, err)
		}
		x.server.Settle()
		if rows := x.streamRows(); rows.Frames != 1 || rows.Dropped != 0 {
			t.Errorf("in the end there are %+v", rows)
		}
		x.Post("/v1/executions", again).Want(http.StatusCreated)
		if got := x.stream(x.claim("").Execution.ID, 0, ""); len(got.Frames) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A create waits for the deletion of an execution with its id that is under way, in whatever namespace.
func TestStreams_dropped_race(t *testing.T) {
	t.Parallel()
	url := storetest.Postgres(t)
	x := executionsOn(t, apptest.Still(t, url, &store.Clock{}), "race")
	c := x.held("")
	id := c.Execution.ID
	x.append(c, `"payload":"mine"`)
	db := livePostgres(t, url)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{`INSERT INTO dropped_streams (execution_id, attempt_index, dropped_at) VALUES ($1, 0, 1)`, `DELETE FROM executions WHERE id = $1`} {
		if _, err := tx.ExecContext(t.Context(), statement, id); err != nil {
			t.Fatal(err)
		}
	}
	create := live{x.server}.in("other").ask(t, http.MethodPost, "/v1/executions", `{"lane":"race","id":"`+id.String()+`"}`)
	for waiting, deadline := 0, time.Now().Add(apitest.Patience); waiting == 0; {
		err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND transactionid = $1::text::xid`, xid(t, tx)).Scan(&waiting)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("nobody waits: %v", err)
		}
		runtime.Gosched()
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if answer := awaited(t, create); answer.status != http.StatusConflict {
		t.Errorf("%d %s", answer.status, answer.body)
	}
}

// A clock that was ahead does not hold an attempt up once it has gone back, and ids go on where they were.
func TestStreams_clockGoesBack(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		x := executionsOn(t, apptest.Still(t, url, store.StillClock(time.Now())), "back")
		c := x.held("")
		before := x.append(c, lines(0, 100)...).Frames[99].ID
		x.server.Clock.Advance(-time.Hour)
		for range 2 {
			got := x.append(c, lines(100, 5)...).Frames
			if "0/"+got[0].ID != after(t, "0/"+before, 1) {
				t.Errorf("%s comes after %s", got[0].ID, before)
			}
			before = got[4].ID
			x.server.Clock.Advance(time.Millisecond)
		}
	})
}
