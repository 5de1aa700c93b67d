// Package runner is the program inside the customer's workflow: it has the code and the AI key, and it carries one errand
// out. It trades its one-time ticket for a token, fetches one error, lets an agent with four tools and no shell look for
// the cause, holds what the agent claims against what it changed, pushes an admitted change to a new branch, opens the
// pull request, and reports all along the way. Safety comes from what it can do and never from what the prompt asks.
//
// It is a tower of its own and imports of ours only the root, wire, git, scrub, claims and models. Start reading at Run,
// which is the whole life of a run from top to bottom; then agent.go (the loop and its limits), tree.go (what can be read),
// propose.go (what is checked) and publish.go (what leaves).
//
// # Exit codes
//
//	0  the errand is done and reported: a pull request is open, or there is nothing to fix
//	1  the program itself failed in a way it did not foresee
//	2  the configuration is wrong; nothing was started
//	3  the proposal was rejected (its claim, a protected path, or another open change); reported
//	4  the run failed or ran out of time; reported
//	5  the control plane ended the run (cancelled, or already over)
//	6  the end could not be reported, or the ticket was not taken
package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/git"
	"github.com/errand-dev/errand/models"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/wire"
)

// Exit is the program's exit code.
type Exit int

// The exit codes, documented in the package comment.
const (
	ExitDone          Exit = 0
	ExitInternal      Exit = 1
	ExitConfiguration Exit = 2
	ExitRejected      Exit = 3
	ExitFailed        Exit = 4
	ExitStopped       Exit = 5
	ExitUnreported    Exit = 6
)

// Bounds in time of what stands around the agent.
const (
	jobLimit     = 24 * time.Minute // the workflow's timeout-minutes is 25
	callWindow   = 2 * time.Minute  // for one call to succeed while a run is under way
	leaveTime    = 5 * time.Second  // to say good-bye after the workflow was cancelled: GitHub kills soon after
	fetchRetries = 4
)

// Env is the world as the runner meets it. System gives the real one; a test passes its own.
type Env struct {
	Getenv  func(string) string
	Out     io.Writer
	Clock   errand.Clock
	Sleep   func(context.Context, time.Duration) error
	Ticks   func(time.Duration) (ticks <-chan time.Time, stop func())
	HTTP    *http.Client // its Timeout bounds a model's answer; every other call has a shorter one of its own
	Version string
}

// System is the real world.
func System(version string) Env {
	return Env{
		Getenv: os.Getenv, Out: os.Stdout, Clock: time.Now, Version: version, HTTP: &http.Client{Timeout: jobLimit},
		Sleep: func(ctx context.Context, d time.Duration) error {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-t.C:
				return nil
			}
		},
		Ticks: func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTicker(d)
			return t.C, t.Stop
		},
	}
}

// run is one errand under way.
type run struct {
	env      Env
	cfg      Config
	console  *console
	client   *client
	rep      *reporter
	scrubber *scrub.Scrubber
	started  time.Time
	start    wire.StartResponse
	budget   *budget    // nil before the limits are known
	proposer *proposer  // nil before the agent begins
	out      *publisher // the same
}

// Run carries one errand out. Everything it has to say goes to env.Out; the exit code is the answer.
func Run(ctx context.Context, env Env) Exit {
	con := newConsole(env.Out)
	defer con.close()
	con.mask(secretsOf(env.Getenv)...)
	cfg, wrong := LoadConfig(env.Getenv)
	if len(wrong) > 0 {
		for _, e := range wrong {
			con.fail("configuration: " + e.Field + " " + e.Message)
		}
		return ExitConfiguration
	}
	r := &run{env: env, cfg: cfg, console: con, scrubber: scrub.New(), started: env.Clock()}
	r.client = &client{base: cfg.ControlPlane, version: env.Version, http: withoutRedirects(env.HTTP), clock: env.Clock, sleep: env.Sleep}
	if err := r.enter(ctx); err != nil {
		con.fail(err.Error())
		return ExitUnreported
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.rep = newReporter(r.client, env.Clock, stop)
	ticks, stopTicks := env.Ticks(heartbeat)
	pumpCtx, stopPump := context.WithCancel(context.WithoutCancel(ctx))
	go r.rep.run(pumpCtx, ticks)
	end := r.guarded(ctx)
	stopTicks()
	stopPump()
	<-r.rep.done
	return r.leave(ctx, end)
}

// enter trades the ticket for the token and fetches the errand.
func (r *run) enter(ctx context.Context) error {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:])
	proof, err := r.cfg.identity.token(ctx, r.env, r.cfg.ControlPlane)
	switch {
	case err != nil && r.cfg.Ticket == "":
		return err
	case err != nil: // the control plane decides whether the ticket is enough
		r.console.say("note: going on with the ticket alone: %v", err)
	case proof != "":
		r.console.mask(proof)
	}
	mark := r.cfg.Mark
	if !strings.Contains(mark, ".") { // an older form, of which the ticket says the attempt
		mark = ""
	}
	got, err := r.client.exchange(ctx, wire.ExchangeRequest{
		Run: mark, Ticket: r.cfg.Ticket, IDToken: proof, Nonce: hex.EncodeToString(nonce[:]), Role: "all",
		Provider: models.ProviderAnthropic, Model: r.cfg.Model, RunnerVersion: r.env.Version,
		WorkflowRunID: r.cfg.WorkflowRun, WorkflowRunAttempt: r.cfg.WorkflowTry,
	})
	if got.Token != "" {
		r.console.mask(got.Token)
	}
	var e *apiError
	if errors.As(err, &e) && !e.passing() {
		return fmt.Errorf("the exchange was refused (%w). A ticket works once and for 30 minutes: start a new run from Errand, a re-run from GitHub's page cannot work", err)
	}
	if err != nil {
		return fmt.Errorf("the control plane at %s could not be asked: %w", r.cfg.ControlPlane, err)
	}
	if got.Run != r.cfg.Run {
		return errors.New("the control plane answered for another run than the one this workflow was started for")
	}
	r.client.token = got.Token
	if err := r.leaveWord(); err != nil {
		r.console.say("note: an end that this program cannot report will be found by the control plane only: %v", err)
	}
	req := wire.StartRequest{Repository: r.cfg.Repository, RepositoryID: r.cfg.RepositoryID}
	if err := r.client.until(ctx, r.env.Clock().Add(callWindow), "start", req, &r.start); err != nil {
		return err
	}
	if r.start.Run != r.cfg.Run {
		return errors.New("the control plane sent the errand of another run")
	}
	r.console.say("run %s: %s", r.start.Run, r.start.RunURL)
	return nil
}

// guarded does the work and turns a panic into an end that is reported.
func (r *run) guarded(ctx context.Context) (end *ending) {
	defer func() {
		if v := recover(); v != nil {
			r.console.say("internal error: %v", v)
			r.console.say("%s", strings.ReplaceAll(string(debug.Stack()), "\n", " | "))
			end = ended(errand.Failed, errand.ReasonAgentError, "an internal error of the runner; the job's log has its trace")
		}
	}()
	return r.work(ctx)
}

// work is the errand from checkout to pull request.
func (r *run) work(ctx context.Context) *ending {
	failed := func(err error) *ending {
		if ctx.Err() != nil {
			return cancelled(ctx)
		}
		return ended(errand.Failed, errand.ReasonAgentError, err.Error())
	}
	var err error
	if r.budget, err = newBudget(r.start.Limits, r.env.Clock()); err != nil {
		return failed(err)
	}
	if !r.sameRepository() {
		return ended(errand.Failed, errand.ReasonWrongRepository, fmt.Sprintf("this is %s, and the errand is for %s", r.cfg.Repository, r.start.Repository.FullName))
	}
	repo, err := git.Open(ctx, r.cfg.Workspace, git.Options{
		Remote: r.cfg.ServerURL + "/" + r.cfg.Repository, Token: r.cfg.GitHubToken, TempDir: r.cfg.TempDir, Env: r.cfg.networkEnviron,
	})
	if err != nil {
		return failed(err)
	}
	defer repo.Close() //nolint:errcheck // a temporary folder
	base, err := r.fetchBase(ctx, repo)
	if errand.CodeOf(err) == errand.CodeNotFound {
		return ended(errand.Failed, errand.ReasonRefMissing, err.Error())
	}
	if err != nil {
		return failed(err)
	}
	t, err := openTree(ctx, repo, r.cfg.Workspace, base)
	if err != nil {
		return failed(err)
	}
	defer t.Close() //nolint:errcheck // read only
	where := newResolver(r.start, t)
	found := where.resolve(r.start.Event)
	r.rep.step(wire.Step{Tool: "resolve_frames", Outcome: "ok", Count: found.Resolved})
	r.console.say("%d of %d frames of the application are in this repository, at %s", found.Resolved, found.InApp, base)
	if found.wrongRepository() {
		return ended(errand.Failed, errand.ReasonWrongRepository, fmt.Sprintf("none of the %d frames of the application names a file that is tracked here", found.InApp))
	}
	a, end := r.agent(ctx, repo, t)
	if end != nil {
		return end
	}
	p := newPrompt(r.start, where, rulesOf(ctx, t), r.cfg.Instructions)
	if p.hidden > 0 {
		r.rep.step(wire.Step{Tool: "hidden_characters", Outcome: "ok", Count: p.hidden})
	}
	return a.run(ctx, p.task)
}

// agent puts the loop together with everything it works through.
func (r *run) agent(ctx context.Context, repo *git.Repo, t *tree) (*agent, *ending) {
	policy, err := policyOf(ctx, t, r.cfg.Protected, r.start)
	if err != nil {
		return nil, ended(errand.Failed, errand.ReasonAgentError, "the policy cannot be applied: "+err.Error())
	}
	model, err := models.NewAnthropic(models.AnthropicConfig{
		APIKey: r.cfg.APIKey, BaseURL: r.cfg.BaseURL, Model: r.cfg.Model, HTTPClient: r.env.HTTP, Clock: r.env.Clock,
	})
	if err != nil {
		return nil, ended(errand.Failed, errand.ReasonProviderAuth, err.Error())
	}
	token := r.cfg.GitHubToken
	if r.cfg.PRToken != "" {
		token = r.cfg.PRToken
	}
	r.out = &publisher{
		repo: repo, start: r.start, server: r.cfg.ServerURL, sleep: r.env.Sleep,
		forge: &forge{
			api: r.cfg.APIURL, repo: r.cfg.Repository, token: token, version: r.env.Version,
			http: withoutRedirects(r.env.HTTP), sleep: r.env.Sleep,
		},
		words: func(a admitted) string { return pullBody(a, r.account(), r.start) },
	}
	r.proposer = &proposer{
		tree: t, client: r.client, rep: r.rep, clock: r.env.Clock, console: r.console, scrubber: r.scrubber,
		policy: policy, start: r.start, agentID: "errand-runner/" + r.cfg.Model, publish: r.out.publish,
	}
	return &agent{
		model: model, tools: &toolbox{tree: t, clock: r.env.Clock, rep: r.rep}, budget: r.budget, rep: r.rep,
		clock: r.env.Clock, sleep: r.env.Sleep, propose: r.proposer.propose, system: systemPrompt,
	}, nil
}

// sameRepository compares by GitHub's id, which survives a rename; where the id is unknown, by name.
func (r *run) sameRepository() bool {
	if r.cfg.RepositoryID != 0 && r.start.Repository.ID != 0 {
		return r.cfg.RepositoryID == r.start.Repository.ID
	}
	return strings.EqualFold(r.cfg.Repository, r.start.Repository.FullName)
}

// fetchBase gets the newest commit of the branch that the pull request goes to, whatever commit was checked out.
func (r *run) fetchBase(ctx context.Context, repo *git.Repo) (string, error) {
	wait := time.Second
	for attempt := 1; ; attempt++ {
		base, err := repo.FetchBranch(ctx, r.start.Ref)
		if err == nil || errand.CodeOf(err) != errand.CodeUnavailable || attempt == fetchRetries {
			return base, err
		}
		if err := r.env.Sleep(ctx, wait); err != nil {
			return "", err
		}
		wait *= 2
	}
}

// account is what the run used so far.
func (r *run) account() account {
	r.rep.mu.Lock()
	a := countTokens(r.rep.counts)
	r.rep.mu.Unlock()
	a.Model, a.Elapsed = r.cfg.Model, r.env.Clock().Sub(r.started)
	if r.budget != nil {
		a.ToolCalls, a.MaxCalls = r.budget.used, r.start.Limits.ToolCalls
	}
	return a
}
