package git

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	hunks, err := r.Hunks(ctx, a, b, 0)
	if err != nil {
		return nil, err
	}
	added := map[string][]Line{}
	for path, list := range hunks {
		for _, h := range list {
			for _, l := range h.Lines {
				if l.Op == '+' {
					added[path] = append(added[path], Line{Number: l.New, Text: l.Text})
				}
			}
		}
	}
	return added, nil
}
