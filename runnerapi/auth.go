package runnerapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/store"
)

// refusal is why a ticket or a token is not honoured: a word for the log and the counter. The caller learns none of it.
// runtoken's failures are such words too.
type refusal string

const (
	missing      refusal = "missing"       // no bearer token at all
	unknownRun   refusal = "unknown_run"   // rightly signed, and there is no such run
	notExchanged refusal = "not_exchanged" // a token of a run whose ticket was never exchanged
	staleAttempt refusal = "stale_attempt" // of an attempt that was given up
	revoked      refusal = "revoked"       // the run has ended
	notWaiting   refusal = "not_waiting"   // the run waits for no runner
	reused       refusal = "ticket_reused" // used before, by somebody else or too long ago
	rerun        refusal = "rerun"         // the same, in a re-run on GitHub's page
	wrongRole    refusal = "wrong_role"    // a token of a role that the call is not for
)

// mayCall says which roles' tokens each call takes. The agent's job reads the error and proposes; the verifying job holds the
// proposal against the change; the publishing job alone says how the run ended.
var mayCall = map[string][]runtoken.Role{
	"start":    {runtoken.RoleAll, runtoken.RoleAgent},
	"progress": {runtoken.RoleAll, runtoken.RoleAgent, runtoken.RoleVerify, runtoken.RolePublish},
	"claim":    {runtoken.RoleAll, runtoken.RoleVerify},
	"result":   {runtoken.RoleAll, runtoken.RolePublish},
}

type tokenKey struct{}

// authenticated lets a request pass that carries a run token whose signature and time are good and whose role may make the
// call. Whether its run still lives is asked under the row's lock (inRun).
func (a *API) authenticated(call string) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		scheme, text, _ := strings.Cut(ctx.Header("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || text == "" {
			a.unauthenticated(ctx, a.refuse(ctx.Context(), missing))
			return
		}
		token, err := a.keys.VerifyToken(strings.TrimSpace(text), a.clock())
		if err != nil {
			a.unauthenticated(ctx, a.refuse(ctx.Context(), failureOf(err)))
			return
		}
		if !slices.Contains(mayCall[call], token.Role) {
			a.unauthenticated(ctx, a.refuse(ctx.Context(), wrongRole,
				slog.String("run", string(token.Run)), slog.String("role", string(token.Role)), slog.String("call", call)))
			return
		}
		next(huma.WithValue(ctx, tokenKey{}, token))
	}
}

func failureOf(err error) refusal {
	var f runtoken.Failure
	if errors.As(err, &f) {
		return refusal(f)
	}
	return refusal(runtoken.Malformed)
}

// refuse counts and logs a refusal, and gives the one answer there is for all of them.
func (a *API) refuse(ctx context.Context, why refusal, attrs ...slog.Attr) *errand.Error {
	a.count.refused.WithLabelValues(string(why)).Inc()
	a.log.LogAttrs(ctx, slog.LevelWarn, "run credential refused", append(attrs, slog.String("reason", string(why)))...)
	return errand.Unauthenticated(errors.New(string(why)))
}

// answer turns an error into what huma writes, and logs those that are ours to mend: huma does not pass them on.
func (a *API) answer(ctx context.Context, call string, err error) error {
	failed := func() {
		a.log.LogAttrs(ctx, slog.LevelError, "runner call failed", slog.String("call", call), slog.String("error", err.Error()))
	}
	switch errand.CodeOf(err) {
	case errand.CodeInternal:
		failed()
	case errand.CodeUnavailable:
		failed()
		return huma.ErrorWithHeaders(a.problem(err), http.Header{"Retry-After": {"5"}})
	case errand.CodeUnauthenticated:
		return huma.ErrorWithHeaders(a.problem(err), http.Header{"WWW-Authenticate": {"Bearer"}})
	default:
	}
	var over *endedError
	if errors.As(err, &over) {
		return &endedProblem{problem: a.problem(over.err), state: over.state, reason: over.reason}
	}
	return a.problem(err)
}

// unauthenticated answers from a middleware, where huma takes no error.
func (a *API) unauthenticated(ctx huma.Context, err error) {
	problem := a.problem(err)
	ctx.SetHeader("Content-Type", "application/problem+json")
	ctx.SetHeader("WWW-Authenticate", "Bearer")
	ctx.SetStatus(http.StatusUnauthorized)
	_ = json.NewEncoder(ctx.BodyWriter()).Encode(problem) // a caller that is gone needs no answer
}

// inRun runs fn in a transaction of the run's organisation that holds the run's row lock, once the token has been held
// against the row. fn is given ended runs too: what they may still do is each call's own rule.
func (a *API) inRun(ctx context.Context, token runtoken.Token, fn func(*store.Tx, *store.Run) error) error {
	org, err := a.store.LookupRunOrg(ctx, token.Run)
	if errand.CodeOf(err) == errand.CodeNotFound {
		return a.refuse(ctx, unknownRun, slog.String("run", string(token.Run)))
	}
	if err != nil {
		return err
	}
	return a.store.InTx(ctx, org, func(tx *store.Tx) error {
		run, err := tx.RunnerLockRun(ctx, token.Run)
		if err != nil {
			return err
		}
		switch {
		case run.ExchangedAt == nil || run.TokenExpiresAt == nil:
			return a.refuse(ctx, notExchanged, ids(&run)...)
		case token.Attempt != int(run.DispatchAttempt), token.Expires.Before(*run.TokenExpiresAt):
			return a.refuse(ctx, staleAttempt, ids(&run)...) // of a dispatch that was given up, or of the job before a re-run
		}
		return fn(tx, &run)
	})
}

// ids are the words under which a run is found in the log.
func ids(run *store.Run) []slog.Attr {
	return []slog.Attr{slog.String("org", string(run.OrgID)), slog.String("issue", string(run.IssueID)), slog.String("run", string(run.ID))}
}

// endedError refuses a result because the run stands elsewhere. It carries where, which the runner acts upon.
type endedError struct {
	err    *errand.Error
	state  errand.RunState
	reason errand.Reason
}

func (e *endedError) Error() string { return e.err.Error() }

func (e *endedError) Unwrap() error { return e.err }

// endedProblem is a problem with the two members beside it.
type endedProblem struct {
	problem error
	state   errand.RunState
	reason  errand.Reason
}

func (p *endedProblem) Error() string { return p.problem.Error() }

// GetStatus and ContentType are what huma asks an error for.
func (p *endedProblem) GetStatus() int {
	var se huma.StatusError
	if errors.As(p.problem, &se) {
		return se.GetStatus()
	}
	return http.StatusConflict
}

// ContentType gives the media type of problems.
func (p *endedProblem) ContentType(string) string { return "application/problem+json" }

// MarshalJSON writes the problem's own members and the two more.
func (p *endedProblem) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(p.problem)
	if err != nil {
		return nil, err
	}
	members := map[string]any{}
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, err
	}
	members["state"], members["reason"] = p.state, p.reason
	return json.Marshal(members)
}
