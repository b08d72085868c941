// Package e2e tests the binary as a process: how it starts, how it stops, and what is left when it is killed.
package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// patience is how long something may take that takes no time at all on a quiet machine.
	patience = 2 * time.Minute
	// stopLimit is how long the server may take to stop: requests have eight seconds, and the rest is for slow machines.
	stopLimit = 30 * time.Second
)

// master seals the waitpoint secrets of servers on PostgreSQL: they start in a new folder every time.
var master = strings.Repeat("5e", 32)

var binaries string // the folder of the binary under test

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "flowapi-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	_ = os.RemoveAll(binaries)
	os.Exit(code)
}

// build builds the binary once. It has no race detector: it is the one that is shipped.
var build = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(binaries, "flowapi")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/flowapi/flowapi/cmd/flowapi").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
})

// command returns a command of the binary, in a world of its own: nothing configures it but env.
func command(tb testing.TB, env []string, args ...string) *exec.Cmd {
	tb.Helper()
	binary, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = tb.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "FLOWAPI_WAITPOINT_SECRET=" + master}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// outcome is how a command that ends by itself has ended.
type outcome struct {
	code        int
	out, errors string
}

// run runs a command to its end.
func run(tb testing.TB, env []string, args ...string) outcome {
	tb.Helper()
	cmd := command(tb, env, args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		tb.Fatalf("flowapi %s goes on and on: %s", strings.Join(args, " "), errs.String())
	}
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		tb.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// server is a running server.
type server struct {
	url string

	tb     testing.TB
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone

	mu  sync.Mutex
	log []string // what it said, requests apart
}

// serve starts a server on a database and returns when it answers. It listens on a port of its own choice.
func serve(tb testing.TB, database string, more ...string) *server {
	tb.Helper()
	return serveWith(tb, nil, append([]string{"--addr", "127.0.0.1:0", "--db", database}, more...)...)
}

func serveWith(tb testing.TB, env []string, args ...string) *server {
	tb.Helper()
	s := &server{tb: tb, cmd: command(tb, env, append([]string{"serve"}, args...)...), exited: make(chan struct{})}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	urls := make(chan string, 1)
	go func() {
		defer close(s.exited)
		s.listen(stderr, urls)
		_ = s.cmd.Wait()
	}()
	tb.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
		if tb.Failed() {
			tb.Logf("the server said:\n%s", s.said())
		}
	})
	select {
	case s.url = <-urls:
	case <-s.exited:
		tb.Fatalf("the server ended at once: %s", s.said())
	case <-time.After(patience):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // it tells where it hangs
		<-s.exited
		tb.Fatalf("the server does not start: %s", s.said())
	}
	return s
}

// listen reads the server's log to its end.
func (s *server) listen(log io.Reader, urls chan<- string) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Message, Level, URL string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "request" && line.Level == "info" {
			continue
		}
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		s.mu.Unlock()
		if line.Message == "serving" {
			urls <- line.URL
		}
	}
}

func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// kill ends the process as a power cut would end it.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// terminate asks the server to stop.
func (s *server) terminate() {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.tb.Fatal(err)
	}
}

// ended waits for the process to end, which was asked to, and returns its exit code.
func (s *server) ended(limit time.Duration) int {
	s.tb.Helper()
	select {
	case <-s.exited:
	case <-time.After(limit):
		s.tb.Fatalf("the server does not stop within %s", limit)
	}
	return s.cmd.ProcessState.ExitCode()
}

// newClient returns a client whose connections are its own.
func newClient(tb testing.TB) *http.Client {
	tb.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 4, DisableCompression: true}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// response is an answer that was read to its end.
type response struct {
	status int
	header http.Header
	body   []byte
}

// code returns the code of a refusal.
func (r response) code() string {
	var problem struct{ Code string }
	_ = json.Unmarshal(r.body, &problem)
	return problem.Code
}

// send sends a request with a JSON body, unless that is "". Headers are "Name: value".
func send(ctx context.Context, client *http.Client, method, url, body string, headers ...string) (response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	answer, err := client.Do(request)
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	return response{answer.StatusCode, answer.Header, data}, err
}

// must is send for a request that has to be answered.
func must(tb testing.TB, client *http.Client, method, url, body string, headers ...string) response {
	tb.Helper()
	r, err := send(tb.Context(), client, method, url, body, headers...)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, url, err)
	}
	return r
}
