package app_test

import (
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
	"github.com/flowapi/flowapi/internal/storetest"
)

// runTest is one case about workflow runs, in a namespace that nobody else uses. What a flow is asked for is at x.flowTest.
type runTest struct {
	*flowTest
}

// runCase is a case by its name, a plain phrase with the line of the reference that it stands for.
type runCase struct {
	name string
	run  func(x *runTest)
}

// runGroup is cases about one thing.
type runGroup struct {
	name  string
	cases []runCase
}

// TestRuns: what an engine does with runs, over HTTP, on both databases. reference: runs-and-taskflows.md A3 to A7, C1, C2, C3;
// model.md "Run".
func TestRuns(t *testing.T) {
	t.Parallel()
	runRunGroups(t, []runGroup{
		{"runs", slices.Concat(runRecordCases(), runEndCases(), runKeepingCases())},
		{"transitions", runTransitionCases()},
		{"steps", slices.Concat(runStepCases(), runStepUpdateCases(), runStepPlaceCases())},
		{"transitions of steps", runStepTransitionCases()},
		{"gates", runGateStateCases()},
		{"items", slices.Concat(runItemCases(), runItemBatchCases(), runItemListCases())},
		{"transitions of items", runItemTransitionCases()},
		{"recover", slices.Concat(runRecoverCases(), runRecoverEndCases())},
		{"lease", slices.Concat(runLeaseCases(), runLeaseEndCases(), runLeaseEngineCases())},
		{"fence", runFenceCases()},
		{"wait", slices.Concat(runWaitCases(), runWaitEndCases(), runWaitChildCases())},
		{"statuses", slices.Concat(runStatusCases(), runWordCases())},
		{"bad input", runBadInputCases()},
		{"idempotency", runIdempotencyCases()},
	})
}

// runRunGroups runs cases one after the other on one server for each database. The clock stands still, and nothing happens by
// itself, until a case moves it. What a case has left is audited when it ends.
func runRunGroups(t *testing.T, groups []runGroup) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()))
		for i, g := range groups {
			t.Run(g.name, func(t *testing.T) {
				for j, c := range g.cases {
					t.Run(c.name, func(t *testing.T) {
						x := runsOn(t, s, fmt.Sprintf("r%d-%d", i, j))
						c.run(x)
						x.audit()
					})
				}
			})
		}
	})
}

func runsOn(t *testing.T, s *apptest.Server, namespace string) *runTest {
	t.Helper()
	return &runTest{flowsOn(t, s, namespace)}
}

// in returns the same case in another namespace.
func (x *runTest) in(namespace string) *runTest { return &runTest{x.flowTest.in(namespace)} }

// sub runs a part of the case as a subtest.
func (x *runTest) sub(name string, run func(x *runTest)) {
	x.t.Helper()
	x.flowTest.sub(name, func(f *flowTest) { run(&runTest{f}) })
}

// Where a lease's holder is called nothing else, it has this token.
const engineToken = "engine-1"

// create creates a run, which is pending and which nobody holds.
func (x *runTest) create(members string) oapi.Run {
	x.t.Helper()
	return flowAs[oapi.Run](x.Post("/v1/runs", flowBody(members, `"workflow_name":"release"`)).Want(http.StatusCreated))
}

// leased creates a pending run that engineToken holds for an hour, at generation 1.
func (x *runTest) leased(members string) oapi.Run {
	x.t.Helper()
	r := x.create(members)
	x.hold(r.ID, engineToken, time.Hour)
	return x.get(r.ID)
}

// running creates a run that engineToken drives, at generation 1 and revision 2.
func (x *runTest) running(members string) oapi.Run {
	x.t.Helper()
	return x.do(x.leased(members), "start", "")
}

// at creates a run in a status, which engineToken holds where somebody can, at generation 1.
func (x *runTest) at(status string) oapi.Run {
	x.t.Helper()
	if status == "pending" {
		return x.leased("")
	}
	r := x.running("")
	switch status {
	case "waiting":
		return x.do(r, "wait", blockedOn)
	case "cancelling":
		return flowAs[oapi.Run](x.Post(runPath(r.ID, "cancel"), `{}`).Want(http.StatusOK))
	case "needs_resume":
		return x.release(r, `"needs_resume":true`)
	case "completed":
		return x.do(r, "complete", `"result_summary":"released"`)
	case "failed":
		return x.do(r, "fail", `"error":"no disk"`)
	case "cancelled":
		return x.do(r, "cancel", "")
	default:
		return r
	}
}

// blockedOn is what a run waits for where that does not matter.
const blockedOn = `"blocked_on":{"type":"timer"}`

// when is the server's time some time from now, as it is on the wire.
func (x *runTest) when(d time.Duration) oapi.Time { return oapi.Time(x.now().Add(d)) }

// runPath is the path of a run, or of what belongs to it.
func runPath(id uuid.UUID, parts ...string) string {
	path := "/v1/runs/" + id.String()
	for _, p := range parts {
		path += "/" + url.PathEscape(p)
	}
	return path
}

// stepPath is the path of a step, or of what belongs to it.
func stepPath(r oapi.Run, id uuid.UUID, parts ...string) string {
	return runPath(r.ID, append([]string{"steps", id.String()}, parts...)...)
}

// fence writes a generation as a member, and other members after it.
func fence(generation int64, members ...string) string {
	return joined(append([]string{fmt.Sprintf(`"generation":%d`, generation)}, members...)...)
}

// engineBody returns the body of an engine's call: the members, and the generation of r unless they have one.
func engineBody(r oapi.Run, members string, others ...string) string {
	return flowBody(members, append(others, fence(r.Generation))...)
}

// get reads a run.
func (x *runTest) get(id uuid.UUID) oapi.Run {
	x.t.Helper()
	return flowAs[oapi.Run](x.Get(runPath(id)).Want(http.StatusOK))
}

// verb calls a verb as the engine that has the generation of r.
func (x *runTest) verb(r oapi.Run, verb, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(runPath(r.ID, verb), engineBody(r, members), headers...)
}

// do calls a verb that succeeds.
func (x *runTest) do(r oapi.Run, verb, members string) oapi.Run {
	x.t.Helper()
	return flowAs[oapi.Run](x.verb(r, verb, members).Want(http.StatusOK))
}

// people calls a verb as somebody who drives nothing.
func (x *runTest) people(r oapi.Run, verb, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(runPath(r.ID, verb), "{"+members+"}", headers...)
}

// lease asks for the lease of a run.
func (x *runTest) lease(id uuid.UUID, token string, ttl time.Duration, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(runPath(id, "lease"), fmt.Sprintf(`{"token":%q,"ttl_ms":%d}`, token, ttl.Milliseconds()), headers...)
}

// hold gets the lease of a run.
func (x *runTest) hold(id uuid.UUID, token string, ttl time.Duration) oapi.RunLease {
	x.t.Helper()
	return flowAs[oapi.RunLease](x.lease(id, token, ttl).Want(http.StatusOK))
}

// release gives the lease of engineToken back.
func (x *runTest) release(r oapi.Run, members string) oapi.Run {
	x.t.Helper()
	return flowAs[oapi.Run](x.Post(runPath(r.ID, "lease", "release"), engineBody(r, members, fmt.Sprintf(`"token":%q`, engineToken))).Want(http.StatusOK))
}

// insert adds a step to a run: an agent's "build" at position 0, unless the members say otherwise.
func (x *runTest) insert(r oapi.Run, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(runPath(r.ID, "steps"), engineBody(r, members, `"step_name":"build"`, `"role":"agent"`, `"position":0`), headers...)
}

// step adds a step that is not there yet.
func (x *runTest) step(r oapi.Run, members string) oapi.RunStep {
	x.t.Helper()
	return flowAs[oapi.RunStep](x.insert(r, members).Want(http.StatusCreated))
}

// gate adds a gate and opens it: a human_approval "review", unless the members of the gate say otherwise.
func (x *runTest) gate(r oapi.Run, members string) oapi.RunStep {
	x.t.Helper()
	s := x.step(r, `"step_name":"review","role":"gate","gate":`+flowBody(members, `"gate_type":"human_approval"`))
	return x.moved(r, s.ID, `"status":"waiting"`)
}

// patch says something of a step, as the engine that has the generation of r.
func (x *runTest) patch(r oapi.Run, id uuid.UUID, members string) *apitest.Response {
	x.t.Helper()
	return x.Do(http.MethodPatch, stepPath(r, id), engineBody(r, members))
}

// moved says something of a step that changes it.
func (x *runTest) moved(r oapi.Run, id uuid.UUID, members string) oapi.RunStep {
	x.t.Helper()
	u := flowAs[oapi.PatchedRunStep](x.patch(r, id, members).Want(http.StatusOK))
	if !u.Applied {
		x.t.Fatalf("%s changed nothing", members)
	}
	return u.Step
}

// stepAt adds a step and brings it into a status.
func (x *runTest) stepAt(r oapi.Run, status, members string) oapi.RunStep {
	x.t.Helper()
	s := x.step(r, members)
	if status == "pending" {
		return s
	}
	return x.moved(r, s.ID, fmt.Sprintf(`"status":%q`, status))
}

// read reads a step.
func (x *runTest) read(r oapi.Run, id uuid.UUID) oapi.RunStep {
	x.t.Helper()
	return flowAs[oapi.RunStep](x.Get(stepPath(r, id)).Want(http.StatusOK))
}

// steps lists the steps of a run.
func (x *runTest) steps(r oapi.Run, query string) []oapi.RunStep {
	x.t.Helper()
	return flowAs[oapi.RunStepList](x.Get(runPath(r.ID, "steps") + "?limit=500" + query).Want(http.StatusOK)).Items
}

// list lists runs.
func (x *runTest) list(query string) []oapi.Run {
	x.t.Helper()
	return flowAs[oapi.RunList](x.Get("/v1/runs?limit=500" + query).Want(http.StatusOK)).Items
}

func runIDs(runs []oapi.Run) []uuid.UUID {
	ids := make([]uuid.UUID, len(runs))
	for i := range runs {
		ids[i] = runs[i].ID
	}
	return ids
}

// add adds items to a step, each given by its members.
func (x *runTest) add(r oapi.Run, stepID uuid.UUID, items ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(stepPath(r, stepID, "items"), "{"+fence(r.Generation, `"items":[{`+strings.Join(items, "},{")+"}]")+"}")
}

// items adds items of the type "ticket" with these ids, and returns them.
func (x *runTest) items(r oapi.Run, stepID uuid.UUID, ids ...string) []oapi.RunItem {
	x.t.Helper()
	members := make([]string, len(ids))
	for i, id := range ids {
		members[i] = ticket(id)
	}
	var items []oapi.RunItem
	for _, a := range flowAs[oapi.AddedRunItems](x.add(r, stepID, members...).Want(http.StatusOK)).Items {
		if !a.Created {
			x.t.Fatalf("item %s was there already", a.Item.ItemID)
		}
		items = append(items, a.Item)
	}
	return items
}

// ticket is the members of an item of the type "ticket".
func ticket(id string, more ...string) string {
	return joined(append([]string{fmt.Sprintf(`"item_type":"ticket","item_id":%q`, id)}, more...)...)
}

// patchItems says something of items, each update given by its members.
func (x *runTest) patchItems(r oapi.Run, stepID uuid.UUID, updates ...string) *apitest.Response {
	x.t.Helper()
	all := "[]"
	if len(updates) > 0 {
		all = "[{" + strings.Join(updates, "},{") + "}]"
	}
	return x.Do(http.MethodPatch, stepPath(r, stepID, "items"), "{"+fence(r.Generation, `"updates":`+all)+"}")
}

// itemTo is the update that moves an item.
func itemTo(it oapi.RunItem, status string, more ...string) string {
	return joined(append([]string{fmt.Sprintf(`"id":%q,"status":%q`, it.ID, status)}, more...)...)
}

// listItems lists the items of a step.
func (x *runTest) listItems(r oapi.Run, stepID uuid.UUID, query string) []oapi.RunItem {
	x.t.Helper()
	return flowAs[oapi.RunItemList](x.Get(stepPath(r, stepID, "items") + "?limit=500" + query).Want(http.StatusOK)).Items
}

// answer says something to a gate: approve, reject or feedback.
func (x *runTest) answer(r oapi.Run, stepID uuid.UUID, decision, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(stepPath(r, stepID, "gate", decision), "{"+members+"}", headers...)
}

// readGate reads a gate with its votes.
func (x *runTest) readGate(r oapi.Run, stepID uuid.UUID) oapi.RunGate {
	x.t.Helper()
	return flowAs[oapi.RunGate](x.Get(stepPath(r, stepID, "gate")).Want(http.StatusOK))
}

// events reads the events of a run and of what is in it, the oldest first.
func (x *runTest) events(id uuid.UUID) []oapi.Event {
	x.t.Helper()
	var all []oapi.Event
	for after := int64(0); ; {
		p := flowAs[oapi.EventList](x.Get(fmt.Sprintf("/v1/events?run_id=%s&limit=500&after=%d", id, after)).Want(http.StatusOK))
		all = append(all, p.Items...)
		if !p.More {
			return all
		}
		after = p.NextCursor
	}
}

// told checks the types of a run's events after the first n, and returns those events.
func (x *runTest) told(id uuid.UUID, n int, want ...string) []oapi.Event {
	x.t.Helper()
	events := x.events(id)[n:]
	got := []string{}
	for _, e := range events {
		got = append(got, e.Type)
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		x.t.Errorf("events of %s (-want +got):\n%s", id, diff)
	}
	return events
}

// causes checks the causes of events: for each the place in the list of the one that caused it, -1 for none of them.
func (x *runTest) causes(events []oapi.Event, want ...int) {
	x.t.Helper()
	got := []int{}
	for _, e := range events {
		got = append(got, slices.IndexFunc(events, func(c oapi.Event) bool { return e.Cause != nil && *e.Cause == c.ID }))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("causes (-want +got):\n%s", diff)
	}
}

// stands checks the status of a run, and what always goes together.
func (x *runTest) stands(id uuid.UUID, status string) oapi.Run {
	x.t.Helper()
	r := x.get(id)
	if string(r.Status) != status {
		x.t.Fatalf("run %s is %s, want %s", id, r.Status, status)
	}
	ended := slices.Contains([]string{"completed", "failed", "cancelled"}, status)
	waits := status == "waiting"
	if (r.EndedAt != nil) != ended || ended && r.LeaseUntil != nil || (r.Wait != nil) != waits || (len(r.BlockedOn) > 0 && string(r.BlockedOn) != "null") != waits {
		x.t.Errorf("a run that is %s has the end %v, the lease %v, the wait %v and is blocked on %s", status, r.EndedAt, r.LeaseUntil, r.Wait, r.BlockedOn)
	}
	if (r.StartedAt == nil) != (status == "pending") && status != "cancelled" && status != "failed" {
		x.t.Errorf("a run that is %s was started at %v", status, r.StartedAt)
	}
	return r
}

// runRecord is all that the API tells of one run, byte for byte. That its events are as they were is told by the place of the newest one
// of all: nothing is ever taken out of them.
type runRecord struct {
	Run, Steps string
	Items      map[uuid.UUID]string
}

// runSnapshot is what a refusal must leave as it is.
type runSnapshot struct {
	Runs map[uuid.UUID]runRecord
	Rows map[string]int64
}

func (x *runTest) snapshot(ids ...uuid.UUID) runSnapshot {
	x.t.Helper()
	s := runSnapshot{Runs: map[uuid.UUID]runRecord{}, Rows: countRowsWhere(x.t, x.server, "namespace = '"+x.namespace+"'")}
	for _, id := range ids {
		steps := x.Get(runPath(id, "steps") + "?limit=500").Want(http.StatusOK)
		record := runRecord{Run: string(x.Get(runPath(id)).Want(http.StatusOK).Body), Steps: string(steps.Body), Items: map[uuid.UUID]string{}}
		for _, step := range flowAs[oapi.RunStepList](steps).Items {
			record.Items[step.ID] = string(x.Get(runPath(id, "steps", step.ID.String(), "items") + "?limit=500").Want(http.StatusOK).Body)
		}
		s.Runs[id] = record
	}
	return s
}

// same checks that a call changes nothing: neither the runs named, with what is in them, nor any table, and that nothing is told.
func (x *runTest) same(call func() *apitest.Response, ids ...uuid.UUID) *apitest.Response {
	x.t.Helper()
	return unmoved(x.t, func() runSnapshot { return x.snapshot(ids...) }, call)
}

// refused checks that a call is refused with a code and changes nothing.
func (x *runTest) refused(code fault.Code, call func() *apitest.Response, ids ...uuid.UUID) *apitest.Response {
	x.t.Helper()
	return x.same(call, ids...).Problem(code)
}

// runAudits are queries for what must never be in a namespace. reference: runs-and-taskflows.md D1 7 and 8, D2 10 to 12 and 15, D4 29.
var runAudits = map[string]string{
	"ended runs with open steps":       `SELECT count(*) FROM run_steps s JOIN runs r ON r.id = s.run_id WHERE r.namespace = ? AND r.ended_at IS NOT NULL AND s.ended_at IS NULL`,
	"ended steps with open items":      `SELECT count(*) FROM run_items i JOIN run_steps s ON s.id = i.step_id WHERE s.namespace = ? AND s.ended_at IS NOT NULL AND i.completed_at IS NULL`,
	"waits of what does not wait":      `SELECT count(*) FROM waits w JOIN runs r ON r.id = w.run_id WHERE r.namespace = ? AND w.step_id IS NULL AND r.status <> 'waiting'`,
	"waits of gates that do not":       `SELECT count(*) FROM waits w JOIN run_steps s ON s.id = w.step_id WHERE s.namespace = ? AND (s.status <> 'waiting' OR s.gate_outcome <> 'pending')`,
	"waiting runs without a wait":      `SELECT count(*) FROM runs r WHERE r.namespace = ? AND r.status = 'waiting' AND NOT EXISTS (SELECT 1 FROM waits w WHERE w.run_id = r.id AND w.step_id IS NULL)`,
	"waiting gates without a wait":     `SELECT count(*) FROM run_steps s WHERE s.namespace = ? AND s.status = 'waiting' AND s.role = 'gate' AND NOT EXISTS (SELECT 1 FROM waits w WHERE w.step_id = s.id)`,
	"attempts that are not numbered":   `SELECT count(*) FROM run_steps s WHERE s.namespace = ? AND s.retry_count <> (SELECT count(*) FROM run_step_attempts a WHERE a.step_id = s.id AND a.attempt_index < s.retry_count)`,
	"items that are not counted":       runItemsMiscounted(),
	"steps that end before they begin": `SELECT count(*) FROM run_steps s WHERE s.namespace = ? AND s.ended_at < coalesce(s.attempt_started_at, s.created_at)`,
}

// runItemsMiscounted finds steps whose counters are not those of their items.
func runItemsMiscounted() string {
	var differ []string
	for _, status := range []string{"pending", "running", "completed", "failed", "skipped", "cancelled"} {
		differ = append(differ, fmt.Sprintf(`s.items_%s <> (SELECT count(*) FROM run_items i WHERE i.step_id = s.id AND i.status = '%s')`, status, status))
	}
	return `SELECT count(*) FROM run_steps s WHERE s.namespace = ? AND (` + strings.Join(differ, " OR ") + `)`
}

// audit checks what is stored of all runs of the case.
func (x *runTest) audit() {
	x.t.Helper()
	st := x.server.App.Store()
	if err := st.Sync(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
	err := st.Read(x.t.Context(), func(q *store.Queries) error {
		for what, query := range runAudits {
			var n int64
			if err := q.Get(&n, query, x.namespace); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if n > 0 {
				x.t.Errorf("%s: %d", what, n)
			}
		}
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// runRestarted runs the first part of a case on a server, and the second part on another one on the same database.
func runRestarted(t *testing.T, run func(x *runTest) (after func(x *runTest))) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		clock := store.StillClock(time.Now())
		first := apptest.Still(t, url, clock)
		after := run(runsOn(t, first, "restarted"))
		first.Stop()
		x := runsOn(t, apptest.Still(t, url, clock), "restarted")
		after(x)
		x.audit()
	})
}
