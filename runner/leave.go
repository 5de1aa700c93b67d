package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/claims"
	"github.com/errand-dev/errand/wire"
)

// leave reports the end: to the control plane, to the job's summary and outputs, and by the exit code.
func (r *run) leave(ctx context.Context, end *ending) Exit {
	r.summarise(end)
	exit := map[errand.RunState]Exit{
		errand.PROpened: ExitDone, errand.NoFix: ExitDone, errand.Rejected: ExitRejected, errand.Cancelled: ExitStopped,
	}
	code, ok := exit[end.State]
	if !ok {
		code = ExitFailed
	}
	// What stopped the work does not stop the report of it.
	until := r.started.Add(jobLimit)
	reportCtx := context.WithoutCancel(ctx)
	if end.Reason == errand.ReasonWorkflowCancelled {
		var cancel context.CancelFunc
		reportCtx, cancel = context.WithTimeout(reportCtx, leaveTime)
		defer cancel()
	}
	if end.State == errand.Cancelled {
		// The control plane knows: it is told only of what was spent in the meantime.
		_ = r.rep.send(reportCtx)
		r.forget()
		r.console.fail(end.Detail)
		return code
	}
	err := r.report(reportCtx, until, end)
	var e *apiError
	switch {
	case err == nil:
		r.forget()
	case errors.As(err, &e) && e.Status == 409 && e.State == end.State:
		r.forget() // it was reported before, and the answer was lost
	case errors.As(err, &e) && e.Status == 409:
		r.forget()
		r.console.fail("the run was over before this end was reported: " + e.Error())
		return ExitStopped
	default:
		r.console.fail("the end could not be reported: " + err.Error())
		return ExitUnreported
	}
	if code != ExitDone {
		r.console.fail(strings.TrimSpace(end.Reason.Sentence() + " " + end.Detail))
	}
	return code
}

// report sends the result until it is taken or the job's time is over.
func (r *run) report(ctx context.Context, until time.Time, end *ending) error {
	r.rep.drain(ctx)
	rest := r.rep.next(500)
	req := wire.ResultRequest{
		State: end.State, Reason: end.Reason, Summary: r.summaryText(end.Summary), PullRequest: end.PR,
		Model: cut(r.cfg.Model, 128), DurationMS: max(0, r.env.Clock().Sub(r.started).Milliseconds()),
		Steps: rest.Steps, Usage: rest.Usage,
	}
	if r.budget != nil {
		req.ToolCalls = r.budget.used
	}
	var resp wire.ResultResponse
	return r.client.until(ctx, until, "result", req, &resp)
}

// summaryText is the agent's words as the control plane may keep them.
func (r *run) summaryText(s string) string {
	s, _ = r.scrubber.Text("summary", r.console.concealed(s))
	return cut(plain(s), 4000)
}

// summarise writes the job's summary and outputs. A file that cannot be written is said and is no reason to fail.
func (r *run) summarise(end *ending) {
	r.console.say("%s %s", outcome(end), end.Reason)
	var report *claims.Report
	var files []wire.ClaimFile
	if r.proposer != nil {
		report, files = r.proposer.checked, r.proposer.files
	}
	r.rep.mu.Lock()
	steps := r.rep.all
	r.rep.mu.Unlock()
	text := summaryOf(end, r.start, r.account(), steps, report, files)
	if r.out != nil && r.out.kept != "" {
		text += fmt.Sprintf("\n[Open the pull request by hand](%s)\n\n<details><summary>Its text</summary>\n\n%s\n\n</details>\n", r.out.compare, r.out.kept)
	}
	outputs := fmt.Sprintf("state=%s\nreason=%s\n", end.State, end.Reason)
	if end.PR != nil {
		outputs += fmt.Sprintf("pull-request=%s\nbranch=%s\n", plain(end.PR.URL), plain(end.PR.Branch))
	}
	for file, content := range map[string]string{r.cfg.StepSummary: text, r.cfg.Output: outputs} {
		if file == "" {
			continue
		}
		if err := appendTo(file, r.console.concealed(content)); err != nil {
			r.console.say("note: %v", err)
		}
	}
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// word is what is left for the action's last step: enough to report an end, should this program die without one. It lies
// outside the checkout, readable by its owner alone, and is removed as soon as an end was reported.
type word struct {
	ControlPlane string    `json:"control_plane"`
	Run          errand.ID `json:"run"`
	Token        string    `json:"token"`
}

func wordFile(dir string, run errand.ID) string {
	return filepath.Join(dir, "errand-"+string(run)+".json")
}

func (r *run) leaveWord() error {
	if r.cfg.TempDir == "" {
		return errors.New("RUNNER_TEMP is not set")
	}
	b, err := json.Marshal(word{ControlPlane: r.cfg.ControlPlane, Run: r.cfg.Run, Token: r.client.token})
	if err != nil {
		return err
	}
	// O_EXCL: what lies there already, a link above all, is not written through.
	f, err := os.OpenFile(wordFile(r.cfg.TempDir, r.cfg.Run), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func (r *run) forget() {
	if r.cfg.TempDir != "" {
		_ = os.Remove(wordFile(r.cfg.TempDir, r.cfg.Run))
	}
}

// ReportFailure is the action's last step: it reports an end where Run died without reporting one (killed, out of memory).
// Where an end was reported, or nothing was begun, there is nothing to do.
func ReportFailure(ctx context.Context, env Env) Exit {
	con := newConsole(env.Out)
	defer con.close()
	con.mask(secretsOf(env.Getenv)...)
	event, _ := eventInputs(env.Getenv("GITHUB_EVENT_PATH"))
	l := loader{getenv: env.Getenv}
	run := l.run(value("run", env.Getenv, event))
	dir := env.Getenv("RUNNER_TEMP")
	if run == "" || dir == "" {
		return ExitDone
	}
	b, err := os.ReadFile(wordFile(dir, run))
	if errors.Is(err, os.ErrNotExist) {
		return ExitDone
	}
	var left word
	if err == nil {
		err = json.Unmarshal(b, &left)
	}
	if err == nil && (left.Run != run || left.Token == "" || left.ControlPlane == "") {
		err = errors.New("it is not complete")
	}
	if err != nil {
		con.fail("what the runner left behind cannot be read: " + err.Error())
		return ExitUnreported
	}
	con.mask(left.Token)
	c := &client{base: left.ControlPlane, token: left.Token, version: env.Version, http: withoutRedirects(env.HTTP), clock: env.Clock, sleep: env.Sleep}
	var resp wire.ResultResponse
	err = c.until(ctx, env.Clock().Add(callWindow), "result", wire.ResultRequest{State: errand.Failed, Reason: errand.ReasonAgentError}, &resp)
	var e *apiError
	if err != nil && (!errors.As(err, &e) || (e.Status != 409 && e.Status != 401)) {
		con.fail("the end could not be reported: " + err.Error())
		return ExitUnreported
	}
	_ = os.Remove(wordFile(dir, run))
	con.say("the runner ended without a report; the control plane was told")
	return ExitDone
}
