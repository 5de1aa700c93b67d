package runnerapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/wire"
)

const (
	branchPrefix = "errand/"
	maxLate      = 20 // different late results kept of one run
)

// The reasons that a runner may give, by state. Every other reason is for the control plane to find.
var (
	whilePublishing = []errand.Reason{errand.ReasonPRNotPermitted, errand.ReasonPushRefused, errand.ReasonPublishFailed}
	reasonsOf       = map[errand.RunState][]errand.Reason{
		errand.PROpened: {errand.ReasonNone},
		errand.NoFix:    {errand.ReasonNothingToFix},
		errand.Rejected: {errand.ReasonClaimRejected, errand.ReasonBlockedBy},
		errand.TimedOut: {errand.ReasonLimits, errand.ReasonDeadline},
		errand.Failed: append([]errand.Reason{
			errand.ReasonWrongRepository, errand.ReasonRefMissing, errand.ReasonLimits, errand.ReasonProviderAuth, errand.ReasonProviderQuota,
			errand.ReasonProviderError, errand.ReasonAgentError, errand.ReasonWorkflowCancelled,
		}, whilePublishing...),
	}
)

// result ends the run. Nothing changes unless all of it holds. It returns Invalid for a result that is wrong in itself or
// that cannot follow the run's state, and Conflict, with the state that stands, when the run has ended otherwise; what the
// runner says is then kept as late evidence.
func (a *API) result(ctx context.Context, token runtoken.Token, req wire.ResultRequest) (wire.ResultResponse, error) {
	if err := validResult(req); err != nil {
		return wire.ResultResponse{}, err
	}
	digest, err := digestOf(req)
	if err != nil {
		return wire.ResultResponse{}, err
	}
	now := a.clock()
	var stands errand.RunState
	var ended error // late evidence is kept, so this leaves the transaction beside its error
	err = a.inRun(ctx, token, func(tx *store.Tx, run *store.Run) error {
		stands = run.State
		if bytes.Equal(run.ResultDigest, digest) {
			return nil
		}
		if run.ResultDigest != nil {
			return over(run, "another result was reported before this one")
		}
		repo, err := tx.GetRepository(ctx, run.RepositoryID)
		if err != nil {
			return err
		}
		if err := a.ownPullRequest(req.PullRequest, run, &repo); err != nil {
			return err
		}
		if run.State.Ended() && !completes(run, req) {
			ended = over(run, "the run had ended before this result; it is kept as evidence")
			return a.late(ctx, tx, run, token.Role, req, now)
		}
		stands = req.State
		return a.end(ctx, tx, run, end{req, digest, token.Role}, now)
	})
	if err == nil {
		err = ended
	}
	if err != nil {
		return wire.ResultResponse{}, err
	}
	return wire.ResultResponse{Run: token.Run, State: stands}, nil
}

// over says where the run stands instead.
func over(run *store.Run, what string) error {
	return &endedError{err: errand.Conflict("the run is %s: %s", run.State, what), state: run.State, reason: run.Reason}
}

// completes tells whether the result belongs to an end that the run's own claim brought about: it adds the summary.
func completes(run *store.Run, req wire.ResultRequest) bool {
	return run.State == errand.Rejected && req.State == errand.Rejected && run.Reason == req.Reason
}

// end is a result with what is known of it.
type end struct {
	result wire.ResultRequest
	digest []byte
	role   runtoken.Role
}

// end writes the result and moves the run to its end.
func (a *API) end(ctx context.Context, tx *store.Tx, run *store.Run, e end, now time.Time) error {
	req := e.result
	row := store.RunnerRecordResultParams{
		ID: run.ID, Summary: scrub.Sanitise(req.Summary, 4000), ResultDigest: e.digest,
		ToolCalls: int32(min(req.ToolCalls, math.MaxInt32)), Model: scrub.Sanitise(req.Model, 128),
	}
	if pr := req.PullRequest; pr != nil {
		number := int32(pr.Number)
		row.PRNumber, row.PRURL, row.PRDraft, row.Branch = &number, pr.URL, pr.Draft, pr.Branch
	}
	if err := tx.RunnerRecordResult(ctx, row); err != nil {
		return err
	}
	if err := a.keep(ctx, tx, run, lines{req.Steps, req.Usage, firstSeq(run, e.role)}, now); err != nil {
		return err
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, "result", append(ids(run), slog.String("state", string(req.State)), slog.String("reason", string(req.Reason)))...)
	if run.State.Ended() {
		return nil
	}
	_, err := a.runs.Fire(ctx, tx, run.ID, runs.Move{Trigger: triggerOf(run.State, req), To: req.State, Reason: req.Reason, Actor: actor}, nil)
	if errors.Is(err, runs.ErrDenied) {
		return errand.Invalid("state", "%s cannot follow %s", strings.TrimSuffix(string(req.State)+" "+string(req.Reason), " "), run.State)
	}
	return err
}

// triggerOf names what ends a run in that way. Whether it may is for the policy to say.
func triggerOf(from errand.RunState, req wire.ResultRequest) errand.Trigger {
	switch req.State {
	case errand.PROpened:
		return errand.TriggerPullRequest
	case errand.NoFix:
		return errand.TriggerNothingToFix
	case errand.TimedOut:
		return errand.TriggerDeadline
	case errand.Rejected:
		return errand.TriggerClaimRejected
	default:
		if slices.Contains(whilePublishing, req.Reason) {
			return errand.TriggerPublishFailed
		}
		return errand.TriggerRunnerFailed
	}
}

// validResult asks what does not depend on the run.
func validResult(req wire.ResultRequest) error {
	if !slices.Contains(reasonsOf[req.State], req.Reason) {
		var want []string
		for _, r := range reasonsOf[req.State] {
			want = append(want, fmt.Sprintf("%q", string(r)))
		}
		return errand.Invalid("reason", "is %q: with the state %s, want %s", scrub.Sanitise(string(req.Reason), 64), req.State, strings.Join(want, ", "))
	}
	if (req.State == errand.PROpened) != (req.PullRequest != nil) {
		return errand.Invalid("pull_request", "stands with the state pr_opened, and with no other")
	}
	if pr := req.PullRequest; pr != nil {
		if pr.Number > math.MaxInt32 {
			return errand.Invalid("pull_request.number", "is %d: not a pull request's number", pr.Number)
		}
		if !goodBranch(pr.Branch) {
			return errand.Invalid("pull_request.branch", "want a branch that begins with %s", branchPrefix)
		}
	}
	return validLines(req.Steps, req.Usage)
}

// goodBranch keeps to what git allows in a branch's name, and to our own prefix.
func goodBranch(b string) bool {
	rest, ok := strings.CutPrefix(b, branchPrefix)
	return ok && rest != "" && !strings.HasPrefix(rest, "/") && !strings.Contains(b, "..") && !strings.Contains(b, "@{") && !strings.HasSuffix(b, "/") &&
		!strings.ContainsFunc(b, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }) &&
		scrub.Sanitise(b, 255) == b
}

// ownPullRequest holds the pull request's address against the run: its repository, its number, and the host where the pages
// of this deployment's GitHub are. The base branch is never the one that was pushed to.
func (a *API) ownPullRequest(pr *wire.PullRequest, run *store.Run, repo *store.Repository) error {
	if pr == nil {
		return nil
	}
	if pr.Branch == run.Ref || pr.Branch == repo.DefaultBranch {
		return errand.Invalid("pull_request.branch", "is the base branch")
	}
	path := fmt.Sprintf("/%s/%s/pull/%d", repo.Owner, repo.Name, pr.Number)
	u, err := url.Parse(pr.URL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || !strings.EqualFold(u.EscapedPath(), path) {
		return errand.Invalid("pull_request.url", "is not that of this run's repository: want one that ends in %s", path)
	}
	if u.Scheme != a.webURL.Scheme || !strings.EqualFold(u.Host, a.webURL.Host) {
		return errand.Invalid("pull_request.url", "is at %s, and this deployment's GitHub at %s", scrub.Sanitise(u.Scheme+"://"+u.Host, 256), a.webURL)
	}
	return nil
}

// digestOf names a result by all that it says.
func digestOf(req wire.ResultRequest) ([]byte, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return nil, errand.Invalid("", "the result cannot be read back: %v", err)
	}
	d := sha256.Sum256(b)
	return d[:], nil
}

// late keeps what a runner says of a run that has ended by other means: a pull request opened just before a cancellation is
// not lost, nor is what was spent.
func (a *API) late(ctx context.Context, tx *store.Tx, run *store.Run, role runtoken.Role, req wire.ResultRequest, now time.Time) error {
	if err := a.keep(ctx, tx, run, lines{req.Steps, req.Usage, firstSeq(run, role)}, now); err != nil {
		return err
	}
	evidence := journal.LateEvidence{Stands: run.State, Reported: req.State, Reason: req.Reason, Summary: scrub.Sanitise(req.Summary, 4000)}
	if pr := req.PullRequest; pr != nil {
		evidence.PRNumber, evidence.PRURL, evidence.PRDraft, evidence.Branch = pr.Number, pr.URL, pr.Draft, pr.Branch
	}
	body, err := journal.Encode(evidence)
	if err != nil {
		return err
	}
	kept, err := tx.ListJournal(ctx, run.ID, journal.KindLateEvidence, maxLate)
	if err != nil {
		return err
	}
	if len(kept) >= maxLate || slices.ContainsFunc(kept, func(row store.Journal) bool { return row.Body == body }) {
		return nil
	}
	a.count.late.Inc()
	a.log.LogAttrs(ctx, slog.LevelWarn, "a result came after the run had ended",
		append(ids(run), slog.String("state", string(run.State)), slog.String("reported", string(req.State)))...)
	return note(ctx, tx, run.ID, journal.KindLateEvidence, evidence, now)
}
