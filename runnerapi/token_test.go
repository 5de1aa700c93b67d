package runnerapi_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/wire"
)

func (r *errandRun) super(sql string, args ...any) {
	r.w.t.Helper()
	r.w.super(func(ctx context.Context, c *pgx.Conn) {
		if _, err := c.Exec(ctx, sql, args...); err != nil {
			r.w.t.Fatal(err)
		}
	})
}

// calls are the four that need a token, each with a body that is good.
func calls(r *errandRun) map[string]any {
	return map[string]any{
		"start":    wire.StartRequest{Repository: "x/y", RepositoryID: r.github},
		"progress": wire.ProgressRequest{Steps: []wire.Step{stepOf(1, r.w.clock.now())}},
		"claim":    claimOf(1, "verified", "src/cart.js"),
		"result":   wire.ResultRequest{State: errand.Failed, Reason: errand.ReasonAgentError},
	}
}

func stepOf(seq int, at time.Time) wire.Step {
	return wire.Step{Seq: seq, At: at, Tool: "get_file_contents", Path: "src/cart.js", Outcome: "ok", Count: 40, DurationMS: 3}
}

func TestARunTokenIsRefusedAndToldApartInTheMetricOnly(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	now := w.clock.now()
	r := o.dispatched()
	good := r.running()
	unexchanged := o.dispatched()
	mint := func(k *runtoken.Keys, run errand.ID, attempt int, expires time.Time) string {
		s, err := k.Token(run, attempt, runtoken.RoleAll, expires)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	others, err := runtoken.NewKeys(runtoken.Key("another-secret-0123456789abcdefghij"))
	if err != nil {
		t.Fatal(err)
	}
	later := now.Add(time.Hour)
	cases := []struct{ name, token, label string }{
		{"no token", "", "missing"},
		{"not a token", "sesame", "malformed"},
		{"its ticket", r.ticket, "wrong_audience"},
		{"of another key", mint(others, r.id, 1, later), "unknown_key"},
		{"over", mint(w.keys, r.id, 1, now), "expired"},
		{"of no run", mint(w.keys, errand.NewID(now), 1, later), "unknown_run"},
		{"of an attempt that was given up", mint(w.keys, r.id, 2, later), "stale_attempt"},
		{"of a run whose ticket was never exchanged", mint(w.keys, unexchanged.id, 1, later), "not_exchanged"},
	}
	var said string
	for _, c := range cases {
		for call, body := range calls(r) {
			before := w.counted("errand_runner_refused_total", c.label)
			got := w.post(call, c.token, body).want(t, 401)
			if said == "" {
				said = got.body
			}
			if got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s, %s: not told how to authenticate", c.name, call)
			}
			if got.body != said || got.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s, %s: the caller is told %s, and elsewhere %s", c.name, call, got.body, said)
			}
			if w.counted("errand_runner_refused_total", c.label) != before+1 {
				t.Errorf("%s, %s: not counted as %s", c.name, call, c.label)
			}
			if !strings.Contains(w.log.String(), `"reason":"`+c.label+`"`) {
				t.Errorf("%s: not in the log", c.name)
			}
		}
	}
	r.wantState(errand.Running, "")
	unexchanged.wantState(errand.Dispatched, "")
	w.post("progress", good, wire.ProgressRequest{}).want(t, 200)
}

// Every role against every call: what is not in a role's row is refused before anything is looked at.
func TestEachRoleMayMakeItsOwnCallsAndNoOthers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	may := map[runtoken.Role]string{
		runtoken.RoleAll:     "start progress claim result",
		runtoken.RoleAgent:   "start progress",
		runtoken.RoleVerify:  "progress claim",
		runtoken.RolePublish: "progress result",
	}
	for role, allowed := range may {
		for call := range calls(o.dispatched()) {
			r := o.dispatched()
			good := r.running()
			if call == "result" { // which publishes: its run has an admitted change
				w.post("claim", good, claimOf(1, "verified", string(r.id))).want(t, 200)
			}
			body := calls(r)[call]
			if call == "claim" {
				body = claimOf(1, "verified", string(r.id))
			}
			token, err := w.keys.Token(r.id, 1, role, w.clock.now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			state := r.row().State
			before := w.counted("errand_runner_refused_total", "wrong_role")
			got := w.post(call, token, body)
			if slices.Contains(strings.Fields(allowed), call) {
				if got.status != 200 {
					t.Errorf("%s may make %s: %d %s", role, call, got.status, got.body)
				}
				continue
			}
			if got.status != 401 || w.counted("errand_runner_refused_total", "wrong_role") != before+1 || r.row().State != state {
				t.Errorf("%s may not make %s: %d, the run is %s", role, call, got.status, r.row().State)
			}
		}
	}
}

func TestARunTokenWithOneBitChangedIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	for i := range token {
		for bit := range 7 {
			b := []byte(token)
			b[i] ^= 1 << bit
			if b[i] < ' ' || b[i] == 0x7f { // cannot stand in a header at all
				continue
			}
			w.post("progress", string(b), wire.ProgressRequest{}).want(t, 401)
		}
	}
	if run := r.row(); run.HeartbeatAt != nil {
		t.Error("one of them was taken")
	}
}

func TestARunTokenIsOverAfterThirtyMinutes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	w.clock.forward(30*time.Minute - time.Second)
	w.post("progress", token, wire.ProgressRequest{}).want(t, 200)
	w.clock.forward(time.Second)
	for call, body := range calls(r) {
		if got := w.post(call, token, body); got.status != 401 {
			t.Errorf("%s after 30 minutes: %d", call, got.status)
		}
	}
	r.wantState(errand.Running, "")
}

// H1: the runner asks with every report, so that nobody has to reach it with a cancellation.
func TestARunTokenIsDeadWhenItsRunHasEnded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	for _, state := range []errand.RunState{errand.Cancelled, errand.Failed} {
		r := o.dispatched()
		token := r.running()
		if state == errand.Cancelled {
			r.cancel()
		} else {
			w.post("result", token, wire.ResultRequest{State: errand.Failed, Reason: errand.ReasonAgentError}).want(t, 200)
		}
		before := r.row()
		for _, call := range []string{"start", "claim"} {
			w.post(call, token, calls(r)[call]).want(t, 401)
		}
		var out wire.ProgressResponse
		w.post("progress", token, wire.ProgressRequest{}).into(t, &out)
		if !out.Stop || !strings.HasPrefix(out.Reason, string(state)) {
			t.Errorf("%s: the runner is told %+v", state, out)
		}
		w.post("result", token, wire.ResultRequest{State: errand.NoFix, Reason: errand.ReasonNothingToFix}).want(t, 409)
		if after := r.row(); after.State != before.State || after.Version != before.Version || after.HeartbeatAt != before.HeartbeatAt {
			t.Errorf("%s: the run changed after its end", state)
		}
	}
	if w.counted("errand_runner_refused_total", "revoked") != 4 {
		t.Errorf("counted %v as revoked", w.counted("errand_runner_refused_total", "revoked"))
	}
}

// A token names its run, so there is no request in which it could reach another's; what two runs write lands apart.
func TestTwoOrganisationsDoNotMeet(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ours, theirs := w.tenant("acme").dispatched(), w.tenant("globex").dispatched()
	tokenOurs, tokenTheirs := ours.running(), theirs.running()
	w.post("progress", tokenOurs, wire.ProgressRequest{Steps: []wire.Step{stepOf(1, w.clock.now())}, Usage: []wire.UsageLine{usageOf(1, w.clock.now(), 100)}}).want(t, 200)
	// The same path in two organisations holds nothing.
	w.post("claim", tokenOurs, claimOf(1, "verified", "src/cart.js")).want(t, 200)
	var out wire.ClaimResponse
	w.post("claim", tokenTheirs, claimOf(1, "verified", "src/cart.js")).into(t, &out)
	if out.Decision != "admitted" {
		t.Errorf("their claim: %+v", out)
	}
	// Each may end with a pull request of its own repository only.
	w.post("result", tokenTheirs, wire.ResultRequest{State: errand.PROpened, PullRequest: ours.pullRequest(1)}).want(t, 422)
	w.post("result", tokenTheirs, wire.ResultRequest{State: errand.PROpened, PullRequest: theirs.pullRequest(1)}).want(t, 200)
	ours.wantState(errand.Publishing, "")
	w.super(func(ctx context.Context, c *pgx.Conn) {
		for _, table := range []string{"run_steps", "usage_lines", "journal"} {
			var foreign, all int
			key := map[string]string{"journal": "subject"}[table]
			if key == "" {
				key = "run_id"
			}
			err := c.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE t.org_id <> r.org_id) FROM "+table+" t JOIN runs r ON r.id = t."+key).Scan(&all, &foreign)
			if err != nil || foreign != 0 || all == 0 {
				t.Errorf("%s: %d rows, %d of them under another organisation (%v)", table, all, foreign, err)
			}
		}
	})
}
