package dispatch

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errand-dev/errand"
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
		Now:   noon,
		Org:   store.Organisation{Mode: "active", DailyRunCap: 25, CooldownS: 86400, MaxAgeS: 14 * 86400, MinLevel: "error"},
		Issue: store.Issue{ID: "i", Status: "open", Level: "error", StatusAt: noon},
		Event: crash(file("/srv/app/cart.py")), EventAt: noon.Add(-time.Minute), Newest: true,
		Rules:         []store.Mapping{root(1, "/srv/app", "src")},
		Repositories:  map[errand.ID]store.Repository{"repo-1": {ID: "repo-1", InstallationID: 1, Owner: "acme", Name: "shop", DefaultBranch: "trunk", Mode: "active"}},
		Installations: map[int64]store.Installation{1: {ID: 1}},
	}
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
		{"the issue is resolved", func(i *Input) { i.Issue.Status = "resolved" }, errand.OutcomeSkip, errand.GateIssueNotAnError, nil, errand.GateOK},
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
		{"the repository is not connected", func(i *Input) { delete(i.Repositories, "repo-1") }, errand.OutcomeSkip, errand.GateRepoUnusable, nil, errand.GateRepoUnusable},
		{"the repository is archived", func(i *Input) { withRepo(i, func(r *store.Repository) { r.Archived = true }) }, errand.OutcomeSkip, errand.GateRepoUnusable, nil, errand.GateRepoUnusable},
		{"the repository is gone", func(i *Input) { withRepo(i, func(r *store.Repository) { r.GoneAt = ago(0) }) }, errand.OutcomeSkip, errand.GateRepoUnusable, nil, errand.GateRepoUnusable},
		{"the installation is suspended", func(i *Input) { i.Installations[1] = store.Installation{SuspendedAt: ago(0)} }, errand.OutcomeSkip, errand.GateRepoUnusable, nil, errand.GateRepoUnusable},
		{"the installation is deleted", func(i *Input) { i.Installations[1] = store.Installation{DeletedAt: ago(0)} }, errand.OutcomeSkip, errand.GateRepoUnusable, nil, errand.GateRepoUnusable},
		{"the installation is not the organisation's", func(i *Input) { delete(i.Installations, 1) }, errand.OutcomeSkip, errand.GateRepoUnusable, nil, errand.GateRepoUnusable},
		{"the repository is paused", func(i *Input) { withRepo(i, func(r *store.Repository) { r.Mode = "paused" }) }, errand.OutcomeSkip, errand.GateRepoPaused, nil, errand.GateRepoPaused},
		{"a run is under way", func(i *Input) { i.Open = &store.Run{ID: "r", State: errand.Running} }, errand.OutcomeWait, errand.GateRunOpen, nil, errand.GateRunOpen},
		{"a pull request stands", func(i *Input) { i.Ended = []store.Run{ended(errand.PROpened, "", 48*time.Hour)} }, errand.OutcomeWait, errand.GatePROpen, in(12 * 24 * time.Hour), errand.GateOK},
		{"a pull request stands behind a later failure", func(i *Input) {
			i.Ended = []store.Run{ended(errand.Failed, errand.ReasonAgentError, 47*time.Hour), ended(errand.PROpened, "", 48*time.Hour)}
		}, errand.OutcomeWait, errand.GatePROpen, in(12 * 24 * time.Hour), errand.GateOK},
		{"a pull request of which nothing was heard for long", func(i *Input) { i.Ended = []store.Run{ended(errand.PROpened, "", 14*24*time.Hour)} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a run ended an hour ago", func(i *Input) { i.Ended = []store.Run{ended(errand.NoFix, errand.ReasonNothingToFix, time.Hour)} }, errand.OutcomeWait, errand.GateCooldown, in(23 * time.Hour), errand.GateOK},
		{"a run ended a day ago", func(i *Input) { i.Ended = []store.Run{ended(errand.NoFix, errand.ReasonNothingToFix, 24*time.Hour)} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a run never got to GitHub", func(i *Input) { i.Ended = []store.Run{ended(errand.Failed, errand.ReasonNotDispatched, time.Hour)} }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"a run never got to GitHub, another failed before it", func(i *Input) {
			i.Ended = []store.Run{ended(errand.Failed, errand.ReasonNothingFound, time.Hour), ended(errand.Failed, errand.ReasonAgentError, 2*time.Hour)}
		}, errand.OutcomeWait, errand.GateCooldown, in(22 * time.Hour), errand.GateOK},
		{"the day's runs are used up", func(i *Input) { i.RunsToday = 25 }, errand.OutcomeWait, errand.GateDailyCap, in(12 * time.Hour), errand.GateDailyCap},
		{"one run of the day is left", func(i *Input) { i.RunsToday = 24 }, errand.OutcomeRun, errand.GateOK, nil, errand.GateOK},
		{"the cap is zero", func(i *Input) { i.Org.DailyRunCap = 0 }, errand.OutcomeWait, errand.GateDailyCap, nil, errand.GateDailyCap},
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
	in.Rules, in.RunsToday, in.Open = nil, 99, &store.Run{State: errand.Queued}
	in.Ended = []store.Run{ended(errand.PROpened, "", time.Hour)}
	withRepo(&in, func(r *store.Repository) { r.Archived, r.Mode = true, "paused" })
	for _, step := range []struct {
		gate errand.Gate
		mend func()
	}{
		{errand.GateOrgPaused, func() { in.Org.Mode = "active" }},
		{errand.GateIssueNotAnError, func() { in.Issue.Status = "open" }},
		{errand.GateOutOfOrder, func() { in.Newest = true }},
		{errand.GateLevelExcluded, func() { in.Issue.Level = "error" }},
		{errand.GateStale, func() { in.EventAt = good.EventAt }},
		{errand.GateNoMapping, func() { in.Rules = good.Rules }},
		{errand.GateRepoUnusable, func() { withRepo(&in, func(r *store.Repository) { r.Archived = false }) }},
		{errand.GateRepoPaused, func() { withRepo(&in, func(r *store.Repository) { r.Mode = "active" }) }},
		{errand.GateRunOpen, func() { in.Open = nil }},
		{errand.GatePROpen, func() { in.Ended[0].State = errand.NoFix }},
		{errand.GateCooldown, func() { in.Ended = nil }},
		{errand.GateDailyCap, func() { in.RunsToday = 0 }},
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
