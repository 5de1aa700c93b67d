package access

import (
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
)

// bucket is a token bucket: pure arithmetic on the time that has passed.
type bucket struct {
	tokens float64
	at     time.Time
}

// take refills the bucket at perSecond up to burst, and takes one token when there is one.
func (b bucket) take(now time.Time, perSecond, burst float64) (bucket, bool) {
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.tokens = min(burst, b.tokens+passed*perSecond)
		b.at = now
	}
	if b.tokens < 1 {
		return b, false
	}
	b.tokens--
	return b, true
}

// maxBuckets bounds the memory of a throttle. Beyond it the full buckets are forgotten, and if that is not enough, all.
const maxBuckets = 10_000

// Throttle allows each client address a burst of requests and then one every interval; the rest is RateLimited. It is
// kept in the memory of this process: with n replicas a client has up to n times as much. The address is Echo's RealIP,
// so the server must say which proxies it trusts (echo.IPExtractor).
func (a *Access) Throttle(burst int, interval time.Duration) echo.MiddlewareFunc {
	var mu sync.Mutex
	buckets := map[string]bucket{}
	perSecond, size := 1/interval.Seconds(), float64(burst)
	allow := func(who string) bool {
		mu.Lock()
		defer mu.Unlock()
		now := a.clock()
		b, known := buckets[who]
		if !known {
			if len(buckets) >= maxBuckets {
				forget(buckets, now, size/perSecond)
			}
			b = bucket{tokens: size, at: now}
		}
		b, ok := b.take(now, perSecond, size)
		buckets[who] = b
		return ok
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !allow(c.RealIP()) {
				return &errand.Error{Code: errand.CodeRateLimited, Message: "too many attempts from this address", Hint: "wait a minute and try again"}
			}
			return next(c)
		}
	}
}

func forget(buckets map[string]bucket, now time.Time, secondsToFull float64) {
	for who, b := range buckets {
		if now.Sub(b.at).Seconds() >= secondsToFull {
			delete(buckets, who)
		}
	}
	if len(buckets) >= maxBuckets {
		clear(buckets)
	}
}
