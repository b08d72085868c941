package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestExecutions_Read: executions.md 6.1, what is read.
func TestExecutions_Read(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsReadCases)
}

var executionsReadCases = []executionCase{
	{"what is not there, and what is no id (6.1/8, 9, 12, 13, 17, 19)", func(x *executionTest) {
		for _, part := range []string{"", "/state", "/result", "/payload", "/context", "/attempts"} {
			missing := x.Get("/v1/executions/" + uuid.NewString() + part).Problem(fault.CodeNotFound)
			if missing.Str("resource") != "execution" {
				x.t.Errorf("%s: %s", part, missing.Body)
			}
			for _, id := range []string{"7", "01985c3e-7b20-7d41-8a63-5e2c9f7b1c0g", "{fp:1}:" + uuid.NewString(), "{01985c3e-7b20-7d41-8a63-5e2c9f7b1c02}"} {
				wrong := x.Get("/v1/executions/" + url.PathEscape(id) + part).Problem(fault.CodeInvalidParameter)
				if fields := wrong.Fields(); len(fields) != 1 || fields[0].In != fault.InPath || fields[0].Pointer != "execution_id" {
					x.t.Errorf("%s%s: %+v", id, part, fields)
				}
			}
		}
	}},
	{"all dimensions at every phase (6.1/8, 6.1/14)", func(x *executionTest) {
		e := x.create(retryPolicy(1) + `,"tags":{"a.b":"c"}`)
		revision := int64(-1)
		at := func(want string) {
			x.t.Helper()
			got := x.stands(e.ID, want)
			state := x.Get("/v1/executions/" + e.ID.String() + "/state").Want(http.StatusOK)
			if diff := cmp.Diff(oapi.ExecutionState{PublicState: got.PublicState, StateVector: got.StateVector}, answerAs[oapi.ExecutionState](state)); diff != "" {
				x.t.Errorf("execution and state differ:\n%s", diff)
			}
			if state.ETag() != strconv.Quote(strconv.FormatInt(got.Revision, 10)) || got.Revision <= revision {
				x.t.Errorf("ETag %s at revision %d, after %d", state.ETag(), got.Revision, revision)
			}
			revision = got.Revision
		}
		at(atWaiting)
		c := x.claim("")
		at(atActive)
		x.report(c, "release", "").Want(http.StatusOK)
		at(atReleased)
		c = x.claim("")
		at(atActive)
		x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK)
		at(atBackoff)
		x.advance(retryDelay)
		at(atRetry)
		x.claim("")
		at(atActive)
		x.advance(time.Minute)
		at(atLost)
		c = x.claim("")
		at(atActive)
		x.report(c, "complete", "").Want(http.StatusOK)
		at(atCompleted)
	}},
	{"after a claim (6.1/9, 6.1/17)", func(x *executionTest) {
		e := x.create(`"priority":7`)
		x.claim(`"worker_id":"builder","worker_instance_id":"builder-1","lease_ttl_ms":45000`)
		got := x.get(e.ID)
		if got.StartedAt == nil || got.CurrentLease == nil {
			x.t.Fatalf("%+v", got)
		}
		want := e
		want.StateVector = oapi.StateVector{LifecyclePhase: "active", OwnershipState: "leased", EligibilityState: "not_applicable", BlockingReason: "none",
			TerminalOutcome: "none", AttemptState: "running_attempt", PublicState: "active"}
		want.PublicState, want.BlockingReason, want.Revision, want.CurrentAttemptIndex, want.TotalAttemptCount = "active", "none", 1, new(int32(0)), 1
		want.StartedAt = got.StartedAt
		want.CurrentLease = &oapi.CurrentLease{WorkerID: "builder", WorkerInstanceID: "builder-1", LeaseID: got.CurrentLease.LeaseID, LeaseEpoch: 1,
			AcquiredAt: *got.StartedAt, ExpiresAt: oapi.Time(got.StartedAt.Time().Add(45 * time.Second))}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		if got.StartedAt.Time().Before(e.CreatedAt.Time()) {
			x.t.Errorf("started %s, created %s", got.StartedAt, e.CreatedAt)
		}
	}},
	{"the index and the count of attempts go their own ways (6.1/19)", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		check := func(index *int32, count int32) {
			x.t.Helper()
			if got := x.get(e.ID); !cmp.Equal(got.CurrentAttemptIndex, index) || got.TotalAttemptCount != count {
				x.t.Errorf("index %v of %d, want %v of %d", got.CurrentAttemptIndex, got.TotalAttemptCount, index, count)
			}
		}
		check(nil, 0)
		c := x.claim("")
		check(new(int32(0)), 1)
		x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK)
		check(new(int32(0)), 1)
		x.advance(retryDelay)
		check(new(int32(0)), 1)
		x.claim("")
		check(new(int32(1)), 2)
	}},
	{"a result is given back byte for byte (6.1/12)", func(x *executionTest) {
		for name, document := range map[string]string{
			"object": `{"b": 1.0,  "a":[12345678901234567890, 1e2], "h":"<&>\u0041é"}`, "null": `null`, "string": `"x"`, "number": `1.50`, "array": "[\n\t1 ]", "bool": `false`,
		} {
			path := "/v1/executions/" + x.create("").ID.String() + "/result"
			none := func() {
				x.t.Helper()
				if missing := x.Get(path).Problem(fault.CodeNotFound); missing.Str("resource") != "result" {
					x.t.Errorf("%s", missing.Body)
				}
			}
			none()
			c := x.claim("")
			none()
			x.report(c, "complete", `"result":`+document).Want(http.StatusOK)
			result := x.Get(path).Want(http.StatusOK)
			if kind := result.Header.Get("Content-Type"); kind != "application/json" || string(result.Body) != document {
				x.t.Errorf("%s: %s %q, want %q", name, kind, result.Body, document)
			}
		}
	}},
	{"a result of octets is given back byte for byte (6.1/12)", func(x *executionTest) {
		for _, octets := range [][]byte{everyByte(), {}, bytes.Repeat([]byte{0xff}, 70000)} {
			x.create("")
			c := x.claim("")
			path := "/v1/executions/" + c.Execution.ID.String()
			answer := x.Post(path+"/complete", octets, "Content-Type: application/octet-stream", "Flowapi-Handle: "+c.Handle).Want(http.StatusOK)
			if answer.Str("execution.public_state") != "completed" || answer.Get("replayed") != false {
				x.t.Errorf("%s", answer.Body)
			}
			result := x.Get(path + "/result").Want(http.StatusOK)
			if kind := result.Header.Get("Content-Type"); kind != "application/octet-stream" || !bytes.Equal(result.Body, octets) {
				x.t.Errorf("%s, %d bytes of %d", kind, len(result.Body), len(octets))
			}
		}
	}},
	{"completed without a result, there is none (2.8)", func(x *executionTest) {
		x.create("")
		c := x.claim("")
		x.report(c, "complete", "").Want(http.StatusOK)
		if missing := x.Get("/v1/executions/" + c.Execution.ID.String() + "/result").Problem(fault.CodeNotFound); missing.Str("resource") != "result" {
			x.t.Errorf("%s", missing.Body)
		}
	}},
	{"a payload is given back byte for byte", func(x *executionTest) {
		for given, want := range map[string]string{
			`"payload":{"b": 1.0,  "a":[12345678901234567890, 1e2], "h":"<&>\u0041é"}`: `{"b": 1.0,  "a":[12345678901234567890, 1e2], "h":"<&>\u0041é"}`,
			`"payload":null`: `null`, `"payload":"x"`: `"x"`, `"kind":"none"`: `null`, `"payload": [ ] `: `[ ]`,
		} {
			payload := x.Get("/v1/executions/" + x.create(given).ID.String() + "/payload").Want(http.StatusOK)
			if kind := payload.Header.Get("Content-Type"); kind != "application/json" || string(payload.Body) != want || payload.ETag() != `"0"` {
				x.t.Errorf("%s: %s %q, ETag %s, want %q", given, kind, payload.Body, payload.ETag(), want)
			}
		}
	}},
	{"the context is what a worker needs", func(x *executionTest) {
		for _, tt := range []struct{ given, want string }{
			{`"kind":"shell","payload":{"a":1},"tags":{"b.c":"d"}`, `{"kind":"shell","payload":{"a":1},"payload_encoding":"json","tags":{"b.c":"d"}}`},
			{``, `{"kind":"","payload":null,"payload_encoding":"json","tags":{}}`},
		} {
			got := x.Get("/v1/executions/" + x.create(tt.given).ID.String() + "/context").Want(http.StatusOK)
			if diff := cmp.Diff(answerAs[oapi.ExecutionContext](got), fromDocument[oapi.ExecutionContext](x.t, tt.want)); diff != "" {
				x.t.Errorf("%s", diff)
			}
		}
		octets := answerAs[oapi.Execution](x.Post("/v1/executions/octets?lane="+x.lane, []byte{0, 255}, "Content-Type: application/octet-stream").Want(http.StatusCreated))
		got := x.Get("/v1/executions/" + octets.ID.String() + "/context").Want(http.StatusOK)
		if got.Str("payload") != "AP8=" || got.Str("payload_encoding") != "base64" {
			x.t.Errorf("%s", got.Body)
		}
	}},
	{"a list in pages, the newest first (6.1/15)", func(x *executionTest) {
		var want []uuid.UUID
		for range 15 {
			want = append(want, x.create("").ID)
		}
		slices.Reverse(want)
		for _, limit := range []int{1, 4, 5, 14, 15, 16, 500} {
			got, pages := x.pages(fmt.Sprintf("/v1/executions?lane=%s&limit=%d", x.lane, limit), nil)
			if diff := cmp.Diff(want, got); diff != "" || pages != (len(want)+limit-1)/limit {
				x.t.Errorf("%d pages of %d (-want +got):\n%s", pages, limit, diff)
			}
		}
		got, _ := x.pages("/v1/executions?limit=4&lane="+x.lane, func() { x.create("") }) // what comes meanwhile is not on the pages that follow
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"an empty list, and what is no page (6.1/16)", func(x *executionTest) {
		answer := x.Get("/v1/executions?lane=" + x.lane).Want(http.StatusOK)
		if diff := cmp.Diff(oapi.ExecutionList{Items: []oapi.Execution{}}, answerAs[oapi.ExecutionList](answer)); diff != "" || answer.Header.Get("Link") != "" {
			x.t.Errorf("Link %q\n%s", answer.Header.Get("Link"), diff)
		}
		e := x.create("")
		for _, list := range []string{"/v1/executions", "/v1/executions/" + e.ID.String() + "/attempts"} {
			for _, limit := range []string{"0", "-1", "501"} {
				x.Get(list + "?limit=" + limit).Problem(fault.CodeValidationFailed)
			}
			for _, query := range []string{"limit=x", "limit=1.5", "limit=1&limit=2", "limit=", "limit=99999999999999999999"} {
				x.Get(list + "?" + query).Problem(fault.CodeInvalidParameter)
			}
			for _, cursor := range []string{"x", "AAAA", uuid.NewString(), "%20"} {
				wrong := x.Get(list + "?cursor=" + cursor).Problem(fault.CodeInvalidCursor)
				if fields := wrong.Fields(); len(fields) != 1 || fields[0].In != fault.InQuery || fields[0].Pointer != "cursor" {
					x.t.Errorf("%+v", fields)
				}
			}
		}
	}},
	{"the cursor of another list is refused", func(x *executionTest) {
		e := x.create(retryPolicy(2))
		x.create("")
		attempts := "/v1/executions/" + e.ID.String() + "/attempts?cursor="
		x.Get(attempts + x.Get("/v1/executions?limit=1&lane="+x.lane).Want(http.StatusOK).Str("next_cursor")).Problem(fault.CodeInvalidCursor)
		for _, c := range []page.Cursor{{At: 1 << 40, ID: e.ID}, {At: -1, ID: e.ID}, {At: 1, ID: uuid.New()}} {
			x.Get(attempts + c.String()).Problem(fault.CodeInvalidCursor)
		}
		x.Get("/v1/executions?cursor=" + page.Cursor{At: math.MaxInt64, ID: e.ID}.String()).Want(http.StatusOK)
		x.Get("/v1/executions?cursor=" + page.Cursor{At: math.MinInt64, ID: e.ID}.String()).Want(http.StatusOK)
	}},
	{"a list by what its members are", func(x *executionTest) {
		a := x.create(`"kind":"a","tags":{"team.name":"x","env.name":"prod"}`)
		b := x.create(`"kind":"b","tags":{"team.name":"x","env.name":"a:b"}`)
		c := x.create(`"kind":"b","delay_ms":600000`)
		x.claim(`"worker_id":"w-` + x.lane + `"`)
		for query, want := range map[string][]uuid.UUID{
			"":                                   {c.ID, b.ID, a.ID},
			"&kind=a":                            {a.ID},
			"&kind=b":                            {c.ID, b.ID},
			"&kind=b&public_state=waiting":       {b.ID},
			"&public_state=delayed":              {c.ID},
			"&public_state=active":               {a.ID},
			"&public_state=completed":            nil,
			"&tag=team.name:x":                   {b.ID, a.ID},
			"&tag=team.name:y":                   nil,
			"&tag=team.name:":                    nil,
			"&tag=env.name:a:b":                  {b.ID},
			"&tag=team.name:x&tag=env.name:prod": {a.ID},
			"&tag=env.name:prod&tag=team.name:x": {a.ID},
			"&tag=team.name:x&tag=env.name:dev":  nil,
			"&tag=nobody.has:x":                  nil,
			"&worker=w-" + x.lane:                {a.ID},
			"&worker=w-" + x.lane + "&public_state=delayed": nil,
			"&worker=nobody":               nil,
			"&flow_id=" + uuid.NewString(): nil,
		} {
			var got []uuid.UUID
			for _, e := range answerAs[oapi.ExecutionList](x.Get("/v1/executions?lane=" + x.lane + query).Want(http.StatusOK)).Items {
				got = append(got, e.ID)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", query, diff)
			}
		}
		x.Get("/v1/executions?public_state=running").Problem(fault.CodeValidationFailed)
		x.Get("/v1/executions?state=waiting").Problem(fault.CodeValidationFailed)
		x.Get("/v1/executions?tag=team.name").Problem(fault.CodeInvalidParameter)
		for _, bad := range []string{"%24.team:x", "%5C:1", "%22:1", "team:x"} {
			x.Get("/v1/executions?tag=" + bad).Problem(fault.CodeInvalidTagKey)
			x.Post("/v1/executions/bulk", `{"action":"cancel","filter":{"lane":"none","tag":["\\:1"]}}`).Problem(fault.CodeInvalidTagKey)
		}
		x.Get("/v1/executions?flow_id=7").Problem(fault.CodeInvalidParameter)
	}},
	{"a filtered list in pages", func(x *executionTest) {
		var want []uuid.UUID
		for i := range 9 {
			if e := x.create(fmt.Sprintf(`"kind":"k%d"`, i%3)); i%3 == 0 {
				want = append(want, e.ID)
			}
		}
		slices.Reverse(want)
		got, pages := x.pages("/v1/executions?limit=2&kind=k0&lane="+x.lane, nil)
		if diff := cmp.Diff(want, got); diff != "" || pages != 2 {
			x.t.Errorf("%d pages (-want +got):\n%s", pages, diff)
		}
	}},
	{"attempts in pages, the first first", func(x *executionTest) {
		e := x.create(retryPolicy(4))
		for range 4 {
			x.report(x.claim(""), "fail", `"reason":"boom"`).Want(http.StatusOK)
			x.advance(retryDelay)
		}
		whole := x.attempts(e.ID)
		var got []oapi.Attempt
		pages := 0
		for path := "/v1/executions/" + e.ID.String() + "/attempts?limit=3"; path != ""; pages++ {
			answer := x.Get(path).Want(http.StatusOK)
			p := answerAs[oapi.AttemptList](answer)
			got = append(got, p.Items...)
			path = nextPage(x.t, answer, p.NextCursor)
		}
		if diff := cmp.Diff(whole, got); diff != "" || len(whole) != 4 || pages != 2 {
			x.t.Errorf("%d attempts on %d pages:\n%s", len(whole), pages, diff)
		}
	}},
	{"what has not changed is not sent again", func(x *executionTest) {
		e := x.create("")
		path := "/v1/executions/" + e.ID.String()
		for etag, status := range map[string]int{`"0"`: 304, `W/"0"`: 304, `"7", "0"`: 304, `"1"`: 200, `nonsense`: 200} {
			if answer := x.Get(path, "If-None-Match: "+etag).Want(status); answer.ETag() != `"0"` || status == 304 && len(answer.Body) > 0 {
				x.t.Errorf("%s: ETag %s, %d bytes", etag, answer.ETag(), len(answer.Body))
			}
		}
		x.claim("")
		if answer := x.Get(path, `If-None-Match: "0"`).Want(http.StatusOK); answer.ETag() != `"1"` {
			x.t.Errorf("ETag %s", answer.ETag())
		}
	}},
	{"a record that cannot be read is an error, not a guess (6.1/17, 6.1/18)", func(x *executionTest) {
		for _, change := range []string{
			`public_state = 'delayed'`, `attempt_state = 'running_attempt'`, `eligibility_state = 'blocked_by_budget'`, `blocking_reason = 'waiting_for_quota'`,
			`terminal_outcome = 'success', lifecycle_phase = 'terminal', completed_at = 1, public_state = 'completed'`,
			`progress = '{'`, `failure = '[]'`, `tags = '["x"]'`, `released = '7'`,
		} {
			e := x.create("")
			x.tamper(`UPDATE executions SET claim_bucket = NULL, `+change+` WHERE id = ?`, rowID(e.ID))
			for _, part := range []string{"", "/state", "/context"} {
				answer := x.Get("/v1/executions/" + e.ID.String() + part).Problem(fault.CodeCorruptRecord)
				if strings.Contains(string(answer.Body), "json") || strings.Contains(string(answer.Body), "SELECT") {
					x.t.Errorf("internal text leaks: %s", answer.Body)
				}
			}
			x.tamper(`DELETE FROM executions WHERE id = ?`, rowID(e.ID))
		}
	}},
}

// nextPage returns the path of the next page, "" at the end. Link and next_cursor must agree.
func nextPage(t *testing.T, answer *apitest.Response, cursor *string) string {
	t.Helper()
	link := answer.Header.Get("Link")
	if cursor == nil {
		if link != "" {
			t.Errorf("the last page has the Link %s", link)
		}
		return ""
	}
	path, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	u, err := url.Parse(path)
	if !ok || err != nil || u.Query().Get("cursor") != *cursor {
		t.Fatalf("Link %q, next_cursor %q", link, *cursor)
	}
	return path
}

// pages walks a list of executions from a path on, and returns their ids and the number of pages. Between two pages it calls
// meanwhile, if there is one.
func (x *executionTest) pages(path string, meanwhile func()) (ids []uuid.UUID, pages int) {
	x.t.Helper()
	for ; path != ""; pages++ {
		if pages > 0 && meanwhile != nil {
			meanwhile()
		}
		answer := x.Get(path).Want(http.StatusOK)
		p := answerAs[oapi.ExecutionList](answer)
		for _, e := range p.Items {
			ids = append(ids, e.ID)
		}
		path = nextPage(x.t, answer, p.NextCursor)
	}
	return ids, pages
}

// fromDocument reads a document of the test's own.
func fromDocument[T any](t *testing.T, document string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(document), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
