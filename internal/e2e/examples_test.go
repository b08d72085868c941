package e2e

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The workers in examples/workers do what docs/worker-guide.md says of them, and are as short as it says.
func TestExamples_workers(t *testing.T) {
	t.Parallel()
	for file, needs := range map[string][]string{"worker.sh": {"sh", "curl"}, "worker.py": {"python3"}, "worker.mjs": {"node"}, "worker.go": {"go"}} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			path, err := filepath.Abs("../../examples/workers/" + file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n > 60 {
				t.Errorf("%s has %d lines", file, n)
			}
			for _, program := range needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("there is no %s", program)
				}
			}
			workerOf(t, needs[0], path)
		})
	}
}

// workerOf has workers work, fail, be cancelled, lose the server and a lease, and end.
func workerOf(t *testing.T, program, path string) {
	t.Helper()
	s, database := fixedServer(t)
	command := []string{program, path}
	if program == "go" {
		command = []string{filepath.Join(t.TempDir(), "worker")}
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", command[0], path).CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	ann, bob := startExample(t, s, "a", command), startExample(t, s, "b", command)
	var done []string
	for range 3 {
		done = append(done, s.create(`{"lane":"a","kind":"sleep","payload":0.01}`))
	}
	odd := s.create(`{"lane":"a","kind":"juggle","payload":{"a":"it's \"quoted\" \\ back"}}`)
	for _, id := range done {
		s.becomes(id, "completed")
		if r := must(t, newClient(t), http.MethodGet, s.url+"/v1/executions/"+id+"/result", ""); string(r.body) != "0.01" {
			t.Errorf("the result is %s", r.body)
		}
	}
	if e := s.becomes(odd, "failed"); !strings.Contains(e.Failure.Reason, "juggle was not done") {
		t.Errorf("it failed for %q", e.Failure.Reason)
	}

	cancelled, lost := s.create(`{"lane":"a","kind":"sleep","payload":600}`), s.create(`{"lane":"b","kind":"sleep","payload":600}`)
	s.becomes(cancelled, "active")
	s.becomes(lost, "active")
	s.post("/v1/executions/"+cancelled+"/operator-cancel", `{"reason":"not needed","grace_ms":600000}`, nil)
	s.post("/v1/executions/"+lost+"/revoke-lease", `{"reason":"test"}`, nil)
	s.becomes(cancelled, "cancelled")
	eventually(t, "bob has noticed, and claims again", func() bool { return s.execution(lost).Attempts == 2 })
	bob.signal(syscall.SIGTERM)
	if code := bob.ended(); code != 0 {
		t.Errorf("bob ends with %d", code)
	}
	if e := s.execution(lost); e.PublicState != "waiting" || e.Attempts != 2 {
		t.Errorf("what bob had is %+v", e)
	}

	survivor := s.create(`{"lane":"a","kind":"sleep","payload":2}`)
	s.becomes(survivor, "active")
	s.kill()
	inPlaceOf(t, s, "/complete")
	s = serveWith(t, nil, "--addr", s.addr(), "--db", database)
	if e := s.becomes(survivor, "completed"); e.Attempts != 1 {
		t.Errorf("a restart of the server costs %d attempts", e.Attempts)
	}
	ann.signal(syscall.SIGTERM)
	if code := ann.ended(); code != 0 {
		t.Errorf("ann ends with %d", code)
	}
}

// startExample starts a worker of a lane.
func startExample(tb testing.TB, s *server, lane string, command []string) *tool {
	tb.Helper()
	cmd := exec.Command(command[0], append(command[1:], lane)...)
	cmd.Env = append(os.Environ(), "FLOWAPI_URL="+s.url, "TMPDIR="+tb.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w := startCommand(tb, cmd)
	tb.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // and what it has started
	return w
}

// inPlaceOf answers nothing where a server was, until somebody has asked for a path there.
func inPlaceOf(tb testing.TB, s *server, path string) {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", s.addr())
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	late := time.AfterFunc(patience, func() { l.Close() })
	defer late.Stop()
	for asked := ""; !strings.Contains(asked, path); {
		c, err := l.Accept()
		if err != nil {
			tb.Fatalf("nobody asks for %s", path)
		}
		asked, _ = bufio.NewReader(c).ReadString('\n')
		c.Close()
	}
}
