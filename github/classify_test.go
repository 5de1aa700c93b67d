package github

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	said := func(message string) string { return `{"message":"` + message + `","status":"0"}` }
	file := func(name string) string {
		b, err := os.ReadFile(filepath.Join("testdata", "errors", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const secondary = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
	for _, tc := range []struct {
		name   string
		call   Call // "" = dispatch
		status int
		header map[string]string
		body   string
		want   Outcome
		reason errand.Reason
		after  time.Duration
	}{
		{name: "200 with run details", status: 200, want: Accepted},
		{name: "204", status: 204, want: Accepted},
		{name: "C5 a file that is not on the default branch", status: 404, body: file("dispatch.404.not_found.json"), want: WorkflowMissing, reason: errand.ReasonWorkflowMissing},
		{name: "no trigger at the ref", status: 422, body: file("dispatch.422.no_trigger.json"), want: NoTrigger, reason: errand.ReasonNoTrigger},
		{name: "C1 no such ref", status: 422, body: said("No ref found for: main"), want: RefMissing, reason: errand.ReasonRefMissing},
		{name: "C4 disabled", status: 422, body: file("dispatch.422.disabled_workflow.json"), want: Disabled, reason: errand.ReasonWorkflowDisabled},
		{name: "Actions disabled as a whole", status: 422, body: said("Actions has been disabled for this repository."), want: Disabled, reason: errand.ReasonWorkflowDisabled},
		{name: "C2 C3 an input that the file does not declare", status: 422, body: file("dispatch.422.unexpected_inputs.json"), want: WorkflowTooOld, reason: errand.ReasonWorkflowTooOld},
		{name: "a required input that we do not send", status: 422, body: said("Required input 'x' not provided"), want: WorkflowTooOld, reason: errand.ReasonWorkflowTooOld},
		{name: "too many inputs declared", status: 422, body: file("dispatch.422.too_many_inputs_declared.json"), want: TooManyInputs, reason: errand.ReasonGitHubRefused},
		{name: "C8 inputs too large", status: 422, body: file("dispatch.422.inputs_too_large.json"), want: InputsTooLarge, reason: errand.ReasonGitHubRefused},
		{name: "any other 422", status: 422, body: said("Invalid request."), want: Refused, reason: errand.ReasonGitHubRefused},
		{name: "C22 a POST to a former name", status: 307, body: said("Moved Permanently"), want: Moved, reason: errand.ReasonGitHubRefused},
		{name: "C23 a GET of a former name", call: CallRead, status: 301, body: said("Moved Permanently"), want: Moved, reason: errand.ReasonGitHubRefused},
		{name: "archived", status: 403, body: said("Repository was archived so is read-only."), want: Archived, reason: errand.ReasonRepositoryArchive},
		{name: "gone", status: 410, body: said("Gone"), want: Gone, reason: errand.ReasonRepositoryGone},
		{name: "a token for a repository that left the installation", call: CallToken, status: 422, body: said("There is at least one repository that does not exist or is not accessible to the parent installation."), want: Gone, reason: errand.ReasonRepositoryGone},
		{name: "blocked for legal reasons", status: 451, body: said("Repository access blocked"), want: BlockedLegal, reason: errand.ReasonBlockedLegal},
		{name: "blocked by GitHub's staff", status: 403, body: said("Repository access blocked"), want: BlockedLegal, reason: errand.ReasonBlockedLegal},
		{name: "not permitted", status: 403, body: file("dispatch.403.not_accessible.json"), want: NotPermitted, reason: errand.ReasonNotPermitted},
		{name: "a token with more than was granted", call: CallToken, status: 422, body: said("The permissions requested are not granted to this installation."), want: NotPermitted, reason: errand.ReasonNotPermitted},
		{name: "C19 suspended", call: CallToken, status: 403, body: said("This installation has been suspended"), want: Suspended, reason: errand.ReasonSuspended},
		{name: "C19 deleted", call: CallToken, status: 404, body: said("Not Found"), want: Deleted, reason: errand.ReasonUninstalled},
		{name: "an absent run", call: CallRead, status: 404, body: said("Not Found"), want: NotFound, reason: errand.ReasonGitHubRefused},
		{name: "C25 an IP allow list", status: 403, body: said("Although you appear to have the correct authorization credentials, the `octo-org` organization has an IP allow list enabled, and 192.0.2.7 is not permitted to access this resource."), want: IPAllowList, reason: errand.ReasonNotPermitted},
		{name: "single sign-on by its words", status: 403, body: said("Resource protected by organization SAML enforcement."), want: SSO, reason: errand.ReasonNotPermitted},
		{name: "single sign-on by its header", status: 403, header: map[string]string{"X-GitHub-SSO": "required; url=https://github.com/orgs/o/sso"}, body: said("Forbidden"), want: SSO, reason: errand.ReasonNotPermitted},
		{name: "primary limit", status: 403, header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1796040300"}, body: said("API rate limit exceeded for installation ID 1."), want: RatePrimary, reason: errand.ReasonNotDispatched, after: 5 * time.Minute},
		{name: "primary limit as 429, without a time", status: 429, header: map[string]string{"X-RateLimit-Remaining": "0"}, body: said("API rate limit exceeded"), want: RatePrimary, reason: errand.ReasonNotDispatched, after: time.Minute},
		{name: "a primary limit long past its reset waits a second", status: 403, header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}, want: RatePrimary, reason: errand.ReasonNotDispatched, after: time.Second},
		{name: "the answer's own date counts, not ours", status: 403, header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1796040300", "Date": "Mon, 30 Nov 2026 12:04:00 GMT"}, want: RatePrimary, reason: errand.ReasonNotDispatched, after: time.Minute},
		{name: "C29 secondary limit with its header", status: 403, header: map[string]string{"Retry-After": "90"}, body: said(secondary), want: RateSecondary, reason: errand.ReasonNotDispatched, after: 90 * time.Second},
		{name: "C30 secondary limit by its words alone", status: 403, body: said(secondary), want: RateSecondary, reason: errand.ReasonNotDispatched, after: time.Minute},
		{name: "C29 a limit outranks a denial", status: 403, header: map[string]string{"Retry-After": "5"}, body: said("Resource not accessible by integration"), want: RateSecondary, reason: errand.ReasonNotDispatched, after: 5 * time.Second},
		{name: "429 without words", status: 429, want: RateSecondary, reason: errand.ReasonNotDispatched, after: time.Minute},
		{name: "a wait of a year is cut", status: 429, header: map[string]string{"Retry-After": "31536000"}, want: RateSecondary, reason: errand.ReasonNotDispatched, after: maxPause},
		{name: "a wait that cannot be read", status: 429, header: map[string]string{"Retry-After": "soon"}, want: RateSecondary, reason: errand.ReasonNotDispatched, after: time.Minute},
		{name: "C14 a clock ahead", call: CallToken, status: 401, body: said("'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"), want: ClockSkew, reason: errand.ReasonNotDispatched, after: pauseClock},
		{name: "C15 an expiry beyond ten minutes", call: CallToken, status: 401, body: said("'Expiration time' claim ('exp') is too far in the future"), want: ClockSkew, reason: errand.ReasonNotDispatched, after: pauseClock},
		{name: "bad credentials", status: 401, body: said("Bad credentials"), want: BadCredentials, reason: errand.ReasonGitHubRefused, after: time.Minute},
		{name: "C31 a 403 that explains nothing is not absence", status: 403, body: said("Forbidden"), want: Forbidden, reason: errand.ReasonNotPermitted, after: time.Minute},
		{name: "a 403 that is a page", status: 403, body: "<html>no</html>", want: Forbidden, reason: errand.ReasonNotPermitted, after: time.Minute},
		{name: "bad gateway", status: 502, body: "<html>", want: ServerError, reason: errand.ReasonNotDispatched, after: pauseServer},
		{name: "unavailable, and for how long", status: 503, header: map[string]string{"Retry-After": "30"}, want: ServerError, reason: errand.ReasonNotDispatched, after: 30 * time.Second},
		{name: "a run that is over", call: CallCancel, status: 409, body: said("Cannot cancel a workflow run that is completed."), want: Conflict, reason: errand.ReasonGitHubRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := Answer{Call: tc.call, Status: tc.status, Header: http.Header{}, Body: []byte(tc.body)}
			if a.Call == "" {
				a.Call = CallDispatch
			}
			for k, v := range tc.header {
				a.Header.Set(k, v)
			}
			f := Classify(a, now)
			if f.Outcome != tc.want || f.RetryAfter != tc.after || f.Outcome.Reason() != tc.reason {
				t.Errorf("got %s (%s, after %s), want %s (%s, after %s)", f.Outcome, f.Outcome.Reason(), f.RetryAfter, tc.want, tc.reason, tc.after)
			}
			if f.Outcome.Unclear() || f.Outcome.OK() != (tc.status < 300) {
				t.Errorf("an answer is an answer: %+v", f)
			}
			if tc.after > 0 && !f.Outcome.Retry() {
				t.Errorf("%s names a time and says never", f.Outcome)
			}
		})
	}
}

func TestSilenceIsUnclearOnlyForADispatchThatLeft(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection reset by peer")
	for name, tc := range map[string]struct {
		answer Answer
		want   Outcome
	}{
		"a dispatch that left":          {Answer{Call: CallDispatch, Err: lost, Sent: true}, NoAnswer},
		"a dispatch that timed out":     {Answer{Call: CallDispatch, Err: context.DeadlineExceeded, Sent: true}, NoAnswer},
		"a dispatch that did not leave": {Answer{Call: CallDispatch, Err: lost}, Unreachable},
		"a token that did not come":     {Answer{Call: CallToken, Err: lost, Sent: true}, Unreachable},
		"a read":                        {Answer{Call: CallRead, Err: lost, Sent: true}, Unreachable},
		"a cancellation":                {Answer{Call: CallCancel, Err: lost, Sent: true}, Unreachable},
		"another host":                  {Answer{Call: CallDispatch, Err: errForeignHost}, Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if f := Classify(tc.answer, time.Time{}); f.Outcome != tc.want || f.Outcome.Unclear() != (tc.want == NoAnswer) || f.Message == "" {
				t.Errorf("got %+v, want %s", f, tc.want)
			}
		})
	}
}

func TestEveryOutcomeHasAReasonThatPeopleAreTold(t *testing.T) {
	t.Parallel()
	for o := range reasons {
		if r := o.Reason(); o != Accepted && r.Sentence() == "" {
			t.Errorf("%s: %q has no sentence", o, r)
		}
		if (o == Accepted) != (o.Advice() == "") {
			t.Errorf("%s: people are told %q", o, o.Advice())
		}
	}
	if Outcome("something new").Reason() != errand.ReasonGitHubRefused || Outcome("something new").Retry() {
		t.Error("an outcome that is not on the list is a refusal")
	}
}

func TestGitHubsWordsBecomeOneShortLine(t *testing.T) {
	t.Parallel()
	body := `{"message":"Validation\n\tFailed","errors":["first",{"message":"second\u001b[31m"},{"code":"x"}]}`
	f := Classify(Answer{Call: CallRead, Status: 422, Body: []byte(body)}, time.Time{})
	if f.Message != "Validation Failed: first: second [31m" {
		t.Errorf("%q", f.Message)
	}
	if long := clip(strings.Repeat("ä", 1000)); len([]rune(long)) != maxMessage+3 {
		t.Errorf("%d characters", len([]rune(long)))
	}
}
