package pgembed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// helperEnv makes the test binary a program that starts a server on the folder it names, writes a row, says so on its
// output, and waits until it is told to stop (its input is closed) or is killed.
const helperEnv = "PGEMBED_TEST_HELPER"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(helperEnv); ok {
		if err := helper(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(dir string) error {
	ctx := context.Background()
	s, err := Start(ctx, Config{DataDir: dir, NoFsync: true}) // what a process wrote survives its death without fsync
	if err != nil {
		return err
	}
	if err := execOn(ctx, s, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)"); err != nil {
		return err
	}
	fmt.Println("ready", s.proc.cmd.Process.Pid, os.Geteuid())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Stop()
}

func execOn(ctx context.Context, s *Server, sql string) error {
	conn, err := pgx.Connect(ctx, s.URL(Database, OwnerRole))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func query[T any](t *testing.T, s *Server, role, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL(Database, role))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var v T
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// folder makes an empty folder that the server's user may enter (t.TempDir is 0700 and root's when we are root), in memory
// where there is room.
func folder(t *testing.T, mode ...os.FileMode) string {
	t.Helper()
	return folderIn(t, throwawayParent(), mode...)
}

func folderIn(t *testing.T, parent string, mode ...os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "pgembed-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, append(mode, 0o755)[0]); err != nil {
		t.Fatal(err)
	}
	return dir
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func startErr(t *testing.T, cfg Config) error {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err == nil {
		_ = s.Stop()
		t.Fatal("started, where an error was expected")
	}
	return err
}

// child is a running helper.
type child struct {
	cmd        *exec.Cmd
	stdin      io.Closer
	postmaster int
	euid       int
}

// helperCommand prepares the helper on a folder. What it leaves behind when it is killed goes with the test.
func helperCommand(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), helperEnv+"="+dir, "TMPDIR="+folder(t, 0o777))
	return cmd
}

func startHelper(t *testing.T, dir string, cred *syscall.Credential) child {
	t.Helper()
	cmd := helperCommand(t, dir)
	if cred != nil {
		cmd.Path = copyProgram(t, cmd.Path)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	c := child{cmd: cmd, stdin: stdin}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	if _, err := fmt.Sscanf(line, "ready %d %d", &c.postmaster, &c.euid); err != nil {
		_ = cmd.Wait()
		t.Fatalf("the helper said %q: %s", line, stderr.String())
	}
	return c
}

// copyProgram puts the test binary where every user may run it.
func copyProgram(t *testing.T, from string) string {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(folderIn(t, ""), "helper")     // memory is often mounted noexec
	if err := os.WriteFile(to, b, 0o755); err != nil { //nolint:gosec // it has to be run by another user
		t.Fatal(err)
	}
	return to
}

// processesIn lists the processes that work in the folder, as every process of a server does.
func processesIn(t *testing.T, dir string) []int {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Fatal("this test reads /proc")
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !cond() {
		if pause(ctx, 5*time.Millisecond) != nil {
			t.Fatalf("did not come true: %s", what)
		}
	}
}

// lockedBuffer collects a log that is written from another goroutine.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
