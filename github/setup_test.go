package github

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
)

func TestWherePeopleMeetGitHub(t *testing.T) {
	t.Parallel()
	for api, want := range map[string]string{
		"":                                 "https://github.com",
		"https://api.github.com":           "https://github.com",
		"https://api.octo.ghe.com":         "https://octo.ghe.com",
		"https://ghe.example/api/v3":       "https://ghe.example",
		"https://ghe.example:8443/api/v3/": "https://ghe.example:8443",
	} {
		s, err := NewSetUp(Config{BaseURL: api})
		if err != nil || s.WebURL() != want {
			t.Errorf("%q: %v, want %s", api, err, want)
		}
	}
}

func TestC27_SetUpAsksTheConfiguredHostsOnly(t *testing.T) {
	t.Parallel()
	var asked []string
	s, err := NewSetUp(Config{BaseURL: "https://api.octo.ghe.com", Transport: answers(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.Method+" "+r.URL.Scheme+"://"+r.URL.Host+r.URL.Path)
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "oauth") {
			form, _ := io.ReadAll(r.Body)
			if !strings.Contains(string(form), "client_secret=shh") || r.Header.Get("Authorization") != "" {
				t.Errorf("%s, %v", form, r.Header)
			}
			return answer(200, `{"access_token":"ghu_x"}`), nil
		}
		if r.Header.Get("Authorization") != "Bearer ghu_x" {
			t.Errorf("%v", r.Header)
		}
		return answer(200, `{"total_count":1,"installations":[{"id":5}]}`), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	client := Client{ID: "Iv1", Secret: "shh", Redirect: "https://errand.example/setup/github/authorised"}
	for id, want := range map[int64]bool{5: true, 6: false} {
		if got, err := s.Reaches(t.Context(), client, "code", id); err != nil || got != want {
			t.Errorf("%d: %v, %v", id, got, err)
		}
	}
	if want := []string{"POST https://octo.ghe.com/login/oauth/access_token", "GET https://api.octo.ghe.com/user/installations"}; !slices.Equal(asked[:2], want) {
		t.Errorf("asked %v", asked)
	}
}

func TestAnAuthorisationThatCannotBeCheckedIsNoYes(t *testing.T) {
	t.Parallel()
	for says, tc := range map[string]struct {
		token, list *http.Response
		code        errand.Code
	}{
		"a code that was used":         {answer(200, `{"error":"bad_verification_code"}`), nil, errand.CodeForbidden},
		"an answer without a token":    {answer(200, `{}`), nil, errand.CodeForbidden},
		"a server error":               {answer(502, ``), nil, ""},
		"a token that is not accepted": {answer(200, `{"access_token":"x"}`), answer(401, `{"message":"Bad credentials"}`), ""},
		"an answer that is cut off":    {answer(200, `{"access_token":"x"}`), answer(200, `{"installations":[{"id":5`), ""},
		"a redirect":                   {answer(302, ``), nil, ""},
	} {
		s, err := NewSetUp(Config{BaseURL: "https://ghe.example/api/v3", Transport: answers(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				return tc.token, nil
			}
			return tc.list, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		ok, err := s.Reaches(t.Context(), Client{ID: "i", Secret: "s"}, "c", 5)
		var e *Error
		if ok || err == nil || tc.code != "" && errand.CodeOf(err) != tc.code || tc.code == "" && !errors.As(err, &e) {
			t.Errorf("%s: %v, %v", says, ok, err)
		}
	}
}

func TestTheManifestAsksForTwoPermissions(t *testing.T) {
	t.Parallel()
	text, err := Manifest("Errand", Places{
		Home: "https://errand.example", Hook: "https://errand.example/hooks/github", Created: "https://errand.example/c",
		Authorised: "https://errand.example/a", Installed: "https://errand.example/i",
	})
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		URL  string `json:"url"`
		Hook struct {
			URL    string `json:"url"`
			Active bool   `json:"active"`
		} `json:"hook_attributes"`
		Permissions map[string]string `json:"default_permissions"`
		Events      []string          `json:"default_events"`
		Public      bool              `json:"public"`
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	if v, extra, missing := CheckPermissions(m.Permissions); v != errand.Pass {
		t.Errorf("extra %v, missing %v", extra, missing)
	}
	if m.URL == "" || m.Hook.URL != "https://errand.example/hooks/github" || !m.Hook.Active || m.Public || !slices.Equal(m.Events, []string{"workflow_run", "workflow_job"}) {
		t.Errorf("%s", text)
	}
	if text, _ = Manifest("Errand", Places{Hook: "http://127.0.0.1:8080/hooks/github"}); !strings.Contains(text, `"active":false`) {
		t.Errorf("GitHub cannot reach this machine: %s", text)
	}
}

func TestAnAppThatIsNotWholeIsRefused(t *testing.T) {
	t.Parallel()
	const whole = `{"id":1,"slug":"e","name":"E","html_url":"https://github.com/apps/e","client_id":"i","client_secret":"s","webhook_secret":null,"pem":"k"}`
	for says, tc := range map[string]struct {
		code, body string
		ok         bool
	}{
		"without a webhook secret":     {"c", whole, true},
		"without a key":                {"c", strings.Replace(whole, `"pem":"k"`, `"pem":""`, 1), false},
		"without an id":                {"c", strings.Replace(whole, `"id":1`, `"id":0`, 1), false},
		"with a page on another host":  {"c", strings.Replace(whole, "https://github.com/", "https://github.example/", 1), false},
		"by a code that is a path":     {"../../user", whole, false},
		"by no code":                   {"", whole, false},
		"by a code with a query in it": {"c?x=1", whole, false},
	} {
		s, err := NewSetUp(Config{Transport: answers(func(*http.Request) (*http.Response, error) { return answer(201, tc.body), nil })})
		if err != nil {
			t.Fatal(err)
		}
		app, err := s.Convert(t.Context(), tc.code)
		if (err == nil) != tc.ok || tc.ok && app.WebhookSecret != "" {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestAddressesOfSetUp(t *testing.T) {
	t.Parallel()
	s, err := NewSetUp(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		s.ManifestURL("", "st&1"):                         "https://github.com/settings/apps/new?state=st%261",
		s.ManifestURL("acme", "s"):                        "https://github.com/organizations/acme/settings/apps/new?state=s",
		InstallURL("https://github.com/apps/e", "s"):      "https://github.com/apps/e/installations/new?state=s",
		s.AuthorizeURL("Iv1", "https://e.example/a", "s"): "https://github.com/login/oauth/authorize?client_id=Iv1&redirect_uri=" + url.QueryEscape("https://e.example/a") + "&state=s",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestAnAppThatIsMadeLater(t *testing.T) {
	t.Parallel()
	var id int64
	var failing error
	asked := 0
	app, err := New(Config{BaseURL: "https://ghe.example/api/v3", Transport: answers(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/access_tokens") {
			return answer(201, tokenAnswer(`{"metadata":"read","actions":"write"}`, `[]`)), nil
		}
		return answer(204, ""), nil
	}), Later: func(context.Context) (int64, []byte, error) {
		asked++
		return id, keyPEM(), failing
	}})
	if err != nil {
		t.Fatal(err)
	}
	outcome := func() Outcome { return app.Dispatch(t.Context(), someTarget, nil).Outcome }
	if o := outcome(); o != NotConfigured || !o.Retry() {
		t.Errorf("%s", o)
	}
	var e *Error
	if _, err := app.CheckInstallation(t.Context(), 1); !errors.As(err, &e) || e.Outcome != NotConfigured {
		t.Errorf("%v", err)
	}
	if failing = errors.New("the database is away"); outcome() != Unreachable {
		t.Error("not known is not none")
	}
	if failing, id = nil, 5; outcome() != Accepted {
		t.Error("it is there, and not used")
	}
	before := asked
	if outcome(); asked != before {
		t.Error("it was asked for again")
	}
}
