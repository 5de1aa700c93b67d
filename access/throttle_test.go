package access

import (
	"fmt"
	"testing"
	"time"
)

func TestABucketRefillsWithTimeUpToItsSize(t *testing.T) {
	t.Parallel()
	t0 := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	const perSecond, size = 0.5, 3
	b := bucket{tokens: size, at: t0}
	for i, c := range []struct {
		after time.Duration
		want  bool
	}{
		{0, true},
		{0, true},
		{0, true},
		{0, false},
		{1900 * time.Millisecond, false},
		{2 * time.Second, true},
		{2 * time.Second, false},
		{time.Second, false}, // a clock that goes back gives nothing
		{time.Hour, true},
		{time.Hour, true},
		{time.Hour, true},
		{time.Hour, false},
	} {
		var got bool
		if b, got = b.take(t0.Add(c.after), perSecond, size); got != c.want {
			t.Errorf("row %d, after %s: %v, want %v", i, c.after, got, c.want)
		}
	}
}

func TestTheThrottleForgetsTheIdleFirst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	buckets := map[string]bucket{}
	for i := range maxBuckets {
		buckets[fmt.Sprint(i)] = bucket{at: now.Add(-time.Hour)}
	}
	buckets["busy"] = bucket{at: now}
	forget(buckets, now, 60)
	if _, kept := buckets["busy"]; !kept || len(buckets) != 1 {
		t.Errorf("%d kept, the busy one among them: %v", len(buckets), kept)
	}
	for i := range maxBuckets {
		buckets[fmt.Sprint(i)] = bucket{at: now}
	}
	if forget(buckets, now, 60); len(buckets) != 0 {
		t.Errorf("%d busy ones kept: the memory has no bound", len(buckets))
	}
}
