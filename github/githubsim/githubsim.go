// Package githubsim is a GitHub to run against: enough of its API, of git over HTTP, of Actions and of webhooks that
// Errand and its runner cannot tell it from the real one, in one process and on one machine. It holds the App to its
// permissions, checks what real GitHub checks, and records every call that Errand must never make (Violations).
//
// The API stands at /api/v3 and git at /OWNER/NAME.git, as on GitHub Enterprise Server. It imports nothing of ours but the
// root. Start reading at Config, then routes.go (what may be called, with which permission), dispatch.go (a run's life) and
// oidc.go (the issuer of ID tokens).
package githubsim

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errand-dev/errand"
)

// Config says what GitHub there is. Everything but Dir has a default.
type Config struct {
	Dir        string         // holds the bare repositories; made if absent
	Addr       string         // where Start listens; "" = 127.0.0.1:0
	AppID      int64          // 0 = 1001
	AppSlug    string         // "" = errand
	PublicKey  *rsa.PublicKey // the App's; nil = New makes a pair, see PrivateKey
	Executor   Executor       // runs the jobs; nil = a run stays queued until SetRun moves it
	Enterprise bool           // answer as Enterprise Server 3.17: 204 only, ten inputs, no return_run_details
	WebhookURL string         // see SetWebhook
	Secret     []byte         // the webhook's
	Clock      errand.Clock   // nil = time.Now
	Logger     *slog.Logger   // nil = discard
}

// Installation is the App in one account.
type Installation struct {
	ID          int64
	Account     string // login
	AccountID   int64
	Permissions map[string]string // nil = metadata: read, actions: write
}

// Repository is a repository to make.
type Repository struct {
	ID            int64
	Installation  int64 // that it is part of; 0 = none
	Owner, Name   string
	DefaultBranch string // "" = main
	Private       bool
	Files         fs.FS             // the first commit
	Secrets       map[string]string // of Actions
	// PullRequests is the setting "Allow GitHub Actions to create and approve pull requests".
	PullRequests bool
}

// Sim is the running simulation. It is safe for concurrent use. Close ends every process that it started.
type Sim struct {
	cfg    Config
	clock  errand.Clock
	log    *slog.Logger
	key    *rsa.PrivateKey // nil when the public key was given
	pub    *rsa.PublicKey
	routes http.Handler

	ctx    context.Context // of everything that outlives a request
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	hooks  chan hook
	held   atomic.Int64 // requests that a fault holds

	mu    sync.Mutex
	base  string // http://HOST
	state state
}

// New makes the simulation; it serves once Start was called, or as an http.Handler after SetURL.
func New(cfg Config) (*Sim, error) {
	if cfg.Dir == "" {
		return nil, errand.Invalid("githubsim.dir", "githubsim needs a folder for its repositories")
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.AppID == 0 {
		cfg.AppID = 1001
	}
	if cfg.AppSlug == "" {
		cfg.AppSlug = "errand"
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "repos"), 0o755); err != nil {
		return nil, fmt.Errorf("githubsim: %w", err)
	}
	s := &Sim{cfg: cfg, clock: cfg.Clock, log: cfg.Logger, pub: cfg.PublicKey, hooks: make(chan hook, 256), state: newState()}
	s.state.hookURL, s.state.hookSecret = cfg.WebhookURL, cfg.Secret
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.pub == nil {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, fmt.Errorf("githubsim: %w", err)
		}
		s.key, s.pub = key, &key.PublicKey
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.routes = s.newRoutes()
	s.tasks.Go(s.deliver)
	return s, nil
}

// PrivateKey is the App's key as PEM, when New made it; nil otherwise.
func (s *Sim) PrivateKey() []byte {
	if s.key == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(s.key)})
}

// AppID is the App's id.
func (s *Sim) AppID() int64 { return s.cfg.AppID }

// Start serves on Config.Addr until ctx ends or Close is called, and gives the server's URL (http://127.0.0.1:PORT). The API
// is at APIURL.
func (s *Sim) Start(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return "", fmt.Errorf("githubsim: %w", err)
	}
	s.SetURL("http://" + l.Addr().String())
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.tasks.Go(func() { _ = srv.Serve(l) })
	s.tasks.Go(func() {
		select {
		case <-ctx.Done():
			s.cancel()
		case <-s.ctx.Done():
		}
		// Handlers are waited for: one of them may be running git.
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer done()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
	})
	return s.URL(), nil
}

// Close stops serving, cancels every job and waits until nothing of it runs any more.
func (s *Sim) Close() error {
	s.cancel()
	s.tasks.Wait()
	return nil
}

// SetURL tells the simulation its own address, for use behind a server that is not its own.
func (s *Sim) SetURL(base string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = base
}

// URL is the server's address: GITHUB_SERVER_URL.
func (s *Sim) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base
}

// APIURL is the API's address: GITHUB_API_URL, and BaseURL of the client.
func (s *Sim) APIURL() string { return s.URL() + apiPrefix }

const apiPrefix = "/api/v3"
