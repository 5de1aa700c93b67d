// Package wire holds what the runner and the control plane say to each other under /runner/v1, and nothing else: plain
// JSON types without behaviour. It imports the root only. The calls, in the order of a run's life: Exchange, Start,
// Progress (many times), Claim, Result.
//
// No type here has a place for source text: steps carry paths and counts, findings carry a path, a line and a code.
package wire

import (
	"encoding/json"
	"time"

	"github.com/errand-dev/errand"
)

// ExchangeRequest trades a ticket, an ID token of GitHub's or both for a run token. It is the only call without a token. An ID
// token stands for the job that it was given to; without one a ticket is good for the role `all`, once.
type ExchangeRequest struct {
	Run                string `json:"run,omitempty" maxLength:"64" doc:"The workflow's input run, <id>.<attempt>: needed where no ticket says it."`
	Ticket             string `json:"ticket,omitempty" maxLength:"512"`
	IDToken            string `json:"id_token,omitempty" maxLength:"16384" doc:"GitHub's OIDC token of the job, with this server's public address for its audience."`
	Nonce              string `json:"nonce" minLength:"16" maxLength:"64" doc:"Random, chosen by the runner; the same exchange repeated with it within 60 s gets the same answer."`
	Role               string `json:"role,omitempty" enum:"all,agent,verify,publish" doc:"Default: all."`
	Provider           string `json:"provider,omitempty" maxLength:"64"`
	Model              string `json:"model,omitempty" maxLength:"128"`
	RunnerVersion      string `json:"runner_version,omitempty" maxLength:"64"`
	WorkflowRunID      int64  `json:"workflow_run_id" minimum:"1" doc:"GITHUB_RUN_ID: authoritative over every guess."`
	WorkflowRunAttempt int    `json:"workflow_run_attempt" minimum:"1"`
}

// ExchangeResponse carries the run token. ExpiresAt is the token's, 30 minutes after its first issue.
type ExchangeResponse struct {
	Run       errand.ID `json:"run"`
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// StartRequest reports what the runner found of its own surroundings.
type StartRequest struct {
	Repository   string `json:"repository" maxLength:"256" doc:"GITHUB_REPOSITORY."`
	RepositoryID int64  `json:"repository_id,omitempty" doc:"GITHUB_REPOSITORY_ID; 0 = unknown."`
}

// StartResponse is the errand itself.
type StartResponse struct {
	Run          errand.ID    `json:"run"`
	RunURL       string       `json:"run_url" doc:"The run's page in the console."`
	Repository   Repository   `json:"repository"`
	Ref          string       `json:"ref" doc:"The branch the pull request goes to."`
	BaseDir      string       `json:"base_dir,omitempty" doc:"The part of a monorepo; empty = the whole."`
	StackRoot    string       `json:"stack_root,omitempty" doc:"Prefix of stack paths that the mapping replaces..."`
	SourceRoot   string       `json:"source_root,omitempty" doc:"...by this one."`
	Issue        errand.Issue `json:"issue"`
	Event        errand.Event `json:"event"`
	Limits       Limits       `json:"limits"`
	Policy       Policy       `json:"policy"`
	Instructions string       `json:"instructions,omitempty"`
}

// Repository is the one the run belongs to; ID is GitHub's and survives a rename.
type Repository struct {
	ID            int64  `json:"id"`
	FullName      string `json:"full_name"`
	DefaultBranch string `json:"default_branch"`
}

// Limits bound one run. Zero never means "no limit": the runner refuses a limit below 1.
type Limits struct {
	ToolCalls       int `json:"tool_calls"`        // at most; default 30
	WallSeconds     int `json:"wall_seconds"`      // of the agent; default 1200
	OutputTokens    int `json:"output_tokens"`     // of the run, over all requests
	MaxFiles        int `json:"max_files"`         // of the change; default RunFiles
	MaxChangedLines int `json:"max_changed_lines"` // added + removed; default RunLines
}

// The size of the change that one run may propose. They are two things at once, on purpose: what the control plane asks for when
// nobody set less, and what the runner never goes beyond, whatever the control plane asks for. The repository's policy file
// may only lower them. The smaller bound of claims.DefaultPolicy is another thing: it holds for a claim that is checked by
// itself, of any agent, where there is neither a run nor a control plane.
const (
	RunFiles = 20
	RunLines = 400 // added + removed
)

// Policy tightens, never loosens, what the action and the repository already protect.
type Policy struct {
	ProtectedPaths []string `json:"protected_paths,omitempty"`
}

// ProgressRequest is a batch of what happened since the last one; it doubles as the heartbeat. Lines are idempotent by
// their sequence numbers, which start at 1 and are the runner's own for each of the two lists.
type ProgressRequest struct {
	Steps []Step      `json:"steps,omitempty" maxItems:"200"`
	Usage []UsageLine `json:"usage,omitempty" maxItems:"200"`
}

// Step is one thing the agent did. Path is a repository path; no content of any file has a place here.
type Step struct {
	Seq        int       `json:"seq" minimum:"1"`
	At         time.Time `json:"at"`
	Tool       string    `json:"tool" maxLength:"64"`
	Path       string    `json:"path,omitempty" maxLength:"1024"`
	Outcome    string    `json:"outcome" enum:"ok,refused,error"`
	Count      int       `json:"count,omitempty" doc:"Lines read, entries listed or files found."`
	DurationMS int64     `json:"duration_ms,omitempty"`
}

// UsageLine is one model request's token counts exactly as the provider reported them (Raw), so that the control plane
// normalises and prices them. A request whose counts never arrived has Raw null: unknown, not zero.
type UsageLine struct {
	Seq       int             `json:"seq" minimum:"1"`
	At        time.Time       `json:"at"`
	Provider  string          `json:"provider" enum:"anthropic,openai" maxLength:"64"`
	Model     string          `json:"model" maxLength:"128"`
	RequestID string          `json:"request_id,omitempty" maxLength:"128"`
	Raw       json.RawMessage `json:"raw"`
}

// ProgressResponse tells the runner whether to stop now (the run was cancelled or has ended).
type ProgressResponse struct {
	Stop   bool   `json:"stop"`
	Reason string `json:"reason,omitempty"`
}

// ClaimRequest reports what the deterministic check found of the agent's proposal, by code, path and line.
type ClaimRequest struct {
	Seq      int         `json:"seq" minimum:"1" maximum:"2" doc:"1 = first proposal, 2 = after its one correction."`
	Verdict  string      `json:"verdict" enum:"verified,rejected,needs_review"`
	Reason   string      `json:"reason,omitempty" maxLength:"64" doc:"NO_JUDGE when no judge is configured."`
	Findings []Finding   `json:"findings,omitempty" maxItems:"500"`
	Files    []ClaimFile `json:"files" maxItems:"200"`
	Final    bool        `json:"final" doc:"The runner will not offer a correction, whatever the answer."`
}

// Finding is one thing that does not hold.
type Finding struct {
	Code string `json:"code" maxLength:"64"`
	Path string `json:"path,omitempty" maxLength:"1024"`
	Line int    `json:"line,omitempty"`
}

// ClaimFile is one changed file of the real diff.
type ClaimFile struct {
	Path    string `json:"path" maxLength:"1024"`
	Kind    string `json:"kind" enum:"edit,add,delete,rename,mode,binary,symlink,submodule"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// ClaimResponse says what the runner may do next.
type ClaimResponse struct {
	Decision  string    `json:"decision" enum:"admitted,correct,rejected,blocked"`
	BlockedBy errand.ID `json:"blocked_by,omitempty"`
}

// ResultRequest is the end of a run. It is validated whole before anything changes. The same body again gets the same
// answer; another body is a 409.
type ResultRequest struct {
	State       errand.RunState `json:"state" enum:"pr_opened,no_fix,rejected,failed,timed_out"`
	Reason      errand.Reason   `json:"reason,omitempty"`
	Summary     string          `json:"summary,omitempty" maxLength:"4000" doc:"The agent's own words; may name files."`
	PullRequest *PullRequest    `json:"pull_request,omitempty"`
	Model       string          `json:"model,omitempty" maxLength:"128"`
	ToolCalls   int             `json:"tool_calls" minimum:"0"`
	DurationMS  int64           `json:"duration_ms" minimum:"0"`
	Steps       []Step          `json:"steps,omitempty" maxItems:"500" doc:"Whatever progress did not report yet."`
	Usage       []UsageLine     `json:"usage,omitempty" maxItems:"500"`
}

// PullRequest is what the runner opened.
type PullRequest struct {
	Number int    `json:"number" minimum:"1"`
	URL    string `json:"url" maxLength:"1024"`
	Branch string `json:"branch" maxLength:"255"`
	Draft  bool   `json:"draft"`
}

// ResultResponse repeats the state that now stands.
type ResultResponse struct {
	Run   errand.ID       `json:"run"`
	State errand.RunState `json:"state"`
}
