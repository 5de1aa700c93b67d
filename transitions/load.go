package transitions

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/errand-dev/errand"
)

// maxPolicy bounds a policy file in bytes.
const maxPolicy = 256 << 10

var nameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)

// Load reads a policy in YAML or JSON:
//
//	deny_by_default: true            # required: there is no other kind
//	mode: enforce                    # or observe; enforce if left out
//	initial: NAME                    # where a session begins
//	states: {NAME: {desc: TEXT, sensitive: BOOL, categories: [NAME], terminal: BOOL}}
//	transitions: [{from: NAME, to: NAME, triggers: [NAME]}]    # one row per pair
//
// It is strict: a field that it does not know, a state that is not listed, anything said twice, two names that differ only
// in case, a state that cannot be reached and one from which no end can be reached are errors. The error is Invalid, tells
// all that was found, and gives the line of each.
func Load(data []byte) (*Policy, error) {
	if len(data) > maxPolicy {
		return nil, errand.Invalid("policy", "%d bytes: want at most %d", len(data), maxPolicy)
	}
	r := &reader{}
	b := &builder{reader: r, policy: &Policy{
		mode: Enforce, byName: map[string]State{}, allowed: map[step]bool{},
	}, lines: map[string]int{}, folded: map[string]string{}}
	if root, ok := r.document(data); ok {
		b.build(root)
	}
	if len(r.problems) > 0 {
		return nil, errand.Invalid("policy", "%s", strings.Join(r.sorted(), "; "))
	}
	return b.policy, nil
}

// builder makes a policy from the file's parts and notes what is wrong.
type builder struct {
	*reader
	policy *Policy
	lines  map[string]int    // where each state stands
	folded map[string]string // each name by its lower-case form
}

func (b *builder) build(root mapping) {
	b.only(root, "deny_by_default", "mode", "initial", "states", "transitions")
	if deny, ok := root["deny_by_default"]; !ok || !b.boolean(deny) {
		b.problem(max(deny.line, 1), "`deny_by_default: true` is required: what a policy does not allow is refused")
	}
	if mode, ok := root["mode"]; ok {
		b.policy.mode = Mode(b.text(mode))
		if b.policy.mode != Enforce && b.policy.mode != Observe {
			b.problem(mode.line, "mode %q: want enforce or observe", b.policy.mode)
		}
	}
	states, hasStates := root["states"]
	if !hasStates {
		b.problem(1, "`states` is missing")
	}
	for _, e := range b.entries(states) {
		b.state(e)
	}
	initial, hasInitial := root["initial"]
	if !hasInitial {
		b.problem(1, "`initial` is missing: name the state in which a session begins")
	} else {
		b.policy.initial = b.known(initial, "initial")
	}
	rules, hasRules := root["transitions"]
	if !hasRules {
		b.problem(1, "`transitions` is missing")
	}
	for _, n := range b.list(rules) {
		b.rule(n)
	}
	if len(b.problems) == 0 {
		b.connected()
	}
}

func (b *builder) state(e entry) {
	name := b.name(e.key, "state")
	fields := b.fields(e.value)
	b.only(fields, "sensitive", "categories", "desc", "terminal")
	s := State{
		Name: name, Desc: b.text(fields["desc"]),
		Sensitive: b.boolean(fields["sensitive"]), Terminal: b.boolean(fields["terminal"]),
	}
	for _, n := range b.list(fields["categories"]) {
		category := b.name(n, "category")
		if slices.Contains(s.Categories, category) {
			b.problem(n.line, "state %q: category %q is given twice", name, category)
		}
		s.Categories = append(s.Categories, category)
	}
	if s.Sensitive != (len(s.Categories) > 0) {
		b.problem(e.key.line, "state %q: `sensitive: true` and `categories` go together", name)
	}
	if _, twice := b.policy.byName[name]; twice {
		b.problem(e.key.line, "state %q is given twice", name)
		return
	}
	b.policy.states = append(b.policy.states, s)
	b.policy.byName[name] = s
	b.lines[name] = e.key.line
}

func (b *builder) rule(n node) {
	fields := b.fields(n)
	b.only(fields, "from", "to", "triggers")
	for _, want := range []string{"from", "to", "triggers"} {
		if _, ok := fields[want]; !ok {
			b.problem(n.line, "a transition without `%s`", want)
			return
		}
	}
	rule := Rule{From: b.known(fields["from"], "from"), To: b.known(fields["to"], "to")}
	for _, t := range b.list(fields["triggers"]) {
		trigger := b.name(t, "trigger")
		if slices.Contains(rule.Triggers, trigger) {
			b.problem(t.line, "trigger %q is given twice", trigger)
		}
		rule.Triggers = append(rule.Triggers, trigger)
		b.policy.allowed[step{rule.From, rule.To, trigger}] = true
	}
	if len(rule.Triggers) == 0 {
		b.problem(n.line, "the transition %s -> %s has no trigger", rule.From, rule.To)
	}
	if b.policy.byName[rule.From].Terminal {
		b.problem(n.line, "the transition %s -> %s leads out of a terminal state", rule.From, rule.To)
	}
	if slices.ContainsFunc(b.policy.rules, func(r Rule) bool { return r.From == rule.From && r.To == rule.To }) {
		b.problem(n.line, "the pair %s -> %s has a row already: one row per pair, with all its triggers", rule.From, rule.To)
	}
	b.policy.rules = append(b.policy.rules, rule)
}

// name reads a name and holds it against all others: two that differ only in case would be taken for each other.
func (b *builder) name(n node, what string) string {
	name := b.text(n)
	if !nameForm.MatchString(name) {
		b.problem(n.line, "%s %q: want a letter, then letters, digits, `_`, `.` or `-`, at most 64", what, name)
		return name
	}
	key := what + " " + strings.ToLower(name)
	if other, ok := b.folded[key]; ok && other != name {
		b.problem(n.line, "%s %q and %q differ only in case", what, name, other)
	}
	b.folded[key] = name
	return name
}

// known reads the name of a state that is listed.
func (b *builder) known(n node, where string) string {
	name := b.text(n)
	if _, ok := b.policy.byName[name]; !ok {
		b.problem(n.line, "%s: no state is called %q", where, name)
	}
	return name
}

// connected finds the states that no session can reach, and those from which it could never end.
func (b *builder) connected() {
	p := b.policy
	reached := closure([]string{p.initial}, func(r Rule) (string, string) { return r.From, r.To }, p.rules)
	var ends []string
	for _, s := range p.states {
		if s.Terminal {
			ends = append(ends, s.Name)
		}
	}
	ending := closure(ends, func(r Rule) (string, string) { return r.To, r.From }, p.rules)
	for _, s := range p.states {
		if !reached[s.Name] {
			b.problem(b.lines[s.Name], "state %q cannot be reached from %q", s.Name, p.initial)
		}
		if !ending[s.Name] {
			b.problem(b.lines[s.Name], "state %q is a dead end: no terminal state can be reached from it", s.Name)
		}
	}
}

// closure collects what can be reached from the seeds along the rules.
func closure(seeds []string, along func(Rule) (from, to string), rules []Rule) map[string]bool {
	seen := map[string]bool{}
	for len(seeds) > 0 {
		at := seeds[0]
		seeds = seeds[1:]
		if seen[at] {
			continue
		}
		seen[at] = true
		for _, r := range rules {
			if from, to := along(r); from == at {
				seeds = append(seeds, to)
			}
		}
	}
	return seen
}

func (r *reader) problem(line int, format string, args ...any) {
	r.problems = append(r.problems, problem{line, fmt.Sprintf(format, args...)})
}
