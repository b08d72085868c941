package budget_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // as in the binary

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

var (
	id       = uuid.MustParse("01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01")
	parentID = uuid.MustParse("01985c3e-7a10-7c3e-9b52-3f1d8e6a4b02")
	start    = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
)

const subject = `"budget_id":"01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01","scope_type":"team","scope_id":"blue"`

// at returns the time that many seconds after the start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

type dims = map[string]int64

// limits are those of a change of a budget: nil takes one away.
type limits = map[string]*int64

// fresh returns a new budget with hard and soft limits.
func fresh(tb testing.TB, hard, soft dims) budget.Budget {
	tb.Helper()
	c, err := budget.New(budget.Create{ID: id, Namespace: "default", ScopeType: "team", ScopeID: "blue", Hard: hard, Soft: soft}, start)
	if err != nil {
		tb.Fatal(err)
	}
	return c.Budget
}

// used returns b after something was spent on it.
func used(tb testing.TB, b budget.Budget, spent dims) budget.Budget {
	tb.Helper()
	after, v, err := budget.Apply([]budget.Budget{b}, spent, at(1))
	if err != nil || v.Outcome == budget.HardBreach {
		tb.Fatal(v, err)
	}
	return after[0].Budget
}

// frozen returns a copy of b that shares nothing with it.
func frozen(b budget.Budget) budget.Budget {
	b.Amounts = maps.Clone(b.Amounts)
	for name, a := range b.Amounts {
		if a.Hard != nil {
			a.Hard = new(*a.Hard)
		}
		if a.Soft != nil {
			a.Soft = new(*a.Soft)
		}
		b.Amounts[name] = a
	}
	if b.Schedule != nil {
		b.Schedule = new(*b.Schedule)
	}
	return b
}

// usage returns what was ever used.
func usage(b budget.Budget) dims {
	all := dims{}
	for name, a := range b.Amounts {
		if a.Used {
			all[name] = a.Usage
		}
	}
	return all
}

// reserved returns what is reserved.
func reserved(b budget.Budget) dims {
	all := dims{}
	for name, a := range b.Amounts {
		if a.Reserved != 0 {
			all[name] = a.Reserved
		}
	}
	return all
}

// refused fails unless err has a code and points at a part of the request.
func refused(tb testing.TB, err error, code fault.Code, pointer string) {
	tb.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != code || len(f.Fields) != 1 || f.Fields[0].Pointer != pointer || f.Fields[0].In != fault.InBody {
		tb.Errorf("%v %+v, want %s at %s", err, f, code, pointer)
	}
}

// told returns events as lines, without what each of them says of its budget.
func told(tb testing.TB, c budget.Change) []string {
	tb.Helper()
	var out []string
	for _, e := range c.Events {
		data, err := json.Marshal(e.Data)
		if err != nil {
			tb.Fatal(err)
		}
		if e.Namespace != "default" || e.Type.Topic() != event.TopicBudget || e.Revision == nil || *e.Revision != c.Budget.Revision {
			tb.Errorf("event %+v", e)
		}
		line := string(data)
		about, err := json.Marshal(c.Budget.ID)
		if err != nil || !strings.HasPrefix(line, `{"budget_id":`+string(about)+`,"scope_type":`) {
			tb.Errorf("event %s: %v", line, err)
		}
		line = strings.Replace(strings.Replace(line, subject, "", 1), "{,", "{", 1)
		out = append(out, string(e.Type)+" "+line)
	}
	return out
}

// same fails unless got is want and tells these events.
func same(tb testing.TB, want budget.Budget, lines []string, got budget.Change) {
	tb.Helper()
	if diff := cmp.Diff(want, got.Budget); diff != "" {
		tb.Errorf("the budget (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(lines, told(tb, got)); diff != "" {
		tb.Errorf("the events (-want +got):\n%s", diff)
	}
}

func many(n int) dims {
	all := dims{}
	for i := range n {
		all["d"+string(rune('a'+i/26))+string(rune('a'+i%26))] = 1
	}
	return all
}
