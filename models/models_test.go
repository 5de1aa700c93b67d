package models_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/models"
	"github.com/errand-dev/errand/models/modelsim"
)

const secretKey = "sk-ant-test-0123456789"

// setup starts a scripted provider and an adapter that speaks to it.
func setup(t *testing.T, scenario string) (*models.Anthropic, *modelsim.Sim) {
	t.Helper()
	s, err := modelsim.Parse([]byte(scenario))
	if err != nil {
		t.Fatal(err)
	}
	sim := modelsim.New(s)
	srv := httptest.NewServer(sim)
	t.Cleanup(srv.Close)
	m, err := models.NewAnthropic(models.AnthropicConfig{APIKey: secretKey, BaseURL: srv.URL, Model: "claude-sonnet-5"})
	if err != nil {
		t.Fatal(err)
	}
	return m, sim
}

func question() models.Request {
	return models.Request{
		System:          "be brief",
		MaxOutputTokens: 100,
		Messages:        []models.Message{{Role: models.User, Text: "what is it?"}},
		Tools: []models.Tool{
			{Name: "look", Description: "looks", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`)},
			{Name: "tell", Description: "tells", Schema: json.RawMessage(`{"type":"object"}`)},
		},
	}
}

func TestAConversationWithToolsGoesThereAndBack(t *testing.T) {
	t.Parallel()
	m, sim := setup(t, `
api_key: `+secretKey+`
model: claude-sonnet-5
turns:
  - text: I look.
    tool_calls: [{name: look, input: {path: a.go}}]
    usage: {input_tokens: 12, cache_creation_input_tokens: 500, cache_creation: {ephemeral_5m_input_tokens: 500}, output_tokens: 30, service_tier: standard}
    expect: {contains: [be brief, "what is it?"], tools: [look, tell]}
  - text: It is fine.
    expect: {contains: [file a.go, I look.]}
`)
	req := question()
	turn, err := m.Complete(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if turn.Text != "I look." || turn.Stop != models.StopToolUse || len(turn.ToolCalls) != 1 || string(turn.ToolCalls[0].Input) != `{"path":"a.go"}` {
		t.Errorf("turn: %+v", turn)
	}
	want := `{"input_tokens":12,"cache_creation_input_tokens":500,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":500,"ephemeral_1h_input_tokens":0},"output_tokens":30,"service_tier":"standard"}`
	if u := turn.Usage; string(u.Raw) != want || u.OutputTokens == nil || *u.OutputTokens != 30 || u.RequestID != "req_sim0001" || u.Model != "claude-sonnet-5" || u.Provider != "anthropic" {
		t.Errorf("usage: %+v\nraw %s\nwant %s", u, u.Raw, want)
	}
	req.Messages = append(req.Messages,
		models.Message{Role: models.Assistant, Native: turn.Native},
		models.Message{Role: models.User, Text: "go on", ToolResults: []models.ToolResult{{CallID: turn.ToolCalls[0].ID, Content: "file a.go"}}})
	turn, err = m.Complete(t.Context(), req)
	if err != nil || turn.Text != "It is fine." || turn.Stop != models.StopEnd {
		t.Errorf("second turn: %+v %v", turn, err)
	}
	if v := sim.Violations(); len(v) > 0 {
		t.Errorf("violations: %q", v)
	}
	body := string(sim.Requests()[1].Body)
	if n := strings.Count(body, `"cache_control":{"type":"ephemeral"}`); n != 3 {
		t.Errorf("%d cache marks, want three (tools, system, last message): %s", n, body)
	}
	if !strings.Contains(body, `"additionalProperties":false`) {
		t.Errorf("the schema lost a part: %s", body)
	}
}

func TestAssistantTurnsOfOurOwnMakingAreSentAsBlocks(t *testing.T) {
	t.Parallel()
	m, sim := setup(t, `turns: [{tool_calls: [{name: look, input: {path: x}}]}, {text: ok}]`)
	req := question()
	turn, err := m.Complete(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	req.Messages = append(req.Messages,
		models.Message{Role: models.Assistant, Text: "mine", ToolCalls: turn.ToolCalls},
		models.Message{Role: models.User, ToolResults: []models.ToolResult{{CallID: turn.ToolCalls[0].ID, Content: "no", IsError: true}}})
	if _, err := m.Complete(t.Context(), req); err != nil {
		t.Error(err, sim.Violations())
	}
}

func TestEveryFaultHasItsKindAndItsUsageLine(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fault string
		kind  models.Kind
		retry bool
		after time.Duration
	}{
		"a refused key":            {"{status: 401}", models.KindAuth, false, 0},
		"a forbidden model":        {"{status: 403}", models.KindAuth, false, 0},
		"a bill not paid":          {"{status: 402}", models.KindQuota, false, 0},
		"credit used up, as a 400": {"{status: 400, message: Your credit balance is too low to access the API.}", models.KindQuota, false, 0},
		"a request that is wrong":  {"{status: 400, message: prompt is too long}", models.KindInvalid, false, 0},
		"an unknown model":         {"{status: 404}", models.KindInvalid, false, 0},
		"too many requests":        {"{status: 429, retry_after: 7}", models.KindRateLimited, true, 7 * time.Second},
		"too many, no hint":        {"{status: 429}", models.KindRateLimited, true, 0},
		"overloaded":               {"{status: 529}", models.KindOverloaded, true, 0},
		"a fault of the server":    {"{status: 500}", models.KindServer, true, 0},
		"JSON that ends early":     {"{malformed: true}", models.KindServer, true, 0},
		"a connection that breaks": {"{cut: true}", models.KindNetwork, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, sim := setup(t, "turns: [{text: a long enough answer, fault: "+row.fault+"}, {text: ok}]")
			turn, err := m.Complete(t.Context(), question())
			var e *models.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v is no *models.Error", err)
			}
			if e.Kind != row.kind || e.Retryable() != row.retry || e.RetryAfter != row.after {
				t.Errorf("got %s, retryable %v, after %s: %v", e.Kind, e.Retryable(), e.RetryAfter, e)
			}
			if u := turn.Usage; u.Raw != nil || u.OutputTokens != nil || u.Provider != "anthropic" || u.Model != "claude-sonnet-5" || u.RequestID == "" {
				t.Errorf("usage of a failed attempt must be unknown, and named: %+v", u)
			}
			if n := len(sim.Requests()); n != 1 {
				t.Errorf("%d requests: the adapter must not retry", n)
			}
			if strings.Contains(err.Error(), secretKey) {
				t.Error("the key is in the error")
			}
		})
	}
}

func TestTheKeyIsNotCarriedOnByARedirect(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.Header.Get("Authorization") }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer first.Close()
	m, err := models.NewAnthropic(models.AnthropicConfig{APIKey: secretKey, BaseURL: first.URL, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Complete(t.Context(), question()); err == nil || !strings.Contains(err.Error(), "correct base-url") {
		t.Errorf("got %v", err)
	}
	if len(reached) > 0 {
		t.Error("the redirect was followed")
	}
}

func TestACancelledCallIsCancelledAndNothingElse(t *testing.T) {
	t.Parallel()
	m, _ := setup(t, "turns: [{text: ok, delay: 1h}]")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Complete(ctx, question())
	var e *models.Error
	if !errors.As(err, &e) || e.Kind != models.KindCancelled {
		t.Errorf("got %v", err)
	}
}

func TestAnswersThatAreNoMessageAreAServersFault(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ contentType, body string }{
		"a page":                    {"text/html", "<html>proxy</html>"},
		"an empty object":           {"application/json", "{}"},
		"a message without content": {"application/json", `{"type":"message","stop_reason":"end_turn"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", row.contentType)
				_, _ = w.Write([]byte(row.body))
			}))
			defer srv.Close()
			m, err := models.NewAnthropic(models.AnthropicConfig{APIKey: secretKey, BaseURL: srv.URL, Model: "m"})
			if err != nil {
				t.Fatal(err)
			}
			turn, err := m.Complete(t.Context(), question())
			var e *models.Error
			if !errors.As(err, &e) || e.Kind != models.KindServer || turn.Usage.Raw != nil {
				t.Errorf("got %v, usage %s", err, turn.Usage.Raw)
			}
		})
	}
}

func TestAWrongConfigurationNamesTheField(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		cfg   models.AnthropicConfig
		field string
	}{
		"no key":                   {models.AnthropicConfig{Model: "m"}, "anthropic-api-key"},
		"a key with a line break":  {models.AnthropicConfig{Model: "m", APIKey: "sk-secret\n"}, "anthropic-api-key"},
		"no model":                 {models.AnthropicConfig{APIKey: "k"}, "model"},
		"an address of ftp":        {models.AnthropicConfig{APIKey: "k", Model: "m", BaseURL: "ftp://x"}, "base-url"},
		"an address with password": {models.AnthropicConfig{APIKey: "k", Model: "m", BaseURL: "https://a:b@x"}, "base-url"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := models.NewAnthropic(row.cfg)
			var e *errand.Error
			if !errors.As(err, &e) || e.Code != errand.CodeInvalid || e.Field != row.field || strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("got %v", err)
			}
		})
	}
}
