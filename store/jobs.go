package store

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/errand-dev/errand"
)

// jobTimeout bounds one job: two calls of 15 s to GitHub (package github) and what stands around them.
const jobTimeout = 45 * time.Second

// JobOption changes how one job is queued.
type JobOption func(*river.InsertOpts)

// At delays a job until then.
func At(t time.Time) JobOption { return func(o *river.InsertOpts) { o.ScheduledAt = t } }

// Once makes the job unique by its arguments while one like it is still waiting or working; a second is dropped.
func Once() JobOption {
	return func(o *river.InsertOpts) {
		o.UniqueOpts = river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
			rivertype.JobStateRunning, rivertype.JobStateScheduled,
		}}
	}
}

// WorkConfig says how a process works jobs.
type WorkConfig struct {
	Workers    *river.Workers
	MaxWorkers int           // at once in this process
	SweepEvery time.Duration // how often errand.Sweep runs, on whichever replica leads
	// OnDiscard is told of a job that has failed for the last time.
	OnDiscard func(ctx context.Context, kind string, encodedArgs []byte)
}

// Work starts working jobs until stop is called; stop waits for the jobs under way, bounded by its context.
func (s *Store) Work(ctx context.Context, cfg WorkConfig) (stop func(context.Context) error, err error) {
	client, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		Logger:  slog.New(atLeast{s.log.Handler(), slog.LevelWarn}),
		Workers: cfg.Workers,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: cfg.MaxWorkers}},
		// River's default of 100 ms costs 48 ms at the median and caps the rate (docs/performance.md).
		FetchCooldown:     time.Millisecond,
		FetchPollInterval: 500 * time.Millisecond,
		JobTimeout:        jobTimeout,
		// A job killed with its process is taken up again after this. It is above the time limit and what a job may still
		// write down after it, or a live job would be worked twice.
		RescueStuckJobsAfter: jobTimeout + 15*time.Second,
		ErrorHandler:         discards{cfg.OnDiscard},
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(
			river.PeriodicInterval(cfg.SweepEvery),
			func() (river.JobArgs, *river.InsertOpts) { return errand.Sweep{}, nil },
			&river.PeriodicJobOpts{RunOnStart: true},
		)},
	})
	if err != nil {
		return nil, fmt.Errorf("job queue: %w", err)
	}
	if err := client.Start(ctx); err != nil {
		return nil, fmt.Errorf("start the job queue: %w", err)
	}
	return client.Stop, nil
}

// atLeast drops what is below a level: the job queue tells at INFO how many jobs it works, every five seconds.
type atLeast struct {
	slog.Handler
	level slog.Level
}

func (h atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level && h.Handler.Enabled(ctx, l)
}

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}

type discards struct {
	tell func(ctx context.Context, kind string, encodedArgs []byte)
}

func (d discards) HandleError(ctx context.Context, job *rivertype.JobRow, _ error) *river.ErrorHandlerResult {
	if d.tell != nil && job.Attempt >= job.MaxAttempts {
		d.tell(ctx, job.Kind, job.EncodedArgs)
	}
	return nil
}

func (d discards) HandlePanic(ctx context.Context, job *rivertype.JobRow, _ any, _ string) *river.ErrorHandlerResult {
	return d.HandleError(ctx, job, nil)
}
