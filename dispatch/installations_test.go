package dispatch

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

func (w *world) bound() (in store.Installation) {
	w.t.Helper()
	must(w.t, w.InTx(w.t.Context(), w.org, func(tx *store.Tx) (err error) {
		in, err = tx.GetInstallation(w.t.Context(), 1)
		return err
	}))
	return in
}

func (w *world) repository() (r store.Repository) {
	w.t.Helper()
	must(w.t, w.InTx(w.t.Context(), w.org, func(tx *store.Tx) (err error) {
		r, err = tx.GetRepository(w.t.Context(), w.repo)
		return err
	}))
	return r
}

func (w *world) refresh() {
	w.t.Helper()
	_, err := w.d.refreshInstallation(w.t.Context(), errand.RefreshInstallation{Org: w.org, Installation: 1})
	must(w.t, err)
}

func failure(o github.Outcome, after time.Duration) error {
	return &github.Error{Call: github.CallInstallation, Finding: github.Finding{Outcome: o, RetryAfter: after, Message: "GitHub's words"}}
}

func TestWhatGitHubRefusesIsKnownToTheNextDecision(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for outcome, gate := range map[github.Outcome]errand.Gate{
		github.Archived: errand.GateRepoArchived, github.Gone: errand.GateRepoGone, github.BlockedLegal: errand.GateRepoBlocked,
		github.Suspended: errand.GateInstallationSuspended, github.Deleted: errand.GateInstallationGone,
	} {
		run := w.queued()
		w.github.script(answers(outcome, 0))
		w.dispatch(run.ID)
		w.stands(run.ID, errand.Failed, outcome.Reason())
		job := w.delivery()
		_, err := w.d.consider(t.Context(), job)
		must(t, err)
		if d := w.decisions(job.Issue); d[len(d)-1].Gate != gate {
			t.Errorf("%s: the next error is held by %s, want %s", outcome, d[len(d)-1].Gate, gate)
		}
		w.refresh() // GitHub says that all is well again
		w.sql("update installations set deleted_at = null")
		w.queued()
		w.sql("update runs set created_at = created_at - interval '2 days'") // the cap is not what is tried here
	}
}

func TestC31_OnlyAnExplicitWordMarks(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, outcome := range []github.Outcome{
		github.Forbidden, github.RateSecondary, github.RatePrimary, github.BadCredentials, github.ServerError, github.Unreachable, github.WorkflowMissing,
		github.RefMissing, github.Refused, github.IPAllowList, github.SSO,
	} {
		run := w.queued()
		w.github.script(answers(outcome, 15*time.Minute))
		w.dispatch(run.ID)
		if r, in := w.repository(), w.bound(); r.GoneAt != nil || r.Archived || r.BlockedAt != nil || in.SuspendedAt != nil || in.DeletedAt != nil || in.Permissions != "pass" {
			t.Errorf("%s marked %+v %+v", outcome, r, in)
		}
		w.sql("update runs set created_at = created_at - interval '2 days'")
	}
}

func TestPermissionsAreCheckedBeforeADispatch(t *testing.T) {
	t.Parallel()
	const pass, fail, unknown = errand.Pass, errand.Fail, errand.Unknown
	for says, tt := range map[string]struct {
		stored     string // what was known: verdict, at noon
		later      time.Duration
		now        errand.Verdict
		extra      []string
		missing    []string
		err        error
		allow      bool
		state      errand.RunState
		reason     errand.Reason
		asked      int
		dispatched int
	}{
		"exactly what it needs":                         {"pass", 0, pass, nil, nil, nil, false, errand.Dispatched, "", 0, 1},
		"known for two days, and still so":              {"pass", 48 * time.Hour, pass, nil, nil, nil, false, errand.Dispatched, "", 1, 1},
		"known for two days, and Contents":              {"pass", 48 * time.Hour, fail, []string{"contents: read"}, nil, nil, false, errand.Failed, errand.ReasonOverGranted, 1, 0},
		"never asked":                                   {"unknown", 0, pass, nil, nil, nil, false, errand.Dispatched, "", 1, 1},
		"never asked, and Contents":                     {"unknown", 0, fail, []string{"contents: write"}, nil, nil, false, errand.Failed, errand.ReasonOverGranted, 1, 0},
		"Contents, and the operator says yes":           {"unknown", 0, fail, []string{"contents: write"}, nil, nil, true, errand.Dispatched, "", 1, 1},
		"no Actions":                                    {"unknown", 0, fail, nil, []string{"actions: write"}, nil, false, errand.Failed, errand.ReasonNotPermitted, 1, 0},
		"no Actions, and the operator says yes to more": {"unknown", 0, fail, []string{"contents: read"}, []string{"actions: write"}, nil, true, errand.Failed, errand.ReasonNotPermitted, 1, 0},
		"GitHub names none":                             {"unknown", 0, unknown, nil, nil, nil, false, errand.Queued, "", 1, 0},
		"GitHub cannot be asked":                        {"unknown", 0, pass, nil, nil, failure(github.Unreachable, 0), false, errand.Queued, "", 1, 0},
		"GitHub asks for patience":                      {"unknown", 0, pass, nil, nil, failure(github.RateSecondary, time.Minute), false, errand.Queued, "", 1, 0},
		"C19 it is uninstalled":                         {"unknown", 0, pass, nil, nil, failure(github.Deleted, 0), false, errand.Failed, errand.ReasonUninstalled, 1, 0},
		"what was too much is mended":                   {"fail", 0, pass, nil, nil, nil, false, errand.Dispatched, "", 1, 1},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.d.allowExtra = tt.allow
			run := w.queued()
			w.sql("update installations set permissions = $1, permissions_extra = case when $1 = 'fail' then '{\"contents: read\"}'::text[] else '{}' end", tt.stored)
			w.pass(tt.later)
			w.sql("update runs set created_at = $1::timestamptz, deadline_at = $1::timestamptz + interval '15 minutes'", w.clock())
			w.github.change(func() {
				w.github.installation.Verdict, w.github.installation.Extra, w.github.installation.Missing, w.github.checkErr = tt.now, tt.extra, tt.missing, tt.err
				w.github.checks = 0
			})
			again := w.dispatch(run.ID)
			r := w.stands(run.ID, tt.state, tt.reason)
			if w.github.checks != tt.asked || w.github.calls["dispatch"] != tt.dispatched {
				t.Errorf("%d questions, %d dispatches", w.github.checks, w.github.calls["dispatch"])
			}
			if waits := tt.state == errand.Queued; (again > 0) != waits || waits && r.DispatchAttempt != 0 {
				t.Errorf("again in %s, attempt %d", again, r.DispatchAttempt)
			}
			for _, word := range append(slices.Clone(tt.missing), tt.extra...) {
				if tt.state == errand.Failed && len(tt.missing) == 0 && !strings.Contains(r.Detail, word) {
					t.Errorf("%q does not name %s", r.Detail, word)
				}
			}
			if !tt.state.Ended() && tt.state != errand.Dispatched {
				w.pass(runs.DispatchWithin) // and if it stays unknown the run ends with its reason
				w.dispatch(run.ID)
				w.stands(run.ID, errand.Failed, errand.ReasonNotDispatched)
			}
		})
	}
}

func TestTheDailyCheck(t *testing.T) {
	t.Parallel()
	w := setup(t)
	sweep := func() int {
		t.Helper()
		_, err := w.d.sweep(t.Context(), errand.Sweep{})
		must(t, err)
		return w.jobs("refresh_installation")
	}
	if n := sweep(); n != 0 {
		t.Errorf("%d questions about what was asked just now", n)
	}
	w.pass(checkEvery)
	for range 2 {
		if n := sweep(); n != 1 {
			t.Errorf("%d questions after a day", n)
		}
	}
	w.github.change(func() {
		w.github.installation.Verdict, w.github.installation.Extra = errand.Fail, []string{"contents: write"}
		w.github.repositories[0].Archived = true
	})
	w.refresh()
	if in, r := w.bound(), w.repository(); in.Permissions != "fail" || !slices.Equal(in.PermissionsExtra, []string{"contents: write"}) || !r.Archived || !in.CheckAt.Equal(w.clock().Add(checkEvery)) {
		t.Errorf("%+v %+v", in, r)
	}
	w.github.change(func() {
		w.github.installation.Verdict, w.github.installation.Extra = errand.Pass, nil
		w.github.repositories[0].Archived = false
	})
	w.refresh()
	if in, r := w.bound(), w.repository(); in.Permissions != "pass" || len(in.PermissionsExtra) != 0 || r.Archived {
		t.Errorf("what was mended still stands: %+v %+v", in, r)
	}
}

func TestC31_WhatCannotBeAskedChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	before := w.bound()
	for _, o := range []github.Outcome{github.RatePrimary, github.RateSecondary, github.Forbidden, github.ServerError, github.Unreachable, github.BadCredentials} {
		for _, step := range []func(){
			func() { w.github.checkErr = failure(o, 20*time.Minute) },
			func() { w.github.checkErr, w.github.listErr = nil, failure(o, 0) },
		} {
			w.github.change(func() {
				w.github.repositories = nil
				step()
			})
			w.refresh()
			in, r := w.bound(), w.repository()
			if r.GoneAt != nil || in.DeletedAt != nil || in.SuspendedAt != nil || in.Permissions != before.Permissions {
				t.Errorf("%s: %+v %+v", o, in, r)
			}
			if wait := in.CheckAt.Sub(w.clock()); wait < checkAgain || wait > time.Hour {
				t.Errorf("%s: asked again in %s", o, wait)
			}
			w.github.change(func() { w.github.checkErr, w.github.listErr = nil, nil })
		}
	}
	w.github.change(func() { w.github.checkErr = failure(github.Deleted, 0) })
	w.refresh()
	if in := w.bound(); in.DeletedAt == nil {
		t.Error("C19: it is uninstalled, and that is not known")
	}
}

// tenants is a GitHub of two accounts, one of which refuses everything.
type tenants struct {
	*fakeGitHub
	refuses int64
	outcome github.Outcome

	mu      sync.Mutex
	reached []int64
}

func (f *tenants) Dispatch(ctx context.Context, t github.Target, inputs map[string]string) github.Dispatched {
	f.mu.Lock()
	f.reached = append(f.reached, t.InstallationID)
	f.mu.Unlock()
	if t.InstallationID == f.refuses {
		return github.Dispatched{Outcome: f.outcome, Message: "GitHub's words"}
	}
	return f.fakeGitHub.Dispatch(ctx, t, inputs)
}

func (f *tenants) CheckInstallation(ctx context.Context, id int64) (github.InstallationCheck, error) {
	if id == f.refuses {
		return github.InstallationCheck{}, failure(f.outcome, 0)
	}
	return f.fakeGitHub.CheckInstallation(ctx, id)
}

func TestC21_OneTenantsFailureStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, outcome := range []github.Outcome{github.Suspended, github.BlockedLegal, github.Deleted, github.Forbidden} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			good := w.queued()
			gh := &tenants{fakeGitHub: w.github, refuses: 2, outcome: outcome}
			w.d.github = gh
			bad := w.neighbour()
			w.pass(checkEvery)
			w.sql("update runs set created_at = $1::timestamptz, deadline_at = $1::timestamptz + interval '15 minutes'", w.clock())
			_, err := w.d.sweep(t.Context(), errand.Sweep{})
			must(t, err)
			if n := w.jobs("refresh_installation"); n != 2 {
				t.Errorf("%d installations are looked at", n)
			}
			_, err = w.d.refreshInstallation(t.Context(), errand.RefreshInstallation{Org: bad.OrgID, Installation: 2})
			must(t, err)
			w.refresh()
			_, err = w.d.dispatchRun(t.Context(), errand.DispatchRun{Org: bad.OrgID, Run: bad.ID})
			must(t, err)
			w.dispatch(good.ID)
			w.stands(good.ID, errand.Dispatched, errand.ReasonNone)
			if in := w.bound(); in.SuspendedAt != nil || in.DeletedAt != nil {
				t.Errorf("the neighbour's trouble stands here: %+v", in)
			}
		})
	}
}

// C21: in the one sweep over every organisation, a tenant whose rows cannot be written is left out, and said to be.
func TestC21_ATenantThatTheSweepCannotServeStopsNoOther(t *testing.T) {
	t.Parallel()
	w := setup(t)
	good, bad := w.queued(), w.neighbour() // whose run has been due for longer
	w.sql(`create function refuse() returns trigger language plpgsql as $$ begin
		if new.args->>'org' = '` + string(bad.OrgID) + `' then raise exception 'not for this tenant'; end if; return new; end $$`)
	w.sql("create trigger refuse before insert on river_job for each row execute function refuse()")
	w.pass(checkEvery)
	if _, err := w.d.sweep(t.Context(), errand.Sweep{}); err == nil || !strings.Contains(err.Error(), "not for this tenant") {
		t.Errorf("the trouble is not told: %v", err)
	}
	if n := w.count("select count(*) from river_job where kind = 'reconcile_run' and args->>'run' = $1", string(good.ID)); n != 1 {
		t.Errorf("%d looks at the run of the other tenant", n)
	}
	if n := w.jobs("refresh_installation"); n != 1 {
		t.Errorf("%d installations are looked at", n)
	}
}

// neighbour is another organisation, with an installation of its own, and a queued run.
func (w *world) neighbour() store.Run {
	w.t.Helper()
	org := w.Org(w.t, "neighbour")
	src, repo, issue, event, run := errand.NewID(noon), errand.NewID(noon), errand.NewID(noon), errand.NewID(noon), errand.NewID(noon)
	w.sql("insert into installations (id, org_id, account, created_at, check_at) values (2, $1, 'neighbour', $2, $2)", org, noon)
	w.sql(`insert into repositories (id, org_id, installation_id, github_id, owner, name, default_branch, created_at) values ($1, $2, 2, 8, 'neighbour', 'shop', 'main', $3)`, repo, org, noon)
	w.sql(`insert into sources (id, org_id, kind, name, public_id, secret_sealed, created_at) values ($1, $2, 'sentry', 'Sentry', $3, 'x', $4)`, src, org, strings.Repeat("n", 24), noon)
	w.sql(`insert into issues (id, org_id, source_id, provider_id, title, level, status_at, first_seen, last_seen, created_at) values ($1, $2, $3, '1', 'boom', 'error', $4, $4, $4, $4)`, issue, org, src, noon)
	w.sql(`insert into events (id, org_id, issue_id, provider_id, seen_at, received_at, body) values ($1, $2, $3, '1', $4, $4, '{}')`, event, org, issue, noon)
	w.sql(`insert into runs (id, org_id, issue_id, event_id, repository_id, state, workflow_file, ref, created_at, updated_at, deadline_at)
		values ($1, $2, $3, $4, $5, 'queued', 'errand.yml', 'main', $6, $6, $6)`, run, org, issue, event, repo, noon)
	var r store.Run
	must(w.t, w.InTx(w.t.Context(), org, func(tx *store.Tx) (err error) {
		r, err = tx.GetRun(w.t.Context(), run)
		return err
	}))
	return r
}

// C13: somebody edited the workflow's run-name, so no search can find it.
func TestC13_AWorkflowThatDoesNotTellItsMarkIsSaidToBe(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	unmarked := func(start func() github.WorkflowRun) github.Dispatched {
		start()
		w.github.runs[len(w.github.runs)-1].Title = "Fix" // somebody edited run-name
		return github.Dispatched{Outcome: github.NoAnswer}
	}
	began := w.clock()
	w.github.script(unmarked, unmarked)
	for i := 0; !w.run(run.ID).State.Ended(); i++ {
		w.pass(max(w.dispatch(run.ID), time.Second))
		if i > 100 {
			t.Fatal("it never ends")
		}
	}
	r := w.stands(run.ID, errand.Failed, errand.ReasonNothingFound)
	if took := w.clock().Sub(began); took > 5*time.Minute || !strings.Contains(r.Detail, "run-name") || r.DispatchAttempt != 2 {
		t.Errorf("after %s: %q, attempt %d", took, r.Detail, r.DispatchAttempt)
	}
}

func TestAMarkThatCannotBeWrittenIsNoEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.queued()
	w.Super(t, func(ctx context.Context, c *pgx.Conn) {
		_, err := c.Exec(ctx, "revoke update on repositories from errand_runtime")
		must(t, err)
	})
	w.github.script(answers(github.Gone, 0))
	w.dispatch(run.ID)
	w.stands(run.ID, errand.Failed, errand.ReasonRepositoryGone)
}
