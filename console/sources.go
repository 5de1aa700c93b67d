package console

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// sourceRow is a source with how its deliveries are doing.
type sourceRow struct {
	store.SourceHealthRow
	Address string // where the tracker sends
}

// Label says how the source is doing, by its last day. A few refused requests are strangers who try the address; a tenth of
// all is a sender with another secret.
func (r sourceRow) Label() label {
	all := r.RecentReceived + r.RecentRefused
	switch {
	case r.DisabledAt != nil:
		return label{"Disabled", toneOff}
	case r.RecentRefused > 0 && r.RecentRefused*10 >= all:
		return label{"Signatures fail", toneBad}
	case r.LastReceivedAt == nil:
		return label{"Nothing received yet", toneWait}
	case r.RecentReceived == 0:
		return label{"Quiet", toneWait}
	default:
		return label{"Receiving", toneGood}
	}
}

type sourcesPage struct {
	frame
	Rows []sourceRow
}

// sourceCounts is the span that a source's recent numbers cover.
const sourceCounts = 24 * time.Hour

func (c *Console) sources(ec echo.Context) error {
	var p sourcesPage
	var err error
	p.frame, err = c.read(ec, "Sources", "sources", func(ctx context.Context, tx *store.Tx, f *frame) error {
		p.Rows, err = c.sourceRows(ctx, tx, f.Now)
		return err
	})
	if err != nil {
		return err
	}
	return c.render(ec, http.StatusOK, sourcesView(p))
}

func (c *Console) sourceRows(ctx context.Context, tx *store.Tx, now time.Time) ([]sourceRow, error) {
	found, err := tx.SourceHealth(ctx, now.Add(-sourceCounts).Truncate(time.Hour))
	if err != nil {
		return nil, err
	}
	rows := make([]sourceRow, len(found))
	for i, s := range found {
		rows[i] = sourceRow{SourceHealthRow: s, Address: c.access.Address("/hooks/" + s.PublicID)}
	}
	return rows, nil
}

type sourcePage struct {
	frame
	Source     sourceRow
	Deliveries []store.ConsoleDeliveriesRow // newest first
}

func (c *Console) source(ec echo.Context) error {
	id, err := pathID(ec, "source")
	if err != nil {
		return err
	}
	var p sourcePage
	p.frame, err = c.read(ec, "Source", "sources", func(ctx context.Context, tx *store.Tx, f *frame) error {
		rows, err := c.sourceRows(ctx, tx, f.Now)
		if err != nil {
			return err
		}
		found := false
		for _, r := range rows {
			if r.ID == id {
				p.Source, found = r, true
			}
		}
		if !found {
			return errand.NotFound("source")
		}
		f.Title = p.Source.Name
		p.Deliveries, err = tx.ConsoleDeliveries(ctx, id, pageRows)
		return err
	})
	if err != nil {
		return err
	}
	return c.render(ec, http.StatusOK, sourceView(p))
}

// kindText names the tracker of a kind of source.
func kindText(kind string) string {
	if t, ok := map[string]string{"sentry": "Sentry", "posthog": "PostHog", "generic": "Standard Webhooks"}[kind]; ok {
		return t
	}
	return words(kind)
}

// outcomeText says why a delivery came to what it came to.
func outcomeText(d store.ConsoleDeliveriesRow) string {
	if d.Reason != "" {
		return reasonWords(d.Reason)
	}
	if d.Outcome == "accepted" {
		return ""
	}
	return "No reason was recorded."
}
