package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
)

var fuzzNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func quiet() *Webhooks {
	return &Webhooks{scrubber: scrub.New(), log: slog.New(slog.DiscardHandler), kinds: providers()}
}

// keeps holds what every parsed delivery must keep to, whatever was sent.
func keeps(t *testing.T, kind provider, h http.Header, body []byte) {
	t.Helper()
	w := quiet()
	d := &delivery{receivedAt: fuzzNow}
	err := w.understand(d, kind, h, body)
	if (err != nil) != (d.outcome == rejected) || (err != nil && errand.CodeOf(err) != errand.CodeInvalid) {
		t.Fatalf("outcome %s, error %v", d.outcome, err)
	}
	if len(d.shape) > shapeBytes || len(d.reason) > 256 {
		t.Errorf("a shape of %d bytes, a reason of %d", len(d.shape), len(d.reason))
	}
	storable := func(what, s string) {
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			t.Errorf("%s cannot be stored: %q", what, s)
		}
	}
	for what, s := range map[string]string{
		"shape": d.shape, "reason": string(d.reason), "resource": d.parsed.Resource, "action": d.parsed.Action, "request": d.parsed.RequestID,
	} {
		storable(what, s)
	}
	if d.outcome != accepted {
		return
	}
	p := d.parsed
	if p.Key == "" || p.Issue.ProviderID == "" || p.Issue.Title == "" {
		t.Errorf("accepted without a key, an id or a title: %+v", p)
	}
	if p.Issue.FirstSeen.After(p.Issue.LastSeen) || p.Issue.LastSeen.After(fuzzNow) || p.StatusAt.After(fuzzNow) {
		t.Errorf("times out of order: %+v", p)
	}
	storable("key", p.Key)
	eachIssueText(&p.Issue, func(s *string, limit int) {
		storable("issue", *s)
		if len(*s) > limit {
			t.Errorf("%d bytes where %d are allowed", len(*s), limit)
		}
	})
	if p.Event == nil {
		return
	}
	e := p.Event
	eachEventText(e, func(s *string, limit int) {
		storable("event", *s)
		if len(*s) > limit {
			t.Errorf("%d bytes where %d are allowed", len(*s), limit)
		}
	})
	if len(e.Exceptions) > maxExceptions || len(e.Tags) > maxTags || e.Primary >= len(e.Exceptions) || (e.Primary < 0) != (len(e.Exceptions) == 0) {
		t.Errorf("%d exceptions, %d tags, primary %d", len(e.Exceptions), len(e.Tags), e.Primary)
	}
	for _, x := range e.Exceptions {
		if len(x.Frames) > maxFrames {
			t.Errorf("%d frames", len(x.Frames))
		}
		for _, f := range x.Frames {
			if f.Line < 0 || f.Column < 0 {
				t.Errorf("%+v", f)
			}
		}
	}
	b, err := json.Marshal(e)
	if err != nil || len(b) > maxEvent {
		t.Errorf("an event of %d bytes, %v", len(b), err)
	}
	// What is kept is scrubbed: scrubbing it again changes nothing and removes nothing.
	again := *e
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	again.Removed = nil
	w.scrubber.Event(&again)
	if len(again.Removed) > 0 {
		t.Errorf("scrubbing what is kept removes %v more", again.Removed)
	}
	for field := range e.Provenance {
		if o := e.Provenance[field]; o != errand.FromOutsider && o != errand.FromTracker {
			t.Errorf("%s comes from %q", field, o)
		}
	}
}

func FuzzSentryParse(f *testing.F) {
	files, err := filepath.Glob("testdata/sentry/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		resource := "event_alert"
		for _, r := range []string{"issue", "error"} {
			if strings.Contains(filepath.Base(file), r+".") {
				resource = r
			}
		}
		f.Add(resource, "1789377705", b)
	}
	f.Add("error", "", []byte(`{"action":"created","data":{"error":{"event_id":"a","issue_id":1,"tags":[["a"],[null,1],{"key":"k"}],"exception":[{"mechanism":{"exception_id":0,"parent_id":0}}]}}}`))
	f.Add("issue", "-1", []byte(`{"action":"resolved","data":{"issue":{"id":"1","statusDetails":[1,{"a":2}]}}}`))
	f.Fuzz(func(t *testing.T, resource, stamp string, body []byte) {
		keeps(t, sentry{}, http.Header{sentryResource: {resource}, sentryTimestamp: {stamp}, sentryRequestID: {stamp}}, body)
		sentry{}.Hint(http.Header{}, body)
	})
}

func FuzzGenericParse(f *testing.F) {
	doc, err := os.ReadFile("../docs/sources.md")
	if err != nil {
		f.Fatal(err)
	}
	for i, part := range strings.Split(string(doc), "```") {
		if i%2 == 1 {
			f.Add([]byte(strings.TrimPrefix(part, "json\n")))
		}
	}
	f.Add([]byte(`{"type":"issue.reopened","timestamp":"0001-01-01T00:00:00.1Z","data":{"issue":{"id":"1"}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		keeps(t, generic{}, http.Header{"Webhook-Id": {"msg_1"}}, body)
	})
}

// Whatever stands in the headers, only the right signature verifies.
func FuzzSignatureHeaders(f *testing.F) {
	body, key := []byte(`{"a":1}`), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(body)
	right := hex.EncodeToString(mac.Sum(nil))
	f.Add(right, "msg_1", "1796040000")
	f.Add(strings.ToUpper(right), "a.b", "")
	f.Add("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330")
	f.Fuzz(func(t *testing.T, signature, id, stamp string) {
		err := sentry{}.Verify(http.Header{sentrySignature: {signature}}, body, []byte(key), fuzzNow)
		if (err == nil) != strings.EqualFold(signature, right) {
			t.Errorf("sentry, %q: %v", signature, err)
		}
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {signature}}
		if (generic{}).Verify(h, body, []byte(key), fuzzNow) == nil {
			t.Errorf("generic: %q %q %q verifies", id, stamp, signature)
		}
	})
}

// A kind never verifies without a secret, even if one came to be empty.
func TestAnEmptySecretVerifiesNothing(t *testing.T) {
	t.Parallel()
	mac := hmac.New(sha256.New, nil)
	mac.Write([]byte("x"))
	for name, kind := range providers() {
		for _, secret := range []string{"", "whsec_"} {
			h := http.Header{
				sentrySignature: {hex.EncodeToString(mac.Sum(nil))},
				"Webhook-Id":    {"a"}, "Webhook-Timestamp": {"1796040000"}, "Webhook-Signature": {"v1,AAAA"},
			}
			if err := kind.Verify(h, []byte("x"), []byte(secret), fuzzNow); err == nil {
				t.Errorf("%s verifies under %q", name, secret)
			}
		}
	}
}

// Where a project's rules left no frame inside the application, what the SDK said counts.
func TestInAppGoesBackToTheSDKsWord(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/sentry/event_alert.triggered.javascript.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := sentry{}.Parse(http.Header{sentryResource: {"event_alert"}}, b, fuzzNow)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Event.Exceptions[0].Frames {
		if f.InApp == nil || !*f.InApp {
			t.Errorf("%+v", f)
		}
	}
	mixed := strings.Replace(string(b), `"in_app": false`, `"in_app": true`, 1)
	if p, err = (sentry{}).Parse(http.Header{sentryResource: {"event_alert"}}, []byte(mixed), fuzzNow); err != nil {
		t.Fatal(err)
	}
	if fr := p.Event.Exceptions[0].Frames; !*fr[0].InApp || *fr[1].InApp {
		t.Errorf("%+v", fr)
	}
}
