// Package modelsim is a scripted model behind the real wire format of Anthropic's Messages API: an http.Handler for POST
// /v1/messages that answers the turns of a scenario file, with tool calls, usage, delays and faults. The demo and the
// tests of the runner speak to it through the same SDK that speaks to the provider.
//
// It is stricter than the provider: whatever the provider might forgive is refused here and kept as a violation, so that
// a test that ends without violations has sent requests that hold anywhere. It imports the root only, and no SDK. Start
// reading at Scenario (scenario.go), then Sim.ServeHTTP; check.go holds what a request must be.
package modelsim

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxBody is the largest request the provider takes, in bytes.
const maxBody = 32 << 20

// Sim serves one scenario. Each conversation, known by its first user message, plays the scenario from its first turn,
// so that several runs can be served at once. It is safe for concurrent use.
type Sim struct {
	scenario Scenario

	mu            sync.Mutex
	conversations map[[sha256.Size]byte]*conversation
	requests      []Request
	violations    []string
	served        int // requests, for ids
}

// conversation is how far one run has come.
type conversation struct {
	next   int
	issued map[string]bool // ids of tool calls that were sent out
	cached int             // tokens written to the cache so far
}

// Request is one request as it was received, and how it was answered.
type Request struct {
	Body   json.RawMessage
	Turn   int // index in the scenario; -1 when the request was refused before a turn was chosen
	Status int // 0 = the connection was cut
}

// New makes a Sim for a scenario (see Parse).
func New(s Scenario) *Sim {
	return &Sim{scenario: s, conversations: map[[sha256.Size]byte]*conversation{}}
}

// Requests gives every request so far, oldest first.
func (s *Sim) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Violations says in sentences what requests broke the API's rules or the scenario's expectations. Empty is good.
func (s *Sim) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// ServeHTTP answers POST /v1/messages and nothing else.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // the client went away or sent too much; there is nobody to answer
	}
	a := s.decide(r, body)
	if a.delay > 0 {
		t := time.NewTimer(a.delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		}
	}
	a.write(w)
}

// answer is what goes back.
type answer struct {
	status     int
	body       []byte
	requestID  string
	retryAfter string
	delay      time.Duration
	cut        bool // the connection ends in the middle of the body
}

func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Request-Id", a.requestID)
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	if a.retryAfter != "" {
		h.Set("Retry-After", a.retryAfter)
	}
	w.WriteHeader(a.status)
	if a.cut {
		_, _ = w.Write(a.body[:len(a.body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // net/http's documented way to break a connection off
	}
	_, _ = w.Write(a.body)
}

// decide chooses the answer and records the request.
func (s *Sim) decide(r *http.Request, body []byte) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served++
	id := fmt.Sprintf("req_sim%04d", s.served)
	turn := -1
	a, refused := s.refuse(r, body)
	if refused == "" {
		a, turn, refused = s.play(body)
	}
	if refused != "" {
		s.violations = append(s.violations, fmt.Sprintf("request %d: %s", s.served, refused))
		a.body = errorBody(a.status, refused, id)
	} else if a.status != http.StatusOK {
		a.body = errorBody(a.status, string(a.body), id)
	}
	a.requestID = id
	kept := Request{Body: bytes.Clone(body), Turn: turn, Status: a.status}
	if a.cut {
		kept.Status = 0
	}
	s.requests = append(s.requests, kept)
	return a
}

// refuse checks what stands before the scenario: route, headers, body. refused is "" when all is well.
func (s *Sim) refuse(r *http.Request, body []byte) (a answer, refused string) {
	switch {
	case r.URL.Path != "/v1/messages":
		return answer{status: http.StatusNotFound}, "no such path: " + r.Method + " " + r.URL.Path
	case r.Method != http.MethodPost:
		return answer{status: http.StatusMethodNotAllowed}, "only POST is served, not " + r.Method
	case keyOf(r.Header) == "" || (s.scenario.APIKey != "" && keyOf(r.Header) != s.scenario.APIKey):
		return answer{status: http.StatusUnauthorized}, "invalid API key: want authorization: Bearer KEY, or x-api-key: KEY, and not both"
	case !slices.Contains(versions(), r.Header.Get("Anthropic-Version")):
		return answer{status: http.StatusBadRequest}, fmt.Sprintf("anthropic-version: want one of %q", versions())
	case r.Header.Get("Content-Type") != "application/json":
		return answer{status: http.StatusBadRequest}, "content-type: want application/json"
	}
	req, err := parseRequest(body)
	if err != nil {
		return answer{status: http.StatusBadRequest}, err.Error()
	}
	if s.scenario.Model != "" && req.Model != s.scenario.Model {
		return answer{status: http.StatusNotFound}, "model: " + req.Model
	}
	return answer{}, ""
}

// versions are the API versions whose request and answer are served here: the current one, which version 2 of the SDK
// names, and the one before it. What is served is the same in both.
func versions() []string { return []string{"2026-10-21", "2023-06-01"} }

// keyOf gives the key from either of the two headers that carry it; "" when there is none, or two.
func keyOf(h http.Header) string {
	bearer, isBearer := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	key := h.Get("X-Api-Key")
	switch {
	case isBearer && key == "":
		return bearer
	case h.Get("Authorization") == "":
		return key
	default:
		return ""
	}
}

// play answers with the conversation's next turn.
func (s *Sim) play(body []byte) (a answer, turn int, refused string) {
	req, _ := parseRequest(body) // was checked by refuse
	// Of the text alone: the cache mark moves on from the first message with the second request.
	var first strings.Builder
	for _, b := range req.Messages[0].blocks {
		first.WriteString(b.Text)
	}
	key := sha256.Sum256([]byte(first.String()))
	c := s.conversations[key]
	if c == nil {
		c = &conversation{issued: map[string]bool{}}
		s.conversations[key] = c
	}
	for _, id := range req.toolUseIDs() {
		if !c.issued[id] {
			return answer{status: http.StatusBadRequest}, -1, "messages: the tool_use " + id + " was never sent in this conversation"
		}
	}
	if c.next >= len(s.scenario.Turns) {
		return answer{status: http.StatusBadRequest}, -1, fmt.Sprintf("the scenario has no turn %d", c.next+1)
	}
	turn = c.next
	t := s.scenario.Turns[turn]
	if missing := t.Expect.missing(body, req); missing != "" {
		return answer{status: http.StatusBadRequest}, turn, fmt.Sprintf("turn %d: %s", turn+1, missing)
	}
	c.next++
	a = answer{status: http.StatusOK, delay: t.Delay.Duration()}
	if f := t.Fault; f != nil && f.Status != 0 {
		a.status, a.body = f.Status, []byte(f.message())
		if f.RetryAfter > 0 {
			a.retryAfter = strconv.Itoa(f.RetryAfter)
		}
		return a, turn, ""
	}
	a.body = s.message(t, c, req, len(body))
	if f := t.Fault; f != nil {
		a.cut = f.Cut
		if f.Malformed {
			a.body = a.body[:len(a.body)*2/3] // whole as HTTP, broken as JSON
		}
	}
	return a, turn, ""
}

// message builds the provider's Message object.
func (s *Sim) message(t Turn, c *conversation, req request, size int) []byte {
	var content []any
	if t.Text != "" {
		content = append(content, map[string]any{"type": "text", "text": t.Text})
	}
	for i, call := range t.ToolCalls {
		id := fmt.Sprintf("toolu_sim%04d%02d", s.served, i+1)
		c.issued[id] = true
		content = append(content, map[string]any{"type": "tool_use", "id": id, "name": call.Name, "input": call.input()})
	}
	if content == nil {
		content = []any{}
	}
	written, _ := json.Marshal(content)
	usage := t.Usage
	if usage == nil {
		usage = c.estimate(size, len(written), req.cached)
	}
	out, _ := json.Marshal(map[string]any{
		"id": fmt.Sprintf("msg_sim%04d", s.served), "type": "message", "role": "assistant", "model": req.Model,
		"content": content, "stop_reason": t.stopReason(), "stop_sequence": nil, "stop_details": nil,
		"container": nil, "diagnostics": nil, "usage": usage,
	})
	return out
}

// estimate makes usage counts of a plausible size for a turn that states none: four bytes a token, and what was cached
// by an earlier request of the conversation is read from the cache.
func (c *conversation) estimate(request, answer int, cached bool) *Usage {
	all := request/4 + 1
	u := &Usage{InputTokens: all, OutputTokens: answer/4 + 1, ServiceTier: "standard"}
	if !cached {
		return u
	}
	u.InputTokens = min(all, 4) // what follows the last mark
	u.CacheReadInputTokens = min(c.cached, all-u.InputTokens)
	u.CacheCreationInputTokens = all - u.InputTokens - u.CacheReadInputTokens
	u.CacheCreation = &CacheCreation{Ephemeral5m: u.CacheCreationInputTokens}
	c.cached = all - u.InputTokens
	return u
}

// errorBody is the provider's error object for a status.
func errorBody(status int, message, id string) []byte {
	types := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
		404: "not_found_error", 405: "invalid_request_error", 413: "request_too_large", 429: "rate_limit_error",
		504: "timeout_error", 529: "overloaded_error",
	}
	kind, ok := types[status]
	if !ok {
		kind = "api_error"
	}
	out, _ := json.Marshal(map[string]any{
		"type": "error", "error": map[string]string{"type": kind, "message": message}, "request_id": id,
	})
	return out
}
