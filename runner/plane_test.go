package runner_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/wire"
)

// plane is a control plane that holds every body against the rules of package wire. What breaks one is a violation.
type plane struct {
	t     *testing.T
	hub   *hub
	url   string
	start wire.StartResponse

	mu        sync.Mutex
	broken    []string
	bodies    []string // of every call but exchange
	nonces    []string
	exchanges []wire.ExchangeRequest
	started   bool
	steps     map[int]wire.Step
	usage     map[int]wire.UsageLine
	claims    []wire.ClaimRequest
	result    *wire.ResultRequest
	resultRaw []byte
	progress  int

	// what a test changes
	fail   func(call string, n int) (status int, body string) // 0 = serve it; -1 = do it and lose the answer
	decide func(wire.ClaimRequest) string                     // "" = by the verdict
	stop   func() bool
	calls  map[string]int
}

func newPlane(t *testing.T, h *hub) *plane {
	p := &plane{
		t: t, hub: h, start: startAnswer(), steps: map[int]wire.Step{}, usage: map[int]wire.UsageLine{},
		calls: map[string]int{},
	}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

func (p *plane) violations() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.broken)
}

func (p *plane) bad(format string, args ...any) {
	p.broken = append(p.broken, fmt.Sprintf(format, args...))
}

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := strings.TrimPrefix(r.URL.Path, "/runner/v1/")
	body, _ := io.ReadAll(r.Body)
	p.calls[call]++
	status := 0
	if p.fail != nil {
		var answer string
		if status, answer = p.fail(call, p.calls[call]); status > 0 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(answer))
			return
		}
	}
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		p.bad("%s %s with %s", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	if call != "exchange" {
		p.bodies = append(p.bodies, string(body))
		if r.Header.Get("Authorization") != "Bearer "+runToken {
			p.bad("%s without the run's token", call)
		}
		if bytes.Contains(body, []byte("HUSHHUSH")) {
			p.bad("%s carries a secret: %s", call, body)
		}
	}
	answer := p.serve(call, body)
	if status < 0 {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *plane) serve(call string, body []byte) any {
	switch call {
	case "exchange":
		var in wire.ExchangeRequest
		p.decode(body, &in)
		p.exchanges = append(p.exchanges, in)
		if in.Ticket != ticket && in.IDToken == "" || in.Run != "" && in.Run != runID+".1" || len(in.Nonce) < 16 || in.WorkflowRunID != 777 || in.WorkflowRunAttempt != 1 || in.Model != "claude-sonnet-5" {
			p.bad("exchange: %s", body)
		}
		p.nonces = append(p.nonces, in.Nonce)
		return wire.ExchangeResponse{Run: p.start.Run, Token: runToken, ExpiresAt: time.Date(2026, 12, 1, 12, 30, 0, 0, time.UTC)}
	case "start":
		var in wire.StartRequest
		p.decode(body, &in)
		if in.Repository == "" {
			p.bad("start: %s", body)
		}
		p.started = true
		return p.start
	case "progress":
		var in wire.ProgressRequest
		p.decode(body, &in)
		p.lines(in.Steps, in.Usage, 200)
		p.progress++
		return wire.ProgressResponse{Stop: p.stop != nil && p.stop(), Reason: "cancelled by a person"}
	case "claim":
		return p.claim(body)
	case "result":
		return p.finish(body)
	default:
		p.bad("unknown call %s", call)
		return nil
	}
}

func (p *plane) decode(body []byte, v any) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		p.bad("%v in %s", err, body)
	}
}

func (p *plane) lines(steps []wire.Step, usage []wire.UsageLine, most int) {
	if !p.started || len(steps) > most || len(usage) > most {
		p.bad("lines before the start, or too many: %d, %d", len(steps), len(usage))
	}
	for _, s := range steps {
		if s.Seq < 1 || s.At.IsZero() || s.Tool == "" || len(s.Tool) > 64 || len(s.Path) > 1024 || !slices.Contains([]string{"ok", "refused", "error"}, s.Outcome) {
			p.bad("step %+v", s)
		}
		if was, ok := p.steps[s.Seq]; ok && was != s {
			p.bad("step %d came twice and differs", s.Seq)
		}
		p.steps[s.Seq] = s
	}
	for _, u := range usage {
		if u.Seq < 1 || u.At.IsZero() || u.Provider != "anthropic" || u.Model == "" || !json.Valid(u.Raw) {
			p.bad("usage %+v", u)
		}
		p.usage[u.Seq] = u
	}
}

func (p *plane) claim(body []byte) any {
	var in wire.ClaimRequest
	p.decode(body, &in)
	if in.Seq != len(p.claims)+1 || in.Seq > 2 || !slices.Contains([]string{"verified", "rejected", "needs_review"}, in.Verdict) || len(in.Files) == 0 {
		p.bad("claim: %s", body)
	}
	if branches := p.hub.branches(); in.Verdict == "rejected" && len(branches) > 0 {
		p.bad("a branch was pushed before its claim was admitted: %q", branches)
	}
	for _, f := range in.Files {
		if f.Path == "" || !slices.Contains([]string{"edit", "add", "delete", "rename", "mode", "binary", "symlink", "submodule"}, f.Kind) {
			p.bad("claim's file %+v", f)
		}
	}
	p.claims = append(p.claims, in)
	decision := ""
	if p.decide != nil {
		decision = p.decide(in)
	}
	if decision == "" {
		switch {
		case in.Verdict != "rejected":
			decision = "admitted"
		case in.Final:
			decision = "rejected"
		default:
			decision = "correct"
		}
	}
	resp := wire.ClaimResponse{Decision: decision}
	if decision == "blocked" {
		resp.BlockedBy = "0190f3a2-7c1d-7e52-9b0a-000000000001"
	}
	return resp
}

func (p *plane) finish(body []byte) any {
	var in wire.ResultRequest
	p.decode(body, &in)
	if p.resultRaw != nil && !bytes.Equal(p.resultRaw, body) {
		p.bad("two results that differ: %s and %s", p.resultRaw, body)
	}
	states := []errand.RunState{errand.PROpened, errand.NoFix, errand.Rejected, errand.Failed, errand.TimedOut}
	if !slices.Contains(states, in.State) || !in.Reason.Known() || (in.Reason == "") != (in.State == errand.PROpened) {
		p.bad("result: state %q, reason %q", in.State, in.Reason)
	}
	if (in.PullRequest != nil) != (in.State == errand.PROpened) || len(in.Summary) > 4000 || in.ToolCalls < 0 || in.DurationMS < 0 {
		p.bad("result: %s", body)
	}
	p.lines(in.Steps, in.Usage, 500)
	p.result, p.resultRaw = &in, body
	return wire.ResultResponse{Run: p.start.Run, State: in.State}
}

// stepsOf gives the steps of a tool in order.
func (p *plane) stepsOf(tool string) []wire.Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []wire.Step
	for i := 1; i <= len(p.steps); i++ {
		if s, ok := p.steps[i]; ok && s.Tool == tool {
			list = append(list, s)
		}
	}
	return list
}

// ended checks the end that was reported.
func (w *world) ended(state errand.RunState, reason errand.Reason) {
	w.t.Helper()
	w.plane.mu.Lock()
	defer w.plane.mu.Unlock()
	r := w.plane.result
	if r == nil {
		w.t.Fatalf("no result was reported\n%s", w.out.String())
	}
	if r.State != state || r.Reason != reason {
		w.t.Errorf("ended %s %q, want %s %q\n%s\n%s", r.State, r.Reason, state, reason, w.out.String(), w.summary())
	}
	for i := 1; i <= len(w.plane.steps); i++ {
		if _, ok := w.plane.steps[i]; !ok {
			w.t.Errorf("step %d never arrived", i)
		}
	}
	for i := 1; i <= len(w.plane.usage); i++ {
		if _, ok := w.plane.usage[i]; !ok {
			w.t.Errorf("usage line %d never arrived", i)
		}
	}
	if len(w.plane.usage) != len(w.sim.Requests()) {
		w.t.Errorf("%d usage lines for %d model requests", len(w.plane.usage), len(w.sim.Requests()))
	}
}
