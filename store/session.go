package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
)

// sessionRounds is how often two connections are compared: a pooler that hands out its own in turn shows itself in the second.
const sessionRounds = 3

// checkSession refuses a pooler in transaction mode, where a connection is lent a session of the database for one transaction at
// a time. Behind one the job queue's LISTEN hears nothing, a statement prepared in one session is called in another, and a lock
// of a session is held by nobody. A session that changes below an open connection, or that two of them share, is proof of one;
// a database that is spoken to directly shows neither, ever. It returns Invalid for the setting.
func checkSession(ctx context.Context, cfg *pgx.ConnConfig, setting string) error {
	var conns [2]*pgx.Conn
	for i := range conns {
		c, err := pgx.ConnectConfig(ctx, cfg.Copy())
		if err != nil {
			return fmt.Errorf("connect to the database: %w", err)
		}
		defer c.Close(ctx)
		conns[i] = c
	}
	idle, holding := conns[0], conns[1]
	first, err := sessionOf(ctx, idle)
	if err != nil {
		return err
	}
	shared := false
	for range sessionRounds {
		err = pgx.BeginFunc(ctx, holding, func(tx pgx.Tx) error {
			held, err := sessionOf(ctx, tx)
			if shared = shared || held == first; err != nil || shared {
				return err
			}
			now, err := sessionOf(ctx, idle)
			shared = now != first
			return err
		})
		if err != nil {
			return fmt.Errorf("look at the database's sessions: %w", err)
		}
		if shared {
			return errand.Invalid(setting, "connections share sessions of the database, as behind a pooler in transaction mode, and the job queue's LISTEN, "+
				"prepared statements and locks need one each: give the database's own address, or a pooler's in session mode")
		}
	}
	return nil
}

// sessionOf gives the server's process behind a connection. It prepares nothing: behind a pooler that may fail.
func sessionOf(ctx context.Context, c interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (pid int32, err error) {
	err = c.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return pid, err
}
