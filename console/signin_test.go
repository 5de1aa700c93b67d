package console_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand/access"
)

func TestOpeningALinkDoesNotSpendItAndTheButtonDoesOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.browser()
	path, token := w.link(w.a.org, access.Owner)
	for range 3 { // a mail scanner, a chat's preview, the person
		wantStatus(t, "open the link", b.get(path), http.StatusOK)
	}
	wantStatus(t, "not signed in by opening it", b.get("/issues"), http.StatusSeeOther)
	a := b.post("/sign-in", b.open(path, token))
	wantStatus(t, "the button", a, http.StatusSeeOther)
	wantStatus(t, "signed in", b.get("/issues"), http.StatusOK)
	second := w.browser()
	a = second.post("/sign-in", second.open(path, token))
	wantStatus(t, "the button again", a, http.StatusUnauthorized)
	wantAll(t, "the refusal", a.body, "used already, or its 15 minutes are over", "errand admin sign-in-link")
	wantStatus(t, "not signed in", second.get("/issues"), http.StatusSeeOther)
}

func TestALinkEndsAfterItsTimeAndSoDoesASession(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.browser()
	path, token := w.link(w.a.org, access.Owner)
	form := b.open(path, token)
	w.pass(access.LinkTTL)
	wantStatus(t, "a link past its time", b.post("/sign-in", form), http.StatusUnauthorized)
	b = w.as(w.a.org, access.Owner)
	w.pass(access.SessionTTL - time.Second)
	wantStatus(t, "a session in its time", b.get("/issues"), http.StatusOK)
	w.pass(time.Second)
	wantStatus(t, "a session past its time", b.get("/issues"), http.StatusSeeOther)
}

func TestASignInBegunElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	path, token := w.link(w.a.org, access.Owner)
	attacker, victim := w.browser(), w.browser()
	form := attacker.open(path, token)
	for name, b := range map[string]*browser{"without a page of its own": victim, "with another nonce": victim} {
		wantStatus(t, name, b.post("/sign-in", form), http.StatusForbidden)
		b.get(path) // now it has a nonce, and not the form's
	}
	wantStatus(t, "the victim is not signed in", victim.get("/issues"), http.StatusSeeOther)
}

func TestASignInRotatesTheSession(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	old := b.session()
	path, token := w.link(w.a.org, access.Owner)
	wantStatus(t, "sign in again", b.post("/sign-in", b.open(path, token)), http.StatusSeeOther)
	if b.session() == old {
		t.Error("the session's cookie did not change")
	}
	if a := w.withCookie(old).get("/issues"); a.StatusCode != http.StatusSeeOther {
		t.Errorf("the session from before the sign-in is still good: %d", a.StatusCode)
	}
}

func TestSignOutEndsTheSessionOnTheServer(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Viewer)
	stolen := b.session()
	wantStatus(t, "sign out", b.post("/sign-out", nil), http.StatusSeeOther)
	wantStatus(t, "signed out", b.get("/issues"), http.StatusSeeOther)
	wantStatus(t, "a copy of the cookie", w.withCookie(stolen).get("/issues"), http.StatusSeeOther)
}

func TestTheSessionCookieIsOutOfReach(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		public, name string
		secure       bool
	}{{"https://errand.example", "__Host-errand", true}, {"http://127.0.0.1:8080", "errand", false}} {
		w := setup(t)
		w.echo = echo.New()
		w.echo.IPExtractor = echo.ExtractIPDirect()
		w.build(c.public)
		w.server.Config.Handler = w.echo
		path, token := w.link(w.a.org, access.Owner)
		b := w.browser()
		page := b.get(path)
		nonce := page.Cookies()[0]
		if !nonce.HttpOnly || nonce.SameSite != http.SameSiteStrictMode || nonce.Secure != c.secure {
			t.Errorf("%s: the nonce's cookie is %s", c.public, nonce)
		}
		form := url.Values{"token": {token}, "nonce": {nonceField.FindStringSubmatch(page.body)[1]}}
		// Over plain HTTP a jar keeps a Secure cookie to itself, so it is sent by hand.
		a := b.do("POST", "/sign-in", form, http.Header{"Cookie": {nonce.Name + "=" + nonce.Value}})
		wantStatus(t, c.public, a, http.StatusSeeOther)
		var got *http.Cookie
		for _, k := range a.Cookies() {
			if k.Name == c.name {
				got = k
			}
		}
		if got == nil {
			t.Fatalf("%s: no cookie %s among %v", c.public, c.name, a.Cookies())
		}
		if !got.HttpOnly || got.SameSite != http.SameSiteLaxMode || got.Secure != c.secure || got.Path != "/" || got.Domain != "" || len(got.Value) != 43 {
			t.Errorf("%s: %s", c.public, got)
		}
	}
}

func TestTheDatabaseHoldsNoSecretOfASignIn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.browser()
	path, token := w.link(w.a.org, access.Owner)
	wantStatus(t, "sign in", b.post("/sign-in", b.open(path, token)), http.StatusSeeOther)
	w.db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		var kept int
		err := c.QueryRow(ctx, `SELECT (SELECT count(*) FROM sign_in_links l WHERE position(convert_to($1, 'UTF8') IN l.digest) > 0 OR length(l.digest) <> 32)
			+ (SELECT count(*) FROM sessions s WHERE position(convert_to($2, 'UTF8') IN s.digest) > 0 OR length(s.digest) <> 32)`, token, b.session()).Scan(&kept)
		if err != nil || kept != 0 {
			t.Errorf("%d rows hold more than a digest (%v)", kept, err)
		}
	})
}

func TestSignInIsThrottled(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.browser()
	refused := 0
	for range 30 {
		if a := b.post("/sign-in", url.Values{"token": {"guess"}}); a.StatusCode == http.StatusTooManyRequests {
			refused++
			if !strings.Contains(a.body, "Too many attempts") || a.Header.Get("Retry-After") == "" {
				t.Fatalf("the refusal says nothing: %s", a.body)
			}
		}
	}
	if refused != 20 {
		t.Errorf("%d of 30 attempts refused, want 20", refused)
	}
	w.pass(7 * time.Second)
	wantStatus(t, "a moment later", b.post("/sign-in", nil), http.StatusForbidden)
}

// session gives the browser's session cookie.
func (b *browser) session() string {
	b.w.t.Helper()
	u, err := url.Parse(b.w.server.URL)
	if err != nil {
		b.w.t.Fatal(err)
	}
	for _, c := range b.c.Jar.Cookies(u) {
		if c.Name == "errand" {
			return c.Value
		}
	}
	b.w.t.Fatal("no session cookie")
	return ""
}

// withCookie gives another browser with that session cookie.
func (w *world) withCookie(value string) *browser {
	w.t.Helper()
	u, err := url.Parse(w.server.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	b := w.browser()
	b.c.Jar.SetCookies(u, []*http.Cookie{{Name: "errand", Value: value, Path: "/"}})
	return b
}
