package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/errand-dev/errand"
)

// HunkLine is one line of a hunk, without its line break; a carriage return before it stays.
type HunkLine struct {
	Op       byte // ' ' both sides have it, '-' the older alone, '+' the newer alone
	Old, New int  // 1-based line numbers; 0 on the side that has not the line
	Text     string
}

// Hunk is one run of changed lines and the unchanged ones round it. The starts are as git prints them: of a side that has
// no line in the hunk, the line before it.
type Hunk struct {
	OldStart, NewStart int
	Lines              []HunkLine
}

// maxAround bounds the unchanged lines that Hunks gives on each side of a change.
const maxAround = 1 << 20

// Hunks gives, by path, what differs between the lines of a and b (commits or trees), with around unchanged lines on
// each side. A deleted file is under the path it had. A binary file, an empty one and a change of mode alone have no
// hunks; a submodule has one line a side ("Subproject commit ...").
func (r *Repo) Hunks(ctx context.Context, a, b string, around int) (map[string][]Hunk, error) {
	if err := errors.Join(checkHash("a", a), checkHash("b", b)); err != nil {
		return nil, err
	}
	if around < 0 || around > maxAround {
		return nil, errand.Invalid("around", "want 0 to %d lines, have %d", maxAround, around)
	}
	out, err := r.out(ctx, fromTrees(a, b, "-p", "--unified="+strconv.Itoa(around), "--src-prefix=a/", "--dst-prefix=b/")...)
	if err != nil {
		return nil, err
	}
	return parseHunks(out)
}

// parseHunks reads a patch. Lines of a hunk are told from headers by counting them, so that no content can pass for a
// header; names are quoted by git (core.quotePath), so that no name can break a line.
func parseHunks(patch []byte) (map[string][]Hunk, error) {
	all := map[string][]Hunk{}
	var was, path string // of the older side, and of the file as a whole
	var at *counter
	for raw := range bytes.Lines(patch) {
		line := strings.TrimSuffix(string(raw), "\n")
		if at != nil && at.left() {
			l, ok, err := at.line(line)
			if err != nil {
				return nil, fmt.Errorf("git diff-tree: %w in a hunk of %q", err, path)
			}
			if ok {
				h := &all[path][len(all[path])-1]
				h.Lines = append(h.Lines, l)
			}
			continue
		}
		var err error
		if name, ok := strings.CutPrefix(line, "--- "); ok {
			was, err = headerPath(name, "a/")
		} else if name, ok := strings.CutPrefix(line, "+++ "); ok {
			if path, err = headerPath(name, "b/"); path == "" {
				path = was
			}
		} else if strings.HasPrefix(line, "@@ ") {
			if path == "" {
				return nil, fmt.Errorf("git diff-tree: a hunk of no file: %q", line)
			}
			if at, err = hunkHeader(line); err == nil {
				all[path] = append(all[path], Hunk{OldStart: at.old, NewStart: at.new})
			}
		} else if strings.HasPrefix(line, "diff --git ") {
			was, path = "", ""
		}
		if err != nil {
			return nil, err
		}
	}
	if at != nil && at.left() {
		return nil, fmt.Errorf("git diff-tree: the patch ends inside a hunk of %q", path)
	}
	return all, nil
}

// counter is where a hunk is: the next line's number on each side, and how many are still to come.
type counter struct{ old, new, oldLeft, newLeft int }

func (c *counter) left() bool { return c.oldLeft > 0 || c.newLeft > 0 }

// line takes the next line of a hunk; ok is false for git's own remark that a last line has no line break.
func (c *counter) line(s string) (l HunkLine, ok bool, err error) {
	if s == "" {
		return HunkLine{}, false, errors.New("empty line")
	}
	l = HunkLine{Op: s[0], Text: s[1:]}
	switch l.Op {
	case '\\':
		return HunkLine{}, false, nil
	case ' ', '-', '+':
	default:
		return HunkLine{}, false, errors.New("unexpected line")
	}
	if l.Op != '+' {
		l.Old = c.old
		c.old++
		c.oldLeft--
	}
	if l.Op != '-' {
		l.New = c.new
		c.new++
		c.newLeft--
	}
	if c.oldLeft < 0 || c.newLeft < 0 {
		return HunkLine{}, false, errors.New("more lines than announced")
	}
	return l, true, nil
}

// hunkHeader reads "@@ -l,n +l,n @@"; a missing n is 1.
func hunkHeader(line string) (*counter, error) {
	f := strings.Fields(line)
	if len(f) < 4 || f[1][0] != '-' || f[2][0] != '+' {
		return nil, fmt.Errorf("git diff-tree: unexpected hunk header %q", line)
	}
	side := func(s string) (start, n int, err error) {
		a, b, two := strings.Cut(s, ",")
		start, err = strconv.Atoi(a)
		if n = 1; err == nil && two {
			n, err = strconv.Atoi(b)
		}
		if err == nil && (start < 0 || n < 0) {
			err = fmt.Errorf("git diff-tree: negative number in hunk header %q", line)
		}
		return start, n, err
	}
	var c counter
	var err1, err2 error
	c.old, c.oldLeft, err1 = side(f[1][1:])
	c.new, c.newLeft, err2 = side(f[2][1:])
	return &c, errors.Join(err1, err2)
}

// headerPath undoes what git does to a name after "--- " and "+++ ": C quoting of unusual names, a tab after names with
// blanks, and the side's prefix. "" is the side of a change where the file is not.
func headerPath(s, prefix string) (string, error) {
	if s == "/dev/null" {
		return "", nil
	}
	if quoted, ok := strings.CutPrefix(s, `"`); ok {
		raw, err := unquote(quoted)
		if err != nil {
			return "", err
		}
		s = raw
	} else {
		s = strings.TrimSuffix(s, "\t")
	}
	name, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return "", fmt.Errorf("git diff-tree: unexpected name %q", s)
	}
	return name, nil
}

func unquote(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), nil
		case c != '\\':
			b.WriteByte(c)
		case i+1 >= len(s):
			return "", fmt.Errorf("git diff-tree: unended name %q", s)
		default:
			i++
			if k := strings.IndexByte(`abtnvfr"\`, s[i]); k >= 0 {
				b.WriteByte("\a\b\t\n\v\f\r\"\\"[k])
				continue
			}
			if i+3 > len(s) {
				return "", fmt.Errorf("git diff-tree: unended name %q", s)
			}
			n, err := strconv.ParseUint(s[i:i+3], 8, 8)
			if err != nil {
				return "", fmt.Errorf("git diff-tree: unexpected escape in name %q", s)
			}
			b.WriteByte(byte(n))
			i += 2
		}
	}
	return "", errand.Errorf(errand.CodeInternal, nil, "git diff-tree: unended name %q", s)
}
