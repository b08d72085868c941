package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/bench"
)

// TestMain is also the subscribers' process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bench.Subscribe {
		if err := bench.RunSubscribers(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	t.Parallel()
	report, err := run(t, &fake{}, bench.Parts()...)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := report.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  create\n", "  claim\n", "  complete\n", "  lifecycle: create, claim, complete\n",
		"  create, batches of 10\n", "  claim, batches of 10\n", "  complete, batches of 10\n", "  lifecycle, batches of 10\n",
		"  claim, 1 connection, empty lane: mean\n", "  claim, 1 connection, behind 1,500 unclaimable: mean, to an empty lane's\n",
		"  claim, 8 connections, empty lane: mean\n", "  claim, 8 connections, behind 1,500 unclaimable: mean, to an empty lane's\n",
		"  end of a delay of 50ms: lateness, at most\n", "  end of a lease of 200ms: lateness, at most\n",
		"  flow of 10 members in a row, from submission to end\n", "  submit a graph of 1000 members and 5000 edges\n",
		"  claim, complete\n", "  claim, complete: 10 tenants, 3 of each at work\n", "  rate with a quota, of that without\n",
		"  5 subscribers: executions created\n", "  5 subscribers: events written\n", "  5 subscribers: events received, commit to client\n",
		"  3 followers: frames appended, 5 at a time\n", "  3 followers: frames received, append to client\n",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no row %q:\n%s", want, table.String())
		}
	}
	for _, row := range report.Rows {
		if row.Unit == "/s" && row.Value <= 0 {
			t.Errorf("%s: %f a second", row.Measure, row.Value)
		}
	}
}

// A server that does not do what it says is found out, whatever its speed.
func TestRun_dishonestServer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		server *fake
		part   string
		want   string
	}{
		{"refuses", &fake{refuse: true}, bench.PartOne, "429 rate_limited: slow down"},
		{"refuses an item", &fake{refuseItem: true}, bench.PartBatch, "item 3: 422 validation_failed: no"},
		{"gives out work twice", &fake{twice: true}, bench.PartOne, "claim: "},
		{"does not complete", &fake{forget: true}, bench.PartOne, `which is "active"`},
		{"gives out what nobody may have", &fake{eager: true}, bench.PartAhead, "not the same ones"},
		{"gives out what is not due", &fake{early: true}, bench.PartTimers, "before it was due"},
		{"loses an event", &fake{lose: true}, bench.PartEvents, "4 of 5 subscribers heard them all, in order"},
		{"swaps events", &fake{swap: true}, bench.PartEvents, "4 of 5 subscribers heard them all, in order"},
		{"starts again what is resumed", &fake{restart: true}, bench.PartSuspend, "a fresh claim of"},
		{"lets members go too early", &fake{eager: true}, bench.PartGraph, "before its turn"},
		{"loses a frame", &fake{lose: true}, bench.PartFrames, "2 of 3 subscribers heard them all, in order"},
		{"swaps frames", &fake{swap: true}, bench.PartFrames, "2 of 3 subscribers heard them all, in order"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := run(t, tt.server, tt.part)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run() = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// A subscriber whose stream is cut comes back with its cursor and misses nothing.
func TestRun_laggedSubscriber(t *testing.T) {
	t.Parallel()
	report, err := run(t, &fake{lag: true}, bench.PartEvents)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(report.Rows, func(row bench.Row) bool { return row.Measure == "5 subscribers: reconnects" })
	if i < 0 || report.Rows[i].Value == 0 {
		t.Errorf("no reconnect in %v", report.Rows)
	}
}

func run(t *testing.T, server *fake, parts ...string) (bench.Report, error) {
	t.Helper()
	srv := httptest.NewServer(server.handler())
	t.Cleanup(srv.Close)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return bench.Run(t.Context(), bench.Config{
		URL: srv.URL, Self: self, Parts: parts, N: 200, Connections: 8, Batch: 10,
		Ahead: 1500, Rounds: 2, Subscribers: []int{5}, Rate: 200, Duration: 500 * time.Millisecond,
		Followers: 3, FrameRate: 400, FrameBatch: 5, Log: t.Output(),
	})
}

// fake is as much of flowapi as the bench sees, in memory, with the faults that it should see.
type fake struct {
	refuse, refuseItem, twice, forget, eager, early, lose, swap, lag, restart bool

	mu      sync.Mutex
	made    int
	waiting map[string][]item // by lane
	lanes   map[string]string // by execution
	next    map[string]string // execution that follows another
	events  []string          // in order, the first has id 1
	frames  []string
	streams int
}

type object = map[string]any

// item is an execution that can be claimed from a time on.
type item struct {
	id      string
	due     time.Time
	resumed bool
}

func (f *fake) handler() http.Handler {
	f.waiting, f.lanes, f.next = make(map[string][]item), make(map[string]string), make(map[string]string)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/flows", f.createFlow)
	mux.HandleFunc("GET /v1/flows/{id}", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, object{"status": "finished"}) })
	mux.HandleFunc("POST /v1/quotas", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusCreated, object{"id": "quota"}) })
	mux.HandleFunc("PUT /v1/lanes/{lane}", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, object{}) })
	mux.HandleFunc("POST /v1/executions", f.create)
	mux.HandleFunc("POST /v1/executions/batch", f.createBatch)
	mux.HandleFunc("POST /v1/claims", f.claim)
	mux.HandleFunc("POST /v1/executions/{id}/complete", f.complete)
	mux.HandleFunc("POST /v1/completions", f.completions)
	mux.HandleFunc("POST /v1/executions/{id}/suspend", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, object{"waitpoints": []object{{"waitpoint_id": "w", "token": "t"}}})
	})
	mux.HandleFunc("POST /v1/executions/{id}/signals", f.signal)
	mux.HandleFunc("GET /v1/events", f.list)
	mux.HandleFunc("GET /v1/events/stream", func(w http.ResponseWriter, r *http.Request) {
		f.stream(w, r, &f.events, func(event string) string {
			var id struct {
				ID int `json:"id"`
			}
			_ = json.Unmarshal([]byte(event), &id)
			return fmt.Sprintf("id: %d\nevent: execution.created", id.ID)
		})
	})
	mux.HandleFunc("POST /v1/executions/{id}/frames", f.append)
	mux.HandleFunc("GET /v1/executions/{id}/attempts/current/stream", func(w http.ResponseWriter, r *http.Request) {
		f.stream(w, r, &f.frames, func(string) string { return "id: 0/1-0\nevent: frame" })
	})
	return mux
}

// createFlow makes a flow, whose members follow one another in the order in which they are given.
func (f *fake) createFlow(w http.ResponseWriter, r *http.Request) {
	in := body[struct {
		Graph struct {
			Executions []struct{ Key, Lane string } `json:"executions"`
		} `json:"graph"`
	}](r)
	f.mu.Lock()
	defer f.mu.Unlock()
	ids, before := object{}, ""
	for _, x := range in.Graph.Executions {
		f.made++
		id := strconv.Itoa(f.made)
		ids[x.Key], f.lanes[id] = id, x.Lane
		switch {
		case before == "":
			f.waiting[x.Lane] = append(f.waiting[x.Lane], item{id: id})
		case f.eager:
			f.waiting[x.Lane] = slices.Insert(f.waiting[x.Lane], 0, item{id: id})
		default:
			f.next[before] = id
		}
		before = id
	}
	answer(w, http.StatusCreated, object{"id": "unstarted", "graph": object{"executions": ids}})
}

type creation struct {
	Lane         string   `json:"lane"`
	Delay        int64    `json:"delay_ms"`
	Capabilities []string `json:"required_capabilities"`
	FlowID       string   `json:"flow_id"`
}

func (f *fake) add(c creation) object {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	id := strconv.Itoa(f.made)
	f.lanes[id] = c.Lane
	due := time.Now().Truncate(time.Millisecond).Add(time.Duration(c.Delay) * time.Millisecond)
	switch {
	case f.eager:
		f.waiting[c.Lane] = append(f.waiting[c.Lane], item{id: id})
	case len(c.Capabilities) == 0 && c.FlowID == "":
		f.waiting[c.Lane] = append(f.waiting[c.Lane], item{id: id, due: f.effect(due)})
	}
	event := fmt.Sprintf(`{"id":%d,"type":"execution.created","at":%q}`, len(f.events)+1, time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	f.events = append(f.events, event)
	return object{"id": id, "public_state": "waiting", "delay_until": due}
}

// effect returns when a timer takes effect that is due at a time.
func (f *fake) effect(due time.Time) time.Time {
	if f.early {
		return time.Time{}
	}
	return due
}

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	if f.refuse {
		answer(w, http.StatusTooManyRequests, object{"status": 429, "code": "rate_limited", "detail": "slow down"})
		return
	}
	answer(w, http.StatusCreated, f.add(body[creation](r)))
}

func (f *fake) createBatch(w http.ResponseWriter, r *http.Request) {
	var items []object
	for i, c := range body[struct {
		Executions []creation `json:"executions"`
	}](r).Executions {
		if f.refuseItem && i == 3 {
			items = append(items, object{"problem": object{"status": 422, "code": "validation_failed", "detail": "no"}})
			continue
		}
		items = append(items, object{"execution": f.add(c)})
	}
	answer(w, http.StatusCreated, object{"items": items})
}

func (f *fake) claim(w http.ResponseWriter, r *http.Request) {
	in := body[struct {
		Lane string `json:"lane"`
		Max  int    `json:"max"`
		TTL  int64  `json:"lease_ttl_ms"`
	}](r)
	ttl := time.Duration(in.TTL) * time.Millisecond
	claims := f.take(in.Lane, in.Max, ttl)
	for len(claims) == 0 && r.Header.Get("Prefer") == "wait=5" && r.Context().Err() == nil {
		time.Sleep(time.Millisecond)
		claims = f.take(in.Lane, in.Max, ttl)
	}
	if len(claims) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer(w, http.StatusOK, object{"claims": claims})
}

// take claims what is due. A lease of more than a minute never runs out.
func (f *fake) take(lane string, limit int, ttl time.Duration) (claims []object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	expires := now.Truncate(time.Millisecond).Add(ttl)
	var left []item
	for _, it := range f.waiting[lane] {
		if len(claims) == limit || it.due.After(now) {
			left = append(left, it)
			continue
		}
		kind := "fresh"
		if it.resumed {
			kind = "resumed"
		}
		claims = append(claims, object{"kind": kind, "execution": object{"id": it.id, "public_state": "active"}, "handle": "h" + it.id, "lease_expires_at": expires})
		if ttl < time.Minute {
			left = append(left, item{id: it.id, due: f.effect(expires)})
		}
	}
	if !f.twice || f.made%2 == 1 {
		f.waiting[lane] = left
	}
	return claims
}

func (f *fake) ended(id string) object {
	state := "completed"
	if f.forget {
		state = "active"
	}
	return object{"execution": object{"id": id, "public_state": state}}
}

func (f *fake) complete(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if next, ok := f.next[r.PathValue("id")]; ok {
		f.waiting[f.lanes[next]] = append(f.waiting[f.lanes[next]], item{id: next})
	}
	f.mu.Unlock()
	answer(w, http.StatusOK, f.ended(r.PathValue("id")))
}

// signal wakes an execution.
func (f *fake) signal(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := r.PathValue("id")
	f.waiting[f.lanes[id]] = append(f.waiting[f.lanes[id]], item{id: id, resumed: !f.restart})
	answer(w, http.StatusOK, object{"effect": "resume_condition_satisfied"})
}

func (f *fake) completions(w http.ResponseWriter, r *http.Request) {
	var items []object
	for _, item := range body[struct {
		Items []struct {
			ID string `json:"execution_id"`
		} `json:"items"`
	}](r).Items {
		items = append(items, f.ended(item.ID))
	}
	answer(w, http.StatusOK, object{"items": items})
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.Atoi(r.FormValue("after"))
	f.mu.Lock()
	defer f.mu.Unlock()
	page := f.events[min(after, len(f.events)):]
	page = page[:min(100, len(page))]
	fmt.Fprintf(w, `{"items":[%s],"next_cursor":%d,"more":%t}`, strings.Join(page, ","), after+len(page), after+len(page) < len(f.events))
}

func (f *fake) append(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []object
	for _, frame := range body[struct{ Frames []struct{ Payload string } }](r).Frames {
		data, _ := json.Marshal(object{"payload": frame.Payload, "at": time.Now().UTC()})
		f.frames = append(f.frames, string(data))
		ids = append(ids, object{"id": "1-0"})
	}
	answer(w, http.StatusOK, object{"frames": ids})
}

// stream sends a log, whose events render gives their first lines.
func (f *fake) stream(w http.ResponseWriter, r *http.Request, log *[]string, render func(event string) string) {
	cursor, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	f.mu.Lock()
	f.streams++
	faulty := f.streams == 1
	f.mu.Unlock()
	flush := http.NewResponseController(w).Flush
	fmt.Fprint(w, ": hello\nretry: 1000\n\n")
	for sent := 0; flush() == nil && r.Context().Err() == nil; time.Sleep(20 * time.Millisecond) {
		f.mu.Lock()
		more := slices.Clone((*log)[cursor:])
		f.mu.Unlock()
		if faulty && f.swap && len(more) > 2 && sent < 20 {
			more[0], more[1] = more[1], more[0]
		}
		for _, event := range more {
			cursor++
			sent++
			if faulty && f.lose && sent == 20 {
				continue
			}
			fmt.Fprintf(w, "%s\ndata: %s\n\n", render(event), event)
			if faulty && f.lag && sent == 20 {
				fmt.Fprint(w, "event: lagged\ndata: {}\n\n")
				return
			}
		}
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func body[T any](r *http.Request) T {
	var v T
	_ = json.NewDecoder(r.Body).Decode(&v)
	return v
}
