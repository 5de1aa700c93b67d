// Package models puts an AI provider behind one small shape: a Request goes in, a Turn comes out, and what the provider
// counted comes with it, in the provider's own words.
//
// It imports provider SDKs and nothing else of ours, and only runner and cmd import it, so that the server never
// compiles an SDK. Start reading at Model; Anthropic (anthropic.go) is the one provider there is so far. Package
// modelsim beside it is a scripted provider behind the same wire format.
package models

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Model answers one request. Complete makes exactly one attempt: it never retries, so that every attempt is seen and
// counted by whoever calls it. An error is always a *Error.
//
// The Turn's Usage is filled on errors too, as far as it is known: an attempt that failed may have cost money.
type Model interface {
	Complete(ctx context.Context, req Request) (Turn, error)
}

// Request is one question: the whole conversation so far and the tools that may be called.
type Request struct {
	System          string
	Messages        []Message
	Tools           []Tool
	MaxOutputTokens int // at least 1
}

// Role says who speaks.
type Role string

// The two roles. They alternate, and the user begins.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is one turn of the conversation. ToolCalls belong to the assistant; ToolResults to the user, one for each call
// of the assistant's turn before.
type Message struct {
	Role        Role
	Text        string
	ToolCalls   []ToolCall
	ToolResults []ToolResult
	// Native is an assistant's turn as its provider sent it (Turn.Native). Where it is set it is sent back unchanged, so
	// that parts that have no place here (signed thinking) survive; Text and ToolCalls are then not looked at.
	Native json.RawMessage
}

// ToolCall is what the model asks for. Input is a JSON object of the model's making: untrusted.
type ToolCall struct {
	ID    string
	Name  string
	Input json.RawMessage
}

// ToolResult answers the call with the same id.
type ToolResult struct {
	CallID  string
	Content string
	IsError bool
}

// Tool is what may be called. Schema is the JSON Schema of its input, an object with "type": "object".
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// Stop says why the model stopped.
type Stop string

// The reasons to stop. A turn that stopped by Length may hold a tool call that was cut off: it must not be executed.
const (
	StopEnd     Stop = "end"
	StopToolUse Stop = "tool_use"
	StopLength  Stop = "length"
	StopRefusal Stop = "refusal"
	StopOther   Stop = "other"
)

// Turn is the model's answer.
type Turn struct {
	Text      string
	ToolCalls []ToolCall
	Stop      Stop
	Usage     Usage
	Native    json.RawMessage // the content blocks exactly as received
}

// Usage is what one attempt cost, exactly as the provider counted it. Raw is the provider's own usage object; nil means
// that the counts never arrived, which is unknown and not zero.
type Usage struct {
	Provider     string
	Model        string // the model that answered, or the one asked when none did
	RequestID    string // the provider's; "" = unknown
	Raw          json.RawMessage
	OutputTokens *int64 // nil = unknown
}

// Kind is the closed set of what can go wrong at a provider.
type Kind string

// The kinds. RateLimited, Overloaded, Server and Network may pass; the others will not by themselves.
const (
	KindAuth        Kind = "auth"         // the key is refused, or may not use this model
	KindQuota       Kind = "quota"        // credit or quota is used up
	KindRateLimited Kind = "rate_limited" // too many requests for now
	KindOverloaded  Kind = "overloaded"   // the provider is busy
	KindServer      Kind = "server"       // the provider failed, or answered what cannot be read
	KindInvalid     Kind = "invalid"      // the provider refuses the request as such
	KindNetwork     Kind = "network"      // no answer, or one that broke off
	KindCancelled   Kind = "cancelled"    // our own context ended
)

// Error is why there is no Turn. Message may hold what the provider said, never the key.
type Error struct {
	Kind       Kind
	RetryAfter time.Duration // what the provider asked to wait; 0 = it did not say
	Message    string
	Cause      error
}

func (e *Error) Error() string {
	return fmt.Sprintf("model request failed (%s): %s", e.Kind, e.Message)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Retryable tells whether the same request may work later.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case KindRateLimited, KindOverloaded, KindServer, KindNetwork:
		return true
	default:
		return false
	}
}
