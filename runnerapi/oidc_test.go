package runnerapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/wire"
)

func TestAnIDTokenAloneIsExchangedWithoutATicket(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.tenant("acme").withIssuer().dispatchedThere()
	var first, again wire.ExchangeResponse
	req := p.request("all", nonce, nil)
	w.post("exchange", "", req).into(t, &first)
	w.post("exchange", "", req).into(t, &again)
	if first.Run != p.id || again != first {
		t.Errorf("%+v, and again %+v", first, again)
	}
	w.post("start", first.Token, wire.StartRequest{RepositoryID: p.github}).want(t, 200)
	p.wantState(errand.Running, "")
	if run := p.row(); *run.WorkflowRunID != p.workflow || *run.WorkflowRunAttempt != 1 || run.WorkflowRunURL == "" {
		t.Errorf("kept %v %v %q", *run.WorkflowRunID, *run.WorkflowRunAttempt, run.WorkflowRunURL)
	}
	// What the rows knew was not asked again.
	if w.github.asked["run"] != 0 || w.github.asked["owner"] != 0 {
		t.Errorf("GitHub was asked %v", w.github.asked)
	}
	if strings.Contains(w.log.String(), req.IDToken) || strings.Contains(w.log.String(), first.Token) {
		t.Error("a credential is in the log")
	}
}

// Each claim has a row, told apart in the log and in the counter and not to the caller.
func TestAnIDTokenOfAnotherWorkloadIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	i := w.tenant("acme").withIssuer()
	p := i.dispatchedThere()
	bad := func(name string, v any) func(map[string]any) { return func(c map[string]any) { c[name] = v } }
	ago := w.clock.now().Add(-time.Hour).Unix()
	ahead := w.clock.now().Add(time.Hour).Unix()
	said := ""
	for _, c := range []struct {
		says   string
		change func(map[string]any)
		label  string
	}{
		{"from another issuer", bad("iss", "https://token.actions.githubusercontent.com"), "oidc_issuer"},
		{"for another audience", bad("aud", "https://github.com/acme"), "oidc_audience"},
		{"over", bad("exp", ago), "oidc_expired"},
		{"not valid yet", bad("nbf", ahead), "oidc_not_yet"},
		{"issued later", bad("iat", ahead), "oidc_issued_at"},
		{"without a claim", func(c map[string]any) { delete(c, "actor_id") }, "oidc_incomplete"},
		{"of another repository", bad("repository_id", "7999"), "oidc_repository"},
		{"of another owner, as after a transfer", bad("repository_owner_id", "9999"), "oidc_owner"},
		{"of a push", bad("event_name", "push"), "oidc_event"},
		{"of another branch", bad("ref", "refs/heads/feature"), "oidc_ref"},
		{"of a tag with the branch's name", bad("ref", "refs/tags/main"), "oidc_ref"},
		{"of another workflow file", bad("workflow_ref", "acme/shop/.github/workflows/ci.yml@refs/heads/main"), "oidc_workflow"},
		{"of the file on another branch", bad("workflow_ref", "acme/shop/.github/workflows/errand.yml@refs/heads/feature"), "oidc_workflow"},
		{"of a file with the same end", bad("workflow_ref", "acme/shop/.github/workflows/x/.github/workflows/errand.yml@refs/heads/main"), "oidc_workflow"},
		{"of another repository's file", bad("workflow_ref", "mallory/shop/.github/workflows/errand.yml@refs/heads/main"), "oidc_workflow"},
		{"of a job in a called workflow", bad("job_workflow_ref", "acme/shared/.github/workflows/errand.yml@refs/heads/main"), "oidc_job_workflow"},
		{"of another run", func(c map[string]any) { c["run_id"] = "5" }, "oidc_request"},
		{"of another attempt than the request's", bad("run_attempt", "2"), "oidc_request"},
		{"started by a person", bad("actor_id", "4711"), "oidc_actor"},
	} {
		before := w.counted("errand_runner_refused_total", c.label)
		got := w.post("exchange", "", p.request("all", nonce, c.change))
		wantRefused(t, w, c.says, got, before, c.label)
		if said == "" {
			said = got.body
		}
		if got.body != said || !strings.Contains(w.log.String(), `"reason":"`+c.label+`"`) {
			t.Errorf("%s: the caller is told %s; or it is not in the log", c.says, got.body)
		}
	}
	// Another run of the same workflow, all of whose words are good.
	other := i.dispatchedThere()
	before := w.counted("errand_runner_refused_total", "oidc_run")
	req := other.request("all", nonce, nil)
	req.Run = p.mark()
	wantRefused(t, w, "of another run of the same workflow", w.post("exchange", "", req), before, "oidc_run")
	// A ticket of one run with the ID token of another.
	before = w.counted("errand_runner_refused_total", "run_mismatch")
	req = other.request("all", nonce, nil)
	req.Ticket = p.ticket
	wantRefused(t, w, "with another run's ticket", w.post("exchange", "", req), before, "run_mismatch")
	before = w.counted("errand_runner_refused_total", "oidc_run")
	req.Run = ""
	wantRefused(t, w, "with another run's ticket and no word of the run", w.post("exchange", "", req), before, "oidc_run")
	// Not a token at all, beside a ticket that is good: what is offered must hold.
	before = w.counted("errand_runner_refused_total", "oidc_malformed")
	spoiled := exchangeOf(p.ticket, nonce)
	spoiled.IDToken = "not.a.token"
	wantRefused(t, w, "spoiled", w.post("exchange", "", spoiled), before, "oidc_malformed")
	for _, r := range []*provable{p, other} {
		r.wantState(errand.Dispatched, "")
		if alarms := r.journal(journal.KindAlarm); len(alarms) != 0 {
			t.Errorf("alarms %v", alarms)
		}
		r.roleToken("all") // none of it used anything up
	}
}

func TestWhereGitHubNamedNoRunItIsFetchedAndCompared(t *testing.T) {
	t.Parallel()
	w := setup(t)
	i := w.tenant("acme").withIssuer()
	good := w.github.run
	for _, c := range []struct {
		says   string
		change func()
		status int
		label  string
	}{
		{"the workflow run is another file's", func() { w.github.run.Path = ".github/workflows/ci.yml" }, 401, "oidc_run"},
		{"it was started by a push", func() { w.github.run.Event = "push" }, 401, "oidc_run"},
		{"its name carries another run's mark", func() { w.github.run.Marked = false }, 401, "oidc_run"},
		{"a person started it", func() { w.github.run.ActorID = 4711 }, 401, "oidc_actor"},
		{"GitHub knows no such run", func() { w.github.err = map[string]error{"run": errand.NotFound("workflow run")} }, 401, "oidc_run"},
		{"the App did not start it", func() { w.github.err = map[string]error{"bot": &errand.Error{Code: errand.CodeForbidden}} }, 401, "oidc_actor"},
		{"GitHub does not answer", func() { w.github.err = map[string]error{"run": unavailable} }, 503, ""},
		{"GitHub answers what nobody expects", func() { w.github.err = map[string]error{"run": errors.New("teapot")} }, 503, ""},
		{"GitHub does not say who the bot is", func() { w.github.err = map[string]error{"bot": unavailable} }, 503, ""},
		{"all of it fits", func() {}, 200, ""},
	} {
		p := i.startedThere()
		w.github.run, w.github.err = good, nil
		c.change()
		before := w.counted("errand_runner_refused_total", c.label)
		got := w.post("exchange", "", p.request("all", nonce, nil))
		if got.status != c.status {
			t.Errorf("%s: %d %s", c.says, got.status, got.body)
		}
		if c.label != "" {
			wantRefused(t, w, c.says, got, before, c.label)
		}
		if c.status == 503 && got.header.Get("Retry-After") == "" {
			t.Errorf("%s: not told to try again", c.says)
		}
		if c.status != 200 {
			p.wantState(errand.Dispatched, "")
			w.github.run, w.github.err = good, nil
			p.roleToken("all") // the same again, when GitHub says so
		}
		p.cancel()
	}
	// Nobody told us the owner's id: GitHub is asked, and the answer is kept.
	for _, owner := range []int64{i.owner + 1, i.owner} {
		i.dispatchedThere().super("UPDATE repositories SET owner_id = NULL")
		p := i.dispatchedThere()
		w.github.owner, w.github.private = owner, true
		got := w.post("exchange", "", p.request("all", nonce, nil))
		if ok := owner == i.owner; ok != (got.status == 200) {
			t.Errorf("owner %d: %d", owner, got.status)
		}
	}
	asked := w.github.asked["owner"]
	i.dispatchedThere().roleToken("all")
	if asked != 2 || w.github.asked["owner"] != asked {
		t.Errorf("asked for the owner %d times", w.github.asked["owner"])
	}
}

func TestAnIssuerThatDoesNotAnswerIsARetriableAnswer(t *testing.T) {
	t.Parallel()
	w := setup(t)
	i := w.tenant("acme").withIssuer()
	p := i.dispatchedThere()
	req := p.request("all", nonce, nil)
	req.Ticket = p.ticket // a ticket that would do does not help: the token that was offered is not known to be good
	if err := i.sim.Close(); err != nil {
		t.Fatal(err)
	}
	if got := w.post("exchange", "", req).want(t, 503); got.header.Get("Retry-After") == "" {
		t.Error("not told to try again")
	}
	p.wantState(errand.Dispatched, "")
	p.token()
}

func TestATicketFromAPublicLogIsUselessWhereAnIDTokenIsRequired(t *testing.T) {
	t.Parallel()
	w := setup(t)
	i := w.tenant("acme").withIssuer()
	for _, c := range []struct {
		says   string
		change func(r *errandRun)
		label  string
	}{
		{"the organisation asks for ID tokens", func(*errandRun) { i.rules(true, false) }, "oidc_required"},
		{"the repository is public", func(r *errandRun) { i.rules(false, false); r.super("UPDATE repositories SET private = false") }, "oidc_required"},
		{"nobody said whether it is", func(r *errandRun) { r.super("UPDATE repositories SET private = true, visibility_at = NULL") }, "oidc_required"},
	} {
		p := i.dispatchedThere()
		c.change(p.errandRun)
		before := w.counted("errand_runner_refused_total", c.label)
		got := w.post("exchange", "", exchangeOf(p.ticket, nonce))
		wantRefused(t, w, c.says, got, before, c.label)
		if !strings.Contains(got.body, "id-token: write") {
			t.Errorf("%s: not told what to do: %s", c.says, got.body)
		}
		p.wantState(errand.Dispatched, "")
		p.roleToken("all")
	}
	// The last token said that the repository is private: from then on that is known.
	p := i.dispatchedThere()
	p.token()
	// And one that says public makes it public.
	p = i.dispatchedThere()
	w.post("exchange", "", p.request("all", nonce, func(c map[string]any) { c["repository_visibility"] = "public" })).want(t, 200)
	w.post("exchange", "", exchangeOf(i.dispatchedThere().ticket, nonce)).want(t, 401)
}

// Where a ticket would do, somebody who read it on the Actions page and the run's own job are told apart.
func TestAStolenTicketAgainstTheRunsOwnJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	i := w.tenant("acme").withIssuer()
	own := func(p *provable) reply { return w.post("exchange", "", p.request("all", nonce+"own", nil)) }
	stolen := func(p *provable) reply { return w.post("exchange", "", exchangeOf(p.ticket, "nonce-of-a-thief")) }
	alarms := func(p *provable, n int) {
		t.Helper()
		if got := p.journal(journal.KindAlarm); len(got) != n {
			t.Errorf("%d alarms, want %d: %v", len(got), n, got)
		}
	}
	p := i.dispatchedThere()
	own(p).want(t, 200)
	stolen(p).want(t, 401)
	p.wantState(errand.Dispatched, "") // not ended, though nothing was reported yet
	alarms(p, 1)

	p = i.dispatchedThere()
	var thief wire.ExchangeResponse
	stolen(p).into(t, &thief)
	w.post("start", thief.Token, wire.StartRequest{RepositoryID: p.github}).want(t, 200)
	w.post("progress", thief.Token, wire.ProgressRequest{}).want(t, 200)
	own(p).want(t, 401)
	p.wantState(errand.Failed, errand.ReasonTicketReused) // although it was under way: in other hands
	alarms(p, 1)
	w.post("claim", thief.Token, claimOf(1, "verified", "a.js")).want(t, 401)

	// The thief may name any workflow run: it is not believed against the job's own token.
	p = i.startedThere()
	stolen(p).want(t, 200)
	own(p).want(t, 401)
	p.wantState(errand.Failed, errand.ReasonTicketReused)
}

func TestEachJobOfASplitWorkflowGetsItsRoleOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	i := w.tenant("acme").withIssuer()
	p := i.dispatchedThere()
	tokens := map[string]string{}
	for _, role := range []string{"agent", "verify", "publish"} {
		tokens[role] = p.roleToken(role)
		if tokens[role] != p.roleToken(role) { // the same exchange again
			t.Errorf("%s: the same exchange got another token", role)
		}
	}
	if len(tokens) != 3 || tokens["agent"] == tokens["publish"] {
		t.Errorf("tokens %v", tokens)
	}
	w.post("start", tokens["agent"], wire.StartRequest{RepositoryID: p.github}).want(t, 200)
	for _, role := range []string{"agent", "verify", "publish"} { // each counts its lines from 1
		w.post("progress", tokens[role], wire.ProgressRequest{
			Steps: []wire.Step{stepOf(1, w.clock.now())}, Usage: []wire.UsageLine{usageOf(1, w.clock.now(), 100)},
		}).want(t, 200)
	}
	var steps, usage int
	if err := w.conn.QueryRow(context.Background(), "SELECT (SELECT count(*) FROM run_steps WHERE run_id = $1), (SELECT count(*) FROM usage_lines WHERE run_id = $1)", p.id).Scan(&steps, &usage); err != nil || steps != 3 || usage != 3 {
		t.Errorf("%d steps and %d lines (%v)", steps, usage, err)
	}
	w.post("claim", tokens["verify"], claimOf(1, "verified", "src/cart.js")).want(t, 200)
	w.post("result", tokens["publish"], wire.ResultRequest{State: errand.PROpened, PullRequest: p.pullRequest(3)}).want(t, 200)
	p.wantState(errand.PROpened, "")

	for says, roles := range map[string][2]string{
		"all beside a part": {"agent", "all"}, "a part beside all": {"all", "agent"}, "the same part twice": {"publish", "publish"},
	} {
		p := i.dispatchedThere()
		p.roleToken(roles[0])
		w.post("exchange", "", p.request(roles[1], "another-nonce-xx", nil)).want(t, 401)
		if len(p.journal(journal.KindAlarm)) != 1 {
			t.Errorf("%s: no alarm", says)
		}
		p.wantState(errand.Failed, errand.ReasonTicketReused)
	}
}

// D4: a re-run with a token of its own attempt, by GitHub's word; the attempt before is dead.
func TestD4_AReRunGoesOnWhereTheOrganisationAllowsIt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	i := w.tenant("acme").withIssuer()
	second := func(p *provable) reply {
		req := p.request("all", "nonce-of-the-re-run", func(c map[string]any) { c["run_attempt"] = "2" })
		req.WorkflowRunAttempt, req.Ticket = 2, p.ticket
		return w.post("exchange", "", req)
	}
	p := i.dispatchedThere()
	token := p.roleToken("all")
	w.post("start", token, wire.StartRequest{RepositoryID: p.github}).want(t, 200)
	got := second(p).want(t, 401)
	if !strings.Contains(got.body, "Start a new run from Errand") || w.counted("errand_runner_refused_total", "rerun") != 1 {
		t.Errorf("not allowed: %s", got.body)
	}
	p.wantState(errand.Running, "") // GitHub's own word says that nobody stole anything
	if alarms := p.journal(journal.KindAlarm); len(alarms) != 0 {
		t.Errorf("alarms %v", alarms)
	}
	w.post("progress", token, wire.ProgressRequest{Steps: []wire.Step{stepOf(1, w.clock.now())}}).want(t, 200)

	i.rules(false, true)
	w.clock.forward(45 * time.Minute) // the ticket and the first token are over
	var again wire.ExchangeResponse
	second(p).into(t, &again)
	if run := p.row(); *run.WorkflowRunAttempt != 2 || *run.WorkflowRunID != p.workflow {
		t.Errorf("attempt %d of %d", *run.WorkflowRunAttempt, *run.WorkflowRunID)
	}
	w.post("start", again.Token, wire.StartRequest{RepositoryID: p.github}).want(t, 200)
	w.post("progress", again.Token, wire.ProgressRequest{Steps: []wire.Step{stepOf(1, w.clock.now())}}).want(t, 200)
	var steps int
	if err := w.conn.QueryRow(context.Background(), "SELECT count(*) FROM run_steps WHERE run_id = $1", p.id).Scan(&steps); err != nil || steps != 2 {
		t.Errorf("%d steps (%v)", steps, err)
	}
	// The first attempt's job is over for good.
	w.post("exchange", "", p.request("all", nonce+"all", nil)).want(t, 401)
	w.post("result", again.Token, wire.ResultRequest{State: errand.Failed, Reason: errand.ReasonAgentError}).want(t, 200)
	// A run that has ended is not begun again.
	req := p.request("all", "nonce-of-the-third", func(c map[string]any) { c["run_attempt"] = "3" })
	req.WorkflowRunAttempt = 3
	w.post("exchange", "", req).want(t, 401)
	p.wantState(errand.Failed, errand.ReasonAgentError)

	// With the first attempt's token still in its time, it is dead all the same.
	p = i.dispatchedThere()
	token = p.roleToken("all")
	second(p).want(t, 200)
	before := w.counted("errand_runner_refused_total", "stale_attempt")
	wantRefused(t, w, "the token of the attempt before", w.post("start", token, wire.StartRequest{RepositoryID: p.github}), before, "stale_attempt")
	// A change may be on its way out: that is not begun again either.
	p = i.dispatchedThere()
	token = p.roleToken("all")
	w.post("start", token, wire.StartRequest{RepositoryID: p.github}).want(t, 200)
	w.post("claim", token, claimOf(1, "verified", "src/x.js")).want(t, 200)
	second(p).want(t, 401)
	p.wantState(errand.Publishing, "")
}

func TestWhatAnExchangeMustSay(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.tenant("acme").withIssuer().dispatchedThere()
	for says, change := range map[string]func(*wire.ExchangeRequest){
		"neither ticket nor ID token":  func(r *wire.ExchangeRequest) { r.IDToken = "" },
		"an ID token and no run":       func(r *wire.ExchangeRequest) { r.Run = "" },
		"a run without its attempt":    func(r *wire.ExchangeRequest) { r.Run = string(p.id) },
		"a run's attempt of zero":      func(r *wire.ExchangeRequest) { r.Run = string(p.id) + ".0" },
		"a run's attempt with a sign":  func(r *wire.ExchangeRequest) { r.Run = string(p.id) + ".+1" },
		"a role that is none":          func(r *wire.ExchangeRequest) { r.Role = "root" },
		"a ticket for part of the run": func(r *wire.ExchangeRequest) { r.IDToken, r.Ticket, r.Role = "", p.ticket, "agent" },
		"a nonce that can be guessed":  func(r *wire.ExchangeRequest) { r.Nonce = "1" },
		"an ID token without end":      func(r *wire.ExchangeRequest) { r.IDToken = strings.Repeat("a", 20_000) },
	} {
		req := p.request("all", nonce, nil)
		change(&req)
		if got := w.post("exchange", "", req); got.status != 422 || !strings.Contains(got.body, `"code":"invalid"`) {
			t.Errorf("%s: %d %s", says, got.status, got.body)
		}
	}
	// Of a run that is not there, and of an attempt that was given up.
	for label, mark := range map[string]string{"unknown_run": string(errand.NewID(w.clock.now())) + ".1", "stale_attempt": string(p.id) + ".2"} {
		req := p.request("all", nonce, nil)
		req.Run = mark
		before := w.counted("errand_runner_refused_total", label)
		wantRefused(t, w, label, w.post("exchange", "", req), before, label)
	}
	p.roleToken("all")
}

// Two replicas are two of these endpoints on one database: of as many exchanges as come at once one wins, for each role.
func TestOfManyIDTokensAtOnceOneOfEachRoleWins(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.tenant("acme").withIssuer().dispatchedThere()
	agent := p.roleToken("agent")
	w.post("start", agent, wire.StartRequest{RepositoryID: p.github}).want(t, 200)
	w.post("progress", agent, wire.ProgressRequest{}).want(t, 200) // under way: a second use does not end it
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := map[string]int{}
	for n := range 12 {
		role := []string{"verify", "publish"}[n%2]
		req := p.request(role, fmt.Sprintf("nonce-number-%03d", n), nil)
		wg.Go(func() {
			got, err := w.try("exchange", "", req)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if got.status == 200 {
				won[role]++
			}
		})
	}
	wg.Wait()
	if won["verify"] != 1 || won["publish"] != 1 {
		t.Errorf("won %v", won)
	}
	p.wantState(errand.Running, "")
}
