package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/getsentry/sentry-go"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/server"
)

// reportFlags say where Errand's own errors are told, beside the log.
type reportFlags struct {
	SentryDSN string `name:"sentry-dsn" env:"ERRAND_SENTRY_DSN" placeholder:"URL" help:"A Sentry that is told of Errand's own errors, scrubbed. Empty: nobody is."`
}

func (f reportFlags) check() error {
	if f.SentryDSN == "" {
		return nil
	}
	dsn, err := sentry.NewDsn(f.SentryDSN)
	if err != nil || !strings.HasPrefix(f.SentryDSN, "https://") && !isLoopback(dsn.GetHost()) {
		return errand.Invalid("ERRAND_SENTRY_DSN", "is not a DSN: set it to the https://KEY@HOST/PROJECT of the project's settings page (Client Keys)")
	}
	return nil
}

// reporter tells a Sentry of what the log holds at ERROR: Errand's faults, panics among them. What leaves is the line and
// its attributes, scrubbed; never a request, a person, a host name, a source line or one of our own secrets.
type reporter struct {
	client  *sentry.Client
	scrub   *scrub.Scrubber
	secrets []string // our own, taken out wherever they stand
}

func newReporter(dsn string, secrets []string) (*reporter, error) {
	r := &reporter{scrub: scrub.New(), secrets: slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return s == "" })}
	var err error
	r.client, err = sentry.NewClient(sentry.ClientOptions{
		Dsn: dsn, Release: "errand@" + version, BeforeSend: r.clean,
		Integrations: func([]sentry.Integration) []sentry.Integration { return nil }, // they list modules and describe the machine
	})
	return r, err
}

// close sends what waits, for two seconds at most.
func (r *reporter) close() {
	r.client.Flush(2 * time.Second)
	r.client.Close()
}

// clean is the last thing that an event passes. It keeps what is listed here and drops every other part, so that a part
// which a later version of the library fills in does not leave.
func (r *reporter) clean(e *sentry.Event, _ *sentry.EventHint) *sentry.Event {
	kept := sentry.Event{
		EventID: e.EventID, Timestamp: e.Timestamp, Level: e.Level, Platform: e.Platform, Release: e.Release, Sdk: e.Sdk, Logger: e.Logger,
		Message: r.text(e.Message), Contexts: map[string]sentry.Context{},
	}
	for _, x := range e.Exception {
		kept.Exception = append(kept.Exception, sentry.Exception{Type: r.text(x.Type), Value: r.text(x.Value)})
	}
	for name, values := range e.Contexts {
		c := sentry.Context{}
		for k, v := range values {
			if s, ok := v.(string); ok {
				c[k] = r.value(k, s)
			}
		}
		kept.Contexts[name] = c
	}
	*e = kept
	return e
}

// value cleans an attribute. Its name counts: a rule may know a password by what stands before it.
func (r *reporter) value(name, s string) string {
	cleaned, ok := strings.CutPrefix(r.text(name+"="+s), name+"=")
	if !ok {
		return ""
	}
	return cleaned
}

func (r *reporter) text(s string) string {
	for _, secret := range r.secrets {
		s = strings.ReplaceAll(s, secret, "[removed: secret]")
	}
	s, _ = r.scrub.Text("", scrub.Sanitise(s, 16<<10))
	return s
}

// reporting passes each record on, and tells the reporter of those at ERROR.
type reporting struct {
	slog.Handler
	to    *reporter
	attrs []slog.Attr
}

// Handle tells of every error once: the line that sums up a failed request comes after the one that says why.
func (h reporting) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Level >= slog.LevelError && rec.Message != server.SummaryLine {
		e := sentry.NewEvent()
		e.Level, e.Logger, e.Message = sentry.LevelError, "errand", rec.Message
		values := sentry.Context{}
		take := func(a slog.Attr) bool {
			s := a.Value.Resolve().String()
			if a.Key == "error" {
				e.Exception = []sentry.Exception{{Type: rec.Message, Value: s}}
			} else {
				values[a.Key] = s
			}
			return true
		}
		for _, a := range h.attrs {
			take(a)
		}
		rec.Attrs(take)
		e.Contexts["log"] = values
		h.to.client.CaptureEvent(e, &sentry.EventHint{}, nil)
	}
	return h.Handler.Handle(ctx, rec)
}

// WithAttrs keeps the attributes for both.
func (h reporting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return reporting{Handler: h.Handler.WithAttrs(attrs), to: h.to, attrs: slices.Concat(h.attrs, attrs)}
}

// WithGroup keeps the group for the log only: the report's attributes are flat.
func (h reporting) WithGroup(name string) slog.Handler {
	return reporting{Handler: h.Handler.WithGroup(name), to: h.to, attrs: h.attrs}
}

// secrets lists the settings that no report may hold.
func (c serveCmd) secrets() []string {
	list := append([]string{c.SecretKey}, c.PreviousSecretKey...)
	if secret, err := c.webhookSecret(); err == nil && len(secret) > 0 {
		list = append(list, string(secret))
	}
	for _, address := range []string{c.DatabaseURL, c.DatabaseOwnerURL} {
		if cfg, err := pgxpool.ParseConfig(address); err == nil && address != "" {
			list = append(list, cfg.ConnConfig.Password)
		}
	}
	return list
}
