//go:build unix

package git

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a cancelled call end git's helpers (git-remote-https) too.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
