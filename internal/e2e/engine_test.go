package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/storetest"
)

// The engine in examples/engine-sh survives its own end: another one takes the run over, and one that was only asleep meanwhile learns
// from its next write that the run is not its own any more.
func TestEngineSh(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		h := &engines{T: t, url: serve(t, url).url, client: newClient(t)}
		var made struct{ ID string }
		h.post("/v1/runs", `{"workflow_name":"engine-sh"}`, &made)
		h.run = made.ID

		ann := h.start("ann")
		h.until("build is at work", func(s engineSteps) bool { return s.status("build") == "running" })
		ann.signal(syscall.SIGKILL)
		ann.wait(-1)

		bob := h.start("bob")
		h.until("somebody is asked", func(s engineSteps) bool { return s.status("approval") == "waiting" })
		h.post("/v1/runs/"+h.run+"/steps/"+h.steps().find("approval").ID+"/gate/approve", `{"by":"ada"}`, nil)
		h.until("two items are done", func(s engineSteps) bool { return s.find("deploy").Completed >= 2 })
		bob.signal(syscall.SIGSTOP)

		carl := h.start("carl")
		carl.wait(0)
		bob.signal(syscall.SIGCONT)
		bob.wait(3)

		var run struct {
			Status        string
			Generation    int64
			ResultSummary string `json:"result_summary"`
		}
		h.get("/v1/runs/"+h.run, &run)
		if run.Status != "completed" || run.Generation != 3 || run.ResultSummary != "deployed to five places" {
			t.Errorf("the run is %+v", run)
		}
		steps := h.steps()
		var names []string
		for _, s := range steps {
			names = append(names, s.StepName+" "+s.Status)
		}
		if want := []string{"fetch completed", "build completed", "approval completed", "deploy completed", "report completed"}; !slices.Equal(names, want) {
			t.Errorf("the steps are %q", names)
		}
		if deploy := steps.find("deploy"); deploy.Total != 5 || deploy.Completed != 5 {
			t.Errorf("deploy is %+v", deploy)
		}
		if build := steps.find("build"); build.RetryCount != 1 {
			t.Errorf("build was begun %d times", build.RetryCount+1)
		}
		if diff := cmp.Diff(map[string]int{"run.leased": 3, "item.completed": 5, "run_step.completed": 5, "gate.approved": 1, "run.completed": 1}, h.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// engines is a run and those who drive it.
type engines struct {
	*testing.T
	url    string
	run    string
	client *http.Client
}

func (h *engines) get(path string, into any) {
	h.Helper()
	r := must(h, h.client, http.MethodGet, h.url+path, "")
	if err := json.Unmarshal(r.body, into); err != nil || r.status != http.StatusOK {
		h.Fatalf("GET %s = %d %s", path, r.status, r.body)
	}
}

func (h *engines) post(path, body string, into any) {
	h.Helper()
	r := must(h, h.client, http.MethodPost, h.url+path, body)
	if r.status >= 300 {
		h.Fatalf("POST %s = %d %s", path, r.status, r.body)
	}
	if into != nil {
		if err := json.Unmarshal(r.body, into); err != nil {
			h.Fatal(err)
		}
	}
}

type engineStep struct {
	ID         string
	StepName   string `json:"step_name"`
	Status     string
	RetryCount int `json:"retry_count"`
	Total      int `json:"fan_out_total"`
	Completed  int `json:"fan_out_completed"`
}

type engineSteps []engineStep

func (s engineSteps) find(name string) engineStep {
	for _, step := range s {
		if step.StepName == name {
			return step
		}
	}
	return engineStep{}
}

func (s engineSteps) status(name string) string { return s.find(name).Status }

func (h *engines) steps() engineSteps {
	h.Helper()
	var list struct{ Items engineSteps }
	h.get("/v1/runs/"+h.run+"/steps", &list)
	return list.Items
}

// until waits for the steps to be as they are described.
func (h *engines) until(what string, is func(s engineSteps) bool) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	for !is(h.steps()) {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			h.Fatalf("it does not come to it that %s: %+v", what, h.steps())
		}
	}
}

// told counts the events of the run that come once for each thing that happens.
func (h *engines) told() map[string]int {
	h.Helper()
	counts := map[string]int{}
	var page struct {
		Items []struct{ Type string }
	}
	h.get("/v1/events?limit=500&run_id="+h.run, &page)
	for _, e := range page.Items {
		if slices.Contains([]string{"run.leased", "item.completed", "run_step.completed", "gate.approved", "run.completed"}, e.Type) {
			counts[e.Type]++
		}
	}
	return counts
}

// engine is a running engine with the processes that it has started.
type engine struct {
	t    *testing.T
	cmd  *exec.Cmd
	said strings.Builder
}

// start starts an engine whose steps and items take a quarter of a second.
func (h *engines) start(name string) *engine {
	h.Helper()
	work := filepath.Join(h.TempDir(), "work")
	if err := os.WriteFile(work, []byte("#!/bin/sh\nsleep 0.25\necho \"$1 done\"\n"), 0o700); err != nil {
		h.Fatal(err)
	}
	script, err := filepath.Abs("../../examples/engine-sh/engine.sh")
	if err != nil {
		h.Fatal(err)
	}
	e := &engine{t: h.T, cmd: exec.Command(script, h.run)}
	e.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "FLOWAPI_URL=" + h.url, "ENGINE_TTL_MS=1500", "ENGINE_WORK=" + work}
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	e.cmd.Stderr = &e.said
	if err := e.cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() {
		_ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL)
		if h.Failed() {
			h.Logf("%s said:\n%s", name, e.said.String())
		}
	})
	return e
}

func (e *engine) signal(s syscall.Signal) {
	e.t.Helper()
	if err := syscall.Kill(-e.cmd.Process.Pid, s); err != nil {
		e.t.Fatal(err)
	}
}

// wait waits for the engine's end, and for an exit code; -1 is that of one that was killed.
func (e *engine) wait(code int) {
	e.t.Helper()
	late := time.AfterFunc(patience, func() { _ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL) })
	err := e.cmd.Wait()
	late.Stop()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		e.t.Fatal(err)
	}
	if got := e.cmd.ProcessState.ExitCode(); got != code {
		e.t.Fatalf("the engine ended with %d, want %d: %s", got, code, e.said.String())
	}
}
