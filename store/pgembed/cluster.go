package pgembed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// clusterMajor reads which major version made the cluster; 0 means that there is none yet.
func clusterMajor(cluster string) (int, error) {
	b, err := os.ReadFile(filepath.Join(cluster, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the cluster: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("%s/PG_VERSION holds %q: not a version that Errand knows", cluster, b)
	}
	return major, nil
}

// initCluster runs initdb if there is no cluster. It works in a folder beside and renames it when it is whole, so that
// a cluster either exists or does not, wherever a kill falls. The folder's name is new each time: an initdb whose owner
// was killed cleans its own up as it dies, and must not find ours.
func (s *Server) initCluster(ctx context.Context, p programs, acct account, dataDir string, noSync bool) error {
	old, err := filepath.Glob(filepath.Join(dataDir, freshPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil { // a dying initdb may still write there: the next start removes it
			s.log.Info("an unfinished cluster is still there", "dir", dir, "error", err.Error())
		}
	}
	cluster := filepath.Join(dataDir, clusterDir)
	if major, err := clusterMajor(cluster); err != nil || major != 0 {
		return err
	}
	if _, err := os.Lstat(cluster); err == nil {
		return fmt.Errorf("%s is not a PostgreSQL cluster (it has no PG_VERSION): restore it or move it away", cluster)
	}
	fresh, err := os.MkdirTemp(dataDir, freshPrefix)
	if err != nil {
		return err
	}
	if err := acct.own(fresh); err != nil {
		return err
	}
	args := []string{
		"-D", fresh, "-U", Superuser, "--auth-local=trust", "--auth-host=reject", "--encoding=UTF8", "--locale=C.UTF-8",
	}
	if noSync {
		args = append(args, "--no-sync")
	}
	cmd := p.command("initdb", args...)
	cmd.SysProcAttr = childAttr(acct)
	out, err := runOnLockedThread(ctx, cmd)
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.Rename(fresh, cluster); err != nil {
		return err
	}
	return syncDir(dataDir)
}

// syncDir makes a rename in the folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// serverArgs are the arguments of `postgres`: the defaults, the caller's settings over them, and over all of it what
// keeps the server off the network.
func serverArgs(cluster, socketDir string, cfg Config) []string {
	settings := map[string]string{
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"lc_messages":             "C", // lastWords and the log levels read the server's messages
		"log_line_prefix":         "",
		"log_error_verbosity":     "terse", // DETAIL quotes rows and
		"log_min_error_statement": "panic", // statements quote values: neither belongs in a log
		"shared_buffers":          "128MB",
		"max_connections":         "100",
		"max_wal_size":            "1GB",
	}
	if cfg.NoFsync {
		// synchronous_commit stays on: without it the death of the server alone would lose what was committed last.
		maps.Copy(settings, map[string]string{"fsync": "off", "full_page_writes": "off"})
	}
	maps.Copy(settings, cfg.Settings)
	maps.Copy(settings, map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": socketDir,
		"unix_socket_permissions": "0700",
		"logging_collector":       "off",
	})
	args := []string{"-D", cluster}
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", k+"="+settings[k])
	}
	return args
}

// provision makes what is missing of the roles and the database, and takes back what the roles should not have. Every
// step looks first, so that a start cut short anywhere is finished by the next.
func (s *Server) provision(ctx context.Context) (err error) {
	conn, err := s.Admin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	const plain = " LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
	for _, role := range []string{OwnerRole, RuntimeRole} {
		verb := "ALTER"
		if has, err := exists(ctx, conn, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role); err != nil {
			return err
		} else if !has {
			verb = "CREATE"
		}
		if _, err := conn.Exec(ctx, verb+" ROLE "+role+plain); err != nil {
			return fmt.Errorf("role %s: %w", role, err)
		}
	}
	has, err := exists(ctx, conn, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", Database)
	if err != nil || has {
		return err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+Database+" OWNER "+OwnerRole); err != nil {
		return fmt.Errorf("database %s: %w", Database, err)
	}
	return nil
}

func exists(ctx context.Context, conn *pgx.Conn, query, name string) (has bool, err error) {
	err = conn.QueryRow(ctx, query, name).Scan(&has)
	return has, err
}
