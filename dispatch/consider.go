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

// lookWithin is how long a wait goes unasked at most: whatever released it without a word to anybody is noticed then.
const lookWithin = 15 * time.Minute

// consider decides about an issue. The decision's row and the run it may create are one transaction, under the lock of the
// organisation's runs, and the row carries the delivery's id: the same job worked again, or by two replicas at once, finds
// it and does nothing. Without a delivery it is the look at a wait, for whatever event is the newest by now.
func (d *Dispatch) consider(ctx context.Context, args errand.ConsiderIssue) (again time.Duration, err error) {
	var decided *journal.Decision
	err = d.store.InTx(ctx, args.Org, func(tx *store.Tx) error {
		org, err := d.runs.Lock(ctx, tx)
		if err != nil {
			return err
		}
		r := request{issue: args.Issue, event: args.Event, delivery: args.Delivery}
		if r.delivery != "" {
			if n, err := tx.DispatchDecided(ctx, r.delivery); err != nil || n > 0 {
				return err
			}
		} else {
			waits, err := tx.DispatchGetWait(ctx, r.issue)
			if err != nil || len(waits) == 0 || waits[0].LookAt.After(d.clock()) {
				return err // somebody else looked first
			}
			r.waited = &waits[0]
		}
		decided, err = d.decide(ctx, tx, org, r)
		return err
	})
	if err == nil && decided != nil {
		d.logDecision(ctx, args.Org, args.Issue, decided)
	}
	return 0, err
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
	event    errand.ID   // "" = the newest
	delivery errand.ID   // "" = no delivery asks
	person   errand.ID   // "" = no person asks
	waited   *store.Wait // the wait that is looked at
}

// decide loads, decides, creates the run when that is the answer, and keeps the answer. The caller holds runs.Lock.
func (d *Dispatch) decide(ctx context.Context, tx *store.Tx, org store.Organisation, r request) (*journal.Decision, error) {
	in, event, err := d.load(ctx, tx, org, r)
	if err != nil {
		return nil, err
	}
	repo, problem, err := d.tally(ctx, tx, &in, true)
	if err != nil {
		return nil, err
	}
	decision, target := Decide(in)
	kept := &journal.Decision{Decision: decision, Delivery: r.delivery, Event: event, Person: r.person}
	if target != nil {
		kept.Repository, kept.Rule = target.Repository, target.Rule
	}
	if err := d.reopen(ctx, tx, &in, decision); err != nil {
		return nil, err
	}
	if target != nil && !decision.Observed {
		run, err := d.runs.Create(ctx, tx, runs.NewRun{
			Issue: r.issue, Event: event, Repository: target.Repository, WorkflowFile: target.WorkflowFile, Ref: target.Ref,
			BaseDir: target.BaseDir, StackRoot: target.StackRoot, SourceRoot: target.SourceRoot, Actor: actor, Person: r.person, Problem: problem,
		})
		if err != nil {
			return nil, err
		}
		kept.Run = run.ID
	}
	if err := d.keepWait(ctx, tx, &in, decision, repo); err != nil {
		return nil, err
	}
	if decision.Gate == errand.GateBreaker {
		if err := d.sayIncident(ctx, tx, &in, decision, repo); err != nil {
			return nil, err
		}
	}
	if r.waited != nil && r.waited.Gate == string(decision.Gate) && decision.Outcome == errand.OutcomeWait {
		return kept, nil // asked again, the answer is what it was: the wait counts it, and the ledger holds it already
	}
	id := r.delivery
	if id == "" {
		id = errand.NewID(in.Now)
	}
	return kept, d.note(ctx, tx, journal.KindDecision, r.issue, id, kept)
}

// load reads what a decision rests on, except the counts.
func (d *Dispatch) load(ctx context.Context, tx *store.Tx, org store.Organisation, r request) (Input, errand.ID, error) {
	in := Input{
		Now: d.clock(), Org: org, Newest: true, Forced: r.person != "",
		Repositories: map[errand.ID]store.Repository{}, Installations: map[int64]store.Installation{}, Counts: map[errand.ID]Counts{}, AllowExtraPermissions: d.allowExtra,
	}
	var event errand.ID
	var err error
	if in.Issue, err = tx.GetIssue(ctx, r.issue); err != nil {
		return in, "", err
	}
	if event, err = d.loadEvent(ctx, tx, r, &in); err != nil {
		return in, "", err
	}
	if err = loadMapping(ctx, tx, &in); err != nil {
		return in, "", err
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
	return in, event, nil
}

// loadMapping reads the rules and where they lead.
func loadMapping(ctx context.Context, tx *store.Tx, in *Input) (err error) {
	if in.Rules, err = tx.ListMappings(ctx); err != nil {
		return err
	}
	repos, err := tx.ListRepositories(ctx)
	if err != nil {
		return err
	}
	for _, repo := range repos {
		in.Repositories[repo.ID] = repo
	}
	installations, err := tx.DispatchInstallations(ctx)
	for _, i := range installations {
		in.Installations[i.ID] = i
	}
	return err
}

// tally fills in the counts of the repository that the mapping chooses, and gives it ("" when none is chosen) with the
// problem's key. With place, the issue is noted as one of that repository first: the breaker counts it from then on.
func (d *Dispatch) tally(ctx context.Context, tx *store.Tx, in *Input, place bool) (repository errand.ID, problem string, err error) {
	c := choose(in.Rules, subjectOf(*in))
	if in.Event == nil || c.gate != errand.GateOK {
		return "", "", nil
	}
	repo, known := in.Repositories[c.rule.RepositoryID]
	if !known {
		return "", "", nil
	}
	problem = ProblemKey(in.Event)
	if place {
		if err := tx.DispatchPlace(ctx, in.Issue.ID, repo.ID, in.Issue.CreatedAt); err != nil {
			return "", "", err
		}
	}
	var n Counts
	if n.RunsToday, err = tx.RunsCreatedSince(ctx, runs.Day(in.Now)); err != nil {
		return "", "", err
	}
	news := in.Now.Add(-PullRequestHolds)
	if n.OpenFixes, err = tx.RunsOpenFixes(ctx, repo.ID, news); err != nil {
		return "", "", err
	}
	if in.Org.BreakerIssues > 0 {
		since := in.Now.Add(-time.Duration(in.Org.BreakerWindowS) * time.Second)
		if n.NewIssues, err = tx.DispatchNewIssues(ctx, repo.ID, since, in.Org.BreakerIssues); err != nil {
			return "", "", err
		}
	}
	if problem != "" {
		same, err := tx.DispatchSameProblem(ctx, store.DispatchSameProblemParams{RepositoryID: repo.ID, IssueID: in.Issue.ID, Problem: problem, NewsSince: news})
		if err != nil {
			return "", "", err
		}
		if len(same) > 0 {
			n.Same = &same[0]
		}
	}
	if n.Budgets, err = d.runs.Budgets(ctx, tx, &in.Org, &repo); err != nil {
		return "", "", err
	}
	in.Counts[repo.ID] = n
	return repo.ID, problem, nil
}

// reopen writes down that a resolved issue is open again, when its event shows it and no delivery has said so.
func (d *Dispatch) reopen(ctx context.Context, tx *store.Tx, in *Input, decision errand.Decision) error {
	if !decision.Regression || in.Issue.Status != "resolved" {
		return nil
	}
	_, err := tx.DispatchReopen(ctx, in.EventAt, in.Issue.ID)
	return err
}

// keepWait writes down that the issue waits, for what, and when it is looked at next; or that it waits no more. The word of
// an older event changes nothing about the wait of a newer one.
func (d *Dispatch) keepWait(ctx context.Context, tx *store.Tx, in *Input, decision errand.Decision, repo errand.ID) error {
	switch {
	case decision.Gate == errand.GateOutOfOrder:
		return nil
	case decision.Outcome != errand.OutcomeWait:
		return tx.DispatchEndWait(ctx, in.Issue.ID)
	}
	p := store.DispatchWaitParams{IssueID: in.Issue.ID, Gate: string(decision.Gate), Now: in.Now, LookAt: in.Now.Add(lookWithin)}
	if decision.Until != "" {
		until, err := time.Parse(time.RFC3339, decision.Until)
		if err != nil {
			return errand.Errorf(errand.CodeInternal, err, "the end of a wait")
		}
		p.UntilAt = &until
		// What is written is whole seconds: at least one from now, so that a wait is never looked at in a circle.
		p.LookAt = earlier(p.LookAt, later(until, in.Now.Add(time.Second)))
	}
	if decision.Holder != "" {
		p.Holder = &decision.Holder
	}
	if repo != "" {
		p.RepositoryID = &repo
	}
	return tx.DispatchWait(ctx, p)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sameIncident: a breaker that opens again so soon after it closed is still the same incident.
const sameIncident = time.Minute

// sayIncident says once an incident that the breaker holds a repository: in the journal and the log.
func (d *Dispatch) sayIncident(ctx context.Context, tx *store.Tx, in *Input, decision errand.Decision, repo errand.ID) error {
	until, err := time.Parse(time.RFC3339, decision.Until)
	if err != nil {
		return errand.Errorf(errand.CodeInternal, err, "the end of an incident")
	}
	until = until.Add(sameIncident)
	begun, err := tx.DispatchIncident(ctx, repo, in.Now, until)
	if err != nil {
		return err
	}
	if begun == 0 {
		return tx.DispatchProlongIncident(ctx, until, repo)
	}
	d.log.WarnContext(ctx, "incident: new issues of the repository wait", "org", in.Org.ID, "repository", repo, "until", decision.Until, "detail", decision.Detail)
	return d.note(ctx, tx, journal.KindAlarm, repo, errand.NewID(in.Now),
		journal.Alarm{Alarm: "incident_breaker", Repository: repo, Effect: "every issue of the repository waits", Detail: decision.Detail})
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
