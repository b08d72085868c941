package execution_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// machine is one execution under random operations by several workers, beside the little that a reference model needs to
// know of it. reference: executions.md 5.
type machine struct {
	e        execution.Execution
	now      time.Time
	attempts []execution.Attempt
	closed   map[int]execution.CloseReason // streams of attempts
	fences   []execution.Fence             // of every acquisition, the first first

	// What the model knows.

	maxRetries  int // 0 without a retry policy
	maxReclaims int
	delay       func(retries int) time.Duration
	phase       execution.Lifecycle
	holder      execution.Fence // of the last acquisition
	expires     time.Time
	lost        bool // the lease was found to have run out
	last        execution.Op
	retryAt     time.Time // what the last fail was answered
	started     time.Time
	completions int
	retries     int
	reclaims    int
}

func newMachine(t *rapid.T) *machine {
	m := &machine{now: start, closed: map[int]execution.CloseReason{}, phase: execution.Runnable, maxReclaims: rapid.IntRange(0, 3).Draw(t, "max reclaims")}
	members := []string{fmt.Sprintf(`"max_reclaim_count":%d`, m.maxReclaims)}
	m.delay = func(int) time.Duration { return 0 }
	switch rapid.SampledFrom([]string{"none", "fixed", "exponential"}).Draw(t, "retry policy") {
	case "fixed":
		m.maxRetries = rapid.IntRange(0, 3).Draw(t, "max retries")
		m.delay = func(int) time.Duration { return 7 * time.Second }
		members = append(members, fmt.Sprintf(`"retry_policy":{"max_retries":%d,"backoff":{"type":"fixed","delay_ms":7000}}`, m.maxRetries))
	case "exponential":
		m.maxRetries = rapid.IntRange(0, 6).Draw(t, "max retries")
		m.delay = func(k int) time.Duration { return time.Duration(math.Min(2*math.Pow(3, float64(k)), 30)) * time.Second }
		members = append(members, fmt.Sprintf(`"retry_policy":{"max_retries":%d,"backoff":{"initial_delay_ms":2000,"multiplier":3,"max_delay_ms":30000}}`, m.maxRetries))
	}
	if rapid.Bool().Draw(t, "attempt timeout") {
		members = append(members, `"timeout_policy":{"attempt_timeout_ms":25000}`)
	}
	in := execution.Create{ID: id(1), Namespace: "default", Lane: "ci", Policy: json.RawMessage("{" + strings.Join(members, ",") + "}")}
	if rapid.Bool().Draw(t, "delayed") {
		in.Delay = 5 * time.Second
	}
	if rapid.IntRange(0, 3).Draw(t, "deadline") == 0 {
		in.DeadlineAt = after(90)
	}
	c, err := execution.New(in, m.now)
	if err != nil {
		t.Fatal(err)
	}
	m.e = c.Execution
	return m
}

// document is the whole of an execution, to compare.
func document(t *rapid.T, e execution.Execution) string {
	doc, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// apply takes a change over, after looking at everything that must be true of every change.
func (m *machine) apply(t *rapid.T, c execution.Change, renewal bool) {
	before, after := m.e, c.Execution
	if !after.Legal() {
		t.Fatalf("%v → %v, which is not legal", before.Vector, after.Vector)
	}
	if before.Lifecycle == execution.Terminal {
		t.Fatalf("%v is terminal and became %v", before.Vector, after.Vector)
	}
	if after.Revision != before.Revision+1 || len(c.Events) == 0 {
		t.Fatalf("revision %d → %d with %d events", before.Revision, after.Revision, len(c.Events))
	}
	m.checkEvents(t, c, renewal)
	m.checkAttempts(t, c.Attempts)

	switch {
	case after.Lease.Epoch < before.Lease.Epoch:
		t.Fatalf("epoch %d → %d", before.Lease.Epoch, after.Lease.Epoch)
	case !after.CreatedAt.Equal(start) || after.Priority != before.Priority:
		t.Fatalf("created at %s, priority %d", after.CreatedAt, after.Priority)
	case !before.StartedAt.IsZero() && !after.StartedAt.Equal(before.StartedAt):
		t.Fatalf("started at %s → %s", before.StartedAt, after.StartedAt)
	case after.CompletedAt.IsZero() == (after.Lifecycle == execution.Terminal):
		t.Fatalf("%s, completed at %s", after.Lifecycle, after.CompletedAt)
	case !after.CompletedAt.IsZero() && (!after.CompletedAt.Equal(m.now) || after.CompletedAt.Before(after.StartedAt)):
		t.Fatalf("started at %s, completed at %s, now %s", after.StartedAt, after.CompletedAt, m.now)
	case after.Lease.ExpiresAt.IsZero() == (after.Ownership == execution.Leased):
		t.Fatalf("%s, lease until %s", after.Ownership, after.Lease.ExpiresAt)
	case after.Retries > m.maxRetries || after.Reclaims > m.maxReclaims:
		t.Fatalf("%d retries of %d, %d takeovers of %d", after.Retries, m.maxRetries, after.Reclaims, m.maxReclaims)
	case after.Suspension.Open() != (after.Lifecycle == execution.Suspended):
		t.Fatalf("%s, and its suspension is %+v", after.Lifecycle, after.Suspension)
	case after.Attempts > 1+after.Retries+after.Reclaims:
		t.Fatalf("%d attempts, %d retries, %d takeovers", after.Attempts, after.Retries, after.Reclaims)
	}
	m.e = after
}

// checkEvents: one lease event for each change of ownership or renewal, one completion for each entry into the terminal phase.
func (m *machine) checkEvents(t *rapid.T, c execution.Change, renewal bool) {
	var leases, completions []event.Type
	for _, e := range c.Events {
		if e.ExecutionID != c.Execution.ID || e.Revision == nil || *e.Revision != c.Execution.Revision {
			t.Fatalf("event %s tells of %s at revision %v", e.Type, e.ExecutionID, e.Revision)
		}
		data, err := json.Marshal(e.Data)
		if err != nil || strings.Contains(string(data), m.e.Lease.AttemptID.String()) && m.e.Lease.Epoch > 0 {
			t.Fatalf("event %s: %v: %s", e.Type, err, data)
		}
		switch e.Type.Topic() {
		case event.TopicLease:
			leases = append(leases, e.Type)
		case event.TopicCompletion:
			completions = append(completions, e.Type)
		}
	}
	var wantLeases, wantCompletions []event.Type
	from, to := m.e.Ownership, c.Execution.Ownership
	switch {
	case renewal:
		wantLeases = []event.Type{event.LeaseRenewed}
	case from == execution.LeaseExpired && to == execution.Leased:
		wantLeases = []event.Type{event.LeaseReclaimed}
	case from != to && to == execution.Leased:
		wantLeases = []event.Type{event.LeaseAcquired}
	case from != to && to == execution.LeaseExpired:
		wantLeases = []event.Type{event.LeaseExpired}
	case from != to:
		wantLeases = []event.Type{event.LeaseRevoked}
	}
	if c.Execution.Lifecycle == execution.Terminal {
		m.completions++
		wantCompletions = []event.Type{map[execution.Outcome]event.Type{
			execution.OutcomeSuccess: event.ExecutionCompleted, execution.OutcomeFailed: event.ExecutionFailed,
			execution.OutcomeExpired: event.ExecutionExpired, execution.OutcomeCancelled: event.ExecutionCancelled,
		}[c.Execution.Outcome]}
	}
	if !cmp.Equal(wantLeases, leases) || !cmp.Equal(wantCompletions, completions) {
		t.Fatalf("%v → %v tells %v %v, want %v %v", m.e.Vector, c.Execution.Vector, leases, completions, wantLeases, wantCompletions)
	}
}

// checkAttempts applies changes of attempts: indexes count from 0 without gaps, and an attempt that has ended stays so.
func (m *machine) checkAttempts(t *rapid.T, changes []execution.AttemptChange) {
	for _, c := range changes {
		switch {
		case c.Open != nil && (c.Open.Index != len(m.attempts) || c.Index != c.Open.Index):
			t.Fatalf("attempt %d was opened after %d others", c.Open.Index, len(m.attempts))
		case c.Open != nil:
			m.attempts = append(m.attempts, *c.Open)
			continue
		case c.Index < 0 || c.Index >= len(m.attempts) || !m.attempts[c.Index].EndedAt.IsZero():
			t.Fatalf("attempt %d was changed to %s; there are %d: %+v", c.Index, c.Stage, len(m.attempts), m.attempts)
		}
		if c.Close != "" {
			if was, ok := m.closed[c.Index]; ok && c.Close != execution.ClosedReclaimed {
				t.Fatalf("the stream of attempt %d closed as %s, and again as %s", c.Index, was, c.Close)
			}
			m.closed[c.Index] = c.Close
		}
		a := &m.attempts[c.Index]
		a.Stage, a.EndedAt, a.Failure = c.Stage, c.EndedAt, c.Failure
		if c.Lease != nil {
			a.WorkerID, a.LeaseEpoch = c.Lease.WorkerID, c.Lease.Epoch
		}
	}
}

// check looks at everything that must be true between the operations.
func (m *machine) check(t *rapid.T) {
	e := &m.e
	if len(m.attempts) != e.Attempts || e.AttemptIndex != e.Attempts-1 {
		t.Fatalf("%d attempts are known, %d counted, the current one is %d", len(m.attempts), e.Attempts, e.AttemptIndex)
	}
	for i, a := range m.attempts {
		last := i == len(m.attempts)-1
		open := a.Stage == execution.StageStarted || a.Stage == execution.StageSuspended
		_, closed := m.closed[i]
		switch {
		case closed != (!open || e.Lost()):
			t.Fatalf("attempt %d of %d is %s, its stream closed: %t, of an execution that stands at %v", i, len(m.attempts), a.Stage, closed, e.Vector)
		case open != a.EndedAt.IsZero(), open && !last, open && e.Lifecycle == execution.Terminal:
			t.Fatalf("attempt %d of %d is %s, ended at %s, of an execution that is %s", i, len(m.attempts), a.Stage, a.EndedAt, e.Lifecycle)
		case last && e.Ownership == execution.Leased && (a.Stage != execution.StageStarted || a.LeaseEpoch != e.Lease.Epoch || a.WorkerID != e.Lease.WorkerID):
			t.Fatalf("the lease is %+v, the attempt %+v", e.Lease, a)
		}
	}
	valid := 0
	for _, f := range m.fences {
		if e.Check(f, m.now) == nil {
			valid++
		}
	}
	want := 0
	if m.phase == execution.Active && !m.lost && m.expires.After(m.now) {
		want = 1
	}
	if valid != want {
		t.Fatalf("%d fences are valid, want %d: %v, until %s, now %s", valid, want, e.Vector, e.Lease.ExpiresAt, m.now)
	}
	switch {
	case e.Lifecycle != m.phase:
		t.Fatalf("%s, want %s", e.Lifecycle, m.phase)
	case m.completions > 1 || (m.completions == 1) != (e.Lifecycle == execution.Terminal):
		t.Fatalf("%d completions of what is %s", m.completions, e.Lifecycle)
	case !e.StartedAt.Equal(m.started) || e.Retries != m.retries || e.Reclaims != m.reclaims:
		t.Fatalf("started %s, %d retries, %d takeovers, want %s, %d, %d", e.StartedAt, e.Retries, e.Reclaims, m.started, m.retries, m.reclaims)
	}
}

// expected is how the model judges a worker's call: replayed, refused with a code, or done.
func (m *machine) expected(op execution.Op, f execution.Fence) (replayed bool, code fault.Code) {
	own := m.owns(f)
	switch {
	case op != "" && m.last == op && own:
		return true, ""
	case m.phase != execution.Active:
		return false, fault.CodeExecutionNotActive
	case m.lost || !m.expires.After(m.now):
		return false, fault.CodeLeaseExpired
	case !own:
		return false, fault.CodeStaleLease
	}
	return false, ""
}

// fence draws one of those that were given out, of today or of long ago, whole or a little changed.
func (m *machine) fence(t *rapid.T) execution.Fence {
	if len(m.fences) == 0 {
		return execution.Fence{ExecutionID: m.e.ID, LeaseID: id(98), AttemptID: id(99), LeaseEpoch: 1}
	}
	f := m.fences[len(m.fences)-1]
	switch rapid.IntRange(0, 9).Draw(t, "fence") {
	case 0, 1:
		f = rapid.SampledFrom(m.fences).Draw(t, "old fence")
	case 2:
		f.AttemptIndex = execution.AnyAttempt
	case 3:
		f.AttemptID = id(99)
	case 4:
		f.LeaseEpoch++
	}
	return f
}

// call makes one worker's call and says whether it changed something.
func (m *machine) call(t *rapid.T, op execution.Op, f execution.Fence, do func(e execution.Execution) (execution.Change, bool, error)) (execution.Change, bool) {
	before := document(t, m.e)
	replay, code := m.expected(op, f)
	c, replayed, err := do(m.e)
	if fault.CodeOf(err) != code || replayed != replay {
		t.Fatalf("%s: replayed %t, %v, want %t, %q", op, replayed, err, replay, code)
	}
	if now := document(t, m.e); now != before {
		t.Fatalf("%s changed its receiver:\n%s\n%s", op, before, now)
	}
	switch {
	case err != nil && !cmp.Equal(execution.Change{}, c):
		t.Fatalf("a refusal changed something: %+v", c)
	case replayed && (document(t, c.Execution) != before || c.Events != nil || c.Attempts != nil):
		t.Fatalf("a replay changed something: %+v", c)
	case replayed && op == execution.OpFail && !c.Execution.Released.RetryAt.Equal(m.retryAt):
		t.Fatalf("a replayed fail is answered %s, and was answered %s", c.Execution.Released.RetryAt, m.retryAt)
	}
	return c, err == nil && !replayed
}

func (m *machine) claim(t *rapid.T) {
	by := execution.Claimant{WorkerID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "worker"), InstanceID: "1",
		TTL: time.Duration(rapid.IntRange(1, 60).Draw(t, "ttl")) * time.Second, LeaseID: id(byte(100 + 2*len(m.fences)%100)), AttemptID: id(byte(101 + 2*len(m.fences)%100))}
	before := document(t, m.e)
	claimable := m.phase == execution.Runnable && m.e.Eligibility == execution.EligibleNow || m.phase == execution.Active && m.lost
	c, kind, err := m.e.Claim(by, m.now)
	if (err == nil) != claimable || m.e.Claimable() != claimable || err != nil && fault.CodeOf(err) != fault.CodeIllegalTransition {
		t.Fatalf("claim of %v: %v", m.e.Vector, err)
	}
	if now := document(t, m.e); now != before {
		t.Fatalf("claim changed its receiver:\n%s\n%s", before, now)
	}
	if err != nil {
		return
	}
	if m.phase == execution.Runnable && m.now.Before(m.e.DelayUntil) {
		t.Fatalf("claimed at %s, delayed until %s", m.now, m.e.DelayUntil)
	}
	want := map[execution.AttemptState]execution.ClaimKind{execution.AttemptPendingFirst: execution.ClaimFresh, execution.AttemptPendingRetry: execution.ClaimRetry,
		execution.AttemptInterrupted: execution.ClaimResumed}[m.e.Attempt]
	if m.lost {
		want = execution.ClaimReclaimed
	}
	made := len(m.attempts)
	if m.lost && m.reclaims == m.maxReclaims { // once too often
		m.apply(t, c, false)
		if kind != "" || m.e.Outcome != execution.OutcomeFailed || m.e.Failure.Reason != "max_reclaims_exceeded" {
			t.Fatalf("takeover %d of %d: %q, %v", m.reclaims+1, m.maxReclaims, kind, m.e.Vector)
		}
		m.phase, m.last, m.lost = execution.Terminal, "", false
		return
	}
	if m.lost {
		m.reclaims++
	}
	epoch := m.e.Lease.Epoch
	m.apply(t, c, false)
	f := m.e.Fence()
	if kind != want || (kind == execution.ClaimResumed) != (len(m.attempts) == made) || m.e.Lease.Epoch <= epoch || f.LeaseID != by.LeaseID {
		t.Fatalf("a %s claim, want %s; %d → %d attempts, epoch %d → %d", kind, want, made, len(m.attempts), epoch, m.e.Lease.Epoch)
	}
	if (kind == execution.ClaimResumed) != (made > 0 && f.AttemptID == m.holder.AttemptID) {
		t.Fatalf("a %s claim has the attempt id %s, the one before %s", kind, f.AttemptID, m.holder.AttemptID)
	}
	m.phase, m.lost, m.last, m.holder, m.expires = execution.Active, false, "", f, m.now.Add(by.TTL)
	m.fences = append(m.fences, f)
	if m.started.IsZero() {
		m.started = m.now
	}
}

func (m *machine) renew(t *rapid.T) {
	f, ttl := m.fence(t), time.Duration(rapid.IntRange(1, 60).Draw(t, "ttl"))*time.Second
	c, done := m.call(t, "", f, func(e execution.Execution) (execution.Change, bool, error) {
		c, err := e.Renew(f, ttl, m.now)
		return c, false, err
	})
	if done {
		m.apply(t, c, true)
		if m.expires = m.now.Add(ttl); !m.e.Lease.ExpiresAt.Equal(m.expires) {
			t.Fatalf("renewed until %s, want %s", m.e.Lease.ExpiresAt, m.expires)
		}
	}
}

func (m *machine) progress(t *rapid.T) {
	f := m.fence(t)
	pct := rapid.Ptr(rapid.IntRange(0, 100), true).Draw(t, "pct")
	message := rapid.Ptr(rapid.SampledFrom([]string{"", "compiling", "testing"}), true).Draw(t, "message")
	c, done := m.call(t, "", f, func(e execution.Execution) (execution.Change, bool, error) {
		c, err := e.Report(f, pct, message, m.now)
		return c, false, err
	})
	switch said := pct != nil || message != nil && *message != ""; {
	case done && said:
		m.apply(t, c, false)
	case done && document(t, c.Execution) != document(t, m.e):
		t.Fatal("a report that says nothing changed something")
	}
}

func (m *machine) complete(t *rapid.T) {
	f := m.fence(t)
	c, done := m.call(t, execution.OpComplete, f, func(e execution.Execution) (execution.Change, bool, error) { return e.Complete(f, m.now) })
	if done {
		m.apply(t, c, false)
		m.phase, m.last = execution.Terminal, execution.OpComplete
	}
}

func (m *machine) fail(t *rapid.T) {
	f := m.fence(t)
	failure := execution.Failure{Reason: "boom", Category: rapid.SampledFrom([]string{"", "transient", "infra_crash", "permanent"}).Draw(t, "category")}
	var retryAfter *time.Duration
	if rapid.IntRange(0, 4).Draw(t, "retry after") == 0 {
		retryAfter = new(3 * time.Second)
	}
	c, done := m.call(t, execution.OpFail, f, func(e execution.Execution) (execution.Change, bool, error) {
		return e.Fail(f, failure, retryAfter, m.now)
	})
	if !done {
		return
	}
	retried := failure.Category != "permanent" && m.retries < m.maxRetries
	delay := m.delay(m.retries)
	if retryAfter != nil {
		delay = *retryAfter
	}
	m.apply(t, c, false)
	m.ended(t, retried, delay)
	m.last = execution.OpFail
}

// ended notes that an attempt has failed, and checks what comes after it.
func (m *machine) ended(t *rapid.T, retried bool, delay time.Duration) {
	m.last, m.phase, m.lost, m.retryAt = "", execution.Terminal, false, time.Time{}
	if retried {
		m.phase, m.retryAt = execution.Runnable, m.now.Add(delay)
		m.retries++
		if !m.e.DelayUntil.Equal(m.retryAt) || m.e.Public() != execution.PublicDelayed {
			t.Fatalf("retry %d is %s until %s, want %s", m.retries, m.e.Public(), m.e.DelayUntil, m.retryAt)
		}
	}
}

func (m *machine) release(t *rapid.T) {
	f := m.fence(t)
	c, done := m.call(t, execution.OpRelease, f, func(e execution.Execution) (execution.Change, bool, error) { return e.Release(f, m.now) })
	if done {
		m.apply(t, c, false)
		m.phase, m.last = execution.Runnable, execution.OpRelease
	}
}

// TestMachine_Property: random interleavings of everything that can happen to an execution, against a model.
func TestMachine_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"claim":    m.claim,
			"claim 2":  m.claim, // work is what it is for
			"renew":    m.renew,
			"progress": m.progress,
			"complete": m.complete,
			"fail":     m.fail,
			"release":  m.release,
			"suspend":  m.suspend,
			"wake":     m.wake,
			"cancel": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "cancel") == 0 {
					m.cancel(t)
				}
			},
			"time passes": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second)
			},
			"time passes and is looked": m.sweep,
			"a lease time passes": func(t *rapid.T) {
				if m.phase == execution.Active && !m.lost {
					m.now = m.expires
				}
				m.sweep(t)
			},
		})
	})
}
