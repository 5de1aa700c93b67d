package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/docs"
	"github.com/errand-dev/errand/github/githubsim"
	"github.com/errand-dev/errand/models/modelsim"
)

// logger spares the demo's fields the package name.
type logger = *slog.Logger

// The demo's own names. The key is the scripted model's: it opens nothing.
const (
	demoOwner        = "octo-demo"
	demoRepo         = "shop"
	demoRepoID       = 7001
	demoInstallation = 501
	demoModel        = "claude-sonnet-5"
	demoModelKey     = "demo-key-of-the-scripted-model"
)

// world is everything outside the control plane: GitHub, with the runner it starts, and the model. It outlives the
// control plane, as the real ones do.
type world struct {
	sim      *githubsim.Sim
	model    *modelsim.Sim
	modelURL string
	modelSrv *http.Server
	dir      string
}

// newWorld starts GitHub and the model. The repository is made later, when the control plane's address is known, because
// the workflow file pins it.
func newWorld(ctx context.Context, d *demo) (*world, error) {
	return startWorld(ctx, d.dir, d.runner, d.log, scenarioFile)
}

func startWorld(ctx context.Context, dir, runner string, log logger, scenario []byte) (*world, error) {
	script, err := modelsim.Parse(scenario)
	if err != nil {
		return nil, fmt.Errorf("the scripted model: %w", err)
	}
	script.APIKey = demoModelKey
	w := &world{model: modelsim.New(script), dir: dir}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.modelURL = "http://" + l.Addr().String()
	w.modelSrv = &http.Server{Handler: w.model, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = w.modelSrv.Serve(l) }() // ends with Close

	action := filepath.Join(dir, "action.yml")
	if err := os.WriteFile(action, errand.ActionYAML, 0o600); err != nil {
		return nil, err
	}
	w.sim, err = githubsim.New(githubsim.Config{
		Dir: filepath.Join(dir, "github"), Logger: log,
		Executor: &githubsim.ProcessExecutor{
			RunnerPath: runner, WorkDir: filepath.Join(dir, "actions"), ActionPath: action, Interrupt: 2 * time.Second, Terminate: time.Second,
		},
	})
	if err != nil {
		return nil, err
	}
	if err := w.sim.AddInstallation(githubsim.Installation{ID: demoInstallation, Account: demoOwner, AccountID: 9001}); err != nil {
		return nil, err
	}
	if _, err := w.sim.Start(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// addShop makes the repository: the sample with the workflow file of docs/workflows, the control plane's address filled
// in as the set-up page would.
func (w *world) addShop(ctx context.Context, planeURL string) error {
	files, err := sampleFS()
	if err != nil {
		return err
	}
	workflow, err := docs.Workflow(planeURL)
	if err != nil {
		return err
	}
	// The demo's model stands here and not at the provider: the one line that a real repository does not have.
	workflow = strings.Replace(workflow, "          anthropic-api-key:", "          base-url: "+w.modelURL+"\n          anthropic-api-key:", 1)
	all := fstest.MapFS{".github/workflows/errand.yml": {Data: []byte(workflow), Mode: 0o644}}
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, name)
		all[name] = &fstest.MapFile{Data: b, Mode: 0o644}
		return err
	})
	if err != nil {
		return err
	}
	return w.sim.AddRepository(ctx, githubsim.Repository{
		ID: demoRepoID, Installation: demoInstallation, Owner: demoOwner, Name: demoRepo, Private: true, Files: all, PullRequests: true,
		Secrets: map[string]string{"ANTHROPIC_API_KEY": demoModelKey},
	})
}

func (w *world) close() error {
	err := w.sim.Close()
	return errors.Join(err, w.modelSrv.Close())
}

// explain adds what the outside saw to an error: logs of jobs, and every rule that somebody broke.
func (w *world) explain() error {
	var b strings.Builder
	for _, r := range w.sim.Runs() {
		fmt.Fprintf(&b, "\nworkflow run %d (%s, %s):\n%s", r.ID, r.Status, r.Conclusion, w.sim.Log(r.ID))
	}
	for _, v := range w.violations() {
		fmt.Fprintf(&b, "\nviolation: %s", v)
	}
	if b.Len() == 0 {
		return nil
	}
	return errors.New(b.String())
}

func (w *world) violations() []string {
	var all []string
	for _, v := range w.sim.Violations() {
		all = append(all, fmt.Sprint(v))
	}
	return append(all, w.model.Violations()...)
}

// proof holds the result against the world: the pull request exists, its diff applies to the base, the sample's own test
// is green on it, and nobody broke a rule.
func (w *world) proof(ctx context.Context, d *demo, s *shop, got summary) error {
	if v := w.violations(); len(v) > 0 {
		return fmt.Errorf("calls that must never be made: %s", strings.Join(v, "; "))
	}
	prs := w.sim.PullRequests()
	if len(prs) != 1 {
		return fmt.Errorf("GitHub holds %d pull requests, want one", len(prs))
	}
	pr := prs[0]
	if pr.URL != got.PullRequest || pr.Head != got.Branch {
		return fmt.Errorf("GitHub holds %s on %s; the control plane says %s on %s", pr.URL, pr.Head, got.PullRequest, got.Branch)
	}
	patch, err := w.git(ctx, "diff", pr.BaseSHA, pr.HeadSHA)
	if err != nil {
		return err
	}
	d.say("the pull request's diff:\n\n%s\n", indent(patch))
	names, err := w.git(ctx, "diff", "--name-only", pr.BaseSHA, pr.HeadSHA)
	if err != nil {
		return err
	}
	if files := strings.Fields(names); !slices.Equal(files, got.Files) {
		return fmt.Errorf("the diff changes %v; the control plane says %v", files, got.Files)
	}
	fixed := filepath.Join(w.dir, "fixed")
	files, err := sampleFS()
	if err != nil {
		return err
	}
	if err := os.CopyFS(fixed, files); err != nil {
		return err
	}
	patchFile := filepath.Join(w.dir, "fix.patch")
	if err := os.WriteFile(patchFile, []byte(patch), 0o600); err != nil {
		return err
	}
	apply := exec.CommandContext(ctx, "git", "apply", patchFile)
	apply.Dir = fixed
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+w.dir)
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("the diff does not apply to the base: %w\n%s", err, out)
	}
	if err := s.test(ctx, fixed); err != nil {
		return fmt.Errorf("the sample's own test is still red on the pull request: %w", err)
	}
	d.say("applied to the base, and the sample's own test is green")
	return nil
}

func (w *world) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"--git-dir", w.sim.RepositoryDir(demoRepoID)}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return string(out), nil
}

func indent(s string) string {
	return "         " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n         ")
}
