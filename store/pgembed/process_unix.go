//go:build unix && !linux

package pgembed

import "syscall"

// childAttr: a process group of its own and the account's credentials. There is no parent-death signal here: a server
// whose owner was killed is ended by the next start on its folder.
func childAttr(acct account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: acct.credential()}
}

// What a pid of an earlier start turns out to be.
const (
	gone = iota
	stranger
	serving
)

// servesCluster tells what the pid is. Without /proc a living pid counts as the server: a stranger is never forgotten
// here by mistake, and never told to go, because PostgreSQL itself decides about the pid file.
func servesCluster(int, string) int { return gone }
