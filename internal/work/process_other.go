//go:build !unix

package work

import (
	"os"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return nil }

// terminateGroup ends a command: there is no way to ask it.
func terminateGroup(p *os.Process) { _ = p.Kill() }

func killGroup(p *os.Process) { _ = p.Kill() }

func signalOf(state *os.ProcessState) string { return state.String() }
