package git

import (
	"slices"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
)

// odd are names that have broken other programs: brackets, blanks, " b/", quotes, tabs, line breaks, non-ASCII, options.
var odd = []string{
	"app/[id]/page.tsx", "a b/c.txt", `q"uote\back.txt`, "tab\tname.txt", "line\nbreak.txt", "ümlaut.txt", "\xff\xfe.bin.txt",
	"--output=x", "-e", ":(top)x", "*.go", "trailing ", "x -> y", "{a,b}.txt", "b/b/b", "dev/null",
}

func TestF15F17_EveryNameSurvives(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for _, n := range odd {
		files[n] = "needle in " + n + "\n"
	}
	dir, remote := checkout(t, files)
	r := open(t, dir, Options{Remote: remote})
	ctx := t.Context()

	var listed []string
	entries, err := r.LsFiles(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		listed = append(listed, e.Path)
	}
	want := slices.Sorted(slices.Values(odd))
	if !slices.Equal(listed, want) {
		t.Errorf("listed %q\nwant   %q", listed, want)
	}
	if found, _, err := r.Grep(ctx, "needle", "", 100); err != nil || !slices.Equal(slices.Sorted(slices.Values(found)), want) {
		t.Errorf("found %q, %v", found, err)
	}
	var changes []FileChange
	for i, n := range odd {
		changes = append(changes, FileChange{Path: n, Content: []byte(strings.Repeat("+++ b/evil\n", i+1))})
		if found, _, err := r.Grep(ctx, "needle", n, 100); err != nil || !slices.Equal(found, []string{n}) {
			t.Errorf("under %q: %q, %v", n, found, err)
		}
		if b, _, err := r.ReadFile(ctx, r.head, n, 1000); err != nil || string(b) != files[n] {
			t.Errorf("read %q: %q, %v", n, b, err)
		}
	}
	c := commit(t, r, changes...)
	diff, err := r.Diff(ctx, r.head, c)
	if err != nil {
		t.Fatal(err)
	}
	added, err := r.AddedLines(ctx, r.head, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(diff) != len(odd) || len(added) != len(odd) {
		t.Fatalf("%d changes, %d with lines, want %d: %v", len(diff), len(added), len(odd), added)
	}
	for _, d := range diff {
		n := slices.Index(odd, d.Path) + 1
		if d.Kind != Edit || d.Added != n || d.Removed != strings.Count(files[d.Path], "\n") {
			t.Errorf("%+v, want an edit with %d lines added", d, n)
		}
		if l := added[d.Path]; len(l) != n || l[n-1].Number != n || l[0].Text != "+++ b/evil" {
			t.Errorf("lines of %q: %v", d.Path, l)
		}
	}
}

func TestGrep(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{
		"a.go": "needle.*\n", "sub/b.go": "needle\n", "sub/c.go": "needle\n", "subway/d.go": "needle\n",
		"bin.dat": "needle\x00\x01", "selected1.txt": "one", "selected[1].txt": "one", ".gitattributes": "*.go -diff\n",
	})
	write(t, dir, "untracked.go", "needle\n")
	r := open(t, dir, Options{})
	for _, tc := range []struct {
		name, query, under string
		limit              int
		want               []string
		truncated          bool
	}{
		{"text files only, tracked only", "needle", "", 20, []string{"a.go", "sub/b.go", "sub/c.go", "subway/d.go"}, false},
		{"a folder is not a prefix", "needle", "sub", 20, []string{"sub/b.go", "sub/c.go"}, false},
		{"a folder with a slash", "needle", "sub/", 20, []string{"sub/b.go", "sub/c.go"}, false},
		{"the root by its dot", "needle.*", ".", 20, []string{"a.go"}, false},
		{"a fixed string, not a pattern", "needle.*", "", 20, []string{"a.go"}, false},
		{"no more than the limit", "needle", "", 2, []string{"a.go", "sub/b.go"}, true},
		{"exactly the limit", "needle", "", 4, []string{"a.go", "sub/b.go", "sub/c.go", "subway/d.go"}, false},
		{"F33: none is no error", "absent", "", 20, nil, false},
		{"a query that looks like an option", "--open-files-in-pager=touch /tmp/x", "", 20, nil, false},
		{"F13: brackets are a name", "one", "selected[1].txt", 20, []string{"selected[1].txt"}, false},
		{"pathspec magic is a name", "needle", ":(top)sub", 20, nil, false},
		{"a folder that is not there", "needle", "nowhere", 20, nil, false},
		{"F35: a binary file is passed over", "needle", "bin.dat", 20, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, truncated, err := r.Grep(t.Context(), tc.query, tc.under, tc.limit)
			if err != nil || !slices.Equal(got, tc.want) || truncated != tc.truncated {
				t.Errorf("got %q %v %v, want %q %v", got, truncated, err, tc.want, tc.truncated)
			}
		})
	}
	for name, tc := range map[string]struct{ query, under string }{
		"an empty query":      {"", ""},
		"a query of two":      {"a\nb", ""},
		"a NUL":               {"a\x00b", ""},
		"a way out":           {"x", "../other"},
		"an absolute folder":  {"x", "/etc"},
		"the git folder":      {"x", ".git"},
		"the git folder, Mac": {"x", "sub/.GIT/config"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			_, _, err := r.Grep(t.Context(), tc.query, tc.under, 20)
			wantCode(t, err, errand.CodeInvalid)
		})
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a/b.txt": "12345"})
	r := open(t, dir, Options{})
	for name, tc := range map[string]struct {
		path string
		max  int64
		code errand.Code
	}{
		"a file":                {"a/b.txt", 5, ""},
		"a file over the limit": {"a/b.txt", 4, errand.CodeTooLarge},
		"a folder":              {"a", 100, errand.CodeInvalid},
		"a file that is absent": {"a/c.txt", 100, errand.CodeNotFound},
		"a way out":             {"a/../a/b.txt", 100, errand.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _, err := r.ReadFile(t.Context(), r.head, tc.path, tc.max)
			wantCode(t, err, tc.code)
			if err == nil && string(b) != "12345" {
				t.Errorf("content %q", b)
			}
		})
	}
}
