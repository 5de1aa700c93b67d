package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand/github"
)

// plants are the faults that can be put in on purpose, one for each figure, to show that the oracle finds them.
var plants = map[string]func(context.Context, *world, *pgx.Conn) error{
	// An acknowledged delivery is gone.
	"lost": func(ctx context.Context, _ *world, conn *pgx.Conn) error {
		return one(conn.Exec(ctx, "delete from deliveries where id = (select id from deliveries where outcome = 'accepted' order by received_at, id limit 1)"))
	},
	// A dispatch that GitHub has accepted is made once more.
	"twice": func(ctx context.Context, w *world, _ *pgx.Conn) error {
		gh, err := github.New(github.Config{AppID: w.hub.sim.AppID(), PrivateKey: w.hub.sim.PrivateKey(), BaseURL: w.hub.sim.APIURL()})
		if err != nil {
			return err
		}
		runs := w.hub.sim.Runs()
		if len(runs) == 0 {
			return errors.New("GitHub has no workflow run to repeat")
		}
		repository := int(runs[0].RepositoryID) - firstRepoID
		tenant := repository / reposEach
		answer := gh.Dispatch(ctx, github.Target{
			InstallationID: int64(firstInstID + tenant), RepositoryID: runs[0].RepositoryID, Owner: tenants[tenant].slug,
			Name: fmt.Sprintf("shop%d", repository%reposEach), WorkflowFile: workflow, Ref: runs[0].Branch,
		}, runs[0].Inputs)
		if !answer.Outcome.OK() {
			return fmt.Errorf("GitHub answered %s: %s", answer.Outcome, answer.Message)
		}
		return nil
	},
	// A run is open, and nobody will look at it.
	"stuck": func(ctx context.Context, _ *world, conn *pgx.Conn) error {
		return one(conn.Exec(ctx, `update runs set state = 'running', finished_at = null, deadline_at = now() + interval '1 day'
			where id = (select id from runs where state in ('no_fix', 'failed', 'timed_out') order by result_digest is not null, id desc limit 1)`))
	},
}

func one(tag interface{ RowsAffected() int64 }, err error) error {
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%d rows were changed, want one", tag.RowsAffected())
	}
	return err
}
