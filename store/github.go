package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store/internal/db"
)

// What GitHub speaks of is found by GitHub's own ids before the organisation is known, as in lookup.go.

// LookupWorkflowRun finds the run of a workflow run of the repository with that numeric id of GitHub's.
func (s *Store) LookupWorkflowRun(ctx context.Context, repository, workflowRun int64) (org, run errand.ID, err error) {
	err = s.pool.QueryRow(ctx, "select org_id, run_id from lookup_workflow_run($1, $2)", repository, workflowRun).Scan(&org, &run)
	return org, run, translate(err)
}

// LookupMarkedRun finds a run by the mark that its attempt gave to a workflow run, as long as GitHub has not said which
// workflow run is the run's.
func (s *Store) LookupMarkedRun(ctx context.Context, repository int64, run errand.ID, attempt int32) (org, found errand.ID, err error) {
	err = s.pool.QueryRow(ctx, "select org_id, run_id from lookup_marked_run($1, $2, $3)", repository, run, attempt).Scan(&org, &found)
	return org, found, translate(err)
}

// DueInstallation names an installation that GitHub is to be asked about.
type DueInstallation struct {
	Org          errand.ID
	Installation int64
}

// DueInstallations lists at most limit of them, of any organisation, the longest overdue first.
func (s *Store) DueInstallations(ctx context.Context, now time.Time, limit int) ([]DueInstallation, error) {
	rows, err := s.pool.Query(ctx, "select org_id, installation_id from due_installations($1, $2)", now, limit)
	if err != nil {
		return nil, translate(err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DueInstallation])
	return due, translate(err)
}

// DropGitHubDeliveries forgets the ids of GitHub's deliveries from before that time.
func (s *Store) DropGitHubDeliveries(ctx context.Context, before time.Time) error {
	_, err := s.pool.Exec(ctx, "select drop_github_deliveries($1)", before)
	return translate(err)
}

// FirstOrganisation is the one that was there first: its owners speak for the deployment.
func (s *Store) FirstOrganisation(ctx context.Context) (org errand.ID, err error) {
	err = s.pool.QueryRow(ctx, "select org_id from first_organisation()").Scan(&org)
	return org, translate(err)
}

// GitHubApp gives the App that the console made; NotFound when there is none. It belongs to the deployment and to no
// organisation.
func (s *Store) GitHubApp(ctx context.Context) (GitHubApp, error) {
	app, err := db.New(s.pool).GitHubApp(ctx)
	return app, translate(err)
}
