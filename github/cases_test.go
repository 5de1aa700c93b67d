package github

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
)

// refused classifies a dispatch's refusal.
func refused(status int, body string, header ...string) Finding {
	a := Answer{Call: CallDispatch, Status: status, Header: http.Header{}, Body: []byte(body)}
	for i := 0; i+1 < len(header); i += 2 {
		a.Header.Set(header[i], header[i+1])
	}
	return Classify(a, time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
}

func message(text string) string { return `{"message":"` + text + `","status":"0"}` }

// means asserts an outcome with all that follows from it: whether and when it is tried again, and what people are told.
func means(t *testing.T, f Finding, want Outcome, retry bool, after time.Duration, told ...string) {
	t.Helper()
	if f.Outcome != want || f.Outcome.Retry() != retry || f.RetryAfter != after {
		t.Errorf("got %s, again %v after %s; want %s, again %v after %s", f.Outcome, f.Outcome.Retry(), f.RetryAfter, want, retry, after)
	}
	for _, word := range told {
		if !strings.Contains(f.Outcome.Advice()+" "+f.Message, word) {
			t.Errorf("%s: people are told %q and %q, without %q", want, f.Outcome.Advice(), f.Message, word)
		}
	}
}

func TestC3_AnInputThatTheFileDoesNotDeclareMeansThatItIsTooOld(t *testing.T) {
	t.Parallel()
	f := refused(422, fixture(t, "errors/dispatch.422.unexpected_inputs.json"))
	means(t, f, WorkflowTooOld, false, 0, "docs/workflows/errand.yml", "extra_input")
}

func TestC4_ADisabledWorkflowIsFinalAndSaidSo(t *testing.T) {
	t.Parallel()
	means(t, refused(422, fixture(t, "errors/dispatch.422.disabled_workflow.json")), Disabled, false, 0, "Enable the workflow")
	means(t, refused(403, message("Actions has been disabled for this repository.")), Disabled, false, 0)
}

func TestC5_AFileThatIsNotOnTheDefaultBranchIsNoMissingRepository(t *testing.T) {
	t.Parallel()
	f := refused(404, fixture(t, "errors/dispatch.404.not_found.json"))
	means(t, f, WorkflowMissing, false, 0, "default branch")
	if f.Outcome.Reason() != errand.ReasonWorkflowMissing {
		t.Errorf("the run ends with %s", f.Outcome.Reason())
	}
}

func TestC8_InputsThatAreTooLargeAreNotSentAgain(t *testing.T) {
	t.Parallel()
	means(t, refused(422, fixture(t, "errors/dispatch.422.inputs_too_large.json")), InputsTooLarge, false, 0)
}

func TestC19_SuspendedAndDeletedAreToldApart(t *testing.T) {
	t.Parallel()
	suspended := Classify(Answer{Call: CallToken, Status: 403, Body: []byte(message("This installation has been suspended"))}, time.Time{})
	means(t, suspended, Suspended, false, 0, "Resume")
	deleted := Classify(Answer{Call: CallToken, Status: 404, Body: []byte(message("Not Found"))}, time.Time{})
	means(t, deleted, Deleted, false, 0, "Install the GitHub App again")
}

func TestC25_AnIPAllowListIsNamedWithTheAddressAndNotTriedAgain(t *testing.T) {
	t.Parallel()
	f := refused(403, message("Although you appear to have the correct authorization credentials, the `octo-org` organization has an IP allow list enabled, and 192.0.2.7 is not permitted to access this resource."))
	means(t, f, IPAllowList, false, 0, "192.0.2.7", "IP allow list")
}

func TestC29_ASecondaryLimitIsNoDenial(t *testing.T) {
	t.Parallel()
	body := message("You have exceeded a secondary rate limit. Please wait a few minutes before you try again.")
	means(t, refused(403, body, "Retry-After", "90"), RateSecondary, true, 90*time.Second)
	means(t, refused(429, body, "Retry-After", "5"), RateSecondary, true, 5*time.Second)
	means(t, refused(403, message("Resource not accessible by integration"), "Retry-After", "5"), RateSecondary, true, 5*time.Second)
	means(t, refused(403, message("Resource not accessible by integration")), NotPermitted, false, 0)
}

func TestC30_ASecondaryLimitWithoutAHeaderIsKnownByItsWords(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		message("You have exceeded a secondary rate limit. Please wait a few minutes before you try again."),
		message("You have triggered an abuse detection mechanism. Please wait a few minutes before you try again."),
		`{"message":"Forbidden","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`,
	} {
		means(t, refused(403, body), RateSecondary, true, time.Minute)
	}
}

func TestC31_NoForbiddenAnswerIsAbsence(t *testing.T) {
	t.Parallel()
	for _, call := range []Call{CallToken, CallInstallation, CallDispatch, CallCancel, CallRead} {
		for _, body := range []string{"", "<html>", message("Not Found"), message("Forbidden"), message("API rate limit exceeded"), message("gone")} {
			switch o := Classify(Answer{Call: call, Status: 403, Body: []byte(body)}, time.Time{}).Outcome; o {
			case Gone, Deleted, NotFound, WorkflowMissing:
				t.Errorf("%s, 403 %q: %s", call, body, o)
			}
		}
	}
}

func fixture(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
