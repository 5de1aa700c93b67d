package webhooks_test

import (
	"strings"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/webhooks"
)

// B15: the list in its canonical order, and reversed.
func TestB15_TheTitleIsTakenFromTheRightEnd(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	id := func(n int) *int { return &n }
	x := func(typ string, inApp *bool, ids ...*int) errand.Exception {
		e := errand.Exception{Type: typ}
		if inApp != nil || typ == "unknown" {
			e.Frames = []errand.Frame{{InApp: inApp}}
		}
		if len(ids) > 0 {
			e.ID = ids[0]
		}
		if len(ids) > 1 {
			e.Parent = ids[1]
		}
		return e
	}
	group := func(e errand.Exception) errand.Exception { e.Group = true; return e }
	for _, c := range []struct {
		name string
		xs   []errand.Exception
		want string
	}{
		{"none", nil, ""},
		{"one without frames", []errand.Exception{x("A", nil)}, "A"},
		{"a chain in the canonical order: the last was raised", []errand.Exception{x("cause", &yes), x("raised", &yes)}, "raised"},
		{"a chain that an SDK reversed, with parents", []errand.Exception{x("raised", &yes, id(0)), x("cause", &yes, id(1), id(0))}, "raised"},
		{"the same in the canonical order", []errand.Exception{x("cause", &yes, id(1), id(0)), x("raised", &yes, id(0))}, "raised"},
		{"a wrapper of the framework gives way to its cause in the application", []errand.Exception{x("cause", &yes), x("wrapper", &no)}, "cause"},
		{"of two causes in the application the nearer to what was raised", []errand.Exception{x("deep", &yes), x("near", &yes), x("wrapper", &no)}, "near"},
		{"nothing in the application: what was raised", []errand.Exception{x("cause", &no), x("raised", &no)}, "raised"},
		{"not known is more than outside", []errand.Exception{x("unknown", nil), x("raised", &no)}, "unknown"},
		{"any frame is more than none", []errand.Exception{x("cause", &no), x("raised", nil)}, "cause"},
		{"a group gives way to its first member in the application", []errand.Exception{
			x("second", &yes, id(3), id(0)), x("first", &yes, id(2), id(0)), x("library", &no, id(1), id(0)), group(x("group", &yes, id(0))),
		}, "first"},
		{"a group within a group", []errand.Exception{x("leaf", &yes, id(2), id(1)), group(x("inner", &yes, id(1), id(0))), group(x("outer", &yes, id(0)))}, "leaf"},
		{"a group without members stands for itself", []errand.Exception{group(x("group", &no, id(0)))}, "group"},
		{"a circle loses nothing", []errand.Exception{x("a", &no, id(0), id(1)), x("b", &yes, id(1), id(0))}, "b"},
		{"its own parent", []errand.Exception{x("a", &yes, id(0), id(0))}, "a"},
		{"a parent that is not there", []errand.Exception{x("a", &yes, id(4), id(9)), x("b", &no, id(1))}, "a"},
	} {
		i := webhooks.Primary(c.xs)
		got := ""
		if i >= 0 {
			got = c.xs[i].Type
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTheCommitOfARelease(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("0123456789", 4)
	for release, want := range map[string]string{
		full: full, "shop@" + full: full, "checkout@1.42.0+9f3c2ab": "9f3c2ab", "1.0+deadbeef0": "deadbeef0", "app@1.0+" + full: full,
		"": "", "1.42.0": "", "app@1.2.3+4567890": "", "app@1.0+9f3c2": "", "9f3c2ab": "", "app@1.0+9F3C2AB": "", "app@1.0+9f3c2ab-dirty": "",
		full + "0": "", "app@": "", "+": "",
	} {
		if got := webhooks.CommitOf(release); got != want {
			t.Errorf("%q: %q, want %q", release, got, want)
		}
	}
}
