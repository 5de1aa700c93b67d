package pgembed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// debianBins is where Debian and Ubuntu keep the programs of each major version, off the PATH.
const debianBins = "/usr/lib/postgresql/*/bin"

// Locate finds a folder that holds `postgres` and `initdb`: on the PATH, in Debian's place (the newest), else by
// download, else, as root on Debian, by installing the package. Its error says what to install.
func Locate(ctx context.Context, log *slog.Logger) (dir string, err error) {
	p, err := newLocator(log).locate(ctx, 0)
	return p.dir, err
}

// programs is a folder of PostgreSQL programs and their major version.
type programs struct {
	dir   string
	major int
}

// newPrograms looks whether the folder holds what is needed, and asks for the version.
func newPrograms(ctx context.Context, dir string) (programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return programs{}, err
	}
	p := programs{dir: dir}
	for _, name := range []string{"postgres", "initdb"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || !fi.Mode().IsRegular() {
			return programs{}, fmt.Errorf("%s holds no program %q", dir, name)
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return programs{}, fmt.Errorf("ask %s/postgres for its version: %w", dir, err)
	}
	if p.major, err = parseMajor(string(out)); err != nil {
		return programs{}, fmt.Errorf("%s/postgres: %w", dir, err)
	}
	return p, nil
}

// parseMajor reads "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)".
func parseMajor(version string) (int, error) {
	_, rest, found := strings.Cut(version, "(PostgreSQL) ")
	digits := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits = rest[:i]
	}
	major, err := strconv.Atoi(digits)
	if !found || err != nil {
		return 0, fmt.Errorf("%q names no PostgreSQL version", strings.TrimSpace(version))
	}
	if major < 14 {
		return 0, fmt.Errorf("PostgreSQL %d is too old: want 14 or newer", major)
	}
	return major, nil
}

// command prepares one of the programs. Its environment is fixed, because PGDATA, PGPORT or PGOPTIONS of whoever
// started us are meant for another server.
func (p programs) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.dir, name), args...) //nolint:noctx // the server outlives its start
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + p.dir + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	if v, ok := os.LookupEnv("LD_LIBRARY_PATH"); ok {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+v)
	}
	return cmd
}

// locator holds the places to look in and the ways to get what is not there.
type locator struct {
	log     *slog.Logger
	path    func(string) (string, error)
	bins    string // a glob of folders
	fetch   func(ctx context.Context, major int) (dir string, err error)
	install func(ctx context.Context) error
}

func newLocator(log *slog.Logger) locator {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return locator{
		log: log, path: exec.LookPath, bins: debianBins,
		fetch:   fetcher{log: log, cache: binaryCache()}.fetch,
		install: installer{log: log, run: runQuiet, root: "/", euid: os.Geteuid()}.install,
	}
}

// locate gives the first programs found, of the wanted major version unless that is 0. When there are only others it
// gives those: the caller can say best what is wrong with them.
func (l locator) locate(ctx context.Context, want int) (programs, error) {
	found := l.installed(ctx)
	if p, ok := choose(found, want); ok {
		return p, nil
	}
	dir, fetchErr := l.fetch(ctx, want)
	if fetchErr == nil {
		p, err := newPrograms(ctx, dir)
		if err == nil {
			return p, nil
		}
		fetchErr = err
	}
	if len(found) > 0 { // of another version than the wanted one
		return found[0], nil
	}
	l.log.Info("PostgreSQL is not installed and cannot be downloaded", "error", fetchErr.Error())
	installErr := l.install(ctx)
	if installErr == nil {
		if p, ok := choose(l.installed(ctx), 0); ok {
			return p, nil
		}
		installErr = errors.New("the package brought no programs")
	}
	return programs{}, fmt.Errorf("PostgreSQL is not here and could not be fetched: install it (on Debian or Ubuntu `apt-get install postgresql`, "+
		"on Fedora `dnf install postgresql-server`, on macOS `brew install postgresql`), or give the address of a database; "+
		"download: %w; package: %w", fetchErr, installErr)
}

func choose(found []programs, want int) (programs, bool) {
	i := slices.IndexFunc(found, func(p programs) bool { return want == 0 || p.major == want })
	if i < 0 {
		return programs{}, false
	}
	return found[i], true
}

// installed lists what the machine has: the PATH's first, then Debian's folders, newest first.
func (l locator) installed(ctx context.Context) []programs {
	var onPath []string
	if file, err := l.path("postgres"); err == nil {
		onPath = append(onPath, filepath.Dir(file))
		if target, err := filepath.EvalSymlinks(file); err == nil && filepath.Dir(target) != onPath[0] {
			onPath = append(onPath, filepath.Dir(target))
		}
	}
	offPath, _ := filepath.Glob(l.bins) // the only error is a bad pattern
	rest := l.usable(ctx, offPath)
	slices.SortStableFunc(rest, func(a, b programs) int { return b.major - a.major })
	return append(l.usable(ctx, onPath), rest...)
}

func (l locator) usable(ctx context.Context, dirs []string) []programs {
	var found []programs
	for _, dir := range dirs {
		p, err := newPrograms(ctx, dir)
		if err != nil {
			l.log.Debug("no usable PostgreSQL", "dir", dir, "error", err.Error())
			continue
		}
		found = append(found, p)
	}
	return found
}

// runQuiet runs a program and gives what it printed with the error.
func runQuiet(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
