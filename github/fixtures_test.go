package github

import (
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
)

// reading is one fixture and what Errand makes of it.
type reading func(t *testing.T, body string)

// every fixture below testdata has a row, and the test fails on one without.
var readings = map[string]reading{
	"errors/dispatch.403.not_accessible.json":                             dispatchIs(403, NotPermitted),
	"errors/dispatch.404.not_found.json":                                  dispatchIs(404, WorkflowMissing),
	"errors/dispatch.422.disabled_workflow.json":                          dispatchIs(422, Disabled),
	"errors/dispatch.422.inputs_too_large.json":                           dispatchIs(422, InputsTooLarge),
	"errors/dispatch.422.no_trigger.json":                                 dispatchIs(422, NoTrigger),
	"errors/dispatch.422.too_many_inputs_declared.json":                   dispatchIs(422, TooManyInputs),
	"errors/dispatch.422.unexpected_inputs.json":                          dispatchIs(422, WorkflowTooOld),
	"errors/pulls.create.403.actions_not_permitted.json":                  dispatchIs(403, NotPermitted),
	"errors/graphql.createPullRequest.actions_not_permitted.derived.json": dispatchIs(403, NotPermitted), // whatever its status

	"rest/dispatch.200.json":                        readDispatch,
	"rest/installation-access-token.201.json":       readToken,
	"rest/installation-repositories.200.json":       readRepositories,
	"rest/installation.get.200.json":                readInstallation,
	"rest/workflow-run.get.200.json":                readRun,
	"rest/workflow-runs.list.200.json":              readRuns,
	"rest/workflow-jobs.list.200.json":              readJobs,
	"rest/app-manifest.conversion.201.json":         readConversion,
	"rest/rate_limit.200.json":                      neverAsked,
	"rest/default-workflow-permissions.json":        neverAsked, // it needs Administration, which Errand has not
	"webhooks/ping.app.json":                        webhookIs(Webhook{Ignored: IgnoredPing}),
	"webhooks/installation.created.json":            webhookIs(Webhook{Action: "created", Installation: 957387}),
	"webhooks/installation.deleted.json":            webhookIs(Webhook{Action: "deleted", Installation: 2}),
	"webhooks/installation.suspend.json":            webhookIs(Webhook{Action: "suspend", Installation: 16598467}),
	"webhooks/installation.unsuspend.json":          webhookIs(Webhook{Action: "unsuspend", Installation: 16598467}),
	"webhooks/installation_repositories.added.json": webhookIs(Webhook{Action: "added", Installation: 957387}),
	"webhooks/installation_repositories.removed.json": webhookIs(Webhook{
		Action: "removed", Installation: 2,
	}),
	"webhooks/installation.new_permissions_accepted.json": webhookIs(Webhook{Action: "new_permissions_accepted", Installation: 957387}),
	"webhooks/workflow_run.requested.json":                webhookIs(Webhook{Action: "requested", Repository: 300029405, Ignored: IgnoredWorkflow}),
	"webhooks/workflow_run.completed.json":                webhookIs(Webhook{Action: "completed", Repository: 300029405, Ignored: IgnoredWorkflow}),
	"webhooks/workflow_run.completed.workflow_dispatch.derived.json": webhookIs(Webhook{
		Action: "completed", Installation: 12345678, Repository: 300029405,
		Run: &RunNews{ID: 289782451, Attempt: 1, Status: "completed"},
	}),
	"webhooks/workflow_job.queued.json":            webhookIs(Webhook{Action: "queued", Installation: 3456996, Run: &RunNews{ID: 2202229078, Attempt: 1, Status: "queued"}}),
	"webhooks/workflow_job.in_progress.json":       webhookIs(Webhook{Action: "in_progress", Run: &RunNews{ID: 940463255, Attempt: 1, Status: "in_progress"}}),
	"webhooks/workflow_job.completed.success.json": webhookIs(Webhook{Action: "completed", Run: &RunNews{ID: 2202229078, Attempt: 1, Status: "in_progress"}}),
}

func TestEveryFixtureHasARow(t *testing.T) {
	t.Parallel()
	var found []string
	err := fs.WalkDir(os.DirFS("testdata"), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(p) == ".json" {
			found = append(found, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		if readings[name] == nil {
			t.Errorf("%s has no row", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(readings)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readings[name](t, fixture(t, name))
		})
	}
}

func dispatchIs(status int, want Outcome) reading {
	return func(t *testing.T, body string) {
		if f := refused(status, body); f.Outcome != want || f.Message == "" {
			t.Errorf("%+v, want %s", f, want)
		}
	}
}

func webhookIs(want Webhook) reading {
	return func(t *testing.T, body string) {
		t.Helper()
		want.Event, _, _ = strings.Cut(path.Base(t.Name()), ".")
		got, err := ParseWebhook(want.Event, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if (got.Run == nil) != (want.Run == nil) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		if got.Run != nil {
			if want.Repository == 0 && got.Repository > 0 { // the repositories of the jobs' examples are of no matter
				got.Repository = 0
			}
			if got.Run.ID != want.Run.ID || got.Run.Attempt != want.Run.Attempt || got.Run.Status != want.Run.Status {
				t.Errorf("%+v, want %+v", *got.Run, *want.Run)
			}
			got.Run, want.Run = nil, nil
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// neverAsked: the real answer to a call that Errand has no use for.
func neverAsked(*testing.T, string) {}

// answering is a GitHub that gives a token, and to the one other call that answer.
func answering(t *testing.T, status int, body string) *App {
	t.Helper()
	return testApp(t, func(r *http.Request) (*http.Response, error) {
		say := func(status int, body string) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/access_tokens"):
			asked, _ := io.ReadAll(r.Body)
			permissions := `{"metadata":"read"}`
			if strings.Contains(string(asked), "actions") {
				permissions = `{"actions":"write","metadata":"read"}`
			}
			return say(201, `{"token":"ghs_x","expires_at":"2100-01-01T00:00:00Z","permissions":`+permissions+`}`)
		case strings.HasSuffix(r.URL.Path, "/jobs"):
			return say(200, `{"total_count":3,"jobs":[]}`)
		default:
			return say(status, body)
		}
	})
}

func fixtureTarget() Target {
	return Target{InstallationID: 1, RepositoryID: 1, Owner: "octo-org", Name: "octo-repo", WorkflowFile: "errand.yml", Ref: "main"}
}

func readDispatch(t *testing.T, body string) {
	d := answering(t, 200, body).Dispatch(t.Context(), fixtureTarget(), nil)
	if d.Outcome != Accepted || d.RunID != 1 || d.RunURL != "https://github.com/octo-org/octo-repo/actions/runs/1" {
		t.Errorf("%+v", d)
	}
}

// readToken: GitHub's example of a token carries Contents, which is never used, whatever was asked for.
func readToken(t *testing.T, body string) {
	app := testApp(t, func(r *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/access_tokens") {
			t.Errorf("a token with too much was used: %s", r.URL)
		}
		return &http.Response{StatusCode: 201, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})
	d := app.Dispatch(t.Context(), fixtureTarget(), nil)
	if d.Outcome != OverGranted || !strings.Contains(d.Message, "contents: read") {
		t.Errorf("%+v", d)
	}
}

func readRepositories(t *testing.T, body string) {
	repos, err := answering(t, 200, body).Repositories(t.Context(), 1)
	if err != nil || len(repos) != 1 || repos[0].ID != 1296269 || repos[0].FullName().String() != "octocat/Hello-World" {
		t.Errorf("%+v, %v", repos, err)
	}
}

func readInstallation(t *testing.T, body string) {
	c, err := answering(t, 200, body).CheckInstallation(t.Context(), 1)
	if err != nil || c.Account != "github" || c.Suspended || c.Verdict != errand.Fail ||
		!slices.Equal(c.Extra, []string{"checks: write", "contents: read"}) || !slices.Equal(c.Missing, []string{"actions: write"}) {
		t.Errorf("%+v, %v", c, err)
	}
}

func readRun(t *testing.T, body string) {
	w, err := answering(t, 200, body).Run(t.Context(), fixtureTarget(), 30433642)
	if err != nil || w.ID != 30433642 || w.Status != "queued" || w.Conclusion != "" || w.Event != "push" || w.Jobs == nil || *w.Jobs != 3 {
		t.Errorf("%+v, %v", w, err)
	}
}

// readRuns: a run that a push started is nobody's, whatever its title.
func readRuns(t *testing.T, body string) {
	found, err := answering(t, 200, body).FindRuns(t.Context(), fixtureTarget(), "Update", time.Time{})
	if err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

func readJobs(t *testing.T, body string) {
	app := testApp(t, func(r *http.Request) (*http.Response, error) {
		answer := body
		switch {
		case strings.HasSuffix(r.URL.Path, "/access_tokens"):
			answer = `{"token":"ghs_x","expires_at":"2100-01-01T00:00:00Z","permissions":{"actions":"write","metadata":"read"}}`
		case !strings.HasSuffix(r.URL.Path, "/jobs"):
			answer = `{"id":29679449,"status":"completed","conclusion":"success"}`
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
	})
	w, err := app.Run(t.Context(), fixtureTarget(), 29679449)
	if err != nil || w.Jobs == nil || *w.Jobs != 1 {
		t.Errorf("%+v, %v", w, err)
	}
}

// readConversion: GitHub's example has a client and a key, and permissions that Errand never asks for.
func readConversion(t *testing.T, body string) {
	s, err := NewSetUp(Config{BaseURL: DefaultBaseURL, Transport: answers(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPost || r.URL.String() != "https://api.github.com/app-manifests/abc-123/conversions" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		return answer(201, body), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	app, err := s.Convert(t.Context(), "abc-123")
	if err != nil || app.ID != 1 || app.Slug != "octoapp" || app.ClientID == "" || app.ClientSecret == "" || app.WebhookSecret == "" || len(app.PrivateKey) == 0 {
		t.Errorf("%v", err)
	}
	if v, extra, _ := CheckPermissions(app.Permissions); v != errand.Fail || len(extra) != 3 {
		t.Errorf("%s, %v", v, extra)
	}
}
