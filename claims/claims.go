// Package claims holds what an agent says it changed against what it changed.
package claims

import "github.com/errand-dev/errand/git"

// Kind is what a claim says happened to a path; "" is an edit.
type Kind string

// The kinds of a claimed change.
const (
	KindEdit      Kind = "edit"
	KindAdd       Kind = "add"
	KindDelete    Kind = "delete"
	KindRename    Kind = "rename"
	KindMode      Kind = "mode"
	KindBinary    Kind = "binary"
	KindSymlink   Kind = "symlink"
	KindSubmodule Kind = "submodule"
)

// Claim is .claim/claim.json.
type Claim struct {
	TaskID  string          `json:"task_id"`
	AgentID string          `json:"agent_id"`
	Summary string          `json:"summary"`
	Base    string          `json:"base,omitempty"`
	Scope   Scope           `json:"scope"`
	Changes []ClaimedChange `json:"changes"`
}

// Scope is the exact paths that the agent says it touched.
type Scope struct {
	Paths []string `json:"paths"`
}

// ClaimedChange describes one change of one path.
type ClaimedChange struct {
	Path        string `json:"path"`
	Description string `json:"description"`
	Kind        Kind   `json:"kind,omitempty"`
	From        string `json:"from,omitempty"`
}

// Code names a finding.
type Code string

// The deterministic findings.
const (
	ClaimInvalid      Code = "CLAIM_INVALID"
	UnclaimedChange   Code = "UNCLAIMED_CHANGE"
	ClaimedNotChanged Code = "CLAIMED_NOT_CHANGED"
	ProtectedPath     Code = "PROTECTED_PATH"
	DiffTooLarge      Code = "DIFF_TOO_LARGE"
	ModeChanged       Code = "MODE_CHANGED"
	TypeChanged       Code = "TYPE_CHANGED"
	BinaryChanged     Code = "BINARY_CHANGED"
	CaseCollision     Code = "CASE_COLLISION"
	BaseMismatch      Code = "BASE_MISMATCH"
	SecretAdded       Code = "SECRET_ADDED"   // the runner's secret scan
	PolicyInvalid     Code = "POLICY_INVALID" // a policy that cannot be applied rejects
)

// Finding is one thing that does not hold.
type Finding struct {
	Code    Code   `json:"code"`
	Path    string `json:"path,omitempty"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// Verdict is the outcome of a check.
type Verdict string

// The verdicts.
const (
	Verified    Verdict = "verified"
	Rejected    Verdict = "rejected"
	NeedsReview Verdict = "needs_review"
)

// NoJudge is the Reason of a report whose files hold while no judge has read the words.
const NoJudge = "NO_JUDGE"

// Report is the answer of Check.
type Report struct {
	Verdict  Verdict   `json:"verdict"`
	Reason   string    `json:"reason,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
}

// Policy bounds a change.
type Policy struct {
	Protected   []string // doublestar globs, case-insensitive
	MaxFiles    int
	MaxLines    int // added + removed
	AllowMode   bool
	AllowType   bool
	AllowBinary bool
}

func Parse(data []byte) (Claim, []Finding)                         { return Claim{}, nil }
func Check(claim Claim, diff []git.Change, policy Policy) Report   { return Report{} }
func DefaultPolicy() Policy                                        { return Policy{} }
func (p Policy) With(protected ...string) Policy                   { return p }
func (p Policy) WithLimits(files, lines int) Policy                { return p }
func (p Policy) Validate() error                                   { return nil }
func (r Report) Words() string                                     { return "" }
func (r Report) With(more ...Finding) Report                       { return r }
func CaseCollisions(diff []git.Change, tree []git.Entry) []Finding { return nil }
func KindOf(c git.Change) Kind                                     { return "" }
