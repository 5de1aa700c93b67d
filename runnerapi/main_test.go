package runnerapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/pricing"
	"github.com/errand-dev/errand/runnerapi"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/server"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/storetest"
	"github.com/errand-dev/errand/transitions"
	"github.com/errand-dev/errand/wire"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// world is a control plane on a real listener with a database of its own.
type world struct {
	t       *testing.T
	db      *storetest.DB
	clock   *clock
	keys    *runtoken.Keys
	runs    *runs.Runs
	metrics *prometheus.Registry
	url     string
	log     *syncBuffer

	idTokens idTokens
	github   fakeGitHub
	n        int
	conn     *pgx.Conn // one that no policy binds, to look at what is really there
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

const publicURL = "https://errand.example.com"

var key = runtoken.Key("3b1f0c9d5e7a8642b0d1e2f3a4c5968778695a4b3c2d1e0f")

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, db: storetest.New(t), clock: &clock{t: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)}, metrics: prometheus.NewRegistry(), log: &syncBuffer{},
	}
	var err error
	if w.keys, err = runtoken.NewKeys(key); err != nil {
		t.Fatal(err)
	}
	policy, err := transitions.RunPolicy()
	if err != nil {
		t.Fatal(err)
	}
	w.runs = runs.New(policy, w.clock.now)
	catalogue, err := pricing.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(w.log, nil))
	api, err := runnerapi.New(runnerapi.Config{
		Store: w.db.Store, Runs: w.runs, Keys: w.keys, Catalogue: catalogue, PublicURL: publicURL + "/", WebURL: "https://github.com",
		IDTokens: &w.idTokens, GitHub: &w.github,
		Problem: func(err error) error { return server.ToProblem(err) }, Clock: w.clock.now, Logger: log, Metrics: w.metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(server.New(server.Config{
		Log: log, Clock: w.clock.now, Version: "test", Metrics: w.metrics, Ready: func(context.Context) error { return nil },
		Operations: []server.Registrar{api},
	}))
	t.Cleanup(ts.Close)
	w.url = ts.URL
	if w.conn, err = pgx.Connect(context.Background(), w.db.SuperURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.conn.Close(context.Background()) })
	return w
}

func (w *world) super(fn func(context.Context, *pgx.Conn)) { fn(context.Background(), w.conn) }

// tenant is an organisation with one connected repository.
type tenant struct {
	w      *world
	org    errand.ID
	repo   errand.ID
	source errand.ID
	github int64
	owner  int64
}

func (w *world) tenant(slug string) *tenant {
	w.t.Helper()
	w.n++
	o := &tenant{w: w, org: w.db.Org(w.t, slug), repo: errand.NewID(w.clock.now()), source: errand.NewID(w.clock.now()), github: int64(7000 + w.n), owner: int64(9000 + w.n)}
	ctx := context.Background()
	w.in(o.org, func(tx *store.Tx) error {
		if _, err := tx.SetOrganisationCaps(ctx, 1000, 0); err != nil {
			return err
		}
		if err := tx.BindInstallation(ctx, int64(w.n), slug, w.clock.now()); err != nil {
			return err
		}
		if err := tx.AddRepository(ctx, store.AddRepositoryParams{
			ID: o.repo, InstallationID: int64(w.n), GitHubID: o.github, Owner: slug, OwnerID: &o.owner, Name: "shop", DefaultBranch: "main", Private: true, CreatedAt: w.clock.now(),
		}); err != nil {
			return err
		}
		return tx.CreateSource(ctx, store.CreateSourceParams{
			ID: o.source, Kind: "sentry", Name: "sentry", PublicID: "pub-" + string(o.source), SecretSealed: []byte("sealed"), CreatedAt: w.clock.now(),
		})
	})
	w.super(func(ctx context.Context, c *pgx.Conn) { // caps are not what these tests are about
		if _, err := c.Exec(ctx, "UPDATE repositories SET open_fix_cap = 1000 WHERE id = $1", o.repo); err != nil {
			w.t.Fatal(err)
		}
	})
	return o
}

func (w *world) in(org errand.ID, fn func(*store.Tx) error) {
	w.t.Helper()
	if err := w.db.InTx(context.Background(), org, fn); err != nil {
		w.t.Fatal(err)
	}
}

// errandRun is one run of a tenant, with its issue.
type errandRun struct {
	*tenant
	id     errand.ID
	ticket string
}

var event = errand.Event{
	ProviderID: "e1", Release: "shop@1.2.3", Environment: "production", Primary: 0,
	Exceptions: []errand.Exception{{Type: "TypeError", Value: "price is undefined", Frames: []errand.Frame{{Filename: "src/cart.js", Function: "total", Line: 12}}}},
}

// dispatching makes a run that GitHub is being asked to start.
func (o *tenant) dispatching() *errandRun {
	o.w.t.Helper()
	ctx, now := context.Background(), o.w.clock.now()
	issue, ev := errand.NewID(now), errand.NewID(now)
	body, err := json.Marshal(event)
	if err != nil {
		o.w.t.Fatal(err)
	}
	o.w.super(func(ctx context.Context, c *pgx.Conn) {
		if _, err := c.Exec(ctx, `INSERT INTO issues (id, org_id, source_id, provider_id, title, platform, status_at, first_seen, last_seen, created_at)
			VALUES ($1, $2, $3, $4, 'TypeError: price is undefined', 'javascript', $5, $5, $5, $5)`, issue, o.org, o.source, string(issue), now); err != nil {
			o.w.t.Fatal(err)
		}
		if _, err := c.Exec(ctx, `INSERT INTO events (id, org_id, issue_id, provider_id, seen_at, received_at, body) VALUES ($1, $2, $3, 'e1', $4, $4, $5)`,
			ev, o.org, issue, now, string(body)); err != nil {
			o.w.t.Fatal(err)
		}
	})
	r := &errandRun{tenant: o}
	o.w.in(o.org, func(tx *store.Tx) error {
		run, err := o.w.runs.Create(ctx, tx, runs.NewRun{Issue: issue, Event: ev, Repository: o.repo, WorkflowFile: "errand.yml", Ref: "main", Actor: "test"})
		if err != nil {
			return err
		}
		r.id = run.ID
		attempt, at := int32(1), now
		_, err = o.w.runs.Fire(ctx, tx, run.ID, runs.Move{Trigger: errand.TriggerDispatchStarted, To: errand.Dispatching, Actor: "test"}, func(c *runs.Changes) {
			c.DispatchAttempt, c.DispatchedAt = &attempt, &at
		})
		return err
	})
	if r.ticket, err = o.w.keys.Ticket(r.id, 1, now.Add(30*time.Minute)); err != nil {
		o.w.t.Fatal(err)
	}
	return r
}

// dispatched makes a run whose workflow GitHub has accepted.
func (o *tenant) dispatched() *errandRun {
	o.w.t.Helper()
	r := o.dispatching()
	r.fire(runs.Move{Trigger: errand.TriggerGitHubAccepted, To: errand.Dispatched, Actor: "test"})
	return r
}

func (r *errandRun) fire(m runs.Move) {
	r.w.t.Helper()
	r.w.in(r.org, func(tx *store.Tx) error {
		_, err := r.w.runs.Fire(context.Background(), tx, r.id, m, nil)
		return err
	})
}

func (r *errandRun) cancel() {
	r.w.t.Helper()
	r.fire(runs.Move{Trigger: errand.TriggerCancel, To: errand.Cancelled, Reason: errand.ReasonCancelledByPerson, Actor: "test"})
}

// row reads the run as it stands.
func (r *errandRun) row() (run store.Run) {
	r.w.t.Helper()
	r.w.in(r.org, func(tx *store.Tx) (err error) {
		run, err = tx.RunnerLockRun(context.Background(), r.id)
		return err
	})
	return run
}

func (r *errandRun) wantState(state errand.RunState, reason errand.Reason) {
	r.w.t.Helper()
	if run := r.row(); run.State != state || run.Reason != reason {
		r.w.t.Fatalf("the run is %s %q, want %s %q", run.State, run.Reason, state, reason)
	}
}

// journal gives the bodies of the run's rows of a kind, the oldest first.
func (r *errandRun) journal(kind string) (bodies []string) {
	r.w.t.Helper()
	r.w.in(r.org, func(tx *store.Tx) error {
		rows, err := tx.ListJournal(context.Background(), r.id, kind, 100)
		for _, row := range rows {
			bodies = append([]string{row.Body}, bodies...)
		}
		return err
	})
	return bodies
}

// failer is what a test and a property's check have in common.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// reply is one answer of the endpoint.
type reply struct {
	status int
	header http.Header
	body   string
}

func (a reply) into(t failer, out any) {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("answered %d %s", a.status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), out); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

// want fails the test unless the call was answered with the status.
func (a reply) want(t failer, status int) reply {
	t.Helper()
	if a.status != status {
		t.Fatalf("answered %d %s, want %d", a.status, a.body, status)
	}
	return a
}

// post makes a call as any outsider could; body is a string that is sent as it is, or is made JSON.
func (w *world) post(call, token string, body any) reply {
	w.t.Helper()
	r, err := w.try(call, token, body)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) try(call, token string, body any) (reply, error) {
	text, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		text = string(b)
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.url+"/runner/v1/"+call, bytes.NewReader([]byte(text)))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(b)}, err
}

func exchangeOf(ticket, nonce string) wire.ExchangeRequest {
	return wire.ExchangeRequest{
		Ticket: ticket, Nonce: nonce, Provider: "anthropic", Model: "claude-sonnet-5", RunnerVersion: "test", WorkflowRunID: 991, WorkflowRunAttempt: 1,
	}
}

const nonce = "0123456789abcdef"

// token exchanges the run's ticket.
func (r *errandRun) token() string {
	r.w.t.Helper()
	var out wire.ExchangeResponse
	r.w.post("exchange", "", exchangeOf(r.ticket, nonce)).into(r.w.t, &out)
	if out.Run != r.id {
		r.w.t.Fatalf("a token for run %s, want %s", out.Run, r.id)
	}
	return out.Token
}

// running brings the run to running and gives its token.
func (r *errandRun) running() string {
	r.w.t.Helper()
	token := r.token()
	r.w.post("start", token, wire.StartRequest{Repository: "x/y", RepositoryID: r.github}).want(r.w.t, 200)
	return token
}

// publishing brings the run to publishing with an admitted change of the paths.
func (r *errandRun) publishing(paths ...string) string {
	r.w.t.Helper()
	token := r.running()
	var out wire.ClaimResponse
	r.w.post("claim", token, claimOf(1, "verified", paths...)).into(r.w.t, &out)
	if out.Decision != "admitted" {
		r.w.t.Fatalf("the claim was answered %s", out.Decision)
	}
	return token
}

func claimOf(seq int, verdict string, paths ...string) wire.ClaimRequest {
	c := wire.ClaimRequest{Seq: seq, Verdict: verdict, Files: []wire.ClaimFile{}}
	for _, p := range paths {
		c.Files = append(c.Files, wire.ClaimFile{Path: p, Kind: "edit", Added: 2, Removed: 1})
	}
	if verdict == "rejected" {
		c.Findings = []wire.Finding{{Code: "UNCLAIMED_CHANGE", Path: "src/other.js"}}
	}
	return c
}

func (r *errandRun) pullRequest(n int) *wire.PullRequest {
	run := r.row()
	var owner string
	r.w.in(r.org, func(tx *store.Tx) error {
		repo, err := tx.GetRepository(context.Background(), run.RepositoryID)
		owner = repo.Owner
		return err
	})
	return &wire.PullRequest{Number: n, URL: fmt.Sprintf("https://github.com/%s/shop/pull/%d", owner, n), Branch: "errand/type-error-" + r.id.Short()}
}

// counted reads one counter of the registry.
func (w *world) counted(name, label string) float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || (len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
