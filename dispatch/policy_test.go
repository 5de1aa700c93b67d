package dispatch

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

// considered considers a new delivery of each issue on two replicas at once, and gives how often each gate answered.
func (w *world) considered(jobs ...errand.ConsiderIssue) map[errand.Gate]int {
	w.t.Helper()
	replicas := []*Dispatch{w.d, w.replica(w.Open(w.t, 8))}
	var wg sync.WaitGroup
	begun := make(chan struct{})
	for i, job := range jobs {
		wg.Go(func() {
			<-begun
			if _, err := replicas[i%2].consider(w.t.Context(), job); err != nil {
				w.t.Error(err)
			}
		})
	}
	close(begun)
	wg.Wait()
	gates := map[errand.Gate]int{}
	for _, job := range jobs {
		d := w.decisions(job.Issue)
		gates[d[len(d)-1].Gate]++
	}
	return gates
}

func (w *world) deliveries(n int) (jobs []errand.ConsiderIssue) {
	for range n {
		jobs = append(jobs, w.delivery())
	}
	return jobs
}

func TestTwoReplicasCannotPassACap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says  string
		setup string
		gate  errand.Gate
		made  int
	}{
		{"the day's runs", "update organisations set daily_run_cap = 3", errand.GateDailyCap, 3},
		{"the repository's open fixes", "update repositories set open_fix_cap = 2", errand.GateOpenFixCap, 2},
		{"the money of the day", "update organisations set budget_day_pico = 21000000000000", errand.GateBudget, 4},
		{"the money of a repository's month", "update repositories set budget_month_pico = 5000000000000", errand.GateBudget, 1},
		{"the incident breaker: all of them are new", "update organisations set breaker_issues = 5", errand.GateBreaker, 4},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.sql(tt.setup)
			gates := w.considered(w.deliveries(12)...)
			if n := w.count("select count(*) from runs"); n != tt.made || gates[errand.GateOK] != tt.made || gates[tt.gate] != 12-tt.made {
				t.Errorf("%d runs, decisions %v", n, gates)
			}
			if n := w.count("select count(*) from waits where gate = $1 and look_at > $2", string(tt.gate), noon); n != 12-tt.made {
				t.Errorf("%d wait with a next look", n)
			}
		})
	}
}

func TestTheSameProblemIsMendedOnceAcrossIssues(t *testing.T) {
	t.Parallel()
	w := setup(t)
	same := func() errand.ConsiderIssue {
		job := w.delivery()
		e := crash(file("/srv/app/cart.py"))
		e.Exceptions[0].Value, e.Exceptions[0].Frames[0].Function = "no zone for order "+string(job.Issue), "price"
		job.Event = w.eventOf(job.Issue, w.clock().Add(time.Second), e)
		return job
	}
	jobs := []errand.ConsiderIssue{same(), same(), same(), same(), same(), same()}
	gates := w.considered(jobs...)
	if n := w.count("select count(*) from runs"); n != 1 || gates[errand.GateSameProblem] != 5 {
		t.Fatalf("%d runs, %v", n, gates)
	}
	var run errand.ID
	for _, j := range jobs {
		if d := w.decisions(j.Issue)[0]; d.Run != "" {
			run = d.Run
		}
	}
	for _, j := range jobs {
		if d := w.decisions(j.Issue)[0]; d.Run == "" && d.Holder != run {
			t.Errorf("it waits for %q and not for the run %s", d.Holder, run)
		}
	}
	must(t, w.d.Cancel(t.Context(), w.org, run, w.person)) // its end releases one of them, which holds the others
	if n := w.look(); n != 5 || w.count("select count(*) from runs where finished_at is null") != 1 {
		t.Errorf("%d looked at after its end, %d runs", n, w.count("select count(*) from runs"))
	}
	if n := w.count("select count(*) from waits where gate = 'same_problem'"); n != 4 {
		t.Errorf("%d wait on", n)
	}
}

func TestAnIncidentIsSaidOnceAndEnds(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sql("update organisations set breaker_issues = 5")
	w.considered(w.deliveries(9)...)
	alarms := func() int {
		return w.count(`select count(*) from journal where kind = 'alarm' and subject = $1 and body like '%incident_breaker%'`, w.repo)
	}
	if n := alarms(); n != 1 {
		t.Errorf("%d alarms for one incident of nine issues", n)
	}
	w.pass(5 * time.Minute)
	w.considered(w.deliveries(6)...)
	if n := alarms(); n != 1 {
		t.Errorf("%d alarms as the incident goes on", n)
	}
	w.pass(10*time.Minute + time.Second)
	if n := w.look(); n != 11 || w.count("select count(*) from waits where gate = 'incident_breaker'") != 0 {
		t.Errorf("%d of eleven were looked at after the incident, %d wait on", n, w.count("select count(*) from waits"))
	}
	if n := w.count("select count(*) from runs"); n != 15 {
		t.Errorf("%d runs of fifteen issues", n)
	}
	w.pass(time.Hour)
	jobs := w.deliveries(5)
	w.considered(jobs...)
	if n := alarms(); n != 2 {
		t.Errorf("%d alarms after another incident", n)
	}
	if d := w.decisions(jobs[4].Issue); len(d) == 0 || len(d[0].Evidence) == 0 {
		t.Errorf("%+v", d)
	}
}

func TestRunNowPassesTheGatesAndNoCapOnMoney(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sql("update organisations set breaker_issues = 1, min_events = 50")
	job := w.delivery()
	_, err := w.d.consider(t.Context(), job)
	must(t, err)
	w.sql("update organisations set budget_day_pico = 1")
	if err := w.d.RunNow(t.Context(), w.org, job.Issue, w.person); errand.CodeOf(err) != errand.CodeConflict {
		t.Errorf("without money: %v", err)
	}
	w.sql("update organisations set budget_day_pico = null")
	must(t, w.d.RunNow(t.Context(), w.org, job.Issue, w.person))
	var gates []errand.Gate
	for _, d := range w.decisions(job.Issue) {
		gates = append(gates, d.Gate)
	}
	if !slices.Equal(gates, []errand.Gate{errand.GateTooFew, errand.GateBudget, errand.GateOK}) {
		t.Errorf("%v", gates)
	}
	if n := w.count("select count(*) from journal where kind = 'person.action' and subject = $1", job.Issue); n != 2 {
		t.Errorf("%d of two presses are audited", n)
	}
	if n := w.count("select count(*) from waits"); n != 0 {
		t.Errorf("%d wait beside a run", n)
	}
}

// published brings a run to a pull request of which something is said an hour later.
func (w *world) published(fate errand.PRFate) store.Run {
	w.t.Helper()
	run := w.queued()
	w.sql("update runs set state = 'pr_opened', finished_at = $2, pr_number = 9, pr_url = 'https://github.example/9' where id = $1", run.ID, w.clock())
	w.pass(time.Hour)
	if fate != "" {
		must(w.t, w.InTx(w.t.Context(), w.org, func(tx *store.Tx) error {
			_, err := w.d.runs.SetFate(w.t.Context(), tx, run.ID, runs.News{Fate: fate, From: "outcome_workflow"})
			return err
		}))
	}
	return w.run(run.ID)
}

func TestAMergedIssueThatComesBackIsARegression(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.published(errand.FateMerged)
	w.pass(30 * time.Hour)
	job := errand.ConsiderIssue{Org: w.org, Issue: run.IssueID, Event: run.EventID, Delivery: errand.NewID(noon)}
	_, err := w.d.consider(t.Context(), job) // the old event again
	must(t, err)
	job.Event, job.Delivery = w.event(run.IssueID, w.clock()), errand.NewID(noon)
	_, err = w.d.consider(t.Context(), job)
	must(t, err)
	d := w.decisions(run.IssueID)
	if len(d) != 3 || d[1].Gate != errand.GateAlreadyFixed || d[1].Regression || d[2].Gate != errand.GateOK || !d[2].Regression || d[2].Run == "" {
		t.Errorf("%+v", d)
	}
}

func TestAResolvedIssueThatComesBackIsReopenedAsARegression(t *testing.T) {
	t.Parallel()
	w := setup(t)
	job := w.delivery()
	w.sql("update issues set status = 'resolved', status_at = $2 where id = $1", job.Issue, noon.Add(-time.Hour))
	_, err := w.d.consider(t.Context(), job)
	must(t, err)
	if d := w.decisions(job.Issue); d[0].Gate != errand.GateOK || !d[0].Regression {
		t.Errorf("%+v", d)
	}
	if n := w.count("select count(*) from issues where id = $1 and status = 'open' and regressed_at = $2", job.Issue, noon); n != 1 {
		t.Error("it is not open again, as a regression")
	}
}

func TestDecline(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.published("")
	if err := w.d.Decline(t.Context(), w.Org(t, "other"), run.ID, w.person); errand.CodeOf(err) != errand.CodeNotFound {
		t.Errorf("another organisation's run: %v", err)
	}
	again := errand.ConsiderIssue{Org: w.org, Issue: run.IssueID, Event: w.event(run.IssueID, w.clock()), Delivery: errand.NewID(noon)}
	_, err := w.d.consider(t.Context(), again)
	must(t, err)
	must(t, w.d.Decline(t.Context(), w.org, run.ID, w.person))
	w.pass(100 * time.Hour)
	if n := w.look(); n != 1 { // the pull request that it waited for is decided
		t.Errorf("%d waits were looked at", n)
	}
	d := w.decisions(run.IssueID)
	if len(d) != 3 || d[1].Gate != errand.GatePROpen || d[1].Holder != run.ID || d[2].Gate != errand.GateDeclined {
		t.Errorf("%+v", d)
	}
	if n := w.count("select count(*) from journal where kind = 'person.action' and subject = $1 and body like '%decline%'", run.ID); n != 1 {
		t.Errorf("%d lines of audit", n)
	}
	if err := w.d.RunNow(t.Context(), w.org, run.IssueID, w.person); err != nil {
		t.Errorf("Run now after a decline: %v", err)
	}
	merged := w.published(errand.FateMerged)
	if err := w.d.Decline(t.Context(), w.org, merged.ID, w.person); errand.CodeOf(err) != errand.CodeConflict {
		t.Errorf("a merged one: %v", err)
	}
}

func TestAChangedPolicyHasEverythingThatWaitsAskedAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sql("update organisations set budget_day_pico = 0")
	job := w.delivery()
	_, err := w.d.consider(t.Context(), job)
	must(t, err)
	if n := w.look(); n != 0 {
		t.Errorf("%d looked at before anything changed", n)
	}
	_, err = w.d.SetPolicy(t.Context(), w.org, Policy{BudgetDay: &Limit{None: true}})
	must(t, err)
	if n := w.look(); n != 1 || w.count("select count(*) from runs") != 1 {
		t.Errorf("%d looked at, %d runs", n, w.count("select count(*) from runs"))
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	w := setup(t)
	three, none, minus, ten, second := int32(3), int32(0), int32(-1), errand.Picodollars(dollar(10)), time.Second
	o, err := w.d.SetPolicy(t.Context(), w.org, Policy{
		MinEvents: &three, ExcludeEnvironments: []string{"dev"}, BreakerIssues: &none, BreakerWindow: &second, RunCeiling: &ten, BudgetMonth: &Limit{Amount: ten},
	})
	if err != nil || o.MinEvents != 3 || !slices.Equal(o.ExcludedEnvironments, []string{"dev"}) || o.BreakerWindowS != 1 || o.BudgetDayPico != nil || *o.BudgetMonthPico != dollar(10) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = w.d.SetPolicy(t.Context(), w.org, Policy{}); err != nil || o.MinEvents != 3 || *o.BudgetMonthPico != dollar(10) || len(o.ExcludedEnvironments) != 1 {
		t.Errorf("nothing was to change: %+v, %v", o, err)
	}
	r, err := w.d.SetRepositoryPolicy(t.Context(), w.org, w.repo, RepositoryPolicy{OpenFixCap: &three, BudgetDay: &Limit{}})
	if err != nil || r.OpenFixCap != 3 || *r.BudgetDayPico != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for says, p := range map[string]Policy{
		"no event is enough": {MinEvents: &none}, "a breaker below zero": {BreakerIssues: &minus}, "a ceiling of nothing": {RunCeiling: new(errand.Picodollars)},
		"an environment without a name": {ExcludeEnvironments: []string{" "}}, "a window of nothing": {BreakerWindow: new(time.Duration)},
		"a budget below zero": {BudgetDay: &Limit{Amount: -1}},
	} {
		if _, err := w.d.SetPolicy(t.Context(), w.org, p); errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := w.d.SetRepositoryPolicy(t.Context(), w.Org(t, "other"), w.repo, RepositoryPolicy{OpenFixCap: &three}); errand.CodeOf(err) != errand.CodeNotFound {
		t.Errorf("another organisation's repository: %v", err)
	}
}
