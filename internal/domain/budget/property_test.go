package budget_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/patch"
)

// spender is what somebody has spent through the budget at the bottom, and in which period of each budget.
type spender struct {
	spent   []dims // on each budget of the chain, in the period
	periods []int64
}

// machine is a chain of budgets under random operations, beside the little that a reference model needs to know of them.
// reference: flows-streams-budgets.md 9, properties 23-25 and 27.
type machine struct {
	chain     []budget.Budget
	now       time.Time
	spenders  []spender
	applied   []dims            // on each budget, since its last reset, less what was released
	breached  []map[string]bool // on each budget: a report was refused, and nothing has mended it since
	lowered   bool              // a limit was, so that more may be spent than there is
	exhausted []bool            // as the events tell
	revisions []int64
}

var dimensions = []string{"a", "b", "c"}

func amounts(least, most int64) *rapid.Generator[dims] {
	return rapid.MapOfN(rapid.SampledFrom(dimensions), rapid.Int64Range(least, most), 0, 3)
}

func newMachine(t *rapid.T) *machine {
	m := &machine{now: start}
	for i := range rapid.IntRange(1, 3).Draw(t, "budgets") {
		in := budget.Create{ID: uuid.UUID{byte(i + 1)}, Namespace: "default", Hard: amounts(0, 60).Draw(t, "hard"), Soft: amounts(0, 40).Draw(t, "soft")}
		switch rapid.SampledFrom([]string{"never", "interval", "schedule"}).Draw(t, "reset") {
		case "interval":
			in.ResetInterval = time.Duration(rapid.Int64Range(1000, 90000).Draw(t, "interval")) * time.Millisecond
		case "schedule":
			in.Schedule = &budget.Schedule{Cron: rapid.SampledFrom([]string{"* * * * *", "*/7 * * * *", "@hourly"}).Draw(t, "cron"), TimeZone: "Europe/Berlin"}
		}
		c, err := budget.New(in, m.now)
		if err != nil {
			t.Fatal(err)
		}
		m.chain = append(m.chain, c.Budget)
		m.applied, m.breached = append(m.applied, dims{}), append(m.breached, map[string]bool{})
		m.exhausted, m.revisions = append(m.exhausted, false), append(m.revisions, 1)
	}
	for range 3 {
		who := spender{periods: make([]int64, len(m.chain))}
		for range m.chain {
			who.spent = append(who.spent, dims{})
		}
		m.spenders = append(m.spenders, who)
	}
	return m
}

// take makes a change of budget i the present one. What operators decide raises its revision, by one, if it changes anything.
func (m *machine) take(t *rapid.T, i int, c budget.Change, decided bool) {
	want := m.revisions[i]
	if decided && len(c.Events) > 0 {
		want++
	}
	if !decided || len(c.Events) == 0 {
		before, after := m.chain[i], c.Budget
		if after.Revision != before.Revision {
			t.Fatalf("revision %d after %d", after.Revision, before.Revision)
		}
	}
	for _, e := range c.Events {
		switch e.Type {
		case event.BudgetExhausted, event.BudgetAvailable:
			if m.exhausted[i] == (e.Type == event.BudgetExhausted) {
				t.Fatalf("%s is told again", e.Type)
			}
			m.exhausted[i] = !m.exhausted[i]
		}
		if *e.Revision != c.Budget.Revision {
			t.Fatalf("%s tells of revision %d of %d", e.Type, *e.Revision, c.Budget.Revision)
		}
	}
	if c.Budget.Revision != want {
		t.Fatalf("revision %d, want %d", c.Budget.Revision, want)
	}
	m.chain[i], m.revisions[i] = c.Budget, want
}

func (m *machine) pick(t *rapid.T) int { return rapid.IntRange(0, len(m.chain)-1).Draw(t, "budget") }

// Report spends something, for somebody.
func (m *machine) Report(t *rapid.T) {
	report := amounts(0, 25).Draw(t, "report")
	who := rapid.IntRange(0, len(m.spenders)-1).Draw(t, "who")
	before := m.chain
	after, v, err := budget.Apply(m.chain, report, m.now)
	if err != nil || len(after) != len(before) {
		t.Fatal(err)
	}
	m.chain = append([]budget.Budget(nil), m.chain...)
	for i, c := range after {
		m.take(t, i, c, false)
		ignored := cmpopts.IgnoreFields(budget.Budget{}, "Amounts", "Exhausted", "SoftBreaches", "UpdatedAt")
		was := before[i]
		if v.Outcome == budget.HardBreach {
			ignored = cmp.Options{}
			if c.Budget.ID == v.BudgetID {
				ignored = cmpopts.IgnoreFields(budget.Budget{}, "Breaches", "LastBreachAt", "LastBreachDimension")
				was = frozen(was)
				a := was.Amounts[v.Dimension]
				a.Breached = true
				was.Amounts[v.Dimension], was.Exhausted = a, true
				m.breached[i][v.Dimension] = true
				if c.Budget.Breaches != before[i].Breaches+1 || !c.Budget.LastBreachAt.Equal(m.now) || c.Budget.LastBreachDimension != v.Dimension {
					t.Fatalf("%+v", c.Budget)
				}
			}
		}
		if diff := cmp.Diff(was, c.Budget, ignored); diff != "" {
			t.Fatalf("%s changed:\n%s", v.Outcome, diff)
		}
		for dimension, n := range report {
			if v.Outcome == budget.HardBreach {
				continue
			}
			if !c.Budget.Amounts[dimension].Used {
				t.Fatalf("%s is not used", dimension)
			}
			m.applied[i][dimension] += n
			s := &m.spenders[who]
			if s.periods[i] != c.Budget.Period {
				s.periods[i], s.spent[i] = c.Budget.Period, dims{}
			}
			s.spent[i][dimension] += n
		}
	}
	if over := m.over(); over && !m.lowered {
		t.Fatalf("over the limit: %+v", m.chain)
	}
	if v.Outcome == budget.HardBreach && !m.crosses(before, report, v) {
		t.Fatalf("%+v for %v", v, report)
	}
}

// crosses says whether the report would take the budget of the verdict over its limit.
func (m *machine) crosses(chain []budget.Budget, report dims, v budget.Verdict) bool {
	for _, b := range chain {
		if b.ID == v.BudgetID {
			return v.Limit == b.HardLimits()[v.Dimension] && v.Current == b.Amounts[v.Dimension].Usage && v.Current+report[v.Dimension] > v.Limit
		}
	}
	return false
}

// over says whether more of a dimension is used than there is.
func (m *machine) over() bool {
	for _, b := range m.chain {
		for dimension, limit := range b.HardLimits() {
			if limit > 0 && b.Amounts[dimension].Usage > limit {
				return true
			}
		}
	}
	return false
}

// Release gives back what somebody has spent in the present period of each budget.
func (m *machine) Release(t *rapid.T) {
	s := &m.spenders[rapid.IntRange(0, len(m.spenders)-1).Draw(t, "who")]
	for i := range m.chain {
		if s.periods[i] == m.chain[i].Period {
			m.take(t, i, m.chain[i].Refund(s.spent[i], m.now), true)
			for dimension, n := range s.spent[i] {
				m.applied[i][dimension] -= n
				m.breached[i][dimension] = m.breached[i][dimension] && n == 0
			}
		}
		s.spent[i] = dims{}
	}
}

// ReportAndRelease is the identity on what is used. What it gives back is not breached any more.
func (m *machine) ReportAndRelease(t *rapid.T) {
	report := amounts(1, 25).Draw(t, "report")
	after, v, err := budget.Apply(m.chain, report, m.now)
	if err != nil || v.Outcome == budget.HardBreach {
		return
	}
	for i, c := range after {
		back := c.Budget.Refund(report, m.now).Budget
		was, is := usage(m.chain[i]), usage(back)
		maps.DeleteFunc(is, func(dimension string, n int64) bool { return n == 0 && !m.chain[i].Amounts[dimension].Used })
		exhausted := false
		for dimension, a := range m.chain[i].Amounts {
			exhausted = exhausted || m.spent(i, dimension, a) && (report[dimension] == 0 || !m.breached[i][dimension] || a.Usage >= *a.Hard)
		}
		if diff := cmp.Diff(was, is); diff != "" || back.Exhausted != exhausted {
			t.Fatalf("spent and given back:\n%s", diff)
		}
	}
}

// Reset does it by hand.
func (m *machine) Reset(t *rapid.T) {
	i := m.pick(t)
	c := m.chain[i].Reset(true, m.now)
	if b := m.chain[i]; b.ResetInterval > 0 && !c.Budget.NextResetAt.Equal(m.now.Add(b.ResetInterval)) {
		t.Fatalf("the next reset is %s", c.Budget.NextResetAt)
	}
	m.reset(t, i, c)
}

func (m *machine) reset(t *rapid.T, i int, c budget.Change) {
	if b := c.Budget; b.Period != m.chain[i].Period+1 || !b.NextResetAt.IsZero() && !b.NextResetAt.After(m.now) || b.Exhausted || !b.LastBreachAt.IsZero() {
		t.Fatalf("%+v", b)
	}
	if diff := cmp.Diff(reserved(m.chain[i]), reserved(c.Budget)); diff != "" {
		t.Fatalf("reserved:\n%s", diff)
	}
	m.take(t, i, c, true)
	for dimension := range m.applied[i] {
		m.applied[i][dimension] = 0
	}
	clear(m.breached[i])
}

// Sweep lets time pass, and resets what is due.
func (m *machine) Sweep(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.Int64Range(0, 400000).Draw(t, "ms")) * time.Millisecond)
	for i, b := range m.chain {
		c := b.Reset(false, m.now)
		if !b.Due(m.now) {
			if len(c.Events) > 0 || !cmp.Equal(b, c.Budget) {
				t.Fatalf("reset before it was due: %+v", b)
			}
			continue
		}
		if !c.Budget.NextResetAt.After(b.NextResetAt) {
			t.Fatalf("the next reset is %s after %s", c.Budget.NextResetAt, b.NextResetAt)
		}
		if b.ResetInterval > 0 && (c.Budget.NextResetAt.Sub(b.NextResetAt)%b.ResetInterval != 0 || c.Budget.NextResetAt.Sub(m.now) > b.ResetInterval) {
			t.Fatalf("at %s, after %s comes %s", m.now, b.NextResetAt, c.Budget.NextResetAt)
		}
		m.reset(t, i, c)
		if again := m.chain[i].Reset(false, m.now); len(again.Events) > 0 {
			t.Fatal("it is reset twice")
		}
	}
}

// TopUp raises limits.
func (m *machine) TopUp(t *rapid.T) {
	i := m.pick(t)
	by := amounts(0, 20).Draw(t, "by")
	c, err := m.chain[i].TopUp(by, m.now)
	for dimension := range by {
		if m.chain[i].HardLimits()[dimension] == 0 {
			if err == nil {
				t.Fatalf("%s has no limit", dimension)
			}
			return
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	m.take(t, i, c, true)
	for dimension, n := range by {
		m.breached[i][dimension] = m.breached[i][dimension] && n == 0
	}
}

// Patch changes limits.
func (m *machine) Patch(t *rapid.T) {
	i := m.pick(t)
	p := budget.Patch{Hard: map[string]*int64{}, Soft: map[string]*int64{}, ScopeID: patch.Some(rapid.SampledFrom([]string{"", "x"}).Draw(t, "scope"))}
	for dimension, n := range amounts(-10, 60).Draw(t, "limits") {
		limits := rapid.SampledFrom([]map[string]*int64{p.Hard, p.Soft}).Draw(t, "kind")
		if limits[dimension] = &n; n < 0 {
			limits[dimension] = nil
		}
	}
	c, err := m.chain[i].Patch(p, m.now)
	if err != nil {
		t.Fatal(err)
	}
	for dimension := range p.Hard {
		same := m.chain[i].HardLimits()[dimension] == c.Budget.HardLimits()[dimension]
		m.breached[i][dimension] = m.breached[i][dimension] && same
	}
	m.take(t, i, c, true)
	m.lowered = m.lowered || m.over()
}

// spent says whether nothing is left of a dimension of budget i.
func (m *machine) spent(i int, dimension string, a budget.Amount) bool {
	limit := m.chain[i].HardLimits()[dimension]
	return limit > 0 && (a.Usage >= limit || m.breached[i][dimension])
}

// Check holds after every operation.
func (m *machine) Check(t *rapid.T) {
	for i, b := range m.chain {
		exhausted := false
		for dimension, a := range b.Amounts {
			if a.Usage != m.applied[i][dimension] || a.Usage < 0 {
				t.Fatalf("budget %d has %d of %s, and %v was applied", i, a.Usage, dimension, m.applied[i])
			}
			ledger := int64(0)
			for _, s := range m.spenders {
				if s.periods[i] == b.Period {
					ledger += s.spent[i][dimension]
				}
			}
			if ledger > a.Usage {
				t.Fatalf("the ledger has %d of %s, and %d is used", ledger, dimension, a.Usage)
			}
			if a.Breached != m.breached[i][dimension] {
				t.Fatalf("%s of budget %d is breached: %v", dimension, i, a.Breached)
			}
			spent := m.spent(i, dimension, a)
			if left, _ := b.Left(dimension); spent && left > 0 {
				t.Fatalf("%d is left of %s", left, dimension)
			}
			exhausted = exhausted || spent
		}
		if b.Exhausted != exhausted || m.exhausted[i] != exhausted {
			t.Fatalf("exhausted: %v, as told %v, in fact %v", b.Exhausted, m.exhausted[i], exhausted)
		}
		_, _, _, ok := b.Need(nil)
		if exhausted && ok {
			t.Fatal("it is exhausted and lets somebody begin")
		}
	}
	m.lowered = m.lowered && m.over()
}

func TestBudget_properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"": m.Check, "report": m.Report, "report more": m.Report, "release": m.Release, "report and release": m.ReportAndRelease,
			"reset": m.Reset, "sweep": m.Sweep, "top up": m.TopUp, "patch": m.Patch,
		})
	})
}

// TestBudget_Reserve_properties: whoever begins only when there is room, and spends no more than was expected, never takes what is used and
// reserved together over a limit; when all have ended nothing is reserved.
func TestBudget_Reserve_properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, err := budget.New(budget.Create{ID: id, Namespace: "default", Hard: amounts(0, 60).Draw(t, "hard")}, start)
		if err != nil {
			t.Fatal(err)
		}
		b := c.Budget
		var working []dims // what is still reserved for each
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				estimate := amounts(0, 30).Draw(t, "estimate")
				dimension, need, left, ok := b.Need(estimate)
				if !ok {
					if l, limited := b.Left(dimension); !limited || l != left || need <= left || need != max(estimate[dimension], 1) {
						t.Fatalf("%s: %d needed, %d left", dimension, need, left)
					}
					return
				}
				b = b.Reserve(estimate)
				working = append(working, maps.Clone(estimate))
			},
			"spend": func(t *rapid.T) {
				if len(working) == 0 {
					t.Skip("nobody works")
				}
				own := working[rapid.IntRange(0, len(working)-1).Draw(t, "who")]
				report := dims{}
				for dimension, n := range own {
					report[dimension] = rapid.Int64Range(0, n).Draw(t, "spent")
				}
				remaining := b.Remaining(own)
				after, v, err := budget.Apply([]budget.Budget{b}, report, start)
				if err != nil || v.Outcome != budget.OK {
					t.Fatalf("what is reserved was refused: %+v, %v", v, err)
				}
				b = after[0].Budget.Unreserve(report)
				for dimension, n := range report {
					own[dimension] -= n
				}
				for dimension, n := range b.Remaining(own) {
					if n != remaining[dimension]-report[dimension] {
						t.Fatalf("of %d remain %d after %d", remaining[dimension], n, report[dimension])
					}
				}
			},
			"end": func(t *rapid.T) {
				if len(working) == 0 {
					t.Skip("nobody works")
				}
				b = b.Unreserve(working[0])
				working = working[1:]
			},
			"": func(t *rapid.T) {
				sum := dims{}
				for _, own := range working {
					for dimension, n := range own {
						sum[dimension] += n
					}
				}
				maps.DeleteFunc(sum, func(_ string, n int64) bool { return n == 0 })
				if diff := cmp.Diff(sum, reserved(b)); diff != "" {
					t.Fatalf("reserved:\n%s", diff)
				}
				for dimension, limit := range b.HardLimits() {
					if a := b.Amounts[dimension]; limit > 0 && a.Usage+a.Reserved > limit {
						t.Fatalf("%s: %d used and %d reserved of %d", dimension, a.Usage, a.Reserved, limit)
					}
				}
			},
		})
	})
}
