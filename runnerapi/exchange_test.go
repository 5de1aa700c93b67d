package runnerapi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/wire"
)

func TestATicketWorksOnceAndAgainOnlyWithItsNonceWithinAMinute(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	for _, c := range []struct {
		name  string
		after time.Duration
		again func(*wire.ExchangeRequest)
		works bool
	}{
		{"the same exchange at once", 0, func(*wire.ExchangeRequest) {}, true},
		{"the same exchange after 60 s", time.Minute, func(*wire.ExchangeRequest) {}, true},
		{"the same exchange after 61 s", 61 * time.Second, func(*wire.ExchangeRequest) {}, false},
		{"with another nonce", 0, func(r *wire.ExchangeRequest) { r.Nonce = "fedcba9876543210" }, false},
		{"with its nonce from another workflow run", 0, func(r *wire.ExchangeRequest) { r.WorkflowRunID++ }, false},
		{"with its nonce from a re-run", 0, func(r *wire.ExchangeRequest) { r.WorkflowRunAttempt++ }, false},
	} {
		r := o.dispatched()
		var first, second wire.ExchangeResponse
		w.post("exchange", "", exchangeOf(r.ticket, nonce)).into(t, &first)
		if want := w.clock.now().Add(30 * time.Minute); !first.ExpiresAt.Equal(want) {
			t.Errorf("%s: the token ends at %s, want %s", c.name, first.ExpiresAt, want)
		}
		w.clock.forward(c.after)
		req := exchangeOf(r.ticket, nonce)
		c.again(&req)
		got := w.post("exchange", "", req)
		if !c.works {
			if got.want(t, 401); strings.Contains(got.body, first.Token) || len(r.journal(journal.KindAlarm)) != 1 {
				t.Errorf("%s: answered %s; alarms %v", c.name, got.body, r.journal(journal.KindAlarm))
			}
			continue
		}
		if got.into(t, &second); second != first {
			t.Errorf("%s: answered %+v, and before %+v", c.name, second, first)
		}
		if alarms := r.journal(journal.KindAlarm); len(alarms) != 0 {
			t.Errorf("%s: alarms %v", c.name, alarms)
		}
	}
}

func TestASecondUseFailsTheRunOnlyBeforeItsFirstProgress(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	beat := wire.ProgressRequest{}
	for _, c := range []struct {
		name  string
		until func(*errandRun)
		state errand.RunState
		why   errand.Reason
	}{
		{"after the exchange", func(r *errandRun) { r.token() }, errand.Failed, errand.ReasonTicketReused},
		{"after the start", func(r *errandRun) { r.running() }, errand.Failed, errand.ReasonTicketReused},
		{"after the first heartbeat", func(r *errandRun) { w.post("progress", r.running(), beat).want(t, 200) }, errand.Running, ""},
		{"while publishing", func(r *errandRun) { r.publishing(string(r.id)) }, errand.Publishing, ""},
		{"after a cancellation", func(r *errandRun) { r.token(); r.cancel() }, errand.Cancelled, errand.ReasonCancelledByPerson},
	} {
		r := o.dispatched()
		c.until(r)
		before := w.counted("errand_ticket_reused_total", "")
		w.post("exchange", "", exchangeOf(r.ticket, "another-nonce-xx")).want(t, 401)
		r.wantState(c.state, c.why)
		alarms := r.journal(journal.KindAlarm)
		if len(alarms) != 1 || !strings.Contains(alarms[0], "ticket_reused") || w.counted("errand_ticket_reused_total", "") != before+1 {
			t.Errorf("%s: alarms %v, counted %v", c.name, alarms, w.counted("errand_ticket_reused_total", ""))
		}
	}
}

func TestAUsedTicketCannotFillTheJournal(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	w.post("progress", r.running(), wire.ProgressRequest{}).want(t, 200)
	for i := range 15 {
		w.post("exchange", "", exchangeOf(r.ticket, fmt.Sprintf("another-nonce-%02d", i))).want(t, 401)
	}
	if alarms := r.journal(journal.KindAlarm); len(alarms) != 10 {
		t.Errorf("%d alarms", len(alarms))
	}
	r.wantState(errand.Running, "")
}

// D4: the re-run is refused in words, within the ticket's time and after it.
func TestD4_AReRunOnGitHubsPageIsToldToStartANewRun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	for _, c := range []struct {
		name  string
		after time.Duration
		label string
	}{
		{"a minute later", time.Minute, "rerun"},
		{"an hour later, when the ticket is over too", time.Hour, "expired"},
	} {
		r := o.dispatched()
		token := r.running()
		w.post("result", token, wire.ResultRequest{State: errand.Failed, Reason: errand.ReasonProviderAuth}).want(t, 200)
		w.clock.forward(c.after)
		req := exchangeOf(r.ticket, "nonce-of-the-re-run")
		req.WorkflowRunAttempt = 2
		got := w.post("exchange", "", req).want(t, 401)
		if !strings.Contains(got.body, "Start a new run from Errand") || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s", c.name, got.body)
		}
		if w.counted("errand_runner_refused_total", c.label) != 1 {
			t.Errorf("%s: not counted as %s", c.name, c.label)
		}
		r.wantState(errand.Failed, errand.ReasonProviderAuth)
	}
}

func TestOfTenExchangesAtOnceExactlyOneWins(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	replies := make([]reply, 10)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() {
			var err error
			if replies[i], err = w.try("exchange", "", exchangeOf(r.ticket, fmt.Sprintf("nonce-number-%03d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	won := 0
	for _, got := range replies {
		switch got.status {
		case 200:
			won++
		case 401:
		default:
			t.Errorf("answered %d %s", got.status, got.body)
		}
	}
	if won != 1 {
		t.Errorf("%d exchanges won", won)
	}
	r.wantState(errand.Failed, errand.ReasonTicketReused) // nothing had been reported yet
}

// C10: each of two runs is corrected by its own runner.
func TestTheExchangeRecordsTheRunnersOwnWordOverEveryGuess(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	right := o.dispatched()
	right.guess(991)
	right.token()
	if run := right.row(); run.WorkflowRunURL == "" {
		t.Error("the page of the right workflow run was forgotten")
	}
	r := o.dispatched()
	r.guess(42)
	r.token()
	run := r.row()
	if run.WorkflowRunURL != "" {
		t.Errorf("the page of another workflow run is kept: %s", run.WorkflowRunURL)
	}
	if run.WorkflowRunID == nil || *run.WorkflowRunID != 991 || *run.WorkflowRunAttempt != 1 || *run.ExchangeAttempt != 1 {
		t.Errorf("workflow run %v, attempt %v, exchange %v", *run.WorkflowRunID, *run.WorkflowRunAttempt, *run.ExchangeAttempt)
	}
	if run.Provider != "anthropic" || run.Model != "claude-sonnet-5" {
		t.Errorf("%s %s", run.Provider, run.Model)
	}
	if s := string(run.ExchangeNonce); s == "" || strings.Contains(s, nonce) {
		t.Error("the nonce itself was stored")
	}
}

// D12: the process died between GitHub's yes and its own record of it; the runner came meanwhile.
func TestD12_ARunThatIsStillDispatchingIsAcceptedByItsExchange(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatching()
	token := r.running()
	r.wantState(errand.Running, "")
	w.post("progress", token, wire.ProgressRequest{}).want(t, 200)
	rows := strings.Join(r.journal(journal.KindTransition), "\n")
	for _, trigger := range []string{"github_accepted", "run_started"} {
		if !strings.Contains(rows, trigger) {
			t.Errorf("the history has no %s: %s", trigger, rows)
		}
	}
}

func TestATicketIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	now := w.clock.now()
	r := o.dispatched()
	ticket := func(run errand.ID, attempt int, expires time.Time) string {
		s, err := w.keys.Ticket(run, attempt, expires)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	runToken, err := w.keys.Token(r.id, 1, "all", now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cancelled := o.dispatched()
	cancelled.cancel()
	for _, c := range []struct{ name, ticket, label string }{
		{"that is none", "let me in", "malformed"},
		{"that is a run token", runToken, "wrong_audience"},
		{"with one bit changed", flip(r.ticket, 60), "bad_signature"},
		{"of a run that does not exist", ticket(errand.NewID(now), 1, now.Add(time.Hour)), "unknown_run"},
		{"of an attempt that was given up", ticket(r.id, 2, now.Add(time.Hour)), "stale_attempt"},
		{"that is over", ticket(r.id, 1, now), "expired"},
		{"of a cancelled run", cancelled.ticket, "not_waiting"},
	} {
		w.post("exchange", "", exchangeOf(c.ticket, nonce)).want(t, 401)
		if w.counted("errand_runner_refused_total", c.label) != 1 {
			t.Errorf("%s: not counted as %s", c.name, c.label)
		}
	}
	r.wantState(errand.Dispatched, "")
	r.token() // none of them used it up
}

func TestAnExchangeForPartOfARunIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	req := exchangeOf(r.ticket, nonce)
	req.Role = "publish"
	w.post("exchange", "", req).want(t, 422)
	r.token()
}

// guess records a workflow run as a look at GitHub would have.
func (r *errandRun) guess(id int64) {
	r.w.t.Helper()
	r.super("UPDATE runs SET workflow_run_id = $2::bigint, workflow_run_url = 'https://github.com/acme/shop/actions/runs/' || ($2::bigint)::text WHERE id = $1", r.id, id)
}

// flip changes one bit of the byte at i, within the alphabet of base64url where it can.
func flip(s string, i int) string {
	b := []byte(s)
	if b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}
