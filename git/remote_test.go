package git

import (
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/errand-dev/errand"
)

const token = "ghs_12345_eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2lnbmF0dXJl"

// hub serves bare repositories over HTTP to those who bring the token.
type hub struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // Authorization of every request
}

func serve(t *testing.T, root string) *hub {
	t.Helper()
	backend := filepath.Join(strings.TrimSpace(plain(t, root, "--exec-path")), "git-http-backend")
	h := &hub{}
	git := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "REMOTE_USER=app"}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.mu.Lock()
		h.seen = append(h.seen, req.Header.Get("Authorization"))
		h.mu.Unlock()
		if user, pass, _ := req.BasicAuth(); user != "x-access-token" || pass != token {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		git.ServeHTTP(w, req)
	}))
	t.Cleanup(h.Close)
	return h
}

func TestHTTPWithAToken(t *testing.T) {
	t.Parallel()
	dir, remote := checkout(t, map[string]string{"a.txt": "one\n"})
	h := serve(t, filepath.Dir(remote))
	r := open(t, dir, Options{Remote: h.URL + "/remote.git", Token: token})
	ctx := t.Context()
	if base, err := r.FetchBranch(ctx, "main"); err != nil || base != r.head {
		t.Fatalf("fetch: %q, %v", base, err)
	}
	c := commit(t, r, FileChange{Path: "a.txt", Content: []byte("two\n")})
	if err := r.Push(ctx, c, "errand/x"); err != nil {
		t.Fatal(err)
	}
	if err := r.Push(ctx, c, "errand/x"); err != nil {
		t.Errorf("the same push again: %v", err)
	}
	if got, ok, err := r.RemoteBranch(ctx, "errand/x"); err != nil || !ok || got != c {
		t.Errorf("remote branch %q %v %v", got, ok, err)
	}
	if _, ok, err := r.RemoteBranch(ctx, "x"); err != nil || ok {
		t.Errorf("a branch was found by the end of its name: %v %v", ok, err)
	}
	if _, err := r.FetchBranch(ctx, "nowhere"); errand.CodeOf(err) != errand.CodeNotFound {
		t.Errorf("fetching what is not there: %v", err)
	}

	other := commit(t, r, FileChange{Path: "a.txt", Content: []byte("three\n")})
	wantPush(t, r.Push(ctx, other, "errand/x"), PushExists)
	wantPush(t, r.Push(ctx, other, "main"), PushExists)
	if got := plain(t, remote, "rev-parse", "main"); got != r.head {
		t.Error("main was moved")
	}
}

func wantPush(t *testing.T, err error, kind PushKind) {
	t.Helper()
	var refused *PushError
	if !errors.As(err, &refused) || refused.Kind != kind {
		t.Errorf("push: %v, want %s", err, kind)
	}
	if err != nil && strings.Contains(err.Error(), token) {
		t.Error("the token is in the error")
	}
}

func TestAWrongTokenIsRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	dir, remote := checkout(t, map[string]string{"a.txt": "one\n"})
	h := serve(t, filepath.Dir(remote))
	r := open(t, dir, Options{Remote: h.URL + "/remote.git", Token: "wrong-" + token})
	err := r.Push(t.Context(), r.head, "errand/x")
	wantPush(t, err, PushAuth)
	_, err = r.FetchBranch(t.Context(), "main")
	wantCode(t, err, errand.CodeForbidden)
	if strings.Contains(err.Error(), token) {
		t.Error("the token is in the error")
	}
	if s := r.conceal("fatal: wrong-" + token + " " + r.secrets[1]); strings.Contains(s, token) || strings.Contains(s, r.secrets[1]) {
		t.Errorf("not concealed: %s", s)
	}
}

func TestTheTokenGoesToNoOtherHost(t *testing.T) {
	t.Parallel()
	dir, remote := checkout(t, map[string]string{"a.txt": "one\n"})
	thief := serve(t, filepath.Dir(remote))
	redirect := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, thief.URL+req.URL.String(), http.StatusMovedPermanently)
	}))
	t.Cleanup(redirect.Close)
	r := open(t, dir, Options{Remote: redirect.URL + "/remote.git", Token: token})
	if _, err := r.FetchBranch(t.Context(), "main"); err == nil {
		t.Error("the redirect was followed")
	}
	if len(thief.seen) != 0 {
		t.Errorf("the other host was asked %d times", len(thief.seen))
	}
}

func TestTheTokenIsNotOnTheCommandLine(t *testing.T) {
	t.Parallel()
	dir, remote := checkout(t, map[string]string{"a.txt": "one\n"})
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "argv")
	spy := filepath.Join(t.TempDir(), "git")
	write(t, filepath.Dir(spy), "git", "#!/bin/sh\nprintf '%s\\n' \"$*\" >> "+log+"\nexec "+real+" \"$@\"\n")
	plain(t, dir, "version")
	if err := exec.CommandContext(t.Context(), "chmod", "755", spy).Run(); err != nil {
		t.Fatal(err)
	}
	h := serve(t, filepath.Dir(remote))
	r := open(t, dir, Options{GitPath: spy, Remote: h.URL + "/remote.git", Token: token})
	if err := r.Push(t.Context(), r.head, "errand/x"); err != nil {
		t.Fatal(err)
	}
	argv, err := exec.CommandContext(t.Context(), "cat", log).Output()
	if err != nil || !strings.Contains(string(argv), "push") {
		t.Fatalf("nothing was seen: %q %v", argv, err)
	}
	for _, secret := range r.secrets {
		if strings.Contains(string(argv), secret) {
			t.Error("the token is on a command line")
		}
	}
}

func TestAShallowCheckoutFetchesAndPushes(t *testing.T) {
	t.Parallel()
	dir, remote := checkout(t, map[string]string{"a.txt": "one\n"})
	for _, s := range []string{"two\n", "three\n"} {
		write(t, dir, "a.txt", s)
		plain(t, dir, "commit", "-q", "-a", "-m", s)
	}
	plain(t, dir, "push", "-q", remote, "main")
	shallow := filepath.Join(t.TempDir(), "shallow")
	plain(t, dir, "clone", "-q", "--depth=1", "file://"+remote, shallow)
	write(t, dir, "b.txt", "x\n")
	plain(t, dir, "add", "-A")
	plain(t, dir, "commit", "-q", "-m", "four")
	plain(t, dir, "push", "-q", remote, "main")

	r := open(t, shallow, Options{Remote: remote})
	base, err := r.FetchBranch(t.Context(), "main")
	if err != nil || base != plain(t, dir, "rev-parse", "HEAD") {
		t.Fatalf("fetch: %q, %v", base, err)
	}
	c, err := r.Commit(t.Context(), CommitSpec{Parent: base, Message: "m", Author: someone, Changes: []FileChange{{Path: "a.txt", Content: []byte("4\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Push(t.Context(), c, "errand/x"); err != nil {
		t.Fatal(err)
	}
	if got := plain(t, remote, "rev-parse", "errand/x~1"); got != base {
		t.Errorf("the parent at the remote is %q, want %q", got, base)
	}
	plain(t, remote, "fsck", "--strict")
}

func TestWithoutARemote(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a": "x\n"})
	r := open(t, dir, Options{})
	wantCode(t, r.Push(t.Context(), r.head, "errand/x"), errand.CodeInvalid)
	_, err := r.FetchBranch(t.Context(), "main")
	wantCode(t, err, errand.CodeInvalid)
}

func TestARemoteThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir, _ := checkout(t, map[string]string{"a": "x\n"})
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	r := open(t, dir, Options{Remote: closed.URL + "/o/r", Token: token})
	err := r.Push(t.Context(), r.head, "errand/x")
	wantPush(t, err, PushUnreachable)
	_, _, err = r.RemoteBranch(t.Context(), "main")
	wantCode(t, err, errand.CodeUnavailable)
}

func TestF29F31_RefusalsAreToldApart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, said string
		want       PushKind
	}{
		{"a branch that exists", "!\tx:refs/heads/y\t[rejected] (stale info)\nDone", PushExists},
		{"a branch made at the same moment", "!\tx:refs/heads/y\t[remote rejected] (cannot lock ref 'refs/heads/y': reference already exists)", PushExists},
		{"a base that moved", "!\tx:refs/heads/y\t[rejected] (fetch first)", PushNonFastForward},
		{"not a fast-forward", "!\tx:refs/heads/y\t[rejected] (non-fast-forward)", PushNonFastForward},
		{"a workflow file", "!\tx:refs/heads/y\t[remote rejected] (refusing to allow a GitHub App to create or update workflow `.github/workflows/ci.yml` without `workflows` permission)", PushWorkflowPermission},
		{"a file over 100 MB, with the general words after it", "remote: error: GH001: Large files detected.\n!\tx:refs/heads/y\t[remote rejected] (pre-receive hook declined)", PushTooLarge},
		{"a body too large for a proxy", "error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413\nsend-pack: unexpected disconnect", PushTooLarge},
		{"a protected branch", "remote: error: GH006: Protected branch update failed for refs/heads/main.\n!\tx:y\t[remote rejected] (protected branch hook declined)", PushProtected},
		{"a repository rule", "remote: error: GH013: Repository rule violations found for refs/heads/errand/x.\n!\tx:y\t[remote rejected] (push declined due to repository rule violations)", PushProtected},
		{"no authentication", "fatal: Authentication failed for 'https://github.com/o/r/'", PushAuth},
		{"nobody to ask", "fatal: could not read Username for 'https://github.com': terminal prompts disabled", PushAuth},
		{"no permission", "remote: Permission to o/r.git denied to github-actions[bot].\nfatal: unable to access 'https://github.com/o/r/': The requested URL returned error: 403", PushAuth},
		{"a repository that is not to be seen", "remote: Repository not found.\nfatal: repository 'https://github.com/o/r/' not found", PushAuth},
		{"a server error", "fatal: unable to access 'https://github.com/o/r/': The requested URL returned error: 502", PushUnreachable},
		{"no network", "fatal: unable to access 'https://github.com/o/r/': Could not resolve host: github.com", PushUnreachable},
		{"a hook of the remote's own", "!\tx:refs/heads/y\t[remote rejected] (pre-receive hook declined)", PushOther},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := classify(tc.said); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if (&PushError{Kind: tc.want}).Retryable() != (tc.want == PushUnreachable) {
				t.Error("only a remote that was not reached is worth another try")
			}
		})
	}
}
