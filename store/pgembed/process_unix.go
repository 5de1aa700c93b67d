//go:build unix && !linux

package pgembed

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childAttr: a process group of its own and the account's credentials. There is no parent-death signal here: a server
// whose owner was killed is ended by the next start on its folder.
func childAttr(acct account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: acct.credential()}
}

// servesCluster tells what the pid is: a postmaster's command line names its cluster.
func servesCluster(pid int, cluster string) pidKind {
	out, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	switch {
	case err != nil: // ps finds no such process
		return gone
	case strings.Contains(string(out), cluster):
		return serving
	default:
		return stranger
	}
}
