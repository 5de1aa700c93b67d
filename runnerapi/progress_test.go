package runnerapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/wire"
)

func usageOf(seq int, at time.Time, tokens int) wire.UsageLine {
	return wire.UsageLine{
		Seq: seq, At: at, Provider: "anthropic", Model: "claude-sonnet-5", RequestID: fmt.Sprintf("req_%d", seq),
		Raw: json.RawMessage(fmt.Sprintf(`{"input_tokens": %d, "output_tokens": %d, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "service_tier": "standard"}`, tokens, tokens)),
	}
}

// totals is what the run's lines come to.
type totals struct {
	Steps, Lines, Unpriced int
	Input, Output, Amount  int64
}

func (r *errandRun) totals(t failer) (s totals) {
	r.w.super(func(ctx context.Context, c *pgx.Conn) {
		err := c.QueryRow(ctx, `SELECT (SELECT count(*) FROM run_steps WHERE run_id = $1), count(*), count(*) FILTER (WHERE amount_pico IS NULL),
			coalesce(sum(input), 0)::bigint, coalesce(sum(output), 0)::bigint, coalesce(sum(amount_pico), 0)::bigint FROM usage_lines WHERE run_id = $1`, r.id).
			Scan(&s.Steps, &s.Lines, &s.Unpriced, &s.Input, &s.Output, &s.Amount)
		if err != nil {
			t.Fatal(err)
		}
	})
	return s
}

// line reads one usage line as it is stored.
func (r *errandRun) line(seq int) (amount *int64, input *int64, unpriced, raw string, at time.Time) {
	r.w.t.Helper()
	r.w.super(func(ctx context.Context, c *pgx.Conn) {
		err := c.QueryRow(ctx, "SELECT amount_pico, input, unpriced_reason, raw, at FROM usage_lines WHERE run_id = $1 AND seq = $2", r.id, seq).
			Scan(&amount, &input, &unpriced, &raw, &at)
		if err != nil {
			r.w.t.Fatal(err)
		}
	})
	return amount, input, unpriced, raw, at
}

// However a run's lines are ordered, split over reports and repeated, they come to the same.
func TestE23_PermutingSplittingAndRepeatingLinesNeverChangesTheSum(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(rt, "lines")
		var usage []wire.UsageLine
		var steps []wire.Step
		var want totals
		for i := 1; i <= n; i++ {
			tokens := rapid.IntRange(0, 50_000).Draw(rt, "tokens")
			u := usageOf(i, w.clock.now(), tokens)
			if rapid.IntRange(0, 4).Draw(rt, "unknown") == 0 {
				u.Raw, tokens = json.RawMessage("null"), 0
				want.Unpriced++
			}
			usage, steps = append(usage, u), append(steps, stepOf(i, w.clock.now()))
			want.Steps, want.Lines = i, i
			want.Input += int64(tokens)
			want.Output += int64(tokens)
			want.Amount += int64(tokens) * (2_000_000 + 10_000_000)
		}
		r := o.dispatched()
		token := r.running()
		usage, steps = rapid.Permutation(usage).Draw(rt, "usage"), rapid.Permutation(steps).Draw(rt, "steps")
		send := func(u []wire.UsageLine, s []wire.Step) {
			for range rapid.IntRange(1, 2).Draw(rt, "times") {
				w.post("progress", token, wire.ProgressRequest{Usage: u, Steps: s}).want(rt, 200)
			}
		}
		cut := rapid.IntRange(0, n).Draw(rt, "cut")
		send(usage[:cut], steps[cut:])
		send(usage[cut:], steps[:cut])
		if rapid.Bool().Draw(rt, "all again in the result") {
			w.post("result", token, wire.ResultRequest{State: errand.NoFix, Reason: errand.ReasonNothingToFix, Usage: usage, Steps: steps}).want(rt, 200)
		} else {
			r.cancel() // so that the next issue's run is alone
		}
		if got := r.totals(rt); got != want {
			rt.Fatalf("%+v, want %+v", got, want)
		}
	})
}

func TestE10_AModelWithoutAPriceHasNoAmountAndIsCounted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	u := usageOf(1, w.clock.now(), 1000)
	u.Model = "claude-sonnet-5.1" // a dot for a dash
	w.post("progress", token, wire.ProgressRequest{Usage: []wire.UsageLine{u}}).want(t, 200)
	amount, input, unpriced, _, _ := r.line(1)
	if amount != nil || input == nil || *input != 1000 || !strings.Contains(unpriced, "claude-sonnet-5.1") {
		t.Errorf("amount %v, input %v, %q", amount, input, unpriced)
	}
	if w.counted("errand_unpriced_requests_total", "anthropic") != 1 {
		t.Error("not counted")
	}
}

func TestE22_CountsThatNeverArrivedAreUnknownAndNotZero(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	u := usageOf(1, w.clock.now(), 0)
	u.Raw = json.RawMessage("null")
	part := usageOf(2, w.clock.now(), 0)
	part.Raw = json.RawMessage(`{"input_tokens": 1200}`) // the stream broke before its output was counted
	w.post("progress", token, wire.ProgressRequest{Usage: []wire.UsageLine{u, part}}).want(t, 200)
	amount, input, unpriced, raw, _ := r.line(1)
	if amount != nil || input != nil || unpriced == "" || raw != "" {
		t.Errorf("never arrived: amount %v, input %v, %q, raw %q", amount, input, unpriced, raw)
	}
	amount, input, unpriced, raw, _ = r.line(2)
	if amount != nil || input == nil || *input != 1200 || unpriced == "" || raw != `{"input_tokens":1200}` {
		t.Errorf("a part arrived: amount %v, input %v, %q, raw %q", amount, input, unpriced, raw)
	}
}

func TestALineThatSaysSomethingElseUnderATakenNumberIsIgnored(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	w.post("progress", token, wire.ProgressRequest{Usage: []wire.UsageLine{usageOf(1, w.clock.now(), 100)}, Steps: []wire.Step{stepOf(1, w.clock.now())}}).want(t, 200)
	before := r.totals(t)
	if strings.Contains(w.log.String(), "the first report stands") {
		t.Error("logged without a cause")
	}
	other := stepOf(1, w.clock.now())
	other.Path = "src/other.js"
	w.post("progress", token, wire.ProgressRequest{Usage: []wire.UsageLine{usageOf(1, w.clock.now(), 999)}, Steps: []wire.Step{other}}).want(t, 200)
	if after := r.totals(t); after != before {
		t.Errorf("%+v, before %+v", after, before)
	}
	if n := strings.Count(w.log.String(), "the first report stands"); n != 2 {
		t.Errorf("logged %d times", n)
	}
}

func TestATimeThatCannotBeRightIsReplacedByOurs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	dispatched := w.clock.now()
	w.clock.forward(5 * time.Minute)
	now := w.clock.now()
	for i, c := range []struct {
		name     string
		at, want time.Time
	}{
		{"while the run is under way", dispatched.Add(time.Minute), dispatched.Add(time.Minute)},
		{"in the future", now.Add(time.Second), now},
		{"before the dispatch, when another price held", dispatched.Add(-200 * 24 * time.Hour), now},
	} {
		w.post("progress", token, wire.ProgressRequest{Usage: []wire.UsageLine{usageOf(i+1, c.at, 100)}}).want(t, 200)
		if _, _, _, _, at := r.line(i + 1); !at.Equal(c.want) {
			t.Errorf("%s: kept as %s, want %s", c.name, at, c.want)
		}
	}
	if run := r.row(); run.HeartbeatAt == nil || !run.HeartbeatAt.Equal(now) {
		t.Errorf("heartbeat %v", run.HeartbeatAt)
	}
}

func TestAReportRenewsTheLeaseUntilTheRunsTimeIsOver(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	started := w.clock.now()
	for _, c := range []struct{ after, due time.Duration }{
		{time.Minute, time.Minute + runs.Lease},
		{24 * time.Minute, runs.FinishWithin},
		{25 * time.Minute, runs.FinishWithin},
	} {
		w.clock.forward(c.after - w.clock.now().Sub(started))
		w.post("progress", token, wire.ProgressRequest{}).want(t, 200)
		if run := r.row(); !run.DeadlineAt.Equal(started.Add(c.due)) || !run.HeartbeatAt.Equal(w.clock.now()) {
			t.Errorf("after %s it is due %s after its start, want %s; heartbeat %s", c.after, run.DeadlineAt.Sub(started), c.due, run.HeartbeatAt)
		}
	}
}

func TestNothingIsReportedBeforeTheStart(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	w.post("progress", r.token(), wire.ProgressRequest{Steps: []wire.Step{stepOf(1, w.clock.now())}}).want(t, 409)
	if run := r.row(); run.HeartbeatAt != nil || r.totals(t) != (totals{}) {
		t.Errorf("heartbeat %v, %+v", run.HeartbeatAt, r.totals(t))
	}
}

func TestAReportIsRefusedWhole(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	good := `{"seq":1,"at":"2026-12-01T10:00:00Z","tool":"get_file_contents","outcome":"ok"}`
	for _, c := range []struct {
		name, body string
		status     int
	}{
		{"a field that is not known", `{"steps":[` + good + `],"source":"x = 1"}`, 422},
		{"a field that is not known, in a step", `{"steps":[` + good + `,{"seq":2,"at":"2026-12-01T10:00:00Z","tool":"x","outcome":"ok","content":"x = 1"}]}`, 422},
		{"an outcome that is none", `{"steps":[` + good + `,{"seq":2,"at":"2026-12-01T10:00:00Z","tool":"x","outcome":"fine"}]}`, 422},
		{"a number out of range", `{"steps":[` + good + `,{"seq":10001,"at":"2026-12-01T10:00:00Z","tool":"x","outcome":"ok"}]}`, 422},
		{"another provider", `{"steps":[` + good + `],"usage":[{"seq":1,"at":"2026-12-01T10:00:00Z","provider":"x","model":"m","raw":null}]}`, 422},
		{"counts as long as a file", `{"steps":[` + good + `],"usage":[{"seq":1,"at":"2026-12-01T10:00:00Z","provider":"openai","model":"m","raw":{"x":"` + strings.Repeat("y", 5000) + `"}}]}`, 422},
		{"not JSON", `{"steps":[` + good + `]`, 400},
		{"over a mebibyte", `{"steps":[` + good + `],"x":"` + strings.Repeat("y", 1<<20) + `"}`, 413},
	} {
		if got := w.post("progress", token, c.body); got.status != c.status || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
	}
	if got := r.totals(t); got != (totals{}) {
		t.Errorf("something was kept: %+v", got)
	}
	// What is odd and harmless is kept, made fit.
	w.post("progress", token, `{"steps":[{"seq":1,"at":"2026-12-01T10:00:00Z","tool":"a\u0000b","path":"src/\u0007x\ud800.js","outcome":"ok","count":-5}]}`).want(t, 200)
	var tool, path string
	var count int
	w.super(func(ctx context.Context, c *pgx.Conn) {
		if err := c.QueryRow(ctx, "SELECT tool, path, count FROM run_steps WHERE run_id = $1", r.id).Scan(&tool, &path, &count); err != nil {
			t.Fatal(err)
		}
	})
	if tool != "ab" || path != "src/x\ufffd.js" || count != 0 {
		t.Errorf("kept %q %q %d", tool, path, count)
	}
}
