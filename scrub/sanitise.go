package scrub

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sanitise makes s fit for Postgres text and jsonb, and for a terminal: valid UTF-8 (what is not becomes U+FFFD; a
// lone surrogate is such a case), no NUL, no control character except newline and tab, and at most limit bytes, cut
// between characters. A limit below 1 gives "".
func Sanitise(s string, limit int) string {
	if limit < 1 {
		return ""
	}
	if clean(s) {
		return cut(s, limit)
	}
	var b strings.Builder
	b.Grow(min(len(s), limit))
	for i := 0; i < len(s) && b.Len() < limit; {
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			continue
		}
		b.WriteRune(r) // U+FFFD for what is not UTF-8
	}
	return cut(b.String(), limit)
}

func clean(s string) bool {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || r < 0xa0 {
			return false
		}
		i += n
	}
	return true
}

// cut shortens valid UTF-8 to at most limit bytes without splitting a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Hidden strips characters that a reader does not see and a model does: zero width, direction marks, tag characters
// (U+E0000 to U+E007F), variation selectors, fillers. It says how many there were, so that their presence can be
// reported. Emoji that are joined by such characters fall apart into their parts.
func Hidden(s string) (visible string, found int) {
	visible = strings.Map(func(r rune) rune {
		if hidden(r) {
			found++
			return -1
		}
		return r
	}, s)
	if found == 0 {
		return s, 0
	}
	return visible, found
}

func hidden(r rune) bool {
	switch {
	case r < 0xad:
		return false
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x180b, r == 0x180c, r == 0x180d, r == 0x180e,
		r == 0x180f, r == 0x2800, r == 0x3164, r == 0xfeff, r == 0xffa0:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r >= 0xfe00 && r <= 0xfe0f, r >= 0xfff9 && r <= 0xfffb:
		return true
	case r >= 0x1d173 && r <= 0x1d17a, r >= 0xe0000 && r <= 0xe01ef:
		return true
	}
	return false
}
