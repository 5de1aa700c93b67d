// Package scrub takes secrets and persons out of text (Scrubber), makes any string fit for Postgres (Sanitise), and takes
// out what a reader cannot see and a model can (Hidden). It imports the root only and does no I/O.
//
// Rules are anchored: a known prefix (ghp_), a keyword before = or :, an @, a digit. Text is walked once, a rule is
// tried only where its anchor stands, and a check at that place decides (length, alphabet, Luhn, address syntax). What
// was removed is recorded by path and kind, never by value. Paths, function names and version numbers are meant to
// survive: where that and privacy collide, the rule and its reason are written beside it (persons.go).
//
// Start reading at Scrubber.Text, then Scrubber.pass (scan.go).
package scrub

import (
	"slices"
	"strconv"
	"strings"

	"github.com/errand-dev/errand"
)

// Kinds of what is removed. They are words of the stored record: a change of one is a change of format.
const (
	KindAWS        = "aws_access_key"
	KindGitHub     = "github_token"
	KindSlack      = "slack_token"
	KindStripe     = "stripe_key"
	KindAnthropic  = "anthropic_key"
	KindOpenAI     = "openai_key"
	KindGoogle     = "google_key"
	KindToken      = "token" // of another known service
	KindJWT        = "jwt"
	KindPrivateKey = "private_key"
	KindAuth       = "authorization"
	KindCookie     = "cookie"
	KindPassword   = "password"
	KindSecret     = "secret"
	KindURL        = "url_credentials"
	KindEmail      = "email"
	KindIP         = "ip_address"
	KindCard       = "card_number"
	KindUser       = "user"
)

const (
	markOpen = "[removed: "
	markEnd  = "]"
)

// Scrubber holds the rules. It is immutable and safe for concurrent use.
type Scrubber struct {
	anchor   [256]uint8     // what can begin, or has its anchor, at this byte
	prefixes [256][]*prefix // by first byte
	second   [256][4]uint64 // the bytes that follow it in one of them, a bit each
}

// Hit is a secret found in a text: its kind and the byte at which it begins. The value is not repeated.
type Hit struct {
	Kind   string
	Offset int
}

// Text replaces secrets and personal data by "[removed: kind]" and says what it removed, each kind once for this path.
// It is idempotent, and a text without any comes back as it was.
func (s *Scrubber) Text(path, text string) (clean string, removed []errand.Removal) {
	return s.clean(path, text, secrets|pairs|persons)
}

// FindSecrets finds secrets, and no personal data, in source text such as the added lines of a change. A key = value
// pair counts only when the value is a literal that looks like a real one, since code is full of pairs that are not.
func (s *Scrubber) FindSecrets(text string) []Hit {
	var hits []Hit
	for _, h := range s.pass(text, secrets|literalPairs) {
		hits = append(hits, Hit{Kind: h.kind, Offset: h.from})
	}
	return hits
}

func (s *Scrubber) clean(path, text string, what rules) (string, []errand.Removal) {
	var removed []errand.Removal
	// A removal can lay bare what stood against it ("1.2.3.4-ghp_..."), so a text with hits is walked again until it has
	// none. Two walks are the rule; the bound is there for certainty.
	for range 8 {
		hits := s.pass(text, what)
		if len(hits) == 0 {
			break
		}
		var b strings.Builder
		b.Grow(len(text) + 16*len(hits))
		at := 0
		for _, h := range hits {
			b.WriteString(text[at:h.from])
			b.WriteString(markOpen + h.kind + markEnd)
			at = h.to
			r := errand.Removal{Path: path, Kind: h.kind}
			if !slices.Contains(removed, r) {
				removed = append(removed, r)
			}
		}
		b.WriteString(text[at:])
		text = b.String()
	}
	return text, removed
}

// Event scrubs every string of the event in place and appends to its Removed. Frames, modules and the release name
// places in code and are searched for secrets and e-mail addresses only, so that 10.0.0.1 can be a version there.
func (s *Scrubber) Event(e *errand.Event) {
	f := field{s: s, removed: &e.Removed}
	f.code("provider_id", &e.ProviderID)
	f.code("release", &e.Release)
	f.code("commit", &e.Commit)
	f.code("environment", &e.Environment)
	f.text("transaction", &e.Transaction)
	f.text("message", &e.Message)
	for i := range e.Tags {
		f.tag("tags["+strconv.Itoa(i)+"]", &e.Tags[i])
	}
	for i := range e.Exceptions {
		f.exception("exceptions["+strconv.Itoa(i)+"]", &e.Exceptions[i])
	}
}

// Issue scrubs every string of the issue in place and says what it removed, with paths that begin with "issue.".
func (s *Scrubber) Issue(i *errand.Issue) []errand.Removal {
	var removed []errand.Removal
	f := field{s: s, removed: &removed}
	f.code("issue.provider_id", &i.ProviderID)
	f.code("issue.fingerprint", &i.Fingerprint)
	f.text("issue.title", &i.Title)
	f.text("issue.culprit", &i.Culprit)
	f.code("issue.level", &i.Level)
	f.code("issue.platform", &i.Platform)
	f.code("issue.project", &i.Project)
	f.scrub("issue.link", &i.Link, secrets|pairs)
	return removed
}

// field scrubs one string after another into one record.
type field struct {
	s       *Scrubber
	removed *[]errand.Removal
}

func (f field) text(path string, v *string) { f.scrub(path, v, secrets|pairs|persons) }
func (f field) code(path string, v *string) { f.scrub(path, v, secrets|emails) }

func (f field) scrub(path string, v *string, what rules) {
	clean, removed := f.s.clean(path, *v, what)
	*v = clean
	f.record(removed...)
}

func (f field) record(removed ...errand.Removal) {
	for _, r := range removed {
		if !slices.Contains(*f.removed, r) {
			*f.removed = append(*f.removed, r)
		}
	}
}

// tag takes the whole value of a tag whose key says what it is: "user.email", "api_key".
func (f field) tag(path string, t *errand.Tag) {
	f.text(path+".key", &t.Key)
	kind := keyKind(t.Key).kind
	if k := strings.ToLower(t.Key); k == "user" || strings.HasPrefix(k, "user.") {
		kind = KindUser
	}
	if kind == "" || t.Value == "" || harmless(t.Value) {
		f.text(path+".value", &t.Value)
		return
	}
	if !strings.HasPrefix(t.Value, markOpen) {
		t.Value = markOpen + kind + markEnd
		f.record(errand.Removal{Path: path + ".value", Kind: kind})
	}
}

func (f field) exception(path string, x *errand.Exception) {
	f.code(path+".type", &x.Type)
	f.text(path+".value", &x.Value)
	f.code(path+".module", &x.Module)
	f.code(path+".mechanism", &x.Mechanism)
	for i := range x.Frames {
		at, fr := path+".frames["+strconv.Itoa(i)+"]", &x.Frames[i]
		f.code(at+".filename", &fr.Filename)
		f.code(at+".abs_path", &fr.AbsPath)
		f.code(at+".module", &fr.Module)
		f.code(at+".function", &fr.Function)
	}
}
