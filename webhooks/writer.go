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
// halves, so that a delivery that cannot be stored fails alone. Deliveries of an issue that is being written wait for the
// next batch instead of for its lock: a storm on one issue makes batches larger, and leaves the other writer to the others.
type writer struct {
	persist func(context.Context, []*delivery) ([]settled, error)
	room    chan struct{} // holds one for each that waits
	done    chan struct{} // closed when the last of what was queued is settled
	sizes   prometheus.Histogram

	mu      sync.Mutex
	news    *sync.Cond // something waits, a batch is settled, or the end has come
	queue   []*waiting
	writing map[issueKey]bool
	closed  bool
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
		persist: persist, room: make(chan struct{}, queueLength), done: make(chan struct{}), writing: map[issueKey]bool{},
		sizes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "errand_delivery_batch_size", Help: "Deliveries of one commit.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
		}),
	}
	w.news = sync.NewCond(&w.mu)
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
	select {
	case w.room <- struct{}{}:
	case <-ctx.Done():
		return errand.Errorf(errand.CodeUnavailable, ctx.Err(), "too many deliveries wait to be stored")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		<-w.room
		return errand.Errorf(errand.CodeUnavailable, nil, "the server is stopping")
	}
	w.queue = append(w.queue, p)
	w.news.Signal()
	return nil
}

// close takes nothing more, and returns when all that was queued is settled. It may be called more than once.
func (w *writer) close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.news.Broadcast()
	w.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("store the deliveries that were taken: %w", ctx.Err())
	}
}

func (w *writer) work() {
	for {
		batch := w.take()
		if batch == nil {
			return
		}
		w.settle(batch)
		w.release(batch)
	}
}

// take waits for deliveries that may be written now and takes them, the oldest first. It gives nil when there will be none.
func (w *writer) take() []*waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if batch := w.pick(); len(batch) > 0 {
			return batch
		}
		if w.closed && len(w.queue) == 0 {
			return nil
		}
		w.news.Wait()
	}
}

// pick takes from the queue what waits for no other writer. One whose request has given up is not written any more.
func (w *writer) pick() []*waiting {
	var batch, left []*waiting
	for _, p := range w.queue {
		switch {
		case p.given():
			<-w.room
		case len(batch) == maxBatch || w.writing[p.issueKey()]:
			left = append(left, p)
		default:
			<-w.room
			batch = append(batch, p)
		}
	}
	w.queue = left
	for _, p := range batch {
		if p.parsed.Issue.ProviderID != "" {
			w.writing[p.issueKey()] = true
		}
	}
	return batch
}

func (w *writer) release(batch []*waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range batch {
		delete(w.writing, p.issueKey())
	}
	w.news.Broadcast()
}

// given tells whether the request has given up.
func (p *waiting) given() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
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
