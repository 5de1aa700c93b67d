package github

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/errand-dev/errand"
)

// Permissions is exactly what Errand's App holds. A copy: the caller may change it.
func Permissions() map[string]string {
	return map[string]string{"actions": "write", "metadata": "read"}
}

// CheckPermissions holds what GitHub says was granted against exactly Permissions: pass when equal, fail when anything is
// extra or missing, unknown when GitHub said nothing. Entries read "contents: read".
func CheckPermissions(granted map[string]string) (verdict errand.Verdict, extra, missing []string) {
	if len(granted) == 0 {
		return errand.Unknown, nil, nil
	}
	return compare(granted, Permissions())
}

// levels in rising order; one that GitHub invents later is above all of them.
func level(s string) int {
	switch s {
	case "", "none":
		return 0
	case "read":
		return 1
	case "write":
		return 2
	default:
		return 3
	}
}

func compare(granted, want map[string]string) (verdict errand.Verdict, extra, missing []string) {
	for name, l := range granted {
		if level(l) > level(want[name]) {
			extra = append(extra, name+": "+l)
		}
	}
	for name, l := range want {
		if level(granted[name]) < level(l) {
			missing = append(missing, name+": "+l)
		}
	}
	slices.Sort(extra)
	slices.Sort(missing)
	if len(extra)+len(missing) > 0 {
		return errand.Fail, extra, missing
	}
	return errand.Pass, nil, nil
}

// Installation is an installation of the App, as GitHub tells it to the App.
type Installation struct {
	ID                  int64
	AppID               int64
	Account             string // login of the organisation or person
	AccountID           int64
	Permissions         map[string]string // all of them, also those that this program does not know
	Events              []string
	AllRepositories     bool
	Suspended           bool
	SuspendedAt         time.Time
	RepositorySelection string
}

// Installation asks what the installation was granted and whether it is suspended. A deleted one is an *Error with the
// outcome Deleted.
func (a *App) Installation(ctx context.Context, id int64) (Installation, error) {
	client, err := a.asApp(ctx)
	if err != nil {
		return Installation{}, err
	}
	var got struct {
		ID      int64 `json:"id"`
		AppID   int64 `json:"app_id"`
		Account struct {
			Login string `json:"login"`
			ID    int64  `json:"id"`
		} `json:"account"`
		Permissions         map[string]string `json:"permissions"`
		Events              []string          `json:"events"`
		RepositorySelection string            `json:"repository_selection"`
		SuspendedAt         *time.Time        `json:"suspended_at"`
	}
	path := "app/installations/" + strconv.FormatInt(id, 10)
	if err := a.get(ctx, client, CallInstallation, path, &got); err != nil {
		return Installation{}, err
	}
	in := Installation{
		ID: got.ID, AppID: got.AppID, Account: got.Account.Login, AccountID: got.Account.ID,
		Permissions: got.Permissions, Events: got.Events,
		RepositorySelection: got.RepositorySelection, AllRepositories: got.RepositorySelection == "all",
	}
	if got.SuspendedAt != nil {
		in.Suspended, in.SuspendedAt = true, *got.SuspendedAt
	}
	return in, nil
}

// InstallationCheck is what GitHub says about an installation, held against what Errand may hold.
type InstallationCheck struct {
	Installation
	Verdict errand.Verdict // of its permissions; Unknown when GitHub named none
	Extra   []string       // "contents: read": more than Errand may hold
	Missing []string
}

// CheckInstallation asks GitHub what the installation was granted and compares it with exactly Permissions. An installation
// that cannot be asked about is an error and no verdict.
func (a *App) CheckInstallation(ctx context.Context, id int64) (InstallationCheck, error) {
	in, err := a.Installation(ctx, id)
	if err != nil {
		return InstallationCheck{}, err
	}
	c := InstallationCheck{Installation: in}
	c.Verdict, c.Extra, c.Missing = CheckPermissions(in.Permissions)
	return c, nil
}

// RepoName is a repository's name today; its id is what lasts.
type RepoName struct{ Owner, Name string }

func (n RepoName) String() string { return n.Owner + "/" + n.Name }

// Repo is what GitHub says about a repository of an installation.
type Repo struct {
	ID            int64
	Owner         string
	OwnerID       int64
	Name          string
	DefaultBranch string
	Private       bool
	Archived      bool
	Disabled      bool
	URL           string
}

// FullName is the repository's name today.
func (r Repo) FullName() RepoName { return RepoName{r.Owner, r.Name} }

type apiRepo struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Owner struct {
		Login string `json:"login"`
		ID    int64  `json:"id"`
	} `json:"owner"`
	DefaultBranch string `json:"default_branch"`
	Private       bool   `json:"private"`
	Archived      bool   `json:"archived"`
	Disabled      bool   `json:"disabled"`
	HTMLURL       string `json:"html_url"`
}

func (r apiRepo) repo() Repo {
	return Repo{
		ID: r.ID, Owner: r.Owner.Login, OwnerID: r.Owner.ID, Name: r.Name, DefaultBranch: r.DefaultBranch,
		Private: r.Private, Archived: r.Archived, Disabled: r.Disabled, URL: r.HTMLURL,
	}
}

// Repository asks for the repository by its numeric id, which survives renames and transfers within the installation. It
// asks for a new token narrowed to that id and takes what the answer says of it; where the answer names none it lists
// what the token can reach. A repository outside the installation is an *Error with the outcome Gone.
func (a *App) Repository(ctx context.Context, installationID, repositoryID int64) (Repo, error) {
	s := scope{installationID, repositoryID}
	if repositoryID <= 0 {
		return Repo{}, errand.Invalid("repository", "a repository is asked for by GitHub's numeric id")
	}
	a.forget(s)
	c, err := a.forScope(ctx, s)
	if err != nil {
		return Repo{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := c.mint(ctx); err != nil {
		return Repo{}, a.failed(ctx, Target{}, Answer{Call: CallToken, Err: err}, err)
	}
	if told := c.repository.Load(); told != nil {
		return *told, nil
	}
	var found *Repo
	_, err = a.repositories(ctx, c, func(r Repo) bool {
		if r.ID == repositoryID {
			found = &r
		}
		return found == nil
	})
	switch {
	case err != nil:
		return Repo{}, err
	case found == nil:
		return Repo{}, &Error{Call: CallRead, Status: http.StatusOK, Finding: Finding{Outcome: Gone, Message: "the repository is not among those of the installation"}}
	}
	return *found, nil
}

// Repositories lists the installation's repositories with a token that can do nothing else. It gives all of them or an
// error, never a part: what is missing from the list is taken for gone.
func (a *App) Repositories(ctx context.Context, installationID int64) ([]Repo, error) {
	c, err := a.forScope(ctx, scope{installation: installationID})
	if err != nil {
		return nil, err
	}
	var all []Repo
	total, err := a.repositories(ctx, c, func(r Repo) bool {
		all = append(all, r)
		return true
	})
	if err == nil && total != len(all) {
		err = &Error{Call: CallRead, Status: http.StatusOK, Finding: Finding{
			Outcome: ServerError, RetryAfter: pauseServer, Message: fmt.Sprintf("the list of repositories changed while it was read, or is too long: %d of %d", len(all), total),
		}}
	}
	return all, err
}

// maxPages bounds every listing: GitHub ends filtered ones at 1,000 entries, and installations hold few thousands.
const maxPages = 100

// repositories goes through the pages until each says stop; total is how many GitHub says there are.
func (a *App) repositories(ctx context.Context, c *scoped, each func(Repo) bool) (total int, err error) {
	for page := 1; page <= maxPages; page++ {
		var got struct {
			Total        int       `json:"total_count"`
			Repositories []apiRepo `json:"repositories"`
		}
		if err := a.get(ctx, c.client, CallRead, "installation/repositories?per_page=100&page="+strconv.Itoa(page), &got); err != nil {
			return total, err
		}
		total = got.Total
		for _, r := range got.Repositories {
			if !each(r.repo()) {
				return total, nil
			}
		}
		if len(got.Repositories) < 100 {
			break
		}
	}
	return total, nil
}
