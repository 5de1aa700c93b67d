// Package claims holds what an agent says it changed (a Claim) against what it changed (the difference of two trees),
// and says what does not agree. It imports the root and git, decides without any I/O, and gives the same answer for the
// same input in whatever order it comes.
//
// A verdict says that the claim matches the change, never that the change is right; Report.Words says so to people.
// Start reading at Check (check.go), then Claim and Parse (claim.go) and Policy (policy.go).
package claims

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/errand-dev/errand/git"
)

// Code names a finding.
type Code string

// The deterministic findings. Any one of them rejects.
const (
	ClaimInvalid      Code = "CLAIM_INVALID"
	UnclaimedChange   Code = "UNCLAIMED_CHANGE"
	ClaimedNotChanged Code = "CLAIMED_NOT_CHANGED" // not changed at all, or not in the way that was claimed
	ProtectedPath     Code = "PROTECTED_PATH"
	DiffTooLarge      Code = "DIFF_TOO_LARGE"
	ModeChanged       Code = "MODE_CHANGED"
	TypeChanged       Code = "TYPE_CHANGED" // a symlink or a submodule came, went or was turned into a file
	BinaryChanged     Code = "BINARY_CHANGED"
	CaseCollision     Code = "CASE_COLLISION"
	BaseMismatch      Code = "BASE_MISMATCH"     // found by whoever has the history; added with Report.With
	SecretAdded       Code = "SECRET_ADDED"      // found by the runner's secret scan; added with Report.With
	HiddenCharacters  Code = "HIDDEN_CHARACTERS" // an added line holds invisible or direction-changing characters; added with Report.With
	PolicyInvalid     Code = "POLICY_INVALID"    // a policy that cannot be applied lets nothing through
)

// Finding is one thing that does not hold. Path is as git has it; one that is not UTF-8 is shown quoted. Message names no
// content of a file.
type Finding struct {
	Code    Code   `json:"code"`
	Path    string `json:"path,omitempty"`
	Line    int    `json:"line,omitempty"` // 1-based; 0 = the file as a whole
	Message string `json:"message"`
}

// Verdict is the outcome of a check.
type Verdict string

// The verdicts. Needs review is never shown as a good one.
const (
	Verified    Verdict = "verified"
	Rejected    Verdict = "rejected"
	NeedsReview Verdict = "needs_review"
)

// NoJudge is the Reason of a report in which the files hold and nobody has read the words.
const NoJudge = "NO_JUDGE"

// Report is the answer of Check: the verdict and every finding, sorted by path, code, line and message.
type Report struct {
	Verdict  Verdict   `json:"verdict"`
	Reason   string    `json:"reason,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
}

// newReport gives the verdict that findings lead to without a judge: rejected, or needs review for want of one.
func newReport(findings []Finding) Report {
	findings = slices.Clone(findings)
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Message, b.Message))
	})
	findings = slices.Compact(findings)
	if len(findings) > 0 {
		return Report{Verdict: Rejected, Findings: findings}
	}
	return Report{Verdict: NeedsReview, Reason: NoJudge}
}

// With gives the report with findings of others added (a secret in an added line, a base that is not an ancestor). Any
// of them rejects; without any the report stays as it is.
func (r Report) With(more ...Finding) Report {
	if len(more) == 0 {
		return r
	}
	return newReport(append(slices.Clone(r.Findings), more...))
}

// Words says the verdict to people, without promising more than was checked.
func (r Report) Words() string {
	switch {
	case r.Verdict == Verified:
		return "files verified, words verified"
	case r.Verdict == Rejected && len(r.Findings) == 1:
		return "rejected: 1 finding"
	case r.Verdict == Rejected:
		return fmt.Sprintf("rejected: %d findings", len(r.Findings))
	case r.Reason == NoJudge:
		return "files verified, words not judged"
	default:
		return "files verified, words need a person's review"
	}
}

// KindOf names what happened to one path in the words of a claim. A rename shows as its two halves.
func KindOf(c git.Change) Kind {
	switch {
	case c.NewMode == git.ModeAbsent:
		return KindDelete
	case touches(c, git.ModeSubmodule):
		return KindSubmodule
	case touches(c, git.ModeSymlink):
		return KindSymlink
	case c.Binary:
		return KindBinary
	case c.OldMode == git.ModeAbsent:
		return KindAdd
	case c.OldHash == c.NewHash:
		return KindMode
	default:
		return KindEdit
	}
}

func touches(c git.Change, mode string) bool { return c.OldMode == mode || c.NewMode == mode }

// shown is a path fit for JSON and for people.
func shown(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return strconv.QuoteToASCII(path)
}
