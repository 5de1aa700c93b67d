package console_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store/storetest"
)

// seeded is what one organisation of a test has.
type seeded struct {
	org, source, repo                        errand.ID
	crash, hostile, held                     errand.ID // issues
	opened, failed, open, rejected, unpriced errand.ID // runs
}

// seeder writes rows as the superuser: a page is tested against what may stand in the database, not against what today's
// features happen to write.
type seeder struct {
	t   *testing.T
	ctx context.Context
	c   *pgx.Conn
	now time.Time
}

func (s seeder) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.c.Exec(s.ctx, sql, args...); err != nil {
		s.t.Fatalf("seed: %v\n%s", err, sql)
	}
}

func (s seeder) at(ago time.Duration) time.Time { return s.now.Add(-ago) }

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const hostileTitle = `<script>alert("title")</script>`

func seed(t *testing.T, db *storetest.DB, org errand.ID, now time.Time, installation int64) seeded {
	t.Helper()
	if err := db.MaintainDeliveries(context.Background(), now.Add(-24*time.Hour), 365*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	x := seeded{org: org}
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		s := seeder{t, ctx, c, now}
		x.source, x.repo = errand.NewID(now), errand.NewID(now)
		s.exec("INSERT INTO installations (id, org_id, account, created_at) VALUES ($1, $2, 'acme', $3)", installation, org, now)
		s.exec(`INSERT INTO repositories (id, org_id, installation_id, github_id, owner, name, default_branch, created_at)
			VALUES ($1, $2, $3, $3, 'acme', 'storefront', 'main', $4)`, x.repo, org, installation, now)
		s.exec(`INSERT INTO sources (id, org_id, kind, name, public_id, secret_sealed, created_at) VALUES ($1, $2, 'sentry', 'Production', $3, 'x', $4)`,
			x.source, org, "source-"+string(x.source), now)
		s.issues(&x)
		s.decisions(x)
		s.runs(&x)
	})
	return x
}

func (s seeder) issue(x *seeded, title, culprit, level, link string, ago time.Duration, deliveries int) errand.ID {
	id := errand.NewID(s.at(ago))
	s.exec(`INSERT INTO issues (id, org_id, source_id, provider_id, title, culprit, level, platform, project, link, status_at, first_seen, last_seen, deliveries, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 'python', 'storefront', $8, $9, $10, $9, $11, $10)`,
		id, x.org, x.source, string(id), title, culprit, level, link, s.at(ago), s.at(ago+50*time.Hour), deliveries)
	return id
}

func (s seeder) event(x *seeded, issue errand.ID, ago time.Duration, body string) errand.ID {
	id := errand.NewID(s.at(ago))
	s.exec("INSERT INTO events (id, org_id, issue_id, provider_id, seen_at, received_at, body) VALUES ($1, $2, $3, $4, $5, $5, $6)",
		id, x.org, issue, string(id), s.at(ago), body)
	return id
}

func frame(file, fn string, line int, inApp *bool) errand.Frame {
	return errand.Frame{Filename: file, Function: fn, Line: line, InApp: inApp}
}

func crashEvent() errand.Event {
	yes, no := true, false
	return errand.Event{
		ProviderID: "5c4d1e", Release: "storefront@2.14.1", Commit: "9f2c1d7e4b", Environment: "production", Transaction: "POST /checkout/{cart}",
		Tags: []errand.Tag{{Key: "server_name", Value: "web-7"}, {Key: "browser", Value: "Firefox 142"}},
		Exceptions: []errand.Exception{
			{Type: "KeyError", Value: "'de-AT'", Mechanism: "chained", Handled: &yes, Frames: []errand.Frame{frame("storefront/tax/rates.py", "rate_for", 41, &yes)}},
			{Type: "TaxRateMissing", Value: "no tax rate for region 'de-AT'", Mechanism: "django", Handled: &no, Frames: []errand.Frame{
				frame("django/core/handlers/exception.py", "inner", 55, &no), frame("django/core/handlers/base.py", "_get_response", 197, &no),
				frame("django/views/generic/base.py", "dispatch", 143, &no), frame("storefront/checkout/views.py", "CheckoutView.post", 88, &yes),
				frame("storefront/checkout/totals.py", "Totals.with_tax", 132, &yes), frame("storefront/tax/rates.py", "rate_for", 44, &yes),
				frame("plugins/legacy_hook.py", "wrap", 9, nil),
			}},
		},
		Primary: 1,
		Provenance: map[string]errand.Origin{
			"release": errand.FromOutsider, "environment": errand.FromOutsider, "commit": errand.FromTracker, "tags": errand.FromOutsider, "exceptions": errand.FromOutsider,
		},
		Removed: []errand.Removal{{Path: "exceptions[1].frames[3].vars", Kind: "local_variables"}, {Path: "user.email", Kind: "person"}, {Path: "tags.session", Kind: "bearer_token"}},
	}
}

func (s seeder) issues(x *seeded) {
	x.crash = s.issue(x, "TaxRateMissing: no tax rate for region 'de-AT'", "storefront.tax.rates in rate_for", "error", "https://sentry.example/issues/42", 3*time.Minute, 1284)
	s.event(x, x.crash, 3*time.Minute, toJSON(s.t, crashEvent()))
	x.hostile = s.issue(x, hostileTitle, `"><img src=x onerror=alert(1)>`, "fatal", "javascript:alert(1)", 40*time.Minute, 3)
	s.event(x, x.hostile, 40*time.Minute, toJSON(s.t, errand.Event{
		Message: `<script>alert("message")</script>`, Primary: 0, Tags: []errand.Tag{{Key: "<b>", Value: `<script>alert("tag")</script>`}},
		Exceptions: []errand.Exception{{Type: "<script>alert(1)</script>", Value: "<script>alert(2)</script>", Frames: []errand.Frame{frame("<script>", "<script>alert(3)</script>", 1, nil)}}},
		Removed:    []errand.Removal{{Path: "<script>", Kind: "<script>"}},
	}))
	x.held = s.issue(x, "ConnectionResetError: [Errno 104] Connection reset by peer while the recommendation service was asked for a very long list of things", "storefront.recommend.client", "warning", "", 5*time.Hour, 61)
	s.event(x, x.held, 5*time.Hour, "{not json")
	for i, d := range []struct{ outcome, reason string }{{"accepted", ""}, {"duplicate", ""}, {"accepted", ""}, {"ignored", "unknown_action"}} {
		at := s.at(time.Duration(3+7*i) * time.Minute)
		s.exec(`INSERT INTO deliveries (id, org_id, source_id, received_at, resource, action, outcome, reason, issue_id, body_sha256, body_bytes)
			VALUES ($1, $2, $3, $4, 'event_alert', 'triggered', $5, $6, $7, sha256('x'), 4000)`, errand.NewID(at), x.org, x.source, at, d.outcome, d.reason, x.crash)
	}
}

func (s seeder) journal(org, subject errand.ID, kind string, at time.Time, body any) {
	s.exec("INSERT INTO journal (id, org_id, kind, subject, at, body) VALUES ($1, $2, $3, $4, $5, $6)", errand.NewID(at), org, kind, subject, at, toJSON(s.t, body))
}

func (s seeder) decisions(x seeded) {
	s.journal(x.org, x.crash, "decision", s.at(26*time.Hour), errand.Decision{
		Outcome: errand.OutcomeRun, Gate: errand.GateOK, Detail: "Mapping 2 leads to acme/storefront, and every gate was open.",
		Evidence: []errand.Evidence{{From: "mapping 2", Seen: "stack root /app/ prefixes 3 of 3 frames"}},
	})
	s.journal(x.org, x.crash, "decision", s.at(3*time.Minute), errand.Decision{
		Outcome: errand.OutcomeWait, Gate: errand.GateCooldown, Detail: "A run of this issue ended 2 h ago; the cooldown is 24 h.",
		Remedy: "Press Run now, or shorten the cooldown in the organisation's settings.", Until: s.now.Add(22 * time.Hour).UTC().Format(time.RFC3339),
		Evidence: []errand.Evidence{{From: "run history", Seen: "run 5f21c0aa ended as failed 2 h ago"}, {From: "organisation", Seen: "cooldown 86400 s"}},
	})
	s.journal(x.org, x.hostile, "decision", s.at(40*time.Minute), errand.Decision{
		Outcome: errand.OutcomeSkip, Gate: errand.GateNoMapping, Detail: "<script>alert('detail')</script>", Remedy: "<script>alert('remedy')</script>",
		Evidence: []errand.Evidence{{From: "<script>", Seen: "<script>alert('seen')</script>"}},
	})
	s.journal(x.org, x.held, "decision", s.at(5*time.Hour), errand.Decision{Outcome: errand.OutcomeSkip, Gate: errand.GateLevelExcluded, Detail: "The level is warning; the least level is error.", Remedy: "Lower the least level in the organisation's settings."})
}
