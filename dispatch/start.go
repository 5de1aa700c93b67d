package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

const (
	// clockSlack is how far before the saved time a search begins: GitHub's machines disagree among themselves.
	clockSlack = 2 * time.Minute
	// saveTimeout bounds the writing of an answer, which must be tried although the job's own time is over.
	saveTimeout = 10 * time.Second
	// askAgain is the pause after GitHub could not be asked.
	askAgain = 10 * time.Second
	maxPause = 2 * time.Minute
)

// job is a run with what is needed to speak to GitHub about it.
type job struct {
	org    errand.ID
	run    store.Run
	repo   store.Repository
	target github.Target

	installation store.Installation
}

func (d *Dispatch) loadJob(ctx context.Context, org, run errand.ID) (j job, err error) {
	j.org = org
	err = d.store.InTx(ctx, org, func(tx *store.Tx) error {
		if j.run, err = tx.GetRun(ctx, run); err != nil {
			return err
		}
		if j.repo, err = tx.GetRepository(ctx, j.run.RepositoryID); err != nil {
			return err
		}
		j.installation, err = tx.GetInstallation(ctx, j.repo.InstallationID)
		return err
	})
	j.target = github.Target{
		InstallationID: j.repo.InstallationID, RepositoryID: j.repo.GitHubID, Owner: j.repo.Owner, Name: j.repo.Name,
		WorkflowFile: j.run.WorkflowFile, Ref: j.run.Ref,
	}
	return j, err
}

// marker is the name under which an attempt can be found among GitHub's workflow runs: the workflow file puts the input
// `run` into its run-name.
func marker(run errand.ID, attempt int32) string { return fmt.Sprintf("%s.%d", run, attempt) }

// dispatchRun starts the workflow of a queued run, or finds out what became of an attempt whose answer is not known.
func (d *Dispatch) dispatchRun(ctx context.Context, args errand.DispatchRun) (again time.Duration, err error) {
	j, err := d.loadJob(ctx, args.Org, args.Run)
	if err != nil {
		return 0, err
	}
	switch j.run.State {
	case errand.Queued:
		return d.start(ctx, j)
	case errand.Dispatching:
		return d.search(ctx, j)
	default:
		return 0, nil
	}
}

// start makes one attempt. That it is made is committed before GitHub is called: whatever happens after that, the next one
// to look finds `dispatching` and searches instead of calling again.
func (d *Dispatch) start(ctx context.Context, j job) (again time.Duration, err error) {
	if !d.clock().Before(j.run.CreatedAt.Add(runs.DispatchWithin)) {
		return 0, d.fire(ctx, j, runs.Move{Trigger: errand.TriggerDeadline, To: errand.Failed, Reason: errand.ReasonNotDispatched})
	}
	may := d.permitted(ctx, &j)
	if pause, transient := may.Retry(); transient { // not known is neither a yes nor a no: the run waits as it is
		d.log.WarnContext(ctx, "what an installation grants is not known", "org", j.org, "run", j.run.ID, "outcome", may.Outcome)
		return min(max(pause, askAgain), maxPause), nil
	}
	attempt, at := j.run.DispatchAttempt+1, d.github.ServerTime() // GitHub's time, because it is compared with GitHub's
	ticket, err := d.tickets.Ticket(j.run.ID, int(attempt), d.clock().Add(runs.StartWithin))
	if err != nil {
		return 0, fmt.Errorf("ticket: %w", err)
	}
	mine := false
	err = d.store.InTx(ctx, j.org, func(tx *store.Tx) error {
		// Where a ticket is not enough the inputs, which the workflow's page shows, hold no secret at all.
		if required, err := tx.TicketNotEnough(ctx, j.repo.ID); err != nil {
			return err
		} else if required {
			ticket = ""
		}
		run, err := d.runs.Fire(ctx, tx, j.run.ID, runs.Move{
			Trigger: errand.TriggerDispatchStarted, To: errand.Dispatching, Actor: actor, Version: j.run.Version,
		}, func(c *runs.Changes) { c.DispatchAttempt, c.DispatchedAt = &attempt, &at })
		if late(err) {
			return nil // another worker has it, or it was cancelled
		}
		j.run, mine = run, err == nil
		return err
	})
	if err != nil || !mine {
		return 0, err
	}
	answer := may
	if may.Outcome.OK() {
		answer = d.call(ctx, &j, map[string]string{"run": marker(j.run.ID, attempt), "ticket": ticket})
	}
	d.count.dispatches.WithLabelValues(string(answer.Outcome)).Inc()
	d.log.InfoContext(ctx, "workflow dispatched", "org", j.org, "run", j.run.ID, "attempt", attempt, "outcome", answer.Outcome,
		"status", answer.Status, "workflow_run", answer.RunID)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	return d.settle(ctx, j, answer)
}

// call is one dispatch. A repository that moved is called by its new name, which is saved: nothing was started under the old.
func (d *Dispatch) call(ctx context.Context, j *job, inputs map[string]string) github.Dispatched {
	answer := d.github.Dispatch(ctx, j.target, inputs)
	if answer.Outcome == github.Moved && d.moved(ctx, j, answer.MovedTo) {
		answer = d.github.Dispatch(ctx, j.target, inputs)
	}
	return answer
}

// settle acts on the answer to a dispatch.
func (d *Dispatch) settle(ctx context.Context, j job, a github.Dispatched) (again time.Duration, err error) {
	now := d.clock()
	words := strings.TrimSpace(a.Message)
	if a.Detail != "" {
		words = strings.TrimSpace(words + " (" + a.Detail + ")")
	}
	pause, retry := a.Retry()
	switch {
	case a.Outcome.OK():
		return 0, d.accepted(ctx, j, github.WorkflowRun{ID: a.RunID, URL: a.RunURL}, "")
	case a.Outcome.Unclear():
		return d.poll(now.Add(d.searchFor), now), d.lookAgain(ctx, j, now.Add(d.searchFor))
	case retry:
		// GitHub says that nothing was started (or a gateway says nothing: then the ticket of this attempt is dead with the
		// next one). The attempt is over, and the next is made after a pause.
		pause = max(pause, backOff(j.run.DispatchAttempt))
		if now.Add(pause).Before(j.run.CreatedAt.Add(runs.DispatchWithin)) {
			return pause, d.fire(ctx, j, runs.Move{
				Trigger: errand.TriggerNothingFound, To: errand.Queued, Reason: errand.ReasonNotDispatched,
				Detail: fmt.Sprintf("GitHub: %s; trying again in %s", words, pause.Round(time.Second)),
			})
		}
	}
	if !retry {
		d.mark(ctx, &j, a.Outcome)
	}
	return 0, d.fire(ctx, j, runs.Move{Trigger: errand.TriggerGitHubRefused, To: errand.Failed, Reason: a.Outcome.Reason(), Detail: advised(words, a.Outcome)})
}

// advised puts what a person is told behind GitHub's own words, where the run's reason does not say it: several outcomes
// share one.
func advised(words string, o github.Outcome) string {
	switch o.Reason() {
	case errand.ReasonGitHubRefused, errand.ReasonNotDispatched, errand.ReasonNotPermitted:
		if words != "" && !strings.HasSuffix(words, ".") {
			words += "."
		}
		return strings.TrimSpace(words + " " + o.Advice())
	default:
		return words
	}
}

// backOff doubles from five seconds with each attempt.
func backOff(attempt int32) time.Duration {
	return min(5*time.Second<<min(max(attempt-1, 0), 10), maxPause)
}

// search looks for the marker of an attempt whose answer is not known: a timeout, a lost connection, our own crash. Exactly
// one workflow run with it is the attempt's. None counts only once the deadline of the state has passed, until which the
// call itself may still be under way; then there is one more attempt, under the next number, and the ticket of this one
// is dead.
func (d *Dispatch) search(ctx context.Context, j job) (again time.Duration, err error) {
	found, err := d.findRuns(ctx, &j)
	now := d.clock()
	switch {
	case err != nil:
		return d.cannotSearch(ctx, j, err)
	case len(found) == 1:
		return 0, d.accepted(ctx, j, found[0], "found by its mark after an unclear answer")
	case len(found) > 1: // it was started; which of them it is, the exchange will say
		return 0, d.accepted(ctx, j, github.WorkflowRun{}, fmt.Sprintf("%d workflow runs carry its mark: none is taken until its runner speaks", len(found)))
	case now.Before(j.run.DeadlineAt):
		return d.poll(j.run.DeadlineAt, now), nil
	}
	lost, err := d.lostBefore(ctx, j)
	if err != nil {
		return 0, err
	}
	if lost || !now.Before(j.run.CreatedAt.Add(runs.DispatchWithin)) {
		return 0, d.fire(ctx, j, runs.Move{
			Trigger: errand.TriggerGitHubRefused, To: errand.Failed, Reason: errand.ReasonNothingFound,
			Detail: "no workflow run carries the mark " + marker(j.run.ID, j.run.DispatchAttempt) + ": the workflow file's run-name must hold the input `run`",
		})
	}
	return 0, d.fireThen(ctx, j, runs.Move{
		Trigger: errand.TriggerNothingFound, To: errand.Queued, Reason: errand.ReasonNothingFound,
		Detail: "no workflow run carries the mark " + marker(j.run.ID, j.run.DispatchAttempt),
	}, nil, errand.DispatchRun{Org: j.org, Run: j.run.ID})
}

// cannotSearch: that GitHub could not be asked says nothing about the attempt, so it ends only at the run's own deadline.
func (d *Dispatch) cannotSearch(ctx context.Context, j job, cause error) (again time.Duration, err error) {
	now := d.clock()
	d.log.WarnContext(ctx, "an unclear dispatch could not be searched for", "org", j.org, "run", j.run.ID, "error", cause)
	if !now.Before(j.run.CreatedAt.Add(runs.DispatchWithin)) {
		return 0, d.fire(ctx, j, runs.Move{
			Trigger: errand.TriggerGitHubRefused, To: errand.Failed, Reason: errand.ReasonNothingFound, Detail: "GitHub could not be asked: " + said(cause),
		})
	}
	return askAgain, d.lookAgain(ctx, j, now.Add(3*askAgain))
}

// lostBefore tells from the run's history whether an attempt was already given up as not found.
func (d *Dispatch) lostBefore(ctx context.Context, j job) (lost bool, err error) {
	err = d.store.InTx(ctx, j.org, func(tx *store.Tx) error {
		rows, err := tx.ListJournal(ctx, j.run.ID, journal.KindTransition, 1000)
		if err != nil {
			return err
		}
		for _, row := range rows {
			var t journal.Transition
			if err := json.Unmarshal([]byte(row.Body), &t); err != nil {
				return errand.Errorf(errand.CodeInternal, err, "journal row %d cannot be read", row.Seq)
			}
			lost = lost || t.Trigger == errand.TriggerNothingFound && t.Reason == errand.ReasonNothingFound
		}
		return nil
	})
	return lost, err
}

// poll is the pause until the next search: a quarter of the time that is given, and never beyond its end.
func (d *Dispatch) poll(end, now time.Time) time.Duration {
	return max(min(d.searchFor/4, end.Sub(now)), time.Millisecond)
}

func (d *Dispatch) accepted(ctx context.Context, j job, w github.WorkflowRun, detail string) error {
	return d.fireThen(ctx, j, runs.Move{Trigger: errand.TriggerGitHubAccepted, To: errand.Dispatched, Detail: detail}, func(c *runs.Changes) {
		if w.ID != 0 {
			c.WorkflowRunID, c.WorkflowRunURL = &w.ID, &w.URL
		}
	}, nil)
}

func (d *Dispatch) fire(ctx context.Context, j job, m runs.Move) error {
	return d.fireThen(ctx, j, m, nil, nil)
}

// fireThen takes the step that was decided upon the run as it was read, with the job that follows from it. A step that
// comes too late is logged with what it would have said, and is no error.
func (d *Dispatch) fireThen(ctx context.Context, j job, m runs.Move, set func(*runs.Changes), then errand.JobArgs) error {
	m.Actor, m.Version = actor, j.run.Version
	err := d.store.InTx(ctx, j.org, func(tx *store.Tx) error {
		if _, err := d.runs.Fire(ctx, tx, j.run.ID, m, set); err != nil || then == nil {
			return err
		}
		return tx.Enqueue(ctx, then)
	})
	log := d.log.With("org", j.org, "run", j.run.ID, "from", j.run.State, "to", m.To, "trigger", m.Trigger, "reason", m.Reason, "detail", m.Detail)
	switch {
	case late(err):
		log.InfoContext(ctx, "a step came too late and was ignored", "error", err)
		return nil
	case err != nil:
		return err
	}
	if m.To.Ended() {
		d.count.ended.WithLabelValues(string(m.To), string(m.Reason)).Inc()
	}
	log.InfoContext(ctx, "run moved")
	return nil
}

func (d *Dispatch) lookAgain(ctx context.Context, j job, at time.Time) error {
	err := d.store.InTx(ctx, j.org, func(tx *store.Tx) error { return d.runs.LookAgain(ctx, tx, &j.run, at) })
	if late(err) {
		return nil
	}
	return err
}

// findRuns searches the current attempt's marker.
func (d *Dispatch) findRuns(ctx context.Context, j *job) (found []github.WorkflowRun, err error) {
	if j.run.DispatchedAt == nil {
		return nil, errand.Errorf(errand.CodeInternal, nil, "a run that was never dispatched has no mark")
	}
	err = d.ask(ctx, j, func(t github.Target) error {
		found, err = d.github.FindRuns(ctx, t, marker(j.run.ID, j.run.DispatchAttempt), j.run.DispatchedAt.Add(-clockSlack))
		return err
	})
	return found, err
}

// ask makes a call about the run's repository, once more by its new name where it moved.
func (d *Dispatch) ask(ctx context.Context, j *job, call func(github.Target) error) error {
	err := call(j.target)
	var e *github.Error
	if errors.As(err, &e) && e.Outcome == github.Moved && d.moved(ctx, j, e.MovedTo) {
		return call(j.target)
	}
	return err
}

// moved saves a repository's new name and aims at it. The numeric id by which it was found is what lasts.
func (d *Dispatch) moved(ctx context.Context, j *job, to *github.RepoName) bool {
	if to == nil {
		return false
	}
	err := d.store.InTx(ctx, j.org, func(tx *store.Tx) error {
		_, err := tx.RenameRepository(ctx, store.RenameRepositoryParams{ID: j.repo.ID, Owner: to.Owner, Name: to.Name, DefaultBranch: j.repo.DefaultBranch})
		return err
	})
	if err != nil {
		d.log.ErrorContext(ctx, "a repository's new name could not be saved", "org", j.org, "repository", j.repo.ID, "error", err)
		return false
	}
	d.log.InfoContext(ctx, "repository moved", "org", j.org, "repository", j.repo.ID, "now", to.String())
	j.target.Owner, j.target.Name = to.Owner, to.Name
	return true
}

// said is what may be shown of an error of GitHub's.
func said(err error) string {
	var e *github.Error
	if errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return "no answer"
}
