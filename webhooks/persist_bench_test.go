package webhooks

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkPersist is one transaction of n deliveries of different issues, on a server that does not wait for the disk.
func BenchmarkPersist(b *testing.B) {
	for _, size := range []int{1, 8, 32, 128} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := newPress(b, 1)
			source := p.source(p.orgs[0])
			n := 0
			for b.Loop() {
				batch := make([]*delivery, size)
				for i := range batch {
					n++
					key := fmt.Sprint("k", n)
					batch[i] = occurrence(p.orgs[0], source, key, fmt.Sprint("i", n%1000), key, batchNoon.Add(-time.Minute))
				}
				p.persist(batch...)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "us/delivery")
		})
	}
}
