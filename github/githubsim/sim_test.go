package githubsim_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/github/githubsim"
)

// heldJob starts a workflow and gives its job, which lasts until the test ends.
func heldJob(t *testing.T, edit ...func(*githubsim.Config, *githubsim.Repository)) (*world, githubsim.Job) {
	t.Helper()
	jobs := make(chan githubsim.Job, 1)
	hold := func(c *githubsim.Config, _ *githubsim.Repository) {
		c.Executor = githubsim.ExecutorFunc(func(ctx context.Context, j githubsim.Job) (string, error) {
			jobs <- j
			select {
			case <-ctx.Done():
			case <-j.Stop:
			}
			return "success", nil
		})
	}
	w := setup(t, append(edit, hold)...)
	w.dispatch(t)
	select {
	case j := <-jobs:
		return w, j
	case <-time.After(time.Minute):
		t.Fatal("no job began")
		return nil, githubsim.Job{}
	}
}

// api makes one call with a token, over the wire that checks both sides against GitHub's description.
func (w *world) api(t *testing.T, token, method, path, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.sim.APIURL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := w.wire.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, resp)
}

// raw is api without the description, for calls that it does not have.
func (w *world) raw(t *testing.T, token, method, path, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.sim.APIURL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "token "+token)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, resp)
}

func decode(t *testing.T, resp *http.Response) (int, map[string]any) {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var one map[string]any
	if json.Unmarshal(text, &one) != nil {
		var list []any
		if json.Unmarshal(text, &list) == nil {
			return resp.StatusCode, map[string]any{"list": list}
		}
	}
	return resp.StatusCode, one
}

func appJWT(t *testing.T, edit func(jwt.MapClaims)) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": "1001", "iat": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(5 * time.Minute).Unix()}
	edit(claims)
	text, err := jwt.NewWithClaims(jwt.SigningMethodRS256, claims).SignedString(appKey())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func same(jwt.MapClaims) {}

func TestTheAppSignsInAsGitHubWantsIt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": "1001", "iat": ago(60), "exp": ago(-time.Minute)}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	good := appJWT(t, same)
	for name, tc := range map[string]struct {
		token string
		want  int
		words string
	}{
		"good":            {good, 200, ""},
		"another App":     {appJWT(t, func(c jwt.MapClaims) { c["iss"] = "7" }), 401, "Integration not found"},
		"issued ahead":    {appJWT(t, func(c jwt.MapClaims) { c["iat"] = ago(-time.Minute) }), 401, "('iat')"},
		"no time":         {appJWT(t, func(c jwt.MapClaims) { delete(c, "iat") }), 401, "('iat')"},
		"expired":         {appJWT(t, func(c jwt.MapClaims) { c["exp"] = ago(time.Minute) }), 401, "('exp')"},
		"eleven minutes":  {appJWT(t, func(c jwt.MapClaims) { c["exp"] = ago(-11 * time.Minute) }), 401, "too far in the future"},
		"a changed bit":   {good[:len(good)-4] + "AAAA", 401, "could not be decoded"},
		"algorithm none":  {none, 401, "could not be decoded"},
		"nothing":         {"", 401, "could not be decoded"},
		"a token instead": {"ghs_1_x", 401, "could not be decoded"},
	} {
		status, body := w.api(t, tc.token, "GET", "/app", "")
		if status != tc.want || !strings.Contains(fmt.Sprint(body["message"]), tc.words) && tc.words != "" {
			t.Errorf("%s: %d %v", name, status, body["message"])
		}
	}
}

func TestTokensNeverCarryMoreThanWasGranted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if err := w.sim.AddRepository(t.Context(), githubsim.Repository{ID: 5, Owner: "other", Name: "secret"}); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/app/installations/%d/access_tokens", installationID)
	for name, tc := range map[string]struct {
		body string
		want int
	}{
		"narrowed":                   {fmt.Sprintf(`{"repository_ids":[%d],"permissions":{"metadata":"read","actions":"write"}}`, repositoryID), 201},
		"less":                       {`{"permissions":{"metadata":"read","actions":"read"}}`, 201},
		"contents":                   {`{"permissions":{"contents":"read"}}`, 422},
		"a higher level":             {`{"permissions":{"metadata":"write"}}`, 422},
		"a foreign repository":       {`{"repository_ids":[5]}`, 422},
		"a repository by its name":   {`{"repositories":["shop"]}`, 201},
		"one that does not exist":    {`{"repositories":["nothing"]}`, 422},
		"an unreadable request":      {`{`, 400},
		"everything, by saying none": {``, 201},
	} {
		if status, _ := w.raw(t, "", "POST", path, tc.body); status != 401 {
			t.Errorf("%s: without the App's JWT: %d", name, status)
		}
		req, _ := http.NewRequestWithContext(t.Context(), "POST", w.sim.APIURL()+path, strings.NewReader(tc.body))
		req.Header.Set("Authorization", "Bearer "+appJWT(t, same))
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		status, body := decode(t, resp)
		if status != tc.want {
			t.Errorf("%s: %d %v, want %d", name, status, body["message"], tc.want)
		}
		if token, _ := body["token"].(string); status == 201 && (!strings.HasPrefix(token, "ghs_1001_") || len(token) < 200) {
			t.Errorf("%s: a token of the old form: %d characters", name, len(token))
		}
	}
}

func TestWhatErrandMustNeverCallIsRefusedAndRecorded(t *testing.T) {
	t.Parallel()
	w, job := heldJob(t)
	run := w.sim.Runs()[0].ID
	calls := []string{
		"GET /repos/octo-org/shop/contents/app/cart.py", "GET /repos/octo-org/shop/tarball/main", "POST /repos/octo-org/shop/git/refs",
		"GET /repos/octo-org/shop/git/trees/main", "POST /repos/octo-org/shop/merges", "PUT /repos/octo-org/shop/pulls/1/merge",
		"POST /repos/octo-org/shop/pulls/1/reviews", "PUT /repos/octo-org/shop/actions/workflows/errand.yml/disable",
		"PUT /repos/octo-org/shop/actions/workflows/errand.yml/enable", "GET /repos/octo-org/shop/actions/secrets/public-key",
		"DELETE /installation/token",
	}
	for _, p := range []string{"GET %s/logs", "GET %s/artifacts", "POST %s/rerun", "POST %s/rerun-failed-jobs", "POST %s/approve"} {
		calls = append(calls, fmt.Sprintf(p, fmt.Sprintf("/repos/octo-org/shop/actions/runs/%d", run)))
		calls[len(calls)-1] = strings.Replace(calls[len(calls)-1], "%!", "", 1)
	}
	for i, c := range calls {
		method, path, _ := strings.Cut(c, " ")
		if status, _ := w.raw(t, job.Token, method, path, ""); status != http.StatusForbidden {
			t.Errorf("%s: %d", c, status)
		}
		if v := w.sim.Violations(); len(v) != i+1 || v[i].Caller != "job" || v[i].Why == "" || !strings.HasSuffix(v[i].Path, path) {
			t.Fatalf("%s: violations %+v", c, v)
		}
	}
}

// C18: a token that nobody revokes cannot fail to be revoked. It is good for one repository, and GitHub ends it after an hour.
func TestC18_NoTokenIsRevokedSoThatNoneCanFailToBe(t *testing.T) {
	t.Parallel()
	w := setup(t)
	d := w.dispatch(t)
	if err := w.app.Cancel(t.Context(), w.target, d.RunID); err != nil {
		t.Fatal(err)
	}
	w.noViolations(t)
	for _, r := range w.wire.requests() {
		if strings.HasPrefix(r, "DELETE ") {
			t.Errorf("%s", r)
		}
	}
}

func TestACallThatErrandHasNoUseForIsAViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.sim.APIURL()+"/app/installations", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+appJWT(t, same))
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if v := w.sim.Violations(); resp.StatusCode != http.StatusNotFound || len(v) != 1 || v[0].Caller != "app" {
		t.Errorf("%d, %+v", resp.StatusCode, v)
	}
}

func TestATokenThatWasNotNarrowedIsAViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	path := fmt.Sprintf("/app/installations/%d/access_tokens", installationID)
	for i, body := range []string{"", fmt.Sprintf(`{"repository_ids":[%d]}`, repositoryID), `{"permissions":{"actions":"write","metadata":"read"}}`} {
		_, answer := w.api(t, appJWT(t, same), "POST", path, body)
		if status, _ := w.api(t, answer["token"].(string), "GET", "/repos/octo-org/shop", ""); status != http.StatusForbidden || len(w.sim.Violations()) != i+1 {
			t.Errorf("%q: %d, %d violations", body, status, len(w.sim.Violations()))
		}
	}
}

func TestPullRequestsOfAJob(t *testing.T) {
	t.Parallel()
	w, job := heldJob(t)
	if _, err := w.sim.Commit(t.Context(), repositoryID, "errand/cart-1", "fix", fstest.MapFS{"app/cart.py": {Data: []byte("def total(items):\n    return 0\n")}}); err != nil {
		t.Fatal(err)
	}
	const pulls = "/repos/octo-org/shop/pulls"
	for name, tc := range map[string]struct {
		body, words string
	}{
		"no branch":       {`{"title":"t","head":"errand/none","base":"main"}`, "head"},
		"no base":         {`{"title":"t","head":"errand/cart-1","base":"trunk"}`, "base"},
		"nothing changed": {`{"title":"t","head":"main","base":"main"}`, "No commits between main and main"},
		"no title":        {`{"title":" ","head":"errand/cart-1","base":"main"}`, "title"},
		"a long text":     {`{"title":"t","head":"errand/cart-1","base":"main","body":"` + strings.Repeat("x", 65_537) + `"}`, "body is too long"},
	} {
		if status, body := w.api(t, job.Token, "POST", pulls, tc.body); status != 422 || !strings.Contains(fmt.Sprint(body["errors"]), tc.words) {
			t.Errorf("%s: %d %v", name, status, body)
		}
	}
	const good = `{"title":"Fix the cart","head":"octo-org:errand/cart-1","base":"main","body":"why","draft":true}`
	w.sim.AllowPullRequests(repositoryID, false)
	if status, body := w.api(t, job.Token, "POST", pulls, good); status != 403 || body["message"] != "GitHub Actions is not permitted to create or approve pull requests." {
		t.Errorf("C33: %d %v", status, body)
	}
	w.sim.AllowPullRequests(repositoryID, true)
	status, pr := w.api(t, job.Token, "POST", pulls, good)
	if status != 201 || pr["draft"] != true || pr["changed_files"] != 1.0 || pr["additions"] != 1.0 || pr["commits"] != 1.0 {
		t.Fatalf("%d %v", status, pr)
	}
	if status, body := w.api(t, job.Token, "POST", pulls, good); status != 422 || !strings.Contains(fmt.Sprint(body["errors"]), "already exists for octo-org:errand/cart-1") {
		t.Errorf("a second one: %d %v", status, body)
	}
	if _, list := w.api(t, job.Token, "GET", pulls+"?head=octo-org:errand/cart-1&state=all", ""); len(list["list"].([]any)) != 1 {
		t.Errorf("%v", list)
	}
	if status, body := w.api(t, job.Token, "PATCH", pulls+"/1", `{"state":"closed"}`); status != 200 || body["state"] != "closed" || body["closed_at"] == nil {
		t.Errorf("%d %v", status, body)
	}
	if status, body := w.api(t, job.Token, "GET", pulls+"/1", ""); status != 200 || body["merged"] != false {
		t.Errorf("%d %v", status, body)
	}
	if p := w.sim.PullRequests(); len(p) != 1 || p[0].Head != "errand/cart-1" || p[0].State != "closed" {
		t.Errorf("%+v", p)
	}
	w.noViolations(t)
}

func TestAJobTokenHoldsWhatTheFileDeclaresAndEndsWithItsRun(t *testing.T) {
	t.Parallel()
	w, job := heldJob(t, func(_ *githubsim.Config, r *githubsim.Repository) {
		f := r.Files.(fstest.MapFS)[".github/workflows/errand.yml"]
		f.Data = []byte(strings.Replace(string(f.Data), "  pull-requests: write\n", "", 1))
	})
	if status, _ := w.api(t, job.Token, "GET", "/repos/octo-org/shop/pulls", ""); status != http.StatusForbidden {
		t.Errorf("pull requests without their permission: %d", status)
	}
	if status, _ := w.api(t, job.Token, "GET", "/repos/octo-org/shop", ""); status != http.StatusOK {
		t.Errorf("the repository itself: %d", status)
	}
	if err := w.app.Cancel(t.Context(), w.target, job.RunID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run ends", func() bool { return w.sim.Runs()[0].Status == "completed" })
	if status, _ := w.api(t, job.Token, "GET", "/repos/octo-org/shop", ""); status != http.StatusUnauthorized {
		t.Errorf("after the run: %d", status)
	}
}

// git runs git as a runner would, with the token in a header.
func git(t *testing.T, dir, token string, args ...string) (string, error) {
	t.Helper()
	if token != "" {
		args = append([]string{"-c", "http.extraHeader=" + basic(token)}, args...)
	}
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=o", "GIT_AUTHOR_EMAIL=o@example.com", "GIT_COMMITTER_NAME=o", "GIT_COMMITTER_EMAIL=o@example.com")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func basic(token string) string {
	req := &http.Request{Header: http.Header{}}
	req.SetBasicAuth("x-access-token", token)
	return "Authorization: " + req.Header.Get("Authorization")
}

func TestGitOverHTTP(t *testing.T) {
	t.Parallel()
	w, job := heldJob(t)
	url := w.sim.URL() + "/octo-org/shop.git"
	dir := t.TempDir()
	must := func(args ...string) string {
		t.Helper()
		out, err := git(t, dir, job.Token, args...)
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return out
	}
	commit := func(file, content string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		must("add", "-A")
		must("commit", "-q", "-m", "change "+file)
	}
	refused := func(words string, args ...string) {
		t.Helper()
		if out, err := git(t, dir, job.Token, args...); err == nil || !strings.Contains(out, words) {
			t.Errorf("git %v: %v, want %q in\n%s", args, err, words, out)
		}
	}
	if out, err := git(t, dir, "", "clone", "-q", url, "."); err == nil {
		t.Fatalf("a clone without a token: %s", out)
	}
	must("clone", "-q", url, ".")
	must("checkout", "-q", "-b", "errand/cart-1")
	commit("app/cart.py", "def total(items):\n    return 0\n")
	must("push", "-q", "origin", "errand/cart-1")
	commit("app/big.bin", strings.Repeat("0123456789abcdef", 200_000)) // above http.postBuffer: git sends it in chunks
	must("push", "-q", "origin", "errand/cart-1")
	w.noViolations(t)

	commit(".github/workflows/errand.yml", "on: push\n")
	refused("refusing to allow a GitHub App to create or update workflow `.github/workflows/errand.yml` without `workflows` permission", "push", "-q", "origin", "HEAD:refs/heads/errand/workflow")
	w.noViolations(t)

	must("reset", "-q", "--hard", "HEAD~1")
	refused("GH006", "push", "-q", "origin", "HEAD:main")
	must("commit", "-q", "--amend", "-m", "other")
	refused("force-pushes", "push", "-q", "--force", "origin", "errand/cart-1")
	refused("deletes", "push", "-q", "origin", ":errand/cart-1")
	if v := w.sim.Violations(); len(v) != 3 {
		t.Errorf("violations %+v", v)
	}
}

func TestGitAsksForThePermissionThatTheFileDeclares(t *testing.T) {
	t.Parallel()
	w, job := heldJob(t, func(_ *githubsim.Config, r *githubsim.Repository) {
		f := r.Files.(fstest.MapFS)[".github/workflows/errand.yml"]
		f.Data = []byte(strings.Replace(string(f.Data), "contents: write", "contents: read", 1))
	})
	dir := t.TempDir()
	if out, err := git(t, dir, job.Token, "clone", "-q", w.sim.URL()+"/octo-org/shop.git", "."); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := git(t, dir, job.Token, "push", "-q", "origin", "HEAD:refs/heads/errand/x"); err == nil || !strings.Contains(out, "403") {
		t.Errorf("a push with contents: read: %v\n%s", err, out)
	}
}

func TestASuspendedInstallationsTokenStopsWorkingAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.dispatch(t)
	w.sim.Suspend(installationID, true)
	if d := w.app.Dispatch(t.Context(), w.target, map[string]string{"run": marker}); d.Outcome != github.Suspended || w.wire.count("POST /app/") != 1 {
		t.Errorf("%+v", d)
	}
	w.sim.Suspend(installationID, false)
	w.dispatch(t)
}

func TestTheAppsOwnTokenIsNotForGit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, answer := w.api(t, appJWT(t, same), "POST", fmt.Sprintf("/app/installations/%d/access_tokens", installationID), fmt.Sprintf(`{"repository_ids":[%d],"permissions":{"metadata":"read","actions":"write"}}`, repositoryID))
	if out, err := git(t, t.TempDir(), answer["token"].(string), "clone", "-q", w.sim.URL()+"/octo-org/shop.git", "."); err == nil || len(w.sim.Violations()) == 0 {
		t.Errorf("%v %s, violations %+v", err, out, w.sim.Violations())
	}
}

func TestWebhooksAreSignedAndTellTheLifeOfARun(t *testing.T) {
	t.Parallel()
	type delivery struct {
		event, action string
		body          map[string]any
	}
	secret := []byte("It's a Secret to Everybody")
	got := make(chan delivery, 32)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, secret)
		mac.Write(raw)
		if r.Header.Get("X-Hub-Signature-256") != "sha256="+hex.EncodeToString(mac.Sum(nil)) || len(r.Header.Get("X-GitHub-Delivery")) != 36 {
			t.Errorf("headers %v", r.Header)
		}
		var body map[string]any
		_ = json.Unmarshal(raw, &body)
		got <- delivery{r.Header.Get("X-GitHub-Event"), fmt.Sprint(body["action"]), body}
	}))
	defer receiver.Close()
	w := setup(t, func(c *githubsim.Config, _ *githubsim.Repository) {
		c.WebhookURL, c.Secret = receiver.URL, secret
		c.Executor = githubsim.ExecutorFunc(func(context.Context, githubsim.Job) (string, error) { return "success", nil })
	})
	d := w.dispatch(t)
	want := []string{"workflow_run requested", "workflow_job queued", "workflow_run in_progress", "workflow_job in_progress", "workflow_job completed", "workflow_run completed"}
	for _, next := range want {
		select {
		case h := <-got:
			if h.event+" "+h.action != next {
				t.Fatalf("%s %s, want %s", h.event, h.action, next)
			}
			if run, ok := h.body["workflow_run"].(map[string]any); ok && (run["id"] != float64(d.RunID) || run["inputs"] != nil || run["run_attempt"] != 1.0) {
				t.Errorf("run %v", run)
			}
			if in := h.body["installation"].(map[string]any); in["id"] != float64(installationID) {
				t.Errorf("installation %v", in)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no %s", next)
		}
	}
}

func TestHandMovedRunsAndTheirFilters(t *testing.T) {
	t.Parallel()
	w := setup(t)
	d := w.dispatch(t)
	if err := w.sim.SetRun(d.RunID, "completed", "startup_failure"); err != nil {
		t.Fatal(err)
	}
	run, err := w.app.Run(t.Context(), w.target, d.RunID)
	if err != nil || run.Conclusion != "startup_failure" || run.Jobs == nil || *run.Jobs != 0 {
		t.Fatalf("%+v, %v", run, err)
	}
	w.sim.DeleteRun(d.RunID)
	if _, err := w.app.Run(t.Context(), w.target, d.RunID); err == nil {
		t.Error("a deleted run was read")
	}
	if err := w.sim.SetRun(1, "completed", "success"); err == nil {
		t.Error("an absent run was moved")
	}
}
