package app_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apptest"
)

// docs/operations.md names every metric with its labels, and none that there is not.
func TestDocs_metrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(text), "<!-- metrics -->")
	want := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(flowapi_[a-z_]+)` \\|([^|]*)\\|").FindAllStringSubmatch(rows, -1) {
		want[row[1]] = regexp.MustCompile("[a-z]+").FindAllString(row[2], -1)
	}
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		s.Settle() // every loop has run
		s.Get("/v1/meta")
		got := map[string][]string{}
		shown := string(s.Get("/metrics").Body)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (flowapi_\w+) (\w+)$`).FindAllStringSubmatch(shown, -1) {
			name := m[1]
			got[name] = nil
			if sample := regexp.MustCompile(`(?m)^` + name + `(?:_count)?\{(.*?)\} `).FindStringSubmatch(shown); sample != nil {
				for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(sample[1], -1) {
					got[name] = append(got[name], label[1])
				}
			}
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("metrics (-as they are +as they are documented):\n%s", diff)
		}
	})
}

// Every link of the documentation that stays within the repository leads to a file that is there, and to a heading that it has.
func TestDocs_links(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../examples/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	links := 0
	for _, file := range files {
		for _, m := range regexp.MustCompile(`\]\(([^()\s]+)\)`).FindAllStringSubmatch(prose(t, file), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, heading, _ := strings.Cut(m[1], "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", file, m[1])
			} else if heading != "" && !slices.Contains(headings(t, target), heading) {
				t.Errorf("%s: %s has no such heading", file, m[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were found", links)
	}
}

// prose returns a document without its code.
func prose(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile("(?ms)^(?:```.*?\n```|    .*?)$").ReplaceAllString(string(text), "")
}

// headings returns the anchors of a document, as GitHub names them.
func headings(t *testing.T, file string) (anchors []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(prose(t, file), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N}\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}
