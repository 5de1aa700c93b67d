package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/runnerapi"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/store"
)

// newIdentity checks ID tokens of this deployment's GitHub for this deployment; web is where that GitHub's pages are.
func newIdentity(cfg appConfig) (id *runtoken.Identity, web string, err error) {
	if web, err = github.WebURL(cfg.GitHub.BaseURL); err != nil {
		return nil, "", err
	}
	issuer := cfg.OIDCIssuer
	if issuer == "" {
		if issuer, err = github.IssuerURL(cfg.GitHub.BaseURL); err != nil {
			return nil, "", err
		}
	}
	id, err = runtoken.NewIdentity(runtoken.IdentityConfig{Issuer: issuer, Audience: cfg.PublicURL})
	return id, web, err
}

// checkIssuer checks an issuer that somebody set.
func checkIssuer(issuer string) error {
	if issuer == "" {
		return nil
	}
	_, err := runtoken.NewIdentity(runtoken.IdentityConfig{Issuer: issuer, Audience: "any"})
	var e *errand.Error
	if errors.As(err, &e) {
		named := *e
		named.Field = "ERRAND_OIDC_ISSUER"
		return &named
	}
	return err
}

// proof lets the run's endpoint ask GitHub who stands behind an ID token.
type proof struct{ app *github.App }

func targetOf(repo *store.Repository, run *store.Run) github.Target {
	return github.Target{
		InstallationID: repo.InstallationID, RepositoryID: repo.GitHubID, Owner: repo.Owner, Name: repo.Name, WorkflowFile: run.WorkflowFile, Ref: run.Ref,
	}
}

// WorkflowRun fetches the run.
func (p proof) WorkflowRun(ctx context.Context, repo *store.Repository, run *store.Run, id int64) (runnerapi.WorkflowRun, error) {
	got, err := p.app.Run(ctx, targetOf(repo, run), id)
	if err != nil {
		return runnerapi.WorkflowRun{}, answered(err)
	}
	return runnerapi.WorkflowRun{
		Path: got.Path, Event: got.Event, ActorID: got.ActorID, Marked: got.Marked(fmt.Sprintf("%s.%d", run.ID, run.DispatchAttempt)),
	}, nil
}

// Bot asks for the App's own bot.
func (p proof) Bot(ctx context.Context, repo *store.Repository, run *store.Run, id int64) (int64, error) {
	bot, err := p.app.Bot(ctx, targetOf(repo, run), id)
	return bot, answered(err)
}

// Owner asks whose the repository is, and whether it is private.
func (p proof) Owner(ctx context.Context, repo *store.Repository) (id int64, private bool, err error) {
	got, err := p.app.Repository(ctx, repo.InstallationID, repo.GitHubID)
	return got.OwnerID, got.Private, answered(err)
}

// answered keeps apart what GitHub said and what is not known. That something is not there is only believed of a plain 404.
func answered(err error) error {
	var e *github.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Outcome == github.NotFound:
		return errand.NotFound("workflow run")
	case errors.As(err, &e) && e.Outcome == github.Refused:
		return errand.Errorf(errand.CodeForbidden, err, "somebody else started the workflow run")
	default:
		return errand.Errorf(errand.CodeUnavailable, err, "GitHub could not be asked")
	}
}
