package runnerapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runnerapi"
	"github.com/errand-dev/errand/wire"
)

func TestTheWholeLifeOfARun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.token()

	var start, again wire.StartResponse
	req := wire.StartRequest{Repository: "acme/shop", RepositoryID: r.github}
	w.post("start", token, req).into(t, &start)
	r.wantState(errand.Running, "")
	w.post("start", token, req).into(t, &again)
	if !reflect.DeepEqual(start, again) {
		t.Errorf("started again: %+v, and before %+v", again, start)
	}
	if start.Run != r.id || start.RunURL != "https://errand.example.com/runs/"+string(r.id) || start.Ref != "main" ||
		start.Repository != (wire.Repository{ID: r.github, FullName: "acme/shop", DefaultBranch: "main"}) {
		t.Errorf("the errand: %+v", start)
	}
	if !reflect.DeepEqual(start.Event, event) || start.Issue.Title != "TypeError: price is undefined" {
		t.Errorf("the error: %+v %+v", start.Issue, start.Event)
	}
	if start.Limits.ToolCalls != 30 || start.Limits.WallSeconds != 1200 || start.Limits.OutputTokens < 1 || start.Limits.MaxFiles != 20 || start.Limits.MaxChangedLines != 400 {
		t.Errorf("limits %+v", start.Limits)
	}

	var progress wire.ProgressResponse
	w.post("progress", token, wire.ProgressRequest{Steps: []wire.Step{stepOf(1, w.clock.now())}, Usage: []wire.UsageLine{usageOf(1, w.clock.now(), 1000)}}).into(t, &progress)
	if progress.Stop {
		t.Error("told to stop")
	}
	if amount, _, _, _, _ := r.line(1); amount == nil || *amount != 1000*(2_000_000+10_000_000) {
		t.Errorf("priced at %v", amount)
	}
	var claim wire.ClaimResponse
	w.post("claim", token, claimOf(1, "needs_review", "src/cart.js")).into(t, &claim)
	if claim.Decision != "admitted" {
		t.Fatalf("claim: %+v", claim)
	}
	r.wantState(errand.Publishing, "")
	var result wire.ResultResponse
	w.post("result", token, wire.ResultRequest{State: errand.PROpened, Summary: "Guards the price.", PullRequest: r.pullRequest(17), ToolCalls: 5}).into(t, &result)
	r.wantState(errand.PROpened, "")
	run := r.row()
	if run.Verdict != "needs_review" || len(run.Paths) != 1 || run.StartedAt == nil || *run.PRNumber != 17 {
		t.Errorf("kept %+v", run)
	}
}

// The error is for the run's own repository, and nothing else sees it.
func TestARunnerInAnotherRepositoryIsNotShownTheError(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	for _, c := range []struct {
		name string
		req  wire.StartRequest
		ok   bool
	}{
		{"renamed since", wire.StartRequest{Repository: "acme/store", RepositoryID: o.github}, true},
		{"by name, its number unknown", wire.StartRequest{Repository: "Acme/Shop"}, true},
		{"another number under the same name", wire.StartRequest{Repository: "acme/shop", RepositoryID: o.github + 1}, false},
		{"another name, its number unknown", wire.StartRequest{Repository: "acme/other"}, false},
	} {
		r := o.dispatched()
		got := w.post("start", r.token(), c.req)
		if c.ok {
			if got.status != 200 {
				t.Errorf("%s: %d %s", c.name, got.status, got.body)
			}
			r.cancel()
			continue
		}
		if got.status != 409 || strings.Contains(got.body, "price is undefined") {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
		r.wantState(errand.Failed, errand.ReasonWrongRepository)
	}
}

func TestStartIsAConflictOnceTheClaimIsMade(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.publishing("a.js")
	w.post("start", token, wire.StartRequest{Repository: "acme/shop", RepositoryID: r.github}).want(t, 409)
}

func TestTheCallsAreDescribed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	resp, err := http.Get(w.url + "/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Summary  string
			Security []map[string][]string
		}
		Components struct {
			SecuritySchemes map[string]struct{ Type, Scheme string }
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	var described []string
	for path, operations := range doc.Paths {
		call, ok := strings.CutPrefix(path, "/runner/v1/")
		if !ok {
			continue
		}
		described = append(described, call)
		op := operations["post"]
		if len(operations) != 1 || op.Summary == "" || (len(op.Security) == 1) != (call != "exchange") {
			t.Errorf("%s: %+v", call, operations)
		}
		// Whatever it is, without a token it is refused before its body is read.
		if got := w.post(call, "", "{}"); call != "exchange" && got.status != 401 {
			t.Errorf("%s without a token: %d", call, got.status)
		}
	}
	slices.Sort(described)
	if want := []string{"claim", "exchange", "progress", "result", "start"}; !slices.Equal(described, want) {
		t.Errorf("described are %v", described)
	}
	if s := doc.Components.SecuritySchemes["runToken"]; s.Type != "http" || s.Scheme != "bearer" {
		t.Errorf("scheme %+v", s)
	}
}

// What the schema refuses is a problem like the others: with a code, the field, and no word of the value, which may be a secret.
func TestABodyThatIsNotTheSchemasIsAProblemWithACode(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.tenant("acme").dispatched().running()
	for _, c := range []struct {
		says, call, body, field, code string
		status                        int
	}{
		{"a value out of its list", "exchange", `{"ticket":"t","nonce":"0123456789abcdef","role":"HUSH","workflow_run_id":1,"workflow_run_attempt":1}`, "role", "invalid", 422},
		{"a member too short", "exchange", `{"ticket":"t","nonce":"HUSH","workflow_run_id":1,"workflow_run_attempt":1}`, "nonce", "invalid", 422},
		{"a member that is missing", "exchange", `{"ticket":"HUSH"}`, "", "invalid", 422},
		{"a member of another type", "progress", `{"steps":"HUSH"}`, "steps", "invalid", 422},
		{"no JSON", "progress", `{"HUSH`, "", "invalid", 400},
		{"nothing", "claim", ``, "", "invalid", 400},
		{"too much", "result", `{"state":"failed","reason":"` + strings.Repeat("x", 2<<20) + `"}`, "", "too_large", 413},
	} {
		got := w.post(c.call, token, c.body)
		var p struct{ Code, Type, Title, Detail, Field string }
		if err := json.Unmarshal([]byte(got.body), &p); err != nil {
			t.Fatal(err, got.body)
		}
		if got.status != c.status || p.Code != c.code || p.Type != "urn:errand:problem:"+c.code || p.Detail == "" || p.Title == "" || c.field != "" && p.Field != c.field ||
			got.header.Get("Content-Type") != "application/problem+json" || strings.Contains(got.body, "HUSH") {
			t.Errorf("%s: %d %s", c.says, got.status, got.body)
		}
	}
}

func TestARunHasLimits(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]runnerapi.Config{
		"nobody to check ID tokens": {PublicURL: "https://errand.example.com", WebURL: "https://github.com"},
		"no GitHub's pages":         {PublicURL: "https://errand.example.com"},
		"a limit of zero":           {PublicURL: "https://errand.example.com", Limits: wire.Limits{ToolCalls: 30, WallSeconds: 60, OutputTokens: 0, MaxFiles: 1, MaxChangedLines: 1}},
		"an address that is none":   {PublicURL: "errand"},
	} {
		if _, err := runnerapi.New(cfg); errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
