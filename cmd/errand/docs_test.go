package main

import (
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Every setting that the program reads is in docs/configuration.md, and nothing else is.
func TestDocsHoldEverySetting(t *testing.T) {
	t.Parallel()
	var c cli
	parser, err := kong.New(&c, kong.Name("errand"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	var walk func(*kong.Node)
	walk = func(n *kong.Node) {
		for _, f := range n.Flags {
			for _, env := range f.Envs {
				read[env] = true
				if !strings.Contains(string(doc), "`"+env+"`") {
					t.Errorf("%s (%s) is not in docs/configuration.md", env, f.Summary())
				}
			}
		}
		for _, child := range n.Children {
			walk(child)
		}
	}
	walk(parser.Model.Node)
	if len(read) < 15 {
		t.Errorf("found %d settings only", len(read))
	}
	for _, word := range strings.FieldsFunc(string(doc), func(r rune) bool { return r == '`' || r == ' ' || r == '\n' || r == '|' }) {
		if strings.HasPrefix(word, "ERRAND_") && !read[word] {
			t.Errorf("docs/configuration.md names %s, which nothing reads", word)
		}
	}
}
