package runner_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runner"
	"github.com/errand-dev/errand/wire"
)

func TestAnErrorBecomesAPullRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `
model: claude-sonnet-5
turns:
  - text: I look.
    tool_calls: [{name: get_file_contents, input: {path: shop/cart.py}}, {name: list_directory, input: {path: .}}, {name: search_code, input: {query: "def total"}}]
    usage: {input_tokens: 10, cache_creation_input_tokens: 900, cache_creation: {ephemeral_5m_input_tokens: 900}, output_tokens: 60, service_tier: standard}
    expect:
      contains: [shop/cart.py, "'NoneType' object is not iterable", rules-of-the-base, "Written by the tracker: release", "Written by whoever made the program fail, or by the program: exceptions"]
      tools: [get_file_contents, list_directory, search_code, create_pull_request]`+fixTurn("")+`
    usage: {input_tokens: 4, cache_read_input_tokens: 900, output_tokens: 90}
`)
	// What a step before left behind, and a checkout that wants to run programs.
	write(t, filepath.Join(w.workspace, "build/out.js"), "left by a build\n")
	write(t, filepath.Join(w.workspace, "shop/cart.py.orig"), "left by a tool\n")
	canary := filepath.Join(t.TempDir(), "ran")
	hostile := "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = \"touch " + canary + "\"\n\thooksPath = " + w.workspace + "/.git/hooks\n" +
		"[filter \"evil\"]\n\tclean = touch " + canary + "\n\tsmudge = touch " + canary + "\n\trequired = true\n" +
		"[diff \"evil\"]\n\ttextconv = touch " + canary + "\n\tcommand = touch " + canary + "\n" +
		"[url \"http://127.0.0.1:1/\"]\n\tinsteadOf = " + w.hub.url + "/\n[credential]\n\thelper = \"!touch " + canary + "\"\n"
	write(t, filepath.Join(w.workspace, ".git/config"), hostile)
	for _, hook := range []string{"pre-commit", "post-commit", "pre-push", "reference-transaction", "post-index-change"} {
		write(t, filepath.Join(w.workspace, ".git/hooks", hook), "#!/bin/sh\ntouch "+canary+"\n")
		if err := os.Chmod(filepath.Join(w.workspace, ".git/hooks", hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if exit := w.run(); exit != runner.ExitDone {
		t.Errorf("exit %d\n%s", exit, w.out.String())
	}
	w.simClean()
	w.ended(errand.PROpened, "")

	t.Run("the branch holds the declared file and nothing else", func(t *testing.T) {
		if got := w.hub.branches(); !slices.Equal(got, []string{branch}) {
			t.Fatalf("branches %q", got)
		}
		if got := w.hub.in("diff", "--name-status", "main", branch); got != "M\tshop/cart.py\n" {
			t.Errorf("changed: %q", got)
		}
		if got := w.hub.in("show", branch+":shop/cart.py"); got != "def total(items):\n"+fixedLine {
			t.Errorf("content: %q", got)
		}
		if got := w.hub.in("log", "-1", "--format=%an <%ae>%n%P", branch); got != "github-actions[bot] <41898282+github-actions[bot]@users.noreply.github.com>\n"+w.hub.in("rev-parse", "main") {
			t.Errorf("author and parent: %s", got)
		}
		message := w.hub.in("log", "-1", "--format=%B", branch)
		if !strings.HasPrefix(message, "Treat a missing cart as empty\n\nThe cart may be None.") || !strings.Contains(message, "\nErrand-Run: "+runID+"\nErrand-Claim: ") {
			t.Errorf("message: %s", message)
		}
		if _, err := os.Stat(canary); err == nil {
			t.Error("a program of the checkout was run")
		}
		if b, err := os.ReadFile(filepath.Join(w.workspace, ".git/config")); err != nil || string(b) != hostile {
			t.Error("the checkout's configuration was changed")
		}
	})
	t.Run("the pull request says what was checked", func(t *testing.T) {
		if len(w.hub.pulls) != 1 {
			t.Fatalf("%d pull requests", len(w.hub.pulls))
		}
		p := w.hub.pulls[0]
		if p["title"] != "Treat a missing cart as empty" || p["base"] != "main" || p["draft"] != false || p["token"] != ghToken {
			t.Errorf("pull request: %v", p)
		}
		body := p["body"].(string)
		for _, want := range []string{
			"The cart may be None.", "**Files verified, words not judged.**", "| `shop/cart.py` | edit, +1 −1 | uses an empty list when items is None |",
			"4 of 30 tool calls", "1814 input tokens (900 of them from the cache), 150 output tokens", "https://errand.example.com/runs/" + runID, "\nErrand-Run: " + runID + "\n",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("the body lacks %q:\n%s", want, body)
			}
		}
	})
	t.Run("the control plane knows every step and every count", func(t *testing.T) {
		r := w.plane.result
		if r.PullRequest.Number != 1 || r.PullRequest.Branch != branch || r.ToolCalls != 4 || r.Model != "claude-sonnet-5" || r.Summary != "Treat a missing cart as empty" {
			t.Errorf("result %+v", r)
		}
		for tool, want := range map[string]wire.Step{
			"resolve_frames":      {Outcome: "ok", Count: 1},
			"get_file_contents":   {Outcome: "ok", Path: "shop/cart.py", Count: 2},
			"list_directory":      {Outcome: "ok", Path: ".", Count: 9},
			"search_code":         {Outcome: "ok", Path: ".", Count: 1},
			"create_pull_request": {Outcome: "ok", Count: 1},
		} {
			got := w.plane.stepsOf(tool)
			if len(got) != 1 || got[0].Outcome != want.Outcome || got[0].Path != want.Path || got[0].Count != want.Count {
				t.Errorf("%s: %+v", tool, got)
			}
		}
		if got := string(w.plane.usage[1].Raw); got != `{"input_tokens":10,"cache_creation_input_tokens":900,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":900,"ephemeral_1h_input_tokens":0},"output_tokens":60,"service_tier":"standard"}` {
			t.Errorf("usage: %s", got)
		}
		c := w.plane.claims[0]
		if c.Verdict != "needs_review" || c.Reason != "NO_JUDGE" || len(c.Findings) != 0 || fmt.Sprint(c.Files) != "[{shop/cart.py edit 1 1}]" {
			t.Errorf("claim %+v", c)
		}
	})
	t.Run("the job's summary and outputs", func(t *testing.T) {
		s := w.summary()
		if !strings.Contains(s, "## Errand: a pull request is open") || !strings.Contains(s, "| get_file_contents | shop/cart.py | ok | 2 |") {
			t.Errorf("summary:\n%s", s)
		}
		out, err := os.ReadFile(w.env["GITHUB_OUTPUT"])
		if err != nil || !strings.Contains(string(out), "state=pr_opened\n") || !strings.Contains(string(out), "branch="+branch+"\n") {
			t.Errorf("outputs: %s %v", out, err)
		}
		if left, _ := filepath.Glob(filepath.Join(w.temp, "errand-*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

func TestD13_D14_D15_MasksComeFirstAndSecretsNowhereElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: nothing to do}]")
	w.env["ERRAND_PR_TOKEN"] = "github_pat_HUSHHUSH"
	w.run()
	lines := strings.Split(w.out.String(), "\n")
	for i, v := range []string{ticket, apiKey, ghToken, "github_pat_HUSHHUSH"} {
		if lines[i] != "::add-mask::"+v {
			t.Errorf("line %d is %q, want the mask of %q", i+1, lines[i], v)
		}
	}
	word, ok := strings.CutPrefix(lines[4], "::stop-commands::")
	if !ok || len(word) < 32 {
		t.Fatalf("commands are not stopped after the masks: %q", lines[4])
	}
	if !slices.Contains(lines, "::add-mask::"+runToken) {
		t.Error("the run token is not masked")
	}
	for i, at := 5, word; i < len(lines); i++ {
		switch line := lines[i]; {
		case line == "::"+at+"::":
			at = ""
		case strings.HasPrefix(line, "::stop-commands::"):
			at = strings.TrimPrefix(line, "::stop-commands::")
		case at == "" && line != "" && !strings.HasPrefix(line, "::add-mask::") && !strings.HasPrefix(line, "::error "):
			t.Errorf("printed while commands are let through: %q", line)
		}
	}
}

func TestUntrustedTextIsNoCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `turns: [{text: "::set-output name=x::y\n::error::pwned"}]`)
	w.plane.start.RunURL = "https://x/\n::error::pwned"
	w.run()
	open := true
	for line := range strings.Lines(w.out.String()) {
		if strings.HasPrefix(line, "::stop-commands::") {
			open = false
		} else if strings.HasPrefix(line, "::") && len(strings.TrimSpace(line)) == 36 {
			open = true
		}
		if open && strings.Contains(line, "pwned") {
			t.Errorf("a command of strangers: %q", line)
		}
	}
}

func TestNothingToFixIsAnEndWithItsReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `turns: [{text: "The input is wrong, not the code. Mail bob@example.com."}]`)
	if exit := w.run(); exit != runner.ExitDone {
		t.Errorf("exit %d", exit)
	}
	w.ended(errand.NoFix, errand.ReasonNothingToFix)
	if s := w.plane.result.Summary; !strings.HasPrefix(s, "The input is wrong") || strings.Contains(s, "bob@") {
		t.Errorf("summary %q", s)
	}
	if len(w.hub.branches()) != 0 {
		t.Error("a branch was pushed")
	}
}

func TestWrongRepositoryEndsBeforeTheModelIsAsked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world){
		"no frame of the application is here": func(w *world) {
			w.plane.start.Event.Exceptions[0].Frames[1].Filename = "other/place.py"
			w.plane.start.Event.Exceptions[0].Frames[1].AbsPath = "/srv/other/place.py"
		},
		"the errand is for another repository's id": func(w *world) { w.plane.start.Repository.ID = 43 },
		"the id is unknown and the name differs": func(w *world) {
			w.env["GITHUB_REPOSITORY_ID"] = ""
			w.plane.start.Repository.FullName = "acme/other"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "turns: [{text: never asked}]")
			change(w)
			if exit := w.run(); exit != runner.ExitFailed {
				t.Errorf("exit %d", exit)
			}
			w.ended(errand.Failed, errand.ReasonWrongRepository)
			if n := len(w.sim.Requests()); n != 0 {
				t.Errorf("%d model requests were paid for", n)
			}
		})
	}
}

func TestARenamedRepositoryIsKnownByItsID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns:"+fixTurn(""))
	w.plane.start.Repository.FullName = "acme/former-name"
	if exit := w.run(); exit != runner.ExitDone {
		t.Errorf("exit %d\n%s", exit, w.out.String())
	}
}

func TestC22_ARenameBetweenIsFollowedForThePullRequest(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "turns:"+fixTurn(""))
			w.hub.moved = status
			w.env["GITHUB_REPOSITORY"] = "acme/old"
			if exit := w.run(); exit != runner.ExitDone || len(w.hub.pulls) != 1 {
				t.Errorf("exit %d, %d pull requests\n%s", exit, len(w.hub.pulls), w.out.String())
			}
		})
	}
}

func TestC35_TheChangeStartsFromTheNewestBase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `
turns:
  - tool_calls: [{name: get_file_contents, input: {path: shop/cart.py}}]`+fixTurn("")+`
    expect: {contains: ["# newer"]}
`)
	// After the checkout the branch moves on.
	other := filepath.Join(t.TempDir(), "other")
	run(t, "", "git", "clone", "--quiet", w.hub.bare, other)
	write(t, filepath.Join(other, "shop/cart.py"), "# newer\n"+cartBuggy)
	run(t, other, "git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-am", "newer")
	run(t, other, "git", "push", "--quiet", "origin", "main")
	if exit := w.run(); exit != runner.ExitDone {
		t.Fatalf("exit %d\n%s", exit, w.out.String())
	}
	w.simClean()
	if got := w.hub.in("show", branch+":shop/cart.py"); got != "# newer\ndef total(items):\n"+fixedLine {
		t.Errorf("content: %q", got)
	}
}
