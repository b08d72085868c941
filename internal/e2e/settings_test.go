package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docs/operations.md names every flag of every command and every environment variable, and none that there is not.
func TestSettings(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	common := flagsIn(table(t, text, "settings of clients"))
	want := map[string][]string{"serve": flagsIn(table(t, text, "settings of serve"))}
	var commands []string
	for row := range strings.SplitSeq(table(t, text, "settings of each client"), "\n") {
		cells := strings.Split(row, "|")
		if names := regexp.MustCompile("`([a-z ]+)`").FindAllStringSubmatch(cells[1], -1); names != nil {
			commands = nil
			for _, name := range names {
				commands = append(commands, name[1])
			}
		}
		for _, c := range commands {
			want[c] = append(want[c], flagsIn(cells[2])...)
		}
	}
	got := map[string][]string{}
	for _, c := range commandsOf(t) {
		flags := flagsIn(run(t, nil, append(strings.Fields(c), "--help")...).out)
		got[c] = slices.DeleteFunc(flags, func(f string) bool { return f == "--help" })
		if c != "serve" {
			want[c] = append(want[c], common...)
		}
		slices.Sort(got[c])
		slices.Sort(want[c])
		got[c], want[c] = slices.Compact(got[c]), slices.Compact(want[c])
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("flags (-as they are +as they are documented):\n%s", diff)
	}

	var used, told []string
	files, _ := filepath.Glob("../../cmd/flowapi/*.go")
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`(?:getenv|env\.flag)\("([A-Z_]+)"`).FindAllStringSubmatch(string(source), -1) {
			used = append(used, name[1])
		}
	}
	for _, name := range regexp.MustCompile("`(FLOWAPI_[A-Z_]+|GOGC|NO_COLOR|TERM)\\b").FindAllStringSubmatch(text, -1) {
		told = append(told, name[1])
	}
	slices.Sort(used)
	slices.Sort(told)
	if diff := cmp.Diff(slices.Compact(used), slices.Compact(told)); diff != "" {
		t.Errorf("environment variables (-as they are +as they are documented):\n%s", diff)
	}
}

// table returns the rows of the table that follows a comment.
func table(t *testing.T, text, comment string) string {
	t.Helper()
	m := regexp.MustCompile(`<!-- ` + comment + ` -->\n\|.*\n\|-.*\n((?:\|.*\n)+)`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("there is no table of the %s", comment)
	}
	return strings.TrimSpace(m[1])
}

// flagsIn returns the flags that stand in a help text, or first in the rows of a table.
func flagsIn(text string) (flags []string) {
	for _, f := range regexp.MustCompile("(?m)(?:^ +|^ +-., |^ ?\\| ?`|^ `|, `)(--[a-z-]+)").FindAllStringSubmatch(text, -1) {
		flags = append(flags, f[1])
	}
	return flags
}

// commandsOf returns every command that does something.
func commandsOf(t *testing.T) (commands []string) {
	t.Helper()
	below := func(args ...string) (names []string) {
		for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+) +[A-Z]`).FindAllStringSubmatch(run(t, nil, append(args, "--help")...).out, -1) {
			names = append(names, m[1])
		}
		return names
	}
	for _, c := range below() {
		switch children := below(c); {
		case c == "completion" || c == "help":
		case len(children) == 0:
			commands = append(commands, c)
		default:
			for _, child := range children {
				commands = append(commands, c+" "+child)
			}
		}
	}
	return commands
}
