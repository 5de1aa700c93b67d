package git

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/errand-dev/errand"
)

func TestF17F18_HunksOfAwkwardFiles(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{
		"a b/c.txt":     "1\n2\n3\n4\n5\n",
		"query.sql":     "select 1;\n-- a/query.sql\n",
		"crlf.txt":      "a\r\nb\r\n",
		"end.txt":       "x",
		"gone.txt":      "-- b/x\n",
		"tab\there.txt": "t\n",
		"bin.dat":       "\x00\x01",
		"run.sh":        "#!/bin/sh\n",
		"empty.txt":     "",
	})
	r := open(t, dir, Options{})
	c := commit(t, r,
		FileChange{Path: "a b/c.txt", Content: []byte("1\n2\nthree\n4\n5\n")},
		FileChange{Path: "query.sql", Content: []byte("select 1;\n++ b/other\n@@ -1 +1 @@\n")},
		FileChange{Path: "crlf.txt", Content: []byte("a\r\nB\r\n")},
		FileChange{Path: "end.txt", Content: []byte("x\n")},
		FileChange{Path: "gone.txt", Delete: true},
		FileChange{Path: "tab\there.txt", Content: []byte("T\n")},
		FileChange{Path: "bin.dat", Content: []byte("\x00\x02")},
		FileChange{Path: "run.sh", Mode: ModeExecutable, Content: []byte("#!/bin/sh\n")},
		FileChange{Path: "empty.txt", Delete: true},
		FileChange{Path: "w/\"q\" \xff\xf0.txt", Content: []byte("\n\n")},
	)
	got, err := r.Hunks(t.Context(), r.head, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]Hunk{
		"a b/c.txt": {{OldStart: 2, NewStart: 2, Lines: []HunkLine{{' ', 2, 2, "2"}, {'-', 3, 0, "3"}, {'+', 0, 3, "three"}, {' ', 4, 4, "4"}}}},
		"query.sql": {{OldStart: 1, NewStart: 1, Lines: []HunkLine{
			{' ', 1, 1, "select 1;"}, {'-', 2, 0, "-- a/query.sql"}, {'+', 0, 2, "++ b/other"}, {'+', 0, 3, "@@ -1 +1 @@"},
		}}},
		"crlf.txt":             {{OldStart: 1, NewStart: 1, Lines: []HunkLine{{' ', 1, 1, "a\r"}, {'-', 2, 0, "b\r"}, {'+', 0, 2, "B\r"}}}},
		"end.txt":              {{OldStart: 1, NewStart: 1, Lines: []HunkLine{{'-', 1, 0, "x"}, {'+', 0, 1, "x"}}}},
		"gone.txt":             {{OldStart: 1, NewStart: 0, Lines: []HunkLine{{'-', 1, 0, "-- b/x"}}}},
		"tab\there.txt":        {{OldStart: 1, NewStart: 1, Lines: []HunkLine{{'-', 1, 0, "t"}, {'+', 0, 1, "T"}}}},
		"w/\"q\" \xff\xf0.txt": {{OldStart: 0, NewStart: 1, Lines: []HunkLine{{'+', 0, 1, ""}, {'+', 0, 2, ""}}}},
	}
	for path := range want {
		if !reflect.DeepEqual(got[path], want[path]) {
			t.Errorf("%q:\n got %v\nwant %v", path, got[path], want[path])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files have hunks, want %d (none of a binary or empty file, nor of a mode): %v", len(got), len(want), got)
	}
	for _, around := range []int{-1, maxAround + 1} {
		_, err := r.Hunks(t.Context(), r.head, c, around)
		wantCode(t, err, errand.CodeInvalid)
	}
}

// Whatever two texts are, the removed and unchanged lines of the hunks are the old text's and the added and unchanged
// ones the new text's, at the numbers they say.
func TestHunksNameTheRightLines(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"keep.txt": "k\n"})
	r := open(t, dir, Options{})
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "", "-- x", "++ y", "@@ -1 +1 @@", "\\ z", "c\r"}), 0, 12).Draw(t, "lines"), "\n")
	})
	rapid.Check(t, func(rt *rapid.T) {
		was, is := text.Draw(rt, "old"), text.Draw(rt, "new")
		around := rapid.IntRange(0, 3).Draw(rt, "around")
		if was == is {
			return
		}
		a := commit(t, r, FileChange{Path: "f", Content: []byte(was)})
		b := commit(t, r, FileChange{Path: "f", Content: []byte(is)})
		all, err := r.Hunks(t.Context(), a, b, around)
		if err != nil {
			rt.Fatal(err)
		}
		olds, news := strings.Split(was, "\n"), strings.Split(is, "\n")
		oldSeen, newSeen := map[int]bool{}, map[int]bool{}
		for _, h := range all["f"] {
			for _, l := range h.Lines {
				if l.Op != '+' && (olds[l.Old-1] != l.Text || oldSeen[l.Old]) || l.Op != '-' && (news[l.New-1] != l.Text || newSeen[l.New]) {
					rt.Fatalf("%q -> %q: line %+v", was, is, l)
				}
				oldSeen[l.Old], newSeen[l.New] = l.Op != '+', l.Op != '-'
			}
		}
	})
}

func FuzzParseHunks(f *testing.F) {
	for _, s := range []string{
		"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n",
		"diff --git a/x b/x\n--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n--- a\n-+++ b\n",
		"@@ -1 +1 @@\n", "--- a/x\n+++ b/x\n@@ -1,9 +1 @@\n", "--- \"a/\\303\\274\"\n", "--- \"a/\\",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, patch []byte) {
		all, err := parseHunks(patch)
		if err != nil {
			return
		}
		for path, hunks := range all {
			for _, h := range hunks {
				for _, l := range h.Lines {
					numbered := (l.Op == '+') == (l.Old == 0 && l.New > 0) || h.OldStart == 0 || h.NewStart == 0
					if path == "" || !numbered || strings.Contains(l.Text, "\n") {
						t.Errorf("%q: %+v", path, l)
					}
				}
			}
		}
	})
}
