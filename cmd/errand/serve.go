package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/server"
	"github.com/errand-dev/errand/store"
)

type serveCmd struct {
	Listen         string   `name:"listen" env:"ERRAND_LISTEN" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where the server listens."`
	MetricsListen  string   `name:"metrics-listen" env:"ERRAND_METRICS_LISTEN" default:"127.0.0.1:9464" placeholder:"HOST:PORT" help:"Where Prometheus metrics are served, apart from the rest; empty: nowhere."`
	PublicURL      string   `name:"public-url" env:"ERRAND_PUBLIC_URL" placeholder:"URL" help:"Address under which trackers, runners and people reach this server."`
	TrustedProxies []string `name:"trusted-proxies" env:"ERRAND_TRUSTED_PROXIES" placeholder:"CIDR,..." help:"Networks whose X-Forwarded-For is believed."`
	Organisation   string   `name:"organisation" env:"ERRAND_ORGANISATION" default:"default" placeholder:"SLUG" help:"Organisation made at the first start, with an owner who gets a sign-in link."`
	OIDCIssuer     string   `name:"oidc-issuer" env:"ERRAND_OIDC_ISSUER" placeholder:"URL" help:"Issuer of GitHub's ID tokens. Empty: the one that goes with --github-api-url; set it where your enterprise has an issuer of its own."`
	Drain          string   `name:"drain" env:"ERRAND_DRAIN" default:"0s" placeholder:"DURATION" help:"After the signal to stop, how long requests are still taken while /readyz says 503: as long as a proxy needs to notice."`
	databaseFlags
	secretFlags
	githubFlags
	hookFlags
	reportFlags
	logFlags
}

// gcPercent trades memory for time: taking deliveries leaves much garbage and little else (docs/performance.md). GOGC overrides it.
const gcPercent = 400

func (c serveCmd) Run(ctx context.Context) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	log := c.logger(os.Stderr)
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if c.SentryDSN != "" {
		r, err := newReporter(c.SentryDSN, c.secrets())
		if err != nil {
			return errand.Invalid("ERRAND_SENTRY_DSN", "is not taken by Sentry's library: copy it again from the project's settings page (Client Keys)")
		}
		defer r.close()
		log = slog.New(reporting{Handler: log.Handler(), to: r})
	}
	cfg.Log, cfg.GitHub.Logger = log, log
	// The port first: a second server on this machine fails before it touches anything.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("ERRAND_LISTEN: %w", err)
	}
	defer listener.Close()
	db, err := c.open(ctx, log, false)
	if err != nil {
		return err
	}
	a, err := newApp(ctx, db, cfg)
	if err != nil {
		return errors.Join(err, db.close())
	}
	stopMetrics, err := serveMetrics(ctx, c.MetricsListen, a)
	if err != nil {
		return errors.Join(err, db.close())
	}
	if err := c.welcome(ctx, a); err != nil {
		return errors.Join(err, db.close())
	}
	log.InfoContext(ctx, "serving", "listen", listener.Addr().String(), "public_url", cfg.PublicURL, "version", version)
	err = a.serve(ctx, listener)
	return errors.Join(err, stopMetrics(), db.close())
}

// config checks every setting and tells all that is wrong with them at once.
func (c serveCmd) config() (appConfig, error) {
	var cfg appConfig
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	var err error
	cfg.PublicURL, err = publicURL(c.PublicURL)
	keep(err)
	cfg.Master, cfg.PreviousMasters, err = c.masters()
	keep(err)
	cfg.GitHub, err = c.serverConfig()
	keep(err)
	cfg.WebhookSecret, err = c.webhookSecret()
	keep(err)
	cfg.AllowExtraPermissions = c.AllowExtraPermissions
	keep(checkAddress("ERRAND_LISTEN", c.Listen))
	if c.MetricsListen != "" {
		keep(checkAddress("ERRAND_METRICS_LISTEN", c.MetricsListen))
	}
	cfg.TrustedProxies, err = parseProxies(c.TrustedProxies)
	keep(err)
	keep(checkIssuer(c.OIDCIssuer))
	cfg.OIDCIssuer = c.OIDCIssuer
	keep(checkSlug(c.Organisation))
	cfg.Drain, err = parseDrain(c.Drain)
	keep(err)
	keep(c.databaseFlags.check())
	keep(c.reportFlags.check())
	keep(c.logFlags.check())
	return cfg, errors.Join(errs...)
}

// welcome makes the first organisation, and prints the link by which its owner signs in.
func (c serveCmd) welcome(ctx context.Context, a *app) error {
	_, err := a.db.LookupOrganisation(ctx, c.Organisation)
	if err == nil {
		return nil
	}
	org, person, err := a.access.Bootstrap(ctx, c.Organisation, c.Organisation, "Operator")
	if err != nil {
		return err
	}
	link, err := a.access.NewSignInLink(ctx, org, person)
	if err != nil {
		return err
	}
	fmt.Printf("Sign in once, within 15 minutes:\n  %s\nAnother link: errand admin sign-in-link\n", link)
	return nil
}

func serveMetrics(ctx context.Context, addr string, a *app) (stop func() error, err error) {
	if addr == "" {
		return func() error { return nil }, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("ERRAND_METRICS_LISTEN: %w", err)
	}
	srv := &http.Server{Handler: server.MetricsHandler(a.metrics), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = srv.Serve(l) }() // ends with Close
	return srv.Close, nil
}

type migrateCmd struct {
	DatabaseOwnerURL string `name:"database-owner-url" env:"ERRAND_DATABASE_OWNER_URL" placeholder:"URL" help:"The database as its owner."`
}

func (c migrateCmd) Run(ctx context.Context) error {
	if c.DatabaseOwnerURL == "" {
		return errand.Invalid("ERRAND_DATABASE_OWNER_URL", "is not set: give the database's address as its owner, postgres://errand_owner:PASSWORD@HOST:5432/DATABASE")
	}
	if err := checkDatabaseURL("ERRAND_DATABASE_OWNER_URL", c.DatabaseOwnerURL); err != nil {
		return err
	}
	if err := store.Migrate(ctx, c.DatabaseOwnerURL, time.Now()); err != nil {
		return err
	}
	fmt.Println("the database is up to date")
	return nil
}

type healthCmd struct {
	URL    string `name:"url" env:"ERRAND_HEALTH_URL" placeholder:"URL" help:"What to ask. Empty: /readyz of the server that listens on --listen."`
	Listen string `name:"listen" env:"ERRAND_LISTEN" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where the server listens."`
}

func (c healthCmd) Run(ctx context.Context) error {
	if c.URL == "" {
		if err := checkAddress("ERRAND_LISTEN", c.Listen); err != nil {
			return err
		}
		c.URL = readyURL(c.Listen)
	}
	if err := c.ask(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	return nil
}

// readyURL is where the server that listens there answers on this machine.
func readyURL(listen string) string {
	host, port, _ := net.SplitHostPort(listen) // checked before
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/readyz"
}

func (c healthCmd) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", c.URL, resp.Status)
	}
	return nil
}
