package dispatch

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/errand-dev/errand"
)

// ProblemKey names the problem that an event shows, so that two issues of the same problem are not mended twice: the type
// and the normalised message of every exception of the chain, and the place of the nearest frame of the application.
// Every exception counts, because a wrapper alone hides distinct causes. It is "" when one of the parts is missing: a
// problem that cannot be told is equal to none.
func ProblemKey(e *errand.Event) string {
	if e == nil {
		return ""
	}
	x, ok := e.PrimaryException()
	if !ok || x.Type == "" {
		return ""
	}
	_, frames := applicationFrames(e)
	if len(frames) == 0 {
		return ""
	}
	place := framePlace(frames[0])
	if place == "" {
		return ""
	}
	h := sha256.New()
	part := func(s string) { h.Write([]byte(s)); h.Write([]byte{0}) }
	part(x.Type)
	part(Normalise(x.Value))
	part(place)
	for i := range e.Exceptions {
		part(e.Exceptions[i].Type)
		part(Normalise(e.Exceptions[i].Value))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// framePlace is where a frame lies, without its line: that moves with every change above it. A function without a file
// or a module is no place, and neither is a file that nobody can tell from others of its name without a function.
func framePlace(f errand.Frame) string {
	where := f.Module
	for _, p := range framePaths(f) {
		where = p.String()
		break
	}
	if where == "" {
		where = f.Filename
	}
	if where == "" || f.Function == "" && len(framePaths(f)) == 0 && f.Module == "" {
		return ""
	}
	return where + "\x00" + f.Function
}

// maxNormalised bounds the work for one message, in bytes. What stands behind it is no part of the problem.
const maxNormalised = 2000

// What differs from one occurrence to the next, in the order in which it is looked for. RE2: the time is linear.
var variable = []*regexp.Regexp{
	regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.\-]*://[^\s"'<>]+`),                                 // addresses
	regexp.MustCompile(`[^\s@<>()"',;]+@[^\s@<>()"',;]+`),                                       // mail
	regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`),  // uuids
	regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|\s?[+\-]\d\d:?\d\d)?`), // times
	regexp.MustCompile(`[^\s"'()\[\]{},;=<>]*[/\\][^\s"'()\[\]{},;=<>]*`),                       // paths
	regexp.MustCompile(`(?i)\b[0-9a-f]{8,}\b`),                                                  // ids without a digit
	regexp.MustCompile(`[\pL\pM_]*\pN[\pL\pM\pN_]*`),                                            // numbers, and words with one
	regexp.MustCompile(`[+\-]?\*(?:[\s,;:.+\-]*\*)*`),                                           // several of them, a sign
}

// Normalise takes out of a message what differs between occurrences of the same problem: ids, numbers, paths, addresses,
// times and quoted values all become "*". It never fails, and the same text always gives the same answer.
func Normalise(message string) string {
	s := strings.ToValidUTF8(message, "�")
	if len(s) > maxNormalised {
		cut := maxNormalised
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	s = unquote(s)
	for _, re := range variable {
		s = re.ReplaceAllLiteralString(s, "*")
	}
	return strings.Join(strings.Fields(s), " ")
}

// unquote replaces quoted values. An apostrophe within or behind a word opens nothing.
func unquote(s string) string {
	var b strings.Builder
	before := ' '
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if end := quoted(s[i:], r, size, before); end > 0 {
			b.WriteByte('*')
			i, before = i+end, '*'
			continue
		}
		b.WriteString(s[i : i+size])
		i, before = i+size, r
	}
	return b.String()
}

// quoted gives the length of the quoted value at the beginning of s, or 0.
func quoted(s string, open rune, size int, before rune) int {
	closing := map[rune]rune{'"': '"', '`': '`', '\'': '\'', '“': '”', '„': '“', '‘': '’', '«': '»'}[open]
	if closing == 0 || open == '\'' && wordRune(before) {
		return 0
	}
	for at := size; ; {
		n := strings.IndexRune(s[at:], closing)
		if n < 0 {
			return 0
		}
		end := at + n + utf8.RuneLen(closing)
		if next, _ := utf8.DecodeRuneInString(s[end:]); open != '\'' || end == len(s) || !wordRune(next) {
			return end
		}
		at = end // an apostrophe within the value: 'it isn't'
	}
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) || r == '*' || r == '_' }
