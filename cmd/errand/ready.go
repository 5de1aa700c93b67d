package main

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/errand-dev/errand/server"
)

// readiness answers /readyz: serving, and the database answers.
type readiness struct {
	serving atomic.Bool
	db      *database
}

func (r *readiness) set(on bool) { r.serving.Store(on) }

func (r *readiness) check(ctx context.Context) error {
	if !r.serving.Load() {
		return server.ErrNotServing
	}
	return r.db.Ping(ctx)
}

// closing asks each client, once the server is on its way out, to open its next connection elsewhere: a request sent on a
// kept connection at the moment that it is closed would be lost.
func (r *readiness) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.serving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, req)
	})
}
