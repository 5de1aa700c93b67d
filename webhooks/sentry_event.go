package webhooks

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/errand-dev/errand"
)

// sentryEvent is what is read of an event. Source lines, local variables, breadcrumbs, the request, the user and whatever
// else the application attached have no place to go: where such a thing stood is remembered, and nothing of it.
type sentryEvent struct {
	EventID     text             `json:"event_id"`
	IssueID     text             `json:"issue_id"`
	IssueURL    text             `json:"issue_url"` // .../issues/<id>/
	URL         text             `json:"url"`       // .../projects/<organisation>/<project>/events/<id>/
	WebURL      text             `json:"web_url"`
	Project     text             `json:"project"` // numeric
	Platform    text             `json:"platform"`
	Release     text             `json:"release"`
	Environment text             `json:"environment"`
	Culprit     text             `json:"culprit"`
	Transaction text             `json:"transaction"`
	Title       text             `json:"title"`
	Level       text             `json:"level"`
	Message     text             `json:"message"`
	Datetime    text             `json:"datetime"`
	Timestamp   text             `json:"timestamp"`
	Fingerprint []text           `json:"fingerprint"`
	Hashes      []text           `json:"hashes"`
	Tags        sentryTags       `json:"tags"`
	Exception   sentryExceptions `json:"exception"`
	Stacktrace  *sentryStack     `json:"stacktrace"` // of an event that is a message
	Threads     sentryThreads    `json:"threads"`
	Logentry    *struct {
		Formatted text `json:"formatted"`
		Message   text `json:"message"`
	} `json:"logentry"`

	Breadcrumbs dropped `json:"breadcrumbs"`
	Request     dropped `json:"request"`
	User        dropped `json:"user"`
	Extra       dropped `json:"extra"`
	Contexts    dropped `json:"contexts"`
	Modules     dropped `json:"modules"`
}

type sentryException struct {
	Type       text             `json:"type"`
	Value      text             `json:"value"`
	Module     text             `json:"module"`
	Mechanism  *sentryMechanism `json:"mechanism"`
	Stacktrace *sentryStack     `json:"stacktrace"`
}

type sentryMechanism struct {
	Type    text   `json:"type"`
	Handled truth  `json:"handled"`
	ID      number `json:"exception_id"`
	Parent  number `json:"parent_id"`
	Group   truth  `json:"is_exception_group"`
}

type sentryStack struct {
	Frames sentryFrames `json:"frames"`
}

type sentryFrame struct {
	Filename    text        `json:"filename"`
	AbsPath     text        `json:"abs_path"`
	Module      text        `json:"module"`
	Function    text        `json:"function"`
	RawFunction text        `json:"raw_function"`
	Line        count       `json:"lineno"`
	Column      count       `json:"colno"`
	InApp       truth       `json:"in_app"`
	Data        sentryInApp `json:"data"`

	Context     dropped `json:"context_line"`
	PreContext  dropped `json:"pre_context"`
	PostContext dropped `json:"post_context"`
	Vars        dropped `json:"vars"`
}

// sentryInApp is what the SDK said of a frame before the project's rules changed in_app: 1 inside, 0 outside.
type sentryInApp struct{ orig number }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (d *sentryInApp) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '{' {
		return dec.SkipValue()
	}
	var in struct {
		Orig number `json:"orig_in_app"`
	}
	err := json.UnmarshalDecode(dec, &in)
	d.orig = in.Orig
	return err
}

type sentryFrames struct {
	list []sentryFrame
	over int
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. The frame of the crash is the last.
func (f *sentryFrames) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	f.list, f.over, err = decodeList[sentryFrame](dec, 0, maxFrames)
	return err
}

type sentryExceptions struct {
	list []sentryException
	over int
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. It takes {"values": [...]}, {"values": {...}}, {"value": {...}}, a
// list, one exception, and null.
func (x *sentryExceptions) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	if dec.PeekKind() != '{' {
		x.list, x.over, err = decodeList[sentryException](dec, maxExceptions/2, maxExceptions/2)
		return err
	}
	var in struct {
		Values     oneOrMore        `json:"values"`
		Value      oneOrText        `json:"value"`
		Type       text             `json:"type"`
		Module     text             `json:"module"`
		Mechanism  *sentryMechanism `json:"mechanism"`
		Stacktrace *sentryStack     `json:"stacktrace"`
	}
	if err := json.UnmarshalDecode(dec, &in); err != nil {
		return err
	}
	switch {
	case len(in.Values.list) > 0:
		x.list, x.over = in.Values.list, in.Values.over
	case in.Value.one != nil:
		x.list = []sentryException{*in.Value.one}
	case in.Type != "" || in.Value.text != "" || in.Stacktrace != nil:
		x.list = []sentryException{{Type: in.Type, Value: in.Value.text, Module: in.Module, Mechanism: in.Mechanism, Stacktrace: in.Stacktrace}}
	}
	return nil
}

type oneOrMore struct {
	list []sentryException
	over int
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (x *oneOrMore) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	if dec.PeekKind() == '{' {
		x.list = make([]sentryException, 1)
		return json.UnmarshalDecode(dec, &x.list[0])
	}
	x.list, x.over, err = decodeList[sentryException](dec, maxExceptions/2, maxExceptions/2)
	return err
}

type oneOrText struct {
	one  *sentryException
	text text
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (x *oneOrText) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '{' {
		x.one = &sentryException{}
		return json.UnmarshalDecode(dec, x.one)
	}
	return x.text.UnmarshalJSONFrom(dec)
}

// sentryThreads keeps the stack of the thread that crashed, or else of the one that sent the event.
type sentryThreads struct{ stack *sentryStack }

type sentryThread struct {
	Crashed    truth        `json:"crashed"`
	Current    truth        `json:"current"`
	Stacktrace *sentryStack `json:"stacktrace"`
}

type threadList struct{ list []sentryThread }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *threadList) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	l.list, _, err = decodeList[sentryThread](dec, 64, 0)
	return err
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *sentryThreads) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var in struct {
		Values threadList `json:"values"`
	}
	var err error
	if dec.PeekKind() == '{' {
		err = json.UnmarshalDecode(dec, &in)
	} else {
		err = json.UnmarshalDecode(dec, &in.Values)
	}
	for _, th := range in.Values.list {
		if th.Stacktrace != nil && (th.Crashed.value || (th.Current.value && t.stack == nil)) {
			t.stack = th.Stacktrace
		}
	}
	return err
}

// sentryTags takes [[key, value], ...], [{"key":..., "value":...}, ...] and {key: value}.
type sentryTags struct {
	list []errand.Tag
	over int
}

type sentryTag struct{ key, value text }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *sentryTag) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '{' {
		var in struct {
			Key   text `json:"key"`
			Value text `json:"value"`
		}
		err := json.UnmarshalDecode(dec, &in)
		t.key, t.value = in.Key, in.Value
		return err
	}
	var pair []text
	err := json.UnmarshalDecode(dec, &pair)
	if len(pair) == 2 {
		t.key, t.value = pair[0], pair[1]
	}
	return err
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *sentryTags) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '{' {
		var in map[string]text
		if err := json.UnmarshalDecode(dec, &in); err != nil {
			return err
		}
		for k, v := range in {
			t.list = append(t.list, errand.Tag{Key: k, Value: string(v)})
		}
		slices.SortFunc(t.list, func(a, b errand.Tag) int { return cmp.Compare(a.Key, b.Key) })
		if len(t.list) > maxTags {
			t.list, t.over = t.list[:maxTags], len(t.list)-maxTags
		}
		return nil
	}
	list, over, err := decodeList[sentryTag](dec, maxTags, 0)
	t.over = over
	for _, tag := range list {
		if tag.key != "" {
			t.list = append(t.list, errand.Tag{Key: string(tag.key), Value: string(tag.value)})
		}
	}
	return err
}

func (t sentryTags) get(key string) string {
	for _, tag := range t.list {
		if tag.Key == key {
			return tag.Value
		}
	}
	return ""
}

// segmentAfter gives the segment of an address's path that stands n behind the given one.
func segmentAfter(address, segment string, n int) string {
	address, _, _ = strings.Cut(address, "?")
	parts := strings.Split(address, "/")
	if i := slices.Index(parts, segment); i >= 0 && i+n < len(parts) {
		return parts[i+n]
	}
	return ""
}

func (in *sentryEvent) issueID() string {
	return cmp.Or(string(in.IssueID), segmentAfter(string(in.IssueURL), "issues", 1))
}

func (in *sentryEvent) issue(id string, seen time.Time) errand.Issue {
	link, _, _ := strings.Cut(string(in.WebURL), "/events/")
	if link != "" && link != string(in.WebURL) {
		link += "/"
	}
	return errand.Issue{
		ProviderID: id, Fingerprint: in.fingerprint(), Title: string(cmp.Or(in.Title, in.Message)), Culprit: string(in.Culprit),
		// Sentry takes an event without a level for an error.
		Level:    cmp.Or(string(in.Level), in.Tags.get("level"), "error"),
		Platform: string(in.Platform),
		Project:  cmp.Or(segmentAfter(string(in.URL), "projects", 2), string(in.Project)),
		Link:     link, FirstSeen: seen, LastSeen: seen,
	}
}

// fingerprint is the project's own grouping where it has one, else Sentry's hash.
func (in *sentryEvent) fingerprint() string {
	var own []string
	for _, f := range in.Fingerprint {
		own = append(own, string(f))
	}
	if joined := strings.Join(own, "|"); joined != "" && joined != "{{ default }}" {
		return joined
	}
	if len(in.Hashes) > 0 {
		return string(in.Hashes[0])
	}
	return ""
}

func (in *sentryEvent) event(now time.Time) *errand.Event {
	e := &errand.Event{
		ProviderID: string(in.EventID), SeenAt: readTime(string(in.Datetime), string(in.Timestamp), now),
		Release: string(in.Release), Commit: CommitOf(string(in.Release)), Tags: in.Tags.list,
		Environment: cmp.Or(string(in.Environment), in.Tags.get("environment")), Transaction: string(in.Transaction),
	}
	xs := in.exceptions()
	if len(in.Exception.list) == 0 {
		e.Message = in.message()
	}
	restoreInApp(xs)
	for _, x := range xs {
		e.Exceptions = append(e.Exceptions, x.exception())
	}
	in.recordDropped(e, xs)
	return e
}

func (in *sentryEvent) message() string {
	if in.Logentry != nil {
		return string(cmp.Or(in.Logentry.Formatted, in.Logentry.Message, in.Message))
	}
	return string(in.Message)
}

// exceptions gives the event's exceptions. The stack of the thread that crashed belongs to the one that was finally raised
// when that has none; a message that was sent with a stack becomes an exception of the type "message", so that it can be
// mapped to code.
func (in *sentryEvent) exceptions() []sentryException {
	xs := in.Exception.list
	if n := len(xs); n > 0 {
		if st := xs[n-1].Stacktrace; (st == nil || len(st.Frames.list) == 0) && in.Threads.stack != nil {
			xs[n-1].Stacktrace = in.Threads.stack
		}
		return xs
	}
	st := in.Stacktrace
	if st == nil || len(st.Frames.list) == 0 {
		st = in.Threads.stack
	}
	if st == nil || len(st.Frames.list) == 0 {
		return nil
	}
	return []sentryException{{Type: "message", Value: text(in.message()), Stacktrace: st}}
}

// restoreInApp goes back to what the SDK said where the project's rules left no frame of the event inside the application.
func restoreInApp(xs []sentryException) {
	original := false
	for _, x := range xs {
		for _, f := range x.frames() {
			if f.InApp.value {
				return
			}
			original = original || f.Data.orig.value == 1
		}
	}
	if !original {
		return
	}
	for _, x := range xs {
		frames := x.frames()
		for i := range frames {
			if o := frames[i].Data.orig; o.set {
				frames[i].InApp = truth{known: o.value >= 0, value: o.value == 1}
			}
		}
	}
}

func (x sentryException) frames() []sentryFrame {
	if x.Stacktrace == nil {
		return nil
	}
	return x.Stacktrace.Frames.list
}

func (x sentryException) exception() errand.Exception {
	out := errand.Exception{Type: string(x.Type), Value: string(x.Value), Module: string(x.Module)}
	if m := x.Mechanism; m != nil {
		out.Mechanism, out.Handled = string(m.Type), m.Handled.pointer()
		out.ID, out.Parent, out.Group = m.ID.pointer(), m.Parent.pointer(), m.Group.value
	}
	for _, f := range x.frames() {
		out.Frames = append(out.Frames, errand.Frame{
			Filename: string(f.Filename), AbsPath: string(f.AbsPath), Module: string(f.Module),
			Function: string(cmp.Or(f.Function, f.RawFunction)), Line: int(f.Line), Column: int(f.Column), InApp: f.InApp.pointer(),
		})
	}
	return out
}

// The kinds of what is dropped at the edge.
const (
	kindSource = "source_lines"
	kindVars   = "local_variables"
	kindData   = "application_data"
)

func (in *sentryEvent) recordDropped(e *errand.Event, xs []sentryException) {
	note := func(there bool, path, kind string) {
		if there {
			e.Removed = addRemoval(e.Removed, path, kind)
		}
	}
	note(bool(in.Breadcrumbs), "breadcrumbs", kindData)
	note(bool(in.Request), "request", kindData)
	note(bool(in.User), "user", kindData)
	note(bool(in.Extra), "extra", kindData)
	note(bool(in.Contexts), "contexts", kindData)
	note(bool(in.Modules), "modules", kindData)
	note(in.Tags.over > 0, "tags", kindOverLimit)
	note(in.Exception.over > 0, "exceptions", kindOverLimit)
	for _, x := range xs {
		note(x.Stacktrace != nil && x.Stacktrace.Frames.over > 0, "exceptions.frames", kindOverLimit)
		for _, f := range x.frames() {
			note(bool(f.Context || f.PreContext || f.PostContext), "exceptions.frames", kindSource)
			note(bool(f.Vars), "exceptions.frames", kindVars)
		}
	}
}
