package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errand-dev/errand/git"
)

// The fences overlap on purpose, so each is also held by itself.

func TestF1_F7_TheFenceOfLetters(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]string{
		"up": "../x", "up in the middle": "a/../b", "absolute": "/x", "empty part": "a//b", "a dot": "./a", "NUL": "a\x00", "backslash": `a\b`, "line break": "a\nb",
		"escape": "a\x1bb", ".git": ".git/config", ".GIT": ".GIT", "below a folder": "a/.Git/x", "with a dot": ".git./x", "with a blank": ".git /x",
		"short name": "GIT~1/x", "a stream": ".git::$INDEX_ALLOCATION/x", "hidden in it": ".g\u200cit/x", "a mark before it": "\ufeff.git/x", "right to left": "a\u202eb",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var no *refusal
			if err := checkPath(p); !errors.As(err, &no) {
				t.Errorf("%q passes: %v", p, err)
			}
			if reportable(p) != "" {
				t.Errorf("%q would be reported", p)
			}
		})
	}
	for _, p := range []string{"a", "a/b.py", "-n", ".gitignore", ".github/x", "a b/ü.md", "a/[id].py", "gitx", "a..b"} {
		if err := checkPath(p); err != nil {
			t.Errorf("%q does not pass: %v", p, err)
		}
	}
}

func TestF2_F3_TheFenceOfTheWorkTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"real", "vcs"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "real/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"folder": "real", "file": "real/file", "out": "/", "broken": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // a test
	tr := &tree{root: root}
	if tr.gitDir, err = root.Lstat("vcs"); err != nil { // as if the git folder went by another name here
		t.Fatal(err)
	}
	for p, says := range map[string]string{
		"folder/file": "symbolic link", "file": "symbolic link", "out/etc": "symbolic link", "broken": "symbolic link", "broken/new": "symbolic link",
		"vcs/config": "the git folder", "vcs": "the git folder", "real/file/x": "not a folder", "real": "is a folder",
	} {
		if _, _, err := tr.walk(p, false); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", p, err, says)
		}
	}
	if _, found, err := tr.walk("real/file", false); !found || err != nil {
		t.Errorf("a real file: %v %v", found, err)
	}
	if _, found, err := tr.walk("real/none/deep", false); found || err != nil {
		t.Errorf("a file that is not there: %v %v", found, err)
	}
}

func TestF21_TheFenceOfTheBaseCommit(t *testing.T) {
	t.Parallel()
	tr := &tree{folders: map[string][]string{"folder": {"x"}}, entries: map[string]git.Entry{
		"file": {Mode: git.ModeFile}, "tool": {Mode: git.ModeExecutable}, "link": {Mode: git.ModeSymlink}, "module": {Mode: git.ModeSubmodule},
	}}
	for p, says := range map[string]string{
		"file": "", "tool": "", "link": "symbolic link", "module": "a submodule", "folder": "is a folder", "none": "there is no file",
	} {
		_, err := tr.entry(p)
		if (err == nil) != (says == "") || (err != nil && !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", p, err, says)
		}
	}
}
