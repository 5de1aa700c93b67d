package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand/webhooks"
)

// The commands of sources and mappings, one after the other as an operator would type them.
func TestAdminKeepsSourcesAndMappings(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	wrong := func(want string, args ...string) {
		t.Helper()
		if _, stderr, code := runErrand(t, h.env, append([]string{"admin"}, args...)...); code != 1 || !strings.HasPrefix(stderr, "errand: ") || !strings.Contains(stderr, want) {
			t.Errorf("admin %v: %d %s, want %q", args, code, stderr, want)
		}
	}
	list := func() (lines []sourceLine) {
		t.Helper()
		if err := json.Unmarshal([]byte(h.admin("source", "list", "--json")), &lines); err != nil {
			t.Fatal(err)
		}
		return lines
	}
	deliver := func(secret string) int {
		t.Helper()
		status, answer, err := postSentry(t.Context(), h.hook, secret, h.crash())
		if err != nil {
			t.Fatal(answer, err)
		}
		return status
	}

	if got := list(); len(got) != 1 || got[0].Name != "Sentry" || got[0].DisabledAt != nil || !strings.HasSuffix(h.hook, got[0].Path) {
		t.Errorf("listed: %+v", got)
	}
	if text := h.admin("source", "list"); !strings.Contains(text, "Sentry") || !strings.Contains(text, "never") || strings.Contains(text, h.secret) {
		t.Errorf("listed: %s", text)
	}
	wrong("is called \"Sentry\" already", "source", "add", "--kind", "generic", "--name", "sentry")
	wrong("--kind: ", "source", "add", "--kind", "bugsnag", "--name", "x")
	wrong("--secret-file: ", "source", "add", "--kind", "sentry", "--name", "x")
	for _, kind := range []string{"posthog", "posthog_header", "generic"} {
		if out := h.admin("source", "add", "--kind", kind, "--name", "Our "+kind); !strings.Contains(out, "secret (shown this once): ") {
			t.Errorf("%s: %s", kind, out)
		}
	}
	wrong("there are \"Our generic\", \"Our posthog\", \"Our posthog_header\", \"Sentry\"", "source", "disable", "Sentri")

	h.admin("source", "disable", "Sentry")
	if s := list(); s[len(s)-1].DisabledAt == nil || deliver(h.secret) != http.StatusNotFound {
		t.Errorf("disabled: %+v", s)
	}
	h.admin("source", "enable", string(list()[3].ID))
	if deliver(h.secret) != http.StatusAccepted {
		t.Error("an enabled source takes nothing")
	}

	other := strings.Repeat("decade", 8)
	file := filepath.Join(h.dir, "other-secret")
	if err := os.WriteFile(file, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	h.admin("source", "rotate", "Sentry", "--secret-file", file)
	if a, b := deliver(h.secret), deliver(other); a != http.StatusAccepted || b != http.StatusAccepted {
		t.Errorf("after a rotation the secret before is answered %d, the new one %d", a, b)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("facade", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	h.admin("source", "rotate", "Sentry", "--secret-file", file, "--leaked")
	if a, b := deliver(other), deliver(strings.Repeat("facade", 8)); a != http.StatusUnauthorized || b != http.StatusAccepted {
		t.Errorf("after a leak the secret before is answered %d, the new one %d", a, b)
	}

	wrong("there is no rule 7", "mapping", "remove", "7")
	wrong("choose one of "+demoOwner+"/"+demoRepo, "mapping", "add", "--repository", "octo/none", "--stack-root", "/app")
	h.admin("mapping", "remove", "1")
	if out, stderr, code := runErrand(t, h.env, "admin", "mapping", "list"); code != 0 || out != "" || !strings.HasPrefix(stderr, "There is no rule yet") {
		t.Errorf("no rule: %d %q %q", code, out, stderr)
	}
}

func TestNotOneSaysWhatToTypeInstead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 9, 14, 0, 0, 0, 0, time.UTC)
	two := []webhooks.SourceState{{ID: "a", Kind: "sentry", Name: "x", CreatedAt: now}, {ID: "b", Kind: "generic", Name: "x", CreatedAt: now}}
	for want, err := range map[string]error{
		"by its id: a (sentry, since 2026-09-14), b (generic, since 2026-09-14)": notOne("x", two, two),
		"nor any other source":           notOne("x", nil, nil),
		`there is no "y"; there are "x"`: notOne("y", two, nil),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestWhereNothingIsConnectedTheListIsNotShown(t *testing.T) {
	t.Parallel()
	err := notConnected("octo/shop", nil)
	if strings.Contains(err.Error(), "connected:") || !strings.Contains(err.Error(), "nor is any other") {
		t.Error(err)
	}
}
