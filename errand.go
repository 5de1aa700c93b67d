// Package errand holds the words that every part of Errand shares: ids, the normalised error (Issue, Event), the
// states and reasons of a run, decisions, money, three-valued verdicts, errors with a closed set of codes, and the
// arguments of background jobs.
//
// It imports the standard library only, and everything may import it. Start reading at Event (what arrives), Decision
// (what was decided) and RunState (what became of it).
package errand

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// Clock tells the time. Tests pass their own; production passes time.Now.
type Clock func() time.Time

// ID is a UUID version 7 in its canonical text form (36 characters, lower case). Its order is the order of creation,
// to the millisecond.
type ID string

var idForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// NewID makes an id for something created at now.
func NewID(now time.Time) ID {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // crypto/rand.Read never fails: it ends the program instead
	ms := now.UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6] = b[6]&0x0f | 0x70 // version 7
	b[8] = b[8]&0x3f | 0x80 // variant of RFC 9562
	h := hex.EncodeToString(b[:])
	return ID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}

// ParseID reads an id from outside. It returns an Invalid error for anything but the canonical form.
func ParseID(s string) (ID, error) {
	if !idForm.MatchString(s) {
		return "", Invalid("id", "not an id: want 36 characters such as 0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11")
	}
	return ID(s), nil
}

// Short is the last eight hexadecimal digits: random, and enough to tell the runs of one issue apart in a branch name.
func (id ID) Short() string {
	if len(id) < 8 {
		return string(id)
	}
	return string(id[len(id)-8:])
}

// Verdict is the house rule in a type: pass, fail, or unknown. The zero value is unknown, so that a forgotten answer is
// never a good one.
type Verdict int

// The three values. Unknown never becomes pass, zero or absent.
const (
	Unknown Verdict = iota
	Pass
	Fail
)

func (v Verdict) String() string {
	switch v {
	case Pass:
		return "pass"
	case Fail:
		return "fail"
	default:
		return "unknown"
	}
}

// MarshalJSON writes the verdict as one of its three words.
func (v Verdict) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// UnmarshalJSON accepts the three words and nothing else.
func (v *Verdict) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	switch s {
	case "pass":
		*v = Pass
	case "fail":
		*v = Fail
	case "unknown":
		*v = Unknown
	default:
		return fmt.Errorf("verdict %q: want pass, fail or unknown", s)
	}
	return nil
}
