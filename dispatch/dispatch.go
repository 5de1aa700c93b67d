// Package dispatch decides whether an error is worth a run, starts the workflow in the customer's repository, and watches
// it to its end. Deciding is pure: Decide and the mapping below it (mapping.go, path.go) are functions of their inputs.
// Around it stand the jobs: consider.go (decide and create the run, in one transaction), start.go (the call to GitHub, of
// which at most one takes effect), reconcile.go (what became of a run that fell silent), cancel.go.
//
// It imports the root, store, github, runs and journal. Start reading at Decide, then Dispatch.AddWorkers.
package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
)

// Workflows is what dispatch asks of GitHub about workflow runs. *github.App is one.
type Workflows interface {
	Dispatch(ctx context.Context, t github.Target, inputs map[string]string) github.Dispatched
	FindRuns(ctx context.Context, t github.Target, marker string, since time.Time) ([]github.WorkflowRun, error)
	Run(ctx context.Context, t github.Target, id int64) (github.WorkflowRun, error)
	Cancel(ctx context.Context, t github.Target, id int64) error
	ServerTime() time.Time
}

// Installations is what dispatch asks of GitHub about installations and what they reach.
type Installations interface {
	CheckInstallation(ctx context.Context, id int64) (github.InstallationCheck, error)
	Repositories(ctx context.Context, installationID int64) ([]github.Repo, error)
	Repository(ctx context.Context, installationID, repositoryID int64) (github.Repo, error)
}

// GitHub is both.
type GitHub interface {
	Workflows
	Installations
}

// Tickets makes the one-time ticket that a workflow carries (runtoken.Keys).
type Tickets interface {
	Ticket(run errand.ID, attempt int, expires time.Time) (string, error)
}

// Config is what dispatch is made of.
type Config struct {
	Store   *store.Store
	Runs    *runs.Runs
	GitHub  GitHub
	Tickets Tickets
	Clock   errand.Clock          // nil = time.Now
	Logger  *slog.Logger          // nil = silent
	Metrics prometheus.Registerer // nil = counted for nobody
	// SearchFor is how long the run's marker is looked for after a dispatch without a clear answer; 0 = 20 s.
	SearchFor time.Duration
	// KeepDeliveries is how long the log of deliveries is kept; 0 = 30 days.
	KeepDeliveries time.Duration
	// WebhookSecret is asked for at each delivery of GitHub's; nil, or an empty secret: none is taken.
	WebhookSecret func(context.Context) ([]byte, error)
	// AllowExtraPermissions: dispatch although an installation grants more than Errand may hold. The operator says so.
	AllowExtraPermissions bool
}

// Dispatch is the feature. It is safe for concurrent use; everything that must not be forgotten is in the store.
type Dispatch struct {
	store     *store.Store
	runs      *runs.Runs
	github    GitHub
	tickets   Tickets
	clock     errand.Clock
	log       *slog.Logger
	searchFor time.Duration
	keep      time.Duration
	count     counters

	webhookSecret func(context.Context) ([]byte, error)
	allowExtra    bool
}

// New returns Invalid for a negative duration.
func New(cfg Config) (*Dispatch, error) {
	if cfg.SearchFor < 0 || cfg.KeepDeliveries < 0 {
		return nil, errand.Invalid("dispatch", "a duration below zero")
	}
	d := &Dispatch{
		store: cfg.Store, runs: cfg.Runs, github: cfg.GitHub, tickets: cfg.Tickets, clock: cfg.Clock, log: cfg.Logger,
		searchFor: cfg.SearchFor, keep: cfg.KeepDeliveries, count: newCounters(),
		webhookSecret: cfg.WebhookSecret, allowExtra: cfg.AllowExtraPermissions,
	}
	if d.clock == nil {
		d.clock = time.Now
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.searchFor == 0 {
		d.searchFor = 20 * time.Second
	}
	if d.keep == 0 {
		d.keep = 30 * 24 * time.Hour
	}
	if cfg.Metrics != nil {
		for _, c := range []prometheus.Collector{d.count.decisions, d.count.dispatches, d.count.ended, d.count.hooks} {
			if err := cfg.Metrics.Register(c); err != nil {
				return nil, errand.Errorf(errand.CodeInternal, err, "metrics of dispatch")
			}
		}
	}
	return d, nil
}

type counters struct {
	decisions  *prometheus.CounterVec
	dispatches *prometheus.CounterVec
	ended      *prometheus.CounterVec
	hooks      *prometheus.CounterVec
}

func newCounters() counters {
	return counters{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "errand_decisions_total", Help: "Decisions about issues, by outcome and gate.",
		}, []string{"outcome", "gate"}),
		dispatches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "errand_dispatches_total", Help: "Calls to GitHub that start a workflow, by what the answer meant.",
		}, []string{"outcome"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "errand_runs_ended_by_dispatch_total", Help: "Runs that ended otherwise than by their runner's report, by state and reason.",
		}, []string{"state", "reason"}),
		hooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "errand_github_webhooks_total", Help: "Webhooks of GitHub, by event and what became of them.",
		}, []string{"event", "outcome"}),
	}
}

// AddWorkers registers the jobs that dispatch works.
func (d *Dispatch) AddWorkers(w *river.Workers) {
	river.AddWorker(w, worker[errand.ConsiderIssue](d.consider))
	river.AddWorker(w, worker[errand.DispatchRun](d.dispatchRun))
	river.AddWorker(w, worker[errand.ReconcileRun](d.reconcileRun))
	river.AddWorker(w, worker[errand.CancelWorkflow](d.cancelWorkflow))
	river.AddWorker(w, worker[errand.RefreshInstallation](d.refreshInstallation))
	river.AddWorker(w, worker[errand.Sweep](d.sweep))
}

// work does a job, and says after what time it wants to be called again with the same arguments; 0 = it is done.
type work[T errand.JobArgs] func(ctx context.Context, args T) (again time.Duration, err error)

type jobWorker[T errand.JobArgs] struct {
	river.WorkerDefaults[T]
	work work[T]
}

func worker[T errand.JobArgs](w work[T]) *jobWorker[T] { return &jobWorker[T]{work: w} }

// Work is called by the queue.
func (j *jobWorker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	again, err := j.work(ctx, job.Args)
	switch {
	case errand.CodeOf(err) == errand.CodeNotFound:
		return river.JobCancel(err) // its row is gone: no attempt will find it
	case err != nil:
		return err
	case again > 0:
		return river.JobSnooze(again)
	default:
		return nil
	}
}

// OnDiscard is told of a job that failed for the last time. A delivery whose consideration failed for good is marked, so
// that the tracker's redelivery is processed again instead of being a duplicate.
func (d *Dispatch) OnDiscard(ctx context.Context, kind string, encodedArgs []byte) {
	log := d.log.With("job", kind)
	log.ErrorContext(ctx, "job given up", "args", string(encodedArgs))
	if kind != (errand.ConsiderIssue{}).Kind() {
		return
	}
	var args errand.ConsiderIssue
	if err := json.Unmarshal(encodedArgs, &args); err != nil || args.Delivery == "" {
		return
	}
	err := d.store.InTx(ctx, args.Org, func(tx *store.Tx) error {
		_, err := tx.DispatchDeliveryFailed(ctx, d.clock(), args.Delivery)
		return err
	})
	if err != nil {
		log.ErrorContext(ctx, "a failed delivery could not be marked: its redelivery will count as a duplicate",
			"org", args.Org, "delivery", args.Delivery, "error", err)
	}
}

// late tells whether a step was not taken because the run had moved on or ended. That is no failure: whoever was first
// knew more.
func late(err error) bool { return errors.Is(err, runs.ErrTerminal) || errors.Is(err, runs.ErrStale) }
