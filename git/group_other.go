//go:build !unix

package git

import "os/exec"

// ownGroup does nothing where there are no process groups: a cancelled call ends git, and its helpers end with their pipes.
func ownGroup(*exec.Cmd) {}
