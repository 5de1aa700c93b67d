package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	gogithub "github.com/google/go-github/v93/github"
)

// Dispatched is the typed answer to a dispatch.
type Dispatched struct {
	Outcome    Outcome
	RunID      int64         // of the workflow run; 0 = GitHub did not say (a 204): search the marker
	RunURL     string        // its page; "" when GitHub did not say
	RetryAfter time.Duration // see Retry
	Message    string        // GitHub's own words, trimmed; or why there are none
	Detail     string        // what was found out beyond them, for people; may be empty
	MovedTo    *RepoName     // with Moved: the name to save and go on with; nil = it could not be found out
	Status     int           // 0 = no answer
	At         time.Time     // GitHub's time when the call was made: the anchor of a search
}

// Retry tells after what time the same dispatch may be tried again by itself; ok is false when never. After Unclear the
// marker is to be searched first; after ServerError a retry takes the next attempt number, because a gateway's 5xx does
// not prove that nothing was started.
func (d Dispatched) Retry() (after time.Duration, ok bool) { return d.RetryAfter, d.Outcome.Retry() }

// Dispatch starts the target's workflow: one POST, with ref beside inputs and return_run_details, and once more without
// that field where GitHub refuses it (Enterprise Server). Whatever is not a 2xx is no run, and none is looked for.
func (a *App) Dispatch(ctx context.Context, t Target, inputs map[string]string) Dispatched {
	at := a.ServerTime()
	if err := t.check(); err != nil {
		return Dispatched{Outcome: Refused, Message: err.Error(), At: at}
	}
	if t.Ref == "" {
		return Dispatched{Outcome: RefMissing, Message: "no ref was given", At: at}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d, refusedField := a.dispatchOnce(ctx, t, inputs, true)
	if refusedField {
		a.log.DebugContext(ctx, "github knows no return_run_details: dispatching without it", "repository", t.RepositoryID)
		d, _ = a.dispatchOnce(ctx, t, inputs, false)
	}
	d.At = at
	return a.explain(ctx, t, d)
}

func (a *App) dispatchOnce(ctx context.Context, t Target, inputs map[string]string, details bool) (d Dispatched, refusedField bool) {
	c, err := a.forScope(ctx, t.scope())
	var e *Error
	switch {
	case errors.As(err, &e): // there is no App yet: nothing was sent
		return Dispatched{Outcome: e.Outcome, RetryAfter: e.RetryAfter, Message: e.Message}, false
	case err != nil:
		return Dispatched{Outcome: Refused, Message: clip(err.Error())}, false
	}
	body := gogithub.CreateWorkflowDispatchEventRequest{Ref: t.Ref, Inputs: make(map[string]any, len(inputs))}
	for k, v := range inputs {
		body.Inputs[k] = v
	}
	if details {
		body.ReturnRunDetails = new(true)
	}
	ctx, sent := watchSent(ctx)
	run, resp, err := c.client.Actions.CreateWorkflowDispatchEventByFileName(ctx, t.Owner, t.Name, t.file(), body)
	ans := answerOf(CallDispatch, resp, err, sent.Load())
	f := a.classify(ans, err)
	d = Dispatched{Outcome: f.Outcome, RetryAfter: f.RetryAfter, Message: f.Message, Status: ans.Status}
	if f.Outcome.OK() {
		if run != nil { // nil after a 204, and when the answer's body was cut off: a 2xx started a run all the same
			d.RunID, d.RunURL = run.GetWorkflowRunID(), run.GetHTMLURL()
		}
		return d, false
	}
	refusedField = details && (ans.Status == http.StatusUnprocessableEntity || ans.Status == http.StatusBadRequest) &&
		strings.Contains(string(ans.Body), "return_run_details")
	return d, refusedField
}

// explain looks closer at the two answers that do not say enough: a move, and a 404, which GitHub gives alike for a missing
// workflow, a repository that went, and an old name that was taken away. Nothing is dispatched here.
func (a *App) explain(ctx context.Context, t Target, d Dispatched) Dispatched {
	switch d.Outcome {
	case BadCredentials, Suspended, Deleted, NotPermitted:
		a.forget(t.scope())
		return d
	case Moved, WorkflowMissing:
	default:
		return d
	}
	repo, err := a.Repository(ctx, t.InstallationID, t.RepositoryID)
	var e *Error
	switch {
	case errors.As(err, &e) && (e.Outcome == Gone || e.Outcome == Deleted || e.Outcome == Suspended || e.Outcome == BlockedLegal):
		d.Outcome, d.Detail = e.Outcome, e.Message
	case err != nil: // it stays what GitHub said
		d.Detail = "the repository could not be looked up by its id"
	case !strings.EqualFold(repo.FullName().String(), t.Owner+"/"+t.Name):
		name := repo.FullName()
		d.Outcome, d.MovedTo = Moved, &name
		d.Detail = fmt.Sprintf("%s/%s is now %s", t.Owner, t.Name, name)
	case d.Outcome == WorkflowMissing && repo.Archived:
		d.Outcome, d.Detail = Archived, "the repository is archived"
	case d.Outcome == WorkflowMissing:
		d.Detail = fmt.Sprintf("there is no .github/workflows/%s on the default branch %s", t.file(), repo.DefaultBranch)
	}
	return d
}
