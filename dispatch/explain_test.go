package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humaecho"
	"github.com/labstack/echo/v4"
	"pgregory.net/rapid"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

func explained(rules []store.Mapping, e *errand.Event) Explanation {
	in := fine()
	in.Rules, in.Event = rules, e
	return explain(in)
}

func TestExplainSaysRuleByRuleAndFrameByFrame(t *testing.T) {
	t.Parallel()
	source := errand.ID("another")
	rules := []store.Mapping{
		root(1, "/opt/other", ""),
		root(2, "/srv/app", "src"),
		rule(3, func(m *store.Mapping) { m.StackRoot, m.Environment = "/srv", "production" }),
		rule(4, func(m *store.Mapping) { m.ModulePrefix = "com.example" }),
		rule(5, func(m *store.Mapping) { m.SourceID = &source }),
		rule(6, func(m *store.Mapping) { m.Platform = "go" }),
		rule(7, func(*store.Mapping) {}),
	}
	in := fine()
	in.Rules, in.Issue.Platform, in.Issue.SourceID = rules, "python", "mine"
	in.Event = crash(file("/srv/app/a.py"), errand.Frame{Filename: "/usr/lib/x.py", InApp: &no}, file("b.py"))
	x := explain(in)
	if x.Chosen == nil || x.Chosen.Position != 2 || x.Chosen.Path != "src/a.py" || x.Gate != errand.GateOK {
		t.Fatalf("%+v", x.Chosen)
	}
	for i, want := range []errand.Verdict{errand.Pass, errand.Pass, errand.Unknown, errand.Pass, errand.Fail, errand.Fail, errand.Fail} {
		if a := x.Rules[i]; a.Answer != want || a.Why == "" || a.Chosen != (i == 1) {
			t.Errorf("rule %d: %+v, want %s", i+1, a, want)
		}
	}
	if len(x.Frames) != 3 {
		t.Fatalf("%+v", x.Frames)
	}
	for i, want := range []struct {
		name    string
		asked   bool
		decides bool
		answers string
	}{
		{"b.py", true, false, "1 unknown, 2 unknown, 4 unknown"},
		{"/usr/lib/x.py", false, false, ""},
		{"/srv/app/a.py", true, true, "1 fail, 2 pass, 4 unknown"},
	} {
		f := x.Frames[i]
		var answers []string
		for _, r := range f.Rules {
			answers = append(answers, string('0'+r.Position)+" "+r.Answer.String())
		}
		if f.Number != i+1 || f.Name != want.name || f.Asked != want.asked || f.Decides != want.decides || strings.Join(answers, ", ") != want.answers || f.Why == "" {
			t.Errorf("frame %d: %+v with %v, want %+v", i+1, f, answers, want)
		}
	}
}

func TestExplainSaysWhyNoneIsChosen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says  string
		rules []store.Mapping
		event *errand.Event
		gate  errand.Gate
	}{
		{"B8 a basename is unknown to a stack root", []store.Mapping{root(1, "/src/App", "")}, crash(file("Program.cs")), errand.GateMappingUnknown},
		{"B9 no root matches", []store.Mapping{root(1, "/srv/appl", "")}, crash(file("/srv/app/a.py")), errand.GateNoMapping},
		{"two equals are ambiguous", []store.Mapping{root(1, "/srv/app", ""), root(2, "/srv/app", "")}, crash(file("/srv/app/a.py")), errand.GateAmbiguous},
		{"B1 no frames", []store.Mapping{root(1, "/srv/app", "")}, crash(), errand.GateNoStack},
		{"no event", []store.Mapping{root(1, "/srv/app", "")}, nil, errand.GateNoStack},
		{"no rules", nil, crash(file("/srv/app/a.py")), errand.GateNoMapping},
	} {
		x := explained(tt.rules, tt.event)
		if x.Chosen != nil || x.Gate != tt.gate || x.Detail == "" || x.Remedy == "" || len(x.Rules) != len(tt.rules) {
			t.Errorf("%s: %+v", tt.says, x)
		}
	}
}

// What is explained is what is decided: the chosen rule is the same, and it applies to the frame that is said to decide.
func TestAnExplanationAgreesWithTheDecision(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := fine()
		in.Event, in.Rules, in.Issue.Project = someEvent(t), someRules(t), "shop"
		c, x := choose(in.Rules, subjectOf(in)), explain(in)
		if x.Gate != c.gate || (x.Chosen != nil) != (c.rule != nil) || c.rule != nil && x.Chosen.Rule != c.rule.ID {
			t.Fatalf("%+v is explained as %+v", c, x)
		}
		decides := 0
		for _, f := range x.Frames {
			if !f.Decides {
				continue
			}
			decides++
			for _, r := range f.Rules {
				if c.rule != nil && r.Position == c.rule.Position && r.Answer != errand.Pass {
					t.Fatalf("the frame that decides: %+v, and the rule %d", f, c.rule.Position)
				}
			}
		}
		if byFrame := c.gate == errand.GateAmbiguous || c.rule != nil && !isProjectRule(c.rule); byFrame && decides != 1 && c.rule != nil {
			t.Fatalf("%d frames decide for %+v", decides, c)
		}
	})
}

type fakePayloads struct{}

func (fakePayloads) Preview(kind, resource string, body []byte) (errand.Issue, *errand.Event, error) {
	if kind != "sentry" || resource != "" || !json.Valid(body) {
		return errand.Issue{}, nil, errand.Invalid("payload", "cannot be read")
	}
	return errand.Issue{Title: "boom", Project: "shop"}, crash(file("/srv/app/cart.py")), nil
}

// explainAPI serves the endpoint; the caller's organisation stands in a header, as a session would say it.
func (w *world) explainAPI() http.Handler {
	e := echo.New()
	api := humaecho.New(e, huma.DefaultConfig("test", "1"))
	NewAPI(APIConfig{
		Dispatch: w.d, Payloads: fakePayloads{},
		Caller: func(c huma.Context) (errand.ID, error) {
			if org := c.Header("Org"); org != "" {
				return errand.ID(org), nil
			}
			return "", &errand.Error{Code: errand.CodeUnauthenticated, Message: "sign in"}
		},
		Problem: func(err error) error {
			var x *errand.Error
			if !errors.As(err, &x) {
				return huma.Error500InternalServerError(err.Error())
			}
			status := map[errand.Code]int{errand.CodeUnauthenticated: 401, errand.CodeNotFound: 404, errand.CodeInvalid: 422}[x.Code]
			return huma.NewError(status, x.Message)
		},
	}).Register(api)
	return e
}

func ask(t *testing.T, h http.Handler, org errand.ID, body string) (int, Explanation) {
	t.Helper()
	req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/api/v1/mappings/explain", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	if org != "" {
		req.Header.Set("Org", string(org))
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	var x Explanation
	if rec.Code == http.StatusOK {
		must(t, json.Unmarshal(rec.Body.Bytes(), &x))
	} else if !strings.HasPrefix(rec.Header().Get("Content-Type"), "application/problem+json") {
		t.Errorf("%d as %s", rec.Code, rec.Header().Get("Content-Type"))
	}
	return rec.Code, x
}

func TestExplainEndpoint(t *testing.T) {
	t.Parallel()
	w := setup(t)
	job := w.delivery()
	other := w.Org(t, "other")
	h := w.explainAPI()
	payload := `{"kind":"sentry","payload":{"data":{}}}`
	issue := `{"issue":"` + string(job.Issue) + `"}`
	for _, tt := range []struct {
		says   string
		org    errand.ID
		body   string
		status int
	}{
		{"nobody is signed in", "", payload, 401},
		{"an issue of another organisation", other, issue, 404},
		{"a source of another organisation", other, `{"source":"` + string(w.src) + `","payload":{}}`, 404},
		{"neither an issue nor a payload", w.org, `{}`, 422},
		{"both", w.org, `{"issue":"` + string(job.Issue) + `","payload":{}}`, 422},
		{"an id that is none", w.org, `{"issue":"17"}`, 422},
		{"a payload of no known kind", w.org, `{"kind":"pigeon","payload":{}}`, 422},
		{"a member that nobody knows", w.org, `{"isue":"` + string(job.Issue) + `"}`, 422},
	} {
		if status, _ := ask(t, h, tt.org, tt.body); status != tt.status {
			t.Errorf("%s: %d, want %d", tt.says, status, tt.status)
		}
	}
	status, x := ask(t, h, w.org, payload)
	if status != 200 || x.Chosen == nil || x.Chosen.Repository != "acme/shop" || x.Chosen.Path != "src/cart.py" || x.Chosen.Ref != "main" || x.Now != nil {
		t.Errorf("a payload: %d %+v", status, x)
	}
	status, x = ask(t, h, w.org, issue)
	if status != 200 || x.Chosen == nil || x.About.Issue != job.Issue || x.Now == nil || x.Now.Gate != errand.GateOK {
		t.Errorf("an issue: %d %+v", status, x)
	}
	if status, x = ask(t, h, other, payload); status != 200 || x.Chosen != nil || len(x.Rules) != 0 || x.Gate != errand.GateNoMapping {
		t.Errorf("another organisation sees none of the rules: %d %+v", status, x)
	}
	if n := w.count("select count(*) from runs") + w.count("select count(*) from journal") + w.count("select count(*) from issue_places") + w.count("select count(*) from waits"); n != 0 {
		t.Errorf("explaining left %d rows", n)
	}
}
