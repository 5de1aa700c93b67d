package githubsim

import (
	"fmt"
	"strings"
	"unicode"
)

// values are the contexts of an expression: dotted lower-case paths ("inputs.run", "github.token") to their text.
type values map[string]string

// expand replaces each ${{ ... }} in text. What it does not know is an error and never empty text: a simulation that
// guesses would prove nothing.
func (v values) expand(text string) (string, error) {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "${{")
		out.WriteString(before)
		if !ok {
			return out.String(), nil
		}
		expr, after, ok := strings.Cut(rest, "}}")
		if !ok {
			return "", fmt.Errorf("expression without its end: ${{%s", rest)
		}
		value, err := v.eval(expr)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		text = after
	}
}

// eval knows paths, 'text', true, false, numbers, the status functions, !, ==, !=, && and ||, with parentheses.
func (v values) eval(expr string) (string, error) {
	p := &exprParser{rest: strings.TrimSpace(expr), values: v}
	value, err := p.or()
	if err == nil && p.rest != "" {
		err = fmt.Errorf("unexpected %q", p.rest)
	}
	if err != nil {
		return "", fmt.Errorf("githubsim cannot evaluate ${{ %s }}: %w", strings.TrimSpace(expr), err)
	}
	return value, nil
}

// truth is what Actions takes for true.
func truth(s string) bool { return s != "" && s != "false" && s != "0" }

func text(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

type exprParser struct {
	rest   string
	values values
}

func (p *exprParser) eat(symbol string) bool {
	after, ok := strings.CutPrefix(p.rest, symbol)
	if ok {
		p.rest = strings.TrimSpace(after)
	}
	return ok
}

func (p *exprParser) or() (string, error) {
	left, err := p.and()
	for err == nil && p.eat("||") {
		var right string
		if right, err = p.and(); !truth(left) {
			left = right
		}
	}
	return left, err
}

func (p *exprParser) and() (string, error) {
	left, err := p.equal()
	for err == nil && p.eat("&&") {
		var right string
		if right, err = p.equal(); truth(left) {
			left = right
		}
	}
	return left, err
}

func (p *exprParser) equal() (string, error) {
	left, err := p.unary()
	for err == nil {
		var want bool
		switch {
		case p.eat("=="):
			want = true
		case p.eat("!="):
		default:
			return left, nil
		}
		var right string
		right, err = p.unary()
		left = text(strings.EqualFold(left, right) == want)
	}
	return left, err
}

func (p *exprParser) unary() (string, error) {
	if p.eat("!") {
		value, err := p.unary()
		return text(!truth(value)), err
	}
	if p.eat("(") {
		value, err := p.or()
		if err == nil && !p.eat(")") {
			err = fmt.Errorf("missing )")
		}
		return value, err
	}
	if strings.HasPrefix(p.rest, "'") {
		return p.quoted()
	}
	return p.name()
}

func (p *exprParser) quoted() (string, error) {
	var out strings.Builder
	for s := p.rest[1:]; ; {
		part, after, ok := strings.Cut(s, "'")
		if !ok {
			return "", fmt.Errorf("text without its end")
		}
		out.WriteString(part)
		if !strings.HasPrefix(after, "'") {
			p.rest = strings.TrimSpace(after)
			return out.String(), nil
		}
		out.WriteByte('\'') // two are one
		s = after[1:]
	}
}

// contexts whose unknown members are empty text, as on GitHub; github and runner must be known to githubsim.
var openContexts = []string{"inputs.", "secrets.", "vars.", "env.", "steps.", "needs.", "github.event.inputs."}

func (p *exprParser) name() (string, error) {
	end := strings.IndexFunc(p.rest, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '-' && r != '_'
	})
	if end < 0 {
		end = len(p.rest)
	}
	word := p.rest[:end]
	p.rest = strings.TrimSpace(p.rest[end:])
	key := strings.ToLower(word)
	if p.eat("()") {
		if value, ok := p.values[key+"()"]; ok {
			return value, nil
		}
		return "", fmt.Errorf("unknown function %s()", word)
	}
	if value, ok := p.values[key]; ok {
		return value, nil
	}
	switch {
	case word == "":
		return "", fmt.Errorf("unexpected %q", p.rest)
	case key == "true" || key == "false" || strings.Trim(word, "0123456789.-") == "":
		return key, nil
	case key == "null":
		return "", nil
	}
	for _, c := range openContexts {
		if strings.HasPrefix(key, c) {
			return "", nil
		}
	}
	return "", fmt.Errorf("unknown name %s", word)
}
