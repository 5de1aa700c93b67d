package webhooks_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/webhooks"
)

// another is a second replica on the same database.
func (w *world) another() *webhooks.Webhooks {
	w.t.Helper()
	sealer, err := store.NewSealer(bytes.Repeat([]byte{9}, 32))
	if err != nil {
		w.t.Fatal(err)
	}
	hooks, err := webhooks.New(webhooks.Config{
		Store: w.db.Open(w.t, 4), Sealer: sealer, Scrubber: scrub.New(), Clock: w.clock.now, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return hooks
}

func (w *world) flush() {
	w.t.Helper()
	if err := w.hooks.FlushCounts(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) state(org errand.ID, name string) webhooks.SourceState {
	w.t.Helper()
	list, err := w.hooks.Sources(w.t.Context(), org)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == name {
			return s
		}
	}
	w.t.Fatalf("no source %q among %d", name, len(list))
	return webhooks.SourceState{}
}

func message(id, at string) []byte {
	return fmt.Appendf(nil, `{"type":"error.occurred","data":{"issue":{"id":"1","title":"t"},"event":{"id":%q,"time":%q}}}`, id, at)
}

func TestHowASourceIsDoing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	const at = "2026-11-30T11:00:00Z"

	if h := w.state(w.org, "Ours").Health; h.LastReceived != nil || h.LastRefused != nil || h.Quiet != 0 {
		t.Errorf("before anything came: %+v", h)
	}
	if rate, ok := w.state(w.org, "Ours").Health.RefusedRate(); ok {
		t.Errorf("a rate of nothing: %v", rate)
	}
	w.postGeneric(s, "a", message("a", at))
	w.postGeneric(s, "a", message("a", at))
	w.clock.forward(time.Minute)
	accepted := w.clock.now()
	w.postGeneric(s, "b", message("b", at))
	w.clock.forward(time.Minute)
	w.postGeneric(s, "c", []byte(`{"type":"deploy.done"}`))
	w.postGeneric(s, "d", []byte(`{"type":1}`))
	received := w.clock.now()
	w.clock.forward(time.Minute)
	for range 3 {
		if r := w.do(w.request(s.Path, []byte(`{}`))); r.status != 401 {
			t.Fatalf("%v", r)
		}
	}
	refused := w.clock.now()
	w.expect(map[string]int{"source_hours": 0, "source_health": 0}) // nothing waits for a counter
	w.flush()
	w.expect(map[string]int{"source_hours": 1, "source_health": 1, "deliveries": 5}) // three strangers made no row of their own

	w.clock.forward(2 * time.Hour)
	state := w.state(w.org, "Ours")
	h := state.Health
	if h.Accepted != 2 || h.Duplicate != 1 || h.Ignored != 1 || h.Rejected != 1 || h.Refused != 3 || h.RecentReceived != 5 || h.RecentRefused != 3 {
		t.Errorf("%+v", h)
	}
	if h.LastAccepted == nil || !h.LastAccepted.Equal(accepted) || !h.LastReceived.Equal(received) || !h.LastRefused.Equal(refused) ||
		!strings.Contains(h.LastRefusedReason, "webhook-id") || h.Quiet != 2*time.Hour+time.Minute {
		t.Errorf("%+v", h)
	}
	if rate, ok := h.RefusedRate(); !ok || rate != 3.0/8 {
		t.Errorf("rate %v", rate)
	}
	if state.ID != s.ID || state.Kind != "generic" || state.Path != s.Path || state.DisabledAt != nil || state.OverlapUntil != nil {
		t.Errorf("%+v", state)
	}
	for labels, want := range map[string]float64{"accepted": 2, "duplicate": 1, "ignored": 1, "rejected": 1, "refused": 3} {
		if got := w.metric("errand_source_deliveries_total", map[string]string{"source": string(s.ID), "outcome": labels}); got != want {
			t.Errorf("metric %s: %v, want %v", labels, got, want)
		}
	}
	other := w.db.Org(t, "other")
	if list, err := w.hooks.Sources(t.Context(), other); err != nil || len(list) != 0 {
		t.Errorf("another organisation sees %v, %v", list, err)
	}
}

// Counts of several organisations and replicas add up, a later flush adds to an earlier one, and an older moment never
// replaces a newer one.
func TestCountsAddUpAcrossReplicas(t *testing.T) {
	t.Parallel()
	w := setup(t)
	other := w.db.Org(t, "other")
	mine, theirs := w.generic(), w.source(other, webhooks.NewSource{Kind: "generic", Name: "Theirs"})
	second := w.another()
	send := func(s webhooks.Source, id string) { w.postGeneric(s, id, message(id, "2026-11-30T11:00:00Z")) }

	w.clock.forward(time.Minute)
	late := w.clock.now()
	send(mine, "a")
	send(theirs, "b")
	w.flush()
	w.clock.set(noon)
	send(mine, "c")
	w.flush()
	if err := second.FlushCounts(t.Context()); err != nil { // nothing to write is no error
		t.Fatal(err)
	}
	if h := w.state(w.org, "Ours").Health; h.Accepted != 2 || !h.LastAccepted.Equal(late) {
		t.Errorf("%+v", h)
	}
	if h := w.state(other, "Theirs").Health; h.Accepted != 1 {
		t.Errorf("%+v", h)
	}
	w.expect(map[string]int{"source_hours": 2})
}

// What could not be written is not lost.
func TestCountsOutliveAFailedWrite(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	w.postGeneric(s, "a", message("a", "2026-11-30T11:00:00Z"))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.hooks.FlushCounts(gone); err == nil {
		t.Fatal("written without a database")
	}
	w.postGeneric(s, "b", message("b", "2026-11-30T11:00:00Z"))
	w.flush()
	if h := w.state(w.org, "Ours").Health; h.Accepted != 2 || h.LastAccepted == nil {
		t.Errorf("%+v", h)
	}
}

// Counting while others write, and stopping: the last counts are written when the context ends.
func TestRunCountsWritesTheLastOnesToo(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.hooks.RunCounts(ctx)
	}()
	var senders sync.WaitGroup
	for i := range 8 {
		senders.Go(func() {
			for j := range 5 {
				id := fmt.Sprintf("m%d-%d", i, j)
				if r := w.postGeneric(s, id, message(id, "2026-11-30T11:00:00Z")); r.status != 202 {
					t.Errorf("%v", r)
				}
				w.do(w.request(s.Path, nil))
			}
		})
	}
	senders.Wait()
	stop()
	<-done
	if h := w.state(w.org, "Ours").Health; h.Accepted != 40 || h.Refused != 40 {
		t.Errorf("%+v", h)
	}
}

// A17, A20: a sender that has stopped is seen by its silence, whatever it believes itself.
func TestA17_A20_ASilentSourceIsSeen(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	w.clock.forward(3 * time.Hour)
	if h := w.state(w.org, "Ours").Health; h.Quiet != 3*time.Hour || h.LastReceived != nil {
		t.Errorf("nothing since it was made: %+v", h)
	}
	w.postGeneric(s, "a", message("a", "2026-11-30T11:00:00Z"))
	w.flush()
	w.clock.forward(time.Hour)
	w.do(w.request(s.Path, nil)) // a stranger is no sign of life
	w.flush()
	w.clock.forward(27 * time.Hour)
	h := w.state(w.org, "Ours").Health
	if h.Quiet != 28*time.Hour || h.RecentReceived != 0 || h.RecentRefused != 0 || h.Accepted != 1 || h.Refused != 1 {
		t.Errorf("%+v", h)
	}
	if _, ok := h.RefusedRate(); ok {
		t.Error("a rate of a day without deliveries")
	}
	w.clock.forward(webhooks.CountsKept)
	w.maintain()
	w.postGeneric(s, "b", message("b", "2026-11-30T11:00:00Z"))
	w.flush()
	if h := w.state(w.org, "Ours").Health; h.Accepted != 1 || h.Refused != 0 {
		t.Errorf("counts are kept for ever: %+v", h)
	}
	w.expect(map[string]int{"source_hours": 1})
}

func TestASourceThatIsDisabledAnswersAsIfItWereNot(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	post := func() int {
		w.clock.forward(time.Second)
		id := fmt.Sprint(w.clock.now().Unix())
		return w.postGeneric(s, id, message(id, "2026-11-30T11:00:00Z")).status
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.hooks.DisableSource(t.Context(), w.org, s.ID))
	since := w.state(w.org, "Ours").DisabledAt
	if post() != 404 || since == nil {
		t.Error("it is not disabled")
	}
	must(w.hooks.DisableSource(t.Context(), w.org, s.ID))
	if again := w.state(w.org, "Ours").DisabledAt; !again.Equal(*since) {
		t.Errorf("disabled at %s and again at %s", since, again)
	}
	must(w.hooks.EnableSource(t.Context(), w.org, s.ID))
	if post() != 202 || w.state(w.org, "Ours").DisabledAt != nil {
		t.Error("it is not enabled")
	}
	other := w.db.Org(t, "other")
	for name, do := range map[string]func(context.Context, errand.ID, errand.ID) error{
		"disable": w.hooks.DisableSource, "enable": w.hooks.EnableSource, "forget": w.hooks.ForgetPreviousSecret,
	} {
		if err := do(t.Context(), other, s.ID); errand.CodeOf(err) != errand.CodeNotFound {
			t.Errorf("%s by another organisation: %v", name, err)
		}
	}
	if post() != 202 {
		t.Error("another organisation disabled it")
	}
}

// Both secrets verify while they overlap, for each kind that there is; afterwards, or when the old one is forgotten, one does.
func TestSecretsOverlapWhileTheyAreRotated(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sentry", "posthog", "posthog_header", "generic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			given := ""
			if kind == "sentry" {
				given = clientSecret
			}
			s := w.source(w.org, webhooks.NewSource{Kind: kind, Name: "S", Secret: given})
			tries := 0
			verifies := func(secret string) bool {
				tries++
				req := w.request(s.Path, nil, header("Sentry-Hook-Signature", hexMAC(secret, nil)), header("X-Errand-Secret", secret))
				if strings.HasPrefix(secret, "whsec_") {
					for _, m := range w.standard(secret, fmt.Sprintf("m%d", tries), w.clock.now(), nil) {
						m(req)
					}
				}
				return w.do(req).status == 202
			}
			rotate := func(old string) string {
				next := ""
				if kind == "sentry" {
					next = old + "_next"
				}
				r, err := w.hooks.RotateSecret(t.Context(), w.org, s.ID, next)
				if err != nil || r.Secret == old || r.Path != s.Path {
					t.Fatalf("%+v, %v", r, err)
				}
				return r.Secret
			}
			check := func(when string, want bool, secret string) {
				t.Helper()
				if verifies(secret) != want {
					t.Errorf("%s: verifies %v", when, !want)
				}
			}
			first := s.Secret
			check("at first", true, first)
			second := rotate(first)
			check("the new one at once", true, second)
			w.clock.forward(webhooks.Overlap - time.Second)
			check("the old one to the end of the overlap", true, first)
			if until := w.state(w.org, "S").OverlapUntil; until == nil || until.Sub(w.clock.now()) != time.Second {
				t.Errorf("overlap until %v", until)
			}
			w.clock.forward(time.Second)
			w.maintain()
			check("the old one afterwards", false, first)
			check("the new one afterwards", true, second)
			if w.state(w.org, "S").OverlapUntil != nil {
				t.Error("the overlap does not end")
			}
			third := rotate(second)
			fourth := rotate(third)
			check("the one before the last two", false, second)
			check("the one before the last", true, third)
			if err := w.hooks.ForgetPreviousSecret(t.Context(), w.org, s.ID); err != nil {
				t.Fatal(err)
			}
			check("one that was forgotten", false, third)
			check("the one that is left", true, fourth)
		})
	}
}

// A word about an issue is no occurrence of it: without a last_seen of its own it moves none.
func TestAWordAboutAnIssueMovesNoLastSeen(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	w.postGeneric(s, "a", message("a", "2026-11-28T11:00:00Z"))
	before := w.issue("1")
	words := []struct{ id, body string }{
		{"b", `{"type":"issue.resolved","timestamp":"2026-11-29T10:00:00Z","data":{"issue":{"id":"1"}}}`},
		{"c", `{"type":"issue.reopened","timestamp":"2026-11-29T11:00:00Z","data":{"issue":{"id":"1"}}}`},
		{"d", `{"type":"issue.ignored","timestamp":"2026-11-27T11:00:00Z","data":{"issue":{"id":"1"}}}`},
	}
	for _, m := range words {
		if r := w.postGeneric(s, m.id, []byte(m.body)); r.status != 202 {
			t.Fatalf("%v", r)
		}
	}
	after := w.issue("1")
	if !after.LastSeen.Equal(before.LastSeen) || !after.FirstSeen.Equal(before.FirstSeen) || after.Title != before.Title {
		t.Errorf("seen from %s to %s as %q, before from %s to %s as %q", after.FirstSeen, after.LastSeen, after.Title, before.FirstSeen, before.LastSeen, before.Title)
	}
	w.postGeneric(s, "e", []byte(`{"type":"issue.resolved","timestamp":"2026-11-30T10:00:00Z","data":{"issue":{"id":"1","last_seen":"2026-11-29T15:00:00Z"}}}`))
	if i := w.issue("1"); !i.LastSeen.Equal(time.Date(2026, 11, 29, 15, 0, 0, 0, time.UTC)) {
		t.Errorf("the tracker's own last_seen is not taken: %s", i.LastSeen)
	}
	w.postGeneric(s, "f", []byte(`{"type":"issue.resolved","timestamp":"2026-11-30T10:00:00Z","data":{"issue":{"id":"2","title":"u"}}}`))
	if i := w.issue("2"); !i.LastSeen.Equal(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)) {
		t.Errorf("an issue that was not known: %s", i.LastSeen)
	}
}
