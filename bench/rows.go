package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store/pgembed"
	"github.com/errand-dev/errand/webhooks"
)

type errandDelivery = webhooks.Delivery

// writerAndPlain measures the database's half of (a): the writer with deliveries that are understood already, the plain form
// with the same rows, and pgbench.
func writerAndPlain(ctx context.Context, b *bed, p plan, f *figures) error {
	at, err := b.place(ctx)
	if err != nil {
		return err
	}
	if _, err := at.load(ctx, 32, newBody(4<<10), spread, p.slice/2); err != nil {
		return err
	}
	row, err := at.example(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n(a) the writer, the plain form and pgbench; the event is %d bytes of JSON once it is understood\n", len(row.event))
	writer := map[int][]float64{32: nil, 128: nil}
	plain := map[int][]float64{8: nil, 32: nil}
	for range p.rounds {
		for _, callers := range []int{32, 128} {
			n, err := at.writer(ctx, callers, p)
			if err != nil {
				return err
			}
			writer[callers] = append(writer[callers], n)
		}
		for _, conns := range []int{8, 32} {
			n, err := at.plain(ctx, conns, row, p.slice)
			if err != nil {
				return err
			}
			plain[conns] = append(plain[conns], n)
		}
	}
	best, wrote := max(median(plain[8]), median(plain[32])), max(median(writer[32]), median(writer[128]))
	fmt.Printf("  the writer alone, 32 and 128 callers %7.0f/s %8.0f/s\n  plain, 8 and 32 connections          %7.0f/s %8.0f/s   the writer is %.2f times as fast, each at its best; %.2f with 32 callers\n",
		median(writer[32]), median(writer[128]), median(plain[8]), median(plain[32]), wrote/best, median(writer[32])/best)
	f.WriterPerS, f.PlainPerS, f.IngestVsPlain = figure(wrote, 0), figure(best, 0), figure(wrote/best, 2)
	if err := at.pgbench(ctx, p, row, f); err != nil {
		return err
	}
	return at.close(ctx)
}

// writer stores deliveries that are understood already, from so many callers.
func (p *place) writer(ctx context.Context, callers int, pl plan) (perS float64, err error) {
	n := 30_000
	if pl.short {
		n = 3_000
	}
	list, err := p.prepared(ctx, newBody(4<<10), spread, n)
	if err != nil {
		return 0, err
	}
	runtime.GC()
	var next atomic.Int64
	begin := time.Now()
	_, err = closedLoop(ctx, callers, 10*time.Minute, func(int) error {
		i := int(next.Add(1)) - 1
		if i >= len(list) {
			return errDone
		}
		outcome, err := p.hooks.Store(ctx, list[i])
		if err == nil && outcome != "accepted" {
			err = fmt.Errorf("the writer answered %s", outcome)
		}
		return err
	})
	if err != errDone { //nolint:errorlint // our own, unwrapped
		return 0, err
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

var errDone = fmt.Errorf("nothing left to store")

// example is what the rows of one delivery hold.
type example struct{ event, shape, digest string }

func (p *place) example(ctx context.Context) (x example, err error) {
	err = p.super(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, `SELECT e.body, d.shape, encode(d.body_sha256, 'hex') FROM events e JOIN deliveries d ON d.event_id = e.id LIMIT 1`).Scan(&x.event, &x.shape, &x.digest)
	})
	return x, err
}

// plain is what a handler would do without a writer: one transaction a request, of three statements, which write the same
// rows as the writer does (issue and event; key and delivery; job). It lives here only.
func (p *place) plain(ctx context.Context, conns int, row example, length time.Duration) (perS float64, err error) {
	cfg, err := pgxpool.ParseConfig(p.bed.pg.URL(p.name, pgembed.RuntimeRole))
	if err != nil {
		return 0, err
	}
	cfg.MaxConns = int32(conns) //nolint:gosec // 8 or 32
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	begin := pgx.TxOptions{BeginQuery: "begin; select set_config('errand.orgs', '" + string(p.org) + "', true)"}
	request := func(int) error {
		return pgx.BeginTxFunc(ctx, pool, begin, func(tx pgx.Tx) error { return p.plainly(ctx, tx, row) })
	}
	if _, err := closedLoop(ctx, conns, length/2, request); err != nil { // connections and plans
		return 0, err
	}
	s, err := closedLoop(ctx, conns, length, request)
	return s.perS(), err
}

const (
	plainIssue = `WITH i AS (
		INSERT INTO issues (id, org_id, source_id, provider_id, title, culprit, level, platform, project, link, status, status_at, first_seen, last_seen, deliveries, created_at)
		VALUES ($1, $2, $3, $4, 'KeyError: ''currency''', 'checkout.views in pay', 'error', 'python', 'checkout', 'https://sentry.io/', 'open', $5, $5, $5, 1, $5)
		ON CONFLICT ON CONSTRAINT issues_provider_key DO UPDATE SET last_seen = GREATEST(EXCLUDED.last_seen, issues.last_seen), deliveries = issues.deliveries + 1
		RETURNING id)
		INSERT INTO events (id, org_id, issue_id, provider_id, seen_at, received_at, delivery_id, body) SELECT $6, $2, id, $7, $5, $5, $8, $9 FROM i RETURNING issue_id`
	plainDelivery = `WITH k AS (INSERT INTO delivery_keys (source_id, key, org_id, delivery_id, received_at) VALUES ($1, $2, $3, $4, $5))
		INSERT INTO deliveries (id, org_id, source_id, received_at, resource, action, outcome, issue_id, event_id, body_sha256, body_bytes, shape)
		VALUES ($4, $3, $1, $5, 'event_alert', 'triggered', 'accepted', $6, $7, decode($8, 'hex'), 4096, $9)`
	plainJob = `INSERT INTO river_job (args, kind, max_attempts) VALUES ($1, 'consider_issue', 25)`
)

func (p *place) plainly(ctx context.Context, tx pgx.Tx, row example) error {
	n, now := eventNumber.Add(1), time.Now()
	event, delivery := errand.NewID(now), errand.NewID(now)
	key := fmt.Sprintf("event:%d:%032d", 1+n%spread, n)
	var issue errand.ID
	err := tx.QueryRow(ctx, plainIssue, errand.NewID(now), p.org, p.source.ID, fmt.Sprintf("other-%d", 1+n%spread), now, event, key, delivery, row.event).Scan(&issue)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, plainDelivery, p.source.ID, key, p.org, delivery, now, issue, event, row.digest, row.shape); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, plainJob, errand.ConsiderIssue{Org: p.org, Issue: issue, Event: event, Delivery: delivery})
	return err
}

// pgbench measures what PostgreSQL does with transactions of three rows (delivery with the event's text, issue upsert, job)
// from a client that costs next to nothing, and with all the rows of a delivery. Both run as the tables' owner, without
// looking at organisations.
func (p *place) pgbench(ctx context.Context, pl plan, row example, f *figures) error {
	program := findPgbench()
	if program == "" {
		fmt.Println("  pgbench is not installed beside a PostgreSQL on this machine: no figure of it")
		return nil
	}
	dir, err := os.MkdirTemp("", "errand-pgbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var rates [2]float64
	for i, script := range p.scripts(row) {
		file := filepath.Join(dir, fmt.Sprintf("%d.sql", i))
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			return err
		}
		counts := []int{8, 32, 64}
		if pl.short {
			counts = [][]int{{8, 32}, nil}[i]
		}
		for _, conns := range counts {
			n, err := p.runPgbench(ctx, program, file, row, conns, max(3, int(pl.slice.Seconds())))
			if err != nil {
				return err
			}
			fmt.Printf("  pgbench, %s, %d clients  %8.0f/s\n", []string{"three rows", "all rows"}[i], conns, n)
			rates[i] = max(rates[i], n)
		}
	}
	f.PgbenchPerS = figure(rates[0], 0)
	if !pl.short {
		f.PgbenchSamePerS = figure(rates[1], 0)
	}
	if f.IngestBestPerS != nil && rates[0] > 0 {
		f.IngestVsPgbench = figure(*f.IngestBestPerS/rates[0], 2)
		fmt.Printf("  the whole path, each at its best count, is %.2f of pgbench's three rows; at 32 connections %.2f\n", *f.IngestBestPerS/rates[0], *f.IngestPerS/rates[0])
	}
	return nil
}

// findPgbench looks where PostgreSQL's packages put it.
func findPgbench() string {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if err == nil && len(found) > 0 {
		slices.Sort(found)
		return found[len(found)-1]
	}
	path, err := exec.LookPath("pgbench")
	if err != nil {
		return ""
	}
	return path
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func (p *place) scripts(row example) [2]string {
	fill := strings.NewReplacer("ORG", quoted(string(p.org)), "SOURCE", quoted(string(p.source.ID)), "DIGEST", "decode("+quoted(row.digest)+", 'hex')")
	issue := `INSERT INTO issues (id, org_id, source_id, provider_id, title, culprit, level, platform, project, link, status, status_at, first_seen, last_seen, deliveries, created_at) ` +
		`VALUES (gen_random_uuid(), ORG, SOURCE, 'other-' || :issue, 'KeyError: ''currency''', 'checkout.views in pay', 'error', 'python', 'checkout', 'https://sentry.io/', 'open', now(), now(), now(), 1, now()) ` +
		`ON CONFLICT ON CONSTRAINT issues_provider_key DO UPDATE SET last_seen = GREATEST(EXCLUDED.last_seen, issues.last_seen), deliveries = issues.deliveries + 1`
	delivery := `INSERT INTO deliveries (id, org_id, source_id, received_at, resource, action, outcome, issue_id, event_id, body_sha256, body_bytes, shape) ` +
		`VALUES (gen_random_uuid(), ORG, SOURCE, now(), 'event_alert', 'triggered', 'accepted', gen_random_uuid(), gen_random_uuid(), DIGEST, 4096, `
	job := `INSERT INTO river_job (args, kind, max_attempts) VALUES ('{"org": "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11", "event": "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11", ` +
		`"issue": "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11", "delivery": "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11"}', 'consider_issue', 25);`
	head := "\\set issue random(1, " + strconv.Itoa(spread) + ")\nBEGIN;\n"
	three := head + issue + ";\n" + delivery + ":event);\n" + job + "\nCOMMIT;\n"
	all := head + "WITH i AS (" + issue + " RETURNING id) INSERT INTO events (id, org_id, issue_id, provider_id, seen_at, received_at, delivery_id, body) " +
		"SELECT gen_random_uuid(), ORG, id, gen_random_uuid()::text, now(), now(), gen_random_uuid(), :event FROM i;\n" +
		"WITH k AS (INSERT INTO delivery_keys (source_id, key, org_id, delivery_id, received_at) VALUES (SOURCE, gen_random_uuid()::text, ORG, gen_random_uuid(), now())) " + delivery + ":shape);\n" +
		job + "\nCOMMIT;\n"
	return [2]string{fill.Replace(three), fill.Replace(all)}
}

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

func (p *place) runPgbench(ctx context.Context, program, file string, row example, conns, seconds int) (perS float64, err error) {
	cmd := exec.CommandContext(ctx, program, "-n", "-M", "prepared", "-c", strconv.Itoa(conns), "-j", "2", "-T", strconv.Itoa(seconds),
		"-D", "event="+row.event, "-D", "shape="+row.shape, "-f", file, p.bed.pg.URL(p.name, pgembed.OwnerRole)) //nolint:gosec // our own script
	out, err := cmd.CombinedOutput()
	m := tps.FindSubmatch(out)
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	if m == nil { // not one transaction within the time
		return 0, nil
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
