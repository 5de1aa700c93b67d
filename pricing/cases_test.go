package pricing_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/pricing"
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func shipped(t testing.TB) *pricing.Catalogue {
	t.Helper()
	c, err := pricing.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func reports(t testing.TB) *pricing.Catalogue {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "cases.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := pricing.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// usd prices raw counts and gives the amount in dollars, or "unpriced: why".
func usd(c *pricing.Catalogue, provider, model, raw string, decimals int) string {
	p := c.Price(pricing.Normalise(provider, []byte(raw)), provider, model, at)
	if (p.Amount == nil) == (p.UnpricedReason == "") {
		return fmt.Sprintf("neither priced nor unpriced: %+v", p)
	}
	if p.Amount == nil {
		return "unpriced: " + p.UnpricedReason
	}
	return p.Amount.USD(decimals)
}

func check(t *testing.T, says, got, want string) {
	t.Helper()
	if got != want && (!strings.HasPrefix(want, "unpriced: ") || !strings.Contains(got, want)) {
		t.Errorf("%s: %s, want %s", says, got, want)
	}
}

func TestE1_CacheWritesAreNotChargedAsInputToo(t *testing.T) {
	t.Parallel()
	raw := `{"input_tokens": 3, "cache_creation_input_tokens": 12304, "output_tokens": 550}`
	check(t, "the provider's console said $0.0544", usd(reports(t), "anthropic", "claude-3-7-sonnet-20250219", raw, 4), "0.0544")
	u := pricing.Normalise("anthropic", []byte(raw))
	if *u.Input != 3 || *u.CacheWrite5m != 12304 || *u.CacheWrite1h != 0 {
		t.Errorf("buckets: input %d, 5 minutes %d, 1 hour %d", *u.Input, *u.CacheWrite5m, *u.CacheWrite1h)
	}
	if !strings.Contains(strings.Join(u.Notes, "\n"), "counted as 5 minutes") {
		t.Errorf("notes %q do not say that the lifetime was taken from the documentation", u.Notes)
	}
}

func TestE2_CacheHitsAreTakenOffAnInputThatIncludesThem(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`{"prompt_tokens": 262960, "prompt_tokens_details": {"cached_tokens": 257955}, "completion_tokens": 1744, "total_tokens": 264704}`,
		`{"input_tokens": 262960, "input_tokens_details": {"cached_tokens": 257955}, "output_tokens": 1744, "total_tokens": 264704}`,
	} {
		check(t, "the bill said $0.1849", usd(reports(t), "openai", "e2-model", raw, 4), "0.1849")
	}
}

func TestE4_WhetherInputIncludesTheCacheIsKnownPerProvider(t *testing.T) {
	t.Parallel()
	const model = "gpt-5.4-mini" // 0.75 and 0.075 a million
	cold := `{"prompt_tokens": 17111, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}}`
	warm := `{"prompt_tokens": 17111, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 17000}}`
	check(t, "nothing cached", usd(shipped(t), "openai", model, cold, 8), "0.01283325")
	check(t, "nearly all cached, the same prompt_tokens", usd(shipped(t), "openai", model, warm, 8), "0.00135825")
	same := `{"input_tokens": 111, "cache_read_input_tokens": 17000, "output_tokens": 0}`
	u := pricing.Normalise("anthropic", []byte(same))
	if *u.Input != 111 || *u.CacheRead != 17000 {
		t.Errorf("Anthropic's input excludes the cache: input %d, read %d; want 111 and 17000", *u.Input, *u.CacheRead)
	}
}

func TestE8_ACountUnderAnUnknownNameIsNotDropped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ says, provider, raw, want string }{
		{
			"another spelling", "anthropic",
			`{"input_tokens": 100, "output_tokens": 10, "cacheReadInputTokens": 92000}`, `unpriced: the usage is not known: "cacheReadInputTokens"`,
		},
		{
			"another spelling of a name that is required", "anthropic",
			`{"inputTokens": 100, "output_tokens": 10}`, "unpriced: the usage is not known: input_tokens never arrived",
		},
		{
			"another case", "anthropic",
			`{"input_tokens": 1, "Output_Tokens": 10}`, "unpriced: the usage is not known: output_tokens never arrived",
		},
		{
			"a known name in the wrong place", "openai",
			`{"input_tokens": 100, "output_tokens": 10, "cached_tokens": 90}`, `unpriced: the usage is not known: "cached_tokens"`,
		},
		{
			"deep inside", "openai",
			`{"input_tokens": 100, "output_tokens": 10, "input_tokens_details": {"audio": [{"n": 7}]}}`, `unpriced: the usage is not known: input_tokens_details."audio"`,
		},
		{"an unknown count of nothing does no harm", "anthropic", `{"input_tokens": 0, "output_tokens": 0, "new": {"n": 0, "m": null, "w": "x1"}}`, "0.0000"},
	} {
		check(t, tt.says, usd(shipped(t), tt.provider, map[string]string{"anthropic": "claude-sonnet-5", "openai": "gpt-5.5"}[tt.provider], tt.raw, 4), tt.want)
	}
}

const thousand = `{"input_tokens": 1000, "output_tokens": 1000}`

func TestE10_AnUnknownModelIsUnpricedAndNotFree(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ says, provider, model string }{
		{"a dot for a dash", "anthropic", "claude-sonnet-4.6"},
		{"a typing error", "anthropic", "claude-sonet-5"},
		{"another case", "anthropic", "Claude-Sonnet-5"},
		{"another provider's model", "openai", "claude-sonnet-5"},
		{"no model", "anthropic", ""},
		{"a provider that is not known", "acme", "claude-sonnet-5"},
	} {
		p := shipped(t).Price(pricing.Normalise("anthropic", []byte(thousand)), tt.provider, tt.model, at)
		if p.Amount != nil || !strings.Contains(p.UnpricedReason, "no price is known") || p.PriceRow != "" || p.Catalogue == "" {
			t.Errorf("%s: %+v; want unpriced, with the catalogue that was asked", tt.says, p)
		}
	}
	priced := shipped(t).Price(pricing.Normalise("anthropic", []byte(thousand)), "anthropic", "claude-sonnet-5", at)
	unpriced := shipped(t).Price(pricing.Normalise("anthropic", []byte(thousand)), "anthropic", "claude-sonnet-6", at)
	cost, err := pricing.Total([]pricing.Priced{priced, unpriced})
	if err != nil || cost.String() != "at least $0.0120, 1 request unpriced" {
		t.Errorf("total = %q, %v", cost, err)
	}
}

func TestE13_ALongPromptIsWhollyAtTheHigherPrice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ says, raw, want, row string }{
		{"at the step: the plain price", `{"input_tokens": 272000, "output_tokens": 1000}`, "1.390000", "openai/gpt-5.5@2026-04-23"},
		{"one token over it: all of it, the output too", `{"input_tokens": 272001, "output_tokens": 1000}`, "2.765010", "openai/gpt-5.5@2026-04-23>272000"},
		{
			"cached tokens count for the step", `{"input_tokens": 300000, "input_tokens_details": {"cached_tokens": 299000}, "output_tokens": 1000}`,
			"0.354000", "openai/gpt-5.5@2026-04-23>272000",
		},
	} {
		check(t, tt.says, usd(shipped(t), "openai", "gpt-5.5", tt.raw, 6), tt.want)
		if p := shipped(t).Price(pricing.Normalise("openai", []byte(tt.raw)), "openai", "gpt-5.5", at); p.PriceRow != tt.row {
			t.Errorf("%s: price row %s, want %s", tt.says, p.PriceRow, tt.row)
		}
	}
}

func TestE16_TheStepIsForEachRequestAndNotForTheirSum(t *testing.T) {
	t.Parallel()
	c := shipped(t)
	var lines []pricing.Priced
	for range 1826 {
		lines = append(lines, c.Price(pricing.Normalise("openai", []byte(`{"input_tokens": 92000, "output_tokens": 0}`)), "openai", "gpt-5.5", at))
	}
	cost, err := pricing.Total(lines)
	if err != nil || cost.Known.USD(2) != "839.96" || cost.Unpriced != 0 {
		t.Errorf("1826 requests of 92,000 tokens: %v, %v; want $839.96 at the plain price", cost, err)
	}
}

func TestE21_AModelIsNeverMatchedByItsBeginning(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ says, provider, model, how string }{
		{"the exact id", "anthropic", "claude-opus-5", "model claude-opus-5"},
		{"a longer id that is a model of its own", "anthropic", "claude-opus-5-5", "model claude-opus-5-5"},
		{"a listed alias", "openai", "gpt-5.5-2026-04-24", "model gpt-5.5, of which gpt-5.5-2026-04-24 is an alias"},
		{"a dated snapshot", "anthropic", "claude-haiku-4-5-20251001", "model claude-haiku-4-5, of which claude-haiku-4-5-20251001 is a dated snapshot"},
		{"a new family", "openai", "gpt-5.5-nano", ""},
		{"a new member behind a dash", "anthropic", "claude-sonnet-5-1", ""},
		{"a suffix that is no date", "anthropic", "claude-haiku-4-5-20251399", ""},
		{"a date where the provider's ids are listed one by one", "openai", "gpt-5.5-2026-05-01", ""},
		{"an alias with a date", "openai", "gpt-5.6-2026-09-01", ""},
		{"two dates", "anthropic", "claude-haiku-4-5-20251001-20251001", ""},
	} {
		p := shipped(t).Price(pricing.Normalise(tt.provider, []byte(thousand)), tt.provider, tt.model, at)
		var how string
		for _, e := range p.Evidence {
			if strings.HasPrefix(e.From, "catalogue ") {
				how = e.Seen
			}
		}
		if how != tt.how || (p.Amount != nil) != (tt.how != "") {
			t.Errorf("%s: priced %v by %q, want %q", tt.says, p.Amount != nil, how, tt.how)
		}
	}
}

func TestE22_WhatACancelledRequestReportedIsKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says, raw, reason string
		input             *int64
	}{
		{"cut off before the output was counted", `{"input_tokens": 5000, "cache_read_input_tokens": 7}`, "output_tokens never arrived", ptr(5000)},
		{"the count is null", `{"input_tokens": 5000, "output_tokens": null}`, "output_tokens never arrived", ptr(5000)},
		{"nothing arrived", `null`, "no counts arrived", nil},
		{"nothing at all", ``, "no counts arrived", nil},
		{"an empty report", `{}`, "input_tokens never arrived", nil},
	} {
		u := pricing.Normalise("anthropic", []byte(tt.raw))
		if !strings.Contains(u.Unknown, tt.reason) || (u.Input == nil) != (tt.input == nil) || tt.input != nil && *u.Input != *tt.input || u.Output != nil {
			t.Errorf("%s: %+v", tt.says, u)
		}
		p := shipped(t).Price(u, "anthropic", "claude-sonnet-5", at)
		if p.Amount != nil || !strings.Contains(p.UnpricedReason, tt.reason) {
			t.Errorf("%s: %+v; want unpriced because %s", tt.says, p, tt.reason)
		}
	}
	partial := `{"input_tokens": 5000, "output_tokens": 12}`
	check(t, "counts up to the abort are priced", usd(shipped(t), "anthropic", "claude-sonnet-5", partial, 5), "0.01012")
}

func ptr(n int64) *int64 { return &n }

// The shared reports of usage, one for each wire format.
func TestTheFixturesOfEachFormat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file, provider, model string
		want                  [6]int64 // in the order of Buckets
		usd                   string
	}{
		{"anthropic.messages.usage", "anthropic", "claude-sonnet-5", [6]int64{120, 20000, 4000, 1000, 900, 2}, "0.047240"},
		{"openai.responses.usage", "openai", "gpt-5.5", [6]int64{5120, 20000, 0, 0, 900, 0}, "0.062600"},
		{"openai.chat_completions.usage", "openai", "gpt-5.4-mini", [6]int64{5120, 20000, 0, 0, 900, 0}, "0.009390"},
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", "llm-usage", tt.file+".derived.json"))
		if err != nil {
			t.Fatal(err)
		}
		u := pricing.Normalise(tt.provider, raw)
		if u.Unknown != "" || u.ServiceTier != pricing.Standard {
			t.Fatalf("%s: unknown %q, tier %q", tt.file, u.Unknown, u.ServiceTier)
		}
		got := [6]int64{*u.Input, *u.CacheRead, *u.CacheWrite5m, *u.CacheWrite1h, *u.Output, *u.WebSearches}
		if got != tt.want {
			t.Errorf("%s: buckets %v, want %v", tt.file, got, tt.want)
		}
		check(t, tt.file, usd(shipped(t), tt.provider, tt.model, string(raw), 6), tt.usd)
	}
}

func TestNoServiceTierIsGuessed(t *testing.T) {
	t.Parallel()
	count := func(more string) string { return `{"input_tokens": 1000, "output_tokens": 1000` + more + `}` }
	for _, tt := range []struct{ says, provider, model, raw, want string }{
		{"standard", "anthropic", "claude-sonnet-5", count(`, "service_tier": "standard", "speed": "standard", "inference_geo": "global"`), "0.0120"},
		{"none named: taken as standard", "anthropic", "claude-sonnet-5", count(``), "0.0120"},
		{"null", "anthropic", "claude-sonnet-5", count(`, "service_tier": null`), "0.0120"},
		{"batch has no price here", "anthropic", "claude-sonnet-5", count(`, "service_tier": "batch"`), `unpriced: anthropic/claude-sonnet-5 has no price for the service tier "batch"`},
		{"fast mode has its own", "anthropic", "claude-opus-4-8", count(`, "speed": "fast"`), "0.0600"},
		{"fast mode of a model without a price for it", "anthropic", "claude-sonnet-5", count(`, "speed": "fast"`), `unpriced: anthropic/claude-sonnet-5 has no price for the service tier "fast"`},
		{"fast and batch together", "anthropic", "claude-opus-4-8", count(`, "speed": "fast", "service_tier": "batch"`), `unpriced: anthropic/claude-opus-4-8 has no price for the service tier "batch+fast"`},
		{"a geography with a price of its own", "anthropic", "claude-sonnet-5", count(`, "inference_geo": "us"`), "0.0132"},
		{"a geography without", "anthropic", "claude-sonnet-5", count(`, "inference_geo": "eu"`), `unpriced: anthropic/claude-sonnet-5 has no price for the service tier "standard+eu"`},
		{"default is OpenAI's standard", "openai", "gpt-5.4-mini", `{"service_tier": "default", "usage": ` + thousand + `}`, "0.0052"},
		{"priority beside the usage", "openai", "gpt-5.4-mini", `{"service_tier": "priority", "usage": ` + thousand + `}`, "0.0105"},
		{"flex", "openai", "gpt-5.4-mini", `{"service_tier": "flex", "usage": ` + thousand + `}`, `unpriced: openai/gpt-5.4-mini has no price for the service tier "flex"`},
		{"a bucket without a price, in use", "anthropic", "claude-opus-4-8", `{"input_tokens": 1, "output_tokens": 1, "speed": "fast", "server_tool_use": {"web_search_requests": 1}}`, "unpriced: anthropic/claude-opus-4-8@2026-05-28#fast has no price for web_search, of which the request used 1"},
	} {
		check(t, tt.says, usd(shipped(t), tt.provider, tt.model, tt.raw, 4), tt.want)
	}
}

func TestThePriceIsTheOneInForceAtTheTime(t *testing.T) {
	t.Parallel()
	day := func(s string) time.Time {
		d, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, tt := range []struct {
		says, model string
		at          time.Time
		want, row   string
	}{
		{"the last moment of the old price", "gpt-5.6-sol", day("2026-08-20T23:59:59Z"), "0.0350", "openai/gpt-5.6-sol@2026-07-02"},
		{"the first of the new one", "gpt-5.6-sol", day("2026-08-21T00:00:00Z"), "0.0240", "openai/gpt-5.6-sol@2026-08-21"},
		{"a day by UTC, wherever the clock stands", "gpt-5.6-sol", day("2026-08-21T01:00:00+02:00"), "0.0350", "openai/gpt-5.6-sol@2026-07-02"},
		{"before there was any", "gpt-5.5", day("2026-04-22T12:00:00Z"), "openai/gpt-5.5 has no price for 2026-04-22", ""},
		{"at no time", "gpt-5.5", time.Time{}, "openai/gpt-5.5 has no price for 0001-01-01", ""},
	} {
		p := shipped(t).Price(pricing.Normalise("openai", []byte(thousand)), "openai", tt.model, tt.at)
		got := p.UnpricedReason
		if p.Amount != nil {
			got = p.Amount.USD(4)
		}
		if got != tt.want || p.PriceRow != tt.row {
			t.Errorf("%s: %s by %s, want %s by %s", tt.says, got, p.PriceRow, tt.want, tt.row)
		}
	}
}

func TestReportsThatDoNotAddUpAreUnknown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ says, provider, raw, want string }{
		{
			"a split that is less than the whole", "anthropic",
			`{"input_tokens":1,"output_tokens":1,"cache_creation_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":50,"ephemeral_1h_input_tokens":49}}`,
			"cache_creation adds up to 99 and cache_creation_input_tokens is 100",
		},
		{
			"a split without the whole", "anthropic",
			`{"input_tokens":1,"output_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":0}}`,
			"cache_creation came without cache_creation_input_tokens",
		},
		{"half a split", "anthropic", `{"input_tokens":1,"output_tokens":1,"cache_creation_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":5}}`, "ephemeral_1h_input_tokens never arrived"},
		{"a third lifetime", "anthropic", `{"input_tokens":1,"output_tokens":1,"cache_creation_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0,"ephemeral_1d_input_tokens":3}}`, `cache_creation."ephemeral_1d_input_tokens"`},
		{"a negative count", "anthropic", `{"input_tokens":-1,"output_tokens":1}`, "input_tokens is negative (-1)"},
		{"half a token", "anthropic", `{"input_tokens":1.5,"output_tokens":1}`, `input_tokens is "1.5": not a whole number`},
		{"a count in words", "anthropic", `{"input_tokens":"12","output_tokens":1}`, "not a whole number"},
		{"a count that does not fit", "anthropic", `{"input_tokens":99999999999999999999,"output_tokens":1}`, "not a whole number"},
		{"a count that nobody can use", "anthropic", `{"input_tokens":9999999999999,"output_tokens":1}`, "more than any request can use"},
		{"more thinking than output", "anthropic", `{"input_tokens":1,"output_tokens":1,"output_tokens_details":{"thinking_tokens":2}}`, "thinking_tokens (2) is more than output_tokens (1)"},
		{"more cached than there was", "openai", `{"input_tokens":10,"output_tokens":1,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":3}}`, "the cached parts (8 read, 3 written) are more than the input_tokens of 10"},
		{"a total that is another", "openai", `{"input_tokens":10,"output_tokens":1,"total_tokens":12}`, "add up to 11 and total_tokens is 12"},
		{"more reasoning than output", "openai", `{"prompt_tokens":1,"completion_tokens":1,"completion_tokens_details":{"reasoning_tokens":2}}`, "reasoning_tokens (2) is more than completion_tokens (1)"},
		{"audio, which has another price", "openai", `{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"audio_tokens":4}}`, `prompt_tokens_details."audio_tokens"`},
		{"a list", "anthropic", `[1]`, "usage is not a JSON object"},
		{"not JSON", "anthropic", `{"input_tokens":`, "usage is not a JSON object"},
		{"a usage that is a word", "openai", `{"usage":"lots"}`, "usage is not a JSON object"},
		{"a provider that is not known", "google", `{"promptTokenCount":1}`, `the counts of provider "google" are not understood`},
	} {
		u := pricing.Normalise(tt.provider, []byte(tt.raw))
		if !strings.Contains(u.Unknown, tt.want) {
			t.Errorf("%s: unknown because %q, want %q", tt.says, u.Unknown, tt.want)
		}
		if p := shipped(t).Price(u, "anthropic", "claude-sonnet-5", at); p.Amount != nil || p.UnpricedReason == "" {
			t.Errorf("%s: was priced: %+v", tt.says, p)
		}
	}
}

func TestAUsageMadeByHandIsHeldToTheSameRules(t *testing.T) {
	t.Parallel()
	c := shipped(t)
	whole := func(input int64) pricing.Usage {
		return pricing.Usage{
			Input: &input, CacheRead: new(int64), CacheWrite5m: new(int64), CacheWrite1h: new(int64),
			Output: new(int64), WebSearches: new(int64), ServiceTier: pricing.Standard,
		}
	}
	missing := whole(1)
	missing.WebSearches = nil
	for _, tt := range []struct {
		says string
		u    pricing.Usage
		want string
	}{
		{"the zero usage", pricing.Usage{}, `service tier ""`},
		{"a count that is not known", missing, "the count of web_search is not known"},
		{"a negative count", whole(-5), "negative"},
		{"an amount out of range", whole(1 << 62), errand.ErrOverflow.Error()},
	} {
		if p := c.Price(tt.u, "anthropic", "claude-sonnet-5", at); p.Amount != nil || !strings.Contains(p.UnpricedReason, tt.want) {
			t.Errorf("%s: %+v, want unpriced because of %s", tt.says, p, tt.want)
		}
	}
}
