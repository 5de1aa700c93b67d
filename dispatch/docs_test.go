package dispatch

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/decisions.md names every gate, and none that is gone.
func TestEveryGateIsDocumented(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("../run.go")
	must(t, err)
	doc, err := os.ReadFile("../docs/decisions.md")
	must(t, err)
	gates := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\s+Gate\w+\s+Gate = "(\w+)"`).FindAllStringSubmatch(string(code), -1) {
		gates[m[1]] = true
		if !strings.Contains(string(doc), "| `"+m[1]+"` |") {
			t.Errorf("docs/decisions.md has no row for the gate %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(string(doc), -1) {
		if !gates[m[1]] {
			t.Errorf("docs/decisions.md has a row for %s, which is no gate", m[1])
		}
	}
	if len(gates) < 30 {
		t.Errorf("read %d gates only", len(gates))
	}
}
