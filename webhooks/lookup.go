package webhooks

import (
	"context"
	"sync"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// lookups finds sources for many requests at once: while one query is under way, those that come gather for the next. What is
// found was read after its request came, so that a source that was disabled, or whose secret was changed, is refused from that
// moment on: nothing is remembered from one query to the next.
type lookups struct {
	find func(context.Context, []string) (map[string]store.SourceSecret, error)
	turn chan struct{} // held while a query is under way

	mu   sync.Mutex
	next *lookup // gathers; nil = nobody waits
}

// lookup is one query for whoever joined before it began.
type lookup struct {
	ids   []string
	done  chan struct{}
	found map[string]store.SourceSecret
	err   error
}

func newLookups(find func(context.Context, []string) (map[string]store.SourceSecret, error)) *lookups {
	return &lookups{find: find, turn: make(chan struct{}, 1)}
}

// source returns NotFound when there is none of that id.
func (l *lookups) source(ctx context.Context, publicID string) (store.SourceSecret, error) {
	q := l.join(publicID)
	select {
	case <-q.done:
	case <-ctx.Done():
		return store.SourceSecret{}, ctx.Err()
	}
	return l.answer(q, publicID)
}

func (l *lookups) answer(q *lookup, publicID string) (store.SourceSecret, error) {
	if q.err != nil {
		return store.SourceSecret{}, q.err
	}
	src, ok := q.found[publicID]
	if !ok {
		return src, errand.NotFound("source")
	}
	return src, nil
}

func (l *lookups) join(publicID string) *lookup {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		l.next = &lookup{done: make(chan struct{})}
		go l.run(l.next)
	}
	l.next.ids = append(l.next.ids, publicID)
	return l.next
}

// run waits for its turn, closes the door and asks. It outlives the request that began it, because others wait too.
func (l *lookups) run(q *lookup) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.mu.Lock()
	l.next = nil
	l.mu.Unlock()
	defer close(q.done)
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	q.found, q.err = l.find(ctx, distinct(q.ids))
}

func distinct(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	var list []string
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			list = append(list, id)
		}
	}
	return list
}
