package watch_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/client"
	"github.com/flowapi/flowapi/internal/watch"
)

var start = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

// pipeline is a flow in the middle: build has ended, lint failed, test runs again, deploy asks, and publish waits for both.
const pipeline = `{"flow":{"id":"f","kind":"ci","goal":"check abc","status":"running","created_at":"2026-11-21T09:30:00Z"},
"graph":{"nodes":[
 {"execution_id":"5","key":"publish","lane":"ci","public_state":"waiting_children","blocking_reason":"waiting_for_children","total_attempt_count":0,"created_at":"2026-11-21T09:30:00Z"},
 {"execution_id":"4","key":"deploy","lane":"ci","kind":"shell","public_state":"suspended","blocking_reason":"waiting_for_approval","total_attempt_count":1,"created_at":"2026-11-21T09:30:00Z","started_at":"2026-11-21T09:30:04Z"},
 {"execution_id":"1","key":"build","lane":"ci","public_state":"completed","blocking_reason":"none","total_attempt_count":1,"created_at":"2026-11-21T09:30:00Z","started_at":"2026-11-21T09:30:01Z","completed_at":"2026-11-21T09:30:03.5Z"},
 {"execution_id":"2","key":"lint","lane":"ci","public_state":"failed","blocking_reason":"none","total_attempt_count":2,"failure":{"reason":"exit status 3","category":null},"created_at":"2026-11-21T09:30:00Z","started_at":"2026-11-21T09:30:01Z","completed_at":"2026-11-21T09:31:03Z"},
 {"execution_id":"3","key":"test","lane":"ci","public_state":"active","blocking_reason":"none","total_attempt_count":2,"created_at":"2026-11-21T09:30:00Z","started_at":"2026-11-21T09:30:04Z"},
 {"execution_id":"6","lane":"slow","public_state":"waiting","blocking_reason":"waiting_for_worker","total_attempt_count":0,"created_at":"2026-11-21T09:30:00Z"}],
"edges":[
 {"upstream_execution_id":"1","downstream_execution_id":"3","state":"satisfied"},
 {"upstream_execution_id":"1","downstream_execution_id":"4","state":"satisfied"},
 {"upstream_execution_id":"3","downstream_execution_id":"5","state":"pending"},
 {"upstream_execution_id":"4","downstream_execution_id":"5","state":"pending"},
 {"upstream_execution_id":"2","downstream_execution_id":"5","state":"impossible"}],
"groups":[{"downstream_execution_id":"5","kind":"quorum","k":2,"state":"pending","satisfied_count":0}]},
"asks":[{"execution_id":"4","title":"Deploy abc?"}]}`

func snapshot(t *testing.T, text string) *watch.Snapshot {
	t.Helper()
	var s watch.Snapshot
	parts := struct {
		Flow  *client.Flow        `json:"flow"`
		Graph *client.Graph       `json:"graph"`
		Asks  *[]client.InboxItem `json:"asks"`
	}{&s.Flow, &s.Graph, &s.Asks}
	if err := json.Unmarshal([]byte(text), &parts); err != nil {
		t.Fatal(err)
	}
	return &s
}

func TestTree(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	width, height := 100, 24
	tree := watch.Tree{Out: &out, Size: func() (int, int) { return width, height }}
	draw := func(s *watch.Snapshot) string {
		t.Helper()
		out.Reset()
		if err := tree.Draw(s, start.Add(65*time.Second)); err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer("\x1b[?7l", "", "\x1b[?7h", "", "\x1b", "␛").Replace(out.String())
	}
	s := snapshot(t, pipeline)
	want := strings.ReplaceAll("\r"+`● check abc  running  2 of 6  1m05s␛[K
○ 6            waiting                   waiting for a worker of the lane slow␛[K
✓ build        completed           2.5s␛[K
✗ lint         failed             1m02s  attempt 2  exit status 3␛[K
  ? deploy     suspended          1m01s  asks a person: Deploy abc?␛[K
  ● test       active             1m01s  attempt 2␛[K
    ○ publish  waiting_children          needs 2 more of deploy, lint, test␛[K
␛[J`, "● check", "check")
	if diff := cmp.Diff(want, draw(s)); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
	again := draw(s)
	if !strings.HasPrefix(again, "␛[7A\rcheck abc") {
		t.Errorf("it is not drawn in place: %q", again)
	}
	width, height = 20, 5
	small := draw(s)
	for l := range strings.SplitSeq(strings.ReplaceAll(small, "␛[K", ""), "\n") {
		if n := len([]rune(strings.TrimPrefix(strings.TrimPrefix(l, "␛[7A"), "\r"))); n > width {
			t.Errorf("the line %q is %d wide", l, n)
		}
	}
	if strings.Count(small, "\n") != 4 || strings.Contains(small, "build") || !strings.Contains(small, "…") {
		t.Errorf("in a small terminal it is %q", small)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	lines := watch.Lines{Out: &out}
	show := func(s *watch.Snapshot) string {
		t.Helper()
		out.Reset()
		if err := lines.Show(s, start.Add(65*time.Second)); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for l := range strings.Lines(out.String()) {
			text.WriteString(l[len("09:30:00  "):])
		}
		return text.String()
	}
	s := snapshot(t, pipeline)
	if diff := cmp.Diff(`check abc: running
build completed after 2.5s
lint failed after 1m02s, attempt 2: exit status 3
deploy suspended: asks a person: Deploy abc?
test active, attempt 2
`, show(s)); diff != "" {
		t.Errorf("the first lines differ (-want +got):\n%s", diff)
	}
	if got := show(s); got != "" {
		t.Errorf("without a change it says %q", got)
	}
	end := start.Add(70 * time.Second)
	s.Graph.Nodes[4].PublicState, s.Graph.Nodes[4].CompletedAt = "completed", &end
	s.Flow.Status, s.Flow.EndedAt = "failed", &end
	if diff := cmp.Diff("test completed after 1m06s, attempt 2\ncheck abc: failed after 1m10s\n", show(s)); diff != "" {
		t.Errorf("the last lines differ (-want +got):\n%s", diff)
	}
}

func TestJUnit(t *testing.T) {
	t.Parallel()
	s := snapshot(t, pipeline)
	s.Flow.Status, s.Flow.EndedAt = "failed", new(start.Add(70*time.Second))
	s.Graph.Nodes[0].PublicState, s.Graph.Nodes[1].PublicState = "skipped", "cancelled"
	outputs := map[string]watch.Output{"2": {All: []string{"a <b> & \x00c", "]]>"}}}
	type testCase struct {
		Name    string  `xml:"name,attr"`
		Class   string  `xml:"classname,attr"`
		Time    float64 `xml:"time,attr"`
		Failure *struct {
			Message string `xml:"message,attr"`
			Text    string `xml:",chardata"`
		} `xml:"failure"`
		Skipped *struct {
			Message string `xml:"message,attr"`
		} `xml:"skipped"`
	}
	report := func() string {
		t.Helper()
		var b bytes.Buffer
		if err := watch.JUnit(&b, s, outputs, start); err != nil {
			t.Fatal(err)
		}
		var all struct {
			Suite struct {
				Tests    int        `xml:"tests,attr"`
				Failures int        `xml:"failures,attr"`
				Skipped  int        `xml:"skipped,attr"`
				Cases    []testCase `xml:"testcase"`
			} `xml:"testsuite"`
		}
		if err := xml.Unmarshal(b.Bytes(), &all); err != nil {
			t.Fatalf("%v: %s", err, b.String())
		}
		text := fmt.Sprintln(all.Suite.Tests, all.Suite.Failures, all.Suite.Skipped)
		for _, c := range all.Suite.Cases {
			text += fmt.Sprintf("%s %s %.1f", c.Name, c.Class, c.Time)
			if c.Failure != nil {
				text += fmt.Sprintf(" failed %q %q", c.Failure.Message, c.Failure.Text)
			}
			if c.Skipped != nil {
				text += " skipped " + c.Skipped.Message
			}
			text += "\n"
		}
		return text
	}
	want := `6 1 4
6 ci.slow 0.0 skipped it has not ended: waiting, waiting for a worker of the lane slow
build ci.ci 2.5
lint ci.ci 62.0 failed "exit status 3" "a <b> & �c\n]]>"
deploy ci.shell 0.0 skipped cancelled
test ci.ci 0.0 skipped it has not ended: active
publish ci.ci 0.0 skipped skipped
`
	if diff := cmp.Diff(want, report()); diff != "" {
		t.Errorf("the report differs (-want +got):\n%s", diff)
	}
	s.Flow.Status = "finished"
	if got := report(); !strings.HasPrefix(got, "6 0 5\n") || !strings.Contains(got, "lint ci.ci 62.0 skipped it was not needed") {
		t.Errorf("of a flow that finished all the same: %s", got)
	}
}

func TestOutput_Last(t *testing.T) {
	t.Parallel()
	many, few := []string{"1", "2", "3", "4"}, []string{"make: Error 1"}
	if got := (&watch.Output{Errors: many, All: []string{"x"}}).Last(2); !cmp.Equal(got, []string{"3", "4"}) {
		t.Errorf("%v", got)
	}
	if got := (&watch.Output{Errors: few, All: many}).Last(9); !cmp.Equal(got, many) {
		t.Errorf("%v", got)
	}
}
