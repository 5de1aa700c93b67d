package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
)

func wantStatus(t *testing.T, what string, a answer, status int) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s: %d, want %d", what, a.StatusCode, status)
	}
}

func wantAll(t *testing.T, page, body string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(body, p) {
			t.Errorf("%s does not contain %q", page, p)
		}
	}
}

// path fills a route's id: a run's for the routes of runs, a source's for those of sources, an issue's for the others.
func (x seeded) path(route string) string {
	switch {
	case strings.HasPrefix(route, "/runs"):
		return strings.Replace(route, ":id", string(x.open), 1)
	case strings.HasPrefix(route, "/sources"):
		return strings.Replace(route, ":id", string(x.source), 1)
	}
	return strings.Replace(route, ":id", string(x.crash), 1)
}

func consoleRoutes(e *echo.Echo) []*echo.Route {
	var out []*echo.Route
	for _, r := range e.Routes() {
		if r.Method != echo.RouteNotFound {
			out = append(out, r)
		}
	}
	return out
}

// Each route as somebody signed out, and as the owner of another organisation. A new route is in this walk by itself.
func TestH18_EveryRouteAsAStrangerAndAsAnotherOrganisation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	stranger, other := w.browser(), w.as(w.b.org, access.Owner)
	walked := 0
	for _, r := range consoleRoutes(w.echo) {
		walked++
		if public := strings.HasPrefix(r.Path, "/assets/") || r.Path == "/favicon.ico" || r.Path == "/sign-in"; public {
			continue
		}
		path := w.a.path(r.Path)
		a := stranger.do(r.Method, path, nil, nil)
		if r.Method == http.MethodGet {
			wantStatus(t, "signed out, "+r.Method+" "+r.Path, a, http.StatusSeeOther)
			if got := a.Header.Get("Location"); got != "/sign-in" {
				t.Errorf("%s leads a stranger to %q", r.Path, got)
			}
		} else {
			wantStatus(t, "signed out, "+r.Method+" "+r.Path, a, http.StatusUnauthorized)
		}
		if r.Path == "/sign-out" {
			continue // it takes no id and ends one's own session
		}
		if strings.HasPrefix(r.Path, "/setup/github/") && r.Method == http.MethodGet {
			continue // GitHub leads here; without a state of this session nothing is done (setup_test.go)
		}
		a = other.do(r.Method, path, nil, nil)
		if strings.Contains(r.Path, ":id") {
			wantStatus(t, "another organisation, "+r.Method+" "+r.Path, a, http.StatusNotFound)
			absent := other.do(r.Method, strings.Replace(r.Path, ":id", string(errand.NewID(w.now())), 1), nil, nil)
			if strip(a.body) != strip(absent.body) {
				t.Errorf("%s %s tells an id that is another's from one that is not there", r.Method, r.Path)
			}
			bad := other.do(r.Method, strings.Replace(r.Path, ":id", "1%27--", 1), nil, nil)
			wantStatus(t, "a bad id, "+r.Method+" "+r.Path, bad, http.StatusNotFound)
		} else {
			wantStatus(t, "another organisation, "+r.Method+" "+r.Path, a, http.StatusOK)
			for _, id := range []errand.ID{w.a.crash, w.a.hostile, w.a.open, w.a.failed, w.a.opened} {
				if strings.Contains(a.body, string(id)) {
					t.Errorf("%s shows another organisation's row %s", r.Path, id)
				}
			}
		}
	}
	if walked < 12 {
		t.Errorf("walked %d routes only", walked)
	}
	if done := w.actions.list(); len(done) != 0 {
		t.Errorf("somebody without the right did %v", done)
	}
}

// strip takes out what differs between any two answers: the time in the footer.
func strip(body string) string {
	before, _, _ := strings.Cut(body, "<footer")
	return before
}

func TestWhatEachRoleMaySetOff(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, cancel := "/issues/"+string(w.a.crash)+"/run", "/runs/"+string(w.a.open)+"/cancel"
	for _, c := range []struct {
		role access.Role
		may  bool
	}{{access.Owner, true}, {access.Admin, true}, {access.Member, true}, {access.Viewer, false}} {
		b := w.as(w.a.org, c.role)
		for _, path := range []string{run, cancel} {
			a := b.post(path, nil)
			if want := map[bool]int{true: http.StatusSeeOther, false: http.StatusForbidden}[c.may]; a.StatusCode != want {
				t.Errorf("%s, POST %s: %d, want %d", c.role, path, a.StatusCode, want)
			}
			if page := strings.TrimSuffix(strings.TrimSuffix(path, "/cancel"), "/run"); strings.Contains(b.get(page).body, `action="`+path+`"`) != c.may {
				t.Errorf("%s: the button on %s: shown must be %v", c.role, page, c.may)
			}
		}
	}
	if done := w.actions.list(); len(done) != 6 || done[0] != "run by "+string(w.persons[w.a.org][access.Owner]) {
		t.Errorf("set off: %v", done)
	}
}

// H22: whatever a page of another site can make a browser send, nothing here changes by it.
func TestH22_AGetChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	for _, r := range consoleRoutes(w.echo) {
		a := b.get(w.a.path(r.Path))
		if r.Method == http.MethodPost && r.Path != "/sign-in" {
			if a.StatusCode != http.StatusMethodNotAllowed && a.StatusCode != http.StatusNotFound {
				t.Errorf("GET %s: %d", r.Path, a.StatusCode)
			}
		}
	}
	wantStatus(t, "still signed in", b.get("/issues"), http.StatusOK)
	if done := w.actions.list(); len(done) != 0 {
		t.Errorf("a GET did %v", done)
	}
}

// H23: the guard does not ask which cookie a request carries, and stands before the sign-in form too.
func TestH23_APostFromAnotherSiteIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	link, token := w.link(w.a.org, access.Owner)
	form := b.open(link, token)
	posts := 0
	for _, r := range consoleRoutes(w.echo) {
		if r.Method != http.MethodPost {
			continue
		}
		posts++
		for name, h := range map[string]http.Header{
			"by Sec-Fetch-Site":          {"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}},
			"by Origin, an old browser":  {"Sec-Fetch-Site": nil, "Origin": {"https://evil.example"}},
			"from a neighbouring domain": {"Sec-Fetch-Site": {"same-site"}, "Origin": {"https://other.example"}},
			"from a sandboxed frame":     {"Sec-Fetch-Site": nil, "Origin": {"null"}},
		} {
			wantStatus(t, "POST "+r.Path+" "+name, b.do("POST", w.a.path(r.Path), form, h), http.StatusForbidden)
		}
	}
	if posts < 4 {
		t.Errorf("tried %d routes only", posts)
	}
	wantStatus(t, "still signed in", b.get("/issues"), http.StatusOK)
	wantStatus(t, "the link is not spent", b.post("/sign-in", form), http.StatusSeeOther)
	if done := w.actions.list(); len(done) != 0 {
		t.Errorf("another site did %v", done)
	}
}

func TestEveryAnswerCarriesTheContentPolicy(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	paths := []string{"/no-such-page", "/issues/none", "/assets/none.css", "/issues?after=nonsense"}
	for _, r := range consoleRoutes(w.echo) {
		if r.Method == http.MethodGet {
			paths = append(paths, w.a.path(r.Path))
		}
	}
	for _, path := range paths {
		a := b.get(path)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "same-origin",
		} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		for _, never := range []string{"<script", " style=", "<style", "javascript:", " onclick"} {
			if strings.Contains(a.body, never) {
				t.Errorf("%s contains %q", path, never)
			}
		}
	}
}

func TestHostileTextStaysText(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	for _, path := range []string{"/", "/issues", "/issues/" + string(w.a.hostile), "/runs", "/runs/" + string(w.a.open), "/sign-in?token=%22%3E%3Cscript%3E", "/runs?show=%3Cscript%3E"} {
		a := b.get(path)
		if strings.Contains(a.body, "<script") || strings.Contains(a.body, "<img src=x") {
			t.Errorf("%s lets an outsider write HTML", path)
		}
	}
	page := b.get("/issues/" + string(w.a.hostile)).body
	wantAll(t, "the issue", page, "&lt;script&gt;alert(&#34;title&#34;)", "alert(&#39;remedy&#39;)", "alert(&#34;tag&#34;)")
	if strings.Contains(page, "Open at the tracker") {
		t.Error("a javascript: address became a link")
	}
}

func TestTheListOfIssues(t *testing.T) {
	t.Parallel()
	w := setup(t)
	page := w.as(w.a.org, access.Viewer).get("/issues")
	wantStatus(t, "issues", page, http.StatusOK)
	wantAll(t, "the list", page.body,
		"TaxRateMissing: no tax rate for region &#39;de-AT&#39;", "storefront", "1,284", "3 min ago", "cooldown", "no mapping matches", "below the least level",
		"Failed", "Running", "Rejected", "Acme Storefront", "Person viewer", `aria-current="page">Issues`)
	if strings.Index(page.body, string(w.a.crash)) > strings.Index(page.body, string(w.a.held)) {
		t.Error("the newest issue does not come first")
	}
}

func TestOneIssueAnswersWhyNothingHappened(t *testing.T) {
	t.Parallel()
	w := setup(t)
	page := w.as(w.a.org, access.Owner).get("/issues/" + string(w.a.crash)).body
	wantAll(t, "the issue", page,
		"Why did nothing happen?", "A run of this issue ended 2 h ago; the cooldown is 24 h.", "To change it", "Press Run now", "cooldown 86400 s", "run history",
		"no tax rate for region", "storefront/tax/rates.py", ":44", "All 7 frames, 3 of them outside the application", "django/core/handlers/base.py", "unhandled",
		"storefront@2.14.1", "outsider", "tracker", "origin unknown",
		"exceptions[1].frames[3].vars", "local variables", "user.email",
		"The AI provider&#39;s quota or credit is used up.", "unknown action", `href="https://sentry.example/issues/42"`)
	if first, lib := strings.Index(page, ">CheckoutView.post<"), strings.Index(page, ">_get_response<"); first > lib {
		t.Error("a frame of a library stands before the application's")
	}
	if crash, caller := strings.Index(page, ">rate_for<"), strings.Index(page, ">CheckoutView.post<"); crash > caller {
		t.Error("the crash does not come first")
	}
}

func TestAnUnreadableEventIsSaidToBeUnreadable(t *testing.T) {
	t.Parallel()
	w := setup(t)
	wantAll(t, "the issue", w.as(w.a.org, access.Owner).get("/issues/"+string(w.a.held)).body, "The stored event cannot be read")
}

func TestTheListOfRuns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	page := b.get("/runs").body
	wantAll(t, "the list", page, "acme/storefront", "$0.0995", "35,313", "at least $0.0430, 1 request unpriced", "at least 10,636",
		"unknown (1 request unpriced)", "none reported", "#318", "so far")
	if strings.Contains(page, "$0.0000") {
		t.Error("a cost that nobody reported is shown as zero")
	}
	for show, want := range map[string]errand.ID{"open": w.a.open, "pull-requests": w.a.opened, "trouble": w.a.failed} {
		body := b.get("/runs?show=" + show).body
		if !strings.Contains(body, string(want)) {
			t.Errorf("%s does not list its run", show)
		}
		if other := map[bool]errand.ID{true: w.a.opened, false: w.a.open}[want == w.a.open]; strings.Contains(body, string(other)) {
			t.Errorf("%s lists a run that is not %s", show, show)
		}
	}
	wantStatus(t, "a list that is none", b.get("/runs?show=nothing"), http.StatusNotFound)
}

func TestOneRun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	for _, c := range []struct {
		name string
		run  errand.ID
		want []string
	}{
		{"one that opened a pull request", w.a.opened, []string{
			"Pull request opened", "Publishing", "1 min 15 s", "github accepted", "UNCLAIMED_CHANGE", "changed, but not claimed", "after its correction",
			"Files verified, words not judged", "Sent back once, to be corrected", "storefront/tax/tests/test_rates.py:12", "18,450", "2,897", "$0.0995",
			"$0.043000", "catalogue 2026-11-24", "../../etc/passwd", "refused", `href="https://github.example/acme/storefront/pull/318"`,
			`href="https://github.example/acme/storefront/actions/runs/77"`, "falls back to the language", "claude-sonnet-4-5",
		}},
		{"one that failed", w.a.failed, []string{
			"The AI provider&#39;s quota or credit is used up.", "429 insufficient credit balance", "not reached", "provider quota",
			"at least $0.0430, 1 request unpriced", "unpriced", "unknown model", "at least 8,120",
		}},
		{"one whose tokens never arrived", w.a.unpriced, []string{"unknown (1 request unpriced)", "The agent found nothing that it should change."}},
		{"one under way", w.a.open, []string{"Running", "so far", "not reached yet", "Cancel the run", "Renew every 5 s"}},
		{"one without usage", w.a.rejected, []string{"No model request has been reported.", "No step has been reported.", "none reported"}},
	} {
		a := b.get("/runs/" + string(c.run))
		wantStatus(t, c.name, a, http.StatusOK)
		wantAll(t, c.name, a.body, c.want...)
	}
	if body := b.get("/runs/" + string(w.a.opened)).body; strings.Contains(body, "Cancel the run") {
		t.Error("a run that has ended can be cancelled")
	}
}

func TestAPageRenewsItselfOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	for path, want := range map[string]string{
		"/runs/" + string(w.a.open): "", "/runs/" + string(w.a.open) + "?live=1": "5", "/runs/" + string(w.a.opened) + "?live=1": "",
	} {
		if got := b.get(path).Header.Get("Refresh"); got != want {
			t.Errorf("%s: Refresh %q, want %q", path, got, want)
		}
	}
}

func TestTheOverviewCounts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	wantAll(t, "the overview", b.get("/").body, "at least $0.0860", "last 24 hours; 2 requests unpriced", "Under way", "Worth a look", string(w.a.failed), string(w.a.open))
	w.pass(72 * time.Hour)
	fresh := w.as(w.a.org, access.Owner)
	wantAll(t, "three days later", fresh.get("/").body, "$0.0000")
}

func TestAnErrorIsAPageForABrowserAndAProblemForOthers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.as(w.a.org, access.Owner)
	a := b.get("/runs/none")
	wantStatus(t, "an unknown run", a, http.StatusNotFound)
	wantAll(t, "the page", a.body, "<h1>Not Found</h1>", "Run not found.", "Back to the overview")
	if a := b.do("GET", "/runs/none", nil, http.Header{"Accept": {"application/json"}}); a.body != "problem" {
		t.Errorf("a program got %q", a.body)
	}
	wantAll(t, "no such route", w.browser().get("/nowhere").body, "<h1>Not Found</h1>", "/sign-in")
}

func TestAssetsAreKeptForEver(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.browser()
	page := b.get("/sign-in").body
	_, rest, _ := strings.Cut(page, `<link rel="stylesheet" href="`)
	href, _, _ := strings.Cut(rest, `"`)
	a := b.get(href)
	wantStatus(t, href, a, http.StatusOK)
	if got := a.Header.Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
		t.Errorf("the stylesheet's Cache-Control: %q", got)
	}
	if got := a.Header.Get("Content-Type"); got != "text/css; charset=utf-8" {
		t.Errorf("the stylesheet's type: %q", got)
	}
	wantAll(t, "the stylesheet", a.body, "prefers-color-scheme: dark")
	if got := b.get("/sign-in").Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("a page's Cache-Control: %q", got)
	}
}

// A list longer than a page is walked by its links: each row once, in order.
func TestTheListsGoOn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const more = 120
	x := w.b
	w.seedMany(x, more)
	b := w.as(w.b.org, access.Owner)
	for _, list := range []string{"/issues", "/runs"} {
		seen := map[string]bool{}
		for path, pages := list, 0; path != ""; pages++ {
			if pages > 5 {
				t.Fatalf("%s does not end", list)
			}
			body := b.get(path).body
			for _, part := range strings.Split(body, `class="title" href="`+list+`/`)[1:] {
				id := part[:36]
				if seen[id] {
					t.Errorf("%s shows %s twice", list, id)
				}
				seen[id] = true
			}
			path = ""
			if before, _, ok := strings.Cut(body, `" rel="next"`); ok {
				href := before[strings.LastIndex(before, `"`)+1:]
				u, err := url.Parse(strings.ReplaceAll(href, "&amp;", "&"))
				if err != nil {
					t.Fatal(err)
				}
				path = u.String()
			}
		}
		if want := map[string]int{"/issues": more + 3, "/runs": more + 5}[list]; len(seen) != want {
			t.Errorf("%s: %d rows in all, want %d", list, len(seen), want)
		}
	}
	wantStatus(t, "a cursor of somebody's making", b.get("/runs?after=1.2"), http.StatusUnprocessableEntity)
}
