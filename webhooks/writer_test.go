package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/errand-dev/errand"
)

// gate is a database for the writer that a test opens and closes: it stores what it is given while open.
type gate struct {
	open    chan struct{} // each commit takes one
	entered chan int      // sizes of the batches that came to the gate
	mu      sync.Mutex
	stored  []string
	refuse  func(keys []string) error
}

func newGate() *gate { return &gate{open: make(chan struct{}, 1000), entered: make(chan int, 1000)} }

func (g *gate) persist(ctx context.Context, batch []*delivery) ([]settled, error) {
	g.entered <- len(batch)
	select {
	case <-g.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := make([]settled, len(batch))
	var keys []string
	for i, d := range batch {
		keys = append(keys, d.parsed.Key)
		out[i].outcome = accepted
	}
	if g.refuse != nil {
		if err := g.refuse(keys); err != nil {
			return nil, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stored = append(g.stored, keys...)
	return out, nil
}

func (g *gate) has(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.stored, key)
}

func (g *gate) let(commits int) {
	for range commits {
		g.open <- struct{}{}
	}
}

type told struct {
	key string
	err error
}

// send hands deliveries to the writer, each in a goroutine, and returns when all of them are queued or with a writer.
func send(t *testing.T, w *writer, ctx context.Context, keys ...string) <-chan told {
	t.Helper()
	answers := make(chan told, len(keys))
	for _, k := range keys {
		go func() {
			_, err := w.write(ctx, &delivery{parsed: parsed{Key: k}})
			answers <- told{k, err}
		}()
	}
	return answers
}

func (w *writer) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// occupy gives each writer one delivery, and the function that waits for their answers.
func occupy(t *testing.T, w *writer, g *gate) func() {
	t.Helper()
	var answers []<-chan told
	for n := range writers {
		answers = append(answers, send(t, w, t.Context(), fmt.Sprint("busy", n)))
		<-g.entered
	}
	return func() {
		t.Helper()
		for _, a := range answers {
			if a := <-a; a.err != nil {
				t.Errorf("%s: %v", a.key, a.err)
			}
		}
	}
}

func keys(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s%d", prefix, i))
	}
	return list
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in ten seconds not: %s", what)
		}
	}
}

func TestWhatWaitsSharesACommitAndIsAnsweredAfterIt(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWriter(g.persist)
	first := send(t, w, t.Context(), "a")
	if n := <-g.entered; n != 1 {
		t.Errorf("a first batch of %d", n)
	}
	second := send(t, w, t.Context(), "b") // the other writer
	<-g.entered
	rest := send(t, w, t.Context(), keys("c", 40)...)
	await(t, "forty wait", func() bool { return w.queued() == 40 })
	if len(first)+len(second)+len(rest) != 0 {
		t.Error("a delivery was answered before its commit")
	}
	g.let(3)
	if n := <-g.entered; n != 40 {
		t.Errorf("forty waited, and %d were written together", n)
	}
	for range 40 {
		if a := <-rest; a.err != nil || !g.has(a.key) {
			t.Errorf("%s was answered %v, and stored: %v", a.key, a.err, g.has(a.key))
		}
	}
	<-first
	<-second
	if err := w.close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestADeliveryThatIsRefusedFailsAlone(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]func(){"the database refuses": nil, "the writer panics": func() { panic("planted") }} {
		g := newGate()
		g.refuse = func(keys []string) error {
			if slices.Contains(keys, "c7") {
				if failure != nil {
					failure()
				}
				return fmt.Errorf("insert: %w", &pgconn.PgError{Code: "22021"})
			}
			return nil
		}
		w := newWriter(g.persist)
		busy := occupy(t, w, g)
		rest := send(t, w, t.Context(), keys("c", 20)...)
		await(t, "twenty wait", func() bool { return w.queued() >= 20 })
		g.let(100)
		for range 20 {
			if a := <-rest; (a.err != nil) != (a.key == "c7") || g.has(a.key) != (a.key != "c7") {
				t.Errorf("%s: %s: %v", name, a.key, a.err)
			}
		}
		busy()
	}
}

// Of a commit whose answer was lost it is not known whether it happened: it is not written again under other ids.
func TestABatchOfWhichNothingIsKnownIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	g := newGate()
	g.let(100)
	g.refuse = func([]string) error { return errors.New("connection reset") }
	w := newWriter(g.persist)
	for a := range w.mustFail(t, "a", "b", "c") {
		if a.err == nil {
			t.Errorf("%s was acknowledged", a.key)
		}
	}
	total := 0
	for range len(g.entered) {
		total += <-g.entered
	}
	if total != 3 {
		t.Errorf("three deliveries were written %d times", total)
	}
}

func (w *writer) mustFail(t *testing.T, keys ...string) <-chan told {
	t.Helper()
	answers, all := send(t, w, t.Context(), keys...), make(chan told, len(keys))
	for range keys {
		all <- <-answers
	}
	close(all)
	return all
}

func TestAFullQueueRefusesAfterTheRequestsOwnTime(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWriter(g.persist)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := occupy(t, w, g)
	queued := send(t, w, t.Context(), keys("queued", queueLength)...)
	await(t, "the queue is full", func() bool { return w.queued() == queueLength })
	over := send(t, w, ctx, "over")
	select {
	case a := <-over:
		t.Fatalf("answered at once: %v", a.err)
	default:
	}
	cancel()
	if a := <-over; errand.CodeOf(a.err) != errand.CodeUnavailable {
		t.Errorf("%v", a.err)
	}
	g.let(500)
	for range queueLength {
		if a := <-queued; a.err != nil {
			t.Errorf("%s: %v", a.key, a.err)
		}
	}
	held()
	if g.has("over") {
		t.Error("a delivery that was refused is stored")
	}
}

func TestClosingWritesWhatIsQueuedAndTakesNothingMore(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWriter(g.persist)
	held := occupy(t, w, g)
	answers := send(t, w, t.Context(), keys("a", 50)...)
	await(t, "some wait", func() bool { return w.queued() > 0 })
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.close(soon); !errors.Is(err, context.Canceled) {
		t.Errorf("close did not say that deliveries are left: %v", err)
	}
	if _, err := w.write(t.Context(), &delivery{parsed: parsed{Key: "late"}}); errand.CodeOf(err) != errand.CodeUnavailable {
		t.Errorf("a late delivery: %v", err)
	}
	g.let(100)
	if err := w.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored, refused := 0, 0
	for range 50 {
		switch a := <-answers; {
		case a.err == nil && g.has(a.key):
			stored++
		case a.err != nil && !g.has(a.key):
			refused++ // it came after the door was shut
		default:
			t.Errorf("%s: told %v, stored %v", a.key, a.err, g.has(a.key))
		}
	}
	if held(); stored == 0 {
		t.Errorf("%d stored, %d refused", stored, refused)
	}
}

func TestDeliveriesOfAnIssueThatIsBeingWrittenWaitForTheNextBatch(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWriter(g.persist)
	answers := make(chan told, 20)
	put := func(key, issue string) {
		go func() {
			_, err := w.write(t.Context(), &delivery{parsed: parsed{Key: key, Issue: errand.Issue{ProviderID: issue}}})
			answers <- told{key, err}
		}()
	}
	put("first", "hot")
	<-g.entered
	for _, k := range keys("hot", 9) {
		put(k, "hot")
	}
	await(t, "nine wait beside a writer that is free", func() bool { return w.queued() == 9 })
	put("other", "cold")
	if n := <-g.entered; n != 1 || w.queued() != 9 {
		t.Errorf("the free writer took %d, and %d wait", n, w.queued())
	}
	g.let(1)
	g.let(1)
	if n := <-g.entered; n != 9 {
		t.Errorf("nine waited, and %d were written together", n)
	}
	g.let(1)
	for range 11 {
		if a := <-answers; a.err != nil {
			t.Errorf("%s: %v", a.key, a.err)
		}
	}
}

func TestADeliveryWhoseRequestGaveUpIsNotWritten(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWriter(g.persist)
	busy := occupy(t, w, g)
	ctx, cancel := context.WithCancel(t.Context())
	gone := send(t, w, ctx, "gone")
	stays := send(t, w, t.Context(), "stays")
	await(t, "both wait", func() bool { return w.queued() == 2 })
	cancel()
	if a := <-gone; errand.CodeOf(a.err) != errand.CodeUnavailable {
		t.Errorf("%v", a.err)
	}
	g.let(10)
	busy()
	if a := <-stays; a.err != nil || g.has("gone") {
		t.Errorf("%v; one that was told 503 is stored: %v", a.err, g.has("gone"))
	}
	if n := len(w.room); n != 0 {
		t.Errorf("%d places are taken by nobody", n)
	}
}

// The same on a real database.
func TestARowThatTheDatabaseRefusesFailsAlone(t *testing.T) {
	t.Parallel()
	p := newPress(t, 2)
	sources := []errand.ID{p.source(p.orgs[0]), p.source(p.orgs[1])}
	open, entered := make(chan struct{}), make(chan struct{}, 100)
	w := newWriter(func(ctx context.Context, batch []*delivery) ([]settled, error) {
		entered <- struct{}{}
		<-open
		return p.w.persist(ctx, batch)
	})
	answers := make(chan told, 60)
	for n := range 60 {
		d := occurrence(p.orgs[n%2], sources[n%2], fmt.Sprint("k", n), "i", fmt.Sprint("e", n), batchNoon) // two issues, one a writer
		if n == 33 {
			d.body = "a NUL\x00" // text does not take it
		}
		go func() {
			_, err := w.write(t.Context(), d)
			answers <- told{d.parsed.Key, err}
		}()
		if n < writers {
			<-entered
		}
	}
	await(t, "the others wait", func() bool { return w.queued() == 60-writers })
	close(open)
	for range 60 {
		if a := <-answers; (a.err != nil) != (a.key == "k33") {
			t.Errorf("%s: %v", a.key, a.err)
		}
	}
	for query, want := range map[string]int{"delivery_keys": 59, "deliveries WHERE outcome = 'accepted'": 59, "issues WHERE deliveries IN (30, 29)": 2, "river_job": 59} {
		if got := p.texts("SELECT count(*)::text FROM " + query)[0]; got != fmt.Sprint(want) {
			t.Errorf("%s rows of %s, want %d", got, query, want)
		}
	}
}
