package console_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/console"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var ctx = context.Background()

// world is a running console on a real database, with two organisations.
type world struct {
	t       *testing.T
	db      *storetest.DB
	access  *access.Access
	echo    *echo.Echo
	server  *httptest.Server
	actions *actions
	setUp   *setUp
	mu      sync.Mutex
	time    time.Time
	a, b    seeded
	persons map[errand.ID]map[access.Role]errand.ID
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.time
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time = w.time.Add(d)
}

// actions stands for the features: like them it finds a row only in the organisation that asks.
type actions struct {
	db   *storetest.DB
	mu   sync.Mutex
	done []string
	err  error
}

func (a *actions) Cancel(ctx context.Context, org, run, person errand.ID) error {
	return a.record("cancel", org, person, func(tx *store.Tx) error { _, err := tx.ConsoleRun(ctx, run); return err })
}

func (a *actions) RunNow(ctx context.Context, org, issue, person errand.ID) error {
	return a.record("run", org, person, func(tx *store.Tx) error { _, err := tx.GetIssue(ctx, issue); return err })
}

func (a *actions) record(what string, org, person errand.ID, find func(*store.Tx) error) error {
	if err := a.db.InTx(ctx, org, find); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = append(a.done, what+" by "+string(person))
	return a.err
}

func (a *actions) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string{}, a.done...)
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: storetest.New(t), time: time.Now().UTC().Truncate(time.Second), persons: map[errand.ID]map[access.Role]errand.ID{}}
	w.actions, w.setUp = &actions{db: w.db}, &setUp{}
	w.echo = echo.New()
	w.echo.IPExtractor = echo.ExtractIPDirect()
	w.server = httptest.NewServer(w.echo)
	t.Cleanup(w.server.Close)
	w.build(w.server.URL)
	for i, org := range []*seeded{&w.a, &w.b} {
		slug, name := []string{"acme", "umbrella"}[i], []string{"Acme Storefront", "Umbrella"}[i]
		id, owner, err := w.access.Bootstrap(ctx, slug, name, "Ada Owner")
		if err != nil {
			t.Fatal(err)
		}
		*org = seed(t, w.db, id, w.time, int64(i+1))
		w.persons[id] = map[access.Role]errand.ID{access.Owner: owner}
		for _, role := range []access.Role{access.Admin, access.Member, access.Viewer} {
			w.persons[id][role] = w.addMember(id, role)
		}
	}
	return w
}

func (w *world) build(public string) {
	w.t.Helper()
	var err error
	if w.access, err = access.New(access.Config{Store: w.db.Store, Clock: w.now, PublicURL: public}); err != nil {
		w.t.Fatal(err)
	}
	c, err := console.New(console.Config{Store: w.db.Store, Access: w.access, Actions: w.actions, Clock: w.now, Version: "test", SetUp: w.setUp})
	if err != nil {
		w.t.Fatal(err)
	}
	w.echo.HTTPErrorHandler = c.ErrorHandler(explain, func(err error, ec echo.Context) { _ = ec.String(explain(err).Status, "problem") })
	c.Mount(w.echo)
}

// explain is a small stand-in for the server's one mapping.
func explain(err error) console.Problem {
	status := map[errand.Code]int{
		errand.CodeInvalid: 422, errand.CodeUnauthenticated: 401, errand.CodeForbidden: 403, errand.CodeNotFound: 404, errand.CodeConflict: 409, errand.CodeRateLimited: 429,
	}[errand.CodeOf(err)]
	var he *echo.HTTPError
	if errors.As(err, &he) {
		status = he.Code
	}
	if status == 0 {
		return console.Problem{Status: 500, Title: http.StatusText(500)}
	}
	p := console.Problem{Status: status, Title: http.StatusText(status)}
	var e *errand.Error
	if errors.As(err, &e) {
		p.Detail, p.Hint = e.Message, e.Hint
	}
	return p
}

func (w *world) addMember(org errand.ID, role access.Role) errand.ID {
	w.t.Helper()
	id := errand.NewID(w.now())
	err := w.db.InTx(ctx, org, func(tx *store.Tx) error {
		if err := tx.CreatePerson(ctx, id, "Person "+string(role), w.now()); err != nil {
			return err
		}
		return tx.AddMember(ctx, id, string(role), w.now())
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// browser keeps cookies, follows no redirect, and sends what a browser sends with a form of the same site.
type browser struct {
	w *world
	c *http.Client
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &browser{w, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

type answer struct {
	*http.Response
	body string
}

func (b *browser) do(method, path string, form url.Values, header http.Header) answer {
	b.w.t.Helper()
	r, err := http.NewRequest(method, b.w.server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.w.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Origin", b.w.server.URL)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	res, err := b.c.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return answer{res, string(body)}
}

func (b *browser) get(path string) answer { b.w.t.Helper(); return b.do("GET", path, nil, nil) }
func (b *browser) post(path string, form url.Values) answer {
	b.w.t.Helper()
	return b.do("POST", path, form, nil)
}

var nonceField = regexp.MustCompile(`name="nonce" value="([^"]+)"`)

// link makes a sign-in link and gives its path and token.
func (w *world) link(org errand.ID, role access.Role) (path, token string) {
	w.t.Helper()
	link, err := w.access.NewSignInLink(ctx, org, w.persons[org][role])
	if err != nil {
		w.t.Fatal(err)
	}
	u, err := url.Parse(link)
	if err != nil {
		w.t.Fatal(err)
	}
	return u.RequestURI(), u.Query().Get("token")
}

// open opens the sign-in page and gives the form that its button would send.
func (b *browser) open(path, token string) url.Values {
	b.w.t.Helper()
	m := nonceField.FindStringSubmatch(b.get(path).body)
	if m == nil {
		b.w.t.Fatal("the sign-in page has no nonce")
	}
	return url.Values{"token": {token}, "nonce": {m[1]}}
}

// as gives a browser that is signed in.
func (w *world) as(org errand.ID, role access.Role) *browser {
	w.t.Helper()
	b := w.browser()
	path, token := w.link(org, role)
	if a := b.post("/sign-in", b.open(path, token)); a.StatusCode != http.StatusSeeOther {
		w.t.Fatalf("sign in: %d %s", a.StatusCode, a.body)
	}
	return b
}
