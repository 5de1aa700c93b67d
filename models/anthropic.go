package models

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"github.com/errand-dev/errand"
)

// ProviderAnthropic is the name in Usage.Provider.
const ProviderAnthropic = "anthropic"

// longest bounds one attempt for whoever passes a context without a deadline.
const longest = time.Hour

// AnthropicConfig is all the adapter takes; nothing is read from the environment.
type AnthropicConfig struct {
	APIKey     string
	BaseURL    string // "" = the provider's own
	Model      string
	HTTPClient *http.Client // nil = one of our own; its timeout, if any, holds beside the context's
	Clock      errand.Clock // for Retry-After given as a date; nil = time.Now
}

// Anthropic speaks the Messages API through the official SDK, whose own retries are off. It is safe for concurrent use.
type Anthropic struct {
	client anthropic.Client
	model  string
	key    string
	clock  errand.Clock
}

// NewAnthropic checks the configuration. Every error is an Invalid one that names the field; none holds the key.
func NewAnthropic(cfg AnthropicConfig) (*Anthropic, error) {
	if cfg.Model == "" {
		return nil, errand.Invalid("model", "no model is named: give one, such as claude-sonnet-5")
	}
	if cfg.APIKey == "" {
		return nil, errand.Invalid("anthropic-api-key", "the key is empty: store it as a secret of the repository and pass it to the action")
	}
	if strings.ContainsFunc(cfg.APIKey, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, errand.Invalid("anthropic-api-key", "the key holds a character that no key has (a line break or a blank?): store it again")
	}
	opts := []option.RequestOption{
		option.WithoutEnvironmentDefaults(),
		option.WithAPIKey(cfg.APIKey),
		option.WithMaxRetries(0),
		option.WithHTTPClient(withoutRedirects(cfg.HTTPClient)),
	}
	if cfg.BaseURL != "" {
		u, err := url.Parse(cfg.BaseURL)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil {
			return nil, errand.Invalid("base-url", "want an http(s) address without user or password")
		}
		opts = append(opts, option.WithBaseURL(cfg.BaseURL))
	}
	a := &Anthropic{client: anthropic.NewClient(opts...), model: cfg.Model, key: cfg.APIKey, clock: cfg.Clock}
	if a.clock == nil {
		a.clock = time.Now
	}
	return a, nil
}

// withoutRedirects makes a client that follows none: a redirect to the same host would carry the key on.
func withoutRedirects(c *http.Client) *http.Client {
	if c == nil {
		c = &http.Client{Timeout: longest}
	}
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("the provider's address answers with a redirect, which is not followed: correct base-url")
	}
	return &own
}

// Complete asks once. Prompt caching is on: the tools and the system text, and the conversation up to its last message,
// are marked, so that the next request of the run reads them from the cache.
func (a *Anthropic) Complete(ctx context.Context, req Request) (Turn, error) {
	unknown := Turn{Usage: Usage{Provider: ProviderAnthropic, Model: a.model}}
	params, err := a.params(req)
	if err != nil {
		return unknown, &Error{Kind: KindInvalid, Message: err.Error(), Cause: err}
	}
	var raw *http.Response
	// The SDK refuses a non-streaming request that may take longer than ten minutes unless a timeout is set. Ours is the
	// context's, which the caller bounds by the time the run has left.
	msg, err := a.client.Messages.New(ctx, params, option.WithResponseInto(&raw), option.WithRequestTimeout(longest))
	if raw != nil {
		unknown.Usage.RequestID = raw.Header.Get("request-id")
	}
	if err != nil {
		return unknown, a.failure(ctx, err)
	}
	turn := unknown
	if msg.Model != "" {
		turn.Usage.Model = msg.Model
	}
	if msg.JSON.Usage.Valid() {
		turn.Usage.Raw = json.RawMessage(msg.Usage.RawJSON())
		if msg.Usage.JSON.OutputTokens.Valid() {
			turn.Usage.OutputTokens = &msg.Usage.OutputTokens
		}
	}
	if !msg.JSON.Content.Valid() || !msg.JSON.StopReason.Valid() {
		return turn, &Error{Kind: KindServer, Message: "the answer is no message: it has no content or no stop_reason"}
	}
	turn.Stop = stopOf(msg.StopReason)
	turn.Native = json.RawMessage(msg.JSON.Content.Raw())
	for _, block := range msg.Content {
		switch block.Type {
		case "text":
			turn.Text += block.Text
		case "tool_use":
			turn.ToolCalls = append(turn.ToolCalls, ToolCall{ID: block.ID, Name: block.Name, Input: block.Input})
		}
	}
	return turn, nil
}

func stopOf(s anthropic.StopReason) Stop {
	switch s {
	case anthropic.StopReasonEndTurn, anthropic.StopReasonStopSequence:
		return StopEnd
	case anthropic.StopReasonToolUse:
		return StopToolUse
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		return StopLength
	case anthropic.StopReasonRefusal:
		return StopRefusal
	default:
		return StopOther
	}
}

func (a *Anthropic) params(req Request) (anthropic.MessageNewParams, error) {
	if req.MaxOutputTokens < 1 {
		return anthropic.MessageNewParams{}, errors.New("MaxOutputTokens must be at least 1")
	}
	if len(req.Messages) == 0 {
		return anthropic.MessageNewParams{}, errors.New("a request needs a message")
	}
	p := anthropic.MessageNewParams{Model: a.model, MaxTokens: int64(req.MaxOutputTokens)}
	cached := anthropic.NewCacheControlEphemeralParam()
	if req.System != "" {
		p.System = []anthropic.TextBlockParam{{Text: req.System, CacheControl: cached}}
	}
	for i, t := range req.Tools {
		tool, err := toolParam(t)
		if err != nil {
			return p, err
		}
		if i == len(req.Tools)-1 {
			tool.CacheControl = cached
		}
		p.Tools = append(p.Tools, anthropic.ToolUnionParam{OfTool: &tool})
	}
	for i, m := range req.Messages {
		msg := messageParam(m)
		if i == len(req.Messages)-1 && msg.OfUser != nil {
			markLast(msg.OfUser.Content, cached)
		}
		p.Messages = append(p.Messages, msg)
	}
	return p, nil
}

func toolParam(t Tool) (anthropic.ToolParam, error) {
	var schema map[string]any
	if err := json.Unmarshal(t.Schema, &schema); err != nil || schema["type"] != "object" {
		return anthropic.ToolParam{}, errors.New("tool " + t.Name + ": the schema is not a JSON object of type object")
	}
	delete(schema, "type")
	return anthropic.ToolParam{
		Name:        t.Name,
		Description: param.NewOpt(t.Description),
		InputSchema: anthropic.ToolInputSchemaParam{ExtraFields: schema},
	}, nil
}

func messageParam(m Message) anthropic.MessageParam {
	if m.Role == Assistant {
		if m.Native != nil {
			body, _ := json.Marshal(map[string]any{"role": "assistant", "content": m.Native})
			return param.Override[anthropic.MessageParam](json.RawMessage(body))
		}
		var blocks []anthropic.ContentBlockParamUnion
		if m.Text != "" {
			blocks = append(blocks, anthropic.NewTextBlock(m.Text))
		}
		for _, c := range m.ToolCalls {
			blocks = append(blocks, anthropic.NewToolUseBlock(c.ID, c.Input, c.Name))
		}
		return anthropic.NewAssistantMessage(blocks...)
	}
	var blocks []anthropic.ContentBlockParamUnion
	for _, r := range m.ToolResults { // results come before any text: the API refuses the other order
		blocks = append(blocks, anthropic.NewToolResultBlock(r.CallID, r.Content, r.IsError))
	}
	if m.Text != "" {
		blocks = append(blocks, anthropic.NewTextBlock(m.Text))
	}
	return anthropic.NewUserMessage(blocks...)
}

func markLast(blocks []anthropic.ContentBlockParamUnion, c anthropic.CacheControlEphemeralParam) {
	if len(blocks) == 0 {
		return
	}
	switch last := &blocks[len(blocks)-1]; {
	case last.OfText != nil:
		last.OfText.CacheControl = c
	case last.OfToolResult != nil:
		last.OfToolResult.CacheControl = c
	}
}

// failure says what an error of the SDK means.
func (a *Anthropic) failure(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return &Error{Kind: KindCancelled, Message: "stopped by us before an answer came", Cause: context.Cause(ctx)}
	}
	var api *anthropic.Error
	if errors.As(err, &api) {
		e := &Error{Kind: kindOf(api), Message: a.conceal(strconv.Itoa(api.StatusCode) + " " + saying(api))}
		if api.Response != nil {
			e.RetryAfter = a.retryAfter(api.Response.Header)
		}
		return e
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) || strings.Contains(err.Error(), "error parsing response json") || strings.Contains(err.Error(), "expected destination type") {
		return &Error{Kind: KindServer, Message: "the answer is not the JSON of a message"}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &Error{Kind: KindNetwork, Message: "the connection broke off before the answer was whole"}
	}
	return &Error{Kind: KindNetwork, Message: a.conceal(err.Error())}
}

func kindOf(api *anthropic.Error) Kind {
	said := strings.ToLower(api.Message)
	switch {
	case api.Type() == "billing_error", api.StatusCode == http.StatusPaymentRequired,
		// The provider answers a used-up prepaid credit as an invalid request; there is no type of its own for it.
		api.StatusCode == http.StatusBadRequest && strings.Contains(said, "credit balance"),
		strings.Contains(said, "usage limits"):
		return KindQuota
	case api.StatusCode == http.StatusUnauthorized, api.StatusCode == http.StatusForbidden:
		return KindAuth
	case api.StatusCode == http.StatusTooManyRequests:
		return KindRateLimited
	case api.StatusCode == 529, api.Type() == "overloaded_error":
		return KindOverloaded
	case api.StatusCode >= 500, api.StatusCode == http.StatusRequestTimeout, api.StatusCode == http.StatusConflict:
		return KindServer
	default:
		return KindInvalid
	}
}

func saying(api *anthropic.Error) string {
	if api.Message != "" {
		return api.Message
	}
	return http.StatusText(api.StatusCode)
}

// retryAfter reads Retry-After in its two forms: seconds, or a date.
func (a *Anthropic) retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(v, 64); err == nil && seconds > 0 && seconds < 1e6 {
		return time.Duration(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(a.clock()))
	}
	return 0
}

func (a *Anthropic) conceal(s string) string {
	s = strings.ReplaceAll(s, a.key, "[removed]")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + " [cut]"
	}
	return s
}
