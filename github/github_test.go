package github

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errand-dev/errand"
)

var keyPEM = sync.OnceValue(func() []byte {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
})

func TestNewSaysWhichSettingIsMissingOrWeak(t *testing.T) {
	t.Parallel()
	pkcs8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	elliptical, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cfg   Config
		field string // "" = fine
		words string
	}{
		"github.com":               {cfg: Config{AppID: 1, PrivateKey: keyPEM()}},
		"a PKCS #8 key":            {cfg: Config{AppID: 1, PrivateKey: pkcs8(strong)}},
		"an Enterprise Server":     {cfg: Config{AppID: 1, PrivateKey: keyPEM(), BaseURL: "https://ghe.example/api/v3"}},
		"ghe.com":                  {cfg: Config{AppID: 1, PrivateKey: keyPEM(), BaseURL: "https://api.octo.ghe.com/"}},
		"this machine":             {cfg: Config{AppID: 1, PrivateKey: keyPEM(), BaseURL: "http://127.0.0.1:8080/api/v3"}},
		"no App":                   {cfg: Config{PrivateKey: keyPEM()}, field: "github.app_id", words: "set it to the number"},
		"no key":                   {cfg: Config{AppID: 1, PrivateKey: []byte(" \n")}, field: "github.private_key", words: "is missing"},
		"a key that is not PEM":    {cfg: Config{AppID: 1, PrivateKey: []byte("MIIEow")}, field: "github.private_key", words: "-----BEGIN"},
		"a key that is damaged":    {cfg: Config{AppID: 1, PrivateKey: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte("x")})}, field: "github.private_key", words: "cannot be read"},
		"a key of another kind":    {cfg: Config{AppID: 1, PrivateKey: pkcs8(elliptical)}, field: "github.private_key", words: "not RSA"},
		"a weak key":               {cfg: Config{AppID: 1, PrivateKey: pkcs8(weak)}, field: "github.private_key", words: "1024 bits"},
		"C27 a host without /api":  {cfg: Config{AppID: 1, PrivateKey: keyPEM(), BaseURL: "https://ghe.example"}, field: "github.api_url", words: "https://ghe.example/api/v3"},
		"an address without https": {cfg: Config{AppID: 1, PrivateKey: keyPEM(), BaseURL: "http://ghe.example/api/v3"}, field: "github.api_url", words: "https://"},
		"an address with a query":  {cfg: Config{AppID: 1, PrivateKey: keyPEM(), BaseURL: "https://ghe.example/api/v3?x=1"}, field: "github.api_url", words: "plain URL"},
		"not an address":           {cfg: Config{AppID: 1, PrivateKey: keyPEM(), BaseURL: "ghe.example"}, field: "github.api_url", words: "plain URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(tc.cfg)
			var e *errand.Error
			switch {
			case tc.field == "" && err == nil:
			case tc.field == "":
				t.Error(err)
			case !errors.As(err, &e) || e.Code != errand.CodeInvalid || e.Field != tc.field || !strings.Contains(e.Message, tc.words):
				t.Errorf("got %v, want %s: ...%s...", err, tc.field, tc.words)
			}
		})
	}
}

func TestCheckPermissions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		granted        map[string]string
		want           errand.Verdict
		extra, missing []string
	}{
		"exactly two":             {map[string]string{"metadata": "read", "actions": "write"}, errand.Pass, nil, nil},
		"nothing was said":        {nil, errand.Unknown, nil, nil},
		"Contents above all":      {map[string]string{"metadata": "read", "actions": "write", "contents": "read"}, errand.Fail, []string{"contents: read"}, nil},
		"Actions only to read":    {map[string]string{"metadata": "read", "actions": "read"}, errand.Fail, nil, []string{"actions: write"}},
		"one that nobody knew of": {map[string]string{"metadata": "read", "actions": "write", "x_ray": "admin"}, errand.Fail, []string{"x_ray: admin"}, nil},
		"more than write":         {map[string]string{"metadata": "read", "actions": "admin"}, errand.Fail, []string{"actions: admin"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, extra, missing := CheckPermissions(tc.granted)
			if v != tc.want || !slices.Equal(extra, tc.extra) || !slices.Equal(missing, tc.missing) {
				t.Errorf("got %s, %v, %v", v, extra, missing)
			}
		})
	}
}

// C9: the mark of one dispatch is not found in that of another.
func TestC9_AMarkerIsAWholeToken(t *testing.T) {
	t.Parallel()
	const marker = "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11.1"
	for title, want := range map[string]bool{
		"Errand " + marker:          true,
		marker:                      true,
		"Errand (" + marker + ")":   true,
		"Errand " + marker + ".":    true,
		"Errand " + marker + "2":    false,
		"Errand " + marker + ".2":   false,
		"Errand x" + marker:         false,
		"Errand 1-" + marker:        false,
		"Errand " + marker[:36]:     false,
		"Errand":                    false,
		strings.ToUpper(marker):     false,
		"Errand:" + marker + ":end": true,
	} {
		if hasMarker(title, marker) != want {
			t.Errorf("%q: want %v", title, want)
		}
	}
}

// answers is a network of one handler.
type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func testApp(t *testing.T, network answers) *App {
	t.Helper()
	app, err := New(Config{AppID: 1, PrivateKey: keyPEM(), BaseURL: "https://ghe.example/api/v3", Transport: network})
	if err != nil {
		t.Fatal(err)
	}
	return app
}

var someTarget = Target{InstallationID: 1, RepositoryID: 2, Owner: "o", Name: "r", WorkflowFile: ".github/workflows/errand.yml", Ref: "main"}

func tokenAnswer(permissions, repositories string) string {
	return `{"token":"ghs_1_x","expires_at":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `","permissions":` + permissions + `,"repositories":` + repositories + `}`
}

func TestATokenThatCarriesMoreThanAskedForIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a permission":         tokenAnswer(`{"metadata":"read","actions":"write","contents":"read"}`, `[{"id":2}]`),
		"an unknown one":       tokenAnswer(`{"metadata":"read","actions":"write","x_ray":"read"}`, `[{"id":2}]`),
		"a higher level":       tokenAnswer(`{"metadata":"write","actions":"write"}`, `[{"id":2}]`),
		"another repository":   tokenAnswer(`{"metadata":"read","actions":"write"}`, `[{"id":2},{"id":3}]`),
		"not a token (C23)":    `<html>`,
		"an empty object, 201": `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := testApp(t, func(r *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, "/access_tokens") {
					t.Errorf("the token was used: %s", r.URL.Path)
				}
				return answer(201, body), nil
			})
			d := app.Dispatch(t.Context(), someTarget, nil)
			if d.Outcome != OverGranted && d.Outcome != Unreachable {
				t.Errorf("%+v", d)
			}
		})
	}
}

func TestC27_NothingIsSentToAnotherHost(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var hosts []string
	app := testApp(t, func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		hosts = append(hosts, r.URL.Scheme+"://"+r.URL.Host)
		if strings.HasSuffix(r.URL.Path, "/access_tokens") {
			return answer(201, tokenAnswer(`{"metadata":"read","actions":"write"}`, `[{"id":2,"name":"r","owner":{"login":"o"}}]`)), nil
		}
		resp := answer(307, `{"message":"Moved Permanently"}`)
		resp.Header.Set("Location", "https://api.github.com/repositories/2")
		return resp, nil
	})
	if d := app.Dispatch(t.Context(), someTarget, nil); d.Outcome != Moved {
		t.Errorf("%+v", d)
	}
	_, _ = app.Run(t.Context(), someTarget, 5)
	_ = app.Cancel(t.Context(), someTarget, 5)
	_, _ = app.Installation(t.Context(), 1)
	_, _ = app.Repositories(t.Context(), 1)
	for _, h := range hosts {
		if h != "https://ghe.example" {
			t.Errorf("a request to %s", h)
		}
	}
	if _, err := app.tr.RoundTrip(mustRequest(t, "https://api.github.com/app")); !errors.Is(err, errForeignHost) {
		t.Errorf("the guard let it pass: %v", err)
	}
}

func mustRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// closing counts bodies that were left open.
type closing struct {
	io.Reader
	closed func()
}

func (c *closing) Close() error { c.closed(); return nil }

func TestTheBodyOfARefusedTokenRequestIsClosed(t *testing.T) {
	t.Parallel()
	closed := 0
	app := testApp(t, func(*http.Request) (*http.Response, error) {
		resp := answer(404, "")
		resp.Body = &closing{bytes.NewReader([]byte(`{"message":"Not Found"}`)), func() { closed++ }}
		return resp, nil
	})
	if d := app.Dispatch(t.Context(), someTarget, nil); d.Outcome != Deleted || closed != 1 {
		t.Errorf("%+v, %d closed", d, closed)
	}
}

func TestADispatchWhoseAcceptanceCannotBeReadIsAccepted(t *testing.T) {
	t.Parallel()
	app := testApp(t, func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/access_tokens") {
			return answer(201, tokenAnswer(`{"metadata":"read","actions":"write"}`, `[{"id":2}]`)), nil
		}
		return answer(200, `{"workflow_run_id": 12`), nil
	})
	if d := app.Dispatch(t.Context(), someTarget, nil); d.Outcome != Accepted || d.RunID != 0 {
		t.Errorf("%+v", d)
	}
}

func TestATimeoutBeforeTheTokenCameIsNotUnclear(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	app := testApp(t, func(r *http.Request) (*http.Response, error) {
		cancel()
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	if d := app.Dispatch(ctx, someTarget, nil); d.Outcome != Unreachable {
		t.Errorf("%+v", d)
	}
}

func TestATargetThatIsNoTargetIsRefusedHere(t *testing.T) {
	t.Parallel()
	app := testApp(t, func(r *http.Request) (*http.Response, error) {
		t.Errorf("a request to %s", r.URL)
		return nil, io.EOF
	})
	for name, edit := range map[string]func(*Target){
		"an owner with a slash": func(t *Target) { t.Owner = "o/../x" },
		"a name of dots":        func(t *Target) { t.Name = ".." },
		"a file in a folder":    func(t *Target) { t.WorkflowFile = "../../secrets.yml" },
		"a query in the file":   func(t *Target) { t.WorkflowFile = "errand.yml?x=1" },
		"no installation":       func(t *Target) { t.InstallationID = 0 },
		"no repository":         func(t *Target) { t.RepositoryID = 0 },
		"no ref":                func(t *Target) { t.Ref = "" },
	} {
		target := someTarget
		edit(&target)
		if d := app.Dispatch(t.Context(), target, nil); d.Outcome.OK() || d.Outcome.Retry() {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if _, err := app.FindRuns(t.Context(), someTarget, "", time.Now()); err == nil {
		t.Error("an empty marker was searched")
	}
}

func TestTheCacheOfClientsIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	app, err := New(Config{AppID: 1, PrivateKey: keyPEM(), Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(maxScoped) {
		if _, err := app.forScope(t.Context(), scope{1, i}); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(2 * time.Hour)
	if _, err := app.forScope(t.Context(), scope{1, maxScoped}); err != nil || len(app.clients) != 1 {
		t.Errorf("%d kept, %v", len(app.clients), err)
	}
}
