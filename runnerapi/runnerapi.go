// Package runnerapi is the run's own endpoint, /runner/v1: what a runner in a customer's workflow says to the control plane.
// Exchange turns the one-time ticket into a run token; start, progress, claim and result are called with that token, which
// names its run: there is no run id in a request that could be another's.
//
// Every call takes the run's row lock first and does all it does in that one transaction, so two calls of one run, or a call
// and a cancellation, are one after the other. All of them can be repeated: the same body has the same effect once.
//
// It imports the root, store, runs, runtoken, pricing, transitions, journal, wire and scrub. Start reading at API.Register,
// then in the order of a run's life: exchange.go, start.go, progress.go, claim.go, result.go.
package runnerapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/pricing"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/wire"
)

const (
	// TokenTTL is how long a run token lives, from the first exchange on. A job may take 25 minutes.
	TokenTTL = 30 * time.Minute
	// SameExchange is how long the same exchange, with its own nonce, gets the same answer.
	SameExchange = time.Minute
	// PathsHeld is how long a pull request without news holds the paths that it changes.
	PathsHeld = 14 * 24 * time.Hour

	maxBody = 1 << 20
)

// DefaultLimits bound a run for which nobody set others.
var defaultLimits = wire.Limits{ToolCalls: 30, WallSeconds: 1200, OutputTokens: 200_000, MaxFiles: wire.RunFiles, MaxChangedLines: wire.RunLines}

// Config is what the endpoint is made of.
type Config struct {
	Store     *store.Store
	Runs      *runs.Runs
	Keys      *runtoken.Keys
	Catalogue *pricing.Catalogue
	IDTokens  IDTokens
	GitHub    GitHub
	PublicURL string      // of the console: scheme and host
	WebURL    string      // where the pages of this deployment's GitHub are: scheme and host, such as https://github.com
	Limits    wire.Limits // the zero value is the default; otherwise each of them is at least 1
	// Problem turns an error into one that huma answers with the right status (server.ToProblem).
	Problem func(error) error
	Clock   errand.Clock          // nil = time.Now
	Logger  *slog.Logger          // nil = silent
	Metrics prometheus.Registerer // nil = counted for nobody
}

// API is the endpoint.
type API struct {
	store     *store.Store
	runs      *runs.Runs
	keys      *runtoken.Keys
	catalogue *pricing.Catalogue
	idTokens  IDTokens
	github    GitHub
	publicURL string
	webURL    *url.URL
	limits    wire.Limits
	problem   func(error) error
	clock     errand.Clock
	log       *slog.Logger
	count     counters
}

// New returns Invalid for a limit below 1, for an address that is none, and where nobody could check an ID token.
func New(cfg Config) (*API, error) {
	if cfg.Limits == (wire.Limits{}) {
		cfg.Limits = defaultLimits
	}
	for name, v := range map[string]int{
		"tool_calls": cfg.Limits.ToolCalls, "wall_seconds": cfg.Limits.WallSeconds, "output_tokens": cfg.Limits.OutputTokens,
		"max_files": cfg.Limits.MaxFiles, "max_changed_lines": cfg.Limits.MaxChangedLines,
	} {
		if v < 1 {
			return nil, errand.Invalid("limits."+name, "is %d: want at least 1; there is no run without limits", v)
		}
	}
	if u, err := url.Parse(cfg.PublicURL); err != nil || u.Host == "" {
		return nil, errand.Invalid("ERRAND_PUBLIC_URL", "%q is not an address: want something like https://errand.example.com", cfg.PublicURL)
	}
	web, err := url.Parse(cfg.WebURL)
	if err != nil || web.Host == "" || web.Path != "" {
		return nil, errand.Invalid("web_url", "%q is not where GitHub's pages are: want something like https://github.com", cfg.WebURL)
	}
	if cfg.IDTokens == nil || cfg.GitHub == nil {
		return nil, errand.Invalid("id_tokens", "nobody checks ID tokens: without that an exchange rests on its ticket alone")
	}
	a := &API{
		store: cfg.Store, runs: cfg.Runs, keys: cfg.Keys, catalogue: cfg.Catalogue, idTokens: cfg.IDTokens, github: cfg.GitHub, webURL: web, publicURL: strings.TrimRight(cfg.PublicURL, "/"),
		limits: cfg.Limits, problem: cfg.Problem, clock: cfg.Clock, log: cfg.Logger, count: newCounters(),
	}
	if a.clock == nil {
		a.clock = time.Now
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(a.count.refused, a.count.alarms, a.count.unpriced, a.count.late)
	}
	return a, nil
}

type counters struct {
	refused  *prometheus.CounterVec
	alarms   prometheus.Counter
	unpriced *prometheus.CounterVec
	late     prometheus.Counter
}

func newCounters() counters {
	return counters{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "errand_runner_refused_total", Help: "Calls under /runner/v1 whose ticket or token was refused, by reason.",
		}, []string{"reason"}),
		alarms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "errand_ticket_reused_total", Help: "Tickets that somebody tried to use a second time.",
		}),
		unpriced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "errand_unpriced_requests_total", Help: "Model requests that have no price, by provider.",
		}, []string{"provider"}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "errand_late_results_total", Help: "Results that came after their run had ended by other means.",
		}),
	}
}

const tokenScheme = "runToken"

// Register adds the operations and says what they are for in the API's description.
func (a *API) Register(api huma.API) {
	components := api.OpenAPI().Components
	if components.SecuritySchemes == nil {
		components.SecuritySchemes = map[string]*huma.SecurityScheme{}
	}
	components.SecuritySchemes[tokenScheme] = &huma.SecurityScheme{
		Type: "http", Scheme: "bearer", Description: "A run token, as /runner/v1/exchange gives it: for one run, 30 minutes, dead when the run has ended.",
	}
	huma.Register(api, operation("exchange", "Exchange a ticket, or GitHub's ID token of the job, for the run token",
		"The first exchange counts. The same exchange, repeated with its nonce within 60 seconds, gets the same answer; any other use of a used ticket is refused. "+
			"With an ID token (`id-token: write`, audience: this server's address) each job of a split workflow exchanges for its own role; where the organisation asks for it, and in public repositories, a ticket alone is refused."),
		open(a, "exchange", a.exchange))

	token := func(op huma.Operation) huma.Operation {
		op.Security = []map[string][]string{{tokenScheme: {}}}
		op.Middlewares = huma.Middlewares{a.authenticated(path.Base(op.Path))}
		return op
	}
	huma.Register(api, token(operation("start", "Fetch the errand",
		"Moves the run into `running` and answers the error, the repository and the limits. Repeated while the run is running, it answers the same.")),
		withToken(a, "start", a.start))
	huma.Register(api, token(operation("progress", "Report steps and token counts",
		"Idempotent by the lines' sequence numbers; also the heartbeat. Answers whether to stop.")),
		withToken(a, "progress", a.progress))
	huma.Register(api, token(operation("claim", "Report what the claim check found",
		"Answers what may happen next: `admitted`, `correct`, `rejected` or `blocked`.")),
		withToken(a, "claim", a.claim))
	huma.Register(api, token(operation("result", "Report the end",
		"Validated whole before it changes anything. The same body again is answered the same; another one is a conflict.")),
		withToken(a, "result", a.result))
}

func operation(call, summary, description string) huma.Operation {
	return huma.Operation{
		OperationID: "runner-" + call, Method: http.MethodPost, Path: "/runner/v1/" + call, DefaultStatus: http.StatusOK,
		Summary: summary, Description: description, Tags: []string{"Runner"}, MaxBodyBytes: maxBody,
		Errors: []int{http.StatusUnauthorized, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}
}

// input and output are the shape that huma wants.
type (
	input[T any]  struct{ Body T }
	output[T any] struct{ Body T }
)

// open adapts a call that needs no token.
func open[In, Out any](a *API, call string, fn func(context.Context, In) (Out, error)) func(context.Context, *input[In]) (*output[Out], error) {
	return func(ctx context.Context, in *input[In]) (*output[Out], error) {
		out, err := fn(ctx, in.Body)
		if err != nil {
			return nil, a.answer(ctx, call, err)
		}
		return &output[Out]{Body: out}, nil
	}
}

// withToken adapts a call of the run that the request's token names.
func withToken[In, Out any](a *API, call string, fn func(context.Context, runtoken.Token, In) (Out, error)) func(context.Context, *input[In]) (*output[Out], error) {
	return open(a, call, func(ctx context.Context, in In) (out Out, err error) {
		token, ok := ctx.Value(tokenKey{}).(runtoken.Token)
		if !ok {
			return out, a.refuse(ctx, missing)
		}
		return fn(ctx, token, in)
	})
}
