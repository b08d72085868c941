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
		checks := checksOf(t, s)
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

// checksOf returns the words that the CHECK of each column of executions allows.
func checksOf(t *testing.T, s *apptest.Server) map[string][]string {
	t.Helper()
	query := `SELECT sql FROM sqlite_master WHERE name = 'executions'`
	column := regexp.MustCompile(`(?m)^\s*(\w+)\s+TEXT NOT NULL CHECK \((.*)\),$`)
	if s.App.Store().Database() == "postgres" {
		query = `SELECT string_agg(pg_get_constraintdef(oid), E'\n') FROM pg_constraint WHERE conrelid = 'executions'::regclass AND contype = 'c'`
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
