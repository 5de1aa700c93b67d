package runner_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/errand-dev/errand/runner"
)

const (
	idToken     = "header.HUSHHUSH-id-token.signature"
	requestWord = "HUSHHUSH-request-token"
)

// issuer answers a job that asks for an ID token, after as many failures as it is told.
func issuer(t *testing.T, w *world, failures int) (asked *int) {
	t.Helper()
	asked = new(int)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		*asked++
		if r.Header.Get("Authorization") != "Bearer "+requestWord || r.URL.Query().Get("audience") != w.plane.url || r.URL.Query().Get("api-version") != "2.0" {
			t.Errorf("asked with %s", r.URL.RawQuery)
		}
		if *asked <= failures {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(rw, `{"value":%q}`, idToken)
	}))
	t.Cleanup(srv.Close)
	w.env["ACTIONS_ID_TOKEN_REQUEST_URL"], w.env["ACTIONS_ID_TOKEN_REQUEST_TOKEN"] = srv.URL+"/secret-path?api-version=2.0", requestWord
	return asked
}

func TestTheExchangeCarriesGitHubsIDTokenForTheControlPlane(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says      string
		ticket    string
		failures  int
		exit      runner.Exit
		idToken   string
		questions int
	}{
		{"beside the ticket", ticket, 0, runner.ExitDone, idToken, 1},
		{"without any ticket", "", 0, runner.ExitDone, idToken, 1},
		{"at the third time of asking", "", 2, runner.ExitDone, idToken, 3},
		{"never: with the ticket alone, which the control plane may refuse", ticket, 9, runner.ExitDone, "", 3},
		{"never, and there is no ticket", "", 9, runner.ExitUnreported, "", 3},
	} {
		w := newWorld(t, "turns: [{text: nothing to do}]")
		asked := issuer(t, w, c.failures)
		write(t, w.env["GITHUB_EVENT_PATH"], `{"inputs":{"run":"`+runID+`.1","ticket":"`+c.ticket+`"}}`)
		exit := runner.Run(t.Context(), w.environment())
		out := w.out.String()
		if exit != c.exit || *asked != c.questions {
			t.Errorf("%s: exit %d after %d questions\n%s", c.says, exit, *asked, out)
		}
		if c.exit == runner.ExitDone {
			if got := w.plane.exchanges[0]; got.IDToken != c.idToken || got.Ticket != c.ticket || got.Run != runID+".1" {
				t.Errorf("%s: exchanged %+v", c.says, got)
			}
		}
		for _, secret := range []string{idToken, requestWord} { // shown only where GitHub is told to hide it
			for line := range strings.Lines(out) {
				if strings.Contains(line, secret) && !strings.HasPrefix(line, "::add-mask::") {
					t.Errorf("%s: the log says %s", c.says, line)
				}
			}
		}
		if strings.Contains(out, "secret-path") {
			t.Errorf("%s: the log shows the address", c.says)
		}
	}
}

func TestAJobNeedsATicketOrLeaveToAskForAnIDToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "turns: [{text: nothing to do}]")
	write(t, w.env["GITHUB_EVENT_PATH"], `{"inputs":{"run":"`+runID+`.1","ticket":""}}`)
	if exit := runner.Run(t.Context(), w.environment()); exit != runner.ExitConfiguration || !strings.Contains(w.out.String(), "id-token: write") {
		t.Errorf("exit %d\n%s", exit, w.out.String())
	}
	w = newWorld(t, "turns: [{text: nothing to do}]")
	write(t, w.env["GITHUB_EVENT_PATH"], `{"inputs":{"run":"`+runID+`.1","ticket":""}}`)
	w.env["ACTIONS_ID_TOKEN_REQUEST_URL"] = "http://runner.example.net/token"
	if exit := runner.Run(t.Context(), w.environment()); exit != runner.ExitUnreported || w.plane.seen("exchange") != 0 {
		t.Errorf("over plain http: exit %d\n%s", exit, w.out.String())
	}
}
