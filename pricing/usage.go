package pricing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The providers whose counts are understood.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai"
)

// Standard is the service tier of a request that asked for nothing special.
const Standard = "standard"

// Usage is one request's use in disjoint buckets. A nil count is not known, which is not zero; the counts that are known
// are kept beside it.
type Usage struct {
	Input        *int64
	CacheRead    *int64
	CacheWrite5m *int64
	CacheWrite1h *int64
	Output       *int64
	WebSearches  *int64
	// ServiceTier is the tier that the provider says was used: "standard", "priority", "batch", "flex", ...; "fast" is
	// Anthropic's fast mode. A geography with a price of its own is added behind a plus: "standard+us".
	ServiceTier string
	// Unknown says why the use as a whole is not known; such a request is not priced. Empty when it is.
	Unknown string
	// Notes say what was taken from the provider's documentation and not from the report.
	Notes []string
}

func (u *Usage) count(b Bucket) *int64 {
	switch b {
	case Input:
		return u.Input
	case CacheRead:
		return u.CacheRead
	case CacheWrite5m:
		return u.CacheWrite5m
	case CacheWrite1h:
		return u.CacheWrite1h
	case Output:
		return u.Output
	default:
		return u.WebSearches
	}
}

// Normalise reads the counts of one request as the provider reported them: its usage object, or the response that holds
// one under "usage" (with OpenAI's Responses the service tier stands beside it, so give it the whole). Keys are taken as
// they are spelled. It never fails: what does not add up, or counts something under a name that it does not know, gives a
// Usage whose Unknown says so.
//
// Whether the input includes the cached part differs by provider and is written down at each one's function.
func Normalise(provider string, raw []byte) Usage {
	r := &report{}
	top := r.object("", raw)
	if inner, ok := top.get("usage"); ok {
		usage := r.object("", inner)
		tier, has := top.get("service_tier")
		if _, own := usage.get("service_tier"); has && !own && usage != nil {
			usage.values["service_tier"] = tier
		}
		top = usage
	}
	var u Usage
	switch {
	case r.unknown != "":
	case top == nil:
		r.fail("no counts arrived")
	case provider == Anthropic:
		u = r.anthropic(top)
	case provider == OpenAI:
		u = r.openAI(top)
	default:
		r.fail("the counts of provider %q are not understood", provider)
	}
	u.Unknown, u.Notes = r.unknown, r.notes
	return u
}

// anthropic: input_tokens *excludes* what was written to and read from the cache; the three add up to the prompt. The
// cache fields are null or left out where caching was not used. output_tokens includes thinking.
func (r *report) anthropic(m *object) (u Usage) {
	u.Input = r.required(m, "input_tokens")
	u.Output = r.required(m, "output_tokens")
	u.CacheRead = r.optional(m, "cache_read_input_tokens")
	written := r.optional(m, "cache_creation_input_tokens")
	u.CacheWrite5m, u.CacheWrite1h = r.anthropicSplit(m, written)
	details := r.sub(m, "output_tokens_details")
	r.within(r.optional(details, "thinking_tokens"), u.Output, "thinking_tokens", "output_tokens")
	tools := r.sub(m, "server_tool_use")
	u.WebSearches = r.optional(tools, "web_search_requests")
	tools.get("web_fetch_requests") // not charged beyond their tokens
	u.ServiceTier = r.tier(m, "service_tier", map[string]string{"": Standard})
	if speed := r.word(m, "speed"); speed != "" && speed != "standard" {
		if u.ServiceTier != Standard {
			speed = u.ServiceTier + "+" + speed
		}
		u.ServiceTier = speed
	}
	switch geo := r.word(m, "inference_geo"); geo {
	case "", "global", "not_available":
	default:
		u.ServiceTier += "+" + geo
	}
	r.leftovers(m)
	r.leftovers(details)
	r.leftovers(tools)
	return u
}

// anthropicSplit divides the cache writes by lifetime. Without the split they are of five minutes: that is the lifetime a
// request gets that does not ask for another one, and responses from before there was another one carry no split.
func (r *report) anthropicSplit(m *object, written *int64) (five, hour *int64) {
	split := r.sub(m, "cache_creation")
	if split == nil {
		if written != nil && *written > 0 {
			r.note("cache writes came without their split by lifetime: counted as 5 minutes, the provider's default")
		}
		return written, new(int64)
	}
	five = r.required(split, "ephemeral_5m_input_tokens")
	hour = r.required(split, "ephemeral_1h_input_tokens")
	r.leftovers(split)
	if _, has := m.get("cache_creation_input_tokens"); !has {
		r.fail("cache_creation came without cache_creation_input_tokens")
	}
	if five != nil && hour != nil && written != nil && *five+*hour != *written {
		r.fail("cache_creation adds up to %d and cache_creation_input_tokens is %d", *five+*hour, *written)
		return nil, nil
	}
	return five, hour
}

// openAI, both Responses and Chat Completions: the input *includes* what was read from and written to the cache, so both
// are taken off it. The output includes reasoning. The total is input and output. Searches are not part of the counts.
func (r *report) openAI(m *object) (u Usage) {
	in, out := "input_tokens", "output_tokens"
	if _, chat := m.get("prompt_tokens"); chat {
		in, out = "prompt_tokens", "completion_tokens"
	}
	input := r.required(m, in)
	u.Output = r.required(m, out)
	details := r.sub(m, in+"_details")
	u.CacheRead = r.optional(details, "cached_tokens")
	u.CacheWrite5m = r.optional(details, "cache_write_tokens")
	u.CacheWrite1h, u.WebSearches = new(int64), new(int64)
	if input != nil && u.CacheRead != nil && u.CacheWrite5m != nil {
		rest := *input - *u.CacheRead - *u.CacheWrite5m
		if rest < 0 {
			r.fail("the cached parts (%d read, %d written) are more than the %s of %d that include them", *u.CacheRead, *u.CacheWrite5m, in, *input)
		} else {
			u.Input = &rest
		}
	}
	_, hasTotal := m.get("total_tokens")
	if total := r.optional(m, "total_tokens"); hasTotal && total != nil && input != nil && u.Output != nil && *input+*u.Output != *total {
		r.fail("%s and %s add up to %d and total_tokens is %d", in, out, *input+*u.Output, *total)
	}
	outDetails := r.sub(m, out+"_details")
	r.within(r.optional(outDetails, "reasoning_tokens"), u.Output, "reasoning_tokens", out)
	for _, part := range []string{"accepted_prediction_tokens", "rejected_prediction_tokens"} {
		r.within(r.optional(outDetails, part), u.Output, part, out) // parts of the output, billed as such
	}
	u.ServiceTier = r.tier(m, "service_tier", map[string]string{"": Standard, "default": Standard})
	r.leftovers(m)
	r.leftovers(details)
	r.leftovers(outDetails)
	return u
}

// object is a JSON object that remembers which of its keys were asked for. A nil one is empty.
type object struct {
	path   string // "cache_creation."
	values map[string]json.RawMessage
	asked  map[string]bool
}

func (o *object) get(key string) (json.RawMessage, bool) {
	if o == nil {
		return nil, false
	}
	o.asked[key] = true
	raw, ok := o.values[key]
	return raw, ok
}

// report reads a provider's counts and keeps the first thing that makes them unknown.
type report struct {
	unknown string
	notes   []string
}

func (r *report) fail(format string, args ...any) {
	if r.unknown == "" {
		r.unknown = fmt.Sprintf(format, args...)
	}
}

func (r *report) note(s string) { r.notes = append(r.notes, s) }

// object reads a JSON object; null and nothing give a nil one.
func (r *report) object(path string, raw json.RawMessage) *object {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	o := &object{path: path, asked: map[string]bool{}}
	if err := json.Unmarshal(raw, &o.values); err != nil {
		r.fail("%s is not a JSON object", cmp.Or(strings.TrimSuffix(path, "."), "usage"))
		return nil
	}
	return o
}

func (r *report) sub(m *object, key string) *object {
	raw, _ := m.get(key)
	return r.object(key+".", raw)
}

// required reads a count that every report has; without it the count is unknown.
func (r *report) required(m *object, key string) *int64 {
	raw, ok := m.get(key)
	if !ok || string(raw) == "null" {
		r.fail("%s never arrived", key)
		return nil
	}
	return r.number(key, raw)
}

// optional reads a count that the provider leaves out, or sends as null, where there was nothing to count.
func (r *report) optional(m *object, key string) *int64 {
	raw, ok := m.get(key)
	if !ok || string(raw) == "null" {
		return new(int64)
	}
	return r.number(key, raw)
}

// maxCount bounds a believable count. No request comes near it, and sums of such counts cannot overflow.
const maxCount = 1 << 40

func (r *report) number(key string, raw json.RawMessage) *int64 {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case err != nil:
		r.fail("%s is %s: not a whole number", key, clip(raw))
	case n < 0:
		r.fail("%s is negative (%d)", key, n)
	case n > maxCount:
		r.fail("%s is %d: more than any request can use", key, n)
	default:
		return &n
	}
	return nil
}

func (r *report) word(m *object, key string) string {
	raw, ok := m.get(key)
	if !ok || string(raw) == "null" {
		return ""
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || len(s) > 64 {
		r.fail("%s is %s: not a word", key, clip(raw))
	}
	return s
}

// tier reads the service tier; names gives ours where the provider's differs.
func (r *report) tier(m *object, key string, names map[string]string) string {
	word := r.word(m, key)
	if word == "" {
		r.note("no service tier was reported: taken as standard, which a request gets that asks for nothing else")
	}
	if name, ok := names[word]; ok {
		return name
	}
	return word
}

func (r *report) within(part, whole *int64, partName, wholeName string) {
	if part != nil && whole != nil && *part > *whole {
		r.fail("%s (%d) is more than %s (%d), which includes it", partName, *part, wholeName, *whole)
	}
}

// leftovers refuses what counts something under a name that is not known: it may be billed. Words, null, false and zero
// count nothing.
func (r *report) leftovers(o *object) {
	if o == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(o.values)) {
		if !o.asked[key] && counts(o.values[key]) {
			r.fail("%s%s is %s: not a count that is known here", o.path, clip([]byte(key)), clip(o.values[key]))
		}
	}
}

// counts tells whether there is a number other than zero anywhere in the value.
func counts(raw json.RawMessage) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for {
		t, err := d.Token()
		if err != nil {
			return false
		}
		if n, ok := t.(json.Number); ok {
			mantissa, _, _ := strings.Cut(strings.ToLower(n.String()), "e")
			if strings.ContainsAny(mantissa, "123456789") {
				return true
			}
		}
	}
}

func clip(b []byte) string {
	if len(b) > 60 {
		b = append(b[:57:57], "..."...)
	}
	return strconv.QuoteToGraphic(string(b))
}
