package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/server"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/pgembed"
	"github.com/errand-dev/errand/webhooks"
)

// bed is the one PostgreSQL that everything is measured on.
type bed struct {
	pg    *pgembed.Server
	dir   string
	count int
}

func newBed(ctx context.Context) (*bed, error) {
	b := &bed{dir: filepath.Join(os.TempDir(), fmt.Sprintf("errand-bench-%d", os.Getpid()))}
	var err error
	// On the disk of TMPDIR, not in memory. What differs from what `errand serve` starts is room for more connections.
	b.pg, err = pgembed.Start(ctx, pgembed.Config{DataDir: b.dir, Settings: map[string]string{"max_connections": "300"}})
	return b, err
}

func (b *bed) close() {
	if err := b.pg.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := os.RemoveAll(b.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// durability refuses to measure a server that could forget what it acknowledged.
func (b *bed) durability(ctx context.Context) (version, fsync, commit string, err error) {
	conn, err := b.pg.Admin(ctx)
	if err != nil {
		return "", "", "", err
	}
	defer conn.Close(ctx)
	for name, into := range map[string]*string{"server_version": &version, "fsync": &fsync, "synchronous_commit": &commit} {
		if err := conn.QueryRow(ctx, "SHOW "+name).Scan(into); err != nil {
			return "", "", "", err
		}
	}
	if fsync != "on" || commit != "on" {
		return "", "", "", fmt.Errorf("fsync is %s and synchronous_commit is %s: figures without durability mean nothing", fsync, commit)
	}
	return version, fsync, commit, nil
}

// place is a database of its own with one organisation and one source, and the service on it.
type place struct {
	bed     *bed
	name    string
	store   *store.Store
	hooks   *webhooks.Webhooks
	metrics *prometheus.Registry
	org     errand.ID
	source  webhooks.Source
	addr    string
	server  *http.Server
}

const secret = "bench_client_secret_of_the_source"

func (b *bed) place(ctx context.Context) (*place, error) {
	b.count++
	p := &place{bed: b, name: fmt.Sprintf("bench_%d", b.count), metrics: prometheus.NewRegistry()}
	if err := b.admin(ctx, "CREATE DATABASE "+p.name+" OWNER "+pgembed.OwnerRole); err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx, b.pg.URL(p.name, pgembed.OwnerRole), time.Now()); err != nil {
		return nil, err
	}
	var err error
	if p.store, err = store.Open(ctx, store.Config{URL: b.pg.URL(p.name, pgembed.RuntimeRole), MaxConns: 16}); err != nil {
		return nil, err
	}
	if err := p.furnish(ctx); err != nil {
		return nil, err
	}
	return p, p.knownIssues(ctx)
}

// knownIssues makes the issues over which deliveries are spread: those of the service, and as many of which the plain form and
// pgbench speak. A place with new issues only would measure the pages of the tables that are touched for the first time.
func (p *place) knownIssues(ctx context.Context) error {
	return p.super(ctx, func(c *pgx.Conn) error {
		for _, id := range []string{"'other-' || n", "'9' || lpad(n::text, 9, '0')"} {
			_, err := c.Exec(ctx, `INSERT INTO issues (id, org_id, source_id, provider_id, title, status_at, first_seen, last_seen, created_at)
				SELECT gen_random_uuid(), $1, $2, `+id+`, 'KeyError', t, t, t, now() FROM generate_series(1, $3) n, (SELECT now() - interval '400 days' AS t) x`, p.org, p.source.ID, spread)
			if err != nil {
				return err
			}
		}
		_, err := c.Exec(ctx, "ANALYZE issues")
		return err
	})
}

func (b *bed) admin(ctx context.Context, sql string) error {
	conn, err := b.pg.Admin(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

func (p *place) furnish(ctx context.Context) error {
	now := time.Now()
	p.org = errand.NewID(now)
	err := p.store.InTx(ctx, p.org, func(tx *store.Tx) error {
		return tx.CreateOrganisation(ctx, store.CreateOrganisationParams{ID: p.org, Slug: "bench", Name: "bench", CreatedAt: now})
	})
	if err != nil {
		return err
	}
	sealer, err := store.NewSealer(bytes.Repeat([]byte{7}, store.SealKeyBytes))
	if err != nil {
		return err
	}
	// The log is written as it is in service, and thrown away.
	log := slog.New(slog.NewJSONHandler(io.Discard, nil))
	p.hooks, err = webhooks.New(webhooks.Config{
		Store: p.store, Sealer: sealer, Scrubber: scrub.New(), Clock: time.Now, Logger: log, Metrics: p.metrics,
	})
	if err != nil {
		return err
	}
	if p.source, err = p.hooks.CreateSource(ctx, p.org, webhooks.NewSource{Kind: "sentry", Name: "bench", Secret: secret}); err != nil {
		return err
	}
	app := server.New(server.Config{
		Log: log, Clock: time.Now, Version: "bench", Metrics: p.metrics,
		Ready: func(context.Context) error { return nil }, Pages: []server.Mounter{p.hooks},
	})
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.addr, p.server = l.Addr().String(), &http.Server{Handler: app, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = p.server.Serve(l) }() // ends with close
	return nil
}

// close stops the service and drops the database.
func (p *place) close(ctx context.Context) error {
	_ = p.server.Close()
	if err := p.hooks.Close(ctx); err != nil {
		return err
	}
	p.store.Close()
	return p.bed.admin(ctx, "DROP DATABASE "+p.name+" WITH (FORCE)")
}

// super runs fn on a connection that no policy binds.
func (p *place) super(ctx context.Context, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, p.bed.pg.URL(p.name, pgembed.Superuser))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return fn(conn)
}

// sample is what one measurement gave.
type sample struct {
	n       int
	elapsed time.Duration
	took    []time.Duration
}

func (s sample) perS() float64 { return float64(s.n) / s.elapsed.Seconds() }

func (s sample) ms(quantile float64) float64 {
	if len(s.took) == 0 {
		return math.NaN()
	}
	slices.Sort(s.took)
	return float64(s.took[min(int(float64(len(s.took))*quantile), len(s.took)-1)].Microseconds()) / 1000
}

// median of several measurements of the same thing.
func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	if len(sorted)%2 == 1 {
		return sorted[len(sorted)/2]
	}
	return (sorted[len(sorted)/2-1] + sorted[len(sorted)/2]) / 2
}

func round(v float64, digits int) float64 {
	shift := math.Pow(10, float64(digits))
	return math.Round(v*shift) / shift
}

func figure(v float64, digits int) *float64 {
	v = round(v, digits)
	return &v
}
