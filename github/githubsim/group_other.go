//go:build !linux

package githubsim

import "os/exec"

type groupSignal int

const (
	signalInterrupt groupSignal = iota
	signalTerminate
	signalKill
)

// prepareGroup does nothing here: process groups that die with their parent are Linux's.
func prepareGroup(*exec.Cmd) (unlock func()) { return func() {} }

// signalGroup can only kill the process itself.
func signalGroup(cmd *exec.Cmd, _ groupSignal) {
	if cmd.Process != nil {
		_ = cmd.Process.Kill()
	}
}
