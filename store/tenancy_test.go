package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store/storetest"
)

// tenantTable is a table with org_id, as the catalogue lists it. A partition is one too: it can be named in a query.
type tenantTable struct {
	Name      string
	Partition bool
	Reads     bool // the runtime role has a grant to
}

func tenantTables(t *testing.T, c *pgx.Conn) []tenantTable {
	t.Helper()
	rows, err := c.Query(ctx, `SELECT c.relname, c.relispartition, has_table_privilege('errand_runtime', c.oid, 'SELECT') FROM pg_class c
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id' AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY c.relispartition, c.relname`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tenantTable])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// plantRow puts one row of the organisation into the table, whatever else is in it: foreign keys are not looked at, CHECKs
// are dropped, and each column that must hold something holds something.
func plantRow(t *testing.T, c *pgx.Conn, table string, org errand.ID) {
	t.Helper()
	exec := func(sql string) {
		t.Helper()
		if _, err := c.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	column := func(sql string) []string {
		t.Helper()
		rows, err := c.Query(ctx, sql, table)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	exec("set session_replication_role = replica")
	for _, check := range column("SELECT conname FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c'") {
		exec(fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %q", table, check))
	}
	names, values := []string{"org_id"}, []string{"'" + string(org) + "'"}
	for _, col := range column(`SELECT attname || ' ' || format_type(atttypid, NULL) FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND attnotnull AND NOT attisdropped AND NOT atthasdef AND attidentity = '' AND attgenerated = '' AND attname <> 'org_id'`) {
		name, kind, _ := strings.Cut(col, " ")
		value, ok := map[string]string{
			"uuid": "gen_random_uuid()", "text": "gen_random_uuid()::text", "bytea": "convert_to(gen_random_uuid()::text, 'UTF8')", "boolean": "false",
			"timestamp with time zone": "now()", "date": "now()", "integer": "(random() * 1e9)::int", "bigint": "(random() * 1e9)::bigint",
			"smallint": "1", "numeric": "1", "jsonb": "'{}'", "uuid[]": "'{}'", "text[]": "'{}'",
		}[kind]
		if !ok {
			t.Fatalf("%s.%s: a value of the type %q is needed here", table, name, kind)
		}
		names, values = append(names, fmt.Sprintf("%q", name)), append(values, value)
	}
	exec(fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(values, ", ")))
}

// oneConnection is one connection of the runtime role on which organisations take turns, as they do in the pool.
type oneConnection struct {
	t *testing.T
	*pgx.Conn
}

// as runs one statement for the organisation in a transaction that is rolled back.
func (c oneConnection) as(org errand.ID, sql string, args ...any) (rows [][]any, affected int64, err error) {
	c.t.Helper()
	tx, err := c.Begin(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "select set_config('errand.orgs', $1, true)", string(org)); err != nil {
		c.t.Fatal(err)
	}
	r, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, 0, err
	}
	rows, err = pgx.CollectRows(r, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	return rows, r.CommandTag().RowsAffected(), err
}

func denied(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501"
}

// H12: every table that has org_id, found from the catalogue, partitions included; as the runtime role; on one connection that
// another organisation has used before. First with the grants as they are, then with every grant there is, so that it is
// row-level security that is looked at and not only a grant that somebody forgot to give.
func TestNoTenantTableShowsOrTakesRowsOfAnotherOrganisation(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	if err := db.MaintainDeliveries(ctx, time.Now(), 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	a, b := db.Org(t, "a"), db.Org(t, "b")
	var tables []tenantTable
	db.Super(t, func(_ context.Context, c *pgx.Conn) {
		tables = tenantTables(t, c)
		for _, table := range tables {
			if !table.Partition { // rows go into a partition through its table
				plantRow(t, c, table.Name, a)
				plantRow(t, c, table.Name, b)
			}
		}
	})
	if n := len(slices.DeleteFunc(slices.Clone(tables), func(t tenantTable) bool { return t.Partition })); n < 15 || len(tables) < n+3 {
		t.Fatalf("found only %v: the catalogue query is wrong", tables)
	}
	raw, err := pgx.Connect(ctx, db.RuntimeURL)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close(ctx)
	conn := oneConnection{t, raw}
	for _, grants := range []string{"as they are", "every one"} {
		if grants == "every one" {
			db.Super(t, func(_ context.Context, c *pgx.Conn) {
				if _, err := c.Exec(ctx, "grant select, insert, update, delete on all tables in schema public to errand_runtime"); err != nil {
					t.Fatal(err)
				}
			})
		}
		for _, table := range tables {
			reads := table.Reads || grants == "every one"
			t.Run(table.Name+", grants "+grants, func(t *testing.T) {
				conn := oneConnection{t, conn.Conn}
				for _, turn := range [][2]errand.ID{{a, b}, {b, a}} {
					conn.holds(table, reads, turn[0], turn[1])
				}
			})
		}
	}
}

// holds looks at one table as us, after them.
func (c oneConnection) holds(table tenantTable, reads bool, us, them errand.ID) {
	c.t.Helper()
	rows, _, err := c.as(us, "select org_id::text from "+table.Name)
	want := 1
	if table.Partition {
		want = 0 // only its table has a policy; the partition itself shows nothing to anybody
	}
	switch {
	case !reads && !denied(err):
		c.t.Errorf("not granted, and the answer is %v", err)
	case reads && err != nil:
		c.t.Fatal(err)
	case reads && (len(rows) != want || want == 1 && rows[0][0] != string(us)):
		c.t.Errorf("%s sees %v, want %d row of its own", us, rows, want)
	}
	for _, sql := range []string{
		"update %s set org_id = org_id where org_id = $1", "delete from %s where org_id = $1",
	} {
		if _, n, err := c.as(us, fmt.Sprintf(sql, table.Name), string(them)); n != 0 || err != nil && !denied(err) {
			c.t.Errorf("%s of another organisation's rows: %d, %v", sql, n, err)
		}
	}
	if table.Partition {
		return
	}
	// A row of ours may not become one of theirs.
	if _, n, err := c.as(us, "update "+table.Name+" set org_id = $1", string(them)); !denied(err) {
		c.t.Errorf("%d rows were given to another organisation: %v", n, err)
	}
}
