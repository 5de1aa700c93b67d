package dispatch

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// D12: the key of a run is the delivery that it was decided for.
func TestD12_TheSameJobTwentyTimesAtOnceMakesOneRun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	replicas := []*Dispatch{w.d, w.replica(w.Open(t, 8))}
	job := w.delivery()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := replicas[i%2].consider(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.count("select count(*) from runs"); n != 1 {
		t.Errorf("%d runs", n)
	}
	if d := w.decisions(job.Issue); len(d) != 1 || d[0].Gate != errand.GateOK || d[0].Delivery != job.Delivery || d[0].Run == "" {
		t.Errorf("decisions %+v", d)
	}
	if n := w.jobs("dispatch_run"); n != 1 {
		t.Errorf("%d jobs", n)
	}
	w.github.made(map[string]int{}) // deciding asks GitHub nothing
}

func TestTheSameJobAfterTheRunsEndMakesNoOther(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sql("update organisations set cooldown_s = 0")
	job := w.delivery()
	for range 2 {
		_, err := w.d.consider(t.Context(), job)
		must(t, err)
		if w.count("select count(*) from runs where finished_at is null") == 1 {
			must(t, w.d.Cancel(t.Context(), w.org, w.decisions(job.Issue)[0].Run, w.person))
		}
	}
	if n := w.count("select count(*) from runs"); n != 1 {
		t.Errorf("%d runs", n)
	}
	again := job // another delivery of the same issue is another matter
	again.Delivery = errand.NewID(noon)
	_, err := w.d.consider(t.Context(), again)
	must(t, err)
	if n := w.count("select count(*) from runs"); n != 2 {
		t.Errorf("%d runs after another delivery", n)
	}
}

func TestObserveModeStartsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sql("update organisations set mode = 'observe'")
	job := w.delivery()
	_, err := w.d.consider(t.Context(), job)
	must(t, err)
	d := w.decisions(job.Issue)
	if len(d) != 1 || d[0].Outcome != errand.OutcomeRun || !d[0].Observed || d[0].Run != "" || d[0].Repository != w.repo {
		t.Errorf("%+v", d)
	}
	if w.count("select count(*) from runs") != 0 || w.jobs("dispatch_run") != 0 {
		t.Error("something was started")
	}
}

func TestA13_AnOlderEventIsKeptAndStartsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	job := w.delivery()
	newer := job
	newer.Event, newer.Delivery = w.event(job.Issue, noon.Add(time.Second)), errand.NewID(noon)
	for _, j := range []errand.ConsiderIssue{job, newer} {
		_, err := w.d.consider(t.Context(), j)
		must(t, err)
	}
	d := w.decisions(job.Issue)
	if len(d) != 2 || d[0].Gate != errand.GateOutOfOrder || d[1].Gate != errand.GateOK || d[1].Event != newer.Event {
		t.Errorf("%+v", d)
	}
}

func TestAWaitIsReleasedByItsCause(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	must(t, w.d.Cancel(t.Context(), w.org, run.ID, w.person))
	w.pass(time.Hour)
	for range 3 { // three more deliveries in the cooldown, one wait
		_, err := w.d.consider(t.Context(), errand.ConsiderIssue{Org: w.org, Issue: run.IssueID, Event: run.EventID, Delivery: errand.NewID(noon)})
		must(t, err)
	}
	if n := w.count("select count(*) from waits where gate = 'cooldown' and until_at = $1 and look_at = $2", noon.Add(24*time.Hour), noon.Add(time.Hour+lookWithin)); n != 1 {
		t.Errorf("%d waits until the end of the cooldown, with a next look", n)
	}
	if n := w.look(); n != 0 {
		t.Errorf("looked at %d before the time", n)
	}
	w.pass(lookWithin)
	if n := w.look(); n != 1 || len(w.decisions(run.IssueID)) != 4 {
		t.Errorf("looked at %d, decisions %d: the same answer is no new line", n, len(w.decisions(run.IssueID)))
	}
	w.pass(23 * time.Hour)
	if n := w.look(); n != 1 {
		t.Errorf("looked at %d at the end of the cooldown", n)
	}
	if n := w.count("select count(*) from runs where finished_at is null"); n != 1 || w.count("select count(*) from waits") != 0 {
		t.Errorf("%d open runs after the cooldown", n)
	}
	_, err := w.d.consider(t.Context(), errand.ConsiderIssue{Org: w.org, Issue: run.IssueID}) // a second look that comes late
	must(t, err)
	if n := w.count("select count(*) from waits"); n != 0 {
		t.Error("a look at no wait made one")
	}
}

func TestRunNow(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	if err := w.d.RunNow(t.Context(), w.org, run.IssueID, w.person); errand.CodeOf(err) != errand.CodeConflict {
		t.Errorf("while a run is open: %v", err)
	}
	must(t, w.d.Cancel(t.Context(), w.org, run.ID, w.person))
	w.sql("update organisations set mode = 'observe'")
	if err := w.d.RunNow(t.Context(), w.org, run.IssueID, w.person); err != nil {
		t.Errorf("in the cooldown, in observe mode: %v", err)
	}
	w.sql("update runs set state = 'failed', finished_at = now() where finished_at is null")
	w.sql("update organisations set daily_run_cap = 2")
	err := w.d.RunNow(t.Context(), w.org, run.IssueID, w.person)
	var e *errand.Error
	if !errors.As(err, &e) || e.Code != errand.CodeConflict || !strings.Contains(e.Message, "used up") || e.Hint == "" {
		t.Errorf("over the cap: %v", err)
	}
	if n := w.count("select count(*) from runs"); n != 2 {
		t.Errorf("%d runs", n)
	}
	audited := w.count(`select count(*) from journal where kind = 'person.action' and subject = $1 and body like '%"run_now"%' and body like $2`,
		run.IssueID, "%"+string(w.person)+"%")
	if d := w.decisions(run.IssueID); audited != 3 || len(d) != 4 || d[2].Person != w.person || d[2].Run == "" {
		t.Errorf("%d of three are audited, decisions %+v", audited, d)
	}
	other := w.Org(t, "other")
	if err := w.d.RunNow(t.Context(), other, run.IssueID, w.person); errand.CodeOf(err) != errand.CodeNotFound {
		t.Errorf("another organisation's issue: %v", err)
	}
}

func TestADeliveryGivenUpMayBeRedelivered(t *testing.T) {
	t.Parallel()
	w := setup(t)
	job := w.delivery()
	w.sql("insert into delivery_keys (source_id, key, org_id, delivery_id, received_at) values ($1, 'k', $2, $3, $4)", w.src, w.org, job.Delivery, noon)
	failed := func() int { return w.count("select count(*) from delivery_keys where failed_at is not null") }
	w.d.OnDiscard(t.Context(), "dispatch_run", []byte(`{"org":"`+string(w.org)+`","delivery":"`+string(job.Delivery)+`"}`))
	w.d.OnDiscard(t.Context(), "consider_issue", []byte(`not JSON`))
	if failed() != 0 {
		t.Error("another job marked it")
	}
	w.d.OnDiscard(t.Context(), "consider_issue", []byte(`{"org":"`+string(w.org)+`","issue":"`+string(job.Issue)+`","delivery":"`+string(job.Delivery)+`"}`))
	if failed() != 1 {
		t.Error("it is not marked")
	}
}

func TestConnectFollowsGitHub(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.github.repositories[0].Name = "store"
	w.github.repositories[0].Archived = true
	repos, err := w.d.Connect(t.Context(), w.org, 1)
	must(t, err)
	if len(repos) != 1 || repos[0].ID != w.repo || repos[0].Name != "store" || !repos[0].Archived {
		t.Errorf("renamed: %+v", repos)
	}
	w.github.repositories, w.github.installation.Suspended = nil, true
	repos, err = w.d.Connect(t.Context(), w.org, 1)
	if err != nil || len(repos) != 0 || w.count("select count(*) from repositories where gone_at is not null") != 0 ||
		w.count("select count(*) from installations where suspended_at is not null") != 1 {
		t.Errorf("suspended, and so not listed: %+v, %v", repos, err)
	}
	w.github.installation.Suspended = false
	repos, err = w.d.Connect(t.Context(), w.org, 1)
	if err != nil || len(repos) != 0 || w.count("select count(*) from repositories where gone_at is not null") != 1 ||
		w.count("select count(*) from installations where suspended_at is not null") != 0 {
		t.Errorf("out of reach: %+v, %v", repos, err)
	}
	if _, err := w.d.Connect(t.Context(), w.Org(t, "other"), 1); errand.CodeOf(err) != errand.CodeConflict {
		t.Errorf("another organisation's installation: %v", err)
	}
}

func TestAMappingThatCouldNotWorkIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	elsewhere := errand.NewID(noon)
	for says, tt := range map[string]struct {
		m    NewMapping
		code errand.Code
	}{
		"asks for nothing":               {NewMapping{Repository: w.repo}, errand.CodeInvalid},
		"has a source root alone":        {NewMapping{Repository: w.repo, Project: "shop", SourceRoot: "src"}, errand.CodeInvalid},
		"leads out of the repository":    {NewMapping{Repository: w.repo, StackRoot: "/srv", SourceRoot: "a/../../b"}, errand.CodeInvalid},
		"has an absolute folder":         {NewMapping{Repository: w.repo, StackRoot: "/srv", BaseDir: "/srv"}, errand.CodeInvalid},
		"has half a tag":                 {NewMapping{Repository: w.repo, StackRoot: "/srv", TagKey: "team"}, errand.CodeInvalid},
		"has a module prefix of dots":    {NewMapping{Repository: w.repo, ModulePrefix: "..."}, errand.CodeInvalid},
		"is for no repository of theirs": {NewMapping{Repository: elsewhere, StackRoot: "/srv"}, errand.CodeNotFound},
		"is for no source of theirs":     {NewMapping{Repository: w.repo, Source: &elsewhere}, errand.CodeNotFound},
	} {
		if err := w.d.AddMapping(t.Context(), w.org, tt.m); errand.CodeOf(err) != tt.code {
			t.Errorf("a mapping that %s: %v", says, err)
		}
	}
	must(t, w.d.AddMapping(t.Context(), w.org, NewMapping{Repository: w.repo, Source: &w.src, Project: "shop"}))
	if n := w.count("select count(*) from mappings where position = 2 and workflow_file = 'errand.yml'"); n != 1 {
		t.Errorf("%d mappings in the second place", n)
	}
}

// TestTheQueueWorksTheJobs goes through the real queue, from a delivery's job to a dispatched run.
func TestTheQueueWorksTheJobs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.pass(time.Since(noon)) // the queue has a clock of its own
	workers := river.NewWorkers()
	w.d.AddWorkers(workers)
	called := make(chan struct{})
	w.github.during = func() { close(called) }
	job := w.delivery()
	must(t, w.InTx(t.Context(), w.org, func(tx *store.Tx) error { return tx.Enqueue(t.Context(), job) }))
	stop, err := w.Work(t.Context(), store.WorkConfig{Workers: workers, MaxWorkers: 4, SweepEvery: time.Hour, OnDiscard: w.d.OnDiscard})
	must(t, err)
	select {
	case <-called:
	case <-time.After(time.Minute):
		t.Error("no run was dispatched")
	}
	must(t, stop(t.Context())) // waits for the job under way
	if n := w.count("select count(*) from runs where state = 'dispatched'"); n != 1 {
		t.Errorf("%d dispatched runs", n)
	}
	w.github.made(map[string]int{"dispatch": 1})
}
