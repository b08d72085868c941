package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// untouched is refused for streams: nothing of them was changed either.
func (x *executionTest) untouched(code fault.Code, call func() *apitest.Response, ids ...uuid.UUID) *apitest.Response {
	x.t.Helper()
	before := x.streamRows()
	answer := x.refused(code, call, ids...)
	if diff := cmp.Diff(before, x.streamRows()); diff != "" {
		x.t.Errorf("%s, and yet a stream was changed (-before +after):\n%s", code, diff)
	}
	return answer
}

// TestStreams_Append is flows-streams-budgets.md 10.5 and 4.1.
func TestStreams_Append(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, streamsAppendCases)
}

var streamsAppendCases = []executionCase{
	{"counts, ids and fields; what is closed stays readable (10.5)", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		first := x.append(c, `"payload":"one"`)
		second := x.append(c, `"payload":"two","kind":"stderr","correlation_id":"c1","frame_type":"note"`, `"payload":"AP8=","encoding":"base64","kind":"blob"`, `"payload":""`)
		if first.FrameCount != 1 || second.FrameCount != 4 || first.Frames[0].ID == second.Frames[0].ID || len(first.Directives) != 0 {
			x.t.Errorf("%+v, %+v", first, second)
		}
		got := x.stream(id, "current", "")
		at := got.Frames[0].At
		want := []oapi.Frame{
			{ID: first.Frames[0].ID, FrameType: "stdout", Kind: "stdout", Payload: "one", Encoding: "utf8", Mode: "durable", At: at},
			{ID: second.Frames[0].ID, FrameType: "note", Kind: "stderr", Payload: "two", Encoding: "utf8", Mode: "durable", At: at, CorrelationID: new("c1")},
			{ID: second.Frames[1].ID, FrameType: "blob", Kind: "blob", Payload: "AP8=", Encoding: "base64", Mode: "durable", At: at},
			{ID: second.Frames[2].ID, FrameType: "stdout", Kind: "stdout", Payload: "", Encoding: "utf8", Mode: "durable", At: at},
		}
		if diff := cmp.Diff(want, got.Frames, cmp.Comparer(func(a, b oapi.Time) bool { return a.Equal(b) })); diff != "" || got.ClosedAt != nil || *got.AttemptIndex != 0 {
			x.t.Errorf("%+v\n%s", got, diff)
		}
		x.report(c, "complete", "").Want(http.StatusOK)
		if closed := x.stream(id, 0, ""); closed.ClosedAt == nil || *closed.ClosedReason != "attempt_success" || len(closed.Frames) != 4 {
			x.t.Errorf("closed: %+v", closed)
		}
	}},
	{"a payload has up to 64 KiB, and a request is taken whole or not at all (10.5)", func(x *executionTest) {
		c := x.held("")
		frame := func(n int) string { return `"payload":"` + strings.Repeat("x", n) + `"` }
		x.append(c, frame(1024))
		x.append(c, frame(65536))
		x.untouched(fault.CodePayloadTooLarge, func() *apitest.Response { return x.put(c, frame(1), frame(65537)) }, c.Execution.ID)
		x.untouched(fault.CodeValidationFailed, func() *apitest.Response { return x.put(c, frame(1), `"payload":"[]","mode":"summary"`) }, c.Execution.ID)
		if got := x.append(c, lines(0, 1000)...); got.FrameCount != 1002 || len(got.Frames) != 1000 {
			x.t.Errorf("%d frames", got.FrameCount)
		}
		x.untouched(fault.CodeValidationFailed, func() *apitest.Response { return x.put(c, lines(0, 1001)...) }, c.Execution.ID)
	}},
	{"what is not in the vocabulary is refused", func(x *executionTest) {
		create := `{"lane":"x","policy":{"stream_policy":{"durability_mode":"%s"}}}`
		x.Post("/v1/executions", fmt.Sprintf(create, "durable")).Problem(fault.CodeValidationFailed)
		x.Post("/v1/executions", fmt.Sprintf(create, "buffered")).Want(http.StatusCreated)
		c := x.held("")
		for _, frame := range []string{`"payload":"a\u0000b"`, `"payload":"YQ=\n=","encoding":"base64"`, `"payload":"{\"a\":` + strings.Repeat("[", 16) + strings.Repeat("]", 16) + `}","mode":"summary"`} {
			x.put(c, frame).Problem(fault.CodeValidationFailed)
		}
		x.append(c, `"payload":"YQBi","encoding":"base64"`, `"payload":"{\"a\":\"\\u005f_ff_null__\"}","mode":"summary"`)
		got := answerAs[oapi.Summary](x.Get("/v1/executions/" + c.Execution.ID.String() + "/attempts/0/summary").Want(http.StatusOK))
		if string(got.Document) != `{"a":null}` {
			x.t.Errorf("%s", got.Document)
		}
	}},
	{"refused: who does not own the attempt, and what has ended (4.1)", func(x *executionTest) {
		x.untouched(fault.CodeNotFound, func() *apitest.Response {
			return x.Post("/v1/executions/"+uuid.NewString()+"/frames", `{"fence":{"lease_id":"`+uuid.NewString()+`","lease_epoch":1,"attempt_id":"`+uuid.NewString()+`"},"frames":[{"payload":"x"}]}`)
		})
		c := x.held(`"policy":{"max_reclaim_count":3}`)
		id := c.Execution.ID
		put := func() *apitest.Response { return x.put(c, `"payload":"x"`) }
		x.append(c, `"payload":"mine"`)
		x.untouched(fault.CodeNotFound, func() *apitest.Response { return x.in("other").put(c, `"payload":"x"`) }, id)
		x.untouched(fault.CodeStaleLease, func() *apitest.Response {
			return x.Post("/v1/executions/"+id.String()+"/frames", fmt.Sprintf(`{"fence":{"lease_id":"%s","lease_epoch":9,"attempt_id":"%s"},"frames":[{"payload":"x"}]}`, c.Fence.LeaseID, c.Fence.AttemptID))
		}, id)
		x.server.Clock.Advance(31 * time.Second) // nobody has marked it
		x.untouched(fault.CodeLeaseExpired, put, id)
		x.advance(0)
		x.untouched(fault.CodeLeaseExpired, put, id)
		second := x.claim("")
		x.untouched(fault.CodeStaleLease, put, id)
		x.Post("/v1/executions/"+id.String()+"/revoke-lease", nil).Want(http.StatusOK)
		x.untouched(fault.CodeLeaseRevoked, func() *apitest.Response { return x.put(second, `"payload":"x"`) }, id)
		third := x.claim("")
		x.report(third, "release", "").Want(http.StatusOK)
		answer := x.untouched(fault.CodeStreamClosed, func() *apitest.Response { return x.put(third, `"payload":"x"`) }, id)
		if strings.Contains(string(answer.Body), "closed_reason") || answer.Str("public_state") != "waiting" {
			x.t.Errorf("what was given back: %s", answer.Body)
		}
		fourth := x.claim("")
		x.report(fourth, "complete", "").Want(http.StatusOK)
		for holder, reason := range map[*oapi.Claim]string{&fourth: "attempt_success", &second: "reclaimed", &c: "reclaimed"} {
			answer := x.untouched(fault.CodeStreamClosed, func() *apitest.Response { return x.put(*holder, `"payload":"x"`) }, id)
			if answer.Str("closed_reason") != reason {
				x.t.Errorf("%s, want %s", answer.Body, reason)
			}
		}
		waiting := x.create("")
		x.untouched(fault.CodeStreamClosed, func() *apitest.Response {
			return x.Post("/v1/executions/"+waiting.ID.String()+"/frames", `{"fence":{"lease_id":"`+uuid.NewString()+`","lease_epoch":1,"attempt_id":"`+uuid.NewString()+`"},"frames":[{"payload":"x"}]}`)
		}, waiting.ID)
	}},
	{"a frame_key makes it harmless to append again", func(x *executionTest) {
		c := x.held("")
		first := x.append(c, `"payload":"a","frame_key":"1"`, `"payload":"b"`, `"payload":"c","frame_key":"1"`, `"payload":"{\"n\":1}","mode":"summary","frame_key":"s"`)
		if first.FrameCount != 3 || first.Frames[0].Duplicate != nil || !*first.Frames[2].Duplicate || first.Frames[2].ID != first.Frames[0].ID || *first.SummaryVersion != 1 {
			x.t.Errorf("%+v", first)
		}
		before := x.streamRows()
		again := x.append(c, `"payload":"z","frame_key":"1"`, `"payload":"{\"n\":2}","mode":"summary","frame_key":"s"`)
		if diff := cmp.Diff(before, x.streamRows()); diff != "" || again.FrameCount != 3 || again.SummaryVersion != nil || again.Frames[0].ID != first.Frames[0].ID || !*again.Frames[1].Duplicate {
			x.t.Errorf("%+v\n%s", again, diff)
		}
		mixed := x.append(c, `"payload":"z","frame_key":"s"`, `"payload":"d","frame_key":"2"`)
		if mixed.FrameCount != 4 || mixed.Frames[0].ID != first.Frames[3].ID || mixed.Frames[1].Duplicate != nil {
			x.t.Errorf("%+v", mixed)
		}
		if got := payloads(x.stream(c.Execution.ID, 0, "").Frames); got != `a b {"n":1} d` {
			x.t.Error(got)
		}
		x.report(c, "fail", `"reason":"x"`).Want(http.StatusOK)
		other := x.held("")
		if got := x.append(other, `"payload":"a","frame_key":"1"`); got.Frames[0].Duplicate != nil {
			x.t.Errorf("a key of another attempt: %+v", got)
		}
	}},
	{"an Idempotency-Key gets the same answer", func(x *executionTest) {
		c := x.held("")
		send := func() *apitest.Response {
			return x.report(c, "frames", `"frames":[{"payload":"a"},{"payload":"b"}]`, "Idempotency-Key: k1").Want(http.StatusOK)
		}
		first := send()
		before := x.streamRows()
		again := send()
		if diff := cmp.Diff(before, x.streamRows()); diff != "" || string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("%s, again %s\n%s", first.Body, again.Body, diff)
		}
	}},
	{"5,000 frames a second, and 10,000 at once", func(x *executionTest) {
		c := x.held("")
		for i := range 10 {
			x.append(c, lines(1000*i, 1000)...)
		}
		answer := x.untouched(fault.CodeRateLimited, func() *apitest.Response { return x.put(c, lines(0, 500)...) }, c.Execution.ID)
		if answer.Int("retry_after_ms") != 100 || answer.Header.Get("Retry-After") != "1" {
			x.t.Errorf("%s", answer.Body)
		}
		x.server.Clock.Advance(100 * time.Millisecond)
		if got := x.append(c, lines(10_000, 500)...); got.FrameCount != 10_500 {
			x.t.Errorf("%d frames", got.FrameCount)
		}
		x.untouched(fault.CodeRateLimited, func() *apitest.Response { return x.put(c, `"payload":"x"`) })
		other := x.held("")
		x.append(other, lines(0, 1000)...) // the limit is each attempt's own
		if got := x.stream(c.Execution.ID, 0, "?from=start&limit=1"); got.Frames[0].Payload != "500" {
			x.t.Errorf("about 10,000 durable frames are kept: the first one is %s", got.Frames[0].Payload)
		}
	}},
	{"the worker is told what is asked of it", func(x *executionTest) {
		c := x.held("")
		x.Post("/v1/executions/"+c.Execution.ID.String()+"/operator-cancel", `{"reason":"x","grace_ms":10000}`).Want(http.StatusOK)
		if got := x.append(c, `"payload":"x"`); !slices.Contains(got.Directives, "cancel") {
			x.t.Errorf("%+v", got)
		}
	}},
}

// TestStreams_Read is flows-streams-budgets.md 10.5, 4.3 and 9 (17).
func TestStreams_Read(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, streamsReadCases)
}

var streamsReadCases = []executionCase{
	{"what was never written is empty and open, also before the first claim (10.5)", func(x *executionTest) {
		e := x.create("")
		if got := x.stream(e.ID, "current", ""); len(got.Frames) != 0 || got.AttemptIndex != nil || got.ClosedAt != nil || got.NextCursor != nil {
			x.t.Errorf("%+v", got)
		}
		x.claim("")
		if got := x.stream(e.ID, 0, ""); len(got.Frames) != 0 || *got.AttemptIndex != 0 || got.ClosedAt != nil {
			x.t.Errorf("%+v", got)
		}
		for _, more := range []string{"", "/tail?block_ms=30000"} {
			if got := x.Get(streamPath(uuid.New(), 0, more)).Problem(fault.CodeNotFound).Str("resource"); got != "execution" {
				x.t.Error(got)
			}
			if got := x.Get(streamPath(e.ID, 1, more)).Problem(fault.CodeNotFound).Str("resource"); got != "attempt" {
				x.t.Error(got)
			}
			if got := x.in("other").Get(streamPath(e.ID, "current", more)).Problem(fault.CodeNotFound).Str("resource"); got != "execution" {
				x.t.Error(got)
			}
		}
	}},
	{"pages: 20 of 50, then the rest at ms-(seq+1), or by the cursor (10.5)", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		for i := range 5 {
			x.append(c, lines(10*i, 10)...)
			x.server.Clock.Advance(time.Duration(i%2) * time.Millisecond)
		}
		all := x.stream(id, 0, "?limit=1000")
		ids := frameIDs(all.Frames)
		if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 50 {
			x.t.Fatalf("%v", ids)
		}
		first := x.stream(id, 0, "?limit=20")
		var ms, seq int
		if _, err := fmt.Sscanf(first.Frames[19].ID, "%d-%d", &ms, &seq); err != nil {
			x.t.Fatal(err)
		}
		rest := x.stream(id, 0, fmt.Sprintf("?from=%d-%d", ms, seq+1))
		if diff := cmp.Diff(ids, append(frameIDs(first.Frames), frameIDs(rest.Frames)...)); diff != "" {
			x.t.Error(diff)
		}
		for _, attempt := range []any{0, "current"} {
			var paged []string
			for link := streamPath(id, attempt, "?limit=7"); link != ""; {
				answer := x.Get(link).Want(http.StatusOK)
				page := answerAs[oapi.Stream](answer)
				paged = append(paged, frameIDs(page.Frames)...)
				link = liveLink(answer.Header.Get("Link"))
				if (page.NextCursor == nil) != (link == "") {
					x.t.Errorf("next_cursor %v, Link %q", page.NextCursor, link)
				}
			}
			if diff := cmp.Diff(ids, paged); diff != "" {
				x.t.Errorf("%v: %s", attempt, diff)
			}
		}
		if got := x.stream(id, 0, "?from="+ids[3]+"&to="+ids[5]); payloads(got.Frames) != "3 4 5" {
			x.t.Errorf("both ends are included: %s", payloads(got.Frames))
		}
		if got := x.stream(id, 0, "?from=end"); len(got.Frames) != 0 {
			x.t.Errorf("%d frames at the end", len(got.Frames))
		}
		if got := x.stream(id, 0, "?to=start"); len(got.Frames) != 0 {
			x.t.Errorf("%d frames before the start", len(got.Frames))
		}
		if got := x.stream(id, 0, "?from="+ids[9]+"&to="+ids[2]); len(got.Frames) != 0 {
			x.t.Errorf("%d frames backwards", len(got.Frames))
		}
	}},
	{"a page of large frames ends before a thousand", func(x *executionTest) {
		c := x.held("")
		frames := make([]string, 12)
		for i := range frames {
			frames[i] = `"payload":"` + strings.Repeat("x", 65536) + `"`
		}
		x.append(c, frames...)
		x.append(c, frames...)
		first := x.stream(c.Execution.ID, 0, "?limit=1000")
		if len(first.Frames) != 16 || first.NextCursor == nil {
			x.t.Fatalf("%d frames", len(first.Frames))
		}
		if rest := x.stream(c.Execution.ID, 0, "?limit=1000&cursor="+*first.NextCursor); len(rest.Frames) != 8 || rest.NextCursor != nil {
			x.t.Errorf("%d more", len(rest.Frames))
		}
		if tail := x.stream(c.Execution.ID, 0, "/tail?limit=1000"); len(tail.Frames) != 16 || *tail.NextCursor != tail.Frames[15].ID {
			x.t.Errorf("the tail has %d", len(tail.Frames))
		}
	}},
	{"tail: what is there at once, strictly after; a peek; without best effort, before the limit (10.5)", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		live := `"payload":"live","mode":"best_effort"`
		got := x.append(c, live, live, `"payload":"a"`, live, `"payload":"b"`, `"payload":"c"`)
		if tail := x.stream(id, "current", "/tail?block_ms=30000"); len(tail.Frames) != 6 || *tail.NextCursor != "0/"+got.Frames[5].ID {
			x.t.Errorf("%+v", tail)
		}
		if read := x.stream(id, 0, "?limit=1&after=0/"+got.Frames[3].ID); payloads(read.Frames) != "b" {
			x.t.Errorf("%+v", read)
		}
		if tail := x.stream(id, 0, "/tail?after="+got.Frames[3].ID); payloads(tail.Frames) != "b c" {
			x.t.Errorf("strictly after: %s", payloads(tail.Frames))
		}
		if tail := x.stream(id, 0, "/tail?limit=2&visibility=exclude_best_effort"); payloads(tail.Frames) != "a b" {
			x.t.Errorf("the filter comes before the limit: %s", payloads(tail.Frames))
		}
		if tail := x.stream(id, 0, "/tail?limit=2&visibility=exclude_best_effort"); *tail.NextCursor != got.Frames[4].ID {
			x.t.Errorf("with more to come it goes on at %s", *tail.NextCursor)
		}
		hidden := x.append(c, live, live)
		if tail := x.stream(id, 0, "/tail?visibility=exclude_best_effort&after="+got.Frames[5].ID); len(tail.Frames) != 0 || *tail.NextCursor != hidden.Frames[1].ID {
			x.t.Errorf("it goes on behind what it hides: %+v", tail)
		}
		if tail := x.stream(id, 0, "/tail?visibility=exclude_best_effort"); payloads(tail.Frames) != "a b c" || *tail.NextCursor != hidden.Frames[1].ID {
			x.t.Errorf("it goes on behind what it hides: %+v", tail)
		}
		if tail := x.stream(id, 0, "/tail?limit=2"); payloads(tail.Frames) != "live live" {
			x.t.Errorf("%s", payloads(tail.Frames))
		}
		if tail := x.stream(id, 0, "/tail?after=0/"+hidden.Frames[1].ID); len(tail.Frames) != 0 || tail.ClosedAt != nil || *tail.NextCursor != hidden.Frames[1].ID {
			x.t.Errorf("a peek: %+v", tail)
		}
		for _, limit := range []string{"0", "1001", "-1"} {
			x.Get(streamPath(id, 0, "/tail?limit="+limit)).Problem(fault.CodeValidationFailed)
			x.Get(streamPath(id, 0, "?limit="+limit)).Problem(fault.CodeValidationFailed)
		}
		x.Get(streamPath(id, 0, "/tail?block_ms=30001")).Problem(fault.CodeValidationFailed)
	}},
	{"a tail of current drains one attempt before the next, and ends with the execution", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		id, next := e.ID, ""
		tail := func(more, payload string, attempt int32, cursor string) {
			x.t.Helper()
			got := x.stream(id, "current", "/tail?after="+next+more)
			if payloads(got.Frames) != payload || *got.NextCursor != cursor || got.AttemptIndex == nil || *got.AttemptIndex != attempt {
				x.t.Errorf("after %s: %+v, want %q and %s", next, got, payload, cursor)
			}
			next = *got.NextCursor
		}
		if got := x.stream(id, "current", "/tail"); *got.NextCursor != "0/0-0" || got.AttemptIndex != nil {
			x.t.Errorf("before the first claim: %+v", got)
		}
		next = "0/0-0"
		first := x.claim("")
		a := x.append(first, lines(0, 3)...).Frames
		tail("&limit=2&block_ms=30000", "0 1", 0, "0/"+a[1].ID)
		x.report(first, "fail", `"reason":"x","category":"transient"`).Want(http.StatusOK)
		x.advance(retryDelay)
		second := x.claim("")
		b := x.append(second, lines(3, 1)...).Frames
		closed := after(x.t, "0/"+a[2].ID, 1)
		tail("&block_ms=30000", "2", 0, closed)
		tail("&block_ms=30000", "3", 1, "1/"+b[0].ID)
		next = closed
		tail("", "3", 1, "1/"+b[0].ID)
		waiting := live{x.server}.ask(x.t, http.MethodGet, streamPath(id, "current", "/tail?block_ms=30000&after="+next), "")
		x.tailing(1)
		x.report(second, "complete", "").Want(http.StatusOK)
		end := after(x.t, next, 1)
		if answer := awaited(x.t, waiting); !strings.Contains(string(answer.body), end) || !strings.Contains(string(answer.body), "attempt_success") {
			x.t.Errorf("%s, want %s", answer.body, end)
		}
		next = end
		tail("&block_ms=30000", "", 1, end)
		next = "7/5-0" // of no attempt: the beginning of the current one
		tail("&block_ms=30000", "3", 1, end)
		x.Get(streamPath(id, 0, "/tail?after=1/0-0")).Problem(fault.CodeInvalidCursor)
	}},
	{"a tail that has heard of the end of an attempt waits for the next one", func(x *executionTest) {
		c := x.held(retryPolicy(1))
		id := c.Execution.ID
		x.report(c, "fail", `"reason":"x","category":"transient"`).Want(http.StatusOK)
		told := x.stream(id, "current", "/tail?block_ms=30000")
		if told.ClosedAt == nil || *told.NextCursor != "0/0-1" {
			x.t.Fatalf("%+v", told)
		}
		waiting := live{x.server}.ask(x.t, http.MethodGet, streamPath(id, "current", "/tail?block_ms=30000&after="+*told.NextCursor), "")
		x.tailing(1)
		x.advance(retryDelay)
		x.append(x.claim(""), `"payload":"next"`)
		if answer := awaited(x.t, waiting); !strings.Contains(string(answer.body), `"payload":"next"`) || !strings.Contains(string(answer.body), `"next_cursor":"1/`) {
			x.t.Errorf("%s", answer.body)
		}
	}},
	{"a tail of what ended without any attempt does not wait", func(x *executionTest) {
		e := x.create("")
		waiting := live{x.server}.ask(x.t, http.MethodGet, streamPath(e.ID, "current", "/tail?block_ms=30000"), "")
		x.tailing(1)
		x.Post("/v1/executions/"+e.ID.String()+"/operator-cancel", `{"reason":"x"}`).Want(http.StatusOK)
		for _, w := range []<-chan liveAnswer{waiting, live{x.server}.ask(x.t, http.MethodGet, streamPath(e.ID, "current", "/tail?block_ms=30000"), "")} {
			if answer := awaited(x.t, w); answer.status != http.StatusOK || !strings.Contains(string(answer.body), `"next_cursor":"0/0-0"`) {
				x.t.Errorf("%d %s", answer.status, answer.body)
			}
		}
	}},
	{"tail waits, and is woken by a frame or by the end (10.5)", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		began := time.Now()
		if tail := x.stream(id, 0, "/tail?block_ms=150"); len(tail.Frames) != 0 || tail.ClosedAt != nil || time.Since(began) < 150*time.Millisecond {
			x.t.Errorf("%+v after %s", tail, time.Since(began))
		}
		s := live{x.server}
		for i, wake := range []func(){func() { x.append(c, `"payload":"x"`) }, func() { x.report(c, "complete", "").Want(http.StatusOK) }} {
			after := "0-0"
			if i == 1 {
				after = x.stream(id, 0, "/tail").Frames[0].ID
			}
			var waiting []<-chan liveAnswer
			for _, more := range []string{"&block_ms=30000", ""} {
				waiting = append(waiting, s.ask(x.t, http.MethodGet, streamPath(id, "current", "/tail?after="+after+more), "", "Prefer: wait=50"))
			}
			x.tailing(2)
			wake()
			for _, w := range waiting {
				answer := awaited(x.t, w)
				if answer.status != http.StatusOK || answer.header.Get("Preference-Applied") != "wait=50" || strings.Contains(string(answer.body), `"frames":[]`) != (i == 1) {
					x.t.Errorf("%d %s", answer.status, answer.body)
				}
			}
		}
		if tail := x.stream(id, 0, "/tail?block_ms=30000&after=9999999999999-0"); *tail.ClosedReason != "attempt_success" {
			x.t.Errorf("%+v", tail)
		}
	}},
}
