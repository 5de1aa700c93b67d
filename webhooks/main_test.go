package webhooks_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/server"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/storetest"
	"github.com/errand-dev/errand/webhooks"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const clientSecret = "example_sentry_client_secret"

// noon is the time of every test at its start; the fixtures are older.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

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

// world is the endpoint on a real listener, with a database and an organisation of its own.
type world struct {
	t       *testing.T
	db      *storetest.DB
	org     errand.ID
	hooks   *webhooks.Webhooks
	clock   *clock
	metrics *prometheus.Registry
	log     *syncBuffer
	url     string
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: storetest.New(t), clock: &clock{t: noon}, metrics: prometheus.NewRegistry(), log: &syncBuffer{}}
	w.org = w.db.Org(t, "acme")
	w.maintain()
	sealer, err := store.NewSealer(bytes.Repeat([]byte{9}, 32))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(w.log, nil))
	w.hooks, err = webhooks.New(webhooks.Config{
		Store: w.db.Store, Sealer: sealer, Scrubber: scrub.New(), Clock: w.clock.now, Logger: log, Metrics: w.metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.HTTPErrorHandler = server.ErrorHandler(log)
	w.hooks.Mount(e)
	ts := httptest.NewServer(e)
	t.Cleanup(ts.Close)
	w.url = ts.URL
	return w
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = t
}

// maintain makes the partition of the clock's day.
func (w *world) maintain() {
	w.t.Helper()
	if err := w.db.MaintainDeliveries(w.t.Context(), w.clock.now(), 100*365*24*time.Hour); err != nil {
		w.t.Fatal(err)
	}
}

// metric gives the sum of the counters that have all these labels.
func (w *world) metric(name string, labels map[string]string) (sum float64) {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			match := f.GetName() == name
			for _, l := range m.GetLabel() {
				if want, ok := labels[l.GetName()]; ok && want != l.GetValue() {
					match = false
				}
			}
			if match {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func (w *world) sentry() webhooks.Source {
	return w.source(w.org, webhooks.NewSource{Kind: "sentry", Name: "Sentry", Secret: clientSecret})
}

func (w *world) generic() webhooks.Source {
	return w.source(w.org, webhooks.NewSource{Kind: "generic", Name: "Ours"})
}

func (w *world) source(org errand.ID, n webhooks.NewSource) webhooks.Source {
	w.t.Helper()
	s, err := w.hooks.CreateSource(w.t.Context(), org, n)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// reply is an answer of the endpoint: of a delivery, or a problem.
type reply struct {
	status   int
	Delivery string
	Outcome  string
	Reason   string
	Code     string
	Field    string
	Detail   string
	Hint     string
	raw      string
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.raw) }

func (w *world) do(req *http.Request) reply {
	w.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	r := reply{status: resp.StatusCode, raw: strings.TrimSpace(string(b))}
	if err := json.Unmarshal(b, &r); err != nil && resp.Header.Get("Content-Type") != "text/plain; charset=UTF-8" {
		w.t.Errorf("an answer that is not JSON: %d %q", r.status, b)
	}
	if r.status >= 400 && resp.Header.Get("Content-Type") != server.ProblemType {
		w.t.Errorf("an error of the type %q", resp.Header.Get("Content-Type"))
	}
	return r
}

// with changes a request before it is sent.
type with func(*http.Request)

func header(name, value string) with { return func(r *http.Request) { r.Header.Set(name, value) } }

func without(name string) with { return func(r *http.Request) { r.Header.Del(name) } }

func (w *world) request(path string, body []byte, more ...with) *http.Request {
	w.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.url+path, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, m := range more {
		m(req)
	}
	return req
}

func hexMAC(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// postSentry sends a body signed as Sentry signs, with the client secret of the tests.
func (w *world) postSentry(s webhooks.Source, resource string, body []byte, more ...with) reply {
	w.t.Helper()
	all := append([]with{
		header("Sentry-Hook-Resource", resource), header("Sentry-Hook-Signature", hexMAC(clientSecret, body)),
		header("Sentry-Hook-Timestamp", fmt.Sprint(w.clock.now().Unix())), header("Request-ID", "9f1c2d3e4f5a6b7c0f2b9d5c4e3a4f7f"),
	}, more...)
	return w.do(w.request(s.Path, body, all...))
}

// postGeneric sends a body signed by the reference library of Standard Webhooks.
func (w *world) postGeneric(s webhooks.Source, id string, body []byte, more ...with) reply {
	w.t.Helper()
	return w.do(w.request(s.Path, body, append(w.standard(s.Secret, id, w.clock.now(), body), more...)...))
}

func (w *world) standard(secret, id string, at time.Time, body []byte) []with {
	w.t.Helper()
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		w.t.Fatal(err)
	}
	sig, err := wh.Sign(id, at, body)
	if err != nil {
		w.t.Fatal(err)
	}
	return []with{header("webhook-id", id), header("webhook-timestamp", fmt.Sprint(at.Unix())), header("webhook-signature", sig)}
}

// count and the like read as the superuser, whom no policy binds.
func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	w.db.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		if err := c.QueryRow(ctx, "SELECT count(*) FROM "+query, args...).Scan(&n); err != nil {
			w.t.Fatal(err)
		}
	})
	return n
}

func (w *world) expect(want map[string]int) {
	w.t.Helper()
	for query, n := range want {
		if got := w.count(query); got != n {
			w.t.Errorf("%s: %d rows, want %d", query, got, n)
		}
	}
}

const jobs = "river_job WHERE kind = 'consider_issue'"

func (w *world) event(providerID string) errand.Event {
	w.t.Helper()
	var body string
	w.db.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		if err := c.QueryRow(ctx, "SELECT body FROM events WHERE provider_id = $1", providerID).Scan(&body); err != nil {
			w.t.Fatalf("event %s: %v", providerID, err)
		}
	})
	var e errand.Event
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (w *world) issue(providerID string) (i store.Issue) {
	w.t.Helper()
	w.db.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, "SELECT * FROM issues WHERE provider_id = $1", providerID)
		if err != nil {
			w.t.Fatal(err)
		}
		if i, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[store.Issue]); err != nil {
			w.t.Fatalf("issue %s: %v", providerID, err)
		}
	})
	return i
}

func (w *world) exec(sql string) {
	w.t.Helper()
	w.db.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		if _, err := c.Exec(ctx, sql); err != nil {
			w.t.Fatal(err)
		}
	})
}

func (w *world) texts(query string) (list []string) {
	w.t.Helper()
	w.db.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, query)
		if err != nil {
			w.t.Fatal(err)
		}
		if list, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			w.t.Fatal(err)
		}
	})
	return list
}

// dump is every row of every table as text.
func (w *world) dump() string {
	w.t.Helper()
	var all strings.Builder
	for _, table := range w.texts("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'") {
		all.WriteString(strings.Join(w.texts("SELECT t::text FROM "+pgx.Identifier{table}.Sanitize()+" t"), "\n"))
	}
	return all.String()
}

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/sentry/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// changed gives the fixture with one member set to another value; the path is written with dots.
func changed(t *testing.T, name, path string, value any) []byte {
	t.Helper()
	var root any
	if err := json.Unmarshal(fixture(t, name), &root); err != nil {
		t.Fatal(err)
	}
	at := root.(map[string]any)
	parts := strings.Split(path, ".")
	for _, p := range parts[:len(parts)-1] {
		at = at[p].(map[string]any)
	}
	if last := parts[len(parts)-1]; value == nil {
		delete(at, last)
	} else {
		at[last] = value
	}
	b, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
