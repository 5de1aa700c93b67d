package main

import (
	"bytes"
	"context"
	"os"
	"strings"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/console"
	"github.com/errand-dev/errand/dispatch"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/store"
)

// hookFlags say how GitHub's webhooks are believed, and what more than needed an installation may grant.
type hookFlags struct {
	GitHubWebhookSecret     string `name:"github-webhook-secret" env:"ERRAND_GITHUB_WEBHOOK_SECRET" placeholder:"SECRET" help:"Secret with which GitHub signs the App's webhooks. Or its file:"`
	GitHubWebhookSecretFile string `name:"github-webhook-secret-file" env:"ERRAND_GITHUB_WEBHOOK_SECRET_FILE" placeholder:"FILE" help:"File of the webhook secret. Without a secret no webhook is taken, and ends of runs are noticed by asking."`
	AllowExtraPermissions   bool   `name:"allow-extra-permissions" env:"ERRAND_ALLOW_EXTRA_PERMISSIONS" help:"Start workflows although an installation grants the App more than Actions: write and Metadata: read."`
}

// minHookSecret is the least length of a webhook secret: what is shorter can be guessed from one signed delivery.
const minHookSecret = 16

func (f hookFlags) webhookSecret() ([]byte, error) {
	const name = "ERRAND_GITHUB_WEBHOOK_SECRET"
	secret, from := []byte(f.GitHubWebhookSecret), name
	switch {
	case f.GitHubWebhookSecret != "" && f.GitHubWebhookSecretFile != "":
		return nil, errand.Invalid(name, "is set, and so is %s_FILE: set one of them", name)
	case f.GitHubWebhookSecretFile != "":
		from = name + "_FILE"
		b, err := os.ReadFile(f.GitHubWebhookSecretFile)
		if err != nil {
			return nil, errand.Invalid(from, "cannot be read (%v): name a file that the user who runs errand may read", err)
		}
		if secret = bytes.TrimSpace(b); len(secret) == 0 {
			return nil, errand.Invalid(from, "is empty: put the App's webhook secret into it")
		}
	case len(secret) == 0:
		return nil, nil
	}
	if len(secret) < minHookSecret {
		return nil, errand.Invalid(from, "has %d characters, want at least %d: make one with  openssl rand -hex 32  and set it at the App too", len(secret), minHookSecret)
	}
	return secret, nil
}

// serverConfig is config, save that a server may start without an App: the console makes one.
func (f githubFlags) serverConfig() (github.Config, error) {
	if f.GitHubAppID == "" && f.GitHubPrivateKey == "" && f.GitHubPrivateKeyFile == "" {
		_, err := github.NewSetUp(github.Config{BaseURL: f.GitHubAPIURL})
		if err != nil {
			err = f.bySetting(err)
		}
		return github.Config{BaseURL: f.GitHubAPIURL}, err
	}
	return f.config()
}

// newGitHub makes the client: of the App that the environment names, or of the one that the console makes.
func newGitHub(db *database, sealer *store.Sealer, cfg appConfig) (*github.App, *dispatch.AppStore, error) {
	apps := dispatch.NewAppStore(db.Store, sealer, dispatch.AppEnv{Configured: cfg.GitHub.AppID != 0, WebhookSecret: cfg.WebhookSecret})
	if cfg.GitHub.AppID == 0 {
		cfg.GitHub.Later = apps.Identity
	}
	gh, err := github.New(cfg.GitHub)
	return gh, apps, err
}

// newPages makes the console, with the way in which people make the App and bind installations.
func newPages(cfg appConfig, pages console.Config, d *dispatch.Dispatch, apps *dispatch.AppStore, gh *github.App) (*console.Console, error) {
	web, err := github.NewSetUp(cfg.GitHub)
	if err != nil {
		return nil, err
	}
	s, err := dispatch.NewSetUp(dispatch.SetUpConfig{
		Dispatch: d, Apps: apps, GitHub: web, App: gh, PublicURL: cfg.PublicURL, Key: derived(cfg.Master, "github set-up"),
	})
	if err != nil {
		return nil, err
	}
	pages.SetUp = setUpPages{s}
	return console.New(pages)
}

// setUpPages gives dispatch's set-up the words of the console.
type setUpPages struct{ *dispatch.SetUp }

func visitor(v console.Visitor) dispatch.Visitor {
	return dispatch.Visitor{Org: v.Org, Person: v.Person, Session: v.Session}
}

func (s setUpPages) Status(ctx context.Context, v console.Visitor) (console.AppStatus, error) {
	st, err := s.SetUp.Status(ctx, visitor(v))
	return console.AppStatus(st), err
}

func (s setUpPages) Begin(ctx context.Context, v console.Visitor, account string) (action, manifest string, err error) {
	f, err := s.SetUp.Begin(ctx, visitor(v), strings.TrimSpace(account))
	return f.Action, f.Manifest, err
}

func (s setUpPages) Create(ctx context.Context, v console.Visitor, code, state string) error {
	return s.SetUp.Create(ctx, visitor(v), code, state)
}

// Install gives the address at GitHub where an installation goes on: to install the App when installation is 0, and else to
// say who the person is. confirmed means that the person pressed a button here; without it the state must be ours.
func (s setUpPages) Install(ctx context.Context, v console.Visitor, installation int64, state string, confirmed bool) (string, error) {
	switch {
	case installation == 0:
		return s.InstallURL(ctx, visitor(v))
	case !confirmed && !s.Began(visitor(v), state):
		return "", nil
	default:
		return s.AuthorizeURL(ctx, visitor(v), installation)
	}
}

func (s setUpPages) Bind(ctx context.Context, v console.Visitor, code, state string) (repositories int, err error) {
	repos, err := s.SetUp.Bind(ctx, visitor(v), code, state)
	return len(repos), err
}
