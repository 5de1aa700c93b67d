package transitions_test

import (
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/transitions"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// every state and trigger that there is, and the pseudo-state before the first.
var (
	allStates = []errand.RunState{
		transitions.RunNew, errand.Queued, errand.Dispatching, errand.Dispatched, errand.Running, errand.Checking, errand.Publishing,
		errand.PROpened, errand.NoFix, errand.Rejected, errand.Failed, errand.TimedOut, errand.Cancelled,
	}
	allTriggers = []errand.Trigger{
		errand.TriggerCreated, errand.TriggerDispatchStarted, errand.TriggerGitHubAccepted, errand.TriggerGitHubRefused,
		errand.TriggerNothingFound, errand.TriggerRunStarted, errand.TriggerNeverStarted, errand.TriggerGitHubEnded,
		errand.TriggerProposal, errand.TriggerNothingToFix, errand.TriggerRunnerFailed, errand.TriggerAdmitted,
		errand.TriggerCorrection, errand.TriggerClaimRejected, errand.TriggerPathBlocked, errand.TriggerPullRequest,
		errand.TriggerPublishFailed, errand.TriggerDeadline, errand.TriggerCancel,
	}
)

// move is what a trigger leads to, from one state.
type move struct {
	trigger errand.Trigger
	to      []errand.RunState
}

// designTable is the table of the design document, written again by hand: one line for each of its rows.
func designTable() map[errand.RunState][]move {
	to := func(s ...errand.RunState) []errand.RunState { return s }
	fiveEnds := []move{
		{errand.TriggerNothingToFix, to(errand.NoFix)},
		{errand.TriggerRunnerFailed, to(errand.Failed)},
		{errand.TriggerDeadline, to(errand.TimedOut)},
		{errand.TriggerGitHubEnded, to(errand.Failed, errand.Cancelled)},
		{errand.TriggerCancel, to(errand.Cancelled)},
	}
	with := func(m ...move) []move { return append(m, fiveEnds...) }
	return map[errand.RunState][]move{
		transitions.RunNew: {{errand.TriggerCreated, to(errand.Queued)}},
		errand.Queued: {
			{errand.TriggerDispatchStarted, to(errand.Dispatching)},
			{errand.TriggerCancel, to(errand.Cancelled)},
			{errand.TriggerDeadline, to(errand.Failed)},
		},
		errand.Dispatching: {
			{errand.TriggerGitHubAccepted, to(errand.Dispatched)},
			{errand.TriggerGitHubRefused, to(errand.Failed)},
			{errand.TriggerNothingFound, to(errand.Queued)},
		},
		errand.Dispatched: {
			{errand.TriggerRunStarted, to(errand.Running)},
			{errand.TriggerNeverStarted, to(errand.TimedOut)},
			{errand.TriggerRunnerFailed, to(errand.Failed)},
			{errand.TriggerGitHubEnded, to(errand.Failed, errand.Cancelled)},
			{errand.TriggerCancel, to(errand.Cancelled)},
		},
		errand.Running: with(move{errand.TriggerProposal, to(errand.Checking)}),
		errand.Checking: with(
			move{errand.TriggerAdmitted, to(errand.Publishing)},
			move{errand.TriggerCorrection, to(errand.Running)},
			move{errand.TriggerClaimRejected, to(errand.Rejected)},
			move{errand.TriggerPathBlocked, to(errand.Rejected)},
		),
		errand.Publishing: with(
			move{errand.TriggerPullRequest, to(errand.PROpened)},
			move{errand.TriggerPublishFailed, to(errand.Failed)},
		),
	}
}

func runPolicy(t *testing.T) *transitions.Policy {
	t.Helper()
	p, err := transitions.RunPolicy()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ticket(expires time.Time) transitions.Grants {
	return transitions.Grants{Now: now, Held: []transitions.Grant{
		{Name: "ticket", IssuedBy: "runnerapi", Category: transitions.ErrorData, Expires: expires},
	}}
}

// TestTheRunPolicyIsTheDesignsTable asks about every state, every other state and every trigger.
func TestTheRunPolicyIsTheDesignsTable(t *testing.T) {
	t.Parallel()
	p := runPolicy(t)
	allowed := map[[3]string]bool{}
	for from, moves := range designTable() {
		for _, m := range moves {
			for _, to := range m.to {
				allowed[[3]string{string(from), string(to), string(m.trigger)}] = true
			}
		}
	}
	asked := 0
	for _, from := range allStates {
		for _, to := range allStates {
			for _, trigger := range allTriggers {
				want := transitions.Denied
				switch {
				case from.Ended():
					want = transitions.Terminal
				case allowed[[3]string{string(from), string(to), string(trigger)}]:
					want = transitions.Allowed
				}
				asked++
				if got := p.Check(string(from), string(to), string(trigger), ticket(now.Add(time.Second))); got != want {
					t.Errorf("%s -> %s on %s: %s, want %s", from, to, trigger, got, want)
				}
			}
		}
	}
	if want := 13 * 13 * 19; asked != want {
		t.Errorf("asked %d questions, want %d", asked, want)
	}
}

func TestTheRunPolicyUsesEveryConstantAndNoOther(t *testing.T) {
	t.Parallel()
	p := runPolicy(t)
	unused := map[string]bool{}
	for _, trigger := range allTriggers {
		unused[string(trigger)] = true
	}
	known := map[string]bool{}
	for _, trigger := range allTriggers {
		known[string(trigger)] = true
	}
	for _, r := range p.Rules() {
		for _, trigger := range r.Triggers {
			delete(unused, trigger)
			if !known[trigger] {
				t.Errorf("the trigger %q of %s -> %s is no errand.Trigger", trigger, r.From, r.To)
			}
		}
	}
	if len(unused) > 0 {
		t.Errorf("triggers that lead nowhere: %v", unused)
	}
	states := map[string]bool{}
	for _, s := range allStates {
		states[string(s)] = true
	}
	for _, s := range p.States() {
		if !states[s.Name] {
			t.Errorf("the state %q is no errand.RunState", s.Name)
		}
		if s.Terminal != errand.RunState(s.Name).Ended() {
			t.Errorf("the state %q: terminal = %v and Ended() = %v", s.Name, s.Terminal, errand.RunState(s.Name).Ended())
		}
		if s.Sensitive != (s.Name == string(errand.Running)) {
			t.Errorf("the state %q: sensitive = %v", s.Name, s.Sensitive)
		}
		delete(states, s.Name)
	}
	if len(states) > 0 {
		t.Errorf("states that the policy does not know: %v", states)
	}
	if p.Initial() != string(transitions.RunNew) || p.Mode() != transitions.Enforce {
		t.Errorf("initial %q, mode %q", p.Initial(), p.Mode())
	}
}

func TestEnteringRunningNeedsTheTicket(t *testing.T) {
	t.Parallel()
	p := runPolicy(t)
	otherCategory := ticket(now.Add(time.Hour))
	otherCategory.Held[0].Category = "customer_data"
	both := ticket(now)
	both.Held = append(both.Held, ticket(now.Add(time.Hour)).Held...)
	for _, tt := range []struct {
		says          string
		from, trigger string
		grants        transitions.Grants
		want          transitions.Result
	}{
		{"with the ticket", "dispatched", "run_started", ticket(now.Add(time.Nanosecond)), transitions.Allowed},
		{"without", "dispatched", "run_started", transitions.Grants{Now: now}, transitions.GrantMissing},
		{"at its end", "dispatched", "run_started", ticket(now), transitions.GrantExpired},
		{"with a grant that has no end", "dispatched", "run_started", ticket(time.Time{}), transitions.GrantExpired},
		{"with a grant for other data", "dispatched", "run_started", otherCategory, transitions.GrantMissing},
		{"with an old one and a new one", "dispatched", "run_started", both, transitions.Allowed},
		{"a step that is denied is denied before grants are asked for", "dispatched", "proposal", transitions.Grants{}, transitions.Denied},
		{"coming back from checking needs it as well", "checking", "correction", transitions.Grants{}, transitions.GrantMissing},
	} {
		if got := p.Check(tt.from, "running", tt.trigger, tt.grants); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.says, got, tt.want)
		}
	}
}

func TestNamesThatAreNotInThePolicy(t *testing.T) {
	t.Parallel()
	p := runPolicy(t)
	for _, tt := range []struct {
		from, to, trigger string
		want              transitions.Result
	}{
		{"queued", "asleep", "cancel", transitions.UnknownState},
		{"asleep", "cancelled", "cancel", transitions.UnknownState},
		{"failed", "asleep", "cancel", transitions.UnknownState},
		{"Queued", "cancelled", "cancel", transitions.UnknownState},
		{"", "", "", transitions.UnknownState},
		{"queued", "cancelled", "Cancel", transitions.Denied},
		{"queued", "cancelled", "", transitions.Denied},
	} {
		if got := p.Check(tt.from, tt.to, tt.trigger, transitions.Grants{}); got != tt.want {
			t.Errorf("%q -> %q on %q: %s, want %s", tt.from, tt.to, tt.trigger, got, tt.want)
		}
	}
}
