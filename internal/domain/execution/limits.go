package execution

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Limits are the budgets and quotas that an execution, or a flow, was attached to when it was made. nil is none.
type Limits struct {
	BudgetIDs []uuid.UUID      `json:"budget_ids,omitempty"`
	QuotaIDs  []uuid.UUID      `json:"quota_policy_ids,omitempty"`
	Estimate  map[string]int64 `json:"estimate,omitempty"` // what one attempt is expected to spend, by dimension

	// What counts: its own and, for a member, those of its flow.
	Budgets []uuid.UUID `json:"budgets,omitempty"` // with their ancestors
	Quotas  []QuotaRef  `json:"quotas,omitempty"`
}

// QuotaRef is a quota as far as it never changes: the tag by whose values it counts, "" for one that counts all alike, and what it bounds.
type QuotaRef struct {
	ID     uuid.UUID `json:"id"`
	KeyTag string    `json:"key_tag,omitempty"`
	Rate   bool      `json:"rate,omitempty"` // it bounds how many begin
	Cap    bool      `json:"cap,omitempty"`  // it bounds how many are at work
}

// None says whether there is nothing to remember.
func (l *Limits) None() bool {
	return l == nil || len(l.BudgetIDs)+len(l.QuotaIDs)+len(l.Estimate)+len(l.Budgets)+len(l.Quotas) == 0
}

// Under returns l as that of a member of a flow with other limits, which count too.
func (l *Limits) Under(flow *Limits) *Limits {
	if flow.None() {
		return l
	}
	var own Limits
	if l != nil {
		own = *l
	}
	own.Budgets = compact(slices.Concat(own.Budgets, flow.Budgets), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	own.Quotas = compactQuotas(slices.Concat(own.Quotas, flow.Quotas))
	return &own
}

// Expecting returns l with an estimate.
func (l *Limits) Expecting(estimate map[string]int64) *Limits {
	var own Limits
	if l != nil {
		own = *l
	}
	own.Estimate = estimate
	return &own
}

// Counted returns the budgets that count for e.
func (e *Execution) Counted() []uuid.UUID {
	if e.Limits == nil {
		return nil
	}
	return e.Limits.Budgets
}

// Estimate returns what e is expected to spend.
func (e *Execution) Estimate() map[string]int64 {
	if e.Limits == nil {
		return nil
	}
	return e.Limits.Estimate
}

func compact[T comparable](list []T, order func(a, b T) int) []T {
	slices.SortFunc(list, order)
	return slices.Compact(list)
}

func compactQuotas(list []QuotaRef) []QuotaRef {
	return compact(list, func(a, b QuotaRef) int { return bytes.Compare(a.ID[:], b.ID[:]) })
}

// Terms are what decides, beside lane and capabilities, whether an execution may be claimed. Those with the same terms stand
// together. The zero value lets everybody pass.
type Terms struct {
	Budgets  []uuid.UUID      `json:"budgets,omitempty"`
	Estimate map[string]int64 `json:"estimate,omitempty"` // rounded up to powers of two, so that a large one does not stand before a small one
	Quotas   []QuotaTerm      `json:"quotas,omitempty"`
	Lane     string           `json:"lane,omitempty"` // the quotas of the lane, as [LaneQuotas] spells them
}

// LaneQuotas returns the one spelling of the quotas of a lane, "" for none.
func LaneQuotas(quotas []QuotaRef) string {
	ids := make([]string, len(quotas))
	for i, q := range quotas {
		ids[i] = q.ID.String()
	}
	return strings.Join(ids, ",")
}

// QuotaTerm is what a claim needs of one quota.
type QuotaTerm struct {
	ID    uuid.UUID `json:"id"`
	Key   string    `json:"key,omitempty"`
	Slot  bool      `json:"slot,omitempty"`  // one of those that may be at work
	Start bool      `json:"start,omitempty"` // one of those that may begin within the window
}

// Terms returns those of e, in a lane with quotas of its own; held are the quotas of which e has a slot already. An attempt that goes
// on is no new start.
func (e *Execution) Terms(lane []QuotaRef, held []uuid.UUID) Terms {
	t := Terms{Lane: LaneQuotas(lane)}
	if e.Limits != nil && len(e.Limits.Budgets) > 0 {
		t.Budgets = e.Limits.Budgets
		for dimension, n := range e.Limits.Estimate {
			if t.Estimate == nil {
				t.Estimate = map[string]int64{}
			}
			t.Estimate[dimension] = roundUp(n)
		}
	}
	quotas := lane
	if e.Limits != nil && len(e.Limits.Quotas) > 0 {
		quotas = compactQuotas(slices.Concat(lane, e.Limits.Quotas))
	}
	resumes := e.Attempt == AttemptInterrupted && !e.Lost()
	begins := e.Attempt == AttemptPendingFirst || e.Attempt == AttemptPendingReplay // what it has then was given by hand, and has counted
	for _, q := range quotas {
		has := slices.Contains(held, q.ID)
		term := QuotaTerm{ID: q.ID, Key: q.Key(e), Slot: q.Cap && !has, Start: q.Rate && !resumes && !(has && begins)}
		if term.Slot || term.Start {
			t.Quotas = append(t.Quotas, term)
		}
	}
	return t
}

// Key returns the value that a quota counts e under.
func (q QuotaRef) Key(e *Execution) string {
	if q.KeyTag == "" {
		return ""
	}
	return e.Tags[q.KeyTag]
}

func roundUp(n int64) int64 {
	if n <= 1 {
		return n
	}
	return 1 << bits.Len64(uint64(n-1))
}

// None says whether everybody may pass.
func (t *Terms) None() bool { return len(t.Budgets)+len(t.Quotas) == 0 && t.Lane == "" }

// Names says whether a limit that holds up somebody holds up everybody with terms t.
func (t *Terms) Names(h *Hold) bool {
	if h.By == HeldByBudget {
		return slices.Contains(t.Budgets, h.ID)
	}
	return slices.ContainsFunc(t.Quotas, func(q QuotaTerm) bool {
		return q.ID == h.ID && q.Key == h.Key && (h.Until.IsZero() && q.Slot || !h.Until.IsZero() && q.Start)
	})
}

// String returns the one spelling of t, "" for none.
func (t *Terms) String() string {
	if t.None() {
		return ""
	}
	text, err := json.Marshal(t) // the keys of a map are sorted
	if err != nil {
		panic(err) // ids, strings and numbers
	}
	return string(text)
}

// ParseTerms reads what [Terms.String] has written.
func ParseTerms(text string) (t Terms, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &t)
	}
	return t, err
}

// HeldBy says what kind of limit holds executions up.
type HeldBy string

// The kinds.
const (
	HeldByBudget HeldBy = "budget"
	HeldByQuota  HeldBy = "quota"
)

// Hold is why executions that wait for a claim cannot have it.
type Hold struct {
	By     HeldBy
	ID     uuid.UUID // of the budget, or the quota
	Key    string    // the dimension, or the value that the quota counts by
	Need   int64     // how much must be left there
	Detail string    // as a sentence
	Since  time.Time
	Until  time.Time // when time alone ends it, zero when something else does
}

// ReopenAt returns when h ends by itself, zero for one that something ends: the reset of a budget is told by the budget.
func (h *Hold) ReopenAt() time.Time {
	if h.By == HeldByBudget {
		return time.Time{}
	}
	return h.Until
}

// holds is how the state vector spells a hold.
var holds = map[HeldBy]struct {
	eligibility Eligibility
	blocking    Blocking
}{HeldByBudget: {BlockedByBudget, WaitingForBudget}, HeldByQuota: {BlockedByQuota, WaitingForQuota}}

// Under returns e as it is shown while h holds up those that stand with it. It is never stored: a limit that is reached holds up any
// number of executions with one change. What was lost by its worker is shown as that.
func (h *Hold) Under(e Execution) Execution {
	if h == nil || !e.eligible() {
		return e
	}
	spelling := holds[h.By]
	e.Eligibility, e.Blocking, e.BlockingDetail = spelling.eligibility, spelling.blocking, h.Detail
	return e
}

// Allowance is what the budgets of an execution leave to it.
type Allowance struct {
	Remaining map[uuid.UUID]map[string]int64 // of the limited dimensions of each; nil when it has no budget
	Low       bool                           // one is over its soft limit, or little is left of a hard one
	Spent     *Spent                         // that is exhausted and says what becomes of running work
}

// Spent is an exhausted budget that does not let running work go on.
type Spent struct {
	BudgetID uuid.UUID
	Cancel   bool // else it is suspended
}

// Obey makes of e, which somebody holds, what an exhausted budget says about running work: it ends as cancelled, or it is suspended
// until the budget has something again. What is to end anyway ends.
func (e Execution) Obey(s Spent, suspension uuid.UUID, now time.Time) (Change, error) {
	if s.Cancel {
		return e.Cancel(Cancellation{Reason: "budget_exhausted", Actor: engine, RequestedAt: now}, now)
	}
	c, _, err := e.giveBack(OpSuspend, e.Fence(), "suspended", now, func(n *Execution) {
		n.Suspension = &Suspension{ID: suspension, AttemptIndex: n.AttemptIndex, Reason: SuspendByBudget, RequestedBy: engine, Since: now, Waitpoints: []Bound{}, Behavior: OnTimeoutResume}
		n.Vector = Vector{Suspended, Unowned, EligibilityNone, WaitingForBudget, OutcomeNone, AttemptInterrupted}
		n.BlockingDetail = fmt.Sprintf("suspended: budget %s is exhausted", s.BudgetID)
	})
	return c, err
}

// Refill lets e go on that [Execution.Obey] has suspended, if it has not since.
func (e Execution) Refill(suspension uuid.UUID, now time.Time) (Change, bool) {
	if e.Lifecycle != Suspended || e.Suspension.ID != suspension {
		return Change{}, false
	}
	c := Change{Execution: e}
	c.wake(closedResumed, 0, now)
	c.tellResumed("budget")
	return c, true
}
