package claims

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/errand-dev/errand/git"
)

const (
	h1 = "1111111111111111111111111111111111111111"
	h2 = "2222222222222222222222222222222222222222"
)

// entry makes a change as git.Diff would: from and to are "mode hash", "" for absent.
func entry(path, from, to string, lines int) git.Change {
	c := git.Change{Path: path, OldMode: git.ModeAbsent, NewMode: git.ModeAbsent, OldHash: strings.Repeat("0", 40), NewHash: strings.Repeat("0", 40), Added: lines}
	if from != "" {
		c.OldMode, c.OldHash = from[:6], from[7:]
	}
	if to != "" {
		c.NewMode, c.NewHash = to[:6], to[7:]
	}
	return c
}

const (
	file1, file2 = git.ModeFile + " " + h1, git.ModeFile + " " + h2
	exec1        = git.ModeExecutable + " " + h1
	exec2        = git.ModeExecutable + " " + h2
	link1, link2 = git.ModeSymlink + " " + h1, git.ModeSymlink + " " + h2
	sub1, sub2   = git.ModeSubmodule + " " + h1, git.ModeSubmodule + " " + h2
)

func diffOf(paths ...string) []git.Change {
	var d []git.Change
	for _, p := range paths {
		d = append(d, entry(p, file1, file2, 1))
	}
	return d
}

// claimOf claims paths; "kind:path" and "rename:from>path" say more.
func claimOf(paths ...string) Claim {
	c := Claim{TaskID: "t", AgentID: "a", Summary: "s"}
	for _, p := range paths {
		ch := ClaimedChange{Path: p, Description: "d"}
		if k, rest, ok := strings.Cut(p, ":"); ok {
			ch.Kind, ch.Path = Kind(k), rest
			if from, to, ok := strings.Cut(rest, ">"); ok {
				ch.From, ch.Path = from, to
			}
		}
		c.Changes = append(c.Changes, ch)
		if !slices.Contains(c.Scope.Paths, ch.Path) {
			c.Scope.Paths = append(c.Scope.Paths, ch.Path)
		}
	}
	return c
}

func binary(c git.Change) git.Change {
	c.Binary, c.Added, c.Removed = true, 0, 0
	return c
}

func TestCheck(t *testing.T) {
	t.Parallel()
	moved := []git.Change{entry("old.py", file1, "", 0), entry("new.py", "", file1, 1)}
	for _, tc := range []struct {
		name   string
		claim  Claim
		diff   []git.Change
		policy Policy
		want   []string // "CODE path"
	}{
		{"an honest edit", claimOf("a.py"), diffOf("a.py"), DefaultPolicy(), nil},
		{"an honest edit and a new file, kinds left out", claimOf("a.py", "b.py"), append(diffOf("a.py"), entry("b.py", "", file1, 3)), DefaultPolicy(), nil},
		{"two descriptions of one file", claimOf("a.py", "edit:a.py"), diffOf("a.py"), DefaultPolicy(), nil},
		{"G3: a file that was not claimed", claimOf("a.py"), diffOf("a.py", "b.py"), DefaultPolicy(), []string{"UNCLAIMED_CHANGE b.py"}},
		{"G2: a file that was not changed", claimOf("a.py", "x.ts"), diffOf("a.py"), DefaultPolicy(), []string{"CLAIMED_NOT_CHANGED x.ts"}},
		{"G2: an added file that was there", claimOf("add:a.py"), diffOf("a.py"), DefaultPolicy(), []string{"CLAIMED_NOT_CHANGED a.py"}},
		{"nothing changed at all", claimOf("a.py"), nil, DefaultPolicy(), []string{"CLAIMED_NOT_CHANGED a.py"}},
		{"both ways at once", claimOf("a.py"), diffOf("b.py"), DefaultPolicy(), []string{"CLAIMED_NOT_CHANGED a.py", "UNCLAIMED_CHANGE b.py"}},
		{"a protected path, claimed", claimOf("src/auth/x.py"), diffOf("src/auth/x.py"), DefaultPolicy(), []string{"PROTECTED_PATH src/auth/x.py"}},
		{"a protected path in capitals, unclaimed", claimOf("a.py"), diffOf("a.py", "SRC/Auth/X.py"), DefaultPolicy(), []string{"PROTECTED_PATH SRC/Auth/X.py", "UNCLAIMED_CHANGE SRC/Auth/X.py"}},
		{"a deleted protected path", claimOf("delete:go.sum"), []git.Change{entry("go.sum", file1, "", 0)}, DefaultPolicy(), []string{"PROTECTED_PATH go.sum"}},
		{"F13: brackets in a claimed name are a name", claimOf("app/[id]/page.tsx"), diffOf("app/[id]/page.tsx"), DefaultPolicy(), nil},
		{"F13: and match nothing else", claimOf("app/[id]/page.tsx"), diffOf("app/i/page.tsx"), DefaultPolicy(), []string{"UNCLAIMED_CHANGE app/i/page.tsx", "CLAIMED_NOT_CHANGED app/[id]/page.tsx"}},
		{"a star in a claimed name is a name", claimOf("**"), diffOf("a.py"), DefaultPolicy(), []string{"CLAIMED_NOT_CHANGED **", "UNCLAIMED_CHANGE a.py"}},
		{"another case is another name", claimOf("A.py"), diffOf("a.py"), DefaultPolicy(), []string{"CLAIMED_NOT_CHANGED A.py", "UNCLAIMED_CHANGE a.py"}},
		{"a name that is not UTF-8", claimOf("a.py"), diffOf("a.py", "\xff.py"), DefaultPolicy(), []string{`UNCLAIMED_CHANGE "\xff.py"`}},

		{"a rename as delete and add", claimOf("delete:old.py", "add:new.py"), moved, DefaultPolicy(), nil},
		{"a rename that says so", claimOf("rename:old.py>new.py"), moved, DefaultPolicy(), nil},
		{"a rename of which half is claimed", claimOf("add:new.py"), moved, DefaultPolicy(), []string{"UNCLAIMED_CHANGE old.py"}},
		{"a rename that left the old file", claimOf("rename:old.py>new.py"), []git.Change{moved[1], entry("old.py", file1, file2, 1)}, DefaultPolicy(), []string{"CLAIMED_NOT_CHANGED old.py"}},
		{"a rename that never touched the old file", claimOf("rename:old.py>new.py"), moved[1:], DefaultPolicy(), []string{"CLAIMED_NOT_CHANGED old.py"}},
		{"a rename that changes the mode", claimOf("rename:old.py>new.py"), []git.Change{moved[0], entry("new.py", "", exec1, 1)}, open(), []string{"MODE_CHANGED new.py"}},
		{"a deletion claimed as an edit", claimOf("a.py"), []git.Change{entry("a.py", file1, "", 0)}, DefaultPolicy(), []string{"CLAIMED_NOT_CHANGED a.py"}},

		{"F19: a mode change that is not claimed", claimOf("a.sh"), []git.Change{entry("a.sh", file1, exec2, 1)}, open(), []string{"MODE_CHANGED a.sh"}},
		{"F19: a mode change that is claimed", claimOf("edit:a.sh", "mode:a.sh"), []git.Change{entry("a.sh", file1, exec2, 1)}, open(), nil},
		{"a mode change that is claimed and forbidden", claimOf("mode:a.sh"), []git.Change{entry("a.sh", file1, exec1, 0)}, DefaultPolicy(), []string{"MODE_CHANGED a.sh"}},
		{"a mode change claimed as an edit", claimOf("a.sh"), []git.Change{entry("a.sh", file1, exec1, 0)}, open(), []string{"CLAIMED_NOT_CHANGED a.sh", "MODE_CHANGED a.sh"}},
		{"an edit claimed as a mode change", claimOf("mode:a.sh"), diffOf("a.sh"), open(), []string{"CLAIMED_NOT_CHANGED a.sh"}},
		{"a file that became a symlink", claimOf("a.py"), []git.Change{entry("a.py", file1, link2, 1)}, open(), []string{"TYPE_CHANGED a.py"}},
		{"a symlink that points elsewhere", claimOf("a.py"), []git.Change{entry("a.py", link1, link2, 1)}, open(), []string{"TYPE_CHANGED a.py"}},
		{"a new symlink that is claimed", claimOf("symlink:a.py"), []git.Change{entry("a.py", "", link2, 1)}, open(), nil},
		{"a new symlink that is claimed and forbidden", claimOf("symlink:a.py"), []git.Change{entry("a.py", "", link2, 1)}, DefaultPolicy(), []string{"TYPE_CHANGED a.py"}},
		{"a deleted symlink", claimOf("delete:a.py"), []git.Change{entry("a.py", link1, "", 0)}, DefaultPolicy(), nil},
		{"F21: a submodule that moved", claimOf("vendor/x"), []git.Change{entry("vendor/x", sub1, sub2, 1)}, open(), []string{"TYPE_CHANGED vendor/x"}},
		{"F21: a submodule that moved and is claimed", claimOf("submodule:vendor/x"), []git.Change{entry("vendor/x", sub1, sub2, 1)}, open(), nil},
		{"a binary file", claimOf("a.png"), []git.Change{binary(entry("a.png", file1, file2, 0))}, open(), []string{"BINARY_CHANGED a.png"}},
		{"a binary file that is claimed", claimOf("binary:a.png"), []git.Change{binary(entry("a.png", "", file2, 0))}, open(), nil},
		{"a binary file that is claimed and forbidden", claimOf("binary:a.png"), []git.Change{binary(entry("a.png", "", file2, 0))}, DefaultPolicy(), []string{"BINARY_CHANGED a.png"}},
		{"a text claimed as binary", claimOf("binary:a.py"), diffOf("a.py"), open(), []string{"CLAIMED_NOT_CHANGED a.py"}},

		{"too many files", claimOf("a", "b", "c"), diffOf("a", "b", "c"), DefaultPolicy().WithLimits(2, 10), []string{"DIFF_TOO_LARGE "}},
		{"as many files as allowed", claimOf("a", "b"), diffOf("a", "b"), DefaultPolicy().WithLimits(2, 2), nil},
		{"too many lines over all files", claimOf("a", "b"), diffOf("a", "b"), DefaultPolicy().WithLimits(2, 1), []string{"DIFF_TOO_LARGE "}},
		{"names that differ by case", claimOf("a.py", "A.py"), diffOf("a.py", "A.py"), open(), []string{"CASE_COLLISION a.py", "CASE_COLLISION A.py"}},
		{"a change of case by rename", claimOf("rename:a.py>A.py"), []git.Change{entry("a.py", file1, "", 0), entry("A.py", "", file1, 1)}, DefaultPolicy(), nil},
		{"the claim's own files are outside", claimOf("a.py"), append(diffOf("a.py"), entry(".claim/claim.json", "", file1, 900)), DefaultPolicy(), nil},
		{"a file named .claim is not", claimOf("a.py"), diffOf("a.py", ".claim"), DefaultPolicy(), []string{"UNCLAIMED_CHANGE .claim"}},
		{"a claim without a summary", Claim{TaskID: "t", AgentID: "a", Scope: Scope{Paths: []string{"a"}}, Changes: []ClaimedChange{{Path: "a", Description: "d"}}}, diffOf("a"), DefaultPolicy(), []string{"CLAIM_INVALID "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := Check(tc.claim, tc.diff, tc.policy)
			var got []string
			for _, f := range r.Findings {
				got = append(got, string(f.Code)+" "+f.Path)
				if f.Message == "" {
					t.Errorf("%s says nothing", f.Code)
				}
			}
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(tc.want)); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q\n%+v", got, want, r.Findings)
			}
			switch {
			case len(tc.want) > 0 && (r.Verdict != Rejected || r.Reason != ""):
				t.Errorf("verdict %s %s", r.Verdict, r.Reason)
			case len(tc.want) == 0 && (r.Verdict != NeedsReview || r.Reason != NoJudge || r.Words() != "files verified, words not judged"):
				t.Errorf("verdict %s %s %q", r.Verdict, r.Reason, r.Words())
			}
		})
	}
}

func TestReportWith(t *testing.T) {
	t.Parallel()
	fine := Check(claimOf("a.py"), diffOf("a.py"), DefaultPolicy())
	if !reflect.DeepEqual(fine.With(), fine) {
		t.Error("nothing added, and changed")
	}
	r := fine.With(Finding{Code: SecretAdded, Path: "b", Line: 3, Message: "m"}, Finding{Code: BaseMismatch, Message: "m"}, Finding{Code: BaseMismatch, Message: "m"})
	if r.Verdict != Rejected || r.Reason != "" || len(r.Findings) != 2 || r.Findings[0].Code != BaseMismatch || r.Words() != "rejected: 2 findings" {
		t.Errorf("%+v %q", r, r.Words())
	}
	if w := (Report{Verdict: Verified}).Words(); w != "files verified, words verified" {
		t.Error(w)
	}
	if w := (Report{}).Words(); strings.Contains(w, "verified, words verified") {
		t.Errorf("the zero report reads as a good one: %s", w)
	}
}

func TestCaseCollisionsWithTheTree(t *testing.T) {
	t.Parallel()
	tree := []git.Entry{{Path: "src/a.py"}, {Path: "README.md"}, {Path: "gone.py"}}
	for _, tc := range []struct {
		name string
		diff []git.Change
		want []string
	}{
		{"a new name", []git.Change{entry("src/b.py", "", file1, 1)}, nil},
		{"an edit", diffOf("src/a.py"), nil},
		{"a file", []git.Change{entry("readme.md", "", file1, 1)}, []string{"readme.md"}},
		{"a folder", []git.Change{entry("SRC/b.py", "", file1, 1)}, []string{"SRC/b.py"}},
		{"a file like a folder", []git.Change{entry("Src", "", file1, 1)}, []string{"Src"}},
		{"a file in place of one deleted", []git.Change{entry("Gone.py", "", file1, 1), entry("gone.py", file1, "", 0)}, nil},
		{"a name that folds beyond ASCII", []git.Change{entry("src/É.py", "", file1, 1), entry("src/é.py", "", file1, 1)}, []string{"src/É.py", "src/é.py"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, f := range CaseCollisions(tc.diff, tree) {
				got = append(got, f.Path)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for want, c := range map[Kind]git.Change{
		KindEdit: entry("a", file1, file2, 1), KindAdd: entry("a", "", file1, 1), KindDelete: entry("a", file1, "", 1), KindMode: entry("a", file1, exec1, 0),
		KindBinary: binary(entry("a", "", file1, 0)), KindSymlink: entry("a", file1, link1, 0), KindSubmodule: entry("a", sub1, sub2, 0),
	} {
		if got := KindOf(c); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// changes draws a diff of distinct paths, no two of which differ by case only, and a claim that says all of it.
func changes(t *rapid.T) (Claim, []git.Change) {
	paths := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}/[a-z\[\]*{} é-]{1,4}x\.py`), 1, 12, rapid.ID[string]).Draw(t, "paths")
	var diff []git.Change
	var say []string
	for _, p := range paths {
		lines := rapid.IntRange(0, 50).Draw(t, "lines")
		switch rapid.SampledFrom([]string{"edit", "add", "delete", "mode", "both", "symlink", "submodule", "binary"}).Draw(t, "kind") {
		case "edit":
			diff, say = append(diff, entry(p, file1, file2, lines)), append(say, p)
		case "add":
			diff, say = append(diff, entry(p, "", file1, lines)), append(say, "add:"+p)
		case "delete":
			diff, say = append(diff, entry(p, exec1, "", lines)), append(say, "delete:"+p)
		case "mode":
			diff, say = append(diff, entry(p, exec1, file1, 0)), append(say, "mode:"+p)
		case "both":
			diff, say = append(diff, entry(p, exec1, file2, lines)), append(say, "mode:"+p, "edit:"+p)
		case "symlink":
			diff, say = append(diff, entry(p, link1, file2, lines)), append(say, "symlink:"+p)
		case "submodule":
			diff, say = append(diff, entry(p, "", sub2, lines)), append(say, "submodule:"+p)
		case "binary":
			diff, say = append(diff, binary(entry(p, file1, file2, 0))), append(say, "binary:"+p)
		}
	}
	return claimOf(say...), diff
}

func TestADiffFullyClaimedUnderAnOpenPolicyHasNoFinding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		claim, diff := changes(t)
		if r := Check(claim, diff, open()); len(r.Findings) != 0 || r.Verdict != NeedsReview {
			t.Fatalf("%+v", r)
		}
	})
}

func TestAnUndeclaredPathIsAlwaysFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		claim, diff := changes(t)
		extra := rapid.SampledFrom(diff).Draw(t, "extra")
		extra.Path = "undeclared/" + extra.Path
		at := rapid.IntRange(0, len(diff)).Draw(t, "at")
		r := Check(claim, slices.Insert(slices.Clone(diff), at, extra), open())
		if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == UnclaimedChange && f.Path == extra.Path }) {
			t.Fatalf("%q is not found: %+v", extra.Path, r)
		}
	})
}

func TestCheckDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		claim, diff := changes(t)
		other, more := changes(t) // so that there is something to find
		claim.Changes = append(claim.Changes[1:], other.Changes...)
		for _, c := range more[:len(more)/2] {
			if !slices.ContainsFunc(diff, func(d git.Change) bool { return d.Path == c.Path }) {
				diff = append(diff, c)
			}
		}
		policy := DefaultPolicy().With("a*/**", "?b/**").WithLimits(3, 30)
		want := Check(claim, diff, policy)
		before, err := json.Marshal([]any{claim, diff, policy})
		if err != nil {
			t.Fatal(err)
		}
		shuffled := Claim{TaskID: claim.TaskID, AgentID: claim.AgentID, Summary: claim.Summary}
		shuffled.Changes = rapid.Permutation(claim.Changes).Draw(t, "changes")
		shuffled.Scope.Paths = rapid.Permutation(claim.Scope.Paths).Draw(t, "scope")
		p := policy
		p.Protected = rapid.Permutation(policy.Protected).Draw(t, "policy")
		got := Check(shuffled, rapid.Permutation(diff).Draw(t, "diff"), p)
		if a, b := withoutPlaces(want), withoutPlaces(got); !reflect.DeepEqual(a, b) {
			t.Fatalf("\n%+v\n%+v", a, b)
		}
		if after, _ := json.Marshal([]any{claim, diff, policy}); string(after) != string(before) {
			t.Fatal("Check changed what it was given")
		}
	})
}

// withoutPlaces drops the messages of CLAIM_INVALID, which name the place in the claim: with the order, it changes.
func withoutPlaces(r Report) Report {
	r.Findings = slices.Clone(r.Findings)
	for i := range r.Findings {
		if r.Findings[i].Code == ClaimInvalid {
			r.Findings[i].Message = ""
		}
	}
	return r
}

func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{1, 100, 2_000} {
		b.Run(strconv.Itoa(n)+" files", func(b *testing.B) {
			var paths []string
			for i := range n {
				paths = append(paths, "src/pkg"+strconv.Itoa(i%50)+"/file"+strconv.Itoa(i)+".py")
			}
			claim, diff, policy := claimOf(paths...), diffOf(paths...), DefaultPolicy().WithLimits(n, n)
			b.ReportAllocs()
			for b.Loop() {
				Check(claim, diff, policy)
			}
		})
	}
}
