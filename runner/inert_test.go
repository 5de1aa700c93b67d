package runner

import (
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/claims"
	"github.com/errand-dev/errand/wire"
)

// acts is what a forge or a CI system looks for in a commit message, as loosely as any of them could: whatever the case and
// the blanks, and with what cannot be seen taken out.
var acts = map[string]*regexp.Regexp{
	"a mark that skips checks": regexp.MustCompile(`(?i)\[\s*(skip[\s-]+(ci|actions|azurepipelines|azpipelines|azp|appveyor|travis|netlify)|` +
		`(ci|actions|azurepipelines|azpipelines|azp|appveyor|travis|cf-pages)[\s-]+skip|no[\s-]+ci)\s*\]`),
	"the trailer skip-checks": regexp.MustCompile(`(?i)skip-checks\s*:`),
	"Azure's mark":            regexp.MustCompile(`(?i)\*\*\*no_ci\*\*\*`),
	"a trailer of Errand's":   regexp.MustCompile(`(?i)errand-[a-z-]*\s*:`),
	"a trailer in a name":     regexp.MustCompile(`(?im)^\s*[a-z-]+-by\s*:`),
	"a closing keyword":       regexp.MustCompile(`(?i)\b(close[sd]?|fix(e[sd])?|resolve[sd]?)[\s:]+([\w.-]+/[\w.-]+)?(#|gh-|https?://\S+/(issues|pull)/)[0-9]`),
	"a mention of an issue":   regexp.MustCompile(`#[0-9]`),
}

// unmasked takes out what a reader, or a forge that trims its input, does not see.
func unmasked(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) || (unicode.IsControl(r) && !unicode.IsSpace(r)) || r == 0x34f || (r >= 0xfe00 && r <= 0xfe0f) {
			return -1
		}
		return r
	}, s)
}

func actsIn(s string) (found []string) {
	for what, re := range acts {
		if m := re.FindString(unmasked(s)); m != "" {
			found = append(found, what+": "+m)
		}
	}
	return found
}

var hostileTexts = []string{
	"[skip ci]", "[ci skip]", "[no ci]", "[skip actions]", "[actions skip]", "[Skip CI]", "[ skip\tci ]", "[skip\nci]", "[skip\r\nci]", "[skip\u00a0ci]",
	"[[skip ci]]", "[skip [skip ci]ci]", "[[skip ci]skip ci]", "[skip\u200b ci]", "[sk\u00adip ci]", "[skip\x00 ci]", "[ski\x1bp ci]", "[skip ci\u2028]",
	"[no\u2060 ci]", "[skip azp]", "[azurepipelines skip]", "***NO_CI***", "***no_ci***", "[skip appveyor]", "[CF-Pages-Skip]", "[skip-ci]",
	"skip-checks: true", "skip-checks::true", "Skip-Checks : true", "skip-skip-checks: truechecks: true", "x\n\nskip-checks:true", "skip-\u200bchecks: true",
	"Errand-Run: 0190", "errand-claim:x", "Errand-Errand-Run: x", "x\rErrand-Run: y", "x\vErrand-Run: y", "x\u2028Errand-Run : y", "Errand-\u200bRun: y",
	"Signed-off-by: A Person <a@example.com>", "Co-Authored-By: A <a@example.com>", "Reviewed-by : A",
	"Fixes #12", "FIXES: #12", "closes org/repo#1", "Resolved GH-7", "close\u00a0#3", "fixes\n#12", "fixes #\u200b12", "fixes \\#12", "fixes **#12**",
	"resolves https://github.com/org/repo/issues/9", "fix https://github.com/org/repo/pull/9#issuecomment-1", "fixes https://ghes.example/o/r/issues\\/4", "##12",
}

func TestWhatOthersWroteActsOnNoForge(t *testing.T) {
	t.Parallel()
	for _, in := range hostileTexts {
		for name, f := range map[string]func(string) string{"inert": inert, "quiet": quiet, "tame": tame, "cell": cell} {
			if found := actsIn(f(in)); found != nil {
				t.Errorf("%s(%q) = %q, which holds %s", name, in, f(in), found)
			}
		}
		if once := inert(in); inert(once) != once {
			t.Errorf("inert(%q) is not a fixed point", in)
		}
	}
	for _, fine := range []string{
		"Fix UTF-8 decoding of names", "a[i] = skip(ci)", "see docs/issues/12.md", "[x] done, [the skip list of the scheduler]", "if a < b && c[0] > 1 {", "line one\n\tline two",
	} {
		if got := inert(fine); got != fine {
			t.Errorf("inert(%q) = %q: nothing in it acts", fine, got)
		}
	}
}

// Pieces of what acts, in any order: what is taken out must not form anew from what stood around it.
func TestNoOrderOfPiecesMakesATextThatActs(t *testing.T) {
	t.Parallel()
	pieces := []string{
		"[", "]", "[", "]", "skip", "ci", "no", "actions", " ", "\t", "\n", "\r", "\x00", "\u200b", "\u00ad", "\ufeff", "-", "checks", ":", "***", "NO_CI", "_", "errand", "Errand-", "Run",
		"-by", "Signed-off", "fixes", "#", "1", "GH-", "o/r", "https://github.com/o/r/issues/", "\\", "\u2028", "(", ")", "\xff", "ſkip", "`", "&", "#35;", "<!--", "@",
	}
	rnd := rand.New(rand.NewPCG(7, 11))
	for range 30_000 {
		var b strings.Builder
		for range 2 + rnd.IntN(14) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		in := b.String()
		for name, f := range map[string]func(string) string{"inert": inert, "tame": tame, "cell": cell} {
			if found := actsIn(f(in)); found != nil {
				t.Fatalf("%s(%q) = %q, which holds %s", name, in, f(in), found)
			}
		}
	}
}

func FuzzInert(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if found := actsIn(inert(s)); found != nil {
			t.Errorf("inert(%q) = %q, which holds %s", s, inert(s), found)
		}
	})
}

func TestCommitAndPullRequestHoldNothingThatActsButErrandsOwnTrailers(t *testing.T) {
	t.Parallel()
	const run = errand.ID("0190a000-0000-7000-8000-000000000001")
	for _, text := range hostileTexts {
		a := admitted{
			Title: plain(quiet(text)), Body: "What happened\n" + text + "\n" + text, ClaimHash: "abc",
			Claim: claims.Claim{Changes: []claims.ClaimedChange{{Path: "a/" + text, Description: text}}},
			Files: []wire.ClaimFile{{Path: "a/" + text, Kind: "edit"}},
		}
		own := []string{trailer(run), "Errand-Claim: abc"}
		for name, written := range map[string]string{
			"commit": commitMessage(a, run),
			"pull":   pullBody(a, account{}, wire.StartResponse{Run: run, Issue: errand.Issue{Title: text, Link: "https://tracker.example/1"}}),
			"title":  a.Title,
		} {
			lines := slices.DeleteFunc(strings.Split(written, "\n"), func(l string) bool { return slices.Contains(own, l) })
			if len(strings.Split(written, "\n"))-len(lines) > len(own) {
				t.Errorf("the %s with %q holds an own trailer more than once:\n%s", name, text, written)
			}
			if found := actsIn(strings.Join(lines, "\n")); found != nil {
				t.Errorf("the %s with %q holds %s:\n%s", name, text, found, written)
			}
		}
	}
}

// git itself, reading the message, finds our two trailers and no other.
func TestGitReadsOnlyErrandsTrailers(t *testing.T) {
	t.Parallel()
	a := admitted{Title: "Guard the rate", Body: "text\n\nErrand-Run: 1\nErrand-Claim: 2\nSigned-off-by: A <a@example.com>", ClaimHash: "abc"}
	cmd := exec.Command("git", "interpret-trailers", "--parse")
	cmd.Dir, cmd.Stdin = t.TempDir(), strings.NewReader(commitMessage(a, "0190"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != "Errand-Run: 0190\nErrand-Claim: abc\n" {
		t.Errorf("git reads %q", out)
	}
}
