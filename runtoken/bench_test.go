package runtoken_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/errand-dev/errand/runtoken"
)

// BenchmarkBareHMAC is the yardstick: the MAC of the signed part with a state made beforehand, and nothing else.
func BenchmarkBareHMAC(b *testing.B) {
	text := []byte(token(b, keys(b, "a")))[:57]
	m := hmac.New(sha256.New, secret("a"))
	sum := make([]byte, 0, sha256.Size)
	b.ReportAllocs()
	for b.Loop() {
		m.Reset()
		m.Write(text)
		sum = m.Sum(sum[:0])
	}
}

func BenchmarkVerifyToken(b *testing.B) {
	k := keys(b, "a")
	tok := token(b, k)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.VerifyToken(tok, start); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkToken(b *testing.B) {
	k := keys(b, "a")
	end := start.Add(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Token(run, 1, runtoken.RoleAll, end); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyTicket(b *testing.B) {
	k := keys(b, "a")
	tick := ticket(b, k)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.VerifyTicket(tick, start); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyIDToken(b *testing.B) {
	id := newAuthority().identity(b)
	tok := tokenWith(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := id.Verify(b.Context(), tok, start); err != nil {
			b.Fatal(err)
		}
	}
}
