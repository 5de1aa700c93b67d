package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github/githubsim"
	"github.com/errand-dev/errand/wire"
)

// runners play errand-runner in every workflow run that GitHub starts: the same calls in the same order, without git and
// without a model. Some die on the way, some come twice, some say everything twice.
type runners struct {
	base  string // the control plane's public address
	http  *http.Client
	calm  atomic.Bool // from now on all of them behave
	pulls atomic.Int64
	busy  atomic.Int64

	mu       sync.Mutex
	rng      *mathrand.Rand
	granted  []grant
	reported []report
	observed []string
}

// errand is one workflow run's runner. luck is drawn before it begins.
type workflowRun struct {
	*runners
	job   githubsim.Job
	run   string // of Errand's
	nonce string
	token string
	luck  float64
}

// Execute is called by githubsim for each job.
func (rs *runners) Execute(ctx context.Context, job githubsim.Job) (string, error) {
	rs.busy.Add(1)
	defer rs.busy.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-job.Stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	run, _, _ := strings.Cut(job.Inputs["run"], ".")
	w := &workflowRun{runners: rs, job: job, run: run, nonce: rand.Text(), luck: rs.draw()}
	if rs.calm.Load() {
		w.luck = 1
	}
	sleep(ctx, rs.between(10, 400))
	conclusion := w.work(ctx)
	if w.luck > 0.20 && w.luck < 0.24 && ctx.Err() == nil { // "Re-run" on GitHub's page, with the same inputs
		again := &workflowRun{runners: rs, job: job, run: run, nonce: rand.Text(), luck: 1}
		again.job.Attempt++
		again.work(ctx)
	}
	return conclusion, nil
}

// work is the run's life as errand-runner leads it. What it gives is the job's conclusion.
func (w *workflowRun) work(ctx context.Context) string {
	if w.luck < 0.02 {
		return "failure" // it never got as far as the action
	}
	if w.luck > 0.24 && w.luck < 0.26 { // somebody else read the ticket, and is as quick
		other := &workflowRun{runners: w.runners, job: w.job, run: w.run, nonce: rand.Text(), luck: 1}
		var both sync.WaitGroup
		both.Go(func() { other.exchange(ctx) })
		defer both.Wait()
	}
	if !w.exchange(ctx) || w.luck < 0.05 {
		return "failure"
	}
	if status := w.call(ctx, "start", wire.StartRequest{Repository: w.job.Owner + "/" + w.job.Repo, RepositoryID: w.job.RepositoryID}, nil); status != http.StatusOK {
		return "failure"
	}
	if w.luck < 0.08 {
		return "failure" // killed with its machine
	}
	for seq := 1; seq <= 3; seq++ {
		sleep(ctx, w.between(50, 500))
		if stop := w.progress(ctx, seq); stop {
			return "failure"
		}
		if w.luck < 0.11 {
			return "success" // nothing to see on GitHub's page, and no report
		}
	}
	if w.luck < 0.14 { // hangs, and is killed by GitHub's own limit
		sleep(ctx, w.between(5000, 15000))
		return "timed_out"
	}
	return w.finish(ctx)
}

func (w *workflowRun) exchange(ctx context.Context) bool {
	var out wire.ExchangeResponse
	status := w.call(ctx, "exchange", wire.ExchangeRequest{
		Ticket: w.job.Inputs["ticket"], Nonce: w.nonce, Provider: "anthropic", Model: "claude-sonnet-5", RunnerVersion: "chaos",
		WorkflowRunID: w.job.RunID, WorkflowRunAttempt: w.job.Attempt,
	}, &out)
	if status != http.StatusOK {
		return false
	}
	w.token = out.Token
	_, attempt, _ := strings.Cut(w.job.Inputs["run"], ".")
	w.mu.Lock()
	defer w.mu.Unlock()
	if string(out.Run) != w.run {
		w.observed = append(w.observed, fmt.Sprintf("the ticket of run %s was exchanged for a token of run %s", w.run, out.Run))
	}
	w.granted = append(w.granted, grant{run: w.run, nonce: w.nonce, attempt: attempt, workflowRun: w.job.RunID})
	return true
}

func (w *workflowRun) progress(ctx context.Context, seq int) (stop bool) {
	var out wire.ProgressResponse
	now := time.Now()
	req := wire.ProgressRequest{
		Steps: []wire.Step{{Seq: seq, At: now, Tool: "read_file", Path: "src/app.go", Outcome: "ok", Count: seq}},
		Usage: []wire.UsageLine{{Seq: seq, At: now, Provider: "anthropic", Model: "claude-sonnet-5", Raw: json.RawMessage(`{"input_tokens":1200,"output_tokens":80}`)}},
	}
	for range 1 + int(w.luck*100)%2 { // every other one says it twice
		if w.call(ctx, "progress", req, &out) != http.StatusOK {
			return true
		}
		w.note(report{run: w.run, steps: seq})
	}
	return out.Stop
}

// finish reports the end: mostly nothing to fix, some failures, some pull requests.
func (w *workflowRun) finish(ctx context.Context) string {
	result := wire.ResultRequest{State: errand.NoFix, Reason: errand.ReasonNothingToFix, Summary: "Nothing to change.", ToolCalls: 3, DurationMS: 1500}
	switch kind := w.draw(); {
	case kind < 0.15:
		result.State, result.Reason = errand.Failed, errand.ReasonAgentError
	case kind < 0.45:
		var out wire.ClaimResponse
		number := int(w.pulls.Add(1))
		file := wire.ClaimFile{Path: fmt.Sprintf("src/file%d.go", number), Kind: "edit", Added: 3, Removed: 1}
		status := w.call(ctx, "claim", wire.ClaimRequest{Seq: 1, Verdict: "verified", Files: []wire.ClaimFile{file}, Final: true}, &out)
		if status != http.StatusOK || out.Decision != "admitted" {
			return "failure"
		}
		result.State, result.Reason = errand.PROpened, errand.ReasonNone
		result.PullRequest = &wire.PullRequest{
			Number: number, Branch: "errand/fix-" + w.run[len(w.run)-8:],
			URL: fmt.Sprintf("%s/%s/%s/pull/%d", w.job.ServerURL, w.job.Owner, w.job.Repo, number),
		}
	}
	if w.luck > 0.30 && w.luck < 0.40 { // late
		sleep(ctx, w.between(2000, 8000))
	}
	for range 1 + int(w.luck*1000)%3/2 {
		if w.call(ctx, "result", result, nil) != http.StatusOK {
			return "failure"
		}
		w.note(report{run: w.run, state: string(result.State)})
	}
	if w.luck > 0.40 && w.luck < 0.45 { // and now something else
		other := result
		other.Summary = "On second thoughts."
		if status := w.call(ctx, "result", other, nil); status == http.StatusOK {
			w.mu.Lock()
			w.observed = append(w.observed, fmt.Sprintf("run %s took two different results", w.run))
			w.mu.Unlock()
		}
	}
	return "success"
}

// call repeats one call as errand-runner does, with shorter pauses, and gives the status that ended it; 0 = none did.
func (w *workflowRun) call(ctx context.Context, call string, in, out any) int {
	body, err := json.Marshal(in)
	if err != nil {
		panic(err) // our own types: cannot fail
	}
	end := time.Now().Add(50 * time.Second) // an exchange may be repeated for a minute
	for wait := 300 * time.Millisecond; ctx.Err() == nil && time.Now().Before(end); wait = min(wait*2, 3*time.Second) {
		status, answer := w.once(ctx, call, body)
		if status == http.StatusOK && out != nil {
			if err := json.Unmarshal(answer, out); err != nil {
				status = 0
			}
		}
		switch status {
		case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict: // an end, one way or the other
			return status
		case http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity:
			w.mu.Lock()
			note(&w.observed, "run %s: a good %s was refused with %d: %s", w.run, call, status, answer)
			w.mu.Unlock()
			return status
		}
		sleep(ctx, wait)
	}
	return 0
}

func (w *workflowRun) once(ctx context.Context, call string, body []byte) (int, []byte) {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base+"/runner/v1/"+call, bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	req.Header.Set("Content-Type", "application/json")
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, answer
}

func (rs *runners) note(r report) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.reported = append(rs.reported, r)
}

func (rs *runners) draw() float64 {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.rng.Float64()
}

func (rs *runners) between(least, most int) time.Duration {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return time.Duration(least+rs.rng.IntN(most-least)) * time.Millisecond
}
