package app_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// TestVocabulary: the machine, the CHECKs of both databases and the enums of the contract know the same words.
// executions.md 1.9.1.
func TestVocabulary(t *testing.T) {
	t.Parallel()
	spec, err := oapi.Spec()
	if err != nil {
		t.Fatal(err)
	}
	vector := spec.Components.Schemas["StateVector"].Value.Properties
	if len(vector) != len(execution.Vocabulary()) {
		t.Errorf("the contract has %d dimensions", len(vector))
	}
	for dimension, words := range execution.Vocabulary() {
		var enum []string
		for _, word := range vector[dimension].Value.Enum {
			enum = append(enum, fmt.Sprint(word))
		}
		sameWords(t, "the contract's "+dimension, words, enum)
	}
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		checks := checksOf(t, s, "executions")
		for dimension, words := range execution.Vocabulary() {
			sameWords(t, "CHECK of "+dimension, words, checks[dimension])
		}
	})
}

// TestVocabulary_streams: the reasons for which streams close are the same words for the machine, the contract and both databases.
func TestVocabulary_streams(t *testing.T) {
	t.Parallel()
	spec, err := oapi.Spec()
	if err != nil {
		t.Fatal(err)
	}
	var reasons, enum []string
	for _, reason := range execution.CloseReasons() {
		reasons = append(reasons, string(reason))
	}
	for _, word := range spec.Components.Schemas["CloseReason"].Value.Enum {
		enum = append(enum, fmt.Sprint(word))
	}
	sameWords(t, "the contract's CloseReason", reasons, enum)
	for _, e := range event.Catalogue() { // a stream that was reclaimed has been closed before
		if e.Type == event.StreamClosed {
			list := regexp.MustCompile(`\((.*)\)`).FindStringSubmatch(e.Data)[1]
			told := regexp.MustCompile(`\w+`).FindAllString(strings.Replace(list, "reserved:", "", 1), -1)
			sameWords(t, "the catalogue's reasons of stream.closed", reasons, append(told, string(execution.ClosedReclaimed)))
		}
	}
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		x := executionsOn(t, s, "words")
		c := x.held("")
		for _, reason := range reasons {
			x.tamper("UPDATE attempts SET closed_reason = ? WHERE execution_id = ?", reason, rowID(c.Execution.ID))
		}
	})
}

func sameWords(t *testing.T, what string, want, got []string) {
	t.Helper()
	want, got = slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-machine +there):\n%s", what, diff)
	}
}

// TestVocabulary_runs: the machines of runs, steps, items and gates, the contract and the CHECKs of both databases know the same words.
// runs-and-taskflows.md C2 "Statuses".
func TestVocabulary_runs(t *testing.T) {
	t.Parallel()
	spec, err := oapi.Spec()
	if err != nil {
		t.Fatal(err)
	}
	ends := slices.DeleteFunc(run.Statuses(), func(s run.Status) bool { return !s.Terminal() })
	words := map[string][]string{
		"RunStatus": wordsOf(run.Statuses()), "RunEnd": wordsOf(ends), "RunStepStatus": wordsOf(run.StepStatuses()), "RunStepRole": wordsOf(run.Roles()),
		"RunItemStatus": wordsOf(run.ItemStatuses()), "GateState": wordsOf(run.GateOutcomes()), "GateDecision": wordsOf([]run.Decision{run.Approve, run.Reject, run.Note}),
	}
	for schema, known := range words {
		var enum []string
		for _, word := range spec.Components.Schemas[schema].Value.Enum {
			enum = append(enum, fmt.Sprint(word))
		}
		sameWords(t, "the contract's "+schema, known, enum)
	}
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		for _, c := range [][3]string{
			{"runs", "status", "RunStatus"}, {"run_steps", "status", "RunStepStatus"}, {"run_steps", "role", "RunStepRole"}, {"run_items", "status", "RunItemStatus"}, {"gate_votes", "decision", "GateDecision"},
		} {
			sameWords(t, "CHECK of "+c[0]+"."+c[1], words[c[2]], checksOf(t, s, c[0])[c[1]])
		}
	})
}

func wordsOf[S ~string](list []S) []string {
	words := make([]string, len(list))
	for i, word := range list {
		words[i] = string(word)
	}
	return words
}

// checksOf returns the words that the CHECK of each column of a table allows.
func checksOf(t *testing.T, s *apptest.Server, table string) map[string][]string {
	t.Helper()
	query := `SELECT sql FROM sqlite_master WHERE name = '` + table + `'`
	column := regexp.MustCompile(`(?m)^\s*(\w+)\s+TEXT NOT NULL CHECK \((.*)\),$`)
	if s.App.Store().Database() == "postgres" {
		query = `SELECT string_agg(pg_get_constraintdef(oid), E'\n') FROM pg_constraint WHERE conrelid = '` + table + `'::regclass AND contype = 'c'`
		column = regexp.MustCompile(`(?m)^CHECK \(\(\(?(\w+) = (ANY .*)$`)
	}
	var text string
	if err := s.App.Store().Read(t.Context(), func(q *store.Queries) error { return q.Get(&text, query) }); err != nil {
		t.Fatal(err)
	}
	checks := map[string][]string{}
	for _, found := range column.FindAllStringSubmatch(text, -1) {
		for _, word := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(found[2], -1) {
			checks[found[1]] = append(checks[found[1]], word[1])
		}
	}
	if len(checks) == 0 {
		t.Fatalf("no checks in %s", strings.TrimSpace(text))
	}
	return checks
}
