package work

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// leftovers is how long those that a command has left behind may go on writing into its output after it has ended.
const leftovers = time.Second

// process is a running command, with all that it has started.
type process struct {
	cmd    *exec.Cmd
	out    *os.File
	err    *os.File
	exited chan struct{} // closed when the command has ended; its output may have more
}

// start starts a command whose input is a file.
func start(argv, env []string, stdin string) (*process, error) {
	in, err := os.Open(stdin) //nolint:gosec // a file of this job, made by this program
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errs, errEnd, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, out.Close(), outEnd.Close())
	}
	defer outEnd.Close()
	defer errEnd.Close()
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // the command that a worker is for; it is ended as a group, and asked before
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, in, outEnd, errEnd
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close(), errs.Close())
	}
	p := &process{cmd: cmd, out: out, err: errs, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // its state says it better
	}()
	return p, nil
}

// over says whether the command has ended.
func (p *process) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// stop ends the command and all that it has started: it asks, and after the grace, or in a hurry, it kills.
func (p *process) stop(grace time.Duration, hurry <-chan struct{}, silent <-chan struct{}) {
	terminateGroup(p.cmd.Process)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	exited := p.exited
	for exited != nil || silent != nil {
		select {
		case <-exited:
			exited = nil
		case <-silent:
			silent = nil
		case <-hurry:
			exited, silent = nil, nil
		case <-timer.C:
			exited, silent = nil, nil
		}
	}
	killGroup(p.cmd.Process)
	<-p.exited
}

// finish waits for the rest of the output of a command that has ended. Those that it has left behind holding its output are ended, too,
// and who has left its group is not waited for.
func (p *process) finish(silent <-chan struct{}) {
	timer := time.NewTimer(leftovers)
	defer timer.Stop()
	select {
	case <-silent:
	case <-timer.C:
		killGroup(p.cmd.Process)
		for _, pipe := range []*os.File{p.out, p.err} {
			_ = pipe.SetReadDeadline(time.Now()) // then what is there is read, and no more
		}
		<-silent
	}
	p.out.Close()
	p.err.Close()
}

// failure says how the command has ended, "" when well.
func (p *process) failure() string {
	state := p.cmd.ProcessState
	switch {
	case state.Success():
		return ""
	case state.ExitCode() >= 0:
		return fmt.Sprintf("exit status %d", state.ExitCode())
	default:
		return "killed by " + signalOf(state)
	}
}
