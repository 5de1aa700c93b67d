package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/store"
)

// describeEntry says a journal row in one line.
func describeEntry(e store.Journal) string {
	body := []byte(e.Body)
	switch e.Kind {
	case journal.KindDecision:
		var d journal.Decision
		if json.Unmarshal(body, &d) == nil {
			return fmt.Sprintf("decision: %s (%s): %s", d.Outcome, d.Gate, d.Detail)
		}
	case journal.KindTransition:
		var t journal.Transition
		if json.Unmarshal(body, &t) == nil {
			s := fmt.Sprintf("run: %s -> %s (%s)", t.From, t.To, t.Trigger)
			if t.Reason != errand.ReasonNone {
				s += ": " + string(t.Reason)
			}
			if t.Detail != "" {
				s += ": " + t.Detail
			}
			return s
		}
	case journal.KindClaimVerdict:
		var v journal.ClaimVerdict
		if json.Unmarshal(body, &v) == nil {
			paths := make([]string, len(v.Files))
			for i, f := range v.Files {
				paths[i] = fmt.Sprintf("%s +%d -%d", f.Path, f.Added, f.Removed)
			}
			return fmt.Sprintf("claim: %s %s, %d findings, %s: %s", v.Verdict, v.Reason, len(v.Findings), strings.Join(paths, ", "), v.Decision)
		}
	}
	return e.Kind
}

// summarise reads what became of the run, says it, and gives the one JSON object.
func (p *plane) summarise(ctx context.Context, d *demo, issue, run errand.ID) (summary, error) {
	s := summary{Issue: issue, Run: run, DurationMS: time.Since(d.begun).Milliseconds()}
	var cost errand.Cost
	var reason errand.Reason
	err := p.app.db.InTx(ctx, p.org, func(tx *store.Tx) error {
		r, err := tx.GetRun(ctx, run)
		if err != nil {
			return err
		}
		s.State, s.PullRequest, s.Branch, s.Files = r.State, r.PRURL, r.Branch, slices.Sorted(slices.Values(r.Paths))
		reason = r.Reason
		known, tokens, err := p.app.runs.Cost(ctx, tx, run)
		cost = known
		s.Tokens = map[string]int64{"input": tokens.Input, "cache_read": tokens.CacheRead, "cache_write": tokens.CacheWrite, "output": tokens.Output}
		return err
	})
	if err != nil {
		return s, err
	}
	if cost.Unpriced == 0 {
		usd := cost.Known.USD(4)
		s.CostUSD = &usd
	}
	if s.State != errand.PROpened {
		return s, fmt.Errorf("the run ended as %s (%s): %s", s.State, reason, reason.Sentence())
	}
	d.say("pull request: %s, branch %s", s.PullRequest, s.Branch)
	d.say("tokens: %d in, %d read from cache, %d written to it, %d out; cost: %s",
		s.Tokens["input"], s.Tokens["cache_read"], s.Tokens["cache_write"], s.Tokens["output"], cost)
	return s, nil
}
