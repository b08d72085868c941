package app_test

import (
	"bufio"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/storetest"
)

// A stream shows what the list shows, to the byte, whatever it filters by, wherever it begins, until it says bye.
func TestLive_stream(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		before := s.create("earlier") // answered before the streams begin: not shown from now on
		live := s.Stream("/v1/events/stream")
		red := s.in("red").Stream("/v1/events/stream")
		leases := s.Stream("/v1/events/stream?topic=lease,completion")
		began := s.page(t, "").next
		tagged, plain, other := liveStory(s)
		all := s.log(t, "")
		newest := s.page(t, fmt.Sprintf("?after=%d", all[len(all)-1].ID)).next

		liveExpect(t, live, "from now on", slices.DeleteFunc(slices.Clone(all), func(e liveEvent) bool { return e.ID <= began }))
		liveExpect(t, red, "another namespace", s.in("red").log(t, ""))
		liveExpect(t, leases, "a filter from now on", slices.DeleteFunc(s.log(t, "topic=lease,completion"), func(e liveEvent) bool { return e.ID <= began }))
		if all[liveFirst].ExecutionID != before || all[liveFirst].ID != began {
			t.Errorf("the log begins with %s", all[liveFirst].text)
		}

		streams := map[string]*apitest.Stream{"live": live, "red": red, "leases": leases}
		quiet := map[string]bool{}
		for filter, shows := range liveFilters(tagged, plain, other) {
			want := slices.DeleteFunc(slices.Clone(all), func(e liveEvent) bool { return !shows(e) })
			streams[filter] = s.Stream("/v1/events/stream?after=0&" + filter)
			liveExpect(t, streams[filter], filter, want)
			quiet[filter] = len(want) == 0 // it may not have looked at anything before the end
			if len(want) < 2 {
				continue
			}
			// Both ways to resume; the header, which a browser sends by itself, wins over the address that it was given.
			resumed := "resumed " + filter
			streams[resumed] = s.Stream("/v1/events/stream?after=0&"+filter, fmt.Sprintf("Last-Event-ID: %d", want[0].ID))
			liveExpect(t, streams[resumed], resumed, want[1:])
			after := "after " + filter
			streams[after] = s.Stream(fmt.Sprintf("/v1/events/stream?after=%d&%s", want[len(want)-2].ID, filter))
			liveExpect(t, streams[after], after, want[len(want)-1:])
		}
		s.App.Drain()
		for name, stream := range streams {
			least := began
			if quiet[name] {
				least = 0
			}
			liveBye(t, stream, name, least, newest)
			if rest := stream.Rest(); len(rest) > 0 {
				t.Errorf("%s: %+v comes after the end", name, rest)
			}
		}
	})
}

// liveBye expects the end of a stream, with a cursor that the client may go on from.
func liveBye(t *testing.T, stream *apitest.Stream, name string, least, most int64) apitest.Event {
	t.Helper()
	got := stream.Next()
	cursor, err := strconv.ParseInt(got.ID, 10, 64)
	if got.Type != "bye" || err != nil || cursor < least || cursor > most || got.Data != fmt.Sprintf(`{"after":%d}`, cursor) {
		t.Errorf("%s ends with %+v, want bye after an event from %d to %d", name, got, least, most)
	}
	return got
}

// What stands on the wire before the first event, and how.
func TestLive_stream_opening(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		id := s.create("a")
		generation := s.Get("/v1/meta").Want(http.StatusOK).Str("event_log.generation")
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Base()+"/v1/events/stream", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept-Encoding", "gzip")
		began := time.Now()
		answer, err := s.HTTP().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		for name, want := range map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no", "Content-Encoding": "",
		} {
			if got := answer.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		lines := bufio.NewReader(answer.Body)
		for _, want := range []string{": generation " + generation + "\n", "retry: 2000\n", fmt.Sprintf("id: %d\n", liveFirst+1), "\n"} {
			if line, err := lines.ReadString('\n'); line != want {
				t.Fatalf("got the line %q, %v; want %q", line, err, want)
			}
		}
		if took := time.Since(began); took > 10*time.Second { // the first comment would come after 15 s
			t.Errorf("the first bytes came after %s", took)
		}
		held := s.claim("a")
		want := s.page(t, fmt.Sprintf("?after=%d", liveFirst+1)).events
		if len(want) != 1 || want[0].ExecutionID != id || held.ID != id {
			t.Fatalf("the log after the claim: %v", want)
		}
		for _, want := range []string{fmt.Sprintf("id: %d\n", liveFirst+2), "event: lease.acquired\n", "data: " + want[0].text + "\n", "\n"} {
			if line, err := lines.ReadString('\n'); line != want {
				t.Fatalf("got the line %q, %v; want %q", line, err, want)
			}
		}
	})
}

// What a token is good for bounds what its bearer sees.
func TestLive_stream_tokens(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		token := func(role, namespace string) string {
			return s.Post("/v1/admin/tokens", fmt.Sprintf(`{"name":"%s-%s","role":"%s","namespace":"%s"}`, role, namespace, role, namespace)).Want(http.StatusCreated).Str("token")
		}
		viewer, worker, everywhere := token("viewer", "red"), token("worker", "red"), token("viewer", "*")
		mine := s.in("red").create("a")
		s.in("blue").create("a")

		stream := s.As(viewer).Stream("/v1/events/stream?after=0")
		if got := stream.Next(); !strings.Contains(got.Data, mine) {
			t.Errorf("the viewer of red sees %+v", got)
		}
		other := s.As(everywhere).In("blue").Stream("/v1/events/stream?after=0")
		if got := other.Next(); got.Type != "execution.created" || strings.Contains(got.Data, mine) {
			t.Errorf("the viewer of all sees in blue %+v", got)
		}
		for _, path := range []string{"/v1/events", "/v1/events/stream", "/v1/subscriptions/completions", "/v1/subscriptions/leases"} {
			s.As(viewer).In("blue").Get(path).Problem(fault.CodeForbidden)
			s.As("fa_nobody").Get(path).Problem(fault.CodeUnauthenticated)
			if got := s.As(worker).Get(path).Problem(fault.CodeForbidden); got.Str("required_role") != "viewer" {
				t.Errorf("%s for a worker: %s", path, got.Body)
			}
		}
	})
}

// A stream that broke off is taken up again on the server that comes after, and nothing is missing.
func TestLive_stream_outlives_the_server(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		first := live{apptest.Start(t, url)}
		first.create("a")
		first.in("red").create("a")
		stream := first.Stream("/v1/events/stream?after=0")
		liveExpect(t, stream, "before", first.log(t, ""))
		// Hidden events move the cursor, too, when they are seen before the end; bye says how far.
		first.in("red").create("a")
		unfollowed := first.Stream(fmt.Sprintf("/v1/events/stream?after=%d", liveFirst+1))
		first.App.Drain()
		bye := liveBye(t, stream, "the stream", liveFirst+1, liveFirst+3)
		liveBye(t, unfollowed, "the stream without events", liveFirst+1, liveFirst+3)
		first.create("late") // under way when the server began to stop
		first.Stop()

		second := live{apptest.Start(t, url)}
		resumed := second.Stream("/v1/events/stream", "Last-Event-ID: "+bye.ID)
		late := second.page(t, "?after="+bye.ID).events
		if len(late) != 1 {
			t.Fatalf("the log after the restart goes on with %v", late)
		}
		liveExpect(t, resumed, "after the restart", late)
	})
}

// What was committed and not yet numbered when a server died is numbered by the next one as soon as it runs.
func TestLive_stream_finds_what_a_dead_server_left(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		first := live{apptest.Start(t, url)}
		first.create("a")
		unnumber(t, url, first)
		first.Stop()
		second := live{apptest.Start(t, url)}
		if got := second.Stream(fmt.Sprintf("/v1/events/stream?after=%d", liveFirst)).Next(); got.Type != "execution.created" || got.ID != fmt.Sprint(liveFirst+1) {
			t.Errorf("got %+v", got)
		}
	})
}

// patient lets the server wait for a reader for as long as a slow machine needs: what ends its stream is then that it lags.
func patient(c *app.Config) { c.StreamWrite = 10 * time.Minute }

// A reader that is too slow is told so, is not waited for, and loses nothing.
func TestLive_stream_lagged(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := live{apptest.Start(t, url, patient)}
		const rounds, each = 16, 8
		slow := unread(t, s, "/v1/events/stream?after=0")
		marks := s.Stream("/v1/events/stream?topic=execution&after=0")
		text := strings.Repeat("x", 128<<10)
		for range rounds { // one chunk after the other, so that the subscriber is behind by chunks
			s.big(t, each, text)
			s.create("mark")
			marks.Next()
		}
		cursor, lagged := int64(0), false
		seen := func(e apitest.Event) {
			t.Helper()
			if e.ID != strconv.FormatInt(cursor+1, 10) {
				t.Fatalf("event %s %s follows event %d", e.ID, e.Type, cursor)
			}
			cursor++
		}
		for e := range slow {
			if lagged = e.Type == "lagged"; !lagged {
				seen(e)
			} else if e.ID != strconv.FormatInt(cursor, 10) || e.Data != fmt.Sprintf(`{"after":%d}`, cursor) {
				t.Fatalf("lagged after event %d: %+v", cursor, e)
			}
		}
		if !lagged {
			t.Error("the subscriber was never told that it lags")
		}
		rest := s.Stream("/v1/events/stream", fmt.Sprintf("Last-Event-ID: %d", cursor))
		for cursor < rounds*(each+1) {
			seen(rest.Next())
		}
	})
}

// unread opens a stream over a connection that takes up little, and reads it when it is ranged over, to its end.
func unread(t *testing.T, s live, target string) iter.Seq[apitest.Event] {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.Base(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	tcp, _ := conn.(*net.TCPConn)
	if err := tcp.SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", target); err != nil {
		t.Fatal(err)
	}
	return func(yield func(apitest.Event) bool) {
		if err := errors.Join(tcp.SetReadBuffer(4<<20), tcp.SetReadDeadline(time.Now().Add(time.Minute))); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var e apitest.Event
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.ID = value
			case "event":
				e.Type = value
			case "data":
				e.Data = value
			case "":
				if e.Type != "" && !yield(e) {
					return
				}
				e = apitest.Event{}
			}
		}
	}
}
