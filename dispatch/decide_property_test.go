package dispatch

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

// someTime is around noon, to the edges of every limit.
func someTime(t *rapid.T, name string) time.Time {
	unit := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, name+" unit")
	return noon.Add(-time.Duration(rapid.IntRange(-2, 40).Draw(t, name)) * unit)
}

func maybeTime(t *rapid.T, name string) *time.Time {
	if rapid.IntRange(0, 3).Draw(t, name+"?") > 0 {
		return nil
	}
	at := someTime(t, name)
	return &at
}

func someRun(t *rapid.T) store.Run {
	r := store.Run{
		ID: "r", IssueID: rapid.SampledFrom([]errand.ID{"i", "j"}).Draw(t, "issue"),
		State: rapid.SampledFrom([]errand.RunState{
			errand.Queued, errand.Running, errand.PROpened, errand.PROpened, errand.NoFix, errand.Failed, errand.Cancelled, "",
		}).Draw(t, "state"),
		Reason:     rapid.SampledFrom([]errand.Reason{"", errand.ReasonNotDispatched, errand.ReasonAgentError}).Draw(t, "reason"),
		FinishedAt: maybeTime(t, "finished"), PRFateAt: maybeTime(t, "news"),
		PRFate: rapid.SampledFrom([]errand.PRFate{"", errand.FateOpen, errand.FateMerged, errand.FateClosed, errand.FateDeclined, "burnt"}).Draw(t, "fate"),
	}
	if n := rapid.Int32Range(-1, 2).Draw(t, "pr"); n >= 0 {
		r.PRNumber = &n
	}
	return r
}

func someCounts(t *rapid.T) Counts {
	c := Counts{RunsToday: rapid.Int64Range(-1, 4).Draw(t, "runs today"), OpenFixes: rapid.Int64Range(-1, 4).Draw(t, "open fixes")}
	for range rapid.IntRange(0, 4).Draw(t, "new issues") {
		c.NewIssues = append(c.NewIssues, someTime(t, "new"))
	}
	slices.SortFunc(c.NewIssues, func(a, b time.Time) int { return b.Compare(a) })
	if rapid.IntRange(0, 4).Draw(t, "same?") == 0 {
		r := someRun(t)
		c.Same = &r
	}
	for range rapid.IntRange(0, 2).Draw(t, "budgets") {
		c.Budgets = append(c.Budgets, runs.Budget{
			Scope: "s", Limit: errand.Picodollars(rapid.Int64().Draw(t, "limit")), Spent: errand.Picodollars(rapid.Int64().Draw(t, "spent")),
			Unpriced: rapid.Int64Range(0, 1).Draw(t, "unpriced"), Until: noon.Add(time.Hour),
		})
	}
	return c
}

// someInput is any input at all; often enough one that is fine but for a detail.
func someInput(t *rapid.T) Input {
	in := fine()
	often := func(name string) bool { return rapid.IntRange(0, 5).Draw(t, name) > 0 }
	in.Now = noon
	if !often("org") {
		in.Org = store.Organisation{
			Mode: rapid.SampledFrom([]string{"active", "observe", "paused", "", "odd"}).Draw(t, "mode"), MinLevel: rapid.SampledFrom([]string{"fatal", "error", "", "odd"}).Draw(t, "least"),
			DailyRunCap: rapid.Int32Range(-1, 5).Draw(t, "cap"), CooldownS: rapid.Int32Range(0, 100000).Draw(t, "cooldown"), MaxAgeS: rapid.Int32().Draw(t, "age"),
			MinEvents: rapid.Int32Range(-1, 3).Draw(t, "events"), BreakerIssues: rapid.Int32Range(-1, 5).Draw(t, "breaker"), BreakerWindowS: rapid.Int32().Draw(t, "window"),
			RunCeilingPico: rapid.Int64().Draw(t, "ceiling"), ExcludedEnvironments: rapid.SliceOfN(rapid.SampledFrom([]string{"", "prod", "dev"}), 0, 2).Draw(t, "excluded"),
		}
	}
	if !often("issue") {
		in.Issue.Status = rapid.SampledFrom([]string{"open", "resolved", "ignored", ""}).Draw(t, "status")
		in.Issue.StatusAt, in.Issue.RegressedAt = someTime(t, "status at"), maybeTime(t, "regressed")
		in.Issue.Level = rapid.SampledFrom([]string{"", "error", "debug", "odd"}).Draw(t, "level")
		in.Issue.Deliveries = rapid.Int64Range(-1, 3).Draw(t, "deliveries")
	}
	if !often("event") {
		in.Event, in.Rules = someEvent(t), someRules(t)
		r1 := in.Repositories["repo-1"]
		r1.ID = "r1"
		in.Repositories["r1"] = r1
		in.Counts["r1"] = Counts{}
		if rapid.Bool().Draw(t, "none") {
			in.Event = nil
		}
	}
	in.EventAt, in.Newest = someTime(t, "seen"), often("newest")
	if !often("repository") {
		r := store.Repository{
			ID: "repo-1", InstallationID: rapid.Int64Range(0, 1).Draw(t, "installation"), GoneAt: maybeTime(t, "gone"), Archived: rapid.Bool().Draw(t, "archived"),
			Mode: rapid.SampledFrom([]string{"active", "observe", "paused", "odd"}).Draw(t, "repository's mode"), OpenFixCap: rapid.Int32Range(-1, 5).Draw(t, "fix cap"),
		}
		in.Repositories["repo-1"] = r
		in.Installations[1] = store.Installation{ID: 1, SuspendedAt: maybeTime(t, "suspended"), DeletedAt: maybeTime(t, "deleted")}
	}
	if !often("open") {
		r := someRun(t)
		in.Open = &r
	}
	for range rapid.IntRange(0, 2).Draw(t, "ended") {
		in.Ended = append(in.Ended, someRun(t))
	}
	switch rapid.IntRange(0, 5).Draw(t, "counts") {
	case 0:
		in.Counts = nil
	case 1, 2:
		in.Counts = map[errand.ID]Counts{"repo-1": someCounts(t)}
	}
	in.Forced = !often("unforced")
	return in
}

func TestEveryInputHasOneAnswerAndAReason(t *testing.T) {
	t.Parallel()
	seen := map[errand.Gate]bool{}
	rapid.Check(t, func(t *rapid.T) {
		in := someInput(t)
		d, target := Decide(in)
		again, targetAgain := Decide(in)
		if !reflect.DeepEqual(d, again) || !reflect.DeepEqual(target, targetAgain) {
			t.Fatalf("%+v and %+v", d, again)
		}
		seen[d.Gate] = true
		switch {
		case d.Gate == "" || !strings.HasSuffix(d.Detail, "."):
			t.Fatalf("no reason: %+v", d)
		case (target != nil) != (d.Outcome == errand.OutcomeRun):
			t.Fatalf("%s with target %+v", d.Outcome, target)
		case d.Outcome == errand.OutcomeRun && d.Gate != errand.GateOK && d.Gate != errand.GateObserve:
			t.Fatalf("it runs behind the gate %s", d.Gate)
		case d.Outcome != errand.OutcomeRun && (d.Gate == errand.GateOK || d.Gate == errand.GateObserve):
			t.Fatalf("%s, and no gate holds", d.Outcome)
		case d.Outcome != errand.OutcomeRun && d.Remedy == "" && d.Gate != errand.GateOutOfOrder:
			t.Fatalf("nothing says how to change %s", d.Gate)
		case len(d.Evidence) == 0 && d.Gate != errand.GateNoMapping && d.Gate != errand.GateNoStack:
			t.Fatalf("%s rests on nothing", d.Gate)
		}
		if until, err := time.Parse(time.RFC3339, d.Until); d.Until != "" && (err != nil || d.Outcome != errand.OutcomeWait || until.IsZero()) {
			t.Fatalf("%s until %q", d.Outcome, d.Until)
		}
	})
	if len(seen) < 12 {
		t.Errorf("the inputs met %d gates only: %v", len(seen), slices.Sorted(maps.Keys(seen)))
	}
}

func TestRaisingACapNeverStopsARun(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := someInput(t)
		before, _ := Decide(in)
		by := rapid.Int32Range(0, 100).Draw(t, "by")
		repo := in.Repositories["repo-1"]
		switch rapid.IntRange(0, 5).Draw(t, "which") {
		case 0:
			in.Org.DailyRunCap += by
		case 1:
			repo.OpenFixCap += by
			in.Repositories["repo-1"] = repo
		case 2:
			if in.Org.BreakerIssues > 0 {
				in.Org.BreakerIssues += by
			}
		case 3:
			in.Org.MaxAgeS = max(in.Org.MaxAgeS, in.Org.MaxAgeS+by) // not over the edge
		case 4:
			in.Org.CooldownS = max(in.Org.CooldownS-by, 0)
		case 5:
			for id, c := range in.Counts {
				c.Budgets = slices.Clone(c.Budgets)
				for i := range c.Budgets {
					c.Budgets[i].Limit = max(c.Budgets[i].Limit, c.Budgets[i].Limit+errand.Picodollars(by))
				}
				in.Counts[id] = c
			}
		}
		after, _ := Decide(in)
		if before.Outcome == errand.OutcomeRun && after.Outcome != errand.OutcomeRun {
			t.Fatalf("it ran, and with more room it does not: %+v", after)
		}
		if before.Outcome == errand.OutcomeWait && after.Outcome == errand.OutcomeSkip {
			t.Fatalf("it waited for %s, and with more room it is skipped: %+v", before.Gate, after)
		}
	})
}

func TestWhatIsNotKnownNeverRuns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := someInput(t)
		switch rapid.IntRange(0, 6).Draw(t, "unknown") {
		case 0:
			in.Counts = nil
		case 1:
			in.Event = nil
		case 2:
			clear(in.Repositories)
		case 3:
			clear(in.Installations)
		case 4:
			in.Rules = nil
		case 5:
			for id, c := range in.Counts {
				c.Budgets = append(slices.Clone(c.Budgets), runs.Budget{Limit: errand.Picodollars(1 << 62), Unpriced: 1})
				in.Counts[id] = c
			}
		case 6:
			in.Org.Mode = "unheard of"
		}
		if d, target := Decide(in); d.Outcome == errand.OutcomeRun || target != nil {
			t.Fatalf("it runs: %+v", d)
		}
	})
}

func TestObserveModeAnswersTheSameForAnyInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := someInput(t)
		in.Org.Mode = "active"
		in.Forced = false
		mode := func(m string) {
			for id, r := range in.Repositories {
				r.Mode = m
				in.Repositories[id] = r
			}
		}
		mode("active")
		plain, target := Decide(in)
		if rapid.Bool().Draw(t, "of the repository") {
			mode("observe")
		} else {
			in.Org.Mode = "observe"
		}
		observed, would := Decide(in)
		if plain.Outcome != observed.Outcome || plain.Detail != observed.Detail || plain.Until != observed.Until || !reflect.DeepEqual(target, would) {
			t.Fatalf("%+v, and observed %+v", plain, observed)
		}
		if plain.Outcome == errand.OutcomeRun && (!observed.Observed || observed.Gate != errand.GateObserve) {
			t.Fatalf("it would really run: %+v", observed)
		}
	})
}

func TestRunNowPassesNoPauseNoCapAndNoBudget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := someInput(t)
		in.Forced = true
		d, target := Decide(in)
		if d.Outcome != errand.OutcomeRun {
			return
		}
		repo, c := in.Repositories[target.Repository], in.Counts[target.Repository]
		if in.Org.Mode == "paused" || repo.Mode == "paused" || repo.Archived || repo.GoneAt != nil || in.Open != nil ||
			c.RunsToday >= int64(in.Org.DailyRunCap) || c.OpenFixes >= int64(repo.OpenFixCap) {
			t.Fatalf("it passed what may not be passed: %+v", d)
		}
		for _, b := range c.Budgets {
			if fits, known := b.Fits(errand.Picodollars(in.Org.RunCeilingPico)); !fits || !known {
				t.Fatalf("it passed the budget %+v", b)
			}
		}
	})
}
