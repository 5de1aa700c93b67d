package dispatch

import (
	"context"
	"encoding/json"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

const actor = "dispatch"

// consider decides about an issue. The decision's row and the run it may create are one transaction, under the lock of the
// organisation's runs, and the row carries the delivery's id: the same job worked again, or by two replicas at once, finds
// it and does nothing.
func (d *Dispatch) consider(ctx context.Context, args errand.ConsiderIssue) (again time.Duration, err error) {
	var decided *journal.Decision
	err = d.store.InTx(ctx, args.Org, func(tx *store.Tx) error {
		org, err := d.runs.Lock(ctx, tx)
		if err != nil {
			return err
		}
		if args.Delivery != "" {
			if n, err := tx.DispatchDecided(ctx, args.Delivery); err != nil || n > 0 {
				return err
			}
		}
		decided, err = d.decide(ctx, tx, org, request{issue: args.Issue, event: args.Event, delivery: args.Delivery})
		if err != nil || decided.Outcome != errand.OutcomeWait || decided.Until == "" {
			return err
		}
		// A wait that ends by itself is released then, once an issue, for whatever event is the newest by then.
		until, err := time.Parse(time.RFC3339, decided.Until)
		if err != nil {
			return err
		}
		if args.Delivery == "" && args.Event == "" { // this is such a release: it waits on
			again = max(until.Sub(d.clock()), time.Second)
			return nil
		}
		return tx.Enqueue(ctx, errand.ConsiderIssue{Org: args.Org, Issue: args.Issue}, store.At(until), store.Once())
	})
	if err == nil && decided != nil {
		d.logDecision(ctx, args.Org, args.Issue, decided)
	}
	return again, err
}

// RunNow starts a run of the issue because a person asked for it. It passes the gates that guess whether a run is worth it
// (Input.Forced). What came of it is kept with the person's id, a refusal too. It returns NotFound for an issue that is
// not the organisation's, and Conflict with the reason when no run was started.
func (d *Dispatch) RunNow(ctx context.Context, org, issue, person errand.ID) error {
	var decided *journal.Decision
	err := d.store.InTx(ctx, org, func(tx *store.Tx) error {
		o, err := d.runs.Lock(ctx, tx)
		if err != nil {
			return err
		}
		if decided, err = d.decide(ctx, tx, o, request{issue: issue, person: person}); err != nil {
			return err
		}
		return d.note(ctx, tx, journal.KindPersonAction, issue, errand.NewID(d.clock()),
			journal.PersonAction{Action: "run_now", Person: person, Outcome: string(decided.Gate)})
	})
	if err != nil {
		return err
	}
	d.logDecision(ctx, org, issue, decided)
	if decided.Run == "" {
		e := errand.Conflict("%s", decided.Detail)
		e.Hint = decided.Remedy
		return e
	}
	return nil
}

// request is what is to be decided, and for whom.
type request struct {
	issue    errand.ID
	event    errand.ID // "" = the newest
	delivery errand.ID // "" = no delivery asks
	person   errand.ID // "" = no person asks
}

// decide loads, decides, creates the run when that is the answer, and keeps the answer. The caller holds runs.Lock.
func (d *Dispatch) decide(ctx context.Context, tx *store.Tx, org store.Organisation, r request) (*journal.Decision, error) {
	in, event, err := d.load(ctx, tx, org, r)
	if err != nil {
		return nil, err
	}
	decision, target := Decide(in)
	kept := &journal.Decision{Decision: decision, Delivery: r.delivery, Event: event, Person: r.person}
	if target != nil {
		kept.Repository, kept.Rule = target.Repository, target.Rule
	}
	if target != nil && !decision.Observed {
		run, err := d.runs.Create(ctx, tx, runs.NewRun{
			Issue: r.issue, Event: event, Repository: target.Repository, WorkflowFile: target.WorkflowFile, Ref: target.Ref,
			BaseDir: target.BaseDir, StackRoot: target.StackRoot, SourceRoot: target.SourceRoot, Actor: actor, Person: r.person,
		})
		if err != nil {
			return nil, err
		}
		kept.Run = run.ID
	}
	id := r.delivery
	if id == "" {
		id = errand.NewID(in.Now)
	}
	return kept, d.note(ctx, tx, journal.KindDecision, r.issue, id, kept)
}

// load reads everything that Decide asks for.
func (d *Dispatch) load(ctx context.Context, tx *store.Tx, org store.Organisation, r request) (in Input, event errand.ID, err error) {
	in = Input{
		Now: d.clock(), Org: org, Forced: r.person != "", Newest: true,
		Repositories: map[errand.ID]store.Repository{}, Installations: map[int64]store.Installation{},
	}
	if in.Issue, err = tx.GetIssue(ctx, r.issue); err != nil {
		return in, "", err
	}
	if event, err = d.loadEvent(ctx, tx, r, &in); err != nil {
		return in, "", err
	}
	if in.Rules, err = tx.ListMappings(ctx); err != nil {
		return in, "", err
	}
	repos, err := tx.ListRepositories(ctx)
	if err != nil {
		return in, "", err
	}
	for _, repo := range repos {
		in.Repositories[repo.ID] = repo
	}
	installations, err := tx.DispatchInstallations(ctx)
	if err != nil {
		return in, "", err
	}
	for _, i := range installations {
		in.Installations[i.ID] = i
	}
	if in.Ended, err = tx.DispatchEndedRuns(ctx, r.issue); err != nil {
		return in, "", err
	}
	open, err := tx.RunsOpenOfIssue(ctx, r.issue)
	if err != nil {
		return in, "", err
	}
	if len(open) > 0 {
		run, err := tx.GetRun(ctx, open[0])
		if err != nil {
			return in, "", err
		}
		in.Open = &run
	}
	in.RunsToday, err = tx.RunsCreatedSince(ctx, runs.Day(in.Now))
	return in, event, err
}

// loadEvent reads the event that is asked about. One that is no longer kept made room for newer ones.
func (d *Dispatch) loadEvent(ctx context.Context, tx *store.Tx, r request, in *Input) (errand.ID, error) {
	row, err := tx.NewestEvent(ctx, r.issue)
	if errand.CodeOf(err) == errand.CodeNotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if r.event != "" && r.event != row.ID {
		asked, err := tx.GetEvent(ctx, r.event)
		switch {
		case errand.CodeOf(err) == errand.CodeNotFound:
			in.Newest = false
		case err != nil:
			return "", err
		default:
			in.Newest = !asked.SeenAt.Before(row.SeenAt)
			row = asked
		}
	}
	in.Event, in.EventAt = &errand.Event{}, row.SeenAt
	if err := json.Unmarshal([]byte(row.Body), in.Event); err != nil {
		return "", errand.Errorf(errand.CodeInternal, err, "the stored event %s cannot be read", row.ID)
	}
	return row.ID, nil
}

// note appends a row to the journal.
func (d *Dispatch) note(ctx context.Context, tx *store.Tx, kind string, subject, id errand.ID, body any) error {
	text, err := journal.Encode(body)
	if err != nil {
		return err
	}
	return tx.AppendJournal(ctx, store.AppendJournalParams{ID: id, Kind: kind, Subject: subject, At: d.clock(), Body: text})
}

func (d *Dispatch) logDecision(ctx context.Context, org, issue errand.ID, k *journal.Decision) {
	d.count.decisions.WithLabelValues(string(k.Outcome), string(k.Gate)).Inc()
	d.log.InfoContext(ctx, "decided", "org", org, "issue", issue, "delivery", k.Delivery, "outcome", k.Outcome, "gate", k.Gate,
		"observed", k.Observed, "run", k.Run)
}
