package console

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/store"
)

const (
	maxDecisions  = 50
	maxDeliveries = 20
	maxIssueRuns  = 20
)

// decision is a row of the ledger. Unreadable is set when its body does not decode: it is shown as unknown, not left out.
type decision struct {
	journal.Decision
	At         time.Time
	Who        string // the person who pressed "Run now", when one did
	Unreadable bool
}

func readDecision(body string) (d decision) {
	if err := json.Unmarshal([]byte(body), &d.Decision); err != nil || d.Outcome == "" {
		d.Unreadable = true
		d.Detail = "This decision's record cannot be read."
	}
	return d
}

func (d decision) Label() label { return outcomeLabel(d.Decision.Decision) }

// Question is what a person asks of the newest decision.
func (d decision) Question() string {
	switch {
	case d.Outcome == errand.OutcomeRun && !d.Observed:
		return "Why did it run?"
	default:
		return "Why did nothing happen?"
	}
}

type issueRow struct {
	store.ConsoleIssuesRow
	Decided  bool
	Decision decision
	HasRun   bool
	Run      label
}

type issuesPage struct {
	frame
	Rows []issueRow
	Next string // cursor of the following page, or ""
	Past bool   // this is not the first page
}

func (c *Console) issues(ec echo.Context) error {
	at, err := readCursor(ec)
	if err != nil {
		return err
	}
	p := issuesPage{Past: at != start}
	p.frame, err = c.read(ec, "Issues", "issues", func(ctx context.Context, tx *store.Tx, _ *frame) error {
		rows, err := tx.ConsoleIssues(ctx, at.before, at.id, pageRows+1)
		if err != nil {
			return err
		}
		if p.Past = at != start; len(rows) > pageRows {
			rows = rows[:pageRows]
			p.Next = cursor{before: rows[pageRows-1].LastSeen, id: rows[pageRows-1].ID}.String()
		}
		p.Rows = issueRows(rows)
		return nil
	})
	if err != nil {
		return err
	}
	return c.render(ec, http.StatusOK, issuesView(p))
}

func issueRows(rows []store.ConsoleIssuesRow) []issueRow {
	out := make([]issueRow, len(rows))
	for i, r := range rows {
		out[i] = issueRow{ConsoleIssuesRow: r, Decided: r.Decision != "", HasRun: r.RunID != "", Run: stateLabel(errand.RunState(r.RunState))}
		if out[i].Decided {
			out[i].Decision = readDecision(r.Decision)
		}
	}
	return out
}

type issuePage struct {
	frame
	Issue      store.Issue
	SourceKind string
	SourceName string
	Event      *eventView // nil = none stored
	Decisions  []decision // newest first
	Runs       []runRow
	Deliveries []store.ListDeliveriesOfIssueRow
	MayRun     bool
}

func (c *Console) issue(ec echo.Context) error {
	id, err := pathID(ec, "issue")
	if err != nil {
		return err
	}
	var p issuePage
	p.frame, err = c.read(ec, "Issue", "issues", func(ctx context.Context, tx *store.Tx, f *frame) error {
		row, err := tx.ConsoleIssue(ctx, id)
		if err != nil {
			return err
		}
		p.Issue, p.SourceKind, p.SourceName = row.Issue, row.SourceKind, row.SourceName
		f.Title = row.Issue.Title
		if p.Event, err = newestEvent(ctx, tx, id); err != nil {
			return err
		}
		ledger, err := tx.ListJournal(ctx, id, journal.KindDecision, maxDecisions)
		if err != nil {
			return err
		}
		names, err := memberNames(ctx, tx)
		if err != nil {
			return err
		}
		for _, j := range ledger {
			d := readDecision(j.Body)
			if d.At = j.At; d.Person != "" {
				d.Who = nameOf(d.Person, names)
			}
			p.Decisions = append(p.Decisions, d)
		}
		runs, err := tx.ConsoleRunsOfIssue(ctx, id, maxIssueRuns)
		if err != nil {
			return err
		}
		for _, r := range runs {
			p.Runs = append(p.Runs, newRunRow(store.ConsoleRunsRow(r), f.Now))
		}
		p.Deliveries, err = tx.ListDeliveriesOfIssue(ctx, &id, maxDeliveries)
		return err
	})
	if err != nil {
		return err
	}
	p.MayRun = p.Identity.May(access.RunNow)
	return c.render(ec, http.StatusOK, issueView(p))
}

func newestEvent(ctx context.Context, tx *store.Tx, issue errand.ID) (*eventView, error) {
	e, err := tx.NewestEvent(ctx, issue)
	if errand.CodeOf(err) == errand.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newEventView(e), nil
}

func (c *Console) runNow(ec echo.Context) error {
	id, err := pathID(ec, "issue")
	if err != nil {
		return err
	}
	who := access.From(ec.Request().Context())
	page := "/issues/" + string(id)
	if err := c.actions.RunNow(ec.Request().Context(), who.Org, id, who.Person); err != nil {
		return c.refused(ec, page, "No run was started", err)
	}
	return ec.Redirect(http.StatusSeeOther, page+"?notice=run_asked")
}
