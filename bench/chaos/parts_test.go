package main

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errand-dev/errand"
)

func TestASeedDrawsTheSamePlanAgain(t *testing.T) {
	t.Parallel()
	a, b, other := makePlan(7, time.Minute), makePlan(7, time.Minute), makePlan(8, time.Minute)
	if !slices.Equal(a, b) {
		t.Error("the same seed gave two plans")
	}
	if slices.Equal(a, other) {
		t.Error("two seeds gave the same plan")
	}
	if len(a) < 15 || len(a) > 90 {
		t.Errorf("%d faults in a minute", len(a))
	}
}

func TestEveryFaultComesWithinThreeMinutes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		seen := map[fault]bool{}
		for _, a := range makePlan(seed, 10*time.Minute) {
			if a.at < 3*time.Minute {
				seen[a.fault] = true
			}
			if a.at+a.long > 10*time.Minute+15*time.Second {
				t.Errorf("seed %d: %s ends long after the load", seed, a)
			}
			if (a.fault == replicaKill || a.fault == replicaPause || a.fault == replicaLongPause) && a.whom == 0 {
				t.Errorf("seed %d: %s is meant for one replica", seed, a)
			}
			seen[a.fault] = seen[a.fault] || a.fault == replicaLongPause
		}
		for _, f := range append(deck, replicaLongPause) {
			if !seen[f] {
				t.Errorf("seed %d: no %s", seed, f)
			}
		}
	}
}

// echo answers what it is sent, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

func said(c net.Conn, within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	b := make([]byte, 5)
	_, err := io.ReadFull(c, b)
	return err
}

func TestALinkBreaksAndMends(t *testing.T) {
	t.Parallel()
	k, err := newLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	k.to(dialer("tcp", echo(t)))
	dial := func() net.Conn {
		c, err := net.Dial("tcp", k.addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := dial()
	if err := said(first, 5*time.Second); err != nil {
		t.Fatalf("unhurt: %v", err)
	}
	k.setCut(true)
	if err := said(first, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an open connection on a cut link: %v, want its end", err)
	}
	if err := said(dial(), 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection on a cut link: %v, want its end", err)
	}
	k.setCut(false)
	second := dial()
	if err := said(second, 5*time.Second); err != nil {
		t.Errorf("mended: %v", err)
	}
	k.muteAll()
	if err := said(second, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("half open: %v, want silence", err)
	}
	if err := said(dial(), 5*time.Second); err != nil {
		t.Errorf("a new connection beside a half-open one: %v", err)
	}
	k.heal()
	if err := said(second, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a half-open connection after healing: %v, want its end", err)
	}
}

func TestABalancerPassesOverWhatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	dial := balance(gone.Addr().String(), echo(t))
	for range 4 {
		c, err := dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := said(c, 5*time.Second); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
}

// The guard ends a process that nobody is left to end, a stopped one too, and lets the others be.
func TestTheGuardEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	start := func() *exec.Cmd {
		cmd := exec.Command("sleep", "300")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	left, ended := start(), start()
	if err := left.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() { keepGuard(r); close(done) }()
	g := &guard{in: w}
	dir := filepath.Join(t.TempDir(), "folder")
	if err := os.MkdirAll(filepath.Join(dir, "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	g.remove(dir)
	g.watch(left.Process.Pid)
	g.watch(ended.Process.Pid)
	g.forget(ended.Process.Pid)
	_ = w.Close()
	<-done
	_ = left.Wait()
	if status, ok := left.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("the watched process ended with %s", left.ProcessState)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
	if err := ended.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the forgotten process: %v", err)
	}
}

func TestIssuesAreNamedByLettersAlone(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for n := 1; n <= 20_000; n++ {
		w := word(n)
		if other, ok := seen[w]; ok {
			t.Fatalf("%d and %d are both called %s", n, other, w)
		}
		if strings.ContainsAny(w, "0123456789") {
			t.Fatalf("%s", w)
		}
		seen[w] = n
	}
}

// A generic message signed for one body does not fit another, nor with a forged secret.
func TestSignaturesDependOnTheSecret(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sentry", "generic"} {
		s := source{kind: kind, secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", roots: []string{"/srv/shop0"}}
		m := s.event(rand.New(rand.NewPCG(1, 2)), 4)
		good, bad := http.Header{}, http.Header{}
		s.sign(good, m, noon)
		m.forged = true
		s.sign(bad, m, noon)
		header := map[string]string{"sentry": "Sentry-Hook-Signature", "generic": "webhook-signature"}[kind]
		if good.Get(header) == "" || good.Get(header) == bad.Get(header) {
			t.Errorf("%s: %q and %q", kind, good.Get(header), bad.Get(header))
		}
	}
}

func TestTheTimeOfAnID(t *testing.T) {
	t.Parallel()
	if got := madeAt(string(errand.NewID(noon))); !got.Equal(noon) {
		t.Errorf("%s, want %s", got, noon)
	}
	if got := madeAt(hex.EncodeToString(make([]byte, 18))); got.After(noon) {
		t.Errorf("%s", got)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan struct{})
	go func() { sleep(ctx, time.Hour); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it sleeps on")
	}
}
