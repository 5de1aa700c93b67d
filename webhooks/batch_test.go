package webhooks

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/storetest"
)

var batchNoon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// press is a database and a writer whose batches a test composes itself.
type press struct {
	t    testing.TB
	db   *storetest.DB
	w    *Webhooks
	orgs []errand.ID
}

func newPress(t testing.TB, orgs int) *press {
	t.Helper()
	p := &press{t: t, db: storetest.New(t)}
	if err := p.db.MaintainDeliveries(t.Context(), batchNoon, 1000*time.Hour); err != nil {
		t.Fatal(err)
	}
	sealer, err := store.NewSealer(bytes.Repeat([]byte{9}, 32))
	if err != nil {
		t.Fatal(err)
	}
	p.w, err = New(Config{Store: p.db.Store, Sealer: sealer, Scrubber: scrub.New(), Clock: func() time.Time { return batchNoon }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for i := range orgs {
		p.orgs = append(p.orgs, p.db.Org(t, fmt.Sprintf("org-%d", i)))
	}
	return p
}

func (p *press) source(org errand.ID) errand.ID {
	p.t.Helper()
	s, err := p.w.CreateSource(p.t.Context(), org, NewSource{Kind: "generic", Name: "x"})
	if err != nil {
		p.t.Fatal(err)
	}
	return s.ID
}

func (p *press) persist(batch ...*delivery) []settled {
	p.t.Helper()
	out, err := p.w.persist(p.t.Context(), batch)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

func (p *press) texts(query string, args ...any) (list []string) {
	p.t.Helper()
	p.db.Super(p.t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, query, args...)
		if err != nil {
			p.t.Fatal(err)
		}
		if list, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			p.t.Fatal(err)
		}
	})
	return list
}

func (p *press) exec(sql string, args ...any) {
	p.t.Helper()
	p.db.Super(p.t, func(ctx context.Context, c *pgx.Conn) {
		if _, err := c.Exec(ctx, sql, args...); err != nil {
			p.t.Fatal(err)
		}
	})
}

// occurrence is a real event of an issue, word one without.
func occurrence(org, source errand.ID, key, issue, event string, at time.Time) *delivery {
	return &delivery{
		id: errand.NewID(batchNoon), org: org, source: source, kind: "generic", receivedAt: batchNoon, size: 1, shape: "{}", body: `{"provider_id":"` + event + `"}`,
		settled: settled{outcome: accepted},
		parsed: parsed{
			Key: key, Issue: errand.Issue{ProviderID: issue, Title: "title of " + key, FirstSeen: at, LastSeen: at},
			Event: &errand.Event{ProviderID: event, SeenAt: at, Primary: -1}, Consider: true,
		},
	}
}

func word(org, source errand.ID, key, issue, status string, at time.Time) *delivery {
	d := occurrence(org, source, key, issue, wordPrefix+issue+":"+key, at)
	d.parsed.Status, d.parsed.StatusAt, d.parsed.Repeatable, d.parsed.Consider = status, at, true, status == "open" || status == ""
	return d
}

const issueText = `SELECT concat_ws('|', provider_id, fingerprint, title, culprit, level, platform, project, link, status, status_at, first_seen, last_seen, deliveries, stands_in)
	FROM issues WHERE source_id = $1 ORDER BY provider_id`

// However deliveries are cut into batches, the issues come out as if each had been written alone.
func TestABatchOfDeliveriesOfOneIssueLeavesItAsOneByOneWould(t *testing.T) {
	t.Parallel()
	p := newPress(t, 1)
	for round := range 12 {
		rnd := rand.New(rand.NewPCG(7, uint64(round)))
		pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
		single, together := p.source(p.orgs[0]), p.source(p.orgs[0])
		made := func(source errand.ID, seed uint64) []*delivery {
			rnd = rand.New(rand.NewPCG(seed, uint64(round)))
			var list []*delivery
			for n := range 24 {
				at := batchNoon.Add(-time.Duration(rnd.IntN(9)) * time.Minute)
				issue, key := pick("a", "b", "c"), fmt.Sprint("k", n)
				d := occurrence(p.orgs[0], source, key, issue, "e"+key, at)
				if rnd.IntN(3) == 0 {
					d = word(p.orgs[0], source, key, issue, pick("open", "resolved", "ignored"), at)
				}
				i := &d.parsed.Issue
				i.FirstSeen = at.Add(-time.Duration(rnd.IntN(5)) * time.Minute)
				i.Fingerprint, i.Culprit, i.Level = pick("", "f"+key), pick("", "c"+key), pick("", "error", "fatal")
				i.Platform, i.Project, i.Link = pick("", "go"), pick("", "p"+key), pick("", "https://x.example/"+key)
				list = append(list, d)
			}
			return list
		}
		var want, got []settled
		for _, d := range made(single, 1) {
			want = append(want, p.persist(d)...)
		}
		for rest := made(together, 1); len(rest) > 0; {
			n := min(1+rnd.IntN(12), len(rest))
			got = append(got, p.persist(rest[:n]...)...)
			rest = rest[n:]
		}
		for i := range want {
			if want[i].outcome != got[i].outcome || want[i].reason != got[i].reason {
				t.Errorf("round %d, delivery %d: %s %s alone and %s %s in a batch", round, i, want[i].outcome, want[i].reason, got[i].outcome, got[i].reason)
			}
		}
		if a, b := p.texts(issueText, single), p.texts(issueText, together); strings.Join(a, "\n") != strings.Join(b, "\n") {
			t.Errorf("round %d: alone\n%s\nin batches\n%s", round, strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
	}
}

func TestWhatABatchAnswers(t *testing.T) {
	t.Parallel()
	p := newPress(t, 1)
	org := p.orgs[0]
	at := func(minute int) time.Time { return batchNoon.Add(time.Duration(minute-60) * time.Minute) }
	type rows []func(errand.ID) *delivery
	event := func(key, event string, minute int) func(errand.ID) *delivery {
		return func(s errand.ID) *delivery { return occurrence(org, s, key, "i", event, at(minute)) }
	}
	says := func(key, status string, minute int) func(errand.ID) *delivery {
		return func(s errand.ID) *delivery { return word(org, s, key, "i", status, at(minute)) }
	}
	failed := func(key string) string { return "UPDATE delivery_keys SET failed_at = now() WHERE key = '" + key + "'" }
	for _, c := range []struct {
		name    string
		batches []rows
		before  string // done before the last batch
		want    string // of the last batch
		jobs    int
		events  int
	}{
		{"the same key twice", []rows{{event("k", "e", 1), event("k", "e", 1)}}, "", "accepted, duplicate already_received", 1, 1},
		{"the same event under two keys", []rows{{event("k1", "e", 1), event("k2", "e", 1)}}, "", "accepted, duplicate event_already_received", 1, 1},
		{"the same event under a new key later", []rows{{event("k1", "e", 1)}, {event("k2", "e", 1)}}, "", "duplicate event_already_received", 1, 1},
		{"the same event under a new key after its processing failed", []rows{{event("k1", "e", 1)}, {event("k2", "e", 1), event("k3", "e", 1)}}, failed("k1"), "accepted, duplicate event_already_received", 2, 1},
		{"and once more after that failed too", []rows{{event("l1", "e", 1)}, {event("l2", "e", 1)}, {event("l3", "e", 1)}}, "UPDATE delivery_keys SET failed_at = now() WHERE key IN ('l1', 'l2')", "accepted", 2, 1},
		{"a key whose processing failed", []rows{{event("k", "e", 1)}, {event("k", "e", 1)}}, failed("k"), "accepted", 2, 1},
		{"a word older than one in the same batch", []rows{{says("r", "resolved", 9), says("o", "open", 5)}}, "", "accepted, ignored older_than_known_status", 0, 0},
		{"a word repeated in one batch waits for a batch of its own", []rows{{says("r", "resolved", 5), says("o", "open", 6), says("r", "resolved", 7)}}, "", "accepted, accepted, apart", 1, 1},
		{"a word repeated later waits too", []rows{{says("r", "resolved", 5)}, {says("r", "resolved", 7), event("k", "e", 8)}}, "", "apart, accepted", 1, 1},
		{"a word repeated alone is a retry", []rows{{says("r", "resolved", 5)}, {says("r", "resolved", 7)}}, "", "duplicate already_received", 0, 0},
		{"and news when another came between", []rows{{says("r", "resolved", 5), says("o", "open", 6)}, {says("r", "resolved", 7)}}, "", "accepted", 1, 1},
		{"a word finds the event that comes with it", []rows{{says("o", "open", 9), event("k", "e", 1)}}, "", "accepted, accepted", 2, 1},
		{"two words share the event that stands for them", []rows{{says("o", "open", 1), says("p", "open", 2)}}, "", "accepted, accepted", 2, 1},
		{"which goes when a real one comes", []rows{{says("o", "open", 1)}, {event("k", "e", 2)}}, "", "accepted", 2, 1},
	} {
		source := p.source(org)
		before := len(p.texts("SELECT id::text FROM river_job"))
		var out []settled
		for i, b := range c.batches {
			if i == len(c.batches)-1 && c.before != "" {
				p.exec(c.before)
			}
			var list []*delivery
			for _, make := range b {
				list = append(list, make(source))
			}
			out = p.persist(list...)
		}
		var got []string
		for _, s := range out {
			text := strings.TrimSpace(fmt.Sprint(s.outcome, " ", s.reason))
			if s.apart {
				text = "apart"
			}
			got = append(got, text)
		}
		if g := strings.Join(got, ", "); g != c.want {
			t.Errorf("%s: %s, want %s", c.name, g, c.want)
		}
		if n := len(p.texts("SELECT id::text FROM river_job")) - before; n != c.jobs {
			t.Errorf("%s: %d jobs, want %d", c.name, n, c.jobs)
		}
		if n := len(p.texts("SELECT id::text FROM events WHERE issue_id IN (SELECT id FROM issues WHERE source_id = $1)", source)); n != c.events {
			t.Errorf("%s: %d events, want %d", c.name, n, c.events)
		}
	}
}

// Each row of a batch belongs to the organisation of its source, samples are pruned though runs show themselves to one
// organisation only, and an organisation that is not in the batch is out of reach.
func TestABatchMayHoldSeveralOrganisations(t *testing.T) {
	t.Parallel()
	p := newPress(t, 3)
	var sources []errand.ID
	for _, o := range p.orgs {
		sources = append(sources, p.source(o))
	}
	for n := range 14 {
		var list []*delivery
		for i := range 2 {
			key := fmt.Sprint(n)
			list = append(list, occurrence(p.orgs[i], sources[i], key, "i", key, batchNoon.Add(time.Duration(n-60)*time.Minute)))
		}
		p.persist(list...)
	}
	for i, want := range []int{samples, samples, 0} {
		for table, n := range map[string]int{"events": want, "deliveries": want / samples * 14, "delivery_keys": want / samples * 14, "issues": want / samples} {
			if got := len(p.texts("SELECT org_id::text FROM "+table+" WHERE org_id = $1", p.orgs[i])); got != n {
				t.Errorf("organisation %d has %d rows of %s, want %d", i, got, table, n)
			}
		}
	}
	wrong := occurrence(p.orgs[2], sources[0], "w", "i", "w", batchNoon)
	if out, err := p.w.persist(t.Context(), []*delivery{wrong}); err == nil {
		t.Errorf("an issue of another organisation was written: %+v", out)
	}
}
