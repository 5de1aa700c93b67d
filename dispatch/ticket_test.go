package dispatch

import (
	"testing"

	"github.com/errand-dev/errand"
)

// What a workflow run was started with stands on its page: where a ticket is not enough, none stands there.
func TestTheInputsHoldNoSecretWhereAnIDTokenIsRequired(t *testing.T) {
	t.Parallel()
	for says, sql := range map[string]string{
		"in a public repository":                         "update repositories set private = false",
		"in one whose visibility nobody told us":         "update repositories set visibility_at = null",
		"in an organisation that says so":                "update organisations set require_oidc = true",
		"in a private repository a ticket is handed out": "",
	} {
		w := setup(t)
		run := w.queued()
		if sql != "" {
			w.sql(sql)
		}
		w.github.noTicket = sql != ""
		w.dispatch(run.ID)
		if got := w.stands(run.ID, errand.Dispatched, errand.ReasonNone); got.DispatchAttempt != 1 {
			t.Errorf("%s: %+v", says, got)
		}
	}
}
