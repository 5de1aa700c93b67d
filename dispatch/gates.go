package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

// The gates that Decide asks, in its order. Each gives nil to let through, or why it does not: what was seen, with the
// numbers, and how to change it.

func organisationPaused(in Input) *held {
	switch in.Org.Mode {
	case "active", "observe":
		return nil
	case "paused":
		return skip(errand.GateOrgPaused, "Somebody paused the organisation.", "Resume it: errand admin mode active.", "organisation", "mode: paused")
	default: // one of a newer version, perhaps: not known to allow runs
		return skip(errand.GateOrgPaused, "The organisation is in a mode that this version does not know, so it counts as paused.",
			"Set it again: errand admin mode active.", "organisation", fmt.Sprintf("mode: %q", in.Org.Mode))
	}
}

func notAnError(in Input) *held {
	if in.Forced || in.Issue.Status == "open" || in.Issue.Status == "resolved" && regression(in) != nil {
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

// environmentExcluded: an environment that nobody told is on no list.
func environmentExcluded(in Input) *held {
	env := in.Event.Environment
	if in.Forced || env == "" || !slices.ContainsFunc(in.Org.ExcludedEnvironments, func(x string) bool { return strings.EqualFold(x, env) }) {
		return nil
	}
	return skip(errand.GateEnvironmentExcluded, fmt.Sprintf("The organisation excludes the environment %q.", env),
		"Take it off the list (errand admin policy --exclude-environments), or press Run now.", "event",
		fmt.Sprintf("environment: %s; excluded: %s", env, strings.Join(in.Org.ExcludedEnvironments, ", ")))
}

// tooFew counts deliveries of the issue: what Errand has seen of it. That an event is here counts as one.
func tooFew(in Input) *held {
	seen, least := max(in.Issue.Deliveries, 1), int64(in.Org.MinEvents)
	if in.Forced || seen >= least {
		return nil
	}
	return skip(errand.GateTooFew, fmt.Sprintf("It was seen %s, and runs from %d on.", times(seen), least),
		"Wait for its next event, lower the number (errand admin policy --min-events), or press Run now.", "issue", fmt.Sprintf("%d deliveries, want %d", seen, least))
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func tooOld(in Input) *held {
	most := time.Duration(in.Org.MaxAgeS) * time.Second
	if in.Forced || in.Now.Sub(in.EventAt) <= most {
		return nil
	}
	return skip(errand.GateStale, fmt.Sprintf("The event is older than %s.", span(most)), "Raise the age limit (errand admin limits --max-age), or press Run now.",
		"event", fmt.Sprintf("seen %s, limit %s", stamp(in.EventAt), span(most)))
}

// repositoryHolds asks whether one can work in the repository at all.
func repositoryHolds(in Input, repo store.Repository, known bool) *held {
	name := repo.Owner + "/" + repo.Name
	cannot := func(gate errand.Gate, detail, remedy, seen string) *held {
		return skip(gate, detail, remedy, "repository "+name, seen)
	}
	at, bound := in.Installations[repo.InstallationID]
	switch {
	case !known:
		return skip(errand.GateRepoUnknown, "The mapping's repository is not connected.", "Connect it, or correct the mapping.", "repository", "not known")
	case repo.GoneAt != nil:
		return cannot(errand.GateRepoGone, "The repository is gone, or no longer part of the GitHub App's installation.",
			"Give the installation access to it, or correct the mapping.", "gone since "+stamp(*repo.GoneAt))
	case repo.Archived:
		return cannot(errand.GateRepoArchived, "The repository is archived.", "Unarchive it, or correct the mapping.", "archived")
	case !bound:
		return cannot(errand.GateInstallationGone, "The repository's GitHub installation is not bound to the organisation.", "Connect the installation.", "no installation")
	case at.DeletedAt != nil:
		return cannot(errand.GateInstallationGone, "The GitHub App was uninstalled.", "Install it again.", "installation deleted "+stamp(*at.DeletedAt))
	case at.SuspendedAt != nil:
		return cannot(errand.GateInstallationSuspended, "The GitHub App's installation is suspended.", "Its owner can resume it in GitHub's settings.", "suspended "+stamp(*at.SuspendedAt))
	case repo.BlockedAt != nil:
		return cannot(errand.GateRepoBlocked, "GitHub has blocked the repository for legal reasons.", "Its owner has GitHub's message about it.", "blocked since "+stamp(*repo.BlockedAt))
	case at.Permissions == errand.Fail.String() && (len(at.PermissionsMissing) > 0 || !in.AllowExtraPermissions):
		return permissionsHold(at)
	case repo.Mode != "active" && repo.Mode != "observe":
		return cannot(errand.GateRepoPaused, "Somebody paused the repository.", "Resume it: errand admin mode active --repository "+name+".", "mode: "+repo.Mode)
	default:
		return nil
	}
}

// permissionsHold: what is not known to be granted is asked before the dispatch; what is known to be wrong starts nothing.
func permissionsHold(at store.Installation) *held {
	seen := fmt.Sprintf("more: %s; missing: %s", orNone(at.PermissionsExtra), orNone(at.PermissionsMissing))
	remedy := "Accept the App's permissions on the installation's page: Actions: write and Metadata: read."
	if len(at.PermissionsMissing) == 0 {
		remedy = "Take the other permissions from the App, and accept the change on the installation's page."
	}
	return skip(errand.GatePermissions, "The GitHub App's installation grants other than Actions: write and Metadata: read.", remedy, "installation of "+at.Account, seen)
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

func runOpen(in Input) *held {
	if in.Open == nil {
		return nil
	}
	h := wait(errand.GateRunOpen, time.Time{}, "A run of this issue is under way.", "Wait for its end, or cancel it.",
		"run history", fmt.Sprintf("run %s is %s", in.Open.ID, in.Open.State))
	h.holder = in.Open.ID
	return h
}

func pullRequestOpen(in Input) *held {
	if in.Forced {
		return nil
	}
	for i := range in.Ended {
		r := &in.Ended[i]
		if r.FinishedAt == nil || r.PRNumber == nil || !runs.Stands(r, in.Now) {
			continue
		}
		h := wait(errand.GatePROpen, runs.HoldsUntil(r), fmt.Sprintf("The pull request #%d of an earlier run has not been decided, as far as Errand knows.", *r.PRNumber),
			"Merge or close it, or press Run now.", "run history", fmt.Sprintf("%s, last news %s", r.PRURL, stamp(fateAt(r))))
		h.holder = r.ID
		return h
	}
	return nil
}

// alreadyFixed holds an event from before the merge of its fix.
func alreadyFixed(in Input) *held {
	pr := lastPullRequest(in)
	if in.Forced || pr == nil || pr.PRFate != errand.FateMerged || in.EventAt.After(fateAt(pr)) {
		return nil
	}
	return skip(errand.GateAlreadyFixed, fmt.Sprintf("Its fix, the pull request #%d, was merged after this event was seen.", *pr.PRNumber),
		"If it happens again, the later event is considered as a regression; or press Run now.", "run history",
		fmt.Sprintf("%s merged %s, event seen %s", pr.PRURL, stamp(fateAt(pr)), stamp(in.EventAt)))
}

// declined holds an issue whose last fix a person did not want: closed on GitHub, or declined here.
func declined(in Input) *held {
	pr := lastPullRequest(in)
	if in.Forced || pr == nil || pr.PRFate != errand.FateClosed && pr.PRFate != errand.FateDeclined {
		return nil
	}
	return skip(errand.GateDeclined, fmt.Sprintf("A person did not want the last fix, the pull request #%d.", *pr.PRNumber),
		"Press Run now to have it tried again.", "run history", fmt.Sprintf("%s %s %s, said by %s", pr.PRURL, pr.PRFate, stamp(fateAt(pr)), pr.PRFateFrom))
}

// countsHold asks the gates that rest on what was counted under the lock.
func countsHold(in Input, repo store.Repository) *held {
	c, known := in.Counts[repo.ID]
	if !known {
		return wait(errand.GateNotCounted, in.Now.Add(time.Minute), "What the caps of the repository need is not known, so nothing is started.",
			"It is looked at again in a minute.", "repository "+repo.Owner+"/"+repo.Name, "no counts")
	}
	for _, gate := range []func(Input, store.Repository, Counts) *held{sameProblem, cooldown, breaker, openFixCap, dailyCap, budget} {
		if h := gate(in, repo, c); h != nil {
			return h
		}
	}
	return nil
}

func sameProblem(in Input, _ store.Repository, c Counts) *held {
	if in.Forced || c.Same == nil || c.Same.IssueID == in.Issue.ID {
		return nil
	}
	var until time.Time
	detail, seen := "A run of another issue works on the same problem.", fmt.Sprintf("run %s of issue %s is %s", c.Same.ID, c.Same.IssueID, c.Same.State)
	if c.Same.State.Ended() {
		if !runs.Stands(c.Same, in.Now) {
			return nil
		}
		until = runs.HoldsUntil(c.Same)
		detail = "A pull request for the same problem, of another issue, has not been decided."
		seen += ", " + c.Same.PRURL
	}
	h := wait(errand.GateSameProblem, until, detail, "Wait for it, or press Run now if it is another problem.", "same type, message and place", seen)
	h.holder = c.Same.ID
	return h
}

// cooldown counts from the last run that ended, except one that never got to GitHub: that was no attempt at a fix.
func cooldown(in Input, _ store.Repository, _ Counts) *held {
	if in.Forced {
		return nil
	}
	length := time.Duration(in.Org.CooldownS) * time.Second
	for _, r := range in.Ended {
		if r.FinishedAt == nil || r.Reason == errand.ReasonNotDispatched || r.Reason == errand.ReasonNothingFound {
			continue
		}
		until := r.FinishedAt.Add(length)
		if in.Now.Before(until) {
			return wait(errand.GateCooldown, until, fmt.Sprintf("A run of this issue ended as %s at %s.", r.State, stamp(*r.FinishedAt)),
				"Wait, shorten the cooldown (errand admin limits --cooldown), or press Run now.", "run history", fmt.Sprintf("run %s, cooldown %s", r.ID, span(length)))
		}
		return nil
	}
	return nil
}

// breaker holds everything of a repository while many different issues of it are new at once: that is one incident, and
// not so many errors. It closes when so few are left within the window.
func breaker(in Input, repo store.Repository, c Counts) *held {
	n, window := int(in.Org.BreakerIssues), time.Duration(in.Org.BreakerWindowS)*time.Second
	if in.Forced || n <= 0 || len(c.NewIssues) < n {
		return nil
	}
	until := c.NewIssues[n-1].Add(window)
	if !in.Now.Before(until) {
		return nil
	}
	return wait(errand.GateBreaker, until, fmt.Sprintf("%d or more different issues of %s/%s were new within %s: it looks like one incident.", n, repo.Owner, repo.Name, span(window)),
		"Wait until it is over, press Run now for one of them, or change the breaker (errand admin policy --breaker-issues, --breaker-window).",
		"repository "+repo.Owner+"/"+repo.Name, fmt.Sprintf("the newest %d are new since %s, limit %d in %s", n, stamp(c.NewIssues[n-1]), n, span(window)))
}

func openFixCap(_ Input, repo store.Repository, c Counts) *held {
	if c.OpenFixes < int64(repo.OpenFixCap) {
		return nil
	}
	name := repo.Owner + "/" + repo.Name
	return wait(errand.GateOpenFixCap, time.Time{}, "The repository has as many open fixes as it may: runs under way, and pull requests that nobody has decided.",
		"Merge or close some, or raise the cap: errand admin policy --repository "+name+" --open-fix-cap.", "repository "+name,
		fmt.Sprintf("%d open fixes, cap %d", c.OpenFixes, repo.OpenFixCap))
}

func dailyCap(in Input, _ store.Repository, c Counts) *held {
	if c.RunsToday < int64(in.Org.DailyRunCap) {
		return nil
	}
	seen := fmt.Sprintf("%d runs today, cap %d", c.RunsToday, in.Org.DailyRunCap)
	if in.Org.DailyRunCap <= 0 {
		return wait(errand.GateDailyCap, time.Time{}, "The organisation's daily cap is 0: no run may start.", "Raise the cap: errand admin limits --daily-cap.", "organisation", seen)
	}
	return wait(errand.GateDailyCap, runs.Day(in.Now).Add(24*time.Hour), "The organisation's runs of the day are used up.",
		"Wait for the next day (UTC), or raise the cap: errand admin limits --daily-cap.", "organisation", seen)
}

// budget holds what a run reserves against each budget that is set. A request without a price makes what is left unknown,
// and unknown is not enough.
func budget(in Input, _ store.Repository, c Counts) *held {
	ceiling := errand.Picodollars(in.Org.RunCeilingPico)
	for _, b := range c.Budgets {
		fits, known := b.Fits(ceiling)
		seen := fmt.Sprintf("$%s spent or reserved of $%s, a run reserves $%s", b.Spent.USD(2), b.Limit.USD(2), ceiling.USD(2))
		switch {
		case !known:
			return wait(errand.GateUnpriced, b.Until, "A budget is set ("+b.Scope+"), and part of what was spent has no price, so what is left is not known.",
				"Have the model's price added, or lift the budget: errand admin policy.", "budget: "+b.Scope, fmt.Sprintf("at least %s; %d requests without a price", seen, b.Unpriced))
		case !fits:
			return wait(errand.GateBudget, b.Until, "What a run reserves does not fit into the budget ("+b.Scope+").",
				"Wait for the next period, raise the budget, or lower what a run reserves: errand admin policy.", "budget: "+b.Scope, seen)
		}
	}
	return nil
}
