package runner

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/errand-dev/errand"
)

// Config is everything the runner is told from outside. It comes from the environment and the event file and never from
// the command line, where other processes could read it.
type Config struct {
	ControlPlane string // base address, without a slash at its end
	Run          errand.ID
	Mark         string // the input run as it is: the run's id and its attempt
	Ticket       string // "" where the ID token stands alone
	APIKey       string
	Model        string
	BaseURL      string // of the provider; "" = its own
	GitHubToken  string // pushes, and opens the pull request unless PRToken is set
	PRToken      string
	Instructions string
	Protected    []string

	Workspace      string
	Repository     string // owner/name, as GitHub names it now
	RepositoryID   int64  // 0 = unknown
	WorkflowRun    int64
	WorkflowTry    int
	APIURL         string
	ServerURL      string
	StepSummary    string // file; "" = none
	Output         string // file; "" = none
	TempDir        string // "" = the system's
	networkEnviron []string
	identity       identity
}

// input is one input of action.yml: its name there, whether it must be given, and what to do about it when it is not.
type input struct {
	name     string
	required bool
	remedy   string
}

// Inputs names every input, in the order of action.yml. The action hands input "a-b" over as ERRAND_A_B.
func inputs() []input {
	return []input{
		{"control-plane", true, "write the address of your Errand in the workflow file, under `with:`"},
		{"run", true, "start the workflow from Errand: it gives the input `run`"},
		{"ticket", false, ""}, // required where the job may not ask for an ID token
		{"anthropic-api-key", true, "store the key as a secret of the repository and pass it to the action"},
		{"model", true, "name a model, such as claude-sonnet-5"},
		{"base-url", false, ""},
		{"github-token", true, "pass ${{ github.token }}"},
		{"pr-token", false, ""},
		{"instructions", false, ""},
		{"protected-paths", false, ""},
	}
}

// EnvName is the environment variable that carries an input.
func EnvName(input string) string {
	return "ERRAND_" + strings.ToUpper(strings.ReplaceAll(input, "-", "_"))
}

// value looks an input up: as the action maps it, as other runners of actions name it, then in the event file.
func value(name string, getenv func(string) string, event map[string]string) string {
	for _, v := range []string{getenv(EnvName(name)), getenv("INPUT_" + strings.ToUpper(name))} {
		if v != "" {
			return v
		}
	}
	if name == "run" || name == "ticket" {
		return event[name]
	}
	return ""
}

// secretsOf gives what must be masked before anything else is printed, whether or not the rest of the configuration holds.
func secretsOf(getenv func(string) string) []string {
	event, _ := eventInputs(getenv("GITHUB_EVENT_PATH"))
	var list []string
	for _, name := range []string{"ticket", "anthropic-api-key", "github-token", "pr-token"} {
		if v := strings.TrimSpace(value(name, getenv, event)); v != "" {
			list = append(list, v)
		}
	}
	if v := getenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN"); v != "" {
		list = append(list, v)
	}
	return list
}

// eventInputs reads the inputs of a workflow_dispatch event. No file is no inputs.
func eventInputs(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, errand.Errorf(errand.CodeInvalid, err, "the event file of GITHUB_EVENT_PATH cannot be read")
	}
	var event struct {
		Inputs map[string]any `json:"inputs"`
	}
	if err := json.Unmarshal(b, &event); err != nil {
		return nil, errand.Errorf(errand.CodeInvalid, err, "the event file of GITHUB_EVENT_PATH is not JSON")
	}
	found := map[string]string{}
	for k, v := range event.Inputs {
		if s, ok := v.(string); ok {
			found[k] = s
		}
	}
	return found, nil
}

var (
	repositoryForm = regexp.MustCompile(`^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`)
	runForm        = regexp.MustCompile(`^([0-9a-f-]{36})(\.[0-9]{1,6})?$`)
)

// LoadConfig reads the configuration and reports everything that is wrong with it at once, each with what to set. No error
// holds a value.
func LoadConfig(getenv func(string) string) (Config, []*errand.Error) {
	l := loader{getenv: getenv}
	event, err := eventInputs(getenv("GITHUB_EVENT_PATH"))
	if err != nil {
		l.fail("GITHUB_EVENT_PATH", "%v", err)
	}
	in := map[string]string{}
	for _, i := range inputs() {
		in[i.name] = strings.TrimSpace(value(i.name, getenv, event))
		if i.required && in[i.name] == "" {
			l.fail(i.name, "is missing: %s", i.remedy)
		}
	}
	c := Config{
		ControlPlane: l.address("control-plane", in["control-plane"]),
		Run:          l.run(in["run"]), Mark: in["run"],
		Ticket: in["ticket"], APIKey: in["anthropic-api-key"], Model: in["model"],
		BaseURL:     l.address("base-url", in["base-url"]),
		GitHubToken: in["github-token"], PRToken: in["pr-token"],
		Instructions: in["instructions"], Protected: listOf(in["protected-paths"]),
		Workspace:    l.needed("GITHUB_WORKSPACE"),
		Repository:   l.needed("GITHUB_REPOSITORY"),
		RepositoryID: l.number("GITHUB_REPOSITORY_ID", 0),
		WorkflowRun:  l.number("GITHUB_RUN_ID", 1),
		WorkflowTry:  int(l.number("GITHUB_RUN_ATTEMPT", 1)),
		APIURL:       l.address("GITHUB_API_URL", l.needed("GITHUB_API_URL")),
		ServerURL:    l.address("GITHUB_SERVER_URL", l.needed("GITHUB_SERVER_URL")),
		StepSummary:  getenv("GITHUB_STEP_SUMMARY"),
		Output:       getenv("GITHUB_OUTPUT"),
		TempDir:      getenv("RUNNER_TEMP"),
	}
	if c.Repository != "" && !repositoryForm.MatchString(c.Repository) {
		l.fail("GITHUB_REPOSITORY", "is not owner/name")
	}
	c.identity = identity{requestURL: getenv("ACTIONS_ID_TOKEN_REQUEST_URL"), bearer: getenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN")}
	if c.Ticket == "" && c.identity.requestURL == "" {
		l.fail("ticket", "is missing, and this job may not ask for an ID token instead: start the workflow from Errand, and give the job `permissions: id-token: write` (docs/workflows/errand.yml)")
	}
	if len(c.Ticket) > 512 {
		l.fail("ticket", "is longer than any ticket")
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR", "SYSTEMROOT"} {
		for _, spelling := range []string{name, strings.ToLower(name)} {
			if v := getenv(spelling); v != "" {
				c.networkEnviron = append(c.networkEnviron, spelling+"="+v)
			}
		}
	}
	return c, l.wrong
}

type loader struct {
	getenv func(string) string
	wrong  []*errand.Error
}

func (l *loader) fail(field, format string, args ...any) {
	l.wrong = append(l.wrong, errand.Invalid(field, format, args...))
}

func (l *loader) needed(name string) string {
	v := l.getenv(name)
	if v == "" {
		l.fail(name, "is missing: GitHub Actions sets it; outside of Actions set it yourself")
	}
	return v
}

func (l *loader) number(name string, least int64) int64 {
	v := l.getenv(name)
	if v == "" && least == 0 {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least {
		l.fail(name, "is missing or not a number of at least %d: GitHub Actions sets it", least)
	}
	return n
}

// address checks an http(s) address. A secret goes there, so that plain http is for this machine only.
func (l *loader) address(field, v string) string {
	if v == "" {
		return ""
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		l.fail(field, "is not an https address without user, password or query")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		l.fail(field, "is plain http, and a secret would be sent there: use https")
	}
	return strings.TrimRight(v, "/")
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// run reads the input of that name: the run's id, with or without the attempt behind a dot.
func (l *loader) run(v string) errand.ID {
	if v == "" {
		return ""
	}
	m := runForm.FindStringSubmatch(v)
	if m == nil {
		l.fail("run", "is not the id of a run: start the workflow from Errand")
		return ""
	}
	id, err := errand.ParseID(m[1])
	if err != nil {
		l.fail("run", "is not the id of a run: start the workflow from Errand")
	}
	return id
}

// listOf splits a list by lines and commas.
func listOf(s string) []string {
	var list []string
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '\n' || r == '\r' || r == ',' }) {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
