package runnerapi_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/wire"
)

// at brings a new run to a state and gives its token.
func (o *tenant) at(state errand.RunState) (*errandRun, string) {
	o.w.t.Helper()
	r := o.dispatched()
	switch state {
	case errand.Dispatched:
		return r, r.token()
	case errand.Running:
		return r, r.running()
	default:
		return r, r.publishing(string(r.id))
	}
}

func TestAResultEndsTheRunWhereItsStateAllows(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	for _, c := range []struct {
		from, to errand.RunState
		reason   errand.Reason
		allowed  bool
	}{
		{errand.Publishing, errand.PROpened, "", true},
		{errand.Publishing, errand.Failed, errand.ReasonPRNotPermitted, true},
		{errand.Publishing, errand.Failed, errand.ReasonPushRefused, true},
		{errand.Publishing, errand.Failed, errand.ReasonAgentError, true},
		{errand.Publishing, errand.TimedOut, errand.ReasonLimits, true},
		{errand.Running, errand.NoFix, errand.ReasonNothingToFix, true},
		{errand.Running, errand.Failed, errand.ReasonProviderQuota, true},
		{errand.Running, errand.Failed, errand.ReasonWrongRepository, true},
		{errand.Running, errand.TimedOut, errand.ReasonLimits, true},
		{errand.Dispatched, errand.Failed, errand.ReasonAgentError, true},

		{errand.Running, errand.PROpened, "", false},                            // nothing was admitted
		{errand.Running, errand.Failed, errand.ReasonPushRefused, false},        // nothing was pushed
		{errand.Running, errand.Rejected, errand.ReasonClaimRejected, false},    // that is for a claim to bring about
		{errand.Publishing, errand.Rejected, errand.ReasonClaimRejected, false}, // it was admitted
		{errand.Dispatched, errand.NoFix, errand.ReasonNothingToFix, false},     // it has not looked
		{errand.Dispatched, errand.TimedOut, errand.ReasonLimits, false},
		{errand.Running, errand.Failed, "", false},
		{errand.Running, errand.Failed, errand.ReasonCancelledByPerson, false}, // not the runner's to say
		{errand.Running, errand.Failed, "because", false},
		{errand.Running, errand.NoFix, errand.ReasonAgentError, false},
		{errand.Running, errand.Cancelled, errand.ReasonCancelledByPerson, false},
	} {
		r, token := o.at(c.from)
		req := wire.ResultRequest{State: c.to, Reason: c.reason, Summary: "As far as I can see.", ToolCalls: 7, DurationMS: 90_000}
		if c.to == errand.PROpened {
			req.PullRequest = r.pullRequest(3)
		}
		got := w.post("result", token, req)
		if !c.allowed {
			if got.status != 422 {
				t.Errorf("%s -> %s %q: %d %s", c.from, c.to, c.reason, got.status, got.body)
			}
			r.wantState(c.from, "")
			if run := r.row(); run.Summary != "" || run.ResultDigest != nil || run.PRNumber != nil {
				t.Errorf("%s -> %s %q was refused, and left something", c.from, c.to, c.reason)
			}
			r.cancel()
			continue
		}
		var out wire.ResultResponse
		got.into(t, &out)
		if out.Run != r.id || out.State != c.to {
			t.Errorf("%s -> %s: answered %+v", c.from, c.to, out)
		}
		r.wantState(c.to, c.reason)
		run := r.row()
		if run.Summary != req.Summary || run.ToolCalls != 7 || run.FinishedAt == nil {
			t.Errorf("%s -> %s: kept %q, %d calls, finished %v", c.from, c.to, run.Summary, run.ToolCalls, run.FinishedAt)
		}
		if pr := req.PullRequest; pr != nil && (run.PRNumber == nil || *run.PRNumber != 3 || run.PRURL != pr.URL || run.Branch != pr.Branch) {
			t.Errorf("the pull request was kept as %v %s %s", run.PRNumber, run.PRURL, run.Branch)
		}
	}
}

func TestAPullRequestElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r, token := w.tenant("acme").at(errand.Publishing)
	good := *r.pullRequest(3)
	for name, change := range map[string]func(*wire.PullRequest){
		"in another repository":        func(p *wire.PullRequest) { p.URL = "https://github.com/globex/shop/pull/3" },
		"under another number":         func(p *wire.PullRequest) { p.URL = "https://github.com/acme/shop/pull/4" },
		"on another host":              func(p *wire.PullRequest) { p.URL = "https://github.example.net/acme/shop/pull/3" },
		"without encryption":           func(p *wire.PullRequest) { p.URL = "http://github.com/acme/shop/pull/3" },
		"on another port":              func(p *wire.PullRequest) { p.URL = "https://github.com:8443/acme/shop/pull/3" },
		"with a path in disguise":      func(p *wire.PullRequest) { p.URL = "https://github.com/acme%2Fshop/pull/3" },
		"with an empty query":          func(p *wire.PullRequest) { p.URL += "?" },
		"as a script":                  func(p *wire.PullRequest) { p.URL = "javascript:alert(1)//acme/shop/pull/3" },
		"with a user":                  func(p *wire.PullRequest) { p.URL = "https://github.com@evil.example/acme/shop/pull/3" },
		"with a query":                 func(p *wire.PullRequest) { p.URL += "?x=1" },
		"below a folder":               func(p *wire.PullRequest) { p.URL = "https://github.com/x/acme/shop/pull/3" },
		"from the base branch":         func(p *wire.PullRequest) { p.Branch = "main" },
		"from a branch that is ours":   func(p *wire.PullRequest) { p.Branch = "feature/x" },
		"from a branch without a name": func(p *wire.PullRequest) { p.Branch = "errand/" },
		"from a branch that climbs":    func(p *wire.PullRequest) { p.Branch = "errand/../main" },
	} {
		pr := good
		change(&pr)
		if got := w.post("result", token, wire.ResultRequest{State: errand.PROpened, PullRequest: &pr}); got.status != 422 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	// Where GitHub has said of which host the workflow run is, that is not believed over the deployment's own GitHub.
	other, itsToken := r.at(errand.Publishing)
	other.super("UPDATE runs SET workflow_run_url = 'https://github.example.net/acme/shop/actions/runs/991' WHERE id = $1", other.id)
	pr := *other.pullRequest(3)
	pr.URL = "https://github.example.net/acme/shop/pull/3"
	w.post("result", itsToken, wire.ResultRequest{State: errand.PROpened, PullRequest: &pr}).want(t, 422)
	w.post("result", token, wire.ResultRequest{State: errand.PROpened}).want(t, 422)
	w.post("result", token, wire.ResultRequest{State: errand.Failed, Reason: errand.ReasonPushRefused, PullRequest: &good}).want(t, 422)
	r.wantState(errand.Publishing, "")
	w.post("result", token, wire.ResultRequest{State: errand.PROpened, PullRequest: &good}).want(t, 200)
}

// D12: its answer was lost, so the runner says it again.
func TestD12_TheSameResultAgainIsAnsweredTheSameAndAnotherIsAConflict(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r, token := w.tenant("acme").at(errand.Publishing)
	req := wire.ResultRequest{
		State: errand.PROpened, Summary: "One fix.", PullRequest: r.pullRequest(3), ToolCalls: 4,
		Usage: []wire.UsageLine{usageOf(1, w.clock.now(), 100)}, Steps: []wire.Step{stepOf(1, w.clock.now())},
	}
	first := w.post("result", token, req).want(t, 200)
	version := r.row().Version
	if again := w.post("result", token, req).want(t, 200); again.body != first.body {
		t.Errorf("answered %s, and before %s", again.body, first.body)
	}
	req.Summary = "Another fix."
	got := w.post("result", token, req).want(t, 409)
	if !strings.Contains(got.body, `"state":"pr_opened"`) {
		t.Errorf("the conflict does not say where the run stands: %s", got.body)
	}
	if run := r.row(); run.Version != version || run.Summary != "One fix." {
		t.Errorf("version %d, summary %q", run.Version, run.Summary)
	}
	if got := r.totals(t); got.Lines != 1 || got.Steps != 1 {
		t.Errorf("%+v", got)
	}
}

// The claim ended the run; its runner still says what it was about.
func TestAResultCompletesWhatItsClaimEnded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	final := claimOf(1, "rejected", "a.js")
	final.Final = true
	w.post("claim", token, final).want(t, 200)
	w.post("result", token, wire.ResultRequest{State: errand.Rejected, Reason: errand.ReasonBlockedBy}).want(t, 409)
	req := wire.ResultRequest{State: errand.Rejected, Reason: errand.ReasonClaimRejected, Summary: "I tried.", Usage: []wire.UsageLine{usageOf(1, w.clock.now(), 100)}}
	for range 2 {
		w.post("result", token, req).want(t, 200)
	}
	if run := r.row(); run.Summary != "I tried." || run.State != errand.Rejected {
		t.Errorf("%s %q", run.State, run.Summary)
	}
	if r.totals(t).Lines != 1 {
		t.Error("what it spent was not kept")
	}
}

// D11: told apart, logged, and kept with what it said.
func TestD11_AResultAfterTheEndIsKeptAsEvidenceAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r, token := w.tenant("acme").at(errand.Publishing)
	r.cancel()
	before := r.row()
	req := wire.ResultRequest{State: errand.PROpened, Summary: "x", PullRequest: r.pullRequest(9), Usage: []wire.UsageLine{usageOf(1, w.clock.now(), 100)}}
	for range 3 {
		got := w.post("result", token, req).want(t, 409)
		if !strings.Contains(got.body, `"state":"cancelled"`) || !strings.Contains(got.body, `"code":"conflict"`) {
			t.Errorf("answered %s", got.body)
		}
	}
	if after := r.row(); after.State != errand.Cancelled || after.Version != before.Version || after.PRNumber != nil || after.ResultDigest != nil {
		t.Errorf("the run changed: %+v", after)
	}
	rows := r.journal(journal.KindLateEvidence)
	if len(rows) != 1 || !strings.Contains(rows[0], req.PullRequest.URL) {
		t.Errorf("evidence %v", rows)
	}
	if r.totals(t).Lines != 1 {
		t.Error("what it spent was not kept")
	}
}

// D7: a report that was read before the end and written after it must not bring the run back.
func TestD7_AReportThatRacesTheEndNeverUndoesIt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	for range 8 {
		r, token := o.at(errand.Running)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				got, err := w.try("progress", token, wire.ProgressRequest{Steps: []wire.Step{stepOf(i+1, w.clock.now())}})
				if err != nil || got.status != 200 {
					t.Errorf("%v %d %s", err, got.status, got.body)
				}
			})
		}
		wg.Go(func() {
			got, err := w.try("result", token, wire.ResultRequest{State: errand.NoFix, Reason: errand.ReasonNothingToFix, Summary: "Nothing."})
			if err != nil || got.status != 200 {
				t.Errorf("%v %d %s", err, got.status, got.body)
			}
		})
		wg.Wait()
		if run := r.row(); run.State != errand.NoFix || run.Summary != "Nothing." || run.FinishedAt == nil || r.totals(t).Steps != 4 {
			t.Errorf("%s %q, %+v", run.State, run.Summary, r.totals(t))
		}
	}
}

// D8: two writers that both read the old state must not both win.
func TestD8_AResultAndACancellationAtOnceGiveOneEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	for range 8 {
		r, token := o.at(errand.Publishing)
		req := wire.ResultRequest{State: errand.PROpened, PullRequest: r.pullRequest(3)}
		var got reply
		var reported, cancelled error
		var wg sync.WaitGroup
		wg.Go(func() { got, reported = w.try("result", token, req) })
		wg.Go(func() {
			cancelled = w.db.InTx(context.Background(), r.org, func(tx *store.Tx) error {
				_, err := w.runs.Fire(context.Background(), tx, r.id, runs.Move{
					Trigger: errand.TriggerCancel, To: errand.Cancelled, Reason: errand.ReasonCancelledByPerson, Actor: "test",
				}, nil)
				return err
			})
		})
		wg.Wait()
		if reported != nil {
			t.Fatal(reported)
		}
		run := r.row()
		switch run.State {
		case errand.PROpened:
			if got.status != 200 || cancelled == nil {
				t.Errorf("the result won: %d %s, %v", got.status, got.body, cancelled)
			}
		case errand.Cancelled:
			if got.status != 409 || cancelled != nil || len(r.journal(journal.KindLateEvidence)) != 1 || run.PRNumber != nil {
				t.Errorf("the cancellation won: %d %s, %v, %v", got.status, got.body, cancelled, r.journal(journal.KindLateEvidence))
			}
		default:
			t.Errorf("the run is %s", run.State)
		}
		if ends := strings.Count(strings.Join(r.journal(journal.KindTransition), "\n"), `"publishing"`); ends != 2 { // into it, and out of it once
			t.Errorf("its history names publishing %d times: %v", ends, r.journal(journal.KindTransition))
		}
	}
}
