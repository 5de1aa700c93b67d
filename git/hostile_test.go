package git

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// traps are the settings by which a repository makes git start a program, each of which leaves a file behind.
func traps(marks string) string {
	leave := func(name string) string { return fmt.Sprintf("sh -c 'touch %s/%s' -", marks, name) }
	return strings.NewReplacer("\t", "").Replace(fmt.Sprintf(`
	[core]
	fsmonitor = %s
	sshCommand = %s
	pager = %s
	askPass = %s/askpass.sh
	attributesFile = %s/attributes
	alternateRefsCommand = %s
	gitProxy = %s/askpass.sh
	[filter "x"]
	clean = %s
	smudge = %s
	process = %s
	required = true
	[diff]
	external = %s
	[diff "x"]
	textconv = %s
	command = %s
	[merge "x"]
	driver = %s
	[credential]
	helper = "!%s"
	[gpg]
	program = %s/askpass.sh
	[commit]
	gpgSign = true
	[uploadpack]
	packObjectsHook = %s
	[protocol]
	allow = always
	[alias]
	ls-tree = "!touch %s/alias"
	[include]
	path = %s/included
	`,
		leave("fsmonitor"), leave("ssh"), leave("pager"), marks, marks, leave("altrefs"), marks,
		leave("clean"), leave("smudge"), leave("process"), leave("extdiff"), leave("textconv"), leave("diffcommand"),
		leave("merge"), leave("credential"), marks, leave("packobjects"), marks, marks))
}

// hostile is a checkout whose .git and attributes are full of traps.
func hostile(t *testing.T) (dir, remote, marks string) {
	t.Helper()
	dir, remote = checkout(t, map[string]string{
		"src/a.py":       "def f():\n    return needle\n",
		"src/b.py":       "x = 1\n",
		".gitattributes": "* filter=x diff=x merge=x\n",
	})
	marks = t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.git")
	plain(t, dir, "clone", "-q", "--bare", dir, elsewhere)

	script := "#!/bin/sh\ntouch " + marks + "/hook-$(basename \"$0\")\n"
	for _, hook := range []string{
		"pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "pre-push", "reference-transaction",
		"post-index-change", "fsmonitor-watchman", "pre-auto-gc", "post-checkout", "post-rewrite",
	} {
		write(t, dir, ".git/hooks/"+hook, script)
		if err := os.Chmod(filepath.Join(dir, ".git/hooks", hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, marks, "askpass.sh", script)
	if err := os.Chmod(filepath.Join(marks, "askpass.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	redirect := fmt.Sprintf("[url %q]\n\tinsteadOf = %s\n\tpushInsteadOf = %s\n[remote \"origin\"]\n\turl = %s\n", elsewhere, remote, remote, elsewhere)
	write(t, dir, ".git/config", string(config)+traps(marks)+redirect)
	write(t, dir, ".git/info/attributes", "* filter=x diff=x -text\n")
	// What a build step left in the work tree, and a file that was changed without being declared.
	write(t, dir, "build/out.bin", "built\n")
	write(t, dir, "src/b.py", "x = 2 # not declared\n")
	return dir, remote, marks
}

func sprung(t *testing.T, marks string) []string {
	t.Helper()
	files, err := os.ReadDir(marks)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		if f.Name() != "askpass.sh" {
			names = append(names, f.Name())
		}
	}
	return names
}

// The traps are real: the git program, used as usual, springs them.
func TestF7F8_TheTrapsWorkOnPlainGit(t *testing.T) {
	t.Parallel()
	dir, _, marks := hostile(t)
	for _, args := range [][]string{{"status"}, {"add", "src/b.py"}, {"update-ref", "refs/heads/x", "HEAD"}, {"diff", "HEAD~0", "HEAD"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		_ = cmd.Run() // the required filter makes some of them fail: what counts is what ran
	}
	if got := sprung(t, marks); len(got) < 3 {
		t.Errorf("only %v sprang: this test would prove nothing", got)
	}
}

func TestF7F8_AHostileCheckoutRunsAndRedirectsNothing(t *testing.T) {
	t.Parallel()
	dir, remote, marks := hostile(t)
	before := snapshot(t, dir)
	// The remote has moved on, so that a fetch has something to bring.
	other := filepath.Join(t.TempDir(), "other")
	plain(t, filepath.Dir(other), "clone", "-q", remote, other)
	write(t, other, "src/c.py", "y = 1\n")
	plain(t, other, "add", "-A")
	plain(t, other, "commit", "-q", "-m", "second")
	plain(t, other, "push", "-q", "origin", "main")

	r := open(t, dir, Options{Remote: remote})
	trace := filepath.Join(t.TempDir(), "trace")
	r.env = append(r.env, "GIT_TRACE="+trace)
	ctx := t.Context()
	base, err := r.FetchBranch(ctx, "main")
	if err != nil || base != plain(t, other, "rev-parse", "HEAD") {
		t.Fatalf("fetched %q, %v: not from the remote that was given", base, err)
	}
	if _, err := r.LsFiles(ctx); err != nil {
		t.Error(err)
	}
	if files, _, err := r.Grep(ctx, "needle", "", 20); err != nil || len(files) != 1 || files[0] != "src/a.py" {
		t.Errorf("grep: %v, %v", files, err)
	}
	c, err := r.Commit(ctx, CommitSpec{Parent: base, Message: "fix\n", Author: someone, Changes: []FileChange{
		{Path: "src/a.py", Content: []byte("def f():\r\n    return 1\r\n")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	diff, err := r.Diff(ctx, base, c)
	if err != nil || len(diff) != 1 || diff[0].Path != "src/a.py" {
		t.Errorf("the commit holds %v, %v: want src/a.py alone", diff, err)
	}
	if b, _, err := r.ReadFile(ctx, c, "src/a.py", 1000); err != nil || string(b) != "def f():\r\n    return 1\r\n" {
		t.Errorf("a filter touched the content: %q, %v", b, err)
	}
	if _, err := r.AddedLines(ctx, base, c); err != nil {
		t.Error(err)
	}
	if _, err := r.Patch(ctx, base, c); err != nil {
		t.Error(err)
	}
	if err := r.Push(ctx, c, "errand/fix"); err != nil {
		t.Fatal(err)
	}
	if got := plain(t, remote, "rev-parse", "refs/heads/errand/fix"); got != c {
		t.Errorf("the remote that was given has %q, want %q", got, c)
	}
	if got, ok, err := r.RemoteBranch(ctx, "errand/fix"); err != nil || !ok || got != c {
		t.Errorf("remote branch %q %v %v", got, ok, err)
	}
	// A fetch that borrows objects asks the lender for its refs, by a git of the lender's own configuration.
	if ran, err := os.ReadFile(trace); err != nil || !strings.Contains(string(ran), "upload-pack") || strings.Contains(string(ran), "--git-dir="+dir) {
		t.Errorf("a git was started inside the checkout, or nothing was traced (%v)", err)
	}
	if got := sprung(t, marks); len(got) != 0 {
		t.Errorf("programs ran: %v", got)
	}
	if after := snapshot(t, dir); !maps.Equal(before, after) {
		t.Error("the checkout was written to")
	}
}

func TestTheEnvironmentIsBuiltFromNothing(t *testing.T) {
	t.Setenv("GIT_TRACE", "1")
	t.Setenv("GIT_EXTERNAL_DIFF", "false")
	t.Setenv("GIT_DIR", "/nonexistent")
	t.Setenv("GIT_SSH_COMMAND", "false")
	dir, _ := func() (string, string) {
		for _, name := range []string{"GIT_DIR", "GIT_TRACE"} {
			if os.Getenv(name) == "" {
				t.Fatal("not set")
			}
		}
		return checkout(t, map[string]string{"a.txt": "one\n"})
	}()
	r := open(t, dir, Options{Env: []string{"HTTPS_PROXY=http://p:1", "GIT_TRACE=1", "LD_PRELOAD=x", "PATH=/x"}})
	env := strings.Join(r.environment(call{}), "\n")
	for _, bad := range []string{"GIT_TRACE", "LD_PRELOAD", "GIT_EXTERNAL_DIFF", "GIT_SSH", "PATH=/x", "GIT_DIR=/nonexistent"} {
		if strings.Contains(env, bad) {
			t.Errorf("git would see %s", bad)
		}
	}
	if !strings.Contains(env, "HTTPS_PROXY=http://p:1") {
		t.Error("the proxy is lost")
	}
	if _, err := r.Diff(t.Context(), r.head, r.head); err != nil {
		t.Error(err)
	}
}
