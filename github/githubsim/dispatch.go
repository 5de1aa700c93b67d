package githubsim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	workflowDir   = ".github/workflows/"
	maxInputs     = 25
	maxInputsGHES = 10
	maxInputText  = 65_535 // characters of all inputs as JSON
)

type dispatchRequest struct {
	ref     string
	inputs  map[string]string
	raw     string // the inputs as they came
	details bool
}

// createDispatch is the one call that starts something. What it refuses, and in which words, is what GitHub does.
func (s *Sim) createDispatch(c *call) (int, any, *refusal) {
	ctx := c.r.Context()
	req, no := s.readDispatch(c)
	if no != nil {
		return 0, nil, no
	}
	name, no := s.findWorkflow(c)
	if no != nil {
		return 0, nil, no
	}
	if c.repo.disabled[name] {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "Cannot trigger a 'workflow_dispatch' on a disabled workflow")
	}
	ref, sha, ok := resolveRef(ctx, c.repo, req.ref)
	if !ok {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "No ref found for: %s", req.ref)
	}
	content, ok := fileAt(ctx, c.repo, sha, workflowDir+name)
	if !ok {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "Workflow does not have 'workflow_dispatch' trigger")
	}
	w, err := parseWorkflow(content)
	if err != nil {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "Invalid Argument - failed to parse workflow: %s", err)
	}
	if w.dispatch == nil {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "Workflow does not have 'workflow_dispatch' trigger")
	}
	if most := s.mostInputs(); len(w.dispatch.Inputs) > most {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "Invalid Argument - failed to parse workflow: you may only define up to %d `inputs` for a `workflow_dispatch` event", most)
	}
	if utf8.RuneCountInString(req.raw) > maxInputText {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "inputs are too large.")
	}
	inputs, no := w.resolveInputs(req.inputs)
	if no != nil {
		return 0, nil, no
	}
	r, no := s.newRun(c.repo, name, ref, sha, w, inputs)
	if no != nil {
		return 0, nil, no
	}
	if !req.details {
		return http.StatusNoContent, nil, nil
	}
	return http.StatusOK, object{"workflow_run_id": r.ID, "run_url": s.runURL(r), "html_url": s.runHTML(r)}, nil
}

func (s *Sim) mostInputs() int {
	if s.cfg.Enterprise {
		return maxInputsGHES
	}
	return maxInputs
}

func (s *Sim) readDispatch(c *call) (dispatchRequest, *refusal) {
	var body map[string]json.RawMessage
	if no := c.decode(&body); no != nil {
		return dispatchRequest{}, no
	}
	for _, key := range slices.Sorted(maps.Keys(body)) {
		if key != "ref" && key != "inputs" && (key != "return_run_details" || s.cfg.Enterprise) {
			return dispatchRequest{}, refuse(http.StatusUnprocessableEntity, "Invalid request.\n\n%q is not a permitted key.", key)
		}
	}
	var req dispatchRequest
	if json.Unmarshal(body["ref"], &req.ref) != nil || req.ref == "" {
		return req, refuse(http.StatusUnprocessableEntity, "Invalid request.\n\n\"ref\" wasn't supplied.")
	}
	_ = json.Unmarshal(body["return_run_details"], &req.details)
	req.details = req.details || c.r.Header.Get("X-Github-Api-Version") >= "2026-03-10" && !s.cfg.Enterprise
	var sent map[string]any
	if raw := body["inputs"]; raw != nil {
		if json.Unmarshal(raw, &sent) != nil {
			return req, refuse(http.StatusUnprocessableEntity, "Invalid request.\n\nFor 'properties/inputs', the value is not an object.")
		}
		req.raw = string(raw)
	}
	if len(sent) > s.mostInputs() {
		return req, refuse(http.StatusUnprocessableEntity, "Invalid request.\n\nNo more than %d properties are allowed; %d were supplied.", s.mostInputs(), len(sent))
	}
	req.inputs = make(map[string]string, len(sent))
	for k, v := range sent {
		req.inputs[k] = fmt.Sprint(v)
	}
	return req, nil
}

// findWorkflow resolves the path's workflow, a file name or an id, on the default branch: elsewhere it does not exist.
func (s *Sim) findWorkflow(c *call) (name string, no *refusal) {
	name = c.r.PathValue("workflow")
	if id, err := strconv.ParseInt(name, 10, 64); err == nil {
		for file, have := range c.repo.workflows {
			if have == id {
				name = file
			}
		}
	}
	if path.Base(name) != name || name == ".." {
		return "", refuse(http.StatusNotFound, "Not Found")
	}
	if _, ok := fileAt(c.r.Context(), c.repo, "refs/heads/"+c.repo.DefaultBranch, workflowDir+name); !ok {
		return "", refuse(http.StatusNotFound, "Not Found")
	}
	if c.repo.workflows[name] == 0 {
		c.repo.workflows[name] = s.state.id()
	}
	return name, nil
}

func (s *Sim) getWorkflow(c *call) (int, any, *refusal) {
	name, no := s.findWorkflow(c)
	if no != nil {
		return 0, nil, no
	}
	title := workflowDir + name
	content, _ := fileAt(c.r.Context(), c.repo, "refs/heads/"+c.repo.DefaultBranch, workflowDir+name)
	if w, err := parseWorkflow(content); err == nil && w.Name != "" {
		title = w.Name
	}
	id := c.repo.workflows[name]
	return http.StatusOK, object{
		"id": id, "node_id": "W_" + strconv.FormatInt(id, 10), "name": title, "path": workflowDir + name,
		"state": map[bool]string{true: "disabled_manually", false: "active"}[c.repo.disabled[name]],
		"url":   fmt.Sprintf("%s/actions/workflows/%d", s.repositoryURL(c.repo), id), "created_at": stamp(c.repo.created),
		"updated_at": stamp(c.repo.created), "html_url": fmt.Sprintf("%s/%s/blob/%s/%s%s", s.base, c.repo.fullName(), c.repo.DefaultBranch, workflowDir, name),
		"badge_url": fmt.Sprintf("%s/%s/workflows/%s/badge.svg", s.base, c.repo.fullName(), name),
	}, nil
}

// listRuns filters as GitHub does: event, branch, status or conclusion, head_sha, created.
func (s *Sim) listRuns(c *call) (int, any, *refusal) {
	file := ""
	if c.r.PathValue("workflow") != "" {
		name, no := s.findWorkflow(c)
		if no != nil {
			return 0, nil, no
		}
		file = workflowDir + name
	}
	q := c.r.URL.Query()
	created, ok := createdFilter(q.Get("created"))
	if !ok {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "Validation Failed")
	}
	matches := func(want string, have ...string) bool { return want == "" || slices.Contains(have, want) }
	var list []any
	for _, r := range newestFirst(s.state.runs, func(r *run) int64 { return r.ID }) {
		if r.RepositoryID == c.repo.ID && matches(file, r.path) && matches(q.Get("event"), "workflow_dispatch") &&
			matches(q.Get("branch"), r.Branch) && matches(q.Get("status"), r.Status, r.Conclusion) &&
			matches(q.Get("head_sha"), r.SHA) && created(r.CreatedAt) {
			list = append(list, s.runJSON(r))
		}
	}
	return http.StatusOK, object{"total_count": len(list), "workflow_runs": orEmpty(page(c, list))}, nil
}

// createdFilter reads GitHub's date syntax: >=T, >T, <=T, <T, A..B, or one time or day.
func createdFilter(q string) (func(time.Time) bool, bool) {
	read := func(s string) (time.Time, bool) {
		for _, layout := range []string{time.RFC3339, "2006-01-02"} {
			if t, err := time.Parse(layout, s); err == nil {
				return t, true
			}
		}
		return time.Time{}, s == "*"
	}
	if q == "" {
		return func(time.Time) bool { return true }, true
	}
	if a, b, ok := strings.Cut(q, ".."); ok {
		from, ok1 := read(a)
		to, ok2 := read(b)
		return func(t time.Time) bool { return !t.Before(from) && (b == "*" || !t.After(to)) }, ok1 && ok2
	}
	op := strings.TrimRight(q, "0123456789-:TZ+.")
	at, ok := read(q[len(op):])
	return func(t time.Time) bool {
		t = t.Truncate(time.Second)
		switch op {
		case ">=":
			return !t.Before(at)
		case ">":
			return t.After(at)
		case "<=":
			return !t.After(at)
		case "<":
			return t.Before(at)
		default:
			return t.Equal(at) || len(q) == len("2006-01-02") && t.Format("2006-01-02") == q
		}
	}, ok
}

func (s *Sim) findRun(c *call) (*run, *refusal) {
	r := s.state.runs[c.number("run_id")]
	if r == nil || r.RepositoryID != c.repo.ID {
		return nil, refuse(http.StatusNotFound, "Not Found")
	}
	return r, nil
}

func (s *Sim) getRun(c *call) (int, any, *refusal) {
	r, no := s.findRun(c)
	if no != nil {
		return 0, nil, no
	}
	return http.StatusOK, s.runJSON(r), nil
}

func (s *Sim) listJobs(c *call) (int, any, *refusal) {
	r, no := s.findRun(c)
	if no != nil {
		return 0, nil, no
	}
	var list []any
	for _, j := range r.jobs {
		list = append(list, s.jobJSON(r, j))
	}
	return http.StatusOK, object{"total_count": len(list), "jobs": orEmpty(page(c, list))}, nil
}

func (s *Sim) cancelRun(c *call) (int, any, *refusal) {
	r, no := s.findRun(c)
	if no != nil {
		return 0, nil, no
	}
	if r.Status == "completed" {
		return 0, nil, refuse(http.StatusConflict, "Cannot cancel a workflow run that is completed.")
	}
	r.stop()
	if s.cfg.Executor == nil {
		s.finish(r, "cancelled")
	}
	return http.StatusAccepted, object{}, nil
}

// newRun records the run and lets its jobs begin.
func (s *Sim) newRun(repo *repository, file, ref, sha string, w *workflow, inputs map[string]string) (*run, *refusal) {
	now := s.clock()
	ctx, stop := context.WithCancel(s.ctx)
	repo.runNumber++
	branch := strings.TrimPrefix(strings.TrimPrefix(ref, "refs/heads/"), "refs/tags/")
	r := &run{
		Run: Run{
			ID: s.state.id(), Attempt: 1, RepositoryID: repo.ID, Workflow: file, Branch: branch, SHA: sha,
			Status: "queued", Inputs: inputs, CreatedAt: now,
		},
		repo: repo, ref: ref, number: repo.runNumber, path: workflowDir + file, workflowName: w.Name, workflowID: repo.workflows[file],
		updatedAt: now, spec: w, log: &logBuffer{}, ctx: ctx, stop: stop,
	}
	if r.workflowName == "" {
		r.workflowName = r.path
	}
	r.Title = r.workflowName
	if w.RunName != "" {
		title, err := s.contextOf(r).expand(w.RunName)
		if err != nil {
			stop()
			return nil, refuse(http.StatusUnprocessableEntity, "Invalid Argument - failed to parse workflow: run-name: %s", err)
		}
		r.Title = title
	}
	for _, spec := range w.jobs {
		name := spec.Name
		if name == "" || strings.Contains(name, "${{") {
			name = spec.Key
		}
		r.jobs = append(r.jobs, &job{id: s.state.id(), name: name, spec: spec, status: "queued", startedAt: now})
	}
	s.state.runs[r.ID] = r
	s.emitRun("requested", r)
	for _, j := range r.jobs {
		s.emitJob("queued", r, j)
	}
	if s.cfg.Executor != nil {
		s.tasks.Go(func() { s.execute(r) })
	}
	return r, nil
}

// contextOf are the contexts that run-name may use: inputs and github.
func (s *Sim) contextOf(r *run) values {
	v := values{
		"github.run_id": strconv.FormatInt(r.ID, 10), "github.run_number": strconv.Itoa(r.number),
		"github.run_attempt": strconv.Itoa(r.Attempt), "github.repository": r.repo.fullName(),
		"github.repository_owner": r.repo.Owner, "github.ref": r.ref, "github.ref_name": r.Branch, "github.sha": r.SHA,
		"github.actor": s.cfg.AppSlug + "[bot]", "github.workflow": r.workflowName, "github.event_name": "workflow_dispatch",
		"github.server_url": s.base, "github.api_url": s.base + apiPrefix,
		"github.repository_id": strconv.FormatInt(r.repo.ID, 10),
	}
	for k, in := range r.Inputs {
		v["inputs."+strings.ToLower(k)], v["github.event.inputs."+strings.ToLower(k)] = in, in
	}
	return v
}
