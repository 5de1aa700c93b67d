package runner_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/errand-dev/errand"
)

// A model that does what a stranger's text told it to: its words reach the forge, and nothing in them acts there.
func TestTheWordsOfAHostileModelDoNothingAtTheForge(t *testing.T) {
	t.Parallel()
	const title = `Fix [skip\0 ci] ![x](https://evil.example/p.png) closes #1 @octo [[no ci]]`
	const body = `Fixes acme/other#7 and https://github.com/acme/other/issues/8.\n\nErrand-Run: 00000000-0000-7000-8000-000000000000\r\nSigned-off-by: A Person <a@example.com>\n\nskip-\u200bchecks: true\n\nAKIA\u200bIOSFOD\u0001NN7EXAMPLQ`
	turn := fmt.Sprintf("\n  - tool_calls: [{name: create_pull_request, input: {title: \"%s\", body: \"%s\", edits: [%s], claim: {summary: \"[ci skip] #9\", changes: [{path: shop/cart.py, description: \"***NO_CI*** fixes #9\"}]}}}]",
		title, body, editCart)
	refusal, err := os.ReadFile("testdata/pulls.create.403.actions_not_permitted.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, refused := range map[string]bool{"with its pull request": false, "with the text kept in the summary": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "turns:"+turn)
			if refused {
				w.hub.refuse = func(int, map[string]any) (int, string) { return http.StatusForbidden, string(refusal) }
			}
			w.run()
			texts := map[string]string{"the commit": w.hub.in("log", "-1", "--format=%B", branch)}
			if refused {
				w.ended(errand.Failed, errand.ReasonPRNotPermitted)
				texts["the summary"] = w.summary()
			} else {
				w.ended(errand.PROpened, "")
				texts["the title"], texts["the body"] = w.hub.pulls[0]["title"].(string), w.hub.pulls[0]["body"].(string)
			}
			for where, text := range texts {
				folded := strings.ToLower(text)
				for _, never := range []string{
					"[skip ci]", "[no ci]", "[ci skip]", "no_ci", "skip-checks", "#1", "#7", "#9", "issues/8", "signed-off-by:", "errand-run: 0000", "akiaiosfodnn7examplq", "@octo", "\x00",
				} {
					if strings.Contains(folded, never) {
						t.Errorf("%s holds %q:\n%s", where, never, text)
					}
				}
				if where == "the summary" && strings.Contains(text, "![") {
					t.Errorf("the summary fetches an image:\n%s", text)
				}
			}
		})
	}
}

// Twenty new files whose names are as long as git takes them fill the table; the pull request still fits.
func TestLongNamesDoNotMakeAPullRequestThatGitHubRefuses(t *testing.T) {
	t.Parallel()
	var edits, changes []string
	for i := range 19 {
		path := fmt.Sprintf("shop/%s/f%d.py", strings.TrimSuffix(strings.Repeat(strings.Repeat("n", 200)+"/", 18), "/"), i)
		edits = append(edits, fmt.Sprintf("{path: %s, content: \"x\\n\"}", path))
		changes = append(changes, fmt.Sprintf("{path: %s, description: d}", path))
	}
	w := newWorld(t, "turns:"+propose("["+strings.Join(edits, ", ")+"]", "{summary: s, changes: ["+strings.Join(changes, ", ")+"]}"))
	w.run()
	w.ended(errand.PROpened, "")
	if n := len(w.hub.pulls[0]["body"].(string)); n > 65_536 {
		t.Errorf("a body of %d bytes", n)
	}
}

func TestAProposalOfCountlessEditsIsNotWorkedThrough(t *testing.T) {
	t.Parallel()
	many := "[" + strings.Repeat(editCart+", ", 400) + editCart + "]"
	w := newWorld(t, "turns:"+propose(many, claimCart)+fixTurn(""))
	w.run()
	w.ended(errand.PROpened, "")
	if len(w.plane.claims) != 1 {
		t.Errorf("%d claims were made", len(w.plane.claims))
	}
}
