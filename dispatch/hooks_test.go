package dispatch

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
)

const hookKey = "a webhook secret of this test"

// hooked is the world with GitHub's webhooks served.
type hooked struct {
	*world
	echo *echo.Echo
	n    int
}

func hookedWorld(t *testing.T) *hooked {
	w := setup(t)
	w.d.webhookSecret = func(context.Context) ([]byte, error) { return []byte(hookKey), nil }
	return &hooked{world: w, echo: mounted(w.d)}
}

// mounted serves one replica; the error's code becomes the status as in package server.
func mounted(d *Dispatch) *echo.Echo {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		status := map[errand.Code]int{
			errand.CodeNotFound: 404, errand.CodeUnauthenticated: 401, errand.CodeTooLarge: 413, errand.CodeUnsupported: 415, errand.CodeInvalid: 422,
			errand.CodeUnavailable: 503,
		}[errand.CodeOf(err)]
		var he *echo.HTTPError
		if errors.As(err, &he) {
			status = he.Code
		}
		if status == 0 {
			status = 500
		}
		_ = c.String(status, err.Error())
	}
	d.Mount(e)
	return e
}

// sent is a delivery as GitHub sends it, before a test spoils it.
type sent struct {
	event, guid, body string
	header            map[string]string // "" takes a header away
}

func sign(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func (h *hooked) send(e *echo.Echo, s sent) (status int, answer hookAnswer, text string) {
	h.t.Helper()
	req := httptest.NewRequest(http.MethodPost, HookPath, strings.NewReader(s.body))
	for k, v := range map[string]string{
		"Content-Type": "application/json", "X-GitHub-Event": s.event, "X-GitHub-Delivery": s.guid, github.SignatureHeader: sign(hookKey, s.body),
	} {
		req.Header.Set(k, v)
	}
	for k, v := range s.header {
		req.Header.Del(k)
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, req)
	_ = json.Unmarshal(rec.Body.Bytes(), &answer)
	return rec.Code, answer, rec.Body.String()
}

// deliver sends under a new id and gives what became of it.
func (h *hooked) deliver(event, body string) string {
	h.t.Helper()
	h.n++
	status, answer, text := h.send(h.echo, sent{event: event, guid: fmt.Sprintf("guid-%d", h.n), body: body})
	if status != http.StatusAccepted {
		h.t.Fatalf("%s: %d %s", event, status, text)
	}
	return strings.TrimSuffix(answer.Outcome+" "+answer.Reason, " ")
}

func ofRun(action, status string, id, attempt int, title string) string {
	return fmt.Sprintf(`{"action":%q,"repository":{"id":7},"installation":{"id":1},"workflow_run":{"id":%d,"run_attempt":%d,"event":"workflow_dispatch","status":%q,"display_title":%q,
		"head_commit":{"author":{"name":"A Person","email":"person@example.com"}}}}`, action, id, attempt, status, title)
}

func TestAWebhookIsRefusedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	h := hookedWorld(t)
	run := h.queued()
	h.dispatch(run.ID)
	good := sent{event: "workflow_run", guid: "g-1", body: ofRun("completed", "completed", 1000, 1, "")}
	with := func(key, value string) sent {
		s := good
		s.header = map[string]string{key: value}
		return s
	}
	for says, tt := range map[string]struct {
		sent   sent
		status int
	}{
		"without a signature":           {with(github.SignatureHeader, ""), 401},
		"with a wrong signature":        {with(github.SignatureHeader, sign("guess", good.body)), 401},
		"with the older signature":      {sent{"workflow_run", "g-1", good.body, map[string]string{github.SignatureHeader: "", "X-Hub-Signature": "sha1=00"}}, 401},
		"A1 signed over another body":   {with(github.SignatureHeader, sign(hookKey, good.body+" ")), 401},
		"A7 as a form":                  {with("Content-Type", "application/x-www-form-urlencoded"), 415},
		"without a content type":        {with("Content-Type", ""), 415},
		"without its id":                {with("X-GitHub-Delivery", ""), 422},
		"with an id that is none":       {with("X-GitHub-Delivery", "a b"), 422},
		"with a long id":                {with("X-GitHub-Delivery", strings.Repeat("a", 65)), 422},
		"without its event":             {with("X-GitHub-Event", ""), 422},
		"with a body that is no JSON":   {sent{event: "workflow_run", guid: "g-1", body: "{"}, 422},
		"with a run that has no id":     {sent{event: "workflow_run", guid: "g-1", body: `{"action":"completed","repository":{"id":7},"workflow_run":{}}`}, 422},
		"too large":                     {sent{event: "workflow_run", guid: "g-1", body: `{"x":"` + strings.Repeat("x", maxHook) + `"}`}, 413},
		"too large and without a total": {sent{event: "chunked", guid: "g-1", body: ""}, 413},
	} {
		var status int
		if tt.sent.event == "chunked" {
			req := httptest.NewRequest(http.MethodPost, HookPath, io.LimitReader(zeros{}, maxHook+1))
			req.ContentLength = -1
			rec := httptest.NewRecorder()
			h.echo.ServeHTTP(rec, req)
			status = rec.Code
		} else {
			status, _, _ = h.send(h.echo, tt.sent)
		}
		if status != tt.status {
			t.Errorf("%s: %d, want %d", says, status, tt.status)
		}
	}
	if n := h.count("select count(*) from github_deliveries") + h.jobs("reconcile_run"); n != 0 {
		t.Errorf("%d rows of what was refused", n)
	}
	// A14: the id was not used up by what was refused.
	if status, answer, text := h.send(h.echo, good); status != 202 || answer.Outcome != "accepted" {
		t.Errorf("%d %s", status, text)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestWithoutASecretThereIsNoSuchEndpoint(t *testing.T) {
	t.Parallel()
	h := hookedWorld(t)
	body := `{"zen":"x"}`
	for says, secret := range map[string]func(context.Context) ([]byte, error){
		"nobody to ask": nil, "none": func(context.Context) ([]byte, error) { return nil, nil },
	} {
		h.d.webhookSecret = secret
		for _, signature := range []string{"", sign("", body), sign(hookKey, body)} {
			status, _, _ := h.send(h.echo, sent{"ping", "g", body, map[string]string{github.SignatureHeader: signature}})
			if status != http.StatusNotFound {
				t.Errorf("%s: %d", says, status)
			}
		}
	}
	h.d.webhookSecret = func(context.Context) ([]byte, error) { return nil, errors.New("the database is away") }
	if status, _, _ := h.send(h.echo, sent{event: "ping", guid: "g", body: body}); status != 500 {
		t.Errorf("an unknown secret: %d", status)
	}
}

func TestTheEndOfARunIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	for says, tt := range map[string]struct {
		started bool
		edit    func(*github.WorkflowRun)
		state   errand.RunState
		reason  errand.Reason
	}{
		"D2 it was cancelled before a runner was there": {false, func(r *github.WorkflowRun) { r.Conclusion, r.Jobs = "cancelled", new(int) }, errand.Cancelled, errand.ReasonWorkflowCancelled},
		"the workflow file is broken":                   {false, func(r *github.WorkflowRun) { r.Conclusion = "startup_failure" }, errand.Failed, errand.ReasonStartupFailure},
		"it has no job":                                 {false, func(r *github.WorkflowRun) { r.Conclusion, r.Jobs = "failure", new(int) }, errand.Failed, errand.ReasonStartupFailure},
		"D1 its machine died while it reported":         {true, func(r *github.WorkflowRun) { r.Conclusion = "failure" }, errand.Failed, errand.ReasonSilent},
		"it was said to be over, and is not":            {true, func(r *github.WorkflowRun) { r.Status = "in_progress" }, errand.Running, errand.ReasonNone},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			h := hookedWorld(t)
			run := h.queued()
			h.dispatch(run.ID)
			if tt.started {
				h.started(run.ID)
				h.sql("update runs set heartbeat_at = $1", h.clock())
			}
			h.github.change(func() {
				h.github.runs[0].Status = "completed"
				tt.edit(&h.github.runs[0])
			})
			if got := h.deliver("workflow_run", ofRun("completed", "completed", 1000, 1, "")); got != "accepted" {
				t.Fatal(got)
			}
			h.works()
			h.stands(run.ID, tt.state, tt.reason)
		})
	}
}

// works does the reconcile jobs that webhooks asked for.
func (h *hooked) works() {
	h.t.Helper()
	var jobs []errand.ReconcileRun
	h.queue("reconcile_run", func(args []byte) {
		var j errand.ReconcileRun
		must(h.t, json.Unmarshal(args, &j))
		jobs = append(jobs, j)
	})
	for _, j := range jobs {
		for i := 0; ; i++ {
			again, err := h.d.reconcileRun(h.t.Context(), j)
			must(h.t, err)
			if again == 0 {
				break
			}
			h.pass(again)
			if i > 100 {
				h.t.Fatal("it never ends")
			}
		}
	}
}

func TestARunThatIsOverBeforeItsDispatchWasAnsweredIsFoundByItsMark(t *testing.T) {
	t.Parallel()
	h := hookedWorld(t)
	run := h.queued()
	h.github.script(lost)
	h.dispatch(run.ID)
	h.stands(run.ID, errand.Dispatching, errand.ReasonNone)
	h.github.change(func() { h.github.runs[0].Status, h.github.runs[0].Conclusion = "completed", "startup_failure" })
	for title, want := range map[string]string{
		"Errand " + marker(run.ID, 2):               "ignored another_workflow",
		"Errand " + marker(errand.NewID(noon), 1):   "ignored another_workflow",
		"Errand " + strings.ToUpper(string(run.ID)): "ignored another_workflow",
		"Errand v1.2": "ignored another_workflow",
		"":            "ignored another_workflow",
	} {
		if got := h.deliver("workflow_run", ofRun("completed", "completed", 1000, 1, title)); got != want {
			t.Errorf("%q: %s", title, got)
		}
	}
	if got := h.deliver("workflow_run", ofRun("completed", "completed", 1000, 1, "Errand "+marker(run.ID, 1))); got != "accepted" {
		t.Fatal(got)
	}
	h.works()
	h.stands(run.ID, errand.Failed, errand.ReasonStartupFailure)
}

func TestOtherWorkflowsLeaveNothing(t *testing.T) {
	t.Parallel()
	h := hookedWorld(t)
	run := h.queued()
	h.dispatch(run.ID)
	for body, want := range map[string]string{
		ofRun("completed", "completed", 4711, 1, "Deploy"):                                                                 "ignored another_workflow",
		strings.Replace(ofRun("completed", "completed", 1000, 1, ""), `"workflow_dispatch"`, `"push"`, 1):                  "ignored another_workflow",
		strings.Replace(ofRun("completed", "completed", 1000, 1, ""), `"repository":{"id":7}`, `"repository":{"id":8}`, 1): "ignored another_workflow", // another repository's
	} {
		if got := h.deliver("workflow_run", body); got != want {
			t.Errorf("%s: %s", body, got)
		}
	}
	if got := h.deliver("workflow_job", `{"action":"queued","repository":{"id":7},"workflow_job":{"run_id":4711}}`); got != "ignored another_workflow" {
		t.Error(got)
	}
	if got := h.deliver("push", `{"commits":[]}`); got != "ignored event_not_used" {
		t.Error(got)
	}
	if got := h.deliver("ping", `{"zen":"x"}`); got != "ignored ping" {
		t.Error(got)
	}
	if n := h.count("select count(*) from github_deliveries"); n != 0 {
		t.Errorf("%d rows", n)
	}
	if r := h.run(run.ID); r.GitHubStatus != "" {
		t.Errorf("%q", r.GitHubStatus)
	}
}

func TestA13_WebhooksOutOfOrderMoveForwardOnly(t *testing.T) {
	t.Parallel()
	h := hookedWorld(t)
	run := h.queued()
	h.dispatch(run.ID)
	job := func(action string, attempt int) string {
		return fmt.Sprintf(`{"action":%q,"repository":{"id":7},"workflow_job":{"run_id":1000,"run_attempt":%d,"status":%q}}`, action, attempt, action)
	}
	for i, step := range []struct {
		event, body, want, status string
		attempt                   int32
	}{
		{"workflow_job", job("in_progress", 1), "accepted", "in_progress", 1},
		{"workflow_run", ofRun("requested", "queued", 1000, 1, ""), "ignored older_than_known", "in_progress", 1},
		{"workflow_job", job("completed", 1), "ignored older_than_known", "in_progress", 1}, // one job's end is not the run's
		{"workflow_run", ofRun("completed", "completed", 1000, 1, ""), "accepted", "completed", 1},
		{"workflow_run", ofRun("in_progress", "in_progress", 1000, 1, ""), "ignored older_than_known", "completed", 1},
		{"workflow_run", ofRun("requested", "queued", 1000, 2, ""), "accepted", "queued", 2},
		{"workflow_run", ofRun("completed", "completed", 1000, 1, ""), "ignored older_than_known", "queued", 2},
	} {
		got := h.deliver(step.event, step.body)
		if r := h.run(run.ID); got != step.want || r.GitHubStatus != step.status || r.GitHubAttempt != step.attempt {
			t.Errorf("step %d: %s, %s of attempt %d", i+1, got, r.GitHubStatus, r.GitHubAttempt)
		}
	}
	if n := h.jobs("reconcile_run"); n != 1 {
		t.Errorf("GitHub is asked %d times for one end", n)
	}
}

// A10: GitHub's own webhook, at two replicas on one database.
func TestA10_ADeliveryCountsOnceOnEveryReplica(t *testing.T) {
	t.Parallel()
	h := hookedWorld(t)
	other := h.replica(h.Store)
	other.webhookSecret = h.d.webhookSecret
	doors := []*echo.Echo{h.echo, mounted(other)}
	var wg sync.WaitGroup
	outcomes := make([]string, 8)
	for i := range outcomes {
		wg.Go(func() {
			_, answer, _ := h.send(doors[i%2], sent{event: "installation", guid: "the-same", body: `{"action":"suspend","installation":{"id":1}}`})
			outcomes[i] = answer.Outcome
		})
	}
	wg.Wait()
	count := map[string]int{}
	for _, o := range outcomes {
		count[o]++
	}
	if count["accepted"] != 1 || count["duplicate"] != 7 || h.jobs("refresh_installation") != 1 {
		t.Errorf("%v, %d jobs", count, h.jobs("refresh_installation"))
	}
	// A11, A15: the id counts long after, and is forgotten with the log of deliveries.
	h.pass(29 * 24 * time.Hour)
	if _, err := h.d.sweep(t.Context(), errand.Sweep{}); err != nil {
		t.Fatal(err)
	}
	if n := h.count("select count(*) from github_deliveries"); n != 1 {
		t.Errorf("%d rows", n)
	}
	h.pass(2 * 24 * time.Hour)
	if _, err := h.d.sweep(t.Context(), errand.Sweep{}); err != nil {
		t.Fatal(err)
	}
	if n := h.count("select count(*) from github_deliveries"); n != 0 {
		t.Errorf("%d rows after the time", n)
	}
}

func TestAWebhookAboutAnInstallationIsAReasonToAsk(t *testing.T) {
	t.Parallel()
	h := hookedWorld(t)
	for _, action := range []string{"created", "deleted", "suspend", "unsuspend", "new_permissions_accepted"} {
		before := h.jobs("refresh_installation")
		if got := h.deliver("installation", fmt.Sprintf(`{"action":%q,"installation":{"id":1},"sender":{"login":"person"}}`, action)); got != "accepted" || h.jobs("refresh_installation") != before+1 {
			t.Errorf("%s: %s", action, got)
		}
	}
	if in := h.bound(); in.DeletedAt != nil || in.SuspendedAt != nil {
		t.Errorf("it was believed: %+v", in)
	}
	if got := h.deliver("installation_repositories", `{"action":"removed","installation":{"id":1}}`); got != "accepted" {
		t.Error(got)
	}
	if got := h.deliver("installation", `{"action":"created","installation":{"id":99}}`); got != "ignored installation_not_bound" {
		t.Errorf("H19: an installation that nobody proved to own: %s", got)
	}
	h.github.change(func() { h.github.repositories = nil })
	h.refresh()
	if r := h.repository(); r.GoneAt == nil {
		t.Error("a repository out of reach is not marked")
	}
}

func TestAWebhookThatCannotBeStoredIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	h := hookedWorld(t)
	h.sql("revoke insert on github_deliveries from errand_runtime")
	body := `{"action":"suspend","installation":{"id":1}}`
	if status, _, _ := h.send(h.echo, sent{event: "installation", guid: "g-9", body: body}); status != 503 {
		t.Errorf("%d", status)
	}
	h.sql("grant insert on github_deliveries to errand_runtime")
	if status, answer, _ := h.send(h.echo, sent{event: "installation", guid: "g-9", body: body}); status != 202 || answer.Outcome != "accepted" {
		t.Errorf("the redelivery: %d %+v", status, answer)
	}
}

func TestNothingOfACommitsAuthorIsStored(t *testing.T) {
	t.Parallel()
	h := hookedWorld(t)
	run := h.queued()
	h.dispatch(run.ID)
	h.deliver("workflow_run", ofRun("completed", "completed", 1000, 1, "Errand"))
	var tables []string
	h.each("select tablename from pg_tables where schemaname = 'public'", &tables)
	for _, table := range tables {
		if n := h.count("select count(*) from " + table + " x where x::text ilike '%person@example.com%' or x::text ilike '%A Person%'"); n != 0 {
			t.Errorf("%s holds the author of a commit", table)
		}
	}
	if len(tables) < 20 {
		t.Errorf("looked through %d tables", len(tables))
	}
}

// each reads one column of text.
func (w *world) each(sql string, into *[]string) {
	w.t.Helper()
	w.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, sql)
		must(w.t, err)
		*into, err = pgx.CollectRows(rows, pgx.RowTo[string])
		must(w.t, err)
	})
}

// queue gives the arguments of the jobs of a kind.
func (w *world) queue(kind string, each func(args []byte)) {
	w.t.Helper()
	var all []string
	w.each("select args::text from river_job where kind = '"+kind+"' order by id", &all)
	for _, args := range all {
		each([]byte(args))
	}
}
