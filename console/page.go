package console

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/store"
)

// frame is what stands around the content of every page.
type frame struct {
	Title      string // of the window; the page's own heading is the page's
	Section    string // which entry of the navigation is current
	Stylesheet string
	Mark       string
	Version    string
	Now        time.Time
	SignedIn   bool
	Org        string
	OrgMode    string // active, observe, paused
	Person     string
	Notice     string // what the last action did
	Refusal    refusal
	Identity   access.Identity
}

func (c *Console) bareFrame(title string) frame {
	return frame{Title: title, Stylesheet: c.assets.stylesheet, Mark: c.assets.mark, Version: c.version, Now: c.clock().UTC()}
}

// read runs fn in a transaction of the signed-in person's organisation and gives it the frame for its page. The
// organisation comes from the session and from nowhere else.
func (c *Console) read(ec echo.Context, title, section string, fn func(context.Context, *store.Tx, *frame) error) (frame, error) {
	ctx := ec.Request().Context()
	id := access.From(ctx)
	f := c.bareFrame(title)
	f.Section, f.SignedIn, f.Identity = section, true, id
	f.Notice, f.Refusal = notices[ec.QueryParam("notice")], c.takeRefusal(ec)
	err := c.store.InTx(ctx, id.Org, func(tx *store.Tx) error {
		if err := f.introduce(ctx, tx); err != nil {
			return err
		}
		return fn(ctx, tx, &f)
	})
	return f, err
}

// introduce names the organisation and the person.
func (f *frame) introduce(ctx context.Context, tx *store.Tx) error {
	org, err := tx.GetOrganisation(ctx)
	if err != nil {
		return err
	}
	person, err := tx.GetMember(ctx, f.Identity.Person)
	if err != nil {
		return err
	}
	f.Org, f.OrgMode, f.Person = org.Name, org.Mode, person.Name
	return nil
}

// errorFrame is the frame of an error page. Who is signed in keeps the way to every other page, also where no page stands and no
// guard has asked who it is. It waits for the database no longer than errorPatience: that may be what is wrong.
func (c *Console) errorFrame(ec echo.Context, title string) frame {
	f := c.bareFrame(title)
	ctx, cancel := context.WithTimeout(ec.Request().Context(), errorPatience)
	defer cancel()
	if f.Identity = access.From(ctx); f.Identity == (access.Identity{}) {
		f.Identity, _ = c.access.Session(ctx, c.access.Cookie(ec)) // nobody, when it cannot be told
	}
	if f.SignedIn = f.Identity != (access.Identity{}); f.SignedIn {
		_ = c.store.InTx(ctx, f.Identity.Org, func(tx *store.Tx) error { return f.introduce(ctx, tx) }) // the navigation does without
	}
	return f
}

const errorPatience = 2 * time.Second

// notices is the closed list of what a page can say about the action that led to it, so that a link cannot put words
// into the console's mouth.
var notices = map[string]string{
	"run_asked":              "A run was asked for. It appears below as soon as it is created; the decision ledger says why if it is not.",
	"app_made":               "The GitHub App is made. Install it where your code is.",
	"installation_connected": "The installation is connected, and its repositories are known.",
	"install_asked":          "An owner of that account was asked to install the App. Connect it here when that is done.",

	"cancel_asked": "The run was cancelled. GitHub is asked to stop its workflow as well.",
}

// render writes a page whole or not at all: a fault in the middle of it becomes an error page and not half a page.
func (c *Console) render(ec echo.Context, status int, page templ.Component) error {
	var b bytes.Buffer
	if err := page.Render(ec.Request().Context(), &b); err != nil {
		return errand.Errorf(errand.CodeInternal, err, "the page could not be made")
	}
	return ec.HTMLBlob(status, b.Bytes())
}

// pathID reads the id in the path. For a page an id of a wrong form is simply not there.
func pathID(ec echo.Context, what string) (errand.ID, error) {
	id, err := errand.ParseID(ec.Param("id"))
	if err != nil {
		return "", errand.NotFound(what)
	}
	return id, nil
}

// cursor is a place in a list ordered by time, newest first, then by id: "<microseconds>.<id>".
type cursor struct {
	before time.Time
	id     errand.ID
}

const (
	pageRows   = 50
	cursorName = "after"
)

// start lies after everything there is.
var start = cursor{before: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), id: "ffffffff-ffff-ffff-ffff-ffffffffffff"}

func readCursor(ec echo.Context) (cursor, error) {
	s := ec.QueryParam(cursorName)
	if s == "" {
		return start, nil
	}
	micros, rest, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(micros, 10, 64)
	id, idErr := errand.ParseID(rest)
	if err != nil || idErr != nil || n < 0 || n > start.before.UnixMicro() {
		return cursor{}, errand.Invalid(cursorName, "not a place in this list: follow the list's own links")
	}
	return cursor{before: time.UnixMicro(n).UTC(), id: id}, nil
}

func (c cursor) String() string {
	return strconv.FormatInt(c.before.UnixMicro(), 10) + "." + string(c.id)
}

// Problem is an error as a page shows it.
type Problem struct {
	Status int
	Title  string // "Not Found"
	Detail string // what was wrong, for the person who asked
	Hint   string // what to do; may be empty
}

// ErrorHandler answers with a page where the client asks for one, and leaves everything else to next. explain is the one
// mapping from errors to statuses (server.ToProblem).
func (c *Console) ErrorHandler(explain func(error) Problem, next echo.HTTPErrorHandler) echo.HTTPErrorHandler {
	return func(err error, ec echo.Context) {
		r := ec.Request()
		if ec.Response().Committed || r.Method == http.MethodHead || !strings.Contains(r.Header.Get("Accept"), "text/html") {
			next(err, ec)
			return
		}
		p := explain(err)
		if p.Status >= http.StatusInternalServerError {
			c.log.ErrorContext(r.Context(), "page failed", "error", err.Error(), "path", ec.Path())
		}
		if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
			ec.Response().Header().Set("Retry-After", "5")
		}
		setHeaders(ec.Response().Header())
		f := c.errorFrame(ec, p.Title)
		if err := c.render(ec, p.Status, errorPage(f, p)); err != nil {
			next(err, ec)
		}
	}
}
