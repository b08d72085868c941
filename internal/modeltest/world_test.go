package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/proptest"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// world is one run: a model, and the servers that are held to it, each in a namespace of its own.
type world struct {
	*rapid.T
	*model
	run   int
	clock *store.Clock
	sides []*side
	names map[uuid.UUID]string // of every execution that was ever asked for
	keyed int                  // Idempotency-Keys used
	story []string             // what was done, for who reads a failure
	did   map[string]int       // operations that succeeded, by kind
	kind  string               // of the operation under way
}

// side is one of the servers as the world sees it.
type side struct {
	proptest.Side
	w *world

	leases   map[uuid.UUID]int // owners by lease id
	handles  map[int]string    // by owner
	fences   map[int]oapi.Fence
	attempts map[string]uuid.UUID // attempt ids by execution and index
	tokens   map[uuid.UUID]string // of waitpoints
	grants   map[uuid.UUID]int
	grantIDs map[int]uuid.UUID
	cursor   int64
	seen     snapshot
}

func newWorld(t *testing.T, rt *rapid.T, run int, servers []*proptest.Server, c *proptest.Counts) *world {
	w := &world{T: rt, run: run, clock: servers[0].Clock, names: map[uuid.UUID]string{}, did: c.Did}
	for _, server := range servers {
		s := &side{Side: server.Side(t, run), w: w, leases: map[uuid.UUID]int{}, handles: map[int]string{}, fences: map[int]oapi.Fence{}, attempts: map[string]uuid.UUID{},
			tokens: map[uuid.UUID]string{}, grants: map[uuid.UUID]int{}, grantIDs: map[int]uuid.UUID{}, seen: newSnapshot()}
		s.cursor = s.Newest()
		w.sides = append(w.sides, s)
	}
	w.model = newModel(w.clock.Now().UnixMilli(), c.Reached)
	return w
}

// tellStory adds a line to the story.
func (w *world) tellStory(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%s  %s", w.at(w.now), fmt.Sprintf(format, args...)))
}

// each lets all sides do the same at the same time.
func (w *world) each(do func(s *side)) {
	w.Helper()
	proptest.Each(w.T, w.sides, w.kind, func() []string { return w.story }, do)
}

// request is what a side is asked.
type request struct {
	method, path string
	body         map[string]any
	headers      []string
}

// ask sends a request to every server and compares what they say with what the model has said. keyed sends it with an
// Idempotency-Key, and then once more.
func (w *world) ask(want answer, keyed bool, asked func(s *side) request) {
	w.Helper()
	if want.Code != "" {
		w.reach("code: " + want.Code)
	}
	if want.Status < 300 && want.Status != http.StatusNoContent || w.kind == "remove worker" && want.Code == "" {
		w.did[w.kind]++
	}
	first := asked(w.sides[0])
	w.tellStory("%s %s %s %v -> %d %s", first.method, w.named(first.path), w.named(string(must(json.Marshal(first.body)))), first.headers, want.Status, want.Code)
	w.each(func(s *side) {
		r := asked(s)
		if keyed {
			r.headers = append(slices.Clip(r.headers), fmt.Sprintf("Idempotency-Key: run-%d-%d", w.run, w.keyed))
		}
		var body any
		if r.body != nil {
			body = r.body
		}
		answer := s.Do(r.method, r.path, body, r.headers...)
		s.learn(want, answer)
		if diff := cmp.Diff(want, s.answer(answer), cmpopts.EquateEmpty()); diff != "" {
			s.Failf("the answer is not the model's (-model +server):\n%s\n%s", diff, answer.Body)
		}
		if keyed && answer.Status < 400 && answer.Status != http.StatusNoContent {
			again := s.Do(r.method, r.path, body, r.headers...)
			if again.Status != answer.Status || !bytes.Equal(again.Body, answer.Body) || again.Header.Get("Idempotent-Replay") != "true" {
				s.Failf("the same Idempotency-Key is answered with %d %s\n%s\nafter %d\n%s", again.Status, again.Header.Get("Idempotent-Replay"), again.Body, answer.Status, answer.Body)
			}
		}
		s.compare(want.Status >= 400)
	})
	if keyed {
		w.keyed++
	}
}

// named puts names in the place of ids, for who reads a failure.
func (w *world) named(text string) string {
	for id, name := range w.names {
		text = strings.ReplaceAll(text, id.String(), name)
	}
	return text
}

func must[T any](v T, err error) T { return proptest.Must(v, err) }

// learn notes which of the server's ids stand for what the model has numbered.
func (s *side) learn(want answer, got *apitest.Response) {
	s.learnTokens(got)
	if got.Status != http.StatusOK {
		return
	}
	var body struct {
		Claims  []oapi.Claim `json:"claims"`
		GrantID uuid.UUID    `json:"grant_id"`
	}
	got.Into(&body)
	for i, c := range body.Claims[:min(len(body.Claims), len(want.Claims))] {
		number := want.Claims[i].Owner
		if old := s.leases[c.Fence.LeaseID]; old != 0 {
			s.Failf("lease %s is given again, which was that of #%d", c.Fence.LeaseID, old)
		}
		s.leases[c.Fence.LeaseID], s.handles[number], s.fences[number] = number, c.Handle, c.Fence
		place := fmt.Sprintf("%s/%d", s.w.names[c.Execution.ID], c.Fence.AttemptIndex)
		if old, known := s.attempts[place]; known != (c.Kind == oapi.ClaimKindResumed) || known && old != c.Fence.AttemptID {
			s.Failf("attempt id %s of %s, a claim of kind %s, after %s", c.Fence.AttemptID, place, c.Kind, old)
		}
		s.attempts[place] = c.Fence.AttemptID
	}
	if g := want.Facts["grant_id"]; g != "" && body.GrantID != uuid.Nil {
		n := len(s.grants) + 1
		s.grants[body.GrantID], s.grantIDs[n] = n, body.GrantID
	}
}

// unimportant members are not compared: they are the server's own, or said elsewhere.
var unimportant = []string{"namespace", "throughput", "actor", "next_cursor", "flow_id", "kind", "summary", "gates", "token", "approve_url", "waitpoints", "token_kid", "token_fingerprint", "payload"}

// answer reads what a server says.
func (s *side) answer(r *apitest.Response) answer {
	a := answer{Status: r.Status, Replay: r.Header.Get("Idempotent-Replay") == "true"}
	if len(r.Body) > 0 {
		s.read(&a, r.Body)
	}
	return a
}

func (s *side) read(a *answer, body []byte) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		s.Failf("%v\n%s", err, body)
	}
	if members["code"] != nil {
		a.Code = s.text("code", members["code"])
		return
	}
	if members["state_vector"] != nil {
		a.Shown = []executionView{s.execution(body)}
		return
	}
	a.Facts = map[string]string{}
	for name, value := range members {
		switch {
		case slices.Contains(unimportant, name) && (name != "kind" || members["grant_id"] == nil):
		case name == "execution":
			a.Shown = []executionView{s.execution(value)}
		case name == "problem":
			var p struct{ Code string }
			must(0, json.Unmarshal(value, &p))
			a.Code, a.Status = p.Code, refused(p.Code).Status
		case name == "claims":
			for _, c := range decode[[]json.RawMessage](value) {
				a.Claims = append(a.Claims, s.claim(c))
			}
		case name == "items":
			for _, item := range decode[[]json.RawMessage](value) {
				var one answer
				s.read(&one, item)
				a.Items = append(a.Items, one)
			}
		default:
			if text := s.text(name, value); text != "" {
				a.Facts[name] = text
			}
		}
	}
}

func decode[T any](data []byte) T { return proptest.Decode[T](data) }

// text shows a member as the model does.
func (s *side) text(name string, value json.RawMessage) string {
	if string(value) == "null" {
		return ""
	}
	var list []string
	if json.Unmarshal(value, &list) == nil {
		return strings.Join(list, ",")
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return s.w.at(at.UnixMilli())
	}
	id, err := uuid.Parse(text)
	switch {
	case err != nil:
		return text
	case name == "grant_id":
		return number(s.grants[id])
	case name == "lease_id":
		return "#" + number(s.leases[id])
	case s.w.names[id] != "":
		return s.w.names[id]
	case name == "signal_id":
		return ours
	}
	return text
}

func (s *side) claim(data []byte) claimView {
	c := decode[struct {
		oapi.Claim
		Execution json.RawMessage `json:"execution"`
	}](data)
	return claimView{Execution: s.execution(c.Execution), Kind: string(c.Kind), Owner: s.leases[c.Fence.LeaseID], Epoch: c.Fence.LeaseEpoch,
		Index: int(c.Fence.AttemptIndex), Expires: s.w.at(c.LeaseExpiresAt.Time().UnixMilli())}
}

// shownExecution is an execution in a body. Its times are strings, so that null is told from a time.
type shownExecution struct {
	oapi.Execution
	CurrentLease *struct {
		WorkerID   string    `json:"worker_id"`
		InstanceID string    `json:"worker_instance_id"`
		LeaseID    uuid.UUID `json:"lease_id"`
		LeaseEpoch int64     `json:"lease_epoch"`
		AcquiredAt time.Time `json:"acquired_at"`
		ExpiresAt  time.Time `json:"expires_at"`
	} `json:"current_lease"`
	Cancellation *struct {
		Reason      string     `json:"reason"`
		RequestedAt time.Time  `json:"requested_at"`
		DeadlineAt  *time.Time `json:"deadline_at"`
	} `json:"cancellation"`
	Failure    *shownFailure    `json:"failure"`
	Suspension *oapi.Suspension `json:"suspension"`
	Progress   struct {
		Pct     *int       `json:"pct"`
		Message *string    `json:"message"`
		At      *time.Time `json:"at"`
	} `json:"progress"`
	DelayUntil  *time.Time `json:"delay_until"`
	DeadlineAt  *time.Time `json:"deadline_at"`
	CreatedAt   time.Time  `json:"created_at"`
	StartedAt   *time.Time `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at"`
}

type shownFailure struct {
	Reason   string  `json:"reason"`
	Category *string `json:"category"`
}

func (f *shownFailure) String() string {
	if f == nil {
		return ""
	}
	return (&failure{f.Reason, or(f.Category, "")}).String()
}

func (s *side) when(t *time.Time) string {
	if t == nil {
		return ""
	}
	return s.w.at(t.UnixMilli())
}

func (s *side) execution(data []byte) executionView {
	e := decode[shownExecution](data)
	vec := e.StateVector
	v := executionView{
		Name: s.w.names[e.ID], Lane: e.Lane, Public: string(e.PublicState), Blocking: string(e.BlockingReason), Priority: int(e.Priority),
		Vector: vector{string(vec.LifecyclePhase), string(vec.OwnershipState), string(vec.EligibilityState), string(vec.BlockingReason), string(vec.TerminalOutcome), string(vec.AttemptState)}.String(),
		Needs:  strings.Join(e.RequiredCapabilities, ","), Tags: sortedTags(e.Tags), Current: -1, Attempts: int(e.TotalAttemptCount), Retries: int(e.RetryCount),
		Replays: int(e.ReplayCount), Reclaims: int(e.LeaseReclaimCount), Created: s.when(&e.CreatedAt), Started: s.when(e.StartedAt), Completed: s.when(e.CompletedAt),
		Delay: s.when(e.DelayUntil), Deadline: s.when(e.DeadlineAt), Revision: e.Revision, Failure: e.Failure.String(),
	}
	if e.CurrentAttemptIndex != nil {
		v.Current = int(*e.CurrentAttemptIndex)
	}
	if l := e.CurrentLease; l != nil {
		v.Lease = leaseText(s.leases[l.LeaseID], l.LeaseEpoch, l.WorkerID, l.InstanceID, s.when(&l.AcquiredAt), s.when(&l.ExpiresAt))
	}
	if c := e.Cancellation; c != nil {
		v.Cancellation = cancellationText(c.Reason, s.when(&c.RequestedAt), s.when(c.DeadlineAt))
	}
	if x := e.Suspension; x != nil {
		v.Suspension = s.suspension(x)
	}
	if p := e.Progress; p.At != nil || p.Pct != nil || p.Message != nil {
		v.Progress = progressText(p.Pct, p.Message, s.when(p.At))
	}
	if string(vec.PublicState) != v.Public {
		s.Failf("%s is %s, and %s in its vector", v.Name, v.Public, vec.PublicState)
	}
	return v
}
