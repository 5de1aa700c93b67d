package githubsim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// workflow is what githubsim reads of a workflow file.
type workflow struct {
	Name        string            `yaml:"name"`
	RunName     string            `yaml:"run-name"`
	On          any               `yaml:"on"`
	Permissions any               `yaml:"permissions"`
	Env         map[string]string `yaml:"env"`
	Jobs        yaml.MapSlice     `yaml:"jobs"`

	dispatch *dispatchTrigger // nil = not to be dispatched
	jobs     []JobSpec        // in the order of the file
}

type dispatchTrigger struct {
	Inputs map[string]dispatchInput `yaml:"inputs"`
}

type dispatchInput struct {
	Required bool   `yaml:"required"`
	Default  any    `yaml:"default"`
	Type     string `yaml:"type"`
}

// JobSpec is a job as the file writes it.
type JobSpec struct {
	Key            string            `yaml:"-"`
	Name           string            `yaml:"name"`
	Needs          any               `yaml:"needs"`
	If             string            `yaml:"if"`
	Permissions    any               `yaml:"permissions"`
	Env            map[string]string `yaml:"env"`
	TimeoutMinutes float64           `yaml:"timeout-minutes"` // 0 = 360, as on GitHub
	Steps          []StepSpec        `yaml:"steps"`
}

// StepSpec is a step as the file writes it.
type StepSpec struct {
	ID   string         `yaml:"id"`
	Name string         `yaml:"name"`
	If   string         `yaml:"if"`
	Uses string         `yaml:"uses"`
	Run  string         `yaml:"run"`
	With map[string]any `yaml:"with"`
	Env  map[string]any `yaml:"env"`
}

// parseWorkflow reads a workflow file. Keys that githubsim has no use for are left alone.
func parseWorkflow(text []byte) (*workflow, error) {
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		return nil, fmt.Errorf("workflow file: %w", err)
	}
	switch on := w.On.(type) {
	case string:
		if on == "workflow_dispatch" {
			w.dispatch = &dispatchTrigger{}
		}
	case []any:
		if slices.Contains(on, any("workflow_dispatch")) {
			w.dispatch = &dispatchTrigger{}
		}
	case map[string]any:
		if v, ok := on["workflow_dispatch"]; ok {
			w.dispatch = &dispatchTrigger{}
			if err := remarshal(v, w.dispatch); err != nil {
				return nil, fmt.Errorf("workflow file: on.workflow_dispatch: %w", err)
			}
		}
	}
	for _, item := range w.Jobs {
		var j JobSpec
		if err := remarshal(item.Value, &j); err != nil {
			return nil, fmt.Errorf("workflow file: jobs.%v: %w", item.Key, err)
		}
		j.Key = fmt.Sprint(item.Key)
		if j.Permissions == nil {
			j.Permissions = w.Permissions
		}
		env := map[string]string{}
		for _, m := range []map[string]string{w.Env, j.Env} {
			for k, v := range m {
				env[k] = v
			}
		}
		j.Env = env
		w.jobs = append(w.jobs, j)
	}
	return &w, nil
}

func remarshal(from, into any) error {
	if from == nil {
		return nil
	}
	text, err := yaml.Marshal(from)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}

// needs are the jobs that must have succeeded first.
func (j JobSpec) needs() []string {
	switch n := j.Needs.(type) {
	case string:
		return []string{n}
	case []any:
		var out []string
		for _, v := range n {
			out = append(out, fmt.Sprint(v))
		}
		return out
	default:
		return nil
	}
}

// tokenPermissions are those of the job's GITHUB_TOKEN: what the file declares and nothing else, or, where it declares
// nothing, the restricted default. Names are the API's (pull_requests for pull-requests).
func (j JobSpec) tokenPermissions() map[string]string {
	out := map[string]string{"metadata": "read"}
	switch p := j.Permissions.(type) {
	case nil:
		out["contents"] = "read"
	case string:
		level := strings.TrimSuffix(p, "-all")
		for _, name := range []string{"actions", "checks", "contents", "issues", "pull_requests", "statuses"} {
			out[name] = level
		}
	case map[string]any:
		for name, level := range p {
			if l := fmt.Sprint(level); l != "none" && name != "id-token" {
				out[strings.ReplaceAll(name, "-", "_")] = l
			}
		}
	}
	return out
}

// resolveInputs checks what was sent against what the file declares, and adds the defaults.
func (w *workflow) resolveInputs(sent map[string]string) (map[string]string, *refusal) {
	var unexpected []string
	for name := range sent {
		if _, ok := w.dispatch.Inputs[name]; !ok {
			unexpected = append(unexpected, fmt.Sprintf("%q", name))
		}
	}
	if len(unexpected) > 0 {
		slices.Sort(unexpected)
		return nil, refuse(422, "Unexpected inputs provided: [%s]", strings.Join(unexpected, ", "))
	}
	out := map[string]string{}
	for name, in := range w.dispatch.Inputs {
		v, ok := sent[name]
		switch {
		case ok:
			out[name] = v
		case in.Default != nil:
			out[name] = fmt.Sprint(in.Default)
		case in.Required:
			return nil, refuse(422, "Required input '%s' not provided", name)
		default:
			out[name] = ""
		}
	}
	return out, nil
}
