package pgembed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user the server runs as: ourselves, or another one when we are root.
type account struct {
	name     string
	uid, gid uint32
	other    bool // not ourselves: files must be given to it
}

// findAccount picks the server's user: ourselves unless we are root, then `postgres`, else `nobody`.
func findAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return account{}, fmt.Errorf("user %s: %w", name, err)
		}
		return account{name: name, uid: uint32(uid), gid: uint32(gid), other: true}, nil
	}
	return account{}, errors.New("PostgreSQL cannot run as root, and there is no user `postgres` or `nobody`: add one, or start Errand as a normal user")
}

// own gives the folder to the account, for nobody else to enter.
func (a account) own(dir string) error {
	if a.other {
		if err := os.Chown(dir, int(a.uid), int(a.gid)); err != nil {
			return fmt.Errorf("give the folder to user %s: %w", a.name, err)
		}
	}
	return os.Chmod(dir, 0o700)
}

func (a account) credential() *syscall.Credential {
	if !a.other {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// canRun tries a program in the data folder as the account, so that a folder it may not enter is told as such, before
// anything is made.
func (a account) canRun(ctx context.Context, p programs, dataDir string) error {
	cmd := p.command("postgres", "--version")
	cmd.Dir = dataDir
	cmd.SysProcAttr = childAttr(a)
	out, err := runOnLockedThread(ctx, cmd)
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.EACCES) && a.other {
		for _, path := range []string{dataDir, p.dir} {
			if blocked := a.blockedBy(path); blocked != "" {
				return fmt.Errorf("PostgreSQL runs as user %s, who may not enter %s (on the way to %s): "+
					"choose another folder, or allow it with chmod o+x", a.name, blocked, path)
			}
		}
	}
	return fmt.Errorf("run postgres: %w: %s", err, bytes.TrimSpace(out))
}

// blockedBy names the topmost folder on the way to path that the account may not enter, by its mode bits.
func (a account) blockedBy(path string) string {
	blocked := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err == nil {
			st, ok := fi.Sys().(*syscall.Stat_t)
			bit := os.FileMode(0o001)
			if ok && st.Uid == a.uid {
				bit = 0o100
			} else if ok && st.Gid == a.gid {
				bit = 0o010
			}
			if fi.Mode().Perm()&bit == 0 {
				blocked = dir
			}
		}
		if dir == filepath.Dir(dir) {
			return blocked
		}
	}
}
