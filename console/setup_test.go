package console_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/console"
)

// setUp stands for the feature: it believes the state "ours", and notes what it was asked.
type setUp struct {
	mu     sync.Mutex
	status console.AppStatus
	asked  []string
	seen   console.Visitor
}

func (s *setUp) note(what string, v console.Visitor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.seen = append(s.asked, what), v
}

func (s *setUp) Status(context.Context, console.Visitor) (console.AppStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, nil
}

func (s *setUp) Begin(_ context.Context, v console.Visitor, account string) (action, manifest string, err error) {
	s.note("begin "+account, v)
	return "https://github.example/settings/apps/new?state=x", `{"name":"<Errand>"}`, nil
}

func (s *setUp) Create(_ context.Context, v console.Visitor, code, state string) error {
	s.note("create "+code, v)
	return believed(state)
}

func (s *setUp) Install(_ context.Context, v console.Visitor, installation int64, state string, confirmed bool) (string, error) {
	s.note("install", v)
	if installation != 0 && !confirmed && believed(state) != nil {
		return "", nil
	}
	return "https://github.example/go", nil
}

func (s *setUp) Bind(_ context.Context, v console.Visitor, code, state string) (int, error) {
	s.note("bind "+code, v)
	return 1, believed(state)
}

func believed(state string) error {
	if state != "ours" {
		return &errand.Error{Code: errand.CodeForbidden, Message: "not begun here"}
	}
	return nil
}

func TestTheWayThroughGitHub(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.setUp.status = console.AppStatus{MayMake: true, GitHub: "https://github.example"}
	b := w.as(w.a.org, access.Owner)
	if a := b.get("/setup/github"); a.StatusCode != http.StatusOK || !strings.Contains(a.body, "Make the GitHub App") {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	a := b.post("/setup/github/manifest", url.Values{"account": {"acme"}})
	if policy := a.Header.Get("Content-Security-Policy"); a.StatusCode != http.StatusOK || !strings.Contains(policy, "form-action 'self' https://github.example;") ||
		!strings.Contains(a.body, `action="https://github.example/settings/apps/new?state=x"`) || strings.Contains(a.body, "<Errand>") {
		t.Errorf("%d %q %s", a.StatusCode, policy, a.body)
	}
	if policy := b.get("/setup/github").Header.Get("Content-Security-Policy"); strings.Contains(policy, "github.example") {
		t.Errorf("every page's forms may leave: %q", policy)
	}
	for _, tt := range []struct {
		says, path string
		status     int
		to         string
	}{
		{"a new App, by our own way", "/setup/github/created?code=c&state=ours", 303, "/setup/github?notice=app_made"},
		{"a new App, by somebody's link", "/setup/github/created?code=c&state=x", 403, ""},
		{"an installation, by our own way", "/setup/github/installed?installation_id=5&state=ours", 303, "https://github.example/go"},
		{"an installation, by somebody's link", "/setup/github/installed?installation_id=5", 200, ""},
		{"an installation that was asked for", "/setup/github/installed?setup_action=request", 303, "/setup/github?notice=install_asked"},
		{"no installation", "/setup/github/installed?installation_id=x", 422, ""},
		{"back from GitHub", "/setup/github/authorised?code=c&state=ours", 303, "/setup/github?notice=installation_connected"},
		{"back from GitHub with somebody's state", "/setup/github/authorised?code=c&state=x", 403, ""},
		{"back from GitHub with a no", "/setup/github/authorised?error=access_denied&state=ours", 403, ""},
	} {
		if a := b.get(tt.path); a.StatusCode != tt.status || a.Header.Get("Location") != tt.to {
			t.Errorf("%s: %d to %q", tt.says, a.StatusCode, a.Header.Get("Location"))
		}
	}
	if w.setUp.seen.Org != w.a.org || w.setUp.seen.Session == "" || w.setUp.seen.Person == "" {
		t.Errorf("asked as %+v", w.setUp.seen)
	}
	w.setUp.asked = nil
	for _, role := range []access.Role{access.Admin, access.Member, access.Viewer} {
		m := w.as(w.a.org, role)
		if a := m.get("/setup/github/authorised?code=c&state=ours"); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", role, a.StatusCode)
		}
	}
	if len(w.setUp.asked) != 0 {
		t.Errorf("asked for them: %v", w.setUp.asked)
	}
}
