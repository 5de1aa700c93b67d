package transitions_test

import (
	"strings"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/transitions"
)

const door = `deny_by_default: true
initial: shut
states:
  shut: {desc: Closed.}
  open: {sensitive: true, categories: [inside, outside]}
  gone: {terminal: true}
transitions:
  - {from: shut, to: open, triggers: [push, pull]}
  - {from: open, to: shut, triggers: [slam]}
  - {from: shut, to: gone, triggers: [remove]}
`

func TestAPolicyIsReadAsWritten(t *testing.T) {
	t.Parallel()
	asJSON := `{
	"deny_by_default": true, "mode": "observe", "initial": "shut",
	"states": {"shut": {"desc": "Closed."}, "open": {"sensitive": true, "categories": ["inside", "outside"]}, "gone": {"terminal": true}},
	"transitions": [
		{"from": "shut", "to": "open", "triggers": ["push", "pull"]},
		{"from": "open", "to": "shut", "triggers": ["slam"]},
		{"from": "shut", "to": "gone", "triggers": ["remove"]}
	]
}`
	for text, mode := range map[string]transitions.Mode{door: transitions.Enforce, asJSON: transitions.Observe} {
		p, err := transitions.Load([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if p.Mode() != mode || len(p.States()) != 3 || len(p.Rules()) != 3 || p.States()[0].Desc != "Closed." {
			t.Errorf("read %+v, %+v in mode %q", p.States(), p.Rules(), p.Mode())
		}
		one := transitions.Grants{Now: now, Held: []transitions.Grant{{Category: "inside", Expires: now.Add(1)}}}
		if got := p.Check("shut", "open", "pull", one); got != transitions.GrantMissing {
			t.Errorf("with a grant for one category of two: %s", got)
		}
		one.Held = append(one.Held, transitions.Grant{Category: "outside", Expires: now})
		if got := p.Check("shut", "open", "pull", transitions.Grants{Now: now, Held: one.Held[1:]}); got != transitions.GrantMissing {
			t.Errorf("with nothing for the first and an expired grant for the second: %s", got)
		}
		if got := p.Check("shut", "open", "pull", one); got != transitions.GrantExpired {
			t.Errorf("with an expired grant for the second: %s", got)
		}
		one.Held[1].Expires = now.Add(1)
		if got := p.Check("shut", "open", "pull", one); got != transitions.Allowed {
			t.Errorf("with both: %s", got)
		}
	}
}

// Each row changes one thing of a good policy and gives the words, with the line, that tell what is wrong.
func TestPoliciesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ says, old, new, want string }{
		{"nothing", door, "", "line 1: 0 documents"},
		{"two documents", "deny_by", "initial: x\n---\ndeny_by", "line 1: 2 documents"},
		{"not YAML", "states:", "states: [", "line "},
		{"a list", door, "- a\n", "line 1: sequence where a mapping is wanted"},
		{"allow by default", "deny_by_default: true", "deny_by_default: false", "line 1: `deny_by_default: true` is required"},
		{"no word on the default", "deny_by_default: true\n", "", "line 1: `deny_by_default: true` is required"},
		{"a default that is a word", "deny_by_default: true", "deny_by_default: 'true'", "line 1: string where true or false is wanted"},
		{"a mode that is none", "initial:", "mode: shout\ninitial:", `line 2: mode "shout"`},
		{"a field that is not known", "initial:", "colour: red\ninitial:", `line 2: "colour" is not a field here`},
		{"a field of a state that is not known", "desc: Closed.", "description: Closed.", `line 4: "description" is not a field here`},
		{"a field of a transition that is not known", "{from: shut, to: gone,", "{from: shut, to: gone, when: now,", `line 10: "when" is not a field here`},
		{"no start", "initial: shut\n", "", "`initial` is missing"},
		{"a start that is not listed", "initial: shut", "initial: ajar", `line 2: initial: no state is called "ajar"`},
		{"a state that is not listed", "from: open", "from: ajar", `line 9: from: no state is called "ajar"`},
		{"a target that is not listed", "to: gone", "to: went", `line 10: to: no state is called "went"`},
		{"a state given twice", "  gone:", "  shut: {}\n  gone:", "line 6: "},
		{"two states that differ only in case", "  gone:", "  Shut: {}\n  gone:", `line 6: state "Shut" and "shut" differ only in case`},
		{"two triggers that differ only in case", "[slam]", "[Push]", `line 9: trigger "Push" and "push" differ only in case`},
		{"a trigger twice in a row", "[push, pull]", "[push, push]", `line 8: trigger "push" is given twice`},
		{"two rows for a pair", "{from: open, to: shut, triggers: [slam]}", "{from: shut, to: open, triggers: [kick]}", "line 9: the pair shut -> open has a row already"},
		{"no trigger", "[slam]", "[]", "line 9: the transition open -> shut has no trigger"},
		{"triggers left out", ", triggers: [slam]", "", "line 9: a transition without `triggers`"},
		{"a way out of a terminal state", "{from: open, to: shut", "{from: gone, to: shut", "line 9: the transition gone -> shut leads out of a terminal state"},
		{"a state that cannot be reached", "  gone:", "  attic: {terminal: true}\n  gone:", `line 6: state "attic" cannot be reached from "shut"`},
		{"a dead end", "gone: {terminal: true}", "gone: {}", `line 6: state "gone" is a dead end`},
		{"a circle without an end", "  - {from: open, to: shut, triggers: [slam]}", "  - {from: open, to: open, triggers: [slam]}", `line 5: state "open" is a dead end`},
		{"sensitive without categories", ", categories: [inside, outside]", "", "line 5: state \"open\": `sensitive: true` and `categories` go together"},
		{"categories without sensitive", "sensitive: true, ", "", "go together"},
		{"a category twice", "[inside, outside]", "[inside, inside]", `line 5: state "open": category "inside" is given twice`},
		{"a name with a blank", "  gone:", "  'g one': {}\n  gone:", `line 6: state "g one": want a letter`},
		{"a number for a name", "[slam]", "[7]", "line 9: integer where a word is wanted"},
		{"a word for a list", "[slam]", "slam", "line 9: string where a list is wanted"},
		{"an alias", "desc: Closed.", "desc: *x", "line 4: "},
		{"an anchor", "desc: Closed.", "desc: &x Closed.", "line 4: anchor where a word is wanted"},
	} {
		if !strings.Contains(door, tt.old) {
			t.Fatalf("%s: %q is not in the policy", tt.says, tt.old)
		}
		_, err := transitions.Load([]byte(strings.Replace(door, tt.old, tt.new, 1)))
		if errand.CodeOf(err) != errand.CodeInvalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s:\n got %v\nwant %s", tt.says, err, tt.want)
		}
	}
	if _, err := transitions.Load(make([]byte, 300<<10)); err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("a file too large: %v", err)
	}
}

func TestAllProblemsAreToldAtOnceInOrder(t *testing.T) {
	t.Parallel()
	bad := strings.NewReplacer("from: open", "from: ajar", "initial: shut", "initial: ajar", "to: gone", "to: went").Replace(door)
	_, err := transitions.Load([]byte(bad))
	if err == nil {
		t.Fatal("accepted")
	}
	text := err.Error()
	at := -1
	for _, line := range []string{"line 2:", "line 9:", "line 10:"} {
		i := strings.Index(text, line)
		if i <= at {
			t.Fatalf("%s\nwant %s, in order", text, line)
		}
		at = i
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(door))
	f.Add([]byte(`{"deny_by_default": true}`))
	f.Add([]byte("a: &b [*b]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := transitions.Load(data)
		if (p == nil) == (err == nil) {
			t.Errorf("Load gave %v and %v", p, err)
		}
	})
}
