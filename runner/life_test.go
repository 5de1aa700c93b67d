package runner_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runner"
)

// on fails one call by a rule and serves all others.
func on(call string, rule func(n int) (int, string)) func(string, int) (int, string) {
	return func(c string, n int) (int, string) {
		if c == call {
			return rule(n)
		}
		return 0, ""
	}
}

func first(times, status int) func(int) (int, string) {
	return func(n int) (int, string) {
		if n <= times {
			return status, `{"title":"no"}`
		}
		return 0, ""
	}
}

func TestALostAnswerOfTheExchangeIsAskedForAgainWithTheSameNonce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: ok}]")
	w.plane.fail = on("exchange", first(2, -1))
	if exit := w.run(); exit != runner.ExitDone {
		t.Fatalf("exit %d\n%s", exit, w.out.String())
	}
	n := w.plane.nonces
	if len(n) != 3 || n[0] != n[1] || n[1] != n[2] {
		t.Errorf("nonces %q", n)
	}
}

// D4: the ticket in the inputs of a re-run is spent.
func TestD4_ARerunWithAUsedTicketSaysWhatToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: never asked}]")
	w.plane.fail = on("exchange", func(int) (int, string) { return http.StatusUnauthorized, `{"title":"Unauthorized"}` })
	if exit := w.run(); exit != runner.ExitUnreported {
		t.Errorf("exit %d", exit)
	}
	if !strings.Contains(w.out.String(), "start a new run from Errand, a re-run from GitHub's page cannot work") || w.plane.seen("exchange") != 1 {
		t.Errorf("%d exchanges\n%s", w.plane.seen("exchange"), w.out.String())
	}
}

func TestAnUnreachableControlPlaneIsGivenUpWithinTheTicketsMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: never asked}]")
	w.plane.fail = on("exchange", first(99, http.StatusServiceUnavailable))
	if exit := w.run(); exit != runner.ExitUnreported {
		t.Errorf("exit %d", exit)
	}
	var all time.Duration
	for _, d := range w.slept {
		all += d
	}
	if all == 0 || all > time.Minute {
		t.Errorf("waited %s", all)
	}
}

func TestTheErrandOfAnotherRunIsNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: never asked}]")
	w.plane.start.Run = "0190f3a2-7c1d-7e52-9b0a-000000000001"
	if exit := w.run(); exit != runner.ExitUnreported || len(w.sim.Requests()) != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestTheResultIsReportedUntilItIsTaken(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fail func(int) (int, string)
		exit runner.Exit
		says string
	}{
		"after it failed three times":            {first(3, http.StatusBadGateway), runner.ExitDone, ""},
		"after its answer was lost":              {first(1, -1), runner.ExitDone, ""},
		"never: the step fails":                  {first(9999, http.StatusServiceUnavailable), runner.ExitUnreported, "the end could not be reported"},
		"refused as wrong: the step fails":       {first(9999, http.StatusUnprocessableEntity), runner.ExitUnreported, "the end could not be reported"},
		"the run has ended otherwise meanwhile":  {func(int) (int, string) { return 409, `{"state":"cancelled","detail":"the run is cancelled"}` }, runner.ExitStopped, "over before this end"},
		"the same end was already there":         {func(int) (int, string) { return 409, `{"state":"no_fix"}` }, runner.ExitDone, ""},
		"a conflict that says nothing of itself": {func(int) (int, string) { return 409, "" }, runner.ExitStopped, "over before this end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "turns: [{text: ok}]")
			w.plane.fail = on("result", row.fail)
			if exit := w.run(); exit != row.exit {
				t.Errorf("exit %d, want %d\n%s", exit, row.exit, w.out.String())
			}
			if !strings.Contains(w.out.String(), row.says) {
				t.Errorf("%q is not said:\n%s", row.says, w.out.String())
			}
			if end := w.clock().Sub(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)); end > 25*time.Minute {
				t.Errorf("it went on for %s, past the job's own limit", end)
			}
		})
	}
}

func TestWhatAKilledRunnerLeftIsReportedByTheLastStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: ok}]")
	w.plane.fail = on("result", first(9999, http.StatusServiceUnavailable))
	if exit := w.run(); exit != runner.ExitUnreported {
		t.Fatalf("exit %d", exit)
	}
	left := filepath.Join(w.temp, "errand-"+runID+".json")
	info, err := os.Stat(left)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	w.plane.fail = nil
	if exit := runner.ReportFailure(t.Context(), w.environment()); exit != runner.ExitDone {
		t.Errorf("exit %d\n%s", exit, w.out.String())
	}
	w.check()
	if r := w.plane.result; r == nil || r.State != errand.Failed || r.Reason != errand.ReasonAgentError {
		t.Errorf("result %+v", r)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Error("the token still lies there")
	}
	calls := w.plane.seen("result")
	if exit := runner.ReportFailure(t.Context(), w.environment()); exit != runner.ExitDone || w.plane.seen("result") != calls {
		t.Errorf("a second time it did something: exit %d", exit)
	}
}

func TestTheLastStepSaysWhenItCannotReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: ok}]")
	write(t, filepath.Join(w.temp, "errand-"+runID+".json"), "{}")
	if exit := runner.ReportFailure(t.Context(), w.environment()); exit != runner.ExitUnreported {
		t.Errorf("exit %d", exit)
	}
}

func TestALinkInTheWayOfTheTokenIsNotWrittenThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: ok}]")
	victim := filepath.Join(t.TempDir(), "victim")
	write(t, victim, "mine")
	if err := os.Symlink(victim, filepath.Join(w.temp, "errand-"+runID+".json")); err != nil {
		t.Fatal(err)
	}
	if exit := w.run(); exit != runner.ExitDone {
		t.Errorf("exit %d", exit)
	}
	if b, _ := os.ReadFile(victim); string(b) != "mine" {
		t.Error("it was written through")
	}
}

func TestEveryMistakeOfTheConfigurationIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: never asked}]")
	for k := range w.env {
		delete(w.env, k)
	}
	w.env["ERRAND_CONTROL_PLANE"] = "http://errand.example.com"
	w.env["ERRAND_TICKET"] = ticket
	w.env["ERRAND_RUN"] = "seven"
	w.env["ERRAND_BASE_URL"] = "https://user:HUSHHUSH@example.com"
	w.env["GITHUB_REPOSITORY"] = "shop"
	if exit := w.run(); exit != runner.ExitConfiguration {
		t.Errorf("exit %d", exit)
	}
	out := w.out.String()
	if !strings.HasPrefix(out, "::add-mask::"+ticket+"\n") {
		t.Errorf("the mask is not first: %s", out)
	}
	for _, want := range []string{
		"control-plane is plain http", "run is not the id of a run", "anthropic-api-key is missing: store the key as a secret", "model is missing", "github-token is missing: pass",
		"base-url is not an https address without user", "GITHUB_WORKSPACE is missing", "GITHUB_REPOSITORY is not owner/name", "GITHUB_RUN_ID is missing", "GITHUB_RUN_ATTEMPT", "GITHUB_API_URL", "GITHUB_SERVER_URL",
	} {
		if !strings.Contains(out, "::error title=Errand::configuration: "+want) {
			t.Errorf("not said: %s\n%s", want, out)
		}
	}
	if w.plane.seen("exchange") != 0 {
		t.Error("the ticket was used")
	}
}

func TestInputsAreFoundWhereEachRunnerPutsThem(t *testing.T) {
	t.Parallel()
	event := filepath.Join(t.TempDir(), "event.json")
	write(t, event, `{"inputs":{"run":"`+runID+`.2","ticket":"from-event","unused":7}}`)
	base := map[string]string{
		"ERRAND_CONTROL_PLANE": "https://errand.example.com/", "INPUT_ANTHROPIC-API-KEY": "from-input", "ERRAND_MODEL": " m ", "ERRAND_GITHUB_TOKEN": "t",
		"GITHUB_EVENT_PATH": event, "GITHUB_WORKSPACE": "/w", "GITHUB_REPOSITORY": "a/b", "GITHUB_RUN_ID": "1", "GITHUB_RUN_ATTEMPT": "3",
		"GITHUB_API_URL": "https://api.github.com", "GITHUB_SERVER_URL": "https://github.com", "ERRAND_PROTECTED_PATHS": " a/** ,b\r\n\n c ",
	}
	c, wrong := runner.LoadConfig(func(k string) string { return base[k] })
	if len(wrong) > 0 {
		t.Fatal(wrong[0])
	}
	if c.Run != runID || c.Ticket != "from-event" || c.APIKey != "from-input" || c.Model != "m" || c.ControlPlane != "https://errand.example.com" ||
		c.RepositoryID != 0 || c.WorkflowTry != 3 || strings.Join(c.Protected, "|") != "a/**|b|c" {
		t.Errorf("%+v", c)
	}
	base["ERRAND_TICKET"] = "from-the-action"
	if c, _ := runner.LoadConfig(func(k string) string { return base[k] }); c.Ticket != "from-the-action" {
		t.Errorf("ticket %q", c.Ticket)
	}
}
