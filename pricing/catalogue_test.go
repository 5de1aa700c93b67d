package pricing_test

import (
	"strings"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/pricing"
)

const small = `version: "2026-12-01"
models:
  - provider: acme
    model: big
    aliases: [huge]
    prices:
      - {from: "2026-01-01", input: "3", output: "15", cache_read: "0.3", cache_write_5m: "3.75", cache_write_1h: "6", above: [{context: 200, input: "6", output: "22.5", cache_read: "0.6", cache_write_5m: "7.5", cache_write_1h: "12"}]}
`

func TestCataloguesThatAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := pricing.Load([]byte(small)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ says, old, new, want string }{
		{"nothing", small, "", `version: ""`},
		{"no models", small, `version: "2026-12-01"`, "models: there are none"},
		{"a version that is no day", `"2026-12-01"`, `"latest"`, `version: "latest"`},
		{"a field that is not known", "aliases:", "alias:", `unknown field "alias"`},
		{"a bucket that is not known", "cache_read:", "cacheRead:", `unknown field "cacheRead"`},
		{"the same id twice", "[huge]", "[big]", `acme/big: the id "big" is big's already`},
		{"the same price twice", "    prices:\n", "    prices:\n      - {from: \"2026-01-01\", input: \"3\", output: \"15\"}\n", "acme/big@2026-01-01: given twice"},
		{"a day that is none", `from: "2026-01-01"`, `from: "2026-02-30"`, `from "2026-02-30"`},
		{"cache read above input", `cache_read: "0.3"`, `cache_read: "3.1"`, "cache_read is above input"},
		{"an hour cheaper than five minutes", `cache_write_1h: "6"`, `cache_write_1h: "3"`, "cache_write_1h is below cache_write_5m"},
		{"a price per token", `input: "3"`, `input: "0.000003"`, `input "0.000003" cannot be right`},
		{"a price per billion", `output: "15"`, `output: "15000"`, `output "15000" cannot be right`},
		{"a price of nothing", `input: "3"`, `input: "0"`, "cannot be right"},
		{"a negative price", `input: "3"`, `input: "-3"`, "want a decimal number"},
		{"an exponent", `input: "3"`, `input: "3e2"`, "want a decimal number"},
		{"a price finer than the unit", `input: "3"`, `input: "3.0000001"`, "want at most"},
		{"no output price", `output: "15", `, "", "output has no price"},
		{"a longer prompt that is cheaper", `above: [{context: 200, input: "6"`, `above: [{context: 200, input: "2"`, "input is cheaper for a longer prompt"},
		{"a step that leaves a bucket out", `, cache_write_1h: "12"`, "", "it prices other buckets"},
		{"a step at zero", "context: 200", "context: 0", "context sizes rise"},
		{"a model without a name", "model: big", `model: ""`, "models[0]: provider and model are required"},
	} {
		if !strings.Contains(small, tt.old) {
			t.Fatalf("%s: %q is not in the catalogue", tt.says, tt.old)
		}
		_, err := pricing.Load([]byte(strings.Replace(small, tt.old, tt.new, 1)))
		if errand.CodeOf(err) != errand.CodeInvalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s:\n got %v\nwant %s", tt.says, err, tt.want)
		}
	}
}

func TestAModelMayBeFreeOnPurpose(t *testing.T) {
	t.Parallel()
	c, err := pricing.Load([]byte(`{"version": "2026-12-01", "models": [{"provider": "own", "model": "m", "prices": [{"from": "2026-01-01", "free": true, "input": "0", "output": "0"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Price(pricing.Normalise("anthropic", []byte(thousand)), "own", "m", at)
	if p.Amount == nil || *p.Amount != 0 {
		t.Errorf("priced %+v, want 0", p)
	}
}

func TestTheVersionTellsCataloguesApart(t *testing.T) {
	t.Parallel()
	a, err := pricing.Load([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	b, err := pricing.Load([]byte(strings.Replace(small, `input: "3"`, `input: "3.1"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(a.Version(), "2026-12-01/") || a.Version() == b.Version() {
		t.Errorf("versions %q and %q", a.Version(), b.Version())
	}
}
