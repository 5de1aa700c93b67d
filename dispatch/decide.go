package dispatch

import (
	"fmt"
	"slices"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

// PullRequestHolds is how long a pull request without news holds its issue. After that its fate is unknown, and it stops
// counting.
const PullRequestHolds = runs.PullRequestHolds

// Input is everything a decision rests on. Decide reads nothing else, no clock either.
type Input struct {
	Now           time.Time
	Org           store.Organisation
	Issue         store.Issue
	Event         *errand.Event // nil = none is known
	EventAt       time.Time     // when it was seen; meaningless without an event
	Newest        bool          // no event of the issue was seen later
	Rules         []store.Mapping
	Repositories  map[errand.ID]store.Repository
	Installations map[int64]store.Installation
	// AllowExtraPermissions: the operator allows installations that grant more than Errand may hold.
	AllowExtraPermissions bool
	Open                  *store.Run  // of this issue
	Ended                 []store.Run // of this issue, newest end first
	// Counts is what was counted under the lock, by the repository that it was counted for. Without a row for the chosen one
	// nothing is known about its caps, and nothing runs.
	Counts map[errand.ID]Counts
	// Forced: a person pressed "Run now". That passes the gates which guess whether a run is worth it. It passes no pause, no
	// cap, no budget, no mapping, no open run: those say that a run may not or cannot be.
	Forced bool
}

// Counts is what a decision must know of its repository and organisation beside their settings.
type Counts struct {
	RunsToday int64         // of the organisation, in the UTC day of Now, all of them
	OpenFixes int64         // of the repository: runs under way, and pull requests that stand
	NewIssues []time.Time   // when the repository's newest issues within the breaker's window were new, newest first
	Same      *store.Run    // of another issue: at work on the same problem, or with a pull request that stands
	Budgets   []runs.Budget // those that are set
}

// Target is where a run goes.
type Target struct {
	Rule         errand.ID
	Repository   errand.ID
	WorkflowFile string
	Ref          string
	BaseDir      string
	StackRoot    string
	SourceRoot   string
}

// held is a gate that did not let through.
type held struct {
	outcome  errand.Outcome
	gate     errand.Gate
	detail   string
	remedy   string
	until    time.Time // of a wait that ends by itself
	holder   errand.ID // the run in the way
	evidence []errand.Evidence
}

// Decide answers whether the issue should run now. It asks the gates in this order and the first that holds is the answer:
// the organisation's pause; is it an open error (or one that came back), with an event, the newest, grave enough, of a
// wanted environment, seen often enough, young enough; where it belongs (mapping), whether one can work there (repository,
// installation, its pause); a run under way, a pull request that stands, a fix merged since or declined, the same problem
// at work elsewhere, the cooldown, an incident; the caps of open fixes and of the day, and money.
//
// In observe mode, the organisation's or the repository's, the answer is the same, marked Observed, and nobody acts on it.
// The target is nil unless the outcome is run. What is not known never makes a run.
func Decide(in Input) (errand.Decision, *Target) {
	a := answer{observed: in.Org.Mode == "observe"}
	a.regression = regression(in)
	h := firstOf(in, organisationPaused, notAnError, noEvent, outOfOrder, levelExcluded, environmentExcluded, tooFew, tooOld)
	if h != nil {
		return a.held(h), nil
	}
	c := choose(in.Rules, subjectOf(in))
	if c.gate != errand.GateOK {
		return a.held(&held{outcome: errand.OutcomeSkip, gate: c.gate, detail: c.detail, remedy: c.remedy, evidence: c.evidence}), nil
	}
	repo, known := in.Repositories[c.rule.RepositoryID]
	a.observed = a.observed || repo.Mode == "observe"
	a.evidence = c.evidence
	h = repositoryHolds(in, repo, known)
	if h == nil {
		h = firstOf(in, runOpen, pullRequestOpen, alreadyFixed, declined)
	}
	if h == nil {
		h = countsHold(in, repo)
	}
	if h != nil {
		return a.held(h), nil
	}
	ref := c.rule.Ref
	if ref == "" {
		ref = repo.DefaultBranch
	}
	d := errand.Decision{
		Outcome: errand.OutcomeRun, Gate: errand.GateOK, Regression: a.regression != nil, Evidence: append(a.regression, a.evidence...),
		Detail: fmt.Sprintf("It belongs to %s/%s, on the branch %s, by mapping %d.", repo.Owner, repo.Name, ref, c.rule.Position),
	}
	if a.observed && !in.Forced {
		d.Gate, d.Observed = errand.GateObserve, true
		d.Remedy = "Nothing was started: leave observe mode to have such errors run."
	}
	return d, &Target{
		Rule: c.rule.ID, Repository: repo.ID, WorkflowFile: c.rule.WorkflowFile, Ref: ref, BaseDir: c.rule.BaseDir,
		StackRoot: c.rule.StackRoot, SourceRoot: c.rule.SourceRoot,
	}
}

// answer is what every answer about the issue carries.
type answer struct {
	observed   bool
	regression []errand.Evidence // nil = it is none
	evidence   []errand.Evidence // of the mapping, once it is chosen
}

func (a answer) held(h *held) errand.Decision {
	d := errand.Decision{
		Outcome: h.outcome, Gate: h.gate, Observed: a.observed, Regression: a.regression != nil, Detail: h.detail, Remedy: h.remedy, Holder: h.holder,
		Evidence: slices.Concat(h.evidence, a.regression, a.evidence),
	}
	if !h.until.IsZero() {
		d.Until = h.until.UTC().Format(time.RFC3339)
	}
	return d
}

func firstOf(in Input, gates ...func(Input) *held) *held {
	for _, gate := range gates {
		if h := gate(in); h != nil {
			return h
		}
	}
	return nil
}

func subjectOf(in Input) subject {
	return subject{source: in.Issue.SourceID, project: in.Issue.Project, platform: in.Issue.Platform, event: in.Event}
}

func skip(gate errand.Gate, detail, remedy, from, seen string) *held {
	return &held{outcome: errand.OutcomeSkip, gate: gate, detail: detail, remedy: remedy, evidence: []errand.Evidence{{From: from, Seen: seen}}}
}

func wait(gate errand.Gate, until time.Time, detail, remedy, from, seen string) *held {
	h := skip(gate, detail, remedy, from, seen)
	h.outcome, h.until = errand.OutcomeWait, until
	return h
}

// regression gives what shows that the event came after the issue was resolved or its fix merged; nil for none. Such an
// issue is open again, whatever its status still says.
func regression(in Input) []errand.Evidence {
	if in.Event == nil {
		return nil
	}
	was := func(what string, at time.Time) []errand.Evidence {
		return []errand.Evidence{{From: "regression", Seen: what + " " + stamp(at) + ", seen again " + stamp(in.EventAt)}}
	}
	switch pr := lastPullRequest(in); {
	case in.Issue.Status == "resolved" && in.EventAt.After(in.Issue.StatusAt):
		return was("resolved", in.Issue.StatusAt)
	case in.Issue.Status == "open" && in.Issue.RegressedAt != nil && !in.EventAt.Before(*in.Issue.RegressedAt):
		return was("resolved before", *in.Issue.RegressedAt)
	case pr != nil && pr.PRFate == errand.FateMerged && in.EventAt.After(fateAt(pr)):
		return was(fmt.Sprintf("#%d was merged", *pr.PRNumber), fateAt(pr))
	default:
		return nil
	}
}

// lastPullRequest is the newest run of the issue that opened one.
func lastPullRequest(in Input) *store.Run {
	for i := range in.Ended {
		if r := &in.Ended[i]; r.State == errand.PROpened && r.FinishedAt != nil && r.PRNumber != nil {
			return r
		}
	}
	return nil
}

func fateAt(r *store.Run) time.Time {
	if r.PRFateAt != nil {
		return *r.PRFateAt
	}
	return *r.FinishedAt
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// span says a duration in its largest whole unit.
func span(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "hours"}, {time.Minute, "minutes"}} {
		if d >= u.unit && d%u.unit == 0 {
			return fmt.Sprintf("%d %s", d/u.unit, u.name)
		}
	}
	return d.String()
}
