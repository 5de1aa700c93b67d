package webhooks

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/errand-dev/errand/scrub"
)

// The bounds of a shape.
const (
	shapeBytes = 4096
	shapeDepth = 10
	shapeNames = 64 // of one object
)

// ownNames are the members below which names are chosen by the application that failed, and may tell about it: a local
// variable, a header, a tag. Their names are counted only.
func ownNames(member string) bool {
	switch member {
	case "vars", "extra", "tags", "user", "contexts", "request", "headers", "cookies", "env", "modules", "breadcrumbs", "person", "groups", "code_variables",
		"$set", "$set_once", "$groups", "packages", "params", "query_string", "settings":
		return true
	}
	return false
}

// shapeOf outlines a body: names and types, no value, at most shapeBytes. Of a list it shows the first element. It is kept
// so that a format that has changed can be understood without keeping anybody's data.
func shapeOf(s *scrub.Scrubber, body []byte) string {
	dec := jsontext.NewDecoder(strings.NewReader(string(body)), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var b strings.Builder
	o := outliner{dec: dec, b: &b, scrubber: s}
	if err := o.value(0, false); err != nil {
		fmt.Fprintf(&b, " (not JSON at byte %d)", dec.InputOffset())
	}
	return scrub.Sanitise(b.String(), shapeBytes)
}

type outliner struct {
	dec      *jsontext.Decoder
	b        *strings.Builder
	scrubber *scrub.Scrubber
}

func (o outliner) value(depth int, hide bool) error {
	kind := o.dec.PeekKind()
	full := o.b.Len() > shapeBytes || depth >= shapeDepth
	switch {
	case kind == '{' && !full:
		return o.object(depth, hide)
	case kind == '[' && !full:
		return o.list(depth, hide)
	}
	o.b.WriteString(kindWord(kind))
	return o.dec.SkipValue()
}

func (o outliner) object(depth int, hide bool) error {
	if _, err := o.dec.ReadToken(); err != nil {
		return err
	}
	names := 0
	o.b.WriteByte('{')
	for o.dec.PeekKind() != '}' {
		tok, err := o.dec.ReadToken()
		if err != nil {
			return err
		}
		name := tok.String()
		names++
		if hide || names > shapeNames || o.b.Len() > shapeBytes {
			if err := o.dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		if names > 1 {
			o.b.WriteByte(',')
		}
		o.b.WriteString(o.name(name) + ":")
		if err := o.value(depth+1, ownNames(name)); err != nil {
			return err
		}
	}
	if hide && names > 0 {
		fmt.Fprintf(o.b, "%d members", names)
	} else if names > shapeNames {
		fmt.Fprintf(o.b, ",%d more", names-shapeNames)
	}
	o.b.WriteByte('}')
	_, err := o.dec.ReadToken()
	return err
}

// name shows a member's name unless it could be somebody's data.
func (o outliner) name(s string) string {
	if !plainName(strings.TrimPrefix(s, "$")) { // PostHog's own names begin so
		return "?"
	}
	if _, removed := o.scrubber.Text("", s); len(removed) > 0 {
		return "?"
	}
	return s
}

func (o outliner) list(depth int, hide bool) error {
	if _, err := o.dec.ReadToken(); err != nil {
		return err
	}
	n := 0
	o.b.WriteByte('[')
	for ; o.dec.PeekKind() != ']'; n++ {
		var err error
		if n == 0 {
			err = o.value(depth+1, hide)
		} else {
			err = o.dec.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	if n > 1 {
		fmt.Fprintf(o.b, "*%d", n)
	}
	o.b.WriteByte(']')
	_, err := o.dec.ReadToken()
	return err
}

func kindWord(k jsontext.Kind) string {
	switch k {
	case '{':
		return "object"
	case '[':
		return "list"
	case '"':
		return "text"
	case '0':
		return "number"
	case 't', 'f':
		return "truth"
	case 'n':
		return "null"
	default:
		return "nothing"
	}
}

// topNames lists the names of the outermost object, at most limit of them. It is for telling formats apart.
func topNames(body []byte, limit int) map[string]bool {
	dec := jsontext.NewDecoder(strings.NewReader(string(body)), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	names := map[string]bool{}
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return names
	}
	for len(names) < limit && dec.PeekKind() == '"' {
		tok, err := dec.ReadToken()
		if err != nil {
			return names
		}
		names[scrub.Sanitise(tok.String(), 64)] = true
		if dec.SkipValue() != nil {
			return names
		}
	}
	return names
}
