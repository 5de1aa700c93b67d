package pgembed

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// childAttr: a process group of its own (the terminal's ^C is for us, not for the server), the account's credentials,
// and an immediate shutdown when the thread that started it dies.
func childAttr(acct account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: acct.credential(), Pdeathsig: syscall.SIGQUIT}
}

// servesCluster tells what the pid is: a postmaster's working directory is its cluster.
func servesCluster(pid int, cluster string) pidKind {
	cwd, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/cwd")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return gone
	}
	if err != nil {
		return stranger // of another user: not a server of ours
	}
	own, err := os.Stat(cluster)
	if err == nil && os.SameFile(cwd, own) {
		return serving
	}
	return stranger
}
