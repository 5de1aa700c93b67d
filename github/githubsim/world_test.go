package githubsim_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/github/githubsim"
)

const (
	installationID = int64(51_000_001)
	repositoryID   = int64(1_296_269)
	marker         = "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11.1"
)

// appKey is made once: making one takes longer than most tests here.
var appKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func appPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(appKey())})
}

// world is a simulated GitHub with one repository, and Errand's client of it.
type world struct {
	sim    *githubsim.Sim
	app    *github.App
	target github.Target
	wire   *wire
}

func setup(t *testing.T, edit ...func(*githubsim.Config, *githubsim.Repository)) *world {
	t.Helper()
	cfg := githubsim.Config{PublicKey: &appKey().PublicKey, Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
	repo := githubsim.Repository{
		ID: repositoryID, Installation: installationID, Owner: "octo-org", Name: "shop", PullRequests: true,
		Files: fstest.MapFS{
			".github/workflows/errand.yml": {Data: read(t, "testdata/workflows/errand.yml")},
			"app/cart.py":                  {Data: []byte("def total(items):\n    return sum(i.price for i in items)\n")},
		},
		Secrets: map[string]string{"ANTHROPIC_API_KEY": "sk-not-a-key-123456"},
	}
	for _, f := range edit {
		f(&cfg, &repo)
	}
	sim, err := githubsim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := sim.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := sim.AddInstallation(githubsim.Installation{ID: installationID, Account: "octo-org"}); err != nil {
		t.Fatal(err)
	}
	if err := sim.AddRepository(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	w := &world{sim: sim, wire: newWire(t, sim.URL())}
	w.app, err = github.New(github.Config{AppID: sim.AppID(), PrivateKey: appPEM(), BaseURL: sim.APIURL(), Transport: w.wire})
	if err != nil {
		t.Fatal(err)
	}
	w.target = github.Target{
		InstallationID: installationID, RepositoryID: repositoryID, Owner: repo.Owner, Name: repo.Name, WorkflowFile: "errand.yml", Ref: "main",
	}
	return w
}

func (w *world) dispatch(t *testing.T) github.Dispatched {
	t.Helper()
	d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker, "ticket": "t1cket-secret"})
	if d.Outcome != github.Accepted {
		t.Fatalf("dispatch: %+v", d)
	}
	return d
}

// noViolations is what every test of Errand's own client ends with.
func (w *world) noViolations(t *testing.T) {
	t.Helper()
	if v := w.sim.Violations(); len(v) > 0 {
		t.Errorf("violations: %+v", v)
	}
}

// eventually polls, because the simulated Actions work beside the test.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wire is the network as the client sees it. It holds each request and each answer against GitHub's own description, and
// lets nothing go to another host.
type wire struct {
	t    *testing.T
	base *url.URL
	doc  *openapi3.T
	mu   sync.Mutex
	seen []string // "METHOD path"
	// tr keeps no connection: one that the simulation has closed would make an unclear answer of a request that never left.
	tr *http.Transport
}

var description = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromFile(filepath.Join("testdata", "openapi", "github-openapi.pruned.json"))
})

func newWire(t *testing.T, base string) *wire {
	t.Helper()
	doc, err := description()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return &wire{t: t, base: u, doc: doc, tr: &http.Transport{DisableKeepAlives: true}}
}

func (w *wire) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func (w *wire) count(prefix string) (n int) {
	for _, r := range w.requests() {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(req.URL.Path, "/api/v3")
	w.mu.Lock()
	w.seen = append(w.seen, req.Method+" "+path)
	w.mu.Unlock()
	if req.URL.Host != w.base.Host {
		w.t.Errorf("C27: a request to %s", req.URL.Host)
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	resp, err := w.tr.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	w.check(req, path, body, resp, answer)
	return resp, nil
}

// check validates one exchange. An answer that the description does not list (a fault of a test) must still be JSON.
func (w *wire) check(req *http.Request, path string, body []byte, resp *http.Response, answer []byte) {
	route, params := w.find(req.Method, path)
	if route == nil {
		w.t.Errorf("GitHub's description has no %s %s", req.Method, path)
		return
	}
	opts := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, MultiError: true, IncludeResponseStatus: true}
	sent := req.Clone(context.Background())
	sent.Body = io.NopCloser(bytes.NewReader(body))
	if q := sent.URL.Query(); strings.HasPrefix(q.Get("created"), ">=") { // the description says date-time; GitHub's search syntax is prose there
		q.Set("created", strings.TrimPrefix(q.Get("created"), ">="))
		sent.URL.RawQuery = q.Encode()
	}
	if sent.Header.Get("Content-Type") == "" && len(body) > 0 {
		w.t.Errorf("%s %s: a body without a content type", req.Method, path)
	}
	in := &openapi3filter.RequestValidationInput{Request: sent, PathParams: params, Route: route, Options: opts}
	if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil && resp.StatusCode/100 == 2 {
		w.t.Errorf("%s %s: the request is not as GitHub describes it: %v", req.Method, path, err)
	}
	if route.Operation.Responses.Value(strconv.Itoa(resp.StatusCode)) == nil && resp.StatusCode/100 != 2 {
		if !json.Valid(answer) {
			w.t.Errorf("%s %s: %d is not JSON", req.Method, path, resp.StatusCode)
		}
		return
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Options: opts}
	if err := openapi3filter.ValidateResponse(context.Background(), out.SetBodyBytes(answer)); err != nil {
		w.t.Errorf("%s %s: the answer %d is not as GitHub describes it: %v", req.Method, path, resp.StatusCode, err)
	}
}

// find is a router for the description's few paths: the one with the most literal segments wins.
func (w *wire) find(method, path string) (*routers.Route, map[string]string) {
	segments := strings.Split(path, "/")
	var best *routers.Route
	var params map[string]string
	most := -1
	for pattern, item := range w.doc.Paths.Map() {
		parts := strings.Split(pattern, "/")
		op := item.GetOperation(method)
		if len(parts) != len(segments) || op == nil {
			continue
		}
		literal, vars := 0, map[string]string{}
		for i, p := range parts {
			switch {
			case strings.HasPrefix(p, "{"):
				vars[strings.Trim(p, "{}")] = segments[i]
			case p == segments[i]:
				literal++
			default:
				literal = -1000
			}
		}
		if literal > most {
			most, params = literal, vars
			best = &routers.Route{Spec: w.doc, Path: pattern, PathItem: item, Method: method, Operation: op}
		}
	}
	return best, params
}
