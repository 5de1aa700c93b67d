package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// facts are everything the oracle goes by: what senders and runners were told, what GitHub accepted, and what is stored.
type facts struct {
	told     []told    // answers of 202 to senders
	granted  []grant   // exchanges answered with a run token
	reported []report  // results and steps that a runner was told are kept
	accepted []started // workflow runs that GitHub made

	deliveries map[string]delivery
	issues     map[string]issue
	runs       map[string]errandRun
	history    []step // the journal's transitions, oldest first
	decisions  []decision
	jobs       []job
	caps       map[string]int // runs a day, by organisation
	fixCaps    map[string]int // runs under way and pull requests that stand, by repository
	money      map[string]int // runs under way for which there is money, by organisation
	waits      []string       // waits that nobody will end
	moved      time.Time      // when the stored times were first moved: runs made later are outside the caps' days; zero = never

	foreign  []string // rows whose organisation is not that of what they refer to
	observed []string // what the harness itself saw go wrong: a bad signature believed, a replica that ended by itself
}

type told struct {
	source, sha, delivery, outcome string
}

type grant struct {
	run, nonce  string
	attempt     string // of the dispatch, from the workflow's own input
	workflowRun int64
}

type report struct {
	run   string
	state string // "" = steps only
	steps int
}

type started struct {
	marker string // <run>.<attempt>
	id     int64
}

type delivery struct {
	source, org, sha, outcome, issue string
	event                            bool // it carried one, so it had to be decided about
	at                               time.Time
}

type issue struct{ org, source string }

type errandRun struct {
	org, repository, issue, problem, state string
	workflowRun                            int64 // 0 = not known
	steps                                  int
	created                                time.Time
}

type step struct {
	run, from, to string
	version       int64
}

type decision struct {
	issue, delivery string
	at              time.Time
}

type job struct {
	id                     int64
	kind, state, args, why string
	overdue                bool // it could have been worked and was not
}

// verdict is what the oracle found, each in words. An empty list is a good one.
type verdict struct {
	lost, twice, stuck, broken []string
}

func (v *verdict) good() bool { return len(v.lost)+len(v.twice)+len(v.stuck)+len(v.broken) == 0 }

// judge compares. It is a function of the facts alone, so that each of its eyes can be shown to see.
func judge(f *facts) *verdict {
	v := &verdict{broken: slices.Concat(f.foreign, f.observed)}
	f.nothingLost(v)
	f.allDecided(v)
	f.onceAccepted(v)
	f.onceDispatched(v)
	f.oneAtATime(v)
	f.nothingStuck(v)
	f.historiesHold(v)
	f.capsHold(v)
	return v
}

func note(list *[]string, format string, args ...any) {
	*list = append(*list, fmt.Sprintf(format, args...))
}

// nothingLost: what a sender or a runner was told stands in the database, word for word.
func (f *facts) nothingLost(v *verdict) {
	first := map[[2]string]bool{} // bodies that were taken as something other than a duplicate
	for _, d := range f.deliveries {
		if d.outcome != "duplicate" {
			first[[2]string{d.source, d.sha}] = true
		}
	}
	for _, t := range f.told {
		d, stored := f.deliveries[t.delivery]
		switch {
		case !stored:
			note(&v.lost, "delivery %s was acknowledged as %s and is not stored", t.delivery, t.outcome)
		case d.source != t.source || d.sha != t.sha:
			note(&v.lost, "delivery %s is stored with another body or source than was acknowledged", t.delivery)
		case d.outcome != t.outcome:
			note(&v.lost, "delivery %s was acknowledged as %s and is stored as %s", t.delivery, t.outcome, d.outcome)
		case t.outcome == "duplicate" && !first[[2]string{t.source, t.sha}]:
			note(&v.lost, "delivery %s was called a duplicate, and nothing like it was ever taken", t.delivery)
		}
	}
	steps := map[string]int{}
	for _, r := range f.reported {
		steps[r.run] = max(steps[r.run], r.steps)
		if have, ok := f.runs[r.run]; r.state != "" && (!ok || have.state != r.state) {
			note(&v.lost, "run %s: the result %s was acknowledged, and %s stands", r.run, r.state, cmp.Or(have.state, "nothing"))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(steps)) {
		if have := f.runs[id].steps; have < steps[id] {
			note(&v.lost, "run %s: %d steps were acknowledged, and %d are stored", id, steps[id], have)
		}
	}
}

// allDecided: each accepted event's issue exists and was decided about after it came. Whether the sender ever heard of it
// does not matter: its retry may have been answered as a duplicate of this one.
func (f *facts) allDecided(v *verdict) {
	last, byDelivery := map[string]time.Time{}, map[string]bool{}
	for _, d := range f.decisions {
		byDelivery[d.delivery] = true
		if d.at.After(last[d.issue]) {
			last[d.issue] = d.at
		}
	}
	waiting := func(delivery string) bool {
		return slices.ContainsFunc(f.jobs, func(j job) bool { return strings.Contains(j.args, delivery) })
	}
	for _, id := range slices.Sorted(maps.Keys(f.deliveries)) {
		d := f.deliveries[id]
		if d.outcome != "accepted" || !d.event {
			continue
		}
		is, ok := f.issues[d.issue]
		switch {
		case !ok:
			note(&v.lost, "delivery %s was accepted, and its issue does not exist", id)
		case is.org != d.org || is.source != d.source:
			note(&v.broken, "delivery %s hangs on an issue of another organisation or source", id)
		case byDelivery[id] || !last[d.issue].Before(d.at):
		case waiting(id):
			note(&v.stuck, "delivery %s was accepted and is still not decided about", id)
		default:
			note(&v.lost, "delivery %s was accepted and never decided about, and no job will", id)
		}
	}
}

// onceAccepted: the same body at the same source is news once, however often and wherever it was sent.
func (f *facts) onceAccepted(v *verdict) {
	count := map[[2]string]int{}
	for _, d := range f.deliveries {
		if d.outcome == "accepted" && d.event {
			count[[2]string{d.source, d.sha}]++
		}
	}
	for k, n := range count {
		if n > 1 {
			note(&v.twice, "one body at source %s was accepted %d times", k[0], n)
		}
	}
}

// onceDispatched: GitHub never saw one attempt twice, and of all the attempts of a run one runner at most was let in.
func (f *facts) onceDispatched(v *verdict) {
	seen := map[string]int64{}
	byID := map[int64]string{}
	for _, a := range f.accepted {
		if other, ok := seen[a.marker]; ok {
			note(&v.twice, "GitHub accepted the dispatch %s twice: workflow runs %d and %d", a.marker, other, a.id)
		}
		seen[a.marker], byID[a.id] = a.id, a.marker
	}
	first := map[string]grant{}
	for _, g := range f.granted {
		have, ok := first[g.run]
		switch {
		case !ok:
			first[g.run] = g
		case have.nonce != g.nonce:
			note(&v.twice, "run %s let two runners in: attempt %s (workflow run %d) and attempt %s (workflow run %d)",
				g.run, have.attempt, have.workflowRun, g.attempt, g.workflowRun)
		}
		r, ok := f.runs[g.run]
		switch {
		case !ok:
			note(&v.lost, "run %s let a runner in and does not exist", g.run)
		case r.workflowRun != first[g.run].workflowRun:
			note(&v.broken, "run %s is kept as workflow run %d, and %d exchanged its ticket", g.run, r.workflowRun, g.workflowRun)
		}
	}
	for id, r := range f.runs {
		if marker := byID[r.workflowRun]; r.workflowRun != 0 && !strings.HasPrefix(marker, id+".") {
			note(&v.broken, "run %s is kept as workflow run %d, which GitHub made for %q", id, r.workflowRun, marker)
		}
	}
}

// oneAtATime plays the history again. An issue has one open run at most, and none beside a pull request that stands; so has
// a problem in a repository; and no cap is passed by those that are decided at the same moment. The journal's order is the
// order of the transactions that saw each other; the runs' own times are not, because a process may be stopped between
// looking at its clock and writing.
func (f *facts) oneAtATime(v *verdict) {
	held := map[string]string{}                       // what a run holds -> the run
	fixes, open := map[string]int{}, map[string]int{} // by repository, by organisation
	for _, s := range f.history {
		r, ok := f.runs[s.run]
		if !ok {
			note(&v.broken, "the history speaks of run %s, which does not exist", s.run)
			continue
		}
		holds := []string{"issue " + r.issue}
		if r.problem != "" {
			holds = append(holds, "problem "+r.repository+" "+r.problem)
		}
		switch {
		case s.from == "new":
			for _, h := range holds {
				if other := held[h]; other != "" {
					note(&v.twice, "%s: run %s began while run %s was at it", h, s.run, other)
				}
				held[h] = s.run
			}
			fixes[r.repository]++
			open[r.org]++
			if most, ok := f.fixCaps[r.repository]; ok && fixes[r.repository] > most {
				note(&v.broken, "repository %s: run %s is the %dth open fix, and its cap is %d", r.repository, s.run, fixes[r.repository], most)
			}
			if most, ok := f.money[r.org]; ok && open[r.org] > most {
				note(&v.broken, "organisation %s: run %s is the %dth under way, and there is money for %d", r.org, s.run, open[r.org], most)
			}
		case ended(s.to) && !ended(s.from):
			open[r.org]--
			if s.to == "pr_opened" { // it goes on holding
				continue
			}
			fixes[r.repository]--
			for _, h := range holds {
				if held[h] == s.run {
					delete(held, h)
				}
			}
		}
	}
}

// nothingStuck: by now every deadline there is has passed.
func (f *facts) nothingStuck(v *verdict) {
	for _, id := range slices.Sorted(maps.Keys(f.runs)) {
		if r := f.runs[id]; !ended(r.state) {
			note(&v.stuck, "run %s is still %s", id, r.state)
		}
	}
	v.stuck = append(v.stuck, f.waits...)
	for _, j := range f.jobs {
		switch {
		case j.state == "discarded" || j.state == "cancelled":
			note(&v.stuck, "job %d (%s %s) was given up: %s", j.id, j.kind, j.args, j.why)
		case j.overdue:
			note(&v.stuck, "job %d (%s %s) is %s and nobody works it: %s", j.id, j.kind, j.args, j.state, j.why)
		}
	}
}

// historiesHold: a run's steps follow one another, none is missing, and nothing follows an end.
func (f *facts) historiesHold(v *verdict) {
	last := map[string]step{}
	for _, s := range f.history {
		before, ok := last[s.run]
		switch {
		case !ok && s.from != "new":
			note(&v.broken, "run %s: its history begins in %s", s.run, s.from)
		case ok && ended(before.to):
			note(&v.twice, "run %s ended as %s and then went to %s", s.run, before.to, s.to)
		case ok && (before.to != s.from || before.version+1 != s.version):
			note(&v.broken, "run %s: from %s (version %d) to %s (version %d), which was said to be from %s", s.run, before.to, before.version, s.to, s.version, s.from)
		}
		last[s.run] = s
	}
	for id, r := range f.runs {
		if s := last[id]; s.to != r.state {
			note(&v.broken, "run %s is %s, and its history ends in %q", id, r.state, s.to)
		}
	}
}

func (f *facts) capsHold(v *verdict) {
	type day struct{ org, day string }
	count := map[day]int{}
	for _, r := range f.runs {
		if f.moved.IsZero() || r.created.Before(f.moved) {
			count[day{r.org, r.created.UTC().Format(time.DateOnly)}]++
		}
	}
	for d, n := range count {
		if most, ok := f.caps[d.org]; ok && n > most {
			note(&v.broken, "organisation %s has %d runs on %s, and its cap is %d", d.org, n, d.day, most)
		}
	}
}

func ended(state string) bool {
	return slices.Contains([]string{"pr_opened", "no_fix", "rejected", "failed", "timed_out", "cancelled"}, state)
}
