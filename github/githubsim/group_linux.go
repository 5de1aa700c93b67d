package githubsim

import (
	"os/exec"
	"runtime"
	"syscall"
)

type groupSignal = syscall.Signal

const (
	signalInterrupt = syscall.SIGINT
	signalTerminate = syscall.SIGTERM
	signalKill      = syscall.SIGKILL
)

// prepareGroup gives the command a process group of its own that dies with this process. The kernel ties the death signal
// to the thread that forks, so the goroutine keeps its thread until unlock, after the command's end.
func prepareGroup(cmd *exec.Cmd) (unlock func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return runtime.UnlockOSThread
}

// signalGroup reaches the whole group; an absent one is no error.
func signalGroup(cmd *exec.Cmd, s groupSignal) {
	if cmd.Process != nil && cmd.Process.Pid > 0 {
		_ = syscall.Kill(-cmd.Process.Pid, s)
	}
}
