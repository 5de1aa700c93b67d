package githubsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/errand-dev/errand"
)

var repoName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// AddRepository makes the bare repository with its first commit.
func (s *Sim) AddRepository(ctx context.Context, spec Repository) error {
	if spec.ID <= 0 || !repoName.MatchString(spec.Owner) || !repoName.MatchString(spec.Name) {
		return errand.Invalid("githubsim.repository", "a repository needs an id, an owner and a name")
	}
	if spec.DefaultBranch == "" {
		spec.DefaultBranch = "main"
	}
	r := &repository{
		Repository: spec, created: s.clock(), disabled: map[string]bool{}, workflows: map[string]int64{},
		dir: filepath.Join(s.cfg.Dir, "repos", strconv.FormatInt(spec.ID, 10)+".git"),
	}
	if err := s.initBare(ctx, r); err != nil {
		return err
	}
	if spec.Files != nil {
		if _, err := commitFiles(ctx, r.dir, spec.DefaultBranch, "Initial commit", spec.Files, s.clock()); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.repositories[r.ID] = r
	return nil
}

// Commit puts files on top of a branch, as somebody with the right to would; the branch is made from the default branch
// when it is absent. Other files stay. It gives the new commit.
func (s *Sim) Commit(ctx context.Context, repositoryID int64, branch, message string, files fs.FS) (string, error) {
	dir := s.RepositoryDir(repositoryID)
	if dir == "" {
		return "", errand.NotFound("repository")
	}
	return commitFiles(ctx, dir, branch, message, files, s.clock())
}

func (s *Sim) initBare(ctx context.Context, r *repository) error {
	if _, err := os.Stat(filepath.Join(r.dir, "HEAD")); err == nil {
		return errand.Conflict("githubsim has a repository %d already", r.ID)
	}
	if _, err := runGit(ctx, s.cfg.Dir, nil, "init", "--quiet", "--bare", "--initial-branch="+r.DefaultBranch, r.dir); err != nil {
		return err
	}
	for _, kv := range [][2]string{{"http.receivepack", "true"}, {"uploadpack.allowAnySHA1InWant", "true"}, {"gc.auto", "0"}} {
		if _, err := runGit(ctx, r.dir, nil, "config", kv[0], kv[1]); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(r.dir, "hooks", "pre-receive"), []byte(strings.ReplaceAll(preReceive, "~", "\\`")), 0o755)
}

// commitFiles writes one commit with git fast-import: no work tree, no index.
func commitFiles(ctx context.Context, dir, branch, message string, files fs.FS, now time.Time) (string, error) {
	var in bytes.Buffer
	who := fmt.Sprintf("Octo Developer <octo@example.com> %d +0000", now.Unix())
	fmt.Fprintf(&in, "commit refs/heads/%s\nauthor %s\ncommitter %s\ndata %d\n%s\n", branch, who, who, len(message), message)
	for _, from := range []string{"refs/heads/" + branch, "HEAD"} {
		if sha, err := runGit(ctx, dir, nil, "rev-parse", "--verify", "--quiet", from+"^{commit}"); err == nil {
			fmt.Fprintf(&in, "from %s\n", sha)
			break
		}
	}
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && d.Name() == ".git" {
				return fs.SkipDir
			}
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		mode := "100644"
		if info, err := d.Info(); err == nil && info.Mode()&0o111 != 0 {
			mode = "100755"
		}
		fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, strconv.Quote(path), len(content), content)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("githubsim: commit: %w", err)
	}
	in.WriteString("done\n")
	if _, err := runGit(ctx, dir, in.Bytes(), "fast-import", "--quiet", "--done"); err != nil {
		return "", err
	}
	return runGit(ctx, dir, nil, "rev-parse", "refs/heads/"+branch)
}

// gitEnv is the environment of githubsim's own git: no configuration but the repository's.
func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "LC_ALL=C", "GIT_TERMINAL_PROMPT=0",
	}
}

func runGit(ctx context.Context, dir string, stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = dir, gitEnv()
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return "", fmt.Errorf("githubsim: git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// fileAt reads a file of a commit; ok is false when it is absent.
func fileAt(ctx context.Context, r *repository, rev, path string) (content []byte, ok bool) {
	out, err := runGit(ctx, r.dir, nil, "cat-file", "blob", rev+":"+path)
	return []byte(out), err == nil
}

// resolveRef finds a branch or tag, in the short or the full form.
func resolveRef(ctx context.Context, r *repository, ref string) (full, sha string, ok bool) {
	candidates := []string{"refs/heads/" + ref, "refs/tags/" + ref}
	if strings.HasPrefix(ref, "refs/") {
		candidates = []string{ref}
	}
	for _, full := range candidates {
		if sha, err := runGit(ctx, r.dir, nil, "rev-parse", "--verify", "--quiet", full+"^{commit}"); err == nil {
			return full, sha, true
		}
	}
	return "", "", false
}

func (s *Sim) listInstallationRepositories(c *call) (int, any, *refusal) {
	if c.token.caller != callerInstallation {
		return 0, nil, refuse(http.StatusForbidden, notAccessible)
	}
	var list []any
	for _, r := range sortedByID(s.state.repositories) {
		if r.Installation == c.token.installation && c.token.reaches(r.ID) {
			list = append(list, s.repositoryJSON(r))
		}
	}
	return http.StatusOK, object{"total_count": len(list), "repositories": orEmpty(page(c, list))}, nil
}

func (s *Sim) getRepository(c *call) (int, any, *refusal) {
	return http.StatusOK, s.repositoryJSON(c.repo), nil
}

func (s *Sim) getApp(*call) (int, any, *refusal) {
	return http.StatusOK, object{
		"id": s.cfg.AppID, "slug": s.cfg.AppSlug, "node_id": "A_kw", "client_id": "Iv1.0000000000000000",
		"owner": s.userJSON("errand-dev", 1, "Organization"), "name": "Errand", "description": "githubsim",
		"external_url": s.base, "html_url": s.base + "/apps/" + s.cfg.AppSlug,
		"created_at": stamp(s.clock()), "updated_at": stamp(s.clock()),
		"permissions": object{"actions": "write", "metadata": "read"}, "events": []string{"workflow_job", "workflow_run"},
		"installations_count": len(s.state.installations),
	}, nil
}

func (s *Sim) getInstallation(c *call) (int, any, *refusal) {
	in := s.state.installations[c.number("installation_id")]
	if in == nil {
		return 0, nil, refuse(http.StatusNotFound, "Not Found")
	}
	return http.StatusOK, s.installationJSON(in), nil
}

func (s *Sim) getRateLimit(*call) (int, any, *refusal) {
	rate := object{"limit": 5000, "used": 0, "remaining": 5000, "reset": s.clock().Add(time.Hour).Unix()}
	return http.StatusOK, object{"resources": object{"core": rate, "search": rate}, "rate": rate}, nil
}
