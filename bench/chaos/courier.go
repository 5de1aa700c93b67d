package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// courier carries GitHub's webhooks to the public address as the internet does: some are lost, some come twice, some late
// and behind those that were sent after them. What it loses is for Errand to notice by asking.
type courier struct {
	to    string
	http  *http.Client
	ctx   context.Context // ends with close
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu  sync.Mutex
	rng *rand.Rand
}

const courierPath = "/courier"

func newCourier(to string, seed uint64) *courier {
	ctx, stop := context.WithCancel(context.Background())
	return &courier{to: to, ctx: ctx, stop: stop, http: &http.Client{Timeout: 10 * time.Second}, rng: rand.New(rand.NewPCG(seed, 0xC0))}
}

// ServeHTTP takes a webhook and decides what becomes of it.
func (c *courier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	times, late := 1, time.Duration(0)
	switch luck := c.rng.Float64(); {
	case luck < 0.35:
		times = 0
	case luck < 0.45:
		times = 2
	case luck < 0.70:
		late = time.Duration(c.rng.IntN(4000)) * time.Millisecond
	}
	c.mu.Unlock()
	for range times {
		c.tasks.Go(func() { c.carry(late, r.Header.Clone(), body) })
	}
	w.WriteHeader(http.StatusAccepted)
}

func (c *courier) carry(late time.Duration, header http.Header, body []byte) {
	sleep(c.ctx, late)
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.to, bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header = header
	if resp, err := c.http.Do(req); err == nil { // GitHub does not try again either
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

func (c *courier) close() {
	c.stop()
	c.tasks.Wait()
}
