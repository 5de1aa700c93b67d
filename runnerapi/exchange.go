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

// sendIDToken is what a person must read whose workflow file has an older form.
const sendIDToken = "This run needs GitHub's ID token: give the job `permissions: id-token: write`, as docs/workflows/errand.yml does, and start a new run from Errand."

// exchange gives the run token for a ticket, or for an ID token of GitHub's that is the run's own. It returns Unauthenticated for
// everything that is not honoured, and Unavailable where that cannot be known just now.
func (a *API) exchange(ctx context.Context, req wire.ExchangeRequest) (wire.ExchangeResponse, error) {
	var out wire.ExchangeResponse
	if req.WorkflowRunAttempt > math.MaxInt32 {
		return out, errand.Invalid("workflow_run_attempt", "out of range")
	}
	now := a.clock()
	p, err := a.applicant(ctx, req, now)
	if err != nil {
		return out, err
	}
	org, err := a.store.LookupRunOrg(ctx, p.run)
	if errand.CodeOf(err) == errand.CodeNotFound {
		return out, a.refuseTicket(ctx, unknownRun, slog.String("run", string(p.run)))
	}
	if err != nil {
		return out, err
	}
	// GitHub is asked before the run's lock is taken, so that its silence holds nobody else up.
	k, err := a.prove(ctx, org, p, now)
	if err != nil {
		return out, err
	}
	// A refusal has effects that must be kept (the alarm, the end of the run), so it leaves the transaction beside its error.
	var refused error
	err = a.store.InTx(ctx, org, func(tx *store.Tx) error {
		run, err := tx.RunnerLockRun(ctx, p.run)
		if err != nil {
			return err
		}
		if k.repo.VisibilityAt != nil && p.proven() {
			if _, err := tx.SetRepositoryFacts(ctx, store.SetRepositoryFactsParams{
				ID: k.repo.ID, OwnerID: k.repo.OwnerID, Private: k.repo.Private, VisibilityAt: *k.repo.VisibilityAt,
			}); err != nil {
				return err
			}
		}
		expires, why, err := a.admit(ctx, tx, &run, p, now)
		if err != nil || why != nil {
			refused = why
			return err
		}
		token, err := a.keys.Token(run.ID, int(run.DispatchAttempt), p.role, expires)
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

// admit decides under the run's lock. Each role of each attempt on GitHub is exchanged once; the jobs of a split workflow and
// re-runs are told apart by their ID tokens alone.
func (a *API) admit(ctx context.Context, tx *store.Tx, run *store.Run, p *applicant, now time.Time) (expires time.Time, refused, err error) {
	rows, err := earlierExchanges(ctx, tx, run)
	if err != nil {
		return expires, nil, err
	}
	rules, err := tx.RunnerExchangeRules(ctx)
	if err != nil {
		return expires, nil, err
	}
	refuse := func(why refusal) (time.Time, error, error) {
		return expires, a.refuseTicket(ctx, why, append(ids(run), slog.String("state", string(run.State)), slog.Int64("workflow_run", p.req.WorkflowRunID),
			slog.Int("workflow_run_attempt", p.req.WorkflowRunAttempt), slog.String("role", string(p.role)))...), nil
	}
	if p.attempt != int(run.DispatchAttempt) {
		return refuse(staleAttempt)
	}
	if len(rows) == 0 {
		if run.State != errand.Dispatching && run.State != errand.Dispatched {
			return refuse(notWaiting)
		}
		expires, err = a.grant(ctx, tx, run, p, true, now)
		return expires, nil, err
	}
	attempt, latest := int32(p.req.WorkflowRunAttempt), rows[0].WorkflowRunAttempt
	mine := rowOf(rows, p)
	switch {
	case mine != nil && sameExchange(mine, p.req, now):
		if run.State.Ended() {
			return refuse(notWaiting)
		}
		return mine.ExpiresAt, nil, nil
	case p.proven() && attempt > latest:
		if !rules.AllowReruns || run.State != errand.Dispatched && run.State != errand.Running {
			return refuse(rerun)
		}
		expires, err = a.grant(ctx, tx, run, p, true, now)
		return expires, nil, err
	case p.proven() && attempt < latest:
		return refuse(staleAttempt)
	case p.proven() && mine == nil && splits(rows, p.role) && !run.State.Ended():
		expires, err = a.grant(ctx, tx, run, p, false, now)
		return expires, nil, err
	default:
		refused, err = a.secondUse(ctx, tx, run, p, rows, now)
		return expires, refused, err
	}
}

// earlierExchanges lists those of the current dispatch, the newest attempt first. A run that was exchanged before they had a
// table has its one in its own columns.
func earlierExchanges(ctx context.Context, tx *store.Tx, run *store.Run) ([]store.RunExchange, error) {
	rows, err := tx.RunnerListExchanges(ctx, run.ID, run.DispatchAttempt)
	if err != nil || len(rows) > 0 || run.ExchangedAt == nil {
		return rows, err
	}
	attempt := int32(1)
	if run.WorkflowRunAttempt != nil {
		attempt = *run.WorkflowRunAttempt
	}
	return []store.RunExchange{{
		RunID: run.ID, DispatchAttempt: run.DispatchAttempt, WorkflowRunAttempt: attempt, Role: string(runtoken.RoleAll), Nonce: run.ExchangeNonce,
		ExchangedAt: *run.ExchangedAt, ExpiresAt: *run.TokenExpiresAt,
	}}, nil
}

// rowOf finds the exchange of the same role in the same attempt.
func rowOf(rows []store.RunExchange, p *applicant) *store.RunExchange {
	for i, r := range rows {
		if r.Role == string(p.role) && int(r.WorkflowRunAttempt) == p.req.WorkflowRunAttempt {
			return &rows[i]
		}
	}
	return nil
}

// splits tells whether the role is one more job of a split workflow: `all` stands alone.
func splits(rows []store.RunExchange, role runtoken.Role) bool {
	for _, r := range rows {
		if r.WorkflowRunAttempt == rows[0].WorkflowRunAttempt && r.Role == string(runtoken.RoleAll) {
			return false
		}
	}
	return role != runtoken.RoleAll
}

// grant records the exchange. The first one of an attempt says who came: the runner's own word on its workflow run overwrites
// what was guessed from GitHub's answers, and tokens of the attempt before are dead. A run whose dispatch we do not know to
// have been accepted plainly was.
func (a *API) grant(ctx context.Context, tx *store.Tx, run *store.Run, p *applicant, first bool, now time.Time) (expires time.Time, err error) {
	req := p.req
	expires = now.Add(TokenTTL).Truncate(time.Second) // a token's end is in whole seconds
	if first && run.TokenExpiresAt != nil && !expires.After(*run.TokenExpiresAt) {
		expires = run.TokenExpiresAt.Add(time.Second)
	}
	if first && run.WorkflowRunID != nil && *run.WorkflowRunID != req.WorkflowRunID {
		a.log.LogAttrs(ctx, slog.LevelWarn, "the workflow run is another one than was thought",
			append(ids(run), slog.Int64("thought", *run.WorkflowRunID), slog.Int64("workflow_run", req.WorkflowRunID))...)
	}
	if run.State == errand.Dispatching {
		_, err := a.runs.Fire(ctx, tx, run.ID, runs.Move{
			Trigger: errand.TriggerGitHubAccepted, To: errand.Dispatched, Detail: "Its runner came before GitHub's answer was recorded.", Actor: actor,
		}, nil)
		if err != nil {
			return expires, err
		}
	}
	n, err := tx.RunnerAddExchange(ctx, store.RunnerAddExchangeParams{
		RunID: run.ID, DispatchAttempt: run.DispatchAttempt, WorkflowRunAttempt: int32(req.WorkflowRunAttempt), Role: string(p.role),
		Nonce: exchangeDigest(req), Proven: p.proven(), ExchangedAt: now, ExpiresAt: expires,
	})
	if err == nil && first {
		n, err = tx.RunnerRecordExchange(ctx, store.RunnerRecordExchangeParams{
			ID: run.ID, WorkflowRunID: req.WorkflowRunID, WorkflowRunAttempt: int32(req.WorkflowRunAttempt), Now: now,
			ExchangeNonce: exchangeDigest(req), TokenExpiresAt: expires,
			Provider: scrub.Sanitise(req.Provider, 64), Model: scrub.Sanitise(req.Model, 128),
		})
	}
	if err == nil && n != 1 {
		err = fmt.Errorf("the exchange of run %s was recorded %d times under its lock", run.ID, n)
	}
	if err != nil {
		return expires, err
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, "exchanged for a run token", append(ids(run), slog.Int64("workflow_run", req.WorkflowRunID),
		slog.Int("workflow_run_attempt", req.WorkflowRunAttempt), slog.String("role", string(p.role)), slog.Bool("id_token", p.proven()),
		slog.String("runner_version", scrub.Sanitise(req.RunnerVersion, 64)))...)
	return expires, nil
}

// exchangeDigest names an exchange: the nonce, and what is asked with it.
func exchangeDigest(req wire.ExchangeRequest) []byte {
	d := sha256.Sum256(fmt.Appendf(nil, "errand exchange v1\n%q %d %d", req.Nonce, req.WorkflowRunID, req.WorkflowRunAttempt))
	return d[:]
}

func sameExchange(before *store.RunExchange, req wire.ExchangeRequest, now time.Time) bool {
	return hmac.Equal(before.Nonce, exchangeDigest(req)) && now.Sub(before.ExchangedAt) <= SameExchange
}

// secondUse refuses a used credential and raises the alarm. Where nothing tells the two who came apart, the run fails before its
// first progress, and goes on when it is under way, so that a reader of the Actions page, where the ticket stands, cannot
// end it. An ID token tells them apart: a ticket alone never ends the run of one who brought a token, and whoever came with
// a ticket alone before the one with the token was somebody else.
func (a *API) secondUse(ctx context.Context, tx *store.Tx, run *store.Run, p *applicant, rows []store.RunExchange, now time.Time) (refused, err error) {
	req := p.req
	why := reused
	if req.WorkflowRunAttempt > 1 && run.WorkflowRunID != nil && *run.WorkflowRunID == req.WorkflowRunID {
		why = rerun
	}
	a.count.alarms.Inc()
	open := run.State == errand.Dispatched || run.State == errand.Running || run.State == errand.Checking || run.State == errand.Publishing
	early := run.HeartbeatAt == nil && (run.State == errand.Dispatched || run.State == errand.Running)
	fails, effect := false, "refused; the run goes on"
	switch {
	case run.State.Ended():
		effect = "refused; the run had ended"
	case !p.proven() && provenBefore(rows):
		effect = "refused; the run goes on, whose runner had GitHub's own word"
	case p.proven() && !provenBefore(rows) && open:
		fails, effect = true, "refused; the run failed, because somebody had used its ticket before its own job came"
	case early:
		fails, effect = true, "refused; the run failed, because nothing had been reported yet"
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
	case noIDToken:
		err.Message = sendIDToken
	default:
	}
	return err
}

// granted is what lets a run enter `running`: its exchange, for as long as the token lives.
func granted(token runtoken.Token) []transitions.Grant {
	return []transitions.Grant{{Name: "ticket", IssuedBy: "runnerapi", Category: transitions.ErrorData, Expires: token.Expires}}
}

// shown makes text of a token's fit for a log.
func shown(s string) string { return scrub.Sanitise(s, 256) }
