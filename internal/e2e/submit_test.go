package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// pipeline is a flow of three executions in one lane, as a file.
func pipeline(tb testing.TB, lane string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "pipeline.yaml")
	text := strings.ReplaceAll(`# a comment
goal: check it
kind: ci
graph:
  executions:
    - {key: build, lane: LANE, payload: {run: make build}}
    - key: test
      lane: LANE
      needs: [{key: build, pass_result: true}]
    - {key: publish, lane: LANE, needs: [test]}
`, "LANE", lane)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// pipelineOf is a pipeline whose flow has an id of its own.
func pipelineOf(tb testing.TB, lane, id string) string {
	tb.Helper()
	file := pipeline(tb, lane)
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, append([]byte("id: "+id+"\n"), text...), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// flowID returns the flow whose address stands first in the output.
func flowID(tb testing.TB, out string) string {
	tb.Helper()
	line, _, _ := strings.Cut(out, "\n")
	_, id, ok := strings.Cut(line, "/v1/flows/")
	if !ok {
		tb.Fatalf("there is no flow in %q", out)
	}
	return id
}

// submitted returns the flow that a submit has told of.
func (t *tool) submitted() string {
	t.tb.Helper()
	eventually(t.tb, "the flow is told", func() bool { return strings.Contains(t.out.String(), "\n") })
	return flowID(t.tb, t.out.String())
}

func (s *server) status(flow string) string {
	s.tb.Helper()
	var f struct{ Status string }
	s.get("/v1/flows/"+flow, &f)
	return f.Status
}

// ask claims what a lane has and asks a person.
func (s *server) ask(lane string) (execution string) {
	s.tb.Helper()
	var c struct {
		Claims []struct {
			Handle    string
			Execution struct{ ID string }
		}
	}
	s.post("/v1/claims", `{"lane":"`+lane+`","worker_id":"asker"}`, &c)
	if len(c.Claims) != 1 {
		s.tb.Fatalf("the lane %s has %d claims", lane, len(c.Claims))
	}
	execution = c.Claims[0].Execution.ID
	s.post("/v1/executions/"+execution+"/suspend", `{"handle":"`+c.Claims[0].Handle+`","reason_code":"waiting_for_approval",
		"waitpoints":[{"waitpoint_key":"go","approval":{"title":"Go on?"}}]}`, nil)
	return execution
}

// How a flow ends is how submit --wait ends.
func TestSubmit_codes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	t.Run("finished", func(t *testing.T) {
		t.Parallel()
		startWorker(t, s, "fine", `[ "$FLOWAPI_KEY" != test ] || [ "$FLOWAPI_INPUTS" = '{"build":{"n":1}}' ] || exit 1; echo '{"n":1}' >"$FLOWAPI_RESULT"`)
		got := run(t, []string{"FLOWAPI_URL=" + s.url}, "submit", pipeline(t, "fine"), "--wait", "--timeout", "2m")
		if got.code != 0 || !strings.HasPrefix(got.out, s.url+"/v1/flows/") || !strings.Contains(got.out, "check it: finished") || got.errors != "" {
			t.Errorf("%+v", got)
		}
		if status := s.status(flowID(t, got.out)); status != "finished" {
			t.Errorf("the flow is %s", status)
		}
	})
	t.Run("failed", func(t *testing.T) {
		t.Parallel()
		submitFailed(t, s)
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		submitCancelled(t, s)
	})
	t.Run("nobody works", func(t *testing.T) {
		t.Parallel()
		got := run(t, []string{"FLOWAPI_URL=" + s.url}, "submit", pipeline(t, "nobody"), "--wait", "--timeout", "500ms")
		if flow := flowID(t, got.out); got.code != 4 || !strings.Contains(got.out, "flowapi cancel "+flow) || s.status(flow) != "running" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("nobody decides", func(t *testing.T) {
		t.Parallel()
		file := pipelineOf(t, "person", "0f10a000-0000-4000-8000-00000000000b")
		env := []string{"FLOWAPI_URL=" + s.url}
		if got := run(t, env, "submit", file); got.code != 0 {
			t.Fatalf("%+v", got)
		}
		execution := s.ask("person")
		got := run(t, env, "submit", file, "--wait", "--timeout", "4s")
		if got.code != 5 || !strings.Contains(got.out, "flowapi approve "+execution) || !strings.Contains(got.out, "Go on?") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("nobody is waited for", func(t *testing.T) {
		t.Parallel()
		submit := startTool(t, s.url, "submit", pipeline(t, "impatient"), "--wait", "--exit-on-approval")
		flow := submit.submitted()
		s.ask("impatient")
		if code := submit.ended(); code != 5 {
			t.Errorf("exit code %d", code)
		}
		if got := run(t, []string{"FLOWAPI_URL=" + s.url}, "reject", flow, "--reason", "no"); got.code != 0 {
			t.Errorf("flowapi reject: %+v", got)
		}
	})
	t.Run("a flow that waits by itself", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "flow.json")
		if err := os.WriteFile(file, []byte(`{"goal":"ask","start":true}`), 0o600); err != nil {
			t.Fatal(err)
		}
		submit := startTool(t, s.url, "submit", file, "--wait", "--exit-on-approval")
		flow := submit.submitted()
		s.post("/v1/flows/"+flow+"/wait", `{"condition":{"kind":"manual"}}`, nil)
		if code := submit.ended(); code != 5 {
			t.Errorf("exit code %d", code)
		}
		if got := run(t, []string{"FLOWAPI_URL=" + s.url}, "approve", flow); got.code != 0 || s.status(flow) != "running" {
			t.Errorf("flowapi approve: %+v, %s", got, s.status(flow))
		}
	})
	t.Run("without --wait", func(t *testing.T) {
		t.Parallel()
		if got := run(t, []string{"FLOWAPI_URL=" + s.url}, "submit", pipeline(t, "later")); got.code != 0 || s.status(flowID(t, got.out)) != "running" {
			t.Errorf("%+v", got)
		}
	})
}

func submitFailed(t *testing.T, s *server) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.xml")
	startWorker(t, s, "bad", `echo working; [ "$FLOWAPI_KEY" = build ] || { printf 'one\ntwo\nthe cause\n' >&2; exit 3; }`)
	env := []string{"FLOWAPI_URL=" + s.url, "FLOWAPI_PUBLIC_URL=https://ci.example.org/"}
	got := run(t, env, "submit", pipeline(t, "bad"), "--wait", "--junit", report)
	flow := flowID(t, got.out)
	for _, want := range []string{"https://ci.example.org/v1/flows/", "test failed", "exit status 3", "| the cause\n", "flowapi why ", "flowapi replay " + flow, "publish skipped"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if got.code != 1 || strings.Contains(got.out, "| working") {
		t.Errorf("%+v", got)
	}
	xml, err := os.ReadFile(report)
	for _, want := range []string{`tests="3" failures="1"`, `skipped="1"`, `<failure message="exit status 3"`, "one&#xA;two&#xA;the cause", "working"} {
		if err != nil || !strings.Contains(string(xml), want) {
			t.Errorf("the report does not have %s: %v\n%s", want, err, xml)
		}
	}
	// What failed runs again.
	env = env[:1]
	if got := run(t, env, "replay", flow, "--dry-run"); got.code != 0 || got.out != "would run again: test, publish\nkept: build\n" {
		t.Errorf("flowapi replay --dry-run: %+v", got)
	}
	if got := run(t, env, "replay", flow, "--from", "test"); got.code != 0 || !strings.Contains(got.out, "runs again: test") {
		t.Errorf("flowapi replay: %+v", got)
	}
}

func submitCancelled(t *testing.T, s *server) {
	t.Helper()
	w := startWorker(t, s, "stopped", `echo on >"$FOLDER/on"; exec sleep 60`)
	submit := startTool(t, s.url, "submit", pipeline(t, "stopped"), "--wait", "--json")
	w.wrote("on")
	submit.says("/v1/flows/")
	flow := flowID(t, submit.err.String())
	got := run(t, []string{"FLOWAPI_URL=" + s.url}, "cancel", flow, "--reason", "superseded", "--wait")
	if got.code != 0 || got.out != "cancelled "+flow+"\n" {
		t.Errorf("flowapi cancel: %+v", got)
	}
	if code := submit.ended(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	var document struct {
		Outcome string
		Code    int `json:"exit_code"`
		Flow    struct{ ID, Status string }
		Graph   struct{ Nodes []struct{ Key string } }
	}
	if err := json.Unmarshal([]byte(submit.out.String()), &document); err != nil || document.Outcome != "cancelled" || document.Code != 3 ||
		document.Flow.ID != flow || document.Flow.Status != "cancelled" || len(document.Graph.Nodes) != 3 {
		t.Errorf("%v: %+v", err, document)
	}
	w.says("cancelled")
}

// What is wrong with the command or the file is told at once.
func TestSubmit_mistakes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for name, tt := range map[string]struct {
		args []string
		text string
		says string
	}{
		"no file":              {[]string{"submit"}, "", "arg"},
		"a file that is none":  {[]string{"submit", "/nowhere.yaml"}, "", "/nowhere.yaml"},
		"a mistake in YAML":    {[]string{"submit", "FILE"}, "goal: x\ngraph: [\n", "flow.yaml: line"},
		"a mistake in a field": {[]string{"submit", "FILE"}, "goal: x\ngraph:\n  executions:\n    - {key: a, lane: ci}\n    - {key: b, lane: ci, need: [a]}\n", "flow.yaml:5"},
		"an unknown need":      {[]string{"submit", "FILE"}, "goal: x\ngraph:\n  executions:\n    - {key: a, lane: ci, needs: [b]}\n", "graph_invalid"},
		"a report of nothing":  {[]string{"submit", "FILE", "--junit", "x.xml"}, "goal: x\n", "--wait"},
		"no time":              {[]string{"submit", "FILE", "--wait", "--timeout", "soon"}, "goal: x\n", "soon"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "flow.yaml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			args := append([]string(nil), tt.args...)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "FILE", file)
			}
			if got := run(t, []string{"FLOWAPI_URL=" + s.url}, args...); got.code != 2 || !strings.Contains(got.errors, tt.says) {
				t.Errorf("%+v; want exit code 2 and a word of %s", got, tt.says)
			}
		})
	}
}

// The end of a flow is seen although the server is killed while it is waited for, and again.
func TestSubmit_restart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		script string
		code   int
	}{{"true", 0}, {"false", 1}} {
		t.Run(tt.script, func(t *testing.T) {
			t.Parallel()
			s, database := fixedServer(t)
			submit := startTool(t, s.url, "submit", pipeline(t, "ci"), "--wait")
			flow := submit.submitted()
			for range 2 {
				s.kill()
				submit.says("trying again")
				s = serveWith(t, nil, "--addr", s.addr(), "--db", database)
			}
			startWorker(t, s, "ci", tt.script)
			if code := submit.ended(); code != tt.code {
				t.Errorf("exit code %d", code)
			}
			if status := s.status(flow); status != map[int]string{0: "finished", 1: "failed"}[tt.code] {
				t.Errorf("the flow is %s", status)
			}
		})
	}
}

// A server that is away is waited for, and one whose answer is lost does not get the flow twice.
func TestSubmit_once(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	proxy := &httputil.ReverseProxy{Transport: newClient(t).Transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method == http.MethodPost && requests.Add(1) < 3 {
			r.Body.Close()
			panic(http.ErrAbortHandler) // the flow is there, and the answer is lost
		}
		return nil
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	got := run(t, []string{"FLOWAPI_URL=" + front.URL}, "submit", pipeline(t, "ci"))
	if got.code != 0 || requests.Load() != 3 || !strings.Contains(got.errors, "trying again") {
		t.Errorf("after %d requests: %+v", requests.Load(), got)
	}
	var list struct{ Items []struct{ ID string } }
	s.get("/v1/flows", &list)
	if len(list.Items) != 1 || list.Items[0].ID != flowID(t, got.out) {
		t.Errorf("there are the flows %+v", list.Items)
	}
}

// A flow with an id of its own is submitted once; submitting it again waits for the flow that is there.
func TestSubmit_again(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const id = "0f10a000-0000-4000-8000-00000000000a"
	file := pipelineOf(t, "ci", id)
	first := startTool(t, s.url, "submit", file, "--wait", "--exit-on-approval")
	first.submitted()
	s.ask("ci")
	if code := first.ended(); code != 5 {
		t.Fatalf("exit code %d", code)
	}
	env := []string{"FLOWAPI_URL=" + s.url}
	if got := run(t, env, "approve", id); got.code != 0 {
		t.Errorf("flowapi approve: %+v", got)
	}
	startWorker(t, s, "ci", "true")
	if got := run(t, env, "submit", file, "--wait"); got.code != 0 || flowID(t, got.out) != id {
		t.Errorf("%+v", got)
	}
}

// What the documentation shows is submitted as it is written.
func TestSubmit_examples(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	env := []string{"FLOWAPI_URL=" + s.url}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, env, "submit", root+"/examples/pipeline.yaml"); got.code != 0 {
		t.Errorf("examples/pipeline.yaml: %+v", got)
	}
	text, err := os.ReadFile(root + "/docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	_, graph, _ := strings.Cut(string(text), "```yaml\n")
	graph, _, _ = strings.Cut(graph, "```")
	file := filepath.Join(t.TempDir(), "flow.yaml")
	if err := os.WriteFile(file, []byte(graph), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, env, "submit", file); got.code != 0 {
		t.Errorf("docs/ci.md: %+v", got)
	}
}

// Without a terminal, Ctrl-C lets the flow run on.
func TestSubmit_detach(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		submit := startTool(t, s.url, "submit", pipeline(t, fmt.Sprint(signal)), "--wait")
		flow := submit.submitted()
		eventually(t, "it is followed", func() bool { return strings.Contains(submit.out.String(), "running") })
		submit.signal(signal)
		if code := submit.ended(); code != 4 || !strings.Contains(submit.out.String(), "flowapi cancel "+flow) {
			t.Errorf("%s: exit code %d", signal, code)
		}
		if status := s.status(flow); status != "running" {
			t.Errorf("%s: the flow is %s", signal, status)
		}
	}
}

// A feed that is followed misses nothing and shows nothing twice, although the server is killed.
func TestTail_restart(t *testing.T) {
	t.Parallel()
	s, database := fixedServer(t)
	flow := flowID(t, run(t, []string{"FLOWAPI_URL=" + s.url}, "submit", pipeline(t, "ci")).out)
	all := startTool(t, s.url, "tail", "--after", "0", "--json")
	one := startTool(t, s.url, "tail", flow, "--after", "0", "--topic", "completion")
	eventually(t, "both have begun", func() bool {
		metrics := must(t, newClient(t), http.MethodGet, s.url+"/metrics", "")
		return strings.Contains(string(metrics.body), "flowapi_sse_subscribers 2") && strings.Contains(all.out.String(), `"flow.started"`)
	})
	s.kill()
	all.says("trying again")
	one.says("trying again")
	s = serveWith(t, nil, "--addr", s.addr(), "--db", database)
	startWorker(t, s, "ci", "true").says("ready")
	eventually(t, "the end is shown", func() bool {
		return strings.Contains(all.out.String(), `"flow.finished"`) && strings.Count(one.out.String(), "execution.completed") == 3
	})
	all.signal(syscall.SIGINT)
	if code := all.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	last := int64(0)
	for line := range strings.Lines(all.out.String()) {
		var e struct{ ID int64 }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.ID <= last {
			t.Fatalf("after event %d comes %s (%v)", last, line, err)
		}
		last = e.ID
	}
}

// The output of an execution is followed to its end, over a retry, each kind to its place.
func TestTail_frames(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.create(`{"lane":"ci","policy":{"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":10}}}}`)
	tail := startTool(t, s.url, "tail", "--frames", id)
	startWorker(t, s, "ci", `echo "out $FLOWAPI_ATTEMPT_INDEX"; echo "err $FLOWAPI_ATTEMPT_INDEX" >&2; [ "$FLOWAPI_ATTEMPT_INDEX" = 1 ]`)
	if code := tail.ended(); code != 0 || tail.out.String() != "out 0\nout 1\n" || tail.err.String() != "err 0\nerr 1\n" {
		t.Errorf("exit code %d, %q, %q", code, tail.out.String(), tail.err.String())
	}
	if got := run(t, []string{"FLOWAPI_URL=" + s.url}, "tail", "--frames", "00000000-0000-4000-8000-000000000000"); got.code != 1 || !strings.Contains(got.errors, "not_found") {
		t.Errorf("of nothing: %+v", got)
	}
	if got := run(t, []string{"FLOWAPI_URL=http://127.0.0.1:1"}, "tail"); got.code != 1 || !strings.Contains(got.errors, "refused") {
		t.Errorf("without a server: %+v", got)
	}
}
