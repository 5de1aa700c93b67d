package runtoken_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runtoken"
)

const (
	run   = errand.ID("0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11")
	other = errand.ID("0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a12")
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// secret makes a fixed key that looks random.
func secret(name string) runtoken.Key {
	s := sha256.Sum256([]byte(name))
	return s[:]
}

func keys(t testing.TB, current string, old ...string) *runtoken.Keys {
	t.Helper()
	var more []runtoken.Key
	for _, name := range old {
		more = append(more, secret(name))
	}
	k, err := runtoken.NewKeys(secret(current), more...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func token(t testing.TB, k *runtoken.Keys) string {
	t.Helper()
	s, err := k.Token(run, 2, runtoken.RoleAgent, start.Add(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ticket(t testing.TB, k *runtoken.Keys) string {
	t.Helper()
	s, err := k.Ticket(run, 2, start.Add(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatIsMadeIsReadBack(t *testing.T) {
	t.Parallel()
	k := keys(t, "a")
	wantTicket := runtoken.Ticket{Run: run, Attempt: 2, Expires: start.Add(30 * time.Minute)}
	if got, err := k.VerifyTicket(ticket(t, k), start); err != nil || got != wantTicket {
		t.Errorf("ticket = %+v, %v; want %+v", got, err, wantTicket)
	}
	for _, role := range []runtoken.Role{runtoken.RoleAll, runtoken.RoleAgent, runtoken.RoleVerify, runtoken.RolePublish} {
		want := runtoken.Token{Run: other, Attempt: 65535, Role: role, Expires: start.Add(time.Hour)}
		s, err := k.Token(want.Run, want.Attempt, want.Role, want.Expires.Add(900*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.VerifyToken(s, start); err != nil || got != want {
			t.Errorf("token = %+v, %v; want %+v", got, err, want)
		}
		if !strings.HasPrefix(s, "errr_") || len(s) != 100 {
			t.Errorf("token %q: want 100 characters that begin with errr_", s)
		}
	}
}

func TestOneChangedBitIsRefused(t *testing.T) {
	t.Parallel()
	k := keys(t, "a")
	for name, c := range map[string]struct {
		text  string
		check func(string) error
	}{
		"ticket": {ticket(t, k), func(s string) error { _, err := k.VerifyTicket(s, start); return err }},
		"token":  {token(t, k), func(s string) error { _, err := k.VerifyToken(s, start); return err }},
	} {
		if err := c.check(c.text); err != nil {
			t.Fatalf("%s, unchanged: %v", name, err)
		}
		for i := range len(c.text) * 8 {
			b := []byte(c.text)
			b[i/8] ^= 1 << (i % 8)
			if err := c.check(string(b)); err == nil {
				t.Errorf("%s with bit %d of byte %d changed was accepted: %q", name, i%8, i/8, b)
			}
		}
	}
}

func TestWhyACredentialIsRefused(t *testing.T) {
	t.Parallel()
	k := keys(t, "a")
	tok, tick := token(t, k), ticket(t, k)
	later := start.Add(30 * time.Minute)
	for _, tt := range []struct {
		says   string
		text   string
		ticket bool // checked as a ticket
		now    time.Time
		want   error
	}{
		{"a token just before its end", tok, false, later.Add(-time.Nanosecond), nil},
		{"a token at its end", tok, false, later, runtoken.Expired},
		{"a ticket at its end", tick, true, later, runtoken.Expired},
		{"a ticket where a token is wanted", tick, false, start, runtoken.WrongAudience},
		{"a token where a ticket is wanted", tok, true, start, runtoken.WrongAudience},
		{"a ticket dressed as a token", "errr_" + tick[5:], false, start, runtoken.BadSignature},
		{"a token dressed as a ticket", "errt_" + tok[5:], true, start, runtoken.BadSignature},
		{"another run in its place", strings.Replace(tok, string(run), string(other), 1), false, start, runtoken.BadSignature},
		{"another run's and expired: the signature is asked first", strings.Replace(tok, string(run), string(other), 1), false, later, runtoken.BadSignature},
		{"of a deployment with another key", token(t, keys(t, "b")), false, start, runtoken.UnknownKey},
		{"nothing", "", false, start, runtoken.Malformed},
		{"cut short", tok[:99], false, start, runtoken.Malformed},
		{"with something behind", tok + "A", false, start, runtoken.Malformed},
		{"with a line break, which base64 would overlook", tok[:99] + "\n", false, start, runtoken.Malformed},
		{"with a line break in the head", tok[:41] + "\n" + tok[42:], false, start, runtoken.Malformed},
		{"another prefix", "errx_" + tok[5:], false, start, runtoken.Malformed},
		{"characters outside of base64", tok[:60] + "+/" + tok[62:], false, start, runtoken.Malformed},
	} {
		var err error
		if tt.ticket {
			_, err = k.VerifyTicket(tt.text, tt.now)
		} else {
			_, err = k.VerifyToken(tt.text, tt.now)
		}
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.says, err, tt.want)
		}
	}
}

func TestKeysRotate(t *testing.T) {
	t.Parallel()
	before, during, after := keys(t, "a"), keys(t, "b", "a"), keys(t, "b")
	oldToken, newToken := token(t, before), token(t, during)
	for _, tt := range []struct {
		says string
		k    *runtoken.Keys
		text string
		want error
	}{
		{"during a rotation the old key's tokens hold", during, oldToken, nil},
		{"during a rotation the new key signs", after, newToken, nil},
		{"after it the old key's tokens are over", after, oldToken, runtoken.UnknownKey},
		{"before it the new key is not known", before, newToken, runtoken.UnknownKey},
	} {
		if _, err := tt.k.VerifyToken(tt.text, start); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.says, err, tt.want)
		}
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	good := secret("a")
	for _, tt := range []struct {
		says string
		keys []runtoken.Key
		want string
	}{
		{"no key", []runtoken.Key{nil}, "has 0 bytes"},
		{"one byte short", []runtoken.Key{good[:31]}, "has 31 bytes"},
		{"an old key that is short", []runtoken.Key{good, good[:16]}, "old key 1 has 16 bytes"},
		{"zeros", []runtoken.Key{make([]byte, 64)}, "not random"},
		{"two letters repeated", []runtoken.Key{bytes.Repeat([]byte("ab"), 20)}, "not random"},
		{"the same key twice", []runtoken.Key{good, secret("b"), good}, "given twice"},
	} {
		_, err := runtoken.NewKeys(tt.keys[0], tt.keys[1:]...)
		if errand.CodeOf(err) != errand.CodeInvalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want Invalid that says %q", tt.says, err, tt.want)
		}
	}
	random := make(runtoken.Key, 32)
	_, _ = rand.Read(random)
	if _, err := runtoken.NewKeys(random); err != nil {
		t.Errorf("a random key: %v", err)
	}
}

func TestWhatCannotBeMade(t *testing.T) {
	t.Parallel()
	k := keys(t, "a")
	for _, tt := range []struct {
		says    string
		run     errand.ID
		attempt int
		role    runtoken.Role
		expires time.Time
		field   string
	}{
		{"a run that is no id", "42", 1, runtoken.RoleAll, start, "id"},
		{"attempt 0", run, 0, runtoken.RoleAll, start, "attempt"},
		{"an attempt that does not fit", run, 65536, runtoken.RoleAll, start, "attempt"},
		{"a role that is none", run, 1, "root", start, "role"},
		{"a token without a role", run, 1, "", start, "role"},
		{"no end", run, 1, runtoken.RoleAll, time.Time{}, "expires"},
		{"an end that does not fit", run, 1, runtoken.RoleAll, time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), "expires"},
	} {
		s, err := k.Token(tt.run, tt.attempt, tt.role, tt.expires)
		var e *errand.Error
		if s != "" || !errors.As(err, &e) || e.Field != tt.field {
			t.Errorf("%s: %q, %v; want an error about %q", tt.says, s, err, tt.field)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	k := keys(t, "a")
	tok, tick := token(t, k), ticket(t, k)
	for range 8 {
		t.Run("one of several", func(t *testing.T) {
			t.Parallel()
			for range 200 {
				if _, err := k.VerifyToken(tok, start); err != nil {
					t.Fatal(err)
				}
				if _, err := k.VerifyTicket(tick, start); err != nil {
					t.Fatal(err)
				}
				if token(t, k) != tok {
					t.Fatal("the same token twice differs")
				}
			}
		})
	}
}

// FuzzVerify looks for a text that is accepted and is not the one spelling of what it says.
func FuzzVerify(f *testing.F) {
	k := keys(f, "a", "b")
	f.Add(token(f, k))
	f.Add(ticket(f, k))
	f.Add(token(f, keys(f, "b")))
	f.Add(token(f, keys(f, "c")))
	f.Add("errr_")
	f.Add("")
	oldToken := token(f, keys(f, "b"))
	f.Fuzz(func(t *testing.T, s string) {
		if tok, err := k.VerifyToken(s, start); err == nil {
			again, err := k.Token(tok.Run, tok.Attempt, tok.Role, tok.Expires)
			if err != nil || again != s && s != oldToken {
				t.Errorf("accepted %q, which is spelled %q (%v)", s, again, err)
			}
		} else if f := runtoken.Failure(""); !errors.As(err, &f) {
			t.Errorf("%q: the error %v is not a Failure", s, err)
		}
		if tick, err := k.VerifyTicket(s, start); err == nil {
			if again, err := k.Ticket(tick.Run, tick.Attempt, tick.Expires); err != nil || again != s {
				t.Errorf("accepted %q, which is spelled %q (%v)", s, again, err)
			}
		}
	})
}
