package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// operatorEmit writes events as the engine would, each in a transaction of its own.
func operatorEmit(tb testing.TB, s live, events ...event.Event) {
	tb.Helper()
	for _, e := range events {
		if err := store.Do(tb.Context(), s.App.Store(), func(tx *store.Tx) error {
			tx.Emit(e)
			return nil
		}); err != nil {
			tb.Fatal(err)
		}
	}
}

// operatorSeen is an event of a typed subscription without its time, which is checked apart.
type operatorSeen struct {
	Type string
	Data shape
}

// operatorRead reads as many events as are wanted and compares them. It returns their ids.
func operatorRead(t *testing.T, stream *apitest.Stream, want ...operatorSeen) []string {
	t.Helper()
	got := []operatorSeen{}
	var ids []string
	for range want {
		e := stream.Next()
		var data shape
		if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
			t.Fatalf("%s: %v", e.Data, err)
		}
		if cursor, ok := data["cursor"].(float64); !ok || strconv.FormatInt(int64(cursor), 10) != e.ID {
			t.Errorf("the cursor of %s is not its id %s", e.Data, e.ID)
		}
		if at, _ := data["at"].(string); len(at) != len("2006-01-02T15:04:05.000Z") {
			t.Errorf("at of %s", e.Data)
		}
		ids = append(ids, e.ID)
		got = append(got, operatorSeen{e.Type, without(data, "cursor", "at")})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	return ids
}

// operatorEnds checks that streams have nothing more to say: the next thing is the end of the server.
func operatorEnds(t *testing.T, s live, streams ...*apitest.Stream) {
	t.Helper()
	s.App.Drain()
	for i, stream := range streams {
		if bye := stream.Next(); bye.Type != "bye" {
			t.Errorf("stream %d has one event too many: %+v", i, bye)
		}
	}
}

// operatorFilters opens a stream from the beginning for each filter, and checks that it shows what the filter selects, whole
// and from each cursor.
func operatorFilters(t *testing.T, s live, path string, all []operatorSeen, ids []string, filters map[string]func(operatorSeen) bool) []*apitest.Stream {
	t.Helper()
	var open []*apitest.Stream
	for filter, shows := range filters {
		want := slices.DeleteFunc(slices.Clone(all), func(e operatorSeen) bool { return !shows(e) })
		stream := s.Stream(path + "?after=0&" + filter)
		operatorRead(t, stream, want...)
		open = append(open, stream)
	}
	for i, id := range ids {
		byHeader, byQuery := s.Stream(path, "Last-Event-ID: "+id), s.Stream(path+"?after="+id)
		operatorRead(t, byHeader, all[i+1:]...)
		operatorRead(t, byQuery, all[i+1:]...)
		open = append(open, byHeader, byQuery)
	}
	return open
}

// Each act of an operator on an execution is one event with who did it; a bulk job is none, but what it does is.
func TestLive_operator(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		const path = "/v1/subscriptions/operator"
		follower, neighbour := s.Stream(path), s.in("red").Stream(path)
		tagged, plain, theirs, flow := uuid.New(), uuid.New(), uuid.New(), uuid.New()
		operatorEmit(t, s,
			event.Event{Type: event.OperatorBulkStarted, Actor: "token:ops", Data: shape{"job_id": uuid.New(), "action": "cancel"}},
			event.Event{Type: event.OperatorCancelled, Actor: "token:ops", ExecutionID: tagged, FlowID: flow, InstanceTag: "i-1", Data: shape{"reason": "a \"reason\"\nin two lines", "grace_ms": 500}},
			event.Event{Type: event.ExecutionCancelled, ExecutionID: tagged, FlowID: flow, InstanceTag: "i-1", Data: shape{"outcome": "cancelled"}},
			event.Event{Type: event.OperatorReplayed, Namespace: "red", Actor: "token:red", ExecutionID: theirs, InstanceTag: "i-1", Data: shape{"replay_count": 1}},
			event.Event{Type: event.OperatorPriorityChanged, Actor: "local", ExecutionID: plain, Data: shape{"old_priority": 0, "new_priority": 100}},
			event.Event{Type: event.OperatorBulkFinished, Actor: "engine", Data: shape{"state": "finished"}},
			event.Event{Type: event.OperatorResumed, Actor: "token:ops", ExecutionID: tagged, FlowID: flow, InstanceTag: "i-1"},
		)
		all := []operatorSeen{
			{"operator.cancelled", shape{"execution_id": tagged.String(), "flow_id": flow.String(), "namespace": "default", "actor": "token:ops",
				"reason": "a \"reason\"\nin two lines", "grace_ms": 500.0}},
			{"operator.priority_changed", shape{"execution_id": plain.String(), "flow_id": nil, "namespace": "default", "actor": "local", "old_priority": 0.0, "new_priority": 100.0}},
			{"operator.resumed", shape{"execution_id": tagged.String(), "flow_id": flow.String(), "namespace": "default", "actor": "token:ops"}},
		}
		ids := operatorRead(t, follower, all...)
		operatorRead(t, neighbour, operatorSeen{"operator.replayed", shape{"execution_id": theirs.String(), "flow_id": nil, "namespace": "red", "actor": "token:red", "replay_count": 1.0}})
		open := operatorFilters(t, s, path, all, ids, map[string]func(operatorSeen) bool{
			"":                                          func(operatorSeen) bool { return true },
			"execution_id=" + plain.String():            func(e operatorSeen) bool { return e.Data["execution_id"] == plain.String() },
			"execution_id=" + theirs.String():           func(operatorSeen) bool { return false },
			"flow_id=" + flow.String():                  func(e operatorSeen) bool { return e.Data["flow_id"] == flow.String() }, // none is not this one
			"flow_id=" + uuid.New().String():            func(operatorSeen) bool { return false },
			"instance_tag=i-1":                          func(e operatorSeen) bool { return e.Data["execution_id"] == tagged.String() }, // nor is no tag
			"instance_tag=i-2":                          func(operatorSeen) bool { return false },
			"instance_tag=i-1&flow_id=" + flow.String(): func(e operatorSeen) bool { return e.Data["execution_id"] == tagged.String() },
		})
		operatorEnds(t, s, append(open, follower, neighbour)...)
	})
}

// An instance tag is told when an execution gets it: at its creation, or later, with the one before.
func TestLive_instance_tags(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		const path = "/v1/subscriptions/instance-tags"
		follower, neighbour := s.Stream(path), s.in("red").Stream(path)
		first := s.create("a", `,"tags":{"cairn.instance_id":"blue","area.other":"x"}`)
		plain := s.create("a")
		s.create("a", `,"tags":{"area.other":"blue"}`)
		theirs := s.in("red").create("a", `,"tags":{"cairn.instance_id":"blue"}`)
		s.verb(s.claim("a"), "complete") // has the tag, and is no news of it
		flow := uuid.New()
		set := func(id, before, after string) event.Event {
			data := shape{"key": "cairn.instance_id", "value": after}
			if before != "" {
				data["previous"] = before
			}
			return event.Event{Type: event.ExecutionTagSet, ExecutionID: uuid.MustParse(id), FlowID: flow, InstanceTag: after, Data: data}
		}
		operatorEmit(t, s, set(first, "blue", "green"),
			event.Event{Type: event.ExecutionTagSet, ExecutionID: uuid.MustParse(first), InstanceTag: "green", Data: shape{"key": "area.other", "value": "y", "previous": "x"}},
			set(plain, "", "grün"))
		all := []operatorSeen{
			{"execution.created", shape{"execution_id": first, "flow_id": nil, "namespace": "default", "instance_tag": "blue", "previous": nil}},
			{"execution.tag_set", shape{"execution_id": first, "flow_id": flow.String(), "namespace": "default", "instance_tag": "green", "previous": "blue"}},
			{"execution.tag_set", shape{"execution_id": plain, "flow_id": flow.String(), "namespace": "default", "instance_tag": "grün", "previous": nil}},
		}
		ids := operatorRead(t, follower, all...)
		operatorRead(t, neighbour, operatorSeen{"execution.created", shape{"execution_id": theirs, "flow_id": nil, "namespace": "red", "instance_tag": "blue", "previous": nil}})
		tag := func(value string) func(operatorSeen) bool {
			return func(e operatorSeen) bool { return e.Data["instance_tag"] == value }
		}
		open := operatorFilters(t, s, path, all, ids, map[string]func(operatorSeen) bool{
			"": func(operatorSeen) bool { return true }, "instance_tag=blue": tag("blue"), "instance_tag=green": tag("green"), "instance_tag=gr%C3%BCn": tag("grün"),
			"instance_tag=red": tag("red"), "execution_id=" + first: func(e operatorSeen) bool { return e.Data["execution_id"] == first },
			"execution_id=" + theirs: func(operatorSeen) bool { return false }, "flow_id=" + flow.String(): func(e operatorSeen) bool { return e.Data["flow_id"] != nil },
		})
		operatorEnds(t, s, append(open, follower, neighbour)...)
	})
}

// The same through the API: who sets a tag or a priority is followed.
func TestLive_operator_requests(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		acts, tags := s.Stream("/v1/subscriptions/operator"), s.Stream("/v1/subscriptions/instance-tags")
		id := s.create("a")
		put := func(key, value string) {
			s.Do(http.MethodPut, "/v1/executions/"+id+"/tags/"+key, `{"value":"`+value+`"}`).Want(http.StatusOK)
		}
		put("cairn.instance_id", "blue")
		put("area.other", "green")
		put("cairn.instance_id", "green")
		put("cairn.instance_id", "green") // changes nothing
		s.Do(http.MethodPut, "/v1/executions/"+id+"/priority", `{"priority":7}`).Want(http.StatusOK)
		s.Post("/v1/executions/"+id+"/operator-cancel", `{"reason":"enough"}`).Want(http.StatusOK)
		operatorRead(t, tags,
			operatorSeen{"execution.tag_set", shape{"execution_id": id, "flow_id": nil, "namespace": "default", "instance_tag": "blue", "previous": nil}},
			operatorSeen{"execution.tag_set", shape{"execution_id": id, "flow_id": nil, "namespace": "default", "instance_tag": "green", "previous": "blue"}})
		operatorRead(t, acts,
			operatorSeen{"operator.priority_changed", shape{"execution_id": id, "flow_id": nil, "namespace": "default", "actor": "local", "old_priority": 0.0, "new_priority": 7.0}},
			operatorSeen{"operator.cancelled", shape{"execution_id": id, "flow_id": nil, "namespace": "default", "actor": "local", "reason": "enough"}})
		operatorRead(t, s.Stream("/v1/subscriptions/instance-tags?after=0&instance_tag=blue"),
			operatorSeen{"execution.tag_set", shape{"execution_id": id, "flow_id": nil, "namespace": "default", "instance_tag": "blue", "previous": nil}})
		operatorEnds(t, s, acts, tags)
	})
}

// What a subscription leaves out does not hold it up, however much that is, and is not looked at again.
func TestLive_operator_advances(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		const left = 2500 // more than two looks at the log
		id := uuid.New()
		if err := store.Do(t.Context(), s.App.Store(), func(tx *store.Tx) error {
			for range left {
				tx.Emit(event.Event{Type: event.OperatorBulkStarted})
				tx.Emit(event.Event{Type: event.ExecutionTagSet, ExecutionID: id, Data: shape{"key": "area.other", "value": "x"}})
			}
			tx.Emit(event.Event{Type: event.OperatorClaimed, Actor: "local", ExecutionID: id})
			tx.Emit(event.Event{Type: event.ExecutionTagSet, ExecutionID: id, InstanceTag: "i", Data: shape{"key": "cairn.instance_id", "value": "i"}})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{"/v1/subscriptions/operator": liveFirst + 2*left + 1, "/v1/subscriptions/instance-tags": liveFirst + 2*left + 2} {
			if got := s.Stream(path + "?after=0").Next(); got.ID != strconv.Itoa(want) {
				t.Errorf("%s begins with %+v, want event %d", path, got, want)
			}
			follower := s.Stream(path)
			operatorEmit(t, s, event.Event{Type: event.OperatorBulkFinished}, event.Event{Type: event.OperatorClaimed, ExecutionID: id},
				event.Event{Type: event.ExecutionTagSet, ExecutionID: id, InstanceTag: "j", Data: shape{"key": "cairn.instance_id", "value": "j", "previous": "i"}})
			if got := follower.Next(); !strings.Contains(got.Data, fmt.Sprintf(`"execution_id":%q`, id)) {
				t.Errorf("%s goes on with %+v", path, got)
			}
		}
	})
}

func TestLive_operator_refusals(t *testing.T) {
	t.Parallel()
	liveDatabases(t, func(t *testing.T, s live) {
		for _, path := range []string{"/v1/subscriptions/operator", "/v1/subscriptions/instance-tags"} {
			for _, cursor := range []string{"x", "-1", "1.5", "99999999999999999999"} {
				s.Get(path, "Accept: text/event-stream", "Last-Event-ID: "+cursor).Problem(fault.CodeInvalidCursor)
			}
			s.Get(path + "?after=-1").Problem(fault.CodeValidationFailed)
			s.Get(path + "?execution_id=x").Problem(fault.CodeInvalidParameter)
			if reset := s.Stream(path + "?after=1000").Next(); reset.Type != "reset" || reset.Data != `{"oldest":1}` {
				t.Errorf("%s after a cursor that the log never reached: %+v", path, reset)
			}
		}
	})
}
