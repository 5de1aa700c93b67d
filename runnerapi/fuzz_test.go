package runnerapi_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand/runnerapi"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/server"
	"github.com/errand-dev/errand/wire"
)

// FuzzExchange sends any body to the one call that needs no token: the answer is a problem of the caller's making, with a code,
// and never a run token. There is no database behind it: without a credential that is good nobody gets as far as one.
func FuzzExchange(f *testing.F) {
	keys, err := runtoken.NewKeys(key)
	if err != nil {
		f.Fatal(err)
	}
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	identity, err := runtoken.NewIdentity(runtoken.IdentityConfig{
		Issuer: "https://issuer.example.com", Audience: publicURL,
		Fetch: func(_ context.Context, url string) ([]byte, error) {
			if strings.HasSuffix(url, "configuration") {
				return []byte(`{"issuer":"https://issuer.example.com","jwks_uri":"https://issuer.example.com/keys"}`), nil
			}
			return []byte(`{"keys":[{"kty":"RSA","kid":"k1","e":"AQAB","n":"` + strings.Repeat("v", 342) + `"}]}`), nil
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	now := func() time.Time { return at }
	api, err := runnerapi.New(runnerapi.Config{
		Keys: keys, PublicURL: publicURL, WebURL: "https://github.com", IDTokens: identity, GitHub: &fakeGitHub{}, Clock: now,
		Problem: func(err error) error { return server.ToProblem(err) },
	})
	if err != nil {
		f.Fatal(err)
	}
	h := server.New(server.Config{
		Log: slog.New(slog.DiscardHandler), Clock: now, Version: "test", Metrics: prometheus.NewRegistry(),
		Ready: func(context.Context) error { return nil }, Operations: []server.Registrar{api},
	})
	ticket, err := keys.Ticket("0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11", 1, at) // over
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []wire.ExchangeRequest{
		{Ticket: ticket, Nonce: nonce, WorkflowRunID: 1, WorkflowRunAttempt: 1},
		{Run: "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11.1", IDToken: "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsxIn0.e30.AAAA", Nonce: nonce, WorkflowRunID: 1, WorkflowRunAttempt: 1},
		{Run: "\x00.1", Ticket: "errt_", IDToken: "..", Nonce: nonce, Role: "publish", WorkflowRunID: 1 << 62, WorkflowRunAttempt: 1 << 31},
	} {
		b, err := json.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("[]")
	f.Fuzz(func(t *testing.T, body string) {
		req := httptest.NewRequest("POST", "/runner/v1/exchange", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		var p struct{ Code string }
		if rec.Code < 400 || rec.Code >= 500 || json.Unmarshal(rec.Body.Bytes(), &p) != nil || p.Code == "" || strings.Contains(rec.Body.String(), "errr_") {
			t.Errorf("%q was answered %d %s", body, rec.Code, rec.Body)
		}
	})
}
