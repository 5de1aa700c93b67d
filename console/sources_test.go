package console_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
)

// delivered writes a delivery of a source.
func (s seeder) delivered(x seeded, ago time.Duration, outcome, reason string, issue *errand.ID) {
	sum := sha256.Sum256([]byte(reason))
	s.exec(`INSERT INTO deliveries (id, org_id, source_id, received_at, resource, action, outcome, reason, issue_id, body_sha256, body_bytes)
		VALUES ($1, $2, $3, $4, 'event_alert', 'triggered', $5, $6, $7, $8, 4096)`,
		errand.NewID(s.at(ago)), x.org, x.source, s.at(ago), outcome, reason, issue, sum[:])
}

// seedSource gives an organisation's source counts of two days, a refused request and 63 deliveries.
func (w *world) seedSource(x seeded) {
	w.t.Helper()
	w.db.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		s := seeder{w.t, ctx, c, w.now()}
		hour := w.now().Truncate(time.Hour)
		s.exec("INSERT INTO source_hours (source_id, hour, org_id, accepted, duplicate, ignored, rejected, refused) VALUES ($1, $2, $3, 1234, 12, 34, 5, 0)", x.source, hour.Add(-40*time.Hour), x.org)
		s.exec("INSERT INTO source_hours (source_id, hour, org_id, accepted, refused) VALUES ($1, $2, $3, 5, 7)", x.source, hour, x.org)
		s.exec("INSERT INTO source_health (source_id, org_id, last_received_at, last_accepted_at, last_refused_at, last_refused_reason) VALUES ($1, $2, $3, $3, $4, 'the signature <does> not verify')",
			x.source, x.org, s.at(5*time.Minute), s.at(90*time.Second))
		for i := range 60 {
			s.delivered(x, time.Hour+time.Duration(i)*time.Second, "accepted", "", &x.crash)
		}
		s.delivered(x, 30*time.Minute, "rejected", "data.event: is not an object", nil)
		s.delivered(x, 31*time.Minute, "ignored", "resource_not_used:comment", nil)
		s.delivered(x, 32*time.Minute, "duplicate", "already_received", &x.crash)
	})
}

func TestTheSourcesPageShowsWhatCameAndWhatWasRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Viewer)
	list, one := "/sources", "/sources/"+string(w.a.source)
	before := b.get(list)
	wantStatus(t, "before anything came", before, http.StatusOK)
	wantAll(t, "before anything came", before.body, "Production", "Sentry", w.server.URL+"/hooks/source-"+string(w.a.source), "Nothing received yet", "never")

	w.seedSource(w.a)
	wantAll(t, "the list", b.get(list).body, "1,239", ">12<", ">34<", ">7<", "Signatures fail", "5 min ago", "Last refused")
	page := b.get(one)
	wantStatus(t, "one source", page, http.StatusOK)
	wantAll(t, "one source", page.body, "The signature &lt;does&gt; not verify.", "5 received, 7 with a bad signature",
		"rejected", "data.event: is not an object", "resource not used: comment", "already received", `href="/issues/`+string(w.a.crash)+`"`)
	if rows := strings.Count(page.body, `data-label="Outcome"`); rows != 50 {
		t.Errorf("%d deliveries are shown, want the newest 50", rows)
	}
	if strings.Index(page.body, "data.event") > strings.Index(page.body, "already received") {
		t.Error("an older delivery stands above a newer one")
	}
	if strings.Contains(w.as(w.b.org, access.Owner).get(list).body, "1,239") {
		t.Error("another organisation sees the counts")
	}
}

func TestIssuesSeenAreCountedByReceipt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	seen := func() (n int) {
		body := w.as(w.a.org, access.Viewer).get("/").body
		_, rest, _ := strings.Cut(body, "Issues seen</dt><dd><a href=\"/issues\">")
		if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
			t.Fatalf("no count of issues: %v", err)
		}
		return n
	}
	before := seen()
	w.db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		s := seeder{t, ctx, c, w.now()}
		late := s.issue(&w.a, "received now, occurred last week", "", "error", "", 7*24*time.Hour, 1)
		early := s.issue(&w.a, "received last week, dated today", "", "error", "", time.Hour, 1)
		for issue, at := range map[errand.ID][2]time.Duration{late: {7 * 24 * time.Hour, time.Minute}, early: {time.Hour, 7 * 24 * time.Hour}} {
			for range 2 {
				id := errand.NewID(s.now)
				s.exec("INSERT INTO events (id, org_id, issue_id, provider_id, seen_at, received_at, body) VALUES ($1, $2, $3, $4, $5, $6, '{}')",
					id, w.a.org, issue, string(id), s.at(at[0]), s.at(at[1]))
			}
		}
	})
	if got := seen(); got != before+1 {
		t.Errorf("%d issues seen, %d before: want the one that was received today", got, before)
	}
}

// A mapping's stack root is held against both names of a frame, so both are shown.
func TestAFrameShowsItsAbsolutePathToo(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		seeder{t, ctx, c, w.now()}.event(&w.a, w.a.crash, 0, toJSON(t, errand.Event{Exceptions: []errand.Exception{{Type: "E", Frames: []errand.Frame{
			{Filename: "app/a.py", AbsPath: "/srv/<release>/app/a.py", Line: 3}, {Filename: "/srv/same.py", AbsPath: "/srv/same.py", Line: 4},
		}}}}))
	})
	body := w.as(w.a.org, access.Viewer).get("/issues/" + string(w.a.crash)).body
	wantAll(t, "the issue", body, "app/a.py", "/srv/&lt;release&gt;/app/a.py")
	if n := strings.Count(body, "/srv/same.py"); n != 1 {
		t.Errorf("one path is shown %d times", n)
	}
}
