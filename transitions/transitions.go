// Package transitions is a deny-by-default state machine: what may happen is written down in a policy, and every step is
// held against it before it is taken. Errand's own run (policies/run.yaml) is its first user.
//
// It imports the root only. Start reading at Policy.Check; what a policy file may say is at Load.
package transitions

import (
	_ "embed"
	"slices"
	"time"

	"github.com/errand-dev/errand"
)

// Result is the answer to a step: a closed set. Only Allowed lets it happen.
type Result string

// The results.
const (
	Allowed      Result = "ALLOWED"
	Denied       Result = "DENIED"        // the triple (from, to, trigger) is not in the policy
	GrantMissing Result = "GRANT_MISSING" // the state shows data for which nobody gave a grant
	GrantExpired Result = "GRANT_EXPIRED" // somebody did, and it is over
	UnknownState Result = "UNKNOWN_STATE" // one of the two states is not in the policy
	Terminal     Result = "TERMINAL"      // nothing leads out of the state
)

// Mode says what a policy's answers are for.
type Mode string

// The modes. Check answers the same in both; in observe mode its caller records the answer and goes on.
const (
	Enforce Mode = "enforce"
	Observe Mode = "observe"
)

// State is one state of a policy.
type State struct {
	Name       string
	Desc       string
	Sensitive  bool     // entering it shows data: a grant for each category is needed
	Categories []string // of a sensitive state, at least one
	Terminal   bool
}

// Rule allows the step between one pair of states on any of its triggers.
type Rule struct {
	From, To string
	Triggers []string
}

// Policy is a checked policy. It does not change and is safe for concurrent use.
type Policy struct {
	mode    Mode
	initial string
	states  []State // in the order of the file
	rules   []Rule
	byName  map[string]State
	allowed map[step]bool
}

type step struct{ from, to, trigger string }

// Grant lets a session see one category of data until it expires.
type Grant struct {
	Name     string // what it is: "ticket"
	IssuedBy string
	Category string
	Expires  time.Time // the zero time is over: a grant without an end does not exist
}

// Grants are what a session holds, at a time. The zero value holds nothing.
type Grants struct {
	Now  time.Time
	Held []Grant
}

// Check answers whether the step may be taken. It asks in this order: are the states known, has the session ended, is the
// triple allowed, is there a grant for every category of the state to enter. A grant that is missing outweighs one that
// has expired.
func (p *Policy) Check(from, to, trigger string, grants Grants) Result {
	source, ok := p.byName[from]
	target, ok2 := p.byName[to]
	switch {
	case !ok || !ok2:
		return UnknownState
	case source.Terminal:
		return Terminal
	case !p.allowed[step{from, to, trigger}]:
		return Denied
	}
	result := Allowed
	for _, category := range target.Categories {
		if held := grants.look(category); held == GrantMissing {
			return GrantMissing
		} else if held == GrantExpired {
			result = GrantExpired
		}
	}
	return result
}

// look finds the best grant for the category.
func (g Grants) look(category string) Result {
	best := GrantMissing
	for _, grant := range g.Held {
		if grant.Category != category {
			continue
		}
		if g.Now.Before(grant.Expires) {
			return Allowed
		}
		best = GrantExpired
	}
	return best
}

// Mode tells what the answers are for.
func (p *Policy) Mode() Mode { return p.mode }

// Initial names the state in which a session begins.
func (p *Policy) Initial() string { return p.initial }

// States lists the states in the order of the file.
func (p *Policy) States() []State { return slices.Clone(p.states) }

// Rules lists what is allowed in the order of the file.
func (p *Policy) Rules() []Rule { return slices.Clone(p.rules) }

//go:embed policies/run.yaml
var runPolicy []byte

// The names in policies/run.yaml that the code refers to, beside errand.RunState and errand.Trigger.
const (
	// RunNew is where a run is before it is created.
	RunNew errand.RunState = "new"
	// ErrorData is what a run shows its runner from `running` on.
	ErrorData = "error_data"
)

// RunPolicy loads the policy of a run's life.
func RunPolicy() (*Policy, error) { return Load(runPolicy) }
