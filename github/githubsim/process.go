package githubsim

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ProcessExecutor runs a job as the Actions runner would: a checkout over HTTP, an event file, a clean environment, and the
// steps of the composite action that start errand-runner, as the built binary. It knows two actions, actions/checkout and
// Errand's own, and fails a job with any other step.
type ProcessExecutor struct {
	RunnerPath string   // the built errand-runner
	WorkDir    string   // a folder of its own for each job is made there, and removed after it
	ActionPath string   // action.yml: how `with:` becomes the program's environment
	Action     []byte   // its content, for a program that carries it along; nil = read ActionPath
	ActionName string   // what the workflow's `uses:` names, without @ref; "" = errand-dev/errand
	ExtraEnv   []string // added to each step's environment, for tests

	// How long a cancelled job has after SIGINT, and then after SIGTERM; 0 = 7.5 s and 2.5 s, as the Actions runner.
	Interrupt, Terminate time.Duration
}

// errStep is an ordinary failure of a step: the job fails, and nothing is wrong with the simulation.
var errStep = errors.New("step failed")

// workspace is a job under way.
type workspace struct {
	*ProcessExecutor
	job     Job
	dir     string // of the job
	tree    string // the checkout: GITHUB_WORKSPACE
	out     *masker
	values  values
	env     map[string]string
	failed  bool
	stopped bool
}

// Execute runs the job's steps in order.
func (e *ProcessExecutor) Execute(ctx context.Context, job Job) (string, error) {
	w, err := e.prepare(job)
	if err != nil {
		return "failure", err
	}
	defer func() { _ = os.RemoveAll(w.dir) }()
	defer w.out.Close()
	var trouble error
	for i, step := range job.Spec.Steps {
		err := w.step(ctx, step)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return "cancelled", nil
		default:
			w.failed = true
			if !errors.Is(err, errStep) {
				trouble = errors.Join(trouble, fmt.Errorf("step %d: %w", i+1, err))
			}
		}
	}
	w.summary()
	switch {
	case w.stopped:
		return "cancelled", trouble
	case w.failed:
		return "failure", trouble
	default:
		return "success", nil
	}
}

func (e *ProcessExecutor) prepare(job Job) (*workspace, error) {
	if err := os.MkdirAll(e.WorkDir, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(e.WorkDir, fmt.Sprintf("run-%d-%d-", job.RunID, job.ID))
	if err != nil {
		return nil, err
	}
	w := &workspace{ProcessExecutor: e, job: job, dir: dir, tree: filepath.Join(dir, job.Repo, job.Repo), out: newMasker(job.Log)}
	for _, d := range []string{w.tree, w.path("temp"), w.path("tools"), w.path("home")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	for _, f := range []string{"output", "env", "path", "state", "summary"} {
		if err := os.WriteFile(w.path("temp", f), nil, 0o600); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(w.path("temp", "event.json"), job.Event, 0o600); err != nil {
		return nil, err
	}
	w.out.mask(job.Token)
	w.out.mask(job.IDTokenRequestToken)
	for _, v := range job.Secrets {
		w.out.mask(v)
	}
	w.env = w.baseEnv()
	w.values = w.contexts()
	for k, v := range job.Spec.Env {
		if w.env[k], err = w.values.expand(v); err != nil {
			return nil, err
		}
		w.values["env."+strings.ToLower(k)] = w.env[k]
	}
	return w, nil
}

func (w *workspace) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

// baseEnv is what every step gets. GITHUB_TOKEN is not among it: a step has it only when the file passes it on.
func (w *workspace) baseEnv() map[string]string {
	j := w.job
	env := map[string]string{
		"CI": "true", "GITHUB_ACTIONS": "true", "HOME": w.path("home"), "PATH": os.Getenv("PATH"), "LANG": "C.UTF-8",
		"GITHUB_EVENT_NAME": "workflow_dispatch", "GITHUB_EVENT_PATH": w.path("temp", "event.json"), "GITHUB_WORKSPACE": w.tree,
		"GITHUB_REPOSITORY": j.Owner + "/" + j.Repo, "GITHUB_REPOSITORY_ID": strconv.FormatInt(j.RepositoryID, 10),
		"GITHUB_REPOSITORY_OWNER": j.Owner, "GITHUB_REPOSITORY_OWNER_ID": strconv.FormatInt(j.OwnerID, 10),
		"GITHUB_RUN_ID": strconv.FormatInt(j.RunID, 10), "GITHUB_RUN_NUMBER": strconv.Itoa(j.RunNumber),
		"GITHUB_RUN_ATTEMPT": strconv.Itoa(j.Attempt), "GITHUB_REF": j.Ref, "GITHUB_REF_NAME": shortRef(j.Ref),
		"GITHUB_REF_TYPE": refType(j.Ref), "GITHUB_SHA": j.SHA, "GITHUB_ACTOR": j.Actor, "GITHUB_TRIGGERING_ACTOR": j.Actor,
		"GITHUB_WORKFLOW": j.WorkflowName, "GITHUB_JOB": j.Name, "GITHUB_API_URL": j.APIURL, "GITHUB_SERVER_URL": j.ServerURL,
		"GITHUB_WORKFLOW_REF": j.Owner + "/" + j.Repo + "/" + j.WorkflowPath + "@" + j.Ref, "GITHUB_WORKFLOW_SHA": j.SHA,
		"GITHUB_STEP_SUMMARY": w.path("temp", "summary"), "GITHUB_OUTPUT": w.path("temp", "output"),
		"GITHUB_ENV": w.path("temp", "env"), "GITHUB_PATH": w.path("temp", "path"), "GITHUB_STATE": w.path("temp", "state"),
		"RUNNER_TEMP": w.path("temp"), "RUNNER_TOOL_CACHE": w.path("tools"), "RUNNER_NAME": "githubsim",
		"RUNNER_OS": "Linux", "RUNNER_ARCH": runnerArch(), "RUNNER_ENVIRONMENT": "self-hosted",
	}
	if j.IDTokenRequestURL != "" {
		env["ACTIONS_ID_TOKEN_REQUEST_URL"], env["ACTIONS_ID_TOKEN_REQUEST_TOKEN"] = j.IDTokenRequestURL, j.IDTokenRequestToken
	}
	return env
}

func shortRef(ref string) string {
	return strings.TrimPrefix(strings.TrimPrefix(ref, "refs/heads/"), "refs/tags/")
}

func refType(ref string) string {
	if strings.HasPrefix(ref, "refs/tags/") {
		return "tag"
	}
	return "branch"
}

func runnerArch() string {
	if runtime.GOARCH == "arm64" {
		return "ARM64"
	}
	return "X64"
}

func (w *workspace) contexts() values {
	j := w.job
	v := values{"github.token": j.Token, "secrets.github_token": j.Token, "github.action_path": filepath.Dir(w.ActionPath)}
	for _, name := range []string{
		"event_name", "event_path", "workspace", "repository", "repository_id", "repository_owner", "repository_owner_id", "run_id",
		"run_number", "run_attempt", "ref", "ref_name", "ref_type", "sha", "actor", "triggering_actor", "workflow", "workflow_ref", "job",
		"api_url", "server_url",
	} {
		v["github."+name] = w.env["GITHUB_"+strings.ToUpper(name)]
	}
	v["github.event.repository.default_branch"] = j.DefaultBranch
	for _, name := range []string{"temp", "tool_cache", "name", "os", "arch", "environment"} {
		v["runner."+name] = w.env["RUNNER_"+strings.ToUpper(name)]
	}
	for k, in := range j.Inputs {
		v["inputs."+strings.ToLower(k)], v["github.event.inputs."+strings.ToLower(k)] = in, in
	}
	for k, secret := range j.Secrets {
		v["secrets."+strings.ToLower(k)] = secret
	}
	return v
}

// wanted tells whether a step runs: its condition, and success() for one that asks for no other status.
func (w *workspace) wanted(v values, condition string) (bool, error) {
	v = maps.Clone(v)
	v["always()"], v["success()"] = "true", text(!w.failed && !w.stopped)
	v["failure()"], v["cancelled()"] = text(w.failed && !w.stopped), text(w.stopped)
	condition = strings.TrimSpace(condition)
	if inner, ok := strings.CutPrefix(condition, "${{"); ok {
		condition = strings.TrimSpace(strings.TrimSuffix(inner, "}}"))
	}
	if condition == "" {
		return truth(v["success()"]), nil
	}
	met, err := v.eval(condition)
	if err != nil {
		return false, err
	}
	asked := slices.ContainsFunc([]string{"always()", "failure()", "cancelled()", "success()"}, func(f string) bool {
		return strings.Contains(condition, f)
	})
	return truth(met) && (asked || truth(v["success()"])), nil
}

func (w *workspace) step(ctx context.Context, step StepSpec) error {
	run, err := w.wanted(w.values, step.If)
	if err != nil || !run {
		return err
	}
	action := w.ActionName
	if action == "" {
		action = "errand-dev/errand"
	}
	with := map[string]string{}
	for k, v := range step.With {
		if with[k], err = w.values.expand(fmt.Sprint(v)); err != nil {
			return err
		}
	}
	name, _, _ := strings.Cut(step.Uses, "@")
	switch {
	case name == "actions/checkout":
		return w.checkout(ctx, with)
	case name == action || strings.HasPrefix(name, action+"/"):
		env := map[string]string{}
		for k, v := range step.Env {
			if env[k], err = w.values.expand(fmt.Sprint(v)); err != nil {
				return err
			}
		}
		return w.action(ctx, with, env)
	default:
		return fmt.Errorf("githubsim runs actions/checkout and %s only, not %q", action, step.Uses+step.Run)
	}
}

// checkout does what actions/checkout does with persist-credentials: false, which it insists upon: with true the token
// would stay in .git/config, where the agent's tools could be led to it.
func (w *workspace) checkout(ctx context.Context, with map[string]string) error {
	if with["persist-credentials"] != "false" {
		return errors.New("actions/checkout without persist-credentials: false leaves the token in .git/config")
	}
	depth := "--depth=1"
	switch n := with["fetch-depth"]; n {
	case "":
	case "0":
		depth = "--no-tags"
	default:
		depth = "--depth=" + n
	}
	remote := fmt.Sprintf("%s/%s/%s", w.job.ServerURL, w.job.Owner, w.job.Repo)
	header := "http.extraheader=Authorization: basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+w.job.Token))
	branch := shortRef(w.job.Ref)
	steps := [][]string{
		{"init", "--quiet", "--initial-branch=" + branch, w.tree},
		{"-C", w.tree, "remote", "add", "origin", remote},
		{"-C", w.tree, "-c", header, "-c", "protocol.version=2", "fetch", "--quiet", "--no-tags", depth, "origin", "+" + w.job.SHA + ":refs/remotes/origin/" + branch},
		{"-C", w.tree, "checkout", "--quiet", "--force", "-B", branch, "refs/remotes/origin/" + branch},
	}
	for _, args := range steps {
		if _, err := runGit(ctx, w.dir, nil, args...); err != nil {
			return fmt.Errorf("checkout: %w", err)
		}
	}
	fmt.Fprintf(w.out, "Checked out %s/%s at %s\n", w.job.Owner, w.job.Repo, w.job.SHA)
	return nil
}

// runnerCommand finds how a step of the action starts the program.
var runnerCommand = regexp.MustCompile(`errand-runner(?:\.exe)?["']?[ \t]+([a-z][a-z-]*)`)

// action runs those steps of the composite action that start errand-runner. The others (fetching or building it) have
// nothing to do here, where the built binary is given.
func (w *workspace) action(ctx context.Context, with, env map[string]string) error {
	a, err := w.readAction()
	if err != nil {
		return err
	}
	v, err := a.inputs(w.values, with, w.out)
	if err != nil {
		return err
	}
	ran := false
	var failure error
	for _, step := range a.Runs.Steps {
		m := runnerCommand.FindStringSubmatch(step.Run)
		if m == nil {
			continue
		}
		ran = true
		if err := w.runnerStep(ctx, v, step, m[1], env); err != nil {
			w.failed = true
			failure = errors.Join(failure, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if !ran {
		return errors.New("action.yml: no step of the action starts errand-runner")
	}
	return failure
}

func (w *workspace) runnerStep(ctx context.Context, v values, step StepSpec, command string, outer map[string]string) error {
	run, err := w.wanted(v, step.If)
	if err != nil || !run {
		return err
	}
	env := maps.Clone(w.env)
	maps.Copy(env, outer)
	for k, text := range step.Env {
		if env[k], err = v.expand(fmt.Sprint(text)); err != nil {
			return err
		}
	}
	env["GITHUB_ACTION_PATH"] = filepath.Dir(w.ActionPath)
	// Not CommandContext: that kills the process alone, and at once; runProcess asks first and reaches the group.
	cmd := exec.Command(w.RunnerPath, command) //nolint:noctx // see above
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.tree, w.out, w.out
	for _, k := range slices.Sorted(maps.Keys(env)) {
		cmd.Env = append(cmd.Env, k+"="+env[k])
	}
	cmd.Env = append(cmd.Env, w.ExtraEnv...)
	stop := w.job.Stop
	if w.stopped { // a step for the end of a cancelled job: its request to stop was heard already
		stop = nil
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
	}
	stopped, err := w.runProcess(ctx, stop, cmd)
	w.stopped = w.stopped || stopped
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		fmt.Fprintf(w.out, "##[error]Process completed with exit code %d.\n", exit.ExitCode())
		return errStep
	}
	return err
}

// runProcess runs the command in a process group of its own, which is gone when it returns. Closing stop asks it to end:
// SIGINT, SIGTERM, SIGKILL; the end of ctx kills it.
func (w *workspace) runProcess(ctx context.Context, stop <-chan struct{}, cmd *exec.Cmd) (stopped bool, err error) {
	cmd.WaitDelay = time.Second // for a grandchild that holds the pipes
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		unlock := prepareGroup(cmd)
		defer unlock()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return false, fmt.Errorf("cannot start %s: %w", filepath.Base(cmd.Path), err)
	}
	defer signalGroup(cmd, signalKill)
	grace := []struct {
		signal groupSignal
		wait   time.Duration
	}{{signalInterrupt, orDefault(w.Interrupt, 7500*time.Millisecond)}, {signalTerminate, orDefault(w.Terminate, 2500*time.Millisecond)}, {signalKill, time.Hour}}
	var timer <-chan time.Time
	next := func() {
		if len(grace) == 0 {
			timer = nil
			return
		}
		signalGroup(cmd, grace[0].signal)
		timer = time.After(grace[0].wait)
		grace = grace[1:]
	}
	for {
		select {
		case err := <-ended:
			if errors.Is(err, exec.ErrWaitDelay) { // it ended well and left somebody behind, who is killed below
				err = nil
			}
			return stopped, err
		case <-ctx.Done():
			signalGroup(cmd, signalKill)
			return stopped, errors.Join(ctx.Err(), <-ended)
		case <-stop:
			stopped, stop = true, nil
			next()
		case <-timer:
			next()
		}
	}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// summary shows the job's summary at the end of its log.
func (w *workspace) summary() {
	content, err := os.ReadFile(w.path("temp", "summary"))
	if err == nil && len(bytes.TrimSpace(content)) > 0 {
		_, _ = io.WriteString(w.out, "##[group]Job summary\n"+string(content)+"\n##[endgroup]\n")
	}
}
