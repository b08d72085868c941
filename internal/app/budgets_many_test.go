package app_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// outcomes counts what has become of reports.
func outcomes(answers []*apitest.Response) map[string]int {
	got := map[string]int{}
	for _, a := range answers {
		got[a.Want(http.StatusOK).Str("outcome")]++
	}
	return got
}

// TestBudgets_AtOnce: reports and resets at the same moment. reference: flows-streams-budgets.md 9/24.
func TestBudgets_AtOnce(t *testing.T) {
	t.Parallel()
	runBudgetCases(t, []budgetCase{
		{"the same key counts once", func(x *budgetTest) {
			for range 3 {
				id := x.under(x.budget(""), "")
				got := outcomes(atOnce(16, func(int) *apitest.Response { return x.verb(id, "usage", dimensions(`"tokens":3`)+","+dedupKey("k")) }))
				if diff := cmp.Diff(map[string]int{"ok": 1, "already_applied": 15}, got); diff != "" {
					x.t.Errorf("(-want +got):\n%s", diff)
				}
				x.used(id, "tokens 3")
				x.used(*x.read(id).ParentID, "tokens 3")
			}
		}},
		{"never over a limit, whichever budget it is of", func(x *budgetTest) {
			top := x.tokens(100)
			below := []uuid.UUID{x.under(top, ""), x.under(top, `"hard_limits":{"tokens":40}`), x.under(top, "")}
			got := outcomes(atOnce(24, func(i int) *apitest.Response { return x.verb(below[i%3], "usage", dimensions(`"tokens":7`)) }))
			if diff := cmp.Diff(map[string]int{"ok": 14, "hard_breach": 10}, got); diff != "" { // of 24
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			x.used(top, "tokens 98")
			if n := x.read(below[1]).Usage["tokens"]; n > 40 {
				x.t.Errorf("%d of 40", n)
			}
			sum := int64(0)
			for _, id := range below {
				sum += x.read(id).Usage["tokens"]
			}
			if sum != 98 {
				x.t.Errorf("below it are %d", sum)
			}
		}},
		{"a report during a reset counts in one of the periods", func(x *budgetTest) {
			id := x.budget("")
			total := int64(0)
			for range 25 {
				answers := atOnce(5, func(i int) *apitest.Response {
					if i == 2 {
						return x.verb(id, "reset", "")
					}
					return x.verb(id, "usage", dimensions(`"tokens":1`))
				})
				for _, a := range answers {
					a.Want(http.StatusOK)
				}
				total += 4
			}
			seen := x.read(id).Usage["tokens"]
			for _, e := range x.toldOf(id, append([]string{"created"}, repeated("reset", 25)...)...) {
				if e.Type != "budget.reset" {
					continue
				}
				used, _ := eventData(x.t, e)["usage"].(map[string]any)
				n, _ := used["tokens"].(float64)
				seen += int64(n)
			}
			if seen != total {
				x.t.Errorf("%d of %d were counted", seen, total)
			}
		}},
	})
}

func repeated(word string, n int) []string {
	words := make([]string, n)
	for i := range words {
		words[i] = word
	}
	return words
}

// budgetModel is a budget as the property knows it.
type budgetModel struct {
	id         uuid.UUID
	parent     int // -1 for none
	hard, used int64
	breached   bool // a report was refused since
	period     int
}

// entryKey is a report for an execution by way of a budget, as it is counted on a budget.
type entryKey struct {
	via, at   int
	execution int
}

type entryModel struct {
	spent  int64
	period int
}

// TestBudgets_Usage_Property: usage is the sum of the reports that were counted since the last reset, without what was given back; keys
// count once; limits are never gone over. reference: flows-streams-budgets.md 9/23 to 25.
func TestBudgets_Usage_Property(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()))
		executions := []uuid.UUID{}
		maker := budgetsOn(t, s, "sums")
		for range 3 {
			executions = append(executions, maker.create("").ID)
		}
		rapid.Check(t, func(rt *rapid.T) {
			if rapid.IntRange(0, 3).Draw(rt, "one run in a few will do") > 0 {
				return
			}
			x := budgetsOn(t, s, "sums")
			x.Client = s.For(rapidTB{t, rt}).In("sums")
			m := &usageModel{x: x, rt: rt, executions: executions, entries: map[entryKey]*entryModel{}, keys: map[string]bool{}}
			m.grow(4)
			for range rapid.IntRange(1, 25).Draw(rt, "steps") {
				i := rapid.IntRange(0, len(m.budgets)-1).Draw(rt, "budget")
				switch rapid.SampledFrom([]string{"usage", "usage", "usage", "reset", "release", "topup"}).Draw(rt, "step") {
				case "usage":
					m.usage(i)
				case "reset":
					m.reset(m.budgets[i])
				case "release":
					m.release(i)
				case "topup":
					m.topUp(m.budgets[i])
				}
				m.compare()
			}
		})
	})
}

// usageModel is what the property knows of some budgets, and of what executions spent by way of them.
type usageModel struct {
	x          *budgetTest
	rt         *rapid.T
	executions []uuid.UUID
	budgets    []*budgetModel
	entries    map[entryKey]*entryModel
	keys       map[string]bool
}

// grow makes budgets, each at the top or under one that is there.
func (m *usageModel) grow(n int) {
	for i := range n {
		parent := rapid.IntRange(-1, i-1).Draw(m.rt, "parent")
		b := &budgetModel{parent: parent, hard: rapid.Int64Range(0, 60).Draw(m.rt, "hard")}
		members := fmt.Sprintf(`"hard_limits":{"tokens":%d}`, b.hard)
		if parent >= 0 {
			b.id = m.x.under(m.budgets[parent].id, members)
		} else {
			b.id = m.x.budget(members)
		}
		m.budgets = append(m.budgets, b)
	}
}

// chain is a budget and those above it.
func (m *usageModel) chain(i int) (all []int) {
	for ; i >= 0; i = m.budgets[i].parent {
		all = append(all, i)
	}
	return all
}

func (m *usageModel) usage(i int) {
	n, e, key := rapid.Int64Range(0, 30).Draw(m.rt, "n"), rapid.IntRange(-1, 2).Draw(m.rt, "execution"), rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(m.rt, "key")
	members := dimensions(fmt.Sprintf(`"tokens":%d`, n))
	if e >= 0 {
		members += "," + executionID(m.executions[e])
	}
	named := fmt.Sprint(i, key)
	if key != "" {
		members += "," + dedupKey(key)
	}
	want, refuses := "ok", (*budgetModel)(nil)
	for _, at := range m.chain(i) {
		if b := m.budgets[at]; b.hard > 0 && b.used+n > b.hard && want == "ok" {
			want, refuses = "hard_breach", b
		}
	}
	if key != "" && m.keys[named] {
		want = "already_applied"
	}
	if got := m.x.verb(m.budgets[i].id, "usage", members).Want(http.StatusOK).Str("outcome"); got != want {
		m.rt.Fatalf("%s, want %s", got, want)
	}
	if want != "ok" {
		if want == "hard_breach" {
			refuses.breached = true
		}
		return
	}
	m.keys[named] = key != ""
	for _, at := range m.chain(i) {
		b := m.budgets[at]
		b.used += n
		if e < 0 {
			continue
		}
		k := entryKey{i, at, e}
		if m.entries[k] == nil || m.entries[k].period != b.period {
			m.entries[k] = &entryModel{period: b.period}
		}
		m.entries[k].spent += n
	}
}

func (m *usageModel) reset(b *budgetModel) {
	m.x.verb(b.id, "reset", "").Want(http.StatusOK)
	b.used, b.breached, b.period = 0, false, b.period+1
}

func (m *usageModel) release(i int) {
	e := rapid.IntRange(0, 2).Draw(m.rt, "execution")
	m.x.verb(m.budgets[i].id, "release", executionID(m.executions[e])).Want(http.StatusOK)
	for _, at := range m.chain(i) {
		k, b := entryKey{i, at, e}, m.budgets[at]
		if entry := m.entries[k]; entry != nil && entry.period == b.period {
			b.used -= entry.spent
			b.breached = b.breached && entry.spent == 0
		}
		delete(m.entries, k)
	}
}

func (m *usageModel) topUp(b *budgetModel) {
	if b.hard > 0 {
		m.x.verb(b.id, "topup", dimensions(`"tokens":5`)).Want(http.StatusOK)
		b.hard, b.breached = b.hard+5, false
	}
}

// compare checks that each budget is what the model says.
func (m *usageModel) compare() {
	for _, b := range m.budgets {
		got := answerAs[oapi.Budget](m.x.Get(budgetPath(b.id)).Want(http.StatusOK))
		if got.Usage["tokens"] != b.used || got.HardLimits["tokens"] != b.hard || got.Exhausted != (b.hard > 0 && (b.used >= b.hard || b.breached)) {
			m.rt.Fatalf("budget %s is %+v, want %+v", b.id, got, b)
		}
	}
}

// tokenWorkers are workers that spend tokens as long as there is something to claim.
type tokenWorkers struct {
	mu        sync.Mutex
	spent     int64 // whether it was counted or not
	over      int64 // by how much reports were more than what was expected
	refused   []refusedSpend
	completed map[uuid.UUID]int
}

// refusedSpend is what a worker has spent that could not be counted: it keeps its claim, with what is reserved.
type refusedSpend struct {
	claim  oapi.Claim
	tokens int64
}

func (w *tokenWorkers) run(x *budgetTest, id uuid.UUID, workers int) {
	var wg sync.WaitGroup
	for n := range workers {
		wg.Go(func() {
			for {
				answer := patiently(func() *apitest.Response { return x.ask(fmt.Sprintf(`"worker_id":"w%d",%s`, n, lasting)) })
				if answer.Status == http.StatusNoContent {
					return
				}
				c := answerAs[oapi.Claims](answer.Want(http.StatusOK)).Claims[0]
				tokens := 80 + rand.Int64N(41)
				w.mu.Lock()
				w.spent += tokens
				w.over += max(tokens-100, 0)
				w.mu.Unlock()
				w.report(x, id, refusedSpend{c, tokens})
			}
		})
	}
	wg.Wait()
}

func (w *tokenWorkers) report(x *budgetTest, id uuid.UUID, r refusedSpend) {
	outcome := patiently(func() *apitest.Response {
		return x.verb(id, "usage", joined(dimensions(fmt.Sprintf(`"tokens":%d`, r.tokens)), handleOf(r.claim)))
	}).Want(http.StatusOK).Str("outcome")
	if outcome == "ok" {
		patiently(func() *apitest.Response { return x.report(r.claim, "complete", "") }).Want(http.StatusOK)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if outcome == "ok" {
		w.completed[r.claim.Execution.ID]++
	} else {
		w.refused = append(w.refused, r)
	}
}

// TestBudgets_ManyWorkers: with estimates, workers together spend no more than there is, but for what they spend above their estimates;
// what is left over goes on after a top-up.
func TestBudgets_ManyWorkers(t *testing.T) {
	t.Parallel()
	runBudgetCases(t, []budgetCase{{"32 workers, 10,000 tokens", func(x *budgetTest) {
		const limit, all = 10_000, 180
		id := x.tokens(limit)
		x.createMany(all, func(int) string { return joined(attached(id), estimate(100)) })
		w := &tokenWorkers{completed: map[uuid.UUID]int{}}
		w.run(x, id, 32)
		if w.spent-limit > w.over {
			x.t.Errorf("%d of %d were spent, and reports were %d above the estimates", w.spent, limit, w.over)
		}
		b := x.read(id)
		if used, reserved := b.Usage["tokens"], b.Reserved["tokens"]; used > limit || used+reserved <= limit-100 || reserved != int64(100*len(w.refused)) {
			x.t.Errorf("%d are used and %d reserved, with %d at work", used, reserved, len(w.refused))
		}
		x.none("")
		left := all - len(w.completed) - len(w.refused)
		want := map[string]int{"completed": len(w.completed), "rate_limited": left}
		if len(w.refused) > 0 {
			want["active"] = len(w.refused)
		}
		if diff := cmp.Diff(want, x.counted()); diff != "" || left == 0 {
			x.t.Fatalf("(-want +got):\n%s", diff)
		}
		x.done(id, "topup", dimensions(`"tokens":20000`))
		refused := w.refused
		w.refused = nil
		for _, r := range refused {
			w.report(x, id, r)
		}
		w.run(x, id, 32)
		if diff := cmp.Diff(map[string]int{"completed": all}, x.counted()); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		for e, n := range w.completed {
			if n != 1 {
				x.t.Errorf("%s was completed %d times", e, n)
			}
		}
		if b := x.read(id); b.Usage["tokens"] != w.spent || len(b.Reserved) != 0 || len(w.completed) != all {
			x.t.Errorf("%+v; %d completed, %d spent", b, len(w.completed), w.spent)
		}
	}}})
}
