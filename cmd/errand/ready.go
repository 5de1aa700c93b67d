package main

import (
	"context"
	"errors"
	"sync/atomic"
)

// readiness answers /readyz: serving, and the database answers.
type readiness struct {
	serving atomic.Bool
	db      *database
}

func (r *readiness) set(on bool) { r.serving.Store(on) }

func (r *readiness) check(ctx context.Context) error {
	if !r.serving.Load() {
		return errors.New("starting or stopping")
	}
	return r.db.Ping(ctx)
}
