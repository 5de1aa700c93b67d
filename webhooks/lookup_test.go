package webhooks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// A request never gets what was read before it came: while a query is under way, it waits for the next.
func TestASourceIsReadAfterItsRequestCame(t *testing.T) {
	t.Parallel()
	asked, answers := make(chan []string), make(chan map[string]store.SourceSecret)
	l := newLookups(func(_ context.Context, ids []string) (map[string]store.SourceSecret, error) {
		asked <- ids
		return <-answers, nil
	})
	type got struct {
		src store.SourceSecret
		err error
	}
	ask := func(id string) <-chan got {
		c := make(chan got, 1)
		q := l.join(id)
		go func() {
			<-q.done
			src, err := l.answer(q, id)
			c <- got{src, err}
		}()
		return c
	}
	before := ask("a")
	if ids := <-asked; len(ids) != 1 {
		t.Errorf("asked for %v", ids)
	}
	after, other, none := ask("a"), ask("b"), ask("c")
	again := ask("a")
	disabled := time.Now()
	answers <- map[string]store.SourceSecret{"a": {ID: "1"}}
	if ids := <-asked; len(ids) != 3 {
		t.Errorf("four requests for three sources asked for %v", ids)
	}
	answers <- map[string]store.SourceSecret{"a": {ID: "1", DisabledAt: &disabled}, "b": {ID: "2"}}
	if g := <-before; g.err != nil || g.src.DisabledAt != nil {
		t.Errorf("the first: %+v", g)
	}
	for _, c := range []<-chan got{after, again} {
		if g := <-c; g.err != nil || g.src.DisabledAt == nil {
			t.Errorf("a request that came after the source was disabled: %+v", g)
		}
	}
	if g := <-other; g.src.ID != "2" {
		t.Errorf("another source: %+v", g)
	}
	if g := <-none; errand.CodeOf(g.err) != errand.CodeNotFound {
		t.Errorf("no source: %+v", g)
	}
}

func TestAFailedLookUpIsNobodysSource(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection refused")
	l := newLookups(func(context.Context, []string) (map[string]store.SourceSecret, error) { return nil, broken })
	for range 3 {
		if _, err := l.source(t.Context(), "a"); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	}
	stuck := newLookups(func(ctx context.Context, _ []string) (map[string]store.SourceSecret, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := stuck.source(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
