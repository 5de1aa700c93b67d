package webhooks_test

import (
	"os"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
)

func TestPreviewReadsAPayloadAsADeliveryAndKeepsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, file := range []string{"error.created.modern.derived.json", "event_alert.triggered.modern.derived.json"} {
		body, err := os.ReadFile("testdata/sentry/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range []string{"", strings.SplitN(file, ".", 2)[0]} {
			issue, event, err := w.hooks.Preview("sentry", resource, body)
			if err != nil || event == nil || issue.Title == "" || len(event.Exceptions) == 0 {
				t.Errorf("%s as %q: %+v, %+v, %v", file, resource, issue, event, err)
			}
		}
	}
	for says, tt := range map[string]struct{ kind, resource, body string }{
		"no kind":                {"", "", "{}"},
		"an unknown kind":        {"pigeon", "", "{}"},
		"an empty body":          {"sentry", "", ""},
		"no JSON":                {"sentry", "", "hello"},
		"a resource without use": {"sentry", "comment", `{"action":"created"}`},
		"an event without one":   {"sentry", "", `{"action":"created","data":{}}`},
		"too large":              {"sentry", "", strings.Repeat(" ", 1<<20) + "{}"},
	} {
		if _, _, err := w.hooks.Preview(tt.kind, tt.resource, []byte(tt.body)); errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%s: %v", says, err)
		}
	}
}
