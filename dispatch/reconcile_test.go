package dispatch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

func TestD1_D2_WhatBecameOfASilentRun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	jobs := func(n int) *int { return &n }
	completed := func(conclusion string, n *int) func(*github.WorkflowRun) {
		return func(r *github.WorkflowRun) { r.Status, r.Conclusion, r.Jobs = "completed", conclusion, n }
	}
	underWay := func(*github.WorkflowRun) {}
	removed := func(r *github.WorkflowRun) { r.ID = -r.ID }
	const never, silent = errand.ReasonNeverStarted, errand.ReasonSilent
	for _, tt := range []struct {
		says    string
		started bool
		after   time.Duration
		github  func(*github.WorkflowRun) // nil = it cannot be asked
		state   errand.RunState
		reason  errand.Reason
		cancels bool
	}{
		{"waiting for a machine", false, 3 * time.Minute, underWay, errand.Dispatched, "", false},
		{"GitHub cannot be asked, and there is time", false, 29 * time.Minute, nil, errand.Dispatched, "", false},
		{"no runner came in half an hour", false, 30 * time.Minute, underWay, errand.TimedOut, never, true},
		{"nothing was heard at all in half an hour", false, 30 * time.Minute, nil, errand.TimedOut, never, true},
		{"the workflow failed before its runner", false, 3 * time.Minute, completed("failure", jobs(1)), errand.Failed, errand.ReasonWorkflowFailed, false},
		{"the workflow file is broken", false, 3 * time.Minute, completed("startup_failure", jobs(0)), errand.Failed, errand.ReasonStartupFailure, false},
		{"it failed without a job", false, 3 * time.Minute, completed("failure", jobs(0)), errand.Failed, errand.ReasonStartupFailure, false},
		{"it failed, and how many jobs it had is not known", false, 3 * time.Minute, completed("failure", nil), errand.Failed, errand.ReasonWorkflowFailed, false},
		{"D2 cancelled before a runner was there", false, 3 * time.Minute, completed("cancelled", jobs(0)), errand.Cancelled, errand.ReasonWorkflowCancelled, false},
		{"it ended well and never spoke", false, 3 * time.Minute, completed("success", jobs(1)), errand.Failed, silent, false},
		{"running, and silent for a while", true, 5 * time.Minute, underWay, errand.Running, "", false},
		{"running, silent, and GitHub cannot be asked", true, 25 * time.Minute, nil, errand.Running, "", false},
		{"its machine died", true, 5 * time.Minute, completed("failure", jobs(1)), errand.Failed, silent, false},
		{"it was cancelled on GitHub's page", true, 5 * time.Minute, completed("cancelled", jobs(1)), errand.Cancelled, errand.ReasonWorkflowCancelled, false},
		{"its workflow run was deleted, and nothing started", false, 3 * time.Minute, removed, errand.Failed, errand.ReasonWorkflowDeleted, false},
		{"its workflow run was deleted while it ran", true, 5 * time.Minute, removed, errand.Failed, errand.ReasonWorkflowDeleted, false},
		{"it passed its time and goes on", true, 26 * time.Minute, underWay, errand.TimedOut, errand.ReasonDeadline, true},
		{"it passed its time and GitHub cannot be asked", true, 26 * time.Minute, nil, errand.TimedOut, errand.ReasonDeadline, true},
		{"it passed its time and was over by then", true, 26 * time.Minute, completed("failure", jobs(1)), errand.Failed, silent, false},
	} {
		run := w.queued()
		w.dispatch(run.ID)
		if tt.started {
			w.sql("update runs set workflow_run_id = workflow_run_id where id = $1", run.ID)
			w.started(run.ID)
		}
		w.pass(tt.after)
		w.github.change(func() {
			w.github.runErr = errors.New("no answer")
			if tt.github != nil {
				w.github.runErr = nil
				tt.github(&w.github.runs[len(w.github.runs)-1])
			}
		})
		before := w.jobs("cancel_workflow")
		w.reconcile(run.ID)
		r := w.stands(run.ID, tt.state, tt.reason)
		if t.Failed() {
			t.Fatalf("...when %s", tt.says)
		}
		if got := w.jobs("cancel_workflow") > before; got != tt.cancels {
			t.Errorf("%s: GitHub is asked to cancel: %v", tt.says, got)
		}
		if !r.State.Ended() && !r.DeadlineAt.After(w.clock()) {
			t.Errorf("%s: it is looked into at %s, and it is %s", tt.says, r.DeadlineAt, w.clock())
		}
		if r.DispatchAttempt != 1 {
			t.Errorf("%s: it was started again", tt.says)
		}
		w.sql("update runs set created_at = created_at - interval '2 days'") // the cap is not what is tried here
	}
}

func TestWhileARunnerReportsNobodyIsAsked(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.dispatch(run.ID)
	w.started(run.ID)
	w.pass(10 * time.Minute)
	w.sql("update runs set heartbeat_at = $1", w.clock().Add(-time.Minute))
	w.github.made(map[string]int{"dispatch": 1})
	w.reconcile(run.ID)
	if r := w.stands(run.ID, errand.Running, errand.ReasonNone); !r.DeadlineAt.Equal(w.clock().Add(time.Minute)) {
		t.Errorf("looked into at %s", r.DeadlineAt)
	}
	w.github.made(map[string]int{})
	w.pass(time.Minute) // two minutes of silence
	w.reconcile(run.ID)
	w.github.made(map[string]int{"run": 1})
}

func TestAWorkflowRunThatGitHubDidNotNameIsFoundByItsMark(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.script(func(start func() github.WorkflowRun) github.Dispatched {
		start()
		return github.Dispatched{Outcome: github.Accepted, Status: 204}
	})
	w.dispatch(run.ID)
	if r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone); r.WorkflowRunID != nil {
		t.Errorf("%+v", r)
	}
	w.pass(3 * time.Minute)
	w.reconcile(run.ID)
	if r := w.run(run.ID); r.WorkflowRunID == nil || *r.WorkflowRunID != 1000 || r.WorkflowRunURL == "" {
		t.Errorf("%+v", r)
	}
	w.github.made(map[string]int{"dispatch": 1, "find": 1, "run": 1})
}

func TestTheSweepFindsWhatIsDue(t *testing.T) {
	t.Parallel()
	w := setup(t)
	due := w.queued()
	w.pass(runs.DispatchWithin)
	w.queued() // not due
	for range 2 {
		_, err := w.d.sweep(t.Context(), errand.Sweep{})
		must(t, err)
	}
	if n := w.count("select count(*) from river_job where kind = 'reconcile_run' and args->>'run' = $1", string(due.ID)); n != 1 || w.jobs("reconcile_run") != 1 {
		t.Errorf("%d jobs for the due run, %d altogether", n, w.jobs("reconcile_run"))
	}
	w.pass(40 * 24 * time.Hour)
	_, err := w.d.sweep(t.Context(), errand.Sweep{})
	must(t, err)
	day := w.clock().UTC().Format("20060102")
	if n := w.count("select count(*) from pg_class where relname = 'deliveries_' || $1", day); n != 1 {
		t.Errorf("no partition for %s", day)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, tt := range []struct {
		says   string
		bring  func(errand.ID)
		code   errand.Code
		state  errand.RunState
		github bool
	}{
		{"a queued run", func(errand.ID) {}, "", errand.Cancelled, false},
		{"a dispatched run", func(id errand.ID) { w.dispatch(id) }, "", errand.Cancelled, true},
		{"a running run", func(id errand.ID) { w.dispatch(id); w.started(id) }, "", errand.Cancelled, true},
		{"a run that is being started", func(id errand.ID) { w.github.script(lost); w.dispatch(id) }, errand.CodeConflict, errand.Dispatching, false},
		{"a run that has ended", func(id errand.ID) { w.github.script(answers(github.RefMissing, 0)); w.dispatch(id) }, errand.CodeConflict, errand.Failed, false},
	} {
		run := w.queued()
		tt.bring(run.ID)
		before := w.jobs("cancel_workflow")
		err := w.d.Cancel(t.Context(), w.org, run.ID, w.person)
		if errand.CodeOf(err) != tt.code || w.run(run.ID).State != tt.state {
			t.Errorf("%s: %v, and it is %s", tt.says, err, w.run(run.ID).State)
		}
		if got := w.jobs("cancel_workflow") > before; got != tt.github {
			t.Errorf("%s: GitHub is asked to cancel: %v", tt.says, got)
		}
		audited := w.count("select count(*) from journal where kind = 'person.action' and subject = $1", run.ID)
		if (audited == 1) != (tt.code == "") {
			t.Errorf("%s: audited %d times", tt.says, audited)
		}
	}
	run := w.queued()
	if err := w.d.Cancel(t.Context(), w.Org(t, "other"), run.ID, w.person); errand.CodeOf(err) != errand.CodeNotFound {
		t.Errorf("another organisation's run: %v", err)
	}
}

// questioned is a GitHub that, when it is asked about an installation, lets something happen first.
type questioned struct {
	*fakeGitHub
	first func()
}

func (q questioned) CheckInstallation(ctx context.Context, id int64) (github.InstallationCheck, error) {
	q.first()
	return q.fakeGitHub.CheckInstallation(ctx, id)
}

// H1: no job has to hear of a cancellation. It stands in the run, and is found there by the job that comes later as by the one
// that had read the run before. (A runner learns of it with its next report: package runnerapi.)
func TestH1_ACancellationThatNobodyToldIsFoundInTheRun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	before := w.queued()
	must(t, w.d.Cancel(t.Context(), w.org, before.ID, w.person))
	if again := w.dispatch(before.ID); again != 0 {
		t.Errorf("again in %s", again)
	}

	meanwhile := w.queued()
	w.sql("update installations set checked_at = $1", noon.Add(-checkHolds)) // so that GitHub is asked between the reading and the attempt
	asked := 0
	w.d.github = questioned{w.github, func() {
		asked++
		must(t, w.d.Cancel(t.Context(), w.org, meanwhile.ID, w.person))
	}}
	if again := w.dispatch(meanwhile.ID); again != 0 || asked != 1 {
		t.Errorf("again in %s, asked %d times", again, asked)
	}
	for _, run := range []store.Run{before, meanwhile} {
		if r := w.stands(run.ID, errand.Cancelled, errand.ReasonCancelledByPerson); r.DispatchAttempt != 0 {
			t.Errorf("attempt %d", r.DispatchAttempt)
		}
	}
	w.github.made(map[string]int{}) // no workflow was started
}

func TestGitHubsCancellationIsBestEffort(t *testing.T) {
	t.Parallel()
	w := setup(t)
	failure := func(o github.Outcome) error { return failure(o, time.Minute) }
	for _, tt := range []struct {
		says   string
		answer error
		later  time.Duration
		again  time.Duration
	}{
		{"accepted", nil, 0, 0},
		{"it is over already", failure(github.Conflict), 0, 0},
		{"it is not there", failure(github.NotFound), 0, 0},
		{"a limit", failure(github.RateSecondary), 0, time.Minute},
		{"a limit, long after", failure(github.RateSecondary), time.Hour, 0},
	} {
		run := w.queued()
		w.dispatch(run.ID)
		must(t, w.d.Cancel(t.Context(), w.org, run.ID, w.person))
		w.pass(tt.later)
		w.github.change(func() { w.github.stop = tt.answer })
		w.github.made(map[string]int{"dispatch": 1})
		again, err := w.d.cancelWorkflow(t.Context(), errand.CancelWorkflow{Org: w.org, Run: run.ID})
		if err != nil || again != tt.again {
			t.Errorf("%s: again in %s, %v", tt.says, again, err)
		}
		w.github.made(map[string]int{"cancel": 1})
		w.stands(run.ID, errand.Cancelled, errand.ReasonCancelledByPerson)
	}
}

func TestC31_AnAbsentWorkflowRunIsNoEndWhereTheRepositoryCannotBeSeen(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.dispatch(run.ID)
	w.pass(3 * time.Minute)
	w.github.change(func() { w.github.runs, w.github.listErr = nil, errors.New("no answer") })
	w.reconcile(run.ID)
	w.stands(run.ID, errand.Dispatched, errand.ReasonNone)
	w.github.change(func() { w.github.listErr, w.github.repositories = nil, nil }) // out of the installation: its runner may be at work
	w.reconcile(run.ID)
	w.stands(run.ID, errand.Dispatched, errand.ReasonNone)
}

func TestC22_AWorkflowRunIsLookedForUnderTheRepositorysNewName(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.dispatch(run.ID)
	w.pass(3 * time.Minute)
	w.github.change(func() {
		w.github.name, w.github.absentAt = "store", "shop" // the old name was given away: no redirect, a plain 404
		w.github.runs[0].Status, w.github.runs[0].Conclusion = "completed", "failure"
	})
	w.reconcile(run.ID)
	w.stands(run.ID, errand.Failed, errand.ReasonWorkflowFailed)
	if n := w.count("select count(*) from repositories where name = 'store'"); n != 1 {
		t.Error("the new name is not saved")
	}
}
