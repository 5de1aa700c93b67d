package console

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// eventView is one occurrence as a page shows it.
type eventView struct {
	errand.Event
	ReceivedAt time.Time
	Unreadable bool // the stored event does not decode: said so, and nothing else is claimed
	Facts      []fact
	Stacks     []stack // the primary exception first, then the others as the provider gave them
}

// fact is one field of the event and who could have written it.
type fact struct {
	Name, Value string
	Origin      errand.Origin // "" = unknown
}

// stack is one exception with its frames, newest call first.
type stack struct {
	errand.Exception
	Primary bool
	Origin  errand.Origin
	InApp   []place // in the application, or not known to be outside it
	All     []place
}

// place is a frame and its distance from the crash: 1 is where it happened.
type place struct {
	errand.Frame
	Depth int
}

func newEventView(row store.Event) *eventView {
	v := &eventView{ReceivedAt: row.ReceivedAt}
	if err := json.Unmarshal([]byte(row.Body), &v.Event); err != nil {
		v.Unreadable = true
		return v
	}
	if v.SeenAt.IsZero() {
		v.SeenAt = row.SeenAt
	}
	for _, f := range []struct{ key, name, value string }{
		{"message", "Message", v.Message},
		{"release", "Release", v.Release},
		{"commit", "Commit", v.Commit},
		{"environment", "Environment", v.Environment},
		{"transaction", "Transaction", v.Transaction},
	} {
		if f.value != "" {
			v.Facts = append(v.Facts, fact{f.name, f.value, v.Provenance[f.key]})
		}
	}
	for i, x := range v.Exceptions {
		s := newStack(x, v.Provenance["exceptions"])
		if i == v.Primary {
			s.Primary = true
			v.Stacks = slices.Insert(v.Stacks, 0, s)
			continue
		}
		v.Stacks = append(v.Stacks, s)
	}
	return v
}

func newStack(x errand.Exception, origin errand.Origin) stack {
	s := stack{Exception: x, Origin: origin}
	for i, f := range slices.Backward(x.Frames) {
		p := place{Frame: f, Depth: len(x.Frames) - i}
		s.All = append(s.All, p)
		// Unknown is not "outside": a frame nobody classified stays in sight.
		if f.InApp == nil || *f.InApp {
			s.InApp = append(s.InApp, p)
		}
	}
	return s
}

// Where names the frame's file, or its module where the platform has no files.
func (p place) Where() string {
	where := p.Filename
	if where == "" {
		where = p.Module
	}
	if where == "" {
		where = p.AbsPath
	}
	if where == "" {
		return "file unknown"
	}
	return where
}

// Elsewhere is the frame's absolute path where Where shows another name: a mapping's stack root is held against it too.
func (p place) Elsewhere() string {
	if p.AbsPath == p.Where() {
		return ""
	}
	return p.AbsPath
}

// Position is ":line" or ":line:column", as far as they are known.
func (p place) Position() string {
	switch {
	case p.Line == 0:
		return ""
	case p.Column == 0:
		return ":" + strconv.Itoa(p.Line)
	default:
		return ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
	}
}

// Kind says whether the frame is the application's own.
func (p place) Kind() string {
	switch {
	case p.InApp == nil:
		return "in app: unknown"
	case *p.InApp:
		return "in app"
	default:
		return "library"
	}
}

// HandledText says whether the application caught the exception itself.
func (s stack) HandledText() string {
	switch {
	case s.Handled == nil:
		return "handled: unknown"
	case *s.Handled:
		return "handled"
	default:
		return "unhandled"
	}
}
