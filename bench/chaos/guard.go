package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// guard is a process of its own that outlives this one by a moment: it is told of every process that we start or stop, and
// when we end, however we end, it ends those that are left and removes our folder. A stopped process would otherwise sleep
// for ever.
type guard struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	in  io.WriteCloser
}

const guardArgument = "-guard"

func startGuard() (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, guardArgument) //nolint:noctx // it ends with the pipe
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return &guard{cmd: cmd, in: in}, nil
}

func (g *guard) watch(pid int)     { g.say("watch", strconv.Itoa(pid)) }
func (g *guard) forget(pid int)    { g.say("forget", strconv.Itoa(pid)) }
func (g *guard) remove(dir string) { g.say("remove", dir) }

func (g *guard) say(word, what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = fmt.Fprintln(g.in, word, what)
}

func (g *guard) close() {
	_ = g.in.Close()
	_ = g.cmd.Wait()
}

// keepGuard is the guard's own life: it reads until the pipe ends.
func keepGuard(in io.Reader) {
	watched := map[int]bool{}
	var dirs []string
	for lines := bufio.NewScanner(in); lines.Scan(); {
		word, what, _ := strings.Cut(lines.Text(), " ")
		if word == "remove" {
			dirs = append(dirs, what)
		} else if pid, err := strconv.Atoi(what); err == nil && pid > 1 {
			watched[pid] = word == "watch"
		}
	}
	for pid, still := range watched {
		if still {
			_ = syscall.Kill(pid, syscall.SIGKILL) // a stopped process dies of it too
		}
	}
	for _, dir := range dirs {
		// What was killed may take a moment to let go of it.
		for end := time.Now().Add(5 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
	}
}
