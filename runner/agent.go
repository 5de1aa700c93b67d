package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/models"
	"github.com/errand-dev/errand/wire"
)

// Bounds of one request to the model.
const (
	answerTokens  = 16_000 // of one answer; the run's own limit may be lower
	maxAttempts   = 8      // of one request
	maxCutAnswers = 2      // in a row, before the run is given up
	warnCalls     = 5
	warnTime      = 4 * time.Minute
)

// ending is how a run ends: what goes into the result, and what was opened.
type ending struct {
	State   errand.RunState
	Reason  errand.Reason
	Summary string // the agent's words, or ours about the agent; goes to the control plane
	Detail  string // ours, for the job's log and summary alone; may hold what GitHub or the provider said
	PR      *wire.PullRequest
}

func ended(state errand.RunState, reason errand.Reason, detail string) *ending {
	return &ending{State: state, Reason: reason, Detail: detail}
}

// budget is what is left of the run's limits.
type budget struct {
	calls    int
	tokens   int64
	deadline time.Time
	used     int // tool calls
}

func newBudget(l wire.Limits, now time.Time) (*budget, error) {
	for name, v := range map[string]int{
		"tool_calls": l.ToolCalls, "wall_seconds": l.WallSeconds, "output_tokens": l.OutputTokens,
		"max_files": l.MaxFiles, "max_changed_lines": l.MaxChangedLines,
	} {
		if v < 1 {
			return nil, errand.Invalid("limits."+name, "is %d: a limit is at least 1, and there is no way to say \"no limit\"", v)
		}
	}
	return &budget{calls: l.ToolCalls, tokens: int64(l.OutputTokens), deadline: now.Add(time.Duration(l.WallSeconds) * time.Second)}, nil
}

// phase is where the agent's loop stands.
type phase int

const (
	asking  phase = iota // the model's turn
	acting               // its tool calls are run, one after the other
	telling              // it was cut off or paused, and is told so
)

// agent is the loop between the model and the tools. It ends with an ending, always within its budget.
type agent struct {
	model   models.Model
	tools   *toolbox
	budget  *budget
	rep     *reporter
	clock   errand.Clock
	sleep   func(context.Context, time.Duration) error
	propose func(ctx context.Context, call models.ToolCall, last bool) (models.ToolResult, *ending)

	system   string
	messages []models.Message
	turn     models.Turn
	cuts     int
	warned   struct{ calls, time bool }
}

// run goes from phase to phase until one of them ends the run.
func (a *agent) run(ctx context.Context, task string) *ending {
	a.messages = []models.Message{{Role: models.User, Text: task + a.warning()}}
	at := asking
	for {
		var end *ending
		switch at {
		case asking:
			at, end = a.ask(ctx)
		case acting:
			at, end = a.act(ctx)
		case telling:
			at, end = a.tell()
		}
		if end != nil {
			return end
		}
	}
}

// ask gets the model's next turn and says what follows from it.
func (a *agent) ask(ctx context.Context) (phase, *ending) {
	end := a.complete(ctx)
	if end != nil {
		return 0, end
	}
	switch {
	case a.turn.Stop == models.StopRefusal:
		return 0, ended(errand.Failed, errand.ReasonProviderError, "the model refused to answer")
	case a.turn.Stop == models.StopToolUse && len(a.turn.ToolCalls) > 0:
		a.cuts = 0
		a.messages = append(a.messages, models.Message{Role: models.Assistant, Text: a.turn.Text, ToolCalls: a.turn.ToolCalls, Native: a.turn.Native})
		return acting, nil
	case a.turn.Stop == models.StopEnd:
		reason := strings.TrimSpace(a.turn.Text)
		if reason == "" {
			reason = "The agent ended without a proposal and gave no reason."
		}
		return 0, &ending{State: errand.NoFix, Reason: errand.ReasonNothingToFix, Summary: reason}
	default:
		return telling, nil
	}
}

// complete makes attempts until one succeeds. Each is counted, whatever becomes of it.
func (a *agent) complete(ctx context.Context) *ending {
	wait := time.Second
	for attempt := 1; ; attempt++ {
		left := a.budget.deadline.Sub(a.clock())
		switch {
		case ctx.Err() != nil:
			return cancelled(ctx)
		case left <= 0:
			return ended(errand.TimedOut, errand.ReasonLimits, "the agent's time is over")
		case a.budget.tokens < 1:
			return ended(errand.Failed, errand.ReasonLimits, "the agent's output tokens are used up")
		}
		most := min(answerTokens, a.budget.tokens)
		callCtx, cancel := context.WithTimeout(ctx, left)
		turn, err := a.model.Complete(callCtx, models.Request{
			System: a.system, Messages: a.messages, Tools: toolSet(), MaxOutputTokens: int(most),
		})
		cancel()
		a.rep.used(turn.Usage)
		if err == nil {
			a.turn = turn
			if n := turn.Usage.OutputTokens; n != nil {
				most = *n
			} // else unknown, which is never zero: the most it can have been
			a.budget.tokens -= most
			return nil
		}
		var e *models.Error
		if !errors.As(err, &e) {
			return ended(errand.Failed, errand.ReasonAgentError, err.Error())
		}
		if end := a.final(ctx, e); end != nil {
			return end
		}
		pause := max(wait, e.RetryAfter)
		if attempt == maxAttempts || a.clock().Add(pause).After(a.budget.deadline) {
			return ended(errand.Failed, errand.ReasonProviderError, e.Error())
		}
		if a.sleep(ctx, pause) != nil {
			return cancelled(ctx)
		}
		wait = min(wait*2, 30*time.Second)
	}
}

// final says how a provider's error ends the run, or nil when another attempt may help.
func (a *agent) final(ctx context.Context, e *models.Error) *ending {
	switch e.Kind {
	case models.KindAuth:
		return ended(errand.Failed, errand.ReasonProviderAuth, e.Error())
	case models.KindQuota:
		return ended(errand.Failed, errand.ReasonProviderQuota, e.Error())
	case models.KindCancelled:
		if ctx.Err() != nil {
			return cancelled(ctx)
		}
		return ended(errand.TimedOut, errand.ReasonLimits, "the agent's time was over before the model answered")
	case models.KindInvalid:
		return ended(errand.Failed, errand.ReasonProviderError, e.Error())
	case models.KindRateLimited, models.KindOverloaded, models.KindServer, models.KindNetwork:
		return nil
	default:
		return ended(errand.Failed, errand.ReasonAgentError, e.Error())
	}
}

// act runs the calls of the turn in their order. A proposal that ends the run leaves the rest undone.
func (a *agent) act(ctx context.Context) (phase, *ending) {
	answers := models.Message{Role: models.User}
	for _, call := range a.turn.ToolCalls {
		switch {
		case ctx.Err() != nil:
			return 0, cancelled(ctx)
		case !a.clock().Before(a.budget.deadline):
			return 0, ended(errand.TimedOut, errand.ReasonLimits, "the agent's time is over")
		case a.budget.calls < 1:
			return 0, ended(errand.Failed, errand.ReasonLimits, "the agent's tool calls are used up")
		}
		a.budget.calls--
		a.budget.used++
		var result models.ToolResult
		if call.Name == toolPropose {
			var end *ending
			if result, end = a.propose(ctx, call, a.budget.calls < 1); end != nil {
				return 0, end
			}
		} else {
			result = a.tools.look(ctx, call)
		}
		answers.ToolResults = append(answers.ToolResults, result)
	}
	if a.budget.calls < 1 {
		return 0, ended(errand.Failed, errand.ReasonLimits, "the agent's tool calls are used up")
	}
	answers.Text = a.warning()
	a.messages = append(a.messages, answers)
	return asking, nil
}

// tell answers a turn that was cut off. No tool call of it is executed: its input may be a part of what was meant.
func (a *agent) tell() (phase, *ending) {
	if a.cuts++; a.cuts > maxCutAnswers {
		return 0, ended(errand.Failed, errand.ReasonLimits, "the model's answers were cut off again and again")
	}
	text := a.turn.Text
	if text == "" {
		text = "[no text]"
	}
	notice := "Your answer did not end. Go on."
	if a.turn.Stop == models.StopLength {
		notice = "Your answer was cut off at its length limit, and no tool call of it was executed. Answer again, shorter: use find and replace, not whole files."
	}
	a.messages = append(a.messages,
		models.Message{Role: models.Assistant, Text: text},
		models.Message{Role: models.User, Text: notice + a.warning()})
	return asking, nil
}

// warning tells the agent, once for each, that calls or time run out.
func (a *agent) warning() string {
	var s string
	if a.budget.calls <= warnCalls && !a.warned.calls {
		a.warned.calls = true
		s += fmt.Sprintf("\n\nOnly %d tool calls are left. Propose the fix with one of them, or end with the reason why there is none.", a.budget.calls)
	}
	if left := a.budget.deadline.Sub(a.clock()); left <= warnTime && !a.warned.time {
		a.warned.time = true
		s += fmt.Sprintf("\n\nOnly %d seconds are left. Propose the fix now, or end with the reason why there is none.", max(0, int(left.Seconds())))
	}
	return s
}

// cancelled says why the context ended: the control plane's word, or the workflow's end.
func cancelled(ctx context.Context) *ending {
	var s *stopped
	if errors.As(context.Cause(ctx), &s) {
		return &ending{State: errand.Cancelled, Reason: errand.ReasonCancelledByPerson, Detail: s.Error()}
	}
	return ended(errand.Failed, errand.ReasonWorkflowCancelled, "the workflow was cancelled")
}
