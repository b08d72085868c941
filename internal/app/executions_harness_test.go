package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
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

// executionTest is one case on a running server: a client that reports to the case, and a lane that nobody else uses.
type executionTest struct {
	*apitest.Client
	t      *testing.T
	server *apptest.Server
	lane   string
}

// executionCase is a case by its name, a plain phrase with the line of the reference that it stands for.
type executionCase struct {
	name string
	run  func(x *executionTest)
}

// runExecutionCases runs cases one after the other, since they share a clock, on one server for each database. The clock stands
// still until a case moves it, and nothing happens by itself: what one case has left does not happen in the middle of another on
// a slow machine.
func runExecutionCases(t *testing.T, cases []executionCase) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()))
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.run(executionsOn(t, s, fmt.Sprintf("lane-%d", i))) })
		}
	})
}

func executionsOn(t *testing.T, s *apptest.Server, lane string) *executionTest {
	t.Helper()
	return &executionTest{Client: s.For(t), t: t, server: s, lane: lane}
}

// in returns the same case in another namespace.
func (x *executionTest) in(namespace string) *executionTest {
	other := *x
	other.Client = x.In(namespace)
	return &other
}

// on returns the same case in another lane.
func (x *executionTest) on(lane string) *executionTest {
	other := *x
	other.lane = x.lane + "-" + lane
	return &other
}

// executionJSON returns a JSON object of some members and of those that are not among them yet.
func executionJSON(members string, others ...string) string {
	all := []string{}
	if members != "" {
		all = append(all, members)
	}
	for _, other := range others {
		if name, _, _ := strings.Cut(other, ":"); !strings.Contains(members, name+":") {
			all = append(all, other)
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

// sent returns the body that creates an execution in the case's lane.
func (x *executionTest) sent(members string) string {
	return executionJSON(members, `"lane":"`+x.lane+`"`)
}

// create creates an execution of the given members.
func (x *executionTest) create(members string) oapi.Execution {
	x.t.Helper()
	return answerAs[oapi.Execution](x.Post("/v1/executions", x.sent(members)).Want(http.StatusCreated))
}

// ask claims, as the worker w1 unless the members say otherwise, and where time goes on by itself for longer than any machine needs for a
// test.
func (x *executionTest) ask(members string, headers ...string) *apitest.Response {
	x.t.Helper()
	others := []string{`"worker_id":"w1"`}
	if !strings.Contains(members, `"lanes":`) {
		others = append(others, `"lane":"`+x.lane+`"`)
	}
	if x.server.Moves {
		others = append(others, lasting)
	}
	return x.Post("/v1/claims", executionJSON(members, others...), headers...)
}

// patiently repeats a call for as long as the server is busy, as its answer asks for: where many workers contend for one row of
// PostgreSQL, on a slow machine, one of them may have waited for too long.
func patiently(call func() *apitest.Response) *apitest.Response {
	for {
		answer := call()
		if answer.Status != http.StatusServiceUnavailable {
			return answer
		}
		answer.Problem(fault.CodeBusy)
	}
}

// claims claims and returns what it got.
func (x *executionTest) claims(members string) []oapi.Claim {
	x.t.Helper()
	answer := x.ask(members)
	if answer.Status == http.StatusNoContent {
		return nil
	}
	return answerAs[oapi.Claims](answer.Want(http.StatusOK)).Claims
}

// claim claims exactly one execution.
func (x *executionTest) claim(members string) oapi.Claim {
	x.t.Helper()
	got := x.claims(members)
	if len(got) != 1 {
		x.t.Fatalf("%d claims instead of one", len(got))
	}
	return got[0]
}

// none finds nothing to claim.
func (x *executionTest) none(members string) {
	x.t.Helper()
	x.ask(members).Want(http.StatusNoContent)
}

// report makes a call of the worker that holds c.
func (x *executionTest) report(c oapi.Claim, op, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post("/v1/executions/"+c.Execution.ID.String()+"/"+op, executionJSON(members, `"handle":"`+c.Handle+`"`), headers...)
}

// get reads an execution.
func (x *executionTest) get(id uuid.UUID) oapi.Execution {
	x.t.Helper()
	return answerAs[oapi.Execution](x.Get("/v1/executions/" + id.String()).Want(http.StatusOK))
}

// attempts lists an execution's attempts.
func (x *executionTest) attempts(id uuid.UUID) []oapi.Attempt {
	x.t.Helper()
	return answerAs[oapi.AttemptList](x.Get("/v1/executions/" + id.String() + "/attempts").Want(http.StatusOK)).Items
}

// events reads an execution's events, the oldest first.
func (x *executionTest) events(id uuid.UUID) []oapi.Event {
	x.t.Helper()
	var all []oapi.Event
	for after := int64(0); ; {
		p := answerAs[oapi.EventList](x.Get(fmt.Sprintf("/v1/events?execution_id=%s&limit=500&after=%d", id, after)).Want(http.StatusOK))
		all = append(all, p.Items...)
		if !p.More {
			return all
		}
		after = p.NextCursor
	}
}

// told checks the types of an execution's events, from the first on.
func (x *executionTest) told(id uuid.UUID, want ...string) {
	x.t.Helper()
	var got []string
	for _, e := range x.events(id) {
		got = append(got, e.Type)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("events of %s (-want +got):\n%s", id, diff)
	}
}

// reason returns the reason in the last event of a type.
func (x *executionTest) reason(id uuid.UUID, eventType string) string {
	x.t.Helper()
	reason := ""
	for _, e := range x.events(id) {
		if e.Type == eventType {
			var data struct{ Reason string }
			if err := json.Unmarshal(e.Data, &data); err != nil {
				x.t.Fatal(err)
			}
			reason = data.Reason
		}
	}
	return reason
}

// stands checks all seven dimensions of an execution: "lifecycle ownership eligibility blocking outcome attempt public".
func (x *executionTest) stands(id uuid.UUID, want string) oapi.Execution {
	x.t.Helper()
	e := x.get(id)
	v := e.StateVector
	if got := fmt.Sprint(v.LifecyclePhase, " ", v.OwnershipState, " ", v.EligibilityState, " ", v.BlockingReason, " ", v.TerminalOutcome, " ", v.AttemptState, " ", v.PublicState); got != want {
		x.t.Fatalf("execution %s stands\nat   %s\nwant %s", id, got, want)
	}
	if e.PublicState != v.PublicState || e.BlockingReason != v.BlockingReason {
		x.t.Errorf("execution %s says %s, %s beside its vector %+v", id, e.PublicState, e.BlockingReason, v)
	}
	return e
}

// Where an execution stands. executions.md 1.11.
const (
	atWaiting     = "runnable unowned eligible_now waiting_for_worker none pending_first_attempt waiting"
	atDelayed     = "runnable unowned not_eligible_until_time waiting_for_delay none pending_first_attempt delayed"
	atActive      = "active leased not_applicable none none running_attempt active"
	atLost        = "active lease_expired_reclaimable not_applicable waiting_for_worker none attempt_interrupted active"
	atReleased    = "runnable unowned eligible_now waiting_for_worker none attempt_interrupted waiting"
	atBackoff     = "runnable unowned not_eligible_until_time waiting_for_retry_backoff none pending_retry_attempt delayed"
	atRetry       = "runnable unowned eligible_now waiting_for_worker none pending_retry_attempt waiting"
	atCompleted   = "terminal unowned not_applicable none success attempt_terminal completed"
	atFailed      = "terminal unowned not_applicable none failed attempt_terminal failed"
	atExpired     = "terminal unowned not_applicable none expired attempt_terminal expired"
	atExpiredIdle = "terminal unowned not_applicable none expired pending_first_attempt expired"
)

// retryPolicy is a policy with so many retries, ten minutes apart: no test takes so long by itself.
func retryPolicy(times int) string {
	return fmt.Sprintf(`"policy":{"retry_policy":{"max_retries":%d,"backoff":{"type":"fixed","delay_ms":600000}}}`, times)
}

const retryDelay = 10 * time.Minute

// executionRecord is all that the API tells of one execution.
type executionRecord struct {
	Execution, Attempts, Result, Waitpoints, Signals string
	Events                                           []oapi.Event
}

// executionRows are the sizes of the tables, so that a trace of something new is seen, too.
type executionRows struct {
	Executions, Attempts, ExecutionKeys, IdempotencyKeys, Events, Waitpoints, OpenWaitpoints, Waits, Signals, OpenSignals, SuspendKeys int
}

// executionSnapshot is what a refusal must leave as it is.
type executionSnapshot struct {
	Records map[uuid.UUID]executionRecord
	Rows    executionRows
}

func (x *executionTest) snapshot(ids ...uuid.UUID) executionSnapshot {
	x.t.Helper()
	s := executionSnapshot{Records: map[uuid.UUID]executionRecord{}, Rows: x.rows()}
	for _, id := range ids {
		path := "/v1/executions/" + id.String()
		s.Records[id] = executionRecord{
			Execution: string(x.Get(path).Want(http.StatusOK).Body), Attempts: string(x.Get(path + "/attempts").Want(http.StatusOK).Body),
			Result: storedResult(x.Get(path + "/result")), Events: x.events(id), Waitpoints: string(x.Get(path + "/waitpoints?limit=500").Want(http.StatusOK).Body),
			Signals: string(x.Get(path + "/signals?all=true&limit=500").Want(http.StatusOK).Body),
		}
	}
	return s
}

// storedResult is a result, or that there is none. The body of a refusal has a request id, which is never the same.
func storedResult(answer *apitest.Response) string {
	if answer.Status == http.StatusOK {
		return answer.Header.Get("Content-Type") + " " + string(answer.Body)
	}
	return http.StatusText(answer.Status)
}

// rows counts the rows of the tables that executions are in.
func (x *executionTest) rows() executionRows {
	x.t.Helper()
	s := x.server.App.Store()
	if err := s.Sync(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
	var n executionRows
	err := s.Read(x.t.Context(), func(q *store.Queries) error {
		for table, into := range map[string]*int{"executions": &n.Executions, "attempts": &n.Attempts, "execution_keys": &n.ExecutionKeys,
			"idempotency_keys": &n.IdempotencyKeys, "events": &n.Events, "waitpoints": &n.Waitpoints, "waitpoints WHERE state <> 'closed'": &n.OpenWaitpoints,
			"waits": &n.Waits, "signals": &n.Signals, "signals WHERE open = 1": &n.OpenSignals, "suspend_keys": &n.SuspendKeys} {
			if err := q.Get(into, "SELECT count(*) FROM "+table); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

// same checks that a call changes nothing: neither the executions named nor any table.
func (x *executionTest) same(call func() *apitest.Response, ids ...uuid.UUID) *apitest.Response {
	x.t.Helper()
	return unmoved(x.t, func() executionSnapshot { return x.snapshot(ids...) }, call)
}

// refused checks that a call is refused with a code and changes nothing: neither the executions named nor any table.
func (x *executionTest) refused(code fault.Code, call func() *apitest.Response, ids ...uuid.UUID) *apitest.Response {
	x.t.Helper()
	return x.same(call, ids...).Problem(code)
}

// unchanged checks that a call with an answer of this status changes nothing.
func (x *executionTest) unchanged(status int, call func() *apitest.Response, ids ...uuid.UUID) *apitest.Response {
	x.t.Helper()
	return x.same(call, ids...).Want(status)
}

// advance moves the clock and lets everything happen that is due then.
func (x *executionTest) advance(d time.Duration) {
	x.t.Helper()
	x.server.Advance(d)
}

// tamper changes stored rows behind the server's back.
func (x *executionTest) tamper(statement string, args ...any) {
	x.t.Helper()
	err := store.Do(x.t.Context(), x.server.App.Store(), func(tx *store.Tx) error { return tx.ExecOne(statement, args...) })
	if err != nil {
		x.t.Fatal(err)
	}
}

// answerAs returns the body of an answer as a T.
func answerAs[T any](answer *apitest.Response) T {
	var v T
	answer.Into(&v)
	return v
}

// rowID returns an id as it is stored.
func rowID(id uuid.UUID) store.ID { return store.ID(id) }
