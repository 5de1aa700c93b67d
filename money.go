package errand

import (
	"encoding/json"
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Picodollars is an amount of money in units of 10^-12 US dollars. All sums are integer; an int64 holds about 9.2
// million dollars. Prices are picodollars per token: 3 dollars a million tokens is 3,000,000.
type Picodollars int64

// ErrOverflow is returned by money arithmetic that does not fit.
var ErrOverflow = errors.New("amount of money out of range")

// Add gives a+b, or ErrOverflow.
func (p Picodollars) Add(q Picodollars) (Picodollars, error) {
	s := p + q
	if (q > 0 && s < p) || (q < 0 && s > p) {
		return 0, ErrOverflow
	}
	return s, nil
}

// Times gives the price of n tokens, n not negative, or ErrOverflow.
func (p Picodollars) Times(n int64) (Picodollars, error) {
	if n < 0 || p < 0 {
		return 0, ErrOverflow
	}
	hi, lo := bits.Mul64(uint64(p), uint64(n))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, ErrOverflow
	}
	return Picodollars(lo), nil
}

// USD shows the amount in dollars with the given number of decimals (0 to 12), rounded half-even: the only place where
// money is rounded.
func (p Picodollars) USD(decimals int) string {
	decimals = min(max(decimals, 0), 12)
	neg := p < 0
	u := uint64(p)
	if neg {
		u = -u
	}
	unit := uint64(1)
	for range 12 - decimals {
		unit *= 10
	}
	q, r := u/unit, u%unit
	if twice := r * 2; twice > unit || (twice == unit && q%2 == 1) {
		q++
	}
	s := strconv.FormatUint(q, 10)
	if decimals > 0 {
		if len(s) <= decimals {
			s = strings.Repeat("0", decimals+1-len(s)) + s
		}
		s = s[:len(s)-decimals] + "." + s[len(s)-decimals:]
	}
	if neg && strings.Trim(s, "0.") != "" {
		s = "-" + s
	}
	return s
}

// Cost is what is known of the cost of something: the sum of its priced parts and how many parts have no price. It is
// "at least Known" whenever Unpriced is above zero.
type Cost struct {
	Known    Picodollars
	Unpriced int
}

// String says it in words: "$0.0123", or "at least $0.0123, 2 requests unpriced", or "unknown (2 requests unpriced)".
func (c Cost) String() string {
	switch {
	case c.Unpriced == 0:
		return "$" + c.Known.USD(4)
	case c.Known == 0:
		return "unknown (" + plural(c.Unpriced, "request") + " unpriced)"
	default:
		return "at least $" + c.Known.USD(4) + ", " + plural(c.Unpriced, "request") + " unpriced"
	}
}

// MarshalJSON gives {"usd": "0.0123", "unpriced": 0}; usd is null when nothing of it is known.
func (c Cost) MarshalJSON() ([]byte, error) {
	var usd *string
	if s := c.Known.USD(4); c.Known != 0 || c.Unpriced == 0 {
		usd = &s
	}
	return json.Marshal(struct {
		USD      *string `json:"usd"`
		Unpriced int     `json:"unpriced"`
	}{usd, c.Unpriced})
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
