package dispatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/store"
)

const (
	// checkEvery is how often GitHub is asked about an installation although nothing says that something changed.
	checkEvery = 24 * time.Hour
	// checkHolds is how long its answer counts. After that what was granted is unknown, and asked before the next dispatch.
	checkHolds = 2 * checkEvery
	// checkAgain is the least pause after GitHub could not be asked.
	checkAgain = 10 * time.Minute
	// checkWithin bounds the question that stands before a dispatch, so that it leaves time for the call itself.
	checkWithin = 10 * time.Second
)

// refreshInstallation asks GitHub for the truth about an installation: what it was granted, whether it is suspended, which
// repositories it reaches. A webhook is only the reason to ask, so that its order does not matter. What cannot be asked
// changes nothing.
func (d *Dispatch) refreshInstallation(ctx context.Context, args errand.RefreshInstallation) (again time.Duration, err error) {
	c, err := d.check(ctx, args.Org, args.Installation)
	if err != nil || c.Suspended { // a suspended one lists nothing
		return 0, d.checkLater(ctx, args, err)
	}
	reached, err := d.github.Repositories(ctx, args.Installation)
	if err != nil {
		return 0, d.checkLater(ctx, args, err)
	}
	return 0, d.store.InTx(ctx, args.Org, func(tx *store.Tx) error {
		_, err := d.syncRepositories(ctx, tx, args.Installation, reached)
		return err
	})
}

// check asks GitHub about the installation and writes down what it says: that it is gone, too.
func (d *Dispatch) check(ctx context.Context, org errand.ID, installation int64) (github.InstallationCheck, error) {
	c, err := d.github.CheckInstallation(ctx, installation)
	var e *github.Error
	switch {
	case errors.As(err, &e) && e.Outcome == github.Deleted:
		return c, errors.Join(err, d.store.InTx(ctx, org, func(tx *store.Tx) error {
			_, err := tx.GitHubUninstalled(ctx, d.clock(), installation)
			return err
		}))
	case err != nil:
		return c, err
	}
	err = d.store.InTx(ctx, org, func(tx *store.Tx) error { return d.checked(ctx, tx, &c) })
	log := d.log.With("org", org, "installation", installation, "permissions", c.Verdict.String(), "suspended", c.Suspended)
	if c.Verdict == errand.Fail {
		log.WarnContext(ctx, "an installation grants other than what Errand may hold", "extra", c.Extra, "missing", c.Missing)
	} else {
		log.DebugContext(ctx, "installation checked")
	}
	return c, err
}

func (d *Dispatch) checked(ctx context.Context, tx *store.Tx, c *github.InstallationCheck) error {
	now := d.clock()
	var suspended *time.Time
	if c.Suspended {
		suspended = &now
		if !c.SuspendedAt.IsZero() {
			suspended = &c.SuspendedAt
		}
	}
	_, err := tx.GitHubChecked(ctx, store.GitHubCheckedParams{
		ID: c.ID, Account: c.Account, Permissions: c.Verdict.String(), PermissionsExtra: orEmpty(c.Extra), PermissionsMissing: orEmpty(c.Missing),
		SuspendedAt: suspended, CheckedAt: now, CheckAt: now.Add(checkEvery),
	})
	return err
}

func orEmpty(s []string) []string { return append([]string{}, s...) }

// checkLater settles a question that GitHub did not answer: it is put again later, and what was known stays. cause is nil
// when there was no question.
func (d *Dispatch) checkLater(ctx context.Context, args errand.RefreshInstallation, cause error) error {
	var e *github.Error
	switch {
	case cause == nil:
		return nil
	case !errors.As(cause, &e):
		return cause
	case e.Outcome == github.Deleted:
		return nil
	}
	d.log.WarnContext(ctx, "GitHub could not be asked about an installation", "org", args.Org, "installation", args.Installation, "outcome", e.Outcome, "error", cause)
	return d.store.InTx(ctx, args.Org, func(tx *store.Tx) error {
		_, err := tx.GitHubCheckAt(ctx, d.clock().Add(max(checkAgain, e.RetryAfter)), args.Installation)
		return err
	})
}

// permitted tells whether the run's installation grants exactly what Errand may hold. What is not known, or known for too
// long, is asked. The answer has the form of a dispatch's; its outcome is Accepted when the dispatch may be made.
func (d *Dispatch) permitted(ctx context.Context, j *job) github.Dispatched {
	in := &j.installation
	known := in.CheckedAt != nil && d.clock().Before(in.CheckedAt.Add(checkHolds))
	if known && d.allows(in.Permissions, in.PermissionsMissing) {
		return github.Dispatched{Outcome: github.Accepted}
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	c, err := d.check(ctx, j.org, in.ID)
	var e *github.Error
	switch {
	case errors.As(err, &e):
		return github.Dispatched{Outcome: e.Outcome, RetryAfter: e.RetryAfter, Message: e.Message, Status: e.Status}
	case err != nil:
		return github.Dispatched{Outcome: github.Unreachable, RetryAfter: askAgain, Message: "what the installation grants could not be looked up"}
	case c.Suspended:
		return github.Dispatched{Outcome: github.Suspended, Message: "the installation is suspended"}
	case d.allows(c.Verdict.String(), c.Missing):
		return github.Dispatched{Outcome: github.Accepted}
	case len(c.Missing) > 0:
		return github.Dispatched{Outcome: github.NotPermitted, Message: "the installation does not grant " + strings.Join(c.Missing, ", ")}
	case len(c.Extra) > 0:
		return github.Dispatched{Outcome: github.OverGranted, Message: "the installation grants " + strings.Join(c.Extra, ", ")}
	default:
		return github.Dispatched{Outcome: github.Forbidden, RetryAfter: askAgain, Message: "GitHub does not say what the installation grants"}
	}
}

// allows tells whether a verdict on permissions lets dispatch. Unknown never does; more than Errand may hold does where the
// operator said so, and less never.
func (d *Dispatch) allows(verdict string, missing []string) bool {
	return verdict == errand.Pass.String() || verdict == errand.Fail.String() && len(missing) == 0 && d.allowExtra
}

// mark writes down what a refusal says of the repository or its installation, so that the next decision knows it before
// anything is started. Only an explicit word marks; GitHub's next answer takes it back (refreshInstallation).
func (d *Dispatch) mark(ctx context.Context, j *job, o github.Outcome) {
	now, repo, in := d.clock(), j.repo.ID, j.repo.InstallationID
	err := d.store.InTx(ctx, j.org, func(tx *store.Tx) (err error) {
		switch o {
		case github.Archived:
			_, err = tx.GitHubArchived(ctx, repo)
		case github.Gone:
			_, err = tx.GitHubGone(ctx, now, repo)
		case github.BlockedLegal:
			_, err = tx.GitHubBlocked(ctx, now, repo)
		case github.Suspended:
			_, err = tx.GitHubSuspended(ctx, now, in)
		case github.Deleted:
			_, err = tx.GitHubUninstalled(ctx, now, in)
		case github.NotPermitted, github.OverGranted:
			_, err = tx.GitHubForgetPermissions(ctx, now, in)
		default:
		}
		return err
	})
	if err != nil {
		d.log.ErrorContext(ctx, "what GitHub said of a repository could not be written down", "org", j.org, "run", j.run.ID, "outcome", o, "error", err)
	}
}

// Connect binds a GitHub installation to the organisation and brings the repositories that it reaches up to date, by their
// numeric ids: new ones are added, renamed ones renamed, those out of reach marked as gone. It gives those within reach.
// It returns Conflict for an installation that belongs to another organisation. That the caller may bind it is for the
// caller to know: an operator may, a visitor must have proven it to GitHub (SetUp.Bind).
func (d *Dispatch) Connect(ctx context.Context, org errand.ID, installation int64) ([]store.Repository, error) {
	c, err := d.github.CheckInstallation(ctx, installation)
	if err != nil {
		return nil, errand.Errorf(errand.CodeUnavailable, err, "the installation %d could not be looked up at GitHub: %s", installation, said(err))
	}
	var reached []github.Repo
	if !c.Suspended {
		if reached, err = d.github.Repositories(ctx, installation); err != nil {
			return nil, errand.Errorf(errand.CodeUnavailable, err, "the repositories of the installation %d could not be listed: %s", installation, said(err))
		}
	}
	owner, err := d.store.LookupInstallation(ctx, installation)
	switch {
	case errand.CodeOf(err) == errand.CodeNotFound:
	case err != nil:
		return nil, err
	case owner != org:
		return nil, errand.Conflict("the installation %d is bound to another organisation", installation)
	}
	var within []store.Repository
	err = d.store.InTx(ctx, org, func(tx *store.Tx) error {
		if owner == "" {
			if err := tx.BindInstallation(ctx, installation, c.Account, d.clock()); err != nil {
				return err
			}
		}
		if err := d.checked(ctx, tx, &c); err != nil || c.Suspended {
			return err
		}
		within, err = d.syncRepositories(ctx, tx, installation, reached)
		return err
	})
	return within, err
}

// syncRepositories brings the organisation's rows to what the installation reaches. reached is GitHub's whole list.
func (d *Dispatch) syncRepositories(ctx context.Context, tx *store.Tx, installation int64, reached []github.Repo) ([]store.Repository, error) {
	now := d.clock()
	known, err := tx.ListRepositories(ctx)
	if err != nil {
		return nil, err
	}
	byNumber := map[int64]store.Repository{}
	for _, k := range known {
		byNumber[k.GitHubID] = k
	}
	seen := map[int64]bool{}
	for _, r := range reached {
		seen[r.ID] = true
		k, ok := byNumber[r.ID]
		if !ok {
			err = tx.AddRepository(ctx, store.AddRepositoryParams{
				ID: errand.NewID(now), InstallationID: installation, GitHubID: r.ID, Owner: r.Owner, OwnerID: known64(r.OwnerID), Name: r.Name,
				DefaultBranch: r.DefaultBranch, Archived: r.Archived, Private: r.Private, CreatedAt: now,
			})
		} else {
			err = d.reached(ctx, tx, installation, &k, r)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, k := range known {
		if k.InstallationID == installation && !seen[k.GitHubID] && k.GoneAt == nil {
			if _, err := tx.GitHubGone(ctx, now, k.ID); err != nil {
				return nil, err
			}
		}
	}
	all, err := tx.ListRepositories(ctx)
	return slices.DeleteFunc(all, func(r store.Repository) bool { return r.InstallationID != installation || r.GoneAt != nil }), err
}

// reached brings a known repository to what GitHub says of it. One that was transferred comes with another installation of
// the same organisation.
func (d *Dispatch) reached(ctx context.Context, tx *store.Tx, installation int64, k *store.Repository, r github.Repo) error {
	_, err := tx.RenameRepository(ctx, store.RenameRepositoryParams{ID: k.ID, Owner: r.Owner, Name: r.Name, DefaultBranch: cmp.Or(r.DefaultBranch, k.DefaultBranch)})
	if err != nil {
		return err
	}
	if _, err = tx.GitHubReached(ctx, store.GitHubReachedParams{ID: k.ID, InstallationID: installation, Archived: r.Archived, Private: r.Private}); err != nil {
		return err
	}
	_, err = tx.SetRepositoryFacts(ctx, store.SetRepositoryFactsParams{ID: k.ID, OwnerID: known64(r.OwnerID), Private: r.Private, VisibilityAt: d.clock()})
	return err
}

// known64 is nil for an id that GitHub did not say.
func known64(id int64) *int64 {
	if id == 0 {
		return nil
	}
	return &id
}
