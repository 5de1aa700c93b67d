package git

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
)

func TestCommitIsExact(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a.txt": "one\n", "gone.txt": "x\n", "keep.txt": "k\n"})
	if err := os.Chmod(filepath.Join(dir, "a.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	plain(t, dir, "commit", "-q", "-a", "-m", "run it")
	r := open(t, dir, Options{})
	spec := CommitSpec{Parent: r.head, Message: "Fix it\n\nErrand-Run: 1\n", Author: someone, Changes: []FileChange{
		{Path: "a.txt", Content: []byte("two\r\n\x00end")},
		{Path: "gone.txt", Delete: true},
		{Path: "new/file.txt", Content: []byte("")},
	}}
	c, err := r.Commit(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.Commit(t.Context(), spec); err != nil || again != c {
		t.Errorf("the same spec gave %s and %s, %v", c, again, err)
	}
	entries, err := r.LsTree(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Mode+" "+e.Path)
	}
	want := []string{"100755 a.txt", "100644 keep.txt", "100644 new/file.txt"}
	if !slices.Equal(got, want) {
		t.Errorf("tree %q, want %q (the mode of a.txt is kept)", got, want)
	}
	raw, err := r.out(t.Context(), "cat-file", "commit", c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"parent " + r.head, "author Errand <errand@example.com> 1700000000 +0000", "committer Errand", "\n\nFix it\n\nErrand-Run: 1\n"} {
		if !strings.Contains(string(raw), s) {
			t.Errorf("commit lacks %q:\n%s", s, raw)
		}
	}
}

func TestCommitRefuses(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a.txt": "one\n", "d/e.txt": "x\n"})
	r := open(t, dir, Options{})
	file := func(path string) []FileChange { return []FileChange{{Path: path, Content: []byte("x")}} }
	for name, tc := range map[string]struct {
		changes []FileChange
		message string
	}{
		"nothing":                               {nil, "m"},
		"content that is there already":         {[]FileChange{{Path: "a.txt", Content: []byte("one\n")}}, "m"},
		"a path twice":                          {append(file("x"), file("x")...), "m"},
		"a deletion of what is not there":       {[]FileChange{{Path: "no", Delete: true}}, "m"},
		"a file where it would remove a file":   {file("a.txt/b"), "m"},
		"a file where it would remove a folder": {file("d"), "m"},
		"the git folder":                        {file(".git/config"), "m"},
		"the git folder by another case":        {file("sub/.GiT/hooks/pre-commit"), "m"},
		"the git folder by its short name":      {file("GIT~1/config"), "m"},
		"the git folder with an ignored rune":   {file(".g\u200cit/config"), "m"},
		"the git folder as a stream":            {file(".git::$INDEX_ALLOCATION/config"), "m"},
		"a way out":                             {file("../x"), "m"},
		"an absolute path":                      {file("/etc/x"), "m"},
		"an empty part":                         {file("a//b"), "m"},
		"a submodule":                           {[]FileChange{{Path: "s", Mode: ModeSubmodule}}, "m"},
		"no message":                            {file("x"), " \n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := r.Commit(t.Context(), CommitSpec{Parent: r.head, Message: tc.message, Author: someone, Changes: tc.changes})
			wantCode(t, err, errand.CodeInvalid)
		})
	}
}

func TestF10F12_CheckRef(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"main", "errand/type-error-1a2b3c4d", "release/1.2", "ümlaut", "a-b", "feature/#12", "1234abc"} {
		if err := CheckRef(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "--output=/x", "-u", "@", "HEAD", "refs/heads/main", "a..b", "a b", "a~1", "a^", "a:b", "a?b", "a*", "a[b", `a\b`, "a@{0}", "a.lock",
		"a/.b", "/a", "a/", "a//b", "a.", "x.lock/y", "a\nb", "a\x7fb", strings.Repeat("a", 245), strings.Repeat("a", 40),
	} {
		wantCode(t, CheckRef(bad), errand.CodeInvalid)
	}
}

// What CheckRef lets through, git lets through.
func FuzzCheckRef(f *testing.F) {
	for _, s := range []string{"main", "a/b", "a.lock", "a..b", "-x", "é", "a@{", ".a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckRef(s) != nil || strings.IndexByte(s, 0) >= 0 {
			return
		}
		if err := exec.CommandContext(t.Context(), "git", "check-ref-format", "refs/heads/"+s).Run(); err != nil {
			t.Errorf("git refuses %q: %v", s, err)
		}
	})
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "app/[id]/page.tsx", ".github/x", ".gitignore", "a/.gitkeep", "x.git/y", "a b", "-x", "é", "\xff", "a:b", "...", "git~2"} {
		if err := CheckPath(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", ".git", ".git/config", "a/.GIT/x", "git~1/x", "GIT~1", ".git./x", ".git /x", ".git::$DATA",
		"a\x00b", strings.Repeat("a", 4097),
	} {
		wantCode(t, CheckPath(bad), errand.CodeInvalid)
	}
}
