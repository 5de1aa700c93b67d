package dispatch

import (
	"context"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

// Policy is a change of the limits that decisions rest on; nil leaves one as it is.
type Policy struct {
	MinEvents           *int32
	ExcludeEnvironments []string       // the whole list; nil = unchanged, empty = none is excluded
	BreakerIssues       *int32         // 0 = no breaker
	BreakerWindow       *time.Duration // whole seconds
	RunCeiling          *errand.Picodollars
	BudgetDay           *Limit
	BudgetMonth         *Limit
}

// Limit is a limit of money, or the lack of one.
type Limit struct {
	None   bool
	Amount errand.Picodollars // 0 = nothing may be spent
}

func (l *Limit) params() (set bool, pico *int64) {
	if l == nil {
		return false, nil
	}
	if l.None {
		return true, nil
	}
	n := int64(l.Amount)
	return true, &n
}

func (l *Limit) check(field string) error {
	if l != nil && !l.None && l.Amount < 0 {
		return errand.Invalid(field, "$%s is below zero", l.Amount.USD(2))
	}
	return nil
}

// SetPolicy changes the organisation's limits and has everything that waits asked again. It returns Invalid for a value
// that no policy has.
func (d *Dispatch) SetPolicy(ctx context.Context, org errand.ID, p Policy) (o store.Organisation, err error) {
	q := store.DispatchSetPolicyParams{MinEvents: p.MinEvents, ExcludedEnvironments: p.ExcludeEnvironments, BreakerIssues: p.BreakerIssues}
	switch {
	case p.MinEvents != nil && *p.MinEvents < 1:
		return o, errand.Invalid("min_events", "is %d: 1 or more", *p.MinEvents)
	case p.BreakerIssues != nil && *p.BreakerIssues < 0:
		return o, errand.Invalid("breaker_issues", "is %d: 0 (no breaker) or more", *p.BreakerIssues)
	case p.BreakerWindow != nil && (*p.BreakerWindow < time.Second || *p.BreakerWindow > 30*24*time.Hour):
		return o, errand.Invalid("breaker_window", "%s is out of range: 1s to 720h", *p.BreakerWindow)
	case p.RunCeiling != nil && *p.RunCeiling <= 0:
		return o, errand.Invalid("run_ceiling", "$%s: a run reserves more than nothing", p.RunCeiling.USD(2))
	}
	for i, e := range p.ExcludeEnvironments {
		if strings.TrimSpace(e) == "" {
			return o, errand.Invalid("exclude_environments", "the %d. name is empty", i+1)
		}
	}
	if p.BreakerWindow != nil {
		s := int32(p.BreakerWindow.Seconds())
		q.BreakerWindowS = &s
	}
	if p.RunCeiling != nil {
		n := int64(*p.RunCeiling)
		q.RunCeilingPico = &n
	}
	for field, l := range map[string]*Limit{"budget_day": p.BudgetDay, "budget_month": p.BudgetMonth} {
		if err := l.check(field); err != nil {
			return o, err
		}
	}
	q.SetBudgetDay, q.BudgetDayPico = p.BudgetDay.params()
	q.SetBudgetMonth, q.BudgetMonthPico = p.BudgetMonth.params()
	err = d.store.InTx(ctx, org, func(tx *store.Tx) error {
		if o, err = tx.DispatchSetPolicy(ctx, q); err != nil {
			return err
		}
		_, err = tx.DispatchLookNow(ctx, d.clock())
		return err
	})
	return o, err
}

// RepositoryPolicy is a change of a repository's limits; nil leaves one as it is.
type RepositoryPolicy struct {
	OpenFixCap  *int32
	BudgetDay   *Limit
	BudgetMonth *Limit
}

// SetRepositoryPolicy is SetPolicy for one repository. It returns NotFound for one that is not the organisation's.
func (d *Dispatch) SetRepositoryPolicy(ctx context.Context, org, repo errand.ID, p RepositoryPolicy) (r store.Repository, err error) {
	if p.OpenFixCap != nil && *p.OpenFixCap < 0 {
		return r, errand.Invalid("open_fix_cap", "is %d: 0 or more", *p.OpenFixCap)
	}
	for field, l := range map[string]*Limit{"budget_day": p.BudgetDay, "budget_month": p.BudgetMonth} {
		if err := l.check(field); err != nil {
			return r, err
		}
	}
	q := store.DispatchSetRepositoryPolicyParams{OpenFixCap: p.OpenFixCap, ID: repo}
	q.SetBudgetDay, q.BudgetDayPico = p.BudgetDay.params()
	q.SetBudgetMonth, q.BudgetMonthPico = p.BudgetMonth.params()
	err = d.store.InTx(ctx, org, func(tx *store.Tx) error {
		if r, err = tx.DispatchSetRepositoryPolicy(ctx, q); err != nil {
			return err
		}
		_, err = tx.DispatchLookNow(ctx, d.clock())
		return err
	})
	return r, err
}

// Decline records that a person does not want a run's pull request: its issue is not run again until somebody asks for it.
// It closes nothing on GitHub, where Errand may not. It returns NotFound for a run that is not the organisation's, and
// Conflict for one without a pull request, or one that was merged.
func (d *Dispatch) Decline(ctx context.Context, org, run, person errand.ID) error {
	return d.store.InTx(ctx, org, func(tx *store.Tx) error {
		// The row's lock first, as everywhere in a run's life: two people at once are one after the other.
		if _, err := tx.RunnerLockRun(ctx, run); err != nil {
			return err
		}
		news, err := d.runs.SetFate(ctx, tx, run, runs.News{Fate: errand.FateDeclined, At: d.clock(), From: "person", Person: person})
		if err != nil {
			return err
		}
		if !news {
			return errand.Conflict("the pull request was merged: there is nothing left to decline")
		}
		return d.note(ctx, tx, journal.KindPersonAction, run, errand.NewID(d.clock()), journal.PersonAction{Action: "decline", Person: person})
	})
}
