package scrub

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// shards are pieces whose every order must keep the promises: things to remove, things to keep, and what glues them.
func shards() []string {
	return []string{
		ghp, ghsLong, pat, awsKey, anthropic, openaiOld, google, slack, stripe, jwtText, pem, "jane@example.com", "203.0.113.7", "2001:db8::1",
		"4111111111111111", "password=", "token: ", "Cookie: ", "Authorization: Bearer ", "https://", "@", ":", "=", "\"", "'", " ", "\n", "-", ".", "/", "\\n", "%20",
		"views.py", "1.2.3.4-", "version ", "a", "Z9", "_", "[removed: email]", "[removed: ", "]", "é", "\x00", "\xff", "{", ";", ",",
	}
}

func TestTextIsIdempotentAndBounded(t *testing.T) {
	t.Parallel()
	s := New()
	rapid.Check(t, func(t *rapid.T) {
		in := strings.Join(rapid.SliceOfN(rapid.SampledFrom(shards()), 0, 12).Draw(t, "shards"), "")
		out, removed := s.Text("p", in)
		again, more := s.Text("p", out)
		if again != out || len(more) != 0 {
			t.Fatalf("in    %q\nout   %q\nagain %q", in, out, again)
		}
		if (out == in) != (len(removed) == 0) {
			t.Fatalf("changed without a record, or the reverse: %q %v", in, removed)
		}
		// No longer than needed: a mark is at most 26 bytes and stands for at least one byte.
		if n := strings.Count(out, markOpen); len(out) > len(in)+26*n {
			t.Fatalf("%d bytes became %d with %d marks", len(in), len(out), n)
		}
	})
}

func TestAPlantedSecretIsGoneAndTheRestStays(t *testing.T) {
	t.Parallel()
	s := New()
	planted := []string{ghp, ghsLong, pat, awsKey, anthropic, openaiOld, openaiProj, google, slack, stripe, jwtText, pem, "jane@example.com", "203.0.113.7"}
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SampledFrom(planted).Draw(t, "secret")
		word := rapid.StringMatching(`[a-z]{1,8}(/[a-z]{1,8}\.py)?`)
		before, after := word.Draw(t, "before"), word.Draw(t, "after")
		glue := rapid.SampledFrom([]string{" ", "\n", "\"", "'", "(", ",", ";", "=", "\t", "<", "|"})
		in := before + glue.Draw(t, "left") + secret + rapid.SampledFrom([]string{" ", "\n", "\"", "'", ")", ",", ";", "\t", ">"}).Draw(t, "right") + after
		out, removed := s.Text("p", in)
		if strings.Contains(out, secret) || len(removed) != 1 {
			t.Fatalf("%q became %q (%v)", in, out, removed)
		}
		if !strings.HasPrefix(out, before) || !strings.HasSuffix(out, after) {
			t.Fatalf("what stood round it was lost: %q became %q", in, out)
		}
	})
}

// A megabyte of whatever a stranger repeats costs what a megabyte costs: with a rule that looked ahead again and again
// this test would not end in time.
func TestNoTextIsSlow(t *testing.T) {
	t.Parallel()
	s := New()
	for _, unit := range append(shards(), "eyJ", "eyJhbGciOiJIUzI1.", "sk-", "SG.", "hf_", "cookie:", "authorization:null ", "authorization: bearer null ",
		"authorization: digest ", "password=\"", "password='\"", "token: x", "://a", "a@", "a.", "1.", "1:", "4 ", "-----BEGIN ", "AKIA", "Basic a ") {
		text := strings.Repeat(unit, 1<<20/len(unit))
		s.Text("p", text)
		s.FindSecrets(text)
		Hidden(Sanitise(text, len(text)))
	}
}

func FuzzText(f *testing.F) {
	for _, s := range shards() {
		f.Add(s)
	}
	s := New()
	f.Fuzz(func(t *testing.T, in string) {
		out, _ := s.Text("p", in)
		if again, _ := s.Text("p", out); again != out {
			t.Fatalf("in %q\nout %q\nagain %q", in, out, again)
		}
		s.FindSecrets(in)
	})
}

// ordinary is 4 KB of what trackers send: messages, frames, versions, times; secrets are rare.
func ordinary() string {
	line := "File \"/srv/app/checkout/views.py\", line 42, in post: KeyError: 'total' (request 0190f3a2-7c1d-7e52) at 2026-12-01T12:34:56Z, django==5.1.2; status=500 key: value\n"
	return strings.Repeat(line, 4096/len(line)+1)[:4096]
}

func BenchmarkText4KB(b *testing.B) {
	s, text := New(), ordinary()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		s.Text("message", text)
	}
}

func BenchmarkText4KBWithHits(b *testing.B) {
	s, text := New(), ordinary()[:3800]+" "+ghp+" jane@example.com 203.0.113.7 password=hunter2"
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		s.Text("message", text)
	}
}

func BenchmarkFindSecrets4KB(b *testing.B) {
	s, text := New(), ordinary()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s.FindSecrets(text)
	}
}

func BenchmarkSanitise4KB(b *testing.B) {
	text := ordinary()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Sanitise(text, 1<<20)
	}
}
