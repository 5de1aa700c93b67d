package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand/store/pgembed"
)

// postgres is the one database server, which is killed, stopped and started again on its folder. Durability is on, as
// Errand ships it.
type postgres struct {
	dir   string
	guard *guard
	log   *slog.Logger
	tell  func(socket string) // where the server listens since it was started

	mu     sync.Mutex // one change at a time
	server *pgembed.Server
	pid    int
}

func (p *postgres) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startLocked(ctx)
}

func (p *postgres) startLocked(ctx context.Context) error {
	server, err := pgembed.Start(ctx, pgembed.Config{DataDir: p.dir, Logger: p.log, Settings: map[string]string{"max_connections": "60"}})
	if err != nil {
		return err
	}
	p.server = server
	if p.pid, err = p.readPID(); err != nil {
		return err
	}
	p.guard.watch(p.pid)
	u, err := url.Parse(server.URL(pgembed.Database, pgembed.Superuser))
	if err != nil {
		return err
	}
	p.tell(filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port")))
	return nil
}

func (p *postgres) readPID() (int, error) {
	b, err := os.ReadFile(filepath.Join(p.dir, "cluster", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strconv.Atoi(strings.TrimSpace(first))
}

// restart ends the server by the given signal and starts it again on what it left.
func (p *postgres) restart(ctx context.Context, sig syscall.Signal, after time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := syscall.Kill(p.pid, sig); err != nil {
		return fmt.Errorf("postgres %d: %w", p.pid, err)
	}
	select {
	case <-p.server.Done():
	case <-time.After(10 * time.Second):
		// A fast shutdown that falls into the end of a crash recovery may never end (seen with 15.18): the postmaster waits for a
		// checkpointer that nobody told. An operator's next step is ours.
		_ = syscall.Kill(p.pid, syscall.SIGQUIT)
	}
	if err := p.server.Stop(); err != nil { // gives the folder's lock back
		return err
	}
	p.guard.forget(p.pid)
	sleep(ctx, after)
	return p.startLocked(context.WithoutCancel(ctx))
}

// killBackend kills one of the server's processes: the server then throws every connection out and recovers.
func (p *postgres) killBackend(nth int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := children(p.pid)
	if len(all) == 0 {
		return nil
	}
	return syscall.Kill(all[nth%len(all)], syscall.SIGKILL)
}

// pause stops all of the server for a while, as a machine that is out of breath would.
func (p *postgres) pause(ctx context.Context, long time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stopped := append([]int{p.pid}, children(p.pid)...)
	for _, pid := range stopped {
		p.guard.watch(pid)
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	sleep(ctx, long)
	for _, pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	for _, pid := range stopped[1:] {
		p.guard.forget(pid)
	}
}

// admin connects as the superuser, past every fault and every row-level policy.
func (p *postgres) admin(ctx context.Context) (*pgx.Conn, error) {
	p.mu.Lock()
	address := p.server.URL(pgembed.Database, pgembed.Superuser)
	p.mu.Unlock()
	return pgx.Connect(ctx, address)
}

func (p *postgres) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil {
		return nil
	}
	return p.server.Stop()
}

// children are the processes whose parent is pid; none where there is no /proc to ask.
func children(pid int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var all []int
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it ended meanwhile
		}
		// pid (name) state ppid ...; the name may hold anything
		_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			if child, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
