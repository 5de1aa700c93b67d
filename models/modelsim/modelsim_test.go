package modelsim_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/errand-dev/errand/models/modelsim"
)

const goodTool = `{"name":"look","description":"d","input_schema":{"type":"object"}}`

func parse(t *testing.T, text string) *modelsim.Sim {
	t.Helper()
	s, err := modelsim.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return modelsim.New(s)
}

func post(t *testing.T, h http.Handler, body string, change func(*http.Request)) (int, string, http.Header) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "k")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func TestARequestThatBreaksARuleIsRefusedAndRecorded(t *testing.T) {
	t.Parallel()
	user := `{"role":"user","content":"hi"}`
	call := `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"look","input":{}}]}`
	result := `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"ok"}]}`
	body := func(messages string) string {
		return `{"model":"m","max_tokens":10,"tools":[` + goodTool + `],"messages":[` + messages + `]}`
	}
	for name, row := range map[string]struct {
		body   string
		change func(*http.Request)
		status int
		says   string
	}{
		"no key":                      {body(user), func(r *http.Request) { r.Header.Del("X-Api-Key") }, 401, "invalid API key"},
		"the wrong key":               {body(user), func(r *http.Request) { r.Header.Set("X-Api-Key", "other") }, 401, "invalid API key"},
		"the key in both headers":     {body(user), func(r *http.Request) { r.Header.Set("Authorization", "Bearer k") }, 401, "invalid API key"},
		"no version":                  {body(user), func(r *http.Request) { r.Header.Del("Anthropic-Version") }, 400, "anthropic-version"},
		"another path":                {body(user), func(r *http.Request) { r.URL.Path = "/v1/complete" }, 404, "no such path"},
		"another method":              {body(user), func(r *http.Request) { r.Method = http.MethodPut }, 405, "only POST"},
		"an unknown field":            {`{"model":"m","max_tokens":1,"messages":[` + user + `],"nope":1}`, nil, 400, "nope"},
		"no max_tokens":               {`{"model":"m","messages":[` + user + `]}`, nil, 400, "max_tokens"},
		"an unknown model":            {strings.Replace(body(user), `"m"`, `"x"`, 1), nil, 404, "model: x"},
		"no messages":                 {body(""), nil, 400, "at least one message"},
		"the assistant first":         {body(`{"role":"assistant","content":"hi"}`), nil, 400, "alternate"},
		"two user turns":              {body(user + "," + user), nil, 400, "alternate"},
		"an assistant's turn at last": {body(user + `,{"role":"assistant","content":"x"}`), nil, 400, "last message"},
		"an empty text":               {body(`{"role":"user","content":[{"type":"text","text":""}]}`), nil, 400, "non-empty"},
		"a call without its result":   {body(user + "," + call + "," + user), nil, 400, "without `tool_result`"},
		"a result without its call":   {body(user + `,{"role":"assistant","content":"x"},` + result), nil, 400, "unexpected `tool_use_id`"},
		"a result after a text":       {body(user + "," + call + `,{"role":"user","content":[{"type":"text","text":"a"},{"type":"tool_result","tool_use_id":"toolu_1","content":"ok"}]}`), nil, 400, "before text"},
		"a tool that is not offered":  {strings.Replace(body(user+","+call+","+result), `"name":"look","description"`, `"name":"other","description"`, 1), nil, 400, "not offered"},
		"a call the sim never made":   {body(user + "," + call + "," + result), nil, 400, "never sent"},
		"a tool twice":                {`{"model":"m","max_tokens":1,"tools":[` + goodTool + `,` + goodTool + `],"messages":[` + user + `]}`, nil, 400, "used twice"},
		"five cache marks": {`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[` +
			strings.Repeat(`{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},`, 4) + `{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}`, nil, 400, "maximum of 4"},
		"what the scenario expects is missing": {body(`{"role":"user","content":"hello"}`), nil, 400, `does not contain "hi"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := parse(t, "api_key: k\nmodel: m\nturns: [{text: ok, expect: {contains: [hi], tools: [look]}}]")
			status, answer, _ := post(t, sim, row.body, row.change)
			if status != row.status {
				t.Errorf("status %d, want %d: %s", status, row.status, answer)
			}
			var e struct {
				Type  string
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal([]byte(answer), &e); err != nil || e.Type != "error" || e.Error.Type == "" || !strings.Contains(e.Error.Message, row.says) {
				t.Errorf("the answer is not the provider's error saying %q: %s", row.says, answer)
			}
			if v := sim.Violations(); len(v) != 1 || !strings.Contains(v[0], row.says) {
				t.Errorf("violations: %q", v)
			}
		})
	}
}

func TestAConversationIsPlayedTurnByTurnAndASecondOneFromTheStart(t *testing.T) {
	t.Parallel()
	sim := parse(t, `
turns:
  - {tool_calls: [{name: look, input: {path: a}}]}
  - {fault: {status: 529}}
  - {text: done, usage: {input_tokens: 3, cache_read_input_tokens: 5, cache_creation_input_tokens: 2, cache_creation: {ephemeral_5m_input_tokens: 2, ephemeral_1h_input_tokens: 0}, output_tokens: 7}}
`)
	first := func(who string) string {
		status, answer, _ := post(t, sim, `{"model":"m","max_tokens":10,"tools":[`+goodTool+`],"messages":[{"role":"user","content":"`+who+`"}]}`, nil)
		if status != 200 || !strings.Contains(answer, `"stop_reason":"tool_use"`) {
			t.Fatalf("%d %s", status, answer)
		}
		var m struct{ Content []struct{ ID string } }
		if err := json.Unmarshal([]byte(answer), &m); err != nil {
			t.Fatal(err)
		}
		return m.Content[0].ID
	}
	second := func(who, id string) (int, string) {
		status, answer, _ := post(t, sim, `{"model":"m","max_tokens":10,"tools":[`+goodTool+`],"messages":[{"role":"user","content":"`+who+`"},
			{"role":"assistant","content":[{"type":"tool_use","id":"`+id+`","name":"look","input":{"path":"a"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+id+`","content":"x"}]}]}`, nil)
		return status, answer
	}
	a, b := first("a"), first("b")
	if status, answer := second("a", a); status != 529 || !strings.Contains(answer, "overloaded_error") {
		t.Errorf("the fault: %d %s", status, answer)
	}
	if status, answer := second("a", a); status != 200 || !strings.Contains(answer, `"usage":{"input_tokens":3,"cache_creation_input_tokens":2,"cache_read_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":2,"ephemeral_1h_input_tokens":0},"output_tokens":7}`) {
		t.Errorf("after the fault: %d %s", status, answer)
	}
	if status, _ := second("b", b); status != 529 {
		t.Errorf("the second conversation did not meet the fault: %d", status)
	}
	if v := sim.Violations(); len(v) != 0 {
		t.Errorf("violations: %q", v)
	}
	if n := len(sim.Requests()); n != 5 {
		t.Errorf("%d requests kept", n)
	}
}

func TestAWrongScenarioIsRefusedWithEveryMistake(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ text, says string }{
		"no turns":                       {"model: m", "no turns"},
		"an unknown field":               {"turns: [{txt: a}]", "txt"},
		"two mistakes in two turns":      {"turns: [{delay: soon}, {stop_reason: because}]", `turn 1: delay "soon" is not a duration such as 200ms; turn 2: stop_reason "because"`},
		"a fault of two kinds":           {"turns: [{fault: {cut: true, malformed: true}}]", "exactly one"},
		"a fault that is no error":       {"turns: [{fault: {status: 200}}]", "is no error"},
		"a call with stop end_turn":      {"turns: [{stop_reason: end_turn, tool_calls: [{name: a}]}]", "need stop_reason"},
		"stop tool_use without a call":   {"turns: [{stop_reason: tool_use}]", "needs tool_calls"},
		"usage that does not add up":     {"turns: [{text: a, usage: {cache_creation_input_tokens: 3, cache_creation: {ephemeral_5m_input_tokens: 2}}}]", "add up"},
		"more thinking than there is":    {"turns: [{text: a, usage: {output_tokens: 3, output_tokens_details: {thinking_tokens: 4}}}]", "thinking_tokens"},
		"a count that is below zero":     {"turns: [{text: a, usage: {input_tokens: -1}}]", "negative"},
		"something that is no YAML text": {"turns: [", "not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := modelsim.Parse([]byte(row.text))
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("error %v, want one saying %q", err, row.says)
			}
		})
	}
}
