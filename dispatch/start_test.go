package dispatch

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

func TestC2_ADispatchIsSavedBeforeGitHubIsCalled(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.during = func() {
		if r := w.run(run.ID); r.State != errand.Dispatching || r.DispatchAttempt != 1 || r.DispatchedAt == nil || !r.DispatchedAt.Equal(noon) {
			t.Errorf("while GitHub is called: %+v", r)
		}
	}
	if again := w.dispatch(run.ID); again != 0 {
		t.Errorf("again in %s", again)
	}
	r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone)
	if r.WorkflowRunID == nil || *r.WorkflowRunID != 1000 || r.WorkflowRunURL != "https://github.example/runs/1000" || r.Ref != "main" {
		t.Errorf("%+v", r)
	}
	w.dispatch(run.ID) // the same job once more
	w.github.made(map[string]int{"dispatch": 1})
}

func TestC1_ARefusalIsFinalAndNoRunIsLookedFor(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for outcome, reason := range map[github.Outcome]errand.Reason{
		github.RefMissing: errand.ReasonRefMissing, github.WorkflowMissing: errand.ReasonWorkflowMissing, github.WorkflowTooOld: errand.ReasonWorkflowTooOld,
		github.NotPermitted: errand.ReasonNotPermitted, github.Suspended: errand.ReasonSuspended, github.Refused: errand.ReasonGitHubRefused,
		github.OverGranted: errand.ReasonOverGranted,
	} {
		run := w.queued()
		w.github.script(answers(outcome, 0))
		if again := w.dispatch(run.ID); again != 0 {
			t.Errorf("%s: again in %s", outcome, again)
		}
		if r := w.stands(run.ID, errand.Failed, reason); !strings.HasPrefix(r.Detail, "GitHub's words") || r.WorkflowRunID != nil {
			t.Errorf("%s: %+v", outcome, r)
		}
		w.dispatch(run.ID)
		w.reconcile(run.ID)
		w.github.made(map[string]int{"dispatch": 1})
		w.sql("update installations set suspended_at = null") // what is marked is another test's
	}
}

func TestATransientFailureIsTriedAgainUnderTheNextNumber(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for outcome, says := range map[github.Outcome]time.Duration{
		github.RateSecondary: 90 * time.Second, github.Unreachable: 0, github.ServerError: 10 * time.Second, github.Forbidden: time.Minute,
	} {
		run := w.queued()
		w.github.script(answers(outcome, says))
		again := w.dispatch(run.ID)
		if want := max(says, 5*time.Second); again != want {
			t.Errorf("%s: again in %s, want %s", outcome, again, want)
		}
		if r := w.stands(run.ID, errand.Queued, errand.ReasonNotDispatched); !r.DeadlineAt.Equal(r.CreatedAt.Add(15 * time.Minute)) {
			t.Errorf("%s: it has until %s", outcome, r.DeadlineAt)
		}
		w.pass(again)
		w.dispatch(run.ID)
		if r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone); r.DispatchAttempt != 2 {
			t.Errorf("%s: attempt %d", outcome, r.DispatchAttempt)
		}
		w.github.made(map[string]int{"dispatch": 2})
	}
}

func TestTransientFailuresEndAtTheDeadline(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.script(answers(github.RatePrimary, 15*time.Minute)) // longer than there is
	if again := w.dispatch(run.ID); again != 0 {
		t.Errorf("again in %s", again)
	}
	w.stands(run.ID, errand.Failed, errand.ReasonNotDispatched)

	run = w.queued()
	w.github.change(func() {
		for range 50 {
			w.github.answers = append(w.github.answers, answers(github.Unreachable, 0))
		}
	})
	calls := 0
	for again := w.dispatch(run.ID); again > 0; again = w.dispatch(run.ID) {
		w.pass(again)
		calls++
	}
	if r := w.stands(run.ID, errand.Failed, errand.ReasonNotDispatched); calls > 15 || r.FinishedAt.Sub(r.CreatedAt) > 15*time.Minute {
		t.Errorf("%d calls, ended after %s", calls, r.FinishedAt.Sub(r.CreatedAt))
	}
	// The issue is eligible again: there is no cooldown for what never got to GitHub.
	_, err := w.d.consider(t.Context(), errand.ConsiderIssue{Org: w.org, Issue: run.IssueID, Event: run.EventID, Delivery: errand.NewID(noon)})
	must(t, err)
	if d := w.decisions(run.IssueID); d[len(d)-1].Gate != errand.GateOK {
		t.Errorf("%+v", d)
	}
}

func TestAQueuedRunThatNobodyWorkedInTimeFails(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, work := range []func(errand.ID){func(id errand.ID) { w.dispatch(id) }, w.reconcile} {
		run := w.queued()
		w.pass(15 * time.Minute)
		work(run.ID)
		w.stands(run.ID, errand.Failed, errand.ReasonNotDispatched)
	}
	w.github.made(map[string]int{})
}

func TestAnUnclearAnswerIsFoundByItsMark(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.script(lost)
	again := w.dispatch(run.ID)
	if again != 5*time.Second {
		t.Errorf("searched in %s", again)
	}
	w.stands(run.ID, errand.Dispatching, errand.ReasonNone)
	w.pass(again)
	w.dispatch(run.ID)
	if r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone); *r.WorkflowRunID != 1000 || r.DispatchAttempt != 1 {
		t.Errorf("%+v", r)
	}
	w.github.made(map[string]int{"dispatch": 1, "find": 1})
}

// D12: an answer that was lost leads to a search under the attempt's own number, and to one more attempt only when it finds nothing.
func TestD12_AnUnclearAnswerIsTriedOnceMore(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.script(answers(github.NoAnswer, 0), answers(github.NoAnswer, 0))
	attempt := func(n int32) {
		t.Helper()
		searches := 0
		for again := w.dispatch(run.ID); again > 0; again = w.dispatch(run.ID) {
			w.pass(again)
			searches++
		}
		if r := w.run(run.ID); r.DispatchAttempt != n || searches != 4 {
			t.Errorf("attempt %d after %d searches, want attempt %d after 4", r.DispatchAttempt, searches, n)
		}
	}
	attempt(1)
	w.stands(run.ID, errand.Queued, errand.ReasonNothingFound)
	if n := w.jobs("dispatch_run"); n != 2 {
		t.Errorf("%d jobs, want one for each attempt", n)
	}
	attempt(2)
	w.stands(run.ID, errand.Failed, errand.ReasonNothingFound)
	w.github.made(map[string]int{"dispatch": 2, "find": 8})
}

// C9: a mark that two workflow runs carry names neither.
func TestC9_TwoRunsWithOneMarkAreNeverChosenFrom(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.script(func(start func() github.WorkflowRun) github.Dispatched {
		start()
		return lost(start)
	})
	w.dispatch(run.ID)
	w.dispatch(run.ID)
	if r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone); r.WorkflowRunID != nil {
		t.Errorf("the workflow run %d was taken", *r.WorkflowRunID)
	}
	w.github.made(map[string]int{"dispatch": 1, "find": 1})
}

// C9: three dispatches within one second, whose answers were all lost, and no time tells them apart.
func TestC9_ManyRunsAtOnceEachFindTheirOwn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var queued []store.Run
	for range 3 {
		run := w.queued()
		queued = append(queued, run)
		w.github.script(lost)
		w.dispatch(run.ID)
	}
	for i, run := range queued {
		w.dispatch(run.ID)
		if r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone); *r.WorkflowRunID != int64(1000+i) {
			t.Errorf("run %d was given the workflow run %d", i, *r.WorkflowRunID)
		}
	}
}

// killed leaves a run as a process leaves it that dies in a dispatch: the attempt is saved, and nothing after that.
func (w *world) killed(run errand.ID, reachedGitHub bool) {
	w.t.Helper()
	ctx, kill := context.WithCancel(w.t.Context())
	w.github.script(func(start func() github.WorkflowRun) github.Dispatched {
		if reachedGitHub {
			start()
		}
		kill()
		panic("killed")
	})
	defer func() {
		if r := recover(); r != "killed" {
			w.t.Errorf("recovered %v", r)
		}
	}()
	_, _ = w.d.dispatchRun(ctx, errand.DispatchRun{Org: w.org, Run: run})
}

func TestKilledBeforeGitHubWasReached(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.killed(run.ID, false)
	w.stands(run.ID, errand.Dispatching, errand.ReasonNone)
	// Another process takes the job up at once: the first may be alive and its call under way.
	again := w.dispatch(run.ID)
	if again <= 0 {
		t.Error("it did not wait for the call that may be under way")
	}
	w.github.made(map[string]int{"dispatch": 1, "find": 1})
	w.pass(runs.AnswerWithin)
	w.dispatch(run.ID)
	w.stands(run.ID, errand.Queued, errand.ReasonNothingFound)
	w.dispatch(run.ID)
	w.stands(run.ID, errand.Dispatched, errand.ReasonNone)
	w.github.made(map[string]int{"dispatch": 1, "find": 1})
	if len(w.github.runs) != 1 {
		t.Errorf("%d workflow runs were started", len(w.github.runs))
	}
}

// H2: the queue takes a job for dead and gives it to another worker while the first is still waiting for GitHub. The second
// starts nothing, however often it looks; the first one's answer counts.
func TestH2_ASecondCopyOfALiveJobStartsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.during = func() {
		w.github.change(func() { w.github.during = nil })
		for range 3 {
			if again := w.dispatch(run.ID); again <= 0 {
				t.Error("the second copy did not wait for the first")
			}
		}
		w.reconcile(run.ID)
		w.stands(run.ID, errand.Dispatching, errand.ReasonNone)
	}
	w.dispatch(run.ID)
	if r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone); r.DispatchAttempt != 1 || *r.WorkflowRunID != 1000 {
		t.Errorf("attempt %d, workflow run %d", r.DispatchAttempt, *r.WorkflowRunID)
	}
	w.github.made(map[string]int{"dispatch": 1, "find": 4})
}

func TestKilledAfterGitHubAccepted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, work := range map[string]func(errand.ID){"by the job": func(id errand.ID) { w.dispatch(id) }, "by the sweep": w.reconcile} {
		run := w.queued()
		w.killed(run.ID, true)
		work(run.ID)
		work(run.ID)
		r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone)
		if r.WorkflowRunID == nil || r.DispatchAttempt != 1 {
			t.Errorf("taken up %s: %+v", name, r)
		}
		n := w.github.calls["dispatch"]
		if n != 1 {
			t.Errorf("taken up %s: %d dispatches", name, n)
		}
		w.github.change(func() { w.github.calls = map[string]int{} })
	}
}

func TestThatGitHubCannotBeAskedSaysNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.script(answers(github.NoAnswer, 0))
	w.dispatch(run.ID)
	w.github.change(func() {
		w.github.findErr = &github.Error{Call: github.CallRead, Finding: github.Finding{Outcome: github.ServerError, Message: "Bad gateway"}}
	})
	for w.clock().Before(run.CreatedAt.Add(runs.DispatchWithin)) {
		again := w.dispatch(run.ID)
		w.stands(run.ID, errand.Dispatching, errand.ReasonNone)
		if again <= 0 {
			t.Fatal("it gave up")
		}
		w.pass(again)
	}
	w.dispatch(run.ID)
	if r := w.stands(run.ID, errand.Failed, errand.ReasonNothingFound); !strings.Contains(r.Detail, "Bad gateway") {
		t.Errorf("%q", r.Detail)
	}
	if w.github.calls["dispatch"] != 1 {
		t.Errorf("%d dispatches", w.github.calls["dispatch"])
	}
}

func TestC22_ARepositoryThatMovedIsCalledByItsNewName(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.name = "store"
	if again := w.dispatch(run.ID); again != 0 {
		t.Errorf("again in %s", again)
	}
	w.stands(run.ID, errand.Dispatched, errand.ReasonNone)
	w.github.made(map[string]int{"dispatch": 2})
	if n := w.count("select count(*) from repositories where name = 'store' and github_id = 7"); n != 1 {
		t.Error("the new name is not saved")
	}
	// One that cannot be found out is tried again later, and never forgotten.
	run = w.queued()
	w.github.script(answers(github.Moved, 0))
	if again := w.dispatch(run.ID); again <= 0 {
		t.Error("it gave up")
	}
	w.stands(run.ID, errand.Queued, errand.ReasonNotDispatched)
}

// C10: its runner says which workflow run it is, and GitHub's answer comes after that with another.
func TestC10_TheRunnersOwnWordStandsAboveGitHubsAnswer(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.during = func() { // its runner comes before GitHub's answer
		w.sql("update runs set exchanged_at = $1, workflow_run_id = 4711, workflow_run_attempt = 1 where id = $2", noon, run.ID)
		must(t, w.InTx(t.Context(), w.org, func(tx *store.Tx) error {
			_, err := w.d.runs.Fire(t.Context(), tx, run.ID, runs.Move{Trigger: errand.TriggerGitHubAccepted, To: errand.Dispatched, Actor: "runner"}, nil)
			return err
		}))
	}
	w.dispatch(run.ID)
	if r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone); *r.WorkflowRunID != 4711 || r.Version != 3 {
		t.Errorf("%+v", r)
	}
}

// D11: the answer to the first attempt comes when the second has been taken.
func TestD11_AnAnswerToAnAttemptThatWasGivenUpIsIgnored(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.github.during = func() {
		w.github.change(func() { w.github.during = nil })
		w.pass(runs.AnswerWithin)
		w.reconcile(run.ID) // nothing is there yet: the attempt is given up
		w.dispatch(run.ID)  // and the next one is made
	}
	w.github.script()
	w.dispatch(run.ID)
	r := w.stands(run.ID, errand.Dispatched, errand.ReasonNone)
	if r.DispatchAttempt != 2 || *r.WorkflowRunID != 1000 { // of the second attempt, whose call ended first
		t.Errorf("attempt %d, workflow run %d", r.DispatchAttempt, *r.WorkflowRunID)
	}
}
