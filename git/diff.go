package git

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/errand-dev/errand"
)

// Kind is what happened to a path.
type Kind string

// The kinds of change. Submodule (either side is one) goes before all others, then Add and Delete, then Type; a change of
// content and mode together is Edit.
const (
	Add       Kind = "add"
	Edit      Kind = "edit"
	Delete    Kind = "delete"
	ModeOnly  Kind = "mode"
	Type      Kind = "type" // a file became a symlink, or the reverse
	Submodule Kind = "submodule"
)

// Change is one path that differs between two trees. A rename is a delete and an add.
type Change struct {
	Path             string // exact bytes; may not be UTF-8
	OldMode, NewMode string // ModeAbsent where the path is not
	OldHash, NewHash string
	Kind             Kind
	Added, Removed   int  // lines; 0 for a binary file
	Binary           bool // git takes a side of it for binary (a NUL early in it)
}

// Line is one line of the newer side, without its line break.
type Line struct {
	Number int // 1-based
	Text   string
}

// fromTrees compares trees, never the work tree, and shows each path by itself. Attributes cannot hide a change (as
// "-diff" would): a bare repository has none.
func fromTrees(a, b string, more ...string) []string {
	args := []string{
		"diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative",
		"--full-index", "--diff-algorithm=myers", "--ignore-submodules=none",
	}
	return append(append(args, more...), a, b, "--")
}

// Diff lists what differs from a to b (commits or trees), in git's order of paths.
func (r *Repo) Diff(ctx context.Context, a, b string) ([]Change, error) {
	if err := errors.Join(checkHash("a", a), checkHash("b", b)); err != nil {
		return nil, err
	}
	out, err := r.out(ctx, fromTrees(a, b, "-z", "--raw", "--numstat")...)
	if err != nil {
		return nil, err
	}
	return parseRaw(out)
}

// parseRaw reads the output of diff-tree -z --raw --numstat: all raw records (":mode mode hash hash S", path), then a
// record "added TAB removed TAB path" each.
func parseRaw(out []byte) ([]Change, error) {
	var list []Change
	at := map[string]int{}
	var pending *Change
	for rec := range records(out) {
		switch {
		case pending != nil:
			pending.Path = rec
			at[rec] = len(list)
			list = append(list, *pending)
			pending = nil
		case strings.HasPrefix(rec, ":"):
			f := strings.Fields(rec[1:])
			if len(f) != 5 {
				return nil, fmt.Errorf("git diff-tree: unexpected record %q", rec)
			}
			pending = &Change{OldMode: f[0], NewMode: f[1], OldHash: f[2], NewHash: f[3]}
			pending.Kind = kindOf(*pending)
		default:
			if err := numbers(rec, list, at); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

func numbers(rec string, list []Change, at map[string]int) error {
	f := strings.SplitN(rec, "\t", 3)
	if len(f) != 3 {
		return fmt.Errorf("git diff-tree: unexpected record %q", rec)
	}
	i, ok := at[f[2]]
	if !ok {
		return fmt.Errorf("git diff-tree: numbers for %q, which did not change", f[2])
	}
	if f[0] == "-" {
		list[i].Binary = true
		return nil
	}
	added, err1 := strconv.Atoi(f[0])
	removed, err2 := strconv.Atoi(f[1])
	list[i].Added += added
	list[i].Removed += removed
	return errors.Join(err1, err2)
}

func kindOf(c Change) Kind {
	switch {
	case c.OldMode == ModeSubmodule || c.NewMode == ModeSubmodule:
		return Submodule
	case c.OldMode == ModeAbsent:
		return Add
	case c.NewMode == ModeAbsent:
		return Delete
	case (c.OldMode == ModeSymlink) != (c.NewMode == ModeSymlink):
		return Type
	case c.OldHash == c.NewHash:
		return ModeOnly
	default:
		return Edit
	}
}

// Patch gives the change from a to b as git would print it, binary files included, so that git apply takes it.
func (r *Repo) Patch(ctx context.Context, a, b string) (string, error) {
	if err := errors.Join(checkHash("a", a), checkHash("b", b)); err != nil {
		return "", err
	}
	out, err := r.out(ctx, fromTrees(a, b, "-p", "--binary")...)
	return string(out), err
}

// AddedLines gives, by path, the lines that b has and a has not. Binary files have none.
func (r *Repo) AddedLines(ctx context.Context, a, b string) (map[string][]Line, error) {
	if err := errors.Join(checkHash("a", a), checkHash("b", b)); err != nil {
		return nil, err
	}
	out, err := r.out(ctx, fromTrees(a, b, "-p", "--unified=0", "--src-prefix=a/", "--dst-prefix=b/")...)
	if err != nil {
		return nil, err
	}
	return parseAdded(out)
}

// parseAdded reads a patch. Lines of a hunk are told from headers by counting them, so that no content can pass for a
// header; names are quoted by git (core.quotePath), so that no name can break a line.
func parseAdded(patch []byte) (map[string][]Line, error) {
	added := map[string][]Line{}
	rd := bufio.NewReader(bytes.NewReader(patch))
	var path string
	var oldLeft, newLeft, number int
	for {
		line, err := rd.ReadString('\n')
		if line == "" && errors.Is(err, io.EOF) {
			return added, nil
		}
		line = strings.TrimSuffix(line, "\n")
		if oldLeft > 0 || newLeft > 0 {
			switch line[:min(1, len(line))] {
			case "+":
				added[path] = append(added[path], Line{Number: number, Text: line[1:]})
				number++
				newLeft--
			case "-":
				oldLeft--
			case "\\": // "\ No newline at end of file"
			default:
				return nil, fmt.Errorf("git diff-tree: unexpected line in a hunk of %q", path)
			}
			continue
		}
		if name, ok := strings.CutPrefix(line, "+++ "); ok {
			if path, err = headerPath(name); err != nil {
				return nil, err
			}
		} else if strings.HasPrefix(line, "@@ ") {
			if oldLeft, number, newLeft, err = hunk(line); err != nil {
				return nil, err
			}
		}
	}
}

// hunk reads "@@ -l,n +l,n @@"; a missing n is 1.
func hunk(line string) (oldLines, newStart, newLines int, err error) {
	f := strings.Fields(line)
	if len(f) < 4 || f[1][0] != '-' || f[2][0] != '+' {
		return 0, 0, 0, fmt.Errorf("git diff-tree: unexpected hunk header %q", line)
	}
	count := func(s string) (start, n int, err error) {
		a, b, two := strings.Cut(s, ",")
		n = 1
		if two {
			if n, err = strconv.Atoi(b); err != nil {
				return 0, 0, err
			}
		}
		start, err = strconv.Atoi(a)
		return start, n, err
	}
	_, oldLines, err1 := count(f[1][1:])
	newStart, newLines, err2 := count(f[2][1:])
	return oldLines, newStart, newLines, errors.Join(err1, err2)
}

// headerPath undoes what git does to a name after "+++ ": C quoting of unusual names, and a tab after names with blanks.
func headerPath(s string) (string, error) {
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
	name, ok := strings.CutPrefix(s, "b/")
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
