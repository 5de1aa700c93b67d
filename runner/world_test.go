package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/models/modelsim"
	"github.com/errand-dev/errand/runner"
	"github.com/errand-dev/errand/wire"
)

const (
	runID     = "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11"
	ticket    = "ticket-4f7d1a-HUSHHUSH"
	runToken  = "run-token-77aa-HUSHHUSH"
	apiKey    = "sk-ant-api-HUSHHUSH"
	ghToken   = "ghs_0123456789HUSHHUSH"
	branch    = "errand/typeerror-cart-total-2f1f0a11"
	cartBuggy = "def total(items):\n    return sum(i.price for i in items)\n"
	fixedLine = "    return sum(i.price for i in items or [])\n"
)

// world is everything round the runner: a control plane, GitHub with a bare repository over HTTP, a scripted provider, a
// checkout, and a clock that moves when somebody sleeps.
type world struct {
	t         *testing.T
	plane     *plane
	hub       *hub
	sim       *modelsim.Sim
	workspace string
	temp      string
	env       map[string]string
	out       lockedBuffer
	ticks     chan time.Time

	mu    sync.Mutex
	now   time.Time
	slept []time.Duration
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// files is what the repository holds at the start.
func shop() map[string]string {
	return map[string]string{
		"shop/cart.py":      cartBuggy,
		"shop/windows.txt":  "one\r\ntwo\r\nthree\r\n",
		"shop/logo.png":     "\x89PNG\x00\x01",
		"shop/run.sh":       "#!/bin/sh\necho one\n",
		"shop/[id].py":      "brackets = 1\n",
		"tests/test_a.py":   "def test_a(): pass\n",
		"README.md":         "# Shop\n",
		"go.mod":            "module shop\n",
		"-n.txt":            "a name with a dash\n",
		"AGENTS.md":         "Use tabs. (rules-of-the-base)\n",
		".gitattributes":    "*.py filter=evil diff=evil\n",
		".github/wf.yml":    "on: push\n",
		"docs/grüße/ä b.md": "umlaut\n",
	}
}

// template is the shop's repository, bare and checked out, made once and copied for each test: starting git a dozen times
// for every world would take longer than the tests.
var template = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "errand-runner-test-")
	if err != nil {
		panic(err)
	}
	makeRepository(func(dir, name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, gitEnv()
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%s %q: %v\n%s", name, args, err, out))
		}
	}, dir, shop())
	return dir
})

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(template())
	os.Exit(code)
}

// makeRepository makes dir/shop.git from the files, and its checkout dir/shop.
func makeRepository(run func(dir, name string, args ...string), dir string, files map[string]string) {
	seed := filepath.Join(dir, "shop")
	run(dir, "git", "init", "--quiet", "--initial-branch=main", seed)
	for name, content := range files {
		file := filepath.Join(seed, filepath.FromSlash(name))
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), mode)); err != nil {
			panic(err)
		}
	}
	run(seed, "git", "-c", "core.autocrlf=false", "add", "-A")
	run(seed, "git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "start")
	run(dir, "git", "clone", "--quiet", "--bare", seed, filepath.Join(dir, "shop.git"))
	run(filepath.Join(dir, "shop.git"), "git", "config", "http.receivepack", "true")
}

func newWorld(t *testing.T, scenario string) *world {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(template())); err != nil {
		t.Fatal(err)
	}
	return newWorldIn(t, scenario, dir)
}

func newWorldWith(t *testing.T, scenario string, files map[string]string) *world {
	t.Helper()
	dir := t.TempDir()
	makeRepository(func(dir, name string, args ...string) { run(t, dir, name, args...) }, dir, files)
	return newWorldIn(t, scenario, dir)
}

func newWorldIn(t *testing.T, scenario, dir string) *world {
	t.Helper()
	s, err := modelsim.Parse([]byte(scenario))
	if err != nil {
		t.Fatal(err)
	}
	s.APIKey = apiKey
	w := &world{
		t: t, sim: modelsim.New(s), ticks: make(chan time.Time), temp: t.TempDir(),
		now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC),
	}
	w.hub = newHub(t, filepath.Join(dir, "shop.git"))
	w.plane = newPlane(t, w.hub)
	w.workspace = filepath.Join(dir, "shop")
	model := httptest.NewServer(w.sim)
	t.Cleanup(model.Close)
	event := filepath.Join(w.temp, "event.json")
	write(t, event, `{"inputs":{"run":"`+runID+`.1","ticket":"`+ticket+`"}}`)
	w.env = map[string]string{
		"ERRAND_CONTROL_PLANE": w.plane.url, "ERRAND_ANTHROPIC_API_KEY": apiKey, "ERRAND_MODEL": "claude-sonnet-5",
		"ERRAND_BASE_URL": model.URL, "ERRAND_GITHUB_TOKEN": ghToken,
		"GITHUB_EVENT_PATH": event, "GITHUB_WORKSPACE": w.workspace, "GITHUB_REPOSITORY": "acme/shop", "GITHUB_REPOSITORY_ID": "42",
		"GITHUB_RUN_ID": "777", "GITHUB_RUN_ATTEMPT": "1", "GITHUB_API_URL": w.hub.url + "/api/v3", "GITHUB_SERVER_URL": w.hub.url,
		"GITHUB_STEP_SUMMARY": filepath.Join(w.temp, "summary.md"), "GITHUB_OUTPUT": filepath.Join(w.temp, "output"), "RUNNER_TEMP": w.temp,
	}
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) environment() runner.Env {
	return runner.Env{
		Getenv: func(k string) string { return w.env[k] }, Out: &w.out, Clock: w.clock, Version: "test", HTTP: http.DefaultClient,
		Sleep: func(ctx context.Context, d time.Duration) error {
			w.mu.Lock()
			w.now = w.now.Add(d)
			w.slept = append(w.slept, d)
			w.mu.Unlock()
			return ctx.Err()
		},
		Ticks: func(time.Duration) (<-chan time.Time, func()) { return w.ticks, func() {} },
	}
}

// run carries the errand out and holds what must be true of every run.
func (w *world) run() runner.Exit {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute) // a runner that hangs fails its own test only
	defer cancel()
	exit := runner.Run(ctx, w.environment())
	w.check()
	return exit
}

// check: no secret outside the masks, no violation of the wire formats, no source line in the log or at the control plane,
// nothing written into the checkout.
func (w *world) check() {
	w.t.Helper()
	for line := range strings.Lines(w.out.String()) {
		if !strings.HasPrefix(line, "::add-mask::") && strings.Contains(line, "HUSHHUSH") {
			w.t.Errorf("a secret in the log: %s", line)
		}
	}
	for _, name := range []string{"GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"} {
		if b, err := os.ReadFile(w.env[name]); err == nil && bytes.Contains(b, []byte("HUSHHUSH")) {
			w.t.Errorf("a secret in %s: %s", name, b)
		}
	}
	if v := w.plane.violations(); len(v) > 0 {
		w.t.Errorf("the control plane's rules were broken: %q", v)
	}
	w.plane.mu.Lock()
	defer w.plane.mu.Unlock()
	for _, b := range w.plane.bodies {
		if strings.Contains(b, "sum(i.price") {
			w.t.Errorf("a source line reached the control plane: %s", b)
		}
	}
}

func (w *world) summary() string {
	b, _ := os.ReadFile(w.env["GITHUB_STEP_SUMMARY"])
	return string(b)
}

// toolResults gives the text of every tool result that the provider was sent, in order.
func (w *world) toolResults() []string {
	w.t.Helper()
	requests := w.sim.Requests()
	if len(requests) == 0 {
		return nil
	}
	var body struct {
		Messages []struct {
			Content []struct {
				Type    string
				Content []struct{ Text string }
			}
		}
	}
	if err := json.Unmarshal(requests[len(requests)-1].Body, &body); err != nil {
		w.t.Fatal(err)
	}
	var list []string
	for _, m := range body.Messages {
		for _, c := range m.Content {
			if c.Type == "tool_result" {
				list = append(list, c.Content[0].Text)
			}
		}
	}
	return list
}

func (w *world) simClean() {
	w.t.Helper()
	if v := w.sim.Violations(); len(v) > 0 {
		w.t.Errorf("the provider's rules were broken: %q", v)
	}
}

// fixTurn is the scripted proposal that mends cart.py.
func fixTurn(extra string) string {
	return `
  - tool_calls:
      - name: create_pull_request
        input:
          title: Treat a missing cart as empty
          body: "The cart may be None. ` + extra + `"
          edits: [{path: shop/cart.py, find: "    return sum(i.price for i in items)\n", replace: "    return sum(i.price for i in items or [])\n"}]
          claim: {summary: Treat a missing cart as empty, changes: [{path: shop/cart.py, description: uses an empty list when items is None}]}
`
}

// hub is GitHub: a bare repository behind git's own HTTP backend, and the pull requests of the REST API.
type hub struct {
	t    *testing.T
	bare string
	url  string

	mu      sync.Mutex
	pulls   []map[string]any
	refuse  func(n int, body map[string]any) (status int, answer string) // 0 = do it
	lose    int                                                          // answers to lose after the work is done
	posts   int
	moved   int    // status by which the old name answers
	pushing func() // called when a push begins
	refused string // HTTP refusal of pushes
	ended   bool   // the job's token is over when a push begins
	pushes  int    // that began with such a token
}

func newHub(t *testing.T, bare string) *hub {
	t.Helper()
	h := &hub{t: t, bare: bare}
	mux := http.NewServeMux()
	mux.HandleFunc("/acme/shop/", h.git)
	mux.HandleFunc("POST /api/v3/repos/acme/shop/pulls", h.create)
	mux.HandleFunc("GET /api/v3/repos/acme/shop/pulls", h.list)
	mux.HandleFunc("POST /api/v3/repos/acme/old/pulls", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", h.url+"/api/v3/repositories/42/pulls")
		w.WriteHeader(h.moved)
	})
	mux.HandleFunc("POST /api/v3/repositories/42/pulls", h.create)
	mux.HandleFunc("/acme/old/", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.Replace(r.URL.Path, "/old/", "/shop/", 1)
		h.git(w, r)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	h.url = srv.URL
	return h
}

// git serves the repository to whoever has the token.
func (h *hub) git(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	h.mu.Lock()
	ended := h.ended && r.URL.Query().Get("service") == "git-receive-pack"
	if ended {
		h.pushes++
	}
	h.mu.Unlock()
	if user != "x-access-token" || password != ghToken || ended {
		w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
		h.mu.Lock()
		pushing, refused := h.pushing, h.refused
		h.mu.Unlock()
		if pushing != nil {
			pushing()
		}
		if refused != "" {
			http.Error(w, refused, http.StatusForbidden)
			return
		}
	}
	exe, err := exec.LookPath("git")
	if err != nil {
		h.t.Error(err)
		return
	}
	handler := &cgi.Handler{
		Path: exe, Args: []string{"http-backend"}, Root: "/acme/shop",
		Env: []string{"GIT_PROJECT_ROOT=" + h.bare, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x", "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent"},
	}
	handler.ServeHTTP(w, r)
}

func (h *hub) create(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.posts++
	var body map[string]any
	d := json.NewDecoder(r.Body)
	if err := d.Decode(&body); err != nil || r.Header.Get("Authorization") == "" || r.Header.Get("Accept") != "application/vnd.github+json" {
		h.t.Errorf("a request that GitHub would not like: %v %v", err, r.Header)
	}
	if h.refuse != nil {
		if status, answer := h.refuse(h.posts, body); status != 0 {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(answer))
			return
		}
	}
	for _, p := range h.pulls {
		if p["head"].(map[string]any)["ref"] == body["head"] {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"message":"Validation Failed","errors":[{"message":"A pull request already exists for acme:` + body["head"].(string) + `."}]}`))
			return
		}
	}
	body["token"] = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	body["number"] = len(h.pulls) + 1
	body["html_url"] = fmt.Sprintf("%s/acme/shop/pull/%d", h.url, len(h.pulls)+1)
	body["head"] = map[string]any{"ref": body["head"]}
	h.pulls = append(h.pulls, body)
	if h.lose > 0 {
		h.lose--
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(body)
}

func (h *hub) list(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := []map[string]any{}
	for _, p := range h.pulls {
		if "acme:"+p["head"].(map[string]any)["ref"].(string) == r.URL.Query().Get("head") {
			found = append(found, p)
		}
	}
	_ = json.NewEncoder(w).Encode(found)
}

// in runs git in the bare repository.
func (h *hub) in(args ...string) string { return run(h.t, h.bare, "git", args...) }

// branches lists every branch but main.
func (h *hub) branches() []string {
	var list []string
	for b := range strings.FieldsSeq(h.in("for-each-ref", "--format=%(refname:short)", "refs/heads")) {
		if b != "main" {
			list = append(list, b)
		}
	}
	return list
}

func startAnswer() wire.StartResponse {
	yes := true
	return wire.StartResponse{
		Run: runID, RunURL: "https://errand.example.com/runs/" + runID, Ref: "main",
		Repository: wire.Repository{ID: 42, FullName: "acme/shop", DefaultBranch: "main"},
		Issue:      errand.Issue{ProviderID: "1", Title: "TypeError: cart total", Link: "https://tracker.example.com/issues/1"},
		Event: errand.Event{
			ProviderID: "e1", Primary: 0,
			Exceptions: []errand.Exception{{Type: "TypeError", Value: "'NoneType' object is not iterable", Frames: []errand.Frame{
				{Filename: "lib/wsgi.py", AbsPath: "/usr/lib/wsgi.py", Line: 9},
				{Filename: "shop/cart.py", AbsPath: "/srv/app/shop/cart.py", Function: "total", Line: 2, InApp: &yes},
			}}},
			Provenance: map[string]errand.Origin{"release": errand.FromTracker, "exceptions": errand.FromOutsider},
		},
		Limits: wire.Limits{ToolCalls: 30, WallSeconds: 1200, OutputTokens: 200_000, MaxFiles: 20, MaxChangedLines: 400},
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Dir = dir
	cmd.Env = gitEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func gitEnv() []string {
	return append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
