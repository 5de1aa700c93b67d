package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/storetest"
)

// H4: a job that was picked by a process that is dead is worked again. H2: one whose process may be alive is not, for as long
// as a job may take and then write down what it did; at its last attempt it would be given up in the middle of its work.
func TestH2_H4_AJobIsRescuedAfterItsTimeAndNotBefore(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	org := db.Org(t, "acme")
	dead, alive := errand.NewID(time.Now()), errand.NewID(time.Now())
	err := db.InTx(ctx, org, func(tx *store.Tx) error {
		return tx.EnqueueMany(ctx, []errand.JobArgs{errand.CancelWorkflow{Org: org, Run: dead}, errand.CancelWorkflow{Org: org, Run: alive}})
	})
	if err != nil {
		t.Fatal(err)
	}
	const mayTake = 55 * time.Second // a job's time limit, and the time to save an answer after it
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		for run, ago := range map[errand.ID]time.Duration{dead: 2 * time.Minute, alive: mayTake - 9*time.Second} {
			_, err := c.Exec(ctx, `update river_job set state = 'running', attempt = 1, max_attempts = case when args->>'run' = $3 then 1 else 25 end,
				attempted_at = now() - make_interval(secs => $2), attempted_by = '{gone}' where args->>'run' = $1`, string(run), ago.Seconds(), string(alive))
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	worked := make(chan errand.ID, 10)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, j *river.Job[errand.CancelWorkflow]) error {
		worked <- j.Args.Run
		return nil
	}))
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[errand.Sweep]) error { return nil }))
	stop, err := db.Work(ctx, store.WorkConfig{Workers: workers, MaxWorkers: 2, SweepEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case run := <-worked:
		if run != dead {
			t.Error("the job of a process that may be alive was worked a second time")
		}
	case <-time.After(time.Minute):
		t.Error("the job of a dead process was never taken up again")
	}
	if err := stop(ctx); err != nil {
		t.Error(err)
	}
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		var state string
		var age float64 // at its rescue, in seconds
		err := c.QueryRow(ctx, `select state::text, coalesce(extract(epoch from (errors[1]->>'at')::timestamptz - attempted_at), 0)::float8
			from river_job where args->>'run' = $1`, string(alive)).Scan(&state, &age)
		if err != nil || state != "running" && age < mayTake.Seconds() {
			t.Errorf("the job of a process that may be alive is %s after %.0f s, %v", state, age, err)
		}
	})
}
