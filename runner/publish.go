package runner

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/git"
	"github.com/errand-dev/errand/wire"
)

// maxBranches is how many names are tried when one is taken by something that is not ours.
const maxBranches = 4

// publisher pushes an admitted commit to a new branch and opens its pull request. The base branch is never pushed to,
// nothing is forced, merged or approved.
type publisher struct {
	repo    *git.Repo
	forge   *forge
	start   wire.StartResponse
	server  string // such as https://github.com
	sleep   func(context.Context, time.Duration) error
	words   func(a admitted) string // the pull request's body
	kept    string                  // text for the job's summary when there is no pull request to hold it
	compare string
}

// publish ends the run in one of its ways.
func (p *publisher) publish(ctx context.Context, a admitted) *ending {
	summary := a.Claim.Summary
	branch, end := p.push(ctx, a)
	if end != nil {
		end.Summary = summary
		return end
	}
	body := p.words(a)
	made, _, err := p.forge.create(ctx, newPull{Title: a.Title, Head: branch, Base: p.start.Ref, Body: body, Draft: a.Draft}, p.own)
	if err == nil {
		return &ending{State: errand.PROpened, Summary: summary, PR: &wire.PullRequest{
			Number: made.Number, URL: made.HTMLURL, Branch: branch, Draft: made.Draft,
		}}
	}
	if ctx.Err() != nil {
		end := cancelled(ctx)
		end.Detail += "; the branch " + branch + " was pushed"
		return end
	}
	// The branch stays, and so does the text: a click opens the pull request by hand.
	p.kept = "# " + tame(a.Title) + "\n\n" + body // in the summary the title is Markdown too
	p.compare = fmt.Sprintf("%s/%s/compare/%s...%s?expand=1", p.server, p.forge.repo, escapeRef(p.start.Ref), escapeRef(branch))
	end = ended(errand.Failed, errand.ReasonPublishFailed, err.Error())
	var e *forgeError
	if errors.As(err, &e) && e.notPermitted() {
		end.Reason = errand.ReasonPRNotPermitted
		end.Detail = "GitHub Actions may not create pull requests here. Allow it in Settings, Actions, General, \"Allow GitHub Actions to create and " +
			"approve pull requests\" (if it is greyed out, the organisation's owner has to allow it there first), or give the action a pr-token."
	}
	end.Summary = summary
	end.Detail += " The branch " + branch + " is pushed: " + p.compare
	return end
}

// push makes the branch and gives its name.
func (p *publisher) push(ctx context.Context, a admitted) (string, *ending) {
	name := branchName(p.start)
	for n := 1; n <= maxBranches; n++ {
		branch := name
		if n > 1 {
			branch = fmt.Sprintf("%s-%d", name, n)
		}
		if branch == p.start.Ref || branch == p.start.Repository.DefaultBranch {
			continue // cannot be, since the name holds the run's id; but the base is never pushed to
		}
		err := p.pushOnce(ctx, a.Commit, branch)
		if err == nil {
			return branch, nil
		}
		if ctx.Err() != nil {
			return "", cancelled(ctx)
		}
		var refused *git.PushError
		if !errors.As(err, &refused) {
			return "", ended(errand.Failed, errand.ReasonPushRefused, err.Error())
		}
		if refused.Kind != git.PushExists && refused.Kind != git.PushNonFastForward {
			return "", ended(errand.Failed, errand.ReasonPushRefused, pushAdvice(refused))
		}
		if end := p.adopt(ctx, a, branch); end != nil {
			return branch, end
		}
	}
	return "", ended(errand.Failed, errand.ReasonPushRefused, "every name that was tried for the branch is taken")
}

// pushOnce pushes, and where the answer was lost looks what became of it before it tries again.
func (p *publisher) pushOnce(ctx context.Context, commit, branch string) error {
	wait := time.Second
	for attempt := 1; ; attempt++ {
		err := p.repo.Push(ctx, commit, branch)
		var refused *git.PushError
		if err == nil || !errors.As(err, &refused) || !refused.Retryable() {
			return err
		}
		if at, ok, lookErr := p.repo.RemoteBranch(ctx, branch); lookErr == nil && ok && at == commit {
			return nil
		}
		if attempt == 4 {
			return err
		}
		if err := p.sleep(ctx, wait); err != nil {
			return err
		}
		wait *= 2
	}
}

// adopt takes over the pull request that an earlier try of this run opened from the branch: found by the run's trailer, and
// reported instead of made twice. nil means that the branch is somebody else's, and another name is to be tried.
func (p *publisher) adopt(ctx context.Context, a admitted, branch string) *ending {
	there, ok, err := p.forge.find(ctx, branch, p.own)
	if err != nil || !ok {
		return nil
	}
	return &ending{State: errand.PROpened, Summary: a.Claim.Summary, PR: &wire.PullRequest{
		Number: there.Number, URL: there.HTMLURL, Branch: branch, Draft: there.Draft,
	}}
}

// own tells whether a pull request carries this run's trailer.
func (p *publisher) own(q pull) bool {
	for line := range strings.Lines(q.Body) {
		if strings.TrimSpace(line) == trailer(p.start.Run) {
			return true
		}
	}
	return false
}

func trailer(run errand.ID) string { return "Errand-Run: " + string(run) }

// branchName is errand/<issue>-<run>: readable, and new for every run.
func branchName(start wire.StartResponse) string {
	name := slug(start.Issue.Title)
	if name == "" {
		name = "issue"
	}
	return "errand/" + name + "-" + start.Run.Short()
}

// slug keeps letters and digits of ASCII, at most 40 of them, with single dashes between.
func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case b.Len() >= 40:
			return strings.TrimRight(b.String(), "-")
		case (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9'):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.TrimRight(b.String(), "-")
}

func escapeRef(ref string) string {
	parts := strings.Split(ref, "/")
	for i, s := range parts {
		parts[i] = url.PathEscape(s)
	}
	return strings.Join(parts, "/")
}

// pushAdvice says what a refused push needs.
func pushAdvice(e *git.PushError) string {
	advice := map[git.PushKind]string{
		git.PushWorkflowPermission: "The change touches a workflow file, or the base lacks one that the default branch has; Errand has no permission for these on purpose.",
		git.PushTooLarge:           "GitHub refuses the size of the push.",
		git.PushProtected:          "A branch rule forbids the push: exempt branches named errand/**.",
		git.PushAuth:               "The token may not push: the job needs `permissions: contents: write`.",
		git.PushUnreachable:        "GitHub could not be reached.",
	}[e.Kind]
	if advice == "" {
		return e.Error()
	}
	return advice + " " + e.Error()
}
