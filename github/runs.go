package github

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	gogithub "github.com/google/go-github/v93/github"

	"github.com/errand-dev/errand"
)

// Error is a call that GitHub did not do. errors.As finds it in what the methods of App return.
type Error struct {
	Finding
	Call    Call
	Status  int       // 0 = no answer
	MovedTo *RepoName // with the outcome Moved, when the new name could be found out
	Cause   error     // private
}

func (e *Error) Error() string {
	s := fmt.Sprintf("github: %s: %s", e.Call, e.Outcome)
	if e.Status != 0 {
		s += fmt.Sprintf(" (%d)", e.Status)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Unwrap gives the cause, for a deadline or a cancellation.
func (e *Error) Unwrap() error { return e.Cause }

// Target is one workflow of one repository at one ref.
type Target struct {
	InstallationID int64
	RepositoryID   int64
	Owner, Name    string
	WorkflowFile   string // the file's name, or its path below the repository's root
	Ref            string // a branch or tag
}

func (t Target) scope() scope { return scope{t.InstallationID, t.RepositoryID} }

// file is the name that GitHub's API takes: without the folder, which is the same for every workflow.
func (t Target) file() string { return strings.TrimPrefix(t.WorkflowFile, ".github/workflows/") }

func (t Target) check() error {
	switch {
	case t.InstallationID <= 0:
		return errand.Invalid("target.installation", "the GitHub installation's id is missing")
	case t.RepositoryID <= 0:
		return errand.Invalid("target.repository", "the repository's numeric id is missing")
	case !plainName(t.Owner) || !plainName(t.Name):
		return errand.Invalid("target.name", "%q is not a repository's name: want owner/name", t.Owner+"/"+t.Name)
	case !plainName(t.file()):
		return errand.Invalid("target.workflow", "%q is not a workflow file: want a name such as errand.yml", t.WorkflowFile)
	}
	return nil
}

// plainName admits what can be one segment of a path without escaping.
func plainName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 255 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}) < 0
}

// WorkflowRun is a workflow run as GitHub tells it.
type WorkflowRun struct {
	ID         int64
	Attempt    int
	Status     string // queued, in_progress, completed, ...
	Conclusion string // "" until completed
	URL        string // its page
	Path       string // of the workflow file, without the ref
	Event      string
	Title      string
	ActorID    int64 // who started it first; a re-run does not change it
	ActorLogin string
	CreatedAt  time.Time
	Jobs       *int // how many jobs it has; nil = unknown. FindRuns does not ask
}

type apiRun struct {
	ID         int64     `json:"id"`
	RunAttempt int       `json:"run_attempt"`
	Status     string    `json:"status"`
	Conclusion string    `json:"conclusion"`
	HTMLURL    string    `json:"html_url"`
	Path       string    `json:"path"`
	Event      string    `json:"event"`
	Title      string    `json:"display_title"`
	CreatedAt  time.Time `json:"created_at"`
	Actor      struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
	} `json:"actor"`
}

func (r apiRun) run() WorkflowRun {
	path, _, _ := strings.Cut(r.Path, "@")
	return WorkflowRun{
		ID: r.ID, Attempt: r.RunAttempt, Status: r.Status, Conclusion: r.Conclusion, URL: r.HTMLURL,
		Path: path, Event: r.Event, Title: r.Title, ActorID: r.Actor.ID, ActorLogin: r.Actor.Login, CreatedAt: r.CreatedAt,
	}
}

// FindRuns gives the runs of this workflow that workflow_dispatch started since then and whose title carries the marker as
// a token of its own. Times are GitHub's: take since from ServerTime. Zero runs is an answer; that it could not be asked
// is an error, never an empty answer.
func (a *App) FindRuns(ctx context.Context, t Target, marker string, since time.Time) ([]WorkflowRun, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if strings.IndexFunc(marker, notMarker) >= 0 || marker == "" {
		return nil, errand.Invalid("marker", "%q cannot be told apart in a title", marker)
	}
	since = since.UTC().Truncate(time.Second) // GitHub's created_at has whole seconds
	var found []WorkflowRun
	for page := 1; page <= maxPages; page++ {
		var got struct {
			Runs []apiRun `json:"workflow_runs"`
		}
		q := url.Values{
			"event": {"workflow_dispatch"}, "created": {">=" + since.Format(time.RFC3339)},
			"per_page": {"100"}, "page": {strconv.Itoa(page)},
		}
		path := repoPath(t, "actions/workflows", t.file(), "runs") + "?" + q.Encode()
		if err := a.read(ctx, t, path, &got); err != nil {
			return nil, err
		}
		for _, r := range got.Runs {
			run := r.run()
			if run.Event == "workflow_dispatch" && !run.CreatedAt.Before(since) && hasMarker(run.Title, marker) {
				found = append(found, run)
			}
		}
		if len(got.Runs) < 100 {
			break
		}
	}
	return found, nil
}

// notMarker tells the characters that end a token of a title.
func notMarker(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '.' && r != '_'
}

// hasMarker looks for the marker as a whole token: the attempt 1 is not found in the attempt 12.
func hasMarker(title, marker string) bool {
	for _, token := range strings.FieldsFunc(title, notMarker) {
		if token == marker || strings.TrimRight(token, ".") == marker {
			return true
		}
	}
	return false
}

// Run reads one workflow run, with how many jobs it has.
func (a *App) Run(ctx context.Context, t Target, id int64) (WorkflowRun, error) {
	if err := t.check(); err != nil {
		return WorkflowRun{}, err
	}
	var got apiRun
	path := repoPath(t, "actions/runs", strconv.FormatInt(id, 10))
	if err := a.read(ctx, t, path, &got); err != nil {
		return WorkflowRun{}, err
	}
	run := got.run()
	var jobs struct {
		Total *int `json:"total_count"`
	}
	if err := a.read(ctx, t, path+"/jobs?per_page=1", &jobs); err == nil {
		run.Jobs = jobs.Total
	}
	return run, nil
}

// Workflow is a workflow file as GitHub knows it: from the default branch.
type Workflow struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Path  string `json:"path"`
	State string `json:"state"` // active, disabled_manually, disabled_inactivity, ...
}

// Workflow asks whether the workflow exists and is enabled. One that is not on the default branch is an *Error with the
// outcome NotFound.
func (a *App) Workflow(ctx context.Context, t Target) (Workflow, error) {
	if err := t.check(); err != nil {
		return Workflow{}, err
	}
	var w Workflow
	err := a.read(ctx, t, repoPath(t, "actions/workflows", t.file()), &w)
	return w, err
}

// Cancel asks GitHub to cancel the workflow run. nil means that GitHub took the request (202); a run that is over already is
// an *Error with the outcome Conflict.
func (a *App) Cancel(ctx context.Context, t Target, id int64) error {
	if err := t.check(); err != nil {
		return err
	}
	c, err := a.forScope(ctx, t.scope())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, sent := watchSent(ctx)
	resp, err := c.client.Actions.CancelWorkflowRunByID(ctx, t.Owner, t.Name, id)
	var accepted *gogithub.AcceptedError // how go-github says 202
	if err == nil || errors.As(err, &accepted) {
		return nil
	}
	return a.failed(ctx, t, answerOf(CallCancel, resp, err, sent.Load()), err)
}

func repoPath(t Target, parts ...string) string {
	return strings.Join(append([]string{"repos", t.Owner, t.Name}, parts...), "/")
}

// read is get with the target's own token; a moved repository's new name is found out.
func (a *App) read(ctx context.Context, t Target, path string, into any) error {
	c, err := a.forScope(ctx, t.scope())
	if err != nil {
		return err
	}
	err = a.get(ctx, c.client, CallRead, path, into)
	var e *Error
	if errors.As(err, &e) {
		a.afterFailure(ctx, t, e)
	}
	return err
}

// get reads JSON. The status is looked at before the body is taken for data.
func (a *App) get(ctx context.Context, client *gogithub.Client, call Call, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, sent := watchSent(ctx)
	req, err := client.NewRequest(ctx, http.MethodGet, path, nil)
	if err != nil {
		return errand.Errorf(errand.CodeInternal, err, "cannot make a request to GitHub")
	}
	resp, err := client.BareDo(req)
	if err != nil {
		return a.failed(ctx, Target{}, answerOf(call, resp, err, sent.Load()), err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return &Error{Call: call, Status: resp.StatusCode, Cause: err, Finding: Finding{Outcome: ServerError, RetryAfter: pauseServer, Message: "GitHub's answer cannot be read"}}
	}
	return nil
}

// failed makes the error of an answer that is not a success.
func (a *App) failed(ctx context.Context, t Target, ans Answer, cause error) error {
	e := &Error{Call: ans.Call, Status: ans.Status, Cause: cause, Finding: a.classify(ans, cause)}
	if t.RepositoryID != 0 {
		a.afterFailure(ctx, t, e)
	}
	return e
}

// classify is Classify, for tokens too: a failed token request is what the call failed of.
func (a *App) classify(ans Answer, cause error) Finding {
	var mint *mintError
	if !errors.As(cause, &mint) {
		return Classify(ans, a.ServerTime())
	}
	if mint.over != "" {
		return Finding{Outcome: OverGranted, Message: mint.Error()}
	}
	return Classify(mint.answer, a.ServerTime())
}

// afterFailure drops a token that GitHub no longer takes, and asks for the name of a repository that moved.
func (a *App) afterFailure(ctx context.Context, t Target, e *Error) {
	switch e.Outcome {
	case BadCredentials, Suspended, Deleted, NotPermitted:
		a.forget(t.scope())
	case Moved:
		if repo, err := a.Repository(ctx, t.InstallationID, t.RepositoryID); err == nil {
			name := repo.FullName()
			e.MovedTo = &name
		}
	default: // nothing to do: the caller has the outcome
	}
}

// answerOf takes an answer out of go-github's hands. On an error it has put back what it read of the body.
func answerOf(call Call, resp *gogithub.Response, err error, sent bool) Answer {
	ans := Answer{Call: call, Err: err, Sent: sent}
	if resp == nil || resp.Response == nil {
		return ans
	}
	ans.Status, ans.Header = resp.StatusCode, resp.Header
	if resp.StatusCode/100 != 2 {
		ans.Body, _ = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	}
	return ans
}
