package transitions

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// reader walks a YAML (or JSON) document and keeps the lines. It takes the plain part of YAML only: mappings, lists,
// words and booleans; an anchor, an alias or a tag is an error, because a policy should read as it is written.
type reader struct{ problems []problem }

type problem struct {
	line int
	text string
}

// node is a value and its line. The zero node is an absent one: every read of it gives the zero value without complaint.
type node struct {
	ast  ast.Node
	line int
}

type entry struct{ key, value node }

// mapping is a mapping's values by key.
type mapping map[string]node

func (r *reader) sorted() []string {
	slices.SortStableFunc(r.problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var out []string
	for _, p := range r.problems {
		out = append(out, fmt.Sprintf("line %d: %s", p.line, p.text))
	}
	return slices.Compact(out)
}

// document gives the top mapping of the only document.
func (r *reader) document(data []byte) (mapping, bool) {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		line, text := 1, err.Error()
		var at yaml.Error
		if errors.As(err, &at) {
			text = at.GetMessage()
			if t := at.GetToken(); t != nil && t.Position != nil {
				line = t.Position.Line
			}
		}
		r.problem(line, "%s", text)
		return nil, false
	}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	if len(bodies) != 1 {
		r.problem(1, "%d documents: want one", len(bodies))
		return nil, false
	}
	return r.fields(place(bodies[0])), true
}

func place(n ast.Node) node {
	if n == nil {
		return node{}
	}
	line := 1
	if t := n.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	return node{ast: n, line: line}
}

// entries gives the keys and values of a mapping in the order of the file.
func (r *reader) entries(n node) []entry {
	var values []*ast.MappingValueNode
	switch m := n.ast.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		r.problem(n.line, "%s where a mapping is wanted", kind(n.ast))
		return nil
	}
	var out []entry
	for _, v := range values {
		out = append(out, entry{place(v.Key), place(v.Value)})
	}
	return out
}

// fields gives the values of a mapping by key; a key given twice is a problem.
func (r *reader) fields(n node) mapping {
	m := mapping{}
	for _, e := range r.entries(n) {
		key := r.text(e.key)
		if _, twice := m[key]; twice {
			r.problem(e.key.line, "%q is given twice", key)
		}
		m[key] = e.value
	}
	return m
}

// only finds fields that are not among the known ones.
func (r *reader) only(m mapping, known ...string) {
	for key, n := range m {
		if !slices.Contains(known, key) {
			r.problem(n.line, "%q is not a field here: want one of %s", key, strings.Join(known, ", "))
		}
	}
}

func (r *reader) list(n node) []node {
	switch s := n.ast.(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		var out []node
		for _, v := range s.Values {
			out = append(out, place(v))
		}
		return out
	default:
		r.problem(n.line, "%s where a list is wanted", kind(n.ast))
		return nil
	}
}

func (r *reader) text(n node) string {
	switch s := n.ast.(type) {
	case nil:
		return ""
	case *ast.StringNode:
		return s.Value
	case *ast.LiteralNode:
		return s.Value.Value
	default:
		r.problem(n.line, "%s where a word is wanted: put it in quotes if it is one", kind(n.ast))
		return ""
	}
}

func (r *reader) boolean(n node) bool {
	switch b := n.ast.(type) {
	case nil:
		return false
	case *ast.BoolNode:
		return b.Value
	default:
		r.problem(n.line, "%s where true or false is wanted", kind(n.ast))
		return false
	}
}

func kind(n ast.Node) string { return strings.ToLower(n.Type().String()) }
