package git

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
)

// plain runs the git program as anybody would, to set the scene.
func plain(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "commit.gpgSign=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_ALLOW_PROTOCOL=file",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkout makes a repository with one commit of the files given and a bare remote that has it as main.
func checkout(t *testing.T, files map[string]string) (dir, remote string) {
	t.Helper()
	root := t.TempDir()
	dir, remote = filepath.Join(root, "work"), filepath.Join(root, "remote.git")
	plain(t, root, "init", "-q", "-b", "main", dir)
	for name, content := range files {
		write(t, dir, name, content)
	}
	plain(t, dir, "add", "-A")
	plain(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	plain(t, root, "clone", "-q", "--bare", dir, remote)
	return dir, remote
}

func open(t *testing.T, dir string, opt Options) *Repo {
	t.Helper()
	opt.TempDir = t.TempDir()
	r, err := Open(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

var someone = Author{Name: "Errand", Email: "errand@example.com", When: time.Unix(1_700_000_000, 0)}

func commit(t *testing.T, r *Repo, changes ...FileChange) string {
	t.Helper()
	c, err := r.Commit(t.Context(), CommitSpec{Parent: r.head, Message: "change\n", Author: someone, Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantCode(t *testing.T, err error, code errand.Code) {
	t.Helper()
	if errand.CodeOf(err) != code {
		t.Errorf("error %v: code %q, want %q", err, errand.CodeOf(err), code)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir, remote := checkout(t, map[string]string{"a.txt": "one\n"})
	want := plain(t, dir, "rev-parse", "HEAD")
	linked := filepath.Join(t.TempDir(), "linked")
	plain(t, dir, "worktree", "add", "-q", "--detach", linked)
	packed, _ := checkout(t, map[string]string{"a.txt": "one\n"})
	plain(t, packed, "pack-refs", "--all")
	plain(t, packed, "gc", "-q")

	for name, tc := range map[string]struct{ dir, head string }{
		"a checkout on a branch":   {dir, want},
		"a linked work tree":       {linked, want},
		"a bare repository":        {remote, want},
		"refs and objects packed":  {packed, plain(t, packed, "rev-parse", "HEAD")},
		"a detached HEAD (Action)": {func() string { plain(t, linked, "checkout", "-q", "--detach"); return linked }(), want},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, tc.dir, Options{})
			if h, err := r.Head(t.Context()); err != nil || h != tc.head {
				t.Errorf("head %q, %v, want %q", h, err, tc.head)
			}
			if l, err := r.LsFiles(t.Context()); err != nil || len(l) != 1 || l[0].Path != "a.txt" || l[0].Mode != ModeFile {
				t.Errorf("files %v, %v", l, err)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a.txt": "one\n"})
	empty := t.TempDir()
	unborn := t.TempDir()
	plain(t, unborn, "init", "-q", "-b", "main")
	outside := t.TempDir()
	plain(t, outside, "init", "-q")
	write(t, outside, ".git/HEAD", "ref: refs/../../secret\n")
	for name, tc := range map[string]struct {
		dir string
		opt Options
	}{
		"a folder that is no checkout":         {empty, Options{}},
		"a folder that does not exist":         {filepath.Join(empty, "no"), Options{}},
		"a folder inside a checkout":           {filepath.Join(dir, ".git", "hooks"), Options{}},
		"a branch without a commit":            {unborn, Options{}},
		"a HEAD that leads out":                {outside, Options{}},
		"a remote that names a program":        {dir, Options{Remote: "ext::sh -c touch% /tmp/x"}},
		"a remote that is an option":           {dir, Options{Remote: "--upload-pack=x"}},
		"a remote by ssh":                      {dir, Options{Remote: "git@github.com:o/r"}},
		"a remote with a password":             {dir, Options{Remote: "https://u:p@github.com/o/r"}},
		"a token in the clear":                 {dir, Options{Remote: "http://github.com/o/r", Token: "t"}},
		"a token with a line break":            {dir, Options{Remote: "https://github.com/o/r", Token: "t\nHost: x"}},
		"a git program that is not there":      {dir, Options{GitPath: "/nonexistent/git"}},
		"a folder whose name breaks the lines": {dir + "\n", Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Open(t.Context(), tc.dir, tc.opt)
			if err == nil {
				_ = r.Close()
			}
			wantCode(t, err, errand.CodeInvalid)
		})
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a.txt": "one\n"})
	tmp := t.TempDir()
	r, err := Open(t.Context(), dir, Options{TempDir: tmp})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestACancelledCallSaysSo(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a.txt": "one\n"})
	r := open(t, dir, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.LsFiles(ctx); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("error %v", err)
	}
}

// snapshot is what a folder holds: names, modes and content.
func snapshot(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	all := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil || !fi.Mode().IsRegular() {
			all[p+" "+d.Type().String()] = [32]byte{}
			return err
		}
		b, err := os.ReadFile(p)
		all[p+" "+fi.Mode().String()] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
