package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/errand-dev/errand/claims"
	"github.com/errand-dev/errand/git"
	"github.com/errand-dev/errand/wire"
)

// edit is one change that the agent asks for. Exactly one of three: Content (the whole new file), Find with Replace (a
// text that is in the file exactly once), Delete.
type edit struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
	Find    *string `json:"find"`
	Replace *string `json:"replace"`
	Delete  bool    `json:"delete"`
}

func (e edit) check() error {
	kinds := 0
	for _, is := range []bool{e.Content != nil, e.Find != nil, e.Delete} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return refuse("give exactly one of content, find (with replace) and delete")
	case (e.Find != nil) != (e.Replace != nil):
		return refuse("find and replace come together")
	case e.Find != nil && *e.Find == "":
		return refuse("find is empty")
	case strings.HasPrefix(e.Path, claims.Dir):
		return refuse("refused: %s is not part of a fix", claims.Dir)
	}
	return checkPath(e.Path)
}

// maxEdits bounds the work that one proposal can cause; every line of the largest change could be an edit of its own.
const maxEdits = wire.RunLines

// draft is one file as the edits so far leave it.
type draft struct {
	was     []byte
	existed bool
	now     []byte
	deleted bool
}

// apply makes the edits, in memory, on the contents of the base commit. Several edits of one file follow each other. Every
// edit that cannot be made is reported, in one error.
func (t *tree) apply(ctx context.Context, edits []edit) ([]git.FileChange, error) {
	if len(edits) == 0 {
		return nil, refuse("there are no edits: a pull request without a change is none")
	}
	if len(edits) > maxEdits {
		return nil, refuse("%d edits are too many for one change: at most %d", len(edits), maxEdits)
	}
	drafts := map[string]*draft{}
	var order []string
	var wrong []string
	for i, e := range edits {
		err := e.check()
		if err == nil {
			err = t.edit(ctx, drafts, &order, e)
		}
		var no *refusal
		switch {
		case errors.As(err, &no):
			wrong = append(wrong, fmt.Sprintf("edits[%d] (%s): %s", i, plain(cut(e.Path, 200)), no.text))
		case err != nil:
			return nil, err
		}
	}
	var changes []git.FileChange
	for _, p := range order {
		d := drafts[p]
		if d.existed && !d.deleted && bytes.Equal(d.was, d.now) {
			wrong = append(wrong, p+": the edits leave the file as it is")
		}
		changes = append(changes, git.FileChange{Path: p, Content: d.now, Delete: d.deleted})
	}
	if wrong != nil {
		return nil, refuse("nothing was changed. %s", strings.Join(wrong, "\n"))
	}
	return changes, nil
}

func (t *tree) edit(ctx context.Context, drafts map[string]*draft, order *[]string, e edit) error {
	d := drafts[e.Path]
	if d == nil {
		var err error
		if d, err = t.load(ctx, e.Path); err != nil {
			return err
		}
		if !d.existed {
			if e.Content == nil {
				return refuse("there is no such file in the repository")
			}
			if err := t.newName(e.Path, *order); err != nil {
				return err
			}
		}
		drafts[e.Path] = d
		*order = append(*order, e.Path)
	}
	switch {
	case d.deleted:
		return refuse("the file was deleted by an edit before")
	case e.Delete && !d.existed:
		return refuse("the file is new: leave its edits out instead")
	case e.Delete:
		d.deleted, d.now = true, nil
		return nil
	case d.existed && binary(d.was):
		return refuse("refused: the file is binary")
	}
	next, err := changed(d.now, e)
	switch {
	case err != nil:
		return err
	case binary(next):
		return refuse("refused: the new content is binary")
	case len(next) > maxFile:
		return refuse("refused: the file would be larger than %d bytes", maxFile)
	}
	d.now = next
	return nil
}

// load reads a file of the base commit, or says that the name is free.
func (t *tree) load(ctx context.Context, p string) (*draft, error) {
	if _, ok := t.entries[p]; ok {
		b, _, err := t.read(ctx, p)
		return &draft{was: b, existed: true, now: b}, err
	}
	// A new file may lie where the work tree has something that is not tracked; only links and special files on the way
	// are refused, as for reading.
	if _, _, err := t.walk(p, false); err != nil {
		return nil, err
	}
	return &draft{}, nil
}

// newName refuses a new path that some file system would take for one that is there.
func (t *tree) newName(p string, added []string) error {
	if strings.HasPrefix(p, "-") || strings.Contains(p, "/-") {
		return refuse("refused: a new name may not begin with a dash")
	}
	segments := strings.Split(p, "/")
	for i := range segments {
		at := strings.Join(segments[:i+1], "/")
		if _, isFile := t.entries[at]; isFile && i < len(segments)-1 {
			return refuse("refused: %s is a file", at)
		}
	}
	if t.folders[p] != nil {
		return refuse("refused: %s is a folder", p)
	}
	folded := fold(p)
	other := func(q string) error {
		a, b := strings.Split(q, "/"), segments
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				if strings.EqualFold(a[i], b[i]) {
					return refuse("refused: the name differs from %s by case only", q)
				}
				break
			}
		}
		return nil
	}
	for q := range t.entries {
		if q != p && commonFold(folded, fold(q)) {
			if err := other(q); err != nil {
				return err
			}
		}
	}
	for _, q := range added {
		if err := other(q); err != nil && q != p {
			return err
		}
	}
	return nil
}

// commonFold tells whether two folded paths begin with the same segment: only then can they collide.
func commonFold(a, b string) bool {
	x, _, _ := strings.Cut(a, "/")
	y, _, _ := strings.Cut(b, "/")
	return x == y
}

func fold(s string) string { return strings.Map(unicode.ToLower, s) }

// changed applies one edit to content. Line endings and a byte order mark of the file are kept: the agent sees and writes
// plain lines, and what it did not touch keeps every byte.
func changed(was []byte, e edit) ([]byte, error) {
	crlf := endsLinesCRLF(was)
	if e.Content != nil {
		next := []byte(*e.Content)
		if crlf {
			next = toCRLF(next)
		}
		if mark := []byte("\ufeff"); bytes.HasPrefix(was, mark) && !bytes.HasPrefix(next, mark) {
			next = slices.Concat(mark, next)
		}
		return next, nil
	}
	find, replace := []byte(*e.Find), []byte(*e.Replace)
	if crlf {
		find, replace = toCRLF(find), toCRLF(replace)
	}
	switch n := bytes.Count(was, find); n {
	case 1:
	case 0:
		return nil, refuse("the text of find is not in the file: copy it exactly, without line numbers")
	default:
		return nil, refuse("the text of find is in the file %d times: add lines around it until it is there once", n)
	}
	if i := bytes.Index(was, find); bytes.Contains(was[i+1:], find) {
		return nil, refuse("the text of find overlaps with itself in the file: add lines around it until it is there once")
	}
	return bytes.Replace(was, find, replace, 1), nil
}

// endsLinesCRLF tells whether every line of the file ends so. A file of mixed endings is taken byte for byte.
func endsLinesCRLF(b []byte) bool {
	n := bytes.Count(b, []byte("\n"))
	return n > 0 && n == bytes.Count(b, []byte("\r\n"))
}

func toCRLF(b []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
}
