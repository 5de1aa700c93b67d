package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runner"
)

// canary is what must never be read: it lies outside the checkout, in its .git, and in files that are not tracked.
const canary = "CANARY-content"

// trap puts everything into a checkout that a reader could be led by.
func trap(t *testing.T, w *world) {
	t.Helper()
	outside := filepath.Join(filepath.Dir(w.workspace), "shop-evil")
	write(t, filepath.Join(outside, "secret.txt"), canary)
	write(t, filepath.Join(w.workspace, ".git/config"), "[core]\n\tbare = false\n# "+canary+"\n")
	write(t, filepath.Join(w.workspace, ".env"), canary)
	for link, target := range map[string]string{
		"out":            outside,
		"out.txt":        filepath.Join(outside, "secret.txt"),
		"up":             "../shop-evil",
		"dotgit":         ".git",
		"inside":         "shop",
		"shop/inside.py": "cart.py",
		"loop":           "loop",
	} {
		if err := os.Symlink(target, filepath.Join(w.workspace, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(w.workspace, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Tracked paths whose place in the work tree was taken by something else.
	for _, p := range []string{"tests", "README.md"} {
		if err := os.RemoveAll(filepath.Join(w.workspace, p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(w.workspace, "tests")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(w.workspace, "README.md"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(w.workspace, ".git/config"), filepath.Join(w.workspace, "hardlink")); err != nil {
		t.Fatal(err)
	}
}

// TestF1_F2_F3_F7_D17_NothingOutsideTheBaseCommitIsRead holds every tool against every way out that we know.
func TestF1_F2_F3_F7_D17_NothingOutsideTheBaseCommitIsRead(t *testing.T) {
	t.Parallel()
	rows := []struct{ name, path string }{
		{"up and out", "../shop-evil/secret.txt"},
		{"up in the middle", "shop/../../shop-evil/secret.txt"},
		{"up and back in", "shop/../.git/config"},
		{"absolute", "/etc/passwd"},
		{"absolute, into the checkout's neighbour", "/tmp/shop-evil/secret.txt"},
		{"twice a slash", "shop//cart.py"},
		{"a drive", "C:\\Windows\\win.ini"},
		{"a backslash", "shop\\..\\.git\\config"},
		{"a NUL", "shop/cart.py\x00.txt"},
		{"a line break", "shop/cart.py\n"},
		{"a link out, to a folder", "out/secret.txt"},
		{"a link out, to a file", "out.txt"},
		{"a relative link out", "up/secret.txt"},
		{"a link to .git", "dotgit/config"},
		{"a link that stays inside, to a folder", "inside/cart.py"},
		{"a link that stays inside, to a file", "shop/inside.py"},
		{"a link to itself", "loop"},
		{"a tracked folder that became a link out", "tests/secret.txt"},
		{"a tracked file below a folder that became a link", "tests/test_a.py"},
		{".git", ".git/config"},
		{".git, the folder", ".git"},
		{".GIT", ".GIT/config"},
		{".Git in a folder", "shop/.Git/config"},
		{".git with a dot behind", ".git./config"},
		{".git with a blank behind", ".git /config"},
		{".git by its short name", "git~1/config"},
		{".git by its short name, in capitals", "GIT~1/config"},
		{".git as a stream", ".git::$INDEX_ALLOCATION/config"},
		{".git with a hidden character", ".g\u200cit/config"},
		{"a hard link to .git/config", "hardlink"},
		{"an untracked file", ".env"},
		{"a pipe", "pipe"},
		{"a tracked file that became a pipe", "README.md"},
		{"a name that is an option", "--output=x"},
		{"a name that is an option of grep", "-f/etc/passwd"},
		{"a pathspec", ":(top)shop/cart.py"},
		{"a pattern", "shop/*.py"},
		{"nothing", ""},
	}
	var turns strings.Builder
	calls := 0
	for _, row := range rows {
		fmt.Fprintf(&turns, "\n  - tool_calls:\n")
		edits := fmt.Sprintf("{title: t, body: b, edits: [{path: %[1]q, find: CANARY, replace: x}, {path: %[1]q, content: x}], claim: {summary: s, changes: [{path: %[1]q, description: d}]}}", row.path)
		for tool, input := range map[string]string{
			"get_file_contents": fmt.Sprintf("{path: %q}", row.path), "list_directory": fmt.Sprintf("{path: %q}", row.path),
			"search_code": fmt.Sprintf("{query: CANARY, path: %q}", row.path), "create_pull_request": edits,
		} {
			fmt.Fprintf(&turns, "      - {name: %s, input: %s}\n", tool, input)
			calls++
		}
	}
	w := newWorld(t, "turns:"+turns.String()+"\n  - {text: done, expect: {absent: ["+canary+", \"root:x:0\"]}}\n")
	trap(t, w)
	w.plane.start.Limits.ToolCalls = calls + 1
	w.plane.start.Limits.OutputTokens = 1_000_000
	if exit := w.run(); exit != runner.ExitDone {
		t.Fatalf("exit %d\n%s", exit, w.out.String())
	}
	w.simClean()
	w.ended(errand.NoFix, errand.ReasonNothingToFix)
	for _, tool := range []string{"get_file_contents", "create_pull_request"} {
		steps := w.plane.stepsOf(tool)
		if len(steps) != len(rows) {
			t.Fatalf("%d steps of %s, want %d", len(steps), tool, len(rows))
		}
		for i, s := range steps {
			if s.Outcome != "refused" {
				t.Errorf("%s %s: %s", tool, rows[i].name, s.Outcome)
			}
		}
	}
	for i, s := range w.plane.stepsOf("list_directory") {
		if ok := rows[i].name == "nothing"; (s.Outcome == "ok") != ok {
			t.Errorf("list_directory %s: %s", rows[i].name, s.Outcome)
		}
	}
	for i, s := range w.plane.stepsOf("search_code") {
		if s.Count != 0 || s.Outcome == "error" {
			t.Errorf("search_code %s: %s, %d files", rows[i].name, s.Outcome, s.Count)
		}
	}
	for _, r := range w.sim.Requests() {
		if strings.Contains(string(r.Body), canary) {
			t.Fatal("the canary reached the model")
		}
	}
	if n := len(w.hub.branches()) + len(w.plane.claims); n != 0 {
		t.Error("a proposal came through")
	}
}

func TestF13_F15_OddNamesAreReadAndChangedAsTheyAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `
turns:
  - tool_calls:
      - {name: get_file_contents, input: {path: "shop/[id].py"}}
      - {name: get_file_contents, input: {path: "-n.txt"}}
      - {name: get_file_contents, input: {path: "docs/grüße/ä b.md"}}
      - {name: search_code, input: {query: "--output=x"}}
      - {name: search_code, input: {query: "brackets", path: "shop/[id].py"}}
      - {name: search_code, input: {query: "umlaut", path: "docs"}}
  - tool_calls:
      - name: create_pull_request
        input:
          title: t
          body: b
          edits: [{path: "shop/[id].py", find: "1", replace: "2"}, {path: "docs/grüße/ä b.md", content: "new\n"}]
          claim: {summary: s, changes: [{path: "shop/[id].py", description: d}, {path: "docs/grüße/ä b.md", description: d}]}
`)
	if exit := w.run(); exit != runner.ExitDone {
		t.Fatalf("exit %d\n%s\n%q", exit, w.out.String(), w.toolResults())
	}
	results := w.toolResults()
	for i, want := range []string{"1\tbrackets = 1", "1\ta name with a dash", "1\tumlaut", "no file contains it", "shop/[id].py", "docs/grüße/ä b.md"} {
		if !strings.Contains(results[i], want) {
			t.Errorf("call %d answered %q, want %q", i+1, results[i], want)
		}
	}
	if got := w.hub.in("-c", "core.quotePath=false", "diff", "--name-only", "main", branch); got != "docs/grüße/ä b.md\nshop/[id].py\n" {
		t.Errorf("changed %q", got)
	}
}

func TestWhatTheWorkTreeHoldsInsteadOfTheCommitIsNotShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `
turns:
  - tool_calls: [{name: get_file_contents, input: {path: shop/cart.py}}, {name: get_file_contents, input: {path: shop/run.sh}}]
  - {text: done, expect: {contains: ["sum(i.price for i in items)", "echo one"], absent: [`+canary+`]}}
`)
	write(t, filepath.Join(w.workspace, "shop/cart.py"), canary)
	if err := os.Remove(filepath.Join(w.workspace, "shop/run.sh")); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.simClean()
}

func TestToolsAnswerWithinTheirBounds(t *testing.T) {
	t.Parallel()
	files := shop()
	files["shop/long.txt"] = strings.Repeat("line\n", 1000)
	files["shop/wide.txt"] = strings.Repeat("x", 5000) + "\n"
	files["shop/big.txt"] = strings.Repeat("0123456789abcde\n", 70_000)
	files["shop/hidden.txt"] = "a\u200bb\U000E0041c\n"
	files["shop/latin.txt"] = "caf\xe9\n"
	files["shop/empty.txt"] = ""
	for i := range 25 {
		files[fmt.Sprintf("many/f%02d.txt", i)] = "needle\n"
	}
	w := newWorldWith(t, `
turns:
  - tool_calls:
      - {name: get_file_contents, input: {path: shop/long.txt}}
      - {name: get_file_contents, input: {path: shop/long.txt, start_line: 990, end_line: 2000}}
      - {name: get_file_contents, input: {path: shop/long.txt, start_line: 1001}}
      - {name: get_file_contents, input: {path: shop/wide.txt}}
      - {name: get_file_contents, input: {path: shop/big.txt}}
      - {name: get_file_contents, input: {path: shop/logo.png}}
      - {name: get_file_contents, input: {path: shop/hidden.txt}}
      - {name: get_file_contents, input: {path: shop/latin.txt}}
      - {name: get_file_contents, input: {path: shop/empty.txt}}
      - {name: get_file_contents, input: {path: shop}}
      - {name: list_directory, input: {path: shop/cart.py}}
      - {name: list_directory, input: {path: "./many/"}}
      - {name: search_code, input: {query: needle}}
      - {name: search_code, input: {query: "two\nlines"}}
      - {name: get_file_contents, input: {path: shop/cart.py, mode: raw}}
      - {name: rm, input: {path: shop/cart.py}}
  - {text: done}
`, files)
	// The name of a tool that is not offered would be refused by the provider's rules in the next request.
	w.run()
	results := w.toolResults()
	if len(results) != 16 && len(w.sim.Violations()) == 0 {
		t.Fatalf("%d results", len(results))
	}
	for i, want := range []string{
		"lines 1 to 400 of 1000; go on with start_line 401", "lines 990 to 1000 of 1000", "has lines 1 to 1000: lines 1001 to 1000 are not there",
		"1 long lines cut", "larger than 1048576 bytes", "is binary (6 bytes)", "2 hidden characters left out\n1\tabc\n", "caf\ufffd", "is empty",
		"is a folder: use list_directory", "is not a folder", "f24.txt", "there are more", "one line of text", "unknown field \"mode\"", `there is no tool "rm"`,
	} {
		if !strings.Contains(results[i], want) {
			t.Errorf("call %d answered %.200q, want %q", i+1, results[i], want)
		}
	}
	if s := w.plane.stepsOf("unknown"); len(s) != 1 || s[0].Outcome != "refused" {
		t.Errorf("steps of an unknown tool: %+v", s)
	}
}
