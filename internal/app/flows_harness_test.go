package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// flowTest is one case on a running server: a client that reports to the case, in a namespace that nobody else uses.
type flowTest struct {
	*apitest.Client
	t         *testing.T
	server    *apptest.Server
	namespace string
}

// flowCase is a case by its name, a plain phrase with the line of the reference that it stands for.
type flowCase struct {
	name string
	run  func(x *flowTest)
}

// flowGroup is cases about one thing.
type flowGroup struct {
	name  string
	cases []flowCase
}

// TestFlows: flows over HTTP, on both databases. reference: runs-and-taskflows.md B, C5 and D5; model.md "Flow".
func TestFlows(t *testing.T) {
	t.Parallel()
	runFlowGroups(t, []flowGroup{
		{"reference", flowReferenceCases},
		{"statuses", flowStatusCases},
		{"transitions", flowTransitionCases()},
		{"revisions", flowRevisionCases},
		{"replace", flowReplaceCases},
		{"patch", flowPatchCases()},
		{"tags", flowTagCases()},
		{"steps", flowStepCases},
		{"mirror", flowMirrorCases},
		{"members", flowMemberCases},
		{"trail", flowTrailCases},
		{"stream", flowStreamCases},
	})
}

// TestFlows_Time: what time and events from outside do to flows. It goes so far ahead that old events are trimmed, so it has
// servers of its own.
func TestFlows_Time(t *testing.T) {
	t.Parallel()
	runFlowGroups(t, []flowGroup{
		{"waits", flowWaitCases},
		{"external events", flowExternalEventCases},
		{"inbox", flowInboxCases()},
		{"delete", flowDeleteCases()},
		{"prune", flowPruneCases},
	})
}

// runFlowGroups runs cases one after the other, since they share a clock, on one server for each database.
func runFlowGroups(t *testing.T, groups []flowGroup) {
	t.Helper()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		for i, g := range groups {
			t.Run(g.name, func(t *testing.T) {
				for j, c := range g.cases {
					t.Run(c.name, func(t *testing.T) { c.run(flowsOn(t, s, fmt.Sprintf("n%d-%d", i, j))) })
				}
			})
		}
	})
}

func flowsOn(t *testing.T, s *apptest.Server, namespace string) *flowTest {
	t.Helper()
	return &flowTest{Client: s.For(t).In(namespace), t: t, server: s, namespace: namespace}
}

// in returns the same case in another namespace.
func (x *flowTest) in(namespace string) *flowTest {
	other := *x
	other.Client, other.namespace = x.In(namespace), namespace
	return &other
}

// sub runs a part of the case as a subtest.
func (x *flowTest) sub(name string, run func(x *flowTest)) {
	x.t.Helper()
	x.t.Run(name, func(t *testing.T) {
		other := *x
		other.t, other.Client = t, x.For(t)
		run(&other)
	})
}

// create creates a flow of the given members.
func (x *flowTest) create(members string) oapi.Flow {
	x.t.Helper()
	return flowAs[oapi.Flow](x.Post("/v1/flows", flowBody(members, `"goal":"Release 1.4"`)).Want(http.StatusCreated))
}

// running creates a flow that runs, at revision 1.
func (x *flowTest) running(members string) oapi.Flow {
	x.t.Helper()
	return x.create(joined(members, `"start":true`))
}

// flowBody returns a JSON object of some members, and of those others that are not among them.
func flowBody(members string, others ...string) string {
	all := members
	for _, other := range others {
		if name, _, _ := strings.Cut(other, ":"); !strings.Contains(members, name+":") {
			all = joined(all, other)
		}
	}
	return "{" + all + "}"
}

// flowAs returns the body of an answer as a T.
func flowAs[T any](answer *apitest.Response) T {
	var v T
	answer.Into(&v)
	return v
}

// docAs returns a document as a T.
func docAs[T any](t *testing.T, document []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(document, &v); err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return v
}

// joined returns members one after the other.
func joined(members ...string) string {
	return strings.Join(slices.DeleteFunc(members, func(m string) bool { return m == "" }), ",")
}

// at creates a flow in a status, with the state {"n":1}.
func (x *flowTest) at(status oapi.FlowStatus) oapi.Flow {
	x.t.Helper()
	if status == oapi.FlowStatusCreated {
		return x.create(`"state":{"n":1}`)
	}
	f := x.running(`"state":{"n":1}`)
	switch status {
	case oapi.FlowStatusWaiting:
		return x.park(f.ID, manual)
	case oapi.FlowStatusFinished:
		return x.do(f.ID, "finish", "")
	case oapi.FlowStatusFailed:
		return x.do(f.ID, "fail", `{"reason":"no disk"}`)
	case oapi.FlowStatusCancelled:
		return x.do(f.ID, "cancel", "")
	default:
		return f
	}
}

// flowPath is the path of a flow, or of what belongs to it.
func flowPath(id uuid.UUID, parts ...string) string {
	path := "/v1/flows/" + id.String()
	for _, p := range parts {
		path += "/" + url.PathEscape(p)
	}
	return path
}

// flow reads a flow.
func (x *flowTest) flow(id uuid.UUID) oapi.Flow {
	x.t.Helper()
	return flowAs[oapi.Flow](x.Get(flowPath(id)).Want(http.StatusOK))
}

// verb calls a verb of a flow, without a body for "".
func (x *flowTest) verb(id uuid.UUID, verb, body string, headers ...string) *apitest.Response {
	x.t.Helper()
	if body == "" {
		return x.Post(flowPath(id, verb), nil, headers...)
	}
	return x.Post(flowPath(id, verb), body, headers...)
}

// do calls a verb that succeeds.
func (x *flowTest) do(id uuid.UUID, verb, body string) oapi.Flow {
	x.t.Helper()
	return flowAs[oapi.Flow](x.verb(id, verb, body).Want(http.StatusOK))
}

// patch merges into a flow's state.
func (x *flowTest) patch(id uuid.UUID, body string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Do(http.MethodPatch, flowPath(id), body, headers...)
}

// put replaces a flow at a revision.
func (x *flowTest) put(id uuid.UUID, revision int64, body any) *apitest.Response {
	x.t.Helper()
	return x.Do(http.MethodPut, flowPath(id), body, ifMatch(revision))
}

func ifMatch(revision int64) string { return fmt.Sprintf(`If-Match: "%d"`, revision) }

// park makes a running flow wait; more are further members of the request.
func (x *flowTest) park(id uuid.UUID, condition string, more ...string) oapi.Flow {
	x.t.Helper()
	return x.do(id, "wait", waitBody(condition, more...))
}

// waiting creates a flow that waits; its state is {"n":1}.
func (x *flowTest) waiting(condition string, more ...string) oapi.Flow {
	x.t.Helper()
	return x.park(x.running(`"state":{"n":1}`).ID, condition, more...)
}

func waitBody(condition string, more ...string) string {
	return flowBody(joined(append([]string{`"condition":` + condition}, more...)...))
}

// Conditions.

const manual = `{"kind":"manual"}`

// outside is the condition on an event from outside.
func outside(topic, correlation string) string {
	return fmt.Sprintf(`{"kind":"external_event","topic":%q,"correlation_id":%q}`, topic, correlation)
}

func anyOf(conditions ...string) string {
	return `{"kind":"any","of":[` + strings.Join(conditions, ",") + `]}`
}

func allOf(conditions ...string) string {
	return `{"kind":"all","of":[` + strings.Join(conditions, ",") + `]}`
}

func timerAt(at time.Time) string { return `{"kind":"timer","at":` + spelled(at) + `}` }

// spelled is a time in a document.
func spelled(at time.Time) string { return at.UTC().Format(`"2006-01-02T15:04:05.000Z"`) }

// now is the server's time.
func (x *flowTest) now() time.Time { return x.server.Clock.Now() }

// after returns the timer that is due after d.
func (x *flowTest) after(d time.Duration) string { return timerAt(x.now().Add(d)) }

// advance moves the clock and lets everything happen that is due then.
func (x *flowTest) advance(d time.Duration) {
	x.t.Helper()
	x.server.Advance(d)
}

// reach moves the clock to a time, unless it is there already.
func (x *flowTest) reach(at time.Time) {
	x.t.Helper()
	x.advance(max(0, at.Sub(x.now())))
}

// deliver delivers an event from outside.
func (x *flowTest) deliver(topic, correlation string, more ...string) oapi.ExternalEventReceipt {
	x.t.Helper()
	return flowAs[oapi.ExternalEventReceipt](x.send(topic, correlation, more...).Want(http.StatusAccepted))
}

func (x *flowTest) send(topic, correlation string, more ...string) *apitest.Response {
	x.t.Helper()
	named := fmt.Sprintf(`"topic":%q,"correlation_id":%q`, topic, correlation)
	return x.Post("/v1/external-events", flowBody(joined(append([]string{named}, more...)...)))
}

// trail reads a flow's trail, the newest event first.
func (x *flowTest) trail(id uuid.UUID, query string) []oapi.Event {
	x.t.Helper()
	return flowAs[oapi.FlowEventList](x.Get(flowPath(id, "events") + "?limit=500" + query).Want(http.StatusOK)).Items
}

// last returns the newest event of a flow's trail, its data as a map.
func (x *flowTest) last(id uuid.UUID) (oapi.Event, map[string]any) {
	x.t.Helper()
	e := x.trail(id, "")[0]
	return e, docAs[map[string]any](x.t, e.Data)
}

// told checks the types of a flow's trail, from the first event on.
func (x *flowTest) told(id uuid.UUID, want ...string) {
	x.t.Helper()
	got := []string{}
	for _, e := range slices.Backward(x.trail(id, "")) {
		got = append(got, e.Type)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("trail of %s (-want +got):\n%s", id, diff)
	}
}

// stands checks status and revision of a flow, and what always goes together.
func (x *flowTest) stands(id uuid.UUID, status oapi.FlowStatus, revision int64) oapi.Flow {
	x.t.Helper()
	f := x.flow(id)
	if f.Status != status || f.Revision != revision {
		x.t.Fatalf("flow %s is %s at revision %d, want %s at %d", id, f.Status, f.Revision, status, revision)
	}
	ended := status == oapi.FlowStatusFinished || status == oapi.FlowStatusFailed || status == oapi.FlowStatusCancelled
	if (f.Wait != nil) != (status == oapi.FlowStatusWaiting) || (f.EndedAt != nil) != ended || (f.Failure != nil) != (status == oapi.FlowStatusFailed) {
		x.t.Errorf("a flow that is %s has the wait %v, the end %v and the failure %v", status, f.Wait, f.EndedAt, f.Failure)
	}
	return f
}

// state checks a flow's state, as a document.
func (x *flowTest) state(f oapi.Flow, want string) {
	x.t.Helper()
	if diff := cmp.Diff(docAs[any](x.t, []byte(want)), docAs[any](x.t, f.State)); diff != "" {
		x.t.Errorf("state of %s (-want +got):\n%s", f.ID, diff)
	}
}

// steps lists a flow's steps.
func (x *flowTest) steps(id uuid.UUID) []oapi.FlowStep {
	x.t.Helper()
	return flowAs[oapi.FlowStepList](x.Get(flowPath(id, "steps") + "?limit=500").Want(http.StatusOK)).Items
}

// step reads one step.
func (x *flowTest) step(id uuid.UUID, runID string) oapi.FlowStep {
	x.t.Helper()
	return flowAs[oapi.FlowStep](x.Get(flowPath(id, "steps", runID)).Want(http.StatusOK))
}

// insert adds a step.
func (x *flowTest) insert(id uuid.UUID, members string) *apitest.Response {
	x.t.Helper()
	return x.Post(flowPath(id, "steps"), flowBody(members, `"task":"build"`))
}

// observe records what was observed of a step.
func (x *flowTest) observe(id uuid.UUID, runID, members string) *apitest.Response {
	x.t.Helper()
	return x.Do(http.MethodPut, flowPath(id, "steps", runID), flowBody(members, `"task":"build"`))
}

// workflowRun makes a run that runs.
func (x *flowTest) workflowRun() uuid.UUID {
	x.t.Helper()
	id := uuid.MustParse(x.Post("/v1/runs", `{"workflow_name":"w"}`).Want(http.StatusCreated).Str("id"))
	x.Post("/v1/runs/"+id.String()+"/start", `{"generation":0}`).Want(http.StatusOK)
	return id
}

// bodyJSON is a value in a document.
func bodyJSON(t *testing.T, v any) []byte {
	t.Helper()
	doc, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// list reads all pages of a list of flows.
func (x *flowTest) list(query string) []oapi.Flow {
	x.t.Helper()
	return flowAs[oapi.FlowList](x.Get("/v1/flows?limit=500" + query).Want(http.StatusOK)).Items
}

func flowIDs(flows []oapi.Flow) []uuid.UUID {
	ids := make([]uuid.UUID, len(flows))
	for i := range flows {
		ids[i] = flows[i].ID
	}
	return ids
}

// inbox lists what waits for a person.
func (x *flowTest) inbox(query string) []oapi.InboxItem {
	x.t.Helper()
	return flowAs[oapi.InboxList](x.Get("/v1/inbox" + query).Want(http.StatusOK)).Items
}

// workers returns a case on the executions of this one's namespace.
func (x *flowTest) workers(lane string) *executionTest {
	x.t.Helper()
	e := executionsOn(x.t, x.server, lane)
	e.Client = x.Client
	return e
}

// tableCount is how much there is of something.
type tableCount struct {
	Name string `db:"name"`
	N    int64  `db:"n"`
}

// counts are queries for what a refusal must leave alone, in one namespace ("%s" stands for the condition) or in all.
var counts = func() string {
	queries := []string{
		`SELECT 'newest event' AS name, last AS n FROM event_log`,
		`SELECT 'revisions of flows' AS name, CAST(coalesce(sum(revision), 0) AS BIGINT) AS n FROM flows WHERE %s`,
		`SELECT 'revisions of executions' AS name, CAST(coalesce(sum(revision), 0) AS BIGINT) AS n FROM executions WHERE %s`,
		`SELECT 'tokens in use' AS name, count(*) AS n FROM tokens WHERE revoked_at IS NULL AND %s`,
		`SELECT 'waitpoint_secrets' AS name, count(*) AS n FROM waitpoint_secrets`,
		`SELECT 'open events' AS name, count(*) AS n FROM signals WHERE open = 1 AND %s`,
		`SELECT 'flow_steps' AS name, count(*) AS n FROM flow_steps WHERE flow_id IN (SELECT id FROM flows WHERE %s)`,
		`SELECT 'edges' AS name, count(*) AS n FROM edges WHERE flow_id IN (SELECT id FROM flows WHERE %s)`,
		`SELECT 'edge_groups' AS name, count(*) AS n FROM edge_groups WHERE flow_id IN (SELECT id FROM flows WHERE %s)`,
		`SELECT 'pending edges' AS name, count(*) AS n FROM edges WHERE state = 'pending' AND flow_id IN (SELECT id FROM flows WHERE %s)`,
		`SELECT 'graph_backlog' AS name, count(*) AS n FROM graph_backlog WHERE flow_id IN (SELECT id FROM flows WHERE %s)`,
		`SELECT 'builds' AS name, count(*) AS n FROM builds WHERE flow_id IN (SELECT id FROM flows WHERE %s)`,
		`SELECT 'attempts' AS name, count(*) AS n FROM attempts WHERE execution_id IN (SELECT id FROM executions WHERE %s)`,
		`SELECT 'suspend_keys' AS name, count(*) AS n FROM suspend_keys WHERE execution_id IN (SELECT id FROM executions WHERE %s)`,
		`SELECT 'waitpoints' AS name, count(*) AS n FROM waitpoints WHERE execution_id IN (SELECT id FROM executions WHERE %s)`,
		`SELECT 'closed waitpoints' AS name, count(*) AS n FROM waitpoints WHERE state = 'closed' AND execution_id IN (SELECT id FROM executions WHERE %s)`,
		`SELECT 'revisions of runs' AS name, CAST(coalesce(sum(revision), 0) AS BIGINT) AS n FROM runs WHERE %s`,
		`SELECT 'run_items' AS name, count(*) AS n FROM run_items WHERE run_id IN (SELECT id FROM runs WHERE %s)`,
		`SELECT 'run_step_attempts' AS name, count(*) AS n FROM run_step_attempts WHERE step_id IN (SELECT id FROM run_steps WHERE %s)`,
		`SELECT 'gate_votes' AS name, count(*) AS n FROM gate_votes WHERE step_id IN (SELECT id FROM run_steps WHERE %s)`,
	}
	for _, name := range []string{"idempotency_keys", "tokens", "flows", "waits", "wait_keys", "signals", "executions", "execution_keys", "lanes", "workers", "bulk_jobs", "runs", "run_steps"} {
		queries = append(queries, `SELECT '`+name+`' AS name, count(*) AS n FROM `+name+` WHERE %s`)
	}
	return strings.Join(queries, " UNION ALL ")
}()

// countRows counts the rows of every table, adds the revisions up and tells the place of the newest event, without which
// nothing changes.
func countRows(t *testing.T, s *apptest.Server) map[string]int64 {
	t.Helper()
	return countRowsWhere(t, s, "1 = 1")
}

func countRowsWhere(t *testing.T, s *apptest.Server, condition string) map[string]int64 {
	t.Helper()
	st := s.App.Store()
	if err := st.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	var found []tableCount
	query := strings.ReplaceAll(counts, "%s", condition)
	if err := st.Read(t.Context(), func(q *store.Queries) error { return q.Select(&found, query) }); err != nil {
		t.Fatal(err)
	}
	rows := map[string]int64{}
	for _, c := range found {
		rows[c.Name] = c.N
	}
	return rows
}

// flowRecord is a flow as the API tells of it, and its steps as they are stored.
type flowRecord struct {
	Flow  oapi.Flow
	Steps []stepRecord
}

// stepRecord is a stored step.
type stepRecord struct {
	RunID           string     `db:"run_id"`
	Runtime         string     `db:"runtime"`
	ChildSessionKey store.Text `db:"child_session_key"`
	Task            string     `db:"task"`
	Status          string     `db:"status"`
	Result          store.JSON `db:"result"`
	ExecutionID     store.ID   `db:"execution_id"`
	WorkflowRunID   store.ID   `db:"workflow_run_id"`
	UpdatedAt       int64      `db:"updated_at"`
}

// flowSnapshot is what a refusal must leave as it is. That trails are as they were is told by the place of the newest event:
// nothing is ever taken out of them.
type flowSnapshot struct {
	Flows map[uuid.UUID]flowRecord
	Rows  map[string]int64
}

func (x *flowTest) snapshot(ids ...uuid.UUID) flowSnapshot {
	x.t.Helper()
	s := flowSnapshot{Flows: map[uuid.UUID]flowRecord{}, Rows: countRowsWhere(x.t, x.server, "namespace = '"+x.namespace+"'")}
	for _, id := range ids {
		record := flowRecord{Flow: x.flow(id)}
		err := x.server.App.Store().Read(x.t.Context(), func(q *store.Queries) error {
			return q.Select(&record.Steps, `SELECT run_id, runtime, child_session_key, task, status, result, execution_id, workflow_run_id, updated_at
				FROM flow_steps WHERE flow_id = ? ORDER BY position`, store.ID(id))
		})
		if err != nil {
			x.t.Fatal(err)
		}
		s.Flows[id] = record
	}
	return s
}

// same checks that a call changes nothing: neither the flows named, with their steps and trails, nor any table.
func (x *flowTest) same(call func() *apitest.Response, ids ...uuid.UUID) *apitest.Response {
	x.t.Helper()
	return unmoved(x.t, func() flowSnapshot { return x.snapshot(ids...) }, call)
}

// refused checks that a call is refused with a code and changes nothing.
func (x *flowTest) refused(code fault.Code, call func() *apitest.Response, ids ...uuid.UUID) *apitest.Response {
	x.t.Helper()
	return x.same(call, ids...).Problem(code)
}

// facts checks members of a problem document.
func (x *flowTest) facts(answer *apitest.Response, want map[string]any) {
	x.t.Helper()
	got := map[string]any{}
	for name := range want {
		got[name] = answer.JSON()[name]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("facts of %s (-want +got):\n%s", answer.Body, diff)
	}
}

// points checks at which part of the request a refusal points first.
func (x *flowTest) points(answer *apitest.Response, in fault.In, pointer string) {
	x.t.Helper()
	fields := answer.Fields()
	if len(fields) == 0 || fields[0].In != in || fields[0].Pointer != pointer {
		x.t.Errorf("%s does not point at %s %q", answer.Body, in, pointer)
	}
}
