package console

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
)

// nonceTTL is how long a sign-in page can be used.
const nonceTTL = 30 * time.Minute

// signInPage shows a button. Opening the link spends nothing, so a mail scanner or a chat's preview cannot use it up;
// the button does. The nonce binds the button to this browser: another site cannot sign somebody in as somebody else.
func (c *Console) signInPage(ec echo.Context) error {
	nonce := rand.Text()
	ec.SetCookie(c.nonceCookie(nonce, int(nonceTTL.Seconds())))
	return c.render(ec, http.StatusOK, signInView(c.bareFrame("Sign in"), ec.QueryParam("token"), nonce))
}

func (c *Console) nonceCookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: c.access.HostCookieName("errand-sign-in"), Value: value, Path: "/", MaxAge: maxAge,
		Secure: c.access.Secure(), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

func (c *Console) signIn(ec echo.Context) error {
	cookie, err := ec.Cookie(c.nonceCookie("", 0).Name)
	if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(ec.FormValue("nonce"))) != 1 {
		return &errand.Error{Code: errand.CodeForbidden, Message: "this sign-in was not begun in this browser", Hint: "open the sign-in link again, with cookies allowed"}
	}
	s, err := c.access.SignIn(ec.Request().Context(), ec.FormValue("token"), c.access.Cookie(ec))
	if errand.CodeOf(err) == errand.CodeUnauthenticated {
		return &errand.Error{
			Code: errand.CodeUnauthenticated, Message: "this sign-in link was used already, or its 15 minutes are over",
			Hint: "ask for a new one: errand admin sign-in-link", Cause: err,
		}
	}
	if err != nil {
		return err
	}
	ec.SetCookie(c.nonceCookie("", -1))
	c.access.SetCookie(ec, s)
	return ec.Redirect(http.StatusSeeOther, "/")
}

func (c *Console) signOut(ec echo.Context) error {
	if err := c.access.SignOut(ec.Request().Context(), c.access.Cookie(ec)); err != nil {
		return err
	}
	c.access.ClearCookie(ec)
	return ec.Redirect(http.StatusSeeOther, access.SignInPath)
}
