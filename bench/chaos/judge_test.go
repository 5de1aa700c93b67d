package main

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 9, 14, 12, 0, 0, 0, time.UTC)

// wellKept is a small world in which everything is as it should be: one delivery and its duplicate, one run that was
// dispatched twice after an unclear answer and let one runner in.
func wellKept() *facts {
	return &facts{
		told:     []told{{"src", "sha", "d1", "accepted"}, {"src", "sha", "d2", "duplicate"}, {"src", "other", "d3", "ignored"}},
		granted:  []grant{{run: "r1", nonce: "n1", attempt: "2", workflowRun: 72}},
		reported: []report{{run: "r1", steps: 3}, {run: "r1", state: "no_fix"}},
		accepted: []started{{"r1.1", 71}, {"r1.2", 72}},
		deliveries: map[string]delivery{
			"d1": {source: "src", org: "o", sha: "sha", outcome: "accepted", issue: "i1", event: true, at: noon},
			"d2": {source: "src", org: "o", sha: "sha", outcome: "duplicate", at: noon},
			"d3": {source: "src", org: "o", sha: "other", outcome: "ignored", at: noon},
		},
		issues: map[string]issue{"i1": {org: "o", source: "src"}},
		runs:   map[string]errandRun{"r1": {org: "o", issue: "i1", state: "no_fix", workflowRun: 72, steps: 3, created: noon}},
		history: []step{
			{"r1", "new", "queued", 1},
			{"r1", "queued", "dispatching", 2},
			{"r1", "dispatching", "queued", 3},
			{"r1", "queued", "dispatching", 4},
			{"r1", "dispatching", "dispatched", 5},
			{"r1", "dispatched", "running", 6},
			{"r1", "running", "no_fix", 7},
		},
		decisions: []decision{{issue: "i1", delivery: "d1", at: noon.Add(time.Second)}},
		jobs:      []job{{id: 1, kind: "consider_issue", state: "scheduled"}},
		caps:      map[string]int{"o": 1},
	}
}

// The oracle finds each fault that is planted in a world without any, in the right figure, and says what it is.
func TestTheOracleFindsAPlantedFaultOfEachKind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, figure, says string
		plant              func(*facts)
	}{
		{"nothing is wrong", "", "", func(*facts) {}},

		{"an acknowledged delivery is gone", "lost", "d1 was acknowledged as accepted and is not stored", func(f *facts) { delete(f.deliveries, "d1") }},
		{"an ignored one is gone", "lost", "d3 was acknowledged as ignored", func(f *facts) { delete(f.deliveries, "d3") }},
		{"it is stored with another outcome", "lost", "acknowledged as ignored and is stored as rejected", func(f *facts) {
			f.deliveries["d3"] = delivery{source: "src", sha: "other", outcome: "rejected"}
		}},
		{"it is stored with another body", "lost", "another body or source", func(f *facts) {
			f.deliveries["d3"] = delivery{source: "src", sha: "else", outcome: "ignored"}
		}},
		{"a duplicate of nothing", "lost", "nothing like it was ever taken", func(f *facts) { f.told = f.told[1:]; delete(f.deliveries, "d1") }},
		{"its issue is gone", "lost", "its issue does not exist", func(f *facts) { f.issues = nil }},
		{"nobody decided about it", "lost", "never decided about", func(f *facts) { f.decisions = nil }},
		{"nor after an earlier decision", "lost", "never decided about", func(f *facts) { f.decisions[0] = decision{issue: "i1", at: noon.Add(-time.Second)} }},
		{"a result is gone", "lost", "the result no_fix was acknowledged, and failed stands", func(f *facts) {
			f.runs["r1"] = errandRun{org: "o", issue: "i1", state: "failed", workflowRun: 72, steps: 3, created: noon}
			f.history[6].to = "failed"
		}},
		{"a step is gone", "lost", "3 steps were acknowledged, and 2 are stored", func(f *facts) {
			f.runs["r1"] = errandRun{org: "o", issue: "i1", state: "no_fix", workflowRun: 72, steps: 2, created: noon}
		}},

		{"GitHub accepted one attempt twice", "twice", "accepted the dispatch r1.2 twice", func(f *facts) { f.accepted = append(f.accepted, started{"r1.2", 73}) }},
		{"two attempts were let in", "twice", "run r1 let two runners in", func(f *facts) {
			f.granted = append(f.granted, grant{run: "r1", nonce: "n0", attempt: "1", workflowRun: 71})
		}},
		{"a ticket was used twice", "twice", "run r1 let two runners in", func(f *facts) {
			f.granted = append(f.granted, grant{run: "r1", nonce: "n2", attempt: "2", workflowRun: 72})
		}},
		{"one body was accepted twice", "twice", "accepted 2 times", func(f *facts) {
			f.deliveries["d4"] = f.deliveries["d1"]
		}},
		{"two runs of an issue were open at once", "twice", "issue i1: run r2 began while run r1 was at it", func(f *facts) {
			f.runs["r2"] = errandRun{org: "o", issue: "i1", state: "failed", created: noon.AddDate(0, 0, 1)}
			more := []step{{"r2", "new", "queued", 1}, {"r2", "queued", "failed", 2}}
			f.history = append(append(append([]step{}, f.history[:6]...), more...), f.history[6])
		}},
		{"two issues' runs are at one problem", "twice", "problem repo p: run r2 began while run r1 was at it", func(f *facts) {
			f.runs["r1"] = errandRun{org: "o", repository: "repo", issue: "i1", problem: "p", state: "pr_opened", workflowRun: 72, steps: 3, created: noon}
			f.history[6].to, f.reported = "pr_opened", nil
			f.runs["r2"] = errandRun{org: "o", repository: "repo", issue: "i2", problem: "p", state: "failed", created: noon.AddDate(0, 0, 1)}
			f.history = append(f.history, step{"r2", "new", "queued", 1}, step{"r2", "queued", "failed", 2})
		}},
		{"an ended run went on", "twice", "ended as no_fix and then went to pr_opened", func(f *facts) {
			f.history = append(f.history, step{"r1", "no_fix", "pr_opened", 8})
			f.runs["r1"] = errandRun{org: "o", issue: "i1", state: "pr_opened", workflowRun: 72, steps: 3, created: noon}
			f.reported = nil
		}},

		{"a run is open", "stuck", "run r1 is still running", func(f *facts) {
			f.runs["r1"] = errandRun{org: "o", issue: "i1", state: "running", workflowRun: 72, steps: 3, created: noon}
			f.history, f.reported = f.history[:6], nil
		}},
		{"a job was given up", "stuck", "was given up", func(f *facts) { f.jobs = append(f.jobs, job{kind: "dispatch_run", state: "discarded"}) }},
		{"a job was cancelled", "stuck", "was given up", func(f *facts) { f.jobs = append(f.jobs, job{kind: "dispatch_run", state: "cancelled"}) }},
		{"a job lies about", "stuck", "nobody works it", func(f *facts) {
			f.jobs = append(f.jobs, job{kind: "dispatch_run", state: "available", overdue: true})
		}},
		{"a wait has no end", "stuck", "waits for nothing", func(f *facts) { f.waits = []string{"issue i1 waits for nothing"} }},
		{"a job still holds the decision", "stuck", "still not decided about", func(f *facts) {
			f.decisions = nil
			f.jobs = append(f.jobs, job{kind: "consider_issue", state: "retryable", args: `{"delivery":"d1"}`})
		}},

		{"a cap was passed", "broken", "has 2 runs on 2026-09-14, and its cap is 1", func(f *facts) {
			f.runs["r2"] = errandRun{org: "o", issue: "i2", state: "failed", created: noon}
			f.history = append(f.history, step{"r2", "new", "queued", 1}, step{"r2", "queued", "failed", 2})
		}},
		{"a repository's cap was passed", "broken", "is the 2th open fix, and its cap is 1", func(f *facts) {
			f.fixCaps = map[string]int{"": 1}
			f.runs["r2"] = errandRun{org: "x", issue: "i2", state: "failed", created: noon}
			f.history = append([]step{{"r2", "new", "queued", 1}}, append(f.history, step{"r2", "queued", "failed", 2})...)
		}},
		{"a budget was passed", "broken", "and there is money for 1", func(f *facts) {
			f.caps, f.money = nil, map[string]int{"o": 1}
			f.runs["r2"] = errandRun{org: "o", issue: "i2", state: "failed", created: noon}
			f.history = append([]step{{"r2", "new", "queued", 1}}, append(f.history, step{"r2", "queued", "failed", 2})...)
		}},
		{"a step is missing from a history", "broken", "which was said to be from", func(f *facts) { f.history = append(f.history[:3], f.history[4:]...) }},
		{"the history ends elsewhere", "broken", "its history ends in", func(f *facts) { f.history = f.history[:6] }},
		{"a foreign workflow run was adopted", "broken", `GitHub made for "r9.1"`, func(f *facts) { f.accepted[1].marker = "r9.1" }},
		{"an issue of another organisation", "broken", "another organisation or source", func(f *facts) { f.issues["i1"] = issue{org: "x", source: "src"} }},
		{"a row of another organisation", "broken", "foreign", func(f *facts) { f.foreign = []string{"foreign"} }},
		{"something was seen", "broken", "seen", func(f *facts) { f.observed = []string{"seen"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := wellKept()
			c.plant(f)
			v := judge(f)
			found := map[string][]string{"lost": v.lost, "twice": v.twice, "stuck": v.stuck, "broken": v.broken}
			for figure, words := range found {
				if figure != c.figure && len(words) > 0 {
					t.Errorf("%s: %q", figure, words)
				}
			}
			if c.figure == "" {
				return
			}
			if words := strings.Join(found[c.figure], "\n"); !strings.Contains(words, c.says) {
				t.Errorf("%s says %q, want %q in it", c.figure, words, c.says)
			}
			if v.good() {
				t.Error("the verdict is good")
			}
		})
	}
}

// Runs made after the stored times were moved stand outside the caps' days.
func TestCapsAreNotCountedAfterTimeWasMoved(t *testing.T) {
	t.Parallel()
	f := wellKept()
	f.moved = noon.Add(time.Minute)
	f.runs["r2"] = errandRun{org: "o", issue: "i2", state: "failed", created: noon.Add(2 * time.Minute)}
	f.history = append(f.history, step{"r2", "new", "queued", 1}, step{"r2", "queued", "failed", 2})
	if v := judge(f); !v.good() {
		t.Errorf("%+v", v)
	}
}
