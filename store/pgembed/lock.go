package pgembed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
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
		text := make([]byte, 20)
		n, _ := f.ReadAt(text, 0) // an unreadable pid counts as unknown
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:n])))
		return nil, &inUseError{dir: filepath.Dir(path), pid: pid}
	}
	l := &lock{f: f}
	if err := errors.Join(f.Truncate(0), writePid(f)); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), l.release())
	}
	return l, nil
}

// awaitLock takes the lock, also from a holder that is dead already: its lock lives on for a moment where it was killed
// between the fork and the exec of a child.
func awaitLock(ctx context.Context, path string) (*lock, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for {
		l, err := takeLock(path)
		var held *inUseError
		if !errors.As(err, &held) || held.pid == 0 || !errors.Is(syscall.Kill(held.pid, 0), syscall.ESRCH) {
			return l, err
		}
		if pause(ctx, 10*time.Millisecond) != nil {
			return nil, err
		}
	}
}

// inUseError is ErrInUse with the holder.
type inUseError struct {
	dir string
	pid int // 0 = unknown
}

func (e *inUseError) Error() string {
	who := "another process"
	if e.pid != 0 {
		who = "process " + strconv.Itoa(e.pid)
	}
	return fmt.Sprintf("%s: %s runs a server on %s; stop it, or choose another data folder", ErrInUse, who, e.dir)
}

func (e *inUseError) Unwrap() error { return ErrInUse }

func writePid(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// release frees the lock. The file stays: removing it would let two processes hold locks on two files of one name.
//
// It is unlocked by name and not by closing alone: a child of ours that is between fork and exec holds the file too.
func (l *lock) release() error {
	_ = syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN) // fails on a closed file, whose lock is gone
	if err := l.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
