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
const PullRequestHolds = 14 * 24 * time.Hour

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
	Open          *store.Run  // of this issue
	Ended         []store.Run // of this issue, newest end first
	RunsToday     int64       // of the organisation, in the UTC day of Now, all of them
	// Forced: a person pressed "Run now". That passes the gates which guess whether a run is worth it. It passes no pause, no
	// cap, no mapping, no open run: those say that a run may not or cannot be.
	Forced bool
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
	evidence []errand.Evidence
}

// Decide answers whether the issue should run now. It asks the gates in this order and the first that holds is the answer:
// the organisation's pause; is it an open error, with an event, the newest, grave enough, young enough; where it belongs
// (mapping), whether one can work there (repository, its pause); a run under way, a pull request that stands, the
// cooldown, the cap of the day. In observe mode, the organisation's or the repository's, the answer is the same, marked
// Observed, and nobody acts on it. The target is nil unless the outcome is run.
func Decide(in Input) (errand.Decision, *Target) {
	observed := in.Org.Mode == "observe"
	h := firstOf(in, organisationPaused, notAnError, noEvent, outOfOrder, levelExcluded, tooOld)
	if h != nil {
		return h.decision(observed), nil
	}
	c := choose(in.Rules, subject{source: in.Issue.SourceID, project: in.Issue.Project, platform: in.Issue.Platform, event: in.Event})
	if c.gate != errand.GateOK {
		h = &held{errand.OutcomeSkip, c.gate, c.detail, c.remedy, time.Time{}, c.evidence}
		return h.decision(observed), nil
	}
	repo, known := in.Repositories[c.rule.RepositoryID]
	observed = observed || repo.Mode == "observe"
	if h = repositoryHolds(in, repo, known); h == nil {
		h = firstOf(in, runOpen, pullRequestOpen, cooldown, dailyCap)
	}
	if h != nil {
		h.evidence = append(h.evidence, c.evidence...)
		return h.decision(observed), nil
	}
	ref := c.rule.Ref
	if ref == "" {
		ref = repo.DefaultBranch
	}
	d := errand.Decision{
		Outcome: errand.OutcomeRun, Gate: errand.GateOK, Evidence: c.evidence,
		Detail: fmt.Sprintf("It belongs to %s/%s, on the branch %s, by mapping %d.", repo.Owner, repo.Name, ref, c.rule.Position),
	}
	if observed && !in.Forced {
		d.Gate, d.Observed = errand.GateObserve, true
		d.Remedy = "Nothing was started: leave observe mode to have such errors run."
	}
	return d, &Target{
		Rule: c.rule.ID, Repository: repo.ID, WorkflowFile: c.rule.WorkflowFile, Ref: ref, BaseDir: c.rule.BaseDir,
		StackRoot: c.rule.StackRoot, SourceRoot: c.rule.SourceRoot,
	}
}

func firstOf(in Input, gates ...func(Input) *held) *held {
	for _, gate := range gates {
		if h := gate(in); h != nil {
			return h
		}
	}
	return nil
}

func (h *held) decision(observed bool) errand.Decision {
	d := errand.Decision{Outcome: h.outcome, Gate: h.gate, Observed: observed, Detail: h.detail, Remedy: h.remedy, Evidence: h.evidence}
	if !h.until.IsZero() {
		d.Until = h.until.UTC().Format(time.RFC3339)
	}
	return d
}

func skip(gate errand.Gate, detail, remedy, from, seen string) *held {
	return &held{outcome: errand.OutcomeSkip, gate: gate, detail: detail, remedy: remedy, evidence: []errand.Evidence{{From: from, Seen: seen}}}
}

func wait(gate errand.Gate, until time.Time, detail, remedy, from, seen string) *held {
	h := skip(gate, detail, remedy, from, seen)
	h.outcome, h.until = errand.OutcomeWait, until
	return h
}

func organisationPaused(in Input) *held {
	if in.Org.Mode != "paused" {
		return nil
	}
	return skip(errand.GateOrgPaused, "Somebody paused the organisation.", "Resume it: errand admin mode active.", "organisation", "mode: paused")
}

func notAnError(in Input) *held {
	if in.Forced || in.Issue.Status == "open" {
		return nil
	}
	return skip(errand.GateIssueNotAnError, "The tracker says that the issue is "+in.Issue.Status+".",
		"Re-open it at the tracker, or press Run now.", "issue", "status: "+in.Issue.Status+" since "+stamp(in.Issue.StatusAt))
}

// noEvent holds an issue of which only the heading is known: there is nothing to hand to a runner.
func noEvent(in Input) *held {
	if in.Event != nil {
		return nil
	}
	return skip(errand.GateNoStack, "No event of this issue is known, so there is no stack trace to work from.",
		"Send the tracker's error or alert webhooks, not its issue webhooks alone.", "events", "none")
}

func outOfOrder(in Input) *held {
	if in.Forced || in.Newest {
		return nil
	}
	return skip(errand.GateOutOfOrder, "A newer event of this issue was there already, and is decided upon by itself.", "",
		"events", "this one was seen "+stamp(in.EventAt))
}

// levels from grave to light.
func levels() []string { return []string{"fatal", "error", "warning", "info", "debug"} }

// levelExcluded holds what is known to be below the least level. A level that nobody told is not below anything.
func levelExcluded(in Input) *held {
	level, least := slices.Index(levels(), in.Issue.Level), slices.Index(levels(), in.Org.MinLevel)
	if in.Forced || level < 0 || level <= least {
		return nil
	}
	return skip(errand.GateLevelExcluded, fmt.Sprintf("Its level is %s, below the organisation's least, %s.", in.Issue.Level, in.Org.MinLevel),
		"Lower the least level (errand admin limits --min-level), or press Run now.", "issue", "level: "+in.Issue.Level)
}

func tooOld(in Input) *held {
	most := time.Duration(in.Org.MaxAgeS) * time.Second
	if in.Forced || in.Now.Sub(in.EventAt) <= most {
		return nil
	}
	return skip(errand.GateStale, fmt.Sprintf("The event is older than %s.", span(most)), "Raise the age limit (errand admin limits --max-age), or press Run now.",
		"event", "seen "+stamp(in.EventAt))
}

// repositoryHolds asks whether one can work in the repository at all.
func repositoryHolds(in Input, repo store.Repository, known bool) *held {
	name := repo.Owner + "/" + repo.Name
	unusable := func(detail, remedy, seen string) *held {
		return skip(errand.GateRepoUnusable, detail, remedy, "repository "+name, seen)
	}
	at, bound := in.Installations[repo.InstallationID]
	switch {
	case !known:
		return unusable("The mapping's repository is not connected.", "Connect it, or correct the mapping.", "not known")
	case repo.GoneAt != nil:
		return unusable("The repository is gone, or no longer part of the GitHub App's installation.",
			"Give the installation access to it, or correct the mapping.", "gone since "+stamp(*repo.GoneAt))
	case repo.Archived:
		return unusable("The repository is archived.", "Unarchive it, or correct the mapping.", "archived")
	case !bound:
		return unusable("The repository's GitHub installation is not bound to the organisation.", "Connect the installation.", "no installation")
	case at.DeletedAt != nil:
		return unusable("The GitHub App was uninstalled.", "Install it again.", "installation deleted "+stamp(*at.DeletedAt))
	case at.SuspendedAt != nil:
		return unusable("The GitHub App's installation is suspended.", "Its owner can resume it in GitHub's settings.", "suspended "+stamp(*at.SuspendedAt))
	case repo.Mode == "paused":
		return skip(errand.GateRepoPaused, "Somebody paused the repository.", "Resume it: errand admin mode active --repository "+name+".", "repository "+name, "mode: paused")
	default:
		return nil
	}
}

func runOpen(in Input) *held {
	if in.Open == nil {
		return nil
	}
	return wait(errand.GateRunOpen, time.Time{}, "A run of this issue is under way.", "Wait for its end, or cancel it.",
		"run history", fmt.Sprintf("run %s is %s", in.Open.ID, in.Open.State))
}

func pullRequestOpen(in Input) *held {
	if in.Forced {
		return nil
	}
	for _, r := range in.Ended {
		if r.State != errand.PROpened || r.FinishedAt == nil || r.PRNumber == nil {
			continue
		}
		if until := r.FinishedAt.Add(PullRequestHolds); in.Now.Before(until) {
			return wait(errand.GatePROpen, until, fmt.Sprintf("The pull request #%d of an earlier run has not been decided, as far as Errand knows.", *r.PRNumber),
				"Merge or close it, or press Run now.", "run history", r.PRURL)
		}
	}
	return nil
}

// cooldown counts from the last run that ended, except one that never got to GitHub: that was no attempt at a fix.
func cooldown(in Input) *held {
	if in.Forced {
		return nil
	}
	for _, r := range in.Ended {
		if r.FinishedAt == nil || r.Reason == errand.ReasonNotDispatched || r.Reason == errand.ReasonNothingFound {
			continue
		}
		until := r.FinishedAt.Add(time.Duration(in.Org.CooldownS) * time.Second)
		if in.Now.Before(until) {
			return wait(errand.GateCooldown, until, fmt.Sprintf("A run of this issue ended as %s at %s.", r.State, stamp(*r.FinishedAt)),
				"Wait, shorten the cooldown (errand admin limits --cooldown), or press Run now.", "run history", fmt.Sprintf("run %s, cooldown %s", r.ID, span(time.Duration(in.Org.CooldownS)*time.Second)))
		}
		return nil
	}
	return nil
}

func dailyCap(in Input) *held {
	if in.RunsToday < int64(in.Org.DailyRunCap) {
		return nil
	}
	seen := fmt.Sprintf("%d runs today, cap %d", in.RunsToday, in.Org.DailyRunCap)
	if in.Org.DailyRunCap == 0 {
		return wait(errand.GateDailyCap, time.Time{}, "The organisation's daily cap is 0: no run may start.", "Raise the cap: errand admin limits --daily-cap.", "organisation", seen)
	}
	return wait(errand.GateDailyCap, runs.Day(in.Now).Add(24*time.Hour), "The organisation's runs of the day are used up.",
		"Wait for the next day (UTC), or raise the cap.", "organisation", seen)
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
