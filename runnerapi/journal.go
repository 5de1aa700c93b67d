package runnerapi

import (
	"context"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/store"
)

// actor is who moves a run from here: its runner, and no person.
const actor = "runner"

// note appends a row about the run to the journal, in the transaction that it speaks of.
func note(ctx context.Context, tx *store.Tx, run errand.ID, kind string, body any, now time.Time) error {
	text, err := journal.Encode(body)
	if err != nil {
		return err
	}
	return tx.AppendJournal(ctx, store.AppendJournalParams{ID: errand.NewID(now), Kind: kind, Subject: run, At: now, Body: text})
}
