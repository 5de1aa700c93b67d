package access

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
)

// SignInPath is where a browser without a session is sent.
const SignInPath = "/sign-in"

type identityKey struct{}

// From gives the identity that RequireSession put into the context, or the zero Identity, which may nothing.
func From(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}

// RequireSession lets a request with a session through, its Identity in the context (From). Without one a GET is
// redirected to the sign-in page with 303 and everything else is Unauthenticated.
func (a *Access) RequireSession(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := a.Session(c.Request().Context(), a.Cookie(c))
		switch {
		case errand.CodeOf(err) == errand.CodeUnauthenticated && c.Request().Method == http.MethodGet:
			return c.Redirect(http.StatusSeeOther, SignInPath)
		case err != nil:
			return err
		}
		c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), identityKey{}, id)))
		return next(c)
	}
}

// Require lets through those whose role allows the action; it stands behind RequireSession.
func Require(action Action) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if id := From(c.Request().Context()); !id.May(action) {
				return &errand.Error{
					Code: errand.CodeForbidden, Message: "your role (" + string(id.Role) + ") does not allow this",
					Hint: "ask an owner or an admin of your organisation",
				}
			}
			return next(c)
		}
	}
}

// Cookie gives the session cookie's value, or "".
func (a *Access) Cookie(c echo.Context) string {
	cookie, err := c.Cookie(a.CookieName())
	if err != nil {
		return ""
	}
	return cookie.Value
}

// CookieName is "__Host-errand" where the console is reached over https: browsers accept that prefix only for a Secure
// cookie of exactly this host, so a neighbouring subdomain cannot plant one.
func (a *Access) CookieName() string { return a.HostCookieName("errand") }

// HostCookieName gives the name with the __Host- prefix where https allows it.
func (a *Access) HostCookieName(name string) string {
	if a.Secure() {
		return "__Host-" + name
	}
	return name
}

// Address is where a path of this server is found from outside, as ERRAND_PUBLIC_URL says.
func (a *Access) Address(path string) string { return a.public.JoinPath(path).String() }

// Secure tells whether people reach the console over https.
func (a *Access) Secure() bool { return a.public.Scheme == "https" }

// SetCookie gives the session to the browser.
func (a *Access) SetCookie(c echo.Context, s SignedIn) {
	a.writeCookie(c, s.Cookie, s.ExpiresAt, 0)
}

// ClearCookie takes it away again.
func (a *Access) ClearCookie(c echo.Context) { a.writeCookie(c, "", time.Time{}, -1) }

func (a *Access) writeCookie(c echo.Context, value string, expires time.Time, maxAge int) {
	c.SetCookie(&http.Cookie{
		Name: a.CookieName(), Value: value, Path: "/", Expires: expires, MaxAge: maxAge,
		Secure: a.Secure(), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}
