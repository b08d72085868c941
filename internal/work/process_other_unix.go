//go:build unix && !linux

package work

import "syscall"

// ownGroup makes a command the first of a group of its own, which can be stopped as a whole, and which the terminal's Ctrl-C does not
// reach.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
