// Package scrub takes secrets and persons out of text, and makes text fit for Postgres.
package scrub

import "github.com/errand-dev/errand"

// Scrubber holds the rules. It is immutable and safe for concurrent use.
type Scrubber struct{}

// Hit is a secret found in a text.
type Hit struct {
	Kind   string
	Offset int // bytes from the start
}

// New makes a Scrubber.
func New() *Scrubber { return &Scrubber{} }

// Text replaces secrets and personal data with "[removed: kind]".
func (s *Scrubber) Text(path, text string) (clean string, removed []errand.Removal) { return text, nil }

// Event scrubs every string of the event in place and appends to its Removed.
func (s *Scrubber) Event(e *errand.Event) {}

// Issue scrubs every string of the issue in place and says what it removed.
func (s *Scrubber) Issue(i *errand.Issue) []errand.Removal { return nil }

// FindSecrets finds secrets (not personal data) in text such as the added lines of a change.
func (s *Scrubber) FindSecrets(text string) []Hit { return nil }

// Sanitise makes s fit for Postgres text and jsonb: at most max bytes, valid UTF-8, no NUL, no control characters
// except newline and tab.
func Sanitise(s string, max int) string { return s }

// Hidden strips characters that a reader cannot see and a model can, and says how many there were.
func Hidden(s string) (clean string, found int) { return s, 0 }
