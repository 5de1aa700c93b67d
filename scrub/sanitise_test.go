package scrub

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestSanitise(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in string
		limit    int
		want     string
	}{
		{"plain text stays", "a\tb\nc é 🦊", 100, "a\tb\nc é 🦊"},
		{"a NUL goes", "a\x00b", 100, "ab"},
		{"terminal escapes and carriage returns go", "\x1b[31mred\r\n", 100, "[31mred\n"},
		{"C1 controls go", "a\u0085b", 100, "ab"},
		{"bytes that are not UTF-8 become the replacement character", "a\xffb", 100, "a\ufffdb"},
		{"a lone surrogate does too", "a\xed\xa0\x80b", 100, "a\ufffd\ufffd\ufffdb"},
		{"a cut falls between characters", "aé", 2, "a"},
		{"a cut falls between characters after cleaning", "\x00aé", 2, "a"},
		{"a cut at the very limit", "aé", 3, "aé"},
		{"a limit of nothing", "a", 0, ""},
		{"a negative limit", "a", -1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := Sanitise(tc.in, tc.limit); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestSanitiseAlwaysFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "in"))
		limit := rapid.IntRange(-1, 40).Draw(t, "limit")
		out := Sanitise(in, limit)
		if len(out) > max(limit, 0) || !utf8.ValidString(out) || !clean(out) {
			t.Fatalf("%q, limit %d: %q", in, limit, out)
		}
		if again := Sanitise(out, limit); again != out {
			t.Fatalf("again: %q, then %q", out, again)
		}
	})
}

func TestHidden(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in, want string
		found          int
	}{
		{"nothing hidden", "naïve 🦊 — ok", "naïve 🦊 — ok", 0},
		{"zero width", "pass\u200bword\ufeff", "password", 2},
		{"direction marks", "a\u202eb\u2066c", "abc", 2},
		{"words in tag characters", "hi\U000E0069\U000E0067\U000E007F", "hi", 3},
		{"variation selectors", "a\ufe0f\U000E0100", "a", 2},
		{"a soft hyphen and a filler", "a\u00adb\u3164", "ab", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got, n := Hidden(tc.in); got != tc.want || n != tc.found {
				t.Errorf("%q %d, want %q %d", got, n, tc.want, tc.found)
			}
		})
	}
}
