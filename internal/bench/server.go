package bench

import (
	"bytes"
	"context"
	"errors"
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
	s.cmd = exec.CommandContext(ctx, binary, "serve", "--addr", addr, "--db", s.db) //nolint:gosec // the server that is measured
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

// cpu returns the processor time that the process has used, or 0 on a system that does not tell.
func (s *server) cpu() time.Duration {
	if s == nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	return cpuOf(string(stat))
}

// cpuOf reads utime and stime from the line that Linux writes about a process, which counts them in hundredths of a second.
// What stands before them has a fixed number of fields after the program's name, which may contain anything.
func cpuOf(stat string) time.Duration {
	const utime, stime = 11, 12
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0
	}
	user, errUser := strconv.ParseInt(fields[utime], 10, 64)
	system, errSystem := strconv.ParseInt(fields[stime], 10, 64)
	if errors.Join(errUser, errSystem) != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// quiet waits until the server has used hardly any processor time for a second, or for the time that an idle server may take
// to tidy up.
func (s *server) quiet(ctx context.Context) error {
	for begin, last := time.Now(), s.cpu(); time.Since(begin) < grace; {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		now := s.cpu()
		if now-last <= 10*time.Millisecond {
			return nil
		}
		last = now
	}
	return nil
}

// pause sleeps, unless the context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
