package runnerapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/wire"
)

// start moves the run into running, which its exchanged ticket grants, and answers the errand. The same call while the run
// is running answers the same. It returns Conflict in any later state, and when the runner stands in another repository:
// then the error is not shown to it, and the run fails.
func (a *API) start(ctx context.Context, token runtoken.Token, req wire.StartRequest) (wire.StartResponse, error) {
	var out wire.StartResponse
	var refused error // the end of the run is kept, so this leaves the transaction beside its error
	err := a.inRun(ctx, token, func(tx *store.Tx, run *store.Run) error {
		if run.State.Ended() {
			return a.refuse(ctx, revoked, ids(run)...)
		}
		repo, err := tx.GetRepository(ctx, run.RepositoryID)
		if err != nil {
			return err
		}
		if !sameRepository(&repo, req) {
			a.log.LogAttrs(ctx, slog.LevelWarn, "a runner started in another repository",
				append(ids(run), slog.Int64("repository_id", req.RepositoryID), slog.String("repository", scrub.Sanitise(req.Repository, 256)))...)
			refused = errand.Conflict("this run belongs to the repository %s/%s, and this is another one", repo.Owner, repo.Name)
			if run.State != errand.Dispatched {
				return nil
			}
			_, err := a.runs.Fire(ctx, tx, run.ID, runs.Move{
				Trigger: errand.TriggerRunnerFailed, To: errand.Failed, Reason: errand.ReasonWrongRepository,
				Detail: "The workflow ran in " + scrub.Sanitise(req.Repository, 256) + ".", Actor: actor,
			}, nil)
			return err
		}
		switch run.State {
		case errand.Dispatched:
			_, err := a.runs.Fire(ctx, tx, run.ID, runs.Move{
				Trigger: errand.TriggerRunStarted, To: errand.Running, Actor: actor, Granted: granted(token),
			}, nil)
			if err != nil {
				return err
			}
		case errand.Running:
		default:
			return errand.Conflict("the run is in %s: it was started already", run.State)
		}
		out, err = a.errand(ctx, tx, run, &repo)
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return wire.StartResponse{}, err
	}
	return out, nil
}

// sameRepository goes by GitHub's number, which survives a rename; only a runner that does not know it is asked its name.
func sameRepository(repo *store.Repository, req wire.StartRequest) bool {
	if req.RepositoryID != 0 {
		return req.RepositoryID == repo.GitHubID
	}
	return strings.EqualFold(req.Repository, repo.Owner+"/"+repo.Name)
}

// errand is what the runner is sent to do.
func (a *API) errand(ctx context.Context, tx *store.Tx, run *store.Run, repo *store.Repository) (out wire.StartResponse, err error) {
	issue, err := tx.GetIssue(ctx, run.IssueID)
	if err != nil {
		return out, err
	}
	event, err := tx.GetEvent(ctx, run.EventID)
	if err != nil {
		return out, err
	}
	out = wire.StartResponse{
		Run: run.ID, RunURL: a.publicURL + "/runs/" + string(run.ID), Ref: run.Ref,
		Repository: wire.Repository{ID: repo.GitHubID, FullName: repo.Owner + "/" + repo.Name, DefaultBranch: repo.DefaultBranch},
		BaseDir:    run.BaseDir, StackRoot: run.StackRoot, SourceRoot: run.SourceRoot, Limits: a.limits,
		Issue: errand.Issue{
			ProviderID: issue.ProviderID, Fingerprint: issue.Fingerprint, Title: issue.Title, Culprit: issue.Culprit, Level: issue.Level,
			Platform: issue.Platform, Project: issue.Project, Link: issue.Link, FirstSeen: issue.FirstSeen.UTC(), LastSeen: issue.LastSeen.UTC(),
		},
	}
	if out.Ref == "" {
		out.Ref = repo.DefaultBranch
	}
	if err := json.Unmarshal([]byte(event.Body), &out.Event); err != nil {
		return out, fmt.Errorf("the stored event %s cannot be read: %w", event.ID, err)
	}
	return out, nil
}
