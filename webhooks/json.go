package webhooks

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
)

// How JSON of an outsider is read: in one way only. A name that occurs twice in an object, at any depth, used or not, is
// refused, since two readers would take two values. Names match by exact case ("Event_ID" is not "event_id"). One value,
// and nothing after it. What is not UTF-8, and half of a surrogate pair, has one reading, U+FFFD, because trackers cut long
// texts in the middle of a character and the error must not be lost for it. The experimental JSON package of the Go
// project (encoding/json/v2, not yet in the standard library) reads so; encoding/json does not.
func readOptions() json.Options { return jsontext.AllowInvalidUTF8(true) }

// decode reads the whole body into v. Its error is Invalid, names the field and repeats no value.
func decode(body []byte, v any, more ...json.Options) error {
	err := json.Unmarshal(body, v, append([]json.Options{readOptions()}, more...)...)
	if err == nil {
		return nil
	}
	var syntax *jsontext.SyntacticError
	var meaning *json.SemanticError
	switch {
	case errors.As(err, &syntax):
		return syntaxError(syntax)
	case errors.As(err, &meaning):
		return meaningError(meaning)
	default:
		return &errand.Error{Code: errand.CodeInvalid, Field: "body", Message: "it is not JSON of the expected form", Cause: err}
	}
}

func syntaxError(e *jsontext.SyntacticError) error {
	out := &errand.Error{Code: errand.CodeInvalid, Field: fieldPath(e.JSONPointer), Cause: e}
	if errors.Is(e.Err, jsontext.ErrDuplicateName) {
		out.Message = "the name occurs twice in its object, so the body has no single meaning"
		return out
	}
	out.Message = fmt.Sprintf("the body is not JSON at byte %d", e.ByteOffset)
	return out
}

func meaningError(e *json.SemanticError) error {
	out := &errand.Error{Code: errand.CodeInvalid, Field: fieldPath(e.JSONPointer), Cause: e}
	var want wanted
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		out.Message, out.Hint = "there is no such member", "leave it out; docs/sources.md lists the members that are taken"
	case errors.As(e.Err, &want):
		out.Message = want.Error()
	case e.GoType != nil && e.GoType.Kind().String() == "struct":
		out.Message = "want an object" // times have their own words, below
		if strings.HasSuffix(e.GoType.String(), ".Time") {
			out.Message = "want a time such as 2026-09-14T09:21:44Z"
		}
	case e.GoType != nil:
		out.Message = "want " + typeWord(e.GoType.Kind().String())
	default:
		out.Message = "it has not the expected form"
	}
	return out
}

func typeWord(goKind string) string {
	switch {
	case goKind == "string":
		return "a text"
	case goKind == "bool":
		return "true or false"
	case goKind == "slice":
		return "a list"
	case goKind == "map":
		return "an object"
	case strings.HasPrefix(goKind, "int"):
		return "a whole number"
	}
	return "another type"
}

// wanted is an error of the types below. It says what would have been right.
type wanted string

func (w wanted) Error() string { return "want " + string(w) }

// fieldPath writes a JSON pointer as people write members: data.event.tags[3].
func fieldPath(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		token = scrub.Sanitise(token, 64)
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	if b.Len() == 0 {
		return "body"
	}
	return scrub.Sanitise(b.String(), 256)
}

// text takes a text, and of what is none only what is as good as one: null is "", a number or a truth value its letters.
type text string

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *text) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case '{', '[':
		return wanted("a text")
	case 'n':
		*t = ""
		return dec.SkipValue()
	default:
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		*t = text(tok.String())
		return nil
	}
}

// count takes a whole number from 0 to 2147483647. Anything else that is no list and no object is 0, which means unknown.
type count int

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (c *count) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var t text
	if err := t.UnmarshalJSONFrom(dec); err != nil {
		return wanted("a number")
	}
	n, err := strconv.ParseUint(string(t), 10, 31)
	if err != nil {
		n = 0
	}
	*c = count(n) //nolint:gosec // 31 bits
	return nil
}

// number takes a whole number that may be absent.
type number struct {
	set   bool
	value int
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (n *number) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var t text
	if err := t.UnmarshalJSONFrom(dec); err != nil {
		return wanted("a number")
	}
	v, err := strconv.ParseInt(string(t), 10, 32)
	n.set, n.value = err == nil, int(v)
	return nil
}

func (n number) pointer() *int {
	if !n.set {
		return nil
	}
	return &n.value
}

// truth takes true and false; anything else is unknown.
type truth struct{ known, value bool }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (b *truth) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	kind := dec.PeekKind()
	b.known, b.value = kind == 't' || kind == 'f', kind == 't'
	return dec.SkipValue()
}

func (b truth) pointer() *bool {
	if !b.known {
		return nil
	}
	return &b.value
}

// dropped skips a value and remembers only that there was one: not null, and not an empty list, object or text.
type dropped bool

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (d *dropped) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	end := jsontext.Kind(0)
	switch dec.PeekKind() {
	case '{':
		end = '}'
	case '[':
		end = ']'
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if end == 0 {
		*d = tok.Kind() != 'n' && (tok.Kind() != '"' || tok.String() != "")
		return nil
	}
	for dec.PeekKind() != end {
		*d = true
		if err := dec.SkipValue(); err != nil {
			return err
		}
	}
	_, err = dec.ReadToken()
	return err
}

// decodeList reads a list without holding more of it than is kept: the first head and the last tail elements. Null is an
// empty list, and elements that are null are left out.
func decodeList[T any](dec *jsontext.Decoder, head, tail int) (list []T, over int, err error) {
	switch dec.PeekKind() {
	case 'n':
		return nil, 0, dec.SkipValue()
	case '[':
	default:
		return nil, 0, wanted("a list")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, 0, err
	}
	for dec.PeekKind() != ']' {
		if dec.PeekKind() == 'n' || (tail == 0 && len(list) >= head) {
			if dec.PeekKind() != 'n' {
				over++
			}
			if err := dec.SkipValue(); err != nil {
				return nil, 0, err
			}
			continue
		}
		var v T
		if err := json.UnmarshalDecode(dec, &v); err != nil {
			return nil, 0, err
		}
		list = append(list, v)
		if len(list) >= 2*(head+tail) {
			list, over = cutMiddle(list, over, head, tail)
		}
	}
	_, err = dec.ReadToken()
	list, over = cutMiddle(list, over, head, tail)
	return list, over, err
}

func cutMiddle[T any](list []T, over, head, tail int) ([]T, int) {
	cut := len(list) - head - tail
	if cut <= 0 {
		return list, over
	}
	return append(list[:head], list[len(list)-tail:]...), over + cut
}

// seconds reads seconds since 1970 with a fraction.
func seconds(s string) (sec, nsec int64, ok bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > 1e11 {
		return 0, 0, false
	}
	whole, frac := math.Modf(f)
	return int64(whole), int64(frac * 1e9), true
}
