package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

// sweepAtMost bounds one sweep; what is left is the oldest of the next one.
const sweepAtMost = 500

// sweep finds the runs whose deadline has passed, the waits and the installations that are due, and has each looked into;
// it also makes the coming days' partitions of the delivery log and drops old ones.
func (d *Dispatch) sweep(ctx context.Context, _ errand.Sweep) (again time.Duration, err error) {
	now := d.clock()
	problems := []error{d.store.MaintainDeliveries(ctx, now, d.keep), d.store.DropGitHubDeliveries(ctx, now.Add(-d.keep))}
	due, err := d.store.DueRuns(ctx, now, sweepAtMost)
	problems = append(problems, err)
	for _, r := range due { // one organisation's trouble is not another's
		problems = append(problems, d.store.InTx(ctx, r.Org, func(tx *store.Tx) error {
			return tx.Enqueue(ctx, errand.ReconcileRun{Org: r.Org, Run: r.Run}, store.Once())
		}))
	}
	waits, err := d.store.DueWaits(ctx, now, sweepAtMost)
	problems = append(problems, err)
	for _, w := range waits {
		problems = append(problems, d.store.InTx(ctx, w.Org, func(tx *store.Tx) error {
			return tx.Enqueue(ctx, errand.ConsiderIssue{Org: w.Org, Issue: w.Issue}, store.Once())
		}))
	}
	installations, err := d.store.DueInstallations(ctx, now, sweepAtMost)
	problems = append(problems, err)
	for _, in := range installations {
		problems = append(problems, d.store.InTx(ctx, in.Org, func(tx *store.Tx) error {
			return tx.Enqueue(ctx, errand.RefreshInstallation(in), store.Once())
		}))
	}
	return 0, errors.Join(problems...)
}

// reconcileRun looks into a run whose time to report has passed. GitHub is asked what became of the workflow run; an answer
// that cannot be had is unknown, and unknown ends nothing before the run's own last moment. A run is never started again
// once it was running: it may have pushed.
func (d *Dispatch) reconcileRun(ctx context.Context, args errand.ReconcileRun) (again time.Duration, err error) {
	j, err := d.loadJob(ctx, args.Org, args.Run)
	if err != nil {
		return 0, err
	}
	switch j.run.State {
	case errand.Queued:
		if d.clock().Before(j.run.CreatedAt.Add(runs.DispatchWithin)) {
			return 0, nil
		}
		return 0, d.fire(ctx, j, runs.Move{Trigger: errand.TriggerDeadline, To: errand.Failed, Reason: errand.ReasonNotDispatched})
	case errand.Dispatching:
		again, err = d.search(ctx, j)
		if args.Told && err == nil {
			again = min(max(again, time.Millisecond), askAgain) // once it is known to have been accepted, its end is looked at
		}
		return again, err
	case errand.Dispatched:
		return 0, d.watchDispatched(ctx, j)
	case errand.Running, errand.Checking, errand.Publishing:
		return 0, d.watchRunning(ctx, j, args.Told)
	default:
		return 0, nil // it ended
	}
}

// watchDispatched: GitHub took it and no runner has started the errand.
func (d *Dispatch) watchDispatched(ctx context.Context, j job) error {
	last := j.run.UpdatedAt.Add(runs.StartWithin)
	if j.run.DispatchedAt != nil {
		last = j.run.DispatchedAt.Add(runs.StartWithin)
	}
	w, known := d.lookUp(ctx, &j)
	now := d.clock()
	switch {
	case known && w.Status == "completed":
		return d.fire(ctx, j, endOf(w, errand.ReasonWorkflowFailed))
	case now.Before(last):
		return d.lookAgain(ctx, j, earlier(last, now.Add(runs.Lease)))
	default:
		return d.fireThen(ctx, j, runs.Move{
			Trigger: errand.TriggerNeverStarted, To: errand.TimedOut, Reason: errand.ReasonNeverStarted, Detail: statusWords(w, known),
		}, nil, errand.CancelWorkflow{Org: j.org, Run: j.run.ID})
	}
}

// watchRunning: a runner has the errand. While it reports nobody is asked, unless GitHub told that its workflow is over.
func (d *Dispatch) watchRunning(ctx context.Context, j job, told bool) error {
	started := j.run.UpdatedAt
	if j.run.StartedAt != nil {
		started = *j.run.StartedAt
	}
	last, heard := started.Add(runs.FinishWithin), started
	if j.run.HeartbeatAt != nil && j.run.HeartbeatAt.After(heard) {
		heard = *j.run.HeartbeatAt
	}
	now := d.clock()
	if !told && now.Before(last) && now.Before(heard.Add(runs.Lease)) {
		return d.lookAgain(ctx, j, earlier(last, heard.Add(runs.Lease)))
	}
	w, known := d.lookUp(ctx, &j)
	now = d.clock()
	switch {
	case known && w.Status == "completed":
		return d.fire(ctx, j, endOf(w, errand.ReasonSilent))
	case now.Before(last):
		return d.lookAgain(ctx, j, earlier(last, now.Add(runs.Lease)))
	default:
		return d.fireThen(ctx, j, runs.Move{
			Trigger: errand.TriggerDeadline, To: errand.TimedOut, Reason: errand.ReasonDeadline, Detail: statusWords(w, known),
		}, nil, errand.CancelWorkflow{Org: j.org, Run: j.run.ID})
	}
}

// deletedRun is the conclusion that we give a workflow run which GitHub had and has no more.
const deletedRun = "deleted"

// lookUp asks GitHub for the run's workflow run. known is false for every answer that does not say how it stands: refused, no
// answer, a mark that several carry, or absent from a repository that is not there itself.
func (d *Dispatch) lookUp(ctx context.Context, j *job) (w github.WorkflowRun, known bool) {
	id, err := d.workflowRun(ctx, j)
	if err != nil || id == 0 {
		d.notKnown(ctx, j, id, err)
		return github.WorkflowRun{}, false
	}
	read := func(t github.Target) error {
		w, err = d.github.Run(ctx, t, id)
		return err
	}
	err = d.ask(ctx, j, read)
	var e *github.Error
	if errors.As(err, &e) && e.Outcome == github.NotFound && d.repositoryThere(ctx, j) {
		if err = d.ask(ctx, j, read); errors.As(err, &e) && e.Outcome == github.NotFound {
			return github.WorkflowRun{ID: id, Status: "completed", Conclusion: deletedRun}, true
		}
	}
	if err != nil {
		d.notKnown(ctx, j, id, err)
		return github.WorkflowRun{}, false
	}
	return w, true
}

// repositoryThere asks for the run's repository by its numeric id, and aims at its name of today.
func (d *Dispatch) repositoryThere(ctx context.Context, j *job) bool {
	repo, err := d.github.Repository(ctx, j.repo.InstallationID, j.repo.GitHubID)
	if err != nil {
		return false
	}
	if name := repo.FullName(); name.Owner != j.target.Owner || name.Name != j.target.Name {
		return d.moved(ctx, j, &name)
	}
	return true
}

func (d *Dispatch) notKnown(ctx context.Context, j *job, id int64, err error) {
	d.log.WarnContext(ctx, "what became of a workflow run is not known", "org", j.org, "run", j.run.ID, "workflow_run", id, "error", err)
}

// workflowRun gives GitHub's id of the run; 0 = not known. Where GitHub did not say it (a 204) the marker is searched, and
// the one run that carries it is kept.
func (d *Dispatch) workflowRun(ctx context.Context, j *job) (int64, error) {
	if j.run.WorkflowRunID != nil {
		return *j.run.WorkflowRunID, nil
	}
	if j.run.DispatchedAt == nil {
		return 0, nil
	}
	found, err := d.findRuns(ctx, j)
	if err != nil || len(found) != 1 {
		return 0, err
	}
	err = d.store.InTx(ctx, j.org, func(tx *store.Tx) error {
		_, err := tx.DispatchSetWorkflowRun(ctx, found[0].ID, found[0].URL, j.run.ID)
		return err
	})
	return found[0].ID, err
}

// endOf is what a completed workflow run means for a run without a report. Cancelled stands above the count of jobs: a run
// cancelled before a runner was there has none either.
func endOf(w github.WorkflowRun, otherwise errand.Reason) runs.Move {
	m := runs.Move{Trigger: errand.TriggerGitHubEnded, To: errand.Failed, Reason: otherwise, Detail: "GitHub: " + orUnknown(w.Conclusion)}
	switch {
	case w.Conclusion == "cancelled":
		m.To, m.Reason = errand.Cancelled, errand.ReasonWorkflowCancelled
	case w.Conclusion == deletedRun:
		m.Reason, m.Detail = errand.ReasonWorkflowDeleted, "GitHub has the repository, and the workflow run no more"
	case w.Conclusion == "startup_failure":
		m.Reason = errand.ReasonStartupFailure
	case w.Jobs != nil && *w.Jobs == 0:
		m.Reason, m.Detail = errand.ReasonStartupFailure, m.Detail+", without any job"
	case w.Conclusion == "success": // its last step did not report: no failure that its page would show
		m.Reason = errand.ReasonSilent
	}
	return m
}

func statusWords(w github.WorkflowRun, known bool) string {
	if !known {
		return "GitHub could not be asked, or knows no such workflow run"
	}
	return fmt.Sprintf("GitHub: %s", orUnknown(w.Status))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
