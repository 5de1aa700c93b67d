package store

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// newJobClients makes the client that announces each job in the transaction that inserts it, and the one that announces none.
func newJobClients(pool *pgxpool.Pool, log *slog.Logger) (jobs, quiet *river.Client[pgx.Tx], err error) {
	// A job is announced at most once in FetchCooldown, and one that is not waits for the next poll. River's 100 ms would leave
	// out most of them: a decision's dispatch follows within milliseconds.
	cfg := &river.Config{Logger: log, FetchCooldown: time.Millisecond}
	if jobs, err = river.NewClient(riverpgxv5.New(pool), cfg); err != nil {
		return nil, nil, err
	}
	quiet, err = river.NewClient(silent{riverpgxv5.New(pool)}, cfg)
	return jobs, quiet, err
}

// silent is River's driver without announcements.
type silent struct{ *riverpgxv5.Driver }

func (silent) SupportsListenNotify() bool { return false }

// announceJobs tells every replica's workers, as River does, that there are jobs. What is not announced is found by the next
// poll, within half a second.
func (s *Store) announceJobs() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := riverpgxv5.New(s.pool).GetExecutor().NotifyMany(ctx, &riverdriver.NotifyManyParams{
		Topic: "river_insert", Payload: []string{`{"queue": "` + river.QueueDefault + `"}`},
	})
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "jobs were not announced; they wait for the next poll", slog.String("error", err.Error()))
	}
}

// herald announces after each call, once for all the calls that come while an announcement is under way.
type herald struct {
	announce func()

	mu    sync.Mutex
	busy  bool
	again bool
}

// call returns at once.
func (h *herald) call() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.again = true
	if !h.busy {
		h.busy = true
		go h.run()
	}
}

func (h *herald) run() {
	for {
		h.mu.Lock()
		if !h.again {
			h.busy = false
			h.mu.Unlock()
			return
		}
		h.again = false
		h.mu.Unlock()
		h.announce()
	}
}
