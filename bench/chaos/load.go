package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// senders are the trackers: they sign, send, send again what was not acknowledged, send some of it twice on purpose, and
// write down exactly what they were told.
type senders struct {
	base    string
	http    *http.Client
	sources []source
	most    int // deliveries at most, of any kind

	mu       sync.Mutex
	rng      *rand.Rand
	sent     int
	recent   []message // acknowledged, to be sent again
	issues   int
	told     []told
	observed []string
	gaveUp   int
}

const (
	inFlight  = 24
	attempts  = 14
	maxRecent = 400
)

// load sends at the rate until its time is over, and returns when every sender has been answered or has given up.
func (s *senders) load(ctx context.Context, length time.Duration, rate int) {
	timed, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	slots := make(chan struct{}, inFlight)
	var all sync.WaitGroup
	for tick := time.NewTicker(time.Second / time.Duration(rate)); s.sent < s.most; {
		select {
		case <-timed.Done():
			tick.Stop()
			all.Wait()
			return
		case <-tick.C:
		}
		select { // senders that wait for an answer hold the others up, as the trackers' own queues do
		case slots <- struct{}{}:
			s.sent++
			m := s.next()
			all.Go(func() { defer func() { <-slots }(); s.deliver(ctx, m) })
		case <-timed.Done():
		}
	}
	all.Wait()
}

// next draws what is sent: mostly events of issues that are known, a few new ones, and what is not news at all.
func (s *senders) next() message {
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.sources[s.rng.IntN(len(s.sources))]
	switch kind := s.rng.Float64(); {
	case kind < 0.10 && len(s.recent) > 0:
		m := s.recent[s.rng.IntN(len(s.recent))]
		m.again = true
		return m
	case kind < 0.13:
		return src.word(s.rng, s.pick())
	case kind < 0.15:
		return src.unknown(s.rng)
	case kind < 0.17:
		m := src.event(s.rng, s.pick())
		m.forged = true
		return m
	case kind < 0.23 || s.issues == 0:
		s.issues++
		return src.event(s.rng, s.issues)
	case kind < 0.28:
		m := src.event(s.rng, s.pick())
		m.copies = 3
		return m
	default:
		return src.event(s.rng, s.pick())
	}
}

// pick gives an issue that there is: one in three times one of the three hottest.
func (s *senders) pick() int {
	if s.rng.IntN(3) == 0 {
		return 1 + s.rng.IntN(min(3, max(1, s.issues)))
	}
	return 1 + s.rng.IntN(max(1, s.issues))
}

// deliver sends one message, or copies of it side by side.
func (s *senders) deliver(ctx context.Context, m message) {
	var all sync.WaitGroup
	for range max(1, m.copies) {
		all.Go(func() { s.untilTold(ctx, m) })
	}
	all.Wait()
}

// untilTold repeats until there is an answer that ends it.
func (s *senders) untilTold(ctx context.Context, m message) {
	for try := range attempts {
		status, answer := s.once(ctx, m)
		switch {
		case m.forged && (status == http.StatusAccepted || status == http.StatusUnauthorized):
			if status == http.StatusAccepted {
				s.observe("a delivery with a wrong signature was acknowledged: %s", answer)
			}
			return
		case status == http.StatusAccepted:
			s.keep(m, answer)
			return
		case status >= 400 && status < 500 && status != http.StatusTooManyRequests:
			s.observe("a good delivery was refused with %d: %s", status, answer)
			return
		}
		if ctx.Err() != nil {
			return
		}
		sleep(ctx, min(200*time.Millisecond<<min(try, 4), 3*time.Second))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaveUp++
}

func (s *senders) once(ctx context.Context, m message) (int, []byte) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+m.source.path, bytes.NewReader(m.body))
	if err != nil {
		return 0, nil
	}
	req.Header.Set("Content-Type", "application/json")
	m.source.sign(req.Header, m, time.Now())
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return 0, nil // the answer was cut short: the sender was told nothing
	}
	return resp.StatusCode, bytes.TrimSpace(answer)
}

// keep writes down what the sender was told.
func (s *senders) keep(m message, answer []byte) {
	var a struct{ Delivery, Outcome, Reason string }
	if err := json.Unmarshal(answer, &a); err != nil || a.Delivery == "" {
		s.observe("an acknowledgement without a delivery's id: %s", answer)
		return
	}
	if m.again && m.source.kind == "generic" && a.Outcome != "duplicate" && m.firstOutcome == "accepted" {
		s.observe("delivery %s had been accepted before, and its copy was called %s", a.Delivery, a.Outcome)
	}
	sum := sha256.Sum256(m.body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, told{source: m.source.id, sha: hex.EncodeToString(sum[:]), delivery: a.Delivery, outcome: a.Outcome})
	if !m.again && s.rng.IntN(4) == 0 {
		m.firstOutcome, m.copies = a.Outcome, 0
		if len(s.recent) < maxRecent {
			s.recent = append(s.recent, m)
		} else {
			s.recent[s.rng.IntN(maxRecent)] = m
		}
	}
}

func (s *senders) observe(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note(&s.observed, format, args...)
}

func (s *senders) acknowledged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.told)
}

func must(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("maps of plain values: %v", err)) // cannot fail
	}
	return b
}
