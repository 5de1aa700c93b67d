package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/models"
	"github.com/errand-dev/errand/wire"
)

// batch is how many lines of each list one progress call carries at most.
const batch = 200

// heartbeat is how often the control plane hears from us when nothing happens; after two silent minutes it looks for us.
const heartbeat = 30 * time.Second

// stopped is why the run's context ended when the control plane said so.
type stopped struct{ reason string }

func (s *stopped) Error() string { return "the control plane ended the run: " + s.reason }

// reporter sends each step and each request's usage as it happens. Lines wait in order until the control plane has
// taken them; their sequence numbers make a repeated line harmless. It is safe for concurrent use.
type reporter struct {
	client *client
	clock  errand.Clock
	stop   context.CancelCauseFunc

	mu       sync.Mutex
	steps    []wire.Step
	usage    []wire.UsageLine
	stepSeq  int
	usageSeq int
	all      []wire.Step // for the summary
	counts   []wire.UsageLine
	sending  sync.Mutex // one call at a time, so that order is kept
	wake     chan struct{}
	done     chan struct{}
}

func newReporter(c *client, clock errand.Clock, stop context.CancelCauseFunc) *reporter {
	return &reporter{client: c, clock: clock, stop: stop, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// step records one thing that was done.
func (r *reporter) step(s wire.Step) {
	r.mu.Lock()
	r.stepSeq++
	s.Seq = r.stepSeq
	s.At = r.clock().UTC()
	r.steps = append(r.steps, s)
	r.all = append(r.all, s)
	r.mu.Unlock()
	r.poke()
}

// used records one attempt at a model's answer, whether it succeeded or not.
func (r *reporter) used(u models.Usage) {
	r.mu.Lock()
	r.usageSeq++
	line := wire.UsageLine{
		Seq: r.usageSeq, At: r.clock().UTC(), Provider: u.Provider, Model: cut(u.Model, 128), RequestID: cut(u.RequestID, 128), Raw: u.Raw,
	}
	r.usage = append(r.usage, line)
	r.counts = append(r.counts, line)
	r.mu.Unlock()
	r.poke()
}

func (r *reporter) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run sends until ctx ends: at once when there is something, and with every tick.
func (r *reporter) run(ctx context.Context, ticks <-chan time.Time) {
	defer close(r.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-ticks:
		}
		// What fails stays in the list and goes with the next tick, or with the result.
		_ = r.send(ctx)
	}
}

// send makes one progress call with what waits.
func (r *reporter) send(ctx context.Context) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	req := r.next(batch)
	var resp wire.ProgressResponse
	err := r.client.once(ctx, "progress", req, &resp)
	var e *apiError
	if errors.As(err, &e) && (e.Status == 401 || e.Status == 404 || e.Status == 409) {
		// The token is dead, or the run is over: the control plane no longer knows this run as one under way.
		r.stop(&stopped{reason: e.Error()})
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.steps = r.steps[len(req.Steps):]
	r.usage = r.usage[len(req.Usage):]
	more := len(r.steps)+len(r.usage) > 0
	r.mu.Unlock()
	if more {
		r.poke()
	}
	if resp.Stop {
		r.stop(&stopped{reason: resp.Reason})
	}
	return nil
}

// next gives the oldest lines that wait, at most n of each list.
func (r *reporter) next(n int) wire.ProgressRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return wire.ProgressRequest{
		Steps: append([]wire.Step(nil), r.steps[:min(n, len(r.steps))]...),
		Usage: append([]wire.UsageLine(nil), r.usage[:min(n, len(r.usage))]...),
	}
}

// drain sends until what waits fits into the result, or a call fails.
func (r *reporter) drain(ctx context.Context) {
	for {
		waiting := r.next(501)
		if len(waiting.Steps) <= 500 && len(waiting.Usage) <= 500 {
			return
		}
		if r.send(ctx) != nil {
			return
		}
	}
}

// cut shortens s to at most n bytes without breaking a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
