package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// quietIdle covers what takes its time by design: a job that died with its process is taken up again a minute later.
	quietIdle   = 110 * time.Second
	quietAtMost = 10 * time.Minute
	// One step of the stored times, above a run's lease, and how many of them: beyond a run's longest deadline of all.
	timeStep  = 150 * time.Second
	timeSteps = 26
	// The longest time between two looks at an issue that waits.
	longestWait = 16 * time.Minute
)

// heal takes back every fault.
func (w *world) heal() {
	for _, k := range []*link{w.public, w.toPG[0], w.toPG[1], w.toHub} {
		k.heal()
	}
	w.hub.heal()
	w.runners.calm.Store(true)
}

// settle waits until nothing is left to do by itself, and then moves the stored times of what is open, step by step, until
// every deadline has passed and every wait was looked at: what is open after that is stuck, and nobody had to wait an hour
// to know it. It gives the moment before the first move.
func (w *world) settle(ctx context.Context, say func(string, ...any)) (moved time.Time, err error) {
	if err := w.awaitReady(ctx, time.Minute); err != nil {
		w.observe("%v", err)
		return moved, nil
	}
	conn, err := w.pg.admin(ctx)
	if err != nil {
		return moved, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	began := time.Now()
	if err := w.quiet(ctx, conn, quietIdle); err != nil {
		return moved, err
	}
	say("quiet after %.1f s", time.Since(began).Seconds())
	moved = time.Now()
	looked := false // at every wait, after the last run's end
	for n := range timeSteps {
		left, words, err := open(ctx, conn)
		if err != nil || left == 0 && looked {
			return moved, err
		}
		by := timeStep
		if looked = left == 0; looked {
			by, words = longestWait, "nothing but waits"
		}
		say("open: %s; moving the stored times by %s (%d)", words, by, n+1)
		if err := advance(ctx, conn, by); err != nil {
			return moved, err
		}
		sleep(ctx, 7*time.Second) // the sweep looks every five
		if err := w.quiet(ctx, conn, 40*time.Second); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// quiet waits until no job can be worked, no wait is due and no runner is at work, three looks in a row. It gives up when
// nothing was finished for as long as idle; however much there is, it waits as long as it becomes less.
func (w *world) quiet(ctx context.Context, conn *pgx.Conn, idle time.Duration) error {
	end, last := time.Now().Add(quietAtMost), time.Now()
	var done int
	for calm := 0; calm < 3 && time.Since(last) < idle && time.Now().Before(end); sleep(ctx, 400*time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var busy, finished int
		err := conn.QueryRow(ctx, `select (select count(*) from waits where look_at < now()) +
			count(*) filter (where state in ('available', 'running', 'pending') or state in ('retryable', 'scheduled') and scheduled_at < now() + interval '1 second'),
			count(*) filter (where state = 'completed') from river_job where kind <> 'sweep'`).Scan(&busy, &finished)
		if err != nil {
			return err
		}
		if finished > done {
			done, last = finished, time.Now()
		}
		if calm++; busy > 0 || w.runners.busy.Load() > 0 {
			calm = 0
		}
	}
	return nil
}

// open counts what waits for a deadline.
func open(ctx context.Context, conn *pgx.Conn) (left int, words string, err error) {
	rows, err := conn.Query(ctx, `select state || ' runs', count(*) from runs where finished_at is null group by 1
		union all select kind || ' jobs to be tried again', count(*) from river_job where state = 'retryable' group by 1`)
	if err != nil {
		return 0, "", err
	}
	var all []string
	var what string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&what, &n}, func() error {
		left += n
		all = append(all, fmt.Sprintf("%d %s", n, what))
		return nil
	})
	return left, strings.Join(all, ", "), err
}

// advance moves every time of the open runs, and of the jobs that wait, into the past: to the product it is the same as if
// that time had gone by. What has ended keeps its times.
func advance(ctx context.Context, conn *pgx.Conn, by time.Duration) error {
	rows, err := conn.Query(ctx, `select column_name from information_schema.columns
		where table_schema = 'public' and table_name = 'runs' and data_type = 'timestamp with time zone' and column_name <> 'finished_at'`)
	if err != nil {
		return err
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var set []string
	for _, c := range columns {
		set = append(set, fmt.Sprintf("%s = %s - $1::interval", c, c))
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "update runs set "+strings.Join(set, ", ")+" where finished_at is null", by); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "update waits set look_at = look_at - $1::interval", by); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update river_job set scheduled_at = scheduled_at - $1::interval where state in ('retryable', 'scheduled')", by)
		return err
	})
}
