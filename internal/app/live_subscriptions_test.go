package app_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
)

// shape is the data of an event of a typed subscription.
type shape map[string]any

// nextShape reads the next event, and checks what all events of the subscriptions have.
func nextShape(t *testing.T, stream *apitest.Stream) (eventType string, data shape) {
	t.Helper()
	e := stream.Next()
	if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
		t.Fatalf("%s: %v", e.Data, err)
	}
	if cursor, ok := data["cursor"].(float64); !ok || strconv.FormatInt(int64(cursor), 10) != e.ID {
		t.Errorf("the cursor of %s is not its id %s", e.Data, e.ID)
	}
	at, _ := data["at"].(string)
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", at); err != nil {
		t.Errorf("at of %s: %v", e.Data, err)
	}
	if flow, ok := data["flow_id"]; !ok || flow != nil {
		t.Errorf("flow_id of %s is %v, want null", e.Data, flow)
	}
	if data["namespace"] != "default" {
		t.Errorf("namespace of %s", e.Data)
	}
	return e.Type, data
}

// liveTold is the type of an event, and its data without what is told of every event.
type liveTold struct {
	Type string
	Data shape
}

// liveAllTold checks what comes next, and returns its cursors.
func liveAllTold(t *testing.T, stream *apitest.Stream, want []liveTold) (cursors []string) {
	t.Helper()
	for _, w := range want {
		eventType, data := nextShape(t, stream)
		cursors = append(cursors, fmt.Sprintf("%.0f", data["cursor"]))
		if diff := cmp.Diff(w, liveTold{eventType, without(data, "cursor", "at", "namespace", "flow_id")}); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
	return cursors
}

// Each entry into a terminal state is one completion, however it came about, and nothing else is.
func TestLive_completions(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		stream := s.Stream("/v1/subscriptions/completions")
		var want []liveTold
		end := func(eventType, id, outcome string, more shape) {
			data := shape{"execution_id": id, "outcome": outcome, "lane": "a", "kind": "k"}
			maps.Copy(data, more)
			want = append(want, liveTold{eventType, data})
		}
		const kind = `,"kind":"k"`

		s.in("red").create("a")
		s.in("red").verb(s.in("red").claim("a"), "complete")

		done := s.create("a", kind, `,"tags":{"cairn.instance_id":"i-1"}`)
		held := s.claim("a")
		s.verb(held, "renew")
		s.verb(held, "complete", `,"result":1`)
		if replayed := s.verb(held, "complete", `,"result":1`); replayed.Get("replayed") != true {
			t.Errorf("the repeated complete: %s", replayed.Body)
		}
		end("execution.completed", done, "success", shape{"attempt_index": 0.0})

		retried := s.create("a", kind, `,"policy":{"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":1000}}}`)
		s.verb(s.claim("a"), "fail", `,"reason":"once","category":"c"`)
		s.Advance(2 * time.Second)
		again := s.claim("a")
		s.verb(again, "fail", `,"reason":"twice","category":"c"`)
		s.verb(again, "fail", `,"reason":"twice","category":"c"`)
		end("execution.failed", retried, "failed", shape{"attempt_index": 1.0, "reason": "twice", "category": "c"})

		late := s.create("a", kind, fmt.Sprintf(`,"deadline_at":%q`, s.Clock.Now().Add(time.Minute).Format(time.RFC3339)))
		s.Advance(2 * time.Minute)
		end("execution.expired", late, "expired", shape{"reason": "execution_deadline", "category": "timeout"})

		slow := s.create("a", kind, `,"policy":{"timeout_policy":{"attempt_timeout_ms":60000}}`)
		s.claim("a", `,"lease_ttl_ms":3600000`)
		s.Advance(2 * time.Minute)
		end("execution.expired", slow, "expired", shape{"attempt_index": 0.0, "reason": "attempt_timeout", "category": "timeout"})

		lost := s.create("a", kind, `,"policy":{"max_reclaim_count":0}`)
		s.claim("a", `,"lease_ttl_ms":1000`)
		s.Advance(2 * time.Second)
		s.Post("/v1/claims", `{"lane":"a","worker_id":"w"}`).Want(http.StatusNoContent)
		end("execution.failed", lost, "failed", shape{"attempt_index": 0.0, "reason": "max_reclaims_exceeded", "category": "infra_crash"})

		first, second := s.create("a", kind), s.create("a", kind)
		one, two := s.claim("a"), s.claim("a")
		s.Post("/v1/completions", fmt.Sprintf(`{"items":[{"execution_id":%q,"handle":%q},{"execution_id":%q,"handle":%q,"fail":{"reason":"no"}},{"execution_id":%q,"handle":%q}]}`,
			first, one.Handle, second, two.Handle, first, one.Handle)).Want(http.StatusOK)
		end("execution.completed", first, "success", shape{"attempt_index": 0.0})
		end("execution.failed", second, "failed", shape{"attempt_index": 0.0, "reason": "no"})

		cursors := liveAllTold(t, stream, want)
		// A filter, a cursor, and nothing more than these until the end.
		resumed := s.Stream("/v1/subscriptions/completions", "Last-Event-ID: "+cursors[len(cursors)-2])
		tagged := s.Stream("/v1/subscriptions/completions?after=0&instance_tag=i-1")
		chosen := s.Stream("/v1/subscriptions/completions?after=0&execution_id=" + late)
		for name, c := range map[string]struct {
			stream *apitest.Stream
			id     string
		}{"resumed": {resumed, second}, "instance_tag": {tagged, done}, "execution_id": {chosen, late}} {
			if _, data := nextShape(t, c.stream); data["execution_id"] != c.id {
				t.Errorf("%s: got %v, want the end of %s", name, data, c.id)
			}
		}
		s.App.Drain()
		for _, open := range []*apitest.Stream{stream, resumed, tagged, chosen} {
			if bye := open.Next(); bye.Type != "bye" {
				t.Errorf("more than one completion for an end: %+v", bye)
			}
		}
	})
}

func without(s shape, names ...string) shape {
	rest := shape{}
	maps.Copy(rest, s)
	for _, name := range names {
		delete(rest, name)
	}
	return rest
}

// Each change of ownership is one lease event, with who and why.
func TestLive_leases(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		stream := s.Stream("/v1/subscriptions/leases")
		type change struct {
			Type string
			Data shape
		}
		var want []change
		changed := func(c liveClaim, eventType, reason string, attempt int, more shape) {
			data := shape{"execution_id": c.ID, "lease_epoch": float64(c.Epoch), "worker_id": "w", "worker_instance_id": "w-1", "attempt_index": float64(attempt)}
			if reason != "" {
				data["reason"] = reason
			}
			maps.Copy(data, more)
			want = append(want, change{"lease." + eventType, data})
		}
		acquired := func(c liveClaim, attempt int) {
			changed(c, "acquired", "", attempt, shape{"kind": c.Kind})
		}
		const retry = `,"policy":{"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":1000}}}`

		s.create("a")
		held := s.claim("a")
		acquired(held, 0)
		s.verb(held, "renew", `,"lease_ttl_ms":5000`)
		changed(held, "renewed", "", 0, nil)
		s.verb(held, "progress", `,"pct":1`) // not a change of ownership
		s.Advance(6 * time.Second)
		changed(held, "expired", "timeout", 0, nil)
		taken := s.claim("a")
		changed(taken, "reclaimed", "", 1, shape{"previous_attempt_index": 0.0})
		s.verb(taken, "release")
		changed(taken, "revoked", "released", 1, nil)
		s.verb(taken, "release") // a repeated one
		resumed := s.claim("a")
		acquired(resumed, 1)
		s.verb(resumed, "complete")
		changed(resumed, "revoked", "completed", 1, nil)
		if taken.Kind != "reclaimed" || resumed.Kind != "resumed" || taken.Epoch != 2 || resumed.Epoch != 3 {
			t.Errorf("the claims were %+v and %+v", taken, resumed)
		}

		s.create("a", retry)
		once := s.claim("a")
		acquired(once, 0)
		s.verb(once, "fail", `,"reason":"no"`)
		changed(once, "revoked", "retry_scheduled", 0, nil)
		s.Advance(2 * time.Second)
		twice := s.claim("a")
		acquired(twice, 1)
		s.verb(twice, "fail", `,"reason":"no"`)
		changed(twice, "revoked", "failed", 1, nil)

		s.create("a", `,"policy":{"timeout_policy":{"attempt_timeout_ms":60000}}`)
		slow := s.claim("a", `,"lease_ttl_ms":3600000`)
		acquired(slow, 0)
		s.Advance(2 * time.Minute)
		changed(slow, "revoked", "timeout", 0, nil)

		for _, w := range want {
			eventType, data := nextShape(t, stream)
			if id, _ := data["lease_id"].(string); len(id) != 36 {
				t.Errorf("%s without a lease_id: %v", eventType, data)
			}
			if _, expires := data["expires_at"].(string); expires != (eventType == "lease.acquired" || eventType == "lease.renewed" || eventType == "lease.reclaimed") {
				t.Errorf("%s: expires_at is %v", eventType, data["expires_at"])
			}
			if diff := cmp.Diff(w, change{eventType, without(data, "cursor", "at", "namespace", "flow_id", "lease_id", "expires_at")}); diff != "" {
				t.Fatalf("(-want +got)\n%s", diff)
			}
		}
		s.App.Drain()
		if bye := stream.Next(); bye.Type != "bye" {
			t.Errorf("one change of ownership too many: %+v", bye)
		}
	})
}
