package githubsim_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github/githubsim"
	"github.com/errand-dev/errand/runtoken"
)

// idTokenOf asks as a job would.
func idTokenOf(t *testing.T, url, bearer string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	var answer struct{ Value string }
	_ = json.Unmarshal(b, &answer)
	return resp.StatusCode, answer.Value
}

func TestAJobGetsAnIDTokenWhenItsFileGrantsIt(t *testing.T) {
	t.Parallel()
	jobs, release := make(chan githubsim.Job, 3), make(chan struct{})
	w := setup(t, func(c *githubsim.Config, r *githubsim.Repository) {
		c.Executor = githubsim.ExecutorFunc(func(_ context.Context, j githubsim.Job) (string, error) {
			jobs <- j
			<-release
			return "success", nil
		})
		file := r.Files.(fstest.MapFS)[".github/workflows/errand.yml"]
		r.Files.(fstest.MapFS)[".github/workflows/none.yml"] = &fstest.MapFile{Data: []byte(strings.Replace(string(file.Data), "id-token: write", "issues: read", 1))}
	})
	ticket := map[string]string{"run": marker, "ticket": "t"}
	bare := w.target
	bare.WorkflowFile = "none.yml"
	if got := w.app.Dispatch(t.Context(), bare, ticket); !got.Outcome.OK() {
		t.Fatal(got)
	}
	if j := <-jobs; j.IDTokenRequestURL != "" || j.IDTokenRequestToken != "" {
		t.Error("a job was offered an ID token that its file does not ask for")
	}
	if got := w.app.Dispatch(t.Context(), w.target, ticket); !got.Outcome.OK() {
		t.Fatal(got)
	}
	j := <-jobs
	identity, err := runtoken.NewIdentity(runtoken.IdentityConfig{Issuer: w.sim.IssuerURL(), Audience: "https://errand.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	status, first := idTokenOf(t, j.IDTokenRequestURL+"&audience=https%3A%2F%2Ferrand.example.com", j.IDTokenRequestToken)
	said, err := identity.Verify(t.Context(), first, now)
	if err != nil || status != http.StatusOK {
		t.Fatalf("answered %d; %v", status, err)
	}
	bot, err := w.app.Bot(t.Context(), w.target, j.RunID)
	if err != nil {
		t.Fatal(err)
	}
	run, err := w.app.Run(t.Context(), w.target, j.RunID)
	if err != nil {
		t.Fatal(err)
	}
	want := runtoken.Workload{
		RepositoryID: repositoryID, OwnerID: j.OwnerID, ActorID: bot, RunID: j.RunID, RunAttempt: 1, Event: "workflow_dispatch", Ref: j.Ref,
		Repository: "octo-org/shop", WorkflowRef: "octo-org/shop/.github/workflows/errand.yml@" + j.Ref,
		JobWorkflowRef: "octo-org/shop/.github/workflows/errand.yml@" + j.Ref, Visibility: "public",
	}
	if said != want || run.ActorID != bot {
		t.Errorf("says %+v, want %+v; the run's actor is %d", said, want, run.ActorID)
	}
	// The default audience is the owner's page, which is not ours.
	_, owners := idTokenOf(t, j.IDTokenRequestURL, j.IDTokenRequestToken)
	if _, err := identity.Verify(t.Context(), owners, now); !errors.Is(err, runtoken.IDWrongAudience) {
		t.Errorf("for the owner's page: %v", err)
	}
	for says, url := range map[string]string{"another job's": strings.Replace(j.IDTokenRequestURL, "?", "1?", 1), "without the version": strings.Split(j.IDTokenRequestURL, "?")[0]} {
		if status, _ := idTokenOf(t, url, j.IDTokenRequestToken); status != http.StatusUnauthorized {
			t.Errorf("%s: %d", says, status)
		}
	}
	if status, _ := idTokenOf(t, j.IDTokenRequestURL, "guess"); status != http.StatusUnauthorized {
		t.Errorf("with a guessed token: %d", status)
	}
	// A rotation that keeps the former key, and one that does not.
	for _, keep := range []bool{true, false} {
		if err := w.sim.RotateIssuer(keep); err != nil {
			t.Fatal(err)
		}
		now = now.Add(31 * time.Second)
		_, next := idTokenOf(t, j.IDTokenRequestURL+"&audience=https%3A%2F%2Ferrand.example.com", j.IDTokenRequestToken)
		if _, err := identity.Verify(t.Context(), next, now); err != nil {
			t.Errorf("after a rotation: %v", err)
		}
		if _, err := identity.Verify(t.Context(), first, now); keep != (err == nil) {
			t.Errorf("the former key, kept %v: %v", keep, err)
		}
	}
	close(release)
	for deadline := time.Now().Add(20 * time.Second); w.sim.Runs()[1].Status != "completed"; {
		if time.Now().After(deadline) {
			t.Fatal("the run did not end")
		}
	}
	if status, _ := idTokenOf(t, j.IDTokenRequestURL, j.IDTokenRequestToken); status != http.StatusUnauthorized {
		t.Errorf("after the job's end: %d", status)
	}
	// A re-run is another attempt of the same run, by the same bot.
	if err := w.sim.Rerun(j.RunID); err != nil {
		t.Fatal(err)
	}
	if again := <-jobs; again.Attempt != 2 || again.RunID != j.RunID || again.Inputs["run"] != marker {
		t.Errorf("the re-run: attempt %d of %d with %v", again.Attempt, again.RunID, again.Inputs)
	}
	if len(w.sim.Violations()) != 0 {
		t.Errorf("violations: %v", w.sim.Violations())
	}
}

func TestOnlyAFinishedRunIsRunAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	got := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker, "ticket": "t"})
	if err := w.sim.Rerun(got.RunID); errand.CodeOf(err) != errand.CodeConflict {
		t.Errorf("a run that waits: %v", err)
	}
	if err := w.sim.Rerun(1); errand.CodeOf(err) != errand.CodeNotFound {
		t.Errorf("no run: %v", err)
	}
}
