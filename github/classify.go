package github

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Call is what was asked of GitHub: the same status means another thing for another call.
type Call string

// The calls.
const (
	CallToken        Call = "token"        // an installation token, as the App
	CallInstallation Call = "installation" // about an installation, as the App
	CallDispatch     Call = "dispatch"
	CallCancel       Call = "cancel"
	CallRead         Call = "read"
	CallSetUp        Call = "set_up" // making the App, or asking as a person
)

// Answer is what came back, as Classify wants it.
type Answer struct {
	Call   Call
	Status int // 0 = no answer; Err says why
	Header http.Header
	Body   []byte
	Err    error
	Sent   bool // some of the request had left when Err came
}

// Finding is what an answer means.
type Finding struct {
	Outcome    Outcome
	RetryAfter time.Duration // meaningful when Outcome.Retry(); 0 = at once
	Message    string        // GitHub's own words, trimmed to a line; or why there are none
}

// How long to wait where GitHub names no time. A secondary limit without a header asks for at least a minute.
const (
	pauseLimit  = time.Minute
	pauseServer = 10 * time.Second
	pauseClock  = 2 * time.Second
	maxPause    = 2 * time.Hour
	maxMessage  = 300
)

// Classify tells what an answer of GitHub means. It is pure; now is GitHub's time, used where the answer has no Date.
//
// Two rules stand above the table. Limits are looked for before denials, because a secondary limit is a 403 too, with or
// without a header. And a 403 is never absence: what it does not explain is tried again, not taken as a no.
func Classify(a Answer, now time.Time) Finding {
	if a.Status == 0 {
		return classifySilence(a)
	}
	text, said := words(a)
	f := Finding{Message: said}
	if date, err := http.ParseTime(a.Header.Get("Date")); err == nil {
		now = date
	}
	switch s := a.Status; {
	case s >= 200 && s <= 299:
		f.Outcome = Accepted
	case s >= 300 && s <= 399 && s != http.StatusNotModified:
		f.Outcome = Moved
	case s == http.StatusUnauthorized:
		f.Outcome, f.RetryAfter = classifyUnauthorized(text)
	case s == http.StatusForbidden || s == http.StatusTooManyRequests:
		f.Outcome, f.RetryAfter = classifyForbidden(a, text, now)
	case s == http.StatusNotFound:
		f.Outcome = classifyNotFound(a.Call)
	case s == http.StatusConflict:
		f.Outcome = Conflict
	case s == http.StatusGone:
		f.Outcome = Gone
	case s == http.StatusUnavailableForLegalReasons:
		f.Outcome = BlockedLegal
	case s >= 500:
		f.Outcome, f.RetryAfter = ServerError, pauseServer
		if d, ok := retryAfter(a.Header, now); ok {
			f.RetryAfter = d
		}
	default:
		f.Outcome = firstMatch(invalidWords, text, Refused)
	}
	return f
}

// classifySilence is about requests without an answer. Only a dispatch can have taken effect in a way that matters.
func classifySilence(a Answer) Finding {
	f := Finding{Outcome: Unreachable, RetryAfter: pauseServer, Message: "no answer from GitHub"}
	if a.Err != nil {
		f.Message = clip("no answer from GitHub: " + a.Err.Error())
	}
	switch {
	case errors.Is(a.Err, errForeignHost):
		f.Outcome, f.RetryAfter = Refused, 0
	case a.Call == CallDispatch && a.Sent:
		f.Outcome, f.RetryAfter = NoAnswer, 0
	}
	return f
}

func classifyUnauthorized(text string) (Outcome, time.Duration) {
	if o := firstMatch(clockWords, text, ""); o != "" {
		return o, pauseClock
	}
	return BadCredentials, pauseLimit
}

func classifyForbidden(a Answer, text string, now time.Time) (Outcome, time.Duration) {
	if a.Header.Get("X-Ratelimit-Remaining") == "0" {
		return RatePrimary, untilReset(a.Header, now)
	}
	if d, ok := retryAfter(a.Header, now); ok {
		return RateSecondary, d
	}
	switch {
	case strings.Contains(text, "secondary rate limit"), strings.Contains(text, "abuse detection"),
		strings.Contains(text, "secondary-rate-limits"), strings.Contains(text, "abuse-rate-limits"):
		return RateSecondary, pauseLimit
	case strings.Contains(text, "rate limit exceeded"):
		return RatePrimary, untilReset(a.Header, now)
	case a.Status == http.StatusTooManyRequests:
		return RateSecondary, pauseLimit
	case a.Header.Get("X-Github-Sso") != "":
		return SSO, 0
	}
	if o := firstMatch(deniedWords, text, ""); o != "" {
		return o, 0
	}
	return Forbidden, pauseLimit
}

func classifyNotFound(c Call) Outcome {
	switch c {
	case CallToken, CallInstallation:
		return Deleted
	case CallDispatch:
		return WorkflowMissing
	default:
		return NotFound
	}
}

// phrase is a piece of one of GitHub's sentences, in lower case, and what the sentence means.
type phrase struct {
	part    string
	outcome Outcome
}

var clockWords = []phrase{
	{"'issued at' claim", ClockSkew},
	{"('iat')", ClockSkew},
	{"'expiration time' claim", ClockSkew},
	{"('exp')", ClockSkew},
}

var deniedWords = []phrase{
	{"suspended", Suspended},
	{"ip allow list", IPAllowList},
	{"saml", SSO},
	{"archived", Archived},
	{"repository access blocked", BlockedLegal},
	{"actions has been disabled", Disabled},
	{"actions is disabled", Disabled},
	{"resource not accessible by", NotPermitted},
	{"is not permitted to create or approve pull requests", NotPermitted},
	{"must have admin rights", NotPermitted},
	{"permissions requested are not granted", NotPermitted},
}

// invalidWords are those of a 422 (and of other 4xx that come with them).
var invalidWords = []phrase{
	{"unexpected inputs provided", WorkflowTooOld},
	{"required input", WorkflowTooOld},
	{"no ref found", RefMissing},
	{"does not have 'workflow_dispatch' trigger", NoTrigger},
	{"on a disabled workflow", Disabled},
	{"actions has been disabled", Disabled},
	{"actions is disabled", Disabled},
	{"inputs are too large", InputsTooLarge},
	{"you may only define up to", TooManyInputs},
	{"no more than 25 properties", TooManyInputs},
	{"does not exist or is not accessible", Gone}, // a token for a repository that left the installation
	{"permissions requested are not granted", NotPermitted},
	{"archived", Archived},
	{"suspended", Suspended},
}

func firstMatch(table []phrase, text string, otherwise Outcome) Outcome {
	for _, p := range table {
		if strings.Contains(text, p.part) {
			return p.outcome
		}
	}
	return otherwise
}

// words gives the body's text for matching (lower case, with the documentation link) and GitHub's message for people.
func words(a Answer) (text, said string) {
	var body struct {
		Message string            `json:"message"`
		Docs    string            `json:"documentation_url"`
		Errors  []json.RawMessage `json:"errors"`
	}
	if json.Unmarshal(a.Body, &body) != nil || body.Message == "" {
		return strings.ToLower(string(a.Body)), http.StatusText(a.Status)
	}
	said = body.Message
	for _, raw := range body.Errors { // each a string, or an object with a message
		var one struct {
			Message string `json:"message"`
		}
		var plain string
		if json.Unmarshal(raw, &plain) == nil && plain != "" {
			said += ": " + plain
		} else if json.Unmarshal(raw, &one) == nil && one.Message != "" {
			said += ": " + one.Message
		}
	}
	return strings.ToLower(said + " " + body.Docs), clip(said)
}

// clip makes one line of at most maxMessage characters, without control characters.
func clip(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > maxMessage {
		return string(r[:maxMessage]) + "..."
	}
	return s
}

// retryAfter reads the header in either of its forms.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return within(time.Duration(min(n, int(maxPause/time.Second))) * time.Second), true
	}
	if t, err := http.ParseTime(v); err == nil {
		return within(t.Sub(now)), true
	}
	return pauseLimit, true
}

func untilReset(h http.Header, now time.Time) time.Duration {
	n, err := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64)
	if err != nil {
		return pauseLimit
	}
	return within(time.Unix(n, 0).Sub(now))
}

// within keeps a pause between a second and maxPause, whatever a header says.
func within(d time.Duration) time.Duration { return min(max(d, time.Second), maxPause) }
