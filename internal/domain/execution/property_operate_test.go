package execution_test

import (
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// suspend gives the lease back until something happens. Its owner, who has done so, is told; it is never a replay.
func (m *machine) suspend(t *rapid.T) {
	f := m.fence(t)
	_, code := m.expected("", f)
	if m.phase == execution.Suspended && m.owns(f) {
		code = fault.CodeAlreadySuspended
	}
	s := execution.Suspension{ID: id(70), Reason: execution.SuspendSignal, Waitpoints: []execution.Bound{{ID: id(71), Key: "go"}}, TimeoutAt: m.now.Add(time.Minute),
		Behavior: rapid.SampledFrom([]execution.TimeoutBehavior{execution.OnTimeoutFail, execution.OnTimeoutCancel, execution.OnTimeoutExpire, execution.OnTimeoutResume, execution.OnTimeoutEscalate}).Draw(t, "behavior")}
	if rapid.Bool().Draw(t, "resume delay") {
		s.Policy.DelayMS = 9000
	}
	before := document(t, m.e)
	c, err := m.e.Suspend(f, s, m.now)
	switch {
	case fault.CodeOf(err) != code:
		t.Fatalf("suspend of %v: %v, want %q", m.e.Vector, err, code)
	case document(t, m.e) != before:
		t.Fatal("suspend changed its receiver")
	case err != nil && !cmp.Equal(execution.Change{}, c):
		t.Fatalf("a refusal changed something: %+v", c)
	case err == nil:
		left := m.e.AttemptTimeoutAt
		m.apply(t, c, false)
		m.phase, m.last = execution.Suspended, ""
		if !m.e.AttemptTimeoutAt.IsZero() || !left.IsZero() && m.e.Released.AttemptLeft != max(left.Sub(m.now), time.Millisecond) {
			t.Fatalf("the attempt's time is %s, %s was left", m.e.AttemptTimeoutAt, m.e.Released.AttemptLeft)
		}
	}
}

// owns says whether f is the fence of the last acquisition.
func (m *machine) owns(f execution.Fence) bool {
	index := f.AttemptIndex
	f.AttemptIndex = m.holder.AttemptIndex
	return f == m.holder && (index == m.holder.AttemptIndex || index == execution.AnyAttempt)
}

// wake lets a signal, an operator or the timeout end a suspension.
func (m *machine) wake(t *rapid.T) {
	if m.phase != execution.Suspended {
		if _, err := m.e.Resume(0, m.now); fault.CodeOf(err) != fault.CodeNotSuspended {
			t.Fatalf("resume of %v: %v", m.e.Vector, err)
		}
		return
	}
	before, delay := document(t, m.e), time.Duration(m.e.Suspension.Policy.DelayMS)*time.Millisecond
	var c execution.Change
	escalated := false
	switch rapid.SampledFrom([]string{"signal", "signal with a delay", "operator", "timeout"}).Draw(t, "by") {
	case "signal":
		c = m.e.Wake("s", nil, m.now)
	case "signal with a delay":
		delay = 4 * time.Second
		c = m.e.Wake("s", &delay, m.now)
	case "operator":
		delay = 0
		var err error
		if c, err = m.e.Resume(0, m.now); err != nil {
			t.Fatal(err)
		}
	case "timeout":
		delay = 0
		c, escalated = m.e.TimeOut(m.now)
	}
	if document(t, m.e) != before {
		t.Fatal("it changed its receiver")
	}
	m.apply(t, c, false)
	switch {
	case escalated:
		if m.e.Blocking != execution.PausedByOperator {
			t.Fatalf("escalated to %v", m.e.Vector)
		}
		return
	case m.e.Lifecycle == execution.Terminal:
		m.phase = execution.Terminal
		return
	}
	m.phase = execution.Runnable
	if delay > 0 != (m.e.Public() == execution.PublicDelayed) || delay > 0 && !m.e.DelayUntil.Equal(m.now.Add(delay)) {
		t.Fatalf("it goes on as %v at %s, want after %s", m.e.Vector, m.e.DelayUntil, delay)
	}
}

func (m *machine) cancel(t *rapid.T) {
	before := document(t, m.e)
	c, err := m.e.Cancel(execution.Cancellation{Reason: "enough", Actor: "ops", RequestedAt: m.now}, m.now)
	switch {
	case m.e.Outcome == execution.OutcomeCancelled:
		if err != nil || document(t, c.Execution) != before || c.Events != nil {
			t.Fatalf("a second cancel: %v, %+v", err, c)
		}
	case m.phase == execution.Terminal:
		if fault.CodeOf(err) != fault.CodeAlreadyTerminal {
			t.Fatalf("cancel of %v: %v", m.e.Vector, err)
		}
	case err != nil:
		t.Fatalf("cancel of %v: %v", m.e.Vector, err)
	default:
		if m.apply(t, c, false); m.e.Lease.Epoch > 0 && m.e.Lease.Epoch <= m.holder.LeaseEpoch {
			t.Fatalf("the epoch is still %d: a late worker would not be fenced", m.e.Lease.Epoch)
		}
		m.phase, m.lost = execution.Terminal, false
	}
}

// sweep lets happen what is due, and checks that nothing is left that is.
func (m *machine) sweep(t *rapid.T) {
	for n := 0; ; n++ {
		c, ok := m.e.Pass(m.now)
		if !ok {
			break
		}
		if n > 3 {
			t.Fatalf("time changes %v again and again", m.e.Vector)
		}
		if due := m.e.DueAt(); due.IsZero() || due.After(m.now) {
			t.Fatalf("due at %s, changed at %s", due, m.now)
		}
		from := m.e
		m.apply(t, c, false)
		switch {
		case m.e.Outcome == execution.OutcomeExpired && m.e.Failure.Reason == "execution_deadline":
			if from.DeadlineAt.IsZero() || m.now.Before(from.DeadlineAt) {
				t.Fatalf("expired at %s, the deadline is %s", m.now, from.DeadlineAt)
			}
			m.phase, m.lost = execution.Terminal, false
		case from.Lifecycle == execution.Active && m.e.Ownership == execution.Unowned: // an attempt ran out of time
			if from.AttemptTimeoutAt.IsZero() || m.now.Before(from.AttemptTimeoutAt) {
				t.Fatalf("timed out at %s instead of %s", m.now, from.AttemptTimeoutAt)
			}
			m.ended(t, m.retries < m.maxRetries, m.delay(m.retries))
			if (m.e.Outcome == execution.OutcomeExpired) != (m.phase == execution.Terminal) {
				t.Fatalf("an attempt that ran out of time ended as %v", m.e.Vector)
			}
		case m.e.Ownership == execution.LeaseExpired:
			if m.lost || m.now.Before(m.expires) {
				t.Fatalf("the lease until %s was found expired at %s", m.expires, m.now)
			}
			m.lost = true
		case from.Eligibility == execution.NotEligibleUntilTime && m.e.Eligibility == execution.EligibleNow && !m.now.Before(from.DelayUntil):
		default:
			t.Fatalf("time made %v of %v", m.e.Vector, from.Vector)
		}
	}
	if due := m.e.DueAt(); !due.IsZero() && !due.After(m.now) {
		t.Fatalf("%v is due at %s, now is %s", m.e.Vector, due, m.now)
	}
}
