package git

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestF19F21_EveryKindOfChange(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{
		"edit.txt": "a\nb\nc\n", "gone.txt": "x\n", "moved-from.txt": "same\nsame\nsame\n", "mode.sh": "#!/bin/sh\n", "both.sh": "x\n",
		"type.txt": "target\n", "bin.dat": "\x00\x01", "untouched.txt": "u\n", "empty.txt": "",
	})
	a := plain(t, dir, "rev-parse", "HEAD")
	plain(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+a+",vendor/sub")
	plain(t, dir, "commit", "-q", "-m", "submodule")
	a = plain(t, dir, "rev-parse", "HEAD")

	write(t, dir, "edit.txt", "a\nB\nc\nd")
	write(t, dir, "both.sh", "y\n")
	write(t, dir, "bin.dat", "\x00\x02")
	write(t, dir, "new.txt", "1\n2\n")
	write(t, dir, "new-empty.txt", "")
	for _, p := range []string{"mode.sh", "both.sh"} {
		if err := os.Chmod(filepath.Join(dir, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Remove(filepath.Join(dir, "gone.txt")), os.Remove(filepath.Join(dir, "type.txt")),
		os.Symlink("target", filepath.Join(dir, "type.txt")),
		os.Rename(filepath.Join(dir, "moved-from.txt"), filepath.Join(dir, "moved-to.txt")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	plain(t, dir, "add", "-A", "--", ":!vendor")
	plain(t, dir, "update-index", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",vendor/sub")
	plain(t, dir, "commit", "-q", "-m", "all of it")
	r := open(t, dir, Options{})

	diff, err := r.Diff(t.Context(), a, r.head)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		path, oldMode, newMode string
		kind                   Kind
		added, removed         int
		binary                 bool
	}
	var got []row
	for _, c := range diff {
		got = append(got, row{c.Path, c.OldMode, c.NewMode, c.Kind, c.Added, c.Removed, c.Binary})
		if !IsHash(c.OldHash) || !IsHash(c.NewHash) {
			t.Errorf("%s: hashes %q %q", c.Path, c.OldHash, c.NewHash)
		}
	}
	want := []row{
		{"bin.dat", ModeFile, ModeFile, Edit, 0, 0, true},
		{"both.sh", ModeFile, ModeExecutable, Edit, 1, 1, false},
		{"edit.txt", ModeFile, ModeFile, Edit, 2, 1, false},
		{"gone.txt", ModeFile, ModeAbsent, Delete, 0, 1, false},
		{"mode.sh", ModeFile, ModeExecutable, ModeOnly, 0, 0, false},
		{"moved-from.txt", ModeFile, ModeAbsent, Delete, 0, 3, false},
		{"moved-to.txt", ModeAbsent, ModeFile, Add, 3, 0, false},
		{"new-empty.txt", ModeAbsent, ModeFile, Add, 0, 0, false},
		{"new.txt", ModeAbsent, ModeFile, Add, 2, 0, false},
		{"type.txt", ModeFile, ModeSymlink, Type, 1, 1, false},
		{"vendor/sub", ModeSubmodule, ModeSubmodule, Submodule, 1, 1, false},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	added, err := r.AddedLines(t.Context(), a, r.head)
	if err != nil {
		t.Fatal(err)
	}
	if l := added["edit.txt"]; !slices.Equal(l, []Line{{2, "B"}, {4, "d"}}) {
		t.Errorf("added lines of edit.txt: %v", l)
	}
	if l := added["type.txt"]; !slices.Equal(l, []Line{{1, "target"}}) {
		t.Errorf("added lines of type.txt: %v", l)
	}
	if len(added["bin.dat"]) != 0 || len(added["gone.txt"]) != 0 {
		t.Errorf("lines of a binary or deleted file: %v", added)
	}
	patchApplies(t, r, a)
}

// patchApplies holds Patch against git apply: base and patch give the tree again.
func patchApplies(t *testing.T, r *Repo, base string) {
	t.Helper()
	patch, err := r.Patch(t.Context(), base, r.head)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "apply")
	plain(t, filepath.Dir(dir), "clone", "-q", "--shared", "--no-checkout", r.gitDir(), dir)
	plain(t, dir, "read-tree", base)
	cmd := exec.CommandContext(t.Context(), "git", "apply", "--cached", "-")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s", err, out)
	}
	want := plain(t, dir, "rev-parse", r.head+"^{tree}")
	if got := plain(t, dir, "write-tree"); got != want {
		t.Errorf("the patch gives tree %s, want %s", got, want)
	}
}

func TestAttributesHideNothing(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a.py": "x\n", ".gitattributes": "*.py -diff binary\n"})
	r := open(t, dir, Options{})
	c := commit(t, r, FileChange{Path: "a.py", Content: []byte("token\n")})
	diff, err := r.Diff(t.Context(), r.head, c)
	if err != nil || len(diff) != 1 || diff[0].Binary || diff[0].Added != 1 {
		t.Errorf("diff %+v, %v", diff, err)
	}
	if l, err := r.AddedLines(t.Context(), r.head, c); err != nil || len(l["a.py"]) != 1 {
		t.Errorf("added lines %v, %v", l, err)
	}
}

func TestDiffTakesFullNamesOnly(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a": "x\n"})
	r := open(t, dir, Options{})
	for _, bad := range []string{"HEAD", "--output=/tmp/x", "", r.head[:12]} {
		if _, err := r.Diff(t.Context(), bad, r.head); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
