// Package runtoken makes and checks the two credentials of a run: the ticket, which the workflow carries and which is
// exchanged once, and the run token, which the runner then sends with every call. Both are an HMAC-SHA256 over the run,
// its attempt, a role and an end, so that checking one needs no database; whether a ticket was used already, or a run has
// ended, is for the caller to look up.
//
// The form is text of a fixed length, 100 characters:
//
//	errt_ | run id (36) | base64url of key id (4), attempt (2), role (1), zero (1), end in Unix seconds (4) | base64url of the MAC (32)
//
// with errr_ for a run token. The MAC covers every character before it, and each audience has a key of its own, derived
// from the secret: a ticket can never pass for a token.
//
// Beside them stands the third credential, which is not ours: the ID token by which GitHub says which workflow run a job
// belongs to (Identity). It is checked here, against the issuer's own keys, and never made.
//
// It imports the root and go-jose only. Start reading at Keys; then at Identity.
package runtoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"math"
	"sync"
	"time"

	"github.com/errand-dev/errand"
)

// Failure is why a credential is refused: a closed set, fit for a log and for the label of a metric. To whoever sent it
// they are all the same answer.
type Failure string

// The failures. Expired is only said of a credential whose signature holds.
const (
	Malformed     Failure = "malformed"      // not the form of a ticket or a token
	WrongAudience Failure = "wrong_audience" // a ticket where a token is wanted, or the other way round
	UnknownKey    Failure = "unknown_key"    // made under a key that is not, or no longer, in use
	BadSignature  Failure = "bad_signature"
	Expired       Failure = "expired"
)

// Error says the failure in words.
func (f Failure) Error() string { return "run credential refused: " + string(f) }

// Role is what part of the run a token may speak for.
type Role string

// The roles. RoleAll is a run of one job; the others belong to runs split over several.
const (
	RoleAll     Role = "all"
	RoleAgent   Role = "agent"
	RoleVerify  Role = "verify"
	RolePublish Role = "publish"
)

// roles by the byte that stands for them; zero is a ticket, which has none.
var roles = [...]Role{"", RoleAll, RoleAgent, RoleVerify, RolePublish}

// Ticket is what a valid ticket says.
type Ticket struct {
	Run     errand.ID
	Attempt int
	Expires time.Time
}

// Token is what a valid run token says.
type Token struct {
	Run     errand.ID
	Attempt int
	Role    Role
	Expires time.Time
}

// Key is a secret of at least MinKey random bytes.
type Key []byte

// MinKey is the least length of a key in bytes.
const MinKey = 32

// leastDistinct refuses keys such as 32 zeros. Any encoding of random bytes has far more distinct bytes than this.
const leastDistinct = 8

const (
	prefixLen = 5
	runLen    = 36
	headLen   = 12
	headText  = headLen / 3 * 4
	signedLen = prefixLen + runLen + headText
	macText   = 43
	textLen   = signedLen + macText
)

// encoding refuses spare bits that are not zero: one credential has one spelling.
var encoding = base64.RawURLEncoding.Strict()

type audience int

const (
	forTicket audience = iota
	forToken
)

func (a audience) prefix() string {
	if a == forTicket {
		return "errt_"
	}
	return "errr_"
}

// Keys holds the key that signs and those that still verify. It is safe for concurrent use.
type Keys struct {
	all []*key // the current one first
}

// key is one secret: its public id and the HMAC states of both audiences.
type key struct {
	id     [4]byte
	states [2]sync.Pool // of *state
}

// state is an HMAC under one key with the room to work in, so that a check allocates nothing.
type state struct {
	mac   hash.Hash
	text  [textLen]byte
	sum   [sha256.Size]byte
	spelt [macText]byte
	head  [headLen]byte
}

// NewKeys takes the key that signs and older ones that are still honoured. It refuses keys that are short, plainly not
// random, or given twice.
func NewKeys(current Key, old ...Key) (*Keys, error) {
	k := &Keys{}
	for i, secret := range append([]Key{current}, old...) {
		name := "the current key"
		if i > 0 {
			name = fmt.Sprintf("old key %d", i)
		}
		if len(secret) < MinKey {
			return nil, errand.Invalid("key", "%s has %d bytes: want at least %d random ones, such as `openssl rand -hex 32` gives", name, len(secret), MinKey)
		}
		if distinct(secret) < leastDistinct {
			return nil, errand.Invalid("key", "%s is not random (it repeats a few bytes): use what `openssl rand -hex 32` gives", name)
		}
		made := newKey(secret)
		if k.find(made.id) != nil {
			return nil, errand.Invalid("key", "%s is given twice", name)
		}
		k.all = append(k.all, made)
	}
	return k, nil
}

func distinct(b []byte) int {
	var seen [256]bool
	n := 0
	for _, c := range b {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n
}

func newKey(secret Key) *key {
	k := &key{}
	copy(k.id[:], derive(secret, "key id"))
	for _, a := range []audience{forTicket, forToken} {
		sub := derive(secret, "audience "+a.prefix())
		k.states[a].New = func() any { return &state{mac: hmac.New(sha256.New, sub)} }
	}
	return k
}

// derive makes a key of its own for each use.
func derive(secret Key, use string) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("errand runtoken v1 " + use)) // a hash never fails to write
	return m.Sum(nil)
}

func (k *Keys) find(id [4]byte) *key {
	for _, c := range k.all {
		if c.id == id {
			return c
		}
	}
	return nil
}

// Ticket makes the ticket of an attempt (1 to 65535) of a run. Its end is cut to whole seconds.
func (k *Keys) Ticket(run errand.ID, attempt int, expires time.Time) (string, error) {
	return k.mint(forTicket, run, attempt, 0, expires)
}

// Token makes the run token of a role.
func (k *Keys) Token(run errand.ID, attempt int, role Role, expires time.Time) (string, error) {
	for i, r := range roles {
		if r == role && i > 0 {
			return k.mint(forToken, run, attempt, byte(i), expires)
		}
	}
	return "", errand.Invalid("role", "no such role: %q", role)
}

func (k *Keys) mint(a audience, run errand.ID, attempt int, role byte, expires time.Time) (string, error) {
	if _, err := errand.ParseID(string(run)); err != nil {
		return "", err
	}
	if attempt < 1 || attempt > math.MaxUint16 {
		return "", errand.Invalid("attempt", "%d is out of range: want 1 to %d", attempt, math.MaxUint16)
	}
	end := expires.Unix()
	if end <= 0 || end > math.MaxUint32 {
		return "", errand.Invalid("expires", "%s is out of range", expires)
	}
	c := k.all[0]
	s := c.states[a].Get().(*state)
	defer c.states[a].Put(s)
	copy(s.head[:], c.id[:])
	binary.BigEndian.PutUint16(s.head[4:], uint16(attempt))
	s.head[6], s.head[7] = role, 0
	binary.BigEndian.PutUint32(s.head[8:], uint32(end))
	n := copy(s.text[:], a.prefix())
	n += copy(s.text[n:], run)
	encoding.Encode(s.text[n:], s.head[:])
	encoding.Encode(s.text[signedLen:], s.sign())
	return string(s.text[:]), nil
}

// sign gives the MAC of the text's signed part.
func (s *state) sign() []byte {
	s.mac.Reset()
	s.mac.Write(s.text[:signedLen])
	return s.mac.Sum(s.sum[:0])
}

// VerifyTicket checks a ticket at a time. Its error is a Failure.
func (k *Keys) VerifyTicket(s string, now time.Time) (Ticket, error) {
	t, err := k.verify(forTicket, s, now)
	return Ticket{Run: t.Run, Attempt: t.Attempt, Expires: t.Expires}, err
}

// VerifyToken checks a run token at a time. Its error is a Failure.
func (k *Keys) VerifyToken(s string, now time.Time) (Token, error) {
	return k.verify(forToken, s, now)
}

func (k *Keys) verify(a audience, text string, now time.Time) (Token, error) {
	if len(text) != textLen {
		return Token{}, Malformed
	}
	switch text[:prefixLen] {
	case a.prefix():
	case forTicket.prefix(), forToken.prefix():
		return Token{}, WrongAudience
	default:
		return Token{}, Malformed
	}
	// The head is decoded before there is a key to check it with; nothing of it but the key's id is believed yet.
	var headSpelt [headText]byte
	var head [headLen]byte
	copy(headSpelt[:], text[prefixLen+runLen:])
	if n, err := encoding.Decode(head[:], headSpelt[:]); err != nil || n != headLen {
		return Token{}, Malformed
	}
	c := k.find([4]byte(head[:4]))
	if c == nil {
		return Token{}, UnknownKey
	}
	if err := c.check(a, text); err != nil {
		return Token{}, err
	}
	// From here on the text is one that we made.
	t := Token{
		Run:     errand.ID(text[prefixLen : prefixLen+runLen]), // a part of the text: no copy
		Attempt: int(binary.BigEndian.Uint16(head[4:])),
		Expires: time.Unix(int64(binary.BigEndian.Uint32(head[8:])), 0).UTC(),
	}
	if i := int(head[6]); i < len(roles) {
		t.Role = roles[i]
	}
	if !now.Before(t.Expires) {
		return Token{}, Expired
	}
	return t, nil
}

// check holds the text's MAC against the one that it must have. Ours is spelled out and theirs is not decoded: that is
// quicker, and one credential has one spelling. Only what does not match is looked at more closely.
func (c *key) check(a audience, text string) error {
	s := c.states[a].Get().(*state)
	defer c.states[a].Put(s)
	copy(s.text[:], text)
	encoding.Encode(s.spelt[:], s.sign())
	if subtle.ConstantTimeCompare(s.spelt[:], s.text[signedLen:]) == 1 {
		return nil
	}
	if n, err := encoding.Decode(s.sum[:], s.text[signedLen:]); err != nil || n != len(s.sum) {
		return Malformed
	}
	return BadSignature
}
