package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// read adds to the facts what is stored. It reads as the superuser, past row-level security, in one snapshot.
func (f *facts) read(ctx context.Context, conn *pgx.Conn) error {
	f.deliveries, f.issues, f.runs = map[string]delivery{}, map[string]issue{}, map[string]errandRun{}
	f.caps, f.fixCaps, f.money = map[string]int{}, map[string]int{}, map[string]int{}
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for _, read := range []func(context.Context, pgx.Tx) error{f.readIngest, f.readCaps, f.readRuns, f.readJournal, f.readJobs, f.readWaits, f.readForeign} {
			if err := read(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// each runs a query and gives every row to take, with the variables filled in.
func each(ctx context.Context, tx pgx.Tx, query string, into []any, take func()) error {
	rows, err := tx.Query(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	_, err = pgx.ForEachRow(rows, into, func() error { take(); return nil })
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

func (f *facts) readIngest(ctx context.Context, tx pgx.Tx) error {
	var id string
	var d delivery
	var sha []byte
	err := each(ctx, tx, `select id::text, source_id::text, org_id::text, body_sha256, outcome, coalesce(issue_id::text, ''), event_id is not null, received_at from deliveries`,
		[]any{&id, &d.source, &d.org, &sha, &d.outcome, &d.issue, &d.event, &d.at}, func() {
			d.sha = hex.EncodeToString(sha)
			f.deliveries[id] = d
		})
	if err != nil {
		return err
	}
	var is issue
	return each(ctx, tx, `select id::text, org_id::text, source_id::text from issues`, []any{&id, &is.org, &is.source}, func() { f.issues[id] = is })
}

// readCaps reads the limits that were never changed during the run.
func (f *facts) readCaps(ctx context.Context, tx pgx.Tx) error {
	var id string
	var most int
	err := each(ctx, tx, `select id::text, daily_run_cap from organisations`, []any{&id, &most}, func() { f.caps[id] = most })
	if err != nil {
		return err
	}
	err = each(ctx, tx, `select id::text, budget_day_pico / run_ceiling_pico from organisations where budget_day_pico is not null`,
		[]any{&id, &most}, func() { f.money[id] = most })
	if err != nil {
		return err
	}
	return each(ctx, tx, `select id::text, open_fix_cap from repositories`, []any{&id, &most}, func() { f.fixCaps[id] = most })
}

func (f *facts) readRuns(ctx context.Context, tx pgx.Tx) error {
	var id string
	var r errandRun
	return each(ctx, tx, `select r.id::text, r.org_id::text, r.repository_id::text, r.issue_id::text, r.problem, r.state, coalesce(r.workflow_run_id, 0),
		(select count(*) from run_steps s where s.run_id = r.id) from runs r`,
		[]any{&id, &r.org, &r.repository, &r.issue, &r.problem, &r.state, &r.workflowRun, &r.steps}, func() {
			r.created = madeAt(id)
			f.runs[id] = r
		})
}

// madeAt reads the time in an id (UUID version 7): no hand of ours has moved that one.
func madeAt(id string) time.Time {
	var ms int64
	if _, err := fmt.Sscanf(id[:8]+id[9:13], "%x", &ms); err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func (f *facts) readJournal(ctx context.Context, tx pgx.Tx) error {
	var s step
	err := each(ctx, tx, `select subject::text, body::json->>'from', body::json->>'to', (body::json->>'version')::bigint from journal
		where kind = 'run.transition' order by seq`, []any{&s.run, &s.from, &s.to, &s.version}, func() { f.history = append(f.history, s) })
	if err != nil {
		return err
	}
	var d decision
	return each(ctx, tx, `select subject::text, coalesce(body::json->>'delivery', ''), at from journal where kind = 'decision'`,
		[]any{&d.issue, &d.delivery, &d.at}, func() { f.decisions = append(f.decisions, d) })
}

// overdue is how long a job that could be worked may lie about. The sweep comes every few seconds by itself, and one of it
// may always be waiting.
const overdue = 20 * time.Second

func (f *facts) readJobs(ctx context.Context, tx pgx.Tx) error {
	var j job
	return each(ctx, tx, fmt.Sprintf(`select id, kind, state::text, left(args::text, 300), left(coalesce(errors[array_upper(errors, 1)]->>'error', ''), 300),
		state in ('available', 'running', 'retryable', 'scheduled', 'pending') and greatest(scheduled_at, attempted_at) < now() - interval '%d s'
		from river_job where state <> 'completed'`, int(overdue.Seconds())),
		[]any{&j.id, &j.kind, &j.state, &j.args, &j.why, &j.overdue}, func() { f.jobs = append(f.jobs, j) })
}

// readWaits finds the issues that wait for a run that has ended, and those that nobody looks at. All of them were looked at
// after the last run's end, because the stored times were moved beyond the longest time between two looks.
func (f *facts) readWaits(ctx context.Context, tx pgx.Tx) error {
	var id, gate, holder string
	err := each(ctx, tx, `select w.issue_id::text, w.gate, w.holder::text from waits w join runs r on r.id = w.holder
		where r.finished_at is not null and r.state <> 'pr_opened' and w.look_at > now()`, []any{&id, &gate, &holder}, func() {
		note(&f.waits, "issue %s waits (%s) for run %s, which has ended", id, gate, holder)
	})
	if err != nil {
		return err
	}
	return each(ctx, tx, fmt.Sprintf(`select issue_id::text, gate from waits where look_at < now() - interval '%d s'`, int(overdue.Seconds())), []any{&id, &gate}, func() {
		note(&f.waits, "issue %s waits (%s), its time has come, and nobody looks", id, gate)
	})
}

// readForeign compares the organisation of every row with that of each row that it refers to: along every foreign key of
// the catalogue whose both sides have one, and along the references that are not keys.
func (f *facts) readForeign(ctx context.Context, tx pgx.Tx) error {
	type reference struct{ from, column, to, key string }
	all := []reference{
		{"deliveries", "source_id", "sources", "id"},
		{"deliveries", "issue_id", "issues", "id"},
		{"deliveries", "event_id", "events", "id"},
		{"journal", "subject", "issues", "id"},
		{"journal", "subject", "runs", "id"},
	}
	var r reference
	err := each(ctx, tx, `select c.conrelid::regclass::text, a.attname, c.confrelid::regclass::text, b.attname
		from pg_constraint c
		join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
		join pg_attribute b on b.attrelid = c.confrelid and b.attnum = c.confkey[1]
		where c.contype = 'f' and array_length(c.conkey, 1) = 1 and c.connamespace = 'public'::regnamespace
		and exists (select from pg_attribute o where o.attrelid = c.conrelid and o.attname = 'org_id')
		and exists (select from pg_attribute o where o.attrelid = c.confrelid and o.attname = 'org_id')`,
		[]any{&r.from, &r.column, &r.to, &r.key}, func() { all = append(all, r) })
	if err != nil {
		return err
	}
	for _, r := range all {
		var n int
		err := tx.QueryRow(ctx, fmt.Sprintf(`select count(*) from %s a join %s b on a.%s = b.%s where a.org_id <> b.org_id`, r.from, r.to, r.column, r.key)).Scan(&n)
		if err != nil {
			return err
		}
		if n > 0 {
			note(&f.foreign, "%d rows of %s refer by %s to rows of %s that another organisation owns", n, r.from, r.column, r.to)
		}
	}
	return nil
}
