package pgembed

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	tempPrefix = "errand-pg-"
	// Not the name of a data folder's lock: a data folder is never taken for a temporary one, whatever it is called.
	tempLock  = "temp.lock"
	memoryDir = "/dev/shm"
	// A cluster with its log takes some 60 MB, and databases cloned in tests take more. Containers often have 64 MB.
	memoryNeeded = 1 << 30
	// The kernel's limit for a socket's path is 107 bytes and a NUL.
	socketPathMax = 107
	// A folder younger than this may be one whose owner has not locked it yet.
	sweepAge = time.Minute
)

// tempDir is a temporary folder with a lock in it, by which a later sweep knows whether its owner lives.
type tempDir struct {
	path string
	lock *lock
}

func newTempDir(parent string, acct account) (*tempDir, error) {
	path, err := os.MkdirTemp(parent, tempPrefix)
	if err != nil {
		return nil, err
	}
	l, err := takeLock(filepath.Join(path, tempLock))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	t := &tempDir{path: path, lock: l}
	if err := acct.own(path); err != nil {
		return nil, errors.Join(err, t.remove())
	}
	return t, nil
}

// remove deletes the folder and then frees its lock. A nil tempDir, or one removed already, is fine.
func (t *tempDir) remove() error {
	if t == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(t.path), t.lock.release())
}

// newSocketDir makes a folder whose path is short enough for a socket, wherever the data is.
func newSocketDir(acct account) (*tempDir, error) {
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		t, err := newTempDir(parent, acct)
		if err != nil {
			return nil, fmt.Errorf("folder for the socket: %w", err)
		}
		if len(filepath.Join(t.path, ".s.PGSQL."+port)) < socketPathMax && acct.blockedBy(t.path) == "" {
			return t, nil
		}
		if err := t.remove(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no temporary folder serves for the socket: set TMPDIR to one with a short path that every user may enter")
}

// throwawayParent is memory where there is enough of it, else the temporary folder.
func throwawayParent() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err == nil && uint64(fs.Bavail)*uint64(fs.Bsize) >= memoryNeeded { //nolint:unconvert // signed on other systems
		return memoryDir
	}
	return os.TempDir()
}

// scratchParents are the places where earlier processes may have left folders of ours.
func scratchParents() []string { return []string{memoryDir, os.TempDir(), "/tmp"} }

// sweep removes folders of ours whose owner died without removing them. It touches only what bears our name, belongs to
// us or to the server's user, is not fresh, and is not locked.
func sweep(log *slog.Logger, acct account, parents ...string) {
	for _, parent := range parents {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue // not there: nothing of ours in it
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), tempPrefix) {
				sweepOne(log, acct, filepath.Join(parent, e.Name()))
			}
		}
	}
}

func sweepOne(log *slog.Logger, acct account, dir string) {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || time.Since(fi.ModTime()) < sweepAge {
		return
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid != acct.uid && int(st.Uid) != os.Geteuid() {
		return
	}
	lockPath := filepath.Join(dir, tempLock)
	if _, err := os.Lstat(lockPath); err != nil {
		return // not one of ours
	}
	l, err := takeLock(lockPath)
	if err != nil {
		return // its owner lives
	}
	if err := errors.Join(os.RemoveAll(dir), l.release()); err != nil {
		log.Warn("cannot remove an old temporary folder", "dir", dir, "error", err.Error())
	}
}
