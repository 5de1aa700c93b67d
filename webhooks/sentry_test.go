package webhooks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
)

const modernAlert = "event_alert.triggered.modern.derived.json"

// A2: every payload of Sentry that we have, of each resource, signed and posted to a server that listens.
func TestA2_EveryResourceOfSentryHasItsOutcome(t *testing.T) {
	t.Parallel()
	w := setup(t)
	type want struct {
		resource string
		outcome  string
		reason   string
		status   string // of the issue; "" = no issue is written
		jobs     int
	}
	table := map[string]want{
		"error.created.javascript.json":                                 {"error", "accepted", "", "open", 1},
		"error.created.modern.derived.json":                             {"error", "accepted", "", "open", 1},
		"event_alert.triggered.javascript.json":                         {"event_alert", "accepted", "", "open", 1},
		"event_alert.triggered.modern.derived.json":                     {"event_alert", "accepted", "", "open", 1},
		"example-app.event_alert.triggered.json":                        {"event_alert", "accepted", "", "open", 1},
		"example-app.event_alert.triggered.with_alert_rule_action.json": {"event_alert", "accepted", "", "open", 1},
		"issue.created.javascript.json":                                 {"issue", "accepted", "", "open", 1},
		"issue.created.modern.derived.json":                             {"issue", "accepted", "", "open", 1},
		"issue.unresolved.modern.derived.json":                          {"issue", "accepted", "", "open", 1},
		"example-app.issue.resolved.json":                               {"issue", "accepted", "", "resolved", 0},
		"example-app.issue.ignored.json":                                {"issue", "accepted", "", "ignored", 0},
		"example-app.issue.assigned.json":                               {"issue", "ignored", "action_not_used:assigned", "", 0},
		"example-app.comment.created.json":                              {"comment", "ignored", "resource_not_used:comment", "", 0},
		"example-app.comment.deleted.json":                              {"comment", "ignored", "resource_not_used:comment", "", 0},
		"example-app.comment.updated.json":                              {"comment", "ignored", "resource_not_used:comment", "", 0},
		"example-app.installation.created.json":                         {"installation", "ignored", "resource_not_used:installation", "", 0},
		"example-app.installation.deleted.json":                         {"installation", "ignored", "resource_not_used:installation", "", 0},
		"example-app.metric_alert.critical.json":                        {"metric_alert", "ignored", "resource_not_used:metric_alert", "", 0},
		"example-app.metric_alert.critical.with_alert_rule_action.json": {"metric_alert", "ignored", "resource_not_used:metric_alert", "", 0},
		"example-app.metric_alert.resolved.json":                        {"metric_alert", "ignored", "resource_not_used:metric_alert", "", 0},
		"example-app.metric_alert.warning.json":                         {"metric_alert", "ignored", "resource_not_used:metric_alert", "", 0},
		"example-app.metric_alert.warning.with_alert_rule_action.json":  {"metric_alert", "ignored", "resource_not_used:metric_alert", "", 0},
		"seer.pr_created.derived.json":                                  {"seer", "ignored", "resource_not_used:seer", "", 0},
		"seer.root_cause_completed.derived.json":                        {"seer", "ignored", "resource_not_used:seer", "", 0},
		"legacy_plugin.sample.trimmed.json":                             {"", "rejected", "", "", 0},
	}
	files, err := os.ReadDir("testdata/sentry")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(table) {
		t.Errorf("%d files and %d rows", len(files), len(table))
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			want, ok := table[f.Name()]
			if !ok {
				t.Fatal("no outcome is stated for this file")
			}
			w := *w
			w.t = t
			s := w.sentry()
			body := fixture(t, f.Name())
			jobsBefore := w.count(jobs)
			var r reply
			if want.outcome == "rejected" { // B3, B4: the legacy plugin, though somebody signed it
				r = w.postSentry(s, "", body, without("Sentry-Hook-Resource"))
				if r.status != 422 || r.Field != "Sentry-Hook-Resource" || !strings.Contains(r.Hint, "legacy WebHooks plugin") {
					t.Errorf("%v", r)
				}
			} else {
				r = w.postSentry(s, want.resource, body)
				if r.status != 202 || r.Outcome != want.outcome || r.Reason != want.reason || r.Delivery == "" {
					t.Errorf("%v, want 202 %s %q", r, want.outcome, want.reason)
				}
			}
			if n := w.count(jobs) - jobsBefore; n != want.jobs {
				t.Errorf("%d jobs, want %d", n, want.jobs)
			}
			issues := 0
			if want.status != "" {
				issues = 1
			}
			of := "source_id = '" + string(s.ID) + "'"
			w.expect(map[string]int{
				"deliveries WHERE " + of: 1,
				"deliveries WHERE " + of + " AND outcome = '" + want.outcome + "'": 1,
				"issues WHERE " + of: issues,
				"issues WHERE " + of + " AND status = '" + want.status + "'":        issues,
				"events WHERE issue_id IN (SELECT id FROM issues WHERE " + of + ")": want.jobs,
				"deliveries WHERE " + of + " AND issue_id IS NOT NULL":              issues,
				"deliveries WHERE " + of + " AND (shape = '' OR body_bytes < 100)":  0,
			})
		})
	}
}

func TestB3_TheUnsignedLegacyPluginIsToldWhatToSetUp(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	r := w.do(w.request(s.Path, fixture(t, "legacy_plugin.sample.trimmed.json")))
	if r.status != 401 || !strings.Contains(r.Hint, "legacy WebHooks plugin") || !strings.Contains(r.Hint, "internal integration") {
		t.Errorf("%v", r)
	}
	r = w.do(w.request(s.Path, []byte("{}"), header("X-ServiceHook-Signature", "00")))
	if r.status != 401 || !strings.Contains(r.Hint, "service hook") {
		t.Errorf("%v", r)
	}
	w.expect(map[string]int{"deliveries": 0, "issues": 0, "delivery_keys": 0})
}

func TestASentryEventIsNormalised(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	if r := w.postSentry(s, "event_alert", fixture(t, modernAlert)); r.Outcome != "accepted" {
		t.Fatal(r)
	}
	i := w.issue("5550001234")
	seen := time.Date(2026, 9, 14, 9, 21, 44, 123456000, time.UTC)
	if i.Title != "KeyError: 'currency'" || i.Culprit != "checkout.views in pay" || i.Level != "error" || i.Platform != "python" ||
		i.Project != "checkout" || i.Link != "https://sentry.io/organizations/example-org/issues/5550001234/" ||
		i.Fingerprint != "448593f0ce4993462d80e817945a3190" || !i.FirstSeen.Equal(seen) || !i.LastSeen.Equal(seen) {
		t.Errorf("issue %+v", i)
	}
	e := w.event("0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c")
	if e.Release != "checkout@1.42.0+9f3c2ab" || e.Commit != "9f3c2ab" || e.Environment != "production" || e.Transaction != "checkout.views.pay" || !e.SeenAt.Equal(seen) {
		t.Errorf("event %+v", e)
	}
	x, ok := e.PrimaryException()
	if !ok || x.Type != "KeyError" || x.Value != "'currency'" || x.Mechanism != "django" || x.Handled == nil || *x.Handled || len(x.Frames) != 2 {
		t.Fatalf("primary %+v", x)
	}
	crash := x.Frames[1]
	if crash.Filename != "checkout/views.py" || crash.AbsPath != "/app/checkout/views.py" || crash.Module != "checkout.views" ||
		crash.Function != "pay" || crash.Line != 88 || crash.Column != 0 || crash.InApp == nil || !*crash.InApp {
		t.Errorf("frame %+v", crash)
	}
	if !slices.Contains(e.Tags, errand.Tag{Key: "runtime", Value: "CPython 3.12.5"}) || len(e.Tags) != 9 {
		t.Errorf("tags %+v", e.Tags)
	}
	for field, origin := range map[string]errand.Origin{
		"provider_id": errand.FromTracker, "seen_at": errand.FromTracker, "release": errand.FromOutsider, "commit": errand.FromOutsider,
		"environment": errand.FromOutsider, "transaction": errand.FromOutsider, "tags": errand.FromOutsider, "exceptions": errand.FromOutsider,
	} {
		if e.Provenance[field] != origin {
			t.Errorf("%s comes from %q, want %q", field, e.Provenance[field], origin)
		}
	}
	for _, r := range []errand.Removal{
		{Path: "exceptions.frames", Kind: "source_lines"}, {Path: "exceptions.frames", Kind: "local_variables"}, {Path: "contexts", Kind: "application_data"},
	} {
		if !slices.Contains(e.Removed, r) {
			t.Errorf("not recorded as removed: %+v in %+v", r, e.Removed)
		}
	}
}

func TestNoSourceLineOrVariableReachesTheDatabase(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	for _, f := range []string{modernAlert, "event_alert.triggered.javascript.json"} {
		body := changed(t, f, "data.event.user", map[string]any{"email": "jane.doe@shop.example", "id": "u-8812"})
		if r := w.postSentry(s, "event_alert", body); r.Outcome != "accepted" {
			t.Fatal(r)
		}
	}
	all := w.dump()
	if !strings.Contains(all, "checkout/views.py") {
		t.Fatal("the dump does not even hold what is kept")
	}
	for _, line := range []string{
		"wrapped_callback", "def pay(request", "load(order_id)", "price_for(order", "charge(amount)", "order_id", "A-1001",
		"getElementsByTagName", "console:ru", "jane.doe", "u-8812", "192.0.2.10", "Mozilla/5.0", clientSecret,
		fmt.Sprintf("%x", clientSecret),
	} {
		if strings.Contains(all, line) {
			t.Errorf("the database holds %q", line)
		}
	}
}

func TestTheShapeHoldsNamesAndNoValue(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	body := changed(t, modernAlert, "data.event.extra", map[string]any{"jane@shop.example": "x", "order": 7})
	w.postSentry(s, "event_alert", body)
	w.postSentry(s, "event_alert", []byte(`{"action":"triggered","data":{"event":{"event_id":{"jane doe":1},"vars":{"secret_name":1}}},"ghp_16C7e42F292c6912E7710c838347Ae178B4a":true}`))
	shapes := w.texts("SELECT shape FROM deliveries ORDER BY body_bytes DESC")
	if want := "{action:text,actor:{id:text,name:text,type:text},data:{event:{_ref:number,"; !strings.HasPrefix(shapes[0], want) {
		t.Errorf("shape %s", shapes[0])
	}
	if want := "{action:text,data:{event:{event_id:{?:number},vars:{1 members}}},?:truth}"; shapes[1] != want {
		t.Errorf("shape %s, want %s", shapes[1], want)
	}
	for _, value := range []string{"secret_name", "KeyError", "4505266709331968", "jane", "order", "ghp_", "price_for"} {
		if strings.Contains(shapes[0]+shapes[1], value) {
			t.Errorf("a shape holds %q: %s", value, shapes)
		}
	}
	if !strings.Contains(shapes[0], "extra:{2 members}") {
		t.Errorf("shape %s", shapes[0])
	}
}

// A10: one event, told by several hooks, is one piece of work.
func TestA10_TheSameEventByAnyWayIsOneEventAndOneJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	alert := fixture(t, modernAlert)
	otherRule := changed(t, modernAlert, "data.triggered_rule", "Another rule")
	for _, c := range []struct {
		name     string
		resource string
		body     []byte
		outcome  string
	}{
		{"an alert", "event_alert", alert, "accepted"},
		{"the same alert under a new request id", "event_alert", alert, "duplicate"},
		{"the alert of another rule", "event_alert", otherRule, "duplicate"},
		{"the error hook of the same event", "error", fixture(t, "error.created.modern.derived.json"), "duplicate"},
	} {
		if r := w.postSentry(s, c.resource, c.body, header("Request-ID", c.name)); r.status != 202 || r.Outcome != c.outcome {
			t.Errorf("%s: %v, want %s", c.name, r, c.outcome)
		}
	}
	// Another source is another tracker's project.
	if r := w.postSentry(w.sentry(), "event_alert", alert); r.Outcome != "accepted" {
		t.Errorf("the same event at another source: %v", r)
	}
	w.expect(map[string]int{"issues": 2, "events": 2, jobs: 2, "deliveries": 5, "deliveries WHERE outcome = 'duplicate'": 3})
}

func TestA11_TheKeyOfADeliveryHoldsNoClock(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	w.postSentry(s, "event_alert", fixture(t, modernAlert))
	// A15: long after the work is done, too, and after midnight.
	for _, later := range []time.Duration{time.Second, 3 * time.Hour, 20 * time.Hour} {
		w.clock.forward(later)
		if r := w.postSentry(s, "event_alert", fixture(t, modernAlert)); r.Outcome != "duplicate" || r.Reason != "already_received" {
			t.Errorf("%s later: %v", later, r)
		}
	}
	w.expect(map[string]int{jobs: 1, "events": 1})
}

func TestA15_ADeliveryWhoseProcessingFailedRunsAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	w.postSentry(s, "event_alert", fixture(t, modernAlert))
	w.exec("UPDATE delivery_keys SET failed_at = now()")
	if r := w.postSentry(s, "event_alert", fixture(t, modernAlert)); r.Outcome != "accepted" {
		t.Errorf("after a failure: %v", r)
	}
	if r := w.postSentry(s, "event_alert", fixture(t, modernAlert)); r.Outcome != "duplicate" {
		t.Errorf("after the second try: %v", r)
	}
	w.expect(map[string]int{jobs: 2, "events": 1, "issues": 1, "delivery_keys WHERE failed_at IS NULL": 1})
}

func TestA13_AnOlderWordNeverOverwritesANewerOne(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	word := func(action string, at time.Time, lastSeen string) reply {
		body := changed(t, "issue.unresolved.modern.derived.json", "action", action)
		body = []byte(strings.Replace(string(body), `"lastSeen":"2026-09-14T09:21:44.123456+00:00"`, `"lastSeen":"`+lastSeen+`"`, 1))
		return w.postSentry(s, "issue", body, header("Sentry-Hook-Timestamp", fmt.Sprint(at.Unix())))
	}
	event := func(id, title string, at time.Time) reply {
		var v map[string]any
		if err := json.Unmarshal(changed(t, modernAlert, "data.event.event_id", id), &v); err != nil {
			t.Fatal(err)
		}
		e := v["data"].(map[string]any)["event"].(map[string]any)
		e["title"], e["datetime"] = title, at.Format(time.RFC3339)
		b, _ := json.Marshal(v)
		return w.postSentry(s, "event_alert", b)
	}
	at := func(minute int) time.Time { return noon.Add(-time.Hour + time.Duration(minute)*time.Minute) }
	stamp := func(minute int) string { return at(minute).Format(time.RFC3339) }

	for i, step := range []struct {
		name    string
		reply   func() reply
		outcome string
		status  string
		title   string
	}{
		{"an event", func() reply { return event("e10", "newer", at(10)) }, "accepted", "open", "newer"},
		{"an older event arrives later and leaves the title alone", func() reply { return event("e05", "older", at(5)) }, "accepted", "open", "newer"},
		{"resolved", func() reply { return word("resolved", at(20), stamp(10)) }, "accepted", "resolved", "KeyError: 'currency'"},
		{"an older word arrives after it", func() reply { return word("unresolved", at(15), stamp(10)) }, "ignored", "resolved", "KeyError: 'currency'"},
		{"an event from before the word", func() reply { return event("e12", "e12", at(12)) }, "accepted", "resolved", "e12"},
		{"an event from after the word re-opens", func() reply { return event("e25", "e25", at(25)) }, "accepted", "open", "e25"},
		{"resolved again", func() reply { return word("resolved", at(30), stamp(25)) }, "accepted", "resolved", "KeyError: 'currency'"},
		{"re-opened", func() reply { return word("unresolved", at(31), stamp(25)) }, "accepted", "open", "KeyError: 'currency'"},
		{"resolved once more, in the same words", func() reply { return word("resolved", at(32), stamp(25)) }, "accepted", "resolved", "KeyError: 'currency'"},
		{"and that one sent again", func() reply { return word("resolved", at(33), stamp(25)) }, "duplicate", "resolved", "KeyError: 'currency'"},
		{"archived", func() reply { return word("archived", at(40), stamp(25)) }, "accepted", "ignored", "KeyError: 'currency'"},
	} {
		r := step.reply()
		is := w.issue("5550001234")
		if r.status != 202 || r.Outcome != step.outcome || is.Status != step.status || is.Title != step.title {
			t.Fatalf("%d, %s: %v; issue %s %q, want %s %s %q", i, step.name, r, is.Status, is.Title, step.outcome, step.status, step.title)
		}
	}
	is := w.issue("5550001234")
	if !is.LastSeen.Equal(at(25)) || is.FirstSeen.After(at(5)) {
		t.Errorf("seen from %s to %s", is.FirstSeen, is.LastSeen)
	}
}

func TestAWordAboutAnIssueStandsWithItsNewestEventOrWithOneWithoutAStack(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	created := fixture(t, "issue.created.modern.derived.json")
	if r := w.postSentry(s, "issue", created); r.Outcome != "accepted" {
		t.Fatal(r)
	}
	id := "issue:5550001234:created:2026-09-14T09:21:44.123456+00:00"
	if e := w.event(id); e.Primary != -1 || len(e.Exceptions) != 0 {
		t.Errorf("%+v", e)
	}
	w.expect(map[string]int{"events": 1, jobs: 1})
	// The real event takes its place.
	if r := w.postSentry(s, "event_alert", fixture(t, modernAlert)); r.Outcome != "accepted" {
		t.Fatal(r)
	}
	w.expect(map[string]int{"events": 1, "events WHERE provider_id = '0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c'": 1, jobs: 2})
	// Re-opened: the newest real event is considered once more.
	if r := w.postSentry(s, "issue", fixture(t, "issue.unresolved.modern.derived.json")); r.Outcome != "accepted" {
		t.Fatal(r)
	}
	w.expect(map[string]int{"events": 1, jobs: 3, "river_job j JOIN events e ON j.args->>'event' = e.id::text": 2})
	// In the other order the creation is no news.
	s2 := w.sentry()
	w.postSentry(s2, "event_alert", fixture(t, modernAlert))
	if r := w.postSentry(s2, "issue", created); r.Outcome != "accepted" {
		t.Fatal(r)
	}
	w.expect(map[string]int{"events": 2, jobs: 4})
}

func TestTheNewestSamplesAreKeptAndThoseOfRuns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	send := func(n int) {
		body := changed(t, modernAlert, "data.event.event_id", fmt.Sprintf("event%02d", n))
		body = []byte(strings.Replace(string(body), "2026-09-14T09:21:44.123456Z", noon.Add(time.Duration(n-100)*time.Minute).Format(time.RFC3339), 1))
		if r := w.postSentry(s, "event_alert", body); r.Outcome != "accepted" {
			t.Fatal(r)
		}
	}
	for n := range 3 {
		send(n)
	}
	w.exec(`INSERT INTO installations (id, org_id, account, created_at) VALUES (1, '` + string(w.org) + `', 'acme', now());
		INSERT INTO repositories (id, org_id, installation_id, github_id, owner, name, default_branch, created_at)
		VALUES ('00000000-0000-7000-8000-000000000001', '` + string(w.org) + `', 1, 1, 'acme', 'shop', 'main', now());
		INSERT INTO runs (id, org_id, issue_id, event_id, repository_id, state, workflow_file, ref, created_at, updated_at, deadline_at)
		SELECT '00000000-0000-7000-8000-000000000002', e.org_id, e.issue_id, e.id, '00000000-0000-7000-8000-000000000001', 'queued', 'errand.yml', '', now(), now(), now()
		FROM events e WHERE e.provider_id = 'event01'`)
	for n := 3; n < 15; n++ {
		send(n)
	}
	w.expect(map[string]int{
		"events": 11, "events WHERE provider_id >= 'event05'": 10, "events WHERE provider_id = 'event01'": 1, "issues WHERE deliveries = 15": 1,
	})
}

func TestB1_FramesThatAreNullAreNoFrames(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	exception := func(v string) []byte {
		var x any
		if err := json.Unmarshal([]byte(v), &x); err != nil {
			t.Fatal(err)
		}
		return changed(t, modernAlert, "data.event.exception", x)
	}
	for i, c := range []struct {
		name    string
		body    []byte
		primary int
		types   []string
		frames  int // of the primary
	}{
		{"frames are null", exception(`{"values":[{"type":"TypeError","value":"x","stacktrace":{"frames":null}}]}`), 0, []string{"TypeError"}, 0},
		{"a frame is null", exception(`{"values":[{"type":"TypeError","stacktrace":{"frames":[null,{"lineno":3},null]}}]}`), 0, []string{"TypeError"}, 1},
		{"the stacktrace is null", exception(`{"values":[{"type":"TypeError","stacktrace":null}]}`), 0, []string{"TypeError"}, 0},
		{"an exception is null", exception(`{"values":[null,{"type":"TypeError"}]}`), 0, []string{"TypeError"}, 0},
		{"values are null", exception(`{"values":null}`), -1, nil, 0},
		{"no exception", changed(t, modernAlert, "data.event.exception", nil), -1, nil, 0},
		{"B19: values is one exception", exception(`{"values":{"type":"A","stacktrace":{"frames":[{}]}}}`), 0, []string{"A"}, 1},
		{"B19: value is one exception", exception(`{"value":{"type":"A","value":"v"}}`), 0, []string{"A"}, 0},
		{"B19: one exception itself", exception(`{"type":"A","value":"v","stacktrace":{"frames":[{},{}]}}`), 0, []string{"A"}, 2},
		{"B19: a list", exception(`[{"type":"A"},{"type":"B"}]`), 1, []string{"A", "B"}, 0},
		{"numbers that are none", exception(`{"values":[{"type":"A","stacktrace":{"frames":[{"lineno":-4,"colno":1e99,"in_app":"yes"}]}}]}`), 0, []string{"A"}, 1},
	} {
		body := []byte(strings.ReplaceAll(string(c.body), "0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c", fmt.Sprintf("b1-%d", i)))
		if r := w.postSentry(s, "event_alert", body); r.Outcome != "accepted" {
			t.Errorf("%s: %v", c.name, r)
			continue
		}
		e := w.event(fmt.Sprintf("b1-%d", i))
		var types []string
		for _, x := range e.Exceptions {
			types = append(types, x.Type)
		}
		x, _ := e.PrimaryException()
		if e.Primary != c.primary || !slices.Equal(types, c.types) || len(x.Frames) != c.frames {
			t.Errorf("%s: primary %d of %v with %d frames", c.name, e.Primary, types, len(x.Frames))
		}
		for _, f := range x.Frames {
			if f.Line < 0 || f.Column != 0 || f.InApp != nil {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
	}
}

func TestB18_OneTitleWithTwoRootsIsTwoIssues(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	for i, root := range []string{"KeyError", "OSError"} {
		var x any
		_ = json.Unmarshal([]byte(`{"values":[{"type":"`+root+`"},{"type":"ServiceError"}]}`), &x)
		body := string(changed(t, modernAlert, "data.event.exception", x))
		body = strings.ReplaceAll(strings.ReplaceAll(body, "5550001234", fmt.Sprintf("77%d", i)), "0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c", root)
		if r := w.postSentry(s, "event_alert", []byte(body)); r.Outcome != "accepted" {
			t.Fatal(r)
		}
		e := w.event(root)
		if x, _ := e.PrimaryException(); x.Type != "ServiceError" || e.Exceptions[0].Type != root {
			t.Errorf("%+v", e.Exceptions)
		}
	}
	w.expect(map[string]int{"issues WHERE title = 'KeyError: ''currency'''": 2, jobs: 2})
}

func TestA18_ANulInAValueOrAKeyLosesNoDelivery(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	body := changed(t, modernAlert, "data.event.tags", map[string]any{"ke\x00y": "val\x00ue", "half\x00": "\x00"})
	text := strings.ReplaceAll(string(body), "KeyError: 'currency'", `Key\u0000Error \ud800 \u001b[31m`)
	text = strings.ReplaceAll(text, "checkout/views.py", `check\u0000out/views.py`)
	text = strings.Replace(text, `"_ref"`, `"x\u0000y":{"\u0000":"\u0000"},"_ref"`, 1)
	if r := w.postSentry(s, "event_alert", []byte(text)); r.Outcome != "accepted" {
		t.Fatal(r)
	}
	if i := w.issue("5550001234"); i.Title != "KeyError \ufffd [31m" {
		t.Errorf("title %q", i.Title)
	}
	e := w.event("0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c")
	if x, _ := e.PrimaryException(); x.Frames[1].Filename != "checkout/views.py" {
		t.Errorf("%+v", x.Frames[1])
	}
	if !slices.Contains(e.Tags, errand.Tag{Key: "key", Value: "value"}) {
		t.Errorf("%+v", e.Tags)
	}
	// An id with one is refused with its name, and kept as rejected.
	text = strings.ReplaceAll(string(fixture(t, modernAlert)), `"issue_id": "5550001234"`, `"issue_id": "555\u0000"`)
	if r := w.postSentry(s, "event_alert", []byte(text)); r.status != 422 || r.Field != "data.event.issue_id" {
		t.Errorf("%v", r)
	}
	// A NUL that splits a token does not carry it past the scrubber.
	token := "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a"
	text = strings.ReplaceAll(string(fixture(t, modernAlert)), "0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c", "nul2")
	text = strings.ReplaceAll(text, `"'currency'"`, `"`+token[:9]+`\u0000`+token[9:]+`"`)
	if r := w.postSentry(s, "event_alert", []byte(text)); r.Outcome != "accepted" {
		t.Fatal(r)
	}
	if strings.Contains(w.dump(), token[:20]) {
		t.Error("a token with a NUL in it was stored")
	}
}

func TestMessagesAndThreadsGiveTheirStacks(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	send := func(id, event string) errand.Event {
		t.Helper()
		body := `{"action":"triggered","data":{"event":{"event_id":"` + id + `","issue_url":"https://sentry.io/api/0/issues/42/","title":"t",` + event + `}}}`
		if r := w.postSentry(s, "event_alert", []byte(body)); r.Outcome != "accepted" {
			t.Fatal(r)
		}
		return w.event(id)
	}
	e := send("m1", `"logentry":{"formatted":"disk is full"},"message":"","project":77`)
	if e.Message != "disk is full" || e.Primary != -1 || !e.SeenAt.Equal(noon) {
		t.Errorf("%+v", e)
	}
	if i := w.issue("42"); i.Project != "77" || i.Level != "error" {
		t.Errorf("%+v", i)
	}
	e = send("m2", `"message":"slow","stacktrace":{"frames":[{"filename":"a.go","lineno":3}]}`)
	if x, ok := e.PrimaryException(); !ok || x.Type != "message" || x.Value != "slow" || x.Frames[0].Filename != "a.go" {
		t.Errorf("%+v", e)
	}
	e = send("m3", `"exception":{"values":[{"type":"SIGSEGV"}]},"threads":{"values":[{"current":true,"stacktrace":{"frames":[{"filename":"no.c"}]}},{"crashed":true,"stacktrace":{"frames":[{"filename":"yes.c"}]}}]}`)
	if x, _ := e.PrimaryException(); x.Type != "SIGSEGV" || len(x.Frames) != 1 || x.Frames[0].Filename != "yes.c" {
		t.Errorf("%+v", e)
	}
}

func TestWhatCannotBeReadIsRejectedWithItsField(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	event := func(members string) string { return `{"action":"triggered","data":{"event":{` + members + `}}}` }
	cases := []struct {
		name     string
		resource string
		body     string
		field    string
	}{
		{"not JSON", "event_alert", `{"action":`, "action"},
		{"a second value behind", "event_alert", `{"action":"triggered"} {}`, "body"},
		{"a list", "event_alert", `[1]`, "body"},
		{"no event", "event_alert", `{"action":"triggered","data":{}}`, "data.event"},
		{"data is null", "error", `{"action":"created","data":null}`, "data.error"},
		{"the event of another resource", "error", `{"action":"created","data":{"event":{"event_id":"a","issue_id":"1"}}}`, "data.error"},
		{"data is a list", "event_alert", `{"action":"triggered","data":[]}`, "data"},
		{"no event id", "event_alert", event(`"issue_id":"1"`), "data.event.event_id"},
		{"no issue id", "event_alert", event(`"event_id":"a"`), "data.event.issue_id"},
		{"an id that is an object", "event_alert", event(`"event_id":{},"issue_id":"1"`), "data.event.event_id"},
		{"an id with a space", "event_alert", event(`"event_id":"a b","issue_id":"1"`), "data.event.event_id"},
		{"an id that pretends to be ours", "event_alert", event(`"event_id":"issue:1","issue_id":"1"`), "data.event.event_id"},
		{"a name twice", "event_alert", event(`"event_id":"a","event_id":"b","issue_id":"1"`), "data.event.event_id"},
		{"a name twice, escaped", "event_alert", event(`"event_id":"a","event\u005fid":"b","issue_id":"1"`), "data.event.event_id"},
		{"a name twice where nothing is read", "event_alert", event(`"event_id":"a","issue_id":"1","extra":{"x":{"k":1,"k":2}}`), "data.event.extra.x.k"},
		{"an id under another case", "event_alert", event(`"Event_ID":"a","issue_id":"1"`), "data.event.event_id"},
		{"frames that are a text", "event_alert", event(`"event_id":"a","issue_id":"1","exception":{"values":[{"stacktrace":{"frames":"x"}}]}`), "data.event.exception.values[0].stacktrace.frames"},
		{"no issue", "issue", `{"action":"resolved","data":{}}`, "data.issue"},
		{"an issue without id", "issue", `{"action":"resolved","data":{"issue":{}}}`, "data.issue.id"},
		{"an action that is a list", "issue", `{"action":["resolved"]}`, "action"},
	}
	for _, c := range cases {
		r := w.postSentry(s, c.resource, []byte(c.body))
		if r.status != 422 || r.Code != "invalid" || r.Field != c.field || r.Detail == "" {
			t.Errorf("%s: %v, want 422 at %s", c.name, r, c.field)
		}
	}
	w.expect(map[string]int{
		"deliveries WHERE outcome = 'rejected' AND reason <> '' AND shape <> ''": len(cases), "issues": 0, "events": 0, "delivery_keys": 0, jobs: 0,
	})
	if strings.Contains(w.dump(), "a b") {
		t.Error("a refused value was stored")
	}
}

func TestUnknownActionsAndOtherKindsOfIssueAreIgnored(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	for _, c := range []struct{ name, resource, body, reason string }{
		{"an action to come", "issue", `{"action":"pondered"}`, "action_not_used:pondered"},
		{"no action", "issue", `{}`, "action_not_used"},
		{"a resource to come", "dream", `{"action":"created"}`, "resource_not_used:dream"},
		{"a resource that is no name", "dr eam'--", `{"action":"created"}`, "resource_not_used"},
		{"a slow query", "issue", `{"action":"created","data":{"issue":{"id":"1","issueCategory":"performance"}}}`, "category_not_used:performance"},
		{"an empty body", "issue", ``, "empty_body"},
	} {
		if r := w.postSentry(s, c.resource, []byte(c.body)); r.status != 202 || r.Outcome != "ignored" || r.Reason != c.reason {
			t.Errorf("%s: %v, want %s", c.name, r, c.reason)
		}
	}
	w.expect(map[string]int{"deliveries WHERE outcome = 'ignored'": 6, "issues": 0, jobs: 0})
}
