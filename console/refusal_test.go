package console_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
)

func refusalCookie(a answer) string {
	for _, c := range a.Cookies() {
		if c.Name == "errand-refusal" && c.MaxAge > 0 {
			return c.Value
		}
	}
	return ""
}

// A form that is refused leads back to its page, which says why, once.
func TestARefusedActionSaysWhyOnItsOwnPage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Member)
	run, issue := "/runs/"+string(w.a.open), "/issues/"+string(w.a.crash)
	for _, c := range []struct {
		name, post, page string
		err              error
		want             []string
	}{
		{"cancel", run + "/cancel", run, errand.Conflict("the run has ended already"), []string{"The run was not cancelled.", "The run has ended already."}},
		{
			"run now", issue + "/run", issue,
			&errand.Error{Code: errand.CodeConflict, Message: "the day's <b>25 runs</b> are used up", Hint: "raise the daily cap"},
			[]string{"No run was started.", "The day&#39;s &lt;b&gt;25 runs&lt;/b&gt; are used up.", "Raise the daily cap."},
		},
		{"a very long reason", issue + "/run", issue, errand.Conflict("%s", strings.Repeat("é", 9000)), []string{"No run was started.", "éé"}},
	} {
		w.actions.err = c.err
		a := b.post(c.post, nil)
		wantStatus(t, c.name, a, http.StatusSeeOther)
		if got := a.Header.Get("Location"); got != c.page {
			t.Errorf("%s leads to %q, want %q", c.name, got, c.page)
		}
		if n := len(refusalCookie(a)); n == 0 || n > 3900 {
			t.Errorf("%s: a cookie of %d bytes", c.name, n)
		}
		if strings.Contains(b.get("/runs").body, c.want[0]) {
			t.Errorf("%s: another page says %q", c.name, c.want[0])
		}
		first := b.get(c.page)
		wantAll(t, c.name, first.body, append(c.want, `role="alert"`)...)
		if strings.Contains(b.get(c.page).body, c.want[0]) {
			t.Errorf("%s: the page says it a second time", c.name)
		}
	}
}

func TestWhatAPersonCannotMendStaysAnError(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Member)
	cancel := "/runs/" + string(w.a.open) + "/cancel"
	w.actions.err = errand.Errorf(errand.CodeInternal, nil, "a fault")
	wantStatus(t, "a fault of ours", b.post(cancel, nil), http.StatusInternalServerError)
	w.actions.err = errand.Conflict("ended")
	wantStatus(t, "a client that wants no page", b.do("POST", cancel, nil, http.Header{"Accept": {"application/json"}}), http.StatusConflict)
}

// Whoever can set a cookie, or reads one of another session, puts no words into the console's mouth.
func TestOnlyTheSessionsOwnRefusalIsShown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	mine, other := w.as(w.a.org, access.Member), w.as(w.a.org, access.Member)
	page := "/runs/" + string(w.a.open)
	w.actions.err = errand.Conflict("genuine reason")
	genuine := refusalCookie(other.post(page+"/cancel", nil))
	raw, err := base64.RawURLEncoding.DecodeString(genuine)
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.Replace(string(raw), "genuine", "planted", 1)
	unsigned := strings.Repeat("\x00", 32) + string(raw[32:])
	for name, value := range map[string]string{
		"of another session": genuine, "changed": base64.RawURLEncoding.EncodeToString([]byte(forged)), "unsigned": base64.RawURLEncoding.EncodeToString([]byte(unsigned)),
		"short": "AAAA", "no base64": "%%%",
	} {
		a := mine.do("GET", page, nil, http.Header{"Cookie": {"errand=" + mine.session() + "; errand-refusal=" + value}})
		wantStatus(t, name, a, http.StatusOK)
		if strings.Contains(a.body, `role="alert"`) {
			t.Errorf("a refusal %s is shown", name)
		}
	}
	wantAll(t, "one's own", other.get(page).body, "Genuine reason.")
}

func TestAnErrorPageKeepsTheNavigationOfWhoIsSignedIn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	viewer, stranger := w.as(w.a.org, access.Viewer), w.browser()
	w.actions.err = errand.Errorf(errand.CodeInternal, nil, "a fault")
	nav := []string{`<nav aria-label="Main">`, `href="/issues"`, "Acme Storefront", "Sign out"}
	for name, c := range map[string]struct {
		a      answer
		status int
	}{
		"a page that is not there":  {viewer.get("/no-such-page"), http.StatusNotFound},
		"a run that is not there":   {viewer.get("/runs/none"), http.StatusNotFound},
		"a method that is not":      {viewer.get("/sign-out"), http.StatusMethodNotAllowed},
		"what the role forbids":     {viewer.post("/runs/"+string(w.a.open)+"/cancel", nil), http.StatusForbidden},
		"a fault":                   {w.as(w.a.org, access.Owner).post("/runs/"+string(w.a.open)+"/cancel", nil), http.StatusInternalServerError},
		"a place that is not in it": {viewer.get("/issues?after=nonsense"), http.StatusUnprocessableEntity},
	} {
		wantStatus(t, name, c.a, c.status)
		wantAll(t, name, c.a.body, nav...)
	}
	a := stranger.get("/no-such-page")
	wantStatus(t, "a stranger", a, http.StatusNotFound)
	if strings.Contains(a.body, "Acme") || strings.Contains(a.body, `aria-label="Main"`) {
		t.Error("a stranger sees the navigation")
	}
}
