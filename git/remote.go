package git

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/errand-dev/errand"
)

// PushKind says why a push was refused.
type PushKind string

// The reasons. Each is final for this commit and branch, save PushUnreachable.
const (
	PushExists             PushKind = "exists"           // the branch is there with another commit
	PushNonFastForward     PushKind = "non_fast_forward" // the branch has moved on
	PushWorkflowPermission PushKind = "workflow_permission"
	PushTooLarge           PushKind = "too_large"
	PushProtected          PushKind = "protected" // a branch protection or repository rule
	PushAuth               PushKind = "auth"      // not authenticated, not allowed, or not to be seen
	PushUnreachable        PushKind = "unreachable"
	PushOther              PushKind = "other"
)

// PushError is a push that was refused.
type PushError struct {
	Kind    PushKind
	Message string // what git and the remote said; secrets removed
}

func (e *PushError) Error() string { return "push refused (" + string(e.Kind) + "): " + e.Message }

// Retryable tells whether the same push may work later. What became of an unreachable one is unknown: ask RemoteBranch.
func (e *PushError) Retryable() bool { return e.Kind == PushUnreachable }

// FetchBranch fetches a branch of the remote and gives its commit. A branch that is not there is NotFound.
func (r *Repo) FetchBranch(ctx context.Context, branch string) (string, error) {
	if err := r.remoteCall(branch); err != nil {
		return "", err
	}
	to := "refs/errand/fetched/" + branch
	res, err := r.run(ctx, call{network: true, args: []string{
		"fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance",
		"--end-of-options", r.remote, "+refs/heads/" + branch + ":" + to,
	}})
	if err != nil {
		return "", err
	}
	if res.exit != 0 {
		if strings.Contains(res.stderr, "couldn't find remote ref") {
			return "", errand.NotFound("branch " + branch)
		}
		return "", remoteError("fetch", res)
	}
	out, err := r.out(ctx, "rev-parse", "--verify", "--end-of-options", to+"^{commit}")
	return strings.TrimSpace(string(out)), err
}

// RemoteBranch asks the remote which commit a branch has; ok is false when there is no such branch.
func (r *Repo) RemoteBranch(ctx context.Context, branch string) (commit string, ok bool, err error) {
	if err := r.remoteCall(branch); err != nil {
		return "", false, err
	}
	ref := "refs/heads/" + branch
	res, err := r.run(ctx, call{network: true, args: []string{"ls-remote", "--refs", "--end-of-options", r.remote, ref}})
	if err != nil {
		return "", false, err
	}
	if res.exit != 0 {
		return "", false, remoteError("ls-remote", res)
	}
	for line := range strings.Lines(string(res.out)) {
		// ls-remote matches the end of names too: only the exact one counts.
		if hash, name, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == ref && IsHash(hash) {
			return hash, true, nil
		}
	}
	return "", false, nil
}

// Push makes a new branch of the remote from a commit. A branch that is already there with that commit is success; with
// another it is PushExists, decided by the remote in one step, so that nothing can come between. It never forces and
// starts no hook of this side. A refusal is a *PushError.
func (r *Repo) Push(ctx context.Context, commit, branch string) error {
	if err := errors.Join(r.remoteCall(branch), checkHash("commit", commit)); err != nil {
		return err
	}
	ref := "refs/heads/" + branch
	res, err := r.run(ctx, call{network: true, args: []string{
		"push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no",
		// A lease on "does not exist": it allows creation and nothing else.
		"--force-with-lease=" + ref + ":",
		"--end-of-options", r.remote, commit + ":" + ref,
	}})
	if err != nil || res.exit == 0 {
		return err
	}
	return &PushError{Kind: classify(string(res.out) + "\n" + res.stderr), Message: r.refusal(res)}
}

// remoteCall checks what every call to the remote needs.
func (r *Repo) remoteCall(branch string) error {
	if r.remote == "" {
		return errand.Invalid("remote", "no remote was given when the checkout was opened")
	}
	return CheckRef(branch)
}

// refusal is the remote's words: the rejected line of the porcelain output and what was printed beside it.
func (r *Repo) refusal(res result) string {
	var said []string
	for line := range strings.Lines(string(res.out)) {
		if strings.HasPrefix(line, "!") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	return r.conceal(strings.Join(append(said, res.stderr), "\n"))
}

// classify reads the reason from git's and GitHub's words (LC_ALL=C, so they are English). The order matters: GitHub
// sends its own reason beside a general "pre-receive hook declined".
func classify(said string) PushKind {
	for _, rule := range []struct {
		kind PushKind
		any  []string
	}{
		{PushWorkflowPermission, []string{"without `workflows` permission", "without `workflow` scope"}},
		{PushTooLarge, []string{"GH001", "exceeds GitHub's file size limit", "pack exceeds maximum allowed size", "HTTP 413", "The requested URL returned error: 413"}},
		{PushProtected, []string{"GH006", "GH013", "protected branch", "repository rule violations"}},
		{PushExists, []string{"stale info", "already exists", "cannot lock ref"}},
		{PushNonFastForward, []string{"non-fast-forward", "fetch first"}},
		{PushAuth, []string{
			"Authentication failed", "could not read Username", "could not read Password", "Permission to ", "Permission denied",
			"returned error: 401", "returned error: 403", "HTTP 401", "HTTP 403", "Repository not found", "Write access to repository not granted",
			"does not appear to be a git repository",
		}},
		{PushUnreachable, []string{
			"Could not resolve host", "Failed to connect", "Connection refused", "Connection reset", "timed out", "returned error: 5", "HTTP 5",
			"unexpected disconnect", "the remote end hung up", "early EOF", "Empty reply from server", "Recv failure", "Internal Server Error",
		}},
	} {
		for _, words := range rule.any {
			if strings.Contains(said, words) {
				return rule.kind
			}
		}
	}
	return PushOther
}

// remoteError gives a failed fetch or look-up a code: Unavailable when it may work later, Forbidden when it will not.
func remoteError(op string, res result) error {
	cause := fmt.Errorf("git %s: exit %d: %s", op, res.exit, res.stderr)
	switch classify(res.stderr) {
	case PushAuth:
		return errand.Errorf(errand.CodeForbidden, cause, "the remote does not let us in: check the token and its permissions")
	case PushUnreachable:
		return errand.Errorf(errand.CodeUnavailable, cause, "the remote cannot be reached")
	default:
		return cause
	}
}
