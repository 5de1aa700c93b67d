package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// replica is one `errand serve` of several on one database.
type replica struct {
	listen string
	env    []string
	log    lockedBuffer
	ready  atomic.Bool // by the last probe
	cmd    *exec.Cmd
}

func (r *replica) start(t *testing.T) {
	t.Helper()
	r.cmd = exec.Command(built.errand, "serve")
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = r.env, &r.log, &r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// stop is what a rolling restart does to one replica; it ends in order, and with nothing to complain of.
func (r *replica) stop(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, tail(r.log.String(), 3000))
	}
}

// balancer is one address before the replicas: round robin over those that were ready when last asked. It tries nothing
// twice, so a connection that is refused or cut is a delivery that is lost to its sender.
type balancer struct {
	replicas []*replica
	next     atomic.Uint64
	client   http.Client
}

func (b *balancer) probe(ctx context.Context) {
	for _, r := range b.replicas {
		go func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				r.ready.Store((healthCmd{URL: readyURL(r.listen)}).ask(ctx) == nil)
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		}()
	}
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	turn, n := b.next.Add(1), uint64(len(b.replicas)) // one turn a request: others must not move it past the replica that is ready
	for i := range n {
		r := b.replicas[(turn+i)%n]
		if !r.ready.Load() {
			continue
		}
		// A body that cannot be read twice: the client may not repeat the request by itself.
		out, err := http.NewRequestWithContext(in.Context(), in.Method, "http://"+r.listen+in.URL.Path, io.NopCloser(bytes.NewReader(body)))
		if err != nil {
			break
		}
		out.Header, out.ContentLength = in.Header.Clone(), int64(len(body))
		resp, err := b.client.Do(out)
		if err != nil {
			http.Error(w, "lost: "+err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body) // a sender that is gone is not the balancer's concern
		return
	}
	http.Error(w, "no replica is ready", http.StatusServiceUnavailable)
}

// fleet starts a PostgreSQL and n replicas on it, and gives the database's address for looking at it.
func fleet(t *testing.T, n int) (b *balancer, hook, superURL string) {
	t.Helper()
	db, err := pgembed.Start(t.Context(), pgembed.Config{NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Stop() })
	if err := store.Migrate(t.Context(), db.URL(pgembed.Database, pgembed.OwnerRole), time.Now()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	secretFile := filepath.Join(dir, "secret")
	if err := os.WriteFile(secretFile, []byte(strings.Repeat("c0ffee", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	b = &balancer{client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	front := httptest.NewServer(b)
	t.Cleanup(front.Close)
	env := append(withoutErrand(os.Environ()),
		"ERRAND_PUBLIC_URL="+front.URL, "ERRAND_METRICS_LISTEN=", "ERRAND_SECRET_KEY="+base64.StdEncoding.EncodeToString(randomBytes(32)),
		"ERRAND_GITHUB_APP_ID=1", "ERRAND_GITHUB_PRIVATE_KEY_FILE="+testKey(t, dir), "ERRAND_GITHUB_API_URL=http://127.0.0.1:1/api/v3",
		"ERRAND_DATABASE_URL="+db.URL(pgembed.Database, pgembed.RuntimeRole), "ERRAND_DRAIN=2s")
	for range n {
		listen := freePort(t)
		r := &replica{listen: listen, env: append(env[:len(env):len(env)], "ERRAND_LISTEN="+listen)}
		r.start(t)
		t.Cleanup(func() { _ = r.cmd.Process.Kill(); _ = r.cmd.Wait() })
		b.replicas = append(b.replicas, r)
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	b.probe(ctx)
	for _, r := range b.replicas {
		until(t, "each replica to be ready", func() string { return r.log.String() }, r.ready.Load)
	}
	cmd := exec.Command(built.errand, "admin", "source", "add", "--kind", "sentry", "--name", "Sentry", "--secret-file", secretFile)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return b, strings.TrimSpace(strings.TrimPrefix(string(out), "address:")), db.URL(pgembed.Database, pgembed.Superuser)
}

func until(t *testing.T, what string, explain func() string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) { // between looks
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s\n%s", what, tail(explain(), 4000))
		}
	}
}

// Each replica in turn is told to end and started again, while deliveries arrive all the time. No sender may see anything
// but an acknowledgement, and what was acknowledged is stored.
func TestARollingRestartUnderLoadRefusesNoDelivery(t *testing.T) {
	t.Parallel()
	b, hook, superURL := fleet(t, 2)
	stop := make(chan struct{})
	var senders sync.WaitGroup
	var n atomic.Int64
	var mu sync.Mutex
	var acknowledged, refused []string
	born := time.Now()
	for range 6 {
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				body := sentryAlert(crashReport{Type: "KeyError", Value: "'currency'"}, born.Add(time.Duration(n.Add(1))))
				status, answer, err := postSentry(context.Background(), hook, strings.Repeat("c0ffee", 8), body)
				var a struct{ Delivery string }
				if err == nil {
					err = json.Unmarshal([]byte(answer), &a)
				}
				mu.Lock()
				if err != nil || status != http.StatusAccepted || a.Delivery == "" {
					refused = append(refused, fmt.Sprintf("%d %s %v", status, answer, err))
				} else {
					acknowledged = append(acknowledged, a.Delivery)
				}
				mu.Unlock()
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(acknowledged) + len(refused) }
	more := func(what string) {
		had := count()
		until(t, "deliveries "+what, b.replicas[0].log.String, func() bool { return count() >= had+50 })
	}
	more("before")
	for _, r := range b.replicas {
		r.stop(t)
		more("while one replica is away")
		r.start(t)
		until(t, "the replica to be ready again", r.log.String, r.ready.Load)
		more("to both")
	}
	close(stop)
	senders.Wait()
	if len(refused) > 0 {
		t.Errorf("%d of %d deliveries were refused, such as: %s", len(refused), count(), refused[0])
	}

	conn, err := pgx.Connect(t.Context(), superURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var stored int
	if err := conn.QueryRow(t.Context(), "select count(*) from deliveries where id = any($1::uuid[])", acknowledged).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if stored != len(acknowledged) {
		t.Errorf("%d deliveries were acknowledged, %d of them are stored", len(acknowledged), stored)
	}
}
