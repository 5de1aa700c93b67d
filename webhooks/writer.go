package webhooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// The bounds of the writer. Two writers are enough to keep the disk busy: while one waits for its commit the other gathers.
// Measured beside one, three and four, and beside waiting for more on purpose (docs/performance.md).
const (
	writers      = 2
	maxBatch     = 128              // deliveries of one commit
	queueLength  = 512              // deliveries that may wait for their turn
	storeTimeout = 10 * time.Second // for a request to get its delivery stored
	writeTimeout = 10 * time.Second // for one commit
)

// writer makes concurrent deliveries share commits. Whatever waits when a writer is free becomes one transaction; nobody
// waits for company. A delivery is answered only after the commit that holds it, and what fails together is tried in
// halves, so that a delivery that cannot be stored fails alone.
type writer struct {
	persist func(context.Context, []*delivery) ([]settled, error)
	queue   chan *waiting
	done    chan struct{} // closed when the last of what was queued is settled
	sizes   prometheus.Histogram

	mu     sync.RWMutex // held for reading while something enters the queue
	closed bool
}

// waiting is a delivery whose request waits for an answer.
type waiting struct {
	*delivery
	gone   <-chan struct{} // closed when the request waits no longer
	answer chan answered   // room for one, so that a writer never waits for a request
}

type answered struct {
	settled
	err error
}

var errPanicked = errors.New("panic")

func newWriter(persist func(context.Context, []*delivery) ([]settled, error)) *writer {
	w := &writer{
		persist: persist, queue: make(chan *waiting, queueLength), done: make(chan struct{}),
		sizes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "errand_delivery_batch_size", Help: "Deliveries of one commit.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
		}),
	}
	var working sync.WaitGroup
	for range writers {
		working.Go(w.work)
	}
	go func() {
		working.Wait()
		close(w.done)
	}()
	return w
}

// write returns when the delivery is stored, or not: then it returns an error, and nothing was said about the delivery. It
// waits for its turn as long as ctx lets it.
func (w *writer) write(ctx context.Context, d *delivery) (settled, error) {
	p := &waiting{delivery: d, gone: ctx.Done(), answer: make(chan answered, 1)}
	if err := w.enter(ctx, p); err != nil {
		return settled{}, err
	}
	select {
	case a := <-p.answer:
		return a.settled, a.err
	case <-ctx.Done():
		return settled{}, errand.Errorf(errand.CodeUnavailable, ctx.Err(), "the database did not take the delivery in time")
	}
}

func (w *writer) enter(ctx context.Context, p *waiting) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return errand.Errorf(errand.CodeUnavailable, nil, "the server is stopping")
	}
	select {
	case w.queue <- p:
		return nil
	case <-ctx.Done():
		return errand.Errorf(errand.CodeUnavailable, ctx.Err(), "too many deliveries wait to be stored")
	}
}

// close takes nothing more, and returns when all that was queued is settled. It may be called more than once.
func (w *writer) close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("store the deliveries that were taken: %w", ctx.Err())
	}
}

func (w *writer) work() {
	for first := range w.queue {
		w.settle(w.gather(first))
	}
}

// gather takes whatever waits now.
func (w *writer) gather(first *waiting) []*waiting {
	batch := make([]*waiting, 1, maxBatch)
	batch[0] = first
	for len(batch) < maxBatch {
		select {
		case p, ok := <-w.queue:
			if !ok {
				return batch
			}
			batch = append(batch, p)
		default:
			return batch
		}
	}
	return batch
}

// settle writes a batch and answers each of it.
func (w *writer) settle(batch []*waiting) {
	deliveries := make([]*delivery, len(batch))
	for i, p := range batch {
		deliveries[i] = p.delivery
	}
	out, err := w.attempt(deliveries)
	switch {
	case err == nil:
		for i, p := range batch {
			if out[i].apart {
				w.settle(batch[i : i+1])
				continue
			}
			p.answer <- answered{settled: out[i]}
		}
	case len(batch) > 1 && (store.Refused(err) || errors.Is(err, errPanicked)):
		half := len(batch) / 2
		w.settle(batch[:half])
		w.settle(batch[half:])
	default: // of what the database did not say no to it is not known what became, so it is not tried again
		for _, p := range batch {
			p.answer <- answered{err: err}
		}
	}
}

func (w *writer) attempt(batch []*delivery) (out []settled, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = errand.Errorf(errand.CodeInternal, fmt.Errorf("%w: %v", errPanicked, p), "the deliveries could not be written")
		}
	}()
	if out, err = w.persist(ctx, batch); err == nil {
		w.sizes.Observe(float64(len(batch)))
	}
	return out, err
}
