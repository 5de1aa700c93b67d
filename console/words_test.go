package console

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/store"
)

func TestLengthsOfTimeInWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 ms", -time.Hour: "0 ms", 420 * time.Millisecond: "420 ms", 2 * time.Second: "2.0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 1 s",
		90 * time.Minute: "1 h 30 min", 49 * time.Hour: "2 d 1 h",
	} {
		if got := span(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		time.Second: "just now", -time.Second: "just now", 30 * time.Second: "30 s ago", 59 * time.Minute: "59 min ago", 47 * time.Hour: "47 h ago", 72 * time.Hour: "3 d ago",
		-2 * time.Hour: "in 2 h",
	} {
		if got := ago(now.Add(-d), now); got != want {
			t.Errorf("%s before now: %q, want %q", d, got, want)
		}
	}
}

func TestCountsAreGroupedByThree(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := count(n); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestOnlyAddressesOfTheWebBecomeLinks(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://github.example/a/b/pull/1": "https://github.example/a/b/pull/1", "http://127.0.0.1:9/x": "http://127.0.0.1:9/x",
		"": "", "javascript:alert(1)": "", "JavaScript:alert(1)": "", "data:text/html,x": "", "//evil.example": "", "/runs": "", "https:": "", "\x01https://x": "",
	} {
		if got := external(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// Words that the pages use must cover the closed lists of the root package.
func TestEveryGateAndStateHasWords(t *testing.T) {
	t.Parallel()
	for _, g := range []errand.Gate{
		errand.GateOK, errand.GateObserve, errand.GateOrgPaused, errand.GateRepoPaused, errand.GateLevelExcluded, errand.GateStale, errand.GateNoMapping,
		errand.GateAmbiguous, errand.GateMappingUnknown, errand.GateNoStack, errand.GateRepoUnknown, errand.GateRepoArchived, errand.GateRepoGone,
		errand.GateInstallationGone, errand.GateInstallationSuspended, errand.GateRepoBlocked, errand.GatePermissions, errand.GateNotCounted, errand.GateAlreadyFixed, errand.GateDeclined,
		errand.GateSameProblem, errand.GateBreaker, errand.GateOpenFixCap, errand.GateUnpriced, errand.GateBudget, errand.GateEnvironmentExcluded, errand.GateTooFew, errand.GateRunOpen, errand.GatePROpen, errand.GateCooldown,
		errand.GateDailyCap, errand.GateIssueNotAnError, errand.GateOutOfOrder,
	} {
		if _, ok := gateWords[g]; !ok {
			t.Errorf("gate %s has no words", g)
		}
	}
	if got := gateText("a_new_gate"); got != "a new gate" {
		t.Errorf("a gate without words: %q", got)
	}
	if got := reasonText("a_new_reason"); got != "a new reason" {
		t.Errorf("a reason without a sentence: %q", got)
	}
	for _, s := range append(append([]errand.RunState{}, way...), errand.PROpened, errand.NoFix, errand.Rejected, errand.Failed, errand.TimedOut, errand.Cancelled) {
		if l := stateLabel(s); l.Text == string(s) {
			t.Errorf("state %s has no words", s)
		}
	}
}

func TestTheTrackDrawsWhatTheHistorySays(t *testing.T) {
	t.Parallel()
	t0 := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	end := t0.Add(60 * time.Second)
	history := func(states ...errand.RunState) (out []entry) {
		for i, s := range states {
			out = append(out, entry{At: t0.Add(time.Duration(i) * 10 * time.Second), Transition: &journal.Transition{To: s}})
		}
		return out
	}
	const p, c, x, s, a, e = stationPassed, stationCurrent, stationStopped, stationSkipped, stationAhead, stationEnd
	for _, row := range []struct {
		name    string
		state   errand.RunState
		history []entry
		want    []stationStatus
	}{
		{"just made", errand.Queued, history(errand.Queued), []stationStatus{c, a, a, a, a, a, a}},
		{"sent back to the queue after an unclear answer", errand.Queued, history(errand.Queued, errand.Dispatching, errand.Queued), []stationStatus{c, a, a, a, a, a, a}},
		{"sent back once to be corrected", errand.Running, history(errand.Queued, errand.Dispatching, errand.Dispatched, errand.Running, errand.Checking, errand.Running), []stationStatus{p, p, p, c, a, a, a}},
		{"cancelled in the queue", errand.Cancelled, history(errand.Queued, errand.Cancelled), []stationStatus{x, s, s, s, s, s, e}},
		{"its pull request opened", errand.PROpened, history(errand.Queued, errand.Dispatching, errand.Dispatched, errand.Running, errand.Checking, errand.Publishing, errand.PROpened), []stationStatus{p, p, p, p, p, p, e}},
		{"ended, and no history is left", errand.PROpened, nil, []stationStatus{p, p, p, p, p, p, e}},
	} {
		run := store.Run{State: row.state}
		if row.state.Ended() {
			run.FinishedAt = &end
		}
		got := track(run, row.history, end)
		for i, want := range row.want {
			if got[i].Status != want {
				t.Errorf("%s: %s is %s, want %s", row.name, got[i].Label.Text, got[i].Status, want)
			}
		}
		if row.history == nil && !got[0].At.IsZero() {
			t.Errorf("%s: a time was made up", row.name)
		}
	}
	twice := track(store.Run{State: errand.Running}, history(errand.Queued, errand.Dispatching, errand.Dispatched, errand.Running, errand.Checking, errand.Running), end)
	if r := twice[3]; r.Times != 2 || r.Took != 20*time.Second || !r.At.Equal(t0.Add(50*time.Second)) {
		t.Errorf("running twice: %+v", r)
	}
}

func TestUnknownTokensAndMoneyStayUnknown(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	known := store.ConsoleRunUsageRow{Input: n(100), CacheRead: n(0), CacheWrite5m: n(30), CacheWrite1h: n(20), Output: n(50), AmountPico: n(5_000_000_000)}
	lost := store.ConsoleRunUsageRow{UnpricedReason: "never_arrived"}
	half := store.ConsoleRunUsageRow{Input: n(1), CacheRead: n(0), CacheWrite5m: n(1), Output: n(1), UnpricedReason: "partial"}
	for _, row := range []struct {
		name         string
		lines        []store.ConsoleRunUsageRow
		total, write string
	}{
		{"none", nil, "none reported", "0"},
		{"one known", []store.ConsoleRunUsageRow{known}, "$0.0050", "50"},
		{"one lost", []store.ConsoleRunUsageRow{lost}, "unknown (1 request unpriced)", "unknown"},
		{"one of each", []store.ConsoleRunUsageRow{known, lost}, "at least $0.0050, 1 request unpriced", "at least 50"},
		{"half of the cache writes", []store.ConsoleRunUsageRow{half}, "unknown (1 request unpriced)", "unknown"},
		{"more money than fits", []store.ConsoleRunUsageRow{{AmountPico: n(math.MaxInt64)}, {AmountPico: n(1)}}, "unknown: amount of money out of range", "unknown"},
	} {
		u := sumUsage(row.lines)
		if got := u.Total(); got != row.total {
			t.Errorf("%s: total %q, want %q", row.name, got, row.total)
		}
		if got := u.Buckets[2].Text(); got != row.write {
			t.Errorf("%s: cache writes %q, want %q", row.name, got, row.write)
		}
	}
	if got := []string{tokens(nil), tokens(n(0)), amountText(lost), amountText(known)}; !slices.Equal(got, []string{"unknown", "0", "unpriced", "$0.005000"}) {
		t.Errorf("one request: %v", got)
	}
	if b := sumUsage([]store.ConsoleRunUsageRow{known}).Buckets; b[0].Width != 500 || b[2].Left != 500 || b[3].Left+b[3].Width != timeline {
		t.Errorf("the bar: %+v", b)
	}
}
