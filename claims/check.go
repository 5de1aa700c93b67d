package claims

import (
	"fmt"
	"slices"
	"strings"

	"github.com/errand-dev/errand/git"
)

// Check holds a claim against a diff under a policy and reports everything that does not agree. Any finding rejects.
// Without one the report is needs_review for want of a judge: the files were checked and the words were not.
//
// diff is what git.Repo.Diff gave from the claim's base to its head: each path once. Paths under .claim/ are left out of every check.
func Check(claim Claim, diff []git.Change, policy Policy) Report {
	diff = slices.DeleteFunc(slices.Clone(diff), func(c git.Change) bool { return strings.HasPrefix(c.Path, Dir) })
	findings := claim.Validate()
	if err := policy.Validate(); err != nil {
		findings = append(findings, Finding{Code: PolicyInvalid, Message: err.Error()})
	}
	changed := make(map[string]git.Change, len(diff))
	for _, c := range diff {
		changed[c.Path] = c
	}
	said := sayings(claim)
	protected := newMatcher(policy.Protected)
	for _, c := range diff {
		at := func(code Code, format string, args ...any) {
			findings = append(findings, Finding{Code: code, Path: shown(c.Path), Message: fmt.Sprintf(format, args...)})
		}
		claimed, ok := said[c.Path]
		if !ok {
			at(UnclaimedChange, "changed (%s) and not claimed: claim it or leave it alone", KindOf(c))
		}
		if g, hit := protected.match(c.Path); hit {
			at(ProtectedPath, "protected by %q", g)
		}
		special(c, claimed, policy, at)
	}
	findings = append(findings, unmade(said, changed, policy)...)
	findings = append(findings, CaseCollisions(diff, nil)...)
	findings = append(findings, size(diff, policy)...)
	return newReport(findings)
}

// saying is all that a claim says of one path.
type saying struct {
	kinds []Kind
	from  []string // of its renames
	moved bool     // it is named as the former path of a rename
}

func (s saying) has(k Kind) bool { return slices.Contains(s.kinds, k) }

func sayings(claim Claim) map[string]saying {
	said := map[string]saying{}
	for _, ch := range claim.Changes {
		s := said[ch.Path]
		k := ch.Kind
		if k == "" {
			k = KindEdit
		}
		s.kinds = append(s.kinds, k)
		if k == KindRename {
			s.from = append(s.from, ch.From)
		}
		said[ch.Path] = s
		if k == KindRename && ch.From != "" {
			f := said[ch.From]
			f.moved = true
			said[ch.From] = f
		}
	}
	return said
}

// special finds changes of mode, type and binary content that the claim does not say or the policy does not allow.
func special(c git.Change, s saying, policy Policy, at func(Code, string, ...any)) {
	judge := func(code Code, what string, allowed bool, k Kind) {
		switch {
		case !allowed:
			at(code, "%s: the policy does not allow it", what)
		case !s.has(k):
			at(code, "%s: the claim does not say so (kind %q)", what, k)
		}
	}
	if regular(c.OldMode) && regular(c.NewMode) && c.OldMode != c.NewMode {
		judge(ModeChanged, "mode "+c.OldMode+" became "+c.NewMode, policy.AllowMode, KindMode)
	}
	if c.NewMode != git.ModeAbsent { // that one was deleted is a deletion like any other
		if touches(c, git.ModeSymlink) {
			judge(TypeChanged, "a symlink", policy.AllowType, KindSymlink)
		}
		if touches(c, git.ModeSubmodule) {
			judge(TypeChanged, "a submodule", policy.AllowType, KindSubmodule)
		}
	}
	if c.Binary {
		judge(BinaryChanged, "binary content", policy.AllowBinary, KindBinary)
	}
}

func regular(mode string) bool { return mode == git.ModeFile || mode == git.ModeExecutable }

// unmade finds what was claimed and not done, or done in another way.
func unmade(said map[string]saying, changed map[string]git.Change, policy Policy) []Finding {
	var all []Finding
	for path, s := range said {
		at := func(code Code, format string, args ...any) {
			all = append(all, Finding{Code: code, Path: shown(path), Message: fmt.Sprintf(format, args...)})
		}
		c, ok := changed[path]
		if !ok {
			at(ClaimedNotChanged, "claimed and not changed")
			continue
		}
		if s.moved && c.NewMode != git.ModeAbsent {
			at(ClaimedNotChanged, "claimed as renamed away, and it is still there")
		}
		for _, k := range s.kinds {
			if !made(k, c) {
				at(ClaimedNotChanged, "claimed as %s, and the change is: %s", k, KindOf(c))
			}
		}
		for _, from := range s.from {
			old, ok := changed[from]
			if !ok || !regular(old.OldMode) || !regular(c.NewMode) || old.OldMode == c.NewMode {
				continue
			}
			if what := "mode " + old.OldMode + " became " + c.NewMode + " by the rename"; !policy.AllowMode {
				at(ModeChanged, "%s: the policy does not allow it", what)
			} else if !s.has(KindMode) {
				at(ModeChanged, "%s: the claim does not say so (kind %q)", what, KindMode)
			}
		}
	}
	return all
}

// made tells whether a change is of the kind that was claimed.
func made(k Kind, c git.Change) bool {
	was, is := c.OldMode != git.ModeAbsent, c.NewMode != git.ModeAbsent
	switch k {
	case KindEdit:
		return is && c.OldHash != c.NewHash
	case KindAdd, KindRename:
		return !was && is
	case KindDelete:
		return was && !is
	case KindMode:
		return was && is && c.OldMode != c.NewMode || !was && c.NewMode == git.ModeExecutable
	case KindBinary:
		return c.Binary
	case KindSymlink:
		return touches(c, git.ModeSymlink)
	case KindSubmodule:
		return touches(c, git.ModeSubmodule)
	default:
		return true // an unknown kind is a fault of the claim, which Validate reports
	}
}

func size(diff []git.Change, policy Policy) []Finding {
	var all []Finding
	lines := 0
	for _, c := range diff {
		lines += c.Added + c.Removed
	}
	if policy.MaxFiles > 0 && len(diff) > policy.MaxFiles {
		all = append(all, Finding{Code: DiffTooLarge, Message: fmt.Sprintf("%d files changed, at most %d are allowed", len(diff), policy.MaxFiles)})
	}
	if policy.MaxLines > 0 && lines > policy.MaxLines {
		all = append(all, Finding{Code: DiffTooLarge, Message: fmt.Sprintf("%d lines added and removed, at most %d are allowed", lines, policy.MaxLines)})
	}
	return all
}

// CaseCollisions finds changed names, folders included, that another name of the tree matches but for case: a file
// system that ignores case cannot hold both. tree is the whole tree before or after the change; without it only the
// changed names are held against each other, which is what Check does.
func CaseCollisions(diff []git.Change, tree []git.Entry) []Finding {
	gone := map[string]bool{}
	spelled := map[string]map[string]bool{} // folded name -> its spellings
	note := func(path string) {
		for name := range prefixes(path) {
			f := fold(name)
			if spelled[f] == nil {
				spelled[f] = map[string]bool{}
			}
			spelled[f][name] = true
		}
	}
	for _, c := range diff {
		if c.NewMode == git.ModeAbsent {
			gone[c.Path] = true
		} else {
			note(c.Path)
		}
	}
	for _, e := range tree {
		if !gone[e.Path] {
			note(e.Path)
		}
	}
	var all []Finding
	for _, c := range diff {
		if gone[c.Path] {
			continue
		}
		for name := range prefixes(c.Path) {
			if same := spelled[fold(name)]; len(same) > 1 {
				all = append(all, Finding{Code: CaseCollision, Path: shown(c.Path), Message: fmt.Sprintf("%q is spelled in %d ways that differ only by case", shown(name), len(same))})
			}
		}
	}
	return all
}

// prefixes gives a/b/c as a, a/b, a/b/c.
func prefixes(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range len(path) {
			if path[i] == '/' && !yield(path[:i]) {
				return
			}
		}
		yield(path)
	}
}
