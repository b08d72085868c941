package flow_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/jsontest"
)

// verb draws one call of any verb.
func verb(t *rapid.T, at time.Time) func(flow.Flow) (flow.Change, error) {
	by := event.By{Actor: rapid.SampledFrom([]string{"token:ci", "engine"}).Draw(t, "actor"), At: at}
	doc := func() json.RawMessage {
		if rapid.Bool().Draw(t, "no document") {
			return nil
		}
		return jsontest.Text(t, jsontest.Values(2, "a", "b", "resume_event").Draw(t, "document"))
	}
	word := rapid.SampledFrom([]string{"", "x", "y"})
	spec := wait.Spec{
		Condition: wait.Condition{Kind: wait.Any, Of: []wait.Condition{{Kind: wait.Manual}, {Kind: wait.Timer, At: at.Add(time.Second)}}},
		OnTimeout: rapid.SampledFrom([]wait.OnTimeout{wait.TimeoutResumes, wait.TimeoutFails, wait.TimeoutCancels}).Draw(t, "on_timeout"),
	}
	if rapid.Bool().Draw(t, "with deadline") {
		spec.Deadline = at.Add(time.Minute)
	}
	id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "wait id"))
	switch rapid.SampledFrom([]string{"start", "wait", "resume", "finish", "fail", "request", "cancel", "patch", "put", "tag", "decided"}).Draw(t, "verb") {
	case "start":
		return func(f flow.Flow) (flow.Change, error) { return f.Start(by) }
	case "wait":
		return func(f flow.Flow) (flow.Change, error) { return f.Park(id, spec, by) }
	case "resume":
		patch := doc()
		return func(f flow.Flow) (flow.Change, error) { return f.Resume(patch, by) }
	case "finish":
		patch, open := doc(), rapid.IntRange(0, 1).Draw(t, "open")
		return func(f flow.Flow) (flow.Change, error) { return f.Finish(patch, open, by) }
	case "fail":
		reason := word.Draw(t, "reason")
		return func(f flow.Flow) (flow.Change, error) { return f.Fail(reason, by) }
	case "request":
		reason := word.Draw(t, "reason")
		return func(f flow.Flow) (flow.Change, error) { return f.RequestCancel(reason, by), nil }
	case "cancel":
		reason := word.Draw(t, "reason")
		return func(f flow.Flow) (flow.Change, error) {
			return f.Cancel(flow.CancelRequest{Policy: flow.CancelAll, Reason: reason}, by)
		}
	case "patch":
		p := flow.Patch{State: doc(), Merge: rapid.SampledFrom([]flow.Merge{flow.MergeShallow, flow.MergeRFC7396}).Draw(t, "merge")}
		if rapid.Bool().Draw(t, "with step") {
			p.CurrentStep = new(word.Draw(t, "step"))
		}
		return func(f flow.Flow) (flow.Change, error) { return f.Patch(p, by) }
	case "put":
		r := flow.Replacement{Goal: "g" + word.Draw(t, "goal"), Kind: word.Draw(t, "kind"), CurrentStep: word.Draw(t, "step"), State: doc(),
			Status: rapid.SampledFrom(append(flow.Statuses(), "")).Draw(t, "status")}
		if rapid.Bool().Draw(t, "with tags") {
			r.Tags = map[string]string{"a.b": word.Draw(t, "tag")}
		}
		if r.Status == flow.Waiting {
			r.Wait = &spec
		}
		return func(f flow.Flow) (flow.Change, error) { return f.Replace(r, id, 0, by) }
	case "tag":
		key, value := rapid.SampledFrom([]string{"a.b", "c.d", "bad"}).Draw(t, "key"), word.Draw(t, "value")
		return func(f flow.Flow) (flow.Change, error) { return f.SetTag(key, value, by) }
	default:
		o := wait.Outcome{By: rapid.SampledFrom([]wait.Reason{wait.ByTimer, wait.BySignal, wait.ByTimeout}).Draw(t, "decided by")}
		if rapid.Bool().Draw(t, "with event") {
			o.Received = []wait.Signal{{ID: "e", Topic: "a", CorrelationID: "b", Payload: doc()}}
		}
		return func(f flow.Flow) (flow.Change, error) { return f.Decided(o, by) }
	}
}

// TestFlow_Properties drives flows at random. reference: runs-and-taskflows.md D5 35, 36, 38, 39, 40.
func TestFlow_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := start
		c, err := flow.New(flow.Create{
			ID: id, Namespace: "default", Goal: "g", State: jsontest.Text(t, jsontest.Values(2, "a", "b", "resume_event").Draw(t, "state")), Tags: map[string]string{"a.b": "c"},
			Start: rapid.Bool().Draw(t, "start"), AutoFinish: rapid.Bool().Draw(t, "auto finish"),
		}, event.By{Actor: "token:ci", At: at})
		if err != nil {
			t.Fatal(err)
		}
		f, log := c.Flow, c.Events
		check(t, &f, log)
		for range rapid.IntRange(0, 12).Draw(t, "verbs") {
			at = at.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds")) * time.Second)
			call := verb(t, at)
			before := f
			c, err := call(f)
			if diff := cmp.Diff(before, f); diff != "" {
				t.Fatalf("the verb changed its receiver (-before +after):\n%s", diff)
			}
			if err != nil {
				continue
			}
			next := c.Flow
			switch {
			case next.Revision == f.Revision+1 && len(c.Events) == 1:
			case next.Revision == f.Revision && len(c.Events) == 0 && cmp.Equal(f, next):
			default:
				t.Fatalf("revision %d became %d with %d events", f.Revision, next.Revision, len(c.Events))
			}
			if next.Status != f.Status && !slices.Contains(f.Status.Successors(), next.Status) {
				t.Fatalf("%s became %s", f.Status, next.Status)
			}
			if f.CancelRequested && (!next.CancelRequested || next.Status != f.Status && next.Status != flow.Cancelled && next.Status != flow.Failed) {
				t.Fatalf("the intent to cancel does not stick: %s, %v", next.Status, next.CancelRequested)
			}
			if changed := next.History.Since(f.Revision); slices.Contains(changed, "state") == reflect.DeepEqual(jsontest.Value(t, f.State), jsontest.Value(t, next.State)) {
				if string(f.State) == string(next.State) || !slices.Contains(changed, "state") {
					t.Fatalf("of %s and %s the history says %v", f.State, next.State, changed)
				}
			}
			f, log = next, append(log, c.Events...)
			check(t, &f, log)
		}
	})
}

// check holds f to its invariants, and to its log.
func check(t *rapid.T, f *flow.Flow, log []event.Event) {
	if (f.Wait != nil) != (f.Status == flow.Waiting) {
		t.Fatalf("a flow that is %s has the wait %v", f.Status, f.Wait)
	}
	if f.EndedAt.IsZero() == f.Status.Terminal() {
		t.Fatalf("a flow that is %s ended at %v", f.Status, f.EndedAt)
	}
	if (f.Failure != nil) != (f.Status == flow.Failed) {
		t.Fatalf("a flow that is %s has the failure %v", f.Status, f.Failure)
	}
	last := log[len(log)-1]
	if int64(len(log)) != f.Revision+1 || *last.Revision != f.Revision || !last.At.Equal(f.UpdatedAt) {
		t.Fatalf("revision %d of %v, but %d events, the last of %v", f.Revision, f.UpdatedAt, len(log), last.At)
	}
	folded, err := flow.Fold(log)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*f, folded); diff != "" {
		t.Fatalf("the events folded differ from the flow (-flow +folded):\n%s", diff)
	}
	stored := make([]event.Event, len(log))
	for i, e := range log {
		e.Data = jsontest.Text(t, e.Data)
		stored[i] = e
	}
	if folded, err = flow.Fold(stored); err != nil {
		t.Fatal(err)
	}
	// encoding/json may spell the same document in another way
	if diff := cmp.Diff(*f, folded, cmpopts.EquateEmpty(), cmp.Transformer("document", func(doc json.RawMessage) any { return jsontest.Value(t, doc) })); diff != "" {
		t.Fatalf("the stored events folded differ from the flow (-flow +folded):\n%s", diff)
	}
}

func TestFold_Gaps(t *testing.T) {
	t.Parallel()
	c, err := flow.New(flow.Create{ID: id, Goal: "g", Start: true}, by(0))
	if err != nil {
		t.Fatal(err)
	}
	own := event.Event{FlowID: id, Type: "custom.note", Data: json.RawMessage(`1`)}
	if _, err := flow.Fold(append(c.Events, own)); err != nil {
		t.Errorf("an event of the client's own: %v", err)
	}
	if _, err := flow.Fold(c.Events[1:]); err == nil {
		t.Error("a log without its beginning was folded")
	}
	twice := append(slices.Clone(c.Events), c.Events[1])
	if _, err := flow.Fold(twice); err == nil {
		t.Error("a revision was folded twice")
	}
	broken := c.Events[0]
	broken.Data = json.RawMessage(`[]`)
	if _, err := flow.Fold([]event.Event{broken}); err == nil {
		t.Error("data of another shape was folded")
	}
}
