package console

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// tone is the colour and the sign of a state. It never stands without the state's word.
type tone string

const (
	toneWait tone = "wait" // nothing is happening yet
	toneLive tone = "live" // something is happening
	toneGood tone = "good"
	toneWarn tone = "warn" // ended as it may, and somebody may want to look
	toneBad  tone = "bad"
	toneOff  tone = "off" // over, without consequence
)

// label is a word with its tone.
type label struct {
	Text string
	Tone tone
}

func stateLabel(s errand.RunState) label {
	switch s {
	case errand.Queued:
		return label{"Queued", toneWait}
	case errand.Dispatching:
		return label{"Dispatching", toneLive}
	case errand.Dispatched:
		return label{"Dispatched", toneLive}
	case errand.Running:
		return label{"Running", toneLive}
	case errand.Checking:
		return label{"Checking", toneLive}
	case errand.Publishing:
		return label{"Publishing", toneLive}
	case errand.PROpened:
		return label{"Pull request opened", toneGood}
	case errand.NoFix:
		return label{"No fix", toneOff}
	case errand.Rejected:
		return label{"Rejected", toneWarn}
	case errand.Failed:
		return label{"Failed", toneBad}
	case errand.TimedOut:
		return label{"Timed out", toneBad}
	case errand.Cancelled:
		return label{"Cancelled", toneOff}
	default:
		return label{string(s), toneWait}
	}
}

func outcomeLabel(d errand.Decision) label {
	text := map[errand.Outcome]string{errand.OutcomeRun: "Run", errand.OutcomeWait: "Wait", errand.OutcomeSkip: "Skip"}[d.Outcome]
	if text == "" {
		return label{"Unknown", toneWarn}
	}
	if d.Observed {
		return label{"Would " + strings.ToLower(text), toneWait}
	}
	return label{text, map[errand.Outcome]tone{errand.OutcomeRun: toneGood, errand.OutcomeWait: toneWait, errand.OutcomeSkip: toneOff}[d.Outcome]}
}

func levelLabel(level string) label {
	switch level {
	case "fatal", "error":
		return label{level, toneBad}
	case "warning":
		return label{level, toneWarn}
	case "":
		return label{"level unknown", toneOff}
	default:
		return label{level, toneOff}
	}
}

var gateWords = map[errand.Gate]string{
	errand.GateOK:                    "every gate was open",
	errand.GateObserve:               "observe mode",
	errand.GateOrgPaused:             "the organisation is paused",
	errand.GateRepoPaused:            "the repository is paused",
	errand.GateLevelExcluded:         "below the least level",
	errand.GateStale:                 "the event is too old",
	errand.GateNoMapping:             "no mapping matches",
	errand.GateAmbiguous:             "two mappings match equally well",
	errand.GateMappingUnknown:        "the mapping cannot be told",
	errand.GateNoStack:               "no stack trace",
	errand.GateEnvironmentExcluded:   "an excluded environment",
	errand.GateTooFew:                "too few events",
	errand.GateRepoUnknown:           "the repository is not connected",
	errand.GateRepoArchived:          "the repository is archived",
	errand.GateRepoGone:              "the repository is gone",
	errand.GateInstallationGone:      "the GitHub App is not installed",
	errand.GateInstallationSuspended: "the installation is suspended",
	errand.GateRepoBlocked:           "GitHub blocked the repository",
	errand.GatePermissions:           "the App's permissions are not as they must be",
	errand.GateNotCounted:            "what the caps need is not known",
	errand.GateAlreadyFixed:          "fixed since",
	errand.GateDeclined:              "a person declined the last fix",
	errand.GateSameProblem:           "the same problem is being fixed",
	errand.GateBreaker:               "an incident",
	errand.GateOpenFixCap:            "the repository's open fixes are at their cap",
	errand.GateUnpriced:              "usage without a price",
	errand.GateBudget:                "the budget is used up",
	errand.GateRunOpen:               "a run is under way",
	errand.GatePROpen:                "a pull request is open",
	errand.GateCooldown:              "cooldown",
	errand.GateDailyCap:              "the day's runs are used up",
	errand.GateIssueNotAnError:       "not an error at the tracker",
	errand.GateOutOfOrder:            "an older event came late",
}

// words makes a code readable that has no words of its own: "run_started" becomes "run started".
func words(code string) string { return strings.ReplaceAll(code, "_", " ") }

func gateText(g errand.Gate) string {
	if w, ok := gateWords[g]; ok {
		return w
	}
	return words(string(g))
}

// reasonText says why a run ended; a reason that is not on the closed list is shown as it is, never dropped.
func reasonText(r errand.Reason) string {
	if s := r.Sentence(); s != "" || r == errand.ReasonNone {
		return s
	}
	return words(string(r))
}

// count groups an integer's digits by three: 1,234,567.
func count[T int | int32 | int64](v T) string {
	s := strconv.FormatInt(int64(v), 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if neg {
		s = "-" + s
	}
	return s
}

// tokens shows a count that may be unknown.
func tokens(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return count(*n)
}

func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// span says a length of time in at most two units.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// ago says how long before now t was, in one unit.
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case d < -time.Minute:
		return "in " + strings.SplitN(span(-d), " ", 3)[0] + " " + strings.SplitN(span(-d), " ", 3)[1]
	case d < 10*time.Second:
		return "just now"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s ago"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min ago"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h ago"
	default:
		return strconv.Itoa(int(d.Hours())/24) + " d ago"
	}
}

func machineTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
func dayTime(t time.Time) string     { return t.UTC().Format("2 Jan 2006, 15:04:05") }
func clockTime(t time.Time) string   { return t.UTC().Format("15:04:05.000") }

// external gives an address that may stand in a link: absolute, http or https. Anything else, such as a javascript: URL
// that came with an error, gives "".
func external(address string) string {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return ""
	}
	return u.String()
}

func orText(s, other string) string {
	if strings.TrimSpace(s) == "" {
		return other
	}
	return s
}

// capital makes the first letter of a phrase a capital one.
func capital(s string) string {
	if s == "" {
		return s
	}
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}

// sentence makes an error's message one: a capital letter and a full stop.
func sentence(s string) string {
	s = capital(s)
	if s != "" && !strings.ContainsAny(s[len(s)-1:], ".?!") {
		s += "."
	}
	return s
}

func plain(n int) string { return strconv.Itoa(n) }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func lineText(line int) string {
	if line == 0 {
		return ""
	}
	return ":" + strconv.Itoa(line)
}

// untilText shows a decision's time when it is one, and as it stands when not.
func untilText(s string) string {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return s
	}
	return dayTime(t) + " UTC"
}

func deliveryLabel(outcome string) label {
	return label{outcome, map[string]tone{"accepted": toneGood, "duplicate": toneOff, "ignored": toneOff, "rejected": toneBad}[outcome]}
}

func deliveryText(d store.ListDeliveriesOfIssueRow) string {
	text := strings.TrimSpace(words(d.Resource + " " + d.Action))
	if d.Reason != "" {
		text += " · " + reasonWords(d.Reason)
	}
	return text
}

// reasonWords makes a delivery's reason readable: a word of the receiver's with a name after it ("action_not_used:assigned"), or
// a sentence about a place in the payload, which stays as it is.
func reasonWords(reason string) string {
	if word, name, ok := strings.Cut(reason, ":"); ok && !strings.HasPrefix(name, " ") {
		return words(word) + ": " + name
	}
	if strings.Contains(reason, " ") {
		return reason
	}
	return words(reason)
}

func took(p runPage) string {
	if p.Run.State.Ended() {
		return span(p.Took)
	}
	return span(p.Took) + " so far"
}

func tokensTotal(u usage) string {
	if len(u.Lines) == 0 {
		return "none reported"
	}
	var sum bucket
	for _, b := range u.Buckets {
		sum.Sum += b.Sum
		sum.Unknown += b.Unknown
	}
	return sum.Text()
}

// catalogues lists the price catalogues that priced a run's requests.
func catalogues(lines []store.ConsoleRunUsageRow) string {
	var names []string
	for _, l := range lines {
		if l.Catalogue != "" && !slices.Contains(names, l.Catalogue) {
			names = append(names, l.Catalogue)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "catalogue " + strings.Join(names, ", ")
}

// withCursor is the address of the page that follows.
func withCursor(path, next string) string {
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	return path + join + cursorName + "=" + url.QueryEscape(next)
}

func showPath(show string) string {
	if show == "" {
		return "/runs"
	}
	return "/runs?show=" + show
}
