package errand_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errand-dev/errand"
)

func TestIDsAreUniqueOrderedByTimeAndReadBack(t *testing.T) {
	t.Parallel()
	t0 := time.Date(2026, 9, 14, 9, 21, 44, 0, time.UTC)
	seen := map[errand.ID]bool{}
	last := errand.ID("")
	for i := range 2000 {
		id := errand.NewID(t0.Add(time.Duration(i) * time.Millisecond))
		if seen[id] || id <= last {
			t.Fatalf("id %d %s: seen %v, after %s", i, id, seen[id], last)
		}
		seen[id], last = true, id
		if back, err := errand.ParseID(string(id)); err != nil || back != id || id[14] != '7' {
			t.Fatalf("%s reads back as %s, %v", id, back, err)
		}
	}
	for _, bad := range []string{"", "x", strings.ToUpper(string(last)), string(last) + "\n", "'; drop", string(last)[:35]} {
		if _, err := errand.ParseID(bad); errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("ParseID(%q) = %v, want invalid", bad, err)
		}
	}
}

func TestMoneyIsRoundedHalfEvenAndOnlyWhenShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pico     errand.Picodollars
		decimals int
		want     string
	}{
		{0, 4, "0.0000"},
		{12_300_000_000, 4, "0.0123"},
		{50_000_000, 4, "0.0000"},  // half, to even
		{150_000_000, 4, "0.0002"}, // half, to even
		{150_000_001, 4, "0.0002"},
		{50_000_001, 4, "0.0001"},
		{1_500_000_000_000, 0, "2"},
		{2_500_000_000_000, 0, "2"},
		{-12_300_000_000, 4, "-0.0123"},
		{-1, 4, "0.0000"}, // no negative zero
		{1, 12, "0.000000000001"},
		{math.MaxInt64, 2, "9223372.04"},
	} {
		if got := c.pico.USD(c.decimals); got != c.want {
			t.Errorf("%d at %d decimals = %s, want %s", c.pico, c.decimals, got, c.want)
		}
	}
}

func TestMoneyNeverOverflowsQuietly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		sum, err := errand.Picodollars(a).Add(errand.Picodollars(b))
		exact := float64(a) + float64(b)
		if err == nil && int64(sum) != a+b {
			t.Fatalf("%d + %d = %d", a, b, sum)
		}
		if err != nil && math.Abs(exact) < math.MaxInt64/2 {
			t.Fatalf("%d + %d refused", a, b)
		}
		p, n := rapid.Int64Range(0, math.MaxInt64).Draw(t, "p"), rapid.Int64Range(0, math.MaxInt64).Draw(t, "n")
		product, err := errand.Picodollars(p).Times(n)
		if err == nil && n != 0 && (int64(product)/n != p || product < 0) {
			t.Fatalf("%d x %d = %d", p, n, product)
		}
	})
	if _, err := errand.Picodollars(1).Times(-1); !errors.Is(err, errand.ErrOverflow) {
		t.Error("a negative count of tokens was priced")
	}
}

func TestACostThatIsNotKnownIsNotZero(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cost       errand.Cost
		words, usd string
	}{
		{errand.Cost{Known: 12_300_000_000}, "$0.0123", `{"usd":"0.0123","unpriced":0}`},
		{errand.Cost{Known: 12_300_000_000, Unpriced: 1}, "at least $0.0123, 1 request unpriced", `{"usd":"0.0123","unpriced":1}`},
		{errand.Cost{Unpriced: 2}, "unknown (2 requests unpriced)", `{"usd":null,"unpriced":2}`},
	} {
		b, err := json.Marshal(c.cost)
		if err != nil || string(b) != c.usd || c.cost.String() != c.words {
			t.Errorf("%+v: %s, %s, %v", c.cost, c.cost, b, err)
		}
	}
}

func TestAVerdictThatNobodyGaveIsUnknown(t *testing.T) {
	t.Parallel()
	var v errand.Verdict
	if v != errand.Unknown || v.String() != "unknown" {
		t.Errorf("the zero verdict is %s", v)
	}
	for _, want := range []errand.Verdict{errand.Pass, errand.Fail, errand.Unknown} {
		b, _ := json.Marshal(want)
		var got errand.Verdict
		if err := json.Unmarshal(b, &got); err != nil || got != want {
			t.Errorf("%s came back as %s, %v", want, got, err)
		}
	}
	if err := json.Unmarshal([]byte(`"ok"`), &v); err == nil {
		t.Error(`"ok" was taken for a verdict`)
	}
}

func TestAnErrorWithoutACodeIsInternal(t *testing.T) {
	t.Parallel()
	if c := errand.CodeOf(errors.New("boom")); c != errand.CodeInternal {
		t.Errorf("code %s", c)
	}
	wrapped := fmt.Errorf("loading: %w", errand.NotFound("issue"))
	if c := errand.CodeOf(wrapped); c != errand.CodeNotFound || !errors.Is(wrapped, &errand.Error{Code: errand.CodeNotFound}) {
		t.Errorf("code %s", c)
	}
	if errand.CodeOf(nil) != "" {
		t.Error("no error has a code")
	}
}

// Every reason of an end is a sentence that says what to do; the list in the source is the list that is known.
func TestEveryReasonIsASentence(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("run.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(src)) {
		name, value, ok := strings.Cut(line, "Reason = \"")
		if !ok || !strings.HasPrefix(strings.TrimSpace(name), "Reason") {
			continue
		}
		r := errand.Reason(strings.TrimSuffix(strings.TrimSpace(value), `"`))
		if r == errand.ReasonNone {
			continue
		}
		n++
		if !r.Known() || !strings.HasSuffix(r.Sentence(), ".") {
			t.Errorf("%q: known %v, %q", r, r.Known(), r.Sentence())
		}
	}
	if n < 30 {
		t.Errorf("read %d reasons only", n)
	}
	if errand.Reason("made_up").Known() {
		t.Error("a made-up reason is known")
	}
}
