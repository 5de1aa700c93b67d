package access_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var ctx = context.Background()

type setup struct {
	*access.Access
	db  *storetest.DB
	now time.Time
}

func start(t *testing.T) *setup {
	t.Helper()
	s := &setup{db: storetest.New(t), now: time.Now().UTC()}
	var err error
	s.Access, err = access.New(access.Config{Store: s.db.Store, Clock: func() time.Time { return s.now }, PublicURL: "https://errand.example"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *setup) bootstrap(t *testing.T) (org, person errand.ID) {
	t.Helper()
	org, person, err := s.Bootstrap(ctx, "acme", "Acme", "Ada")
	if err != nil {
		t.Fatal(err)
	}
	return org, person
}

func (s *setup) signIn(t *testing.T, org, person errand.ID) access.SignedIn {
	t.Helper()
	in, err := s.SignIn(ctx, s.token(t, org, person), "")
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func (s *setup) token(t *testing.T, org, person errand.ID) string {
	t.Helper()
	link, err := s.NewSignInLink(ctx, org, person)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "https" || u.Host != "errand.example" || u.Path != "/sign-in" {
		t.Fatalf("the link is %q (%v)", link, err)
	}
	return u.Query().Get("token")
}

func (s *setup) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	s.db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		if _, err := c.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBootstrapGivesWhatIsThere(t *testing.T) {
	t.Parallel()
	s := start(t)
	org, person := s.bootstrap(t)
	again, same := s.bootstrap(t)
	if org != again || person != same {
		t.Errorf("the second time: %s %s, want %s %s", again, same, org, person)
	}
	if _, other, err := s.Bootstrap(ctx, "acme", "Acme", "Grace"); err != nil || other == person {
		t.Errorf("another owner: %v %v", other, err)
	}
	if _, _, err := s.Bootstrap(ctx, "Not A Slug", "x", "y"); err == nil {
		t.Error("a slug that the schema refuses was taken")
	}
}

func TestReplicasThatBootstrapAtOnceAgree(t *testing.T) {
	t.Parallel()
	s := start(t)
	for round := range 8 { // the first finds the pool cold and its replicas come one by one
		slug := fmt.Sprintf("acme-%d", round)
		var wg sync.WaitGroup
		orgs, persons, errs := make([]errand.ID, 6), make([]errand.ID, 6), make([]error, 6)
		for i := range orgs {
			wg.Go(func() { orgs[i], persons[i], errs[i] = s.Bootstrap(ctx, slug, "Acme", "Ada") })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for i := range orgs {
			if orgs[i] != orgs[0] || persons[i] != persons[0] {
				t.Errorf("replica %d: %s %s, the first: %s %s", i, orgs[i], persons[i], orgs[0], persons[0])
			}
		}
	}
}

func TestALinkIsForAMemberOnly(t *testing.T) {
	t.Parallel()
	s := start(t)
	org, person := s.bootstrap(t)
	other, stranger, err := s.Bootstrap(ctx, "umbrella", "Umbrella", "Bob")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][2]errand.ID{"another organisation's person": {org, stranger}, "in another organisation": {other, person}, "nobody": {org, errand.NewID(s.now)}} {
		if _, err := s.NewSignInLink(ctx, c[0], c[1]); errand.CodeOf(err) != errand.CodeNotFound {
			t.Errorf("%s: %v, want not found", name, err)
		}
	}
}

func TestAnOldSecretOfAnyKindIsUnauthenticated(t *testing.T) {
	t.Parallel()
	s := start(t)
	org, person := s.bootstrap(t)
	token := s.token(t, org, person)
	in, err := s.SignIn(ctx, token, "")
	if err != nil {
		t.Fatal(err)
	}
	if in.Org != org || in.Person != person || in.Role != access.Owner {
		t.Errorf("signed in as %+v", in.Identity)
	}
	late := s.token(t, org, person)
	s.now = s.now.Add(access.LinkTTL)
	for name, err := range map[string]error{
		"a spent link":           second(s.SignIn(ctx, token, "")),
		"a link past its time":   second(s.SignIn(ctx, late, "")),
		"an empty token":         second(s.SignIn(ctx, "", "")),
		"a cookie for a token":   second(s.SignIn(ctx, in.Cookie, "")),
		"no cookie":              second(s.Session(ctx, "")),
		"a token for a cookie":   second(s.Session(ctx, token)),
		"a cookie with a change": second(s.Session(ctx, in.Cookie[:len(in.Cookie)-1]+"_")),
	} {
		if errand.CodeOf(err) != errand.CodeUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestManyWhoPressTheButtonAtOnceGetOneSession(t *testing.T) {
	t.Parallel()
	s := start(t)
	org, person := s.bootstrap(t)
	token := s.token(t, org, person)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.SignIn(ctx, token, "") })
	}
	wg.Wait()
	in := 0
	for _, err := range errs {
		if err == nil {
			in++
		} else if errand.CodeOf(err) != errand.CodeUnauthenticated {
			t.Error(err)
		}
	}
	if in != 1 {
		t.Errorf("%d sessions from one link", in)
	}
}

func TestTheRoleIsReadAnewEachTime(t *testing.T) {
	t.Parallel()
	s := start(t)
	org, person := s.bootstrap(t)
	in := s.signIn(t, org, person)
	s.exec(t, "UPDATE members SET role = 'viewer' WHERE person_id = $1", person)
	if id, err := s.Session(ctx, in.Cookie); err != nil || id.Role != access.Viewer || id.May(access.CancelRun) {
		t.Errorf("after the change: %+v %v", id, err)
	}
	token := s.token(t, org, person)
	s.exec(t, "DELETE FROM members WHERE person_id = $1", person)
	if _, err := s.Session(ctx, in.Cookie); errand.CodeOf(err) != errand.CodeUnauthenticated {
		t.Errorf("no longer a member: %v", err)
	}
	if _, err := s.SignIn(ctx, token, ""); errand.CodeOf(err) != errand.CodeUnauthenticated {
		t.Errorf("a link of somebody who left: %v", err)
	}
}

func TestSignOutIsOfOneSession(t *testing.T) {
	t.Parallel()
	s := start(t)
	org, person := s.bootstrap(t)
	one, two := s.signIn(t, org, person), s.signIn(t, org, person)
	for range 2 { // the second time there is nothing left, which is no error
		if err := s.SignOut(ctx, one.Cookie); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Session(ctx, one.Cookie); errand.CodeOf(err) != errand.CodeUnauthenticated {
		t.Errorf("signed out: %v", err)
	}
	if _, err := s.Session(ctx, two.Cookie); err != nil {
		t.Errorf("the other browser: %v", err)
	}
}

func TestRolesAndActions(t *testing.T) {
	t.Parallel()
	table := map[access.Role]map[access.Action]bool{
		access.Owner:  {access.See: true, access.RunNow: true, access.CancelRun: true, access.SignOut: true},
		access.Admin:  {access.See: true, access.RunNow: true, access.CancelRun: true, access.SignOut: true},
		access.Member: {access.See: true, access.RunNow: true, access.CancelRun: true, access.SignOut: true},
		access.Viewer: {access.See: true, access.RunNow: false, access.CancelRun: false, access.SignOut: true},
		"":            {access.See: false, access.RunNow: false, access.CancelRun: false, access.SignOut: false},
		"root":        {access.See: false, access.RunNow: false, access.CancelRun: false, access.SignOut: false},
	}
	for role, actions := range table {
		id := access.Identity{Org: "o", Person: "p", Role: role}
		for action, want := range actions {
			if got := id.May(action); got != want {
				t.Errorf("%q may %s: %v, want %v", role, action, got, want)
			}
		}
		if id.May("something_new") || id.May("") {
			t.Errorf("%q may what nobody wrote down", role)
		}
	}
	if (access.Identity{Role: access.Owner}).May(access.See) {
		t.Error("nobody, with an owner's role, may see")
	}
}

func TestAPublicURLIsASchemeAndAHost(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://errand.example": true, "http://127.0.0.1:8080": true, "https://errand.example/": true,
		"": false, "errand.example": false, "ftp://errand.example": false, "https://": false, "https://errand.example/console": false,
		"https://user@errand.example": false, "https://errand.example?x=1": false, "javascript:alert(1)": false,
	} {
		if _, err := access.New(access.Config{PublicURL: address}); (err == nil) != ok || (!ok && errand.CodeOf(err) != errand.CodeInvalid) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestADatabaseThatDoesNotAnswerIsNotAStranger(t *testing.T) {
	t.Parallel()
	s := start(t)
	org, person := s.bootstrap(t)
	in := s.signIn(t, org, person)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	e := echo.New()
	var got error
	e.HTTPErrorHandler = func(err error, c echo.Context) { got = err; _ = c.NoContent(http.StatusServiceUnavailable) }
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) }, s.RequireSession)
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(gone)
	r.AddCookie(&http.Cookie{Name: s.CookieName(), Value: in.Cookie})
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, r)
	if rec.Code == http.StatusSeeOther || got == nil || errand.CodeOf(got) == errand.CodeUnauthenticated {
		t.Errorf("answered %d, %v: a signed-in person is told to sign in", rec.Code, got)
	}
}
