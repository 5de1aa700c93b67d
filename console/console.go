// Package console is the web console for people: sign-in, issues with the answer to "why did nothing happen?", and runs
// with their history, tokens and cost. Pages are rendered on the server with templ, need no JavaScript, and only
// translate: what a person may do is decided in access, and what is done is done by the features behind Actions.
//
// It imports the root, store, access and journal. Start reading at Console.routes, the table of everything it answers: each row
// names the action that a role must allow. Pages read through store/queries/console.sql and write nothing.
package console

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/store"
)

// Actions is what a person can set off. The features that own the rows decide; both return NotFound for an id that is
// not the organisation's, and Conflict when the state of things does not allow it.
type Actions interface {
	Cancel(ctx context.Context, org, run, person errand.ID) error
	RunNow(ctx context.Context, org, issue, person errand.ID) error
}

// Config says what the console needs.
type Config struct {
	Store   *store.Store
	Access  *access.Access
	Actions Actions
	Clock   errand.Clock // nil = time.Now
	Logger  *slog.Logger // nil = silent
	Version string       // shown in the footer
	SetUp   SetUp        // nil = no set-up pages
}

// Console serves the pages.
type Console struct {
	store   *store.Store
	access  *access.Access
	actions Actions
	clock   errand.Clock
	log     *slog.Logger
	version string
	assets  assets
	origin  *http.CrossOriginProtection
	setUp   SetUp
}

// New prepares the assets; it fails only when the program was built without them.
func New(cfg Config) (*Console, error) {
	a, err := loadAssets()
	if err != nil {
		return nil, err
	}
	c := &Console{
		store: cfg.Store, access: cfg.Access, actions: cfg.Actions, clock: cfg.Clock, log: cfg.Logger, version: cfg.Version,
		assets: a, origin: http.NewCrossOriginProtection(), setUp: cfg.SetUp,
	}
	if c.clock == nil {
		c.clock = time.Now
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// public marks a route that answers without a session.
const public access.Action = ""

type route struct {
	method, path string
	needs        access.Action
	handle       echo.HandlerFunc
}

func (c *Console) routes() []route {
	return []route{
		{http.MethodGet, "/", access.See, c.overview},
		{http.MethodGet, "/issues", access.See, c.issues},
		{http.MethodGet, "/issues/:id", access.See, c.issue},
		{http.MethodPost, "/issues/:id/run", access.RunNow, c.runNow},
		{http.MethodGet, "/runs", access.See, c.runs},
		{http.MethodGet, "/runs/:id", access.See, c.run},
		{http.MethodPost, "/runs/:id/cancel", access.CancelRun, c.cancel},
		{http.MethodGet, "/sources", access.See, c.sources},
		{http.MethodGet, "/sources/:id", access.See, c.source},
		{http.MethodGet, access.SignInPath, public, c.signInPage},
		{http.MethodPost, access.SignInPath, public, c.signIn},
		{http.MethodPost, "/sign-out", access.SignOut, c.signOut},
		{http.MethodGet, assetPrefix + ":file", public, c.asset},
		{http.MethodGet, "/favicon.ico", public, c.favicon},
	}
}

// A client address may try this often to sign in: tokens are 256 random bits, so this only spares the database.
const (
	signInBurst    = 10
	signInInterval = 6 * time.Second
)

// Mount adds the console's routes. Everything a route needs stands before it here: headers, then the cross-origin guard
// (whatever cookies a request carries, and for the sign-in form too), then the session, then the role.
func (c *Console) Mount(e *echo.Echo) {
	throttle := c.access.Throttle(signInBurst, signInInterval)
	for _, r := range append(c.routes(), c.setUpRoutes()...) {
		guards := []echo.MiddlewareFunc{c.headers, c.sameOrigin}
		switch {
		case r.needs != public:
			guards = append(guards, c.access.RequireSession, access.Require(r.needs))
		case r.path == access.SignInPath:
			guards = append(guards, throttle)
		}
		e.Add(r.method, r.path, r.handle, guards...)
	}
}

func (c *Console) headers(next echo.HandlerFunc) echo.HandlerFunc {
	return func(ec echo.Context) error {
		setHeaders(ec.Response().Header())
		return next(ec)
	}
}

// contentPolicy allows one stylesheet and images from here, forms to here, and nothing else: no script at all.
const contentPolicy = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	// Not no-referrer: under that a browser sends "Origin: null" with a form, which the cross-origin guard refuses.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// sameOrigin is the standard library's guard: a state-changing request from another origin is refused, by Sec-Fetch-Site
// or by Origin, whichever the browser sends. Safe methods pass, and change nothing.
func (c *Console) sameOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(ec echo.Context) error {
		if err := c.origin.Check(ec.Request()); err != nil {
			return &errand.Error{Code: errand.CodeForbidden, Message: "this request came from another site", Hint: "open the page here and use its own button", Cause: err}
		}
		return next(ec)
	}
}
