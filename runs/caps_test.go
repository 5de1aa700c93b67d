package runs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

func (w *world) sql(sql string, args ...any) {
	w.t.Helper()
	w.Super(w.t, func(_ context.Context, c *pgx.Conn) { exec(w.t, c, sql, args...) })
}

const dollar = 1_000_000_000_000

// race has two replicas create sixteen runs at one moment and gives how many were made. A refusal must be caused by want.
func (w *world) race(want error, next func() runs.NewRun) (made int) {
	w.t.Helper()
	replicas := []*store.Store{w.Store, w.Open(w.t, 8)}
	var wg, ready sync.WaitGroup
	results := [16]error{}
	begun := make(chan struct{})
	ready.Add(len(results))
	for i := range results {
		n := next()
		wg.Go(func() {
			results[i] = replicas[i%2].InTx(context.Background(), w.org, func(tx *store.Tx) error {
				ready.Done()
				<-begun // all are in their transaction, and none has counted
				_, err := w.runs.Create(context.Background(), tx, n)
				return err
			})
		})
	}
	ready.Wait()
	close(begun)
	wg.Wait()
	for _, err := range results {
		switch {
		case err == nil:
			made++
		case !errors.Is(err, want) || errand.CodeOf(err) != errand.CodeConflict:
			w.t.Errorf("refused by %v, want %v", err, want)
		}
	}
	if there := w.count("select count(*) from runs where finished_at is null"); there != made {
		w.t.Errorf("%d were made and %d are there", made, there)
	}
	return made
}

func TestNoCapIsPassedWhenReplicasRace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says  string
		setup string
		cause error
		same  bool // all for one issue
		made  int
	}{
		{"the organisation's runs of the day", "update organisations set daily_run_cap = 4", runs.ErrDailyCap, false, 4},
		{"a daily cap of zero", "update organisations set daily_run_cap = 0", runs.ErrDailyCap, false, 0},
		{"the repository's open fixes", "update repositories set open_fix_cap = 3", runs.ErrOpenFix, false, 3},
		{"an organisation's money of the day: three reservations of five dollars", fmt.Sprintf("update organisations set budget_day_pico = %d", 19*dollar), runs.ErrBudget, false, 3},
		{"an organisation's money of the month", fmt.Sprintf("update organisations set budget_month_pico = %d", 10*dollar), runs.ErrBudget, false, 2},
		{"a repository's money of the day", fmt.Sprintf("update repositories set budget_day_pico = %d", 9*dollar), runs.ErrBudget, false, 1},
		{"a repository's money of the month", fmt.Sprintf("update repositories set budget_month_pico = %d", 4*dollar), runs.ErrBudget, false, 0},
		{"one open run an issue", "update organisations set daily_run_cap = 25", runs.ErrRunOpen, true, 1},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.sql("update repositories set open_fix_cap = 1000")
			w.sql(tt.setup)
			one := w.issue()
			made := w.race(tt.cause, func() runs.NewRun {
				if tt.same {
					return one
				}
				return w.issue()
			})
			if made != tt.made {
				t.Errorf("%d runs, want %d", made, tt.made)
			}
		})
	}
}

func TestAPullRequestHoldsItsPlaceUntilItsFateIsKnownOrNobodySpeaksOfIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says  string
		fate  errand.PRFate
		after time.Duration
		free  bool
	}{
		{"fourteen days less a second without news", "", 14*24*time.Hour - time.Second, false},
		{"fourteen days without news", "", 14 * 24 * time.Hour, true},
		{"merged", errand.FateMerged, time.Hour, true},
		{"closed", errand.FateClosed, time.Hour, true},
		{"declined", errand.FateDeclined, time.Hour, true},
		{"seen open an hour later, and nothing since", errand.FateOpen, 14 * 24 * time.Hour, false},
		{"seen open an hour later, and nothing for fourteen days", errand.FateOpen, 14*24*time.Hour + time.Hour, true},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.sql("update repositories set open_fix_cap = 1")
			w.sql("update organisations set daily_run_cap = 1000")
			run := w.published()
			if tt.fate != "" {
				w.at(noon.Add(time.Hour))
				w.said(run.ID, runs.News{Fate: tt.fate, From: "runner"})
			}
			w.at(noon.Add(tt.after))
			if _, err := w.create(w.issue()); (err == nil) != tt.free || err != nil && !errors.Is(err, runs.ErrOpenFix) {
				t.Errorf("another run: %v, want free %v", err, tt.free)
			}
			after := w.get(run.ID)
			if got := runs.Fate(&after, w.clock()); (got == errand.FateUnknown) != (tt.free && (tt.fate == "" || tt.fate == errand.FateOpen)) {
				t.Errorf("its fate is %q", got)
			}
			if runs.Stands(&after, w.clock()) == tt.free {
				t.Errorf("it stands: %v", !tt.free)
			}
		})
	}
}

// published makes a run whose pull request was opened at noon.
func (w *world) published() store.Run {
	w.t.Helper()
	run, err := w.create(w.issue())
	must(w.t, err)
	w.sql("update runs set state = 'pr_opened', finished_at = $2, pr_number = 9, pr_url = 'https://github.example/9' where id = $1", run.ID, noon)
	return run
}

func (w *world) said(id errand.ID, n runs.News) (news bool) {
	w.t.Helper()
	must(w.t, w.InTx(context.Background(), w.org, func(tx *store.Tx) (err error) {
		news, err = w.runs.SetFate(context.Background(), tx, id, n)
		return err
	}))
	return news
}

func (w *world) get(id errand.ID) (run store.Run) {
	w.t.Helper()
	must(w.t, w.InTx(context.Background(), w.org, func(tx *store.Tx) (err error) {
		run, err = tx.GetRun(context.Background(), id)
		return err
	}))
	return run
}

func TestTheLaterWordOfAPullRequestCountsAndMergedIsFinal(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.published()
	w.at(noon.Add(10 * time.Hour))
	at := func(h int) time.Time { return noon.Add(time.Duration(h) * time.Hour) }
	for _, step := range []struct {
		says string
		news runs.News
		want bool
		fate errand.PRFate
	}{
		{"a runner saw it open", runs.News{Fate: errand.FateOpen, At: at(2), From: "runner"}, true, errand.FateOpen},
		{"an older word comes late", runs.News{Fate: errand.FateClosed, At: at(1), From: "runner"}, false, errand.FateOpen},
		{"a person declines it", runs.News{Fate: errand.FateDeclined, At: at(3), From: "person", Person: "p"}, true, errand.FateDeclined},
		{"somebody merges it all the same", runs.News{Fate: errand.FateMerged, At: at(4), From: "outcome_workflow"}, true, errand.FateMerged},
		{"a runner with an old list", runs.News{Fate: errand.FateOpen, At: at(5), From: "runner"}, false, errand.FateMerged},
	} {
		if got := w.said(run.ID, step.news); got != step.want || w.get(run.ID).PRFate != step.fate {
			t.Errorf("%s: news %v, fate %s", step.says, got, w.get(run.ID).PRFate)
		}
	}
	if n := w.count("select count(*) from journal where kind = $1 and subject = $2", journal.KindPullRequest, run.ID); n != 3 {
		t.Errorf("%d lines of history, want the three changes", n)
	}
	w.said(run.ID, runs.News{Fate: errand.FateMerged, At: noon.Add(1000 * time.Hour)})
	if at := w.get(run.ID).PRFateAt; at.After(w.clock()) {
		t.Errorf("a word of the future is kept: %s", at)
	}
}

func TestAFateNeedsAPullRequestAndAWordThatIsOne(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	for _, tt := range []struct {
		run  errand.ID
		fate errand.PRFate
		code errand.Code
	}{
		{run.ID, errand.FateMerged, errand.CodeConflict},
		{run.ID, errand.FateUnknown, errand.CodeInvalid},
		{run.ID, "", errand.CodeInvalid},
		{errand.NewID(noon), errand.FateMerged, errand.CodeNotFound},
	} {
		err := w.InTx(context.Background(), w.org, func(tx *store.Tx) error {
			_, err := w.runs.SetFate(context.Background(), tx, tt.run, runs.News{Fate: tt.fate})
			return err
		})
		if errand.CodeOf(err) != tt.code {
			t.Errorf("%q: %v, want %s", tt.fate, err, tt.code)
		}
	}
}

func TestARunCountsWithWhatItReservedUntilItEnds(t *testing.T) {
	t.Parallel()
	line := "insert into usage_lines (run_id, seq, org_id, at, provider, model, amount_pico, unpriced_reason) values ($1, $2, $3, now(), 'p', 'm', $4, $5)"
	for _, tt := range []struct {
		says     string
		happens  func(w *world, run errand.ID)
		spent    int64
		unpriced int64
	}{
		{"it is under way and has used less", func(w *world, run errand.ID) { w.sql(line, run, 1, w.org, 1*dollar, "") }, 5 * dollar, 0},
		{"it is under way and has used more", func(w *world, run errand.ID) { w.sql(line, run, 1, w.org, 7*dollar, "") }, 7 * dollar, 0},
		{"it ended and used two dollars", func(w *world, run errand.ID) {
			w.sql(line, run, 1, w.org, 1*dollar, "")
			w.sql(line, run, 2, w.org, 1*dollar, "")
			w.sql("update runs set state = 'no_fix', started_at = $2, finished_at = $2 where id = $1", run, noon)
		}, 2 * dollar, 0},
		{"it ended before it started", func(w *world, run errand.ID) {
			w.sql("update runs set state = 'failed', finished_at = $2 where id = $1", run, noon)
		}, 0, 0},
		{"it started, and ended without a word of what it used", func(w *world, run errand.ID) {
			w.sql("update runs set state = 'timed_out', started_at = $2, finished_at = $2 where id = $1", run, noon)
		}, 5 * dollar, 0},
		{"E10 a request has no price", func(w *world, run errand.ID) {
			w.sql(line, run, 1, w.org, 1*dollar, "")
			w.sql(line, run, 2, w.org, nil, "no price is known")
			w.sql("update runs set state = 'no_fix', started_at = $2, finished_at = $2 where id = $1", run, noon)
		}, 1 * dollar, 1},
		{"it was created yesterday", func(w *world, run errand.ID) {
			w.sql(line, run, 1, w.org, 7*dollar, "")
			w.sql("update runs set created_at = $2 where id = $1", run, noon.Add(-13*time.Hour))
		}, 0, 0},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			run, err := w.create(w.issue())
			must(t, err)
			tt.happens(w, run.ID)
			w.sql("update organisations set budget_day_pico = $1", 100*dollar)
			var b []runs.Budget
			must(t, w.InTx(context.Background(), w.org, func(tx *store.Tx) error {
				org, err := tx.GetOrganisation(context.Background())
				must(t, err)
				repo, err := tx.GetRepository(context.Background(), w.repo)
				must(t, err)
				b, err = w.runs.Budgets(context.Background(), tx, &org, &repo)
				return err
			}))
			if len(b) != 1 || int64(b[0].Spent) != tt.spent || b[0].Unpriced != tt.unpriced || !b[0].Until.Equal(noon.Add(12*time.Hour)) {
				t.Errorf("%+v, want %d spent and %d unpriced", b, tt.spent, tt.unpriced)
			}
			if _, known := b[0].Fits(1); known != (tt.unpriced == 0) {
				t.Errorf("what is left is known: %v", known)
			}
		})
	}
}

func TestTheEndOfARunReleasesWhatWaitsForIt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	other := errand.NewID(noon)
	wait := func(gate string, holder errand.ID) errand.ID {
		i := w.issue().Issue
		w.sql("insert into waits (issue_id, org_id, gate, since, look_at, holder, repository_id) values ($1, $2, $3, $4, $5, $6, $7)",
			i, w.org, gate, noon, noon.Add(time.Hour), holder, w.repo)
		return i
	}
	released := map[string]errand.ID{
		"its own issue": wait("run_open", run.ID), "the same problem": wait("same_problem", run.ID),
		"a place under the cap": wait("open_fix_cap", other), "money reserved": wait("money_budget", other),
	}
	held := map[string]errand.ID{"another run": wait("run_open", other), "the day's cap": wait("daily_cap", other)}
	_, err = w.fire(run.ID, runs.Move{Trigger: errand.TriggerDeadline, To: errand.Failed, Reason: errand.ReasonNotDispatched}, nil)
	must(t, err)
	for says, i := range released {
		if w.count("select count(*) from waits where issue_id = $1 and look_at = $2", i, noon) != 1 {
			t.Errorf("what waits for %s is not looked at", says)
		}
	}
	for says, i := range held {
		if w.count("select count(*) from waits where issue_id = $1 and look_at = $2", i, noon) != 0 {
			t.Errorf("what waits for %s is looked at", says)
		}
	}
}
