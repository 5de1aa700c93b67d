package runner_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runner"
	"github.com/errand-dev/errand/wire"
)

// propose is a scripted proposal of one turn.
func propose(edits, claim string) string {
	return fmt.Sprintf("\n  - tool_calls: [{name: create_pull_request, input: {title: t, body: b, edits: %s, claim: %s}}]", edits, claim)
}

const (
	editCart  = `{path: shop/cart.py, find: "items)\n", replace: "items or [])\n"}`
	claimCart = `{summary: s, changes: [{path: shop/cart.py, description: d}]}`
)

func codes(c wire.ClaimRequest) string {
	var list []string
	for _, f := range c.Findings {
		list = append(list, f.Code+" "+f.Path)
	}
	return strings.Join(list, ", ")
}

func TestAClaimThatDoesNotHoldIsNeverPushed(t *testing.T) {
	t.Parallel()
	both := `{summary: s, changes: [{path: shop/cart.py, description: d}, {path: %s, description: d}]}`
	for name, row := range map[string]struct{ edits, claim, finding string }{
		"a file that was changed and not claimed": {
			`[` + editCart + `, {path: shop/new.py, content: "x\n"}]`, claimCart, "UNCLAIMED_CHANGE shop/new.py",
		},
		"a file that was claimed and not changed": {
			`[` + editCart + `]`, fmt.Sprintf(both, "shop/run.sh"), "CLAIMED_NOT_CHANGED shop/run.sh",
		},
		"a workflow": {
			`[` + editCart + `, {path: .github/wf.yml, content: "x\n"}]`, fmt.Sprintf(both, ".github/wf.yml"), "PROTECTED_PATH .github/wf.yml",
		},
		"a manifest": {
			`[` + editCart + `, {path: go.mod, content: "module x\n"}]`, fmt.Sprintf(both, "go.mod"), "PROTECTED_PATH go.mod",
		},
		"a path that the workflow file protects": {
			`[` + editCart + `, {path: docs/x.md, content: "x\n"}]`, fmt.Sprintf(both, "docs/x.md"), "PROTECTED_PATH docs/x.md",
		},
		"a path that the control plane protects": {
			`[` + editCart + `, {path: secret/x.md, content: "x\n"}]`, fmt.Sprintf(both, "secret/x.md"), "PROTECTED_PATH secret/x.md",
		},
		"more lines than are allowed": {
			`[` + editCart + `, {path: shop/new.py, content: "` + strings.Repeat(`x\n`, 500) + `"}]`, fmt.Sprintf(both, "shop/new.py"), "DIFF_TOO_LARGE ",
		},
		"a secret in an added line": {
			`[` + editCart + `, {path: shop/new.py, content: "a = 1\nkey = 'AKIAIOSFODNN7EXAMPLQ'\n-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\n"}]`,
			fmt.Sprintf(both, "shop/new.py"), "SECRET_ADDED shop/new.py",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn := propose(row.edits, row.claim)
			w := newWorld(t, "turns:"+turn+turn)
			w.env["ERRAND_PROTECTED_PATHS"] = "docs/**\nother/**"
			w.plane.start.Policy.ProtectedPaths = []string{"SECRET/**"}
			if exit := w.run(); exit != runner.ExitRejected {
				t.Errorf("exit %d\n%s", exit, w.out.String())
			}
			w.ended(errand.Rejected, errand.ReasonClaimRejected)
			if len(w.plane.claims) != 2 || !strings.Contains(codes(w.plane.claims[0]), row.finding) {
				t.Fatalf("claims %+v, want %s", w.plane.claims, row.finding)
			}
			if w.plane.claims[0].Final || !w.plane.claims[1].Final {
				t.Error("one correction is offered, and no second")
			}
			if len(w.hub.branches())+w.hub.posts != 0 {
				t.Error("something was pushed")
			}
			if want := strings.TrimSpace(row.finding); !strings.Contains(strings.Join(w.toolResults(), "\n"), "- "+want) {
				t.Errorf("the agent was not told: %q", w.toolResults())
			}
		})
	}
}

func TestACorrectedProposalGoesThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns:"+propose(`[`+editCart+`, {path: shop/new.py, content: "x\n"}]`, claimCart)+propose(`[`+editCart+`]`, claimCart))
	if exit := w.run(); exit != runner.ExitDone {
		t.Fatalf("exit %d\n%s", exit, w.out.String())
	}
	w.ended(errand.PROpened, "")
	if got := w.hub.in("diff", "--name-only", "main", branch); got != "shop/cart.py\n" {
		t.Errorf("changed %q", got)
	}
}

func TestTheControlPlanesWordIsFollowed(t *testing.T) {
	t.Parallel()
	mismatch := propose(`[`+editCart+`, {path: shop/new.py, content: "x\n"}]`, claimCart)
	for name, row := range map[string]struct {
		turns, decision string
		calls           int
		state           errand.RunState
		reason          errand.Reason
		exit            runner.Exit
	}{
		"blocked by another run":              {propose(`[`+editCart+`]`, claimCart), "blocked", 30, errand.Rejected, errand.ReasonBlockedBy, runner.ExitRejected},
		"rejected although the files hold":    {propose(`[`+editCart+`]`, claimCart), "rejected", 30, errand.Rejected, errand.ReasonClaimRejected, runner.ExitRejected},
		"admitted although nothing holds":     {mismatch, "admitted", 30, errand.Failed, errand.ReasonAgentError, runner.ExitFailed},
		"a word that nobody knows":            {propose(`[`+editCart+`]`, claimCart), "maybe", 30, errand.Failed, errand.ReasonAgentError, runner.ExitFailed},
		"no correction with no call left":     {mismatch, "", 1, errand.Rejected, errand.ReasonClaimRejected, runner.ExitRejected},
		"correct, where it cannot be offered": {mismatch, "correct", 1, errand.Rejected, errand.ReasonClaimRejected, runner.ExitRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "turns:"+row.turns)
			w.plane.start.Limits.ToolCalls = row.calls
			w.plane.decide = func(wire.ClaimRequest) string { return row.decision }
			if exit := w.run(); exit != row.exit {
				t.Errorf("exit %d", exit)
			}
			w.ended(row.state, row.reason)
			if len(w.hub.branches()) != 0 {
				t.Error("something was pushed")
			}
		})
	}
}

func TestAProposalThatCannotBeAppliedIsAWrongCallAndNoClaim(t *testing.T) {
	t.Parallel()
	rows := []struct{ edits, says string }{
		{`[{path: shop/cart.py, find: "nowhere", replace: x}]`, "is not in the file"},
		{`[{path: shop/cart.py, find: "items", replace: x}]`, "2 times"},
		{`[{path: shop/cart.py, find: "items"}]`, "find and replace come together"},
		{`[{path: shop/cart.py}]`, "exactly one of content"},
		{`[{path: shop/cart.py, content: x, delete: true}]`, "exactly one of content"},
		{`[{path: shop/cart.py, content: "def total(items):\n    return sum(i.price for i in items)\n"}]`, "leave the file as it is"},
		{`[{path: shop/Cart.py, content: x}]`, "by case only"},
		{`[{path: Shop/new.py, content: x}]`, "by case only"},
		{`[{path: shop/a.py, content: x}, {path: shop/A.py, content: x}]`, "by case only"},
		{`[{path: shop/cart.py/x.py, content: x}]`, "is not a folder"},
		{`[{path: shop, content: x}]`, "is a folder"},
		{`[{path: shop/-x.py, content: x}]`, "begin with a dash"},
		{`[{path: shop/logo.png, content: x}]`, "binary"},
		{`[{path: shop/none.py, find: a, replace: b}]`, "no such file"},
		{`[{path: shop/none.py, delete: true}]`, "no such file"},
		{`[{path: shop/none.py, content: "a\0b"}]`, "binary"},
		{`[{path: shop/none.py, content: "` + strings.Repeat("0123456789abcdef", 1<<16+1) + `"}]`, "larger than 1048576"},
		{`[{path: .claim/claim.json, content: x}]`, "not part of a fix"},
		{`[]`, "no edits"},
		{`[{path: shop/cart.py, find: nowhere, replace: x}, {path: ../x, content: x}]`, "edits[1] (../x)"},
	}
	var turns strings.Builder
	for _, r := range rows {
		turns.WriteString(propose(r.edits, claimCart))
	}
	w := newWorld(t, "turns:"+turns.String()+"\n  - {text: gave up}")
	w.plane.start.Limits.OutputTokens = 1_000_000
	w.run()
	w.simClean()
	w.ended(errand.NoFix, errand.ReasonNothingToFix)
	results := w.toolResults()
	for i, r := range rows {
		if !strings.Contains(results[i], r.says) {
			t.Errorf("%.80s answered %q, want %q", r.edits, results[i], r.says)
		}
	}
	if len(w.plane.claims) != 0 {
		t.Errorf("%d claims were reported", len(w.plane.claims))
	}
}

func TestF25_UntouchedBytesLineEndingsAndModesStay(t *testing.T) {
	t.Parallel()
	files := shop()
	files["shop/bom.txt"] = "\ufeffone\ntwo\n"
	files["shop/latin.txt"] = "caf\xe9 one\ntwo\n"
	files["shop/mixed.txt"] = "a\r\nb\nc\r\n"
	files["shop/gone.txt"] = "gone\n"
	w := newWorldWith(t, "turns:"+propose(`[
		{path: shop/windows.txt, find: "two\nthree", replace: "2\n2b\nthree"},
		{path: shop/windows.txt, find: "one", replace: "1"},
		{path: shop/bom.txt, content: "one\n2\n"},
		{path: shop/latin.txt, find: "two", replace: "2"},
		{path: shop/mixed.txt, find: "b\nc", replace: "B\nc"},
		{path: shop/run.sh, find: "one", replace: "two"},
		{path: shop/gone.txt, delete: true}]`,
		`{summary: s, changes: [{path: shop/windows.txt, description: d}, {path: shop/bom.txt, description: d}, {path: shop/latin.txt, description: d},
		{path: shop/mixed.txt, description: d}, {path: shop/run.sh, description: d}, {path: shop/gone.txt, description: d, kind: delete}]}`), files)
	if exit := w.run(); exit != runner.ExitDone {
		t.Fatalf("exit %d\n%s%+v", exit, w.out.String(), w.plane.claims)
	}
	for name, want := range map[string]string{
		"windows.txt": "1\r\n2\r\n2b\r\nthree\r\n", "bom.txt": "\ufeffone\n2\n", "latin.txt": "caf\xe9 one\n2\n",
		"mixed.txt": "a\r\nB\nc\r\n", "run.sh": "#!/bin/sh\necho two\n",
	} {
		if got := w.hub.in("show", branch+":shop/"+name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := w.hub.in("ls-tree", branch, "shop/run.sh"); !strings.HasPrefix(got, "100755 ") {
		t.Errorf("mode: %s", got)
	}
	if got := w.hub.in("diff", "--name-status", "--diff-filter=D", "main", branch); got != "D\tshop/gone.txt\n" {
		t.Errorf("deleted: %q", got)
	}
}

func TestTheRepositorysOwnPolicyCounts(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ policy, says string }{
		"its protected paths":           {"protected: [shop/**]\n", "PROTECTED_PATH shop/cart.py"},
		"its lower limit":               {"max_lines: 1\n", "DIFF_TOO_LARGE"},
		"a limit that is no number":     {"max_lines: many\n", ""},
		"a limit below one":             {"max_files: 0\n", ""},
		"a field that does not exist":   {"allow: everything\n", ""},
		"a pattern that takes off ours": {"protected: [\"!.github/**\"]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := shop()
			files[".errand/policy.yml"] = row.policy
			turn := propose(`[`+editCart+`]`, claimCart)
			w := newWorldWith(t, "turns:"+turn+turn, files)
			// A policy of the work tree has no say.
			write(t, filepath.Join(w.workspace, ".errand/policy.yml"), "max_lines: 400\n")
			w.run()
			if row.says == "" {
				w.ended(errand.Failed, errand.ReasonAgentError)
				if !strings.Contains(w.summary(), "policy") || len(w.sim.Requests()) != 0 {
					t.Errorf("summary %s", w.summary())
				}
				return
			}
			w.ended(errand.Rejected, errand.ReasonClaimRejected)
			if !strings.Contains(codes(w.plane.claims[0]), row.says) {
				t.Errorf("findings %s", codes(w.plane.claims[0]))
			}
		})
	}
}

func TestC33_ARefusedPullRequestKeepsItsBranchAndItsText(t *testing.T) {
	t.Parallel()
	refusal, err := os.ReadFile("testdata/pulls.create.403.actions_not_permitted.json")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "turns:"+fixTurn(""))
	w.hub.refuse = func(int, map[string]any) (int, string) { return http.StatusForbidden, string(refusal) }
	if exit := w.run(); exit != runner.ExitFailed {
		t.Errorf("exit %d", exit)
	}
	w.ended(errand.Failed, errand.ReasonPRNotPermitted)
	if got := w.hub.branches(); !slices.Equal(got, []string{branch}) {
		t.Fatalf("branches %q", got)
	}
	if m := w.hub.in("log", "-1", "--format=%B", branch); !strings.Contains(m, "The cart may be None.") {
		t.Errorf("the text is not in the commit: %s", m)
	}
	for _, want := range []string{
		w.hub.url + "/acme/shop/compare/main..." + branch + "?expand=1", "The cart may be None.", "Allow GitHub Actions to create and approve pull requests", "pr-token",
	} {
		if !strings.Contains(w.summary(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, w.summary())
		}
	}
	for _, b := range w.plane.bodies {
		if strings.Contains(b, "The cart may be None.") {
			t.Error("the text went to the control plane")
		}
	}
	if w.hub.posts != 1 {
		t.Errorf("%d attempts at what is not permitted", w.hub.posts)
	}
}

func TestThePullRequestIsMadeOnceWhateverGitHubDoes(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		set   func(*hub)
		state errand.RunState
		posts int
	}{
		"its answer is lost":      {func(h *hub) { h.lose = 1 }, errand.PROpened, 1},
		"it fails twice":          {func(h *hub) { h.refuse = failing(2, 502, `{"message":"Bad gateway"}`) }, errand.PROpened, 3},
		"a secondary rate limit":  {func(h *hub) { h.refuse = failing(1, 403, `{"message":"You have exceeded a secondary rate limit."}`) }, errand.PROpened, 2},
		"it fails for good":       {func(h *hub) { h.refuse = failing(9, 500, `oops`) }, errand.Failed, 4},
		"a permission is missing": {func(h *hub) { h.refuse = failing(9, 403, `{"message":"Resource not accessible by integration"}`) }, errand.Failed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "turns:"+fixTurn(""))
			row.set(w.hub)
			w.run()
			reason := errand.Reason("")
			if row.state == errand.Failed {
				reason = errand.ReasonPublishFailed
			}
			w.ended(row.state, reason)
			if w.hub.posts != row.posts || len(w.hub.pulls) > 1 {
				t.Errorf("%d requests, %d pull requests", w.hub.posts, len(w.hub.pulls))
			}
		})
	}
}

func failing(times, status int, answer string) func(int, map[string]any) (int, string) {
	return func(n int, _ map[string]any) (int, string) {
		if n <= times {
			return status, answer
		}
		return 0, ""
	}
}

func TestAnUncertainFixIsADraft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns:"+fixTurn(`\n\n## Uncertain fix\nWhere the None comes from is not known.`))
	w.run()
	w.ended(errand.PROpened, "")
	if w.hub.pulls[0]["draft"] != true || !w.plane.result.PullRequest.Draft {
		t.Errorf("%v", w.hub.pulls[0])
	}
}

func TestWhereDraftsAreNotToBeHadTheTitleSaysIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns:"+fixTurn(`\n\n## Uncertain fix\nWhy is not known.`))
	w.hub.refuse = failing(1, 422, `{"message":"Validation Failed","errors":["Draft pull requests are not supported in this repository."]}`)
	w.run()
	w.ended(errand.PROpened, "")
	if p := w.hub.pulls[0]; p["draft"] != false || !strings.HasPrefix(p["title"].(string), "[needs review] ") {
		t.Errorf("%v", p)
	}
}

func TestThePRTokenOpensAndTheGitHubTokenPushes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns:"+fixTurn(""))
	w.env["ERRAND_PR_TOKEN"] = "github_pat_HUSHHUSH"
	w.run()
	w.ended(errand.PROpened, "")
	if w.hub.pulls[0]["token"] != "github_pat_HUSHHUSH" {
		t.Errorf("token %v", w.hub.pulls[0]["token"])
	}
}

func TestALongBodyIsCutWithAMarkAndKeepsWhatErrandSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns:"+fixTurn(strings.Repeat("ü and more. ", 7000)))
	w.run()
	w.ended(errand.PROpened, "")
	body := w.hub.pulls[0]["body"].(string)
	if n := utf8.RuneCountInString(body); n > 65_536 || n < 65_000 {
		t.Errorf("%d characters", n)
	}
	if !strings.Contains(body, "[cut: the text was longer than GitHub takes]") || !strings.Contains(body, "\nErrand-Run: "+runID+"\n") {
		t.Error("the mark or the trailer is missing")
	}
}

func TestF30_ABranchThatIsThereIsNotOverwritten(t *testing.T) {
	t.Parallel()
	t.Run("somebody else's: another name is taken", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "turns:"+fixTurn(""))
		w.hub.in("branch", branch, "main")
		w.run()
		w.ended(errand.PROpened, "")
		if got := w.hub.branches(); !slices.Equal(got, []string{branch, branch + "-2"}) || w.plane.result.PullRequest.Branch != branch+"-2" {
			t.Errorf("branches %q, reported %+v", got, w.plane.result.PullRequest)
		}
		if w.hub.in("rev-parse", branch) != w.hub.in("rev-parse", "main") {
			t.Error("it was overwritten")
		}
	})
	t.Run("with a pull request of this run: it is adopted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "turns:"+fixTurn(""))
		w.hub.in("branch", branch, "main")
		w.hub.pulls = []map[string]any{{
			"number": 9, "html_url": "https://github.com/acme/shop/pull/9", "head": map[string]any{"ref": branch}, "body": "text\n\nErrand-Run: " + runID + "\n", "draft": false,
		}}
		w.run()
		w.ended(errand.PROpened, "")
		if r := w.plane.result.PullRequest; r.Number != 9 || w.hub.posts != 0 || len(w.hub.branches()) != 1 {
			t.Errorf("%+v, %d posts", r, w.hub.posts)
		}
	})
	t.Run("with a pull request of another run: another name is taken", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "turns:"+fixTurn(""))
		w.hub.in("branch", branch, "main")
		w.hub.pulls = []map[string]any{{
			"number": 9, "html_url": "https://github.com/acme/shop/pull/9", "head": map[string]any{"ref": branch}, "body": "Errand-Run: 0190f3a2-7c1d-7e52-9b0a-000000000001", "draft": false,
		}}
		w.run()
		w.ended(errand.PROpened, "")
		if r := w.plane.result.PullRequest; r.Number != 2 || r.Branch != branch+"-2" {
			t.Errorf("%+v", r)
		}
	})
}

func TestARefusedPushIsAnEndWithItsReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns:"+fixTurn(""))
	w.hub.refused = "no"
	if exit := w.run(); exit != runner.ExitFailed {
		t.Errorf("exit %d", exit)
	}
	w.ended(errand.Failed, errand.ReasonPushRefused)
	if !strings.Contains(w.summary(), "contents: write") {
		t.Errorf("summary: %s", w.summary())
	}
}

// C17: the work took longer than the token that pushes it lives. That is an end, told with its cause; the agent is over by then,
// and is not asked to find a way around it.
func TestC17_ATokenThatHasEndedIsNoTaskForTheAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns:"+fixTurn("")+`
  - text: never asked`)
	w.hub.ended = true
	if exit := w.run(); exit != runner.ExitFailed {
		t.Errorf("exit %d\n%s", exit, w.out.String())
	}
	w.ended(errand.Failed, errand.ReasonPushRefused)
	if !strings.Contains(w.summary(), "The token may not push") {
		t.Errorf("summary: %s", w.summary())
	}
	if n := len(w.sim.Requests()); n != 1 || w.hub.pushes != 1 || len(w.hub.branches()) != 0 || len(w.hub.pulls) != 0 {
		t.Errorf("%d requests to the model, %d pushes, branches %q, %d pull requests", n, w.hub.pushes, w.hub.branches(), len(w.hub.pulls))
	}
}

func TestTextOfTheAgentIsMadeFitForThePublic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns:"+fixTurn(`[skip ci] \u200bhidden `+ghToken+` and AKIAIOSFODNN7EXAMPLQ`))
	w.run()
	w.ended(errand.PROpened, "")
	message := w.hub.in("log", "-1", "--format=%B", branch)
	for _, text := range []string{message, w.hub.pulls[0]["body"].(string)} {
		if strings.Contains(text, "HUSHHUSH") || strings.Contains(text, "\u200b") || strings.Contains(text, "AKIAIOSFODNN7") {
			t.Errorf("not fit: %s", text)
		}
	}
	if strings.Contains(message, "[skip ci]") {
		t.Error("the commit would keep the checks from running")
	}
}
