package runner_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runner"
)

type step struct {
	ID    string            `yaml:"id"`
	Name  string            `yaml:"name"`
	Uses  string            `yaml:"uses"`
	With  map[string]any    `yaml:"with"`
	Run   string            `yaml:"run"`
	Env   map[string]string `yaml:"env"`
	If    string            `yaml:"if"`
	Shell string            `yaml:"shell"`
}

type action struct {
	Inputs map[string]struct {
		Required bool   `yaml:"required"`
		Default  string `yaml:"default"`
	} `yaml:"inputs"`
	Outputs map[string]any `yaml:"outputs"`
	Runs    struct {
		Using string `yaml:"using"`
		Steps []step `yaml:"steps"`
	} `yaml:"runs"`
}

type workflow struct {
	RunName string `yaml:"run-name"`
	On      map[string]struct {
		Inputs map[string]struct {
			Required bool   `yaml:"required"`
			Type     string `yaml:"type"`
		} `yaml:"inputs"`
	} `yaml:"on"`
	Permissions map[string]string `yaml:"permissions"`
	Concurrency struct {
		Group  string `yaml:"group"`
		Cancel bool   `yaml:"cancel-in-progress"`
	} `yaml:"concurrency"`
	Jobs map[string]struct {
		Timeout int    `yaml:"timeout-minutes"`
		Steps   []step `yaml:"steps"`
	} `yaml:"jobs"`
}

func load(t *testing.T, file string, v any) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheActionHandsEveryInputOverByEnvironment(t *testing.T) {
	t.Parallel()
	var a action
	load(t, "../action.yml", &a)
	if a.Runs.Using != "composite" {
		t.Errorf("using %q", a.Runs.Using)
	}
	i := slices.IndexFunc(a.Runs.Steps, func(s step) bool { return s.ID == "run" })
	if i < 0 {
		t.Fatal("no step with the id run")
	}
	env := a.Runs.Steps[i].Env
	for name := range a.Inputs {
		if got := env[runner.EnvName(name)]; got != "${{ inputs."+name+" }}" {
			t.Errorf("input %s is handed over as %q", name, got)
		}
	}
	if len(env) != len(a.Inputs) {
		t.Errorf("%d variables for %d inputs", len(env), len(a.Inputs))
	}
	// The program knows the same inputs: each required one that is missing is named, each optional one is read.
	// A job that may ask for an ID token needs no ticket.
	_, wrong := runner.LoadConfig(func(name string) string {
		return map[string]string{"ACTIONS_ID_TOKEN_REQUEST_URL": "https://runner.example.net/token"}[name]
	})
	for name, in := range a.Inputs {
		named := slices.ContainsFunc(wrong, func(e *errand.Error) bool { return e.Field == name })
		if (in.Required || in.Default != "") != named {
			t.Errorf("input %s: required here %v, by the program %v", name, in.Required, named)
		}
	}
	for _, s := range a.Runs.Steps {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("step %q puts an expression into its script", s.Name)
		}
		if s.Run != "" && s.Shell == "" {
			t.Errorf("step %q has no shell", s.Name)
		}
		if s.Uses != "" && !pinned.MatchString(s.Uses) {
			t.Errorf("step %q is not pinned: %s", s.Name, s.Uses)
		}
	}
	last := a.Runs.Steps[len(a.Runs.Steps)-1]
	if last.If != "always()" || !strings.Contains(last.Run, "report-failure") || last.Env["ERRAND_RUN"] != "${{ inputs.run }}" {
		t.Errorf("the last step: %+v", last)
	}
	for _, out := range []string{"state", "reason", "pull-request", "branch"} {
		if a.Outputs[out] == nil {
			t.Errorf("no output %s", out)
		}
	}
}

var pinned = regexp.MustCompile(`^[\w.-]+/[\w./-]+@(v\d+|v\d+\.\d+\.\d+|[0-9a-f]{40})$`)

func TestC3_TheWorkflowDeclaresExactlyWhatErrandSends(t *testing.T) {
	t.Parallel()
	var w workflow
	text := load(t, "../docs/workflows/errand.yml", &w)
	if len(w.On) != 1 {
		t.Errorf("triggers: %v", w.On)
	}
	inputs := w.On["workflow_dispatch"].Inputs
	if len(inputs) != 2 || !inputs["run"].Required || inputs["ticket"].Required || inputs["run"].Type != "string" || inputs["ticket"].Type != "string" {
		t.Errorf("inputs: %+v", inputs)
	}
	if !strings.Contains(w.RunName, "${{ inputs.run }}") || strings.Contains(w.RunName, "ticket") {
		t.Errorf("run-name %q", w.RunName)
	}
	if len(w.Permissions) != 3 || w.Permissions["contents"] != "write" || w.Permissions["pull-requests"] != "write" || w.Permissions["id-token"] != "write" {
		t.Errorf("permissions %v", w.Permissions)
	}
	if !strings.Contains(w.Concurrency.Group, "${{ inputs.run }}") || w.Concurrency.Cancel {
		t.Errorf("concurrency %+v", w.Concurrency)
	}
	if len(w.Jobs) != 1 || w.Jobs["errand"].Timeout != 25 || len(w.Jobs["errand"].Steps) != 2 {
		t.Fatalf("jobs %+v", w.Jobs)
	}
	checkout, ours := w.Jobs["errand"].Steps[0], w.Jobs["errand"].Steps[1]
	if !strings.HasPrefix(checkout.Uses, "actions/checkout@v") || checkout.With["persist-credentials"] != false {
		t.Errorf("D17: the checkout keeps its credentials: %+v", checkout)
	}
	if ours.Uses != "errand-dev/errand@v1" || ours.With["control-plane"] != "https://errand.example.com" ||
		ours.With["run"] != "${{ inputs.run }}" || ours.With["ticket"] != "${{ inputs.ticket }}" {
		t.Errorf("the action: %+v", ours)
	}
	if strings.Contains(text, "run: |") {
		t.Error("the workflow runs a script of its own")
	}
}

// C2: the branch is no input. Errand sends `ref` beside the inputs, so that a workflow with an input of that name would be
// asked for something it never gets.
func TestC2_TheWorkflowHasNoInputRef(t *testing.T) {
	t.Parallel()
	var w workflow
	load(t, "../docs/workflows/errand.yml", &w)
	if _, ok := w.On["workflow_dispatch"].Inputs["ref"]; ok {
		t.Error("it has")
	}
}
