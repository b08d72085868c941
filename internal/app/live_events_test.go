package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/storetest"
)

// liveStory writes a log in which every filter has something to show and something to hide: two executions of the namespace
// default, one of them tagged, and one of the namespace red.
func liveStory(s live) (tagged, plain, red string) {
	tagged = s.create("a", `,"tags":{"cairn.instance_id":"i-1"}`)
	red = s.in("red").create("a")
	plain = s.create("b")
	held := s.claim("a")
	s.verb(held, "progress", `,"pct":50`)
	s.verb(held, "complete", `,"result":{"ok":true}`)
	s.verb(s.claim("b"), "fail", `,"reason":"no"`)
	s.in("red").claim("a")
	return tagged, plain, red
}

// liveFilters are query strings with what they select.
func liveFilters(tagged, plain, red string) map[string]func(e liveEvent) bool {
	return map[string]func(e liveEvent) bool{
		"":                                       func(liveEvent) bool { return true },
		"topic=admin":                            func(e liveEvent) bool { return e.Topic == "admin" },
		"topic=lease":                            func(e liveEvent) bool { return e.Topic == "lease" },
		"topic=lease,admin":                      func(e liveEvent) bool { return e.Topic == "lease" || e.Topic == "admin" },
		"topic=lease,completion":                 func(e liveEvent) bool { return e.Topic == "lease" || e.Topic == "completion" },
		"topic=lease&topic=completion":           func(e liveEvent) bool { return e.Topic == "lease" || e.Topic == "completion" },
		"topic=completion,execution&topic=lease": func(e liveEvent) bool { return e.Topic != "admin" },
		"topic=flow":                             func(liveEvent) bool { return false },
		"type=execution.completed":               func(e liveEvent) bool { return e.Type == "execution.completed" },
		"type=execution.completed,lease.acquired":                 func(e liveEvent) bool { return e.Type == "execution.completed" || e.Type == "lease.acquired" },
		"type=execution.completed&type=lease.revoked":             func(e liveEvent) bool { return e.Type == "execution.completed" || e.Type == "lease.revoked" },
		"topic=lease&type=execution.completed":                    func(liveEvent) bool { return false },
		"execution_id=" + plain:                                   func(e liveEvent) bool { return e.ExecutionID == plain },
		"execution_id=" + strings.ToUpper(plain) + "&topic=lease": func(e liveEvent) bool { return e.ExecutionID == plain && e.Topic == "lease" },
		"execution_id=" + red:                                     func(liveEvent) bool { return false },
		"instance_tag=i-1":                                        func(e liveEvent) bool { return e.ExecutionID == tagged },
		"instance_tag=i-1&topic=completion":                       func(e liveEvent) bool { return e.ExecutionID == tagged && e.Topic == "completion" },
		"instance_tag=i-2":                                        func(liveEvent) bool { return false },
		"flow_id=" + plain:                                        func(liveEvent) bool { return false },
		"run_id=" + plain:                                         func(liveEvent) bool { return false },
	}
}

func TestLive_list(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		if p := s.page(t, ""); len(p.events) != liveFirst || p.more || p.next != liveFirst || p.reset != nil {
			t.Fatalf("a new log: %s", p.answer.Body)
		}
		if p := s.in("red").page(t, ""); len(p.events) != 0 || p.more || p.next != liveFirst || p.reset != nil {
			t.Fatalf("an empty log: %s", p.answer.Body)
		}
		tagged, plain, red := liveStory(s)
		all := s.page(t, "")
		want := []string{
			"secret.seeded", "execution.created", "execution.created", "lease.acquired", "execution.progressed", "execution.completed", "lease.revoked",
			"lease.acquired", "execution.failed", "lease.revoked",
		}
		if diff := cmp.Diff(want, liveTypes(all.events)); diff != "" || all.more || all.answer.Header.Get("Link") != "" {
			t.Fatalf("the log (-want +got)\n%s\n%s", diff, all.answer.Body)
		}
		newest := all.next
		if newest != liveFirst+11 { // two are of the namespace red, the last one too
			t.Errorf("next_cursor = %d, want the last id examined, %d", newest, liveFirst+11)
		}
		for i, e := range all.events {
			if e.Namespace != "default" || i > 0 && e.ID <= all.events[i-1].ID {
				t.Errorf("event %d of %s follows event %d", e.ID, e.Namespace, all.events[max(0, i-1)].ID)
			}
		}
		if got, completion := all.events[6], all.events[5]; got.Cause != 0 || got.Revision != completion.Revision {
			t.Errorf("the end of the lease has cause %d and revision %d, its completion revision %d", got.Cause, got.Revision, completion.Revision)
		}
		if diff := cmp.Diff(liveIDs(all.events), liveIDs(s.page(t, "?after=0").events)); diff != "" {
			t.Errorf("after=0 is not the beginning:\n%s", diff)
		}
		for i, e := range all.events {
			if diff := cmp.Diff(liveIDs(all.events[i+1:]), liveIDs(s.page(t, fmt.Sprintf("?after=%d", e.ID)).events)); diff != "" {
				t.Errorf("after=%d:\n%s", e.ID, diff)
			}
		}
		if got := s.in("red").page(t, ""); len(got.events) != 2 || got.events[0].ExecutionID != red || got.next != newest {
			t.Errorf("namespace red: %s", got.answer.Body)
		}
		for filter, shows := range liveFilters(tagged, plain, red) {
			wanted := slices.DeleteFunc(slices.Clone(all.events), func(e liveEvent) bool { return !shows(e) })
			got := s.page(t, "?"+filter)
			if diff := cmp.Diff(liveIDs(wanted), liveIDs(got.events)); diff != "" || got.next != newest || got.more {
				t.Errorf("%s: next %d, more %t (-want +got)\n%s", filter, got.next, got.more, diff)
			}
		}
	})
}

func TestLive_list_pages(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		liveStory(s)
		for _, filter := range []string{"", "&topic=lease", "&topic=completion,execution"} {
			want := liveIDs(s.page(t, "?"+filter).events)
			for limit := 1; limit <= 3; limit++ {
				var got []int64
				for target := fmt.Sprintf("?limit=%d%s", limit, filter); ; {
					p := s.page(t, target)
					got = append(got, liveIDs(p.events)...)
					link := liveLink(p.answer.Header.Get("Link"))
					if p.more != (link != "") || p.more && len(p.events) > limit {
						t.Fatalf("more is %t, the link %q, and there are %d items", p.more, link, len(p.events))
					}
					if !p.more {
						break
					}
					target = strings.TrimPrefix(link, "/v1/events")
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("limit=%d%s: (-want +got)\n%s", limit, filter, diff)
				}
			}
		}
	})
}

// A page looks at so many events at most: it may be empty before the end.
func TestLive_list_empty_pages(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		s.others(t, 20_010, nil)
		id := s.create("a")
		first := s.page(t, fmt.Sprintf("?after=%d", liveFirst))
		if len(first.events) != 0 || !first.more || first.next != liveFirst+20_000 {
			t.Fatalf("the first page has %d items, next %d, more %t; want 0, %d, true", len(first.events), first.next, first.more, liveFirst+20_000)
		}
		second := s.page(t, fmt.Sprintf("?after=%d", first.next))
		if len(second.events) != 1 || second.more || second.next != liveFirst+20_011 || second.events[0].ExecutionID != id {
			t.Fatalf("the second page: %s", second.answer.Body)
		}
		if waited := s.page(t, fmt.Sprintf("?after=%d", liveFirst), "Prefer: wait=20"); len(waited.events) != 0 || !waited.more {
			t.Errorf("a long poll waits although there is more to look at: %s", waited.answer.Body)
		}
		stream := s.Stream(fmt.Sprintf("/v1/events/stream?after=%d", liveFirst))
		liveExpect(t, stream, "a stream over events of others", second.events)
	})
}

func TestLive_list_refusals(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		for query, code := range map[string]fault.Code{
			"after=-1": fault.CodeValidationFailed, "after=x": fault.CodeInvalidParameter, "limit=0": fault.CodeValidationFailed,
			"limit=501": fault.CodeValidationFailed, "execution_id=x": fault.CodeInvalidParameter, "topic=Lease": fault.CodeInvalidParameter,
		} {
			got := s.Get("/v1/events?" + query).Problem(code)
			if f := got.Fields(); len(f) != 1 || !strings.HasPrefix(query, f[0].Pointer+"=") {
				t.Errorf("%s: %v", query, f)
			}
		}
		for _, cursor := range []string{"x", "-1", "1.5", "99999999999999999999"} {
			s.Get("/v1/events/stream", "Accept: text/event-stream", "Last-Event-ID: "+cursor).Problem(fault.CodeInvalidCursor)
			s.Get("/v1/subscriptions/leases", "Accept: text/event-stream", "Last-Event-ID: "+cursor).Problem(fault.CodeInvalidCursor)
		}
	})
}

// A cursor that was trimmed, or that the log never reached, is told where to go on.
func TestLive_reset(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := live{apptest.Start(t, url, func(cfg *app.Config) { cfg.Retention = app.Retention{EventAge: time.Hour, EventRows: 1_000_000} })}
		for range 5 {
			s.create("old")
		}
		newest := s.page(t, "").next
		ahead := s.page(t, fmt.Sprintf("?after=%d", newest+1))
		if ahead.reset == nil || *ahead.reset != 1 || len(ahead.events) != liveFirst+5 || ahead.events[0].ID != 1 {
			t.Errorf("a cursor ahead of the log: %s", ahead.answer.Body)
		}
		if p := s.page(t, fmt.Sprintf("?after=%d", newest)); p.reset != nil || len(p.events) != 0 {
			t.Errorf("a cursor at the end of the log: %s", p.answer.Body)
		}

		behind, follower := s.Stream(fmt.Sprintf("/v1/events/stream?after=%d", newest-1)), s.Stream("/v1/events/stream")
		s.Advance(2 * time.Hour)
		kept := s.create("new")
		all := s.page(t, "") // without a cursor it begins at the oldest, whichever that is
		if all.reset != nil || len(all.events) < 1 || all.events[len(all.events)-1].ExecutionID != kept || all.events[0].ID <= newest {
			t.Fatalf("the log after the cut: %s", all.answer.Body)
		}
		if diff := cmp.Diff([]string{"retention.trimmed", "execution.created"}, liveTypes(all.events)); diff != "" {
			t.Errorf("the log after the cut (-want +got)\n%s", diff)
		}
		oldest := newest + 1
		for _, cursor := range []int64{0, 1, newest - 1, newest + 1000} {
			p := s.page(t, fmt.Sprintf("?after=%d", cursor), "Prefer: wait=20")
			if p.reset == nil || *p.reset != oldest || cmp.Diff(liveIDs(all.events), liveIDs(p.events)) != "" {
				t.Errorf("after=%d: %s", cursor, p.answer.Body)
			}
			for _, stream := range []string{fmt.Sprintf("?after=%d", cursor), ""} {
				headers := []string{}
				if stream == "" {
					headers = append(headers, fmt.Sprintf("Last-Event-ID: %d", cursor))
				}
				opened := s.Stream("/v1/events/stream"+stream, headers...)
				reset := opened.Next()
				if reset.Type != "reset" || reset.ID != fmt.Sprint(oldest-1) || reset.Data != fmt.Sprintf(`{"oldest":%d}`, oldest) {
					t.Errorf("a stream after %d begins with %+v, want a reset to %d", cursor, reset, oldest)
				}
				liveExpect(t, opened, "after the reset", all.events)
			}
		}
		if p := s.page(t, fmt.Sprintf("?after=%d", newest)); p.reset != nil || len(p.events) != 2 {
			t.Errorf("the cursor before the oldest event lost nothing: %s", p.answer.Body)
		}
		// Who was there all the time has lost nothing, and hears of no reset.
		if got := behind.Next(); got.ID != fmt.Sprint(newest) {
			t.Errorf("got %+v, want event %d", got, newest)
		}
		liveExpect(t, behind, "a subscriber from before the cut", all.events)
		liveExpect(t, follower, "a subscriber from now on", all.events)
	})
}

func TestLive_long_poll(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		for range 3 {
			s.create("a")
		}
		newest := s.page(t, "").next

		t.Run("has something at once", func(t *testing.T) { s.pollsAtOnce(t, newest) })

		t.Run("ends without events", func(t *testing.T) {
			s.create("a")
			began := time.Now()
			p := s.page(t, "", "Prefer: wait=1") // from now on: what has been answered before is not shown
			if len(p.events) != 0 || p.more || p.next != newest+1 || p.answer.Header.Get("Preference-Applied") != "wait=1" {
				t.Errorf("an idle second: %s", p.answer.Body)
			}
			if took := time.Since(began); took < time.Second || took > 30*time.Second {
				t.Errorf("wait=1 took %s", took)
			}
			newest = p.next
		})

		t.Run("is woken by the commit", func(t *testing.T) {
			for range 5 {
				poll := s.ask(t, http.MethodGet, fmt.Sprintf("/v1/events?after=%d", newest), "", "Prefer: wait=30")
				id := s.create("a")
				got := awaited(t, poll)
				if events := got.events(t); len(events) != 1 || events[0].ExecutionID != id {
					t.Fatalf("got %s, want the creation of %s", got.body, id)
				}
				newest++
			}
		})

		t.Run("from now on", func(t *testing.T) { s.pollsFromNowOn(t, newest) })

		t.Run("waits for what its filter shows", func(t *testing.T) { s.pollsFiltered(t) })
	})
}

// pollsAtOnce: a poll that is answered without waiting.
func (s live) pollsAtOnce(t *testing.T, newest int64) {
	for prefer, applied := range map[string]string{
		"wait=20": "wait=20", "wait=100": "wait=55", "wait=0": "wait=0", "respond-async, wait=3": "wait=3", "wait=x": "", "return=minimal": "",
	} {
		p := s.page(t, fmt.Sprintf("?after=%d", liveFirst), "Prefer: "+prefer)
		if len(p.events) != 3 || p.answer.Header.Get("Preference-Applied") != applied {
			t.Errorf("Prefer: %s: %d events, Preference-Applied: %q", prefer, len(p.events), p.answer.Header.Get("Preference-Applied"))
		}
	}
	if p := s.page(t, fmt.Sprintf("?after=%d", newest), "Prefer: wait=0"); len(p.events) != 0 || p.next != newest {
		t.Errorf("wait=0 at the end: %s", p.answer.Body)
	}
}

// pollsFromNowOn: a poll that is answered with what comes after it was asked.
func (s live) pollsFromNowOn(t *testing.T, newest int64) {
	poll := s.ask(t, http.MethodGet, "/v1/events", "", "Prefer: wait=30")
	for deadline := time.Now().Add(apitest.Patience); ; {
		s.create("a")
		select {
		case got := <-poll:
			events := got.events(t)
			if len(events) == 0 || events[0].ID <= newest {
				t.Errorf("got %s, want events after %d", got.body, newest)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing woke the poll")
		}
	}
}

// pollsFiltered: a poll that waits until something comes that its filter shows.
func (s live) pollsFiltered(t *testing.T) {
	newest := s.page(t, "?after=0&limit=500").next
	poll := s.ask(t, http.MethodGet, fmt.Sprintf("/v1/events?after=%d&topic=completion", newest), "", "Prefer: wait=30")
	s.others(t, 3, nil)
	s.create("z")
	held := s.claim("z")
	select {
	case got := <-poll:
		t.Fatalf("answered before anything was completed: %s", got.body)
	default:
	}
	s.verb(held, "complete")
	if events := awaited(t, poll).events(t); len(events) != 1 || events[0].Type != "execution.completed" || events[0].ExecutionID != held.ID {
		t.Errorf("got %v", liveTypes(events))
	}
}

// When the server stops, everybody who waits is answered at once.
func TestLive_drain_ends_waiting(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		s.create("other")
		stream := s.Stream(fmt.Sprintf("/v1/events/stream?after=%d", liveFirst))
		stream.Next()
		var polls, claims []<-chan liveAnswer
		for range 3 {
			polls = append(polls, s.ask(t, http.MethodGet, "/v1/events?topic=completion", "", "Prefer: wait=50"))
			claims = append(claims, s.ask(t, http.MethodPost, "/v1/claims", `{"lane":"none","worker_id":"w"}`, "Prefer: wait=50"))
		}
		for range 10 { // meanwhile they have come; if one has not, it is answered the same
			s.create("other")
			stream.Next()
		}
		s.Get("/readyz").Want(http.StatusOK)
		s.App.Drain()
		began := time.Now()
		for _, claim := range claims {
			got := awaited(t, claim)
			if got.status != http.StatusNoContent || got.header.Get("Retry-After") == "" || got.header.Get("Preference-Applied") != "wait=50" {
				t.Errorf("a waiting claim = %d %v %s", got.status, got.header, got.body)
			}
		}
		for _, poll := range polls {
			if got := awaited(t, poll); len(got.events(t)) != 0 {
				t.Errorf("a long poll = %d %s", got.status, got.body)
			}
		}
		if bye := stream.Next(); bye.Type != "bye" {
			t.Errorf("the stream ends with %+v", bye)
		}
		if took := time.Since(began); took > 30*time.Second { // they would have waited for 50 s
			t.Errorf("the end took %s", took)
		}
		s.Get("/readyz").Problem(fault.CodeShuttingDown)
		s.Get("/livez").Want(http.StatusOK)
		s.Get("/v1/events/stream").Problem(fault.CodeShuttingDown)
		// A request under way goes on.
		s.create("late")
		if got := s.Post("/v1/claims", `{"lane":"none","worker_id":"w"}`, "Prefer: wait=50").Want(http.StatusNoContent); got.Header.Get("Retry-After") == "" {
			t.Error("a claim while the server stops is not told when to come again")
		}
	})
}
