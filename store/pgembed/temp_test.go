package pgembed

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSweepTakesOnlyWhatADeadOwnerLeft(t *testing.T) {
	t.Parallel()
	acct, err := findAccount()
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * sweepAge)
	for _, tt := range []struct {
		says string
		make func(t *testing.T, parent string) string
		age  time.Time
		gone bool
	}{
		{"left by a dead owner", abandoned, old, true},
		{"left by a dead owner a moment ago: its owner may be about to lock it", abandoned, time.Now(), false},
		{"its owner lives", func(t *testing.T, parent string) string {
			d, err := newTempDir(parent, acct)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.remove() })
			return d.path
		}, old, false},
		{"a data folder that happens to be called so", func(t *testing.T, parent string) string {
			return made(t, filepath.Join(parent, tempPrefix+"mine"), lockFile)
		}, old, false},
		{"another name", func(t *testing.T, parent string) string {
			return made(t, filepath.Join(parent, "other"), tempLock)
		}, old, false},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			parent := folder(t)
			dir := tt.make(t, parent)
			if err := os.Chtimes(dir, tt.age, tt.age); err != nil {
				t.Fatal(err)
			}
			sweep(quiet(), acct, parent)
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) != tt.gone {
				t.Errorf("gone = %v, want %v", !tt.gone, tt.gone)
			}
		})
	}
}

func abandoned(t *testing.T, parent string) string {
	return made(t, filepath.Join(parent, tempPrefix+"123"), tempLock)
}

func made(t *testing.T, dir, file string) string {
	t.Helper()
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, file), []byte("1\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheSocketsPathIsShortWhateverTMPDIRIs(t *testing.T) {
	long := filepath.Join(folder(t), "a-very-long-name-for-a-folder-of-temporary-files-that-no-socket-can-stand-in-because-of-its-length")
	if err := os.Mkdir(long, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	acct, err := findAccount()
	if err != nil {
		t.Fatal(err)
	}
	d, err := newSocketDir(acct)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(d.path) != "/tmp" {
		t.Errorf("the socket's folder is %s", d.path)
	}
	if err := d.remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(long); err != nil || len(left) > 0 {
		t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
}

func TestBlockedByNamesTheFolderInTheWay(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	shut := filepath.Join(dir, "shut")
	if err := errors.Join(os.MkdirAll(filepath.Join(shut, "in"), 0o755), os.Chmod(shut, 0o700)); err != nil {
		t.Fatal(err)
	}
	a := account{name: "somebody", uid: 65533, gid: 65533, other: true}
	if got := a.blockedBy(filepath.Join(shut, "in")); got != shut {
		t.Errorf("blockedBy = %q, want %q", got, shut)
	}
	if got := a.blockedBy(dir); got != "" {
		t.Errorf("blockedBy(an open folder) = %q", got)
	}
}
