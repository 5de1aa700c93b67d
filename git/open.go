package git

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/errand-dev/errand"
)

// place is where a checkout keeps its things. Its files are read by us, never by git, save for the objects.
type place struct{ work, gitDir, commonDir string }

func (p place) objects() string { return filepath.Join(p.commonDir, "objects") }

// locate finds the git folder of a checkout: .git as a folder, .git as a file that names one (a linked work tree), or
// dir itself (a bare repository).
func locate(dir string) (place, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return place{}, errand.Errorf(errand.CodeInvalid, err, "no such folder: %q", dir)
	}
	if strings.ContainsAny(abs, "\n\x00") {
		return place{}, errand.Invalid("dir", "the folder's name holds a line break or NUL: git cannot be told of it")
	}
	p := place{work: abs, gitDir: filepath.Join(abs, ".git")}
	switch fi, err := os.Stat(p.gitDir); {
	case err == nil && fi.IsDir():
	case err == nil && fi.Mode().IsRegular():
		line, err := firstLine(p.gitDir)
		name, ok := strings.CutPrefix(line, "gitdir: ")
		if err != nil || !ok {
			return place{}, errand.Invalid("dir", "%s is neither a git folder nor a file that names one", p.gitDir)
		}
		p.gitDir = under(abs, name)
	case errors.Is(err, fs.ErrNotExist) && isDir(filepath.Join(abs, "objects")) && isFile(filepath.Join(abs, "HEAD")):
		p.gitDir = abs
	default:
		return place{}, errand.Invalid("dir", "no git checkout at %s: give the folder that holds .git", abs)
	}
	p.commonDir = p.gitDir
	if name, err := firstLine(filepath.Join(p.gitDir, "commondir")); err == nil {
		p.commonDir = under(p.gitDir, name)
	}
	if !isDir(p.objects()) {
		return place{}, errand.Invalid("dir", "%s has no objects folder: it is not a git checkout", p.commonDir)
	}
	return p, nil
}

// head resolves HEAD to a commit by reading the ref files.
func (p place) head() (string, error) {
	value, err := firstLine(filepath.Join(p.gitDir, "HEAD"))
	if err != nil {
		return "", errand.Errorf(errand.CodeInvalid, err, "%s has no readable HEAD", p.gitDir)
	}
	for range 5 { // symbolic refs may name symbolic refs
		if IsHash(value) {
			return value, nil
		}
		name, ok := strings.CutPrefix(value, "ref: ")
		if !ok || !strings.HasPrefix(name, "refs/") || !filepath.IsLocal(name) {
			return "", errand.Invalid("dir", "HEAD of %s is neither a commit nor a ref", p.work)
		}
		if value, err = p.ref(name); err != nil {
			return "", err
		}
	}
	return "", errand.Invalid("dir", "HEAD of %s does not end at a commit", p.work)
}

func (p place) ref(name string) (string, error) {
	if line, err := firstLine(filepath.Join(p.commonDir, filepath.FromSlash(name))); err == nil {
		return line, nil
	}
	packed, err := os.ReadFile(filepath.Join(p.commonDir, "packed-refs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", errand.Errorf(errand.CodeInvalid, err, "packed-refs of %s cannot be read", p.work)
	}
	for line := range bytes.Lines(packed) {
		hash, ref, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), " ")
		if ok && ref == name {
			return hash, nil
		}
	}
	if isDir(filepath.Join(p.commonDir, "reftable")) {
		return "", errand.Invalid("dir", "%s keeps its refs as reftable, which is not read: check out with ref format files", p.work)
	}
	return "", errand.Invalid("dir", "HEAD of %s names %s, which has no commit yet", p.work, name)
}

// copyShallow takes over where the history was cut off, so that git does not ask for the parents behind it.
func (p place) copyShallow(to string) error {
	b, err := os.ReadFile(filepath.Join(p.commonDir, "shallow"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range bytes.Lines(b) {
		if h := strings.TrimSpace(string(line)); h != "" && !IsHash(h) {
			return errand.Invalid("dir", "the file shallow of %s holds something that is not a commit", p.work)
		}
	}
	return os.WriteFile(to, b, 0o600)
}

// newRepo checks the options and prepares what every call shares.
func newRepo(opt Options) (*Repo, error) {
	program := opt.GitPath
	if program == "" {
		program = "git"
	}
	found, err := exec.LookPath(program)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return nil, errand.Errorf(errand.CodeInvalid, err, "the git program was not found: install git, or say where it is")
	}
	r := &Repo{git: found, remote: opt.Remote, env: allowedEnv(opt.Env)}
	if opt.Remote == "" || filepath.IsAbs(opt.Remote) {
		return r, nil
	}
	u, err := url.Parse(opt.Remote)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || strings.ContainsAny(opt.Remote, " \n\t") {
		return nil, errand.Invalid("remote", "want https://host/owner/name without user or password, or an absolute path")
	}
	if opt.Token == "" {
		return r, nil
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, errand.Invalid("remote", "a token is not sent in the clear: use https")
	}
	if strings.ContainsFunc(opt.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, errand.Invalid("token", "the token holds a character that no token has (a line break?)")
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + opt.Token))
	r.secrets = []string{opt.Token, encoded}
	r.auth = [][2]string{{"http." + u.Scheme + "://" + u.Host + "/.extraHeader", "AUTHORIZATION: basic " + encoded}}
	return r, nil
}

// allowedEnv keeps what a network behind a proxy or an own certificate authority needs, and nothing else.
func allowedEnv(env []string) []string {
	var kept []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch strings.ToUpper(name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO",
			"TMPDIR", "SYSTEMROOT":
			kept = append(kept, kv)
		}
	}
	return kept
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// IsHash tells whether s is a full object name: 40 or 64 lower-case hexadecimal digits.
func IsHash(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func firstLine(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // read only
	sc := bufio.NewScanner(f)
	if !sc.Scan() {
		return "", errors.Join(sc.Err(), errors.New("empty file "+file))
	}
	return strings.TrimSpace(sc.Text()), nil
}

func under(base, name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(base, name)
}

func isDir(p string) bool  { fi, err := os.Stat(p); return err == nil && fi.IsDir() }
func isFile(p string) bool { fi, err := os.Stat(p); return err == nil && fi.Mode().IsRegular() }
