package webhooks_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/webhooks"
)

// Signed over the bytes as they come: whatever else reads the same JSON in other bytes does not verify.
func TestA1_TheSignatureIsOverTheReceivedBytes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	body := fixture(t, modernAlert)
	good := hexMAC(clientSecret, body)
	var compact bytes.Buffer
	if err := json.Compact(&compact, body); err != nil {
		t.Fatal(err)
	}
	oneByte := bytes.Clone(body)
	oneByte[len(oneByte)/2] ^= 1
	sig := func(v string) with { return header("Sentry-Hook-Signature", v) }
	for _, c := range []struct {
		name string
		body []byte
		with []with
	}{
		{"one byte changed", oneByte, []with{sig(good)}},
		{"one byte more", append(bytes.Clone(body), '\n'), []with{sig(good)}},
		{"A1, A3: re-serialised with other spacing", compact.Bytes(), []with{sig(good)}},
		{"no signature", body, []with{without("Sentry-Hook-Signature")}},
		{"an empty signature", body, []with{sig("")}},
		{"a signature of nothing", body, []with{sig(hexMAC(clientSecret, nil))}},
		{"a signature under an empty secret", body, []with{sig(hexMAC("", body))}},
		{"a signature under another source's secret", body, []with{sig(hexMAC("another_source_secret", body))}},
		{"half a signature", body, []with{sig(good[:32])}},
		{"no hexadecimal digits", body, []with{sig(strings.Repeat("z", 64))}},
		{"with a prefix that GitHub has and Sentry has not", body, []with{sig("sha256=" + good)}},
		{"two signatures, the second right", body, []with{sig(strings.Repeat("0", 64)), func(r *http.Request) { r.Header.Add("Sentry-Hook-Signature", good) }}},
		{"signed as a Standard Webhook", body, append(w.standard("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a", noon, body), without("Sentry-Hook-Signature"))},
	} {
		r := w.postSentry(s, "event_alert", c.body, c.with...)
		if r.status != 401 || r.Code != "unauthenticated" || r.Detail == "" || r.Hint == "" || strings.Contains(r.raw, good) {
			t.Errorf("%s: %v", c.name, r)
		}
	}
	w.expect(map[string]int{"deliveries": 0, "delivery_keys": 0, "issues": 0, jobs: 0})
	if n := w.metric("errand_delivery_signature_failures_total", nil); n != 13 {
		t.Errorf("%v failures counted", n)
	}
	// A3: any formatting of the sender verifies, as long as it signs what it sends.
	for i, b := range [][]byte{body, compact.Bytes()} {
		b = bytes.ReplaceAll(b, []byte("0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c"), fmt.Appendf(nil, "a3-%d", i))
		if r := w.postSentry(s, "event_alert", b); r.Outcome != "accepted" {
			t.Errorf("%v", r)
		}
	}
	// The other name of the header.
	if r := w.postSentry(s, "event_alert", body, without("Sentry-Hook-Signature"), header("Sentry-App-Signature", good)); r.Outcome != "accepted" {
		t.Errorf("%v", r)
	}
}

func TestA6_CharactersOfEveryLengthVerify(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	for i, title := range []string{"a", "é", "€", "😀", `\ud83d\ude00`, `\ud83d`, `\ude00\ud83d`, "\xff", "\xed\xa0\x80", "\xf0\x9f", "e\u0301", "\u2028"} {
		body := fmt.Appendf(nil, `{"action":"triggered","data":{"event":{"event_id":"a6-%d","issue_id":"1","title":"%s"}}}`, i, title)
		if r := w.postSentry(s, "event_alert", body); r.Outcome != "accepted" {
			t.Errorf("%q: %v", title, r)
		}
	}
}

// A14: what is not authentic claims nothing.
func TestA14_AForgedDeliveryDoesNotPoisonTheRealOne(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s, g := w.sentry(), w.generic()
	body := fixture(t, modernAlert)
	if r := w.postSentry(s, "event_alert", body, header("Sentry-Hook-Signature", strings.Repeat("0", 64))); r.status != 401 {
		t.Fatal(r)
	}
	// Authentic and unreadable claims nothing either.
	broken := bytes.Replace(body, []byte(`"issue_id": "5550001234"`), []byte(`"issue_id": ""`), 1)
	broken = bytes.Replace(broken, []byte(`"issue_url"`), []byte(`"no_url"`), 1)
	if r := w.postSentry(s, "event_alert", broken); r.status != 422 {
		t.Fatal(r)
	}
	if r := w.postSentry(s, "event_alert", body); r.Outcome != "accepted" {
		t.Errorf("%v", r)
	}
	message := genericBody("e1")
	if r := w.postGeneric(g, "msg_1", message, header("webhook-signature", "v1,"+strings.Repeat("A", 43)+"=")); r.status != 401 {
		t.Fatal(r)
	}
	if r := w.postGeneric(g, "msg_1", []byte(`{"type":"error.occurred"}`)); r.status != 422 {
		t.Fatal(r)
	}
	if r := w.postGeneric(g, "msg_1", message); r.Outcome != "accepted" {
		t.Errorf("%v", r)
	}
	w.expect(map[string]int{"delivery_keys": 2, jobs: 2})
}

// Each request below is wrong in one thing and in all that is asked later; the answer shows which was asked first.
func TestTheOrderOnTheWire(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	big := bytes.Repeat([]byte("x"), webhooks.MaxBody+1)
	nowhere := "/hooks/" + strings.Repeat("a", 26)
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	form := header("Content-Type", "application/x-www-form-urlencoded")
	for _, c := range []struct {
		name   string
		req    *http.Request
		status int
		field  string
	}{
		{"another method", w.request(nowhere, big, form, func(r *http.Request) { r.Method = "PUT" }), 405, ""},
		{"too large, as announced", w.request(nowhere, big, form), 413, ""},
		{"too large, in chunks", w.request(nowhere, big, form, chunked), 413, ""},
		{"an unknown source", w.request(nowhere, []byte("x"), form), 404, ""},
		{"an id that is none", w.request("/hooks/github'--", []byte("x"), form), 404, ""},
		{"an id with a NUL", w.request("/hooks/%00", []byte("x"), form), 404, ""},
		{"A7: a form", w.request(s.Path, []byte("x"), form), 415, "Content-Type"},
		{"no content type", w.request(s.Path, []byte("x"), without("Content-Type")), 415, "Content-Type"},
		{"text", w.request(s.Path, []byte("x"), header("Content-Type", "text/plain")), 415, "Content-Type"},
		{"nearly JSON", w.request(s.Path, []byte("x"), header("Content-Type", "application/json5")), 415, "Content-Type"},
		{"compressed", w.request(s.Path, []byte("x"), header("Content-Encoding", "gzip")), 415, "Content-Encoding"},
		{"no signature", w.request(s.Path, []byte("x")), 401, ""},
		{"an empty body without a signature", w.request(s.Path, nil), 401, ""},
	} {
		if r := w.do(c.req); r.status != c.status || r.Field != c.field {
			t.Errorf("%s: %v, want %d", c.name, r, c.status)
		}
	}
	for _, ct := range []string{"application/json; charset=utf-8", "Application/JSON;charset=ISO-8859-1"} {
		if r := w.postSentry(s, "event_alert", []byte("x"), header("Content-Type", ct)); r.status != 422 {
			t.Errorf("%s: %v", ct, r)
		}
	}
	// At the cap and not over it.
	full := append([]byte(`{"action":"x"}`), bytes.Repeat([]byte(" "), webhooks.MaxBody-14)...)
	if r := w.postSentry(s, "comment", full, chunked); r.status != 202 {
		t.Errorf("%v", r)
	}
}

func TestUnknownDisabledAndMalformedSourcesAnswerTheSame(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	body := fixture(t, modernAlert)
	err := w.db.InTx(t.Context(), w.org, func(tx *store.Tx) error {
		_, err := tx.SetSourceDisabled(t.Context(), &noon, s.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	disabled := w.postSentry(s, "event_alert", body)
	for _, path := range []string{"/hooks/" + strings.Repeat("b", 26), "/hooks/x", "/hooks/" + strings.ToUpper(s.PublicID)} {
		s.Path = path
		if r := w.postSentry(s, "event_alert", body); r.status != 404 || r.raw != disabled.raw {
			t.Errorf("%s: %v, and of a disabled source %v", path, r, disabled)
		}
	}
	w.expect(map[string]int{"deliveries": 0})
}

func TestABrowserIsToldWhatThisIs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, path := range []string{w.sentry().Path, "/hooks/whatever"} {
		r := w.do(w.request(path, nil, func(r *http.Request) { r.Method = http.MethodGet }))
		if r.status != 200 || !strings.Contains(r.raw, "webhook endpoint") || strings.Contains(r.raw, "\n") {
			t.Errorf("%s: %v", path, r)
		}
	}
}

func TestTheSameDeliveryFiftyTimesAtOnceIsOneIssueAndOneJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s, g := w.sentry(), w.generic()
	alert, message := fixture(t, modernAlert), genericBody("e1")
	for _, c := range []struct {
		name string
		make func() *http.Request
	}{
		{"sentry", func() *http.Request {
			return w.request(s.Path, alert, header("Sentry-Hook-Resource", "event_alert"), header("Sentry-Hook-Signature", hexMAC(clientSecret, alert)))
		}},
		{"generic", func() *http.Request {
			return w.request(g.Path, message, w.standard(g.Secret, "msg_1", noon, message)...)
		}},
	} {
		requests := make([]*http.Request, 50)
		for i := range requests {
			requests[i] = c.make()
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[string]int{}
		start := make(chan struct{})
		for _, req := range requests {
			wg.Go(func() {
				<-start
				answer := send(req)
				mu.Lock()
				defer mu.Unlock()
				got[answer]++
			})
		}
		close(start)
		wg.Wait()
		if got["202 accepted"] != 1 || got["202 duplicate"] != 49 {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	w.expect(map[string]int{
		"issues": 2, "events": 2, jobs: 2, "delivery_keys": 2, "deliveries": 100, "deliveries WHERE outcome = 'duplicate'": 98, "issues WHERE deliveries = 1": 2,
	})
}

// send gives status and outcome in one word each; it may be called from any goroutine.
// A10: two replicas with one database are reached by the same deliveries at once: a row that both try to write decides, and no
// memory of a process.
func TestA10_TwoReplicasTakeADeliveryOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	e := echo.New()
	w.another().Mount(e)
	second := httptest.NewServer(e)
	t.Cleanup(second.Close)
	replicas := []string{w.url, second.URL}
	const events = 7
	got := make([]map[string]int, events)
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := make(chan struct{})
	for n := range events {
		got[n] = map[string]int{}
		body := bytes.ReplaceAll(fixture(t, modernAlert), []byte("0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c"), fmt.Appendf(nil, "a10-%d", n))
		for i := range 6 { // three hooks of one tracker, at each replica
			from := *w
			from.url = replicas[i%2]
			req := from.request(s.Path, body, header("Sentry-Hook-Resource", "event_alert"), header("Sentry-Hook-Signature", hexMAC(clientSecret, body)))
			wg.Go(func() {
				<-start
				answer := send(req)
				mu.Lock()
				defer mu.Unlock()
				got[n][answer]++
			})
		}
	}
	close(start)
	wg.Wait()
	for n, answers := range got {
		if answers["202 accepted"] != 1 || answers["202 duplicate"] != 5 {
			t.Errorf("event %d: %v", n, answers)
		}
	}
	w.expect(map[string]int{"events": events, jobs: events, "delivery_keys": events, "issues WHERE deliveries = 7": 1})
}

func send(req *http.Request) string {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	var a struct{ Outcome string }
	return fmt.Sprint(resp.StatusCode, " ", errText(errors.Join(err, json.Unmarshal(b, &a)), a.Outcome))
}

func errText(err error, otherwise string) string {
	if err != nil {
		return err.Error()
	}
	return otherwise
}

// Many issues at once, several events each: every one of them is stored, and no two transactions wait in a circle.
func TestManyDeliveriesAtOnceAreAllStored(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for n := range 60 {
		body := bytes.ReplaceAll(fixture(t, modernAlert), []byte("0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c"), fmt.Appendf(nil, "e%d", n))
		body = bytes.ReplaceAll(body, []byte("5550001234"), fmt.Appendf(nil, "%d", n%5))
		req := w.request(s.Path, body, header("Sentry-Hook-Resource", "event_alert"), header("Sentry-Hook-Signature", hexMAC(clientSecret, body)))
		wg.Go(func() {
			answer := send(req)
			mu.Lock()
			defer mu.Unlock()
			got[answer]++
		})
	}
	wg.Wait()
	if got["202 accepted"] != 60 {
		t.Errorf("%v", got)
	}
	w.expect(map[string]int{"issues": 5, "issues WHERE deliveries = 12": 5, jobs: 60})
	// All were seen at the same time, so the one that came last may stand beside the ten that are kept.
	if n := w.count("events"); n < 50 || n > 55 {
		t.Errorf("%d events", n)
	}
}

func TestWhatCannotBeStoredIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	body := fixture(t, modernAlert)
	for _, c := range []struct{ name, breakIt, mendIt string }{
		{"the job queue refuses", "ALTER TABLE river_job ADD CONSTRAINT no CHECK (kind <> 'consider_issue')", "ALTER TABLE river_job DROP CONSTRAINT no"},
		{"the delivery's row, the last of all", "ALTER TABLE deliveries ADD CONSTRAINT no CHECK (outcome <> 'accepted')", "ALTER TABLE deliveries DROP CONSTRAINT no"},
	} {
		w.exec(c.breakIt)
		if r := w.postSentry(s, "event_alert", body); r.status != 503 || strings.Contains(r.raw, "constraint") || r.Delivery != "" {
			t.Errorf("%s: %v", c.name, r)
		}
		w.expect(map[string]int{"deliveries": 0, "delivery_keys": 0, "issues": 0, "events": 0, jobs: 0})
		w.exec(c.mendIt)
	}
	if r := w.postSentry(s, "event_alert", body); r.Outcome != "accepted" {
		t.Errorf("sent again: %v", r)
	}
	if !strings.Contains(w.log.String(), `"msg":"delivery not stored"`) {
		t.Error("the log does not say it")
	}
}

func TestEachDeliveryIsOneLineAndOneCount(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	first := w.postSentry(s, "event_alert", fixture(t, modernAlert))
	w.postSentry(s, "event_alert", fixture(t, modernAlert))
	w.postSentry(s, "comment", []byte("{}"))
	w.postSentry(s, "error", []byte("{"))
	var lines []map[string]any
	for l := range strings.Lines(w.log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == "delivery" {
			lines = append(lines, m)
		}
	}
	if len(lines) != 4 {
		t.Fatalf("%d lines", len(lines))
	}
	l := lines[0]
	issue := w.issue("5550001234")
	if l["delivery"] != first.Delivery || l["org"] != string(w.org) || l["source"] != string(s.ID) || l["issue"] != string(issue.ID) || l["event"] == "" || l["outcome"] != "accepted" {
		t.Errorf("%v", l)
	}
	for outcome, n := range map[string]float64{"accepted": 1, "duplicate": 1, "ignored": 1, "rejected": 1} {
		if got := w.metric("errand_deliveries_total", map[string]string{"kind": "sentry", "outcome": outcome}); got != n {
			t.Errorf("%s: counted %v", outcome, got)
		}
	}
	if strings.Contains(w.log.String(), "currency") || strings.Contains(w.log.String(), clientSecret) {
		t.Error("the log tells what was in a delivery")
	}
}

func TestASourceIsMadeWithASecretThatIsShownOnceAndSealed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s, g := w.sentry(), w.generic()
	if len(s.PublicID) != 26 || s.Path != "/hooks/"+s.PublicID || s.PublicID == g.PublicID || s.Secret != clientSecret {
		t.Errorf("%+v", s)
	}
	if !strings.HasPrefix(g.Secret, "whsec_") || len(g.Secret) != 6+44 {
		t.Errorf("secret of %d characters", len(g.Secret))
	}
	all := w.dump()
	for _, secret := range []string{s.Secret, g.Secret, g.Secret[6:]} {
		if strings.Contains(all, secret) || strings.Contains(all, fmt.Sprintf("%x", secret)) {
			t.Error("a secret is in the database in plain")
		}
	}
	for _, n := range []webhooks.NewSource{
		{Kind: "sentri", Name: "x", Secret: clientSecret},
		{Kind: "", Name: "x"},
		{Kind: "sentry", Name: " \x00 ", Secret: clientSecret},
		{Kind: "sentry", Name: "x"},
		{Kind: "sentry", Name: "x", Secret: "short"},
		{Kind: "sentry", Name: "x", Secret: strings.Repeat(" ", 40)},
		{Kind: "generic", Name: "x", Secret: "whsec_"},
		{Kind: "generic", Name: "x", Secret: "whsec_c2hvcnQ="},
		{Kind: "generic", Name: "x", Secret: "a secret of mine, in plain letters"},
	} {
		_, err := w.hooks.CreateSource(t.Context(), w.org, n)
		if e := new(errand.Error); !errors.As(err, &e) || e.Code != errand.CodeInvalid || e.Field == "" {
			t.Errorf("%+v: %v", n, err)
		}
	}
	w.expect(map[string]int{"sources": 2})
	if kinds := w.hooks.Kinds(); strings.Join(kinds, " ") != "generic posthog posthog_header sentry" {
		t.Errorf("%v", kinds)
	}
}

func TestBothSecretsVerifyWhileTheyOverlap(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	n := 0
	status := func(secret string) int {
		n++
		body := bytes.ReplaceAll(fixture(t, modernAlert), []byte("0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c"), fmt.Appendf(nil, "r%d", n))
		return w.postSentry(s, "event_alert", body, header("Sentry-Hook-Signature", hexMAC(secret, body))).status
	}
	check := func(when string, want map[string]int) {
		t.Helper()
		for secret, code := range want {
			if got := status(secret); got != code {
				t.Errorf("%s: %s is answered %d, want %d", when, secret, got, code)
			}
		}
	}
	second, third := "second_sentry_client_secret", "third_sentry_client_secret"
	check("at first", map[string]int{clientSecret: 202, second: 401})
	r, err := w.hooks.RotateSecret(t.Context(), w.org, s.ID, second)
	if err != nil || r.Secret != second || r.Path != s.Path {
		t.Fatalf("%+v, %v", r, err)
	}
	check("after the rotation", map[string]int{clientSecret: 202, second: 202, third: 401})
	w.clock.forward(webhooks.Overlap - time.Second)
	w.maintain()
	check("at the end of the overlap", map[string]int{clientSecret: 202, second: 202})
	w.clock.forward(time.Second)
	check("after the overlap", map[string]int{clientSecret: 401, second: 202})
	if _, err := w.hooks.RotateSecret(t.Context(), w.org, s.ID, third); err != nil {
		t.Fatal(err)
	}
	check("after another rotation", map[string]int{clientSecret: 401, second: 202, third: 202})

	other := w.db.Org(t, "other")
	for _, c := range []struct {
		name string
		org  errand.ID
		id   errand.ID
		code errand.Code
	}{
		{"another organisation's source", other, s.ID, errand.CodeNotFound},
		{"no source", w.org, errand.NewID(noon), errand.CodeNotFound},
	} {
		if _, err := w.hooks.RotateSecret(t.Context(), c.org, c.id, third); errand.CodeOf(err) != c.code {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := w.hooks.RotateSecret(t.Context(), w.org, s.ID, "weak"); errand.CodeOf(err) != errand.CodeInvalid {
		t.Errorf("a weak secret: %v", err)
	}
	check("after the refusals", map[string]int{second: 202, third: 202})
}

// A sealed secret that is copied to another row does not make that row verify.
func TestASecretCannotBeMovedToAnotherSource(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	other := w.source(w.org, webhooks.NewSource{Kind: "sentry", Name: "other", Secret: "another_source_secret"})
	w.exec(`UPDATE sources SET secret_sealed = (SELECT secret_sealed FROM sources WHERE id = '` + string(s.ID) + `') WHERE id = '` + string(other.ID) + `'`)
	if r := w.postSentry(other, "event_alert", fixture(t, modernAlert)); r.status != 500 {
		t.Errorf("%v", r)
	}
	w.expect(map[string]int{"deliveries": 0})
}

func TestTheVectorsOfBothKindsVerify(t *testing.T) {
	t.Parallel()
	var vectors []struct {
		Scheme, Secret, Body string
		Headers              map[string]string
	}
	b, err := os.ReadFile("testdata/signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"sentry": "sentry", "standard-webhooks": "generic"}
	done := 0
	for i, v := range vectors {
		kind, ok := kinds[v.Scheme]
		if !ok {
			continue // GitHub's belong to dispatch; Grafana is not a kind yet
		}
		done++
		t.Run(fmt.Sprintf("%d %s", i, v.Scheme), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.clock.set(time.Unix(1614265330, 0))
			w.maintain()
			s := w.source(w.org, webhooks.NewSource{Kind: kind, Name: "v", Secret: v.Secret})
			post := func(body string) reply {
				var all []with
				for k, val := range v.Headers {
					all = append(all, header(k, val))
				}
				return w.do(w.request(s.Path, []byte(body), all...))
			}
			if r := post(v.Body); r.status == 401 || r.status >= 500 {
				t.Errorf("%v", r)
			}
			changed := v.Body + " "
			if v.Body != "" {
				changed = v.Body[:len(v.Body)-1] + " "
			}
			if r := post(changed); r.status != 401 {
				t.Errorf("one byte changed: %v", r)
			}
		})
	}
	if done != 4 {
		t.Errorf("%d vectors of our kinds", done)
	}
}
