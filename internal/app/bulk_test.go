package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/storetest"
)

// bulkFilter is a filter of the case's lane and more.
func (x *executionTest) bulkFilter(members string) string {
	return `"filter":` + executionJSON(members, `"lane":"`+x.lane+`"`)
}

// bulk starts a job, and returns its id and how many it concerns.
func (x *executionTest) bulk(members string) oapi.BulkStarted {
	x.t.Helper()
	answer := x.Post("/v1/executions/bulk", executionJSON(members, x.bulkFilter(""))).Want(http.StatusAccepted)
	got := answerAs[oapi.BulkStarted](answer)
	if got.JobID == nil || answer.Header.Get("Location") != "/v1/executions/bulk/"+got.JobID.String() {
		x.t.Fatalf("%v %s", answer.Header, answer.Body)
	}
	return got
}

func (x *executionTest) bulkJob(id uuid.UUID) oapi.BulkJob {
	x.t.Helper()
	return answerAs[oapi.BulkJob](x.Get("/v1/executions/bulk/" + id.String()).Want(http.StatusOK))
}

// bulked starts a job and returns it when it has ended.
func (x *executionTest) bulked(members string) oapi.BulkJob {
	x.t.Helper()
	started := x.bulk(members)
	x.advance(0)
	job := x.bulkJob(*started.JobID)
	if job.State != "finished" || job.EndedAt == nil || job.Total != started.Matched {
		x.t.Fatalf("%+v of %d", job, started.Matched)
	}
	return job
}

// createMany creates n executions, a thousand at a time.
func (x *executionTest) createMany(n int, members func(i int) string) []uuid.UUID {
	x.t.Helper()
	var ids []uuid.UUID
	for len(ids) < n {
		var bodies []string
		for i := range min(1000, n-len(ids)) {
			bodies = append(bodies, x.sent(members(len(ids)+i)))
		}
		answer := x.Post("/v1/executions/batch", `{"executions":[`+strings.Join(bodies, ",")+`]}`).Want(http.StatusCreated)
		for _, item := range answerAs[oapi.CreatedExecutions](answer).Items {
			ids = append(ids, item.Execution.ID)
		}
	}
	return ids
}

// counted is how many executions of the case's lane are in each public state.
func (x *executionTest) counted() map[string]int {
	x.t.Helper()
	got := map[string]int{}
	for path := "/v1/executions?limit=500&lane=" + x.lane; path != ""; {
		answer := x.Get(path).Want(http.StatusOK)
		p := answerAs[oapi.ExecutionList](answer)
		for _, e := range p.Items {
			got[string(e.PublicState)]++
		}
		path = nextPage(x.t, answer, p.NextCursor)
	}
	return got
}

// eventsOf returns all events of a topic.
func (x *executionTest) eventsOf(topic string) []oapi.Event {
	x.t.Helper()
	var all []oapi.Event
	for after := int64(0); ; {
		p := answerAs[oapi.EventList](x.Get(fmt.Sprintf("/v1/events?topic=%s&limit=500&after=%d", topic, after)).Want(http.StatusOK))
		all = append(all, p.Items...)
		if !p.More {
			return all
		}
		after = p.NextCursor
	}
}

// TestBulk: one act on many executions. executions.md 7.3/42; the rules of bulk jobs.
func TestBulk(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, bulkCases)
}

var bulkCases = []executionCase{
	{"cancel: whatever has not ended", func(x *executionTest) {
		done, _ := x.ended("completed", "")
		failed, _ := x.ended("failed", "")
		cancelled, _ := x.ended("cancelled", "")
		held := x.create("")
		c := x.claim(lasting)
		waiting, delayed, other := x.create(""), x.create(`"delay_ms":3600000`), x.on("other").create("")
		before := x.snapshot(done.ID, failed.ID, cancelled.ID, other.ID)
		by, actor := x.as("operator", "op-"+x.lane)
		job := by.bulked(`"action":"cancel","reason":"superseded"`)
		want := oapi.BulkJob{JobID: job.JobID, Action: "cancel", Filter: oapi.BulkFilter{Lane: &x.lane}, Reason: "superseded", State: "finished", Total: 3, Done: 3,
			Failed: []oapi.BulkFailure{}, Actor: actor, CreatedAt: job.CreatedAt, EndedAt: job.EndedAt}
		if diff := cmp.Diff(want, job); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		for id, at := range map[uuid.UUID]string{held.ID: atCancelled, waiting.ID: atCancelledIdle, delayed.ID: atCancelledIdle} {
			e := x.stands(id, at)
			if e.Cancellation.Reason != "superseded" || e.Cancellation.Actor != actor {
				x.t.Errorf("%+v", e.Cancellation)
			}
			events := x.events(id)
			i := slices.IndexFunc(events, func(e oapi.Event) bool { return e.Type == "operator.cancelled" })
			if i < 0 || events[i].Actor != actor || events[i+1].Type != "execution.cancelled" || events[i+1].Cause == nil || *events[i+1].Cause != events[i].ID {
				x.t.Errorf("%+v", events)
			}
		}
		x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "complete", "") }, held.ID)
		if diff := cmp.Diff(before.Records, x.snapshot(done.ID, failed.ID, cancelled.ID, other.ID).Records); diff != "" {
			x.t.Errorf("others were changed (-before +after):\n%s", diff)
		}
	}},
	{"replay: whatever has ended", func(x *executionTest) {
		var ids []uuid.UUID
		for _, outcome := range terminals {
			e, _ := x.ended(outcome, "")
			ids = append(ids, e.ID)
		}
		waiting := x.create("")
		before := x.snapshot(waiting.ID)
		if job := x.bulked(`"action":"replay"`); job.Total != 4 || job.Done != 4 || job.FailedCount != 0 {
			x.t.Errorf("%+v", job)
		}
		for _, id := range ids {
			if e := x.stands(id, atReplay); e.ReplayCount != 1 {
				x.t.Errorf("%+v", e)
			}
		}
		if diff := cmp.Diff(before.Records, x.snapshot(waiting.ID).Records); diff != "" {
			x.t.Errorf("(-before +after):\n%s", diff)
		}
	}},
	{"replay: members of flows, which run again", func(x *executionTest) {
		var flows []string
		for range 3 {
			f := x.Post("/v1/flows", `{"goal":"x","start":true}`).Want(http.StatusCreated).Str("id")
			for range 2 {
				x.ended("completed", `"flow_id":"`+f+`"`)
			}
			x.Post("/v1/flows/"+f+"/finish", nil).Want(http.StatusOK)
			flows = append(flows, f)
		}
		x.bulked(`"action":"replay"`)
		for _, f := range flows {
			if got := x.Get("/v1/flows/" + f).Want(http.StatusOK); got.Str("status") != "running" {
				x.t.Errorf("%s", got.Body)
			}
		}
	}},
	{"priority: whatever waits for a claim", func(x *executionTest) {
		held := x.create(`"priority":100`)
		x.claim(lasting)
		ended, _ := x.ended("failed", `"priority":50`)
		same, waiting, delayed := x.create(`"priority":9000`), x.create(""), x.create(`"delay_ms":3600000`)
		before := x.snapshot(held.ID, ended.ID, same.ID)
		job := x.bulked(`"action":"priority","priority":12345`)
		if job.Total != 3 || job.Done != 3 || job.Priority == nil || *job.Priority != 12345 {
			x.t.Errorf("%+v", job)
		}
		for _, id := range []uuid.UUID{waiting.ID, delayed.ID} {
			if e := x.get(id); e.Priority != 9000 {
				x.t.Errorf("%d", e.Priority)
			}
		}
		if diff := cmp.Diff(before.Records, x.snapshot(held.ID, ended.ID, same.ID).Records); diff != "" {
			x.t.Errorf("others were changed (-before +after):\n%s", diff)
		}
	}},
	{"by each filter, as the list has it, and only counted with dry_run", func(x *executionTest) {
		y := x.in("bulk-" + x.lane)
		f := y.Post("/v1/flows", `{"goal":"x","start":true}`).Want(http.StatusCreated).Str("id")
		y.create(`"priority":9,"kind":"a","tags":{"team.name":"x","env.name":"a:b"}`)
		y.claim(`"worker_id":"builder",` + lasting)
		y.create(`"kind":"b","tags":{"team.name":"x"}`)
		y.advance(time.Second)
		middle := y.create(`"kind":"b","delay_ms":3600000`)
		y.advance(time.Second)
		y.create(`"flow_id":"` + f + `"`)
		y.on("other").create(`"kind":"a"`)
		at := middle.CreatedAt.String()
		for filter, query := range map[string]string{
			`"lane":"` + x.lane + `"`:                "lane=" + x.lane,
			`"public_state":"delayed"`:               "public_state=delayed",
			`"public_state":"active"`:                "public_state=active",
			`"flow_id":"` + f + `"`:                  "flow_id=" + f,
			`"kind":"a"`:                             "kind=a",
			`"tag":["team.name:x"]`:                  "tag=team.name:x",
			`"tag":["team.name:x","env.name:a:b"]`:   "tag=team.name:x&tag=env.name:a:b",
			`"worker":"builder"`:                     "worker=builder",
			`"created_after":"` + at + `"`:           "created_after=" + at,
			`"created_before":"` + at + `"`:          "created_before=" + at,
			`"kind":"b","public_state":"delayed"`:    "kind=b&public_state=delayed",
			`"kind":"b","worker":"builder"`:          "kind=b&worker=builder",
			`"flow_id":"` + uuid.NewString() + `"`:   "flow_id=" + uuid.NewString(),
			`"public_state":"completed"`:             "public_state=completed",
			`"lane":"` + x.lane + `","tag":["a.b:"]`: "lane=" + x.lane + "&tag=a.b:",
		} {
			want := y.Get("/v1/executions?" + query).Want(http.StatusOK).Len("items")
			answer := y.unchanged(http.StatusOK, func() *apitest.Response {
				return y.Post("/v1/executions/bulk", `{"action":"cancel","dry_run":true,"filter":{`+filter+`}}`)
			})
			if diff := cmp.Diff(oapi.BulkStarted{Matched: int64(want)}, answerAs[oapi.BulkStarted](answer)); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", filter, diff)
			}
		}
		for action, want := range map[string]int64{`"cancel"`: 5, `"replay"`: 0, `"priority","priority":1`: 4} {
			answer := y.Post("/v1/executions/bulk", `{"action":`+action+`,"dry_run":true,"filter":{"created_after":"2001-01-01T00:00:00Z"}}`).Want(http.StatusOK)
			if answer.Int("matched") != want {
				x.t.Errorf("%s: %s", action, answer.Body)
			}
		}
		filter := `"lane":"` + x.lane + `","public_state":"waiting","kind":"b","tag":["team.name:x"],"created_after":"2001-01-01T00:00:00.000Z","created_before":"2101-01-01T00:00:00.000Z"`
		job := y.bulked(`"action":"cancel","filter":{` + filter + `}`)
		document, err := json.Marshal(job.Filter) // it comes back as it was sent
		if err != nil {
			x.t.Fatal(err)
		}
		if diff := cmp.Diff(fromDocument[map[string]any](x.t, "{"+filter+"}"), fromDocument[map[string]any](x.t, string(document))); diff != "" || job.Done != 1 {
			x.t.Errorf("%d done (-want +got):\n%s", job.Done, diff)
		}
	}},
	{"what concerns nothing is finished at once", func(x *executionTest) {
		if job := x.bulked(`"action":"cancel"`); job.Total != 0 || job.Done != 0 {
			x.t.Errorf("%+v", job)
		}
	}},
	{"failures are told, and the others go on", func(x *executionTest) {
		worn, _ := x.ended("failed", `"policy":{"max_replay_count":0}`)
		f := x.Post("/v1/flows", `{"goal":"x","start":true}`).Want(http.StatusCreated).Str("id")
		member, _ := x.ended("completed", `"flow_id":"`+f+`"`)
		x.Post("/v1/flows/"+f+"/cancel", nil).Want(http.StatusOK)
		good, _ := x.ended("completed", "")
		before := x.snapshot(worn.ID, member.ID)
		job := x.bulked(`"action":"replay"`)
		if job.Total != 3 || job.Done != 3 || job.FailedCount != 2 || len(job.Failed) != 2 {
			x.t.Fatalf("%+v", job)
		}
		for i, want := range []oapi.BulkFailure{{ExecutionID: worn.ID, Code: "max_replays_exhausted"}, {ExecutionID: member.ID, Code: "already_terminal"}} {
			want.Detail = job.Failed[i].Detail
			if diff := cmp.Diff(want, job.Failed[i]); diff != "" || want.Detail == "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		}
		x.stands(good.ID, atReplay)
		if diff := cmp.Diff(before.Records, x.snapshot(worn.ID, member.ID).Records); diff != "" {
			x.t.Errorf("(-before +after):\n%s", diff)
		}
	}},
	{"one that cannot be read stands in nobody's way", func(x *executionTest) {
		first, broken, last := x.create(""), x.create(""), x.create("")
		x.tamper(`UPDATE executions SET progress = '{' WHERE id = ?`, rowID(broken.ID))
		started := x.bulk(`"action":"cancel"`)
		if err := x.server.App.Settle(x.t.Context()); err != nil {
			x.t.Errorf("the work goes wrong: %v", err)
		}
		job := x.bulkJob(*started.JobID)
		x.tamper(`DELETE FROM executions WHERE id = ?`, rowID(broken.ID))
		x.advance(0)
		if job.State != "finished" || job.Done != 3 || job.FailedCount != 1 || len(job.Failed) != 1 || job.Failed[0].ExecutionID != broken.ID || job.Failed[0].Code != "corrupt_record" {
			x.t.Errorf("%+v", job)
		}
		x.stands(first.ID, atCancelledIdle)
		x.stands(last.ID, atCancelledIdle)
	}},
	{"the first hundred failures are named, all are counted", func(x *executionTest) {
		ids := x.createMany(120, func(int) string { return `"policy":{"max_replay_count":0}` })
		x.bulked(`"action":"cancel"`)
		job := x.bulked(`"action":"replay"`)
		if job.Done != 120 || job.FailedCount != 120 || len(job.Failed) != 100 || job.Failed[0].ExecutionID != ids[0] || job.Failed[99].ExecutionID != ids[99] {
			x.t.Errorf("%d failed, %d named", job.FailedCount, len(job.Failed))
		}
	}},
	{"more than one chunk, the oldest first, each told once", func(x *executionTest) {
		const n = 180
		ids := x.createMany(n, func(i int) string { return fmt.Sprintf(`"priority":%d`, i%7) })
		job := x.bulked(`"action":"cancel","reason":"too many"`)
		if job.Total != n || job.Done != n || job.FailedCount != 0 {
			x.t.Errorf("%+v", job)
		}
		if diff := cmp.Diff(map[string]int{"cancelled": n}, x.counted()); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		var told []uuid.UUID
		wanted := map[uuid.UUID]bool{}
		for _, id := range ids {
			wanted[id] = true
		}
		for _, e := range x.eventsOf("operator") {
			if e.Type == "operator.cancelled" && wanted[*e.ExecutionID] {
				told = append(told, *e.ExecutionID)
			}
		}
		if diff := cmp.Diff(ids, told); diff != "" {
			x.t.Errorf("(-made +told):\n%.2000s", diff)
		}
	}},
	{"begun and ended are told", func(x *executionTest) {
		by, actor := x.as("operator", "op-"+x.lane)
		x.create("")
		job := by.bulked(`"action":"cancel"`)
		var told []oapi.Event
		for _, e := range x.eventsOf("operator") {
			if eventData(x.t, e)["job_id"] == job.JobID.String() {
				told = append(told, e)
			}
		}
		if len(told) != 2 || told[0].Type != "operator.bulk_started" || told[1].Type != "operator.bulk_finished" || told[0].Actor != actor || told[1].Actor != actor {
			x.t.Fatalf("%+v", told)
		}
		id := job.JobID.String()
		for i, want := range []map[string]any{
			{"job_id": id, "action": "cancel", "filter": map[string]any{"lane": x.lane}, "total": 1.0},
			{"job_id": id, "action": "cancel", "state": "finished", "done": 1.0, "failed_count": 0.0},
		} {
			if diff := cmp.Diff(want, eventData(x.t, told[i])); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}},
	{"stopped: what is done stays done, what is not is left alone", func(x *executionTest) {
		const n = 500
		x.createMany(n, func(int) string { return "" })
		started := x.bulk(`"action":"cancel"`)
		stop := "/v1/executions/bulk/" + started.JobID.String() + "/stop"
		stopped := answerAs[oapi.BulkJob](x.Post(stop, nil).Want(http.StatusOK))
		if stopped.State == "running" || stopped.EndedAt == nil {
			x.t.Errorf("%+v", stopped)
		}
		x.advance(time.Minute)
		if diff := cmp.Diff(stopped, x.bulkJob(stopped.JobID)); diff != "" {
			x.t.Errorf("it went on (-stopped +later):\n%s", diff)
		}
		if counted := x.counted(); int64(counted["cancelled"]) != stopped.Done || counted["waiting"] != n-counted["cancelled"] {
			x.t.Errorf("%v, and %d are done", counted, stopped.Done)
		}
		again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.Post(stop, "{}") })
		if diff := cmp.Diff(stopped, answerAs[oapi.BulkJob](again)); diff != "" {
			x.t.Errorf("(-first +again):\n%s", diff)
		}
		finished := x.on("rest")
		finished.create("")
		job := finished.bulked(`"action":"cancel"`)
		if got := answerAs[oapi.BulkJob](x.Post("/v1/executions/bulk/"+job.JobID.String()+"/stop", nil).Want(http.StatusOK)); got.State != "finished" {
			x.t.Errorf("%+v", got)
		}
	}},
	{"what comes later is left alone", func(x *executionTest) {
		const n = 400
		x.createMany(n, func(int) string { return "" })
		started := x.bulk(`"action":"cancel"`)
		x.server.Clock.Advance(time.Millisecond)
		var later []uuid.UUID
		for range 10 {
			later = append(later, x.create("").ID)
		}
		x.advance(0)
		if job := x.bulkJob(*started.JobID); job.Done != n || job.Total != n {
			x.t.Errorf("%+v", job)
		}
		for _, id := range later {
			x.stands(id, atWaiting)
		}
	}},
	{"several jobs at once all end", func(x *executionTest) {
		var jobs []uuid.UUID
		for i := range 4 {
			y := x.on(string(rune('a' + i)))
			y.createMany(300, func(int) string { return "" })
			jobs = append(jobs, *y.bulk(`"action":"cancel"`).JobID)
		}
		x.advance(0)
		for _, id := range jobs {
			if job := x.bulkJob(id); job.State != "finished" || job.Done != 300 {
				x.t.Errorf("%+v", job)
			}
		}
	}},
	{"beside workers that complete: each ends once", func(x *executionTest) {
		const n = 200
		x.createMany(n, func(int) string { return "" })
		atOnce(4, func(i int) *apitest.Response {
			if i == 0 {
				x.bulk(`"action":"cancel"`)
				return nil
			}
			for range 8 {
				for _, c := range x.claims(`"max":5,` + lasting) {
					x.report(c, "complete", "")
				}
			}
			return nil
		})
		x.advance(0)
		counted := x.counted()
		if counted["cancelled"]+counted["completed"] != n {
			x.t.Errorf("%v", counted)
		}
		ended := map[uuid.UUID]int{}
		for _, e := range x.eventsOf("completion") {
			if eventData(x.t, e)["lane"] == x.lane {
				ended[*e.ExecutionID]++
			}
		}
		for id, times := range ended {
			if times != 1 {
				x.t.Errorf("%s ended %d times", id, times)
			}
		}
		if len(ended) != n {
			x.t.Errorf("%d ended", len(ended))
		}
	}},
	{"what does not say what to do is refused", func(x *executionTest) {
		x.create("")
		for members, pointer := range map[string]string{
			`"action":"cancel","filter":{}`:             "/filter",
			`"action":"cancel","filter":{"bogus":1}`:    "/filter/bogus",
			`"action":"cancel","filter":{"tag":[]}`:     "/filter/tag",
			`"action":"cancel","filter":{"tag":["x"]}`:  "/filter/tag/0",
			`"action":"delete"`:                         "/action",
			`"filter":{"lane":"x"}`:                     "/action",
			`"action":"priority"`:                       "/priority",
			`"action":"cancel","priority":1`:            "/priority",
			`"action":"replay","reason":"x"`:            "/reason",
			`"action":"priority","priority":"x"`:        "/priority",
			`"action":"cancel","filter":{"lane":""}`:    "/filter/lane",
			`"action":"cancel","filter":{"flow_id":7}`:  "/filter/flow_id",
			`"action":"cancel","filter":{"lane":null}`:  "/filter/lane",
			`"action":"cancel","dry_run":"yes"`:         "/dry_run",
			`"action":"priority","dry_run":true`:        "/priority",
			`"action":"cancel","filter":{"worker":" "}`: "/filter/worker",
		} {
			answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response {
				return x.Post("/v1/executions/bulk", executionJSON(members, x.bulkFilter("")))
			})
			if fields := answer.Fields(); len(fields) == 0 || fields[0].Pointer != pointer {
				x.t.Errorf("%s: %+v", members, fields)
			}
		}
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post("/v1/executions/bulk", `{"action":"cancel"}`) })
	}},
	{"with a key it is started once", func(x *executionTest) {
		x.createMany(30, func(int) string { return "" })
		key, body := "Idempotency-Key: bulk "+x.lane, executionJSON(`"action":"cancel"`, x.bulkFilter(""))
		var first *apitest.Response
		for _, answer := range atOnce(5, func(int) *apitest.Response { return x.Post("/v1/executions/bulk", body, key) }) {
			if answer.Status == http.StatusConflict {
				answer.Problem(fault.CodeIdempotencyInFlight)
				continue
			}
			if first == nil {
				first = answer
			}
			if answer.Want(http.StatusAccepted); string(answer.Body) != string(first.Body) || answer.Header.Get("Location") != first.Header.Get("Location") {
				x.t.Errorf("%s\n%s", first.Body, answer.Body)
			}
		}
		x.advance(0)
		again := x.unchanged(http.StatusAccepted, func() *apitest.Response { return x.Post("/v1/executions/bulk", body, key) })
		if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || again.Int("matched") != 30 {
			x.t.Errorf("%v %s", again.Header, again.Body)
		}
		x.refused(fault.CodeIdempotencyMismatch, func() *apitest.Response { return x.Post("/v1/executions/bulk", body+" ", key) })
		if diff := cmp.Diff(map[string]int{"cancelled": 30}, x.counted()); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"a job is of its namespace, and so is what it does", func(x *executionTest) {
		ours, theirs := x.in("ours-"+x.lane), x.in("theirs-"+x.lane)
		e, kept := ours.create(""), theirs.create("")
		job := ours.bulked(`"action":"cancel"`)
		path := "/v1/executions/bulk/" + job.JobID.String()
		for _, call := range []func() *apitest.Response{
			func() *apitest.Response { return theirs.Get(path) },
			func() *apitest.Response { return theirs.Post(path+"/stop", nil) },
			func() *apitest.Response { return x.Get("/v1/executions/bulk/" + uuid.NewString()) },
			func() *apitest.Response { return x.Post("/v1/executions/bulk/"+uuid.NewString()+"/stop", nil) },
		} {
			x.refused(fault.CodeNotFound, call)
		}
		ours.stands(e.ID, atCancelledIdle)
		theirs.stands(kept.ID, atWaiting)
	}},
}

// TestBulk_Restart: a job that was under way when the server was stopped is finished by the next one.
func TestBulk_Restart(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		const n = 800
		s := apptest.Start(t, url)
		x := executionsOn(t, s, "ci")
		x.createMany(n, func(int) string { return "" })
		started := x.bulk(`"action":"cancel","reason":"no"`)
		s.Stop()

		s = apptest.Start(t, url)
		x = executionsOn(t, s, "ci")
		t.Logf("%d of %d were done before", x.bulkJob(*started.JobID).Done, n)
		x.advance(0)
		if job := x.bulkJob(*started.JobID); job.State != "finished" || job.Done != n || job.Total != n || job.FailedCount != 0 {
			t.Errorf("%+v", job)
		}
		if diff := cmp.Diff(map[string]int{"cancelled": n}, x.counted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		told := map[uuid.UUID]int{}
		for _, e := range x.eventsOf("completion") {
			told[*e.ExecutionID]++
		}
		if len(told) != n {
			t.Errorf("%d are told of", len(told))
		}
		for id, times := range told {
			if times != 1 {
				t.Errorf("%s ended %d times", id, times)
			}
		}
	})
}

// TestBulk_Forgotten: an ended job can be looked at for thirty days. It goes so far ahead that old events are trimmed, so it has a
// server of its own.
func TestBulk_Forgotten(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		x := executionsOn(t, s, "ci")
		job := x.bulked(`"action":"cancel"`)
		x.advance(29 * 24 * time.Hour)
		x.bulkJob(job.JobID)
		x.advance(25 * time.Hour)
		x.Get("/v1/executions/bulk/" + job.JobID.String()).Problem(fault.CodeNotFound)
	})
}
