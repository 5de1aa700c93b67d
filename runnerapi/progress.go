package runnerapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/pricing"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/wire"
)

const (
	maxSeq = 10_000 // of each list of a job: with 30 tool calls none comes near it
	// maxReruns bounds what the number of an attempt counts for; GitHub allows 50.
	maxReruns = 1000
	maxRaw    = 4 << 10 // bytes of one request's counts
)

// progress keeps the lines that it has not seen and renews the run's lease. A run that has ended is answered with stop, and
// not refused: its runner must learn of it, and what it spent until then was spent.
func (a *API) progress(ctx context.Context, token runtoken.Token, req wire.ProgressRequest) (wire.ProgressResponse, error) {
	var out wire.ProgressResponse
	if err := validLines(req.Steps, req.Usage); err != nil {
		return out, err
	}
	now := a.clock()
	err := a.inRun(ctx, token, func(tx *store.Tx, run *store.Run) error {
		if run.StartedAt == nil && !run.State.Ended() {
			return errand.Conflict("the run has not started: call start first")
		}
		if err := a.keep(ctx, tx, run, lines{req.Steps, req.Usage, firstSeq(run, token.Role)}, now); err != nil {
			return err
		}
		if run.State.Ended() {
			out = wire.ProgressResponse{Stop: true, Reason: stopReason(run)}
			return nil
		}
		if err := tx.RunnerHeartbeat(ctx, now, run.ID); err != nil {
			return err
		}
		return a.runs.LookAgain(ctx, tx, run, leaseEnd(run, now))
	})
	if err != nil {
		return wire.ProgressResponse{}, err
	}
	return out, nil
}

// leaseEnd is when a run that was just heard of is looked into: when it falls silent, or its time is over.
func leaseEnd(run *store.Run, now time.Time) time.Time {
	silent, over := now.Add(runs.Lease), run.StartedAt.Add(runs.FinishWithin)
	if over.Before(silent) {
		return over
	}
	return silent
}

func stopReason(run *store.Run) string {
	if run.Reason == errand.ReasonNone {
		return string(run.State)
	}
	return string(run.State) + ": " + string(run.Reason)
}

// validLines refuses what huma's schema cannot say.
func validLines(steps []wire.Step, usage []wire.UsageLine) error {
	for i, s := range steps {
		if s.Seq > maxSeq {
			return errand.Invalid(fmt.Sprintf("steps[%d].seq", i), "is %d: want at most %d", s.Seq, maxSeq)
		}
	}
	for i, u := range usage {
		switch {
		case u.Seq > maxSeq:
			return errand.Invalid(fmt.Sprintf("usage[%d].seq", i), "is %d: want at most %d", u.Seq, maxSeq)
		case len(u.Raw) > maxRaw:
			return errand.Invalid(fmt.Sprintf("usage[%d].raw", i), "has %d bytes: want the provider's usage object, at most %d", len(u.Raw), maxRaw)
		}
	}
	return nil
}

// lines are what a job of the run reports. Each job counts its own from 1; from is what its numbers are counted on from here.
type lines struct {
	steps []wire.Step
	usage []wire.UsageLine
	from  int32
}

// firstSeq keeps the numbers of a run's jobs, and of its re-runs, apart.
func firstSeq(run *store.Run, role runtoken.Role) int32 {
	job := map[runtoken.Role]int32{runtoken.RoleVerify: 1, runtoken.RolePublish: 2}[role] // all and agent never meet in one run
	attempt := int32(1)
	if run.WorkflowRunAttempt != nil {
		attempt = *run.WorkflowRunAttempt
	}
	return (min(attempt, maxReruns)-1)*3*maxSeq + job*maxSeq
}

// keep stores the lines that are new. A line whose number is taken changes nothing; that it says something else is logged.
func (a *API) keep(ctx context.Context, tx *store.Tx, run *store.Run, l lines, now time.Time) error {
	for _, s := range l.steps {
		row := store.RunnerAddStepParams{
			RunID: run.ID, Seq: l.from + int32(s.Seq), At: within(run, s.At, now), Tool: scrub.Sanitise(s.Tool, 64), Path: scrub.Sanitise(s.Path, 1024),
			Outcome: s.Outcome, Count: int32(min(max(s.Count, 0), math.MaxInt32)), DurationMs: max(s.DurationMS, 0),
		}
		n, err := tx.RunnerAddStep(ctx, row)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		old, err := tx.RunnerGetStep(ctx, row.RunID, row.Seq)
		if err != nil {
			return err
		}
		if old.Tool != row.Tool || old.Path != row.Path || old.Outcome != row.Outcome || old.Count != row.Count {
			a.log.LogAttrs(ctx, slog.LevelWarn, "a step was reported again, otherwise: the first report stands", append(ids(run), slog.Int("seq", s.Seq))...)
		}
	}
	for _, u := range l.usage {
		if err := a.keepUsage(ctx, tx, run, l.from, u, now); err != nil {
			return err
		}
	}
	return nil
}

func (a *API) keepUsage(ctx context.Context, tx *store.Tx, run *store.Run, from int32, u wire.UsageLine, now time.Time) error {
	at, raw := within(run, u.At, now), rawCounts(u.Raw)
	counted := pricing.Normalise(u.Provider, []byte(raw))
	model := scrub.Sanitise(u.Model, 128)
	priced := a.catalogue.Price(counted, u.Provider, model, at)
	row := store.RunnerAddUsageParams{
		RunID: run.ID, Seq: from + int32(u.Seq), At: at, Provider: scrub.Sanitise(u.Provider, 64), Model: model, RequestID: scrub.Sanitise(u.RequestID, 128),
		Raw: raw, Input: counted.Input, CacheRead: counted.CacheRead, CacheWrite5m: counted.CacheWrite5m, CacheWrite1h: counted.CacheWrite1h,
		Output: counted.Output, WebSearches: counted.WebSearches,
		Catalogue: priced.Catalogue, UnpricedReason: scrub.Sanitise(priced.UnpricedReason, 500),
	}
	if priced.Amount != nil {
		amount := int64(*priced.Amount)
		row.AmountPico = &amount
	}
	n, err := tx.RunnerAddUsage(ctx, row)
	if err != nil {
		return err
	}
	if n > 0 {
		if row.AmountPico == nil {
			a.count.unpriced.WithLabelValues(row.Provider).Inc()
		}
		return nil
	}
	old, err := tx.RunnerGetUsage(ctx, row.RunID, row.Seq)
	if err != nil {
		return err
	}
	if old.Raw != row.Raw || old.Model != row.Model || old.Provider != row.Provider {
		a.log.LogAttrs(ctx, slog.LevelWarn, "a request's counts were reported again, otherwise: the first report stands", append(ids(run), slog.Int("seq", u.Seq))...)
	}
	return nil
}

// rawCounts is the provider's own word, compact; "" = it never arrived.
func rawCounts(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return ""
	}
	return scrub.Sanitise(b.String(), maxRaw)
}

// within gives a runner's time if it can be right, and ours otherwise: prices depend on it.
func within(run *store.Run, at, now time.Time) time.Time {
	from := run.CreatedAt
	if run.DispatchedAt != nil {
		from = *run.DispatchedAt
	}
	if at.After(now) || at.Before(from) {
		return now
	}
	return at
}
