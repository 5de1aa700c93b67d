package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/pgembed"
)

// database is the opened store, with the embedded server beneath it when there is one.
type database struct {
	*store.Store
	server *pgembed.Server // nil with an external database
}

// open opens the database that the flags name, migrated: the embedded one is started (or, with attach, joined when
// another process of this machine runs it).
func (f databaseFlags) open(ctx context.Context, log *slog.Logger, attach bool) (*database, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.DatabaseURL != "" {
		if f.DatabaseOwnerURL != "" {
			if err := store.Migrate(ctx, f.DatabaseOwnerURL, time.Now()); err != nil {
				return nil, err
			}
		}
		return openAt(ctx, f.DatabaseURL, nil, log)
	}
	dir := filepath.Join(f.DataDir, "postgres")
	if attach {
		if url, ok := pgembed.Running(dir, pgembed.Database, pgembed.RuntimeRole); ok {
			return openAt(ctx, url, nil, log)
		}
		if _, err := os.Stat(dir); err != nil {
			return nil, errand.Invalid("ERRAND_DATA_DIR", "there is no database in %s: name the folder that `errand serve` uses", dir)
		}
	}
	server, err := pgembed.Start(ctx, pgembed.Config{DataDir: dir, BinDir: f.PostgresBin, Logger: log})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx, server.URL(pgembed.Database, pgembed.OwnerRole), time.Now()); err != nil {
		return nil, stopping(server, err)
	}
	return openAt(ctx, server.URL(pgembed.Database, pgembed.RuntimeRole), server, log)
}

func openAt(ctx context.Context, url string, server *pgembed.Server, log *slog.Logger) (*database, error) {
	s, err := store.Open(ctx, store.Config{URL: url, Logger: log})
	if err != nil {
		return nil, stopping(server, err)
	}
	if err := s.CheckSchema(ctx); err != nil {
		s.Close()
		return nil, stopping(server, err)
	}
	return &database{Store: s, server: server}, nil
}

func stopping(server *pgembed.Server, err error) error {
	if server != nil {
		_ = server.Stop() // the first error is the one to tell
	}
	return err
}

// gone is closed when the embedded server has ended by itself; with an external database it never is.
func (d *database) gone() <-chan struct{} {
	if d.server == nil {
		return nil
	}
	return d.server.Done()
}

// close ends the pool, and then the embedded server.
func (d *database) close() error {
	d.Close()
	if d.server == nil {
		return nil
	}
	return d.server.Stop()
}
