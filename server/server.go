// Package server is the HTTP app: middleware, health, metrics, the OpenAPI description, and the one place where an error
// becomes an answer (problem.go). It mounts what stands below it and decides nothing. Start reading at New.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humaecho"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/errand-dev/errand"
)

// Mounter puts plain routes (hooks, pages) on the app.
type Mounter interface{ Mount(*echo.Echo) }

// Registrar adds operations to the described API (/runner/v1, /api/v1).
type Registrar interface{ Register(huma.API) }

// Config is what the app is made of.
type Config struct {
	Log     *slog.Logger
	Clock   errand.Clock
	Version string
	Metrics *prometheus.Registry
	// Ready is asked by /readyz: nil means that deliveries can be taken now.
	Ready      func(context.Context) error
	Pages      []Mounter
	Operations []Registrar
	// TrustedProxies may say in X-Forwarded-For who the client is. Empty: nobody may, and the peer's address counts.
	TrustedProxies []*net.IPNet
}

// New builds the app.
func New(cfg Config) *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = ErrorHandler(cfg.Log)
	e.IPExtractor = echo.ExtractIPDirect()
	if len(cfg.TrustedProxies) > 0 {
		opts := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
		for _, n := range cfg.TrustedProxies {
			opts = append(opts, echo.TrustIPRange(n))
		}
		e.IPExtractor = echo.ExtractIPFromXFFHeader(opts...)
	}
	requests := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "errand_http_request_seconds", Help: "Time to answer a request, by route and status.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
	}, []string{"method", "route", "status"})
	cfg.Metrics.MustRegister(requests)
	e.Use(summary(cfg, requests), recovered(), secured)

	e.GET("/healthz", func(c echo.Context) error { return c.String(http.StatusOK, "ok\n") })
	e.GET("/readyz", readyz(cfg))
	for _, p := range cfg.Pages {
		p.Mount(e)
	}
	api := humaecho.New(e, describe(cfg.Version))
	for _, o := range cfg.Operations {
		o.Register(api)
	}
	return e
}

// ErrNotServing is what Config.Ready answers before and after the time of serving.
var ErrNotServing = errors.New("starting or stopping")

// readyz answers whether deliveries can be taken. That they cannot is no failed request: it is logged with its cause when
// nobody has meant it so.
func readyz(cfg Config) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), 2*time.Second)
		defer cancel()
		err := cfg.Ready(ctx)
		if err == nil {
			return c.String(http.StatusOK, "ready\n")
		}
		if !errors.Is(err, ErrNotServing) && c.Request().Context().Err() == nil {
			cfg.Log.LogAttrs(ctx, slog.LevelWarn, "not ready", slog.String("error", err.Error()))
		}
		p := ToProblem(errand.Errorf(errand.CodeUnavailable, err, "not ready"))
		c.Response().Header().Set("Retry-After", "5")
		c.Response().Header().Set(echo.HeaderContentType, ProblemType)
		return c.JSON(p.Status, p)
	}
}

func describe(version string) huma.Config {
	c := huma.DefaultConfig("Errand", version)
	c.OpenAPIPath = "/api/openapi"
	c.DocsPath = "" // its page would load scripts from elsewhere
	c.SchemasPath = "/api/schemas"
	c.CreateHooks = nil // no $schema links in answers
	c.Transformers = append(c.Transformers, asProblem)
	return c
}

// MetricsHandler serves the registry. It listens apart from the app, because what it tells is the operator's.
func MetricsHandler(reg *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	return mux
}

// SummaryLine is the message of the one line that each request leaves in the log.
const SummaryLine = "request"

// summary gives each request an id, and when it is answered one line in the log and one observation.
func summary(cfg Config, requests *prometheus.HistogramVec) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			start := cfg.Clock()
			id := string(errand.NewID(start))
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), requestIDKey{}, id)))
			c.Response().Header().Set("X-Request-Id", id)
			err := next(c)
			if err != nil {
				c.Error(err)
			}
			took := cfg.Clock().Sub(start)
			route := c.Path()
			if route == "" {
				route = "none"
			}
			status := c.Response().Status
			requests.WithLabelValues(c.Request().Method, route, strconv.Itoa(status)).Observe(took.Seconds())
			level := slog.LevelInfo
			switch {
			case route == "/healthz" || route == "/readyz":
				level = slog.LevelDebug
			case status >= 500:
				level = slog.LevelError
			case c.Request().Method == http.MethodGet:
				level = slog.LevelDebug
			}
			cfg.Log.LogAttrs(c.Request().Context(), level, SummaryLine,
				slog.String("request", id), slog.String("method", c.Request().Method), slog.String("route", route),
				slog.Int("status", status), slog.Float64("took_ms", float64(took.Microseconds())/1000), slog.Int64("bytes_out", c.Response().Size), slog.String("problem", problemOf(err)))
			return nil
		}
	}
}

func problemOf(err error) string {
	if err == nil {
		return ""
	}
	return string(errand.CodeOf(err))
}

// recovered turns a panic into an internal error that is answered and logged as every other one.
func recovered() echo.MiddlewareFunc {
	return middleware.RecoverWithConfig(middleware.RecoverConfig{
		StackSize: 8 << 10, DisablePrintStack: true, DisableErrorHandler: true,
		LogErrorFunc: func(_ echo.Context, err error, stack []byte) error {
			return errand.Errorf(errand.CodeInternal, errors.New(err.Error()+"\n"+string(stack)), "")
		},
	})
}

func secured(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		return next(c)
	}
}
