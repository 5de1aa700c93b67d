// Package runs is a run's life, and the sole writer of runs.state. A run is created under its organisation's cap, counted
// in the transaction that creates it; every step after that is asked of the policy (transitions/policies/run.yaml) and
// taken by compare-and-set, with its history row in the same transaction.
//
// It imports the root, store, transitions and journal. Start reading at Runs.Create and Runs.Fire.
package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/transitions"
)

// What can stand against a creation or a step. They are causes of a Conflict: ask with errors.Is.
var (
	ErrDailyCap = errors.New("the organisation's runs of the day are used up")
	ErrRunOpen  = errors.New("a run of this issue is already open")
	ErrOpenFix  = errors.New("the repository has as many open fixes as it may")
	ErrBudget   = errors.New("what a run reserves does not fit into the budget")
	ErrTerminal = errors.New("the run has ended")                  // a late word: ignored, and logged by whoever said it
	ErrDenied   = errors.New("the run's policy does not allow it") // the step is not in the table, or its grant is missing
	ErrStale    = errors.New("somebody else moved the run first")  // read it again
)

// How long a run may stay in a state before it is looked into (runs.deadline_at), and when it ends by itself.
const (
	DispatchWithin = 15 * time.Minute // from its creation until GitHub has accepted it
	// AnswerWithin is how long a dispatch may be under way before somebody asks what became of it: more than the two calls of
	// 15 s that it may take (package github) and the 10 s to write the answer down.
	AnswerWithin = 45 * time.Second
	StartWithin  = 30 * time.Minute // from the dispatch on: the ticket's life
	FinishWithin = 26 * time.Minute // from the start on: a job may take 25
	Lease        = 2 * time.Minute  // without a heartbeat, or without news from GitHub, somebody asks
)

// Runs moves runs. It is safe for concurrent use.
type Runs struct {
	policy *transitions.Policy
	clock  errand.Clock
}

// New takes the policy of a run's life (transitions.RunPolicy).
func New(policy *transitions.Policy, clock errand.Clock) *Runs {
	return &Runs{policy: policy, clock: clock}
}

// NewRun is a run to be: what it is about and where it goes.
type NewRun struct {
	Issue, Event, Repository errand.ID
	WorkflowFile             string // its name in .github/workflows
	Ref                      string // the branch to fix
	BaseDir                  string
	StackRoot, SourceRoot    string
	Actor                    string
	Person                   errand.ID // who asked for it; "" = nobody did
	Problem                  string    // what it is about, across issues; "" = cannot be told
	Detail                   string
}

// Create makes a queued run and the job that dispatches it. Under the organisation's lock it counts the runs of the day
// (UTC), those under way and those that failed included, the repository's open fixes, and the money that is spent and
// reserved; the run reserves its ceiling. It returns a Conflict caused by ErrDailyCap, ErrRunOpen, ErrOpenFix or ErrBudget.
func (r *Runs) Create(ctx context.Context, tx *store.Tx, n NewRun) (store.Run, error) {
	now := r.clock()
	org, err := r.Lock(ctx, tx)
	if err != nil {
		return store.Run{}, err
	}
	if err := r.room(ctx, tx, &org, n, now); err != nil {
		return store.Run{}, err
	}
	if got := r.policy.Check(string(transitions.RunNew), string(errand.Queued), string(errand.TriggerCreated), transitions.Grants{Now: now}); got != transitions.Allowed {
		return store.Run{}, errand.Errorf(errand.CodeConflict, ErrDenied, "the run's policy does not allow a run to be created (%s)", got)
	}
	run, err := tx.RunsInsert(ctx, store.RunsInsertParams{
		ID: errand.NewID(now), IssueID: n.Issue, EventID: n.Event, RepositoryID: n.Repository, WorkflowFile: n.WorkflowFile, Ref: n.Ref,
		BaseDir: n.BaseDir, StackRoot: n.StackRoot, SourceRoot: n.SourceRoot, Problem: n.Problem, ReservedPico: org.RunCeilingPico, Now: now, DeadlineAt: now.Add(DispatchWithin),
	})
	if err != nil {
		return store.Run{}, err
	}
	err = record(ctx, tx, now, &run, transitions.RunNew, Move{Trigger: errand.TriggerCreated, Detail: n.Detail, Actor: n.Actor, Person: n.Person})
	if err != nil {
		return store.Run{}, err
	}
	return run, tx.Enqueue(ctx, errand.DispatchRun{Org: org.ID, Run: run.ID})
}

// room holds the run to be against every cap. The caller holds Lock.
func (r *Runs) room(ctx context.Context, tx *store.Tx, org *store.Organisation, n NewRun, now time.Time) error {
	today, err := tx.RunsCreatedSince(ctx, Day(now))
	if err != nil {
		return err
	}
	if today >= int64(org.DailyRunCap) {
		return errand.Errorf(errand.CodeConflict, ErrDailyCap, "the organisation's %d runs of the day are used up", org.DailyRunCap)
	}
	open, err := tx.RunsOpenOfIssue(ctx, n.Issue)
	if err != nil {
		return err
	}
	if len(open) > 0 {
		return errand.Errorf(errand.CodeConflict, ErrRunOpen, "the run %s of this issue is already open", open[0])
	}
	repo, err := tx.GetRepository(ctx, n.Repository)
	if err != nil {
		return err
	}
	fixes, err := tx.RunsOpenFixes(ctx, repo.ID, now.Add(-PullRequestHolds))
	if err != nil {
		return err
	}
	if fixes >= int64(repo.OpenFixCap) {
		return errand.Errorf(errand.CodeConflict, ErrOpenFix, "the repository has %d open fixes, and may have %d", fixes, repo.OpenFixCap)
	}
	budgets, err := r.Budgets(ctx, tx, org, &repo)
	if err != nil {
		return err
	}
	for _, b := range budgets {
		if fits, _ := b.Fits(errand.Picodollars(org.RunCeilingPico)); !fits {
			return errand.Errorf(errand.CodeConflict, ErrBudget, "a run reserves $%s, and of the budget (%s) of $%s at least $%s is spent or reserved, %d requests unpriced",
				errand.Picodollars(org.RunCeilingPico).USD(2), b.Scope, b.Limit.USD(2), b.Spent.USD(2), b.Unpriced)
		}
	}
	return nil
}

// Lock takes the lock under which the organisation's runs are counted and created, for the rest of the transaction.
// Whoever decides from the count takes it before reading.
func (r *Runs) Lock(ctx context.Context, tx *store.Tx) (store.Organisation, error) {
	org, err := tx.GetOrganisation(ctx)
	if err != nil {
		return org, err
	}
	if err := tx.Lock(ctx, "runs", org.ID); err != nil {
		return org, err
	}
	return tx.GetOrganisation(ctx) // again: the cap may have changed while we waited
}

// Day is the beginning of the day (UTC) in which runs are counted.
func Day(now time.Time) time.Time { return now.UTC().Truncate(24 * time.Hour) }

// Move is a step somebody wants a run to take.
type Move struct {
	Trigger errand.Trigger
	To      errand.RunState
	Reason  errand.Reason
	Detail  string              // one sentence beside the reason
	Actor   string              // dispatch, runner, person
	Person  errand.ID           // when a person asked for it
	Version int64               // the version it was decided upon; 0 = whatever stands
	Granted []transitions.Grant // held by whoever asks; entering running needs the exchanged ticket
}

// Changes are the columns that move together with the state; nil leaves one as it is. The workflow run's three are ignored
// once the runner's exchange has said which it is.
type Changes struct {
	DispatchAttempt    *int32
	DispatchedAt       *time.Time
	WorkflowRunID      *int64
	WorkflowRunAttempt *int32
	WorkflowRunURL     *string
	StartedAt          *time.Time // Fire sets it on the first step into running
	Corrections        *int32
	Verdict            *string
	Paths              []string
	Summary            *string
	Branch             *string
	PRNumber           *int32
	PRURL              *string
	PRDraft            *bool
	ResultDigest       []byte
	ToolCalls          *int32
}

// Fire takes one step and gives the run as it then stands. set may be nil. It returns NotFound for a run that is not the
// organisation's, and a Conflict caused by ErrTerminal, ErrDenied or ErrStale when the step is not taken; nothing has
// changed then.
func (r *Runs) Fire(ctx context.Context, tx *store.Tx, id errand.ID, m Move, set func(*Changes)) (store.Run, error) {
	now := r.clock()
	run, err := tx.GetRun(ctx, id)
	if err != nil {
		return run, err
	}
	if err := r.allowed(&run, m, now); err != nil {
		return run, err
	}
	var c Changes
	if m.To == errand.Running {
		c.StartedAt = &now // kept from the first time
	}
	if set != nil {
		set(&c)
	}
	moved, err := tx.RunsMove(ctx, params(&run, m, &c, now))
	if err != nil {
		return run, err
	}
	if len(moved) != 1 {
		return run, errand.Errorf(errand.CodeConflict, ErrStale, "the run was moved by somebody else: look at it again")
	}
	if m.To.Ended() {
		if err := release(ctx, tx, &moved[0], now); err != nil {
			return run, err
		}
	}
	return moved[0], record(ctx, tx, now, &moved[0], run.State, m)
}

// allowed asks whether the step may be taken from where the run stands.
func (r *Runs) allowed(run *store.Run, m Move, now time.Time) error {
	if run.State.Ended() {
		return errand.Errorf(errand.CodeConflict, ErrTerminal, "the run has ended as %s", run.State)
	}
	if m.Version != 0 && m.Version != run.Version {
		return errand.Errorf(errand.CodeConflict, ErrStale, "the run was moved by somebody else: look at it again")
	}
	if !m.Reason.Known() {
		return errand.Errorf(errand.CodeInternal, nil, "the reason %q is not on the list", m.Reason)
	}
	got := r.policy.Check(string(run.State), string(m.To), string(m.Trigger), transitions.Grants{Now: now, Held: m.Granted})
	if got != transitions.Allowed {
		return errand.Errorf(errand.CodeConflict, ErrDenied, "a run in %s does not go to %s on %s (%s)", run.State, m.To, m.Trigger, got)
	}
	return nil
}

func params(run *store.Run, m Move, c *Changes, now time.Time) store.RunsMoveParams {
	p := store.RunsMoveParams{
		ID: run.ID, Version: run.Version, FromState: run.State, ToState: m.To, Reason: m.Reason, Detail: m.Detail, Now: now,
		DispatchAttempt: c.DispatchAttempt, DispatchedAt: c.DispatchedAt, WorkflowRunID: c.WorkflowRunID,
		WorkflowRunAttempt: c.WorkflowRunAttempt, WorkflowRunURL: c.WorkflowRunURL, StartedAt: c.StartedAt, Corrections: c.Corrections,
		Verdict: c.Verdict, Paths: c.Paths, Summary: c.Summary, Branch: c.Branch, PRNumber: c.PRNumber, PRURL: c.PRURL,
		PRDraft: c.PRDraft, ResultDigest: c.ResultDigest, ToolCalls: c.ToolCalls,
		DeadlineAt: deadline(m.To, run, now),
	}
	if m.To.Ended() {
		p.FinishedAt = &now
	}
	return p
}

// deadline is when a run that has just entered the state is looked into.
func deadline(to errand.RunState, run *store.Run, now time.Time) time.Time {
	switch to {
	case errand.Queued:
		return run.CreatedAt.Add(DispatchWithin)
	case errand.Dispatching:
		return now.Add(AnswerWithin)
	case errand.Dispatched, errand.Running, errand.Checking, errand.Publishing:
		return now.Add(Lease)
	default:
		return now
	}
}

// LookAgain sets when an open run is looked into next. It returns a Conflict caused by ErrStale when the run has moved.
func (r *Runs) LookAgain(ctx context.Context, tx *store.Tx, run *store.Run, at time.Time) error {
	n, err := tx.RunsLookAgain(ctx, at, run.ID, run.Version)
	if err == nil && n != 1 {
		err = errand.Errorf(errand.CodeConflict, ErrStale, "the run was moved by somebody else: look at it again")
	}
	return err
}

// record writes the history row of a step that was taken.
func record(ctx context.Context, tx *store.Tx, now time.Time, run *store.Run, from errand.RunState, m Move) error {
	body, err := journal.Encode(journal.Transition{
		From: from, To: run.State, Trigger: m.Trigger, Reason: m.Reason, Detail: m.Detail, Attempt: run.DispatchAttempt,
		Version: run.Version, Actor: m.Actor, Person: m.Person,
	})
	if err != nil {
		return err
	}
	return tx.AppendJournal(ctx, store.AppendJournalParams{ID: errand.NewID(now), Kind: journal.KindTransition, Subject: run.ID, At: now, Body: body})
}

// Tokens are the counts that a run's requests reported. They are "at least" whenever Uncounted is above zero.
type Tokens struct {
	Input      int64 `json:"input"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
	Requests   int   `json:"requests"`
	Uncounted  int   `json:"uncounted"` // requests of which a count never arrived
}

// Cost sums what is known of a run's requests.
func (r *Runs) Cost(ctx context.Context, tx *store.Tx, run errand.ID) (errand.Cost, Tokens, error) {
	u, err := tx.RunsUsage(ctx, run)
	if err != nil {
		return errand.Cost{}, Tokens{}, fmt.Errorf("usage of the run: %w", err)
	}
	return errand.Cost{Known: errand.Picodollars(u.AmountPico), Unpriced: int(u.Unpriced)},
		Tokens{
			Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output,
			Requests: int(u.Requests), Uncounted: int(u.Uncounted),
		}, nil
}
