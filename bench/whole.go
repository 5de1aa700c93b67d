package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/errand-dev/errand"
)

// spread is over how many issues deliveries are spread where nothing else is said.
const spread = 10_000

// wholePath measures (a), the endpoint: HTTP, source, signature, parsing, scrubbing, and the commit that is awaited.
func wholePath(ctx context.Context, b *bed, p plan, f *figures) error {
	fmt.Printf("\n(a) the whole path, deliveries spread over %d issues\n  %6s %6s %10s %8s %8s   mean ms: %s\n", spread, "body", "conns", "accepted/s", "p50 ms", "p99 ms", strings.Join(stageNames, ", "))
	at, err := b.place(ctx)
	if err != nil {
		return err
	}
	small, large := newBody(4<<10), newBody(30<<10)
	if _, err := at.load(ctx, 32, small, spread, p.slice/2); err != nil { // plans, caches, the first samples of the issues
		return err
	}
	for _, m := range []struct {
		body  body
		conns int
		full  bool // left out of the short form
	}{
		{small, 1, false},
		{small, 8, false},
		{small, 32, false},
		{small, 128, false},
		{large, 1, true},
		{large, 8, true},
		{large, 32, false},
		{large, 128, true},
	} {
		if m.full && p.short {
			continue
		}
		before := at.stages()
		s, err := at.load(ctx, m.conns, m.body, spread, p.slice)
		if err != nil {
			return err
		}
		fmt.Printf("  %6d %6d %10.0f %8.2f %8.2f   %s\n", len(m.body.text), m.conns, s.perS(), s.ms(.5), s.ms(.99), at.stages().since(before, s))
		if len(m.body.text) == len(small.text) && (f.IngestBestPerS == nil || s.perS() > *f.IngestBestPerS) {
			f.IngestBestPerS = figure(s.perS(), 0)
		}
		if m.conns == 32 && len(m.body.text) == len(small.text) {
			f.IngestPerS, f.IngestP50Ms, f.IngestP99Ms = figure(s.perS(), 0), figure(s.ms(.5), 2), figure(s.ms(.99), 2)
		}
		if m.conns == 32 && len(m.body.text) == len(large.text) {
			f.Ingest30kPerS = figure(s.perS(), 0)
		}
	}
	return at.close(ctx)
}

// stages are the sums that the service itself keeps of where the time of deliveries goes.
type stages struct {
	seconds, count map[string]float64
	batches, rows  float64
}

var stageNames = []string{"lookup", "verify", "understand", "store", "the rest (HTTP)"}

func (p *place) stages() stages {
	s := stages{seconds: map[string]float64{}, count: map[string]float64{}}
	families, err := p.metrics.Gather()
	if err != nil {
		return s
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			switch f.GetName() {
			case "errand_delivery_stage_seconds":
				s.seconds[m.GetLabel()[0].GetValue()] = h.GetSampleSum()
				s.count[m.GetLabel()[0].GetValue()] = float64(h.GetSampleCount())
			case "errand_delivery_batch_size":
				s.batches, s.rows = float64(h.GetSampleCount()), h.GetSampleSum()
			}
		}
	}
	return s
}

func (s stages) since(before stages, of sample) string {
	var all float64
	for _, t := range of.took {
		all += t.Seconds() * 1000
	}
	rest := all / float64(max(len(of.took), 1))
	var parts []string
	for _, name := range stageNames[:len(stageNames)-1] {
		mean := (s.seconds[name] - before.seconds[name]) / max(s.count[name]-before.count[name], 1) * 1000
		rest -= mean
		parts = append(parts, fmt.Sprintf("%.2f", mean))
	}
	parts = append(parts, fmt.Sprintf("%.2f", rest))
	return strings.Join(parts, ", ") + fmt.Sprintf("; %.1f a commit", (s.rows-before.rows)/max(s.batches-before.batches, 1))
}

// hotIssue measures (c): all deliveries of one issue against the same number spread over many. The two take turns.
func hotIssue(ctx context.Context, b *bed, p plan, f *figures) error {
	at, err := b.place(ctx)
	if err != nil {
		return err
	}
	body := newBody(4 << 10)
	if _, err := at.load(ctx, 32, body, spread, p.slice/2); err != nil {
		return err
	}
	var hot, wide []float64
	for range 2 * p.rounds {
		for _, m := range []struct {
			issues uint64
			into   *[]float64
		}{{spread, &wide}, {1, &hot}} {
			s, err := at.load(ctx, 32, body, m.issues, p.slice/2)
			if err != nil {
				return err
			}
			*m.into = append(*m.into, s.perS())
		}
	}
	loss := 1 - median(hot)/median(wide)
	fmt.Printf("\n(c) one hot issue, whole path, 32 connections\n  spread over %d issues %.0f/s, one issue %.0f/s: %.1f %% lost\n", spread, median(wide), median(hot), 100*loss)
	f.HotIssueLoss = figure(loss, 3)
	return at.close(ctx)
}

// prepared makes n deliveries that are understood and not yet stored.
func (p *place) prepared(ctx context.Context, b body, issues uint64, n int) ([]*errandDelivery, error) {
	list := make([]*errandDelivery, n)
	c := &client{text: b.text, body: b}
	for i := range list {
		k := eventNumber.Add(1)
		copy(c.text[b.event:], eventMark)
		copy(c.text[b.issue:], issueMark)
		b.stamp(c.text, k, 1+k%issues)
		d, err := p.hooks.Prepare(ctx, p.source.PublicID, alertHeader(), c.text)
		if err != nil {
			return nil, errand.Errorf(errand.CodeInternal, err, "a body of the bench is not understood")
		}
		list[i] = d
	}
	return list, nil
}
