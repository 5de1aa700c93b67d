package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/dispatch"
)

// adminPolicy shows and changes what the gates of a decision rest on (docs/decisions.md).
type adminPolicy struct {
	Repository string `name:"repository" placeholder:"OWNER/NAME" help:"The limits of this repository, in place of the organisation's."`

	MinEvents           *int32         `name:"min-events" placeholder:"N" help:"Run an issue from its Nth delivery on."`
	ExcludeEnvironments *string        `name:"exclude-environments" placeholder:"NAMES" help:"Environments whose events start nothing, with commas between; empty: none."`
	BreakerIssues       *int32         `name:"breaker-issues" placeholder:"N" help:"So many new issues of one repository within the window are an incident; 0: never."`
	BreakerWindow       *time.Duration `name:"breaker-window" placeholder:"DURATION" help:"The breaker's window, such as 10m."`
	RunCeiling          *string        `name:"run-ceiling" placeholder:"USD" help:"What a run reserves of the budgets while it is under way, such as 5 or 2.50."`
	BudgetDay           *string        `name:"budget-day" placeholder:"USD" help:"Money a day (UTC) at most; none: no limit."`
	BudgetMonth         *string        `name:"budget-month" placeholder:"USD" help:"Money a month (UTC) at most; none: no limit."`
	OpenFixCap          *int32         `name:"open-fix-cap" placeholder:"N" help:"Open fixes of the repository at most (with --repository)."`
	orgFlags
}

// Run changes what is given and prints what then holds.
func (c adminPolicy) Run(ctx context.Context) error {
	day, err := moneyLimit("--budget-day", c.BudgetDay)
	if err != nil {
		return err
	}
	month, err := moneyLimit("--budget-month", c.BudgetMonth)
	if err != nil {
		return err
	}
	ofOrganisation := c.MinEvents != nil || c.ExcludeEnvironments != nil || c.BreakerIssues != nil || c.BreakerWindow != nil || c.RunCeiling != nil
	switch {
	case c.Repository != "" && ofOrganisation:
		return errand.Invalid("--repository", "a repository has --open-fix-cap, --budget-day and --budget-month; the rest is the organisation's")
	case c.Repository == "" && c.OpenFixCap != nil:
		return errand.Invalid("--open-fix-cap", "it is a repository's: name it with --repository")
	}
	return c.within(ctx, func(db *database, org errand.ID) error {
		d, err := setUpOnly(db, nil)
		if err != nil {
			return err
		}
		if c.Repository != "" {
			repo, err := findRepository(ctx, db, org, c.Repository)
			if err != nil {
				return err
			}
			r, err := d.SetRepositoryPolicy(ctx, org, repo, dispatch.RepositoryPolicy{OpenFixCap: c.OpenFixCap, BudgetDay: day, BudgetMonth: month})
			if err != nil {
				return err
			}
			fmt.Printf("open fix cap %d  budget a day %s  a month %s\n", r.OpenFixCap, limitWords(r.BudgetDayPico), limitWords(r.BudgetMonthPico))
			return nil
		}
		p := dispatch.Policy{MinEvents: c.MinEvents, BreakerIssues: c.BreakerIssues, BreakerWindow: c.BreakerWindow, BudgetDay: day, BudgetMonth: month}
		if c.ExcludeEnvironments != nil {
			p.ExcludeEnvironments = strings.FieldsFunc(*c.ExcludeEnvironments, func(r rune) bool { return r == ',' || r == ' ' })
		}
		if c.RunCeiling != nil {
			ceiling, err := dollars("--run-ceiling", *c.RunCeiling)
			if err != nil {
				return err
			}
			p.RunCeiling = &ceiling
		}
		o, err := d.SetPolicy(ctx, org, p)
		if err != nil {
			return err
		}
		fmt.Printf("min events %d  excluded environments %q  breaker %d new issues in %s  a run reserves $%s  budget a day %s  a month %s\n",
			o.MinEvents, o.ExcludedEnvironments, o.BreakerIssues, time.Duration(o.BreakerWindowS)*time.Second, errand.Picodollars(o.RunCeilingPico).USD(2),
			limitWords(o.BudgetDayPico), limitWords(o.BudgetMonthPico))
		return nil
	})
}

func limitWords(pico *int64) string {
	if pico == nil {
		return "none"
	}
	return "$" + errand.Picodollars(*pico).USD(2)
}

// moneyLimit reads an amount in dollars or the word none; nil stays nil.
func moneyLimit(flag string, s *string) (*dispatch.Limit, error) {
	if s == nil {
		return nil, nil
	}
	if strings.EqualFold(strings.TrimSpace(*s), "none") {
		return &dispatch.Limit{None: true}, nil
	}
	amount, err := dollars(flag, *s)
	if err != nil {
		return nil, err
	}
	return &dispatch.Limit{Amount: amount}, nil
}

// dollars reads "25" or "2.50" exactly: no float is made of it.
func dollars(flag, s string) (errand.Picodollars, error) {
	whole, part, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(s), "$"), ".")
	digits := whole + part + strings.Repeat("0", max(12-len(part), 0))
	var n errand.Picodollars
	for _, r := range digits {
		if r < '0' || r > '9' {
			return 0, errand.Invalid(flag, "%q is no amount of dollars: want something like 25 or 2.50", s)
		}
		tens, err := n.Times(10)
		if err == nil {
			n, err = tens.Add(errand.Picodollars(r - '0'))
		}
		if err != nil {
			return 0, errand.Invalid(flag, "%q is out of range", s)
		}
	}
	if whole == "" || len(part) > 12 {
		return 0, errand.Invalid(flag, "%q is no amount of dollars: want something like 25 or 2.50", s)
	}
	return n, nil
}
