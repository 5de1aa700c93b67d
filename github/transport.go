package github

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bradleyfalzon/ghinstallation/v2"
	jwt "github.com/golang-jwt/jwt/v4"
	tokens "github.com/google/go-github/v88/github"
	gogithub "github.com/google/go-github/v93/github"
)

// scope is what one token is good for: one repository of one installation, or, with repository 0, the listing of an
// installation's repositories by Metadata: read alone.
type scope struct{ installation, repository int64 }

// scoped is a client with a token of its own. ghinstallation holds the token; made bounds how long the pair is kept.
type scoped struct {
	client *gogithub.Client
	made   time.Time
	mint   func(context.Context) (string, error) // the token, asked for when there is none yet
	// repository is what the newest token's answer said about the one repository; nil before the first token.
	repository *atomic.Pointer[Repo]
}

// maxScoped bounds the cache of clients; those older than a token's hour are dropped when it is passed.
const maxScoped = 512

// wanted is what a token of the scope may carry, exactly.
func (s scope) wanted() map[string]string {
	if s.repository == 0 {
		return map[string]string{"metadata": "read"}
	}
	return Permissions()
}

// forScope gives the client of a scope. Each has its own AppsTransport: ghinstallation writes to it on every refresh, so
// that sharing one between installations is a data race.
func (a *App) forScope(ctx context.Context, s scope) (*scoped, error) {
	app, err := a.identify(ctx)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.clients[s]; ok {
		return c, nil
	}
	c, err := a.newScoped(app, s)
	if err != nil {
		return nil, err
	}
	if len(a.clients) >= maxScoped {
		for k, old := range a.clients {
			if c.made.Sub(old.made) > time.Hour {
				delete(a.clients, k)
			}
		}
	}
	a.clients[s] = c
	return c, nil
}

// forget drops the scope's token, so that the next call asks for a new one.
func (a *App) forget(s scope) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.clients, s)
}

func (a *App) newScoped(app *identity, s scope) (*scoped, error) {
	c := &scoped{made: a.clock(), repository: &atomic.Pointer[Repo]{}}
	below := &minter{next: a.tr, scope: s, repository: c.repository}
	apps, err := ghinstallation.NewAppsTransportWithOptions(below, app.id, ghinstallation.WithSigner(&signer{app, a.ServerTime}))
	if err != nil {
		return nil, err
	}
	apps.BaseURL = strings.TrimRight(a.base.String(), "/")
	tr := ghinstallation.NewFromAppsTransport(apps, s.installation) // takes over BaseURL: without it tokens would be asked of api.github.com
	tr.InstallationTokenOptions = &tokens.InstallationTokenOptions{Permissions: &tokens.InstallationPermissions{Metadata: new("read")}}
	if s.repository != 0 {
		tr.InstallationTokenOptions.RepositoryIDs = []int64{s.repository}
		tr.InstallationTokenOptions.Permissions.Actions = new("write")
	}
	c.mint = tr.Token
	c.client, err = a.newClient(tr)
	return c, err
}

// asApp gives a client that signs in as the App itself, for calls about installations.
func (a *App) asApp(ctx context.Context) (*gogithub.Client, error) {
	app, err := a.identify(ctx)
	if err != nil {
		return nil, err
	}
	apps, err := ghinstallation.NewAppsTransportWithOptions(a.tr, app.id, ghinstallation.WithSigner(&signer{app, a.ServerTime}))
	if err != nil {
		return nil, err
	}
	return a.newClient(apps)
}

// newClient follows no redirect: of a POST it would make a GET, and a renamed repository must be asked for by its id. The
// client's own memory of rate limits is off: Classify reads GitHub's words, and the caller waits.
func (a *App) newClient(tr http.RoundTripper) (*gogithub.Client, error) {
	base := a.base.String()
	return gogithub.NewClient(
		gogithub.WithHTTPClient(&http.Client{
			Transport:     tr,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		gogithub.WithURLs(&base, &base),
		gogithub.WithUserAgent("errand"),
		gogithub.WithDisableRateLimitCheck(),
	)
}

// signer signs the App's JWT by GitHub's clock as far as it is known, a minute back and four ahead: valid at a skew of a
// minute either way, and far from the ten minutes that GitHub allows at most.
type signer struct {
	app *identity
	now func() time.Time
}

// Sign replaces the times that ghinstallation took from the local clock.
func (s *signer) Sign(jwt.Claims) (string, error) {
	return signAppJWT(s.app.key, s.app.id, s.now())
}

func signAppJWT(key *rsa.PrivateKey, app int64, now time.Time) (string, error) {
	return jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iat": now.Add(-time.Minute).Unix(),
		"exp": now.Add(4 * time.Minute).Unix(),
		"iss": strconv.FormatInt(app, 10),
	}).SignedString(key)
}

// minter stands between ghinstallation and the network. It checks what a new token carries, turns a refused token request
// into an error that still holds GitHub's answer (ghinstallation leaves that body open), and notes whether the call
// itself left this machine.
type minter struct {
	next       http.RoundTripper
	scope      scope
	repository *atomic.Pointer[Repo]
}

// mintError is a failed token request. The call it was for was never sent.
type mintError struct {
	answer Answer
	over   string // what the token carried beyond what was asked for
}

func (e *mintError) Error() string {
	switch {
	case e.over != "":
		return "the installation token carries more than was asked for (" + e.over + ") and is not used"
	case e.answer.Err != nil:
		return "token request: " + e.answer.Err.Error()
	default:
		return "token request: GitHub answered " + strconv.Itoa(e.answer.Status)
	}
}

func (e *mintError) Unwrap() error { return e.answer.Err }

// RoundTrip passes the request on and looks at what comes back.
func (m *minter) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, "/access_tokens") {
		return m.call(req)
	}
	resp, err := m.next.RoundTrip(req)
	if err != nil {
		return nil, &mintError{answer: Answer{Call: CallToken, Err: err}}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenAnswer))
	_ = resp.Body.Close()
	answer := Answer{Call: CallToken, Status: resp.StatusCode, Header: resp.Header, Body: body}
	switch {
	case err != nil:
		return nil, &mintError{answer: Answer{Call: CallToken, Err: err}}
	case resp.StatusCode/100 != 2:
		return nil, &mintError{answer: answer}
	}
	if err := m.check(answer); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// maxTokenAnswer is generous: the answer names one repository with some eighty fields.
const maxTokenAnswer = 4 << 20

// check refuses a token that carries a permission or a repository that was not asked for. ghinstallation's own view of the
// answer knows only the permissions that were known when it was written, so the raw names are compared.
func (m *minter) check(answer Answer) error {
	var got struct {
		Token        string            `json:"token"`
		Permissions  map[string]string `json:"permissions"`
		Repositories []apiRepo         `json:"repositories"`
	}
	if err := json.Unmarshal(answer.Body, &got); err != nil || got.Token == "" {
		return &mintError{answer: Answer{Call: CallToken, Err: errors.New("the answer to a token request is not a token")}}
	}
	if _, extra, _ := compare(got.Permissions, m.scope.wanted()); len(extra) > 0 {
		return &mintError{answer: answer, over: strings.Join(extra, ", ")}
	}
	if m.scope.repository == 0 {
		return nil
	}
	for _, r := range got.Repositories {
		if r.ID != m.scope.repository {
			return &mintError{answer: answer, over: fmt.Sprintf("repository %d", r.ID)}
		}
		repo := r.repo()
		m.repository.Store(&repo)
	}
	return nil
}

type sentKey struct{}

// watchSent lets a caller learn whether its call left this machine.
func watchSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return context.WithValue(ctx, sentKey{}, sent), sent
}

// call marks the request as sent, and takes the mark back only where it is certain that no byte of it left.
func (m *minter) call(req *http.Request) (*http.Response, error) {
	sent, ok := req.Context().Value(sentKey{}).(*atomic.Bool)
	if !ok {
		return m.next.RoundTrip(req)
	}
	var waited, wrote atomic.Bool
	trace := &httptrace.ClientTrace{
		GetConn:      func(string) { waited.Store(true) },
		WroteHeaders: func() { wrote.Store(true) },
	}
	sent.Store(true)
	resp, err := m.next.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil && !wrote.Load() && (waited.Load() || neverConnected(err)) {
		sent.Store(false)
	}
	return resp, err
}

func neverConnected(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.Is(err, errForeignHost) || errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}
