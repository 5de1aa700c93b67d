package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/store"
)

// SetUp is how a person makes the deployment's GitHub App and connects installations. The feature behind it decides who may,
// and believes nothing that an address carries but what it signed for this session, and what GitHub says.
type SetUp interface {
	Status(ctx context.Context, v Visitor) (AppStatus, error)
	Begin(ctx context.Context, v Visitor, account string) (action, manifest string, err error)
	Create(ctx context.Context, v Visitor, code, state string) error
	// Install gives GitHub's address where it goes on; "" = the person did not begin here and must confirm. Installation 0
	// begins one.
	Install(ctx context.Context, v Visitor, installation int64, state string, confirmed bool) (string, error)
	Bind(ctx context.Context, v Visitor, code, state string) (repositories int, err error)
}

// Visitor is the signed-in person, with the session's cookie.
type Visitor struct {
	Org, Person errand.ID
	Session     string
}

// AppStatus is how the GitHub App stands.
type AppStatus struct {
	FromEnvironment bool
	Made            bool
	Name, PageURL   string
	Webhooks        bool
	MayMake         bool
	GitHub          string // its address for people
}

func (c *Console) setUpRoutes() []route {
	if c.setUp == nil {
		return nil
	}
	return []route{
		{http.MethodGet, "/setup/github", access.SetUpGitHub, c.setUpPage},
		{http.MethodPost, "/setup/github/manifest", access.SetUpGitHub, c.setUpManifest},
		{http.MethodGet, "/setup/github/created", access.SetUpGitHub, c.setUpCreated},
		{http.MethodPost, "/setup/github/install", access.SetUpGitHub, c.setUpInstall},
		{http.MethodGet, "/setup/github/installed", access.SetUpGitHub, c.setUpInstalled},
		{http.MethodGet, "/setup/github/authorised", access.SetUpGitHub, c.setUpAuthorised},
	}
}

func (c *Console) visitor(ec echo.Context) Visitor {
	id := access.From(ec.Request().Context())
	return Visitor{Org: id.Org, Person: id.Person, Session: c.access.Cookie(ec)}
}

type setUpView struct {
	frame
	App           AppStatus
	Installations []store.Installation
	// Action and Manifest are the form that GitHub takes; "" on the page before it.
	Action, Manifest string
	// Confirm is an installation that somebody's link named.
	Confirm int64
}

func (c *Console) setUpShow(ec echo.Context, fill func(*setUpView) error) error {
	var v setUpView
	var err error
	v.frame, err = c.read(ec, "GitHub", "setup", func(ctx context.Context, tx *store.Tx, _ *frame) error {
		v.Installations, err = tx.DispatchInstallations(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if v.App, err = c.setUp.Status(ec.Request().Context(), c.visitor(ec)); err != nil {
		return err
	}
	if fill != nil {
		if err := fill(&v); err != nil {
			return err
		}
	}
	return c.render(ec, http.StatusOK, setUpPageView(v))
}

func (c *Console) setUpPage(ec echo.Context) error { return c.setUpShow(ec, nil) }

// setUpManifest shows the button that sends the manifest to GitHub. That form alone may leave for GitHub.
func (c *Console) setUpManifest(ec echo.Context) error {
	return c.setUpShow(ec, func(v *setUpView) (err error) {
		if v.Action, v.Manifest, err = c.setUp.Begin(ec.Request().Context(), c.visitor(ec), ec.FormValue("account")); err != nil {
			return err
		}
		to, err := url.Parse(v.Action)
		if err != nil {
			return errand.Errorf(errand.CodeInternal, err, "GitHub's address cannot be read")
		}
		ec.Response().Header().Set("Content-Security-Policy", contentPolicyFor(to.Scheme+"://"+to.Host))
		return nil
	})
}

// contentPolicyFor is contentPolicy with one more place that a form may go to.
func contentPolicyFor(form string) string {
	return "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self' " + form + "; frame-ancestors 'none'; base-uri 'none'"
}

func (c *Console) setUpCreated(ec echo.Context) error {
	if err := c.setUp.Create(ec.Request().Context(), c.visitor(ec), ec.QueryParam("code"), ec.QueryParam("state")); err != nil {
		return err
	}
	return ec.Redirect(http.StatusSeeOther, "/setup/github?notice=app_made")
}

// setUpInstall goes to GitHub: to install the App, or to confirm an installation that a link named.
func (c *Console) setUpInstall(ec echo.Context) error {
	installation, err := installationID(ec.FormValue("installation_id"), true)
	if err != nil {
		return err
	}
	to, err := c.setUp.Install(ec.Request().Context(), c.visitor(ec), installation, "", true)
	if err != nil {
		return err
	}
	return c.render(ec, http.StatusOK, leavingView(c.bareFrame("GitHub"), to))
}

// setUpInstalled is where GitHub sends a person after an installation. The number in the address proves nothing: it only says
// what to ask GitHub about.
func (c *Console) setUpInstalled(ec echo.Context) error {
	if ec.QueryParam("setup_action") == "request" {
		return ec.Redirect(http.StatusSeeOther, "/setup/github?notice=install_asked")
	}
	installation, err := installationID(ec.QueryParam("installation_id"), false)
	if err != nil {
		return err
	}
	to, err := c.setUp.Install(ec.Request().Context(), c.visitor(ec), installation, ec.QueryParam("state"), false)
	switch {
	case err != nil:
		return err
	case to == "":
		return c.setUpShow(ec, func(v *setUpView) error {
			v.Confirm = installation
			return nil
		})
	default:
		return ec.Redirect(http.StatusSeeOther, to)
	}
}

func (c *Console) setUpAuthorised(ec echo.Context) error {
	if ec.QueryParam("error") != "" {
		return &errand.Error{Code: errand.CodeForbidden, Message: "GitHub was not allowed to say who you are, so nothing was connected", Hint: "begin again from the set-up page"}
	}
	if _, err := c.setUp.Bind(ec.Request().Context(), c.visitor(ec), ec.QueryParam("code"), ec.QueryParam("state")); err != nil {
		return err
	}
	return ec.Redirect(http.StatusSeeOther, "/setup/github?notice=installation_connected")
}

func installationID(s string, none bool) (int64, error) {
	if s == "" && none {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, errand.Invalid("installation_id", "it is not the number of an installation")
	}
	return n, nil
}

// permissionsLabel says what an installation grants.
func permissionsLabel(in store.Installation) label {
	switch {
	case in.DeletedAt != nil:
		return label{"Uninstalled", toneOff}
	case in.SuspendedAt != nil:
		return label{"Suspended", toneWarn}
	case in.Permissions == errand.Pass.String():
		return label{"Exactly what it needs", toneGood}
	case in.Permissions == errand.Fail.String() && len(in.PermissionsMissing) > 0:
		return label{"Permissions are missing", toneBad}
	case in.Permissions == errand.Fail.String():
		return label{"Grants too much", toneBad}
	default:
		return label{"Not asked yet", toneWait}
	}
}
