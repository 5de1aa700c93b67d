package runs

import (
	"context"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/store"
)

// PullRequestHolds is how long a pull request without news holds its issue, its paths and its place under the cap of open
// fixes. After that its fate is unknown, and it stops counting.
const PullRequestHolds = 14 * 24 * time.Hour

// Fate is what became of the run's pull request, as far as anybody knows; FateNoNews for a run without one, and for a
// young one of which nobody has spoken.
func Fate(run *store.Run, now time.Time) errand.PRFate {
	if run.State == errand.PROpened && open(run.PRFate) && !now.Before(HoldsUntil(run)) {
		return errand.FateUnknown
	}
	return run.PRFate
}

// Stands tells whether the run's pull request is open, as far as anybody knows.
func Stands(run *store.Run, now time.Time) bool {
	return run.State == errand.PROpened && open(run.PRFate) && now.Before(HoldsUntil(run))
}

// HoldsUntil is when the pull request stops counting if nothing is heard: 14 days after the last news.
func HoldsUntil(run *store.Run) time.Time {
	var last time.Time
	if run.FinishedAt != nil {
		last = *run.FinishedAt
	}
	if run.PRFateAt != nil {
		last = *run.PRFateAt
	}
	return last.Add(PullRequestHolds)
}

func open(f errand.PRFate) bool { return f == errand.FateNoNews || f == errand.FateOpen }

// News is a word about a pull request.
type News struct {
	Fate   errand.PRFate // open, merged, closed or declined
	At     time.Time     // when it was so; a time to come is taken for now
	From   string        // outcome_workflow, runner, person
	Person errand.ID     // the person who said it, when one did
}

// SetFate records what became of a run's pull request. The later word counts, and merged is final. It says whether the
// word was news; what waited for the pull request is asked again then. It returns Invalid for a fate that cannot be
// told, NotFound for a run that is not the organisation's, and Conflict for one without a pull request.
func (r *Runs) SetFate(ctx context.Context, tx *store.Tx, id errand.ID, n News) (news bool, err error) {
	switch n.Fate {
	case errand.FateOpen, errand.FateMerged, errand.FateClosed, errand.FateDeclined:
	default:
		return false, errand.Invalid("fate", "%q is not one of: open, merged, closed, declined", n.Fate)
	}
	now := r.clock()
	if n.At.IsZero() || n.At.After(now) {
		n.At = now
	}
	run, err := tx.GetRun(ctx, id)
	if err != nil {
		return false, err
	}
	if run.State != errand.PROpened {
		return false, errand.Conflict("the run has no pull request: it is %s", run.State)
	}
	changed, err := tx.RunsSetFate(ctx, store.RunsSetFateParams{Fate: n.Fate, At: n.At, SaidBy: n.From, ID: id})
	if err != nil || changed == 0 {
		return false, err
	}
	if run.PRFate == n.Fate {
		return true, nil // the same again prolongs it, and is no line of history
	}
	body, err := journal.Encode(journal.PullRequest{Fate: n.Fate, Was: run.PRFate, At: n.At, From: n.From, Person: n.Person})
	if err != nil {
		return false, err
	}
	err = tx.AppendJournal(ctx, store.AppendJournalParams{ID: errand.NewID(now), Kind: journal.KindPullRequest, Subject: id, At: now, Body: body})
	if err != nil {
		return false, err
	}
	return true, release(ctx, tx, &run, now)
}

// release has everything that waited for the run decided again: at the next sweep.
func release(ctx context.Context, tx *store.Tx, run *store.Run, now time.Time) error {
	return tx.RunsRelease(ctx, now, &run.ID, &run.RepositoryID)
}
