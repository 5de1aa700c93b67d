package pgembed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long the server gets for each way of ending, from polite to forced.
const (
	fastStop      = 30 * time.Second
	immediateStop = 10 * time.Second
)

// process is the postmaster, our child.
type process struct {
	cmd  *exec.Cmd
	out  *messages
	done chan struct{} // closed when it has ended
	err  error         // how; read after done
}

// startProcess starts the child and waits for it on one goroutine locked to its thread: the kernel sends the
// parent-death signal when the *thread* that started the child ends, so that thread has to live as long as the child.
func startProcess(cmd *exec.Cmd, acct account, log *slog.Logger) (*process, error) {
	p := &process{cmd: cmd, out: &messages{log: log}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	cmd.SysProcAttr = childAttr(acct)
	cmd.WaitDelay = 5 * time.Second // a lost backend may hold the pipe
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return p, nil
}

// runOnLockedThread runs a short program with the same guarantee. It gives what the program printed.
func runOnLockedThread(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		close(started)
		if err == nil {
			err = cmd.Wait()
		}
		ended <- err
	}()
	<-started
	select {
	case err := <-ended:
		return out.Bytes(), err
	case <-ctx.Done():
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // it may have ended by itself
		}
		killed := <-ended
		return out.Bytes(), errors.Join(ctx.Err(), killed)
	}
}

// stop ends the child: fast shutdown, then immediate, then kill.
func (p *process) stop() error {
	p.out.stop()
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{syscall.SIGINT, fastStop}, {syscall.SIGQUIT, immediateStop}, {syscall.SIGKILL, immediateStop}} {
		if err := p.cmd.Process.Signal(step.sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop postgres: %w", err)
		}
		timer := time.NewTimer(step.wait)
		select {
		case <-p.done:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return errors.New("stop postgres: it does not end")
}

// sawRemains tells whether the server refused to start because of another one on the same cluster.
func (p *process) sawRemains() bool {
	words := p.lastWords()
	return strings.Contains(words, "is still in use") || strings.Contains(words, `lock file "postmaster.pid" already exists`)
}

func (p *process) lastWords() string { return p.out.lastWords() }

// messages passes the server's messages to the log and keeps the last few for an error.
type messages struct {
	log      *slog.Logger
	mu       sync.Mutex
	rest     []byte
	last     []string
	stopping bool
}

// Write takes a part of the server's output.
func (m *messages) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest = append(m.rest, b...)
	for {
		line, rest, found := bytes.Cut(m.rest, []byte("\n"))
		if !found {
			break
		}
		m.line(string(line))
		m.rest = rest
	}
	if len(m.rest) > 8<<10 { // a line without an end is cut
		m.line(string(m.rest))
		m.rest = nil
	}
	return len(b), nil
}

func (m *messages) line(s string) {
	severity, _, _ := strings.Cut(strings.TrimPrefix(s, "postgres: "), ":")
	level := slog.LevelDebug
	switch severity {
	case "WARNING", "ERROR":
		level = slog.LevelWarn
	case "FATAL", "PANIC":
		level = slog.LevelError
		if m.expected(s) {
			level = slog.LevelDebug
		}
	}
	m.log.Log(context.Background(), level, "postgres", "message", s)
	m.last = append(m.last, s)
	if len(m.last) > 12 {
		m.last = m.last[1:]
	}
}

// expected tells the answers to our own asking whether it takes connections yet, and what our own stopping it does to
// connections.
func (m *messages) expected(s string) bool {
	return strings.Contains(s, "the database system is starting up") || strings.Contains(s, "the database system is not yet accepting connections") ||
		m.stopping && strings.Contains(s, "terminating connection due to administrator command")
}

// stop says that we end the server.
func (m *messages) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = true
}

func (m *messages) lastWords() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(append(m.last[:len(m.last):len(m.last)], string(m.rest)), "\n")
}

// pidKind is what the pid of an earlier server turns out to be.
type pidKind int

const (
	gone     pidKind = iota
	stranger         // another program's by now
	serving          // a server on the cluster
)

// awaitPrevious looks at the pid file that an earlier server left. We hold the folder's lock, so that server's owner is
// dead: a server still on its way out is waited for (and told to go, if it lingers), and a pid that has since been given
// to another program is forgotten. A pid that is dead is left to PostgreSQL, which also looks for lost backends.
func awaitPrevious(ctx context.Context, cluster string, log *slog.Logger) error {
	pidFile := filepath.Join(cluster, "postmaster.pid")
	b, err := os.ReadFile(pidFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 1 {
		return os.Remove(pidFile) // cut short by a crash: PostgreSQL would refuse it
	}
	told := false
	lingering := time.Now().Add(3 * time.Second)
	for {
		switch servesCluster(pid, cluster) {
		case gone:
			return nil
		case stranger:
			log.Info("forgetting the pid of an earlier server", "pid", pid)
			return os.Remove(pidFile)
		case serving:
		}
		if !told && time.Now().After(lingering) {
			log.Warn("ending a server that its owner left behind", "pid", pid)
			if err := syscall.Kill(pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end the server left behind (pid %d): %w", pid, err)
			}
			told = true
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("an earlier server (pid %d) still runs on this folder: %w", pid, err)
		}
	}
}
