package app_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/storetest"
)

// hungUp checks that a stream has ended.
func hungUp(t *testing.T, s *apitest.Stream) {
	t.Helper()
	if rest := s.Rest(); len(rest) > 0 {
		t.Errorf("after the end: %+v", rest)
	}
}

// after returns the place n behind that of a frame.
func after(t *testing.T, place string, n int64) string {
	t.Helper()
	p, err := stream.ParsePlace(place)
	if err != nil {
		t.Fatal(err)
	}
	p.ID += stream.ID(n)
	return p.String()
}

const eventStream = "Accept: text/event-stream"

// TestStreams_Follow is the stream of an attempt as server-sent events.
func TestStreams_Follow(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, streamsFollowCases)
}

var streamsFollowCases = []executionCase{
	{"first what is there, then what comes, then the end", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		x.append(c, lines(0, 3)...)
		early := x.follow(id, 0, "")
		last := hears(x.t, early, "0", "1", "2")
		x.append(c, lines(3, 2)...)
		hears(x.t, early, "3", "4")
		frames := x.stream(id, 0, "").Frames
		if last != "0/"+frames[2].ID {
			x.t.Errorf("the id is %s, of frame %s", last, frames[2].ID)
		}
		resumed := x.follow(id, 0, "", "Last-Event-ID: "+last)
		hears(x.t, resumed, "3", "4")
		for more, want := range map[string][]string{
			"?after=" + frames[1].ID: {"2", "3", "4"}, "?after=0/" + frames[1].ID: {"2", "3", "4"}, "?from=" + frames[1].ID: {"1", "2", "3", "4"}, "?from=start": {"0", "1", "2", "3", "4"},
		} {
			hears(x.t, x.follow(id, 0, more), want...)
		}
		fromNow := x.follow(id, 0, "?from=end")
		x.append(c, lines(5, 1)...)
		hears(x.t, fromNow, "5")
		hears(x.t, early, "5")
		x.report(c, "complete", "").Want(http.StatusOK)
		end := ends(x.t, early, "attempt_success")
		last5 := "0/" + x.stream(id, 0, "").Frames[5].ID
		if want := after(x.t, last5, 1); end.ID != want || !strings.HasPrefix(end.Data, `{"attempt_index":0,"closed_at":"`) {
			x.t.Errorf("%+v, want the id %s", end, want)
		}
		hungUp(x.t, early)
		seen := x.follow(id, 0, "", "Last-Event-ID: "+last5) // all frames, and not the end
		ends(x.t, seen, "attempt_success")
		hungUp(x.t, seen)
		x.Get(streamPath(id, 0, ""), eventStream, "Last-Event-ID: "+end.ID).Want(http.StatusNoContent)
		x.Get(streamPath(id, 0, "?after="+end.ID), eventStream).Want(http.StatusNoContent)
		late := x.follow(id, 0, "", "Last-Event-ID: "+last)
		hears(x.t, late, "3", "4", "5")
		ends(x.t, late, "attempt_success")
		hungUp(x.t, late)
		silent := x.follow(id, 0, "?from=end")
		ends(x.t, silent, "attempt_success")
	}},
	{"current goes on with the next attempt, until the execution has ended", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		all := x.follow(e.ID, "current", "")
		first := x.claim("")
		x.append(first, lines(0, 2)...)
		hears(x.t, all, "0", "1")
		x.report(first, "fail", `"reason":"x","category":"transient"`).Want(http.StatusOK)
		end := ends(x.t, all, "attempt_failure")
		x.advance(retryDelay)
		second := x.claim("")
		x.append(second, lines(2, 2)...)
		last := hears(x.t, all, "2", "3")
		if !strings.HasPrefix(last, "1/") || !strings.HasPrefix(end.ID, "0/") {
			x.t.Errorf("%s, %s", end.ID, last)
		}
		resumed := x.follow(e.ID, "current", "", "Last-Event-ID: "+end.ID) // which is not told again
		hears(x.t, resumed, "2", "3")
		hears(x.t, x.follow(e.ID, "current", ""), "2", "3")
		x.Get(streamPath(e.ID, 0, ""), eventStream, "Last-Event-ID: "+end.ID).Want(http.StatusNoContent)
		x.report(second, "complete", "").Want(http.StatusOK)
		var over apitest.Event
		for _, s := range []*apitest.Stream{all, resumed} {
			ends(x.t, s, "attempt_success")
			if over = s.Next(); over.Type != "end" || over.Data != `{"public_state":"completed"}` || over.ID != after(x.t, last, 2) {
				x.t.Errorf("%+v, want the end two after %s", over, last)
			}
			hungUp(x.t, s)
		}
		for seen, want := range map[string][]string{last: {"closed", "end"}, after(x.t, last, 1): {"end"}} {
			s := x.follow(e.ID, "current", "", "Last-Event-ID: "+seen)
			for _, name := range want {
				if got := s.Next(); got.Type != name {
					x.t.Errorf("after %s: %+v, want %s", seen, got, name)
				}
			}
			hungUp(x.t, s)
		}
		x.Get(streamPath(e.ID, "current", ""), eventStream, "Last-Event-ID: "+over.ID).Want(http.StatusNoContent)
	}},
	{"current of what ends between attempts, or before the first", func(x *executionTest) {
		c := x.held(retryPolicy(1))
		between := x.follow(c.Execution.ID, "current", "")
		x.report(c, "fail", `"reason":"x","category":"transient"`).Want(http.StatusOK)
		ends(x.t, between, "attempt_failure")
		never := x.create("")
		before := x.follow(never.ID, "current", "")
		x.tailing(2)
		for _, id := range []uuid.UUID{c.Execution.ID, never.ID} {
			x.Post("/v1/executions/"+id.String()+"/operator-cancel", `{"reason":"x"}`).Want(http.StatusOK)
		}
		for _, s := range []*apitest.Stream{between, before} {
			over := s.Next()
			if over.Type != "end" || over.ID != "0/0-2" || over.Data != `{"public_state":"cancelled"}` {
				x.t.Errorf("%+v", over)
			}
			hungUp(x.t, s)
		}
		away := x.follow(never.ID, "current", "", "Last-Event-ID: 0/0-0") // where it was greeted, before the end
		if over := away.Next(); over.Type != "end" {
			x.t.Errorf("%+v", over)
		}
		x.Get(streamPath(never.ID, "current", ""), eventStream, "Last-Event-ID: 0/0-2").Want(http.StatusNoContent)
	}},
	{"a stream that was never written to ends, too", func(x *executionTest) {
		c := x.held("")
		s := x.follow(c.Execution.ID, 0, "")
		x.report(c, "complete", "").Want(http.StatusOK)
		if end := ends(x.t, s, "attempt_success"); end.ID != "0/0-1" {
			x.t.Errorf("%+v", end)
		}
		x.Get(streamPath(c.Execution.ID, 0, ""), eventStream, "Last-Event-ID: 0/0-1").Want(http.StatusNoContent)
	}},
	{"durable frames that were trimmed leave a gap, which is told of", func(x *executionTest) {
		c := x.held(`"policy":{"stream_policy":{"retention_maxlen":3}}`)
		id := c.Execution.ID
		there := x.follow(id, 0, "")
		first := x.append(c, lines(0, 2)...)
		hears(x.t, there, "0", "1")
		if got := x.stream(id, 0, ""); got.TrimmedThrough != nil || got.FrameCount != 2 {
			x.t.Errorf("before: %+v", got)
		}
		more := x.append(c, lines(2, 8)...)
		gone := more.Frames[4].ID
		for _, s := range []*apitest.Stream{there, x.follow(id, 0, "", "Last-Event-ID: 0/"+first.Frames[0].ID), x.follow(id, 0, "?from="+first.Frames[1].ID)} {
			if got := s.Next(); got.Type != "reset" || got.ID != "0/"+gone || got.Data != `{"oldest":"`+after(x.t, "0/"+gone, 1)+`"}` {
				x.t.Errorf("%+v, want a reset to what is after %s", got, gone)
			}
			hears(x.t, s, "7", "8", "9")
		}
		hears(x.t, x.follow(id, 0, ""), "7", "8", "9")
		hears(x.t, x.follow(id, 0, "?after="+gone), "7", "8", "9")
		for _, more := range []string{"", "/tail"} {
			if got := x.stream(id, 0, more); got.TrimmedThrough == nil || *got.TrimmedThrough != gone || got.FrameCount != 10 {
				x.t.Errorf("%s: %+v", more, got)
			}
		}
		x.report(c, "complete", "").Want(http.StatusOK)
		x.advance(31 * 24 * time.Hour)
		if got := x.stream(id, 0, ""); *got.TrimmedThrough != more.Frames[7].ID || len(got.Frames) != 0 {
			x.t.Errorf("after 31 days: %+v", got)
		}
		late := x.follow(id, 0, "?after="+gone)
		if got := late.Next(); got.Type != "reset" {
			x.t.Errorf("%+v", got)
		}
		ends(x.t, late, "attempt_success")
	}},
	{"best-effort frames that are gone leave none", func(x *executionTest) {
		c := x.held("")
		id := c.Execution.ID
		first := x.append(c, lines(0, 1)...)
		x.append(c, `"payload":"old","mode":"best_effort","best_effort":{"ttl_ms":1000}`)
		x.append(c, lines(1, 1)...)
		x.advance(10 * time.Second)
		hears(x.t, x.follow(id, 0, "?after="+first.Frames[0].ID), "1")
		if got := x.stream(id, 0, ""); got.TrimmedThrough != nil || len(got.Frames) != 2 || got.FrameCount != 3 {
			x.t.Errorf("%+v", got)
		}
	}},
	{"what is deleted ends, and is not found then", func(x *executionTest) {
		flow := flowsOn(x.t, x.server, "default").running("")
		e := x.create(`"flow_id":"` + flow.ID.String() + `"`)
		x.claim("")
		both := []*apitest.Stream{x.follow(e.ID, "current", ""), x.follow(e.ID, 0, "")}
		x.tailing(2)
		x.Post("/v1/flows/"+flow.ID.String()+"/cancel", nil).Want(http.StatusOK)
		x.Do(http.MethodDelete, "/v1/flows/"+flow.ID.String(), nil).Want(http.StatusNoContent)
		for _, s := range both {
			s.Rest() // whether it has heard of the end before is left to chance
		}
		x.tailing(0)
		x.Get(streamPath(e.ID, "current", ""), eventStream).Problem(fault.CodeNotFound)
	}},
	{"attempts are isolated, and so are namespaces", func(x *executionTest) {
		a, b := x.held(""), x.held("")
		s := x.follow(a.Execution.ID, 0, "")
		x.append(b, `"payload":"theirs"`)
		x.append(a, `"payload":"ours"`)
		hears(x.t, s, "ours")
		x.in("other").Get(streamPath(a.Execution.ID, 0, ""), eventStream).Problem(fault.CodeNotFound)
		x.Get(streamPath(uuid.New(), "current", ""), eventStream).Problem(fault.CodeNotFound)
		x.Get(streamPath(a.Execution.ID, 1, ""), eventStream).Problem(fault.CodeNotFound)
	}},
	{"what stands on the wire, and HEAD", func(x *executionTest) {
		c := x.held("")
		x.append(c, `"payload":"a\nb","correlation_id":"c"`)
		frame := x.stream(c.Execution.ID, 0, "").Frames[0]
		request, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, x.Base()+streamPath(c.Execution.ID, 0, ""), http.NoBody)
		if err != nil {
			x.t.Fatal(err)
		}
		request.Header.Set("Accept", "text/event-stream")
		answer, err := x.HTTP().Do(request)
		if err != nil {
			x.t.Fatal(err)
		}
		defer answer.Body.Close()
		in := bufio.NewReader(answer.Body)
		for _, want := range []string{":\n", "retry: 2000\n", "\n", "id: 0/" + frame.ID + "\n", "event: frame\n",
			`data: {"attempt_index":0,"at":"` + frame.At.String() + `","correlation_id":"c","encoding":"utf8","frame_type":"stdout","id":"` + frame.ID + `","kind":"stdout","mode":"durable","payload":"a\nb"}` + "\n", "\n"} {
			if line, err := in.ReadString('\n'); line != want {
				x.t.Fatalf("got the line %q, %v; want %q", line, err, want)
			}
		}
		for accept, kind := range map[string]string{eventStream: "text/event-stream", "Accept: */*": "application/json"} {
			if got := x.Do(http.MethodHead, streamPath(c.Execution.ID, 0, ""), nil, accept).Want(http.StatusOK).Header.Get("Content-Type"); got != kind {
				x.t.Errorf("HEAD, %s: %s", accept, got)
			}
		}
	}},
	{"a read, its pages and its followers say the same; durable frames survive (17, 19, 20)", func(x *executionTest) {
		seed := uint64(time.Now().UnixNano())
		x.t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		c := x.held("")
		id := c.Execution.ID
		live := x.follow(id, 0, "")
		var durable []string
		n := 0
		for range 12 {
			frames := lines(n, 1+random.IntN(40))
			for i := range frames {
				if random.IntN(3) == 0 {
					frames[i] += `,"mode":"best_effort","best_effort":{"ttl_ms":1000}`
				} else {
					durable = append(durable, fmt.Sprint(n+i))
				}
			}
			n += len(frames)
			x.append(c, frames...)
			for range frames { // it misses none, trimmed or not: it hears each as it comes
				live.Next()
			}
			x.server.Clock.Advance(time.Duration(random.IntN(50)) * time.Millisecond)
		}
		x.report(c, "complete", "").Want(http.StatusOK)
		whole := x.stream(id, 0, "?limit=1000")
		var paged, heard []oapi.Frame
		for cursor := ""; ; {
			page := x.stream(id, 0, fmt.Sprintf("?limit=%d%s", 1+random.IntN(60), cursor))
			if paged = append(paged, page.Frames...); page.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + *page.NextCursor
		}
		after := x.follow(id, 0, "")
		for range whole.Frames {
			heard = append(heard, liveFrame(x.t, after.Next()))
		}
		ends(x.t, after, "attempt_success")
		if diff := cmp.Diff(frameIDs(whole.Frames), frameIDs(paged)); diff != "" || payloads(whole.Frames) != payloads(paged) {
			x.t.Errorf("read and pages: %s", diff)
		}
		if diff := cmp.Diff(frameIDs(whole.Frames), frameIDs(heard)); diff != "" || payloads(whole.Frames) != payloads(heard) {
			x.t.Errorf("read and heard: %s", diff)
		}
		if got := x.stream(id, 0, "/tail?limit=1000&visibility=exclude_best_effort"); payloads(got.Frames) != strings.Join(durable, " ") {
			x.t.Errorf("durable: %s, want %s", payloads(got.Frames), durable)
		}
		x.untouched(fault.CodeStreamClosed, func() *apitest.Response { return x.put(c, `"payload":"x"`) }, id)
	}},
}

// liveFrame decodes a frame that a follower was told of.
func liveFrame(t *testing.T, e apitest.Event) oapi.Frame {
	t.Helper()
	var f oapi.Frame
	if err := json.Unmarshal([]byte(e.Data), &f); err != nil || e.Type != "frame" {
		t.Fatalf("%+v: %v", e, err)
	}
	return f
}

// A follower who reads too slowly is told so, is not waited for, and loses nothing.
func TestStreams_Follow_lagged(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Start(t, url, patient)
		x := executionsOn(t, s, "lag")
		const rounds, each = 22, 15
		payload := strings.Repeat("x", 65_530)
		c := x.held(`"policy":{"stream_policy":{"retention_maxlen":100000}}`)
		id := c.Execution.ID
		slow := unread(t, live{s}, streamPath(id, 0, ""))
		x.tailing(1)
		marks := x.follow(id, 0, "")
		for round := range rounds {
			frames := make([]string, each)
			for i := range frames {
				frames[i] = fmt.Sprintf(`"payload":"%06d%s"`, round*each+i, payload)
			}
			x.append(c, frames...)
			for range frames {
				marks.Next()
			}
		}
		marks.Close()
		next, last, lagged := 0, "0/0-0", false
		seen := func(e apitest.Event) {
			t.Helper()
			if !strings.Contains(e.Data, fmt.Sprintf(`"payload":"%06d`, next)) {
				t.Fatalf("%.200s instead of frame %d", e.Data, next)
			}
			next++
			last = e.ID
		}
		for e := range slow {
			if lagged = e.Type == "lagged"; !lagged {
				seen(e)
			} else if e.ID != last || e.Data != `{"after":"`+last+`"}` {
				t.Fatalf("%+v after %s", e, last)
			}
		}
		if !lagged {
			t.Error("the follower was never told that it lags")
		}
		rest := x.follow(id, 0, "", "Last-Event-ID: "+last)
		for next < rounds*each {
			seen(rest.Next())
		}
		rest.Close()
	})
}

// Who waits for frames holds no connection: with two of them to the database, 200 tails wait and writes go on. reference: 10.5,
// issue 204.
func TestStreams_Tail_holdsNoConnection(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Start(t, url, func(c *app.Config) { c.Connections = 2 })
		x := executionsOn(t, s, "crowd")
		c := x.held("")
		const crowd = 200
		waiting := make([]<-chan liveAnswer, crowd)
		for i := range waiting {
			waiting[i] = live{s}.ask(t, http.MethodGet, streamPath(c.Execution.ID, "current", "/tail?block_ms=30000"), "")
		}
		x.tailing(crowd)
		other := x.held("")
		for i := range 50 { // a tail that held a connection would leave none: who asks for one would be refused in the end
			x.append(other, lines(i, 1)...)
			x.stream(other.Execution.ID, 0, "")
		}
		x.append(c, `"payload":"x"`)
		for _, w := range waiting {
			if answer := awaited(t, w); answer.status != http.StatusOK || !strings.Contains(string(answer.body), `"payload":"x"`) {
				t.Fatalf("%d %s", answer.status, answer.body)
			}
		}
	})
}

// Only so many wait: with room for two, three of five tails are told so, and who does not wait is not asked. reference: 10.5.
func TestStreams_tooMany(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Start(t, url, func(c *app.Config) { c.Streams = 2 })
		x := executionsOn(t, s, "few")
		c := x.held("")
		id := c.Execution.ID
		tail := live{s}.ask(t, http.MethodGet, streamPath(id, 0, "/tail?block_ms=30000"), "")
		x.tailing(1)
		follower := x.follow(id, 0, "")
		for range 2 {
			if answer := x.Get(streamPath(id, 0, "/tail?block_ms=1")).Problem(fault.CodeTooManyStreams); answer.Header.Get("Retry-After") == "" {
				t.Errorf("%v", answer.Header)
			}
			x.Get(streamPath(id, 0, ""), eventStream).Problem(fault.CodeTooManyStreams)
		}
		x.stream(id, 0, "/tail")
		x.stream(id, 0, "")
		if got := x.Get("/v1/meta").Int("limits.streams_max"); got != 2 {
			t.Errorf("streams_max is %d", got)
		}
		x.append(c, `"payload":"x"`)
		hears(t, follower, "x")
		if answer := awaited(t, tail); answer.status != http.StatusOK {
			t.Errorf("%d", answer.status)
		}
		x.tailing(1)
		x.stream(id, 0, "/tail?block_ms=1&after="+x.stream(id, 0, "").Frames[0].ID)
	})
}

// The end of the server ends who follows and who waits.
func TestStreams_drain(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		x := executionsOn(t, s, "drain")
		c := x.held("")
		id := c.Execution.ID
		x.append(c, `"payload":"x"`)
		follower := x.follow(id, "current", "")
		last := hears(t, follower, "x")
		never := x.follow(x.create("").ID, "current", "")
		tail := live{s}.ask(t, http.MethodGet, streamPath(id, 0, "/tail?block_ms=30000&after=9999999999999-0"), "")
		x.tailing(3)
		s.App.Drain()
		if bye := follower.Next(); bye.Type != "bye" || bye.ID != last || bye.Data != `{"after":"`+last+`"}` {
			t.Errorf("%+v", bye)
		}
		if bye := never.Next(); bye.Type != "bye" || bye.ID != "0/0-0" {
			t.Errorf("%+v", bye)
		}
		if answer := awaited(t, tail); answer.status != http.StatusOK {
			t.Errorf("%d %s", answer.status, answer.body)
		}
		x.Get(streamPath(id, 0, ""), eventStream).Problem(fault.CodeShuttingDown)
	})
}

// A frame, or an end, at one server wakes who waits at the other.
func TestStreams_replicas(t *testing.T) {
	t.Parallel()
	a, b := liveReplicas(t)
	at, other := executionsOn(t, a.Server, "replicas"), executionsOn(t, b.Server, "replicas")
	c := at.held("")
	id := c.Execution.ID
	follower := other.follow(id, "current", "")
	after := "0-0"
	for i := range 5 {
		tail := b.ask(t, http.MethodGet, streamPath(id, "current", "/tail?block_ms=30000&after="+after), "")
		other.tailing(2)
		after = at.append(c, lines(i, 1)...).Frames[0].ID
		if answer := awaited(t, tail); !strings.Contains(string(answer.body), after) {
			t.Fatalf("%d %s", answer.status, answer.body)
		}
		hears(t, follower, fmt.Sprint(i))
	}
	tail := b.ask(t, http.MethodGet, streamPath(id, "current", "/tail?block_ms=30000&after="+after), "")
	other.tailing(2)
	at.report(c, "complete", "").Want(http.StatusOK)
	if answer := awaited(t, tail); !strings.Contains(string(answer.body), "attempt_success") {
		t.Errorf("%d %s", answer.status, answer.body)
	}
	ends(t, follower, "attempt_success")
	if over := follower.Next(); over.Type != "end" {
		t.Errorf("%+v", over)
	}
}
