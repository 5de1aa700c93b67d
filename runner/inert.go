package runner

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/errand-dev/errand/scrub"
)

var (
	brackets = regexp.MustCompile(`\[[^\[\]]*\]`)
	// Words by which a text acts on CI (a trailer of GitHub's, a mark of Azure's), on Errand (it finds its own pull requests by
	// its trailers) or in a person's name. The mark in the middle of the word is what makes it one: it becomes a space.
	markers = regexp.MustCompile(`(?i)(skip)-(checks?)|\b(no)_(ci)\b|(errand)-([a-z0-9-]*\s*[:=])|([a-z0-9-])-(by\s*:)`)
	// What a forge takes for one of its issues. A closing keyword before it would close that; any mention of it leaves a mark
	// there. So none is left, whatever stands before it.
	references = regexp.MustCompile(`(#)([0-9])|(?i)\b(gh)-([0-9])|(?i)(//\S*/(?:issues|pulls?|discussions|merge_requests|work_items)\\*/\\*)([0-9])`)
)

// inert takes from a text of others what acts on a forge that stores it as a pull request or, when that is squashed, as a
// commit: marks that skip checks, trailers, and references to issues. What is left is read to a fixed point, so that what is
// taken out cannot form anew from what stood around it. Hidden characters go first: they would hide a mark from us only.
func inert(s string) string {
	s = legible(s)
	for {
		next := brackets.ReplaceAllStringFunc(s, func(m string) string {
			if skips(m[1 : len(m)-1]) {
				return "(" + m[1:len(m)-1] + ")"
			}
			return m
		})
		next = markers.ReplaceAllString(next, "$1$3$5$7 $2$4$6$8")
		next = references.ReplaceAllString(next, "$1$3$5 $2$4$6")
		if next == s {
			return s
		}
		s = next
	}
}

// legible leaves of a text what a reader sees. It comes before every look for words and secrets in it: what is taken out later
// would join the halves of one.
func legible(s string) string {
	s, _ = scrub.Hidden(strings.ToValidUTF8(s, "\ufffd"))
	return strings.Map(visible, strings.ReplaceAll(s, "\r\n", "\n"))
}

// visible keeps line ends and tabs of the control characters, and makes every other blank and line separator a plain one.
func visible(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case r == '\r' || r == '\v' || r == '\f' || r == '\u0085' || r == '\u2028' || r == '\u2029':
		return '\n'
	case unicode.IsControl(r):
		return -1
	case unicode.IsSpace(r):
		return ' '
	default:
		return r
	}
}

// skips tells whether the words in a pair of brackets ask a CI system to do nothing: "skip ci", "ci skip", "no ci", "skip
// actions", "skip azurepipelines", "CF-Pages-Skip" and their kind.
func skips(inside string) bool {
	words := strings.FieldsFunc(inside, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	n := len(words)
	if n == 0 || n > 3 {
		return false
	}
	return strings.EqualFold(words[0], "skip") || strings.EqualFold(words[n-1], "skip") || (n == 2 && strings.EqualFold(words[0], "no"))
}
