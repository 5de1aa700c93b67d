package dispatch

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/errand-dev/errand"
)

func TestMessagesOfTheSameProblemAreTheSame(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ differs, a, b string }{
		{"a number", "user 17 not found", "user 4711 not found"},
		{"a number of a sign", "offset -3 out of range", "offset 12 out of range"},
		{"a fraction", "took 1.5 s", "took 12.25e3 s"},
		{"a number behind a word", "worker-3 died", "worker-12 died"},
		{"an id", "order 3f1c6d1e-7c7f-4a07-9d1b-0a3f2b9c1d22 missing", "order 9b2d6d1e-7c7f-4a07-9d1b-aaaabbbbcccc missing"},
		{"an id of letters alone", "blob deadbeefdeadbeef", "blob 00ff00ff00ff00ff"},
		{"an address in memory", "object at 0x7f3e1c", "object at 0x10"},
		{"a path", "cannot open /srv/app/tmp/a.txt", `cannot open C:\tmp\other.txt`},
		{"a time", "expired at 2026-01-02T03:04:05Z", "expired at 2027-11-12 13:14:15.123 +02:00"},
		{"an address", "GET https://a.example/x?y=1 failed", "GET http://b.example/ failed"},
		{"a mail address", "no account for jo@example.com", "no account for al@example.org"},
		{"a host", "connect 10.0.0.1:5432: refused", "connect 192.168.7.33:6432: refused"},
		{"a quoted value", `KeyError: "shipping_zone"`, `KeyError: "currency"`},
		{"a value in single quotes", "KeyError: 'shipping zone'", "KeyError: 'it isn't there'"},
		{"a value in backticks", "no column `a b`", "no column `c`"},
		{"the length of a list", "ids [1, 2, 3] are gone", "ids [5] are gone"},
		{"white space", "a  b\n c", "a b c"},
	} {
		if a, b := Normalise(tt.a), Normalise(tt.b); a != b || !strings.Contains(a, "*") && tt.differs != "white space" {
			t.Errorf("%s differs: %q and %q", tt.differs, a, b)
		}
	}
}

func TestMessagesOfOtherProblemsStayApart(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]string{
		{"user 17 not found", "order 17 not found"},
		{"can't open", "can't close"},
		{"the cat's out", "the dog's out"},
		{"", "x"},
		{`"a" is required`, `"a" is unknown`},
	} {
		if Normalise(tt[0]) == Normalise(tt[1]) {
			t.Errorf("%q and %q are both %q", tt[0], tt[1], Normalise(tt[0]))
		}
	}
}

func TestProblemKey(t *testing.T) {
	t.Parallel()
	event := func(change func(*errand.Event)) *errand.Event {
		e := crash(file("/srv/app/cart.py"))
		e.Exceptions[0].Type, e.Exceptions[0].Value, e.Exceptions[0].Frames[0].Function = "KeyError", "no zone 17", "price"
		change(e)
		return e
	}
	base := ProblemKey(event(func(*errand.Event) {}))
	for _, tt := range []struct {
		says   string
		change func(*errand.Event)
		same   bool
	}{
		{"another number", func(e *errand.Event) { e.Exceptions[0].Value = "no zone 4" }, true},
		{"another line", func(e *errand.Event) { e.Exceptions[0].Frames[0].Line = 99 }, true},
		{"other tags and another release", func(e *errand.Event) { e.Release = "2"; e.Tags = []errand.Tag{{Key: "a", Value: "b"}} }, true},
		{"another type", func(e *errand.Event) { e.Exceptions[0].Type = "ValueError" }, false},
		{"other words", func(e *errand.Event) { e.Exceptions[0].Value = "no price 17" }, false},
		{"another function", func(e *errand.Event) { e.Exceptions[0].Frames[0].Function = "total" }, false},
		{"another file", func(e *errand.Event) { e.Exceptions[0].Frames[0].Filename = "/srv/app/tax.py" }, false},
		{"B18 another cause behind the same wrapper", func(e *errand.Event) {
			e.Exceptions = append(e.Exceptions, errand.Exception{Type: "TimeoutError", Value: "no answer"})
		}, false},
	} {
		if got := ProblemKey(event(tt.change)); got == "" || (got == base) != tt.same {
			t.Errorf("%s: key %s beside %s", tt.says, got, base)
		}
	}
	other := func(typ string) *errand.Event {
		return event(func(e *errand.Event) { e.Exceptions = append(e.Exceptions, errand.Exception{Type: typ}) })
	}
	if ProblemKey(other("TimeoutError")) == ProblemKey(other("AuthError")) {
		t.Error("B18: two causes under one wrapper are one problem")
	}
}

func TestAProblemThatCannotBeToldIsEqualToNone(t *testing.T) {
	t.Parallel()
	no := false
	for says, e := range map[string]*errand.Event{
		"no event":                       nil,
		"no exception":                   {Primary: -1, Message: "boom"},
		"B1 no frames":                   crash(),
		"no frame of the application":    crash(errand.Frame{Filename: "/lib/a.py", InApp: &no}),
		"a frame without a place":        crash(errand.Frame{Function: "main"}),
		"B8 a file name and no function": crash(file("Program.cs")),
		"no type": func() *errand.Event {
			e := crash(file("/srv/app/cart.py"))
			e.Exceptions[0].Type = ""
			return e
		}(),
	} {
		if key := ProblemKey(e); key != "" {
			t.Errorf("%s: %s", says, key)
		}
	}
}

func FuzzNormalise(f *testing.F) {
	for _, s := range []string{"", "user 17", `a "b" 'c' /d/e`, "can't 5's 'x", "\xff\xfe'", "“a” «b» „c“", strings.Repeat("9", 5000), "a@b 0xff 2026-01-02T03:04Z", "*-*", "½٣"} {
		f.Add(s, byte(3))
	}
	f.Fuzz(func(t *testing.T, s string, digit byte) {
		n := Normalise(s)
		if !utf8.ValidString(n) || strings.ContainsAny(n, "0123456789\n\t") || len(n) > 3*maxNormalised || n != Normalise(s) {
			t.Fatalf("%q becomes %q", s, n)
		}
		// Which digits they are makes no difference.
		other := []byte(s)
		for i, b := range other {
			if b >= '0' && b <= '9' {
				other[i] = '0' + digit%10
			}
		}
		if m := Normalise(string(other)); m != n {
			t.Fatalf("%q and %q become %q and %q", s, other, n, m)
		}
	})
}
