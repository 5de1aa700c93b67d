//go:build !race

// Under the race detector sync.Pool drops values at random, so that allocations cannot be counted.

package runtoken_test

import "testing"

func TestACheckAllocatesNothing(t *testing.T) {
	k := keys(t, "a")
	tok := token(t, k)
	n := testing.AllocsPerRun(1000, func() {
		if _, err := k.VerifyToken(tok, start); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per check, want none", n)
	}
}
