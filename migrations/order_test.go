package migrations

import (
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// landed are the migrations that were there when the rule below was made. No other may come below the last of them.
var landed = []string{
	"00001_ground.sql", "00002_ingest.sql", "00003_sources.sql", "00004_decide.sql", "00005_github.sql", "00006_exchange.sql", "00008_console.sql",
}

// misplaced holds every new migration against all that landed before it. A database that has applied a higher number refuses a
// lower one that comes later, or, before goose 3, passed over it without a word.
func misplaced(before, arrived []string) (wrong []string) {
	for _, name := range arrived {
		if highest := slices.Max(before); name[:5] <= highest[:5] {
			wrong = append(wrong, fmt.Sprintf("%s lands after %s", name, highest))
		}
		before = append(before[:len(before):len(before)], name)
	}
	return wrong
}

// H9: the number of a migration says when it landed, not when it was begun.
func TestH9_AMigrationLandsAboveAllBeforeIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says    string
		arrived string
		wrong   int
	}{
		{"nothing new", "", 0},
		{"two in their order", "00009_a.sql 00010_b.sql", 0},
		{"a number that was left free", "00007_a.sql", 1},
		{"17 and 18 after 22", "00022_a.sql 00017_b.sql 00018_c.sql 00023_d.sql", 2},
		{"one number twice", "00009_a.sql 00009_b.sql", 1},
	} {
		if got := misplaced(landed, strings.Fields(tt.arrived)); len(got) != tt.wrong {
			t.Errorf("%s: %v", tt.says, got)
		}
	}

	files, err := fs.Glob(FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range landed {
		if !slices.Contains(files, name) {
			t.Errorf("%s landed, and is gone: databases have applied it", name)
		}
	}
	arrived := slices.DeleteFunc(history(t), func(name string) bool { return !slices.Contains(files, name) || slices.Contains(landed, name) })
	for _, name := range files {
		if !slices.Contains(landed, name) && !slices.Contains(arrived, name) {
			arrived = append(arrived, name) // not committed, so it comes last
		}
	}
	for _, w := range misplaced(landed, arrived) {
		t.Errorf("%s: give it the next number", w)
	}
}

// history gives the files in the order in which they came to this branch; nil where there is no history to ask.
func history(t *testing.T) (files []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "log", "--first-parent", "-m", "--reverse", "--no-renames", "--diff-filter=A", "--name-only",
		"--relative", "--format=", "--", "*.sql").Output()
	if err != nil {
		t.Logf("the order in which migrations landed is not known (%v): those that came after the rule are taken in the order of their numbers", err)
	}
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(files, name) {
			files = append(files, name)
		}
	}
	return files
}
