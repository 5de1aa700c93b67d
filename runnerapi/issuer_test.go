package runnerapi_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/github/githubsim"
	"github.com/errand-dev/errand/runnerapi"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/wire"
)

// idTokens is what the endpoint checks ID tokens with: nothing until a test brings its issuer.
type idTokens struct{ identity *runtoken.Identity }

func (i *idTokens) Verify(ctx context.Context, token string, now time.Time) (runtoken.Workload, error) {
	if i.identity == nil {
		return runtoken.Workload{}, errors.New("this test has no issuer")
	}
	return i.identity.Verify(ctx, token, now)
}

// fakeGitHub answers what the endpoint asks of GitHub, and counts the questions.
type fakeGitHub struct {
	mu      sync.Mutex
	asked   map[string]int
	err     map[string]error
	run     runnerapi.WorkflowRun
	bot     int64
	owner   int64
	private bool
}

func (f *fakeGitHub) answer(question string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[question]++
	return f.err[question]
}

func (f *fakeGitHub) WorkflowRun(context.Context, *store.Repository, *store.Run, int64) (runnerapi.WorkflowRun, error) {
	return f.run, f.answer("run")
}

func (f *fakeGitHub) Bot(context.Context, *store.Repository, *store.Run, int64) (int64, error) {
	return f.bot, f.answer("bot")
}

func (f *fakeGitHub) Owner(context.Context, *store.Repository) (int64, bool, error) {
	return f.owner, f.private, f.answer("owner")
}

const workflowFile = `name: Errand
run-name: Errand ${{ inputs.run }}
on:
  workflow_dispatch:
    inputs:
      run: {required: true, type: string}
      ticket: {required: false, type: string}
permissions: {contents: write, id-token: write}
jobs:
  errand: {runs-on: ubuntu-latest, steps: []}
`

// issued is a tenant whose repository is in a simulated GitHub that signs ID tokens.
type issued struct {
	*tenant
	sim *githubsim.Sim
	app *github.App
}

// withIssuer starts the simulated GitHub with the tenant's repository in it.
func (o *tenant) withIssuer() *issued {
	t := o.w.t
	t.Helper()
	sim, err := githubsim.New(githubsim.Config{Dir: t.TempDir(), Clock: o.w.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	if _, err := sim.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := sim.AddInstallation(githubsim.Installation{ID: 1, Account: "acme", AccountID: o.owner}); err != nil {
		t.Fatal(err)
	}
	if err := sim.AddRepository(context.Background(), githubsim.Repository{
		ID: o.github, Installation: 1, Owner: "acme", Name: "shop", Private: true,
		Files: fstest.MapFS{".github/workflows/errand.yml": {Data: []byte(workflowFile)}},
	}); err != nil {
		t.Fatal(err)
	}
	app, err := github.New(github.Config{AppID: sim.AppID(), PrivateKey: sim.PrivateKey(), BaseURL: sim.APIURL(), Clock: o.w.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	if o.w.idTokens.identity, err = runtoken.NewIdentity(runtoken.IdentityConfig{Issuer: sim.IssuerURL(), Audience: publicURL}); err != nil {
		t.Fatal(err)
	}
	o.w.github.bot = 900_000 + sim.AppID()
	o.w.github.run = runnerapi.WorkflowRun{Path: ".github/workflows/errand.yml", Event: "workflow_dispatch", ActorID: o.w.github.bot, Marked: true}
	return &issued{tenant: o, sim: sim, app: app}
}

// provable is a run whose workflow was started in the simulated GitHub.
type provable struct {
	*errandRun
	at       *issued
	workflow int64
}

// dispatchedThere makes a run whose workflow run is known from GitHub's answer.
func (i *issued) dispatchedThere() *provable {
	i.w.t.Helper()
	p := i.startedThere()
	p.guess(p.workflow)
	return p
}

// startedThere makes one whose workflow run GitHub did not name (204).
func (i *issued) startedThere() *provable {
	i.w.t.Helper()
	r := i.dispatched()
	got := i.app.Dispatch(context.Background(), github.Target{
		InstallationID: 1, RepositoryID: i.github, Owner: "acme", Name: "shop", WorkflowFile: "errand.yml", Ref: "main",
	}, map[string]string{"run": r.mark(), "ticket": r.ticket})
	if !got.Outcome.OK() || got.RunID == 0 {
		i.w.t.Fatalf("not dispatched: %+v", got)
	}
	return &provable{errandRun: r, at: i, workflow: got.RunID}
}

func (r *errandRun) mark() string { return fmt.Sprintf("%s.1", r.id) }

// request is an exchange with an ID token, and with no ticket.
func (p *provable) request(role, nonce string, change func(map[string]any)) wire.ExchangeRequest {
	p.w.t.Helper()
	token, err := p.at.sim.IDToken(p.workflow, publicURL, change)
	if err != nil {
		p.w.t.Fatal(err)
	}
	return wire.ExchangeRequest{
		Run: p.mark(), IDToken: token, Nonce: nonce, Role: role, Provider: "anthropic", Model: "claude-sonnet-5", RunnerVersion: "test",
		WorkflowRunID: p.workflow, WorkflowRunAttempt: 1,
	}
}

// roleToken exchanges for a role.
func (p *provable) roleToken(role string) string {
	p.w.t.Helper()
	var out wire.ExchangeResponse
	p.w.post("exchange", "", p.request(role, nonce+role, nil)).into(p.w.t, &out)
	return out.Token
}

// required makes the organisation ask for ID tokens.
func (o *tenant) rules(requireOIDC, allowReruns bool) {
	o.w.t.Helper()
	o.w.in(o.org, func(tx *store.Tx) error {
		_, err := tx.SetExchangeRules(context.Background(), requireOIDC, allowReruns)
		return err
	})
}

var unavailable = errand.Errorf(errand.CodeUnavailable, errors.New("connection reset"), "GitHub could not be asked")

func wantRefused(t *testing.T, w *world, says string, got reply, before float64, label string) {
	t.Helper()
	if got.status != 401 {
		t.Errorf("%s: answered %d %s", says, got.status, got.body)
	}
	if now := w.counted("errand_runner_refused_total", label); now != before+1 {
		t.Errorf("%s: counted %v as %s, before %v", says, now, label, before)
	}
}
