package pgembed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lock is a locked file. The kernel frees it when this process ends, however it ends; the child does not inherit it.
type lock struct{ f *os.File }

// takeLock locks the file, made if absent, and writes our pid into it. The error of a lock that is held wraps ErrInUse
// and names the holder.
func takeLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 20)
		n, _ := f.ReadAt(holder, 0) // an unreadable pid is told as such below
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		pid := strings.TrimSpace(string(holder[:n]))
		if pid == "" {
			pid = "unknown"
		}
		return nil, fmt.Errorf("%w: process %s runs a server on %s; stop it, or choose another data folder",
			ErrInUse, pid, filepath.Dir(path))
	}
	l := &lock{f: f}
	if err := errors.Join(f.Truncate(0), writePid(f)); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), l.release())
	}
	return l, nil
}

func writePid(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// release frees the lock. The file stays: removing it would let two processes hold locks on two files of one name.
func (l *lock) release() error {
	if err := l.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
