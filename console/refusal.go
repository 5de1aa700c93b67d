package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
)

// refusal is why what a person asked for was not done. It is shown once, on the page that they asked from.
type refusal struct {
	Page          string // the path that it belongs to
	What          string // "No run was started"
	Message, Hint string // as the error says them
}

const (
	refusalSeconds = 120
	refusalBytes   = 1200 // of each text, so that the cookie stays below what browsers take
)

// refused answers a form whose wish was not granted: back to the page, with the reason. What a person cannot mend there
// (absent, not allowed, a fault of ours) stays an error, and so does everything for a client that wants no page.
//
// The reason travels in a cookie that is signed with the session's own secret: no link and no other site can put words into
// the console's mouth, every replica can read it, and it ends with the session.
func (c *Console) refused(ec echo.Context, page, what string, err error) error {
	var e *errand.Error
	if !errors.As(err, &e) || !strings.Contains(ec.Request().Header.Get("Accept"), "text/html") {
		return err
	}
	switch e.Code {
	case errand.CodeConflict, errand.CodeInvalid, errand.CodeRateLimited:
	default:
		return err
	}
	said, jsonErr := json.Marshal(refusal{Page: page, What: what, Message: clip(e.Message), Hint: clip(e.Hint)})
	if jsonErr != nil {
		return err
	}
	value := base64.RawURLEncoding.EncodeToString(append(c.sign(ec, said), said...))
	ec.SetCookie(c.refusalCookie(value, refusalSeconds))
	return ec.Redirect(http.StatusSeeOther, page)
}

// takeRefusal gives the refusal that waits for this page, once. One that was not signed in this session is none.
func (c *Console) takeRefusal(ec echo.Context) refusal {
	cookie, err := ec.Cookie(c.refusalCookie("", 0).Name)
	if err != nil || cookie.Value == "" {
		return refusal{}
	}
	var r refusal
	b, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(b) < sha256.Size || !hmac.Equal(b[:sha256.Size], c.sign(ec, b[sha256.Size:])) || json.Unmarshal(b[sha256.Size:], &r) != nil {
		ec.SetCookie(c.refusalCookie("", -1))
		return refusal{}
	}
	if r.Page != ec.Request().URL.Path {
		return refusal{} // another page was opened in between
	}
	ec.SetCookie(c.refusalCookie("", -1))
	return r
}

// sign is the mark of a text in the request's session, whose secret only the browser and this server know.
func (c *Console) sign(ec echo.Context, text []byte) []byte {
	mac := hmac.New(sha256.New, []byte(c.access.Cookie(ec)))
	mac.Write([]byte("errand console refusal\x00"))
	mac.Write(text)
	return mac.Sum(nil)
}

func (c *Console) refusalCookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: c.access.HostCookieName("errand-refusal"), Value: value, Path: "/", MaxAge: maxAge,
		Secure: c.access.Secure(), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

// clip keeps whole characters of at most refusalBytes.
func clip(s string) string {
	if len(s) <= refusalBytes {
		return s
	}
	return strings.ToValidUTF8(s[:refusalBytes], "") + "…"
}
