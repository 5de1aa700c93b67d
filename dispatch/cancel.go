package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

// cancelFor is how long GitHub is asked to stop a workflow. A job ends by itself soon after.
const cancelFor = 10 * time.Minute

// Cancel ends an open run because a person asked for it: the state first, so that its runner is told to stop with its next
// report, then GitHub's own cancellation, as best effort. It returns NotFound for a run that is not the organisation's,
// and Conflict for one that has ended, or that is just being started.
func (d *Dispatch) Cancel(ctx context.Context, org, run, person errand.ID) error {
	err := d.store.InTx(ctx, org, func(tx *store.Tx) error {
		before, err := tx.GetRun(ctx, run)
		if err != nil {
			return err
		}
		if before.State == errand.Dispatching {
			return errand.Conflict("the run is just being started: try again in a moment")
		}
		_, err = d.runs.Fire(ctx, tx, run, runs.Move{
			Trigger: errand.TriggerCancel, To: errand.Cancelled, Reason: errand.ReasonCancelledByPerson, Actor: "person", Person: person,
		}, nil)
		if err != nil {
			return err
		}
		err = d.note(ctx, tx, journal.KindPersonAction, run, errand.NewID(d.clock()), journal.PersonAction{Action: "cancel", Person: person})
		if err != nil || before.DispatchAttempt == 0 {
			return err
		}
		return tx.Enqueue(ctx, errand.CancelWorkflow{Org: org, Run: run})
	})
	if err == nil {
		d.count.ended.WithLabelValues(string(errand.Cancelled), string(errand.ReasonCancelledByPerson)).Inc()
		d.log.InfoContext(ctx, "run cancelled", "org", org, "run", run, "person", person)
	}
	return err
}

// cancelWorkflow asks GitHub to stop the workflow of a run that has ended. Nothing depends on it: the run's state stands,
// and its credentials are dead.
func (d *Dispatch) cancelWorkflow(ctx context.Context, args errand.CancelWorkflow) (again time.Duration, err error) {
	j, err := d.loadJob(ctx, args.Org, args.Run)
	if err != nil || !j.run.State.Ended() || j.run.FinishedAt == nil {
		return 0, err
	}
	id, err := d.workflowRun(ctx, &j)
	if err == nil && id != 0 {
		err = d.ask(ctx, &j, func(t github.Target) error { return d.github.Cancel(ctx, t, id) })
	}
	var e *github.Error
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &e):
		return 0, err
	case e.Outcome == github.Conflict: // it is over already
		return 0, nil
	case e.Outcome.Retry() && d.clock().Before(j.run.FinishedAt.Add(cancelFor)):
		return max(e.RetryAfter, askAgain), nil
	default:
		d.log.WarnContext(ctx, "a workflow could not be cancelled; its runner will be refused", "org", j.org, "run", j.run.ID, "workflow_run", id, "error", err)
		return 0, nil
	}
}
