package modeltest

import (
	"fmt"
	"slices"
	"strings"
)

// legal are the combinations that an execution may stand in, without the attempt state of those that wait or have ended.
// executions.md 1.9.2.
var legal = map[string]string{ // to the public state
	"runnable unowned eligible_now waiting_for_worker none":                   "waiting",
	"runnable unowned not_eligible_until_time waiting_for_delay none":         "delayed",
	"runnable unowned not_eligible_until_time waiting_for_retry_backoff none": "delayed",
	"runnable unowned not_eligible_until_time waiting_for_resume_delay none":  "delayed",
	"runnable unowned blocked_by_dependencies waiting_for_children none":      "waiting_children",
	"suspended unowned not_applicable waiting_for_signal none":                "suspended",
	"suspended unowned not_applicable waiting_for_approval none":              "suspended",
	"suspended unowned not_applicable paused_by_operator none":                "suspended",
	"active leased not_applicable none none":                                  "active",
	"active lease_expired_reclaimable not_applicable waiting_for_worker none": "active",
	"active lease_revoked not_applicable waiting_for_worker none":             "active",
	"terminal unowned not_applicable none success":                            "completed",
	"terminal unowned not_applicable none failed":                             "failed",
	"terminal unowned not_applicable none cancelled":                          "cancelled",
	"terminal unowned not_applicable none expired":                            "expired",
}

// attemptsOf are the attempt states that go with a lifecycle phase.
var attemptsOf = map[string][]string{
	"runnable":  {"pending_first_attempt", "pending_retry_attempt", "pending_replay_attempt", "attempt_interrupted"},
	"suspended": {"attempt_interrupted"},
	"active":    {"running_attempt", "attempt_interrupted"},
	"terminal":  {"attempt_terminal", "pending_first_attempt", "pending_replay_attempt"},
}

// hold checks the invariants of executions.md 5 over two snapshots that follow each other, without the model.
func (s *side) hold(before, now snapshot) {
	for name, v := range now.executions {
		if wrong := invariants(v, now.attempts[name], now.logged[name]); wrong != "" {
			s.Failf("%s: %s\n%+v\n%s", name, wrong, v, strings.Join(now.events[name], "\n"))
		}
		if old, known := before.executions[name]; known {
			fresh := now.logged[name][len(before.logged[name]):]
			if wrong := transition(old, v, before.attempts[name], now.attempts[name], fresh); wrong != "" {
				s.Failf("%s: %s\nbefore %+v\nafter  %+v\n%v", name, wrong, old, v, fresh)
			}
		}
	}
	for name := range before.executions {
		if _, there := now.executions[name]; !there {
			s.Failf("%s is gone", name)
		}
	}
}

// invariants says what is wrong with an execution, its attempts and its events.
func invariants(v executionView, attempts []attemptView, events []logged) string {
	if wrong := ofAttempts(attempts); wrong != "" {
		return wrong
	}
	if wrong := ofVector(v, attempts); wrong != "" {
		return wrong
	}
	return ofEvents(v, len(attempts), events)
}

// ofAttempts says what is wrong with the attempts, each by itself and after the one before.
func ofAttempts(attempts []attemptView) string {
	for i, a := range attempts {
		if a.Index != i {
			return fmt.Sprintf("5/8: attempt %d stands in place %d", a.Index, i)
		}
		if (a.Ended == nil) != (a.State == "started" || a.State == "suspended") {
			return fmt.Sprintf("attempt %d is %s and has ended at %v", i, a.State, a.Ended)
		}
		if a.PreviousIndex >= i {
			return fmt.Sprintf("attempt %d comes after %d", i, a.PreviousIndex)
		}
		if i > 0 && a.Epoch <= attempts[i-1].Epoch {
			return fmt.Sprintf("5/3: attempt %d has epoch %d after %d", i, a.Epoch, attempts[i-1].Epoch)
		}
	}
	return ""
}

// ofVector says what is wrong with what is shown, by the vector.
func ofVector(v executionView, attempts []attemptView) string {
	at := strings.Fields(v.Vector)
	phase, attemptState := at[0], at[5]
	public, isLegal := legal[strings.Join(at[:5], " ")]
	open := 0
	for _, a := range attempts {
		if a.Ended == nil {
			open++
		}
	}
	hasAttempt := attemptState == "running_attempt" || attemptState == "attempt_interrupted"
	switch {
	case !isLegal || !slices.Contains(attemptsOf[phase], attemptState):
		return "5/9: the vector is not legal"
	case v.Public != public || v.Blocking != at[3]:
		return "5/9: the public state, or the reason, is not that of the vector"
	case (attemptState == "running_attempt") != (at[1] == "leased"):
		return "an attempt runs just when somebody holds it"
	case (v.Lease != "") != (at[1] == "leased"):
		return "5/7: the lease is shown just when somebody holds it"
	case v.Attempts != len(attempts) || v.Current != len(attempts)-1:
		return fmt.Sprintf("5/8: %d attempts", len(attempts))
	case open > 1 || (open == 1) != hasAttempt:
		return fmt.Sprintf("5/8: %d open attempts", open)
	case (v.Completed != "") != (phase == "terminal"):
		return "5/13: completed_at"
	case (v.Started != "") != (len(attempts) > 0):
		return "5/13: started_at"
	case v.Priority < 0 || v.Priority > 9000:
		return "5/15: the priority"
	case (v.Delay != "") != (at[2] == "not_eligible_until_time"):
		return "5/16: delay_until"
	case (v.Suspension != "" && !strings.Contains(v.Suspension, "closed")) != (phase == "suspended"):
		return "5/22: an open suspension"
	case v.Cancellation != "" && phase == "runnable", v.Cancellation == "" && v.Public == "cancelled":
		return "the cancellation"
	}
	return ""
}

// ofEvents says what is wrong with the events: with the epochs, who owns it and the revisions that they tell of.
func ofEvents(v executionView, attempts int, events []logged) string {
	leases := 0
	epoch, owned, revision := int64(0), false, int64(-1)
	for _, e := range events {
		switch e.kind {
		case "lease.acquired", "lease.reclaimed":
			if e.epoch <= epoch || owned {
				return fmt.Sprintf("5/1, 3: acquired at epoch %d after %d, owned %t", e.epoch, epoch, owned)
			}
			epoch, owned = e.epoch, true
			leases++
		case "lease.renewed":
			if e.epoch != epoch || !owned {
				return fmt.Sprintf("5/6: renewed at epoch %d, at %d, owned %t", e.epoch, epoch, owned)
			}
		case "lease.expired", "lease.revoked":
			if e.epoch < epoch {
				return fmt.Sprintf("5/3: epoch %d after %d", e.epoch, epoch)
			}
			epoch, owned = e.epoch, false
		}
		if e.revision < 0 {
			continue // it tells of a waitpoint
		}
		if e.revision < revision {
			return fmt.Sprintf("revision %d after %d", e.revision, revision)
		}
		revision = e.revision
	}
	switch {
	case owned != (strings.Fields(v.Vector)[1] == "leased"):
		return "5/1: who owns it by its events is not who does"
	case revision > v.Revision:
		return fmt.Sprintf("its last event has revision %d", revision)
	case leases < attempts:
		return "an attempt without an acquisition"
	}
	return ""
}

// transition says what is wrong with a change.
func transition(old, now executionView, before, after []attemptView, fresh []logged) string {
	replayed := slices.ContainsFunc(fresh, func(e logged) bool { return e.kind == "operator.replayed" })
	completions, own := 0, 0
	for _, e := range fresh {
		if e.revision >= 0 {
			own++
		}
		if e.topic == "completion" {
			completions++
		}
	}
	entered := 0
	if now.Completed != "" && (old.Completed == "" || replayed) {
		entered = 1
	}
	switch {
	case old.Created != now.Created || old.Needs != now.Needs || old.Lane != now.Lane:
		return "5/13: what never changes"
	case old.Started != "" && old.Started != now.Started:
		return "5/13: started_at"
	case old.Completed != "" && now.Completed != old.Completed && !replayed:
		return "5/10: it has left its end"
	case completions != entered:
		return fmt.Sprintf("5/11: %d completion events for %d ends", completions, entered)
	case now.Revision < old.Revision, own > 0 && now.Revision == old.Revision:
		return "the revision"
	case !replayed && (now.Retries < old.Retries || now.Reclaims < old.Reclaims) || now.Replays < old.Replays || now.Attempts < old.Attempts:
		return "a counter has gone back"
	case len(after) < len(before):
		return "5/8: an attempt is gone"
	}
	for i, a := range before {
		if a.Ended != nil && a.Text != after[i].Text {
			return fmt.Sprintf("attempt %d has ended, and changed", i)
		}
	}
	return ""
}
