package modeltest

import (
	"fmt"
	"strconv"
	"strings"
)

// answer is what a server says to a request, as far as it matters. The model says the same.
type answer struct {
	Status int
	Code   string            // of a refusal
	Replay bool              // nothing was done because it had been done before
	Shown  []executionView   // executions in the body
	Claims []claimView       // claims in the body
	Items  []answer          // items in the body
	Facts  map[string]string // the other members of the body that are not null
}

// claimView is a claim. The owner stands for what only the server knows: lease id, attempt id, handle.
type claimView struct {
	Execution executionView
	Kind      string
	Owner     int
	Epoch     int64
	Index     int
	Expires   string
}

// executionView is an execution as the API shows it.
type executionView struct {
	Name, Lane, Vector, Public, Blocking         string
	Priority                                     int
	Needs, Tags                                  string
	Current                                      int // -1 for none
	Attempts, Retries, Replays, Reclaims         int
	Created, Started, Completed, Delay, Deadline string
	Lease, Cancellation, Failure, Progress       string
	Suspension                                   string
	Revision                                     int64
}

func (v vector) String() string {
	return strings.Join([]string{v.phase, v.owner, v.eligible, v.blocking, v.outcome, v.attempt}, " ")
}

func (m *model) view(e *execution) executionView {
	v := executionView{
		Name: e.name, Lane: e.lane, Vector: e.vector.String(), Public: publicOf(e.vector), Blocking: e.blocking, Priority: e.priority,
		Needs: strings.Join(e.needs, ","), Tags: sortedTags(e.tags), Current: e.current, Attempts: len(e.attempts), Retries: e.retries, Replays: e.replays,
		Reclaims: e.reclaims, Created: m.at(e.created), Started: m.at(e.started), Completed: m.at(e.completed), Delay: m.at(e.delay),
		Deadline: m.at(e.deadline), Revision: e.revision, Failure: e.failure.String(),
	}
	if e.phase == "active" && e.vector.owner == "leased" {
		v.Lease = leaseText(e.owner.number, e.epoch, e.owner.worker, e.owner.instance, m.at(e.owner.acquired), m.at(e.expires))
	}
	if c := e.cancellation; c != nil {
		v.Cancellation = cancellationText(c.reason, m.at(c.requested), m.at(c.deadline))
	}
	if s := e.suspension; s != nil {
		v.Suspension = m.suspensionText(s)
	}
	if p := e.progress; p != nil {
		v.Progress = progressText(p.pct, p.message, m.at(p.at))
	}
	return v
}

func leaseText(number int, epoch int64, worker, instance, acquired, expires string) string {
	return fmt.Sprintf("#%d @%d %s/%s %s to %s", number, epoch, worker, instance, acquired, expires)
}

func cancellationText(reason, requested, deadline string) string {
	return fmt.Sprintf("%q %s until %s", reason, requested, deadline)
}

func progressText(pct *int, message *string, at string) string {
	text := at
	if pct != nil {
		text += fmt.Sprintf(" %d%%", *pct)
	}
	if message != nil {
		text += fmt.Sprintf(" %q", *message)
	}
	return text
}

func (f *failure) String() string {
	if f == nil {
		return ""
	}
	return f.reason + " (" + f.category + ")"
}

// tries shows e's attempts, one line each.
func (m *model) tries(e *execution) []string {
	var all []string
	for i, a := range e.attempts {
		all = append(all, attemptText(i, a.kind, a.state, a.worker, a.instance, a.epoch, m.at(a.started), m.at(a.ended), a.failure.String(), a.reclaim, a.previous))
	}
	return all
}

func attemptText(index int, kind, state, worker, instance string, epoch int64, started, ended, failed, reclaim string, previous int) string {
	return fmt.Sprintf("%d %s %s %s/%s @%d %s to %s failed=%s reclaim=%s after=%d", index, kind, state, worker, instance, epoch, started, ended, failed, reclaim, previous)
}

// refused is the answer to what the state does not allow.
func refused(code string) answer {
	status := 409
	switch code {
	case "not_found":
		status = 404
	case "invalid_handle":
		status = 400
	case "revision_mismatch":
		status = 412
	case "invalid_token", "self_approval":
		status = 403
	case "invalid_capabilities", "timer_out_of_range", "invalid_tag_key", "validation_failed", "invalid_condition":
		status = 422
	}
	return answer{Status: status, Code: code}
}

// ok is an answer with members: names and values in turn. Empty ones are null.
func ok(members ...string) answer {
	a := answer{Status: 200, Facts: map[string]string{}}
	for i := 0; i < len(members); i += 2 {
		if members[i+1] != "" {
			a.Facts[members[i]] = members[i+1]
		}
	}
	return a
}

func (a answer) showing(views ...executionView) answer {
	a.Shown = views
	return a
}

func number[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }
