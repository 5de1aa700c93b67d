package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/docs"
	"github.com/errand-dev/errand/github/githubsim"
	"github.com/errand-dev/errand/store/pgembed"
)

// tenant is one organisation and its limits.
type tenant struct {
	slug     string
	cooldown time.Duration
	daily    int    // runs a day
	fixes    int    // open fixes of a repository
	breaker  int    // new issues of a repository in ten minutes; 0 = any number
	money    *int64 // picodollars a day
}

const many = 1_000_000

// tenants: one without limits, and one each whose limits are soon reached and contended for: runs at work for which there is
// money, open fixes, runs a day, new issues at once.
var tenants = []tenant{
	{"north", 15 * time.Second, many, many, 0, nil},
	{"south", 25 * time.Second, many, many, 0, new(int64(30 * 5_000_000_000_000))},
	{"east", 24 * time.Hour, many, 6, 0, nil},
	{"west", 15 * time.Second, 20, many, 0, nil},
	{"middle", 15 * time.Second, many, many, 5, nil},
}

const (
	reposEach   = 3
	workflow    = "errand.yml"
	firstRepoID = 7000
	firstInstID = 500
)

// world is everything that runs: the database, GitHub and its runners, two replicas, and the links between them.
type world struct {
	dir, binary string
	seed        uint64
	guard       *guard
	pg          *postgres
	hub         *hub
	runners     *runners
	public      *link
	toPG        [2]*link
	toHub       *link // one for both: GitHub has one address, and answers carry it
	replicas    [2]*replica
	env         []string
	sources     []source
	hookSecret  string

	stopReplicas context.CancelFunc
	tasks        sync.WaitGroup

	mu       sync.Mutex
	observed []string
}

func (w *world) observe(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	note(&w.observed, format, args...)
}

func silent() *log.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) }

// newWorld builds everything up to two replicas that are ready. What was built is torn down by close, on an error too.
func newWorld(ctx context.Context, cfg config) (_ *world, err error) {
	w := &world{seed: cfg.seed, binary: cfg.binary}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	// Not below a private folder: as root PostgreSQL runs as another user, who has to get there.
	if w.dir, err = os.MkdirTemp("", "errand-chaos-"); err != nil {
		return nil, err
	}
	if err = os.Chmod(w.dir, 0o711); err != nil {
		return nil, err
	}
	if w.guard, err = startGuard(); err != nil {
		return nil, err
	}
	w.guard.remove(w.dir)
	if err = w.build(ctx, cfg.race); err != nil {
		return nil, err
	}
	for _, k := range []**link{&w.public, &w.toPG[0], &w.toPG[1], &w.toHub} {
		if *k, err = newLink(ctx); err != nil {
			return nil, err
		}
	}
	w.pg = &postgres{dir: filepath.Join(w.dir, "postgres"), guard: w.guard, log: slog.New(slog.DiscardHandler), tell: func(socket string) {
		for _, k := range w.toPG {
			k.to(dialer("unix", socket))
		}
	}}
	if err = w.pg.start(ctx); err != nil {
		return nil, err
	}
	if err = w.openHub(ctx); err != nil {
		return nil, err
	}
	if err = w.settings(); err != nil {
		return nil, err
	}
	if err = w.setUp(ctx); err != nil {
		return nil, err
	}
	return w, w.startReplicas(ctx)
}

// build compiles the program under test, unless one was given.
func (w *world) build(ctx context.Context, race bool) error {
	if w.binary != "" {
		var err error
		w.binary, err = filepath.Abs(w.binary)
		return err
	}
	w.binary = filepath.Join(w.dir, "errand")
	args := []string{"build", "-o", w.binary}
	if race {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "github.com/errand-dev/errand/cmd/errand")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build errand: %w\n%s", err, out)
	}
	return nil
}

func (w *world) publicURL() string { return "http://" + w.public.addr() }

// openHub makes GitHub: an installation for each organisation, with its repositories.
func (w *world) openHub(ctx context.Context) error {
	w.runners = &runners{
		base: w.publicURL(), rng: mathrand.New(mathrand.NewPCG(w.seed, 0x2A)),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
	}
	var err error
	if w.hub, err = newHub(ctx, filepath.Join(w.dir, "github"), w.runners, newCourier(w.publicURL()+"/hooks/github", w.seed)); err != nil {
		return err
	}
	w.hookSecret = rand.Text()
	w.hub.sim.SetWebhook("http://"+w.hub.addr()+courierPath, []byte(w.hookSecret))
	w.toHub.to(dialer("tcp", w.hub.addr()))
	w.hub.sim.SetURL("http://" + w.toHub.addr())
	text, err := docs.Workflow(w.publicURL())
	if err != nil {
		return err
	}
	for i, t := range tenants {
		inst := int64(firstInstID + i)
		if err := w.hub.sim.AddInstallation(githubsim.Installation{ID: inst, Account: t.slug, AccountID: inst * 10}); err != nil {
			return err
		}
		for n := range reposEach {
			err := w.hub.sim.AddRepository(ctx, githubsim.Repository{
				ID: int64(firstRepoID + i*reposEach + n), Installation: inst, Owner: t.slug, Name: fmt.Sprintf("shop%d", n), Private: true,
				Files: fstest.MapFS{".github/workflows/" + workflow: {Data: []byte(text), Mode: 0o644}, "README.md": {Data: []byte("shop\n"), Mode: 0o644}},
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// settings is the environment of every errand process; the database's address is the direct one, past the links.
func (w *world) settings() error {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	pemFile := filepath.Join(w.dir, "app.pem")
	if err := os.WriteFile(pemFile, w.hub.sim.PrivateKey(), 0o600); err != nil {
		return err
	}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "ERRAND_") {
			w.env = append(w.env, e)
		}
	}
	w.env = append(w.env,
		"ERRAND_PUBLIC_URL="+w.publicURL(), "ERRAND_METRICS_LISTEN=", "ERRAND_LOG_LEVEL=info", "ERRAND_ORGANISATION="+tenants[0].slug,
		"ERRAND_SECRET_KEY="+base64.StdEncoding.EncodeToString(key), fmt.Sprintf("ERRAND_GITHUB_APP_ID=%d", w.hub.sim.AppID()),
		"ERRAND_GITHUB_PRIVATE_KEY_FILE="+pemFile, "ERRAND_GITHUB_API_URL="+w.hub.sim.APIURL(),
		"ERRAND_GITHUB_WEBHOOK_SECRET="+w.hookSecret,
		"ERRAND_DATABASE_URL="+w.pg.server.URL(pgembed.Database, pgembed.RuntimeRole),
	)
	return nil
}

func (w *world) errand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, w.binary, args...)
	cmd.Env = append(w.env, "ERRAND_DATABASE_OWNER_URL=")
	if args[0] == "migrate" {
		cmd.Env = append(w.env, "ERRAND_DATABASE_OWNER_URL="+w.pg.server.URL(pgembed.Database, pgembed.OwnerRole))
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("errand %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out), nil
}

// setUp does what an operator does: the organisations, their installations, sources, rules and limits.
func (w *world) setUp(ctx context.Context) error {
	if _, err := w.errand(ctx, "migrate"); err != nil {
		return err
	}
	conn, err := w.pg.admin(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i, t := range tenants {
		// An organisation is made at a first start or by its people; several at once only here.
		_, err := conn.Exec(ctx, "insert into organisations (id, slug, name, created_at) values ($1, $2, $2, now())", errand.NewID(time.Now()), t.slug)
		if err != nil {
			return err
		}
		if err := w.setUpTenant(ctx, conn, i, t); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) setUpTenant(ctx context.Context, conn *pgx.Conn, i int, t tenant) error {
	if _, err := w.errand(ctx, "admin", "connect", "--org", t.slug, "--installation", fmt.Sprint(firstInstID+i)); err != nil {
		return err
	}
	var roots []string
	for n := range reposEach {
		root := fmt.Sprintf("/srv/shop%d", n)
		roots = append(roots, root)
		if _, err := w.errand(ctx, "admin", "mapping", "add", "--org", t.slug, "--repository", fmt.Sprintf("%s/shop%d", t.slug, n), "--stack-root", root); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, "update organisations set daily_run_cap = $2, cooldown_s = $3, breaker_issues = $4, budget_day_pico = $5 where slug = $1",
		t.slug, t.daily, int(t.cooldown.Seconds()), t.breaker, t.money)
	if err == nil {
		_, err = conn.Exec(ctx, "update repositories set open_fix_cap = $2 where org_id = (select id from organisations where slug = $1)", t.slug, t.fixes)
	}
	if err != nil {
		return err
	}
	for _, kind := range []string{"sentry", "generic"} {
		raw := make([]byte, 32)
		_, _ = rand.Read(raw)
		s := source{kind: kind, secret: "whsec_" + base64.StdEncoding.EncodeToString(raw), roots: roots}
		file := filepath.Join(w.dir, t.slug+"-"+kind)
		if err := os.WriteFile(file, []byte(s.secret), 0o600); err != nil {
			return err
		}
		out, err := w.errand(ctx, "admin", "source", "add", "--org", t.slug, "--kind", kind, "--name", kind, "--secret-file", file)
		if err != nil {
			return err
		}
		s.path = strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(out, "address:")), w.publicURL())
		err = conn.QueryRow(ctx, "select id::text from sources where public_id = $1", strings.TrimPrefix(s.path, "/hooks/")).Scan(&s.id)
		if err != nil {
			return fmt.Errorf("source %q: %w", out, err)
		}
		w.sources = append(w.sources, s)
	}
	return nil
}

func (w *world) startReplicas(ctx context.Context) error {
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stopReplicas = stop
	var addresses []string
	for i := range w.replicas {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		listen := l.Addr().String()
		_ = l.Close() // it is the replica's from here on, through all its lives
		addresses = append(addresses, listen)
		r := &replica{
			binary: w.binary, listen: listen, logFile: filepath.Join(w.dir, fmt.Sprintf("replica%d.log", i+1)), guard: w.guard, observe: w.observe,
			env: append(w.env[:len(w.env):len(w.env)], "ERRAND_LISTEN="+listen,
				fmt.Sprintf("ERRAND_DATABASE_URL=postgres://%s@%s/%s?sslmode=disable", pgembed.RuntimeRole, w.toPG[i].addr(), pgembed.Database)),
		}
		w.replicas[i] = r
		w.tasks.Go(func() { r.supervise(alive) })
	}
	w.public.to(balance(addresses...))
	return w.awaitReady(ctx, 60*time.Second)
}

func (w *world) awaitReady(ctx context.Context, within time.Duration) error {
	end := time.Now().Add(within)
	for _, r := range w.replicas {
		for !r.ready(ctx) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if time.Now().After(end) {
				return fmt.Errorf("replica %s is not ready after %s; its last words: %s", r.listen, within, r.lastWords())
			}
			sleep(ctx, 100*time.Millisecond)
		}
	}
	return nil
}

// close ends everything, in the order in which nothing waits for what has gone.
func (w *world) close() error {
	if w.stopReplicas != nil {
		w.stopReplicas()
		w.tasks.Wait()
	}
	if w.hub != nil {
		w.hub.close()
	}
	var err error
	if w.pg != nil {
		err = w.pg.stop()
	}
	for _, k := range []*link{w.public, w.toPG[0], w.toPG[1], w.toHub} {
		if k != nil {
			k.close()
		}
	}
	if w.guard != nil {
		w.guard.close()
	}
	return errors.Join(err, os.RemoveAll(w.dir))
}

// keepLogs copies the replicas' logs to where they outlast the run.
func (w *world) keepLogs() (where string, err error) {
	if where, err = os.MkdirTemp("", "errand-chaos-logs-"); err != nil {
		return "", err
	}
	for _, r := range w.replicas {
		if r != nil {
			err = errors.Join(err, copyFile(filepath.Join(where, filepath.Base(r.logFile)), r.logFile))
		}
	}
	return where, err
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
