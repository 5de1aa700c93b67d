package runnerapi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/transitions"
	"github.com/errand-dev/errand/wire"
)

// maxAlarms bounds the alarms kept of one run: whoever holds a used ticket could write them without end.
const maxAlarms = 10

// startAgain is what a person must read who pressed "Re-run" on GitHub's page. It tells no more than the ticket's holder
// knows: that it was good once.
const startAgain = "This ticket can no longer be used: it works once, and for 30 minutes. Start a new run from Errand; a re-run on GitHub's page cannot work."

// exchange gives the run token for a ticket. It returns Unauthenticated for every ticket that is not honoured.
func (a *API) exchange(ctx context.Context, req wire.ExchangeRequest) (wire.ExchangeResponse, error) {
	var out wire.ExchangeResponse
	switch {
	case req.Role != "" && req.Role != string(runtoken.RoleAll):
		return out, errand.Invalid("role", "a ticket is exchanged for the role `all` only")
	case req.WorkflowRunAttempt > math.MaxInt32:
		return out, errand.Invalid("workflow_run_attempt", "out of range")
	}
	now := a.clock()
	ticket, err := a.keys.VerifyTicket(req.Ticket, now)
	if err != nil {
		return out, a.refuseTicket(ctx, failureOf(err))
	}
	org, err := a.store.LookupRunOrg(ctx, ticket.Run)
	if errand.CodeOf(err) == errand.CodeNotFound {
		return out, a.refuseTicket(ctx, unknownRun, slog.String("run", string(ticket.Run)))
	}
	if err != nil {
		return out, err
	}
	// A refusal has effects that must be kept (the alarm, the end of the run), so it leaves the transaction beside its error.
	var refused error
	err = a.store.InTx(ctx, org, func(tx *store.Tx) error {
		run, err := tx.RunnerLockRun(ctx, ticket.Run)
		if err != nil {
			return err
		}
		var expires time.Time
		switch {
		case ticket.Attempt != int(run.DispatchAttempt):
			refused = a.refuseTicket(ctx, staleAttempt, ids(&run)...)
			return nil
		case run.ExchangedAt != nil && !sameExchange(&run, req, now):
			refused, err = a.secondUse(ctx, tx, &run, req, now)
			return err
		case run.ExchangedAt != nil && !run.State.Ended():
			expires = *run.TokenExpiresAt
		case run.State != errand.Dispatching && run.State != errand.Dispatched:
			refused = a.refuseTicket(ctx, notWaiting, append(ids(&run), slog.String("state", string(run.State)))...)
			return nil
		default:
			expires = now.Add(TokenTTL).Truncate(time.Second) // a token's end is in whole seconds
			if err := a.firstExchange(ctx, tx, &run, req, now, expires); err != nil {
				return err
			}
		}
		token, err := a.keys.Token(run.ID, int(run.DispatchAttempt), runtoken.RoleAll, expires)
		out = wire.ExchangeResponse{Run: run.ID, Token: token, ExpiresAt: expires.UTC()}
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return wire.ExchangeResponse{}, err
	}
	return out, nil
}

// firstExchange records who came. The runner's own word on its workflow run overwrites what was guessed from GitHub's
// answers. A run whose dispatch we do not know to have been accepted plainly was.
func (a *API) firstExchange(ctx context.Context, tx *store.Tx, run *store.Run, req wire.ExchangeRequest, now, expires time.Time) error {
	if run.WorkflowRunID != nil && *run.WorkflowRunID != req.WorkflowRunID {
		a.log.LogAttrs(ctx, slog.LevelWarn, "the workflow run is another one than was thought",
			append(ids(run), slog.Int64("thought", *run.WorkflowRunID), slog.Int64("workflow_run", req.WorkflowRunID))...)
	}
	if run.State == errand.Dispatching {
		_, err := a.runs.Fire(ctx, tx, run.ID, runs.Move{
			Trigger: errand.TriggerGitHubAccepted, To: errand.Dispatched, Detail: "Its runner came before GitHub's answer was recorded.", Actor: actor,
		}, nil)
		if err != nil {
			return err
		}
	}
	n, err := tx.RunnerRecordExchange(ctx, store.RunnerRecordExchangeParams{
		ID: run.ID, WorkflowRunID: req.WorkflowRunID, WorkflowRunAttempt: int32(req.WorkflowRunAttempt), Now: now,
		ExchangeNonce: exchangeDigest(req), TokenExpiresAt: expires,
		Provider: scrub.Sanitise(req.Provider, 64), Model: scrub.Sanitise(req.Model, 128),
	})
	if err == nil && n != 1 {
		err = fmt.Errorf("the exchange of run %s was recorded %d times under its lock", run.ID, n)
	}
	if err != nil {
		return err
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, "ticket exchanged", append(ids(run), slog.Int64("workflow_run", req.WorkflowRunID),
		slog.Int("workflow_run_attempt", req.WorkflowRunAttempt), slog.String("runner_version", scrub.Sanitise(req.RunnerVersion, 64)))...)
	return nil
}

// exchangeDigest names an exchange: the nonce, and what is asked with it.
func exchangeDigest(req wire.ExchangeRequest) []byte {
	d := sha256.Sum256(fmt.Appendf(nil, "errand exchange v1\n%q %d %d", req.Nonce, req.WorkflowRunID, req.WorkflowRunAttempt))
	return d[:]
}

func sameExchange(run *store.Run, req wire.ExchangeRequest, now time.Time) bool {
	return hmac.Equal(run.ExchangeNonce, exchangeDigest(req)) && now.Sub(*run.ExchangedAt) <= SameExchange
}

// secondUse refuses a used ticket and raises the alarm. Before the first progress it cannot be told which of the two is
// the runner that was sent, so the run fails; one that is under way goes on, so that a reader of the Actions page, where
// the ticket stands, cannot end it.
func (a *API) secondUse(ctx context.Context, tx *store.Tx, run *store.Run, req wire.ExchangeRequest, now time.Time) (refused, err error) {
	why := reused
	if req.WorkflowRunAttempt > 1 && run.WorkflowRunID != nil && *run.WorkflowRunID == req.WorkflowRunID {
		why = rerun
	}
	a.count.alarms.Inc()
	fails := run.HeartbeatAt == nil && (run.State == errand.Dispatched || run.State == errand.Running)
	effect := "refused; the run goes on"
	switch {
	case fails:
		effect = "refused; the run failed, because nothing had been reported yet"
	case run.State.Ended():
		effect = "refused; the run had ended"
	}
	raised, err := tx.RunnerCountJournal(ctx, run.ID, journal.KindAlarm)
	if err != nil {
		return nil, err
	}
	if raised < maxAlarms {
		alarm := journal.Alarm{
			Alarm: string(why), Run: run.ID, State: run.State, Effect: effect,
			WorkflowRunID: req.WorkflowRunID, WorkflowRunAttempt: req.WorkflowRunAttempt,
		}
		if err := note(ctx, tx, run.ID, journal.KindAlarm, alarm, now); err != nil {
			return nil, err
		}
	}
	if fails {
		_, err := a.runs.Fire(ctx, tx, run.ID, runs.Move{
			Trigger: errand.TriggerRunnerFailed, To: errand.Failed, Reason: errand.ReasonTicketReused, Actor: actor,
		}, nil)
		if err != nil {
			return nil, err
		}
	}
	return a.refuseTicket(ctx, why, append(ids(run), slog.String("effect", effect), slog.Int64("workflow_run", req.WorkflowRunID))...), nil
}

// refuseTicket is refuse with the words for a person who re-ran the workflow.
func (a *API) refuseTicket(ctx context.Context, why refusal, attrs ...slog.Attr) error {
	err := a.refuse(ctx, why, attrs...)
	switch why {
	case refusal(runtoken.Expired), staleAttempt, notWaiting, reused, rerun:
		err.Message = startAgain
	default:
	}
	return err
}

// granted is what lets a run enter `running`: its exchanged ticket, for as long as the token lives.
func granted(run *store.Run) []transitions.Grant {
	return []transitions.Grant{{Name: "ticket", IssuedBy: "runnerapi", Category: transitions.ErrorData, Expires: *run.TokenExpiresAt}}
}
