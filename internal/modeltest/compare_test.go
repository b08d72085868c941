package modeltest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// snapshot is all that a server tells of one namespace.
type snapshot struct {
	raw        map[string]string // each execution as it stands in the body
	executions map[string]executionView
	attempts   map[string][]attemptView
	events     map[string][]string // by execution, worker or lane
	logged     map[string][]logged
}

// attemptView is an attempt, with its line.
type attemptView struct {
	Text          string
	State         string
	Epoch         int64
	Index         int
	Started       time.Time
	Ended         *time.Time
	PreviousIndex int
}

// logged is an event of an execution.
type logged struct {
	id       int64
	topic    string
	kind     string
	epoch    int64
	revision int64
}

func newSnapshot() snapshot {
	return snapshot{map[string]string{}, map[string]executionView{}, map[string][]attemptView{}, map[string][]string{}, map[string][]logged{}}
}

// compare takes a new snapshot and compares it with the model. After a refusal nothing may be otherwise than before.
func (s *side) compare(refusal bool) { s.snap(refusal, false) }

// snap is compare; all says to read also what cannot have changed.
func (s *side) snap(refusal, all bool) {
	before := s.seen
	now := snapshot{raw: map[string]string{}, executions: map[string]executionView{}, attempts: maps.Clone(before.attempts), events: before.events, logged: before.logged}
	for _, item := range decode[struct {
		Items []json.RawMessage `json:"items"`
	}](s.Fetch("/v1/executions?limit=500")).Items {
		v := s.execution(item)
		now.raw[v.Name], now.executions[v.Name] = string(item), v
	}
	fresh := s.readEvents(&now)
	for name, raw := range now.raw {
		if all || raw != before.raw[name] {
			now.attempts[name] = s.readAttempts(name)
		}
	}
	if refusal {
		changed := cmp.Diff(before.raw, now.raw) + cmp.Diff(before.attempts, now.attempts)
		if changed != "" || fresh > 0 {
			s.Failf("it has refused this and yet changed something, and written %d events:\n%s", fresh, changed)
		}
	}
	s.seen = now
	s.agree()
	s.hold(before, now)
}

// agree compares the last snapshot with the model.
func (s *side) agree() {
	var diff strings.Builder
	differ := func(want, got any) { diff.WriteString(cmp.Diff(want, got, cmpopts.EquateEmpty())) }
	for _, e := range s.w.executions {
		if want, got := s.w.view(e), s.seen.executions[e.name]; want != got {
			differ(want, got)
		}
		var lines []string
		for _, a := range s.seen.attempts[e.name] {
			lines = append(lines, a.Text)
		}
		if want := s.w.tries(e); !slices.Equal(want, lines) {
			differ(want, lines)
		}
		if got := s.seen.events[e.name]; !slices.Equal(e.events, got) {
			differ(e.events, got)
		}
	}
	if want, got := len(s.w.executions), len(s.seen.executions); want != got {
		differ(want, got)
	}
	for subject := range union(s.w.model.events, s.seen.events) {
		if got := s.seen.events[subject]; s.seen.executions[subject].Name == "" && !slices.Equal(s.w.model.events[subject], got) {
			differ(s.w.model.events[subject], got)
		}
	}
	if diff.Len() > 0 {
		s.Failf("it stands otherwise than the model (-model +server):\n%s", diff.String())
	}
}

// same compares an answer with the model's.
func (s *side) same(want, got answer) {
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.Failf("the answer is not the model's (-model +server):\n%s", diff)
	}
}

func union[T any](a, b map[string]T) map[string]T {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// readEvents adds the new events, and says how many they are.
func (s *side) readEvents(into *snapshot) int {
	s.Sync()
	into.events, into.logged = maps.Clone(into.events), maps.Clone(into.logged)
	fresh := 0
	for more := true; more; {
		page := decode[oapi.EventList](s.Fetch(fmt.Sprintf("/v1/events?after=%d&limit=500", s.cursor)))
		for _, e := range page.Items {
			if e.ID <= s.cursor {
				s.Failf("event %d after %d", e.ID, s.cursor)
			}
			subject, line, data := s.event(e)
			into.events[subject] = append(slices.Clip(into.events[subject]), line)
			if e.ExecutionID != nil {
				into.logged[subject] = append(slices.Clip(into.logged[subject]), logged{e.ID, e.Topic, e.Type, data.Epoch, or(e.Revision, -1)})
			}
			fresh++
		}
		s.cursor, more = page.NextCursor, page.More
	}
	return fresh
}

// eventData is what the events compared tell beside their types.
type eventData struct {
	Epoch     int64  `json:"lease_epoch"`
	Kind      string `json:"kind"`
	Reason    string `json:"reason"`
	Instance  string `json:"worker_instance_id"`
	Lane      string `json:"lane"`
	Operation string `json:"operation"`
	Effect    string `json:"effect"`
	By        string `json:"by"`
}

// event shows whose event it is, and the event as the model does.
func (s *side) event(e oapi.Event) (subject, line string, data eventData) {
	data = decode[eventData](e.Data)
	line = e.Type
	switch e.Topic {
	case "lease":
		if e.Type == "lease.acquired" {
			line += " " + data.Kind
		}
		if data.Reason != "" {
			line += " " + data.Reason
		}
		line += " @" + number(data.Epoch)
	case "worker":
		return data.Instance, line, data
	case "lane":
		return "lane " + data.Lane, line, data
	case "signal":
		line += " " + data.Effect + data.Reason
	case "execution":
		if e.Type == "execution.resumed" {
			line += " " + data.By
		}
	case "operator":
		if data.Operation != "" {
			line += " " + data.Operation
		}
	}
	return s.w.names[or(e.ExecutionID, uuid.Nil)], line, data
}

func (s *side) readAttempts(name string) []attemptView {
	var all []attemptView
	for _, a := range decode[struct {
		Items []struct {
			Index      int           `json:"attempt_index"`
			Type       string        `json:"attempt_type"`
			State      string        `json:"state"`
			WorkerID   string        `json:"worker_id"`
			InstanceID string        `json:"worker_instance_id"`
			Epoch      int64         `json:"lease_epoch"`
			StartedAt  time.Time     `json:"started_at"`
			EndedAt    *time.Time    `json:"ended_at"`
			Failure    *shownFailure `json:"failure"`
			Reclaim    *string       `json:"reclaim_reason"`
			Previous   *int          `json:"previous_attempt_index"`
		} `json:"items"`
	}](s.Fetch("/v1/executions/" + s.w.idOf(name).String() + "/attempts?limit=500")).Items {
		all = append(all, attemptView{
			Text:  attemptText(a.Index, a.Type, a.State, a.WorkerID, a.InstanceID, a.Epoch, s.when(&a.StartedAt), s.when(a.EndedAt), a.Failure.String(), or(a.Reclaim, ""), or(a.Previous, -1)),
			State: a.State, Epoch: a.Epoch, Index: a.Index, Started: a.StartedAt, Ended: a.EndedAt, PreviousIndex: or(a.Previous, -1),
		})
	}
	return all
}

// idOf returns the id of an execution that exists.
func (w *world) idOf(name string) uuid.UUID {
	for id, other := range w.names {
		if other == name {
			return id
		}
	}
	panic("nobody has asked for " + name)
}

// results compares what the executions have produced: at the end of a run.
func (s *side) results() {
	for _, e := range s.w.executions {
		got := s.Get("/v1/executions/" + e.id.String() + "/result")
		text := ""
		if got.Status == http.StatusOK {
			text = string(got.Body)
		}
		if text != e.result {
			s.Failf("the result of %s is %q and not %q", e.name, text, e.result)
		}
	}
}

// pages reads lists in pages of one and compares them with those in one piece. executions.md 5/30, 31.
func (s *side) pages() {
	type page struct {
		Items []json.RawMessage `json:"items"`
		Next  *string           `json:"next_cursor"`
	}
	for _, path := range []string{"/v1/executions", "/v1/lanes", "/v1/leases", "/v1/workers"} {
		all := decode[page](s.Fetch(path + "?limit=500")).Items
		var pieces []json.RawMessage
		for cursor := ""; ; {
			p := decode[page](s.Fetch(path + "?limit=1" + cursor))
			pieces = append(pieces, p.Items...)
			if p.Next == nil {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(*p.Next)
		}
		if !slices.EqualFunc(all, pieces, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			s.Failf("5/31: %s in pages of one is\n%s\nand in one piece\n%s", path, pieces, all)
		}
	}
}
