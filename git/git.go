// Package git is a thin, hardened wrapper round the git program: list, search and read a tree, compare two trees, build
// a commit, fetch and push a branch. It imports the root only.
//
// A checkout is foreign ground. Its .git/config, its hooks and its attributes can name programs (fsmonitor, filters,
// text conversion, ssh, credential helpers) and can redirect addresses (insteadOf), so none of them is ever read. Open
// makes a private bare repository of its own that only borrows the checkout's objects (objects/info/alternates), reads
// HEAD's commit itself, and lets git work there. Nothing is written into the checkout, and the work tree is never
// looked at: everything here speaks of committed trees.
//
// Every call of the git program goes through one function (Repo.run in run.go), which builds environment and
// configuration from nothing. Start reading there, then at Open.
package git

import (
	"context"
	"os"
	"path/filepath"

	"github.com/errand-dev/errand"
)

// Options say how a checkout is opened. The zero value serves everything that needs no remote.
type Options struct {
	GitPath string // the git program; "" = looked up on PATH
	// Remote is the address that fetch and push speak to: http(s), without user or password, or an absolute path of
	// this machine. "" = the calls that need a remote are refused. The checkout's own remotes are never used.
	Remote string
	// Token is sent to Remote's host alone, as HTTP authorization; it reaches git by environment and never by argument.
	// It needs https, or a loopback address.
	Token   string
	TempDir string   // where the private repository is made; "" = the system's
	Env     []string // NAME=value; only proxy and certificate variables are taken (see allowedEnv)
}

// Repo is an open checkout, fixed at the commit that HEAD named when it was opened. It is safe for concurrent use.
type Repo struct {
	git     string // absolute path of the program
	shadow  string // the private folder: repo/ (GIT_DIR) and home/
	remote  string
	env     []string // what is the same for every call
	auth    [][2]string
	secrets []string // never shown: the token and its encoded form
	head    string
}

// Open opens the checkout at dir: the folder that holds .git, or a bare repository. Close removes what it made.
//
// It returns an Invalid error when dir is no checkout, has no commit, or uses a ref storage that is not files; when an
// option is wrong; or when the git program is missing.
func Open(ctx context.Context, dir string, opt Options) (*Repo, error) {
	at, err := locate(dir)
	if err != nil {
		return nil, err
	}
	r, err := newRepo(opt)
	if err != nil {
		return nil, err
	}
	if r.head, err = at.head(); err != nil {
		return nil, err
	}
	if r.shadow, err = os.MkdirTemp(opt.TempDir, "errand-git-"); err != nil {
		return nil, errand.Errorf(errand.CodeInternal, err, "no temporary folder for git")
	}
	if err := r.build(ctx, at); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// Close removes the private repository. Commits that were not pushed are gone with it.
func (r *Repo) Close() error { return os.RemoveAll(r.shadow) }

// Head gives the commit that the checkout's HEAD named at Open.
func (r *Repo) Head(context.Context) (string, error) { return r.head, nil }

func (r *Repo) gitDir() string { return filepath.Join(r.shadow, "repo") }

// build makes the private repository: empty, with the checkout's objects as alternates and its shallow boundary copied.
func (r *Repo) build(ctx context.Context, at place) error {
	for _, d := range []string{r.gitDir(), filepath.Join(r.shadow, "home")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	format := "sha1"
	if len(r.head) == 64 {
		format = "sha256"
	}
	// --template= (empty): no sample hooks, no info/attributes of the machine.
	if _, err := r.out(ctx, "init", "--quiet", "--bare", "--template=", "--object-format="+format); err != nil {
		return err
	}
	info := filepath.Join(r.gitDir(), "objects", "info")
	if err := os.MkdirAll(info, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(info, "alternates"), []byte(at.objects()+"\n"), 0o600); err != nil {
		return err
	}
	if err := at.copyShallow(filepath.Join(r.gitDir(), "shallow")); err != nil {
		return err
	}
	if _, err := r.out(ctx, "cat-file", "-e", r.head+"^{commit}"); err != nil {
		return errand.Errorf(errand.CodeInvalid, err, "the commit %s of HEAD is not in %s: check it out without a partial clone filter", r.head, at.work)
	}
	// Named, so that a fetch tells the remote what is already here.
	_, err := r.out(ctx, "update-ref", "refs/errand/base", r.head)
	return err
}
