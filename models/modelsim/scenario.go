package modelsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/errand-dev/errand"
)

// Scenario is what the model says, turn by turn. A request takes the next turn, a fault too, so that a retry after a
// fault gets the turn behind it.
type Scenario struct {
	APIKey string `yaml:"api_key"` // the key that is accepted; "" = any but an empty one
	Model  string `yaml:"model"`   // the model that is known; "" = any
	Turns  []Turn `yaml:"turns"`
}

// Turn is one answer.
type Turn struct {
	Text       string     `yaml:"text"`
	ToolCalls  []ToolCall `yaml:"tool_calls"`
	Usage      *Usage     `yaml:"usage"`       // nil = estimated from sizes
	StopReason string     `yaml:"stop_reason"` // "" = tool_use with tool calls, end_turn without
	Delay      Duration   `yaml:"delay"`       // before the answer, such as 200ms
	Fault      *Fault     `yaml:"fault"`
	Expect     Expect     `yaml:"expect"`
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Name  string         `yaml:"name"`
	Input map[string]any `yaml:"input"`
}

func (c ToolCall) input() map[string]any {
	if c.Input == nil {
		return map[string]any{}
	}
	return c.Input
}

// Usage is the provider's usage object. The three input buckets do not overlap.
type Usage struct {
	InputTokens              int                 `json:"input_tokens" yaml:"input_tokens"`
	CacheCreationInputTokens int                 `json:"cache_creation_input_tokens" yaml:"cache_creation_input_tokens"`
	CacheReadInputTokens     int                 `json:"cache_read_input_tokens" yaml:"cache_read_input_tokens"`
	CacheCreation            *CacheCreation      `json:"cache_creation,omitempty" yaml:"cache_creation"`
	OutputTokens             int                 `json:"output_tokens" yaml:"output_tokens"`
	OutputTokensDetails      *OutputTokenDetails `json:"output_tokens_details,omitempty" yaml:"output_tokens_details"`
	ServerToolUse            *ServerToolUse      `json:"server_tool_use,omitempty" yaml:"server_tool_use"`
	ServiceTier              string              `json:"service_tier,omitempty" yaml:"service_tier"`
	InferenceGeo             string              `json:"inference_geo,omitempty" yaml:"inference_geo"`
}

// CacheCreation splits cache_creation_input_tokens by how long they live.
type CacheCreation struct {
	Ephemeral5m int `json:"ephemeral_5m_input_tokens" yaml:"ephemeral_5m_input_tokens"`
	Ephemeral1h int `json:"ephemeral_1h_input_tokens" yaml:"ephemeral_1h_input_tokens"`
}

// OutputTokenDetails is a part of output_tokens.
type OutputTokenDetails struct {
	ThinkingTokens int `json:"thinking_tokens" yaml:"thinking_tokens"`
}

// ServerToolUse counts what the provider ran itself.
type ServerToolUse struct {
	WebSearchRequests int `json:"web_search_requests" yaml:"web_search_requests"`
	WebFetchRequests  int `json:"web_fetch_requests" yaml:"web_fetch_requests"`
}

// Fault is an answer that is none. Exactly one of Status, Malformed and Cut is set.
type Fault struct {
	Status     int    `yaml:"status"`      // such as 401, 429, 500 or 529
	RetryAfter int    `yaml:"retry_after"` // seconds, with a status
	Message    string `yaml:"message"`     // with a status
	Malformed  bool   `yaml:"malformed"`   // 200, with JSON that ends in the middle
	Cut        bool   `yaml:"cut"`         // 200, and the connection breaks off in the middle
}

func (f Fault) message() string {
	if f.Message != "" {
		return f.Message
	}
	return map[int]string{
		401: "invalid x-api-key", 429: "This request would exceed the rate limit.", 529: "Overloaded",
	}[f.Status]
}

// Expect is what the request of a turn must hold, or it is refused and recorded as a violation.
type Expect struct {
	Contains []string `yaml:"contains"` // texts, somewhere in the request's own strings
	Absent   []string `yaml:"absent"`   // texts that must not be there
	Tools    []string `yaml:"tools"`    // tools that must be offered
}

// Duration is a time.Duration written as in Go: 1.5s, 200ms.
type Duration string

// Duration gives the value; a wrong one was refused by Parse.
func (d Duration) Duration() time.Duration {
	v, _ := time.ParseDuration(string(d))
	return v
}

func (t Turn) stopReason() string {
	switch {
	case t.StopReason != "":
		return t.StopReason
	case len(t.ToolCalls) > 0:
		return "tool_use"
	default:
		return "end_turn"
	}
}

// Load reads a scenario file.
func Load(file string) (Scenario, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return Scenario{}, errand.Errorf(errand.CodeInvalid, err, "the scenario file cannot be read: %s", file)
	}
	return Parse(b)
}

// Parse reads a scenario strictly: an unknown field is an error, and so is a turn that the provider could not answer. All
// wrong turns are reported together.
func Parse(b []byte) (Scenario, error) {
	var s Scenario
	if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return s, errand.Errorf(errand.CodeInvalid, err, "the scenario is not valid")
	}
	var wrong []string
	if len(s.Turns) == 0 {
		wrong = append(wrong, "it has no turns")
	}
	for i, t := range s.Turns {
		if err := t.check(); err != nil {
			wrong = append(wrong, fmt.Sprintf("turn %d: %v", i+1, err))
		}
	}
	if wrong != nil {
		return s, errand.Invalid("scenario", "%s", strings.Join(wrong, "; "))
	}
	return s, nil
}

func (t Turn) check() error {
	if t.Delay != "" {
		if d, err := time.ParseDuration(string(t.Delay)); err != nil || d < 0 {
			return fmt.Errorf("delay %q is not a duration such as 200ms", t.Delay)
		}
	}
	if f := t.Fault; f != nil {
		kinds := 0
		for _, is := range []bool{f.Status != 0, f.Malformed, f.Cut} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			return errors.New("a fault is exactly one of status, malformed and cut")
		}
		if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
			return fmt.Errorf("fault status %d is no error", f.Status)
		}
	}
	switch t.stopReason() {
	case "tool_use":
		if len(t.ToolCalls) == 0 {
			return errors.New("stop_reason tool_use needs tool_calls")
		}
	case "end_turn", "stop_sequence":
		if len(t.ToolCalls) > 0 {
			return errors.New("tool_calls need stop_reason tool_use or max_tokens")
		}
	case "max_tokens", "refusal", "pause_turn", "model_context_window_exceeded":
	default:
		return fmt.Errorf("stop_reason %q is not one of the provider's", t.StopReason)
	}
	return t.checkUsage()
}

func (t Turn) checkUsage() error {
	u := t.Usage
	if u == nil {
		return nil
	}
	if u.InputTokens < 0 || u.OutputTokens < 0 || u.CacheCreationInputTokens < 0 || u.CacheReadInputTokens < 0 {
		return errors.New("usage: a count is negative")
	}
	if c := u.CacheCreation; c != nil && c.Ephemeral5m+c.Ephemeral1h != u.CacheCreationInputTokens {
		return errors.New("usage: cache_creation does not add up to cache_creation_input_tokens")
	}
	if d := u.OutputTokensDetails; d != nil && d.ThinkingTokens > u.OutputTokens {
		return errors.New("usage: thinking_tokens are more than output_tokens")
	}
	return nil
}

// missing says what the request lacks, or "".
func (e Expect) missing(body []byte, req request) string {
	texts := stringsOf(body)
	for _, want := range e.Contains {
		if !strings.Contains(texts, want) {
			return fmt.Sprintf("the request does not contain %q", want)
		}
	}
	for _, not := range e.Absent {
		if strings.Contains(texts, not) {
			return fmt.Sprintf("the request contains %q", not)
		}
	}
	for _, tool := range e.Tools {
		if !req.hasTool(tool) {
			return fmt.Sprintf("the request does not offer the tool %q", tool)
		}
	}
	return ""
}

// stringsOf joins every string value of a JSON document, decoded, so that an expectation is written as it reads.
func stringsOf(doc []byte) string {
	var v any
	_ = json.Unmarshal(doc, &v)
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			b.WriteString(v)
			b.WriteByte('\n')
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(v)
	return b.String()
}
