package webhooks

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

const (
	// CountsKept is how far back the counts of a source go.
	CountsKept = 30 * 24 * time.Hour
	// Recent is the span of the counts from which a rate is made.
	Recent = 24 * time.Hour
	// flushEvery is how old a count may be that a crash loses.
	flushEvery = time.Second
)

// SourceState is a source as its owners see it at any time: without a secret, and with how it is doing.
type SourceState struct {
	ID           errand.ID
	Kind         string
	Name         string
	PublicID     string
	Path         string // of the URL
	CreatedAt    time.Time
	DisabledAt   *time.Time // nil = it takes deliveries
	OverlapUntil *time.Time // until when the secret before the last rotation verifies too; nil = it does not
	Health       Health
}

// Health is what is known of a source's deliveries, about a second late. A time that is nil was never, or not within
// CountsKept of the counts.
type Health struct {
	Accepted, Duplicate, Ignored, Rejected int64 // authentic deliveries by outcome, within CountsKept
	Refused                                int64 // deliveries whose signature did not verify, within CountsKept
	RecentReceived, RecentRefused          int64 // authentic and refused ones, within Recent
	LastReceived, LastAccepted             *time.Time
	LastRefused                            *time.Time
	LastRefusedReason                      string
	// Quiet is how long no authentic delivery has come: since the last one, or since the source was made.
	Quiet time.Duration
}

// RefusedRate is the share of the recent deliveries whose signature did not verify, from 0 to 1; false when there were none.
// It is what to watch: single failures are strangers, a tenth of all is a secret or a sender that has changed.
func (h Health) RefusedRate() (float64, bool) {
	all := h.RecentReceived + h.RecentRefused
	if all == 0 {
		return 0, false
	}
	return float64(h.RecentRefused) / float64(all), true
}

// Sources lists the organisation's sources by name, disabled ones too.
func (w *Webhooks) Sources(ctx context.Context, org errand.ID) ([]SourceState, error) {
	now := w.clock().UTC()
	var rows []store.SourceHealthRow
	err := w.store.InTx(ctx, org, func(tx *store.Tx) (err error) {
		rows, err = tx.SourceHealth(ctx, now.Add(-Recent).Truncate(time.Hour))
		return err
	})
	if err != nil {
		return nil, err
	}
	list := make([]SourceState, 0, len(rows))
	for i := range rows {
		list = append(list, stateOf(&rows[i], now))
	}
	return list, nil
}

func stateOf(r *store.SourceHealthRow, now time.Time) SourceState {
	s := SourceState{
		ID: r.ID, Kind: r.Kind, Name: r.Name, PublicID: r.PublicID, Path: "/hooks/" + r.PublicID,
		CreatedAt: r.CreatedAt, DisabledAt: r.DisabledAt,
		Health: Health{
			Accepted: r.Accepted, Duplicate: r.Duplicate, Ignored: r.Ignored, Rejected: r.Rejected, Refused: r.Refused,
			RecentReceived: r.RecentReceived, RecentRefused: r.RecentRefused,
			LastReceived: r.LastReceivedAt, LastAccepted: r.LastAcceptedAt, LastRefused: r.LastRefusedAt, LastRefusedReason: r.LastRefusedReason,
		},
	}
	if u := r.PreviousSecretExpiresAt; u != nil && now.Before(*u) {
		s.OverlapUntil = u
	}
	since := r.CreatedAt
	if r.LastReceivedAt != nil {
		since = *r.LastReceivedAt
	}
	s.Health.Quiet = max(0, now.Sub(since))
	return s
}

// tally adds up in memory what the deliveries of each source came to, so that none of them waits for a counter's row, and
// so that a stranger's requests write nothing. It grows with the sources that were written to, never with the requests.
type tally struct {
	mu    sync.Mutex
	hours map[sourceHour]*hourCounts
	last  map[errand.ID]*lastTimes

	deliveries *prometheus.CounterVec
	received   *prometheus.GaugeVec
}

type sourceHour struct {
	source errand.ID
	hour   time.Time
}

type hourCounts struct {
	org                                             errand.ID
	accepted, duplicate, ignored, rejected, refused int64
}

type lastTimes struct {
	org                         errand.ID
	received, accepted, refused *time.Time
	reason                      string
}

func newTally() *tally {
	return &tally{
		hours: map[sourceHour]*hourCounts{}, last: map[errand.ID]*lastTimes{},
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "errand_source_deliveries_total", Help: "Deliveries to a known source, by source and outcome; refused: the signature did not verify.",
		}, []string{"source", "kind", "outcome"}),
		received: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "errand_source_last_received_timestamp_seconds", Help: "When this replica took the last authentic delivery of a source, in seconds since 1970.",
		}, []string{"source", "kind"}),
	}
}

func (t *tally) collectors() []prometheus.Collector {
	return []prometheus.Collector{t.deliveries, t.received}
}

// add counts an authentic delivery that was answered.
func (t *tally) add(d *delivery) {
	t.deliveries.WithLabelValues(string(d.source), d.kind, string(d.outcome)).Inc()
	t.received.WithLabelValues(string(d.source), d.kind).Set(float64(d.receivedAt.Unix()))
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hour(d.org, d.source, d.receivedAt)
	switch d.outcome {
	case accepted:
		h.accepted++
	case duplicate:
		h.duplicate++
	case ignored:
		h.ignored++
	case rejected:
		h.rejected++
	}
	l := t.lastOf(d.org, d.source)
	l.received = later(l.received, &d.receivedAt)
	if d.outcome == accepted {
		l.accepted = later(l.accepted, &d.receivedAt)
	}
}

// refuse counts a delivery whose signature did not verify.
func (t *tally) refuse(src *store.SourceSecret, reason string, now time.Time) {
	t.deliveries.WithLabelValues(string(src.ID), src.Kind, "refused").Inc()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hour(src.Org, src.ID, now).refused++
	if l := t.lastOf(src.Org, src.ID); l.refused == nil || !now.Before(*l.refused) {
		l.refused, l.reason = &now, reason
	}
}

func (t *tally) hour(org, source errand.ID, at time.Time) *hourCounts {
	key := sourceHour{source, at.Truncate(time.Hour)}
	if t.hours[key] == nil {
		t.hours[key] = &hourCounts{org: org}
	}
	return t.hours[key]
}

func (t *tally) lastOf(org, source errand.ID) *lastTimes {
	if t.last[source] == nil {
		t.last[source] = &lastTimes{org: org}
	}
	return t.last[source]
}

func later(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.After(*a)) {
		return b
	}
	return a
}

// take empties the tally.
func (t *tally) take() (map[sourceHour]*hourCounts, map[errand.ID]*lastTimes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hours, last := t.hours, t.last
	t.hours, t.last = map[sourceHour]*hourCounts{}, map[errand.ID]*lastTimes{}
	return hours, last
}

// putBack adds again what could not be written.
func (t *tally) putBack(hours map[sourceHour]*hourCounts, last map[errand.ID]*lastTimes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, c := range hours {
		h := t.hour(c.org, key.source, key.hour)
		h.accepted += c.accepted
		h.duplicate += c.duplicate
		h.ignored += c.ignored
		h.rejected += c.rejected
		h.refused += c.refused
	}
	for source, c := range last {
		l := t.lastOf(c.org, source)
		l.received, l.accepted = later(l.received, c.received), later(l.accepted, c.accepted)
		if l.refused == nil {
			l.refused, l.reason = c.refused, c.reason
		}
	}
}

// RunCounts writes the counts of the sources once a second until ctx ends, and then once more. What cannot be written is kept
// and tried again; a crash loses the counts of its last second, and no delivery.
func (w *Webhooks) RunCounts(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.flushAndSay(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			w.flushAndSay(last)
			return
		}
	}
}

func (w *Webhooks) flushAndSay(ctx context.Context) {
	if err := w.FlushCounts(ctx); err != nil && ctx.Err() == nil {
		w.log.LogAttrs(ctx, slog.LevelWarn, "the counts of sources were not written; they are tried again", slog.String("error", err.Error()))
	}
}

// FlushCounts writes now what was counted since the last time.
func (w *Webhooks) FlushCounts(ctx context.Context) error {
	hours, last := w.tally.take()
	if len(hours) == 0 {
		return nil
	}
	if err := w.writeCounts(ctx, hours, last); err != nil {
		w.tally.putBack(hours, last)
		return err
	}
	return nil
}

func (w *Webhooks) writeCounts(ctx context.Context, hours map[sourceHour]*hourCounts, last map[errand.ID]*lastTimes) error {
	keys := slices.SortedFunc(maps.Keys(hours), func(a, b sourceHour) int {
		if a.source != b.source {
			return cmp.Compare(a.source, b.source)
		}
		return a.hour.Compare(b.hour)
	})
	var p store.AddSourceHoursParams
	orgs := map[errand.ID]bool{}
	for _, k := range keys {
		c := hours[k]
		orgs[c.org] = true
		p.Sources, p.Hours, p.Orgs = append(p.Sources, k.source), append(p.Hours, k.hour), append(p.Orgs, c.org)
		p.Accepted, p.Duplicate, p.Ignored = append(p.Accepted, c.accepted), append(p.Duplicate, c.duplicate), append(p.Ignored, c.ignored)
		p.Rejected, p.Refused = append(p.Rejected, c.rejected), append(p.Refused, c.refused)
	}
	return w.store.InTxOf(ctx, slices.SortedFunc(maps.Keys(orgs), cmp.Compare[errand.ID]), func(tx *store.Tx) error {
		if err := tx.AddSourceHours(ctx, p); err != nil {
			return err
		}
		for _, source := range slices.SortedFunc(maps.Keys(last), cmp.Compare[errand.ID]) {
			l := last[source]
			err := tx.SetSourceHealth(ctx, store.SetSourceHealthParams{
				SourceID: source, OrgID: l.org, LastReceivedAt: l.received, LastAcceptedAt: l.accepted, LastRefusedAt: l.refused, LastRefusedReason: l.reason,
			})
			if err != nil {
				return err
			}
		}
		return tx.DropSourceHours(ctx, w.clock().Add(-CountsKept))
	})
}
