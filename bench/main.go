// Command bench measures Errand on one machine and one PostgreSQL with durability on, and prints a table and, as its last
// line, one JSON object. docs/performance.md says what the figures mean. Start reading at main.run, which holds the order of
// the parts; each part is a file.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := profiled(func() error { return run(ctx, os.Getenv("BENCH") == "short") })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// profiled writes a CPU profile of fn to the file named in BENCH_PROFILE, if one is.
func profiled(fn func() error) error {
	name := os.Getenv("BENCH_PROFILE")
	if name == "" {
		return fn()
	}
	f, err := os.Create(name) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return fn()
}

// figures is the last line. A null is a figure that was not taken.
type figures struct {
	Mode              string   `json:"mode"`
	Postgres          string   `json:"postgres"`
	CPUs              int      `json:"cpus"`
	Fsync             string   `json:"fsync"`
	SyncCommit        string   `json:"synchronous_commit"`
	TookS             float64  `json:"took_s"`
	IngestPerS        *float64 `json:"ingest_per_s"`
	IngestVsPlain     *float64 `json:"ingest_vs_plain"`
	IngestVsPgbench   *float64 `json:"ingest_vs_pgbench"`
	IngestP50Ms       *float64 `json:"ingest_p50_ms"`
	IngestP99Ms       *float64 `json:"ingest_p99_ms"`
	IngestBestPerS    *float64 `json:"ingest_best_per_s"`
	Ingest30kPerS     *float64 `json:"ingest_30k_per_s"`
	WriterPerS        *float64 `json:"writer_per_s"`
	PlainPerS         *float64 `json:"plain_per_s"`
	PgbenchPerS       *float64 `json:"pgbench_per_s"`
	PgbenchSamePerS   *float64 `json:"pgbench_same_rows_per_s"`
	HotIssueLoss      *float64 `json:"hot_issue_loss"`
	Stored1mLoss      *float64 `json:"stored_1m_loss"`
	Stored10mLoss     *float64 `json:"stored_10m_loss"`
	DispatchP50Ms     *float64 `json:"dispatch_p50_ms"`
	DispatchP99Ms     *float64 `json:"dispatch_p99_ms"`
	TokenMintNs       *float64 `json:"token_mint_ns"`
	TokenVerifyNs     *float64 `json:"token_verify_ns"`
	TokenVerifyVsHMAC *float64 `json:"token_verify_vs_hmac"`
	TokenVerifyAllocs *float64 `json:"token_verify_allocs"`
	DecideUs          *float64 `json:"decide_us"`
	DecideAllocs      *float64 `json:"decide_allocs"`
}

// plan is how long and how often things are measured.
type plan struct {
	short  bool
	slice  time.Duration // of one measurement
	rounds int           // of measurements whose ratio counts: they take turns, so that a slow minute hits both
}

func newPlan(short bool) plan {
	if short {
		return plan{short: true, slice: 1200 * time.Millisecond, rounds: 2}
	}
	return plan{slice: 8 * time.Second, rounds: 3}
}

func run(ctx context.Context, short bool) error {
	begun := time.Now()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // as errand serve does
	}
	b, err := newBed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	f := figures{Mode: "full", CPUs: runtime.NumCPU()}
	if short {
		f.Mode = "short"
	}
	if f.Postgres, f.Fsync, f.SyncCommit, err = b.durability(ctx); err != nil {
		return err
	}
	p := newPlan(short)
	fmt.Printf("PostgreSQL %s, fsync %s, synchronous_commit %s, %d CPUs shared with the clients, %s\n", f.Postgres, f.Fsync, f.SyncCommit, f.CPUs, runtime.Version())
	for _, part := range []struct {
		name string
		run  func(context.Context, *bed, plan, *figures) error
	}{{"whole", wholePath}, {"writer", writerAndPlain}, {"hot", hotIssue}, {"stored", stored}, {"dispatch", dispatchLatency}, {"micro", micro}} {
		if only := os.Getenv("BENCH_ONLY"); only != "" && only != part.name {
			continue // its figures stay null
		}
		if err := part.run(ctx, b, p, &f); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	f.TookS = round(time.Since(begun).Seconds(), 1)
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	fmt.Printf("\n%s\n", line)
	return nil
}
