package modeltest

import (
	"fmt"
	"slices"
)

// condition is what a suspension waits for. executions.md 2.16.
type condition struct {
	form  string // single, count, all, operator, timeout
	keys  []string
	name  string // of the signals, "" for any
	n     int
	count string // DistinctWaitpoints and so on
	of    []condition
}

// body is the condition as it is sent.
func (c condition) body() any {
	matcher := any("Wildcard")
	if c.name != "" {
		matcher = map[string]any{"ByName": c.name}
	}
	switch c.form {
	case "operator":
		return "OperatorOnly"
	case "timeout":
		return "TimeoutOnly"
	case "single":
		return map[string]any{"Single": map[string]any{"waitpoint_key": c.keys[0], "matcher": matcher}}
	case "count":
		count := map[string]any{"kind": "Count", "n": c.n, "count_kind": c.count, "waitpoints": c.keys}
		if c.name != "" {
			count["matcher"] = matcher
		}
		return map[string]any{"Composite": count}
	}
	var members []any
	for _, part := range c.of {
		members = append(members, part.body())
	}
	return map[string]any{"Composite": map[string]any{"kind": "AllOf", "members": members}}
}

// hears says whether a leaf listens where a signal came.
func (c condition) hears(s *signal) bool { return slices.Contains(c.keys, s.at.key) }

func (c condition) takes(s *signal) bool { return c.hears(s) && (c.name == "" || c.name == s.kind) }

// has counts what a leaf has, all signals looked at anew.
func (c condition) has(got []*signal) int {
	distinct := map[string]bool{}
	for _, s := range got {
		if !c.takes(s) {
			continue
		}
		switch c.count {
		case "DistinctWaitpoints":
			distinct[s.at.key] = true
		case "DistinctSignals":
			distinct[fmt.Sprintf("%p", s)] = true
		case "DistinctSources":
			distinct[s.sourceType+"|"+s.source] = true
		default:
			distinct[""] = true
		}
	}
	return min(len(distinct), max(c.n, 1))
}

func (c condition) leaves() []condition {
	if c.form != "all" {
		return []condition{c}
	}
	var all []condition
	for _, part := range c.of {
		all = append(all, part.leaves()...)
	}
	return all
}

func (c condition) holds(got []*signal) bool {
	for _, leaf := range c.leaves() {
		if leaf.form != "single" && leaf.form != "count" || leaf.has(got) < max(leaf.n, 1) {
			return false
		}
	}
	return true
}

// effect says what one more signal does, and whether it counts. executions.md 2.17.
func (c condition) effect(got []*signal, s *signal) (string, bool) {
	more := append(slices.Clone(got), s)
	counts := slices.ContainsFunc(c.leaves(), func(leaf condition) bool { return leaf.has(more) > leaf.has(got) })
	one := func(is func(leaf condition) bool) bool { return slices.ContainsFunc(c.leaves(), is) }
	switch {
	case c.form == "operator", c.form == "timeout":
		return "no_op", false
	case c.holds(more):
		return "resume_condition_satisfied", counts
	case counts, c.form == "single":
		return "appended_to_waitpoint", counts
	case one(func(leaf condition) bool { return leaf.takes(s) }):
		return "appended_to_waitpoint_duplicate", false
	case one(func(leaf condition) bool { return leaf.hears(s) }):
		return "signal_ignored_matcher_failed", false
	}
	return "signal_ignored_not_in_condition", false
}

// names are the required_signal_names of a waitpoint.
func (c condition) names(key string) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, leaf := range c.leaves() {
		switch {
		case leaf.form == "operator":
			add("__operator_only__")
		case leaf.form == "timeout":
			add("__timeout_only__")
		case slices.Contains(leaf.keys, key):
			add(leaf.name)
		}
	}
	return names
}
