package git

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/errand-dev/errand"
)

// Modes of tree entries.
const (
	ModeFile       = "100644"
	ModeExecutable = "100755"
	ModeSymlink    = "120000"
	ModeSubmodule  = "160000"
	ModeAbsent     = "000000" // of the side of a change where the path is not
)

// Entry is one file of a tree. Path is the exact bytes of the name, which may not be UTF-8.
type Entry struct{ Path, Mode, Hash string }

// LsFiles lists every file of HEAD's tree, in git's order. Submodules are entries of their own mode, not entered.
func (r *Repo) LsFiles(ctx context.Context) ([]Entry, error) { return r.LsTree(ctx, r.head) }

// LsTree lists every file of a commit or tree.
func (r *Repo) LsTree(ctx context.Context, commit string) ([]Entry, error) {
	if err := checkHash("commit", commit); err != nil {
		return nil, err
	}
	out, err := r.out(ctx, "ls-tree", "-r", "-z", "--full-tree", commit)
	if err != nil {
		return nil, err
	}
	list := make([]Entry, 0, bytes.Count(out, []byte{0}))
	for rec := range records(out) {
		e, _, err := parseEntry(rec)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// ReadFile gives the content of one file of a commit. A path that is not there is NotFound; a folder or submodule is
// Invalid; a file over max bytes is TooLarge. A symlink's content is its target: it is never followed.
func (r *Repo) ReadFile(ctx context.Context, commit, path string, limit int64) ([]byte, Entry, error) {
	if err := checkHash("commit", commit); err != nil {
		return nil, Entry{}, err
	}
	if err := CheckPath(path); err != nil {
		return nil, Entry{}, err
	}
	out, err := r.out(ctx, "ls-tree", "-z", "-l", "--full-tree", commit, "--", path)
	if err != nil {
		return nil, Entry{}, err
	}
	for rec := range records(out) {
		e, size, err := parseEntry(rec)
		if err != nil {
			return nil, Entry{}, err
		}
		if e.Path != path {
			continue
		}
		if size < 0 {
			return nil, e, errand.Invalid("path", "%s is a folder or a submodule, not a file", path)
		}
		if size > limit {
			return nil, e, errand.Errorf(errand.CodeTooLarge, nil, "%s has %d bytes, more than %d", path, size, limit)
		}
		b, err := r.out(ctx, "cat-file", "blob", e.Hash)
		return b, e, err
	}
	return nil, Entry{}, errand.NotFound("file " + path)
}

// parseEntry reads "mode type hash\tpath" and, with -l, "mode type hash size\tpath". size is -1 when it is none.
func parseEntry(rec string) (Entry, int64, error) {
	meta, path, ok := strings.Cut(rec, "\t")
	f := strings.Fields(meta)
	if !ok || len(f) < 3 {
		return Entry{}, 0, fmt.Errorf("git ls-tree: unexpected record %q", rec)
	}
	size := int64(-1)
	if len(f) > 3 && f[3] != "-" {
		n, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil {
			return Entry{}, 0, fmt.Errorf("git ls-tree: unexpected size in %q", rec)
		}
		size = n
	}
	return Entry{Path: path, Mode: f[0], Hash: f[2]}, size, nil
}

// Grep names the files of HEAD's tree that contain query, at most limit of them; truncated says that there were more.
// See GrepAt.
func (r *Repo) Grep(ctx context.Context, query, under string, limit int) (files []string, truncated bool, err error) {
	return r.GrepAt(ctx, r.head, query, under, limit)
}

// GrepAt searches the tree of a commit for a fixed string of one line. Binary files are passed over. under is a file
// or folder ("" = everything), an exact name and never a pattern. No match is an empty list and no error.
func (r *Repo) GrepAt(ctx context.Context, commit, query, under string, limit int) (files []string, truncated bool, err error) {
	if err := checkHash("commit", commit); err != nil {
		return nil, false, err
	}
	if query == "" || strings.ContainsAny(query, "\n\r\x00") {
		return nil, false, errand.Invalid("query", "want one line of text to search for")
	}
	if limit < 1 {
		return nil, false, errand.Invalid("limit", "want at least 1")
	}
	under = strings.TrimSuffix(under, "/")
	if under == "." {
		under = ""
	}
	// The query follows -e and the path follows --, so that neither can become an option.
	args := []string{"grep", "-l", "-I", "-F", "-z", "--no-color", "--full-name", "--no-recurse-submodules", "-e", query, commit, "--"}
	if under != "" {
		if err := CheckPath(under); err != nil {
			return nil, false, err
		}
		args = append(args, under)
	}
	w := &names{prefix: commit + ":", limit: limit}
	res, err := r.run(ctx, call{args: args, names: w})
	if err != nil {
		return nil, false, err
	}
	if res.exit > 1 { // 1 is "none"
		return nil, false, fmt.Errorf("git grep: exit %d: %s", res.exit, res.stderr)
	}
	return w.list, w.truncated, nil
}

// names takes NUL-ended names until it has limit of them, and stops git at the next.
type names struct {
	prefix    string
	limit     int
	rest      []byte
	list      []string
	truncated bool
}

func (n *names) Write(p []byte) (int, error) {
	n.rest = append(n.rest, p...)
	for {
		name, rest, ok := bytes.Cut(n.rest, []byte{0})
		if !ok {
			return len(p), nil
		}
		if len(n.list) == n.limit {
			n.truncated = true
			return 0, errStop
		}
		n.list = append(n.list, strings.TrimPrefix(string(name), n.prefix))
		n.rest = rest
	}
}

// records splits NUL-ended output.
func records(out []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for len(out) > 0 {
			rec, rest, _ := bytes.Cut(out, []byte{0})
			if !yield(string(rec)) {
				return
			}
			out = rest
		}
	}
}
