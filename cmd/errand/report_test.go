package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand/server"
)

// fakeSentry takes envelopes and keeps them as they came.
type fakeSentry struct {
	*httptest.Server
	mu   sync.Mutex
	sent []string
}

func newFakeSentry(t *testing.T) *fakeSentry {
	t.Helper()
	s := &fakeSentry{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if strings.Contains(string(b), `"type":"event"`) {
			s.sent = append(s.sent, string(b))
		}
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *fakeSentry) dsn() string {
	return strings.Replace(s.URL, "http://", "http://0123456789abcdef@", 1) + "/7"
}

func (s *fakeSentry) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

type routes func(*echo.Echo)

func (m routes) Mount(e *echo.Echo) { m(e) }

func TestWhatIsToldOfOurErrorsHoldsNoSecretNoRequestAndNoSource(t *testing.T) {
	t.Parallel()
	sentry := newFakeSentry(t)
	const ours, token = "b3VyIG93biBzZWNyZXQga2V5IGlzIGhlcmU=", "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	planted := []string{ours, token, "correct-horse", "ada@example.com", "cookie-value", "header-value", "body-value"}
	r, err := newReporter(sentry.dsn(), []string{ours, ""})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(reporting{Handler: slog.NewJSONHandler(io.Discard, nil), to: r})
	fault := errors.New("connect to postgres://me:correct-horse@db/errand with " + ours + " and " + token + ": refused")
	log.Info("not told", "error", fault)
	log.With("person", "ada@example.com", "password", "correct-horse").WithGroup("g").Error("told of a fault", "error", fault, "url", "https://x/?token="+token)
	e := server.New(server.Config{
		Log: log, Clock: time.Now, Metrics: prometheus.NewRegistry(),
		Pages: []server.Mounter{routes(func(e *echo.Echo) {
			e.POST("/panic", func(echo.Context) error { panic("kaboom at Authorization: Bearer " + token) })
		})},
	})
	ts := httptest.NewServer(e)
	t.Cleanup(ts.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, ts.URL+"/panic", strings.NewReader("body-value"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Custom", "header-value")
	req.AddCookie(&http.Cookie{Name: "errand", Value: "cookie-value"})
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("the panic was answered %d", resp.StatusCode)
	}
	r.close()

	sent := sentry.all()
	if len(sent) != 2 {
		t.Fatalf("%d events, want one of the fault and one of the panic:\n%s", len(sent), strings.Join(sent, "\n\n"))
	}
	text := strings.Join(sent, "\n")
	for _, s := range planted {
		if strings.Contains(text, s) {
			t.Errorf("%q went out", s)
		}
	}
	for _, part := range []string{`"request"`, `"user"`, `"server_name"`, `"breadcrumbs"`, "context_line", `"modules"`} {
		if strings.Contains(strings.ReplaceAll(text, `"request":"`, ""), part) { // the id of a request may go out
			t.Errorf("the part %s went out", part)
		}
	}
	for _, want := range []string{"told of a fault", "connect to postgres", "request failed", "kaboom", `"logger":"errand"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q did not go out:\n%s", want, text)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// A DSN is checked at start, and the secrets of the settings are those that no report may hold.
func TestTheSettingsOfReports(t *testing.T) {
	t.Parallel()
	sentry := newFakeSentry(t)
	c := serveCmd{reportFlags: reportFlags{SentryDSN: sentry.dsn()}}
	if err := c.reportFlags.check(); err != nil {
		t.Errorf("a DSN on loopback: %v", err)
	}
	for _, dsn := range []string{"http://0123456789abcdef@sentry.example.com/7", "https://sentry.example.com/7", "x"} {
		if err := (reportFlags{SentryDSN: dsn}).check(); err == nil || strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
	c.SecretKey, c.PreviousSecretKey, c.DatabaseURL = "one", []string{"two"}, "postgres://u:three@127.0.0.1/d"
	if got, err := json.Marshal(c.secrets()); err != nil || string(got) != `["one","two","three"]` {
		t.Errorf("%s %v", got, err)
	}
}
