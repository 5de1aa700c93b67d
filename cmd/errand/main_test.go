package main

import (
	"errors"
	"testing"

	"github.com/errand-dev/errand"
)

func TestAnErrorIsToldOnceAndWhole(t *testing.T) {
	t.Parallel()
	refused := errors.New("github: GET /app/installations/5: refused (404): Not Found")
	for _, c := range []struct {
		says string
		err  error
		want string
	}{
		{"a plain error", errors.New("no such host"), "no such host"},
		{"a setting", errand.Invalid("ERRAND_DRAIN", "is wrong"), "ERRAND_DRAIN: is wrong"},
		{"what to do comes last", &errand.Error{Code: errand.CodeInvalid, Field: "x", Message: "is not set", Hint: "set it"}, "x: is not set: set it"},
		{"the message ends as its cause does", errand.Errorf(errand.CodeUnavailable, refused, "the installation 5 could not be looked up: Not Found"), "the installation 5 could not be looked up: " + refused.Error()},
		{"the message says nothing of its cause", errand.Errorf(errand.CodeUnavailable, refused, "no answer"), "no answer: " + refused.Error()},
		{"the message holds its cause", errand.Errorf(errand.CodeConflict, errors.New("taken"), "the name is taken: choose another"), "the name is taken: choose another"},
		{"a cause with a code of its own", errand.Errorf(errand.CodeUnavailable, errand.Conflict("was first"), "not now"), "not now: was first"},
	} {
		if got := sentence(c.err); got != c.want {
			t.Errorf("%s: %q, want %q", c.says, got, c.want)
		}
	}
}
