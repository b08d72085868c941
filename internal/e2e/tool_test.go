package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tool is a client command that runs for a while.
type tool struct {
	tb       testing.TB
	cmd      *exec.Cmd
	out, err transcript
	exited   chan struct{} // closed when the process is gone
}

// transcript is what a process has said so far.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(b)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// startTool starts a client command of a server in a folder of its own, which FOLDER names, too.
func startTool(tb testing.TB, url string, args ...string) *tool {
	tb.Helper()
	cmd := command(tb, []string{"FLOWAPI_URL=" + url, "TMPDIR=" + os.TempDir()}, args...)
	cmd.Env = append(cmd.Env, "FOLDER="+cmd.Dir)
	return startCommand(tb, cmd)
}

// startCommand starts any command that runs for a while.
func startCommand(tb testing.TB, cmd *exec.Cmd) *tool {
	tb.Helper()
	t := &tool{tb: tb, cmd: cmd, exited: make(chan struct{})}
	t.cmd.Stdout, t.cmd.Stderr = &t.out, &t.err
	t.cmd.WaitDelay = patience
	if err := t.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(t.exited)
		_ = t.cmd.Wait()
	}()
	tb.Cleanup(func() {
		_ = t.cmd.Process.Kill()
		<-t.exited
		if tb.Failed() {
			tb.Logf("%s said:\n%s%s", strings.Join(cmd.Args, " "), t.out.String(), t.err.String())
		}
	})
	return t
}

func (t *tool) signal(s syscall.Signal) {
	t.tb.Helper()
	if err := t.cmd.Process.Signal(s); err != nil {
		t.tb.Fatal(err)
	}
}

// ended waits for the command to end and returns its exit code.
func (t *tool) ended() int {
	t.tb.Helper()
	select {
	case <-t.exited:
	case <-time.After(patience):
		_ = t.cmd.Process.Signal(syscall.SIGQUIT) // it tells where it hangs
		<-t.exited
		t.tb.Fatalf("%s goes on and on", strings.Join(t.cmd.Args, " "))
	}
	return t.cmd.ProcessState.ExitCode()
}

// says waits until the command has said something on its standard error.
func (t *tool) says(text string) {
	t.tb.Helper()
	eventually(t.tb, "it says "+text, func() bool {
		select {
		case <-t.exited:
			return true // the next line tells
		default:
			return strings.Contains(t.err.String(), text)
		}
	})
	if !strings.Contains(t.err.String(), text) {
		t.tb.Fatalf("it has ended without saying %s", text)
	}
}

// wrote waits until a command has written a file in the tool's folder, and returns what is in it.
func (t *tool) wrote(file string) string {
	t.tb.Helper()
	var text []byte
	eventually(t.tb, "there is a file "+file, func() bool {
		text, _ = os.ReadFile(t.cmd.Dir + "/" + file)
		return bytes.HasSuffix(text, []byte("\n"))
	})
	return strings.TrimSpace(string(text))
}

// write writes a file into the tool's folder.
func (t *tool) write(file, text string) {
	t.tb.Helper()
	if err := os.WriteFile(t.cmd.Dir+"/"+file, []byte(text), 0o600); err != nil {
		t.tb.Fatal(err)
	}
}

// newServer returns a server on a database of its own.
func newServer(tb testing.TB) *server {
	tb.Helper()
	return serve(tb, tb.TempDir()+"/flowapi.db")
}

// addr returns the address that a server listens on.
func (s *server) addr() string { return strings.TrimPrefix(s.url, "http://") }

// fixedServer starts a server whose address stays the same when it is started again.
func fixedServer(tb testing.TB) (s *server, database string) {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	database = tb.TempDir() + "/flowapi.db"
	return serveWith(tb, nil, "--addr", addr, "--db", database), database
}

// get reads a document.
func (s *server) get(path string, out any) {
	s.tb.Helper()
	r := must(s.tb, newClient(s.tb), http.MethodGet, s.url+path, "")
	if err := json.Unmarshal(r.body, out); err != nil || r.status != http.StatusOK {
		s.tb.Fatalf("GET %s = %d %s", path, r.status, r.body)
	}
}

// post sends a document, which has to be accepted, and decodes the answer.
func (s *server) post(path, body string, out any) {
	s.tb.Helper()
	var headers []string
	if strings.Contains(path, "octets") {
		headers = append(headers, "Content-Type: application/octet-stream")
	}
	r := must(s.tb, newClient(s.tb), http.MethodPost, s.url+path, body, headers...)
	if r.status >= http.StatusBadRequest {
		s.tb.Fatalf("POST %s %s = %d %s", path, body, r.status, r.body)
	}
	if err := json.Unmarshal(r.body, out); out != nil && err != nil {
		s.tb.Fatal(err)
	}
}

// execution is an execution as the tests look at it.
type execution struct {
	ID          string
	Kind        string
	PublicState string `json:"public_state"`
	Failure     *struct{ Reason, Category string }
	Attempts    int `json:"total_attempt_count"`
	RetryCount  int `json:"retry_count"`
}

// create creates an execution and returns its id.
func (s *server) create(body string) string {
	s.tb.Helper()
	var e execution
	s.post("/v1/executions", body, &e)
	return e.ID
}

func (s *server) execution(id string) (e execution) {
	s.tb.Helper()
	s.get("/v1/executions/"+id, &e)
	return e
}

// becomes waits until an execution is in a state.
func (s *server) becomes(id, state string) execution {
	s.tb.Helper()
	var e execution
	eventually(s.tb, id+" is "+state, func() bool {
		e = s.execution(id)
		return e.PublicState == state
	})
	return e
}

// output returns what an execution has written in its current attempt, one kind or "" for all of it.
func (s *server) output(id, kind string) string {
	s.tb.Helper()
	var text strings.Builder
	query := "limit=1000"
	for {
		var page struct {
			Frames []struct{ Kind, Payload string }
			Next   string `json:"next_cursor"`
		}
		s.get("/v1/executions/"+id+"/attempts/current/stream?"+query, &page)
		for _, f := range page.Frames {
			if kind == "" || f.Kind == kind {
				text.WriteString(f.Payload)
			}
		}
		if page.Next == "" {
			return text.String()
		}
		query = "limit=1000&cursor=" + page.Next
	}
}
