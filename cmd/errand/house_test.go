package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/pgembed"
)

// gate is an address that stays while what stands behind it comes and goes, and where a test can step in.
type gate struct {
	*httptest.Server
	target atomic.Pointer[url.URL]
	mu     sync.Mutex
	before func(*http.Request) (cut bool)
	after  func(*http.Response) (cut bool)
}

var errCut = errors.New("cut")

func newGate(t *testing.T) *gate {
	g := &gate{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(g.target.Load()); r.Out.Host = r.In.Host },
		ModifyResponse: func(resp *http.Response) error {
			g.mu.Lock()
			after := g.after
			g.mu.Unlock()
			if after != nil && after(resp) {
				return errCut
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		before := g.before
		g.mu.Unlock()
		if before != nil && before(r) || g.target.Load() == nil {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	g.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	g.Start()
	t.Cleanup(g.Close)
	return g
}

func (g *gate) to(t *testing.T, address string) {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	g.target.Store(u)
}

func (g *gate) stepIn(before func(*http.Request) bool, after func(*http.Response) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before, g.after = before, after
}

// house is one deployment: the world, and the control plane as a process of its own.
type house struct {
	t      *testing.T
	dir    string
	world  *world
	shop   *shop
	public *gate // the control plane's address
	github *gate // GitHub's, as the control plane knows it
	env    []string
	listen string
	hook   string
	secret string

	mu   sync.Mutex
	proc *exec.Cmd
	done chan struct{}
	log  lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
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

func newHouse(t *testing.T) *house {
	t.Helper()
	ctx := context.Background()
	// Not t.TempDir: as root the embedded PostgreSQL runs as another user, who could not reach below it.
	dir, err := os.MkdirTemp("", "errand-house-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &house{t: t, dir: dir, public: newGate(t), github: newGate(t), listen: freePort(t), secret: strings.Repeat("c0ffee", 8)}
	if h.shop, err = newShop(ctx, filepath.Join(dir, "shop")); err != nil {
		t.Fatal(err)
	}
	if h.world, err = startWorld(ctx, dir, built.runner, slog.New(slog.DiscardHandler), scenarioFile); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.world.close() })
	if err := h.world.addShop(ctx, h.public.URL); err != nil {
		t.Fatal(err)
	}
	h.public.to(t, "http://"+h.listen)
	h.github.to(t, h.world.sim.URL())
	h.world.sim.SetURL(h.github.URL) // one GitHub, with one address: pages, issuer and API
	keyFile := filepath.Join(dir, "app.pem")
	if err := os.WriteFile(keyFile, h.world.sim.PrivateKey(), 0o600); err != nil {
		t.Fatal(err)
	}
	h.env = append(withoutErrand(os.Environ()),
		"ERRAND_PUBLIC_URL="+h.public.URL, "ERRAND_LISTEN="+h.listen, "ERRAND_METRICS_LISTEN=", "ERRAND_LOG_LEVEL=debug",
		"ERRAND_DATA_DIR="+filepath.Join(dir, "data"), "ERRAND_SECRET_KEY="+base64.StdEncoding.EncodeToString(randomBytes(32)),
		fmt.Sprintf("ERRAND_GITHUB_APP_ID=%d", h.world.sim.AppID()), "ERRAND_GITHUB_PRIVATE_KEY_FILE="+keyFile,
		"ERRAND_GITHUB_API_URL="+h.github.URL+"/api/v3")
	h.start()
	t.Cleanup(h.kill)
	h.admin("connect", "--installation", fmt.Sprint(demoInstallation))
	secretFile := filepath.Join(dir, "secret")
	if err := os.WriteFile(secretFile, []byte(h.secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := h.admin("source", "add", "--kind", "sentry", "--name", "Sentry", "--secret-file", secretFile)
	h.hook = strings.TrimSpace(strings.TrimPrefix(out, "address:"))
	h.admin("mapping", "add", "--repository", demoOwner+"/"+demoRepo, "--stack-root", h.shop.stackRoot())
	return h
}

func withoutErrand(env []string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(e, "ERRAND_") {
			out = append(out, e)
		}
	}
	return out
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts `errand serve` and returns when it is ready.
func (h *house) start() {
	h.t.Helper()
	cmd := exec.Command(built.errand, "serve")
	cmd.Env, cmd.Stdout, cmd.Stderr = h.env, &h.log, &h.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	done := make(chan struct{})
	h.mu.Lock()
	h.proc, h.done = cmd, done
	h.mu.Unlock()
	go func() { _ = cmd.Wait(); close(done) }()
	h.await("the server to be ready", func() bool {
		select {
		case <-done:
			h.t.Fatalf("errand serve ended:\n%s", h.log.String())
		default:
		}
		return (healthCmd{URL: "http://" + h.listen + "/readyz"}).ask(context.Background()) == nil
	})
}

// kill is kill -9, and waits until the process is gone.
func (h *house) kill() {
	h.mu.Lock()
	cmd, done := h.proc, h.done
	h.mu.Unlock()
	_ = cmd.Process.Kill()
	<-done
}

func (h *house) await(what string, ok func() bool) {
	h.t.Helper()
	deadline := time.Now().Add(150 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			h.t.Fatalf("waited in vain for %s\n%v\n%s", what, h.world.explain(), tail(h.log.String(), 6000))
		}
		time.Sleep(20 * time.Millisecond) // between looks; the deadline above bounds them
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

func (h *house) admin(args ...string) string {
	h.t.Helper()
	cmd := exec.Command(built.errand, append([]string{"admin"}, args...)...)
	cmd.Env = h.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("errand admin %v: %v\n%s%s", args, err, out, stderr.Bytes())
	}
	return string(out)
}

func (h *house) crash() []byte {
	h.t.Helper()
	c, err := h.shop.crash(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	return sentryAlert(c, time.Now())
}

func (h *house) deliver(body []byte) (status int, answer map[string]string) {
	h.t.Helper()
	status, text, err := postSentry(context.Background(), h.hook, h.secret, body)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		h.t.Fatalf("%d %s: %v", status, text, err)
	}
	return status, answer
}

// runs reads the runs from the database of the running server, as its runtime role.
func (h *house) runs() []store.Run {
	var list []store.Run
	url, ok := pgembed.Running(filepath.Join(h.dir, "data", "postgres"), pgembed.Database, pgembed.Superuser)
	if !ok {
		return nil
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil // starting or stopping
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "select id, state, reason, detail, pr_url, branch from runs order by created_at")
	if err != nil {
		return nil
	}
	for rows.Next() {
		var r store.Run
		if err := rows.Scan(&r.ID, &r.State, &r.Reason, &r.Detail, &r.PRURL, &r.Branch); err != nil {
			h.t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// dump is every row of every table as text, read by the superuser.
func (h *house) dump() (text string, rows int) {
	h.t.Helper()
	ctx := context.Background()
	address, ok := pgembed.Running(filepath.Join(h.dir, "data", "postgres"), pgembed.Database, pgembed.Superuser)
	if !ok {
		h.t.Fatal("the database is not running")
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close(ctx)
	r, err := conn.Query(ctx, "select schemaname || '.' || tablename from pg_tables where schemaname not in ('pg_catalog', 'information_schema')")
	if err != nil {
		h.t.Fatal(err)
	}
	tables, err := pgx.CollectRows(r, pgx.RowTo[string])
	if err != nil {
		h.t.Fatal(err)
	}
	var b strings.Builder
	for _, table := range tables {
		r, err := conn.Query(ctx, "select t::text from "+table+" t")
		if err != nil {
			h.t.Fatal(err)
		}
		all, err := pgx.CollectRows(r, pgx.RowTo[string])
		if err != nil {
			h.t.Fatal(err)
		}
		for _, row := range all {
			b.WriteString(row + "\n")
			rows++
		}
	}
	return b.String(), rows
}
