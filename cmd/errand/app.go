package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/riverqueue/river"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/console"
	"github.com/errand-dev/errand/dispatch"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/pricing"
	"github.com/errand-dev/errand/runnerapi"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/server"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/transitions"
	"github.com/errand-dev/errand/webhooks"
)

// appConfig is everything that differs between serving for real and the demo.
type appConfig struct {
	Log             *slog.Logger
	PublicURL       string
	Master          []byte // the secret key
	PreviousMasters [][]byte
	GitHub          github.Config
	OIDCIssuer      string // of GitHub's ID tokens; "" = what goes with the API's address
	TrustedProxies  []*net.IPNet
	Drain           time.Duration // how long requests are still taken after the signal to stop
	// AllowExtraPermissions: installations may grant more than Errand needs.
	AllowExtraPermissions bool
	WebhookSecret         []byte        // of the App's webhooks, from the environment
	SearchFor             time.Duration // how long an unclear dispatch is searched for; 0 = the default
}

// app is the control plane, wired and not yet running.
type app struct {
	log      *slog.Logger
	db       *database
	metrics  *prometheus.Registry
	handler  http.Handler
	workers  *river.Workers
	runs     *runs.Runs
	dispatch *dispatch.Dispatch
	hooks    *webhooks.Webhooks
	access   *access.Access
	ready    *readiness
	drain    time.Duration
}

// newApp wires the service, top to bottom: this function is its map.
func newApp(ctx context.Context, db *database, cfg appConfig) (*app, error) {
	clock := errand.Clock(time.Now)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	// Keys: one secret, one key a purpose.
	sealer, err := newSealer(cfg)
	if err != nil {
		return nil, err
	}
	if err := db.CheckSeals(ctx, sealer); err != nil {
		return nil, err
	}
	tokens, err := newTokenKeys(cfg)
	if err != nil {
		return nil, err
	}

	// What stands alone: the policy of a run's life, the prices, the scrubber, GitHub.
	policy, err := transitions.RunPolicy()
	if err != nil {
		return nil, err
	}
	prices, err := pricing.Shipped()
	if err != nil {
		return nil, err
	}
	gh, apps, err := newGitHub(db, sealer, cfg)
	if err != nil {
		return nil, err
	}
	lives := runs.New(policy, clock)

	// Features.
	hooks, err := webhooks.New(webhooks.Config{
		Store: db.Store, Sealer: sealer, Scrubber: scrub.New(), Clock: clock, Logger: cfg.Log, Metrics: metrics,
	})
	if err != nil {
		return nil, err
	}
	disp, err := dispatch.New(dispatch.Config{
		Store: db.Store, Runs: lives, GitHub: gh, Tickets: tokens, Clock: clock, Logger: cfg.Log, Metrics: metrics, SearchFor: cfg.SearchFor,
		WebhookSecret: apps.WebhookSecret, AllowExtraPermissions: cfg.AllowExtraPermissions,
	})
	if err != nil {
		return nil, err
	}
	identity, web, err := newIdentity(cfg)
	if err != nil {
		return nil, err
	}
	own, err := runnerapi.New(runnerapi.Config{
		Store: db.Store, Runs: lives, Keys: tokens, Catalogue: prices, IDTokens: identity, GitHub: proof{gh}, PublicURL: cfg.PublicURL, WebURL: web,
		Problem: func(err error) error { return server.ToProblem(err) }, Clock: clock, Logger: cfg.Log, Metrics: metrics,
	})
	if err != nil {
		return nil, err
	}
	people, err := access.New(access.Config{Store: db.Store, Clock: clock, PublicURL: cfg.PublicURL, Logger: cfg.Log})
	if err != nil {
		return nil, err
	}

	mappings := dispatch.NewAPI(dispatch.APIConfig{
		Dispatch: disp, Payloads: hooks, Caller: sessionCaller(people), Problem: func(err error) error { return server.ToProblem(err) },
	})

	// Faces, and the server that carries them.
	pages, err := newPages(cfg, console.Config{Store: db.Store, Access: people, Actions: disp, Clock: clock, Logger: cfg.Log, Version: version}, disp, apps, gh)
	if err != nil {
		return nil, err
	}
	a := &app{log: cfg.Log, db: db, metrics: metrics, runs: lives, dispatch: disp, hooks: hooks, access: people, ready: &readiness{db: db}, drain: cfg.Drain, workers: river.NewWorkers()}
	disp.AddWorkers(a.workers)
	e := server.New(server.Config{
		Log: cfg.Log, Clock: clock, Version: version, Metrics: metrics, Ready: a.ready.check,
		Pages: []server.Mounter{hooks, disp, pages}, Operations: []server.Registrar{own, mappings}, TrustedProxies: cfg.TrustedProxies,
	})
	// A browser gets an error as a page, everybody else as a problem.
	e.HTTPErrorHandler = pages.ErrorHandler(func(err error) console.Problem {
		p := server.ToProblem(err)
		return console.Problem{Status: p.Status, Title: p.Title, Detail: p.Detail, Hint: p.Hint}
	}, e.HTTPErrorHandler)
	a.handler = e
	return a, nil
}

func newSealer(cfg appConfig) (*store.Sealer, error) {
	var old [][]byte
	for _, m := range cfg.PreviousMasters {
		old = append(old, derived(m, "seal"))
	}
	return store.NewSealer(derived(cfg.Master, "seal"), old...)
}

func newTokenKeys(cfg appConfig) (*runtoken.Keys, error) {
	var old []runtoken.Key
	for _, m := range cfg.PreviousMasters {
		old = append(old, derived(m, "run tokens"))
	}
	return runtoken.NewKeys(derived(cfg.Master, "run tokens"), old...)
}

// serve answers on the listener and works jobs until ctx ends; then it says that it is not ready, goes on taking requests for
// the time that a proxy needs to notice, finishes what is under way, and returns nil. A database that goes away for good is
// an error.
func (a *app) serve(ctx context.Context, listener net.Listener) (err error) {
	stopJobs, err := a.db.Work(context.WithoutCancel(ctx), store.WorkConfig{
		Workers: a.workers, MaxWorkers: 20, SweepEvery: 5 * time.Second, OnDiscard: a.dispatch.OnDiscard,
	})
	if err != nil {
		return err
	}
	defer a.count(ctx)()
	srv := &http.Server{
		Handler: a.ready.closing(a.handler), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 60 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	a.ready.set(true)

	cause := a.ended(ctx.Done(), served)
	a.ready.set(false)
	if cause == nil && a.drain > 0 {
		a.log.InfoContext(ctx, "not ready any more; requests are still taken", "drain_ms", a.drain.Milliseconds())
		drained, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.drain)
		cause = a.ended(drained.Done(), served)
		cancel()
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		cause = errors.Join(cause, fmt.Errorf("finish the requests under way: %w", err))
	}
	if err := a.hooks.Close(stop); err != nil {
		cause = errors.Join(cause, err)
	}
	if err := stopJobs(stop); err != nil && cause == nil {
		cause = fmt.Errorf("finish the jobs under way: %w", err)
	}
	return cause
}

// count writes the counts of sources while requests come; what it gives writes the last of them and returns.
func (a *app) count(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.hooks.RunCounts(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// ended waits for done, or gives the reason why serving has ended before it.
func (a *app) ended(done <-chan struct{}, served <-chan error) error {
	select {
	case <-done:
		return nil
	case err := <-served:
		return err
	case <-a.db.gone():
		return errors.New("the embedded PostgreSQL ended; the log holds its last words")
	}
}
