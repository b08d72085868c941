package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// live is a server, as the tests of what can be watched use it.
type live struct{ *apptest.Server }

// liveFirst is how many events the log of a new server has: that it has made its waitpoint secret.
const liveFirst = 1

// liveDatabases runs fn against a server on each database.
func liveDatabases(t *testing.T, fn func(t *testing.T, s live), change ...func(s *apptest.Server)) {
	t.Helper()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		for _, c := range change {
			c(s)
		}
		fn(t, live{s})
	})
}

// in returns a client of the same server that names a namespace.
func (s live) in(namespace string) live {
	other := *s.Server
	other.Client = s.In(namespace)
	return live{&other}
}

// liveClaim is an execution in the hands of a worker.
type liveClaim struct {
	ID, Handle, Kind string
	Epoch            int64
}

func liveClaims(r *apitest.Response) []liveClaim {
	var body struct {
		Claims []struct {
			Execution struct{ ID string }
			Handle    string
			Kind      string
			Fence     struct {
				LeaseEpoch int64 `json:"lease_epoch"`
			}
		}
	}
	r.Into(&body)
	claims := make([]liveClaim, len(body.Claims))
	for i, c := range body.Claims {
		claims[i] = liveClaim{ID: c.Execution.ID, Handle: c.Handle, Kind: c.Kind, Epoch: c.Fence.LeaseEpoch}
	}
	return claims
}

// create makes an execution; more are further members of the request, with a leading comma.
func (s live) create(lane string, more ...string) string {
	return s.Post("/v1/executions", `{"lane":"`+lane+`"`+strings.Join(more, "")+`}`).Want(http.StatusCreated).Str("id")
}

func (s live) claim(lane string, more ...string) liveClaim {
	return liveClaims(s.Post("/v1/claims", `{"lane":"`+lane+`","worker_id":"w","worker_instance_id":"w-1"`+strings.Join(more, "")+`}`).Want(http.StatusOK))[0]
}

// verb is a worker's call on what it holds.
func (s live) verb(c liveClaim, verb string, more ...string) *apitest.Response {
	return s.Post("/v1/executions/"+c.ID+"/"+verb, `{"handle":"`+c.Handle+`"`+strings.Join(more, "")+`}`).Want(http.StatusOK)
}

// liveEvent is an event as GET /v1/events and the streams show it.
type liveEvent struct {
	ID          int64
	Namespace   string
	Topic, Type string
	ExecutionID string `json:"execution_id"`
	InstanceTag string `json:"instance_tag"`
	Revision    int64
	Cause       int64
	Data        json.RawMessage

	text string // the whole document
}

func liveEventOf(tb testing.TB, document []byte) liveEvent {
	tb.Helper()
	e := liveEvent{text: string(document)}
	if err := json.Unmarshal(document, &e); err != nil {
		tb.Fatalf("event %s: %v", document, err)
	}
	return e
}

// livePage is an answer of GET /v1/events.
type livePage struct {
	events []liveEvent
	next   int64
	more   bool
	reset  *int64
	answer *apitest.Response
}

func (s live) page(tb testing.TB, query string, headers ...string) livePage {
	tb.Helper()
	r := s.Get("/v1/events"+query, headers...).Want(http.StatusOK)
	var body struct {
		Items      []json.RawMessage
		NextCursor int64 `json:"next_cursor"`
		More       bool
		ResetTo    *int64 `json:"reset_to"`
	}
	r.Into(&body)
	p := livePage{next: body.NextCursor, more: body.More, reset: body.ResetTo, answer: r}
	for _, item := range body.Items {
		p.events = append(p.events, liveEventOf(tb, item))
	}
	return p
}

// log returns everything that a filter shows, from the oldest event on.
func (s live) log(tb testing.TB, filter string) []liveEvent {
	tb.Helper()
	var all []liveEvent
	for after, more := int64(0), true; more; {
		p := s.page(tb, fmt.Sprintf("?limit=500&after=%d&%s", after, filter))
		if p.more && p.next <= after {
			tb.Fatalf("the log does not go on after %d", after)
		}
		all, after, more = append(all, p.events...), p.next, p.more
	}
	return all
}

func liveTypes(events []liveEvent) []string {
	types := make([]string, len(events))
	for i, e := range events {
		types[i] = e.Type
	}
	return types
}

func liveIDs(events []liveEvent) []int64 {
	ids := make([]int64, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	return ids
}

// send is a request from a goroutine that may not end the test.
func (s live) send(ctx context.Context, method, path, body string, headers ...string) (int, http.Header, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.Base()+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	answer, err := s.HTTP().Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, data, err
}

// liveAnswer is what send has returned, and when.
type liveAnswer struct {
	status int
	header http.Header
	body   []byte
	at     time.Time
}

// ask sends a request whose answer is waited for later.
func (s live) ask(tb testing.TB, method, path, body string, headers ...string) <-chan liveAnswer {
	tb.Helper()
	answers := make(chan liveAnswer, 1)
	go func() {
		status, header, data, err := s.send(tb.Context(), method, path, body, headers...)
		if err != nil {
			data = []byte(err.Error())
		}
		answers <- liveAnswer{status, header, data, time.Now()}
	}()
	return answers
}

// awaited waits for the answer to a request.
func awaited(tb testing.TB, answers <-chan liveAnswer) liveAnswer {
	tb.Helper()
	select {
	case a := <-answers:
		return a
	case <-time.After(apitest.Patience):
		tb.Fatal("no answer")
		return liveAnswer{}
	}
}

// events decodes the items of an answer to GET /v1/events.
func (a liveAnswer) events(tb testing.TB) []liveEvent {
	tb.Helper()
	var body struct{ Items []json.RawMessage }
	if err := json.Unmarshal(a.body, &body); err != nil || a.status != http.StatusOK {
		tb.Fatalf("a list of events = %d %s", a.status, a.body)
	}
	events := make([]liveEvent, len(body.Items))
	for i, item := range body.Items {
		events[i] = liveEventOf(tb, item)
	}
	return events
}

// liveExpect reads from a stream exactly these events next.
func liveExpect(t *testing.T, stream *apitest.Stream, name string, want []liveEvent) {
	t.Helper()
	for _, w := range want {
		got := stream.Next()
		if diff := cmp.Diff(apitest.Event{ID: strconv.FormatInt(w.ID, 10), Type: w.Type, Data: w.text}, got); diff != "" {
			t.Fatalf("%s: (-GET /v1/events +stream)\n%s", name, diff)
		}
	}
}

// others writes events of another namespace, which a busy neighbour would.
func (s live) others(tb testing.TB, n int, data any) {
	tb.Helper()
	err := store.Do(tb.Context(), s.App.Store(), func(tx *store.Tx) error {
		for range n {
			tx.Emit(event.Event{Type: event.TokenRevoked, Namespace: "neighbour", Data: data})
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// liveLink returns the target of a Link header.
func liveLink(link string) string {
	target, _, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	if u, err := url.Parse(target); err != nil || u.Path == "" {
		return ""
	}
	return target
}

// big writes events of this namespace with a large text.
func (s live) big(tb testing.TB, n int, text string) {
	tb.Helper()
	err := store.Do(tb.Context(), s.App.Store(), func(tx *store.Tx) error {
		for range n {
			tx.Emit(event.Event{Type: event.TokenRevoked, Namespace: "default", Data: map[string]string{"text": text}})
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}
