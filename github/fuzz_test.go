package github

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func seeds(f *testing.F, folder string, add func(name, body string)) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.json"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		add(filepath.Base(file), string(b))
	}
}

func shown(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\n\r\x1b") || utf8.RuneCountInString(s) > maxMessage+3 {
		t.Errorf("it cannot be shown or stored: %q", s)
	}
}

// FuzzClassify: whatever GitHub, or a proxy before it, answers, the outcome is on the list, its words can be shown, a pause
// is within its bounds, and no denial is absence.
func FuzzClassify(f *testing.F) {
	for _, status := range []int{200, 204, 301, 307, 400, 401, 403, 404, 409, 410, 422, 429, 451, 500, 502} {
		f.Add(status, 0, "", "", "", "", `{"message":"Not Found"}`)
	}
	seeds(f, "errors", func(_, body string) { f.Add(422, 2, "", "", "", "", body) })
	f.Add(403, 2, "60", "0", "1796040300", "Mon, 30 Nov 2026 12:04:00 GMT", `{"message":"API rate limit exceeded","errors":["x",{"message":"y"},7]}`)
	calls := []Call{CallToken, CallInstallation, CallDispatch, CallCancel, CallRead, CallSetUp}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status, call int, retry, remaining, reset, date, body string) {
		if status < 100 || status > 599 {
			return
		}
		a := Answer{Call: calls[(call%len(calls)+len(calls))%len(calls)], Status: status, Header: http.Header{}, Body: []byte(body)}
		for k, v := range map[string]string{"Retry-After": retry, "X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": reset, "Date": date} {
			a.Header.Set(k, v)
		}
		got := Classify(a, now)
		shown(t, got.Message)
		_, listed := advice[got.Outcome]
		switch {
		case got.Outcome != Accepted && !listed:
			t.Errorf("%q is not on the list", got.Outcome)
		case got.Outcome.OK() != (status/100 == 2), got.Outcome.Unclear():
			t.Errorf("%d is %s", status, got.Outcome)
		case got.RetryAfter < 0 || got.RetryAfter > maxPause, got.RetryAfter > 0 && !got.Outcome.Retry():
			t.Errorf("%s after %s", got.Outcome, got.RetryAfter)
		case status == 403 && (got.Outcome == Gone || got.Outcome == Deleted || got.Outcome == NotFound || got.Outcome == WorkflowMissing):
			t.Errorf("a denial is absence: %s", got.Outcome)
		}
	})
}

func FuzzParseWebhook(f *testing.F) {
	seeds(f, "webhooks", func(name, body string) {
		event, _, _ := strings.Cut(name, ".")
		f.Add(event, body)
	})
	f.Add("workflow_run", `{"action":"completed","workflow_run":{"id":1,"event":"workflow_dispatch","display_title":"\u0000\ud800 a.b"},"repository":{"id":1}}`)
	f.Fuzz(func(t *testing.T, event, body string) {
		w, err := ParseWebhook(event, []byte(body))
		shown(t, w.Action)
		if err != nil && (w.Run != nil || w.Ignored != "") {
			t.Errorf("refused, and yet %+v", w)
		}
		if r := w.Run; r != nil {
			if r.ID <= 0 || r.Attempt <= 0 || w.Repository <= 0 || (r.Status != "queued" && r.Status != "in_progress" && r.Status != "completed") {
				t.Errorf("%+v", *r)
			}
			shown(t, r.Title)
			for _, m := range r.Marks() {
				shown(t, m)
			}
		}
	})
}

// FuzzVerifyWebhook: no header but the one true one is believed.
func FuzzVerifyWebhook(f *testing.F) {
	f.Add(exampleSecret, exampleSignature, []byte(exampleBody))
	f.Add("", "sha256=", []byte(""))
	f.Add(exampleSecret, "sha1=00", []byte("\xff"))
	f.Fuzz(func(t *testing.T, secret, header string, body []byte) {
		err := VerifyWebhook([]byte(secret), header, body)
		if err == nil && (secret == "" || len(header) != 71) {
			t.Errorf("believed: %q", header)
		}
	})
}
