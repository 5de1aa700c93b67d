package pricing_test

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/pricing"
	"pgregory.net/rapid"
)

func drawLine(rt *rapid.T, c *pricing.Catalogue, label string) pricing.Priced {
	n := func(what string) int64 { return rapid.Int64Range(0, 2_000_000).Draw(rt, label+what) }
	model := rapid.SampledFrom([]string{"claude-sonnet-5", "claude-opus-4-8", "claude-unheard-of"}).Draw(rt, label+"model")
	five, hour := n("5m"), n("1h")
	raw := fmt.Sprintf(`{"input_tokens": %d, "output_tokens": %d, "cache_read_input_tokens": %d, "cache_creation_input_tokens": %d,
		"cache_creation": {"ephemeral_5m_input_tokens": %d, "ephemeral_1h_input_tokens": %d}}`, n("in"), n("out"), n("read"), five+hour, five, hour)
	return c.Price(pricing.Normalise("anthropic", []byte(raw)), "anthropic", model, at)
}

func TestTheOrderAndTheSplittingOfLinesChangeNothing(t *testing.T) {
	t.Parallel()
	c := shipped(t)
	rapid.Check(t, func(rt *rapid.T) {
		var lines []pricing.Priced
		for i := range rapid.IntRange(0, 20).Draw(rt, "lines") {
			lines = append(lines, drawLine(rt, c, fmt.Sprint(i)))
		}
		total, err := pricing.Total(lines)
		if err != nil {
			rt.Fatal(err)
		}
		if again, err := pricing.Total(rapid.Permutation(lines).Draw(rt, "order")); err != nil || again != total {
			rt.Fatalf("in another order %v (%v), before %v", again, err, total)
		}
		cut := rapid.IntRange(0, len(lines)).Draw(rt, "cut")
		first, err1 := pricing.Total(lines[:cut])
		second, err2 := pricing.Total(lines[cut:])
		sum, err3 := first.Known.Add(second.Known)
		if err := errors.Join(err1, err2, err3); err != nil {
			rt.Fatal(err)
		}
		if sum != total.Known || first.Unpriced+second.Unpriced != total.Unpriced {
			rt.Fatalf("in two parts %v and %v, in one %v", first, second, total)
		}
	})
}

// The price of one request is the sum over its buckets, so that dividing its counts over two requests of the same price
// changes nothing; and it is what arithmetic without bounds gives.
func TestARequestCostsTheSumOfItsParts(t *testing.T) {
	t.Parallel()
	c := shipped(t)
	rates := [6]int64{2_000_000, 200_000, 2_500_000, 4_000_000, 10_000_000, 10_000_000_000} // claude-sonnet-5
	usage := func(n [6]int64) pricing.Usage {
		return pricing.Usage{
			Input: &n[0], CacheRead: &n[1], CacheWrite5m: &n[2], CacheWrite1h: &n[3], Output: &n[4], WebSearches: &n[5], ServiceTier: pricing.Standard,
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		var a, b, both [6]int64
		var want, promptSize wide
		for i := range both {
			a[i] = rapid.Int64Range(0, math.MaxInt64/4).Draw(rt, "a")
			b[i] = rapid.Int64Range(0, math.MaxInt64/4).Draw(rt, "b")
			if rapid.Bool().Draw(rt, "small") {
				a[i], b[i] = a[i]%100_000, b[i]%100_000
			}
			both[i] = a[i] + b[i]
			want.add(both[i], rates[i])
			if i < 4 {
				promptSize.add(both[i], 1)
			}
		}
		p := c.Price(usage(both), "anthropic", "claude-sonnet-5", at)
		if p.Amount == nil {
			if want.fits() && promptSize.fits() {
				rt.Fatalf("unpriced (%s), and the amount is %d", p.UnpricedReason, want.lo)
			}
			return
		}
		if !want.fits() || uint64(*p.Amount) != want.lo {
			rt.Fatalf("%d, want %+v", *p.Amount, want)
		}
		pa, pb := c.Price(usage(a), "anthropic", "claude-sonnet-5", at), c.Price(usage(b), "anthropic", "claude-sonnet-5", at)
		if sum, err := pricing.Total([]pricing.Priced{pa, pb}); err != nil || sum.Known != *p.Amount || sum.Unpriced != 0 {
			rt.Fatalf("in two requests %v (%v), in one %d", sum, err, *p.Amount)
		}
	})
}

// wide is a sum of 128 bits, which the sums of this test cannot overflow.
type wide struct{ hi, lo uint64 }

func (w *wide) add(n, rate int64) {
	hi, lo := bits.Mul64(uint64(n), uint64(rate))
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi += hi + carry
}

func (w *wide) fits() bool { return w.hi == 0 && w.lo <= math.MaxInt64 }

func TestATotalThatDoesNotFitIsAnError(t *testing.T) {
	t.Parallel()
	most := errand.Picodollars(math.MaxInt64)
	one := errand.Picodollars(1)
	if _, err := pricing.Total([]pricing.Priced{{Amount: &most}, {Amount: &one}}); !errors.Is(err, errand.ErrOverflow) {
		t.Errorf("error = %v, want ErrOverflow", err)
	}
}

func FuzzNormalise(f *testing.F) {
	f.Add("anthropic", []byte(thousand))
	f.Add("openai", []byte(`{"service_tier": "default", "usage": `+thousand+`}`))
	f.Add("anthropic", []byte(`{"usage": {"usage": null}}`))
	f.Fuzz(func(t *testing.T, provider string, raw []byte) {
		u := pricing.Normalise(provider, raw)
		for _, n := range []*int64{u.Input, u.CacheRead, u.CacheWrite5m, u.CacheWrite1h, u.Output, u.WebSearches} {
			if n == nil && u.Unknown == "" {
				t.Errorf("%s %q: a count is missing and nothing says why: %+v", provider, raw, u)
			}
			if n != nil && *n < 0 {
				t.Errorf("%s %q: a negative count", provider, raw)
			}
		}
	})
}
