package dispatch

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/store"
)

// The console's addresses that GitHub sends people to.
const (
	SetUpPath      = "/setup/github"
	CreatedPath    = SetUpPath + "/created"    // with the code of a new App
	InstalledPath  = SetUpPath + "/installed"  // after an installation
	AuthorisedPath = SetUpPath + "/authorised" // with the code that says who the person is
)

// stateLives is how long a way through GitHub's pages may take: a manifest's code lives an hour.
const stateLives = time.Hour

// SetUpConfig is what SetUp is made of.
type SetUpConfig struct {
	Dispatch  *Dispatch
	Apps      *AppStore
	GitHub    *github.SetUp
	App       *github.App
	PublicURL string
	Key       []byte // 32 bytes: signs states
}

// SetUp is how people make the deployment's App and bind its installations. What GitHub's redirects carry is believed only
// with a state that was signed here for the same session, and an installation is bound only after GitHub said, to the person
// itself, that the person can reach it: a number in an address proves nothing.
type SetUp struct {
	d      *Dispatch
	apps   *AppStore
	github *github.SetUp
	app    *github.App
	public string
	key    []byte
}

// NewSetUp returns Invalid for a key that is too short.
func NewSetUp(cfg SetUpConfig) (*SetUp, error) {
	if len(cfg.Key) < 32 {
		return nil, errand.Invalid("set-up key", "it must have 32 bytes")
	}
	return &SetUp{d: cfg.Dispatch, apps: cfg.Apps, github: cfg.GitHub, app: cfg.App, public: cfg.PublicURL, key: cfg.Key}, nil
}

// Visitor is a signed-in person, with the cookie of the session.
type Visitor struct {
	Org, Person errand.ID
	Session     string
}

// AppStatus is what a page may show of the App.
type AppStatus struct {
	FromEnvironment bool
	Made            bool // here, by the console
	Name, PageURL   string
	Webhooks        bool // a webhook secret is known
	MayMake         bool // the visitor's organisation speaks for the deployment
	GitHub          string
}

// Status tells how the App stands for the visitor's organisation.
func (s *SetUp) Status(ctx context.Context, who Visitor) (AppStatus, error) {
	st := AppStatus{FromEnvironment: s.apps.env.Configured, GitHub: s.github.WebURL()}
	secret, err := s.apps.WebhookSecret(ctx)
	if err != nil {
		return st, err
	}
	st.Webhooks = len(secret) > 0
	app, err := s.apps.load(ctx)
	if err != nil {
		return st, err
	}
	if app != nil && !st.FromEnvironment {
		st.Made, st.Name, st.PageURL = true, app.Name, app.PageURL
	}
	st.MayMake, err = s.speaks(ctx, who)
	return st, err
}

// speaks tells whether the organisation is the one that was there first. That the person owns it is for the role to say.
func (s *SetUp) speaks(ctx context.Context, who Visitor) (bool, error) {
	first, err := s.d.store.FirstOrganisation(ctx)
	return err == nil && first == who.Org, err
}

// Form is what a browser sends to GitHub to make the App.
type Form struct{ Action, Manifest string }

// Begin gives the form. account is the GitHub organisation that shall own the App, "" = the person.
func (s *SetUp) Begin(ctx context.Context, who Visitor, account string) (Form, error) {
	if err := s.mayMake(ctx, who); err != nil {
		return Form{}, err
	}
	if account != "" && strings.Trim(account, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		return Form{}, errand.Invalid("account", "%q is not the name of a GitHub organisation", account)
	}
	name := "Errand " + rand.Text()[:6] // names are unique on all of GitHub; its page lets the person change it
	text, err := github.Manifest(name, github.Places{
		Home: s.public, Hook: s.public + HookPath, Created: s.public + CreatedPath, Authorised: s.public + AuthorisedPath, Installed: s.public + InstalledPath,
	})
	return Form{Action: s.github.ManifestURL(account, s.sign(state{Kind: "create"}, who)), Manifest: text}, err
}

func (s *SetUp) mayMake(ctx context.Context, who Visitor) error {
	st, err := s.Status(ctx, who)
	switch {
	case err != nil:
		return err
	case !st.MayMake:
		return &errand.Error{Code: errand.CodeForbidden, Message: "the App belongs to the whole deployment", Hint: "an owner of its first organisation sets it up"}
	case st.FromEnvironment:
		return errand.Conflict("the App is set by ERRAND_GITHUB_APP_ID and its key")
	case st.Made:
		return errand.Conflict("this deployment has its App already: %s", st.Name)
	}
	return nil
}

// Create redeems the code of a new App and keeps its key and secrets, sealed. Where GitHub made no webhook secret one is made
// here and told to GitHub; if that cannot be done the App works without webhooks.
func (s *SetUp) Create(ctx context.Context, who Visitor, code, signed string) error {
	if _, err := s.verify(signed, "create", who); err != nil {
		return err
	}
	if err := s.mayMake(ctx, who); err != nil {
		return err
	}
	made, err := s.github.Convert(ctx, code)
	if err != nil {
		return atGitHub(err, "GitHub did not give the App: begin again")
	}
	sec := appSecrets{PrivateKey: made.PrivateKey, ClientSecret: made.ClientSecret, WebhookSecret: made.WebhookSecret}
	if sec.WebhookSecret == "" {
		sec.WebhookSecret = s.giveSecret(ctx, made)
	}
	plain, err := json.Marshal(sec)
	if err != nil {
		return errand.Errorf(errand.CodeInternal, err, "the App's secrets cannot be written down")
	}
	sealed, err := s.apps.sealer.Seal(plain, sealContext)
	if err != nil {
		return err
	}
	return s.d.store.InTx(ctx, who.Org, func(tx *store.Tx) error {
		n, err := tx.GitHubCreateApp(ctx, store.GitHubCreateAppParams{
			AppID: made.ID, Slug: made.Slug, Name: made.Name, PageURL: made.PageURL, ClientID: made.ClientID, Sealed: sealed,
			CreatedAt: s.d.clock(), CreatedBy: who.Person,
		})
		switch {
		case err != nil:
			return err
		case n == 0:
			return errand.Conflict("somebody else set up the App meanwhile: delete %q at GitHub", made.Name)
		}
		return s.d.note(ctx, tx, journal.KindPersonAction, who.Org, errand.NewID(s.d.clock()), journal.PersonAction{Action: "make_github_app", Person: who.Person})
	})
}

// giveSecret sets a webhook secret for an App that has none; "" when GitHub did not take it.
func (s *SetUp) giveSecret(ctx context.Context, made github.CreatedApp) string {
	secret := rand.Text() + rand.Text()
	app, err := s.app.As(made.ID, made.PrivateKey)
	if err == nil {
		err = app.SetWebhookSecret(ctx, s.public+HookPath, secret)
	}
	if err != nil {
		s.d.log.WarnContext(ctx, "the App has no webhook secret, and none could be set: ends of runs are noticed by asking", "error", err)
		return ""
	}
	return secret
}

// InstallURL is where the visitor installs the App.
func (s *SetUp) InstallURL(ctx context.Context, who Visitor) (string, error) {
	app, err := s.made(ctx)
	if err != nil {
		return "", err
	}
	return github.InstallURL(app.PageURL, s.sign(state{Kind: "install"}, who)), nil
}

// made gives the App that the console made.
func (s *SetUp) made(ctx context.Context) (*knownApp, error) {
	app, err := s.apps.load(ctx)
	if err == nil && (app == nil || s.apps.env.Configured) {
		err = &errand.Error{Code: errand.CodeConflict, Message: "this deployment's App was not made in the console", Hint: "an operator connects installations: errand admin connect"}
	}
	return app, err
}

// Began tells whether the visitor came to InstalledPath from InstallURL, in this session, and not by somebody's link.
func (s *SetUp) Began(who Visitor, signed string) bool {
	_, err := s.verify(signed, "install", who)
	return err == nil
}

// AuthorizeURL is where the visitor lets GitHub say which installations the visitor reaches.
func (s *SetUp) AuthorizeURL(ctx context.Context, who Visitor, installation int64) (string, error) {
	if installation <= 0 {
		return "", errand.Invalid("installation_id", "it is not the number of an installation")
	}
	app, err := s.made(ctx)
	if err != nil {
		return "", err
	}
	return s.github.AuthorizeURL(app.ClientID, s.public+AuthorisedPath, s.sign(state{Kind: "bind", Installation: installation}, who)), nil
}

// Bind connects the installation that the state names to the visitor's organisation, if GitHub says that the person reaches
// it. It returns Forbidden when GitHub says no, and Conflict for an installation of another organisation.
func (s *SetUp) Bind(ctx context.Context, who Visitor, code, signed string) ([]store.Repository, error) {
	st, err := s.verify(signed, "bind", who)
	if err != nil {
		return nil, err
	}
	app, err := s.made(ctx)
	if err != nil {
		return nil, err
	}
	reaches, err := s.github.Reaches(ctx, github.Client{ID: app.ClientID, Secret: app.secrets.ClientSecret, Redirect: s.public + AuthorisedPath}, code, st.Installation)
	if err != nil {
		return nil, atGitHub(err, "GitHub could not be asked which installations you reach: begin again")
	}
	if !reaches {
		s.d.log.LogAttrs(ctx, slog.LevelWarn, "an installation was not bound: the person does not reach it",
			slog.String("org", string(who.Org)), slog.String("person", string(who.Person)), slog.Int64("installation", st.Installation))
		return nil, &errand.Error{Code: errand.CodeForbidden, Message: "GitHub says that you do not reach this installation", Hint: "sign in to GitHub as somebody who does"}
	}
	repos, err := s.d.Connect(ctx, who.Org, st.Installation)
	if err != nil {
		return nil, err
	}
	return repos, s.d.store.InTx(ctx, who.Org, func(tx *store.Tx) error {
		return s.d.note(ctx, tx, journal.KindPersonAction, who.Org, errand.NewID(s.d.clock()), journal.PersonAction{Action: "connect_installation", Person: who.Person})
	})
}

func atGitHub(err error, message string) error {
	var e *github.Error
	if !errors.As(err, &e) {
		return err
	}
	return &errand.Error{Code: errand.CodeUnavailable, Message: message, Hint: "GitHub: " + said(err), Cause: err}
}

// state is what a way through GitHub's pages carries. It is good for one purpose, one person in one organisation, and the
// session in which it was made.
type state struct {
	Kind         string    `json:"k"`
	Org          errand.ID `json:"o"`
	Person       errand.ID `json:"p"`
	Session      []byte    `json:"s"` // digest of the cookie
	Installation int64     `json:"i,omitempty"`
	Expires      int64     `json:"e"`
}

func (s *SetUp) sign(st state, who Visitor) string {
	digest := sha256.Sum256([]byte(who.Session))
	st.Org, st.Person, st.Session, st.Expires = who.Org, who.Person, digest[:], s.d.clock().Add(stateLives).Unix()
	body, err := json.Marshal(st)
	if err != nil {
		panic(err) // strings, bytes and numbers
	}
	return base64.RawURLEncoding.EncodeToString(body) + "." + base64.RawURLEncoding.EncodeToString(s.mac(body))
}

func (s *SetUp) mac(body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte("set-up state\x00"))
	mac.Write(body)
	return mac.Sum(nil)
}

// verify answers a wrong state, another's, and one that is past its time alike.
func (s *SetUp) verify(signed, kind string, who Visitor) (state, error) {
	refused := &errand.Error{Code: errand.CodeForbidden, Message: "this way through GitHub was not begun here, in this session, within the last hour", Hint: "begin again from the set-up page"}
	head, tail, _ := strings.Cut(signed, ".")
	body, err := base64.RawURLEncoding.DecodeString(head)
	mac, macErr := base64.RawURLEncoding.DecodeString(tail)
	if err != nil || macErr != nil || !hmac.Equal(mac, s.mac(body)) {
		return state{}, refused
	}
	var st state
	digest := sha256.Sum256([]byte(who.Session))
	if json.Unmarshal(body, &st) != nil || st.Kind != kind || who.Session == "" || who.Org == "" || who.Person == "" ||
		st.Org != who.Org || st.Person != who.Person || !hmac.Equal(st.Session, digest[:]) || s.d.clock().Unix() >= st.Expires {
		return state{}, refused
	}
	return st, nil
}
