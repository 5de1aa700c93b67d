package runner

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/claims"
	"github.com/errand-dev/errand/wire"
)

// maxBody is GitHub's limit of a pull request's body, in characters.
const maxBody = 65_536

// maxName bounds a path in a text, in bytes: a git path may have 4096, and a table of such would fill the body.
const maxName = 300

// maxMessage bounds the agent's text in a commit message, in bytes.
const maxMessage = 20_000

var uncertainHeading = regexp.MustCompile(`(?im)^\s*(#{1,6}\s*|\*\*)uncertain fix\b`)

// uncertain tells whether the agent says that it is not sure.
func uncertain(body string) bool { return uncertainHeading.MatchString(body) }

// commitMessage holds the pull request's text too, so that it is not lost where the pull request cannot be opened.
func commitMessage(a admitted, run errand.ID) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n", quiet(a.Title), quiet(strings.TrimSpace(cut(a.Body, maxMessage))))
	for _, c := range a.Claim.Changes {
		fmt.Fprintf(&b, "%s: %s\n", plain(inert(cut(c.Path, maxName))), plain(quiet(cut(c.Description, 500))))
	}
	// Once more over the whole, whose parts were joined: only Errand's own trailers stand below.
	return fmt.Sprintf("%s\n%s\nErrand-Claim: %s\n", inert(b.String()), trailer(run), a.ClaimHash)
}

// account is what a run used, for people to read.
type account struct {
	Model     string
	ToolCalls int
	MaxCalls  int
	Elapsed   time.Duration
	Requests  int
	Unknown   int // requests whose counts never arrived
	Input     int64
	Cached    int64
	Output    int64
}

// countTokens adds up what the provider counted.
func countTokens(lines []wire.UsageLine) account {
	var a account
	for _, l := range lines {
		a.Requests++
		var u struct {
			Input  int64 `json:"input_tokens"`
			Write  int64 `json:"cache_creation_input_tokens"`
			Read   int64 `json:"cache_read_input_tokens"`
			Output int64 `json:"output_tokens"`
		}
		if l.Raw == nil || json.Unmarshal(l.Raw, &u) != nil {
			a.Unknown++
			continue
		}
		a.Input += u.Input + u.Write + u.Read
		a.Cached += u.Read
		a.Output += u.Output
	}
	return a
}

func (a account) String() string {
	s := fmt.Sprintf("%s, %d of %d tool calls, %s, %d model requests, %d input tokens (%d of them from the cache), %d output tokens",
		a.Model, a.ToolCalls, a.MaxCalls, a.Elapsed.Round(time.Second), a.Requests, a.Input, a.Cached, a.Output)
	if a.Unknown > 0 {
		s += fmt.Sprintf("; the counts of %d requests never arrived", a.Unknown)
	}
	return s
}

// pullBody writes the body of a pull request. What Errand says stands above the agent's words, where no markup of theirs can
// hide it, and is never cut.
func pullBody(a admitted, used account, start wire.StartResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s.** This says that the claim matches the change, not that the change is right: please review it.\n\n", upperFirst(a.Report.Words()))
	b.WriteString("| file | change | claim |\n|---|---|---|\n")
	said := map[string][]string{}
	for _, c := range a.Claim.Changes {
		said[c.Path] = append(said[c.Path], c.Description)
	}
	for _, f := range a.Files {
		fmt.Fprintf(&b, "| `%s` | %s, +%d −%d | %s |\n", cell(cut(f.Path, maxName)), f.Kind, f.Added, f.Removed, cell(cut(strings.Join(said[f.Path], " "), 500)))
	}
	fmt.Fprintf(&b, "\nUsed: %s. The cost is on the [run's page](%s).\n", cell(used.String()), start.RunURL)
	if link := start.Issue.Link; strings.HasPrefix(link, "https://") && !strings.ContainsAny(link, " ()<>\n") {
		// The title is a stranger's: a code span, in which nothing is a link, a mention or a keyword.
		fmt.Fprintf(&b, "\n[The error at the tracker](%s): `%s`\n", link, cell(cut(start.Issue.Title, 200)))
	}
	fmt.Fprintf(&b, "\n%s\n\n---\n\nThe agent's words:\n\n", trailer(start.Run))
	head := b.String()
	const mark = "\n\n[cut: the text was longer than GitHub takes]"
	own := tame(strings.TrimSpace(a.Body))
	if room := maxBody - utf8.RuneCountInString(head); utf8.RuneCountInString(own) > room {
		runes := []rune(own)
		own = string(runes[:max(0, room-utf8.RuneCountInString(mark))]) + mark
	}
	return head + own
}

var (
	entity   = regexp.MustCompile(`&([#A-Za-z][#A-Za-z0-9]*;)`)
	htmlOpen = regexp.MustCompile(`<([A-Za-z/!?])`)
	mention  = regexp.MustCompile(`@([A-Za-z0-9])`)
)

// tame takes from the agent's Markdown what acts on its reader: HTML (a comment hides what follows), images (whoever opens
// the page fetches them, with whatever stands in their address), mentions, and what inert takes. A character written as an
// entity would be read as itself by the forge only.
func tame(s string) string {
	s = entity.ReplaceAllString(quiet(s), "&amp;$1")
	s = htmlOpen.ReplaceAllString(s, "&lt;$1")
	return strings.ReplaceAll(s, "![", "!\\[")
}

// quiet makes a text inert and calls nobody.
func quiet(s string) string { return mention.ReplaceAllString(inert(s), "@ $1") }

// cell makes text fit for one cell of a Markdown table, without markup of its own.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "`", "'", "<", "&lt;", "[", "\\[").Replace(plain(inert(s)))
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// summaryOf writes the job's summary.
func summaryOf(end *ending, start wire.StartResponse, used account, steps []wire.Step, report *claims.Report, files []wire.ClaimFile) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## Errand: %s\n\n", outcome(end))
	if end.PR != nil {
		fmt.Fprintf(&b, "Pull request: [#%d](%s), branch `%s`\n\n", end.PR.Number, end.PR.URL, cell(end.PR.Branch))
	}
	if s := end.Reason.Sentence(); s != "" {
		fmt.Fprintf(&b, "%s\n\n", s)
	}
	if end.Detail != "" {
		fmt.Fprintf(&b, "%s\n\n", cell(end.Detail))
	}
	if end.Summary != "" {
		fmt.Fprintf(&b, "> %s\n\n", cell(end.Summary))
	}
	if report != nil {
		fmt.Fprintf(&b, "Claim: %s, %d files.\n\n", report.Words(), len(files))
		for _, f := range report.Findings[:min(len(report.Findings), 50)] {
			fmt.Fprintf(&b, "- `%s` %s\n", f.Code, cell(f.Path))
		}
	}
	fmt.Fprintf(&b, "\nUsed: %s.\n", cell(used.String()))
	if start.RunURL != "" {
		fmt.Fprintf(&b, "\n[The run's page](%s)\n", start.RunURL)
	}
	if len(steps) > 0 {
		b.WriteString("\n| # | time (UTC) | step | path | outcome | count |\n|---|---|---|---|---|---|\n")
		for _, s := range steps {
			fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %d |\n", s.Seq, s.At.Format("15:04:05"), s.Tool, cell(s.Path), s.Outcome, s.Count)
		}
	}
	return b.String()
}

// outcome is the end in a few words.
func outcome(end *ending) string {
	switch end.State {
	case errand.PROpened:
		return "a pull request is open"
	case errand.NoFix:
		return "no fix"
	case errand.Rejected:
		return "the proposal was rejected"
	case errand.TimedOut:
		return "out of time"
	case errand.Cancelled:
		return "stopped"
	default:
		return "failed"
	}
}
