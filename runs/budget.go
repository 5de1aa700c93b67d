package runs

import (
	"context"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// Budget is one limit of money and what counts against it: what is spent, and what runs under way have reserved.
type Budget struct {
	Scope    string // "organisation, day", "repository, month", ...
	Limit    errand.Picodollars
	Spent    errand.Picodollars
	Unpriced int64     // requests of the period without a price: Spent is "at least"
	Until    time.Time // when its period ends
}

// Fits tells whether a run that reserves ceiling still fits. It is not known while a request has no price: an unknown
// price is not zero.
func (b Budget) Fits(ceiling errand.Picodollars) (fits, known bool) {
	sum, err := b.Spent.Add(ceiling)
	return b.Unpriced == 0 && err == nil && sum <= b.Limit, b.Unpriced == 0
}

// Month is the beginning of the month (UTC) in which money is counted.
func Month(now time.Time) time.Time {
	now = now.UTC()
	return time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// Budgets gives the budgets that a run of the repository would count against, and how each stands. A run counts in the
// period of its creation, so that what is reserved and what is spent stand in the same one.
func (r *Runs) Budgets(ctx context.Context, tx *store.Tx, org *store.Organisation, repo *store.Repository) ([]Budget, error) {
	if org.BudgetDayPico == nil && org.BudgetMonthPico == nil && repo.BudgetDayPico == nil && repo.BudgetMonthPico == nil {
		return nil, nil
	}
	now := r.clock()
	s, err := tx.RunsSpent(ctx, repo.ID, Day(now), Month(now))
	if err != nil {
		return nil, err
	}
	tomorrow, nextMonth := Day(now).AddDate(0, 0, 1), Month(now).AddDate(0, 1, 0)
	var out []Budget
	for _, b := range []struct {
		scope           string
		limit           *int64
		spent, unpriced int64
		until           time.Time
	}{
		{"organisation, day", org.BudgetDayPico, s.OrgDay, s.OrgDayUnpriced, tomorrow},
		{"organisation, month", org.BudgetMonthPico, s.OrgMonth, s.OrgMonthUnpriced, nextMonth},
		{"repository, day", repo.BudgetDayPico, s.RepositoryDay, s.RepositoryDayUnpriced, tomorrow},
		{"repository, month", repo.BudgetMonthPico, s.RepositoryMonth, s.RepositoryMonthUnpriced, nextMonth},
	} {
		if b.limit != nil {
			out = append(out, Budget{Scope: b.scope, Limit: errand.Picodollars(*b.limit), Spent: errand.Picodollars(b.spent), Unpriced: b.unpriced, Until: b.until})
		}
	}
	return out, nil
}
