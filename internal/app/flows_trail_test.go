package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// flowTrailCases: GET and POST …/events; C5 NS-11, NR-04; B13 17; D5 45.
var flowTrailCases = []flowCase{
	{"newest first, with actor and revision (NS-11, B13 17)", func(x *flowTest) {
		f := x.at("waiting")
		events := x.trail(f.ID, "")
		for i, want := range []string{"flow.waiting", "flow.started", "flow.created"} {
			e := events[i]
			if e.Type != want || *e.Revision != int64(2-i) || e.Actor != "local" || e.Topic != "flow" || *e.FlowID != f.ID || e.Namespace != x.namespace || e.Cause != nil {
				x.t.Errorf("%d: %+v, want %s", i, e, want)
			}
			if i > 0 && (e.ID >= events[i-1].ID || e.At.Time().After(events[i-1].At.Time())) {
				x.t.Errorf("%d is not older than the one before", i)
			}
		}
	}},
	{"page by page, each event once", func(x *flowTest) {
		f := x.at("running")
		for i := range 5 {
			x.patch(f.ID, fmt.Sprintf(`{"state":{"n":%d}}`, i)).Want(http.StatusOK)
		}
		var got []oapi.Event
		path := flowPath(f.ID, "events") + "?limit=3"
		for pages := 0; path != ""; pages++ {
			page := x.Get(path).Want(http.StatusOK)
			list := flowAs[oapi.FlowEventList](page)
			if len(list.Items) == 0 || len(list.Items) > 3 {
				x.t.Fatalf("page %d has %d events", pages, len(list.Items))
			}
			got = append(got, list.Items...)
			if pages == 0 { // what comes later does not move what is older
				x.patch(f.ID, `{"state":{}}`).Want(http.StatusOK)
			}
			path = strings.TrimSuffix(strings.TrimPrefix(page.Header.Get("Link"), "<"), `>; rel="next"`)
		}
		if diff := cmp.Diff(x.trail(f.ID, "")[1:], got); diff != "" {
			x.t.Errorf("(-whole +pages):\n%s", diff)
		}
	}},
	{"a limit that is none is refused, and one above the cap, too (NR-04, Δ)", func(x *flowTest) {
		f := x.at("running")
		for _, limit := range []string{"-1", "0", "501", "99999999999"} {
			x.points(x.Get(flowPath(f.ID, "events")+"?limit="+limit).Problem(fault.CodeValidationFailed), fault.InQuery, "limit")
		}
		x.points(x.Get(flowPath(f.ID, "events")+"?limit=x").Problem(fault.CodeInvalidParameter), fault.InQuery, "limit")
		if n := x.Get(flowPath(f.ID, "events") + "?limit=1").Want(http.StatusOK).Len("items"); n != 1 {
			x.t.Errorf("%d events", n)
		}
	}},
	{"its own by default, everything with scope=all, some by type", func(x *flowTest) {
		w := x.workers("trail")
		f := x.at("running")
		member := w.create(`"flow_id":"` + f.ID.String() + `"`)
		w.create("") // nobody's
		x.insert(f.ID, `"run_id":"r","execution_id":"`+member.ID.String()+`"`).Want(http.StatusCreated)
		x.told(f.ID, "flow.created", "flow.started", "flow.member_added", "step.inserted")
		types := func(query string) []string {
			got := []string{}
			for _, e := range slices.Backward(x.trail(f.ID, query)) {
				got = append(got, e.Type)
			}
			return got
		}
		for query, want := range map[string][]string{
			"&scope=own": {"flow.created", "flow.started", "flow.member_added", "step.inserted"},
			"&scope=all": {"flow.created", "flow.started", "execution.created", "flow.member_added", "step.inserted"},
			"&scope=all&type=execution.created&type=step.inserted": {"execution.created", "step.inserted"},
			"&type=flow.created,step.inserted":                     {"flow.created", "step.inserted"},
			"&type=execution.created":                              {},
			"&type=custom.nothing":                                 {},
		} {
			if diff := cmp.Diff(want, types(query)); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", query, diff)
			}
		}
		x.points(x.Get(flowPath(f.ID, "events")+"?scope=mine").Problem(fault.CodeValidationFailed), fault.InQuery, "scope")
	}},
	{"an event of one's own leaves the revision, also of an ended flow", func(x *flowTest) {
		for _, s := range []oapi.FlowStatus{"created", "waiting", "cancelled"} {
			f := x.at(s)
			made := flowAs[oapi.Event](x.Post(flowPath(f.ID, "events"), `{"type":"custom.artifact.signed","data":{"key":"7f3a","n":1.50}}`).Want(http.StatusCreated))
			want := oapi.Event{ID: made.ID, At: made.At, Namespace: x.namespace, Topic: "flow", Type: "custom.artifact.signed", FlowID: &f.ID, Actor: "local", Data: oapi.Document(`{"key":"7f3a","n":1.50}`)}
			if diff := cmp.Diff(want, made); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(made, x.trail(f.ID, "")[0]); diff != "" {
				x.t.Errorf("(-made +listed):\n%s", diff)
			}
			if diff := cmp.Diff(f, x.flow(f.ID), cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Members" }, cmp.Ignore())); diff != "" {
				x.t.Errorf("the flow (-before +after):\n%s", diff)
			}
		}
	}},
	{"its data is any document, or none", func(x *flowTest) {
		f := x.at("running")
		for sent, want := range map[string]string{`,"data":[1,{"a":null}]`: `[1,{"a":null}]`, `,"data":"text"`: `"text"`, `,"data":7`: `7`, `,"data":null`: `null`, ``: `{}`} {
			got := flowAs[oapi.Event](x.Post(flowPath(f.ID, "events"), `{"type":"custom.x"`+sent+`}`).Want(http.StatusCreated))
			if string(got.Data) != want {
				x.t.Errorf("%s came back as %s", sent, got.Data)
			}
		}
	}},
	{"its type begins with custom.", func(x *flowTest) {
		f := x.at("running")
		for _, name := range []string{"flow.finished", "custom", "custom.", "custom.A", "custom..a", "Custom.a", "xcustom.a", "custom.a b", "custom." + strings.Repeat("a", 122), ""} {
			send := func() *apitest.Response { return x.Post(flowPath(f.ID, "events"), fmt.Sprintf(`{"type":%q}`, name)) }
			x.points(x.refused(fault.CodeValidationFailed, send, f.ID), fault.InBody, "/type")
		}
	}},
	{"an event under an Idempotency-Key is written once", func(x *flowTest) {
		f, key := x.at("running"), "Idempotency-Key: e-"+x.namespace
		send := func() *apitest.Response { return x.Post(flowPath(f.ID, "events"), `{"type":"custom.x","data":1}`, key) }
		first := send().Want(http.StatusCreated)
		again := x.same(send, f.ID).Want(http.StatusCreated)
		if !cmp.Equal(first.JSON(), again.JSON()) || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("first %s, again %v %s", first.Body, again.Header, again.Body)
		}
	}},
	{"the instance tag stands on the events of its flow", func(x *flowTest) {
		f := x.running(`"tags":{"cairn.instance_id":"i-1"}`)
		x.insert(f.ID, `"run_id":"r"`).Want(http.StatusCreated)
		x.Post(flowPath(f.ID, "events"), `{"type":"custom.x"}`).Want(http.StatusCreated)
		for _, e := range x.trail(f.ID, "") {
			if e.InstanceTag == nil || *e.InstanceTag != "i-1" {
				x.t.Errorf("%+v", e)
			}
		}
		if n := x.Get("/v1/events?instance_tag=i-1").Want(http.StatusOK).Len("items"); n != 4 {
			x.t.Errorf("the feed has %d of them", n)
		}
	}},
}

// flowTagCases: GET and PUT …/tags; http.md.
func flowTagCases() []flowCase {
	return []flowCase{
		{"set, read, and set again", func(x *flowTest) {
			f := x.running(`"tags":{"team.name":"a"}`)
			put := func(key, value string) *apitest.Response {
				return x.Do(http.MethodPut, flowPath(f.ID, "tags", key), fmt.Sprintf(`{"value":%q}`, value))
			}
			set := put("team.name", "b").Want(http.StatusOK)
			if set.Str("key") != "team.name" || set.Str("value") != "b" || set.ETag() != `"2"` {
				x.t.Errorf("%s %s", set.ETag(), set.Body)
			}
			put("env.name", "").Want(http.StatusOK)
			all := x.Get(flowPath(f.ID, "tags")).Want(http.StatusOK)
			if diff := cmp.Diff(map[string]any{"team.name": "b", "env.name": ""}, all.Get("tags")); diff != "" || all.ETag() != `"3"` {
				x.t.Errorf("%s (-want +got):\n%s", all.ETag(), diff)
			}
			one := x.Get(flowPath(f.ID, "tags", "team.name")).Want(http.StatusOK)
			if one.Str("value") != "b" || one.ETag() != `"3"` {
				x.t.Errorf("%s %s", one.ETag(), one.Body)
			}
			x.facts(x.Get(flowPath(f.ID, "tags", "no.such")).Problem(fault.CodeNotFound), map[string]any{"resource": "tag"})
			if e, data := x.last(f.ID); e.Type != "flow.tag_set" || !cmp.Equal(data, map[string]any{"key": "env.name", "value": ""}) {
				x.t.Errorf("%s %v", e.Type, data)
			}
			if got := x.same(func() *apitest.Response { return put("env.name", "") }, f.ID).Want(http.StatusOK); got.ETag() != `"3"` {
				x.t.Errorf("%s", got.ETag())
			}
			if got := x.list("&tag=team.name:b"); len(got) != 1 || len(x.list("&tag=team.name:a")) != 0 || len(x.list("&tag=env.name:")) != 1 {
				x.t.Errorf("listed %v", flowIDs(got))
			}
		}},
		{"a key that is none, a value too long and a tag too many are refused", func(x *flowTest) {
			f := x.at("running")
			put := func(key, body string) func() *apitest.Response {
				return func() *apitest.Response { return x.Do(http.MethodPut, flowPath(f.ID, "tags", key), body) }
			}
			for _, key := range []string{"team", "Team.name", "1.a", "team.", "a b.c", "team/name.x"} {
				x.points(x.refused(fault.CodeInvalidTagKey, put(key, `{"value":"x"}`), f.ID), fault.InPath, "key")
				x.points(x.Get(flowPath(f.ID, "tags", key)).Problem(fault.CodeInvalidTagKey), fault.InPath, "key")
			}
			x.points(x.refused(fault.CodeValidationFailed, put(strings.Repeat("a", 257), `{"value":"x"}`), f.ID), fault.InPath, "key")
			for body, pointer := range map[string]string{`{}`: "/value", `{"value":1}`: "/value", `{"value":null}`: "/value", `{"value":"` + strings.Repeat("x", 1025) + `"}`: "/value", `{"value":"x","key":"y"}`: "/key"} {
				x.points(x.refused(fault.CodeValidationFailed, put("a.b", body), f.ID), fault.InBody, pointer)
			}
			tags := []string{}
			for i := range 64 {
				tags = append(tags, fmt.Sprintf(`"t.k%d":"x"`, i))
			}
			full := x.create(`"tags":{` + joined(tags...) + `}`)
			x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Do("PUT", flowPath(full.ID, "tags", "a.b"), `{"value":"x"}`) }, full.ID)
			x.Do("PUT", flowPath(full.ID, "tags", "t.k1"), `{"value":"y"}`).Want(http.StatusOK)
			x.points(x.refused(fault.CodeInvalidTagKey, func() *apitest.Response { return x.Post("/v1/flows", `{"goal":"x","tags":{"no/~dot":"x"}}`) }), fault.InBody, "/tags/no~1~0dot")
		}},
	}
}

// flowStreamCases: GET …/events/stream, and GET ?until=terminal; engine.md "SSE", http.md "Prefer".
var flowStreamCases = []flowCase{
	{"it shows what is about the flow, its steps and its executions: live, and from the beginning", func(x *flowTest) {
		w := x.workers("stream")
		f, other := x.at("created"), x.at("created")
		live := x.Stream(flowPath(f.ID, "events", "stream"))
		x.do(f.ID, "start", "")
		x.do(other.ID, "start", "")
		e := w.create(`"flow_id":"` + f.ID.String() + `"`)
		w.create("")
		x.insert(f.ID, `"run_id":"r","execution_id":"`+e.ID.String()+`"`).Want(http.StatusCreated)
		x.insert(other.ID, `"run_id":"r"`).Want(http.StatusCreated)
		c := w.claims(`"max":2`)
		for _, one := range c {
			w.report(one, "complete", "").Want(http.StatusOK)
		}
		x.Post(flowPath(f.ID, "events"), `{"type":"custom.done"}`).Want(http.StatusCreated)
		x.do(f.ID, "finish", "")
		types := []string{"flow.started", "execution.created", "flow.member_added", "step.inserted", "lease.acquired", "step.observed", "execution.completed", "lease.revoked", "step.observed", "custom.done", "flow.finished"}
		x.follows(f.ID, live, types)
		x.follows(f.ID, x.Stream(flowPath(f.ID, "events", "stream")+"?after=0"), append([]string{"flow.created"}, types...))
		third := x.trail(f.ID, "&scope=all")[len(types)-2].ID
		x.follows(f.ID, x.Stream(flowPath(f.ID, "events", "stream"), fmt.Sprint("Last-Event-ID: ", third)), types[2:])
		x.follows(f.ID, x.Stream(flowPath(f.ID, "events", "stream")+"?after=0&topic=step,completion"), []string{"step.inserted", "step.observed", "execution.completed", "step.observed"})
		x.follows(f.ID, x.Stream(flowPath(f.ID, "events", "stream")+"?after=0&type=flow.finished"), []string{"flow.finished"})
	}},
	{"a flow that is not there is a problem, before the stream begins", func(x *flowTest) {
		f := x.at("running")
		for _, answer := range []*apitest.Response{
			x.Get(flowPath(uuid.New(), "events", "stream"), "Accept: text/event-stream"),
			x.in(x.namespace+"-other").Get(flowPath(f.ID, "events", "stream"), "Accept: text/event-stream"),
		} {
			x.facts(answer.Problem(fault.CodeNotFound), map[string]any{"resource": "flow"})
		}
		x.points(x.Get(flowPath(f.ID, "events", "stream"), "Last-Event-ID: x").Problem(fault.CodeInvalidCursor), fault.InHeader, "Last-Event-ID")
		x.points(x.Get(flowPath(f.ID, "events", "stream")+"?after=-1").Problem(fault.CodeValidationFailed), fault.InQuery, "after")
	}},
	{"GET ?until=terminal answers when the flow has ended", func(x *flowTest) {
		f := x.at("running")
		path := flowPath(f.ID) + "?until=terminal"
		if now := x.Get(path).Want(http.StatusOK); now.Str("status") != "running" || now.Header.Get("Preference-Applied") != "" {
			x.t.Errorf("without Prefer: %v %s", now.Header, now.Body)
		}
		if now := x.Get(path, "Prefer: wait=0").Want(http.StatusOK); now.Str("status") != "running" || now.Header.Get("Preference-Applied") != "wait=0" {
			x.t.Errorf("wait=0: %v %s", now.Header, now.Body)
		}
		answers := flowsAtOnce(2, func(i int) *apitest.Response {
			if i == 0 {
				return x.Get(path, "Prefer: respond-async, wait=30")
			}
			x.patch(f.ID, `{"state":{"a":1}}`).Want(http.StatusOK) // not an end
			return x.verb(f.ID, "finish", `{"state":{"b":2}}`)
		})
		answers[1].Want(http.StatusOK)
		if got := answers[0].Want(http.StatusOK); got.Str("status") != "finished" || got.ETag() != `"3"` || got.Header.Get("Preference-Applied") != "wait=30" {
			x.t.Errorf("%v %s", got.Header, got.Body)
		}
		if got := x.Get(path, "Prefer: wait=99").Want(http.StatusOK); got.Header.Get("Preference-Applied") != "wait=55" {
			x.t.Errorf("an ended flow: %v", got.Header)
		}
		if got := x.Get(path, "Prefer: wait=soon").Want(http.StatusOK); got.Header.Get("Preference-Applied") != "" {
			x.t.Errorf("what is not understood is ignored: %v", got.Header)
		}
		x.points(x.Get(flowPath(f.ID)+"?until=tomorrow").Problem(fault.CodeValidationFailed), fault.InQuery, "until")
	}},
	{"a flow that is deleted while somebody waits is not found", func(x *flowTest) {
		f := x.at("running")
		answers := flowsAtOnce(2, func(i int) *apitest.Response {
			if i == 0 {
				return x.Get(flowPath(f.ID)+"?until=terminal", "Prefer: wait=30")
			}
			x.do(f.ID, "finish", "")
			return x.Do(http.MethodDelete, flowPath(f.ID), nil)
		})
		answers[1].Want(http.StatusNoContent)
		if answers[0].Status != http.StatusOK { // it has seen the end, or came too late
			answers[0].Problem(fault.CodeNotFound)
		}
	}},
}

// follows reads events off a stream and compares them with the trail.
func (x *flowTest) follows(id uuid.UUID, stream *apitest.Stream, want []string) {
	x.t.Helper()
	stored := map[int64]oapi.Event{}
	for _, e := range x.trail(id, "&scope=all") {
		stored[e.ID] = e
	}
	var got []string
	last := int64(0)
	for range want {
		sent := stream.Next()
		e := docAs[oapi.Event](x.t, []byte(sent.Data))
		if sent.ID != strconv.FormatInt(e.ID, 10) || sent.Type != e.Type || e.ID <= last || !cmp.Equal(stored[e.ID], e) {
			x.t.Errorf("sent %+v after %d, stored %+v", sent, last, stored[e.ID])
		}
		last = e.ID
		got = append(got, e.Type)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("(-want +got):\n%s", diff)
	}
	stream.Close()
}
