// Package pgembed runs a PostgreSQL server as a child process: for `errand serve` without a database, for the demo and
// for tests. It finds the programs (Locate), makes the cluster, its two roles and its database on the first start, and
// starts the server on a Unix socket that only its own user can reach.
//
// What it promises: one server per data folder (a locked file, held for the life of this process); no server left behind
// however this process ends, kill -9 included (Linux); a first start cut short is finished by the next one; as root the
// server runs as another user, because PostgreSQL refuses to be root.
//
// It imports nothing of ours. Start reading at Start; the child itself is in process.go.
package pgembed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The names that every cluster holds. Both roles may log in and neither is a superuser; the owner owns the database and
// migrates it, the runtime role owns nothing and bypasses nothing.
const (
	Superuser   = "postgres"
	OwnerRole   = "errand_owner"
	RuntimeRole = "errand_runtime"
	Database    = "errand"
)

const (
	port         = "5432" // names the socket file; no TCP port is opened
	startTimeout = 60 * time.Second
	clusterDir   = "cluster"
	freshPrefix  = "cluster.new-" // a cluster that initdb has not finished
	lockFile     = "lock"
)

// Config says what to run.
type Config struct {
	// DataDir belongs to this package alone: it is made if absent, and given to the server's user. It may not hold
	// anything else. Empty means a throwaway cluster, in memory (/dev/shm) where there is room, removed by Stop.
	DataDir string
	// BinDir is the folder of the programs `postgres` and `initdb`. Empty means that Locate looks for them.
	BinDir string
	// NoFsync trades durability for speed. For tests: a crash of the machine may lose the cluster. The death of the
	// server or of this process loses nothing, as otherwise.
	NoFsync bool
	// Settings are further server settings ("max_connections": "50"). They override the defaults, except for those that
	// keep the server off the network.
	Settings map[string]string
	// Logger takes the server's own messages. Nil drops them.
	Logger *slog.Logger
}

// ErrInUse is in the chain of Start's error when another process runs a server on the same folder.
var ErrInUse = errors.New("data folder in use")

// Server is a running PostgreSQL.
type Server struct {
	proc    *process
	lock    *lock
	socket  *tempDir
	scratch *tempDir // the throwaway data folder, or nil
	log     *slog.Logger
}

// Start starts the server on cfg.DataDir and returns when it takes connections and holds the roles and the database.
// The context bounds the start only; the server lives until Stop or the end of this process. On error nothing keeps
// running and nothing stays locked.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	s := &Server{log: cfg.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("embedded PostgreSQL: %w", err), s.Stop())
		}
	}()
	acct, err := findAccount()
	if err != nil {
		return nil, err
	}
	sweep(s.log, acct, scratchParents()...)
	dataDir, err := s.takeDataDir(ctx, cfg.DataDir, acct)
	if err != nil {
		return nil, err
	}
	progs, err := s.findPrograms(ctx, cfg, dataDir, acct)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout) // after the search, which may have to download
	defer cancel()
	cluster := filepath.Join(dataDir, clusterDir)
	if err := awaitPrevious(ctx, cluster, s.log); err != nil {
		return nil, err
	}
	if err := s.initCluster(ctx, progs, acct, dataDir, cfg.NoFsync); err != nil {
		return nil, err
	}
	if s.socket, err = newSocketDir(acct); err != nil {
		return nil, err
	}
	if err := s.launch(ctx, progs, acct, cluster, cfg); err != nil {
		return nil, err
	}
	if err := s.provision(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// takeDataDir makes the folder, locks it, and gives it to the server's user.
func (s *Server) takeDataDir(ctx context.Context, dir string, acct account) (string, error) {
	if dir == "" {
		t, err := newTempDir(throwawayParent(), acct)
		if err != nil {
			return "", err
		}
		s.scratch = t
		return t.path, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := claimable(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make the data folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make the data folder: %w", err)
	}
	if s.lock, err = awaitLock(ctx, filepath.Join(dir, lockFile)); err != nil {
		return "", err
	}
	return dir, acct.own(dir)
}

// claimable refuses a folder that holds anything but a cluster of ours: it is about to change hands.
func claimable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into the data folder: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if name != lockFile && name != clusterDir && !strings.HasPrefix(name, freshPrefix) {
			return fmt.Errorf("the data folder %s holds %q, which is not Errand's: choose an empty or a new folder", dir, name)
		}
	}
	return nil
}

// findPrograms settles which PostgreSQL to run: the one asked for, or one whose major version fits the folder.
func (s *Server) findPrograms(ctx context.Context, cfg Config, dataDir string, acct account) (programs, error) {
	want, err := clusterMajor(filepath.Join(dataDir, clusterDir))
	if err != nil {
		return programs{}, err
	}
	var p programs
	if cfg.BinDir != "" {
		p, err = newPrograms(ctx, cfg.BinDir)
	} else {
		p, err = newLocator(s.log).locate(ctx, want)
	}
	if err != nil {
		return programs{}, err
	}
	if want != 0 && p.major != want {
		return programs{}, fmt.Errorf("the database in %s was made by PostgreSQL %d and the programs in %s are version %d: "+
			"install PostgreSQL %d, or move the data with pg_dump and pg_restore", dataDir, want, p.dir, p.major, want)
	}
	return p, acct.canRun(ctx, p, dataDir)
}

// launch starts the child and waits until it answers. A server that still finds remains of a killed one (its last
// backends on their way out) is started again until the context ends.
func (s *Server) launch(ctx context.Context, p programs, acct account, cluster string, cfg Config) error {
	for {
		proc, err := startProcess(p.command("postgres", serverArgs(cluster, s.socket.path, cfg)...), acct, s.log)
		if err != nil {
			return err
		}
		s.proc = proc
		err = s.awaitReady(ctx)
		if err == nil {
			return nil
		}
		if !proc.sawRemains() || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// awaitReady polls until the server takes a connection, or has ended.
func (s *Server) awaitReady(ctx context.Context) error {
	for {
		conn, err := s.Admin(ctx)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.proc.done:
			return fmt.Errorf("the server ended while it started: %s", s.proc.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("the server did not take a connection in time (%w): %s", err, s.proc.lastWords())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the server: open connections are closed, committed data is safe. It may be called again. A throwaway
// cluster is removed.
func (s *Server) Stop() error {
	var errs []error
	if s.proc != nil {
		errs = append(errs, s.proc.stop())
	}
	errs = append(errs, s.socket.remove(), s.scratch.remove())
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}

// Done is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.proc.done }

// URL gives the address of a database for pgx, as one of the roles. It holds no secret: the socket's folder is the lock.
func (s *Server) URL(database, user string) string {
	return addressOf(s.socket.path, database, user)
}

func addressOf(socket, database, user string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Path: "/" + database, RawQuery: url.Values{
		"host": {socket}, "port": {port}, "sslmode": {"disable"},
	}.Encode()}
	return u.String()
}

// Admin connects as the superuser to the maintenance database, to create and drop databases. The caller closes it.
func (s *Server) Admin(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, s.URL("postgres", Superuser))
}

// pause waits for d, or less if the context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
