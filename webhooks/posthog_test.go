package webhooks_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/webhooks"
)

const posthogIssue = "0192f5a1-7c1d-7a3e-9a1b-2f6f2f0c9a11"

func (w *world) posthog() webhooks.Source {
	return w.source(w.org, webhooks.NewSource{Kind: "posthog", Name: "PostHog"})
}

// postPosthog sends a body signed as the webhook template with a signing_secret signs it.
func (w *world) postPosthog(s webhooks.Source, body []byte, more ...with) reply {
	w.t.Helper()
	return w.postGeneric(s, "msg_posthog", body, more...)
}

func posthogFixture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/posthog/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	phCreated   = "webhook.default.error_tracking_issue_created.derived.json"
	phReopened  = "webhook.default.error_tracking_issue_reopened.derived.json"
	phSpiking   = "webhook.default.error_tracking_issue_spiking.derived.json"
	phException = "webhook.default.exception_event.derived.json"
	phTemplate  = "webhook.recommended_body_template.json"
	phBatch     = "sdk.exception_batch.python.json"
)

// edit decodes a body, lets change it, and writes it again.
func edit(t *testing.T, body []byte, change func(map[string]any)) []byte {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal(body, &root); err != nil {
		t.Fatal(err)
	}
	change(root)
	b, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func member(in map[string]any, path string) map[string]any {
	for p := range strings.SplitSeq(path, ".") {
		in = in[p].(map[string]any)
	}
	return in
}

// filled is the recommended template as PostHog fills it in from a default body: a placeholder that is a whole text becomes
// the value itself, and null where there is none.
func filled(t *testing.T, template []byte, name string) []byte {
	t.Helper()
	var globals map[string]any
	if err := json.Unmarshal(posthogFixture(t, name), &globals); err != nil {
		t.Fatal(err)
	}
	globals["project"] = map[string]any{"id": 1, "name": "Shop", "url": "https://us.posthog.com/project/1"}
	var fill func(v any) any
	fill = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				v[k] = fill(v[k])
			}
			return v
		case string:
			if strings.HasPrefix(v, "{") && strings.HasSuffix(v, "}") && strings.Count(v, "{") == 1 {
				return reach(globals, v)
			}
			for _, p := range []string{"{project.url}", "{event.distinct_id}"} {
				s, _ := reach(globals, p).(string)
				v = strings.ReplaceAll(v, p, s)
			}
			return v
		}
		return v
	}
	return edit(t, template, func(root map[string]any) { fill(root) })
}

func reach(globals map[string]any, placeholder string) any {
	var at any = globals
	for p := range strings.SplitSeq(strings.Trim(placeholder, "{}"), ".") {
		in, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = in[p]
	}
	return at
}

// Every fixture of PostHog, and what comes of it.
func TestEachPosthogFixtureHasAnOutcome(t *testing.T) {
	t.Parallel()
	cases := []struct {
		file             string
		status           int
		outcome          string
		field            string
		resource, action string
		event            string
	}{
		{file: phCreated, status: 202, outcome: "accepted", resource: "error_tracking_issue", action: "created", event: "0192f5a1-8001-7000-8000-000000000001"},
		{file: phReopened, status: 202, outcome: "accepted", resource: "error_tracking_issue", action: "reopened", event: "0192f5a1-8002-7000-8000-000000000002"},
		{file: phSpiking, status: 202, outcome: "accepted", resource: "error_tracking_issue", action: "spiking", event: "0192f5a1-8003-7000-8000-000000000003"},
		{file: phException, status: 202, outcome: "accepted", resource: "exception", event: "0192f5a1-9001-7000-8000-000000000009"},
		{file: phTemplate, status: 422, outcome: "rejected", field: "kind"}, // pasted as it is, not filled in
		{file: phBatch, status: 422, outcome: "rejected", field: "batch"},   // an SDK's capture call, not a webhook
	}
	files, err := filepath.Glob("testdata/posthog/*.json")
	if err != nil || len(files) != len(cases) {
		t.Errorf("%d fixtures, %d rows, %v", len(files), len(cases), err)
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			s := w.posthog()
			r := w.postPosthog(s, posthogFixture(t, c.file))
			if r.status != c.status || r.Field != c.field || (c.status == 202 && r.Outcome != c.outcome) {
				t.Fatalf("%v", r)
			}
			rows := w.texts("SELECT outcome || ' ' || resource || ' ' || action || ' ' || (shape <> '')::text FROM deliveries")
			if want := c.outcome + " " + c.resource + " " + c.action + " true"; len(rows) != 1 || rows[0] != want {
				t.Errorf("kept as %q, want %q", rows, want)
			}
			if c.event == "" {
				w.expect(map[string]int{"issues": 0, jobs: 0})
				return
			}
			w.expect(map[string]int{jobs: 1})
			e := w.event(c.event)
			// PostHog's order is turned round: the cause stands first, what was raised last, and the last is the primary one.
			if len(e.Exceptions) != 2 || e.Exceptions[0].Type != "ValueError" || e.Exceptions[1].Type != "RuntimeError" || e.Primary != 1 {
				t.Errorf("exceptions %+v, primary %d", e.Exceptions, e.Primary)
			}
			crash := e.Exceptions[1].Frames[1]
			if crash.Filename != "shop/checkout.py" || crash.Function != "_charge" || crash.Line != 77 || crash.InApp == nil || !*crash.InApp || crash.Module != "shop.checkout" {
				t.Errorf("frame %+v", crash)
			}
			i := w.issue(posthogIssue)
			if i.Title != "RuntimeError: checkout failed" || i.Platform != "python" || i.Project != "1" || i.Level != "error" || i.Status != "open" ||
				i.Culprit != "shop/checkout.py in _charge" || i.Link != "https://us.posthog.com/project/1/error_tracking/"+posthogIssue || len(i.Fingerprint) != 128 {
				t.Errorf("%+v", i)
			}
			if e.Environment != "production" || e.Provenance["exceptions"] != errand.FromOutsider {
				t.Errorf("%+v", e)
			}
		})
	}
}

// documented is the template of docs/sources.md.
func documented(t *testing.T) []byte {
	t.Helper()
	doc, err := os.ReadFile("../docs/sources.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(doc), "## PostHog")
	_, after, _ = strings.Cut(after, "```json\n")
	body, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatal("docs/sources.md has no template for PostHog")
	}
	return []byte(body)
}

// The template of docs/sources.md says the same as the default body, without a person in it.
func TestTheRecommendedBodyIsReadAsTheDefaultOneIs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{phCreated, phReopened, phSpiking} {
		w := setup(t)
		id := map[string]string{phCreated: "0192f5a1-8001-7000-8000-000000000001", phReopened: "0192f5a1-8002-7000-8000-000000000002", phSpiking: "0192f5a1-8003-7000-8000-000000000003"}[name]
		if r := w.postPosthog(w.posthog(), filled(t, documented(t), name)); r.Outcome != "accepted" {
			t.Fatalf("%s: %v", name, r)
		}
		got, issue := w.event(id), w.issue(posthogIssue)
		w2 := setup(t)
		if r := w2.postPosthog(w2.posthog(), posthogFixture(t, name)); r.Outcome != "accepted" {
			t.Fatalf("%s: %v", name, r)
		}
		want, wantIssue := w2.event(id), w2.issue(posthogIssue)
		a, b := mustJSON(t, got), mustJSON(t, want)
		if a != b {
			t.Errorf("%s: %s\nand as the default body %s", name, a, b)
		}
		if issue.Title != wantIssue.Title || issue.Link != wantIssue.Link || issue.Project != wantIssue.Project || !issue.LastSeen.Equal(wantIssue.LastSeen) || issue.Fingerprint != wantIssue.Fingerprint {
			t.Errorf("%+v\n%+v", issue, wantIssue)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The id of PostHog's notification is the same for each attempt; time and signature are not.
func TestA15_APosthogRetryIsADuplicate(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.posthog()
	w.postPosthog(s, posthogFixture(t, phCreated))
	w.clock.forward(time.Minute)
	if r := w.postPosthog(s, posthogFixture(t, phCreated)); r.Outcome != "duplicate" || r.Reason != "already_received" {
		t.Errorf("%v", r)
	}
	if r := w.postPosthog(s, filled(t, posthogFixture(t, phTemplate), phCreated)); r.Outcome != "duplicate" {
		t.Errorf("the same notification in the other body: %v", r)
	}
	w.expect(map[string]int{"events": 1, jobs: 1})
}

// What says nothing of PostHog's own is answered 202, so that no sender is switched off for it.
func TestWhatElsePosthogSends(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.posthog()
	set := func(path string, value any) func(map[string]any) {
		return func(root map[string]any) {
			at, name := root, path
			if i := strings.LastIndexByte(path, '.'); i >= 0 {
				at, name = member(root, path[:i]), path[i+1:]
			}
			if value == nil {
				delete(at, name)
			} else {
				at[name] = value
			}
		}
	}
	created := posthogFixture(t, phCreated)
	cases := []struct {
		name   string
		body   []byte
		status int
		want   string // reason, or field
	}{
		{"an event that is none of errors", []byte(`{"event":{"event":"$pageview","uuid":"a","properties":{"$exception_list":7}},"person":{}}`), 202, "resource_not_used:pageview"},
		{"an assignment", edit(t, created, set("event.event", "$error_tracking_issue_assigned")), 202, "action_not_used:assigned"},
		{"an empty body", nil, 202, "empty_body"},
		{"no event at all", []byte(`{}`), 422, "kind"},
		{"an event without a name", []byte(`{"event":{}}`), 422, "event.event"},
		{"no id of the notification", edit(t, created, set("event.uuid", nil)), 422, "event.uuid"},
		{"no issue", edit(t, created, set("event.distinct_id", nil)), 422, "event.distinct_id"},
		{"an exception without an issue", edit(t, posthogFixture(t, phException), set("event.properties.$exception_issue_id", nil)), 422, "event.properties.$exception_issue_id"},
		{"a list that is a text", edit(t, created, set("event.properties.exception_props.$exception_list", "x")), 422, "event.properties.exception_props.$exception_list"},
		{"an exception in the template for issues", []byte(`{"kind":"$exception","delivery_id":"a","issue_id":"jane"}`), 422, "kind"},
		{"a list for a body", []byte(`[]`), 422, "body"},
		{"no JSON", []byte(`{"event":`), 422, "event"},
	}
	for _, c := range cases {
		r := w.postPosthog(s, c.body)
		got := r.Reason
		if c.status == 422 {
			got = r.Field
		}
		if r.status != c.status || got != c.want || (c.status == 422 && r.Detail == "") {
			t.Errorf("%s: %v, want %d %s", c.name, r, c.status, c.want)
		}
	}
	w.expect(map[string]int{"issues": 0, jobs: 0, "deliveries": len(cases)})
}

// PostHog's queue takes no message above its size: the exception is left out then, and the newest known one stands for it.
func TestAPosthogMessageThatWasTooLarge(t *testing.T) {
	t.Parallel()
	large := func(name, uuid string) []byte {
		return edit(t, posthogFixture(t, name), func(root map[string]any) {
			p := member(root, "event.properties")
			delete(p, "exception_props")
			p["message_was_too_large"] = true
			member(root, "event")["uuid"] = uuid
		})
	}
	w := setup(t)
	s := w.posthog()
	if r := w.postPosthog(s, large(phCreated, "n1")); r.Outcome != "accepted" {
		t.Fatalf("%v", r)
	}
	w.expect(map[string]int{"events": 1, jobs: 1})
	e := w.event("issue:" + posthogIssue + ":created:n1")
	if len(e.Exceptions) != 1 || e.Exceptions[0].Type != "RuntimeError" || len(e.Exceptions[0].Frames) != 0 || e.Removed[0].Kind != "not_sent" {
		t.Errorf("%+v", e)
	}
	if i := w.issue(posthogIssue); i.Title != "RuntimeError: checkout failed" {
		t.Errorf("%+v", i)
	}

	w = setup(t)
	s = w.posthog()
	w.postPosthog(s, posthogFixture(t, phCreated))
	if r := w.postPosthog(s, large(phReopened, "n2")); r.Outcome != "accepted" {
		t.Fatalf("%v", r)
	}
	w.expect(map[string]int{"events": 1, jobs: 2})
}

// B13: where the list is missing, the plural fields stand in for it; the singular ones, which no SDK sends, are not read.
func TestB13_PosthogListAndWhatStandsInForIt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.posthog()
	body := edit(t, posthogFixture(t, phCreated), func(root map[string]any) {
		p := member(root, "event.properties.exception_props")
		delete(p, "$exception_list")
		p["$exception_type"], p["$exception_message"] = "Never", "sent"
	})
	w.postPosthog(s, body)
	e := w.event("0192f5a1-8001-7000-8000-000000000001")
	if len(e.Exceptions) != 2 || e.Exceptions[1].Type != "RuntimeError" || e.Exceptions[1].Value != "checkout failed" || e.Exceptions[0].Type != "ValueError" || e.Primary != 1 {
		t.Errorf("%+v", e.Exceptions)
	}
}

// B15: mechanism parents win over the order of the list, whichever way round it came.
func TestB15_PosthogChainsByTheirParents(t *testing.T) {
	t.Parallel()
	for _, reversed := range []bool{false, true} {
		w := setup(t)
		s := w.posthog()
		w.postPosthog(s, edit(t, posthogFixture(t, phCreated), func(root map[string]any) {
			p := member(root, "event.properties.exception_props")
			list := p["$exception_list"].([]any)
			list[0].(map[string]any)["mechanism"] = map[string]any{"type": "generic", "exception_id": 0}
			list[1].(map[string]any)["mechanism"] = map[string]any{"type": "chained", "exception_id": 1, "parent_id": 0}
			if reversed {
				slices.Reverse(list)
			}
		}))
		e := w.event("0192f5a1-8001-7000-8000-000000000001")
		if e.Exceptions[e.Primary].Type != "RuntimeError" {
			t.Errorf("reversed %v: %+v", reversed, e)
		}
	}
}

// Raw frames of an SDK, as a destination on $exception may carry them: source lines and variables go, the person goes, and
// of the properties only what speaks of the program stays.
func TestNothingOfAPersonOrOfTheSourceIsKeptFromPosthog(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.posthog()
	var batch map[string]any
	if err := json.Unmarshal(posthogFixture(t, phBatch), &batch); err != nil {
		t.Fatal(err)
	}
	raw := batch["batch"].([]any)[0].(map[string]any)
	props := raw["properties"].(map[string]any)
	maps.Copy(props, map[string]any{
		"$exception_issue_id": posthogIssue, "$exception_level": "Fatal", "$ip": "203.0.113.7", "$current_url": "https://shop.example/order?email=jane@example.com",
		"$set": map[string]any{"email": "jane@example.com", "name": "Jane Roe"}, "$geoip_city_name": "Utrecht-Marker", "$session_id": "session-marker",
		"$exception_steps":    []any{map[string]any{"message": "typed jane-marker"}},
		"$exception_releases": map[string]any{"h": map[string]any{"version": "1.4.2", "project": "shop", "metadata": map[string]any{"git": map[string]any{"commit_id": "9f3c2ab1d0e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8"}}}},
	})
	frame := props["$exception_list"].([]any)[0].(map[string]any)["stacktrace"].(map[string]any)["frames"].([]any)[0].(map[string]any)
	frame["code_variables"] = map[string]any{"card": "variable-marker"}
	body, err := json.Marshal(map[string]any{"event": raw, "person": map[string]any{"id": "person-marker", "name": "Jane Roe", "properties": map[string]any{"email": "jane@example.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := w.postPosthog(s, body); r.Outcome != "accepted" {
		t.Fatalf("%v", r)
	}
	stored := w.dump() + w.log.String()
	for _, gone := range []string{"jane", "Jane", "203.0.113.7", "Marker", "marker", "invalid order total\\\")", "from cause", "session.post", "company-456", "user-123"} {
		if strings.Contains(stored, gone) {
			t.Errorf("%q is still there", gone)
		}
	}
	e := w.event("00000000-0000-4000-8000-000000000005")
	x := e.Exceptions[1]
	if x.Type != "RuntimeError" || len(x.Frames) != 2 || x.Frames[1].Line != 42 || x.Frames[1].AbsPath != "/srv/app/posthog/test/test_server_payload_snapshots.py" ||
		x.Frames[1].Function != "_raise_snapshot_exception" || x.Handled == nil || !*x.Handled {
		t.Errorf("%+v", x)
	}
	if e.Release != "1.4.2" || e.Commit != "9f3c2ab1d0e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8" {
		t.Errorf("release %q, commit %q", e.Release, e.Commit)
	}
	if !slices.Contains(e.Tags, errand.Tag{Key: "component", Value: "checkout"}) || !slices.Contains(e.Tags, errand.Tag{Key: "lib", Value: "posthog-python"}) {
		t.Errorf("%v", e.Tags)
	}
	for _, want := range []errand.Removal{{Path: "person", Kind: "application_data"}, {Path: "properties", Kind: "application_data"}, {Path: "exceptions.frames", Kind: "source_lines"}, {Path: "exceptions.frames", Kind: "local_variables"}} {
		if !slices.Contains(e.Removed, want) {
			t.Errorf("%v is not recorded: %v", want, e.Removed)
		}
	}
	if i := w.issue(posthogIssue); i.Level != "fatal" || i.Platform != "python" {
		t.Errorf("%+v", i)
	}
}

// PostHog's words about an issue, in the order of PostHog's clock and not of arrival.
func TestPosthogStatusWords(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.posthog()
	word := func(what, uuid, at string) []byte {
		return edit(t, posthogFixture(t, phCreated), func(root map[string]any) {
			e := member(root, "event")
			e["event"], e["uuid"], e["timestamp"] = "$error_tracking_issue_"+what, uuid, at
			if what != "reopened" {
				p := member(e, "properties")
				delete(p, "exception_props")
				delete(p, "exception_timestamp")
			}
		})
	}
	w.postPosthog(s, posthogFixture(t, phCreated))
	seen := w.issue(posthogIssue).LastSeen
	steps := []struct{ what, uuid, at, outcome, status string }{
		{"resolved", "r1", "2026-09-20T10:00:00Z", "accepted", "resolved"},
		{"reopened", "r2", "2026-09-21T10:00:00Z", "accepted", "open"},
		{"resolved", "r3", "2026-09-20T12:00:00Z", "ignored", "open"},
		{"suppressed", "r4", "2026-09-22T10:00:00Z", "accepted", "ignored"},
	}
	for _, c := range steps {
		r := w.postPosthog(s, word(c.what, c.uuid, c.at))
		i := w.issue(posthogIssue)
		if r.Outcome != c.outcome || i.Status != c.status || !i.LastSeen.Equal(seen) {
			t.Errorf("%s at %s: %v, now %s, last seen %s", c.what, c.at, r, i.Status, i.LastSeen)
		}
	}
}

// Older copies of the webhook template cannot sign. Which of the two a source asks for is settled when it is made: nothing that
// is sent turns a signature into a header.
func TestPosthogSecretInAHeader(t *testing.T) {
	t.Parallel()
	w := setup(t)
	body := posthogFixture(t, phCreated)
	plain := w.source(w.org, webhooks.NewSource{Kind: "posthog_header", Name: "Old template"})
	signed := w.posthog()
	const name = "X-Errand-Secret"
	cases := []struct {
		name   string
		source webhooks.Source
		with   []with
		status int
		hint   string
	}{
		{"the secret in its header", plain, []with{header(name, plain.Secret)}, 202, ""},
		{"no header", plain, nil, 401, name},
		{"an empty header", plain, []with{header(name, "")}, 401, name},
		{"another secret", plain, []with{header(name, plain.Secret+"x")}, 401, name},
		{"the secret's beginning", plain, []with{header(name, plain.Secret[:20])}, 401, name},
		{"the header twice", plain, []with{header(name, plain.Secret), addHeader(name, plain.Secret)}, 401, name},
		{"a signature where a header is asked for", plain, w.standard(signed.Secret, "m", w.clock.now(), body), 401, "kind posthog "},
		{"a header where a signature is asked for", signed, []with{header(name, signed.Secret)}, 401, "kind posthog_header"},
		{"neither where a signature is asked for", signed, nil, 401, "signing_secret"},
		{"a signature", signed, w.standard(signed.Secret, "m", w.clock.now(), body), 202, ""},
	}
	for _, c := range cases {
		r := w.do(w.request(c.source.Path, body, c.with...))
		if r.status != c.status || !strings.Contains(r.Hint, c.hint) || strings.Contains(r.raw, plain.Secret[:8]) {
			t.Errorf("%s: %v", c.name, r)
		}
	}
}

func addHeader(name, value string) with {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func TestSecretsOfPosthogSources(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const key = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	cases := []struct {
		kind, given, want string
		ok                bool
	}{
		{"posthog", "whsec_" + key, "whsec_" + key, true},
		{"posthog", key, "whsec_" + key, true}, // PostHog takes both forms
		{"posthog", "c2hvcnQ=", "", false},
		{"posthog", "not base64 at all, whatever its length is", "", false},
		{"posthog_header", "a-secret-of-24-characters", "a-secret-of-24-characters", true},
		{"posthog_header", "short", "", false},
		{"posthog_header", "with spaces in it, and long enough", "", false},
		{"posthog_header", "whsec_" + key, "", false},
	}
	for _, c := range cases {
		s, err := w.hooks.CreateSource(t.Context(), w.org, webhooks.NewSource{Kind: c.kind, Name: "PostHog", Secret: c.given})
		if (err == nil) != c.ok || (c.ok && s.Secret != c.want) || (!c.ok && errand.CodeOf(err) != errand.CodeInvalid) {
			t.Errorf("%s %q: %q, %v", c.kind, c.given, s.Secret, err)
		}
	}
}
