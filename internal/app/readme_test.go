package app_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/apptest"
)

// The tour of the README, and the rest of it, work by copy and paste: their commands, in one shell, against a fresh server.
func TestReadme_tour(t *testing.T) {
	t.Parallel()
	var blocks [][]string
	for _, file := range []string{"../../README.md", "../../docs/tour.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile("(?s)<!-- tour -->\n```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(found) < 5 {
			t.Fatalf("the tour of %s has %d steps", file, len(found))
		}
		blocks = append(blocks, found...)
	}
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		var script strings.Builder
		for _, b := range blocks {
			script.WriteString(strings.ReplaceAll(b[1], "localhost:8080", strings.TrimPrefix(s.Base(), "http://")))
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-eu")
		cmd.Stdin = strings.NewReader(script.String())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("the tour fails: %v\n%s", err, out)
		}
		for _, want := range []string{
			`greet with {"name":"Ada"}, attempt 0`, `{"greeting":"Hello Ada"}`, `"code":"revision_mismatch"`, `"matched":[{"flow_id":`,
			`"kind":"flow_wait"`, `"effect":"resume_condition_satisfied"`, `"source_identity":"Ada"`, "all checks are green", `"status":"finished"`, "event: flow.finished", "Idempotent-Replay: true",
		} {
			if !strings.Contains(string(out), want) {
				t.Errorf("the tour does not show %s", want)
			}
		}
		if t.Failed() {
			t.Logf("%s", out)
		}
	})
}
