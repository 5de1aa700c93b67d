package dispatch

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	t := noon.Add(-d)
	return &t
}

// fine is an input that runs: each test spoils it.
func fine() Input {
	return Input{
		Now: noon,
		Org: store.Organisation{
			Mode: "active", DailyRunCap: 25, CooldownS: 86400, MaxAgeS: 14 * 86400, MinLevel: "error", MinEvents: 1,
			BreakerIssues: 5, BreakerWindowS: 600, RunCeilingPico: dollar(5),
		},
		Issue: store.Issue{ID: "i", Status: "open", Level: "error", StatusAt: noon.Add(-time.Hour), Deliveries: 1},
		Event: crash(file("/srv/app/cart.py")), EventAt: noon.Add(-time.Minute), Newest: true,
		Rules:         []store.Mapping{root(1, "/srv/app", "src")},
		Repositories:  map[errand.ID]store.Repository{"repo-1": {ID: "repo-1", InstallationID: 1, Owner: "acme", Name: "shop", DefaultBranch: "trunk", Mode: "active", OpenFixCap: 5}},
		Installations: map[int64]store.Installation{1: {ID: 1}},
		Counts:        map[errand.ID]Counts{"repo-1": {}},
	}
}

func dollar(n int64) int64 { return n * 1_000_000_000_000 }

func withCounts(in *Input, change func(*Counts)) {
	c := in.Counts["repo-1"]
	change(&c)
	in.Counts["repo-1"] = c
}

// fated is a run whose pull request was opened some days ago, and what was said of it and how long ago.
func fated(fate errand.PRFate, since time.Duration) store.Run {
	r := ended(errand.PROpened, "", 5*24*time.Hour)
	r.PRFate, r.PRFateAt, r.PRFateFrom = fate, ago(since), "runner"
	return r
}

// newIssues gives n times of new issues, the newest first, a minute apart.
func newIssues(n int) (out []time.Time) {
	for i := range n {
		out = append(out, *ago(time.Duration(i+1) * time.Minute))
	}
	return out
}

func spent(limit, spent int64, unpriced int64) []runs.Budget {
	return []runs.Budget{{
		Scope: "organisation, day", Limit: errand.Picodollars(dollar(limit)), Spent: errand.Picodollars(dollar(spent)), Unpriced: unpriced,
		Until: runs.Day(noon).AddDate(0, 0, 1),
	}}
}

func withRepo(in *Input, change func(*store.Repository)) {
	r := in.Repositories["repo-1"]
	change(&r)
	in.Repositories["repo-1"] = r
}

func ended(state errand.RunState, reason errand.Reason, since time.Duration) store.Run {
	number := int32(9)
	return store.Run{ID: "r", State: state, Reason: reason, FinishedAt: ago(since), PRNumber: &number, PRURL: "https://github.example/9"}
}

type decisionCase struct {
	says    string
	spoil   func(*Input)
	outcome errand.Outcome
	gate    errand.Gate
	until   *time.Time
	forced  errand.Gate // what "Run now" gets
}

func decisionCases() []decisionCase {
	in := func(d time.Duration) *time.Time { return ago(-d) }
	return []decisionCase{
		{"nothing is in the way", func(*Input) {}, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"the organisation is paused", func(i *Input) { i.Org.Mode = "paused" }, errand.OutcomeSkip, errand.GateOrgPaused, nil, errand.GateOrgPaused},
		{"the issue is ignored", func(i *Input) { i.Issue.Status = "ignored" }, errand.OutcomeSkip, errand.GateIssueNotAnError, nil, errand.GateOK},
		{"no event is known", func(i *Input) { i.Event = nil }, errand.OutcomeSkip, errand.GateNoStack, nil, errand.GateNoStack},
		{"A13 an older event came after a newer one", func(i *Input) { i.Newest = false }, errand.OutcomeSkip, errand.GateOutOfOrder, nil, errand.GateOK},
		{"a warning", func(i *Input) { i.Issue.Level = "warning" }, errand.OutcomeSkip, errand.GateLevelExcluded, nil, errand.GateOK},
		{"a warning where warnings are wanted", func(i *Input) { i.Issue.Level, i.Org.MinLevel = "warning", "warning" }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a fatal error", func(i *Input) { i.Issue.Level = "fatal" }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a level that nobody told", func(i *Input) { i.Issue.Level = "" }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a level of another tracker's words", func(i *Input) { i.Issue.Level = "critical" }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"an event of fifteen days", func(i *Input) { i.EventAt = *ago(15 * 24 * time.Hour) }, errand.OutcomeSkip, errand.GateStale, nil, errand.GateOK},
		{"an event of fourteen days to the second", func(i *Input) { i.EventAt = *ago(14 * 24 * time.Hour) }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"no rule applies", func(i *Input) { i.Rules = nil }, errand.OutcomeSkip, errand.GateNoMapping, nil, errand.GateNoMapping},
		{"two rules apply equally", func(i *Input) { i.Rules = append(i.Rules, root(2, "/srv/app", "")) }, errand.OutcomeSkip, errand.GateAmbiguous, nil, errand.GateAmbiguous},
		{"frames without folders", func(i *Input) { i.Event = crash(file("cart.py")) }, errand.OutcomeSkip, errand.GateMappingUnknown, nil, errand.GateMappingUnknown},
		{"B1 no frames", func(i *Input) { i.Event = crash() }, errand.OutcomeSkip, errand.GateNoStack, nil, errand.GateNoStack},
		{"the organisation's mode is not known", func(i *Input) { i.Org.Mode = "careful" }, errand.OutcomeSkip, errand.GateOrgPaused, nil, errand.GateOrgPaused},
		{"an excluded environment", func(i *Input) {
			i.Event.Environment, i.Org.ExcludedEnvironments = "Staging", []string{"dev", "staging"}
		}, errand.OutcomeSkip, errand.GateEnvironmentExcluded, nil, errand.GateOK},
		{"another environment than the excluded", func(i *Input) { i.Event.Environment, i.Org.ExcludedEnvironments = "production", []string{"dev"} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"an environment that nobody told", func(i *Input) { i.Org.ExcludedEnvironments = []string{"dev", ""} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"seen once where three times are wanted", func(i *Input) { i.Org.MinEvents = 3 }, errand.OutcomeSkip, errand.GateTooFew, nil, errand.GateOK},
		{"seen three times where three are wanted", func(i *Input) { i.Org.MinEvents, i.Issue.Deliveries = 3, 3 }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a regression: resolved, and seen again later", func(i *Input) { i.Issue.Status = "resolved"; i.EventAt = noon }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"resolved after this event was seen", func(i *Input) { i.Issue.Status, i.Issue.StatusAt = "resolved", noon }, errand.OutcomeSkip, errand.GateIssueNotAnError, nil, errand.GateOK},
		{"the repository is not connected", func(i *Input) { delete(i.Repositories, "repo-1") }, errand.OutcomeSkip, errand.GateRepoUnknown, nil, errand.GateRepoUnknown},
		{"the repository is archived", func(i *Input) { withRepo(i, func(r *store.Repository) { r.Archived = true }) }, errand.OutcomeSkip, errand.GateRepoArchived, nil, errand.GateRepoArchived},
		{"the repository is gone", func(i *Input) { withRepo(i, func(r *store.Repository) { r.GoneAt = ago(0) }) }, errand.OutcomeSkip, errand.GateRepoGone, nil, errand.GateRepoGone},
		{"the installation is suspended", func(i *Input) { i.Installations[1] = store.Installation{SuspendedAt: ago(0)} }, errand.OutcomeSkip, errand.GateInstallationSuspended, nil, errand.GateInstallationSuspended},
		{"the installation is deleted", func(i *Input) { i.Installations[1] = store.Installation{DeletedAt: ago(0)} }, errand.OutcomeSkip, errand.GateInstallationGone, nil, errand.GateInstallationGone},
		{"the installation is not the organisation's", func(i *Input) { delete(i.Installations, 1) }, errand.OutcomeSkip, errand.GateInstallationGone, nil, errand.GateInstallationGone},
		{"GitHub blocked the repository", func(i *Input) { withRepo(i, func(r *store.Repository) { r.BlockedAt = ago(0) }) }, errand.OutcomeSkip, errand.GateRepoBlocked, nil, errand.GateRepoBlocked},
		{"the installation grants Contents", func(i *Input) {
			i.Installations[1] = store.Installation{Permissions: "fail", PermissionsExtra: []string{"contents: read"}}
		}, errand.OutcomeSkip, errand.GatePermissions, nil, errand.GatePermissions},
		{"the installation grants Contents, and the operator allows it", func(i *Input) {
			i.Installations[1] = store.Installation{Permissions: "fail", PermissionsExtra: []string{"contents: read"}}
			i.AllowExtraPermissions = true
		}, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"the installation lacks Actions, whatever the operator allows", func(i *Input) {
			i.Installations[1] = store.Installation{Permissions: "fail", PermissionsMissing: []string{"actions: write"}}
			i.AllowExtraPermissions = true
		}, errand.OutcomeSkip, errand.GatePermissions, nil, errand.GatePermissions},
		{"what the installation grants is not known yet", func(i *Input) { i.Installations[1] = store.Installation{Permissions: "unknown"} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"the repository is paused", func(i *Input) { withRepo(i, func(r *store.Repository) { r.Mode = "paused" }) }, errand.OutcomeSkip, errand.GateRepoPaused, nil, errand.GateRepoPaused},
		{"a run is under way", func(i *Input) { i.Open = &store.Run{ID: "r", State: errand.Running} }, errand.OutcomeWait, errand.GateRunOpen, nil, errand.GateRunOpen},
		{"a pull request stands", func(i *Input) { i.Ended = []store.Run{ended(errand.PROpened, "", 48*time.Hour)} }, errand.OutcomeWait, errand.GatePROpen, in(12 * 24 * time.Hour), errand.GateOK},
		{"a pull request stands behind a later failure", func(i *Input) {
			i.Ended = []store.Run{ended(errand.Failed, errand.ReasonAgentError, 47*time.Hour), ended(errand.PROpened, "", 48*time.Hour)}
		}, errand.OutcomeWait, errand.GatePROpen, in(12 * 24 * time.Hour), errand.GateOK},
		{"a pull request of which nothing was heard for long", func(i *Input) { i.Ended = []store.Run{ended(errand.PROpened, "", 14*24*time.Hour)} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a pull request that was seen open a day ago", func(i *Input) {
			i.Ended = []store.Run{ended(errand.PROpened, "", 20*24*time.Hour)}
			i.Ended[0].PRFate, i.Ended[0].PRFateAt = errand.FateOpen, ago(24*time.Hour)
		}, errand.OutcomeWait, errand.GatePROpen, in(13 * 24 * time.Hour), errand.GateOK},
		{"a regression: merged, and seen again later", func(i *Input) { i.Ended = []store.Run{fated(errand.FateMerged, time.Hour)} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"merged after this event was seen", func(i *Input) { i.Ended = []store.Run{fated(errand.FateMerged, 0)} }, errand.OutcomeSkip, errand.GateAlreadyFixed, nil, errand.GateOK},
		{"a person declined the last fix", func(i *Input) { i.Ended = []store.Run{fated(errand.FateDeclined, time.Hour)} }, errand.OutcomeSkip, errand.GateDeclined, nil, errand.GateOK},
		{"a person closed the last fix on GitHub", func(i *Input) { i.Ended = []store.Run{fated(errand.FateClosed, time.Hour)} }, errand.OutcomeSkip, errand.GateDeclined, nil, errand.GateOK},
		{"a fix declined before a later failure", func(i *Input) {
			i.Ended = []store.Run{ended(errand.Failed, errand.ReasonAgentError, 25*time.Hour), fated(errand.FateDeclined, 30*time.Hour)}
		}, errand.OutcomeSkip, errand.GateDeclined, nil, errand.GateOK},
		{"a fix declined, and a later one merged", func(i *Input) {
			i.Ended = []store.Run{fated(errand.FateMerged, time.Hour), fated(errand.FateDeclined, 3*time.Hour)}
		}, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"another issue's run works on the same problem", func(i *Input) {
			withCounts(i, func(c *Counts) { c.Same = &store.Run{ID: "r", IssueID: "j", State: errand.Running} })
		}, errand.OutcomeWait, errand.GateSameProblem, nil, errand.GateOK},
		{"another issue's pull request stands for the same problem", func(i *Input) {
			r := ended(errand.PROpened, "", 24*time.Hour)
			withCounts(i, func(c *Counts) { c.Same = &r })
		}, errand.OutcomeWait, errand.GateSameProblem, in(13 * 24 * time.Hour), errand.GateOK},
		{"another issue's pull request for the same problem was merged", func(i *Input) {
			r := fated(errand.FateMerged, time.Hour)
			withCounts(i, func(c *Counts) { c.Same = &r })
		}, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a run ended an hour ago", func(i *Input) { i.Ended = []store.Run{ended(errand.NoFix, errand.ReasonNothingToFix, time.Hour)} }, errand.OutcomeWait, errand.GateCooldown, in(23 * time.Hour), errand.GateOK},
		{"a run ended a day ago", func(i *Input) { i.Ended = []store.Run{ended(errand.NoFix, errand.ReasonNothingToFix, 24*time.Hour)} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a run never got to GitHub", func(i *Input) { i.Ended = []store.Run{ended(errand.Failed, errand.ReasonNotDispatched, time.Hour)} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a run never got to GitHub, another failed before it", func(i *Input) {
			i.Ended = []store.Run{ended(errand.Failed, errand.ReasonNothingFound, time.Hour), ended(errand.Failed, errand.ReasonAgentError, 2*time.Hour)}
		}, errand.OutcomeWait, errand.GateCooldown, in(22 * time.Hour), errand.GateOK},
		{"five issues are new within ten minutes", func(i *Input) { withCounts(i, func(c *Counts) { c.NewIssues = newIssues(5) }) }, errand.OutcomeWait, errand.GateBreaker, in(5 * time.Minute), errand.GateOK},
		{"four issues are new within ten minutes", func(i *Input) { withCounts(i, func(c *Counts) { c.NewIssues = newIssues(4) }) }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"five issues were new and the fifth is ten minutes old", func(i *Input) {
			withCounts(i, func(c *Counts) { c.NewIssues = append(newIssues(4), *ago(10 * time.Minute)) })
		}, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"five issues are new where the breaker is off", func(i *Input) {
			i.Org.BreakerIssues = 0
			withCounts(i, func(c *Counts) { c.NewIssues = newIssues(5) })
		}, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"five fixes are open", func(i *Input) { withCounts(i, func(c *Counts) { c.OpenFixes = 5 }) }, errand.OutcomeWait, errand.GateOpenFixCap, nil, errand.GateOpenFixCap},
		{"four fixes are open", func(i *Input) { withCounts(i, func(c *Counts) { c.OpenFixes = 4 }) }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"no open fix is allowed", func(i *Input) { withRepo(i, func(r *store.Repository) { r.OpenFixCap = 0 }) }, errand.OutcomeWait, errand.GateOpenFixCap, nil, errand.GateOpenFixCap},
		{"the day's runs are used up", func(i *Input) { withCounts(i, func(c *Counts) { c.RunsToday = 25 }) }, errand.OutcomeWait, errand.GateDailyCap, in(12 * time.Hour), errand.GateDailyCap},
		{"one run of the day is left", func(i *Input) { withCounts(i, func(c *Counts) { c.RunsToday = 24 }) }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"the cap is zero", func(i *Input) { i.Org.DailyRunCap = 0 }, errand.OutcomeWait, errand.GateDailyCap, nil, errand.GateDailyCap},
		{"the budget has room for what a run reserves", func(i *Input) { withCounts(i, func(c *Counts) { c.Budgets = spent(20, 15, 0) }) }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"the budget has less room than a run reserves", func(i *Input) { withCounts(i, func(c *Counts) { c.Budgets = spent(20, 16, 0) }) }, errand.OutcomeWait, errand.GateBudget, in(12 * time.Hour), errand.GateBudget},
		{"E10 usage without a price is not free", func(i *Input) { withCounts(i, func(c *Counts) { c.Budgets = spent(20, 0, 1) }) }, errand.OutcomeWait, errand.GateUnpriced, in(12 * time.Hour), errand.GateUnpriced},
		{"a sum out of range", func(i *Input) {
			withCounts(i, func(c *Counts) { c.Budgets = spent(20, 9_000_000, 0) })
			i.Org.RunCeilingPico = dollar(9_000_000)
		}, errand.OutcomeWait, errand.GateBudget, in(12 * time.Hour), errand.GateBudget},
		{"what the caps need was not counted", func(i *Input) { i.Counts = nil }, errand.OutcomeWait, errand.GateNotCounted, in(time.Minute), errand.GateNotCounted},
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, tt := range decisionCases() {
		in := fine()
		tt.spoil(&in)
		d, target := Decide(in)
		if d.Outcome != tt.outcome || d.Gate != tt.gate || d.Observed {
			t.Errorf("%s: %s, %s (%s); want %s, %s", tt.says, d.Outcome, d.Gate, d.Detail, tt.outcome, tt.gate)
		}
		until := ""
		if tt.until != nil {
			until = tt.until.Format(time.RFC3339)
		}
		if d.Until != until {
			t.Errorf("%s: until %q, want %q", tt.says, d.Until, until)
		}
		if (target != nil) != (d.Outcome == errand.OutcomeRun) {
			t.Errorf("%s: %s with target %+v", tt.says, d.Outcome, target)
		}
		if !strings.HasSuffix(d.Detail, ".") || len(d.Evidence) == 0 && d.Gate != errand.GateNoMapping && d.Gate != errand.GateNoStack {
			t.Errorf("%s: detail %q, evidence %v", tt.says, d.Detail, d.Evidence)
		}
		if d.Outcome != errand.OutcomeRun && d.Remedy == "" && d.Gate != errand.GateOutOfOrder {
			t.Errorf("%s: nothing says how to change it", tt.says)
		}
		in.Forced = true
		if d, _ := Decide(in); d.Gate != tt.forced {
			t.Errorf("%s, and a person pressed Run now: %s, want %s", tt.says, d.Gate, tt.forced)
		}
	}
}

func TestObserveModeDecidesTheSame(t *testing.T) {
	t.Parallel()
	for name, observe := range map[string]func(*Input){
		"organisation": func(i *Input) { i.Org.Mode = "observe" },
		"repository":   func(i *Input) { withRepo(i, func(r *store.Repository) { r.Mode = "observe" }) },
	} {
		for _, tt := range decisionCases() {
			in := fine()
			observe(&in)
			tt.spoil(&in)
			d, target := Decide(in)
			wantGate := tt.gate
			if wantGate == errand.GateOK {
				wantGate = errand.GateObserve
			}
			if d.Outcome != tt.outcome || d.Gate != wantGate || (target != nil) != (tt.outcome == errand.OutcomeRun) {
				t.Errorf("%s in observe mode, %s: %s, %s", name, tt.says, d.Outcome, d.Gate)
			}
			if d.Outcome == errand.OutcomeRun && !d.Observed {
				t.Errorf("%s in observe mode, %s: it would really run", name, tt.says)
			}
		}
	}
	in := fine()
	in.Org.Mode, in.Forced = "observe", true
	if d, _ := Decide(in); d.Observed || d.Outcome != errand.OutcomeRun {
		t.Errorf("Run now in observe mode: %+v", d)
	}
}

func TestTheTargetIsTheRules(t *testing.T) {
	t.Parallel()
	in := fine()
	_, target := Decide(in)
	want := Target{Rule: "rule-1", Repository: "repo-1", WorkflowFile: "errand.yml", Ref: "trunk", StackRoot: "/srv/app", SourceRoot: "src"}
	if *target != want {
		t.Errorf("%+v", *target)
	}
	in.Rules[0].Ref, in.Rules[0].BaseDir = "release", "services/shop"
	want.Ref, want.BaseDir = "release", "services/shop"
	if _, target = Decide(in); *target != want {
		t.Errorf("%+v", *target)
	}
}

// TestGatesInOrder spoils everything at once, and then mends one gate after the other.
func TestGatesInOrder(t *testing.T) {
	t.Parallel()
	in := fine()
	good := fine()
	in.Org.Mode, in.Issue.Status, in.Newest, in.Issue.Level, in.EventAt = "paused", "resolved", false, "debug", *ago(1000 * time.Hour)
	in.Event.Environment, in.Org.ExcludedEnvironments, in.Org.MinEvents = "dev", []string{"dev"}, 2
	in.Rules, in.Open = nil, &store.Run{State: errand.Queued}
	in.Ended = []store.Run{ended(errand.PROpened, "", time.Hour)}
	in.Counts["repo-1"] = Counts{
		RunsToday: 99, OpenFixes: 99, NewIssues: newIssues(5), Same: &store.Run{ID: "s", IssueID: "j", State: errand.Queued}, Budgets: spent(1, 1, 1),
	}
	late := func(fate errand.PRFate) func() {
		return func() { in.Ended[0].PRFate, in.Ended[0].PRFateAt = fate, ago(0) }
	}
	withRepo(&in, func(r *store.Repository) { r.Archived, r.Mode = true, "paused" })
	for _, step := range []struct {
		gate errand.Gate
		mend func()
	}{
		{errand.GateOrgPaused, func() { in.Org.Mode = "active" }},
		{errand.GateIssueNotAnError, func() { in.Issue.Status = "open" }},
		{errand.GateOutOfOrder, func() { in.Newest = true }},
		{errand.GateLevelExcluded, func() { in.Issue.Level = "error" }},
		{errand.GateEnvironmentExcluded, func() { in.Org.ExcludedEnvironments = nil }},
		{errand.GateTooFew, func() { in.Org.MinEvents = 1 }},
		{errand.GateStale, func() { in.EventAt = good.EventAt }},
		{errand.GateNoMapping, func() { in.Rules = good.Rules }},
		{errand.GateRepoArchived, func() { withRepo(&in, func(r *store.Repository) { r.Archived = false }) }},
		{errand.GateRepoPaused, func() { withRepo(&in, func(r *store.Repository) { r.Mode = "active" }) }},
		{errand.GateRunOpen, func() { in.Open = nil }},
		{errand.GatePROpen, late(errand.FateMerged)},
		{errand.GateAlreadyFixed, late(errand.FateDeclined)},
		{errand.GateDeclined, func() { in.Ended[0].State = errand.NoFix }},
		{errand.GateSameProblem, func() { withCounts(&in, func(c *Counts) { c.Same = nil }) }},
		{errand.GateCooldown, func() { in.Ended = nil }},
		{errand.GateBreaker, func() { withCounts(&in, func(c *Counts) { c.NewIssues = nil }) }},
		{errand.GateOpenFixCap, func() { withCounts(&in, func(c *Counts) { c.OpenFixes = 0 }) }},
		{errand.GateDailyCap, func() { withCounts(&in, func(c *Counts) { c.RunsToday = 0 }) }},
		{errand.GateUnpriced, func() { withCounts(&in, func(c *Counts) { c.Budgets = spent(1, 1, 0) }) }},
		{errand.GateBudget, func() { withCounts(&in, func(c *Counts) { c.Budgets = nil }) }},
		{errand.GateOK, func() {}},
	} {
		if d, _ := Decide(in); d.Gate != step.gate {
			t.Fatalf("%s, want %s", d.Gate, step.gate)
		}
		step.mend()
	}
}

func TestDecideIsAFunctionOfItsInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := fine()
		in.Event, in.Rules = someEvent(t), someRules(t)
		in.Repositories["r1"], in.Repositories["r2"] = in.Repositories["repo-1"], in.Repositories["repo-1"]
		a, x := Decide(in)
		b, y := Decide(in)
		if a.Gate != b.Gate || a.Detail != b.Detail || (x == nil) != (y == nil) || x != nil && *x != *y {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}
