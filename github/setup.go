package github

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/errand-dev/errand"
)

// SetUp speaks to GitHub where there is no App yet, and for a person who proves access to an installation. It keeps
// requests on GitHub's two hosts: the API's and the one for people.
type SetUp struct {
	api, web *url.URL // api ends in "/"
	tr       http.RoundTripper
	clock    errand.Clock
}

// NewSetUp takes what New takes, without App and key.
func NewSetUp(cfg Config) (*SetUp, error) {
	api, err := parseBaseURL(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	s := &SetUp{api: api, web: webURL(api), tr: cfg.Transport, clock: cfg.Clock}
	if s.tr == nil {
		s.tr = http.DefaultTransport.(*http.Transport).Clone()
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	return s, nil
}

// webURL is where people meet the GitHub of that API: api.github.com is github.com's, api.NAME.ghe.com is NAME.ghe.com's, and
// an Enterprise Server has one host for both.
func webURL(api *url.URL) *url.URL {
	web := &url.URL{Scheme: api.Scheme, Host: api.Host}
	if api.Path == "/" {
		web.Host = strings.TrimPrefix(api.Host, "api.")
	}
	return web
}

// WebURL is GitHub's address for people, without a path.
func (s *SetUp) WebURL() string { return s.web.String() }

// ManifestURL is where the form with the manifest goes; account is the organisation that shall own the App, "" = the person.
func (s *SetUp) ManifestURL(account, state string) string {
	u := s.web.JoinPath("settings", "apps", "new")
	if account != "" {
		u = s.web.JoinPath("organizations", account, "settings", "apps", "new")
	}
	u.RawQuery = url.Values{"state": {state}}.Encode()
	return u.String()
}

// Places are the console's addresses that GitHub sends people and webhooks to.
type Places struct{ Home, Hook, Created, Authorised, Installed string }

// Manifest describes the App that Errand wants: two permissions, two events, and nothing that others may install unless its
// owner says so at GitHub.
func Manifest(name string, at Places) (string, error) {
	hook, err := url.Parse(at.Hook)
	if err != nil {
		return "", errand.Invalid("ERRAND_PUBLIC_URL", "is no address")
	}
	b, err := json.Marshal(map[string]any{
		"name": name, "url": at.Home,
		"hook_attributes": map[string]any{"url": at.Hook, "active": !loopback(hook.Hostname())},
		"redirect_url":    at.Created, "callback_urls": []string{at.Authorised}, "setup_url": at.Installed, "setup_on_update": false,
		"public": false, "request_oauth_on_install": false,
		"default_permissions": Permissions(), "default_events": Events(),
	})
	return string(b), err
}

// Events is what the App subscribes to. Events about installations come to every App.
func Events() []string { return []string{"workflow_run", "workflow_job"} }

// CreatedApp is an App that GitHub made from a manifest, with its secrets.
type CreatedApp struct {
	ID            int64
	Slug, Name    string
	PageURL       string
	ClientID      string
	ClientSecret  string
	WebhookSecret string // "" = GitHub made none: see SetWebhookSecret
	PrivateKey    []byte // PEM
	Permissions   map[string]string
}

// Convert redeems the code that GitHub gave after the person pressed its button. It works once, within an hour.
func (s *SetUp) Convert(ctx context.Context, code string) (CreatedApp, error) {
	if !plainName(code) {
		return CreatedApp{}, errand.Invalid("code", "it is not a code of GitHub's")
	}
	var got struct {
		ID            int64             `json:"id"`
		Slug          string            `json:"slug"`
		Name          string            `json:"name"`
		HTMLURL       string            `json:"html_url"`
		ClientID      string            `json:"client_id"`
		ClientSecret  string            `json:"client_secret"`
		WebhookSecret *string           `json:"webhook_secret"`
		PEM           string            `json:"pem"`
		Permissions   map[string]string `json:"permissions"`
	}
	if err := s.call(ctx, http.MethodPost, s.api.JoinPath("app-manifests", code, "conversions"), nil, "", &got); err != nil {
		return CreatedApp{}, err
	}
	app := CreatedApp{
		ID: got.ID, Slug: got.Slug, Name: clip(got.Name), PageURL: got.HTMLURL, ClientID: got.ClientID, ClientSecret: got.ClientSecret,
		PrivateKey: []byte(got.PEM), Permissions: got.Permissions,
	}
	if got.WebhookSecret != nil {
		app.WebhookSecret = *got.WebhookSecret
	}
	page, err := url.Parse(app.PageURL)
	if app.ID <= 0 || app.ClientID == "" || app.ClientSecret == "" || len(app.PrivateKey) == 0 || err != nil || page.Scheme != s.web.Scheme || page.Host != s.web.Host {
		return CreatedApp{}, errand.Errorf(errand.CodeUnavailable, err, "GitHub's answer is not an App with its key and secrets: make it again")
	}
	return app, nil
}

// InstallURL is where a person installs the App whose page that is.
func InstallURL(page, state string) string {
	return page + "/installations/new?" + url.Values{"state": {state}}.Encode()
}

// AuthorizeURL is where a person lets GitHub say who it is to this App. No scope is asked for.
func (s *SetUp) AuthorizeURL(clientID, redirect, state string) string {
	u := s.web.JoinPath("login", "oauth", "authorize")
	u.RawQuery = url.Values{"client_id": {clientID}, "redirect_uri": {redirect}, "state": {state}}.Encode()
	return u.String()
}

// Reaches redeems the code of an authorisation and asks, as that person, whether the installation is among those that the
// person can reach. The person's token is kept nowhere. An answer that cannot be had is an error, never a no.
func (s *SetUp) Reaches(ctx context.Context, client Client, code string, installation int64) (bool, error) {
	form := url.Values{"client_id": {client.ID}, "client_secret": {client.Secret}, "code": {code}, "redirect_uri": {client.Redirect}}
	var token struct {
		AccessToken string `json:"access_token"`
		Error       string `json:"error"`
	}
	if err := s.call(ctx, http.MethodPost, s.web.JoinPath("login", "oauth", "access_token"), form, "", &token); err != nil {
		return false, err
	}
	if token.AccessToken == "" {
		return false, &errand.Error{
			Code: errand.CodeForbidden, Message: "GitHub does not take this authorisation any more (" + clip(token.Error) + ")",
			Hint: "begin again from the set-up page",
		}
	}
	for page := 1; page <= maxPages; page++ {
		u := s.api.JoinPath("user", "installations")
		u.RawQuery = url.Values{"per_page": {"100"}, "page": {strconv.Itoa(page)}}.Encode()
		var got struct {
			Installations []struct {
				ID int64 `json:"id"`
			} `json:"installations"`
		}
		if err := s.call(ctx, http.MethodGet, u, nil, token.AccessToken, &got); err != nil {
			return false, err
		}
		for _, in := range got.Installations {
			if in.ID == installation {
				return true, nil
			}
		}
		if len(got.Installations) < 100 {
			return false, nil
		}
	}
	return false, errand.Errorf(errand.CodeUnavailable, nil, "GitHub lists more installations than can be looked through")
}

// Client is the App as GitHub's authorisation knows it.
type Client struct{ ID, Secret, Redirect string }

// maxSetUpAnswer is far above what any of these answers has.
const maxSetUpAnswer = 4 << 20

// call makes one request to one of the two hosts and reads JSON.
func (s *SetUp) call(ctx context.Context, method string, u *url.URL, form url.Values, token string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return errand.Errorf(errand.CodeInternal, err, "cannot make a request to GitHub")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "errand")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.tr.RoundTrip(req) // follows no redirect
	if err != nil {
		return &Error{Call: CallSetUp, Cause: err, Finding: Classify(Answer{Call: CallSetUp, Err: errors.New("no answer")}, s.clock())}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxSetUpAnswer))
	if resp.StatusCode/100 != 2 {
		return &Error{Call: CallSetUp, Status: resp.StatusCode, Finding: Classify(Answer{Call: CallSetUp, Status: resp.StatusCode, Header: resp.Header, Body: text}, s.clock())}
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return &Error{Call: CallSetUp, Status: resp.StatusCode, Cause: err, Finding: Finding{Outcome: ServerError, RetryAfter: pauseServer, Message: "GitHub's answer cannot be read"}}
	}
	return nil
}

// As is the same client for another App, such as one that was just made.
func (a *App) As(id int64, privateKey []byte) (*App, error) {
	app, err := newIdentity(id, privateKey)
	if err != nil {
		return nil, err
	}
	other := &App{base: a.base, clock: a.clock, log: a.log, tr: a.tr, clients: map[scope]*scoped{}}
	other.app.Store(app)
	return other, nil
}

// SetWebhookSecret gives the App's webhook a secret, where GitHub made none.
func (a *App) SetWebhookSecret(ctx context.Context, hookURL, secret string) error {
	client, err := a.asApp(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, sent := watchSent(ctx)
	req, err := client.NewRequest(ctx, http.MethodPatch, "app/hook/config", map[string]string{"url": hookURL, "content_type": "json", "secret": secret, "insecure_ssl": "0"})
	if err != nil {
		return errand.Errorf(errand.CodeInternal, err, "cannot make a request to GitHub")
	}
	resp, err := client.BareDo(req)
	if err != nil {
		return a.failed(ctx, Target{}, answerOf(CallInstallation, resp, err, sent.Load()), err)
	}
	return resp.Body.Close()
}
