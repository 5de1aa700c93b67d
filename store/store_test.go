package store_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var ctx = context.Background()

func repository(t *testing.T, db *storetest.DB, org errand.ID, installation int64) errand.ID {
	t.Helper()
	now := time.Now()
	id := errand.NewID(now)
	err := db.InTx(ctx, org, func(tx *store.Tx) error {
		if err := tx.BindInstallation(ctx, installation, "octo", now); err != nil {
			return err
		}
		return tx.AddRepository(ctx, store.AddRepositoryParams{
			ID: id, InstallationID: installation, GitHubID: installation + 1000, Owner: "octo", Name: "shop", DefaultBranch: "main", CreatedAt: now,
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestARowOfAnotherOrganisationIsNotFound(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	a, b := db.Org(t, "a"), db.Org(t, "b")
	repo := repository(t, db, a, 1)
	get := func(org errand.ID) error {
		return db.InTx(ctx, org, func(tx *store.Tx) error { _, err := tx.GetRepository(ctx, repo); return err })
	}
	if err := get(a); err != nil {
		t.Fatalf("its own organisation: %v", err)
	}
	if err := get(b); errand.CodeOf(err) != errand.CodeNotFound {
		t.Fatalf("another organisation got %v, want not found", err)
	}
}

// H14: nothing that an organisation owns is seen, changed or made by whoever names none: each table, each verb, as the runtime
// role, on a connection that is new and on one that has served an organisation before.
func TestWithoutAnOrganisationEveryTenantTableRaises(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	repository(t, db, db.Org(t, "a"), 1)
	conn, err := pgx.Connect(ctx, db.RuntimeURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var tables []string
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, `SELECT DISTINCT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
			WHERE a.attname = 'org_id' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace`)
		if err != nil {
			t.Fatal(err)
		}
		if tables, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
	})
	if len(tables) < 10 {
		t.Fatalf("found only %v: the catalogue query is wrong", tables)
	}
	verbs := func(on, table string) {
		t.Helper()
		column := "org_id"
		if table == "organisations" {
			column = "id"
		}
		for _, sql := range []string{
			"select count(*) from " + table, "update " + table + " set " + column + " = " + column, "delete from " + table,
		} {
			_, err := conn.Exec(ctx, sql)
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "ER001" && (pg.Code != "42501" || strings.HasPrefix(sql, "select")) {
				t.Errorf("on %s connection: %s: %v, want the error of errand_org()", on, sql, err)
			}
		}
	}
	tables = append(tables, "organisations")
	for _, table := range tables {
		verbs("a new", table)
	}
	for _, table := range tables {
		// First a proper use of the same connection, so that a setting that outlives its transaction would be seen.
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "select set_config('errand.orgs', $1, true)", string(errand.NewID(time.Now()))); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "select count(*) from "+table); err != nil {
			t.Fatalf("%s with an organisation: %v", table, err)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		verbs("a used", table)
	}
	if _, err := conn.Exec(ctx, "insert into mappings default values"); err == nil {
		t.Error("a row of nobody was made")
	}
}

// H15: a connection of the pool remembers nothing of the transaction before, however that one ended. A look-up that runs
// without an organisation is made to tell what it finds set.
func TestH15_ATransactionLeavesNothingOnItsConnection(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	a, b := db.Org(t, "a"), db.Org(t, "b")
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		_, err := c.Exec(ctx, `create or replace function lookup_organisation(p_slug text) returns table (org_id uuid) language plpgsql security definer as $$
			begin
				if coalesce(current_setting('errand.orgs', true), '') <> '' or current_setting('enable_seqscan') <> 'on' or current_setting('plan_cache_mode') <> 'auto' then
					raise exception 'left behind: %, %, %', current_setting('errand.orgs', true), current_setting('enable_seqscan'), current_setting('plan_cache_mode');
				end if;
			end $$`)
		if err != nil {
			t.Fatal(err)
		}
	})
	s := db.Open(t, 1)
	refused := errors.New("refused")
	one := func(fn func(*store.Tx) error) error { return s.InTx(ctx, a, fn) }
	for says, use := range map[string]func(func(*store.Tx) error) error{
		"of one organisation": one,
		"of several":          func(fn func(*store.Tx) error) error { return s.InTxOf(ctx, []errand.ID{a, b}, fn) },
		"with a savepoint": func(fn func(*store.Tx) error) error {
			return one(func(tx *store.Tx) error { return tx.Savepoint(ctx, fn) })
		},
	} {
		for ends, fn := range map[string]func(*store.Tx) error{
			"committed":   func(*store.Tx) error { return nil },
			"rolled back": func(*store.Tx) error { return refused },
			"failed":      func(tx *store.Tx) error { _, err := tx.SetOrganisationMode(ctx, "no mode"); return err },
			"panicked":    func(*store.Tx) error { panic(refused) },
		} {
			func() {
				defer func() { _ = recover() }()
				_ = use(fn)
			}()
			if _, err := s.LookupOrganisation(ctx, "a"); errand.CodeOf(err) != errand.CodeNotFound {
				t.Errorf("after a transaction %s that %s: %v", says, ends, err)
			}
		}
	}
}

// ofTheDeployment are the tables that belong to no organisation. Adding one is a decision: the runtime role sees all of it.
var ofTheDeployment = map[string]bool{"github_app": true}

func TestEveryTenantTableForcesRowSecurityAndHasAGrantThatIsMeant(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, `SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,
			c.relispartition, has_table_privilege('errand_runtime', c.oid, 'TRUNCATE'), has_table_privilege('errand_runtime', c.oid, 'SELECT'),
			pg_get_userbyid(c.relowner)
			FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
			AND c.relname NOT LIKE 'river%' AND c.relname <> 'goose_db_version'`)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rows.Next() {
			var name, owner string
			var forced, partition, truncate, sel bool
			if err := rows.Scan(&name, &forced, &partition, &truncate, &sel, &owner); err != nil {
				t.Fatal(err)
			}
			n++
			if !forced && !ofTheDeployment[name] {
				t.Errorf("%s does not force row-level security", name)
			}
			if truncate {
				t.Errorf("the runtime role may empty %s, past every policy", name)
			}
			if sel == partition {
				t.Errorf("%s: partition %v, readable %v: a table is, a partition is not", name, partition, sel)
			}
			if owner != "errand_owner" {
				t.Errorf("%s belongs to %s", name, owner)
			}
		}
		if n < 17 {
			t.Errorf("looked at %d tables only", n)
		}
	})
}

// H17: nothing binds a superuser or BYPASSRLS. H12: the policies let the owner of the tables see all. Whoever may become one of
// them is one. Roles are the cluster's, so these have names of their own.
func TestH17_OpenRefusesARoleThatRowSecurityDoesNotBind(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	as := func(role, options string) string {
		u, err := url.Parse(db.RuntimeURL)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		q := u.Query()
		q.Set("options", options)
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
		return u.String()
	}
	super, err := url.Parse(db.SuperURL)
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string]string{
		"h17_login": "in role errand_runtime", "h17_bypass": "bypassrls in role errand_runtime", "h17_heir": "in role errand_runtime, errand_owner",
		"h17_climber": "noinherit in role errand_runtime, " + super.User.Username(), "h17_stranger": "",
	}
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		for name, what := range roles {
			if _, err := c.Exec(ctx, "create role "+name+" login "+what); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Cleanup(func() {
		db.Super(t, func(ctx context.Context, c *pgx.Conn) {
			for name := range roles {
				if _, err := c.Exec(ctx, "drop role "+name); err != nil {
					t.Error(err)
				}
			}
		})
	})
	for says, address := range map[string]string{
		"the superuser": db.SuperURL, "the owner": db.OwnerURL, "a role with BYPASSRLS": as("h17_bypass", ""), "a member of the owner": as("h17_heir", ""),
		"a member of the superuser": as("h17_climber", ""), "a role without the policies": as("h17_stranger", ""),
		"the superuser under another name": as(super.User.Username(), "-c role=errand_runtime"),
	} {
		s, err := store.Open(ctx, store.Config{URL: address})
		if err == nil {
			s.Close()
			t.Errorf("opened as %s", says)
		} else if errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%s: %v, want a sentence that says what to set", says, err)
		}
	}
	s, err := store.Open(ctx, store.Config{URL: as("h17_login", "")})
	if err != nil {
		t.Fatalf("a login role of the runtime's: %v", err)
	}
	s.Close()
}

// A role of the cluster without any grant may call none of the functions that run with the owner's rights.
func TestNobodyButTheRuntimeMayCallTheLookUps(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, `SELECT p.proname, has_function_privilege('errand_runtime', p.oid, 'EXECUTE'),
			EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0)
			FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace`)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rows.Next() {
			var name string
			var runtime, everybody bool
			if err := rows.Scan(&name, &runtime, &everybody); err != nil {
				t.Fatal(err)
			}
			n++
			if !runtime || everybody {
				t.Errorf("%s: the runtime may call it %v, everybody %v", name, runtime, everybody)
			}
		}
		if n < 9 {
			t.Errorf("looked at %d functions only", n)
		}
	})
}

func TestTheJournalIsAppendOnlyForTheRuntime(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	org := db.Org(t, "a")
	conn, err := pgx.Connect(ctx, db.RuntimeURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, sql := range []string{"update journal set body = ''", "delete from journal"} {
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "select set_config('errand.orgs', $1, true)", string(org)); err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(ctx, sql)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s: %v, want permission denied", sql, err)
		}
		_ = tx.Rollback(ctx)
	}
}

func TestATransactionOfSeveralOrganisationsReachesTheTablesOfIngestOnly(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	a, b, c := db.Org(t, "a"), db.Org(t, "b"), db.Org(t, "c")
	repository(t, db, c, 1)
	err := db.InTxOf(ctx, []errand.ID{a, b}, func(tx *store.Tx) error { _, err := tx.ListIssues(ctx, 5); return err })
	if errand.CodeOf(err) != errand.CodeInternal {
		t.Errorf("a query that asks for the one organisation: %v, want an internal error", err)
	}
	err = db.InTxOf(ctx, []errand.ID{a, b}, func(tx *store.Tx) error { _, err := tx.ListRepositories(ctx); return err })
	if errand.CodeOf(err) != errand.CodeInternal {
		t.Errorf("a table outside ingest: %v, want an internal error", err)
	}
	if err := db.InTxOf(ctx, nil, func(*store.Tx) error { return nil }); err == nil {
		t.Error("a transaction of no organisation began")
	}
	if err := db.InTx(ctx, "x'; drop table runs; --", func(*store.Tx) error { return nil }); errand.CodeOf(err) != errand.CodeInvalid {
		t.Errorf("an id that is none: %v", err)
	}
}

func TestAFailedFunctionLeavesNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	org := db.Org(t, "a")
	boom := errors.New("boom")
	err := db.InTx(ctx, org, func(tx *store.Tx) error {
		if _, err := tx.SetOrganisationMode(ctx, "paused"); err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, errand.Sweep{}); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("got %v, want the function's own error", err)
	}
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		var mode string
		var jobs int
		if err := c.QueryRow(ctx, "select mode, (select count(*) from river_job) from organisations").Scan(&mode, &jobs); err != nil {
			t.Fatal(err)
		}
		if mode != "active" || jobs != 0 {
			t.Errorf("mode %s, %d jobs: want active and none", mode, jobs)
		}
	})
}

// A migration that landed below the newest stops the start and is not passed over: to migrate (H9), and to serve without migrating.
func TestH9_AMigrationThatIsMissingBelowTheNewestIsNotPassedOver(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	if err := db.CheckSchema(ctx); err != nil {
		t.Fatal(err)
	}
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		if _, err := c.Exec(ctx, "delete from goose_db_version where version_id = 6"); err != nil {
			t.Fatal(err)
		}
	})
	if err := db.CheckSchema(ctx); errand.CodeOf(err) != errand.CodeInvalid || !strings.Contains(err.Error(), "6 the first of them") {
		t.Errorf("served: %v", err)
	}
	if err := store.Migrate(ctx, db.OwnerURL, time.Now()); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("migrated: %v", err)
	}
	db.Super(t, func(ctx context.Context, c *pgx.Conn) { // a newer program's schema is taken
		if _, err := c.Exec(ctx, "insert into goose_db_version (version_id, is_applied) values (6, true), (99999, true)"); err != nil {
			t.Fatal(err)
		}
	})
	if err := db.CheckSchema(ctx); err != nil {
		t.Errorf("beside a newer program: %v", err)
	}
}

// H8: two replicas that start at once.
func TestH8_TwoReplicasMigrateAtOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		if _, err := c.Exec(ctx, "drop schema public cascade; create schema public authorization errand_owner"); err != nil {
			t.Fatal(err)
		}
	})
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		wg.Go(func() { errs[i] = store.Migrate(ctx, db.OwnerURL, time.Now()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	db.Org(t, "after")
}

func TestASignInLinkWorksOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	org := db.Org(t, "a")
	now := time.Now()
	person := errand.NewID(now)
	digest := make([]byte, 32)
	err := db.InTx(ctx, org, func(tx *store.Tx) error {
		if err := tx.CreatePerson(ctx, person, "Operator", now); err != nil {
			return err
		}
		if err := tx.AddMember(ctx, person, "owner", now); err != nil {
			return err
		}
		return tx.CreateSignInLink(ctx, store.CreateSignInLinkParams{Digest: digest, PersonID: person, CreatedAt: now, ExpiresAt: now.Add(time.Minute)})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := db.UseSignInLink(ctx, digest, now.Add(2*time.Minute)); errand.CodeOf(err) != errand.CodeNotFound {
		t.Errorf("an expired link: %v", err)
	}
	if gotOrg, gotPerson, err := db.UseSignInLink(ctx, digest, now); err != nil || gotOrg != org || gotPerson != person {
		t.Errorf("first use: %v %v %v", gotOrg, gotPerson, err)
	}
	if _, _, err := db.UseSignInLink(ctx, digest, now); errand.CodeOf(err) != errand.CodeNotFound {
		t.Errorf("second use: %v, want not found", err)
	}
}

func TestOldPartitionsAndKeysAreDroppedAndComingPartitionsMade(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	later := time.Now().Add(40 * 24 * time.Hour)
	org := db.Org(t, "a")
	key := func(name string, at time.Time) {
		db.Super(t, func(ctx context.Context, c *pgx.Conn) {
			_, err := c.Exec(ctx, `with s as (insert into sources (id, org_id, kind, name, public_id, secret_sealed, created_at)
				values ($1, $2, 'generic', 'x', $3, 'x', now()) returning id)
				insert into delivery_keys (source_id, key, org_id, delivery_id, received_at) select id, $3, $2, $1, $4 from s`,
				errand.NewID(time.Now()), org, name+"-0123456789-0123456789", at)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	key("old", later.Add(-31*24*time.Hour))
	key("new", later.Add(-29*24*time.Hour))
	if err := db.MaintainDeliveries(ctx, later, 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, "select inhrelid::regclass::text from pg_inherits where inhparent = 'deliveries'::regclass order by 1")
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 3 || got[0] != "deliveries_"+later.UTC().Format("20060102") {
			t.Errorf("partitions %v: want the later day and its next two", got)
		}
		var keys string
		if err := c.QueryRow(ctx, "select string_agg(key, ' ') from delivery_keys").Scan(&keys); err != nil || !strings.HasPrefix(keys, "new-") || strings.Contains(keys, "old") {
			t.Errorf("keys kept: %q, %v: want the younger one only", keys, err)
		}
	})
}

// Many jobs at once are announced when, and only when, their transaction has committed.
func TestJobsOfABatchAreAnnouncedAfterTheirCommit(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	org := db.Org(t, "acme")
	db.Super(t, func(ctx context.Context, c *pgx.Conn) {
		if _, err := c.Exec(ctx, `LISTEN "public.river_insert"`); err != nil {
			t.Fatal(err)
		}
		refused := errors.New("refused")
		for _, outcome := range []error{refused, nil} {
			err := db.InTxOf(ctx, []errand.ID{org}, func(tx *store.Tx) error {
				if err := tx.EnqueueMany(ctx, []errand.JobArgs{errand.Sweep{}, errand.Sweep{}}); err != nil {
					t.Fatal(err)
				}
				return outcome
			})
			if !errors.Is(err, outcome) {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		n, err := c.WaitForNotification(ctx)
		if err != nil || n.Payload != `{"queue": "default"}` {
			t.Fatalf("%+v, %v", n, err)
		}
		var jobs int
		if err := c.QueryRow(ctx, "select count(*) from river_job").Scan(&jobs); err != nil || jobs != 2 {
			t.Errorf("%d jobs when they were announced, %v", jobs, err)
		}
	})
}
