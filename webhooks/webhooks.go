// Package webhooks takes deliveries of error trackers: it verifies the signature over the bytes as they came, parses,
// normalises and scrubs, and makes the delivery durable before it is acknowledged. It also creates sources and rotates
// their secrets.
//
// It imports the root, store and scrub. Start reading at Webhooks.receive (receive.go), which holds the order of things;
// then provider, the interface that a kind of tracker is made of (sentry.go, generic.go), normalise.go for
// what is kept of an event, writer.go for how deliveries share commits, and persist.go for what is written.
package webhooks

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
)

// MaxBody is the largest body that is taken, in bytes.
const MaxBody = 1 << 20

// Config is what deliveries need.
type Config struct {
	Store    *store.Store
	Sealer   *store.Sealer
	Scrubber *scrub.Scrubber
	Clock    errand.Clock
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // nil = none are kept
}

// Webhooks takes deliveries and holds the use cases of sources.
type Webhooks struct {
	store    *store.Store
	sealer   *store.Sealer
	scrubber *scrub.Scrubber
	clock    errand.Clock
	log      *slog.Logger
	kinds    map[string]provider
	count    counters
	tally    *tally
	writer   *writer
	sources  *lookups
}

type counters struct {
	deliveries *prometheus.CounterVec
	unsigned   *prometheus.CounterVec
	lost       *prometheus.CounterVec
	stages     *prometheus.HistogramVec
}

// provider is a kind of tracker. A further kind is one file with these methods and one line in providers.
type provider interface {
	// Verify returns nil when body, as it was received, was signed with secret. A missing header and an empty secret are
	// failures. Its error is shown to the sender: it says what did not hold and never what would have.
	Verify(h http.Header, body, secret []byte, now time.Time) error
	// Parse reads an authentic, non-empty body. Resource, action and request id are filled even when it fails, and an
	// error names the field at fault.
	Parse(h http.Header, body []byte, now time.Time) (parsed, error)
	// Secret checks the secret that a person gives, or makes one when given is "".
	Secret(given string) (string, error)
	// Hint says what to set up when a delivery did not verify. It may look at the body's outline and trusts none of it.
	Hint(h http.Header, body []byte) string
}

// providers is the one place that knows every kind.
func providers() map[string]provider {
	return map[string]provider{
		"sentry":         sentry{},
		"posthog":        posthog{},
		"posthog_header": posthogHeader{},
		"generic":        generic{},
	}
}

// New makes the feature and registers its metrics.
func New(cfg Config) (*Webhooks, error) {
	w := &Webhooks{
		store: cfg.Store, sealer: cfg.Sealer, scrubber: cfg.Scrubber, clock: cfg.Clock, log: cfg.Logger, kinds: providers(),
		count: counters{
			deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "errand_deliveries_total", Help: "Authentic deliveries that were answered, by kind of source and outcome.",
			}, []string{"kind", "outcome"}),
			unsigned: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "errand_delivery_signature_failures_total", Help: "Deliveries to a known source whose signature did not verify, by kind of source.",
			}, []string{"kind"}),
			lost: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "errand_delivery_persist_failures_total", Help: "Authentic deliveries that could not be stored and were answered 503, by kind of source.",
			}, []string{"kind"}),
		},
	}
	w.count.stages = newStages()
	w.tally = newTally()
	if cfg.Store == nil || cfg.Sealer == nil || cfg.Scrubber == nil || cfg.Clock == nil || cfg.Logger == nil {
		return nil, errand.Errorf(errand.CodeInternal, nil, "webhooks: a part of the configuration is missing")
	}
	w.writer, w.sources = newWriter(w.persist), newLookups(cfg.Store.LookupSources)
	if cfg.Metrics != nil {
		for _, c := range append(w.tally.collectors(), w.count.deliveries, w.count.unsigned, w.count.lost, w.count.stages, w.writer.sizes) {
			if err := cfg.Metrics.Register(c); err != nil {
				return nil, errand.Errorf(errand.CodeInternal, err, "webhooks: metrics")
			}
		}
	}
	return w, nil
}

// Close takes no more deliveries and returns when those that were taken are stored or refused, or when ctx ends. What was
// acknowledged is stored without it.
func (w *Webhooks) Close(ctx context.Context) error { return w.writer.close(ctx) }

// Mount puts the endpoint of sources on the app.
func (w *Webhooks) Mount(e *echo.Echo) {
	e.POST("/hooks/:source", w.receive)
	// The same for every address, so that it tells nobody which of them exist.
	e.GET("/hooks/:source", func(c echo.Context) error {
		return c.String(http.StatusOK, "This is a webhook endpoint of Errand: an error tracker posts JSON here, and there is nothing to see in a browser.\n")
	})
}

// publicIDForm is the form of a source's public id: 26 letters and digits of base 32, 130 random bits.
var publicIDForm = regexp.MustCompile(`^[a-z2-7]{26}$`)
