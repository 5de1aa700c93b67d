package runnerapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/wire"
)

// The verdicts of a claim check, and what is decided upon them.
const (
	verified    = "verified"
	rejected    = "rejected"
	needsReview = "needs_review"

	decisionAdmitted = "admitted"
	decisionCorrect  = "correct"
	decisionRejected = "rejected"
	decisionBlocked  = "blocked"
)

// claim takes the verdict of the runner's check and answers what may happen next. The first rejected claim may be corrected
// once, unless the runner says that it will not; an admitted one holds its paths against other runs of the repository.
// The same claim again gets the same answer. It returns Conflict for a claim that is not the run's next one.
func (a *API) claim(ctx context.Context, token runtoken.Token, req wire.ClaimRequest) (wire.ClaimResponse, error) {
	var out wire.ClaimResponse
	if err := validClaim(req); err != nil {
		return out, err
	}
	err := a.inRun(ctx, token, func(tx *store.Tx, run *store.Run) error {
		said, err := earlierClaims(ctx, tx, run.ID)
		if err != nil {
			return err
		}
		verdict := verdictOf(req)
		if old, ok := said[req.Seq]; ok {
			out, err = a.repeated(ctx, run, old, verdict)
			return err
		}
		if run.State.Ended() {
			return a.refuse(ctx, revoked, ids(run)...)
		}
		if run.State != errand.Running || req.Seq != len(said)+1 {
			return errand.Conflict("claim %d is not the next one: the run is in %s and has made %d", req.Seq, run.State, len(said))
		}
		if out, err = a.decide(ctx, tx, run, token, req, verdict); err != nil {
			return err
		}
		a.log.LogAttrs(ctx, slog.LevelInfo, "claim decided",
			append(ids(run), slog.Int("seq", req.Seq), slog.String("verdict", req.Verdict), slog.String("decision", out.Decision))...)
		return nil
	})
	if err != nil {
		return wire.ClaimResponse{}, err
	}
	return out, nil
}

func validClaim(req wire.ClaimRequest) error {
	switch {
	case req.Verdict != rejected && len(req.Files) == 0:
		return errand.Invalid("files", "is empty: a change that is %s has at least one file", req.Verdict)
	case req.Verdict == verified && len(req.Findings) > 0:
		return errand.Invalid("findings", "has %d: what is verified has none", len(req.Findings))
	}
	return nil
}

// decide moves the run through checking to where the verdict leads. The verdict is noted between the two moves, where it fell:
// the journal's order is the order of things.
func (a *API) decide(ctx context.Context, tx *store.Tx, run *store.Run, token runtoken.Token, req wire.ClaimRequest, verdict journal.ClaimVerdict) (wire.ClaimResponse, error) {
	fire := func(m runs.Move, set func(*runs.Changes)) error {
		m.Actor = actor
		_, err := a.runs.Fire(ctx, tx, run.ID, m, set)
		return err
	}
	err := fire(runs.Move{Trigger: errand.TriggerProposal, To: errand.Checking}, func(c *runs.Changes) { c.Verdict = &req.Verdict })
	if err != nil {
		return wire.ClaimResponse{}, err
	}
	now := a.clock()
	answer := func(decision string, blockedBy errand.ID, m runs.Move, set func(*runs.Changes)) (wire.ClaimResponse, error) {
		verdict.Decision, verdict.BlockedBy = decision, blockedBy
		if err := note(ctx, tx, run.ID, journal.KindClaimVerdict, verdict, now); err != nil {
			return wire.ClaimResponse{}, err
		}
		return wire.ClaimResponse{Decision: decision, BlockedBy: blockedBy}, fire(m, set)
	}
	if req.Verdict == rejected {
		if req.Seq == 1 && !req.Final {
			corrections := run.Corrections + 1
			return answer(decisionCorrect, "",
				runs.Move{Trigger: errand.TriggerCorrection, To: errand.Running, Granted: granted(token)}, func(c *runs.Changes) { c.Corrections = &corrections })
		}
		return answer(decisionRejected, "",
			runs.Move{Trigger: errand.TriggerClaimRejected, To: errand.Rejected, Reason: errand.ReasonClaimRejected, Detail: codes(req.Findings)}, nil)
	}
	// Two runs that check the same path at the same moment come here one after the other.
	if err := tx.Lock(ctx, "paths", run.RepositoryID); err != nil {
		return wire.ClaimResponse{}, err
	}
	paths := pathsOf(req.Files)
	open, err := tx.RunnerBlockedBy(ctx, store.RunnerBlockedByParams{
		RepositoryID: run.RepositoryID, ID: run.ID, Paths: paths, OpenSince: now.Add(-PathsHeld),
	})
	if err != nil {
		return wire.ClaimResponse{}, err
	}
	if len(open) > 0 {
		return answer(decisionBlocked, open[0],
			runs.Move{Trigger: errand.TriggerPathBlocked, To: errand.Rejected, Reason: errand.ReasonBlockedBy, Detail: "The run " + string(open[0]) + " holds a path of it."}, nil)
	}
	return answer(decisionAdmitted, "",
		runs.Move{Trigger: errand.TriggerAdmitted, To: errand.Publishing}, func(c *runs.Changes) { c.Paths = paths })
}

// repeated answers a claim that was made before. The answer to one that let the run go on is dead when the run has ended
// since; the one that ended it stands.
func (a *API) repeated(ctx context.Context, run *store.Run, old, again journal.ClaimVerdict) (wire.ClaimResponse, error) {
	ends := old.Decision == decisionRejected || old.Decision == decisionBlocked
	if run.State.Ended() && !ends {
		return wire.ClaimResponse{}, a.refuse(ctx, revoked, ids(run)...)
	}
	again.Decision, again.BlockedBy = old.Decision, old.BlockedBy
	if !sameVerdict(old, again) {
		return wire.ClaimResponse{}, errand.Conflict("claim %d was made before and said something else", old.Seq)
	}
	return wire.ClaimResponse{Decision: old.Decision, BlockedBy: old.BlockedBy}, nil
}

// sameVerdict compares what is stored, so that a difference which is not kept makes none.
func sameVerdict(a, b journal.ClaimVerdict) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// earlierClaims reads the claims that the run has made, by number.
func earlierClaims(ctx context.Context, tx *store.Tx, run errand.ID) (map[int]journal.ClaimVerdict, error) {
	rows, err := tx.ListJournal(ctx, run, journal.KindClaimVerdict, 10)
	if err != nil {
		return nil, err
	}
	said := map[int]journal.ClaimVerdict{}
	for _, row := range rows {
		var v journal.ClaimVerdict
		if err := json.Unmarshal([]byte(row.Body), &v); err != nil {
			return nil, fmt.Errorf("journal row %d cannot be read: %w", row.Seq, err)
		}
		said[v.Seq] = v
	}
	return said, nil
}

// verdictOf is what is kept of a claim: paths, kinds, counts, codes and line numbers.
func verdictOf(req wire.ClaimRequest) journal.ClaimVerdict {
	v := journal.ClaimVerdict{Seq: req.Seq, Verdict: req.Verdict, Reason: scrub.Sanitise(req.Reason, 64), Final: req.Final}
	for _, f := range req.Findings {
		v.Findings = append(v.Findings, journal.Finding{Code: scrub.Sanitise(f.Code, 64), Path: scrub.Sanitise(f.Path, 1024), Line: f.Line})
	}
	for _, f := range req.Files {
		v.Files = append(v.Files, journal.File{Path: scrub.Sanitise(f.Path, 1024), Kind: f.Kind, Added: f.Added, Removed: f.Removed})
	}
	return v
}

func pathsOf(files []wire.ClaimFile) []string {
	paths := make([]string, 0, len(files))
	for _, f := range files {
		paths = append(paths, scrub.Sanitise(f.Path, 1024))
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// codes lists the findings' codes, each once, for the one sentence beside the run's reason.
func codes(findings []wire.Finding) string {
	var seen []string
	for _, f := range findings {
		if c := scrub.Sanitise(f.Code, 64); !slices.Contains(seen, c) && len(seen) < 8 {
			seen = append(seen, c)
		}
	}
	out := ""
	for i, c := range seen {
		if i > 0 {
			out += ", "
		}
		out += c
	}
	return out
}
