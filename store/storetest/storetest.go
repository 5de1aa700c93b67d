// Package storetest gives a test a database of its own: a real PostgreSQL, one server a test program, one clone of the
// migrated template a test. It is imported by tests only.
//
//	func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }
//	...
//	db := storetest.New(t)
package storetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/pgembed"
)

const template = "errand_template"

// DB is one test's database.
type DB struct {
	*store.Store
	RuntimeURL string // as errand_runtime
	OwnerURL   string // as errand_owner
	SuperURL   string // as the superuser, whom no policy binds: to look at what is really there
}

var cluster struct {
	once   sync.Once
	server *pgembed.Server
	err    error
	count  atomic.Int64
}

// Main runs the tests and then stops the server, if any test started it. Give its answer to os.Exit.
func Main(m *testing.M) int {
	code := m.Run()
	if cluster.server != nil {
		if err := cluster.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

func start() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := pgembed.Start(ctx, pgembed.Config{NoFsync: true, Settings: map[string]string{"max_connections": "300"}})
	if err != nil {
		cluster.err = err
		return
	}
	cluster.server = s
	if cluster.err = admin(ctx, "CREATE DATABASE "+template+" OWNER "+pgembed.OwnerRole); cluster.err != nil {
		return
	}
	cluster.err = store.Migrate(ctx, s.URL(template, pgembed.OwnerRole), time.Now())
}

// admin serialises what changes databases: two clones at once of one template refuse each other.
var adminMu sync.Mutex

func admin(ctx context.Context, sql string) error {
	adminMu.Lock()
	defer adminMu.Unlock()
	conn, err := cluster.server.Admin(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// New gives the test a migrated, empty database, dropped at its end.
func New(t testing.TB) *DB {
	t.Helper()
	cluster.once.Do(start)
	if cluster.err != nil {
		t.Fatalf("test database: %v", cluster.err)
	}
	ctx := context.Background()
	name := fmt.Sprintf("t%d", cluster.count.Add(1))
	if err := admin(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template+" STRATEGY FILE_COPY OWNER "+pgembed.OwnerRole); err != nil {
		t.Fatalf("clone the template: %v", err)
	}
	d := &DB{
		RuntimeURL: cluster.server.URL(name, pgembed.RuntimeRole),
		OwnerURL:   cluster.server.URL(name, pgembed.OwnerRole),
		SuperURL:   cluster.server.URL(name, pgembed.Superuser),
	}
	d.Store = d.Open(t, 8)
	t.Cleanup(func() {
		if err := admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return d
}

// Open opens one more pool on the same database, as another replica would.
func (d *DB) Open(t testing.TB, conns int32) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), store.Config{URL: d.RuntimeURL, MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Super runs fn on a connection that no policy binds.
func (d *DB) Super(t testing.TB, fn func(context.Context, *pgx.Conn)) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, d.SuperURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	fn(ctx, conn)
}

// Org makes an organisation.
func (d *DB) Org(t testing.TB, slug string) errand.ID {
	t.Helper()
	now := time.Now()
	id := errand.NewID(now)
	err := d.InTx(context.Background(), id, func(tx *store.Tx) error {
		return tx.CreateOrganisation(context.Background(), store.CreateOrganisationParams{ID: id, Slug: slug, Name: slug, CreatedAt: now})
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
