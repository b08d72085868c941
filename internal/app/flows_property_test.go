package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// flowModel is one flow on the server, and what the pure machine makes of it.
type flowModel struct {
	*rapid.T
	x *flowTest
	f flow.Flow // with the times and ids of the server
	// kept are the payloads of the events that came while the flow did not listen, the oldest first.
	kept []json.RawMessage
}

// listens is the one event from outside that the flow may wait for.
var listens = wait.Condition{Kind: wait.ExternalEvent, Topic: "t", CorrelationID: "c"}

var (
	flowDocs  = rapid.SampledFrom([]string{`{}`, `{"a":1}`, `{"a":null,"b":{"c":[1.50,"<&>"]}}`, `{"b":{"d":true}}`, `[1,{"a":2}]`, `"text"`, `null`, `7`})
	flowWords = rapid.SampledFrom([]string{"x", "y", "z"})
)

// TestFlows_Machine drives flows at random, over HTTP on both databases, beside the pure machine: what that refuses is refused
// with the same code and changes nothing; what it allows leads to the same flow, one revision and one event for each fact; and
// the events, folded, are the row. reference: runs-and-taskflows.md D5 35, 36, 38, 39 and 40.
func TestFlows_Machine(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		rapid.Check(t, func(r *rapid.T) {
			m := &flowModel{T: r, x: flowsOn(t, s, "machine")}
			m.create()
			for range rapid.IntRange(1, 6).Draw(r, "verbs") {
				m.step()
			}
			m.check()
		})
	})
}

// by is who acts in the model; the times are the server's.
func (m *flowModel) by() event.By { return event.By{Actor: "local", At: m.f.UpdatedAt} }

func (m *flowModel) create() {
	in := flow.Create{Namespace: m.x.namespace, Goal: flowWords.Draw(m.T, "goal"), State: json.RawMessage(flowDocs.Draw(m.T, "state")), Start: rapid.Bool().Draw(m.T, "start")}
	answer := m.x.Post("/v1/flows", fmt.Sprintf(`{"goal":%q,"state":%s,"start":%t}`, in.Goal, in.State, in.Start))
	if answer.Status != http.StatusCreated {
		m.Fatalf("create: %d %s", answer.Status, answer.Body)
	}
	got := flowAs[oapi.Flow](answer)
	in.ID = got.ID
	c, err := flow.New(in, event.By{Actor: "local", At: got.CreatedAt.Time()})
	if err != nil {
		m.Fatal(err)
	}
	m.agree(c.Flow, got)
}

// step calls one verb, allowed or not, at a revision that is right, wrong or not named.
func (m *flowModel) step() {
	method, path, body, do := m.verb()
	expected, query := m.expectation()
	next, err := m.f, m.f.Expect(expected)
	if method == http.MethodPut && path == "" && expected == nil {
		err = fault.New(fault.CodePreconditionRequired, "")
	}
	if err == nil {
		next, err = do()
	}
	answer := m.x.Do(method, flowPath(m.f.ID)+path+query, m.text(body))
	if err != nil {
		m.refused(answer, err)
		return
	}
	if answer.Status != http.StatusOK {
		m.Fatalf("%s %s %s: %d %s", method, path, body, answer.Status, answer.Body)
	}
	if path == "/tags/a.b" || next.CancelRequested && next.Status == flow.Cancelled && m.f.Status == flow.Waiting {
		m.x.advance(0) // the sweep cancels
		answer = m.x.Get(flowPath(m.f.ID))
	}
	m.agree(next, flowAs[oapi.Flow](answer))
}

// text returns a body with its documents as they are spelled; nil stays nil.
func (m *flowModel) text(body any) any {
	if body == nil {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		m.Fatal(err)
	}
	return b.Bytes()
}

// expectation draws what a request says of the revision.
func (m *flowModel) expectation() (*int64, string) {
	revision := m.f.Revision + int64(rapid.SampledFrom([]int{0, 0, 0, -1, 1}).Draw(m.T, "off"))
	if rapid.Bool().Draw(m.T, "any revision") || revision < 0 {
		return nil, ""
	}
	return &revision, fmt.Sprint("?revision=", revision)
}

// verb draws a request, and what the machine makes of it.
func (m *flowModel) verb() (method, path string, body any, do func() (flow.Flow, error)) {
	f, by := m.f, m.by()
	post := func(verb string, body any, change func() (flow.Change, error)) (string, string, any, func() (flow.Flow, error)) {
		return http.MethodPost, "/" + verb, body, m.changes(change)
	}
	doc := json.RawMessage(flowDocs.Draw(m.T, "document"))
	patch := map[string]any{"state": doc}
	switch rapid.SampledFrom([]string{"start", "wait", "wait", "resume", "finish", "fail", "request-cancel", "cancel", "patch", "merge", "put", "put", "tag", "deliver", "deliver"}).Draw(m.T, "verb") {
	case "start":
		return post("start", nil, func() (flow.Change, error) { return f.Start(by) })
	case "wait":
		spec := wait.Spec{Condition: rapid.SampledFrom([]wait.Condition{{Kind: wait.Manual}, listens}).Draw(m.T, "condition"), OnTimeout: wait.TimeoutFails}
		return http.MethodPost, "/wait", map[string]any{"condition": spec.Condition}, func() (flow.Flow, error) { return m.parked(spec) }
	case "resume":
		return post("resume", patch, func() (flow.Change, error) { return f.Resume(doc, by) })
	case "finish":
		return post("finish", patch, func() (flow.Change, error) { return f.Finish(doc, 0, by) })
	case "fail":
		reason := rapid.SampledFrom([]string{"x", "y", " "}).Draw(m.T, "reason")
		return post("fail", map[string]any{"reason": reason}, func() (flow.Change, error) { return f.Fail(reason, by) })
	case "request-cancel":
		reason := flowWords.Draw(m.T, "reason")
		return http.MethodPost, "/request-cancel", map[string]any{"reason": reason}, func() (flow.Flow, error) {
			next := f.RequestCancel(reason, by).Flow
			if next.Status != flow.Waiting {
				return next, nil
			}
			c, err := next.Decided(wait.Outcome{By: wait.ByOwner}, by)
			return c.Flow, err
		}
	case "cancel":
		return post("cancel", nil, func() (flow.Change, error) {
			return f.Cancel(flow.CancelRequest{Policy: flow.CancelAll, Reason: ""}, by)
		})
	case "tag":
		value := flowWords.Draw(m.T, "value")
		return http.MethodPut, "/tags/a.b", map[string]any{"value": value}, m.changes(func() (flow.Change, error) { return f.SetTag("a.b", value, by) })
	case "merge":
		p := flow.Patch{State: doc, Merge: flow.MergeShallow, CurrentStep: new(flowWords.Draw(m.T, "step"))}
		patch["current_step"] = *p.CurrentStep
		return http.MethodPatch, "", patch, m.changes(func() (flow.Change, error) { return f.Patch(p, by) })
	case "patch":
		return http.MethodPatch, "", patch, m.changes(func() (flow.Change, error) { return f.Patch(flow.Patch{State: doc, Merge: flow.MergeShallow}, by) })
	case "deliver":
		m.deliver(doc)
		return m.verb()
	default:
		return m.put(doc)
	}
}

// put draws a replacement.
func (m *flowModel) put(doc json.RawMessage) (method, path string, body any, do func() (flow.Flow, error)) {
	r := flow.Replacement{Goal: flowWords.Draw(m.T, "goal"), Kind: flowWords.Draw(m.T, "kind"), State: doc, Status: rapid.SampledFrom(append(flow.Statuses(), "")).Draw(m.T, "status")}
	sent := map[string]any{"goal": r.Goal, "kind": r.Kind, "state": doc}
	if r.Status != "" {
		sent["status"] = r.Status
	}
	if r.Status == flow.Waiting {
		r.Wait = &wait.Spec{Condition: wait.Condition{Kind: wait.Manual}, OnTimeout: wait.TimeoutFails}
		sent["wait"] = map[string]any{"condition": r.Wait.Condition}
	}
	return http.MethodPut, "", sent, m.changes(func() (flow.Change, error) { return m.f.Replace(r, uuid.Nil, 0, m.by()) })
}

func (*flowModel) changes(change func() (flow.Change, error)) func() (flow.Flow, error) {
	return func() (flow.Flow, error) {
		c, err := change()
		return c.Flow, err
	}
}

// parked is what becomes of a flow that is to wait: an event that is kept for it resumes it at once.
func (m *flowModel) parked(spec wait.Spec) (flow.Flow, error) {
	c, err := m.f.Park(uuid.New(), spec, m.by())
	if err != nil || spec.Condition.Kind != wait.ExternalEvent || len(m.kept) == 0 {
		return c.Flow, err
	}
	next, err := m.woken(c.Flow, m.kept[0])
	if err == nil {
		m.kept = m.kept[1:]
	}
	return next, err
}

func (m *flowModel) woken(f flow.Flow, payload json.RawMessage) (flow.Flow, error) {
	c, err := f.Decided(wait.Outcome{By: wait.BySignal, Received: []wait.Signal{{Topic: listens.Topic, CorrelationID: listens.CorrelationID, Payload: payload}}}, m.by())
	return c.Flow, err
}

// deliver sends an event to the flow: it wakes it, or is kept for it.
func (m *flowModel) deliver(payload json.RawMessage) {
	receipt := m.x.deliver(listens.Topic, listens.CorrelationID, `"flow_id":"`+m.f.ID.String()+`"`, `"payload":`+string(payload))
	if m.f.Wait == nil || !m.f.Wait.Condition.Equal(listens) {
		if !receipt.Buffered {
			m.Fatalf("an event reached a flow that is %s: %+v", m.f.Status, receipt)
		}
		m.kept = append(m.kept, payload)
		return
	}
	if len(receipt.Matched) != 1 || receipt.Matched[0].WaitID != m.f.Wait.ID {
		m.Fatalf("an event missed the wait %s: %+v", m.f.Wait.ID, receipt)
	}
	next, err := m.woken(m.f, payload)
	if err != nil {
		m.Fatal(err)
	}
	m.agree(next, flowAs[oapi.Flow](m.x.Get(flowPath(m.f.ID))))
}

// refused holds a refusal to the machine's: the same code and facts, and no change.
func (m *flowModel) refused(answer *apitest.Response, want error) {
	var p struct{ Code fault.Code }
	answer.Into(&p)
	if p.Code != fault.CodeOf(want) {
		m.Fatalf("%d %s, want %v", answer.Status, answer.Body, want)
	}
	if why, ok := errors.AsType[*fault.Error](want); ok {
		for name, fact := range why.Facts {
			text, err := json.Marshal(fact)
			if err != nil {
				m.Fatal(err)
			}
			if diff := cmp.Diff(docAs[any](m.x.t, text), answer.JSON()[name]); diff != "" {
				m.Fatalf("%s of %s (-machine +server):\n%s", name, answer.Body, diff)
			}
		}
	}
	if diff := cmp.Diff(shown(m.f), flowAs[oapi.Flow](m.x.Get(flowPath(m.f.ID))), sameDocs); diff != "" {
		m.Fatalf("%v, and yet the flow was changed (-before +after):\n%s", want, diff)
	}
}

// agree holds the server's flow to the machine's, and takes over its times and its wait's id.
func (m *flowModel) agree(next flow.Flow, got oapi.Flow) {
	next.UpdatedAt = got.UpdatedAt.Time()
	if next.Revision == m.f.Revision && next.ID == m.f.ID {
		next.UpdatedAt = m.f.UpdatedAt
	}
	if next.Wait != nil && got.Wait != nil {
		w := *next.Wait
		w.ID, w.Since = got.Wait.WaitID, got.Wait.Since.Time()
		next.Wait = &w
	}
	if next.Failure != nil && got.Failure != nil {
		next.Failure = &flow.Failure{Reason: next.Failure.Reason, At: got.Failure.At.Time()}
	}
	if next.Cancellation != nil && got.Cancellation != nil {
		c := *next.Cancellation
		c.RequestedAt = got.Cancellation.RequestedAt.Time()
		next.Cancellation = &c
	}
	if got.EndedAt != nil && !next.EndedAt.IsZero() {
		next.EndedAt = got.EndedAt.Time()
	}
	got.Members = nil
	if diff := cmp.Diff(shown(next), got, sameDocs); diff != "" {
		m.Fatalf("the flow differs from the machine's (-machine +server):\n%s", diff)
	}
	m.f = next
}

// check folds the trail, and compares it with the row.
func (m *flowModel) check() {
	s := m.x.server.App.Store()
	if err := s.Sync(m.x.t.Context()); err != nil {
		m.Fatal(err)
	}
	trail, err := s.Trail(m.x.t.Context(), event.Filter{FlowID: m.f.ID, Topics: []event.Topic{event.TopicFlow}}, 0, 1000)
	if err != nil {
		m.Fatal(err)
	}
	slices.Reverse(trail)
	if int64(len(trail)) != m.f.Revision+1 {
		m.Fatalf("%d events at revision %d", len(trail), m.f.Revision)
	}
	folded, err := flow.Fold(trail)
	if err != nil {
		m.Fatal(err)
	}
	if diff := cmp.Diff(flowAs[oapi.Flow](m.x.Get(flowPath(m.f.ID))), shown(folded), sameDocs); diff != "" {
		m.Fatalf("the events folded differ from the row (-row +folded):\n%s", diff)
	}
}

// sameDocs compares documents by what they say.
var sameDocs = cmp.Transformer("document", func(doc json.RawMessage) any {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		return string(doc)
	}
	return v
})

// shown returns a flow as clients see it.
func shown(f flow.Flow) oapi.Flow {
	out := oapi.Flow{
		ID: f.ID, Namespace: f.Namespace, Kind: f.Kind, ControllerID: f.ControllerID, Goal: f.Goal, OwnerSessionKey: f.OwnerSessionKey, RequesterOrigin: f.RequesterOrigin,
		CurrentStep: f.CurrentStep, State: f.State, Status: oapi.FlowStatus(f.Status), CancelRequested: f.CancelRequested, Revision: f.Revision, AutoFinish: f.AutoFinish,
		Tags: oapi.Tags{}, BudgetIds: oapi.BudgetIDs{}, QuotaPolicyIds: oapi.QuotaPolicyIDs{}, CreatedAt: wire.Time(f.CreatedAt), UpdatedAt: wire.Time(f.UpdatedAt),
	}
	maps.Copy(out.Tags, f.Tags)
	at := func(t time.Time) *wire.Time {
		if t.IsZero() {
			return nil
		}
		return new(wire.Time(t))
	}
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	out.EndedAt = at(f.EndedAt)
	if f.Wait != nil {
		condition, _ := f.Wait.Condition.MarshalJSON()
		out.Wait = &oapi.FlowWait{WaitID: f.Wait.ID, Condition: condition, Deadline: at(f.Wait.Deadline), OnTimeout: oapi.OnTimeout(f.Wait.OnTimeout), Since: wire.Time(f.Wait.Since)}
	}
	if f.Failure != nil {
		out.Failure = &oapi.FlowFailure{Reason: f.Failure.Reason, At: wire.Time(f.Failure.At)}
	}
	if c := f.Cancellation; c != nil {
		out.Cancellation = &oapi.FlowCancellation{Policy: text(string(c.Policy)), Reason: text(c.Reason), Actor: c.Actor, RequestedAt: wire.Time(c.RequestedAt)}
	}
	return out
}
