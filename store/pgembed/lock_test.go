package pgembed

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestALockIsFreeOnceReleasedThoughAForkedChildHoldsTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), lockFile)
	l, err := takeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := syscall.Dup(int(l.f.Fd())) // as a child has it between fork and exec
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(copied) })
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	again, err := takeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(again.release(), again.release()); err != nil {
		t.Errorf("released twice: %v", err)
	}
}

func TestALockOfADeadHolderIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), lockFile)
	l, err := takeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("2147483000\n"), 0o600); err != nil { // nobody's pid
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := takeLock(path)
		refused <- err
		refused <- l.release()
	}()
	if err := <-refused; !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "process 2147483000 ") {
		t.Fatalf("while it is held: %v", err)
	}
	got, err := awaitLock(t.Context(), path)
	if err := errors.Join(err, <-refused); err != nil {
		t.Fatal(err)
	}
	if err := got.release(); err != nil {
		t.Error(err)
	}
}

func TestALockFileThatIsALinkIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, lockFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := takeLock(filepath.Join(dir, lockFile)); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("error = %v, want ELOOP", err)
	}
}
