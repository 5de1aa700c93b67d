package runnerapi

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/wire"
)

// IDTokens checks that an ID token of GitHub's was signed for us and is in its time. Its error is a runtoken.Failure, or
// Unavailable where that cannot be known just now.
type IDTokens interface {
	Verify(ctx context.Context, token string, now time.Time) (runtoken.Workload, error)
}

// GitHub is asked for what an ID token is held against and no row says. NotFound: GitHub knows no such workflow run. Forbidden,
// from Bot: somebody else started it. Anything else is not known, and lets nobody pass.
type GitHub interface {
	WorkflowRun(ctx context.Context, repo *store.Repository, run *store.Run, id int64) (WorkflowRun, error)
	// Bot is the id of the App's own bot, which started that workflow run.
	Bot(ctx context.Context, repo *store.Repository, run *store.Run, id int64) (int64, error)
	Owner(ctx context.Context, repo *store.Repository) (id int64, private bool, err error)
}

// WorkflowRun is what GitHub says of a workflow run. Marked: its name carries the mark of the run's current attempt, which by
// itself proves nothing.
type WorkflowRun struct {
	Path, Event string
	ActorID     int64
	Marked      bool
}

// What an ID token says that is not so. The words are for the log and the counter.
const (
	noIDToken      refusal = "oidc_required"
	idRequest      refusal = "oidc_request" // the request names another workflow run or attempt than its own token
	idRepository   refusal = "oidc_repository"
	idOwner        refusal = "oidc_owner"
	idEvent        refusal = "oidc_event"
	idRef          refusal = "oidc_ref"
	idWorkflow     refusal = "oidc_workflow"
	idJobWorkflow  refusal = "oidc_job_workflow"
	idRun          refusal = "oidc_run"
	idActor        refusal = "oidc_actor"
	otherRun       refusal = "run_mismatch" // the ticket is of another run than the request
	workflowFolder         = ".github/workflows/"
)

// applicant is who asks for a run token, and what that rests on.
type applicant struct {
	req     wire.ExchangeRequest
	role    runtoken.Role
	run     errand.ID
	attempt int
	work    *runtoken.Workload // what the ID token says; nil = a ticket alone
}

func (p *applicant) proven() bool { return p.work != nil }

// known is what the rows say of the run, before its lock is taken.
type known struct {
	run       store.Run
	repo      store.Repository
	exchanges []store.RunExchange
}

// applicant reads the credentials: the ticket's signature, the ID token's signature, issuer, audience and time. A ticket beside
// a good ID token may be over, since the token stands for itself; it may not be of another run.
func (a *API) applicant(ctx context.Context, req wire.ExchangeRequest, now time.Time) (*applicant, error) {
	p := &applicant{req: req, role: runtoken.Role(req.Role)}
	if p.role == "" {
		p.role = runtoken.RoleAll
	}
	if req.Ticket == "" && req.IDToken == "" {
		return nil, errand.Invalid("ticket", "is missing, and so is an ID token: give one of them, or both")
	}
	if req.IDToken == "" && p.role != runtoken.RoleAll {
		return nil, errand.Invalid("role", "a ticket is exchanged for the role `all` only: a job of a split workflow sends its ID token")
	}
	if req.IDToken != "" {
		work, err := a.idTokens.Verify(ctx, req.IDToken, now)
		var why runtoken.Failure
		if errors.As(err, &why) {
			return nil, a.refuse(ctx, refusal(why))
		}
		if err != nil {
			return nil, err
		}
		p.work = &work
	}
	if req.Run != "" {
		if err := p.marked(req.Run); err != nil {
			return nil, err
		}
	}
	if req.Ticket == "" {
		if req.Run == "" {
			return nil, errand.Invalid("run", "is missing, and there is no ticket that would say it: send the workflow's input `run`")
		}
		return p, nil
	}
	ticket, err := a.keys.VerifyTicket(req.Ticket, now)
	switch {
	case errors.Is(err, runtoken.Expired) && p.proven() && req.Run != "":
		return p, nil
	case err != nil:
		return nil, a.refuseTicket(ctx, failureOf(err))
	case req.Run != "" && (ticket.Run != p.run || ticket.Attempt != p.attempt):
		return nil, a.refuseTicket(ctx, otherRun, slog.String("run", string(ticket.Run)))
	}
	p.run, p.attempt = ticket.Run, ticket.Attempt
	return p, nil
}

// marked reads the workflow's input `run`.
func (p *applicant) marked(mark string) error {
	id, attempt, _ := strings.Cut(mark, ".")
	run, err := errand.ParseID(id)
	n, err2 := strconv.ParseUint(attempt, 10, 16)
	if err != nil || err2 != nil || n < 1 || strconv.FormatUint(n, 10) != attempt {
		return errand.Invalid("run", "is not a run with its attempt: want the workflow's input `run` as it is")
	}
	p.run, p.attempt = run, int(n)
	return nil
}

// prove holds what the applicant offers against what is known of the run. What it learns of the repository on the way it leaves
// in k.
func (a *API) prove(ctx context.Context, org errand.ID, p *applicant, now time.Time) (k known, err error) {
	ticketEnough := false
	err = a.store.InTx(ctx, org, func(tx *store.Tx) error {
		if k.run, err = tx.GetRun(ctx, p.run); err != nil {
			return err
		}
		if k.repo, err = tx.GetRepository(ctx, k.run.RepositoryID); err != nil {
			return err
		}
		if k.exchanges, err = tx.RunnerListExchanges(ctx, k.run.ID, k.run.DispatchAttempt); err != nil {
			return err
		}
		required, err := tx.TicketNotEnough(ctx, k.repo.ID)
		ticketEnough = !required
		return err
	})
	switch {
	case err != nil:
		return k, err
	case !p.proven() && !ticketEnough:
		return k, a.refuseTicket(ctx, noIDToken, ids(&k.run)...)
	case !p.proven():
		return k, nil
	}
	why, err := a.mismatch(ctx, &k, p)
	if err != nil {
		return k, errand.Errorf(errand.CodeUnavailable, err, "GitHub could not be asked about this workflow run: try again")
	}
	if why != "" {
		w := p.work
		return k, a.refuse(ctx, why, append(ids(&k.run), slog.Int64("repository_id", w.RepositoryID), slog.Int64("owner_id", w.OwnerID),
			slog.Int64("actor_id", w.ActorID), slog.Int64("workflow_run", w.RunID), slog.Int("workflow_run_attempt", w.RunAttempt),
			slog.String("event", shown(w.Event)), slog.String("ref", shown(w.Ref)), slog.String("workflow_ref", shown(w.WorkflowRef)))...)
	}
	if private := p.work.Visibility != "public"; p.work.Visibility != "" {
		k.learn(p.work.OwnerID, private, now)
	}
	return k, nil
}

// mismatch names the first claim that is not that of the run's own job; "" = all of them are. An error: it cannot be known.
func (a *API) mismatch(ctx context.Context, k *known, p *applicant) (refusal, error) {
	w, run, repo := p.work, &k.run, &k.repo
	ref := run.Ref
	if ref == "" {
		ref = repo.DefaultBranch
	}
	if !strings.HasPrefix(ref, "refs/") {
		ref = "refs/heads/" + ref
	}
	// The name before the file is GitHub's own for the repository whose id is asked first.
	file := w.Repository + "/" + workflowFolder + strings.TrimPrefix(run.WorkflowFile, workflowFolder) + "@" + ref
	if repo.GitHubID != w.RepositoryID {
		return idRepository, nil
	}
	owner, err := a.ownerOf(ctx, k)
	switch {
	case err != nil:
		return "", err
	case owner != w.OwnerID:
		return idOwner, nil
	case w.Event != "workflow_dispatch":
		return idEvent, nil
	case w.Ref != ref:
		return idRef, nil
	case w.WorkflowRef != file:
		return idWorkflow, nil
	case w.JobWorkflowRef != "" && w.JobWorkflowRef != file: // a workflow that is called from ours, with its own steps
		return idJobWorkflow, nil
	case p.req.WorkflowRunID != w.RunID, p.req.WorkflowRunAttempt != w.RunAttempt:
		return idRequest, nil
	}
	why, err := a.otherWorkflowRun(ctx, k, w)
	if why != "" || err != nil {
		return why, err
	}
	bot, err := a.github.Bot(ctx, repo, run, w.RunID)
	switch errand.CodeOf(err) {
	case "":
	case errand.CodeNotFound:
		return idRun, nil
	case errand.CodeForbidden:
		return idActor, nil
	default:
		return "", err
	}
	if bot != w.ActorID {
		return idActor, nil
	}
	return "", nil
}

// ownerOf gives the owner's id, which a repository that was connected long ago does not have: then GitHub is asked.
func (a *API) ownerOf(ctx context.Context, k *known) (int64, error) {
	if k.repo.OwnerID != nil {
		return *k.repo.OwnerID, nil
	}
	owner, private, err := a.github.Owner(ctx, &k.repo)
	if err != nil {
		return 0, err
	}
	k.learn(owner, private, a.clock())
	return owner, nil
}

// otherWorkflowRun tells a workflow run that is not the one that was dispatched. Its id is known from GitHub's answer to the
// dispatch, or from an exchange that was proven. What a ticket's bearer said of it, and a name that fits, prove nothing:
// then the run is fetched, and what GitHub says of it is compared.
func (a *API) otherWorkflowRun(ctx context.Context, k *known, w *runtoken.Workload) (refusal, error) {
	said := k.run.WorkflowRunID
	if said != nil && (k.run.ExchangedAt == nil || provenBefore(k.exchanges)) {
		if *said != w.RunID {
			return idRun, nil
		}
		return "", nil
	}
	got, err := a.github.WorkflowRun(ctx, &k.repo, &k.run, w.RunID)
	switch {
	case errand.CodeOf(err) == errand.CodeNotFound:
		return idRun, nil
	case err != nil:
		return "", err
	case got.Path != workflowFolder+strings.TrimPrefix(k.run.WorkflowFile, workflowFolder), got.Event != w.Event, !got.Marked:
		return idRun, nil
	case got.ActorID != w.ActorID:
		return idActor, nil
	}
	return "", nil
}

func provenBefore(rows []store.RunExchange) bool {
	for _, r := range rows {
		if r.Proven {
			return true
		}
	}
	return false
}

// learn keeps GitHub's word on the repository for the transaction to come.
func (k *known) learn(owner int64, private bool, now time.Time) {
	k.repo.OwnerID, k.repo.Private, k.repo.VisibilityAt = &owner, private, &now
}
