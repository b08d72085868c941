package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/storetest"
)

// A server that is asked to stop under load loses nothing that it has answered, ends everybody who waits, answers what is
// under way, and is gone in time with exit code 0.
func TestTerminate(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := serve(t, url)
		load := newLoad(t)
		load.pause = 2 * time.Millisecond
		load.aim(s.url)
		load.start(8)
		followed := follow(t, s.url, 0)
		claims := ask(t, 3, http.MethodPost, s.url+"/v1/claims", `{"lane":"nothing","worker_id":"w"}`)
		polls := ask(t, 3, http.MethodGet, s.url+"/v1/events?topic=admin", "")
		eventually(t, "there is load", func() bool { return len(load.snapshot().completed) > 100 })

		late := dial(t, s.url)
		late.write("POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n")
		late.read("HTTP/1.1 100 Continue", "")
		began := time.Now()
		s.terminate()
		eventually(t, "new connections are refused", func() bool {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
		late.write(`{"lane":"late"}`)
		last := late.answer()
		if last.status != http.StatusCreated {
			t.Errorf("a request that had begun = %d %s", last.status, last.body)
		}
		if code := s.ended(stopLimit - time.Since(began)); code != 0 {
			t.Errorf("exit code %d", code)
		}
		t.Logf("stopped after %s", time.Since(began).Round(time.Millisecond))

		for range cap(claims) {
			if r := <-claims; r.status != http.StatusNoContent || r.header.Get("Retry-After") == "" {
				t.Errorf("a waiting claim = %d %v %s", r.status, r.header, r.body)
			}
		}
		for range cap(polls) {
			if r := <-polls; r.status != http.StatusOK || !strings.Contains(string(r.body), `"items":[]`) {
				t.Errorf("a long poll = %d %s", r.status, r.body)
			}
		}
		if err := load.stop(); err != nil {
			t.Error(err)
		}
		told := load.snapshot()
		seen := <-followed
		through := seen.check(t)
		if seen.last != "bye" || seen.cursor != through {
			t.Errorf("the stream ends with %s %d after event %d", seen.last, seen.cursor, through)
		}
		checkKept(t, url, seen, told, last)
	})
}

// checkKept looks, after a stop, whether all that was answered is there, and last, the answer to the last request, too.
func checkKept(t *testing.T, url string, seen *feed, told *ledger, last response) {
	t.Helper()
	again := serve(t, url)
	complete := list(t, again.url)
	if diff := seen.missing(complete); diff != "" {
		t.Errorf("the log and the stream differ: %s", diff)
	}
	var made struct{ ID string }
	if err := json.Unmarshal(last.body, &made); err != nil || made.ID == "" {
		t.Fatalf("%s: %v", last.body, err)
	}
	told.created[made.ID] = ""
	for id := range told.created {
		if !complete.has("execution.created", id) {
			t.Errorf("the creation of %s was answered and is lost", id)
		}
	}
	for id := range told.completed {
		if !complete.has("execution.completed", id) {
			t.Errorf("the completion of %s was answered and is lost", id)
		}
	}
	delete(told.created, made.ID)
	sample(t, newClient(t), again.url, told)
	if !strings.HasPrefix(url, "postgres://") {
		told.created[made.ID] = "" // without a payload
		if err := new(audit).check(t.Context(), url, told); err != nil {
			t.Error(err)
		}
	}
}

// A client that never ends its request does not keep the server from stopping.
func TestTerminate_stuck(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir()+"/flowapi.db")
	stuck := dial(t, s.url)
	stuck.write("POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n")
	stuck.read("HTTP/1.1 100 Continue", "")
	began := time.Now()
	s.terminate()
	if code := s.ended(stopLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("stopped after %s", time.Since(began).Round(time.Millisecond))
}

// An idle server, with nothing but idle connections and a stream, stops at once, by either signal.
func TestTerminate_idle(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := serve(t, t.TempDir()+"/flowapi.db")
		must(t, newClient(t), http.MethodPost, s.url+"/v1/executions", `{"lane":"a"}`)
		followed := follow(t, s.url, 2)
		eventually(t, "the stream is open", func() bool {
			return strings.Contains(string(must(t, newClient(t), http.MethodGet, s.url+"/metrics", "").body), "flowapi_sse_subscribers 1")
		})
		if err := s.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if code := s.ended(stopLimit); code != 0 {
			t.Errorf("%s: exit code %d", signal, code)
		}
		if strings.Contains(s.said(), "still under way") {
			t.Errorf("%s: an idle server waited for its connections", signal)
		}
		if seen := <-followed; seen.last != "bye" || seen.cursor != 2 {
			t.Errorf("%s: the stream ends with %s %d", signal, seen.last, seen.cursor)
		}
	}
}

// ask sends the same request several times at once, each ready to wait.
func ask(t *testing.T, times int, method, url, body string) <-chan response {
	t.Helper()
	answers, client := make(chan response, times), newClient(t)
	for range times {
		go func() {
			r, err := send(t.Context(), client, method, url, body, "Prefer: wait=50")
			if err != nil {
				r.body = []byte(err.Error())
			}
			answers <- r
		}()
	}
	return answers
}

// feed is what somebody has seen of the log.
type feed struct {
	ids    []int64
	docs   map[int64]string
	kinds  map[string]bool // type and execution
	last   string          // type of what came after the events
	cursor int64           // its id
	err    error
}

func (f *feed) add(document []byte) error {
	var e struct {
		ID          int64
		Type        string
		ExecutionID string `json:"execution_id"`
	}
	if err := json.Unmarshal(document, &e); err != nil {
		return err
	}
	if f.docs == nil {
		f.docs, f.kinds = map[int64]string{}, map[string]bool{}
	}
	f.ids = append(f.ids, e.ID)
	f.docs[e.ID] = string(document)
	f.kinds[e.Type+" "+e.ExecutionID] = true
	return nil
}

func (f *feed) has(eventType, execution string) bool { return f.kinds[eventType+" "+execution] }

// check returns the id of the last event, after which none is missing.
func (f *feed) check(t *testing.T) int64 {
	t.Helper()
	if f.err != nil {
		t.Error(f.err)
	}
	for i, id := range f.ids {
		if id != int64(i)+1 {
			t.Fatalf("event %d is the %dth", id, i+1)
		}
	}
	return int64(len(f.ids))
}

// missing says what f has seen that is not so in a complete log.
func (f *feed) missing(complete *feed) string {
	for id, document := range f.docs {
		if complete.docs[id] != document {
			return fmt.Sprintf("event %d is %q and was %q", id, complete.docs[id], document)
		}
	}
	return ""
}

// follow reads the stream of events from a cursor on until it ends.
func follow(t *testing.T, url string, after int64) <-chan *feed {
	t.Helper()
	done, client := make(chan *feed, 1), newClient(t)
	go func() {
		f := &feed{}
		defer func() { done <- f }()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/events/stream?after="+strconv.FormatInt(after, 10), http.NoBody)
		if err != nil {
			f.err = err
			return
		}
		answer, err := client.Do(request)
		if err != nil {
			f.err = err
			return
		}
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		var eventType, id string
		for lines.Scan() && f.err == nil {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case name == "event":
				eventType = value
			case name == "id":
				id = value
			case name == "data" && strings.Contains(eventType, "."):
				f.err = f.add([]byte(value))
			case name == "data":
				f.last = eventType
				f.cursor, f.err = strconv.ParseInt(id, 10, 64)
			}
		}
		if err := lines.Err(); err != nil {
			f.err = err
		}
	}()
	return done
}

// list reads the whole log.
func list(t *testing.T, url string) *feed {
	t.Helper()
	f, client := &feed{}, newClient(t)
	for after, more := int64(0), true; more; {
		r := must(t, client, http.MethodGet, fmt.Sprintf("%s/v1/events?limit=500&after=%d", url, after), "")
		var page struct {
			Items      []json.RawMessage
			NextCursor int64 `json:"next_cursor"`
			More       bool
		}
		if err := json.Unmarshal(r.body, &page); err != nil || r.status != http.StatusOK {
			t.Fatalf("a list of events = %d %s", r.status, r.body)
		}
		for _, item := range page.Items {
			if err := f.add(item); err != nil {
				t.Fatal(err)
			}
		}
		after, more = page.NextCursor, page.More
	}
	f.check(t)
	return f
}

// connection is a connection whose bytes the test writes itself.
type connection struct {
	tb    testing.TB
	conn  net.Conn
	lines *bufio.Reader
}

func dial(tb testing.TB, url string) *connection {
	tb.Helper()
	conn, err := new(net.Dialer).DialContext(tb.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		tb.Fatal(err)
	}
	return &connection{tb, conn, bufio.NewReader(conn)}
}

func (c *connection) write(text string) {
	c.tb.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.tb.Fatal(err)
	}
}

// read expects these lines next.
func (c *connection) read(want ...string) {
	c.tb.Helper()
	for _, w := range want {
		if line, err := c.lines.ReadString('\n'); strings.TrimRight(line, "\r\n") != w {
			c.tb.Fatalf("got the line %q, %v; want %q", line, err, w)
		}
	}
}

// answer reads an answer.
func (c *connection) answer() response {
	c.tb.Helper()
	answer, err := http.ReadResponse(c.lines, nil)
	if err != nil {
		c.tb.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		c.tb.Fatal(err)
	}
	return response{answer.StatusCode, answer.Header, body}
}

// eventually waits for a condition that nothing tells of.
func eventually(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for !condition() {
		select {
		case <-ctx.Done():
			tb.Fatalf("it never came true that %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
