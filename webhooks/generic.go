package webhooks

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/errand-dev/errand"
)

// generic is Errand's own format, for whatever has no kind of its own: the JSON of docs/sources.md, signed as Standard
// Webhooks 1.0 says. It is read strictly: what it does not know it refuses, so that a misspelt member is no silent loss.
type generic struct{}

// standardTolerance is how far the signed time of a message may lie from ours, in both directions.
const standardTolerance = 5 * time.Minute

// The lengths of a secret that Standard Webhooks allows, in bytes before base64.
const (
	standardMinSecret = 24
	standardMaxSecret = 64
	standardPrefix    = "whsec_"
)

var allDigits = regexp.MustCompile(`^[0-9]{1,12}$`)

func (generic) Verify(h http.Header, body, secret []byte, now time.Time) error {
	return verifyStandard(h, body, secret, now)
}

// verifyStandard verifies a Standard Webhooks message: its HMAC-SHA256 over id, time and body must match one of the v1
// signatures (senders send several while they rotate), and the time must be near now. The reference library compares;
// what it leaves open is closed here: the clock, an empty key, a header sent twice, and a dot in the id, with which the
// end of the id and the beginning of the time would be anybody's choice.
func verifyStandard(h http.Header, body, secret []byte, now time.Time) error {
	key, err := standardKey(string(secret))
	if err != nil {
		return errors.New("the source has no usable secret, so nothing can be authentic")
	}
	for _, name := range []string{standardwebhooks.HeaderWebhookID, standardwebhooks.HeaderWebhookTimestamp, standardwebhooks.HeaderWebhookSignature} {
		switch v := h.Values(name); {
		case len(v) == 0 || v[0] == "":
			return errors.New("the delivery is not signed: it has no header " + name)
		case len(v) > 1:
			return errors.New("the delivery has several headers " + name)
		}
	}
	if id := h.Get(standardwebhooks.HeaderWebhookID); !idForm.MatchString(id) || strings.Contains(id, ".") {
		return errors.New("webhook-id has 1 to 200 visible ASCII characters and no dot")
	}
	stamp := h.Get(standardwebhooks.HeaderWebhookTimestamp)
	if !allDigits.MatchString(stamp) {
		return errors.New("webhook-timestamp is not whole seconds since 1970")
	}
	wh, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		return errors.New("the source has no usable secret, so nothing can be authentic")
	}
	if err := wh.VerifyIgnoringTimestamp(body, h); err != nil {
		return errors.New("no signature in webhook-signature matches the id, the time, the body and this source's secret")
	}
	sec, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return errors.New("webhook-timestamp is not whole seconds since 1970")
	}
	if d := now.Sub(time.Unix(sec, 0)); d > standardTolerance || d < -standardTolerance {
		return errors.New("webhook-timestamp is more than five minutes away from this server's clock: sign again for each attempt, and set the sender's clock")
	}
	return nil
}

func standardKey(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, standardPrefix))
	if err != nil || len(key) < standardMinSecret || len(key) > standardMaxSecret {
		return nil, errand.Invalid("secret", "want %s and the base64 of %d to %d random bytes, or none: then one is made", standardPrefix, standardMinSecret, standardMaxSecret)
	}
	return key, nil
}

func (generic) Secret(given string) (string, error) {
	if given == "" {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // crypto/rand.Read never fails: it ends the program instead
		return standardPrefix + base64.StdEncoding.EncodeToString(key), nil
	}
	_, err := standardKey(given)
	return given, err
}

func (generic) Hint(http.Header, []byte) string {
	return "sign as Standard Webhooks 1.0 says, with this source's whsec_ secret; docs/sources.md has a command that does"
}

// The types of message. Others are ignored: a sender may have one endpoint for many things.
const (
	genericError    = "error.occurred"
	genericResolved = "issue.resolved"
	genericIgnored  = "issue.ignored"
	genericReopened = "issue.reopened"
)

type genericMessage struct {
	Type      string      `json:"type"`
	Timestamp time.Time   `json:"timestamp"`
	Data      genericData `json:"data"`
}

type genericData struct {
	Issue genericIssue  `json:"issue"`
	Event *genericEvent `json:"event"`
}

type genericIssue struct {
	ID          string    `json:"id"`
	Title       string    `json:"title"`
	Culprit     string    `json:"culprit"`
	Level       string    `json:"level"`
	Platform    string    `json:"platform"`
	Project     string    `json:"project"`
	Link        string    `json:"link"`
	Fingerprint string    `json:"fingerprint"`
	FirstSeen   time.Time `json:"first_seen"`
	LastSeen    time.Time `json:"last_seen"`
}

type genericEvent struct {
	ID          string             `json:"id"`
	Time        time.Time          `json:"time"`
	Release     string             `json:"release"`
	Commit      string             `json:"commit"`
	Environment string             `json:"environment"`
	Transaction string             `json:"transaction"`
	Message     string             `json:"message"`
	Tags        []genericTag       `json:"tags"`
	Exceptions  []genericException `json:"exceptions"`
}

type genericTag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type genericException struct {
	Type    string         `json:"type"`
	Value   string         `json:"value"`
	Module  string         `json:"module"`
	Handled *bool          `json:"handled"`
	ID      *int32         `json:"id"`
	Parent  *int32         `json:"parent"`
	Group   bool           `json:"group"`
	Frames  []genericFrame `json:"frames"`
}

type genericFrame struct {
	Filename string `json:"filename"`
	AbsPath  string `json:"abs_path"`
	Module   string `json:"module"`
	Function string `json:"function"`
	Line     int32  `json:"line"`
	Column   int32  `json:"column"`
	InApp    *bool  `json:"in_app"`
}

// Parse reads a message. Its key is the webhook-id, which stays the same when a message is sent again.
func (generic) Parse(h http.Header, body []byte, now time.Time) (parsed, error) {
	id := h.Get(standardwebhooks.HeaderWebhookID)
	p := parsed{RequestID: id, Key: "id:" + id}
	var head struct {
		Type *string `json:"type"`
	}
	if err := decode(body, &head); err != nil {
		return p, err
	}
	if head.Type == nil || *head.Type == "" {
		return p, errand.Invalid("type", "it is missing: want %s, %s, %s or %s", genericError, genericResolved, genericIgnored, genericReopened)
	}
	p.Resource, p.Action, _ = strings.Cut(*head.Type, ".")
	switch *head.Type {
	case genericError:
	case genericResolved:
		p.Status = "resolved"
	case genericIgnored:
		p.Status = "ignored"
	case genericReopened:
		p.Status = "open"
	default:
		p.Ignored = reasonResource.with(*head.Type)
		return p, nil
	}
	var m genericMessage
	if err := decode(body, &m, json.RejectUnknownMembers(true)); err != nil {
		return p, err
	}
	return m.understand(p, now)
}

func (m *genericMessage) understand(p parsed, now time.Time) (parsed, error) {
	in := m.Data.Issue
	if err := checkID("data.issue.id", in.ID); err != nil {
		return p, err
	}
	p.Issue = errand.Issue{
		ProviderID: in.ID, Fingerprint: in.Fingerprint, Title: in.Title, Culprit: in.Culprit, Level: in.Level, Platform: in.Platform,
		Project: in.Project, Link: in.Link, FirstSeen: in.FirstSeen, LastSeen: in.LastSeen,
	}
	if p.Status == "" {
		return m.occurred(p, now)
	}
	switch {
	case m.Timestamp.IsZero():
		return p, errand.Invalid("timestamp", "it is missing: the time of the change tells an older word from a newer one")
	case m.Data.Event != nil:
		return p, errand.Invalid("data.event", "a message of the type %s has no event", m.Type)
	}
	p.StatusAt = m.Timestamp
	if p.Issue.LastSeen.IsZero() {
		p.Issue.LastSeen, p.Unseen = m.Timestamp, true
	}
	if p.Status == "open" {
		p.Consider = true
		p.Event = &errand.Event{
			ProviderID: wordPrefix + in.ID + ":" + p.Action + ":" + m.Timestamp.UTC().Format(time.RFC3339Nano), SeenAt: p.Issue.LastSeen, Primary: -1,
		}
	}
	return p, nil
}

func (m *genericMessage) occurred(p parsed, now time.Time) (parsed, error) {
	in := m.Data.Event
	switch {
	case in == nil:
		return p, errand.Invalid("data.event", "it is missing")
	case p.Issue.Title == "":
		return p, errand.Invalid("data.issue.title", "it is missing")
	case in.Time.IsZero():
		return p, errand.Invalid("data.event.time", "it is missing: want a time such as 2026-09-14T09:21:44Z")
	case in.Commit != "" && !shortCommit.MatchString(in.Commit):
		return p, errand.Invalid("data.event.commit", "want 7 to 40 hexadecimal digits in lower case")
	}
	if err := checkID("data.event.id", in.ID); err != nil {
		return p, err
	}
	switch p.Issue.Level {
	case "":
		p.Issue.Level = "error"
	case "fatal", "error", "warning", "info", "debug":
	default:
		return p, errand.Invalid("data.issue.level", "want fatal, error, warning, info or debug")
	}
	e := &errand.Event{
		ProviderID: in.ID, SeenAt: in.Time, Release: in.Release, Commit: in.Commit, Environment: in.Environment,
		Transaction: in.Transaction, Message: in.Message,
	}
	if e.Commit == "" {
		e.Commit = CommitOf(in.Release)
	}
	for _, t := range in.Tags {
		e.Tags = append(e.Tags, errand.Tag(t))
	}
	for i := range in.Exceptions {
		e.Exceptions = append(e.Exceptions, in.Exceptions[i].exception())
	}
	bound(e)
	p.Event, p.Consider = e, true
	if p.Issue.LastSeen.IsZero() || p.Issue.LastSeen.Before(in.Time) {
		p.Issue.LastSeen = in.Time
	}
	if p.Issue.FirstSeen.IsZero() {
		p.Issue.FirstSeen = in.Time
	}
	return p, nil
}

func (x *genericException) exception() errand.Exception {
	out := errand.Exception{Type: x.Type, Value: x.Value, Module: x.Module, Handled: x.Handled, Group: x.Group}
	if x.ID != nil {
		id := int(*x.ID)
		out.ID = &id
	}
	if x.Parent != nil {
		parent := int(*x.Parent)
		out.Parent = &parent
	}
	for _, f := range x.Frames {
		out.Frames = append(out.Frames, errand.Frame{
			Filename: f.Filename, AbsPath: f.AbsPath, Module: f.Module, Function: f.Function,
			Line: int(max(f.Line, 0)), Column: int(max(f.Column, 0)), InApp: f.InApp,
		})
	}
	return out
}

// bound holds the caps on how many of each an event has, and records what went.
func bound(e *errand.Event) {
	var over int
	if e.Tags, over = cutMiddle(e.Tags, 0, maxTags, 0); over > 0 {
		e.Removed = addRemoval(e.Removed, "tags", kindOverLimit)
	}
	if e.Exceptions, over = cutMiddle(e.Exceptions, 0, maxExceptions/2, maxExceptions/2); over > 0 {
		e.Removed = addRemoval(e.Removed, "exceptions", kindOverLimit)
	}
	for i := range e.Exceptions {
		if e.Exceptions[i].Frames, over = cutMiddle(e.Exceptions[i].Frames, 0, 0, maxFrames); over > 0 {
			e.Removed = addRemoval(e.Removed, "exceptions.frames", kindOverLimit)
		}
	}
}
