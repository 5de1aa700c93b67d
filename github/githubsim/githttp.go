package githubsim

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// preReceive holds a job's push to what a workflow of Errand may do: new branches, and its own ones forward. Each refusal
// that Errand must never cause is also written to the report, from where it becomes a violation. A ~ stands for a backquote.
const preReceive = `#!/bin/sh
# Written by githubsim. stdin: OLD NEW REF, one line a ref.
zero=0000000000000000000000000000000000000000
status=0
violation() {
	echo "error: $1" >&2
	echo "$1" >>"$GITHUBSIM_REPORT"
	status=1
}
while read -r old new ref; do
	if [ "$ref" = "refs/heads/$GITHUBSIM_DEFAULT_BRANCH" ]; then
		violation "GH006: Protected branch update failed for $ref."
		continue
	fi
	if [ "$new" = "$zero" ]; then
		violation "deletes $ref"
		continue
	fi
	base=$old
	if [ "$old" = "$zero" ]; then
		base=$(git merge-base "$new" "refs/heads/$GITHUBSIM_DEFAULT_BRANCH" 2>/dev/null)
	elif ! git merge-base --is-ancestor "$old" "$new"; then
		violation "force-pushes $ref"
		continue
	fi
	[ -n "$base" ] || base=$(git hash-object -t tree /dev/null)
	file=$(git diff --name-only "$base" "$new" -- .github/workflows | head -n 1)
	if [ -n "$file" ]; then
		echo "refusing to allow a GitHub App to create or update workflow ~$file~ without ~workflows~ permission" >&2
		status=1
	fi
done
exit $status
`

// serveGit is git's smart HTTP for a repository, through git's own http-backend. The token's permissions decide.
func (s *Sim) serveGit(w http.ResponseWriter, r *http.Request) {
	repo, name, no := s.authorizeGit(r)
	if no != nil {
		if no.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
		}
		http.Error(w, no.message, no.status)
		return
	}
	backend, err := exec.LookPath("git")
	if err != nil {
		http.Error(w, "git is not installed", http.StatusInternalServerError)
		return
	}
	report, err := os.CreateTemp(s.cfg.Dir, "push-*")
	if err != nil {
		http.Error(w, "cannot serve git", http.StatusInternalServerError)
		return
	}
	_ = report.Close()
	defer func() { _ = os.Remove(report.Name()) }()
	env := append(gitEnv(), "GIT_PROJECT_ROOT="+filepath.Dir(repo.dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x-access-token",
		"GITHUBSIM_REPORT="+report.Name(), "GITHUBSIM_DEFAULT_BRANCH="+repo.DefaultBranch)
	var stderr bytes.Buffer
	h := &cgi.Handler{
		Path: backend, Args: []string{"http-backend"}, Dir: repo.dir, Env: env, Stderr: &stderr,
		Root: "/" + name, // what remains of the path is PATH_INFO, which http-backend joins to its root
	}
	inner := r.Clone(r.Context())
	inner.Header.Del("Authorization") // the backend needs no token
	inner.URL.Path = "/" + name + "/" + filepath.Base(repo.dir) + "/" + r.PathValue("rest")
	if inner.ContentLength < 0 { // CGI wants a length, and http-backend reads to the end of its input otherwise
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPush))
		if err != nil {
			http.Error(w, "the push is too large", http.StatusRequestEntityTooLarge)
			return
		}
		inner.Body, inner.ContentLength, inner.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	}
	h.ServeHTTP(w, inner)
	if stderr.Len() > 0 {
		s.log.Warn("githubsim: git http-backend", "stderr", stderr.String())
	}
	s.reportPush(r, report.Name())
}

// maxPush bounds one push; GitHub's own limit is 2 GiB.
const maxPush = 256 << 20

func (s *Sim) reportPush(r *http.Request, file string) {
	text, err := os.ReadFile(file)
	if err != nil || len(text) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(string(text)) {
		s.violation(r, callerJob, "a push that "+strings.TrimSpace(line))
	}
}

// authorizeGit finds the repository and checks the token: contents: read to fetch, contents: write to push.
func (s *Sim) authorizeGit(r *http.Request) (repo repository, name string, no *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name = strings.TrimSuffix(r.PathValue("repo"), ".git")
	rest := r.PathValue("rest")
	level := "read"
	switch {
	case rest == "info/refs" && r.URL.Query().Get("service") == "git-receive-pack", rest == "git-receive-pack":
		level = "write"
	case rest == "info/refs" && r.URL.Query().Get("service") == "git-upload-pack", rest == "git-upload-pack":
	default:
		return repo, "", refuse(http.StatusNotFound, "Not Found")
	}
	t, no := s.tokenOf(r)
	if no != nil {
		return repo, "", no
	}
	found, _ := s.lookUp(r.PathValue("owner"), name)
	if found == nil || !t.reaches(found.ID) {
		return repo, "", refuse(http.StatusNotFound, "Repository not found.")
	}
	if t.caller == callerInstallation {
		s.violation(r, t.caller, "uses git with the App's own token")
		return repo, "", refuse(http.StatusForbidden, notAccessible)
	}
	if !t.may("contents", level) {
		return repo, "", refuse(http.StatusForbidden, "Permission to %s.git denied to github-actions[bot].", found.fullName())
	}
	if found.archived && level == "write" {
		return repo, "", refuse(http.StatusForbidden, "This repository was archived so it is read-only.")
	}
	return *found, found.Owner + "/" + found.Name, nil
}
