package github

import (
	"context"
	"net/http"
)

// Bot gives the id of the App's own bot, as whom it starts workflows, from a workflow run that it started: nobody else's login
// ends in "[bot]" behind the App's name. A run that somebody else started is an *Error with the outcome Refused. The answer
// does not change, and is kept.
func (a *App) Bot(ctx context.Context, t Target, runID int64) (int64, error) {
	if id := a.bot.Load(); id != 0 {
		return id, nil
	}
	client, err := a.asApp(ctx)
	if err != nil {
		return 0, err
	}
	var app struct {
		Slug string `json:"slug"`
	}
	if err := a.get(ctx, client, CallInstallation, "app", &app); err != nil {
		return 0, err
	}
	run, err := a.Run(ctx, t, runID)
	if err != nil {
		return 0, err
	}
	if app.Slug == "" || run.ActorLogin != app.Slug+"[bot]" || run.ActorID <= 0 {
		return 0, &Error{Call: CallRead, Status: http.StatusOK, Finding: Finding{Outcome: Refused, Message: "the workflow run was not started by the App"}}
	}
	a.bot.Store(run.ActorID)
	return run.ActorID, nil
}

// Marked tells whether the run's name carries the marker as a token of its own. A name proves nothing by itself.
func (r WorkflowRun) Marked(marker string) bool { return marker != "" && hasMarker(r.Title, marker) }
