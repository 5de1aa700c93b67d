// Package pricing turns the token counts that a provider reported into money. It normalises them once per provider into
// disjoint buckets (Normalise) and prices them with a versioned catalogue (Catalogue.Price). All arithmetic is on integer
// picodollars; nothing here ever is a float.
//
// What cannot be priced has no amount and a reason: a model without a price, a service tier without one, a bucket in use
// without one, a count that never arrived or does not add up. None of these is zero.
//
// It imports the root only. Start reading at Catalogue.Price.
package pricing

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/errand-dev/errand"
)

// Bucket is a kind of use that has a price of its own: a closed set. The buckets of one request are disjoint.
type Bucket string

// The buckets. Output includes reasoning: the providers here bill both alike.
const (
	Input        Bucket = "input" // neither read from a cache nor written to one
	CacheRead    Bucket = "cache_read"
	CacheWrite5m Bucket = "cache_write_5m" // also the cache writes of a provider that has one kind of them
	CacheWrite1h Bucket = "cache_write_1h"
	Output       Bucket = "output"
	WebSearch    Bucket = "web_search" // searches, not tokens
)

// Buckets lists them all.
func Buckets() []Bucket {
	return []Bucket{Input, CacheRead, CacheWrite5m, CacheWrite1h, Output, WebSearch}
}

// Priced is what one request cost, or why that is not known.
type Priced struct {
	Amount         *errand.Picodollars // nil exactly when UnpricedReason is not empty
	UnpricedReason string
	Catalogue      string // which catalogue answered, also when it had no price
	PriceRow       string // the price used: provider/model@from, with the service tier and the context step if not plain
	Evidence       []errand.Evidence
}

// Price prices one request at the time it was made. The tier by context size is that of this request alone and holds for
// all of its tokens.
func (c *Catalogue) Price(u Usage, provider, model string, at time.Time) Priced {
	p := Priced{Catalogue: c.Version()}
	for _, note := range u.Notes {
		p.Evidence = append(p.Evidence, errand.Evidence{From: "usage", Seen: note})
	}
	amount, err := c.price(u, provider, model, at, &p)
	if err != nil {
		p.UnpricedReason = err.Error()
		return p
	}
	p.Amount = &amount
	return p
}

func (c *Catalogue) price(u Usage, provider, model string, at time.Time, p *Priced) (errand.Picodollars, error) {
	m, how, ok := c.find(provider, model)
	if !ok {
		return 0, fmt.Errorf("no price is known for the model %q of %q", model, provider)
	}
	p.Evidence = append(p.Evidence, errand.Evidence{From: "catalogue " + p.Catalogue, Seen: how})
	if u.Unknown != "" {
		return 0, errors.New("the usage is not known: " + u.Unknown)
	}
	row, err := m.at(u.ServiceTier, at)
	if err != nil {
		return 0, err
	}
	prompt, err := u.prompt()
	if err != nil {
		return 0, err
	}
	prices, step := row.forPrompt(prompt)
	p.PriceRow = row.id + step
	var sum errand.Picodollars
	for _, b := range Buckets() {
		n := u.count(b)
		if n == nil {
			return 0, fmt.Errorf("the count of %s is not known", b)
		}
		if *n < 0 {
			return 0, fmt.Errorf("the count of %s is negative", b)
		}
		price, has := prices[b]
		if !has && *n > 0 {
			return 0, fmt.Errorf("%s has no price for %s, of which the request used %d", p.PriceRow, b, *n)
		}
		part, err := price.Times(*n)
		if err == nil {
			sum, err = sum.Add(part)
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", b, err)
		}
	}
	return sum, nil
}

// Total adds up requests: what is known, and how many have no price. Its only error is errand.ErrOverflow.
func Total(lines []Priced) (errand.Cost, error) {
	var c errand.Cost
	for _, l := range lines {
		if l.Amount == nil {
			c.Unpriced++
			continue
		}
		sum, err := c.Known.Add(*l.Amount)
		if err != nil {
			return errand.Cost{}, err
		}
		c.Known = sum
	}
	return c, nil
}

// prompt is the size that the context steps go by: everything that the model was given.
func (u Usage) prompt() (int64, error) {
	var sum int64
	for _, b := range []Bucket{Input, CacheRead, CacheWrite5m, CacheWrite1h} {
		n := u.count(b)
		switch {
		case n == nil:
			return 0, fmt.Errorf("the count of %s is not known", b)
		case *n < 0:
			return 0, fmt.Errorf("the count of %s is negative", b)
		case *n > math.MaxInt64-sum:
			return 0, fmt.Errorf("the size of the prompt: %w", errand.ErrOverflow)
		}
		sum += *n
	}
	return sum, nil
}

// at gives the price of the service tier that was in force.
func (m *model) at(serviceTier string, at time.Time) (*row, error) {
	var found *row
	known := false
	for i := range m.rows {
		r := &m.rows[i]
		if r.serviceTier != serviceTier {
			continue
		}
		known = true
		if !r.from.After(at) && (found == nil || r.from.After(found.from)) {
			found = r
		}
	}
	switch {
	case found != nil:
		return found, nil
	case known:
		return nil, fmt.Errorf("%s/%s has no price for %s", m.provider, m.name, at.UTC().Format(time.DateOnly))
	default:
		return nil, fmt.Errorf("%s/%s has no price for the service tier %q", m.provider, m.name, serviceTier)
	}
}

// forPrompt gives the prices for a prompt of that size, and the name of the step if it is not the lowest.
func (r *row) forPrompt(tokens int64) (map[Bucket]errand.Picodollars, string) {
	prices, name := r.prices, ""
	for _, s := range r.above { // in rising order
		if tokens > s.context {
			prices, name = s.prices, ">"+strconv.FormatInt(s.context, 10)
		}
	}
	return prices, name
}

//go:embed catalogue.yaml
var shipped []byte

// Shipped loads the catalogue that Errand comes with.
func Shipped() (*Catalogue, error) { return Load(shipped) }
