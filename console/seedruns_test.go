package console_test

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
)

type runSeed struct {
	issue   errand.ID
	state   errand.RunState
	reason  errand.Reason
	detail  string
	ago     time.Duration
	took    time.Duration // 0 = open
	summary string
	pr      int
}

func (s seeder) run(x *seeded, r runSeed) errand.ID {
	created := s.at(r.ago)
	id := errand.NewID(created)
	var finished *time.Time
	if r.took > 0 {
		f := created.Add(r.took)
		finished = &f
	}
	var pr *int
	prURL, branch := "", ""
	if r.pr > 0 {
		pr, prURL, branch = &r.pr, "https://github.example/acme/storefront/pull/318", "errand/tax-rate-missing-"+id.Short()
	}
	event := s.event(x, r.issue, r.ago, "{}")
	s.exec("UPDATE events SET seen_at = seen_at - interval '30 days' WHERE id = $1", event) // not the newest
	s.exec(`INSERT INTO runs (id, org_id, issue_id, event_id, repository_id, state, reason, detail, workflow_file, ref, created_at, updated_at, deadline_at,
			finished_at, dispatch_attempt, workflow_run_id, workflow_run_url, provider, model, summary, branch, pr_number, pr_url, tool_calls)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'errand.yml', 'main', $9, $9, $9, $10, 1, 77, 'https://github.example/acme/storefront/actions/runs/77',
			'anthropic', 'claude-sonnet-4-5', $11, $12, $13, $14, 9)`,
		id, x.org, r.issue, event, x.repo, string(r.state), string(r.reason), r.detail, created, finished, r.summary, branch, pr, prURL)
	return id
}

type move struct {
	to      errand.RunState
	trigger errand.Trigger
	after   time.Duration
}

func (s seeder) history(x *seeded, run errand.ID, created time.Time, reason errand.Reason, moves ...move) {
	from := errand.RunState("")
	if moves[0].to == errand.Publishing {
		from = errand.Checking
	}
	for _, m := range moves {
		body := map[string]any{"from": from, "to": m.to, "trigger": m.trigger}
		if m.to.Ended() && reason != "" {
			body["reason"] = reason
		}
		s.journal(x.org, run, "run.transition", created.Add(m.after), body)
		from = m.to
	}
}

func (s seeder) steps(x *seeded, run errand.ID, from time.Time) {
	at := from
	for i, st := range []struct {
		tool, path, outcome string
		count               int
		ms                  int64
	}{
		{"read_file", "storefront/tax/rates.py", "ok", 96, 42},
		{"search", "", "ok", 14, 310},
		{"read_file", "storefront/checkout/totals.py", "ok", 210, 38},
		{"read_file", "../../etc/passwd", "refused", 0, 2},
		{"list_files", "storefront/tax", "ok", 12, 17},
		{"read_file", "storefront/tax/tests/test_rates.py", "ok", 140, 40},
		{"write_file", "storefront/tax/rates.py", "ok", 101, 65},
		{"write_file", "storefront/tax/tests/test_rates.py", "error", 0, 12},
	} {
		s.exec("INSERT INTO run_steps (run_id, seq, org_id, at, tool, path, outcome, count, duration_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
			run, i+1, x.org, at, st.tool, st.path, st.outcome, st.count, st.ms)
		at = at.Add(time.Duration(3+i) * time.Second)
	}
}

// usage writes one request; counts below zero are unknown, and so is an amount below zero.
func (s seeder) usage(x *seeded, run errand.ID, seq int, at time.Time, input, read, write, output, pico int64) {
	n := func(v int64) *int64 {
		if v < 0 {
			return nil
		}
		return &v
	}
	why, catalogue := "", "2026-11-24"
	if pico < 0 {
		why, catalogue = "unknown_model", ""
	}
	s.exec(`INSERT INTO usage_lines (run_id, seq, org_id, at, provider, model, request_id, input, cache_read, cache_write_5m, cache_write_1h, output, amount_pico, catalogue, unpriced_reason)
		VALUES ($1, $2, $3, $4, 'anthropic', 'claude-sonnet-4-5', $5, $6, $7, $8, 0, $9, $10, $11, $12)`,
		run, seq, x.org, at, "req_01"+run.Short(), n(input), n(read), n(write), n(output), n(pico), catalogue, why)
}

func (s seeder) runs(x *seeded) {
	const minute = time.Minute
	whole := []move{
		{errand.Queued, errand.TriggerCreated, 0},
		{errand.Dispatching, errand.TriggerDispatchStarted, 420 * time.Millisecond},
		{errand.Dispatched, errand.TriggerGitHubAccepted, 1100 * time.Millisecond},
		{errand.Running, errand.TriggerRunStarted, 19 * time.Second},
		{errand.Checking, errand.TriggerProposal, 94 * time.Second},
		{errand.Publishing, errand.TriggerAdmitted, 96 * time.Second},
		{errand.PROpened, errand.TriggerPullRequest, 101 * time.Second},
	}
	x.opened = s.run(x, runSeed{
		issue: x.crash, state: errand.PROpened, ago: 26 * time.Hour, took: 101 * time.Second, pr: 318,
		summary: "rate_for() looked the region up with its country suffix, which the table does not have.\nIt now falls back to the language's default rate, and a test covers 'de-AT'.",
	})
	t := s.at(26 * time.Hour)
	s.history(x, x.opened, t, "", whole[:5]...)
	s.journal(x.org, x.opened, "claim.verdict", t.Add(94*time.Second), map[string]any{
		"seq": 1, "verdict": "rejected", "decision": "correct", "findings": []map[string]any{{"code": "UNCLAIMED_CHANGE", "path": "storefront/tax/tests/test_rates.py", "line": 12}},
		"files": []map[string]any{{"path": "storefront/tax/rates.py", "kind": "edit", "added": 6, "removed": 1}, {"path": "storefront/tax/tests/test_rates.py", "kind": "edit", "added": 14, "removed": 0}},
	})
	s.journal(x.org, x.opened, "claim.verdict", t.Add(95*time.Second), map[string]any{
		"seq": 2, "verdict": "needs_review", "reason": "NO_JUDGE", "decision": "admitted",
		"files": []map[string]any{{"path": "storefront/tax/rates.py", "kind": "edit", "added": 6, "removed": 1}, {"path": "storefront/tax/tests/test_rates.py", "kind": "edit", "added": 14, "removed": 0}},
	})
	s.history(x, x.opened, t, "", whole[5:]...)
	s.steps(x, x.opened, t.Add(20*time.Second))
	s.usage(x, x.opened, 1, t.Add(22*time.Second), 2104, 0, 8120, 412, 43_000_000_000)
	s.usage(x, x.opened, 2, t.Add(41*time.Second), 312, 8120, 2210, 655, 21_400_000_000)
	s.usage(x, x.opened, 3, t.Add(80*time.Second), 280, 10330, 940, 1830, 35_100_000_000)

	x.failed = s.run(x, runSeed{issue: x.crash, state: errand.Failed, reason: errand.ReasonProviderQuota, detail: "429 insufficient credit balance", ago: 2 * time.Hour, took: 3 * minute})
	s.history(x, x.failed, s.at(2*time.Hour), errand.ReasonProviderQuota, append(append([]move{}, whole[:4]...), move{errand.Failed, errand.TriggerRunnerFailed, 3 * minute})...)
	s.usage(x, x.failed, 1, s.at(2*time.Hour), 2104, 0, 8120, 412, 43_000_000_000)
	s.usage(x, x.failed, 2, s.at(2*time.Hour), -1, -1, -1, -1, -1)

	x.rejected = s.run(x, runSeed{issue: x.held, state: errand.Rejected, reason: errand.ReasonClaimRejected, ago: 6 * time.Hour, took: 2 * minute})
	x.unpriced = s.run(x, runSeed{issue: x.held, state: errand.NoFix, reason: errand.ReasonNothingToFix, ago: 7 * time.Hour, took: minute})
	s.usage(x, x.unpriced, 1, s.at(7*time.Hour), -1, -1, -1, -1, -1)

	x.open = s.run(x, runSeed{issue: x.hostile, state: errand.Running, ago: 90 * time.Second})
	s.history(x, x.open, s.at(90*time.Second), "", whole[:4]...)
	s.steps(x, x.open, s.at(60*time.Second))
	s.usage(x, x.open, 1, s.at(50*time.Second), 2104, 0, 8120, 412, 43_000_000_000)
}

// seedMany adds n issues of one moment, each with a run: ties in time are told apart by id.
func (w *world) seedMany(x seeded, n int) {
	w.t.Helper()
	w.db.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		s := seeder{w.t, ctx, c, w.now()}
		for range n {
			issue := s.issue(&x, "one of many", "", "error", "", 4*time.Hour, 1)
			s.run(&x, runSeed{issue: issue, state: errand.NoFix, reason: errand.ReasonNothingToFix, ago: 4 * time.Hour, took: time.Minute})
		}
	})
}
