package pricing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/goccy/go-yaml"
)

// Catalogue is a checked list of prices. It does not change and is safe for concurrent use.
type Catalogue struct {
	version string
	models  []*model
	byID    map[id]*model // names and aliases
}

type id struct{ provider, model string }

type model struct {
	provider, name string
	dated          bool
	rows           []row
}

// row is the price of one model and service tier from a day on.
type row struct {
	id          string
	serviceTier string
	from        time.Time // 00:00 UTC
	prices      map[Bucket]errand.Picodollars
	above       []step
}

// step holds the prices of the whole request when its prompt is longer than context tokens.
type step struct {
	context int64
	prices  map[Bucket]errand.Picodollars
}

// Version names the catalogue: its date and the beginning of its digest, so that two are never taken for each other.
func (c *Catalogue) Version() string { return c.version }

// find looks up a model: by its exact id, then by an alias that the catalogue lists, then, where the provider names
// snapshots by date, without the date. Nothing is ever matched by its beginning. It also says how it was found.
func (c *Catalogue) find(provider, name string) (m *model, how string, ok bool) {
	if m, ok := c.byID[id{provider, name}]; ok {
		if m.name == name {
			return m, "model " + name, true
		}
		return m, "model " + m.name + ", of which " + name + " is an alias", true
	}
	if base, ok := cutDate(name); ok {
		if m, ok := c.byID[id{provider, base}]; ok && m.dated && m.name == base {
			return m, "model " + m.name + ", of which " + name + " is a dated snapshot", true
		}
	}
	return nil, "", false
}

var dateSuffix = regexp.MustCompile(`^(.+)-(\d{8}|\d{4}-\d{2}-\d{2})$`)

// cutDate takes the date of a snapshot off a model's id.
func cutDate(name string) (base string, ok bool) {
	parts := dateSuffix.FindStringSubmatch(name)
	if parts == nil {
		return "", false
	}
	_, err := time.Parse("20060102", strings.ReplaceAll(parts[2], "-", ""))
	return parts[1], err == nil
}

// The file's form. Prices are decimal text: no float is made of them.
type (
	fileForm struct {
		Version string      `yaml:"version"`
		Models  []modelForm `yaml:"models"`
	}
	modelForm struct {
		Provider string    `yaml:"provider"`
		Model    string    `yaml:"model"`
		Aliases  []string  `yaml:"aliases"`
		Dated    bool      `yaml:"dated"`
		Prices   []rowForm `yaml:"prices"`
	}
	rowForm struct {
		From        string     `yaml:"from"`
		ServiceTier string     `yaml:"service_tier"`
		Free        bool       `yaml:"free"`
		Prices      priceForm  `yaml:",inline"`
		Above       []stepForm `yaml:"above"`
	}
	stepForm struct {
		Context int64     `yaml:"context"`
		Prices  priceForm `yaml:",inline"`
	}
	priceForm struct {
		Input        string `yaml:"input"`
		Output       string `yaml:"output"`
		CacheRead    string `yaml:"cache_read"`
		CacheWrite5m string `yaml:"cache_write_5m"`
		CacheWrite1h string `yaml:"cache_write_1h"`
		WebSearch    string `yaml:"web_search"`
	}
)

// maxCatalogue bounds a catalogue file in bytes.
const maxCatalogue = 4 << 20

// Load reads a catalogue in YAML or JSON; the shipped catalogue.yaml shows and explains the form. It is strict, and refuses
// prices that cannot be right: a cache read above the input, a 1-hour write below the 5-minute one, a price a thousand times
// too high or too low, a longer prompt that is cheaper, zero without `free: true`. The error is Invalid and tells all.
func Load(data []byte) (*Catalogue, error) {
	if len(data) > maxCatalogue {
		return nil, errand.Invalid("catalogue", "%d bytes: want at most %d", len(data), maxCatalogue)
	}
	var f fileForm
	if err := yaml.UnmarshalWithOptions(data, &f, yaml.Strict()); err != nil {
		return nil, errand.Invalid("catalogue", "%s", err)
	}
	l := &loader{c: &Catalogue{byID: map[id]*model{}}}
	if _, err := time.Parse(time.DateOnly, f.Version); err != nil {
		l.problem("version", "%q: want the date of the catalogue, such as 2026-12-01", f.Version)
	}
	if len(f.Models) == 0 {
		l.problem("models", "there are none")
	}
	for i, m := range f.Models {
		l.model(i, m)
	}
	if len(l.problems) > 0 {
		return nil, errand.Invalid("catalogue", "%s", strings.Join(l.problems, "; "))
	}
	digest := sha256.Sum256(data)
	l.c.version = f.Version + "/" + hex.EncodeToString(digest[:4])
	return l.c, nil
}

type loader struct {
	c        *Catalogue
	problems []string
}

func (l *loader) problem(where, format string, args ...any) {
	l.problems = append(l.problems, where+": "+fmt.Sprintf(format, args...))
}

func (l *loader) model(i int, f modelForm) {
	where := f.Provider + "/" + f.Model
	if f.Provider == "" || f.Model == "" {
		l.problem(fmt.Sprintf("models[%d]", i), "provider and model are required")
		return
	}
	m := &model{provider: f.Provider, name: f.Model, dated: f.Dated}
	for _, name := range append([]string{f.Model}, f.Aliases...) {
		key := id{f.Provider, name}
		if other, taken := l.c.byID[key]; taken {
			l.problem(where, "the id %q is %s's already", name, other.name)
			continue
		}
		l.c.byID[key] = m
	}
	if len(f.Prices) == 0 {
		l.problem(where, "no prices")
	}
	for _, p := range f.Prices {
		r := l.row(where, p)
		if slices.ContainsFunc(m.rows, func(o row) bool { return o.serviceTier == r.serviceTier && o.from.Equal(r.from) }) {
			l.problem(r.id, "given twice")
		}
		m.rows = append(m.rows, r)
	}
	l.c.models = append(l.c.models, m)
}

func (l *loader) row(where string, f rowForm) row {
	r := row{id: where + "@" + f.From, serviceTier: cmp.Or(f.ServiceTier, Standard)}
	if r.serviceTier != Standard {
		r.id += "#" + r.serviceTier
	}
	var err error
	if r.from, err = time.Parse(time.DateOnly, f.From); err != nil {
		l.problem(r.id, "from %q: want a day, such as 2026-12-01", f.From)
	}
	r.prices = l.prices(r.id, f.Prices, f.Free)
	for _, s := range f.Above {
		at := fmt.Sprintf("%s>%d", r.id, s.Context)
		st := step{s.Context, l.prices(at, s.Prices, f.Free)}
		if s.Context <= 0 || len(r.above) > 0 && s.Context <= r.above[len(r.above)-1].context {
			l.problem(at, "context sizes rise from above zero")
		}
		if price, has := r.prices[WebSearch]; has { // does not depend on the prompt
			if _, own := st.prices[WebSearch]; !own {
				st.prices[WebSearch] = price
			}
		}
		l.steps(at, r.prices, st.prices)
		r.above = append(r.above, st)
	}
	return r
}

// steps holds a context step against the plain prices: the same buckets, and none of them cheaper.
func (l *loader) steps(where string, plain, above map[Bucket]errand.Picodollars) {
	if !slices.Equal(slices.Sorted(maps.Keys(plain)), slices.Sorted(maps.Keys(above))) {
		l.problem(where, "it prices other buckets than the plain price does")
	}
	for _, b := range Buckets() {
		if above[b] < plain[b] {
			l.problem(where, "%s is cheaper for a longer prompt", b)
		}
	}
}

// What a price can be, in picodollars a token: a thousandth of a dollar to 5000 dollars a million tokens.
const (
	leastPrice = errand.Picodollars(1_000)
	mostPrice  = errand.Picodollars(5_000_000_000)
)

func (l *loader) prices(where string, f priceForm, free bool) map[Bucket]errand.Picodollars {
	prices := map[Bucket]errand.Picodollars{}
	for b, text := range map[Bucket]string{
		Input: f.Input, Output: f.Output, CacheRead: f.CacheRead, CacheWrite5m: f.CacheWrite5m, CacheWrite1h: f.CacheWrite1h, WebSearch: f.WebSearch,
	} {
		if text == "" {
			continue
		}
		perUnit := 6 // decimals that make a dollar a million tokens whole: a picodollar a token
		if b == WebSearch {
			perUnit = 9 // a thousand searches
		}
		p, err := parseDecimal(text, perUnit)
		if err != nil {
			l.problem(where, "%s %q: %s", b, text, err)
			continue
		}
		if b != WebSearch && (p < leastPrice || p > mostPrice) && (p != 0 || !free) {
			l.problem(where, "%s %q cannot be right: want dollars per million tokens, 0.001 to 5000 (a model that costs nothing says `free: true`)", b, text)
		}
		prices[b] = p
	}
	for _, b := range []Bucket{Input, Output} {
		if _, has := prices[b]; !has {
			l.problem(where, "%s has no price", b)
		}
	}
	if prices[CacheRead] > prices[Input] {
		l.problem(where, "cache_read is above input")
	}
	if hour, has := prices[CacheWrite1h]; has && hour < prices[CacheWrite5m] {
		l.problem(where, "cache_write_1h is below cache_write_5m")
	}
	return prices
}

// parseDecimal reads "12.5" as a whole number of units of 10^-decimals, exactly.
func parseDecimal(s string, decimals int) (errand.Picodollars, error) {
	whole, fraction, dot := strings.Cut(s, ".")
	if whole == "" || dot && fraction == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, fmt.Errorf("want a decimal number in quotes, such as \"12.5\"")
	}
	if len(fraction) > decimals || len(whole) > 7 {
		return 0, fmt.Errorf("want at most 7 digits before the point and %d behind it", decimals)
	}
	var n errand.Picodollars
	for _, c := range whole + fraction + strings.Repeat("0", decimals-len(fraction)) {
		n = n*10 + errand.Picodollars(c-'0')
	}
	return n, nil
}
