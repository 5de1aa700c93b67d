// Package github is Errand's client of GitHub, as an App that holds two permissions: Metadata: read and Actions: write.
// It starts a workflow, finds and reads its run, cancels it, and asks what an installation was granted. It has no
// call for contents, logs, artifacts or pull requests, and every token it asks for is narrowed to one repository.
//
// It imports the root of the module, go-github and ghinstallation, and nothing else of ours. Start reading at
// App.Dispatch (one POST and its typed answer) and Classify (what an answer of GitHub means).
package github

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errand-dev/errand"
)

// DefaultBaseURL is the API of github.com.
const DefaultBaseURL = "https://api.github.com"

// minKeyBits is the least size of the App's RSA key. GitHub makes keys of 2048 bits.
const minKeyBits = 2048

// callTimeout bounds one call with its token request, so that a silent GitHub never holds a worker.
const callTimeout = 15 * time.Second

// Config says which App this is and where its GitHub lives.
type Config struct {
	AppID      int64
	PrivateKey []byte            // PEM, PKCS #1 or PKCS #8, RSA of at least 2048 bits
	BaseURL    string            // API root; "" = DefaultBaseURL; GitHub Enterprise Server: https://HOST/api/v3
	Transport  http.RoundTripper // below authentication; nil = a clone of http.DefaultTransport
	Clock      errand.Clock      // nil = time.Now
	Logger     *slog.Logger      // nil = discard
	// Later finds the App where neither AppID nor PrivateKey is set: one that is made while the program runs. An id of 0 means
	// that there is none yet; every call is then refused with the outcome NotConfigured.
	Later func(context.Context) (id int64, privateKey []byte, err error)
}

// App speaks to GitHub as one GitHub App. It is safe for concurrent use and starts no goroutine.
type App struct {
	app   atomic.Pointer[identity] // nil until it is known
	later func(context.Context) (int64, []byte, error)
	base  *url.URL // ends in "/"
	clock errand.Clock
	log   *slog.Logger
	tr    http.RoundTripper

	// offset is GitHub's clock minus ours in nanoseconds, learned from the Date header of its answers.
	offset atomic.Int64
	bot    atomic.Int64 // the id of the App's bot; 0 = not asked yet

	mu      sync.Mutex
	clients map[scope]*scoped
}

// identity is which App this is. It never changes once it is known.
type identity struct {
	id  int64
	key *rsa.PrivateKey
}

// CheckConfig tells all that New would refuse, and not only the first of it.
func CheckConfig(cfg Config) error {
	var errs []error
	if cfg.AppID <= 0 {
		errs = append(errs, errand.Invalid("github.app_id", "the GitHub App's id is missing: set it to the number on the App's settings page"))
	}
	_, keyErr := parseKey(cfg.PrivateKey)
	_, urlErr := parseBaseURL(cfg.BaseURL)
	return errors.Join(append(errs, keyErr, urlErr)...)
}

// New makes the client, or says in a sentence which setting is missing or too weak.
func New(cfg Config) (*App, error) {
	base, err := parseBaseURL(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	a := &App{later: cfg.Later, base: base, clock: cfg.Clock, log: cfg.Logger, clients: map[scope]*scoped{}}
	if cfg.Later == nil || cfg.AppID != 0 || len(cfg.PrivateKey) > 0 {
		app, err := newIdentity(cfg.AppID, cfg.PrivateKey)
		if err != nil {
			return nil, err
		}
		a.app.Store(app)
	}
	if a.clock == nil {
		a.clock = time.Now
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	tr := cfg.Transport
	if tr == nil {
		tr = http.DefaultTransport.(*http.Transport).Clone()
	}
	a.tr = &guard{next: tr, base: base, seen: a.sawDate}
	return a, nil
}

func newIdentity(id int64, privateKey []byte) (*identity, error) {
	if id <= 0 {
		return nil, errand.Invalid("github.app_id", "the GitHub App's id is missing: set it to the number on the App's settings page")
	}
	key, err := parseKey(privateKey)
	if err != nil {
		return nil, err
	}
	return &identity{id, key}, nil
}

// identify gives which App this is, asked for until it is known. There being none is an *Error with the outcome
// NotConfigured.
func (a *App) identify(ctx context.Context) (*identity, error) {
	if app := a.app.Load(); app != nil {
		return app, nil
	}
	id, key, err := a.later(ctx)
	switch {
	case err != nil:
		return nil, &Error{Call: CallToken, Cause: err, Finding: Finding{Outcome: Unreachable, RetryAfter: pauseServer, Message: "which GitHub App this is could not be looked up"}}
	case id == 0:
		return nil, &Error{Call: CallToken, Finding: Finding{Outcome: NotConfigured, RetryAfter: pauseLimit, Message: "no GitHub App is set up yet"}}
	}
	app, err := newIdentity(id, key)
	if err != nil {
		return nil, &Error{Call: CallToken, Cause: err, Finding: Finding{Outcome: BadCredentials, RetryAfter: pauseLimit, Message: "the stored key of the GitHub App cannot be read"}}
	}
	a.app.CompareAndSwap(nil, app)
	return a.app.Load(), nil
}

// ServerTime is the time by GitHub's own clock, as far as its answers have told it: our clock until the first answer. A
// search for a run is anchored to it, because GitHub compares it with its own times.
func (a *App) ServerTime() time.Time { return a.clock().Add(time.Duration(a.offset.Load())) }

// sawDate learns the distance between the clocks. Date has whole seconds, so less than two is no distance.
func (a *App) sawDate(h http.Header) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	d := date.Sub(a.clock())
	if d.Abs() < 2*time.Second {
		d = 0
	}
	a.offset.Store(int64(d))
}

func parseKey(text []byte) (*rsa.PrivateKey, error) {
	const field = "github.private_key"
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, errand.Invalid(field, "the GitHub App's private key is missing: set it to the PEM file that the App's settings page gave")
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errand.Invalid(field, "the GitHub App's private key is not PEM: set the whole file, from -----BEGIN to -----END, with its line breaks")
	}
	var key any
	var err error
	if key, err = x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
		if key, err = x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
			return nil, errand.Invalid(field, "the GitHub App's private key cannot be read (PEM block %q): generate a new one on the App's settings page", block.Type)
		}
	}
	k, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, errand.Invalid(field, "the GitHub App's private key is not RSA: GitHub signs in Apps with RS256 only; generate a new one on the App's settings page")
	}
	if n := k.N.BitLen(); n < minKeyBits {
		return nil, errand.Invalid(field, "the GitHub App's private key has %d bits, fewer than %d: generate a new one on the App's settings page", n, minKeyBits)
	}
	return k, nil
}

func parseBaseURL(s string) (*url.URL, error) {
	const field = "github.api_url"
	if s == "" {
		s = DefaultBaseURL
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errand.Invalid(field, "GitHub's API address is not a plain URL: set https://api.github.com, or https://HOST/api/v3 for an Enterprise Server")
	}
	switch {
	case u.Scheme == "https":
	case u.Scheme == "http" && loopback(u.Hostname()):
	default:
		return nil, errand.Invalid(field, "GitHub's API address must begin with https:// (http:// only for this machine), not %q", u.Scheme)
	}
	u.Path = strings.TrimRight(u.Path, "/") + "/"
	if u.Path == "/" && !strings.HasPrefix(u.Hostname(), "api.") {
		return nil, errand.Invalid(field, "GitHub's API address has no path: for an Enterprise Server set %s://%s/api/v3", u.Scheme, u.Host)
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// guard stands below every client: it keeps requests, and so tokens, on the configured host, and reads the Date header.
type guard struct {
	next http.RoundTripper
	base *url.URL
	seen func(http.Header)
}

var errForeignHost = errors.New("refusing to send a request to a host other than the configured GitHub")

// RoundTrip passes a request of the configured host on.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != g.base.Scheme || req.URL.Host != g.base.Host {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("%w (%s)", errForeignHost, req.URL.Host)
	}
	resp, err := g.next.RoundTrip(req)
	if err == nil {
		g.seen(resp.Header)
	}
	return resp, err
}
