package dispatch

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// AppStore is the deployment's GitHub App where the console made it: its key and secrets, sealed in the database. What the
// environment sets stands above it.
type AppStore struct {
	store  *store.Store
	sealer *store.Sealer
	env    AppEnv
	found  atomic.Pointer[knownApp]
}

// AppEnv is what the environment says of the App.
type AppEnv struct {
	Configured    bool   // its number and key are set: none is made in the console
	WebhookSecret []byte // nil = not set
}

type knownApp struct {
	store.GitHubApp
	secrets appSecrets
}

// appSecrets is the plain text of github_app.sealed.
type appSecrets struct {
	PrivateKey    []byte `json:"private_key"`
	ClientSecret  string `json:"client_secret"`
	WebhookSecret string `json:"webhook_secret,omitempty"`
}

// NewAppStore makes the store. It asks for nothing.
func NewAppStore(s *store.Store, sealer *store.Sealer, env AppEnv) *AppStore {
	return &AppStore{store: s, sealer: sealer, env: env}
}

// sealContext binds the sealed secrets to their row.
const sealContext = "github_app"

// load gives the App, or nil when there is none. One that was found never changes.
func (a *AppStore) load(ctx context.Context) (*knownApp, error) {
	if app := a.found.Load(); app != nil {
		return app, nil
	}
	row, err := a.store.GitHubApp(ctx)
	if errand.CodeOf(err) == errand.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	app := &knownApp{GitHubApp: row}
	plain, err := a.sealer.Open(row.Sealed, sealContext)
	if err == nil {
		err = json.Unmarshal(plain, &app.secrets)
	}
	if err != nil {
		return nil, errand.Errorf(errand.CodeInternal, err, "the stored secrets of the GitHub App cannot be read")
	}
	a.found.Store(app)
	return app, nil
}

// Identity is github.Config.Later.
func (a *AppStore) Identity(ctx context.Context) (id int64, privateKey []byte, err error) {
	app, err := a.load(ctx)
	if app == nil || err != nil {
		return 0, nil, err
	}
	return app.AppID, app.secrets.PrivateKey, nil
}

// WebhookSecret is Config.WebhookSecret: the environment's, or that which GitHub made with the App; nil = none.
func (a *AppStore) WebhookSecret(ctx context.Context) ([]byte, error) {
	if len(a.env.WebhookSecret) > 0 {
		return a.env.WebhookSecret, nil
	}
	app, err := a.load(ctx)
	if app == nil || err != nil {
		return nil, err
	}
	return []byte(app.secrets.WebhookSecret), nil
}
