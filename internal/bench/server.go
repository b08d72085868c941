package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a flowapi process on a SQLite file of its own.
type server struct {
	url     string
	started time.Duration // from the start of the process to its first answer
	cmd     *exec.Cmd
	db      string
	log     string
}

// start starts binary with its files in dir and waits until it is ready. The context's end stops it.
func start(ctx context.Context, binary, dir string) (*server, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + addr, db: filepath.Join(dir, "flowapi.db"), log: filepath.Join(dir, "log")}
	out, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s.cmd = exec.CommandContext(ctx, binary, "serve", "--addr", addr, "--db", s.db)
	s.cmd.Env = withoutOwn(os.Environ())
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = grace

	begin := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for !s.ready(ctx) {
		if time.Since(begin) > grace || ctx.Err() != nil {
			_ = s.stop()
			return nil, fmt.Errorf("the server is not ready after %s: %s", time.Since(begin).Round(time.Millisecond), s.lastWords())
		}
		time.Sleep(2 * time.Millisecond)
	}
	s.started = time.Since(begin)
	return s, nil
}

// grace is the time that a server has to start, and to stop.
const grace = 10 * time.Second

func (s *server) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// stop asks the server to end and returns an error unless it does, in time and with exit code 0.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(grace, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("the server did not end well: %w: %s", err, s.lastWords())
	}
	return nil
}

// memory returns the resident memory of the process in bytes, or 0 on a system that does not tell.
func (s *server) memory() int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// disk returns the size of the database in bytes, once an idle server has folded its log into it, or as it is after 5 s.
func (s *server) disk(ctx context.Context) int64 {
	for range 50 {
		if log, err := os.Stat(s.db + "-wal"); err != nil || log.Size() == 0 || ctx.Err() != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	var size int64
	for _, suffix := range []string{"", "-wal"} {
		if file, err := os.Stat(s.db + suffix); err == nil {
			size += file.Size()
		}
	}
	return size
}

// lastWords returns the end of the server's log.
func (s *server) lastWords() string {
	log, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(log[max(0, len(log)-2000):]))
}

// freeAddr returns a loopback address that nothing listens on.
func freeAddr(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// withoutOwn returns an environment in which nothing configures flowapi.
func withoutOwn(env []string) []string {
	var rest []string
	for _, e := range env {
		if !strings.HasPrefix(e, "FLOWAPI_") {
			rest = append(rest, e)
		}
	}
	return rest
}
