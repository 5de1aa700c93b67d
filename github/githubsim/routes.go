package githubsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// route is one call that is served, with the permission that its token needs.
type route struct {
	method, path string
	permission   string // "app" = the App's JWT; "" = any token; else "name:level"
	serve        func(*Sim, *call) (status int, body any, no *refusal)
}

// served is everything that may be called. Nothing here reads or writes the contents of a repository.
var served = []route{
	{"GET", "/app", "app", (*Sim).getApp},
	{"GET", "/app/installations/{installation_id}", "app", (*Sim).getInstallation},
	{"POST", "/app/installations/{installation_id}/access_tokens", "app", (*Sim).createToken},
	{"GET", "/installation/repositories", "metadata:read", (*Sim).listInstallationRepositories},
	{"GET", "/rate_limit", "", (*Sim).getRateLimit},
	{"GET", "/repositories/{id}", "metadata:read", (*Sim).getRepository},
	{"GET", "/repos/{owner}/{repo}", "metadata:read", (*Sim).getRepository},
	{"GET", "/repos/{owner}/{repo}/actions/workflows/{workflow}", "actions:read", (*Sim).getWorkflow},
	{"POST", "/repos/{owner}/{repo}/actions/workflows/{workflow}/dispatches", "actions:write", (*Sim).createDispatch},
	{"GET", "/repos/{owner}/{repo}/actions/workflows/{workflow}/runs", "actions:read", (*Sim).listRuns},
	{"GET", "/repos/{owner}/{repo}/actions/runs", "actions:read", (*Sim).listRuns},
	{"GET", "/repos/{owner}/{repo}/actions/runs/{run_id}", "actions:read", (*Sim).getRun},
	{"GET", "/repos/{owner}/{repo}/actions/runs/{run_id}/jobs", "actions:read", (*Sim).listJobs},
	{"POST", "/repos/{owner}/{repo}/actions/runs/{run_id}/cancel", "actions:write", (*Sim).cancelRun},
	{"POST", "/repos/{owner}/{repo}/actions/runs/{run_id}/force-cancel", "actions:write", (*Sim).cancelRun},
	{"GET", "/repos/{owner}/{repo}/pulls", "pull_requests:read", (*Sim).listPulls},
	{"POST", "/repos/{owner}/{repo}/pulls", "pull_requests:write", (*Sim).createPull},
	{"GET", "/repos/{owner}/{repo}/pulls/{number}", "pull_requests:read", (*Sim).getPull},
	{"PATCH", "/repos/{owner}/{repo}/pulls/{number}", "pull_requests:write", (*Sim).updatePull},
}

// never are the calls that Errand must not make, though its permissions might allow some: they are refused and recorded.
var never = []struct{ path, why string }{
	{"/repos/{owner}/{repo}/contents/{path...}", "reads or writes contents through the API"},
	{"/repos/{owner}/{repo}/tarball/{ref...}", "downloads the source"},
	{"/repos/{owner}/{repo}/zipball/{ref...}", "downloads the source"},
	{"/repos/{owner}/{repo}/git/{rest...}", "uses the git database or refs API"},
	{"/repos/{owner}/{repo}/merges", "merges"},
	{"/repos/{owner}/{repo}/pulls/{number}/merge", "merges a pull request"},
	{"/repos/{owner}/{repo}/pulls/{number}/reviews", "reviews a pull request"},
	{"/repos/{owner}/{repo}/actions/runs/{run_id}/logs", "reads logs"},
	{"/repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{n}/logs", "reads logs"},
	{"/repos/{owner}/{repo}/actions/jobs/{job_id}/logs", "reads logs"},
	{"/repos/{owner}/{repo}/actions/runs/{run_id}/artifacts", "reads artifacts"},
	{"/repos/{owner}/{repo}/actions/artifacts/{rest...}", "reads artifacts"},
	{"/repos/{owner}/{repo}/actions/runs/{run_id}/rerun", "re-runs a workflow"},
	{"/repos/{owner}/{repo}/actions/runs/{run_id}/rerun-failed-jobs", "re-runs a workflow"},
	{"/repos/{owner}/{repo}/actions/jobs/{job_id}/rerun", "re-runs a job"},
	{"/repos/{owner}/{repo}/actions/runs/{run_id}/approve", "approves a workflow run"},
	{"/repos/{owner}/{repo}/actions/workflows/{workflow}/enable", "enables a workflow"},
	{"/repos/{owner}/{repo}/actions/workflows/{workflow}/disable", "disables a workflow"},
	{"/repos/{owner}/{repo}/actions/secrets/{rest...}", "reaches for secrets"},
	{"/installation/token", "revokes a token (C18: it ends by itself, and an end that was missed fails nothing)"},
}

// call is one request while it is served. Sim.mu is held.
type call struct {
	r     *http.Request
	body  []byte
	token *token      // nil for the App's JWT
	repo  *repository // nil where the path names none
}

// maxBody bounds a request's body; the largest real one is a pull request's text of 65,536 characters.
const maxBody = 4 << 20

func (s *Sim) newRoutes() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range served {
		mux.HandleFunc(rt.method+" "+apiPrefix+rt.path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rt) })
	}
	s.setUpRoutes(mux)
	for _, n := range never {
		mux.HandleFunc(apiPrefix+n.path, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.violation(r, s.callerOf(r), n.why)
			s.answerRefusal(w, r, refuse(http.StatusForbidden, notAccessible))
		})
	}
	mux.HandleFunc(apiPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if caller := s.callerOf(r); caller == callerApp || caller == callerInstallation {
			s.violation(r, caller, "a call that Errand has no use for")
		}
		s.answerRefusal(w, r, refuse(http.StatusNotFound, "Not Found"))
	})
	s.issuerRoutes(mux)
	mux.HandleFunc("/{owner}/{repo}/{rest...}", s.serveGit)
	return mux
}

// ServeHTTP serves API and git, faults first.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f := s.takeFault(r); f != nil {
		s.serveFault(w, r, f)
		return
	}
	s.routes.ServeHTTP(w, r)
}

func (s *Sim) serve(w http.ResponseWriter, r *http.Request, rt route) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		s.answerRefusal(w, r, refuse(http.StatusRequestEntityTooLarge, "Request body is too large"))
		return
	}
	status, answer, no := s.handle(&call{r: r, body: body}, rt)
	switch {
	case no != nil:
		s.answerRefusal(w, r, no)
	case answer == nil:
		w.WriteHeader(status)
	default:
		s.answerJSON(w, status, answer)
	}
}

// handle authenticates, finds the repository, checks the permission and serves, all under the lock.
func (s *Sim) handle(c *call, rt route) (int, any, *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rt.permission == callerApp {
		if no := s.appJWT(c.r); no != nil {
			return 0, nil, no
		}
		return rt.serve(s, c)
	}
	t, no := s.tokenOf(c.r)
	if no != nil {
		return 0, nil, no
	}
	c.token = t
	if t.caller == callerInstallation && !t.narrowed {
		s.violation(c.r, t.caller, "a token that was not narrowed to one repository and its permissions")
		return 0, nil, refuse(http.StatusForbidden, notAccessible)
	}
	if no := s.findRepository(c); no != nil {
		return 0, nil, no
	}
	name, level, _ := strings.Cut(rt.permission, ":")
	if name != "" && name != "metadata" && !t.may(name, level) {
		if name != "actions" && t.caller == callerInstallation {
			s.violation(c.r, t.caller, "a call that needs "+rt.permission)
		}
		return 0, nil, refuse(http.StatusForbidden, notAccessible)
	}
	if c.repo != nil && c.repo.archived && c.r.Method != http.MethodGet {
		return 0, nil, refuse(http.StatusForbidden, "Repository was archived so is read-only.")
	}
	return rt.serve(s, c)
}

// findRepository resolves the path's repository. A former name redirects: a GET by 301, anything else by 307, both to the
// numeric id. What the token does not reach is not there.
func (s *Sim) findRepository(c *call) *refusal {
	owner, name := c.r.PathValue("owner"), c.r.PathValue("repo")
	if id := c.r.PathValue("id"); id != "" {
		c.repo = s.state.repositories[c.number("id")]
	} else if name != "" {
		r, moved := s.lookUp(owner, name)
		c.repo = r
		if r != nil && moved && c.token.reaches(r.ID) {
			rest := strings.TrimPrefix(c.r.URL.Path, fmt.Sprintf("%s/repos/%s/%s", apiPrefix, owner, name))
			target := fmt.Sprintf("%s%s/repositories/%d%s", s.base, apiPrefix, r.ID, rest)
			no := &refusal{status: http.StatusTemporaryRedirect, message: "Moved Permanently", header: http.Header{"Location": {target}}}
			if c.r.Method == http.MethodGet {
				no.status = http.StatusMovedPermanently
			}
			return no
		}
	} else {
		return nil
	}
	if c.repo == nil || !c.token.reaches(c.repo.ID) || c.token.caller == callerInstallation && c.repo.Installation != c.token.installation {
		c.repo = nil
		return refuse(http.StatusNotFound, "Not Found")
	}
	return nil
}

func (c *call) number(name string) int64 {
	n, _ := strconv.ParseInt(c.r.PathValue(name), 10, 64)
	return n
}

func (c *call) decode(into any) *refusal {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.body, into); err != nil {
		return refuse(http.StatusBadRequest, "Problems parsing JSON")
	}
	return nil
}

// query reads a number with its default and bounds.
func (c *call) query(name string, otherwise, most int) int {
	n, err := strconv.Atoi(c.r.URL.Query().Get(name))
	if err != nil || n < 1 {
		return otherwise
	}
	return min(n, most)
}

// page cuts a list as GitHub does: 30 a page unless told, at most 100.
func page[T any](c *call, all []T) []T {
	size := c.query("per_page", 30, 100)
	from := min((c.query("page", 1, 1<<20)-1)*size, len(all))
	return all[from:min(from+size, len(all))]
}

func (s *Sim) answerJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Date", s.clock().UTC().Format(http.TimeFormat))
	w.Header().Set("X-Github-Media-Type", "github.v3; format=json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.log.Debug("githubsim: answer not sent", "error", err)
	}
}

func (s *Sim) answerRefusal(w http.ResponseWriter, r *http.Request, no *refusal) {
	for k, v := range no.header {
		w.Header()[k] = v
	}
	body := object{"message": no.message, "documentation_url": "https://docs.github.com/rest", "status": strconv.Itoa(no.status)}
	if no.errors != nil {
		body["errors"] = no.errors
	}
	if l := w.Header().Get("Location"); l != "" {
		body["url"] = l
	}
	s.log.Debug("githubsim: refused", "method", r.Method, "path", r.URL.Path, "status", no.status, "message", no.message)
	s.answerJSON(w, no.status, body)
}

// violation records a call that must never be made. Sim.mu is held.
func (s *Sim) violation(r *http.Request, caller, why string) {
	s.log.Error("githubsim: violation", "method", r.Method, "path", r.URL.Path, "caller", caller, "why", why)
	s.state.violations = append(s.state.violations, Violation{At: s.clock(), Method: r.Method, Path: r.URL.Path, Caller: caller, Why: why})
}

func (s *Sim) callerOf(r *http.Request) string {
	if t, no := s.tokenOf(r); no == nil {
		return t.caller
	}
	if s.appJWT(r) == nil {
		return callerApp
	}
	return callerNobody
}
