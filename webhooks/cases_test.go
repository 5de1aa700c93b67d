package webhooks_test

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/webhooks"
)

// A3: a tenth of a sender's deliveries fails after it has changed how it writes JSON. Each alone looks like a stranger's: the
// rate of the source is what shows it, in the console and to Prometheus.
func TestA3_TheRateOfFailuresTellsASenderThatHasChanged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	changedOne, other := w.generic(), w.source(w.org, webhooks.NewSource{Kind: "generic", Name: "Other"})
	for i := range 20 {
		id := fmt.Sprint("m", i)
		body := message(id, "2026-11-30T11:00:00Z")
		with := w.standard(changedOne.Secret, id, w.clock.now(), body)
		if i%10 == 9 {
			body = append([]byte(" "), body...) // written again after it was signed
		}
		w.do(w.request(changedOne.Path, body, with...))
		w.postGeneric(other, id, message(id, "2026-11-30T11:00:00Z"))
	}
	w.flush()
	if rate, ok := w.state(w.org, "Ours").Health.RefusedRate(); !ok || rate != 0.1 {
		t.Errorf("rate %v", rate)
	}
	if rate, ok := w.state(w.org, "Other").Health.RefusedRate(); !ok || rate != 0 {
		t.Errorf("rate of the other source %v", rate)
	}
	refused := w.metric("errand_source_deliveries_total", map[string]string{"source": string(changedOne.ID), "outcome": "refused"})
	all := w.metric("errand_source_deliveries_total", map[string]string{"source": string(changedOne.ID)})
	if refused != 2 || all != 20 {
		t.Errorf("%v of %v to Prometheus", refused, all)
	}
}

// A7: a form, signed over the bytes of the form, is refused for what it is and before its signature is looked at, by every kind.
func TestA7_AFormIsRefusedForItsContentType(t *testing.T) {
	t.Parallel()
	w := setup(t)
	form := []byte("payload=" + url.QueryEscape(string(fixture(t, modernAlert))))
	as := header("Content-Type", "application/x-www-form-urlencoded")
	for name, r := range map[string]reply{
		"sentry":  w.postSentry(w.sentry(), "event_alert", form, as),
		"posthog": w.postPosthog(w.posthog(), form, as),
		"generic": w.postGeneric(w.generic(), "m", form, as),
	} {
		if r.status != 415 || r.Field != "Content-Type" || r.Hint == "" {
			t.Errorf("%s: %v", name, r)
		}
	}
	w.expect(map[string]int{"deliveries": 0, "delivery_keys": 0})
}

// B4: the payload of a project's plain webhook, sent with a signature as if it came from an integration, is kept as rejected
// with its shape, and the answer names what to set up.
func TestB4_ThePlainPayloadWithASignatureIsRejectedWithWhatToSetUp(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	r := w.postSentry(s, "", fixture(t, "legacy_plugin.sample.trimmed.json"), without("Sentry-Hook-Resource"))
	if r.status != 422 || r.Field != "Sentry-Hook-Resource" || !strings.Contains(r.Hint, "internal integration") {
		t.Errorf("%v", r)
	}
	w.expect(map[string]int{"deliveries WHERE outcome = 'rejected' AND shape LIKE '%triggering_rules%'": 1, "issues": 0})
}

// B7: an SDK took its own function's name for the application's only frame away. There is an error and no place.
func TestB7_AnEventWithoutFramesIsAnErrorWithoutAPlace(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.postSentry(w.sentry(), "event_alert", changed(t, modernAlert, "data.event.exception", map[string]any{
		"values": []any{map[string]any{"type": "Error", "value": "boom", "stacktrace": map[string]any{"frames": []any{}}}},
	}))
	e := w.event("0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c")
	if x, ok := e.PrimaryException(); r.Outcome != "accepted" || !ok || x.Type != "Error" || len(x.Frames) != 0 {
		t.Errorf("%v, %+v", r, e)
	}
	w.expect(map[string]int{jobs: 1})
}

// B19: one exception where a list is expected.
func TestB19_OneExceptionInPlaceOfAList(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.sentry()
	one := map[string]any{"type": "A", "value": "v"}
	for i, x := range []any{one, map[string]any{"values": one}, map[string]any{"value": one}, []any{one}, map[string]any{"values": []any{one}}} {
		id := fmt.Sprintf("b19-%d", i)
		body := strings.ReplaceAll(string(changed(t, modernAlert, "data.event.exception", x)), "0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c", id)
		w.postSentry(s, "event_alert", []byte(body))
		if e := w.event(id); len(e.Exceptions) != 1 || e.Exceptions[0].Type != "A" || e.Exceptions[0].Value != "v" || e.Primary != 0 {
			t.Errorf("%v: %+v", x, e)
		}
	}
}

// Of each kind, each field that is there says who could have written it, and none that an SDK sends is the tracker's.
func TestProvenanceIsCompleteForEachKind(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.postSentry(w.sentry(), "event_alert", fixture(t, modernAlert))
	w.postPosthog(w.posthog(), posthogFixture(t, phCreated))
	w.postGeneric(w.generic(), "m", []byte(`{"type":"error.occurred","data":{"issue":{"id":"1","title":"t","culprit":"c","platform":"go","project":"p"},
		"event":{"id":"e","time":"2026-11-30T11:00:00Z","release":"r","commit":"abcdef1","environment":"x","transaction":"t","message":"m","tags":[{"key":"k","value":"v"}],"exceptions":[{"type":"A"}]}}}`))
	tracker := map[string]bool{"provider_id": true, "seen_at": true, "project": true}
	for _, id := range []string{"0f2b9d5c4e3a4f7f9b1c2d3e4f5a6b7c", "0192f5a1-8001-7000-8000-000000000001", "e"} {
		e := w.event(id)
		there := []string{"title", "culprit", "level", "platform", "project"}
		v := reflect.ValueOf(e)
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if !v.Field(i).IsZero() && name != "primary" && name != "removed" && name != "provenance" { // Errand's own
				there = append(there, name)
			}
		}
		for _, name := range there {
			want := errand.FromOutsider
			if tracker[name] {
				want = errand.FromTracker
			}
			if e.Provenance[name] != want {
				t.Errorf("%s: %s comes from %q, want %q", id, name, e.Provenance[name], want)
			}
		}
		if len(e.Provenance) != len(there) {
			t.Errorf("%s: %v for %v", id, e.Provenance, there)
		}
	}
}
