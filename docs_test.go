package errand_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mdLink   = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	fileName = regexp.MustCompile("`([a-z_/]+/[a-z0-9_.-]+\\.(?:go|sql|yml|yaml|md))`")
)

// A document that points nowhere, or names a file that is gone, is worse than none.
func TestDocsPointAtWhatIsThere(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Skip("not a git checkout, so what belongs to it cannot be told")
	}
	n := 0
	for _, doc := range strings.Fields(string(out)) {
		if strings.Contains(doc, "/testdata/") || strings.Contains(doc, "/_sample/") {
			continue
		}
		b, err := os.ReadFile(doc)
		if err != nil {
			continue // removed and not yet committed
		}
		n++
		for _, m := range mdLink.FindAllStringSubmatch(string(b), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			}
		}
		for _, m := range fileName.FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(m[1]); err != nil {
				if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
					t.Errorf("%s names %s, which is not there", doc, m[1])
				}
			}
		}
	}
	if n < 6 {
		t.Errorf("read %d documents only", n)
	}
}
