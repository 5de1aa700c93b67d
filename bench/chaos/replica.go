package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// replica is one `errand serve`, started again whenever it has ended, as a supervisor would.
type replica struct {
	binary, logFile, listen string
	env                     []string
	guard                   *guard
	observe                 func(format string, args ...any)

	mu       sync.Mutex
	cmd      *exec.Cmd
	meant    bool // its end is our doing
	wasReady bool
	done     chan struct{}
}

// supervise keeps it running until ctx ends, and then ends it.
func (r *replica) supervise(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.once(ctx); err != nil {
			r.observe("%s: %v", r.listen, err)
			return
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

func (r *replica) once(ctx context.Context) error {
	out, err := os.OpenFile(r.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(r.binary, "serve") //nolint:noctx // ended below, politely
	cmd.Env, cmd.Stdout, cmd.Stderr = r.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's ^C is for us
	if err := cmd.Start(); err != nil {
		return err
	}
	r.guard.watch(cmd.Process.Pid)
	done := make(chan struct{})
	r.mu.Lock()
	r.cmd, r.meant, r.wasReady, r.done = cmd, false, false, done
	r.mu.Unlock()
	go r.watchReady(ctx, done)
	go func() { _ = cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		r.signal(syscall.SIGCONT)
		r.end(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			r.end(syscall.SIGKILL)
			<-done
		}
	}
	r.guard.forget(cmd.Process.Pid)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wasReady && !r.meant {
		r.observe("replica %s ended by itself (%s); its last words: %s", r.listen, cmd.ProcessState, r.lastWords())
	}
	r.cmd = nil
	return nil
}

// watchReady learns whether this life of it ever got as far as serving: until then a database that is away ends it.
func (r *replica) watchReady(ctx context.Context, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		if r.ready(ctx) {
			r.mu.Lock()
			r.wasReady = r.wasReady || r.done == done
			r.mu.Unlock()
			return
		}
	}
}

func (r *replica) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.listen+"/readyz", nil)
	if err != nil {
		return false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (r *replica) signal(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(sig)
	}
}

// end is signal for one that ends it: that it ends is then no surprise.
func (r *replica) end(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil {
		r.meant = true
		_ = r.cmd.Process.Signal(sig)
	}
}

func (r *replica) pause(ctx context.Context, long time.Duration) {
	r.signal(syscall.SIGSTOP)
	sleep(ctx, long)
	r.signal(syscall.SIGCONT)
}

func (r *replica) lastWords() string {
	b, err := os.ReadFile(r.logFile)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-1500):]))
}

// complaints looks through the log for what a program must never say.
func (r *replica) complaints() []string {
	b, err := os.ReadFile(r.logFile)
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, word := range []string{"WARNING: DATA RACE", "\npanic: ", "\nfatal error: ", "goroutine 1 ["} {
		if at := bytes.Index(b, []byte(word)); at >= 0 {
			all = append(all, fmt.Sprintf("%s: %s", r.logFile, b[at:min(len(b), at+1500)]))
		}
	}
	return all
}
