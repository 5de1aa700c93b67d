package github

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
)

// sign is the signature of GitHub's own example, made once by its documentation's words.
const (
	exampleSecret    = "It's a Secret to Everybody"
	exampleBody      = "Hello, World!"
	exampleSignature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
)

func TestAWebhookIsBelievedByItsSignatureAlone(t *testing.T) {
	t.Parallel()
	for says, tc := range map[string]struct {
		secret, header, body string
		ok                   bool
	}{
		"GitHub's example":                  {exampleSecret, exampleSignature, exampleBody, true},
		"digits in upper case":              {exampleSecret, "sha256=" + strings.ToUpper(exampleSignature[7:]), exampleBody, true},
		"another body":                      {exampleSecret, exampleSignature, exampleBody + "\n", false},
		"another secret":                    {"It's a secret to everybody", exampleSignature, exampleBody, false},
		"no header":                         {exampleSecret, "", exampleBody, false},
		"no secret, and a header":           {"", exampleSignature, exampleBody, false},
		"no secret, and that of no secret":  {"", "sha256=25a3c3db2a4ea4e6bc5b2a9d8d9b1a8e6f0b5f1b0a0c3a0e7a8f9b1c2d3e4f50", exampleBody, false},
		"the older signature":               {exampleSecret, "sha1=757107ea0eb2509fc211221cce984b8a37570b6d", exampleBody, false},
		"digits without their name":         {exampleSecret, exampleSignature[7:], exampleBody, false},
		"half of the digits":                {exampleSecret, exampleSignature[:39], exampleBody, false},
		"no digits":                         {exampleSecret, "sha256=", exampleBody, false},
		"what is no digit":                  {exampleSecret, "sha256=zz", exampleBody, false},
		"A6 a body with four-byte letters":  {exampleSecret, exampleSignature, "Hello, \U0001F600!", false},
		"two signatures, the second a true": {exampleSecret, "sha256=00," + exampleSignature, exampleBody, false},
	} {
		if err := VerifyWebhook([]byte(tc.secret), tc.header, []byte(tc.body)); (err == nil) != tc.ok {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestWhatAWebhookSays(t *testing.T) {
	t.Parallel()
	run := func(action, event string) string {
		return fmt.Sprintf(`{"action":%q,"repository":{"id":7},"workflow_run":{"id":5,"run_attempt":2,"event":%q,"status":"x","display_title":"Errand 0190.1","head_commit":{"author":{"email":"a@example.com"}}}}`, action, event)
	}
	for says, tc := range map[string]struct {
		event, body string
		ignored     string
		field       string // of the refusal
		status      string
	}{
		"a run began":                    {"workflow_run", run("in_progress", "workflow_dispatch"), "", "", "in_progress"},
		"a run waits":                    {"workflow_run", run("requested", "workflow_dispatch"), "", "", "queued"},
		"a run is over":                  {"workflow_run", run("completed", "workflow_dispatch"), "", "", "completed"},
		"a run that a push began":        {"workflow_run", run("completed", "push"), IgnoredWorkflow, "", ""},
		"an action of tomorrow":          {"workflow_run", run("paused", "workflow_dispatch"), IgnoredAction, "", ""},
		"an event of tomorrow":           {"x_ray", `{"action":1}`, IgnoredEvent, "", ""},
		"a push":                         {"push", `not even JSON`, IgnoredEvent, "", ""},
		"a ping":                         {"ping", `{}`, IgnoredPing, "", ""},
		"a run without an id":            {"workflow_run", `{"action":"completed","repository":{"id":7},"workflow_run":{}}`, "", "workflow_run.id", ""},
		"a run without itself":           {"workflow_run", `{"action":"completed","repository":{"id":7}}`, "", "workflow_run.id", ""},
		"a run of no repository":         {"workflow_run", `{"action":"completed","workflow_run":{"id":1,"event":"workflow_dispatch"}}`, "", "repository.id", ""},
		"a job without a run":            {"workflow_job", `{"action":"completed","repository":{"id":7},"workflow_job":{"id":1}}`, "", "workflow_job.run_id", ""},
		"a job of no repository":         {"workflow_job", `{"action":"completed","workflow_job":{"run_id":1}}`, "", "repository.id", ""},
		"an id of another kind":          {"workflow_run", `{"workflow_run":{"id":"5"}}`, "", "body", ""},
		"an installation without an id":  {"installation", `{"action":"deleted"}`, "", "installation.id", ""},
		"a negative installation":        {"installation", `{"action":"deleted","installation":{"id":-1}}`, "", "installation.id", ""},
		"no JSON":                        {"workflow_run", `payload=%7B%7D`, "", "body", ""},
		"an empty body":                  {"workflow_run", ``, "", "body", ""},
		"no event":                       {"", `{}`, "", "X-GitHub-Event", ""},
		"a job is over, and its run not": {"workflow_job", `{"action":"completed","repository":{"id":7},"workflow_job":{"run_id":5}}`, "", "", "in_progress"},
	} {
		w, err := ParseWebhook(tc.event, []byte(tc.body))
		field := ""
		var e *errand.Error
		if errors.As(err, &e) {
			field = e.Field
		}
		status := ""
		if w.Run != nil {
			status = w.Run.Status
		}
		if field != tc.field || (err != nil) != (tc.field != "") || w.Ignored != tc.ignored || status != tc.status {
			t.Errorf("%s: %+v, %v", says, w, err)
		}
	}
}

// TestNothingOfAPersonIsDecoded holds the closed list of what is read of a delivery.
func TestNothingOfAPersonIsDecoded(t *testing.T) {
	t.Parallel()
	var names []string
	var walk func(reflect.Type)
	walk = func(r reflect.Type) {
		if r.Kind() == reflect.Pointer {
			r = r.Elem()
		}
		for i := range r.NumField() {
			f := r.Field(i)
			names = append(names, f.Tag.Get("json"))
			if k := f.Type.Kind(); k == reflect.Struct || k == reflect.Pointer {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[apiWebhook]())
	const want = "action installation id repository id workflow_run id run_attempt event status display_title workflow_job run_id run_attempt status"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("read: %s\nwant: %s", got, want)
	}
}

func TestMarksOfATitle(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]string{
		"Errand 0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11.2": "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11.2",
		"v1.2 of a.b.c": "v1.2",
		"":              "",
		"Errand":        "",
	} {
		if got := strings.Join(RunNews{Title: title}.Marks(), " "); got != want {
			t.Errorf("%q: %q", title, got)
		}
	}
}
