package console

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/store"
)

// runRow is a run in a list.
type runRow struct {
	store.ConsoleRunsRow
	Label label
	Took  time.Duration // so far, or in all
}

func newRunRow(r store.ConsoleRunsRow, now time.Time) runRow {
	row := runRow{ConsoleRunsRow: r, Label: stateLabel(r.State)}
	if row.Took = now.Sub(r.CreatedAt); r.FinishedAt != nil {
		row.Took = r.FinishedAt.Sub(r.CreatedAt)
	}
	return row
}

// CostText says what is known of the cost. A run that has reported no request has no cost to show, not a cost of zero.
func (r runRow) CostText() string {
	if r.Requests == 0 {
		return "none reported"
	}
	return errand.Cost{Known: errand.Picodollars(r.AmountPico), Unpriced: int(r.Unpriced)}.String()
}

// TokensText is the sum of what was counted; "at least" when a count never arrived.
func (r runRow) TokensText() string {
	switch {
	case r.Requests == 0:
		return "none reported"
	case r.Uncounted == 0:
		return count(r.Tokens)
	case r.Tokens == 0:
		return "unknown"
	default:
		return "at least " + count(r.Tokens)
	}
}

// shows are the views of the list of runs, by the value of ?show=.
var shows = []struct {
	Key, Name string
	States    []errand.RunState
}{
	{"", "All", nil},
	{"open", "Open", []errand.RunState{errand.Queued, errand.Dispatching, errand.Dispatched, errand.Running, errand.Checking, errand.Publishing}},
	{"pull-requests", "Pull requests", []errand.RunState{errand.PROpened}},
	{"trouble", "Rejected and failed", []errand.RunState{errand.Rejected, errand.Failed, errand.TimedOut}},
}

func statesOf(show string) ([]string, bool) {
	for _, s := range shows {
		if s.Key == show {
			states := []string{}
			for _, st := range s.States {
				states = append(states, string(st))
			}
			return states, true
		}
	}
	return nil, false
}

type runsPage struct {
	frame
	Show string
	Rows []runRow
	Next string
	Past bool
}

func (c *Console) runs(ec echo.Context) error {
	at, err := readCursor(ec)
	if err != nil {
		return err
	}
	p := runsPage{Show: ec.QueryParam("show"), Past: at != start}
	states, ok := statesOf(p.Show)
	if !ok {
		return errand.NotFound("list")
	}
	p.frame, err = c.read(ec, "Runs", "runs", func(ctx context.Context, tx *store.Tx, f *frame) error {
		rows, err := listRuns(ctx, tx, states, at, pageRows+1)
		if err != nil {
			return err
		}
		if len(rows) > pageRows {
			rows = rows[:pageRows]
			p.Next = cursor{before: rows[pageRows-1].CreatedAt, id: rows[pageRows-1].ID}.String()
		}
		for _, r := range rows {
			p.Rows = append(p.Rows, newRunRow(r, f.Now))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.render(ec, http.StatusOK, runsView(p))
}

// listRuns gives the newest runs before a place: of the states, or of every state when none is named.
func listRuns(ctx context.Context, tx *store.Tx, states []string, at cursor, most int32) ([]store.ConsoleRunsRow, error) {
	if len(states) == 0 {
		return tx.ConsoleRuns(ctx, at.before, at.id, most)
	}
	found, err := tx.ConsoleRunsIn(ctx, store.ConsoleRunsInParams{States: states, BeforeTime: at.before, BeforeID: at.id, MaxRows: most})
	rows := make([]store.ConsoleRunsRow, len(found))
	for i, r := range found {
		rows[i] = store.ConsoleRunsRow(r)
	}
	return rows, err
}

type overviewPage struct {
	frame
	Sum     store.ConsoleSummaryRow
	Open    []runRow
	Trouble []runRow
	Issues  []issueRow
}

// SpentText and SpentNote say the day's cost as errand.Cost does, in a large and a small part.
func (p overviewPage) SpentText() string {
	switch {
	case p.Sum.Unpriced == 0:
		return "$" + errand.Picodollars(p.Sum.AmountPico).USD(4)
	case p.Sum.AmountPico == 0:
		return "unknown"
	default:
		return "at least $" + errand.Picodollars(p.Sum.AmountPico).USD(4)
	}
}

func (p overviewPage) SpentNote() string {
	if p.Sum.Unpriced == 0 {
		return "last 24 hours"
	}
	return "last 24 hours; " + counted(int64(p.Sum.Unpriced), "request") + " unpriced"
}

const overviewRows = 8

func (c *Console) overview(ec echo.Context) error {
	var p overviewPage
	var err error
	p.frame, err = c.read(ec, "Overview", "overview", func(ctx context.Context, tx *store.Tx, f *frame) (err error) {
		since := f.Now.Add(-24 * time.Hour)
		if p.Sum, err = tx.ConsoleSummary(ctx, since); err != nil {
			return err
		}
		list := func(show string) (rows []runRow, err error) {
			states, _ := statesOf(show)
			found, err := listRuns(ctx, tx, states, start, overviewRows)
			for _, r := range found {
				rows = append(rows, newRunRow(r, f.Now))
			}
			return rows, err
		}
		if p.Open, err = list("open"); err != nil {
			return err
		}
		if p.Trouble, err = list("trouble"); err != nil {
			return err
		}
		p.Trouble = slices.DeleteFunc(p.Trouble, func(r runRow) bool { return r.CreatedAt.Before(since) })
		issues, err := tx.ConsoleIssues(ctx, start.before, start.id, overviewRows)
		p.Issues = issueRows(issues)
		return err
	})
	if err != nil {
		return err
	}
	return c.render(ec, http.StatusOK, overviewView(p))
}

func (c *Console) cancel(ec echo.Context) error {
	id, err := pathID(ec, "run")
	if err != nil {
		return err
	}
	who := access.From(ec.Request().Context())
	page := "/runs/" + string(id)
	if err := c.actions.Cancel(ec.Request().Context(), who.Org, id, who.Person); err != nil {
		return c.refused(ec, page, "The run was not cancelled", err)
	}
	return ec.Redirect(http.StatusSeeOther, page+"?notice=cancel_asked")
}
