package dispatch

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/github/githubsim"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

const (
	publicURL = "https://errand.example"
	theirs    = int64(77) // an installation
)

// linked is a deployment without an App, and a GitHub where one can be made.
type linked struct {
	*world
	sim    *githubsim.Sim
	sealer *store.Sealer
	apps   *AppStore
	set    *SetUp
	me     Visitor
}

func linkedWorld(t *testing.T) *linked {
	t.Helper()
	w := setup(t)
	l := &linked{world: w}
	var err error
	l.sim, err = githubsim.New(githubsim.Config{Dir: t.TempDir(), Clock: w.clock})
	must(t, err)
	t.Cleanup(func() { must(t, l.sim.Close()) })
	_, err = l.sim.Start(context.WithoutCancel(t.Context()))
	must(t, err)
	must(t, l.sim.AddInstallation(githubsim.Installation{ID: theirs, Account: "octo-org"}))
	l.sealer, err = store.NewSealer(bytes.Repeat([]byte{7}, 32))
	must(t, err)
	l.apps = NewAppStore(w.Store, l.sealer, AppEnv{})
	l.set = l.replicaOf(l.apps)
	l.sql("insert into people (id, name, created_at) values ($1, 'Owner', $2)", w.person, noon)
	l.me = Visitor{Org: w.org, Person: w.person, Session: "cookie"}
	l.sim.SignIn("owner", theirs)
	return l
}

func (l *linked) replicaOf(apps *AppStore) *SetUp {
	l.t.Helper()
	cfg := github.Config{BaseURL: l.sim.APIURL(), Clock: l.clock, Later: apps.Identity}
	app, err := github.New(cfg)
	must(l.t, err)
	web, err := github.NewSetUp(cfg)
	must(l.t, err)
	d, err := New(Config{Store: l.Store, Runs: runs.New(l.policy, l.clock), GitHub: app, Tickets: fakeTickets{}, Clock: l.clock})
	must(l.t, err)
	set, err := NewSetUp(SetUpConfig{Dispatch: d, Apps: apps, GitHub: web, App: app, PublicURL: publicURL, Key: bytes.Repeat([]byte{9}, 32)})
	must(l.t, err)
	return set
}

// follow goes to GitHub as the browser would, and gives what GitHub sends it back with.
func (l *linked) follow(method, address string, form url.Values) url.Values {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), method, address, strings.NewReader(form.Encode()))
	must(l.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultTransport.RoundTrip(req)
	must(l.t, err)
	must(l.t, resp.Body.Close())
	back, err := resp.Location()
	if err != nil || !strings.HasPrefix(back.String(), publicURL+SetUpPath) {
		l.t.Fatalf("%s %s: %d, %v", method, address, resp.StatusCode, err)
	}
	return back.Query()
}

func (l *linked) makeApp() {
	l.t.Helper()
	f, err := l.set.Begin(l.t.Context(), l.me, "")
	must(l.t, err)
	q := l.follow(http.MethodPost, f.Action, url.Values{"manifest": {f.Manifest}})
	must(l.t, l.set.Create(l.t.Context(), l.me, q.Get("code"), q.Get("state")))
}

// authorised goes through GitHub's page for the installation.
func (l *linked) authorised(who Visitor, installation int64) (code, signed string) {
	l.t.Helper()
	to, err := l.set.AuthorizeURL(l.t.Context(), who, installation)
	must(l.t, err)
	q := l.follow(http.MethodGet, to, nil)
	return q.Get("code"), q.Get("state")
}

func TestTheAppIsMadeAndUsed(t *testing.T) {
	t.Parallel()
	l := linkedWorld(t)
	if st, err := l.set.Status(t.Context(), l.me); err != nil || st.Made || st.Webhooks || !st.MayMake {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := l.set.d.Connect(t.Context(), l.org, theirs); err == nil {
		t.Error("an installation was connected without an App")
	}
	l.makeApp()
	if st, err := l.set.Status(t.Context(), l.me); err != nil || !st.Made || !st.Webhooks || st.PageURL == "" {
		t.Errorf("%+v, %v", st, err)
	}
	// Another replica, and the same one after a restart, find it; the webhook secret is GitHub's.
	again := NewAppStore(l.Store, l.sealer, AppEnv{})
	for says, apps := range map[string]*AppStore{"this": l.apps, "another": again} {
		secret, err := apps.WebhookSecret(t.Context())
		if err != nil || string(secret) != l.sim.WebhookSecret() || len(secret) == 0 {
			t.Errorf("%s: %v", says, err)
		}
	}
	code, state := l.authorised(l.me, theirs)
	if _, err := l.replicaOf(again).Bind(t.Context(), l.me, code, state); err != nil {
		t.Fatal(err)
	}
	if org, err := l.LookupInstallation(t.Context(), theirs); err != nil || org != l.org {
		t.Errorf("%s, %v", org, err)
	}
	if v := l.sim.Violations(); len(v) > 0 {
		t.Errorf("%+v", v)
	}
	if n := l.count("select count(*) from journal where kind = 'person.action' and body like '%github_app%'") + l.count("select count(*) from journal where body like '%connect_installation%'"); n != 2 {
		t.Errorf("%d of two actions are in the journal", n)
	}
	// One App a deployment.
	if _, err := l.set.Begin(t.Context(), l.me, ""); errand.CodeOf(err) != errand.CodeConflict {
		t.Errorf("a second App: %v", err)
	}
}

func TestTheAppsSecretsAreSealed(t *testing.T) {
	t.Parallel()
	l := linkedWorld(t)
	l.makeApp()
	var row string
	l.Super(t, func(ctx context.Context, c *pgx.Conn) {
		must(t, c.QueryRow(ctx, "select encode(sealed, 'escape') || github_app::text from github_app").Scan(&row))
	})
	if strings.Contains(row, "PRIVATE KEY") || strings.Contains(row, l.sim.WebhookSecret()) || strings.Contains(row, "webhook_secret") {
		t.Error("a secret stands in the database as it is")
	}
	other, err := store.NewSealer(bytes.Repeat([]byte{8}, 32))
	must(t, err)
	if _, err := NewAppStore(l.Store, other, AppEnv{}).WebhookSecret(t.Context()); err == nil {
		t.Error("another key opens it")
	}
	if err := l.CheckSeals(t.Context(), other); err == nil {
		t.Error("a start with another key is not refused")
	}
	if secret, err := NewAppStore(l.Store, l.sealer, AppEnv{WebhookSecret: []byte("from the environment")}).WebhookSecret(t.Context()); err != nil || string(secret) != "from the environment" {
		t.Errorf("the environment stands above: %q, %v", secret, err)
	}
}

func TestAnAppWithoutAWebhookSecretIsGivenOne(t *testing.T) {
	t.Parallel()
	l := linkedWorld(t)
	l.sim.MakeNoWebhookSecret()
	l.makeApp()
	secret, err := l.apps.WebhookSecret(t.Context())
	if err != nil || len(secret) < 32 || string(secret) != l.sim.WebhookSecret() {
		t.Errorf("%q, %v", secret, err)
	}

	l = linkedWorld(t) // and where GitHub does not take it
	l.sim.MakeNoWebhookSecret()
	l.sim.Fault(githubsim.Fault{Method: http.MethodPatch, Path: "/app/hook/config", Status: 500})
	l.makeApp()
	if secret, err := l.apps.WebhookSecret(t.Context()); err != nil || len(secret) != 0 {
		t.Errorf("%q, %v", secret, err)
	}
	if st, err := l.set.Status(t.Context(), l.me); err != nil || !st.Made || st.Webhooks {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestWhoMayMakeTheApp(t *testing.T) {
	t.Parallel()
	l := linkedWorld(t)
	tenant := Visitor{Org: l.Org(t, "tenant"), Person: l.person, Session: "c"}
	l.sql("update organisations set created_at = created_at + interval '1 day' where slug = 'tenant'")
	if _, err := l.set.Begin(t.Context(), tenant, ""); errand.CodeOf(err) != errand.CodeForbidden {
		t.Errorf("another tenant: %v", err)
	}
	env := l.replicaOf(NewAppStore(l.Store, l.sealer, AppEnv{Configured: true}))
	if _, err := env.Begin(t.Context(), l.me, ""); errand.CodeOf(err) != errand.CodeConflict {
		t.Errorf("where the environment names one: %v", err)
	}
	if _, err := l.set.Begin(t.Context(), l.me, "acme/../x"); errand.CodeOf(err) != errand.CodeInvalid {
		t.Errorf("a name that is none: %v", err)
	}
	if f, err := l.set.Begin(t.Context(), l.me, "acme"); err != nil || !strings.Contains(f.Action, "/organizations/acme/settings/apps/new?state=") {
		t.Errorf("%+v, %v", f, err)
	}
	if err := l.set.Create(t.Context(), l.me, "never-given", l.set.sign(state{Kind: "create"}, l.me)); errand.CodeOf(err) != errand.CodeUnavailable {
		t.Errorf("a code that GitHub never gave: %v", err)
	}
	if n := l.count("select count(*) from github_app"); n != 0 {
		t.Errorf("%d Apps", n)
	}
}

func TestH19_AnInstallationIsBoundByWhatGitHubSaysToThePerson(t *testing.T) {
	t.Parallel()
	l := linkedWorld(t)
	l.makeApp()
	const victims = int64(78)
	must(t, l.sim.AddInstallation(githubsim.Installation{ID: victims, Account: "victim"}))
	code, signed := l.authorised(l.me, victims) // by its number alone, which is no secret
	if _, err := l.set.Bind(t.Context(), l.me, code, signed); errand.CodeOf(err) != errand.CodeForbidden {
		t.Errorf("an installation that the person does not reach: %v", err)
	}
	code, signed = l.authorised(l.me, theirs)
	other := l.me
	other.Session = "another cookie"
	neighbour := l.me
	neighbour.Org = l.Org(t, "neighbour")
	for says, tt := range map[string]struct {
		who          Visitor
		code, signed string
	}{
		"in another session":              {other, code, signed},
		"for another organisation":        {neighbour, code, signed},
		"for another person":              {Visitor{l.org, errand.NewID(noon), "cookie"}, code, signed},
		"without a session":               {Visitor{l.org, l.person, ""}, code, signed},
		"without a state":                 {l.me, code, ""},
		"with a state for another way":    {l.me, code, l.set.sign(state{Kind: "install", Installation: theirs}, l.me)},
		"with a state of another key":     {l.me, code, l.replicaKey(3).sign(state{Kind: "bind", Installation: theirs}, l.me)},
		"with another installation in it": {l.me, code, spoiled(t, signed, victims)},
		"with a code that was never":      {l.me, "never-given", signed},
	} {
		if _, err := l.set.Bind(t.Context(), tt.who, tt.code, tt.signed); errand.CodeOf(err) != errand.CodeForbidden {
			t.Errorf("%s: %v", says, err)
		}
	}
	if n := l.count("select count(*) from installations where id in (77, 78)"); n != 0 {
		t.Errorf("%d were bound", n)
	}
	if _, err := l.set.Bind(t.Context(), l.me, code, signed); err != nil {
		t.Errorf("what was tried has spoiled the true one: %v", err)
	}
	if _, err := l.set.Bind(t.Context(), l.me, code, signed); errand.CodeOf(err) != errand.CodeForbidden {
		t.Errorf("the same code again: %v", err)
	}
	// Bound to one organisation, and no other, whoever reaches it.
	code, signed = l.authorised(neighbour, theirs)
	if _, err := l.set.Bind(t.Context(), neighbour, code, signed); errand.CodeOf(err) != errand.CodeConflict {
		t.Errorf("another organisation's: %v", err)
	}
	code, signed = l.authorised(l.me, theirs)
	l.pass(stateLives)
	if _, err := l.set.Bind(t.Context(), l.me, code, signed); errand.CodeOf(err) != errand.CodeForbidden {
		t.Errorf("an hour later: %v", err)
	}
}

func TestALinkOfSomebodysIsConfirmedFirst(t *testing.T) {
	t.Parallel()
	l := linkedWorld(t)
	l.makeApp()
	to, err := l.set.InstallURL(t.Context(), l.me)
	must(t, err)
	u, err := url.Parse(to)
	must(t, err)
	if !l.set.Began(l.me, u.Query().Get("state")) {
		t.Error("the own way is not known again")
	}
	other := l.me
	other.Session = "another"
	if l.set.Began(other, u.Query().Get("state")) || l.set.Began(l.me, "") {
		t.Error("somebody's link counts as the own way")
	}
	for _, id := range []int64{0, -1} {
		if _, err := l.set.AuthorizeURL(t.Context(), l.me, id); errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%d: %v", id, err)
		}
	}
}

func TestThatGitHubCannotBeAskedBindsNothing(t *testing.T) {
	t.Parallel()
	l := linkedWorld(t)
	l.makeApp()
	code, signed := l.authorised(l.me, theirs)
	l.sim.Fault(githubsim.Fault{Path: "/user/installations", Status: 502})
	if _, err := l.set.Bind(t.Context(), l.me, code, signed); errand.CodeOf(err) != errand.CodeUnavailable {
		t.Errorf("%v", err)
	}
	if n := l.count("select count(*) from installations where id = 77"); n != 0 {
		t.Error("it was bound")
	}
}

func (l *linked) replicaKey(b byte) *SetUp {
	s := *l.set
	s.key = bytes.Repeat([]byte{b}, 32)
	return &s
}

// spoiled puts another installation into a signed state and keeps its signature.
func spoiled(t *testing.T, signed string, installation int64) string {
	t.Helper()
	head, tail, _ := strings.Cut(signed, ".")
	var st state
	body, err := base64.RawURLEncoding.DecodeString(head)
	must(t, err)
	must(t, json.Unmarshal(body, &st))
	st.Installation = installation
	again, err := json.Marshal(st)
	must(t, err)
	return base64.RawURLEncoding.EncodeToString(again) + "." + tail
}
