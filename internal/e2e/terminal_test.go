//go:build linux

package e2e

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a terminal on which a tool runs; what the tool shows is in its out.
type terminal struct {
	*tool
	keys *os.File
}

// startOnTerminal starts a client command as a person would.
func startOnTerminal(tb testing.TB, url string, args ...string) *terminal {
	tb.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		tb.Skipf("there are no terminals here: %v", err)
	}
	tb.Cleanup(func() { ptmx.Close() })
	if err := unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		tb.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err != nil {
		tb.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		tb.Skipf("there are no terminals here: %v", err)
	}
	defer tty.Close()
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		tb.Fatal(err)
	}
	t := &tool{tb: tb, cmd: command(tb, []string{"FLOWAPI_URL=" + url, "TERM=xterm"}, args...), exited: make(chan struct{})}
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = tty, tty, tty
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := t.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, _ = io.Copy(&t.out, ptmx) // ends with an error when nobody has the terminal any more
	}()
	go func() {
		defer close(t.exited)
		_ = t.cmd.Wait()
		<-shown
	}()
	tb.Cleanup(func() {
		_ = t.cmd.Process.Kill()
		<-t.exited
		if tb.Failed() {
			tb.Logf("the terminal shows:\n%q", t.out.String())
		}
	})
	return &terminal{t, ptmx}
}

func (t *terminal) types(keys string) {
	t.tb.Helper()
	if _, err := t.keys.WriteString(keys); err != nil {
		t.tb.Fatal(err)
	}
}

func (t *terminal) shows(text string) {
	t.tb.Helper()
	eventually(t.tb, "the terminal shows "+text, func() bool { return strings.Contains(t.out.String(), text) })
}

// On a terminal the flow is drawn in place, and Ctrl-C asks.
func TestSubmit_terminal(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const ctrlC = "\x03"
	for name, tt := range map[string]struct {
		keys   []string
		code   int
		status string
	}{
		"detach":       {[]string{ctrlC, "d\n"}, 4, "running"},
		"Ctrl-C twice": {[]string{ctrlC, ctrlC}, 4, "running"},
		"no answer":    {[]string{ctrlC, "\x04"}, 4, "running"},
		"cancel":       {[]string{ctrlC, "c\n"}, 3, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			submit := startOnTerminal(t, s.url, "submit", pipeline(t, name), "--wait")
			submit.shows("needs build")
			submit.types(tt.keys[0])
			submit.shows("[d/c]")
			submit.types(tt.keys[1])
			if code := submit.ended(); code != tt.code {
				t.Errorf("exit code %d", code)
			}
			if status := s.status(strings.TrimSpace(flowID(t, submit.out.String()))); status != tt.status {
				t.Errorf("the flow is %s", status)
			}
		})
	}
	t.Run("to the end", func(t *testing.T) {
		t.Parallel()
		startWorker(t, s, "drawn", "true")
		submit := startOnTerminal(t, s.url, "submit", pipeline(t, "drawn"), "--wait")
		if code := submit.ended(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if shown := submit.out.String(); !strings.Contains(shown, "\x1b[4A\r") || !strings.Contains(shown, "check it  finished  3 of 3") {
			t.Error("it is not drawn in place to the end")
		}
	})
}
