package wait_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// on waits for a signal on a waitpoint.
func on(key, name string) wait.Condition {
	return wait.Condition{Kind: wait.SignalOn, Waitpoints: []string{key}, Name: name}
}

// counting waits for several signals on some waitpoints.
func counting(n int, distinct wait.Distinct, name string, keys ...string) wait.Condition {
	return wait.Condition{Kind: wait.Count, N: n, Distinct: distinct, Name: name, Waitpoints: keys}
}

var (
	forPerson  = wait.Condition{Kind: wait.Manual}
	forTimeout = wait.Condition{Kind: wait.Never}
)

// TestParseResume: the grammar. executions.md 2.16.
func TestParseResume(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, json string
		want       wait.Condition
	}{
		{"a name", `{"Single":{"waitpoint_key":"a","matcher":{"ByName":"go"}}}`, on("a", "go")},
		{"any name", ` {"Single" : {"matcher":"Wildcard","waitpoint_key":"ü b"}} `, on("ü b", "")},
		{"a person", `"OperatorOnly"`, forPerson},
		{"a timeout", ` "TimeoutOnly" `, forTimeout},
		{"all", `{"Composite":{"kind":"AllOf","members":["OperatorOnly",{"Single":{"waitpoint_key":"a","matcher":"Wildcard"}}]}}`, allOf(forPerson, on("a", ""))},
		{"a count", `{"Composite":{"kind":"Count","n":2,"count_kind":"DistinctWaitpoints","waitpoints":["a","b"]}}`, counting(2, wait.DistinctWaitpoints, "", "a", "b")},
		{"a count of a name", `{"Composite":{"kind":"Count","n":3,"count_kind":"DistinctSources","matcher":{"ByName":"x"},"waitpoints":["a"]}}`, counting(3, wait.DistinctSources, "x", "a")},
		{"a count of any name", `{"Composite":{"kind":"Count","n":1000,"count_kind":"DistinctSignals","matcher":"Wildcard","waitpoints":["a"]}}`, counting(1000, wait.DistinctSignals, "", "a")},
		{"a count without a matcher", `{"Composite":{"kind":"Count","n":1,"count_kind":"DistinctSignals","matcher":null,"waitpoints":["a"]}}`, counting(1, wait.DistinctSignals, "", "a")},
		{"a name of ours", `{"Single":{"waitpoint_key":"a","matcher":{"ByName":"__operator_only__"}}}`, on("a", "__operator_only__")},
		{"four levels", nest(4, `"OperatorOnly"`), allOf(allOf(allOf(allOf(forPerson))))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := wait.ParseResume([]byte(tt.json), "/resume_condition")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ParseResume() (-want +got):\n%s", diff)
			}
		})
	}
}

// nest puts a condition into so many composites.
func nest(depth int, leaf string) string {
	for range depth {
		leaf = `{"Composite":{"kind":"AllOf","members":[` + leaf + `]}}`
	}
	return leaf
}

// TestParseResume_Refusals: each rule by its name, and where it is broken. executions.md 2.15, 2.16.
func TestParseResume_Refusals(t *testing.T) {
	t.Parallel()
	const a = `{"Single":{"waitpoint_key":"a","matcher":"Wildcard"}}`
	composite := func(members string) string { return `{"Composite":{` + members + `}}` }
	count := func(n, kind, more string) string {
		return composite(`"kind":"Count","n":` + n + `,"count_kind":"` + kind + `"` + more)
	}
	keys := make([]string, wait.MaxWaitpoints+1)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"k%d"`, i)
	}
	tests := []struct{ name, json, rule, pointer string }{
		{"null", `null`, "unknown_condition", ""},
		{"a number", `7`, "unknown_condition", ""},
		{"a list", `[]`, "unknown_condition", ""},
		{"an empty object", `{}`, "unknown_condition", ""},
		{"another word", `"operatoronly"`, "unknown_condition", ""},
		{"a word of a flow's", `{"kind":"manual"}`, "unknown_condition", ""},
		{"a tag in another case", `{"single":{"waitpoint_key":"a","matcher":"Wildcard"}}`, "unknown_condition", ""},
		{"two tags", `{"Single":{},"Composite":{}}`, "unknown_condition", ""},
		{"a tag and more", `{"Single":{"waitpoint_key":"a","matcher":"Wildcard"},"x":1}`, "unknown_condition", ""},
		{"Single of null", `{"Single":null}`, "malformed", "/Single"},
		{"Single of a text", `{"Single":"a"}`, "malformed", "/Single"},
		{"Single with more", `{"Single":{"waitpoint_key":"a","matcher":"Wildcard","x":1}}`, "malformed", "/Single/x"},
		{"Single in another case", `{"Single":{"Waitpoint_Key":"a","matcher":"Wildcard"}}`, "malformed", "/Single/Waitpoint_Key"},
		{"no key", `{"Single":{"matcher":"Wildcard"}}`, "waitpoint_key_missing", "/Single/waitpoint_key"},
		{"a key that is null", `{"Single":{"waitpoint_key":null,"matcher":"Wildcard"}}`, "waitpoint_key_missing", "/Single/waitpoint_key"},
		{"an empty key", `{"Single":{"waitpoint_key":"","matcher":"Wildcard"}}`, "waitpoint_key_missing", "/Single/waitpoint_key"},
		{"no matcher", `{"Single":{"waitpoint_key":"a"}}`, "matcher_missing", "/Single/matcher"},
		{"another matcher", `{"Single":{"waitpoint_key":"a","matcher":"wildcard"}}`, "unknown_matcher", "/Single/matcher"},
		{"a matcher of two tags", `{"Single":{"waitpoint_key":"a","matcher":{"ByName":"x","Wildcard":true}}}`, "unknown_matcher", "/Single/matcher"},
		{"a matcher by null", `{"Single":{"waitpoint_key":"a","matcher":{"ByName":null}}}`, "unknown_matcher", "/Single/matcher"},
		{"an empty name", `{"Single":{"waitpoint_key":"a","matcher":{"ByName":""}}}`, "empty_signal_name", "/Single/matcher/ByName"},
		{"a long name", `{"Single":{"waitpoint_key":"a","matcher":{"ByName":"` + strings.Repeat("ü", wait.MaxName+1) + `"}}}`, "signal_name_too_long", "/Single/matcher/ByName"},
		{"Composite of null", `{"Composite":null}`, "malformed", "/Composite"},
		{"another kind", composite(`"kind":"AnyOf","members":[` + a + `]`), "unknown_composite", "/Composite/kind"},
		{"no kind", composite(`"members":[` + a + `]`), "unknown_composite", "/Composite/kind"},
		{"AllOf with n", composite(`"kind":"AllOf","n":1,"members":[` + a + `]`), "unknown_composite", "/Composite/kind"},
		{"AllOf with waitpoints", composite(`"kind":"AllOf","waitpoints":["a"],"members":[` + a + `]`), "unknown_composite", "/Composite/kind"},
		{"Count with members", count("1", "DistinctSignals", `,"waitpoints":["a"],"members":[`+a+`]`), "unknown_composite", "/Composite/kind"},
		{"AllOf without members", composite(`"kind":"AllOf"`), "allof_empty_members", "/Composite/members"},
		{"AllOf of nothing", composite(`"kind":"AllOf","members":[]`), "allof_empty_members", "/Composite/members"},
		{"AllOf of what is none", composite(`"kind":"AllOf","members":[` + a + `,"x"]`), "unknown_condition", "/Composite/members/1"},
		{"a count without n", composite(`"kind":"Count","count_kind":"DistinctSignals","waitpoints":["a"]`), "count_n_zero", "/Composite/n"},
		{"a count of none", count("0", "DistinctSignals", `,"waitpoints":["a"]`), "count_n_zero", "/Composite/n"},
		{"a count below none", count("-3", "DistinctSignals", `,"waitpoints":["a"]`), "count_n_zero", "/Composite/n"},
		{"a count of too many", count("1001", "DistinctSignals", `,"waitpoints":["a"]`), "count_n_too_large", "/Composite/n"},
		{"a count of a part", count("1.5", "DistinctSignals", `,"waitpoints":["a"]`), "malformed", "/Composite/n"},
		{"counts of too many together", composite(`"kind":"AllOf","members":[` + count("999", "DistinctSignals", `,"waitpoints":["a"]`) + `,` + count("2", "DistinctSources", `,"waitpoints":["a"]`) + `]`),
			"count_n_too_large", "/Composite/members/1/Composite/n"},
		{"a count of another kind", count("1", "Signals", `,"waitpoints":["a"]`), "unknown_count_kind", "/Composite/count_kind"},
		{"a count on nothing", count("1", "DistinctSignals", ""), "count_waitpoints_empty", "/Composite/waitpoints"},
		{"a count on an empty list", count("1", "DistinctSignals", `,"waitpoints":[]`), "count_waitpoints_empty", "/Composite/waitpoints"},
		{"a count on too many", count("1", "DistinctSignals", `,"waitpoints":[`+strings.Join(keys, ",")+`]`), "count_waitpoints_too_many", "/Composite/waitpoints"},
		{"a count on an empty key", count("1", "DistinctSignals", `,"waitpoints":["a",""]`), "waitpoint_key_missing", "/Composite/waitpoints/1"},
		{"a count on the same twice", count("1", "DistinctSignals", `,"waitpoints":["a","b","a"]`), "count_waitpoint_twice", "/Composite/waitpoints/2"},
		{"more waitpoints than are listed", count("3", "DistinctWaitpoints", `,"waitpoints":["a","b"]`), "count_exceeds_waitpoint_set", "/Composite/n"},
		{"a count of an empty name", count("1", "DistinctSignals", `,"matcher":{"ByName":""},"waitpoints":["a"]`), "empty_signal_name", "/Composite/matcher/ByName"},
		{"five levels", nest(5, a), "too_deep", strings.Repeat("/Composite/members/0", 4) + "/Composite"},
		{"a count at the fifth level", nest(4, count("1", "DistinctSignals", `,"waitpoints":["a"]`)), "too_deep", strings.Repeat("/Composite/members/0", 4) + "/Composite"},
		{"five levels beside four", composite(`"kind":"AllOf","members":[` + nest(3, a) + `,` + nest(4, a) + `]`), "too_deep", "/Composite/members/1" + strings.Repeat("/Composite/members/0", 3) + "/Composite"},
		{"too many parts", composite(`"kind":"AllOf","members":[` + strings.Repeat(a+",", wait.MaxResumeParts) + a + `]`), "too_many_parts", "/Composite/members/64/Single"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := wait.ParseResume([]byte(tt.json), "/c")
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Code != fault.CodeInvalidCondition || len(e.Fields) != 1 {
				t.Fatalf("ParseResume() = %+v", err)
			}
			if e.Facts["rule"] != tt.rule || e.Fields[0].Pointer != "/c"+tt.pointer {
				t.Errorf("rule %v at %s, want %s at /c%s", e.Facts["rule"], e.Fields[0].Pointer, tt.rule, tt.pointer)
			}
		})
	}
}

// TestCondition_Names: what lists show is waited for at a waitpoint. executions.md 2.16 (required_signal_names).
func TestCondition_Names(t *testing.T) {
	t.Parallel()
	tests := []struct {
		c       wait.Condition
		want    []string
		listens []string
	}{
		{on("a", ""), []string{}, []string{"a"}},
		{on("a", "x"), []string{"x"}, []string{"a"}},
		{forPerson, []string{wait.OperatorOnlyName}, nil},
		{forTimeout, []string{wait.TimeoutOnlyName}, nil},
		{allOf(on("b", "y"), on("a", "x"), counting(1, wait.DistinctSignals, "z", "b", "a"), on("a", "x"), forPerson), []string{"x", "z", wait.OperatorOnlyName}, []string{"b", "a"}},
		{allOf(on("b", "y"), counting(2, wait.DistinctSignals, "", "a", "c")), []string{}, []string{"b", "a", "c"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.c.Names("a")); diff != "" {
			t.Errorf("Names(a) of %+v (-want +got):\n%s", tt.c, diff)
		}
		if diff := cmp.Diff(tt.listens, tt.c.Listens()); diff != "" {
			t.Errorf("Listens() of %+v (-want +got):\n%s", tt.c, diff)
		}
	}
}

// TestCondition_Count: what makes signals different. executions.md 2.16.
func TestCondition_Count(t *testing.T) {
	t.Parallel()
	signals := []wait.Signal{
		{ID: "1", Waitpoint: "a", Name: "x", SourceType: "p", SourceIdentity: "i"}, {ID: "2", Waitpoint: "a", Name: "y", SourceType: "q", SourceIdentity: "i"},
		{ID: "3", Waitpoint: "b", Name: "x", SourceType: "p", SourceIdentity: "j"}, {ID: "3", Waitpoint: "b", Name: "x", SourceType: "p", SourceIdentity: "j"},
		{ID: "4", Waitpoint: "b", Name: "x", SourceType: "p", SourceIdentity: "i"}, {ID: "5", Waitpoint: "elsewhere", Name: "x", SourceType: "r", SourceIdentity: "k"},
		{ID: "6", Waitpoint: "a", Name: "x", SourceType: "pi", SourceIdentity: ""}, {ID: "7", Waitpoint: "a", Name: "x", SourceType: "", SourceIdentity: "pi"},
	}
	for _, tt := range []struct {
		distinct wait.Distinct
		name     string
		keys     []string
		want     int
	}{
		{wait.DistinctWaitpoints, "", []string{"a", "b", "c"}, 2}, {wait.DistinctWaitpoints, "y", []string{"a", "b", "c"}, 1}, {wait.DistinctSignals, "", []string{"a", "b"}, 6},
		{wait.DistinctSignals, "x", []string{"a", "b"}, 5}, {wait.DistinctSignals, "", []string{"a"}, 4}, {wait.DistinctSources, "", []string{"a", "b"}, 5}, {wait.DistinctSources, "x", []string{"b"}, 2},
		{wait.DistinctSources, "z", []string{"a", "b"}, 0},
	} {
		c := counting(wait.MaxCount, tt.distinct, tt.name, tt.keys...)
		if got := c.Progress(signals)[0]; got != tt.want {
			t.Errorf("%d distinct %s named %q on %v, want %d", got, tt.distinct, tt.name, tt.keys, tt.want)
		}
		enough, more := counting(tt.want, tt.distinct, tt.name, tt.keys...), counting(tt.want+1, tt.distinct, tt.name, tt.keys...)
		if holds(enough, signals) != (tt.want > 0) || holds(more, signals) {
			t.Errorf("distinct %s named %q on %v", tt.distinct, tt.name, tt.keys)
		}
	}
}

// spell writes a condition as clients do.
func spell(c wait.Condition) any {
	matcher := any("Wildcard")
	if c.Name != "" {
		matcher = map[string]any{"ByName": c.Name}
	}
	switch c.Kind {
	case wait.SignalOn:
		return map[string]any{"Single": map[string]any{"waitpoint_key": c.Waitpoints[0], "matcher": matcher}}
	case wait.Count:
		kind := map[wait.Distinct]string{wait.DistinctWaitpoints: "DistinctWaitpoints", wait.DistinctSignals: "DistinctSignals", wait.DistinctSources: "DistinctSources"}[c.Distinct]
		return map[string]any{"Composite": map[string]any{"kind": "Count", "n": c.N, "count_kind": kind, "matcher": matcher, "waitpoints": c.Waitpoints}}
	case wait.All:
		members := make([]any, len(c.Of))
		for i, part := range c.Of {
			members[i] = spell(part)
		}
		return map[string]any{"Composite": map[string]any{"kind": "AllOf", "members": members}}
	case wait.Never:
		return "TimeoutOnly"
	default:
		return "OperatorOnly"
	}
}

var (
	smallKeys  = []string{"a", "b", "c"}
	smallNames = []string{"x", "y"}
)

// resumable draws a condition from a small world, so that signals match, with composites in one another up to four deep.
func resumable(depth int) *rapid.Generator[wait.Condition] {
	return rapid.Custom(func(t *rapid.T) wait.Condition {
		kinds := []wait.Kind{wait.SignalOn, wait.SignalOn, wait.Manual, wait.Never, wait.Count, wait.Count, wait.All, wait.All}
		if depth > wait.MaxResumeDepth {
			kinds = kinds[:4]
		}
		name := rapid.SampledFrom(append([]string{""}, smallNames...))
		switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
		case wait.SignalOn:
			return on(rapid.SampledFrom(smallKeys).Draw(t, "key"), name.Draw(t, "name"))
		case wait.Count:
			keys := rapid.SliceOfNDistinct(rapid.SampledFrom(smallKeys), 1, 3, rapid.ID[string]).Draw(t, "keys")
			distinct := rapid.SampledFrom([]wait.Distinct{wait.DistinctWaitpoints, wait.DistinctSignals, wait.DistinctSources}).Draw(t, "distinct")
			most := 3
			if distinct == wait.DistinctWaitpoints {
				most = len(keys)
			}
			return counting(rapid.IntRange(1, most).Draw(t, "n"), distinct, name.Draw(t, "name"), keys...)
		case wait.All:
			return allOf(rapid.SliceOfN(resumable(depth+1), 1, 3).Draw(t, "of")...)
		default:
			return wait.Condition{Kind: kind}
		}
	})
}

// arriving draws signals, some of them twice.
func arriving() *rapid.Generator[[]wait.Signal] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wait.Signal {
		return wait.Signal{ID: rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}).Draw(t, "id")}
	}), 0, 12)
}

// world draws what the signals with each id are: the same id is the same signal.
func world(t *rapid.T) func(wait.Signal) wait.Signal {
	known := map[string]wait.Signal{}
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		known[id] = wait.Signal{ID: id, Waitpoint: rapid.SampledFrom(append([]string{"elsewhere"}, smallKeys...)).Draw(t, "waitpoint"), Name: rapid.SampledFrom(append([]string{"z"}, smallNames...)).Draw(t, "name"),
			SourceType: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "type"), SourceIdentity: rapid.SampledFrom([]string{"i", "j"}).Draw(t, "identity")}
	}
	return func(s wait.Signal) wait.Signal { return known[s.ID] }
}

// fulfilled is the definition, over all signals at once. executions.md 2.16.
func fulfilled(c wait.Condition, got []wait.Signal) bool {
	matches := func(s wait.Signal) bool {
		return slices.Contains(c.Waitpoints, s.Waitpoint) && (c.Name == "" || c.Name == s.Name)
	}
	switch c.Kind {
	case wait.SignalOn:
		return slices.ContainsFunc(got, matches)
	case wait.Count:
		distinct := map[any]bool{}
		for _, s := range got {
			switch {
			case !matches(s):
			case c.Distinct == wait.DistinctWaitpoints:
				distinct[s.Waitpoint] = true
			case c.Distinct == wait.DistinctSignals:
				distinct[s.ID] = true
			default:
				distinct[[2]string{s.SourceType, s.SourceIdentity}] = true
			}
		}
		return len(distinct) >= c.N
	case wait.All:
		return !slices.ContainsFunc(c.Of, func(part wait.Condition) bool { return !fulfilled(part, got) })
	default:
		return false
	}
}

// holds says whether a condition is satisfied by signals, taken at once.
func holds(c wait.Condition, got []wait.Signal) bool { return c.Satisfied(c.Progress(got), start) }

// TestResume_Properties: what a condition means does not depend on how and in which order signals come. executions.md 5/23, 24.
func TestResume_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := resumable(1).Draw(t, "condition")
		which := world(t)
		var got []wait.Signal
		for _, s := range arriving().Draw(t, "signals") {
			got = append(got, which(s))
		}
		want := fulfilled(c, got)
		if holds(c, got) != want {
			t.Fatalf("at once it is %v, by the definition %v", !want, want)
		}
		if shuffled := rapid.Permutation(got).Draw(t, "another order"); holds(c, shuffled) != want {
			t.Fatal("the order of signals matters")
		}
		if more := append(slices.Clone(got), which(wait.Signal{ID: "5"})); want && !holds(c, more) {
			t.Fatal("what was satisfied is not any more")
		}
		if twice := append(slices.Clone(got), got...); !slices.Equal(c.Progress(twice), c.Progress(got)) {
			t.Fatal("duplicates count twice")
		}
		unique := slices.SortedFunc(maps.Values(byID(got)), func(a, b wait.Signal) int { return strings.Compare(a.ID, b.ID) })
		if holds(c, unique) != want {
			t.Fatal("duplicates matter")
		}
	})
}

func byID(got []wait.Signal) map[string]wait.Signal {
	m := map[string]wait.Signal{}
	for _, s := range got {
		m[s.ID] = s
	}
	return m
}

// TestResume_Incremental: one by one is all together, what counts is as much as is needed, and the last one that counts is the one
// that satisfies. executions.md 5/23, 24.
func TestResume_Incremental(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := wait.Wait{Spec: wait.Spec{Condition: resumable(1).Draw(t, "condition")}}
		which := world(t)
		var got []wait.Signal
		for _, s := range arriving().Draw(t, "signals") {
			s = which(s)
			got = append(got, s)
			_, was := w.DecideBy(start)
			next, counts := w.Deliver(s)
			effect := wait.Appended
			if !counts {
				effect = w.Effect(s)
			}
			outcome, is := next.DecideBy(start)
			switch {
			case is != fulfilled(w.Condition, got):
				t.Fatalf("one by one it is %v", is)
			case !counts && len(next.Received) != len(w.Received), counts && len(next.Received) != len(w.Received)+1:
				t.Fatalf("it counts: %v, %d → %d signals", counts, len(w.Received), len(next.Received))
			case !counts && is != was:
				t.Fatal("a signal that does not count decides")
			case counts && !was && is && outcome.Last().ID != s.ID:
				t.Fatalf("%s decided, and it says %s", s.ID, outcome.Last().ID)
			case counts != (effect == wait.Appended) && w.Condition.Kind != wait.SignalOn:
				t.Fatalf("it counts: %v, and the effect is %s", counts, effect)
			case (effect == wait.Ignored) != (w.Condition.Kind == wait.Manual || w.Condition.Kind == wait.Never):
				t.Fatalf("the effect is %s", effect)
			case effect == wait.NotInCondition && slices.Contains(w.Condition.Listens(), s.Waitpoint), effect == wait.MatcherFailed && !slices.Contains(w.Condition.Listens(), s.Waitpoint):
				t.Fatalf("on %s of %v the effect is %s", s.Waitpoint, w.Condition.Listens(), effect)
			}
			w = next
		}
		if !slices.Equal(w.Progress(), w.Condition.Progress(got)) {
			t.Fatalf("one by one they are %v, together %v", w.Progress(), w.Condition.Progress(got))
		}
		ids := map[string]bool{}
		for _, s := range w.Received {
			if ids[s.ID] {
				t.Fatalf("%s counts twice", s.ID)
			}
			ids[s.ID] = true
		}
	})
}

// TestResume_Spelling: what is written is read, in both spellings. executions.md 2.16.
func TestResume_Spelling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := resumable(1).Draw(t, "condition")
		document, err := json.Marshal(spell(c))
		if err != nil {
			t.Fatal(err)
		}
		read, err := wait.ParseResume(document, "")
		if leaves := len(c.Progress(nil)); leaves > wait.MaxResumeParts {
			if err == nil {
				t.Fatalf("%d parts are taken", leaves)
			}
			return
		}
		if err != nil || !read.Equal(c) {
			t.Fatalf("%s is read as %+v, %v", document, read, err)
		}
		if document, err = json.Marshal(c); err != nil {
			t.Fatal(err)
		}
		var stored wait.Condition
		if err := json.Unmarshal(document, &stored); err != nil || !stored.Equal(c) || !cmp.Equal(c, stored) {
			t.Fatalf("%s is read as %+v, %v", document, stored, err)
		}
	})
}

// TestResume_Early: signals that come before anybody waits, and are given to the wait when it opens, do what they would have done
// to the wait. executions.md 5/29.
func TestResume_Early(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := resumable(1).Draw(t, "condition")
		which := world(t)
		var got []wait.Signal
		for _, s := range arriving().Draw(t, "signals") {
			got = append(got, which(s))
		}
		early := rapid.IntRange(0, len(got)).Draw(t, "early")
		w := wait.Wait{Spec: wait.Spec{Condition: c}}
		kept := rapid.Permutation(got[:early]).Draw(t, "kept")
		one := w
		var counted []string
		for _, s := range kept {
			var counts bool
			if _, satisfied := one.DecideBy(start); satisfied {
				break // what comes later is not needed
			}
			if one, counts = one.Deliver(s); counts {
				counted = append(counted, s.ID)
			}
		}
		var ids []string
		if w, ids = w.DeliverAll(kept, start); !slices.Equal(ids, counted) || !cmp.Equal(w, one, cmpopts.EquateEmpty()) {
			t.Fatalf("together %v count, one by one %v", ids, counted)
		}
		if _, satisfied := w.DecideBy(start); satisfied != fulfilled(c, got[:early]) {
			t.Fatal("it opens in another way")
		}
		for _, s := range got[early:] {
			w, _ = w.Deliver(s)
		}
		if _, satisfied := w.DecideBy(start); satisfied != fulfilled(c, got) {
			t.Fatal("it ends in another way")
		}
	})
}

// TestWait_Many: as many signals as an execution may have, for as large a condition as there may be, in a moment: this is done
// while the store's only writer waits.
func TestWait_Many(t *testing.T) {
	t.Parallel()
	const each = wait.MaxCount / (wait.MaxResumeParts - 1)
	var parts []wait.Condition
	for range wait.MaxResumeParts - 1 {
		parts = append(parts, counting(each, wait.DistinctSignals, "", "a"))
	}
	w := wait.Wait{Spec: wait.Spec{Condition: allOf(append(parts, forPerson)...)}}
	signals := make([]wait.Signal, 10_000)
	for i := range signals {
		signals[i] = wait.Signal{ID: fmt.Sprintf("9b1d7f64-0c2a-4e5b-8d19-%012d", i), Waitpoint: "a", Name: "x"}
	}
	before := w
	w, counted := w.DeliverAll(signals, start)
	if len(counted) != each || len(w.Received) != each || counted[each-1] != signals[each-1].ID || before.Received != nil {
		t.Errorf("%d of %d signals count", len(counted), len(signals))
	}
	for i, n := range w.Progress() {
		if n != each && i < wait.MaxResumeParts-1 {
			t.Errorf("part %d has %d signals", i, n)
		}
	}
	if effect := w.Effect(wait.Signal{ID: "one more", Waitpoint: "a"}); effect != wait.Duplicate {
		t.Errorf("one more: %s", effect)
	}
}
