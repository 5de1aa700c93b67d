package modelsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
)

// request is the body of POST /v1/messages, as far as it is served. A field that is not here is refused.
type request struct {
	Model     string          `json:"model"`
	MaxTokens int             `json:"max_tokens"`
	Messages  []message       `json:"messages"`
	System    json.RawMessage `json:"system"`
	Tools     []tool          `json:"tools"`

	ToolChoice    json.RawMessage `json:"tool_choice"`
	Temperature   *float64        `json:"temperature"`
	StopSequences []string        `json:"stop_sequences"`
	Metadata      json.RawMessage `json:"metadata"`
	CacheControl  json.RawMessage `json:"cache_control"`

	cached bool // something is marked for the cache
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	blocks  []block
}

type tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl json.RawMessage `json:"cache_control"`
}

// block is one content block of a kind that the simulator knows.
type block struct {
	Type         string          `json:"type"`
	Text         string          `json:"text"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	ToolUseID    string          `json:"tool_use_id"`
	Content      json.RawMessage `json:"content"`
	IsError      bool            `json:"is_error"`
	CacheControl json.RawMessage `json:"cache_control"`
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// maxMarks is how many cache_control marks the provider takes in one request.
const maxMarks = 4

// parseRequest reads a body and holds it against the API's rules. The error's text is fit for the error object.
func parseRequest(body []byte) (request, error) {
	var r request
	if err := strict(body, &r); err != nil {
		return r, fmt.Errorf("the body is not a valid request: %w", err)
	}
	switch {
	case r.Model == "":
		return r, errors.New("model: Field required")
	case r.MaxTokens < 1:
		return r, errors.New("max_tokens: must be greater than or equal to 1")
	case len(r.Messages) == 0:
		return r, errors.New("messages: at least one message is required")
	}
	for i := range r.Messages {
		if err := r.Messages[i].parse(); err != nil {
			return r, fmt.Errorf("messages.%d: %w", i, err)
		}
	}
	if len(r.System) > 0 {
		if _, err := parseBlocks(r.System, "text"); err != nil {
			return r, fmt.Errorf("system: %w", err)
		}
	}
	for _, check := range []func() error{r.checkTools, r.checkOrder, r.checkMarks} {
		if err := check(); err != nil {
			return r, err
		}
	}
	r.cached = r.marks() > 0
	return r, nil
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
}

func (m *message) parse() (err error) {
	switch m.Role {
	case "user":
		m.blocks, err = parseBlocks(m.Content, "text", "tool_result")
	case "assistant":
		m.blocks, err = parseBlocks(m.Content, "text", "tool_use")
	default:
		return fmt.Errorf("role: %q is neither user nor assistant", m.Role)
	}
	return err
}

// parseBlocks reads content: a string, or blocks of the kinds allowed.
func parseBlocks(raw json.RawMessage, kinds ...string) ([]block, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if text == "" {
			return nil, errors.New("content: must be non-empty")
		}
		return []block{{Type: "text", Text: text}}, nil
	}
	var blocks []block
	if err := strict(raw, &blocks); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	if len(blocks) == 0 {
		return nil, errors.New("content: must be non-empty")
	}
	for i, b := range blocks {
		if !slices.Contains(kinds, b.Type) {
			return nil, fmt.Errorf("content.%d: type %q has no place here", i, b.Type)
		}
		if err := b.check(); err != nil {
			return nil, fmt.Errorf("content.%d: %w", i, err)
		}
	}
	return blocks, nil
}

func (b block) check() error {
	switch b.Type {
	case "text":
		if b.Text == "" {
			return errors.New("text content blocks must be non-empty")
		}
	case "tool_use":
		var input map[string]any
		if b.ID == "" || b.Name == "" || json.Unmarshal(b.Input, &input) != nil || input == nil {
			return errors.New("tool_use needs id, name and an input that is an object")
		}
	case "tool_result":
		if b.ToolUseID == "" {
			return errors.New("tool_result needs tool_use_id")
		}
		if _, err := parseBlocks(b.Content, "text"); err != nil {
			return fmt.Errorf("tool_result: %w", err)
		}
	}
	return nil
}

func (r request) checkTools() error {
	seen := map[string]bool{}
	for i, t := range r.Tools {
		var schema struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(t.InputSchema, &schema) != nil || schema.Type != "object" {
			return fmt.Errorf("tools.%d: input_schema.type must be object", i)
		}
		if !toolName.MatchString(t.Name) || seen[t.Name] {
			return fmt.Errorf("tools.%d: the name %q is wrong or used twice", i, t.Name)
		}
		if t.Description == "" {
			return fmt.Errorf("tools.%d: a tool without a description is of no use to a model", i)
		}
		seen[t.Name] = true
	}
	return nil
}

// checkOrder holds the conversation against its rules: the user begins and ends it, the roles alternate, every tool_use
// is answered by exactly one tool_result in the next message, before any text, and only tools that are offered are used.
func (r request) checkOrder() error {
	open := map[string]bool{}
	used := map[string]bool{}
	for i, m := range r.Messages {
		want := "user"
		if i%2 == 1 {
			want = "assistant"
		}
		if m.Role != want {
			return fmt.Errorf("messages.%d: roles must alternate, beginning with the user: want %s", i, want)
		}
		text := false
		for _, b := range m.blocks {
			switch b.Type {
			case "text":
				text = true
			case "tool_use":
				if !r.hasTool(b.Name) {
					return fmt.Errorf("messages.%d: the tool %q is not offered", i, b.Name)
				}
				if used[b.ID] {
					return fmt.Errorf("messages.%d: `tool_use` ids must be unique: %s", i, b.ID)
				}
				used[b.ID], open[b.ID] = true, true
			case "tool_result":
				if !open[b.ToolUseID] {
					return fmt.Errorf("messages.%d: unexpected `tool_use_id` in a `tool_result`: %s", i, b.ToolUseID)
				}
				if text {
					return fmt.Errorf("messages.%d: tool_result blocks come before text", i)
				}
				delete(open, b.ToolUseID)
			}
		}
		if m.Role == "user" && len(open) > 0 {
			return fmt.Errorf("messages.%d: `tool_use` ids were found without `tool_result` blocks", i)
		}
	}
	if r.Messages[len(r.Messages)-1].Role != "user" {
		return errors.New("messages: the last message must be the user's")
	}
	return nil
}

func (r request) checkMarks() error {
	if n := r.marks(); n > maxMarks {
		return fmt.Errorf("a maximum of %d blocks with cache_control may be provided, found %d", maxMarks, n)
	}
	return nil
}

func (r request) marks() int {
	n := 0
	count := func(mark json.RawMessage) {
		if len(mark) > 0 && !bytes.Equal(mark, []byte("null")) {
			n++
		}
	}
	count(r.CacheControl)
	for _, t := range r.Tools {
		count(t.CacheControl)
	}
	if system, err := parseBlocks(r.System, "text"); err == nil {
		for _, b := range system {
			count(b.CacheControl)
		}
	}
	for _, m := range r.Messages {
		for _, b := range m.blocks {
			count(b.CacheControl)
		}
	}
	return n
}

func (r request) hasTool(name string) bool {
	return slices.ContainsFunc(r.Tools, func(t tool) bool { return t.Name == name })
}

// toolUseIDs gives the ids of every call in the conversation.
func (r request) toolUseIDs() []string {
	var ids []string
	for _, m := range r.Messages {
		for _, b := range m.blocks {
			if b.Type == "tool_use" {
				ids = append(ids, b.ID)
			}
		}
	}
	return ids
}
