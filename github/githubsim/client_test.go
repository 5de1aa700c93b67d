package githubsim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/github/githubsim"
)

const dispatches = "POST /repos/octo-org/shop/actions/workflows/errand.yml/dispatches"

func TestADispatchNamesItsRunAndTheRunCanBeReadAndCancelled(t *testing.T) {
	t.Parallel()
	w := setup(t)
	d := w.dispatch(t)
	if d.RunID == 0 || !strings.HasSuffix(d.RunURL, fmt.Sprint(d.RunID)) {
		t.Fatalf("no run details: %+v", d)
	}
	run, err := w.app.Run(t.Context(), w.target, d.RunID)
	if err != nil || run.Status != "queued" || run.Jobs == nil || *run.Jobs != 1 || run.Path != ".github/workflows/errand.yml" ||
		run.Event != "workflow_dispatch" || run.Title != "Errand "+marker || run.Attempt != 1 {
		t.Fatalf("run %+v, %v", run, err)
	}
	if err := w.app.Cancel(t.Context(), w.target, d.RunID); err != nil { // go-github calls 202 an error
		t.Fatalf("cancel: %v", err)
	}
	var e *github.Error
	if err := w.app.Cancel(t.Context(), w.target, d.RunID); !errors.As(err, &e) || e.Outcome != github.Conflict {
		t.Fatalf("cancelling a finished run: %v", err)
	}
	if run, err = w.app.Run(t.Context(), w.target, d.RunID); err != nil || run.Conclusion != "cancelled" {
		t.Fatalf("run %+v, %v", run, err)
	}
	if _, err := w.app.Run(t.Context(), w.target, 1); !errors.As(err, &e) || e.Outcome != github.NotFound {
		t.Fatalf("an absent run: %v", err)
	}
	w.noViolations(t)
}

func TestC1_ARefusedDispatchLooksForNoRun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.target.Ref = "master"
	d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker, "ticket": "x"})
	if d.Outcome != github.RefMissing || d.RunID != 0 || d.Message != "No ref found for: master" {
		t.Fatalf("%+v", d)
	}
	if _, again := d.Retry(); again || d.Outcome.Reason() != errand.ReasonRefMissing {
		t.Fatalf("a refusal is final: %+v", d)
	}
	for _, r := range w.wire.requests() {
		if strings.Contains(r, "/runs") {
			t.Errorf("looked for a run: %s", r)
		}
	}
}

func TestC2_RefStandsBesideInputs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if _, err := w.sim.Commit(t.Context(), repositoryID, "release", "a release", fstest.MapFS{"VERSION": {Data: []byte("2\n")}}); err != nil {
		t.Fatal(err)
	}
	w.target.Ref = "release"
	w.dispatch(t)
	run := w.sim.Runs()[0]
	if run.Branch != "release" || len(run.Inputs) != 2 {
		t.Fatalf("%+v with inputs %v", run, run.Inputs)
	}
}

func TestDispatchAnswersAsTheWorkflowStands(t *testing.T) {
	t.Parallel()
	edited := func(from, to string) func(*githubsim.Config, *githubsim.Repository) {
		return func(_ *githubsim.Config, r *githubsim.Repository) {
			f := r.Files.(fstest.MapFS)[".github/workflows/errand.yml"]
			f.Data = bytes.ReplaceAll(f.Data, []byte(from), []byte(to))
		}
	}
	many := "inputs:\n"
	for i := range 26 {
		many += fmt.Sprintf("      more%d: {type: string}\n", i)
	}
	for name, tc := range map[string]struct {
		edit   func(*githubsim.Config, *githubsim.Repository)
		do     func(*world)
		ticket string
		want   github.Outcome
		reason errand.Reason
	}{
		"no workflow file":          {do: func(w *world) { w.target.WorkflowFile = "other.yml" }, want: github.WorkflowMissing, reason: errand.ReasonWorkflowMissing},
		"no trigger":                {edit: edited("workflow_dispatch:", "push:"), want: github.NoTrigger, reason: errand.ReasonNoTrigger},
		"disabled":                  {do: func(w *world) { w.sim.DisableWorkflow(repositoryID, "errand.yml", true) }, want: github.Disabled, reason: errand.ReasonWorkflowDisabled},
		"an input it does not take": {edit: edited("      ticket:", "      tickets:"), want: github.WorkflowTooOld, reason: errand.ReasonWorkflowTooOld},
		"an input we do not send":   {edit: edited("inputs:\n", "inputs:\n      must: {required: true}\n"), want: github.WorkflowTooOld, reason: errand.ReasonWorkflowTooOld},
		"26 inputs declared":        {edit: edited("inputs:\n", many), want: github.TooManyInputs, reason: errand.ReasonGitHubRefused},
		"inputs over 65,535":        {ticket: strings.Repeat("é", 65_535), want: github.InputsTooLarge, reason: errand.ReasonGitHubRefused},
		"archived":                  {do: func(w *world) { w.sim.Archive(repositoryID, true) }, want: github.Archived, reason: errand.ReasonRepositoryArchive},
		"C19 suspended":             {do: func(w *world) { w.sim.Suspend(installationID, true) }, want: github.Suspended, reason: errand.ReasonSuspended},
		"C19 deleted":               {do: func(w *world) { w.sim.Uninstall(installationID) }, want: github.Deleted, reason: errand.ReasonUninstalled},
		"taken out of the App":      {do: func(w *world) { w.sim.RemoveFromInstallation(repositoryID) }, want: github.Gone, reason: errand.ReasonRepositoryGone},
		"C29 secondary limit":       {do: func(w *world) { w.sim.Fault(githubsim.SecondaryLimit("POST", "", "17")) }, want: github.RateSecondary, reason: errand.ReasonNotDispatched},
		"C30 the same, without words": {do: func(w *world) {
			w.sim.Fault(githubsim.SecondaryLimit("POST", "/repos/*/*/actions/workflows/*/dispatches", ""))
		}, want: github.RateSecondary, reason: errand.ReasonNotDispatched},
		"a server error": {do: func(w *world) { w.sim.Fault(githubsim.Fault{Method: "POST", Path: "/repos/*/*/*/*/*/*", Status: 502}) }, want: github.ServerError, reason: errand.ReasonNotDispatched},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edits := []func(*githubsim.Config, *githubsim.Repository){}
			if tc.edit != nil {
				edits = append(edits, tc.edit)
			}
			w := setup(t, edits...)
			if tc.do != nil {
				tc.do(w)
			}
			d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker, "ticket": tc.ticket})
			if d.Outcome != tc.want || d.Outcome.Reason() != tc.reason || d.RunID != 0 || d.Message == "" {
				t.Errorf("got %+v (reason %q), want %s (%q)", d, d.Outcome.Reason(), tc.want, tc.reason)
			}
			if tc.want == github.WorkflowMissing && !strings.Contains(d.Detail, "on the default branch main") { // C5
				t.Errorf("the branch is not named: %q", d.Detail)
			}
			if len(w.sim.Runs()) != 0 {
				t.Error("a refused dispatch started a run")
			}
			w.noViolations(t)
		})
	}
}

// C9, C10: four dispatches at once, whose marks contain each other.
func TestC9_C10_OnlyTheOwnMarkerIsFound(t *testing.T) {
	t.Parallel()
	w := setup(t)
	since := w.app.ServerTime().Add(-2 * time.Minute)
	ids := map[string]int64{}
	for _, m := range []string{marker, marker + "2", strings.Replace(marker, ".1", ".2", 1), "x" + marker} {
		d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": m})
		if d.Outcome != github.Accepted {
			t.Fatalf("%+v", d)
		}
		ids[m] = d.RunID
	}
	runs, err := w.app.FindRuns(t.Context(), w.target, marker, since)
	if err != nil || len(runs) != 1 || runs[0].ID != ids[marker] {
		t.Fatalf("%+v, %v", runs, err)
	}
	if runs, err = w.app.FindRuns(t.Context(), w.target, marker, w.app.ServerTime().Add(time.Hour)); err != nil || len(runs) != 0 {
		t.Fatalf("a run from before the time asked for: %+v, %v", runs, err)
	}
	w.sim.Fault(githubsim.Fault{Method: "GET", Status: 500})
	if runs, err = w.app.FindRuns(t.Context(), w.target, marker, since); err == nil {
		t.Fatalf("unknown was told as %d runs", len(runs))
	}
}

func TestAnUnclearDispatchIsSaidToBeUnclearAndItsRunIsFoundByItsMarker(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sim.Fault(githubsim.Fault{Method: "POST", Path: "/repos/*/*/actions/workflows/*/dispatches", Cut: true})
	d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker, "ticket": "x"})
	if !d.Outcome.Unclear() || d.RunID != 0 {
		t.Fatalf("%+v", d)
	}
	runs, err := w.app.FindRuns(t.Context(), w.target, marker, d.At.Add(-2*time.Minute))
	if err != nil || len(runs) != 1 || runs[0].ID != w.sim.Runs()[0].ID {
		t.Fatalf("%+v, %v", runs, err)
	}
	if n := w.wire.count(dispatches); n != 1 {
		t.Errorf("%d dispatches", n)
	}
}

func TestADeadlineWhileGitHubIsSilentIsUnclear(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if _, err := w.app.Repository(t.Context(), installationID, repositoryID); err != nil { // the token is there
		t.Fatal(err)
	}
	hold := make(chan struct{})
	w.sim.Fault(githubsim.Fault{Method: "POST", Hold: hold})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := make(chan github.Dispatched)
	go func() { answer <- w.app.Dispatch(ctx, w.target, map[string]string{"run": marker}) }()
	eventually(t, "the dispatch is on its way", func() bool { return w.wire.count(dispatches) == 1 })
	eventually(t, "the headers were sent", func() bool { return w.sim.Held() == 1 })
	cancel()
	if d := <-answer; !d.Outcome.Unclear() {
		t.Errorf("%+v", d)
	}
	close(hold)
}

func TestAServerThatDiesWhileGitHubAnswersFindsItsRunAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sim.Fault(githubsim.Fault{Method: "POST", Path: "/repos/*/*/actions/workflows/*/dispatches", Hold: make(chan struct{}), Late: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := make(chan github.Dispatched)
	go func() { answer <- w.app.Dispatch(ctx, w.target, map[string]string{"run": marker}) }()
	eventually(t, "GitHub has acted and not answered", func() bool { return w.sim.Held() == 1 && len(w.sim.Runs()) == 1 })
	cancel()
	d := <-answer
	runs, err := w.app.FindRuns(t.Context(), w.target, marker, d.At.Add(-2*time.Minute))
	if !d.Outcome.Unclear() || err != nil || len(runs) != 1 {
		t.Errorf("%+v, %+v, %v", d, runs, err)
	}
}

func TestNothingSentIsNotUnclear(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.dispatch(t) // so that the token is there, and only the dispatch itself can fail
	if err := w.sim.Close(); err != nil {
		t.Fatal(err)
	}
	d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker})
	if d.Outcome != github.Unreachable || d.Outcome.Unclear() {
		t.Fatalf("%+v", d)
	}
	if _, again := d.Retry(); !again {
		t.Error("it may be tried again")
	}
}

func TestC22_C23_ARenamedRepositoryIsFoundByItsID(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first := w.dispatch(t)
	w.sim.Rename(repositoryID, "octo-inc", "store")
	d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker})
	if d.Outcome != github.Moved || d.MovedTo == nil || d.MovedTo.String() != "octo-inc/store" || d.Status != http.StatusTemporaryRedirect {
		t.Fatalf("%+v", d)
	}
	if len(w.sim.Runs()) != 1 {
		t.Fatal("a dispatch to the former name took effect")
	}
	var e *github.Error
	if _, err := w.app.Run(t.Context(), w.target, first.RunID); !errors.As(err, &e) || e.Outcome != github.Moved || e.MovedTo == nil || e.Status != http.StatusMovedPermanently {
		t.Fatalf("a 301 was taken for data: %v", err)
	}
	w.target.Owner, w.target.Name = d.MovedTo.Owner, d.MovedTo.Name
	w.dispatch(t)
	w.noViolations(t)
}

func TestC22_AnotherRepositoryUnderTheFormerNameIsNotDispatchedTo(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sim.Rename(repositoryID, "octo-org", "store")
	if err := w.sim.AddRepository(t.Context(), githubsim.Repository{
		ID: 77, Installation: installationID, Owner: "octo-org", Name: "shop",
		Files: fstest.MapFS{".github/workflows/errand.yml": {Data: read(t, "testdata/workflows/errand.yml")}},
	}); err != nil {
		t.Fatal(err)
	}
	d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker})
	if d.Outcome != github.Moved || d.MovedTo == nil || d.MovedTo.Name != "store" || len(w.sim.Runs()) != 0 {
		t.Fatalf("%+v, runs %+v", d, w.sim.Runs())
	}
}

func TestEnterpriseServerIsDispatchedToWithoutRunDetails(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *githubsim.Config, _ *githubsim.Repository) { c.Enterprise = true })
	d := w.dispatch(t)
	if d.RunID != 0 || d.Status != http.StatusNoContent || w.wire.count(dispatches) != 2 || len(w.sim.Runs()) != 1 {
		t.Fatalf("%+v, %d calls, %d runs", d, w.wire.count(dispatches), len(w.sim.Runs()))
	}
	runs, err := w.app.FindRuns(t.Context(), w.target, marker, d.At.Add(-2*time.Minute))
	if err != nil || len(runs) != 1 {
		t.Fatalf("%+v, %v", runs, err)
	}
}

func TestC14_C15_AClockThatIsWrongByAMinuteStillSignsIn(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-time.Minute, -30 * time.Second, 0, 30 * time.Second, 59 * time.Second, time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			app, err := github.New(github.Config{
				AppID: w.sim.AppID(), PrivateKey: appPEM(), BaseURL: w.sim.APIURL(), Transport: w.wire,
				Clock: func() time.Time { return time.Now().Add(skew) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := app.Installation(t.Context(), installationID); err != nil {
				t.Fatal(err)
			}
			if off := time.Until(app.ServerTime()).Abs(); off > 3*time.Second {
				t.Errorf("GitHub's time is off by %s", off)
			}
		})
	}
}

func TestC14_AClockThatIsWrongByAnHourIsSaidToBeAndIsCorrected(t *testing.T) {
	t.Parallel()
	w := setup(t)
	app, err := github.New(github.Config{
		AppID: w.sim.AppID(), PrivateKey: appPEM(), BaseURL: w.sim.APIURL(), Transport: w.wire,
		Clock: func() time.Time { return time.Now().Add(time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	d := app.Dispatch(t.Context(), w.target, map[string]string{"run": marker})
	if d.Outcome != github.ClockSkew {
		t.Fatalf("%+v", d)
	}
	if d = app.Dispatch(t.Context(), w.target, map[string]string{"run": marker}); d.Outcome != github.Accepted {
		t.Fatalf("GitHub's Date was not learned from: %+v", d)
	}
}

// C17: the hour of the token ends between two calls. GitHub refuses the one that still carries it, and the next asks for another.
func TestC17_ATokenThatHasEndedIsReplaced(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	w := setup(t, func(c *githubsim.Config, _ *githubsim.Repository) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	w.dispatch(t)
	later.Store(int64(61 * time.Minute))
	d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker})
	if _, again := d.Retry(); d.Outcome != github.BadCredentials || !again || d.Outcome.Unclear() {
		t.Fatalf("with a token of an hour ago: %+v", d)
	}
	w.dispatch(t)
	if n := w.wire.count(fmt.Sprintf("POST /app/installations/%d/access_tokens", installationID)); n != 2 || len(w.sim.Runs()) != 2 {
		t.Errorf("%d tokens, %d runs", n, len(w.sim.Runs()))
	}
	w.noViolations(t)
}

func TestC31_ARepositoryIsNotGoneBecauseOfALimit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sim.Fault(githubsim.Fault{Status: 403, Times: -1, Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}, Body: `{"message":"API rate limit exceeded for installation ID 51000001."}`})
	_, err := w.app.Repository(t.Context(), installationID, repositoryID)
	var e *github.Error
	if !errors.As(err, &e) || e.Outcome != github.RatePrimary || !e.Outcome.Retry() {
		t.Fatalf("%v", err)
	}
}

func TestWhatTheInstallationWasGranted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	in, err := w.app.Installation(t.Context(), installationID)
	if err != nil || in.Suspended || in.Account != "octo-org" {
		t.Fatalf("%+v, %v", in, err)
	}
	if v, extra, missing := github.CheckPermissions(in.Permissions); v != errand.Pass {
		t.Errorf("%s, extra %v, missing %v", v, extra, missing)
	}
	w.sim.Suspend(installationID, true)
	if in, err = w.app.Installation(t.Context(), installationID); err != nil || !in.Suspended {
		t.Errorf("%+v, %v", in, err)
	}
	var e *github.Error
	if _, err = w.app.Installation(t.Context(), 9); !errors.As(err, &e) || e.Outcome != github.Deleted {
		t.Errorf("an unknown installation: %v", err)
	}
}

func TestRepositoriesAreListedPageByPage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for i := range 104 {
		if err := w.sim.AddRepository(t.Context(), githubsim.Repository{ID: int64(1000 + i), Installation: installationID, Owner: "octo-org", Name: fmt.Sprintf("r%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := w.app.Repositories(t.Context(), installationID)
	if err != nil || len(all) != 105 || w.wire.count("GET /installation/repositories") != 2 {
		t.Fatalf("%d repositories, %v, %v", len(all), err, w.wire.requests())
	}
	if repo, err := w.app.Repository(t.Context(), installationID, repositoryID); err != nil || repo.DefaultBranch != "main" || repo.FullName().String() != "octo-org/shop" {
		t.Fatalf("%+v, %v", repo, err)
	}
	w.noViolations(t)
}

func TestManyTenantsAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for i := range int64(4) {
		if err := w.sim.AddInstallation(githubsim.Installation{ID: 900 + i, Account: fmt.Sprintf("org%d", i)}); err != nil {
			t.Fatal(err)
		}
		if err := w.sim.AddRepository(t.Context(), githubsim.Repository{
			ID: 9000 + i, Installation: 900 + i, Owner: fmt.Sprintf("org%d", i), Name: "shop",
			Files: fstest.MapFS{".github/workflows/errand.yml": {Data: read(t, "testdata/workflows/errand.yml")}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.sim.Suspend(903, true) // C21: one tenant's trouble stays its own
	var wg sync.WaitGroup
	for i := range int64(20) {
		wg.Go(func() {
			n := i % 4
			target := w.target
			target.InstallationID, target.RepositoryID, target.Owner = 900+n, 9000+n, fmt.Sprintf("org%d", n)
			want := github.Accepted
			if n == 3 {
				want = github.Suspended
			}
			if d := w.app.Dispatch(t.Context(), target, map[string]string{"run": fmt.Sprintf("%s%d", marker, i)}); d.Outcome != want {
				t.Errorf("tenant %d: %+v", n, d)
			}
		})
	}
	wg.Wait()
	if n := w.wire.count("POST /app/installations/900/access_tokens"); n != 1 {
		t.Errorf("%d tokens for one repository", n)
	}
	if len(w.sim.Runs()) != 15 {
		t.Errorf("%d runs", len(w.sim.Runs()))
	}
	w.noViolations(t)
}
