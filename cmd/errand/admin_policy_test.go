package main

import (
	"testing"

	"github.com/errand-dev/errand"
)

func TestDollarsAreReadExactly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want errand.Picodollars
		ok   bool
	}{
		{"25", 25_000_000_000_000, true},
		{"2.50", 2_500_000_000_000, true},
		{" $0.000000000001 ", 1, true},
		{"0", 0, true},
		{"9223372.036854775807", 9223372036854775807, true},
		{"9223372.036854775808", 0, false},
		{"", 0, false},
		{".5", 0, false},
		{"-1", 0, false},
		{"1e3", 0, false},
		{"1,5", 0, false},
		{"0.0000000000001", 0, false},
		{"5 USD", 0, false},
	} {
		got, err := dollars("--run-ceiling", tt.in)
		if got != tt.want || (err == nil) != tt.ok || err != nil && errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%q is %d, %v; want %d, %v", tt.in, got, err, tt.want, tt.ok)
		}
	}
}
