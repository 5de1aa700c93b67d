package store

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the "pgx" driver for goose, which speaks database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/migrations"
)

// grants is what the runtime role may do, table by table. A table that is not here may not be touched by it; a test
// holds the list against the schema.
var grants = map[string]string{
	"organisations": "SELECT, INSERT, UPDATE",
	"people":        "SELECT, INSERT",
	"members":       "SELECT, INSERT, UPDATE, DELETE",
	"sign_in_links": "SELECT, INSERT",
	"sessions":      "SELECT, INSERT, UPDATE",
	"installations": "SELECT, INSERT, UPDATE",
	"repositories":  "SELECT, INSERT, UPDATE",
	"sources":       "SELECT, INSERT, UPDATE",
	"mappings":      "SELECT, INSERT, UPDATE, DELETE",
	"issues":        "SELECT, INSERT, UPDATE",
	"events":        "SELECT, INSERT, UPDATE, DELETE",
	"deliveries":    "SELECT, INSERT",
	"delivery_keys": "SELECT, INSERT, UPDATE, DELETE",
	"runs":          "SELECT, INSERT, UPDATE",
	"run_steps":     "SELECT, INSERT",
	"run_exchanges": "SELECT, INSERT",
	"issue_places":  "SELECT, INSERT, UPDATE",
	"waits":         "SELECT, INSERT, UPDATE, DELETE",
	"incidents":     "SELECT, INSERT, UPDATE",
	"usage_lines":   "SELECT, INSERT",
	"journal":       "SELECT, INSERT", // append-only for the runtime
	"source_hours":  "SELECT, INSERT, UPDATE, DELETE",
	"source_health": "SELECT, INSERT, UPDATE",

	"github_deliveries": "SELECT, INSERT",
	"github_app":        "SELECT, INSERT",
}

// Migrate brings the schema (ours and the job queue's) up to date as the owner, grants the runtime role what it needs,
// and makes the coming days' partitions. Any number of replicas may call it at once: a session lock lets one work.
func Migrate(ctx context.Context, ownerURL string, now time.Time) error {
	if err := checkRuntimeRole(ctx, ownerURL); err != nil {
		return err
	}
	sdb, err := sql.Open("pgx", ownerURL)
	if err != nil {
		return fmt.Errorf("open the database as its owner: %w", err)
	}
	defer sdb.Close()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120), lock.WithUnlockTimeout(1, 30))
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, sdb, migrations.FS, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	pool, err := pgxpool.New(ctx, ownerURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	return underLock(ctx, ownerURL, func(conn *pgx.Conn) error {
		m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
		if err != nil {
			return err
		}
		if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("migrate the job queue: %w", err)
		}
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := grantRuntime(ctx, tx); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "select maintain_deliveries($1::date, 2, '-infinity'::date)", now.UTC())
			return err
		})
	})
}

// underLock lets one replica at a time run fn: River's migrator brings no lock of its own, and cannot run inside one
// transaction. The lock belongs to the connection and ends with it.
func underLock(ctx context.Context, ownerURL string, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, ownerURL)
	if err != nil {
		return fmt.Errorf("connect to the database as its owner: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext('errand.migrate'))"); err != nil {
		return fmt.Errorf("wait for the other replica's migration: %w", err)
	}
	return fn(conn)
}

func checkRuntimeRole(ctx context.Context, ownerURL string) error {
	conn, err := pgx.Connect(ctx, ownerURL)
	if err != nil {
		return fmt.Errorf("connect to the database as its owner: %w", err)
	}
	defer conn.Close(ctx)
	if err := checkSession(ctx, conn.Config(), "ERRAND_DATABASE_OWNER_URL"); err != nil {
		return err
	}
	var exists bool
	if err := conn.QueryRow(ctx, "select exists (select 1 from pg_roles where rolname = $1)", RuntimeRole).Scan(&exists); err != nil {
		return fmt.Errorf("look for the runtime role: %w", err)
	}
	if !exists {
		return errand.Invalid("database", "there is no role %q, under which Errand runs: create it with  CREATE ROLE %s LOGIN PASSWORD '...'", RuntimeRole, RuntimeRole)
	}
	return nil
}

func grantRuntime(ctx context.Context, tx pgx.Tx) error {
	var b strings.Builder
	fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA public TO %s; GRANT SELECT ON goose_db_version TO %s;", RuntimeRole, RuntimeRole)
	fmt.Fprintf(&b, "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO %s;", RuntimeRole)
	// A function of the owner's rights is nobody's by default; PostgreSQL's own default is everybody's.
	fmt.Fprintf(&b, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO %s;", RuntimeRole)
	for table, verbs := range grants {
		fmt.Fprintf(&b, "REVOKE ALL ON %s FROM %s; GRANT %s ON %s TO %s;", table, RuntimeRole, verbs, table, RuntimeRole)
	}
	rows, err := tx.Query(ctx, "select tablename from pg_tables where schemaname = 'public' and tablename like 'river\\_%'")
	if err != nil {
		return err
	}
	queue, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, table := range queue {
		fmt.Fprintf(&b, "GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s;", pgx.Identifier{table}.Sanitize(), RuntimeRole)
	}
	_, err = tx.Exec(ctx, b.String())
	return err
}

// CheckSchema refuses a database that lacks a migration of this program, be it below one that it has. One that a newer
// program has migrated further is taken.
func (s *Store) CheckSchema(ctx context.Context) error {
	want, err := shippedMigrations()
	if err != nil {
		return err
	}
	var have []int64
	err = s.pool.QueryRow(ctx, "select array_agg(version_id) from goose_db_version where is_applied").Scan(&have)
	if err != nil {
		return errand.Errorf(errand.CodeInvalid, err, "the database has not been migrated: run `errand migrate`, or set ERRAND_DATABASE_OWNER_URL")
	}
	missing := slices.DeleteFunc(want, func(v int64) bool { return slices.Contains(have, v) })
	if len(missing) > 0 {
		return errand.Invalid("database", "its schema lacks migrations that this program needs, %d the first of them: run `errand migrate`, or set ERRAND_DATABASE_OWNER_URL", missing[0])
	}
	return nil
}

func shippedMigrations() ([]int64, error) {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no migrations in this program: %w", err)
	}
	versions := make([]int64, len(files))
	for i, f := range files {
		if versions[i], err = goose.NumericComponent(f); err != nil {
			return nil, err
		}
	}
	return versions, nil
}
