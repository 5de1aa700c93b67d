package webhooks

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/errand-dev/errand"
)

// sentry is Sentry's integration platform (an internal integration, as docs/sources.md sets one up). The older "WebHooks"
// plugin signs nothing and is refused.
type sentry struct{}

// The headers of a delivery.
const (
	sentrySignature    = "Sentry-Hook-Signature"
	sentryAppSignature = "Sentry-App-Signature" // of calls that a component of Sentry's pages makes
	sentryResource     = "Sentry-Hook-Resource"
	sentryTimestamp    = "Sentry-Hook-Timestamp" // not under the signature
	sentryRequestID    = "Request-ID"            // new with each retry: of no use against duplicates
)

// minSecret is the shortest secret of a tracker that is taken, in bytes.
const minSecret = 16

// Verify holds the hexadecimal HMAC-SHA256 of the body, under the integration's client secret, against the header.
func (sentry) Verify(h http.Header, body, secret []byte, _ time.Time) error {
	if len(secret) == 0 {
		return errors.New("the source has no secret, so nothing can be authentic")
	}
	name := sentrySignature
	given := h.Values(name)
	if len(given) == 0 {
		name = sentryAppSignature
		given = h.Values(name)
	}
	switch {
	case len(given) == 0 || given[0] == "":
		return errors.New("the delivery is not signed: it has no header " + sentrySignature)
	case len(given) > 1:
		return errors.New("the delivery has several headers " + name)
	}
	signature, err := hex.DecodeString(given[0])
	if err != nil || len(signature) != sha256.Size {
		return errors.New(name + " is not 64 hexadecimal digits")
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	if !hmac.Equal(signature, mac.Sum(nil)) {
		return errors.New("the signature does not match the body and this source's secret")
	}
	return nil
}

func (sentry) Secret(given string) (string, error) {
	if len(given) < minSecret {
		return "", &errand.Error{
			Code: errand.CodeInvalid, Field: "secret",
			Message: "a Sentry source needs the Client Secret of its internal integration, which has at least " + strconv.Itoa(minSecret) + " characters",
			Hint:    "in Sentry: Settings, Custom Integrations, the integration, Client Secret; docs/sources.md has the steps",
		}
	}
	return given, nil
}

// Hint tells the old plugin, and service hooks, by what their requests look like.
func (sentry) Hint(h http.Header, body []byte) string {
	switch {
	case h.Get("X-ServiceHook-Signature") != "":
		return "this looks like a Sentry service hook; set up an internal integration with a webhook instead (docs/sources.md)"
	case h.Get(sentryResource) == "" && looksLikeLegacyPlugin(body):
		return "this looks like Sentry's legacy WebHooks plugin, which signs nothing; switch it off and set up an internal integration with a webhook instead (docs/sources.md)"
	}
	return "the source's secret must be the Client Secret of the integration that sends, and no proxy may change the body"
}

func looksLikeLegacyPlugin(body []byte) bool {
	names := topNames(body, 40)
	return names["event"] && !names["installation"] && (names["triggering_rules"] || names["project_slug"] || names["project_name"])
}

// Parse reads a delivery by its resource (a header) and its action (in the body). The list of both grows at Sentry, so what
// is not used is ignored and no error.
func (sentry) Parse(h http.Header, body []byte, now time.Time) (parsed, error) {
	p := parsed{Resource: h.Get(sentryResource), RequestID: h.Get(sentryRequestID)}
	var head struct {
		Action text `json:"action"`
	}
	if err := decode(body, &head); err != nil {
		return p, err
	}
	p.Action = string(head.Action)
	if p.Resource == "" {
		err := errand.Invalid(sentryResource, "the header that names the resource is missing")
		if looksLikeLegacyPlugin(body) {
			err.Hint = sentry{}.Hint(h, body)
		}
		return p, err
	}
	switch p.Resource {
	case "event_alert", "error":
		return parseSentryEvent(p, body, now)
	case "issue":
		return parseSentryIssue(p, h, body, now)
	}
	p.Ignored = reasonResource.with(p.Resource)
	return p, nil
}

type sentryEventBody struct {
	Data struct {
		Event *sentryEvent `json:"event"`
		Error *sentryEvent `json:"error"`
	} `json:"data"`
}

// parseSentryEvent reads event_alert.triggered and error.created. The same event may come as both, and once for each alert
// rule that fired: the key is the event, so that it is considered once.
func parseSentryEvent(p parsed, body []byte, now time.Time) (parsed, error) {
	if want := map[string]string{"event_alert": "triggered", "error": "created"}[p.Resource]; p.Action != want {
		p.Ignored = reasonAction.with(p.Action)
		return p, nil
	}
	var b sentryEventBody
	if err := decode(body, &b); err != nil {
		return p, err
	}
	field, in := "data.event", b.Data.Event
	if p.Resource == "error" {
		field, in = "data.error", b.Data.Error
	}
	if in == nil {
		return p, errand.Invalid(field, "it is missing")
	}
	issueID := in.issueID()
	if err := checkID(field+".event_id", string(in.EventID)); err != nil {
		return p, err
	}
	if err := checkID(field+".issue_id", issueID); err != nil {
		return p, err
	}
	p.Key = "event:" + issueID + ":" + string(in.EventID)
	p.Event = in.event(now)
	p.Issue = in.issue(issueID, p.Event.SeenAt)
	p.Consider = true
	return p, nil
}

type sentryIssueBody struct {
	Data struct {
		Issue *sentryIssue `json:"issue"`
	} `json:"data"`
}

type sentryIssue struct {
	ID            text           `json:"id"`
	Title         text           `json:"title"`
	Culprit       text           `json:"culprit"`
	Level         text           `json:"level"`
	Platform      text           `json:"platform"`
	Category      text           `json:"issueCategory"`
	Substatus     text           `json:"substatus"`
	StatusDetails jsontext.Value `json:"statusDetails"`
	FirstSeen     text           `json:"firstSeen"`
	LastSeen      text           `json:"lastSeen"`
	Permalink     text           `json:"permalink"`
	WebURL        text           `json:"web_url"`
	Project       *struct {
		ID   text `json:"id"`
		Slug text `json:"slug"`
	} `json:"project"`
}

// parseSentryIssue reads issue.*: a word about an issue, without a stack trace, a release, or the time of the change. The
// time is taken from the timestamp header. It stands outside the signature, so it only orders words whose bodies are
// authentic; without it the time of receipt counts.
func parseSentryIssue(p parsed, h http.Header, body []byte, now time.Time) (parsed, error) {
	status, consider := "", false
	switch p.Action {
	case "created": // the beginning, and no change of status
		consider = true
	case "unresolved":
		status, consider = "open", true
	case "resolved":
		status = "resolved"
	case "ignored", "archived":
		status = "ignored"
	default:
		p.Ignored = reasonAction.with(p.Action)
		return p, nil
	}
	var b sentryIssueBody
	if err := decode(body, &b); err != nil {
		return p, err
	}
	in := b.Data.Issue
	if in == nil {
		return p, errand.Invalid("data.issue", "it is missing")
	}
	if in.Category != "" && in.Category != "error" {
		p.Ignored = reasonCategory.with(string(in.Category))
		return p, nil
	}
	if err := checkID("data.issue.id", string(in.ID)); err != nil {
		return p, err
	}
	lastSeen := readTime(string(in.LastSeen), "", now)
	p.Unseen = in.LastSeen == ""
	p.Issue = errand.Issue{
		ProviderID: string(in.ID), Title: string(in.Title), Culprit: string(in.Culprit), Level: string(in.Level),
		Platform: string(in.Platform), Link: string(cmp.Or(in.WebURL, in.Permalink)),
		FirstSeen: readTime(string(in.FirstSeen), "", lastSeen), LastSeen: lastSeen,
	}
	if in.Project != nil {
		p.Issue.Project = string(cmp.Or(in.Project.Slug, in.Project.ID))
	}
	p.Status, p.Consider = status, consider
	if status != "" {
		p.StatusAt, p.Repeatable = readTime("", h.Get(sentryTimestamp), now), true
	}
	p.Key = "issue:" + string(in.ID) + ":" + p.Action + ":" + string(in.LastSeen) + ":" + digestOf(in)
	if consider {
		// What stands for the word where no event is known (addEvent).
		p.Event = &errand.Event{
			ProviderID: wordPrefix + string(in.ID) + ":" + p.Action + ":" + string(in.LastSeen), SeenAt: lastSeen, Primary: -1,
		}
	}
	return p, nil
}

// digestOf tells two words of the same action apart that say different things.
func digestOf(in *sentryIssue) string {
	details := in.StatusDetails.Clone()
	if details.Canonicalize(readOptions()) != nil {
		details = in.StatusDetails
	}
	sum := sha256.Sum256(append([]byte(string(in.Substatus)+"\x00"), details...))
	return hex.EncodeToString(sum[:8])
}

// readTime reads a time in RFC 3339, or in seconds since 1970, or gives otherwise.
func readTime(stamp, epoch string, otherwise time.Time) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} { // without a zone: UTC
		if t, err := time.Parse(layout, stamp); err == nil && t.Year() >= 1970 {
			return t.UTC()
		}
	}
	if sec, nsec, ok := seconds(strings.TrimSpace(epoch)); ok && sec > 0 {
		return time.Unix(sec, nsec).UTC()
	}
	return otherwise
}
