package githubsim

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
)

// action is a composite action.yml, as far as githubsim reads it.
type action struct {
	Inputs map[string]struct {
		Required bool `yaml:"required"`
		Default  any  `yaml:"default"`
	} `yaml:"inputs"`
	Runs struct {
		Using string     `yaml:"using"`
		Steps []StepSpec `yaml:"steps"`
	} `yaml:"runs"`
}

func (e *ProcessExecutor) readAction() (*action, error) {
	content := e.Action
	if content == nil {
		var err error
		if content, err = os.ReadFile(e.ActionPath); err != nil {
			return nil, fmt.Errorf("githubsim needs the action's action.yml: %w", err)
		}
	}
	var a action
	if err := yaml.Unmarshal(content, &a); err != nil {
		return nil, fmt.Errorf("action.yml: %w", err)
	}
	if a.Runs.Using != "composite" {
		return nil, fmt.Errorf("action.yml: runs.using is %q: githubsim runs composite actions", a.Runs.Using)
	}
	return &a, nil
}

// inputs makes the contexts inside the action: there `inputs` are the action's own, with its defaults. GitHub only warns of
// an input that the action does not declare, and does not hold it to the required ones; both are printed.
func (a *action) inputs(outer values, with map[string]string, out io.Writer) (values, error) {
	v := maps.Clone(outer)
	maps.DeleteFunc(v, func(k, _ string) bool { return strings.HasPrefix(k, "inputs.") || strings.HasPrefix(k, "secrets.") })
	given := map[string]string{}
	for name, value := range with {
		given[strings.ToLower(name)] = value
	}
	for _, name := range slices.Sorted(maps.Keys(a.Inputs)) {
		key := strings.ToLower(name)
		value, ok := given[key]
		if !ok && a.Inputs[name].Default != nil {
			var err error
			if value, err = outer.expand(fmt.Sprint(a.Inputs[name].Default)); err != nil {
				return nil, err
			}
		}
		if value == "" && a.Inputs[name].Required {
			fmt.Fprintf(out, "##[warning]Input required and not supplied: %s\n", name)
		}
		v["inputs."+key] = value
		delete(given, key)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		fmt.Fprintf(out, "##[warning]Unexpected input(s) '%s'\n", name)
	}
	return v, nil
}

// masker is a job's log: it replaces masked values by *** and obeys the two commands about that, as the Actions runner does.
type masker struct {
	mu      sync.Mutex
	to      io.Writer
	line    bytes.Buffer
	masks   []string // longest first
	resumes string   // while commands are stopped: the token that resumes them
}

func newMasker(to io.Writer) *masker { return &masker{to: to} }

// mask hides a value, and each line of one that has several.
func (m *masker) mask(value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maskLocked(value)
}

func (m *masker) maskLocked(value string) {
	for _, v := range append(strings.Split(value, "\n"), value) {
		if v = strings.TrimSpace(v); v != "" && !slices.Contains(m.masks, v) {
			m.masks = append(m.masks, v)
		}
	}
	slices.SortFunc(m.masks, func(a, b string) int { return len(b) - len(a) })
}

// Write takes what a step printed; whole lines go on.
func (m *masker) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.line.Write(b)
	for {
		i := bytes.IndexByte(m.line.Bytes(), '\n')
		if i < 0 {
			return len(b), nil
		}
		m.put(string(m.line.Next(i + 1)))
	}
}

// Close sends the last line, when it has no end.
func (m *masker) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.line.Len() > 0 {
		m.put(m.line.String() + "\n")
		m.line.Reset()
	}
}

var unescapeCommand = strings.NewReplacer("%25", "%", "%0D", "\r", "%0d", "\r", "%0A", "\n", "%0a", "\n")

func (m *masker) put(line string) {
	command := strings.TrimSpace(line)
	if m.resumes != "" {
		if command == "::"+m.resumes+"::" {
			m.resumes = ""
		}
	} else if value, ok := strings.CutPrefix(command, "::add-mask::"); ok {
		m.maskLocked(unescapeCommand.Replace(value))
		line = "::add-mask::***\n"
	} else if token, ok := strings.CutPrefix(command, "::stop-commands::"); ok {
		m.resumes = token
	}
	for _, v := range m.masks {
		line = strings.ReplaceAll(line, v, "***")
	}
	_, _ = io.WriteString(m.to, line)
}
