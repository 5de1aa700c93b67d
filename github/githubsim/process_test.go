package githubsim_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/errand-dev/errand/github/githubsim"
)

// runWith starts the workflow with the stand-in runner in one of its moods; fake is where it leaves its traces.
func runWith(t *testing.T, mood string, edit ...func(*githubsim.Config, *githubsim.Repository)) (w *world, runID int64, fake string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Fatal("the process executor is for Linux")
	}
	fake = t.TempDir()
	abs := func(p string) string {
		a, err := filepath.Abs(p)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	work := t.TempDir()
	w = setup(t, append([]func(*githubsim.Config, *githubsim.Repository){func(c *githubsim.Config, _ *githubsim.Repository) {
		c.Executor = &githubsim.ProcessExecutor{
			RunnerPath: abs("testdata/runner.sh"), ActionPath: abs("testdata/action.yml"), WorkDir: work,
			ExtraEnv: []string{"FAKE_DIR=" + fake, "FAKE_RUNNER=" + mood}, Interrupt: 50 * time.Millisecond, Terminate: 50 * time.Millisecond,
		}
	}}, edit...)...)
	d := w.dispatch(t)
	t.Cleanup(func() {
		if left, _ := os.ReadDir(work); w.sim.Close() == nil && len(left) > 0 {
			left, _ = os.ReadDir(work)
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	})
	return w, d.RunID, fake
}

func (w *world) ended(t *testing.T) githubsim.Run {
	t.Helper()
	eventually(t, "the run ends", func() bool { return w.sim.Runs()[0].Status == "completed" })
	return w.sim.Runs()[0]
}

func TestTheRunnerIsStartedAsActionsWouldStartIt(t *testing.T) {
	t.Parallel()
	w, id, fake := runWith(t, "")
	if run := w.ended(t); run.Conclusion != "success" {
		t.Fatalf("%+v\n%s", run, w.sim.Log(id))
	}
	env := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(fake, "env")))) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		env[k] = v
	}
	for k, want := range map[string]string{
		"ERRAND_CONTROL_PLANE": "https://errand.example", "ERRAND_RUN": marker, "ERRAND_TICKET": "t1cket-secret",
		"ERRAND_ANTHROPIC_API_KEY": "sk-not-a-key-123456", "ERRAND_MODEL": "claude-sonnet-5", "GITHUB_REPOSITORY": "octo-org/shop",
		"GITHUB_REPOSITORY_ID": strconv.FormatInt(repositoryID, 10), "GITHUB_RUN_ID": strconv.FormatInt(id, 10), "GITHUB_RUN_ATTEMPT": "1",
		"GITHUB_REF": "refs/heads/main", "GITHUB_API_URL": w.sim.APIURL(), "GITHUB_SERVER_URL": w.sim.URL(), "GITHUB_EVENT_NAME": "workflow_dispatch",
		"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_WORKFLOW_REF": "octo-org/shop/.github/workflows/errand.yml@refs/heads/main",
	} {
		if env[k] != want {
			t.Errorf("%s = %q, want %q", k, env[k], want)
		}
	}
	if len(env["GITHUB_SHA"]) != 40 || !strings.HasPrefix(env["ERRAND_GITHUB_TOKEN"], "ghs_") || env["PWD"] != env["GITHUB_WORKSPACE"] {
		t.Errorf("%v", env)
	}
	for _, k := range []string{"GITHUB_TOKEN", "GOFLAGS", "GOCACHE", "GOROOT", "SHLVL_OF_TEST"} {
		if v, ok := env[k]; ok {
			t.Errorf("%s = %q came through", k, v)
		}
	}
	if config := string(read(t, filepath.Join(fake, "git-config"))); strings.Contains(strings.ToLower(config), "authorization") || strings.Contains(config, "ghs_") {
		t.Errorf("the token stayed in .git/config:\n%s", config)
	}
	if event := string(read(t, filepath.Join(fake, "event.json"))); !strings.Contains(event, `"inputs":{"run":"`+marker+`","ticket":"t1cket-secret"}`) {
		t.Errorf("event %s", event)
	}
	if calls := string(read(t, filepath.Join(fake, "calls"))); calls != "run "+marker+"\nended "+marker+"\n" {
		t.Errorf("calls %q", calls)
	}
	log := w.sim.Log(id)
	if strings.Contains(log, "t1cket-secret") || strings.Contains(log, "sk-not-a-key") || !strings.Contains(log, "the ticket is *** and the key ***") ||
		!strings.Contains(log, "harmless words stay") || !strings.Contains(log, "# Summary") {
		t.Errorf("log:\n%s", log)
	}
	w.noViolations(t)
}

func TestTheProjectsOwnActionAndWorkflowAreUnderstood(t *testing.T) {
	t.Parallel()
	w, id, fake := runWith(t, "fail", func(_ *githubsim.Config, r *githubsim.Repository) {
		r.Files.(fstest.MapFS)[".github/workflows/errand.yml"].Data = read(t, "../../docs/workflows/errand.yml")
	}, func(c *githubsim.Config, _ *githubsim.Repository) {
		e := c.Executor.(*githubsim.ProcessExecutor)
		e.Action, e.ActionPath = read(t, "../../action.yml"), ""
	})
	if run := w.ended(t); run.Conclusion != "failure" || run.Title != "Errand "+marker {
		t.Errorf("%+v\n%s", run, w.sim.Log(id))
	}
	if calls := string(read(t, filepath.Join(fake, "calls"))); calls != "run "+marker+"\nreport-failure "+marker+"\n" {
		t.Errorf("calls %q\n%s", calls, w.sim.Log(id))
	}
	env := string(read(t, filepath.Join(fake, "env")))
	for _, line := range []string{"ERRAND_CONTROL_PLANE=https://", "ERRAND_TICKET=t1cket-secret", "ERRAND_GITHUB_TOKEN=ghs_", "ERRAND_PR_TOKEN=\n", "ERRAND_MODEL=claude"} {
		if !strings.Contains(env, line) {
			t.Errorf("no %q in\n%s", line, env)
		}
	}
}

func TestAFailingRunnerFailsTheRunAndItsLastStepStillComes(t *testing.T) {
	t.Parallel()
	w, id, fake := runWith(t, "fail")
	if run := w.ended(t); run.Conclusion != "failure" || !strings.Contains(w.sim.Log(id), "exit code 3") {
		t.Errorf("%+v\n%s", run, w.sim.Log(id))
	}
	if calls := string(read(t, filepath.Join(fake, "calls"))); !strings.Contains(calls, "ended "+marker) {
		t.Errorf("calls %q", calls)
	}
}

func TestACancelledRunnerIsInterruptedAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w, id, fake := runWith(t, "hang")
	eventually(t, "the runner is at work", exists(filepath.Join(fake, "ready")))
	if err := w.app.Cancel(t.Context(), w.target, id); err != nil {
		t.Fatal(err)
	}
	if run := w.ended(t); run.Conclusion != "cancelled" || !strings.Contains(w.sim.Log(id), "interrupted") {
		t.Errorf("%+v\n%s", run, w.sim.Log(id))
	}
	if calls := string(read(t, filepath.Join(fake, "calls"))); !strings.Contains(calls, "ended "+marker) {
		t.Errorf("calls %q", calls)
	}
	gone(t, filepath.Join(fake, "grandchild"))
}

func TestWhatARunnerLeavesRunningEndsWithItsStep(t *testing.T) {
	t.Parallel()
	w, id, fake := runWith(t, "orphan")
	if run := w.ended(t); run.Conclusion != "success" {
		t.Errorf("%+v\n%s", run, w.sim.Log(id))
	}
	gone(t, filepath.Join(fake, "grandchild"))
}

func TestAStubbornRunnerIsKilled(t *testing.T) {
	t.Parallel()
	w, id, fake := runWith(t, "stubborn")
	eventually(t, "the runner is at work", exists(filepath.Join(fake, "ready")))
	if err := w.app.Cancel(t.Context(), w.target, id); err != nil {
		t.Fatal(err)
	}
	if run := w.ended(t); run.Conclusion != "cancelled" {
		t.Errorf("%+v", run)
	}
}

func TestClosingTheSimulationEndsItsRunners(t *testing.T) {
	t.Parallel()
	w, _, fake := runWith(t, "hang")
	eventually(t, "the runner is at work", exists(filepath.Join(fake, "ready")))
	if err := w.sim.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, filepath.Join(fake, "grandchild"))
}

// TestRunnersDieWithAKilledSimulation is its own helper: the inner process starts a simulation and is killed.
func TestRunnersDieWithAKilledSimulation(t *testing.T) {
	if fake := os.Getenv("GITHUBSIM_HELPER_DIR"); fake != "" {
		_, _, inner := runWith(t, "stubborn")
		eventually(t, "the runner is at work", exists(filepath.Join(inner, "ready")))
		pid := read(t, filepath.Join(inner, "pid"))
		if err := os.WriteFile(filepath.Join(fake, "pid"), pid, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	t.Parallel()
	fake := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunnersDieWithAKilledSimulation$", "-test.timeout=100s")
	cmd.Env = append(os.Environ(), "GITHUBSIM_HELPER_DIR="+fake, "TMPDIR="+fake)
	if out, err := cmd.CombinedOutput(); err == nil || !exists(filepath.Join(fake, "pid"))() {
		t.Fatalf("the helper was not killed: %v\n%s", err, out)
	}
	gone(t, filepath.Join(fake, "pid"))
}

func TestStepsThatASimulationCannotRunFailTheJob(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ from, to, words string }{
		"a shell step":                    {"      - uses: errand-dev/errand@v1\n        with:", "      - run: curl example\n        with:", "not \"curl example\""},
		"a checkout that keeps its token": {"          persist-credentials: false\n", "", "leaves the token in .git/config"},
		"an unknown expression":           {"${{ inputs.ticket }}", "${{ hashFiles('x') }}", "cannot evaluate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, id, fake := runWith(t, "", func(_ *githubsim.Config, r *githubsim.Repository) {
				f := r.Files.(fstest.MapFS)[".github/workflows/errand.yml"]
				f.Data = []byte(strings.Replace(string(f.Data), tc.from, tc.to, 1))
			})
			if run := w.ended(t); run.Conclusion != "failure" || !strings.Contains(w.sim.Log(id), tc.words) {
				t.Errorf("%+v\n%s", run, w.sim.Log(id))
			}
			if _, err := os.Stat(filepath.Join(fake, "calls")); err == nil {
				t.Error("the runner was started")
			}
		})
	}
}

func exists(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

// gone waits until the process whose id the file holds is no more (or is a zombie that nobody has fetched yet).
func gone(t *testing.T, file string) {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(string(read(t, file))))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is gone", func() bool {
		if syscall.Kill(pid, 0) != nil {
			return true
		}
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
