package webhooks

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/errand-dev/errand"
)

// posthog is PostHog's HTTP webhook destination, on the events of its error tracking or on $exception itself. Copies of the
// template with a signing_secret sign as Standard Webhooks says. Older copies cannot sign: for them there is posthogHeader,
// another kind, so that whether a signature is asked for is settled when the source is made and by nothing that is sent.
type posthog struct{}

// Verify holds the Standard Webhooks signature.
func (posthog) Verify(h http.Header, body, secret []byte, now time.Time) error {
	return verifyStandard(h, body, secret, now)
}

// Secret takes a signing secret with or without its prefix, as PostHog does.
func (posthog) Secret(given string) (string, error) {
	if given != "" && !strings.HasPrefix(given, standardPrefix) {
		given = standardPrefix + given
	}
	return generic{}.Secret(given)
}

// Hint says what to set up.
func (posthog) Hint(h http.Header, _ []byte) string {
	if h.Get(posthogSecret) != "" {
		return "this source wants a signature and not a secret in a header: set the template's signing_secret, or create a source of the kind posthog_header for a template that has none (docs/sources.md)"
	}
	return "set the webhook template's signing_secret to this source's whsec_ secret; for a template without one create a source of the kind posthog_header (docs/sources.md)"
}

// Parse reads a delivery.
func (posthog) Parse(h http.Header, body []byte, now time.Time) (parsed, error) {
	return parsePosthog(h, body, now)
}

// posthogHeader is PostHog's destination with a secret in a header, for templates that cannot sign. Such a delivery can be
// replayed by whoever has seen it, which its key makes harmless, and forged by whoever has seen one: TLS is what protects it.
type posthogHeader struct{ posthog }

// posthogSecret is the header in which the secret comes.
const posthogSecret = "X-Errand-Secret" //nolint:gosec // the header's name

// minHeaderSecret is the shortest secret that is taken for a header, in bytes.
const minHeaderSecret = 24

// Verify holds the header against the secret, in a time that tells nothing about either.
func (posthogHeader) Verify(h http.Header, _, secret []byte, _ time.Time) error {
	if len(secret) < minHeaderSecret {
		return errors.New("the source has no usable secret, so nothing can be authentic")
	}
	switch v := h.Values(posthogSecret); {
	case len(v) == 0 || v[0] == "":
		return errors.New("the delivery has no header " + posthogSecret)
	case len(v) > 1:
		return errors.New("the delivery has several headers " + posthogSecret)
	}
	given, want := sha256.Sum256([]byte(h.Get(posthogSecret))), sha256.Sum256(secret)
	if subtle.ConstantTimeCompare(given[:], want[:]) != 1 {
		return errors.New("the header " + posthogSecret + " does not hold this source's secret")
	}
	return nil
}

// Secret takes 24 visible characters or more. One that signs is refused: it would be shown to whatever a request passes.
func (posthogHeader) Secret(given string) (string, error) {
	switch {
	case given == "":
		key := make([]byte, 32)
		_, _ = rand.Read(key) // crypto/rand.Read never fails: it ends the program instead
		return base64.RawURLEncoding.EncodeToString(key), nil
	case strings.HasPrefix(given, standardPrefix):
		return "", errand.Invalid("secret", "%s begins a secret that signs, which is never sent: for a template with a signing_secret create a source of the kind posthog", standardPrefix)
	case len(given) < minHeaderSecret || !idForm.MatchString(given):
		return "", errand.Invalid("secret", "want %d to 200 visible ASCII characters without a space, or none: then one is made", minHeaderSecret)
	}
	return given, nil
}

// Hint says what to set up.
func (posthogHeader) Hint(h http.Header, _ []byte) string {
	if h.Get(standardwebhooks.HeaderWebhookSignature) != "" {
		return "this delivery is signed, so its template has a signing_secret: create a source of the kind posthog for it (docs/sources.md)"
	}
	return "add a header " + posthogSecret + " with this source's secret to the webhook template's headers (docs/sources.md)"
}

// The names of PostHog's events. Those of issues have a word after the prefix.
const (
	posthogIssueEvent = "$error_tracking_issue_"
	posthogException  = "$exception"
)

// posthogBody is what is read of a body: of the template's default, {"event": {...}, "person": {...}}, or of the template of
// docs/sources.md, which sends what Errand reads and nothing about a person.
type posthogBody struct {
	Event  *posthogEvent `json:"event"`
	Person dropped       `json:"person"`

	Kind        text          `json:"kind"`
	DeliveryID  text          `json:"delivery_id"`
	IssueID     text          `json:"issue_id"`
	Name        text          `json:"name"`
	Description text          `json:"description"`
	Fingerprint text          `json:"fingerprint"`
	SentAt      text          `json:"event_timestamp"`
	SeenAt      text          `json:"exception_timestamp"`
	Props       *posthogProps `json:"exception_props"`
	IssueURL    text          `json:"issue_url"`
	Project     *struct {
		ID text `json:"id"`
	} `json:"project"`
}

type posthogEvent struct {
	UUID       text              `json:"uuid"`
	Name       text              `json:"event"`
	DistinctID text              `json:"distinct_id"` // of an issue's event: the issue
	Timestamp  text              `json:"timestamp"`
	URL        text              `json:"url"` // .../project/<id>/events/<uuid>/<time>
	Properties posthogProperties `json:"properties"`
}

// posthogProperties are those of an issue's event and, in place of exception_props, those of an $exception.
type posthogProperties struct {
	Name        text          `json:"name"`
	Description text          `json:"description"`
	Fingerprint text          `json:"fingerprint"`
	SeenAt      text          `json:"exception_timestamp"`
	Props       *posthogProps `json:"exception_props"` // absent when the message was too large for PostHog's queue
	posthogProps
}

// posthogProps are the properties of an exception. Whatever else the application, the browser or PostHog put there (who the
// person is, where, on which page) has no place to go.
type posthogProps struct {
	List        posthogExceptions `json:"$exception_list"`
	Types       posthogTexts      `json:"$exception_types"`
	Values      posthogTexts      `json:"$exception_values"`
	Fingerprint text              `json:"$exception_fingerprint"`
	IssueID     text              `json:"$exception_issue_id"`
	IssueName   text              `json:"$issue_name"`
	Level       text              `json:"$exception_level"`
	Releases    posthogReleases   `json:"$exception_releases"`
	Environment text              `json:"environment"`
	posthogTags

	Rest jsontext.Value `json:",unknown"`
}

// posthogTags are the properties that are kept as tags: of the program and its surroundings, none of a person.
type posthogTags struct {
	Lib            text `json:"$lib"`
	LibVersion     text `json:"$lib_version"`
	AppVersion     text `json:"$app_version"`
	Browser        text `json:"$browser"`
	BrowserVersion text `json:"$browser_version"`
	DeviceType     text `json:"$device_type"`
	OS             text `json:"$os"`
	OSVersion      text `json:"$os_version"`
	Component      text `json:"component"`
	Service        text `json:"service"`
	Region         text `json:"region"`
}

func (t *posthogTags) list() []errand.Tag {
	all := []errand.Tag{
		{Key: "lib", Value: string(t.Lib)},
		{Key: "lib_version", Value: string(t.LibVersion)},
		{Key: "app_version", Value: string(t.AppVersion)},
		{Key: "browser", Value: string(t.Browser)},
		{Key: "browser_version", Value: string(t.BrowserVersion)},
		{Key: "device_type", Value: string(t.DeviceType)},
		{Key: "os", Value: string(t.OS)},
		{Key: "os_version", Value: string(t.OSVersion)},
		{Key: "component", Value: string(t.Component)},
		{Key: "service", Value: string(t.Service)},
		{Key: "region", Value: string(t.Region)},
	}
	return slices.DeleteFunc(all, func(t errand.Tag) bool { return t.Value == "" })
}

type posthogExceptions struct {
	list []posthogExc
	over int
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (x *posthogExceptions) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	x.list, x.over, err = decodeList[posthogExc](dec, maxExceptions/2, maxExceptions/2)
	return err
}

type posthogTexts struct{ list []text }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (x *posthogTexts) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	x.list, _, err = decodeList[text](dec, maxExceptions, 0)
	return err
}

type posthogExc struct {
	Type       text             `json:"type"`
	Value      text             `json:"value"`
	Module     text             `json:"module"`
	Mechanism  *sentryMechanism `json:"mechanism"` // PostHog's SDKs have Sentry's form of it
	Stacktrace *struct {
		Frames posthogFrames `json:"frames"`
	} `json:"stacktrace"`
}

type posthogFrames struct {
	list []posthogFrame
	over int
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. The frame of the crash is the last.
func (f *posthogFrames) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	f.list, f.over, err = decodeList[posthogFrame](dec, 0, maxFrames)
	return err
}

// posthogFrame is a frame as PostHog has resolved it (source, line, resolved_name) or as an SDK has sent it (filename,
// lineno, function).
type posthogFrame struct {
	Source   text  `json:"source"`
	Filename text  `json:"filename"`
	AbsPath  text  `json:"abs_path"`
	Module   text  `json:"module"`
	Resolved text  `json:"resolved_name"`
	Function text  `json:"function"`
	Mangled  text  `json:"mangled_name"`
	Line     count `json:"line"`
	LineNo   count `json:"lineno"`
	Column   count `json:"column"`
	ColNo    count `json:"colno"`
	InApp    truth `json:"in_app"`
	Lang     text  `json:"lang"`
	Platform text  `json:"platform"`

	Context     dropped `json:"context"`
	ContextLine dropped `json:"context_line"`
	PreContext  dropped `json:"pre_context"`
	PostContext dropped `json:"post_context"`
	Vars        dropped `json:"code_variables"`
	RawVars     dropped `json:"vars"`
}

// posthogReleases reads {"<hash>": {"version": ..., "metadata": {"git": {"commit_id": ...}}}}. Applications send other
// things under this name: those are passed over. Several releases (a page and its library, say) are none.
type posthogReleases struct {
	version, commit string
	several         bool
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (r *posthogReleases) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '{' {
		return dec.SkipValue()
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for n := 0; dec.PeekKind() != '}'; {
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		var one struct {
			Version  text `json:"version"`
			Metadata struct {
				Git struct {
					Commit text `json:"commit_id"`
				} `json:"git"`
			} `json:"metadata"`
		}
		if raw.Kind() != '{' || json.Unmarshal(raw, &one, readOptions()) != nil {
			continue
		}
		n++
		r.version, r.commit, r.several = string(one.Version), string(one.Metadata.Git.Commit), n > 1
	}
	_, err := dec.ReadToken()
	return err
}

// posthogMessage is what both bodies come to.
type posthogMessage struct {
	id, issue, project, link string
	prefix                   string // of the fields' names in answers
	fingerprint              string
	sentAt, seenAt           time.Time
	name, description        string
	props                    *posthogProps // nil = too large for PostHog, or left out of the template
	person                   bool
}

// parsePosthog reads a delivery. Its key is the id of PostHog's event, which is the same for each attempt to deliver it.
// What PostHog may send besides is ignored and no error: a destination's filter is easily too wide.
func parsePosthog(h http.Header, body []byte, now time.Time) (parsed, error) {
	var p parsed
	p.RequestID = h.Get(standardwebhooks.HeaderWebhookID)
	var head struct {
		Event *struct {
			Name text `json:"event"`
		} `json:"event"`
		Kind  text    `json:"kind"`
		Batch dropped `json:"batch"`
	}
	if err := decode(body, &head); err != nil {
		return p, err
	}
	name, field := string(head.Kind), "kind"
	if head.Event != nil {
		name, field = string(head.Event.Name), "event.event"
	}
	switch {
	case name == "" && bool(head.Batch):
		return p, &errand.Error{Code: errand.CodeInvalid, Field: "batch", Message: "this is what an SDK sends to PostHog, not what PostHog sends", Hint: "leave the SDK as it is and add a webhook destination in PostHog (docs/sources.md)"}
	case name == "":
		return p, &errand.Error{Code: errand.CodeInvalid, Field: field, Message: "it is missing: want the destination's default body, or the one of docs/sources.md"}
	case strings.HasPrefix(name, "{"):
		return p, errand.Invalid(field, "it still holds the template's placeholder, so PostHog has not filled the body in: send a test event instead of the template")
	}
	p.Resource, p.Action = strings.TrimPrefix(name, "$"), ""
	word, isIssue := strings.CutPrefix(name, posthogIssueEvent)
	if isIssue {
		p.Resource, p.Action = "error_tracking_issue", word
	}
	switch {
	case isIssue && slices.Contains([]string{"created", "reopened", "spiking", "resolved", "suppressed"}, word):
	case isIssue:
		p.Ignored = reasonAction.with(word)
		return p, nil
	case name == posthogException && head.Event == nil:
		return p, errand.Invalid("kind", "%s needs the destination's default body: here issue_id would be the person's id", posthogException)
	case name != posthogException:
		p.Ignored = reasonResource.with(p.Resource)
		return p, nil
	}
	var b posthogBody
	if err := decode(body, &b); err != nil {
		return p, err
	}
	m := b.message(name == posthogException, now)
	p.RequestID = cmp.Or(p.RequestID, m.id)
	return m.understand(p, now)
}

func (b *posthogBody) message(exception bool, now time.Time) posthogMessage {
	if b.Event == nil {
		m := posthogMessage{
			id: string(b.DeliveryID), issue: string(b.IssueID), link: string(b.IssueURL), fingerprint: string(b.Fingerprint),
			name: string(b.Name), description: string(b.Description), props: b.Props, person: bool(b.Person),
			sentAt: readTime(string(b.SentAt), "", now), seenAt: readTime(string(b.SeenAt), "", time.Time{}),
		}
		if b.Project != nil {
			m.project = string(b.Project.ID)
		}
		return m
	}
	e := b.Event
	base, _, _ := strings.Cut(string(e.URL), "/events/")
	m := posthogMessage{
		id: string(e.UUID), project: segmentAfter(string(e.URL), "project", 1), person: bool(b.Person), prefix: "event.",
		sentAt: readTime(string(e.Timestamp), "", now),
	}
	if in := &e.Properties; exception {
		m.issue, m.fingerprint, m.props, m.seenAt = string(in.IssueID), string(in.posthogProps.Fingerprint), &in.posthogProps, m.sentAt
	} else {
		m.issue, m.fingerprint, m.props = string(e.DistinctID), string(in.Fingerprint), in.Props
		m.name, m.description, m.seenAt = string(in.Name), string(in.Description), readTime(string(in.SeenAt), "", time.Time{})
	}
	if base != "" && base != string(e.URL) && m.issue != "" {
		m.link = base + "/error_tracking/" + m.issue
	}
	return m
}

func (m *posthogMessage) understand(p parsed, now time.Time) (parsed, error) {
	fields := map[string]string{"": "delivery_id", "event.": "event.uuid"}
	if err := checkID(fields[m.prefix], m.id); err != nil {
		return p, err
	}
	field := "issue_id"
	switch {
	case p.Action == "" && m.prefix != "":
		field = "event.properties.$exception_issue_id"
	case m.prefix != "":
		field = "event.distinct_id"
	}
	if err := checkID(field, m.issue); err != nil {
		return p, err
	}
	p.Key = "event:" + m.id
	p.Unseen = m.seenAt.IsZero() && m.props == nil
	if m.seenAt.IsZero() {
		m.seenAt = m.sentAt
	}
	switch p.Action {
	case "reopened":
		p.Status = "open"
	case "resolved":
		p.Status = "resolved"
	case "suppressed":
		p.Status = "ignored"
	}
	if p.Status != "" {
		p.StatusAt = m.sentAt
	}
	p.Consider = p.Status == "" || p.Status == "open"
	e := m.event(&p)
	p.Issue = m.asIssue(e)
	if p.Consider {
		p.Event = e
	}
	return p, nil
}

func (m *posthogMessage) asIssue(e *errand.Event) errand.Issue {
	i := errand.Issue{
		ProviderID: m.issue, Fingerprint: m.fingerprint, Level: "error", Project: m.project, Link: m.link, FirstSeen: m.seenAt, LastSeen: m.seenAt,
	}
	name, description := m.name, m.description
	if m.props != nil {
		i.Level = strings.ToLower(cmp.Or(string(m.props.Level), i.Level))
		name = cmp.Or(name, string(m.props.IssueName))
		i.Platform = m.props.platform()
	}
	if n := len(e.Exceptions); n > 0 { // in our order: the last is what was raised
		name, description = cmp.Or(name, e.Exceptions[n-1].Type), cmp.Or(description, e.Exceptions[n-1].Value)
	}
	i.Title = strings.TrimSuffix(name+": "+description, ": ")
	if name == "" {
		i.Title = description
	}
	if at := Primary(e.Exceptions); at >= 0 {
		if frames := e.Exceptions[at].Frames; len(frames) > 0 {
			f := frames[len(frames)-1]
			i.Culprit = cmp.Or(f.Filename, f.Module)
			if f.Function != "" && i.Culprit != "" {
				i.Culprit += " in " + f.Function
			}
		}
	}
	return i
}

// event makes the event, of a message without a stack trace one that stands for the word about the issue.
func (m *posthogMessage) event(p *parsed) *errand.Event {
	e := &errand.Event{ProviderID: m.id, SeenAt: m.seenAt, Primary: -1}
	if m.person {
		e.Removed = addRemoval(e.Removed, "person", kindData)
	}
	in := m.props
	if in == nil {
		e.ProviderID = wordPrefix + m.issue + ":" + p.Action + ":" + m.id
		if m.name != "" || m.description != "" {
			e.Exceptions = []errand.Exception{{Type: m.name, Value: m.description}}
		}
		e.Removed = addRemoval(e.Removed, "exceptions.frames", kindNotSent)
		return e
	}
	if !in.Releases.several {
		e.Release, e.Commit = in.Releases.version, CommitOf(in.Releases.version)
		if shortCommit.MatchString(in.Releases.commit) {
			e.Commit = in.Releases.commit
		}
	}
	e.Release = cmp.Or(e.Release, string(in.AppVersion))
	e.Environment, e.Tags, e.Exceptions = string(in.Environment), in.list(), in.exceptions()
	if len(e.Exceptions) == 0 {
		e.Message = m.description
	}
	in.recordDropped(e)
	return e
}

// exceptions turns PostHog's order round, in which what was caught stands first and its deepest cause last. Without a list,
// which older pipelines may leave out, the types and the values that PostHog made of it stand in; they have no frames.
func (in *posthogProps) exceptions() []errand.Exception {
	var xs []errand.Exception
	for i := range in.List.list {
		xs = append(xs, in.List.list[i].exception())
	}
	if len(xs) == 0 {
		for i := range max(len(in.Types.list), len(in.Values.list)) {
			var x errand.Exception
			if i < len(in.Types.list) {
				x.Type = string(in.Types.list[i])
			}
			if i < len(in.Values.list) {
				x.Value = string(in.Values.list[i])
			}
			xs = append(xs, x)
		}
	}
	slices.Reverse(xs)
	return xs
}

func (x *posthogExc) frames() []posthogFrame {
	if x.Stacktrace == nil {
		return nil
	}
	return x.Stacktrace.Frames.list
}

func (x *posthogExc) exception() errand.Exception {
	out := errand.Exception{Type: string(x.Type), Value: string(x.Value), Module: string(x.Module)}
	if m := x.Mechanism; m != nil {
		out.Mechanism, out.Handled = string(m.Type), m.Handled.pointer()
		out.ID, out.Parent, out.Group = m.ID.pointer(), m.Parent.pointer(), m.Group.value
	}
	for _, f := range x.frames() {
		out.Frames = append(out.Frames, errand.Frame{
			Filename: string(cmp.Or(f.Source, f.Filename)), AbsPath: string(f.AbsPath), Module: string(f.Module),
			Function: string(cmp.Or(f.Resolved, f.Function, f.Mangled)),
			Line:     int(cmp.Or(f.Line, f.LineNo)), Column: int(cmp.Or(f.Column, f.ColNo)), InApp: f.InApp.pointer(),
		})
	}
	return out
}

func (in *posthogProps) platform() string {
	for i := range in.List.list {
		for _, f := range in.List.list[i].frames() {
			if p := cmp.Or(f.Lang, f.Platform); p != "" {
				return string(p)
			}
		}
	}
	return ""
}

// kindNotSent is the kind of what the sender left out for want of room.
const kindNotSent = "not_sent"

func (in *posthogProps) recordDropped(e *errand.Event) {
	note := func(there bool, path, kind string) {
		if there {
			e.Removed = addRemoval(e.Removed, path, kind)
		}
	}
	note(len(in.Rest) > len("{}"), "properties", kindData)
	note(in.List.over > 0, "exceptions", kindOverLimit)
	for i := range in.List.list {
		x := &in.List.list[i]
		note(x.Stacktrace != nil && x.Stacktrace.Frames.over > 0, "exceptions["+strconv.Itoa(len(in.List.list)-1-i)+"].frames", kindOverLimit)
		for _, f := range x.frames() {
			note(bool(f.Context || f.ContextLine || f.PreContext || f.PostContext), "exceptions.frames", kindSource)
			note(bool(f.Vars || f.RawVars), "exceptions.frames", kindVars)
		}
	}
}
