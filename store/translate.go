package store

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/errand-dev/errand"
)

// What a broken unique constraint means, by its name. A constraint that is not here is a fault of ours.
var uniqueMeans = map[string]string{
	"organisations_slug_key":  "an organisation of that name exists",
	"repositories_github_key": "that repository is already connected",
	"mappings_position_key":   "two mappings at one position",
	"runs_one_open":           "a run of this issue is already open",
	"issues_provider_key":     "that issue exists",
	"events_provider_key":     "that event exists",
	"delivery_keys_pkey":      "that delivery was already received",
	"members_pkey":            "already a member",
	"run_steps_pkey":          "that step was already reported",
	"usage_lines_pkey":        "that usage line was already reported",
}

// translate turns a driver's error into an errand.Error, once, at this border. An errand.Error passes unchanged.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var ours *errand.Error
	if errors.As(err, &ours) {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return &errand.Error{Code: errand.CodeNotFound, Message: "not found", Cause: err}
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return translatePg(pg, err)
	}
	var netErr net.Error
	var connErr *pgconn.ConnectError
	if errors.As(err, &connErr) || (errors.As(err, &netErr) && !errors.Is(err, context.DeadlineExceeded)) || pgconn.SafeToRetry(err) {
		return errand.Errorf(errand.CodeUnavailable, err, "the database does not answer")
	}
	return err
}

func translatePg(pg *pgconn.PgError, err error) error {
	switch {
	case pg.Code == "23505":
		if m, ok := uniqueMeans[pg.ConstraintName]; ok {
			return &errand.Error{Code: errand.CodeConflict, Field: pg.ConstraintName, Message: m, Cause: err}
		}
	case pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "55P03": // serialisation, deadlock, lock not available
		return errand.Errorf(errand.CodeUnavailable, err, "the database was busy with the same rows; try again")
	case strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "08") || pg.Code == "53300":
		return errand.Errorf(errand.CodeUnavailable, err, "the database is not available")
	case strings.HasPrefix(pg.Code, "22"): // data exceptions: a NUL, an invalid byte, a number out of range
		return errand.Errorf(errand.CodeInvalid, err, "a value cannot be stored")
	}
	return errand.Errorf(errand.CodeInternal, err, "the database refused")
}

// Broke tells whether err is a broken unique constraint of that name.
func Broke(err error, constraint string) bool {
	var e *errand.Error
	return errors.As(err, &e) && e.Code == errand.CodeConflict && e.Field == constraint
}

// Refused tells whether err is the database's answer to what was asked of it, so that the transaction is known not to have
// happened. Of a connection that broke, or of a wait that was cut short, that is not known.
func Refused(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return !strings.HasPrefix(pg.Code, "57") && !strings.HasPrefix(pg.Code, "08") && !strings.HasPrefix(pg.Code, "53")
}

// translating is a transaction whose every answer passes translate, so that generated queries return our errors.
type translating struct{ tx pgx.Tx }

func (t translating) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := t.tx.Exec(ctx, sql, args...)
	return tag, translate(err)
}

func (t translating) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := t.tx.Query(ctx, sql, args...)
	return translatingRows{rows}, translate(err)
}

func (t translating) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return translatingRow{t.tx.QueryRow(ctx, sql, args...)}
}

type translatingRow struct{ row pgx.Row }

func (r translatingRow) Scan(dest ...any) error { return translate(r.row.Scan(dest...)) }

type translatingRows struct{ pgx.Rows }

func (r translatingRows) Err() error             { return translate(r.Rows.Err()) }
func (r translatingRows) Scan(dest ...any) error { return translate(r.Rows.Scan(dest...)) }
