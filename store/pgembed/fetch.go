package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// fetchMajor is the version that is downloaded when any will do.
const fetchMajor = 17

// fetchVersions are the releases that the library knows, of the major versions we take.
var fetchVersions = map[int]embedded.PostgresVersion{
	14: embedded.V14, 15: embedded.V15, 16: embedded.V16, 17: embedded.V17, 18: embedded.V18,
}

// binaryCache is where downloads are kept: as root outside /root, which the server's user may not enter.
func binaryCache() string {
	if os.Geteuid() == 0 && runtime.GOOS == "linux" {
		return "/var/cache/errand/postgres"
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "errand", "postgres")
	}
	return filepath.Join(os.TempDir(), "errand-postgres-cache")
}

// fetcher downloads PostgreSQL through fergusstrange/embedded-postgres.
type fetcher struct {
	log        *slog.Logger
	cache      string
	repository string // where from; empty means the library's own
}

// fetch gives the folder of downloaded programs, downloading them once. A cancelled context ends the wait; the download
// itself cannot be interrupted and ends by itself.
func (f fetcher) fetch(ctx context.Context, major int) (string, error) {
	if major == 0 {
		major = fetchMajor
	}
	version, ok := fetchVersions[major]
	if !ok {
		return "", fmt.Errorf("no download of PostgreSQL %d is known", major)
	}
	root := filepath.Join(f.cache, string(version))
	bin := filepath.Join(root, "bin")
	if _, err := newPrograms(ctx, bin); err == nil {
		return bin, nil
	}
	if err := os.MkdirAll(f.cache, 0o755); err != nil {
		return "", err
	}
	f.log.Info("downloading PostgreSQL", "version", string(version), "into", f.cache)
	done := make(chan error, 1)
	go func() { done <- f.download(ctx, version, root) }()
	select {
	case err := <-done:
		if err != nil {
			return "", err
		}
		return bin, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// download has the library fetch and unpack, which it does only as the first part of starting a server. We want no
// server of its making (it listens on TCP and cannot be root), so it is given a data folder that looks initialised and
// is empty: the start then fails right after the unpacking, and whether the programs are there is looked up afterwards.
func (f fetcher) download(ctx context.Context, version embedded.PostgresVersion, root string) error {
	work, err := os.MkdirTemp(f.cache, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // a left-over folder does no harm
	data := filepath.Join(work, "data")
	major := fmt.Sprintf("%.2s\n", string(version))
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major), 0o600)); err != nil {
		return err
	}
	free, err := freePort(ctx)
	if err != nil {
		return err
	}
	cfg := embedded.DefaultConfig().Version(version).Port(free).Logger(io.Discard).
		CachePath(f.cache).RuntimePath(filepath.Join(work, "runtime")).DataPath(data).BinariesPath(root)
	if f.repository != "" {
		cfg = cfg.BinaryRepositoryURL(f.repository)
	}
	db := embedded.NewDatabase(cfg)
	startErr := db.Start()
	if startErr == nil {
		startErr = db.Stop()
	}
	if _, err := os.Stat(filepath.Join(root, "bin", "postgres")); err != nil {
		return fmt.Errorf("download of PostgreSQL %s: %w", version, startErr)
	}
	return nil
}

// freePort finds a port for the library's check that its port is free; nothing listens there afterwards.
func freePort(ctx context.Context) (uint32, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	p := l.Addr().(*net.TCPAddr).Port
	return uint32(p), l.Close()
}

// installer installs Debian's package.
type installer struct {
	log  *slog.Logger
	run  func(ctx context.Context, env []string, name string, args ...string) error
	root string // the file system
	euid int
}

// install runs apt-get. Debian's package would also make a cluster of its own and start it; a setting that it reads
// keeps it from that, and is written only where there is none yet.
func (i installer) install(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(i.root, "etc/debian_version")); err != nil {
		return errors.New("not a Debian system")
	}
	if i.euid != 0 {
		return errors.New("only root may install packages")
	}
	dir := filepath.Join(i.root, "etc/postgresql-common")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "createcluster.conf"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case err == nil:
		_, err = f.WriteString("# Written by Errand: it runs a cluster of its own.\ncreate_main_cluster = false\n")
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	case !errors.Is(err, os.ErrExist):
		return err
	}
	i.log.Info("installing the Debian package postgresql")
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	args := []string{"install", "-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold", "postgresql"}
	if err := i.run(ctx, env, "apt-get", args...); err == nil {
		return nil
	}
	if err := i.run(ctx, env, "apt-get", "update"); err != nil { // package lists may be absent or old
		return err
	}
	return i.run(ctx, env, "apt-get", args...)
}
