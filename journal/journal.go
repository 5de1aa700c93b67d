// Package journal holds the words of the journal: the kinds of its rows and what stands in their bodies. A row speaks of
// one subject (an issue, a run) and is written in the transaction it speaks of, with store.Tx.AppendJournal. No body has a
// place for source text; a person is named by id only.
//
// It imports the root only. Start reading at the kinds; each names its body.
package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/errand-dev/errand"
)

// The kinds of rows. A kind is stored, so it is never renamed.
const (
	KindDecision     = "decision"          // Decision; subject: the issue
	KindTransition   = "run.transition"    // Transition; subject: the run
	KindClaimVerdict = "claim.verdict"     // ClaimVerdict; subject: the run
	KindLateEvidence = "run.late_evidence" // LateEvidence; subject: the run
	KindPersonAction = "person.action"     // PersonAction; subject: what was acted upon
	KindAlarm        = "alarm"             // Alarm; subject: the run, or the repository
	KindPullRequest  = "run.pull_request"  // PullRequest; subject: the run
)

// Decision is what dispatch answered for one delivery, or for one press of "Run now".
type Decision struct {
	errand.Decision
	Delivery   errand.ID `json:"delivery,omitempty"`
	Event      errand.ID `json:"event,omitempty"`
	Run        errand.ID `json:"run,omitempty"` // the run that was created
	Repository errand.ID `json:"repository,omitempty"`
	Rule       errand.ID `json:"rule,omitempty"` // the mapping that chose it
	Person     errand.ID `json:"person,omitempty"`
}

// Transition is one step of a run's life.
type Transition struct {
	From    errand.RunState `json:"from"`
	To      errand.RunState `json:"to"`
	Trigger errand.Trigger  `json:"trigger"`
	Reason  errand.Reason   `json:"reason,omitempty"`
	Detail  string          `json:"detail,omitempty"`
	Attempt int32           `json:"attempt,omitempty"` // the dispatch's
	Version int64           `json:"version"`           // of the run, after the step
	Actor   string          `json:"actor"`             // the part of Errand that took it: dispatch, runner, person
	Person  errand.ID       `json:"person,omitempty"`
}

// ClaimVerdict is one answer of the claim check, by code, path and line.
type ClaimVerdict struct {
	Seq       int       `json:"seq"` // 1 = first proposal, 2 = after the correction
	Verdict   string    `json:"verdict"`
	Reason    string    `json:"reason,omitempty"`
	Decision  string    `json:"decision"` // what the control plane answered: admitted, correct, rejected, blocked
	BlockedBy errand.ID `json:"blocked_by,omitempty"`
	Final     bool      `json:"final,omitempty"`
	Findings  []Finding `json:"findings,omitempty"`
	Files     []File    `json:"files,omitempty"`
}

// Finding is one thing that did not hold.
type Finding struct {
	Code string `json:"code"`
	Path string `json:"path,omitempty"`
	Line int    `json:"line,omitempty"`
}

// File is one changed file of the real diff.
type File struct {
	Path    string `json:"path"`
	Kind    string `json:"kind"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// LateEvidence is a report that came after its run had ended by other means. It changes nothing and is not lost.
type LateEvidence struct {
	Stands   errand.RunState `json:"stands"` // the end that stands
	Reported errand.RunState `json:"reported"`
	Reason   errand.Reason   `json:"reason,omitempty"`
	Branch   string          `json:"branch,omitempty"`
	PRNumber int             `json:"pr_number,omitempty"`
	PRURL    string          `json:"pr_url,omitempty"`
	PRDraft  bool            `json:"pr_draft,omitempty"`
	Summary  string          `json:"summary,omitempty"`
}

// PersonAction is what a person set off.
type PersonAction struct {
	Action  string    `json:"action"` // run_now, cancel, decline
	Person  errand.ID `json:"person"`
	Outcome string    `json:"outcome,omitempty"` // what came of it, in a word
}

// Alarm is something that should not happen.
type Alarm struct {
	Alarm              string          `json:"alarm"`
	Run                errand.ID       `json:"run,omitempty"`
	State              errand.RunState `json:"state,omitempty"`
	Effect             string          `json:"effect,omitempty"` // what was done about it
	WorkflowRunID      int64           `json:"workflow_run_id,omitempty"`
	WorkflowRunAttempt int             `json:"workflow_run_attempt,omitempty"`
	Repository         errand.ID       `json:"repository,omitempty"`
	Detail             string          `json:"detail,omitempty"` // one sentence: what was seen
}

// PullRequest is what somebody said became of a run's pull request.
type PullRequest struct {
	Fate   errand.PRFate `json:"fate"`
	Was    errand.PRFate `json:"was,omitempty"`
	At     time.Time     `json:"at"`
	From   string        `json:"from"` // outcome_workflow, runner, person
	Person errand.ID     `json:"person,omitempty"`
}

// Encode makes the text of a row's body.
func Encode(body any) (string, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("a journal body of type %T: %w", body, err)
	}
	return string(b), nil
}
