package store_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

func sealer(t *testing.T, key []byte, old ...[]byte) *store.Sealer {
	t.Helper()
	s, err := store.NewSealer(key, old...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASealedSecretOpensForItsOwnRowOnly(t *testing.T) {
	t.Parallel()
	k1, k2 := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	s := sealer(t, k1)
	secret := []byte("a client secret of a tracker")
	sealed, err := s.Seal(secret, "source-a")
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Seal(secret, "source-a")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, secret[:6]) || bytes.Equal(sealed, again) {
		t.Error("a sealed value shows its text, or that two texts are the same")
	}
	if got, err := s.Open(sealed, "source-a"); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("%q, %v", got, err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for _, c := range []struct {
		name    string
		by      *store.Sealer
		sealed  []byte
		context string
		says    string
	}{
		{"moved to another row", s, sealed, "source-b", "another row"},
		{"one bit changed", s, changed, "source-a", "changed"},
		{"another key", sealer(t, k2), sealed, "source-a", "not given"},
		{"cut short", s, sealed[:3], "source-a", "too short"},
		{"only the prefix", s, sealed[:5], "source-a", "changed"},
		{"nothing", s, nil, "source-a", "too short"},
	} {
		if got, err := c.by.Open(c.sealed, c.context); got != nil || errand.CodeOf(err) != errand.CodeInternal || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	rotated := sealer(t, k2, k1)
	if got, err := rotated.Open(sealed, "source-a"); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("after a change of keys: %q, %v", got, err)
	}
	newer, err := rotated.Seal(secret, "source-a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(newer, "source-a"); err == nil {
		t.Error("what is sealed after a change of keys still uses the old one")
	}
}

func TestAWeakSealingKeyIsRefusedWithTheCommandThatMakesOne(t *testing.T) {
	t.Parallel()
	good := bytes.Repeat([]byte{7}, 32)
	for _, keys := range [][][]byte{{nil}, {make([]byte, 32)}, {good[:16]}, {append(good, 1)}, {good, good[:31]}} {
		_, err := store.NewSealer(keys[0], keys[1:]...)
		if errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%x: %v", keys, err)
		} else if !strings.Contains(err.Error(), "openssl rand -base64 32") {
			t.Errorf("it does not say how to make one: %v", err)
		}
	}
	s := sealer(t, good)
	if _, err := s.Seal(nil, "x"); err == nil {
		t.Error("an empty secret was sealed")
	}
	if _, err := s.Seal([]byte("x"), ""); err == nil {
		t.Error("a secret was sealed for no row")
	}
}
