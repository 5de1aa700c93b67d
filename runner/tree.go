package runner

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's object names, not a safeguard
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/git"
	"github.com/errand-dev/errand/scrub"
)

// maxFile is the largest file that is read or written, in bytes.
const maxFile = 1 << 20

// tree is the base commit as the agent may see it: its regular files, and nothing else. The work tree serves as a copy of
// it that is quick to read; bytes that differ from the commit (a build's output, a filter's work, a checkout of another
// commit) are not shown, and the commit's own are read through git instead. So what the agent reads is what its edits
// are applied to, and a file that some earlier step left in the work tree is never read.
//
// A path must pass three fences, in this order: its letters (checkPath), the work tree (walk: no symlink component, no
// special file, not the git folder under any name), the base commit (a regular file of it).
type tree struct {
	repo    *git.Repo
	root    *os.Root
	gitDir  fs.FileInfo // nil when the checkout has none of its own (a linked work tree)
	base    string
	entries map[string]git.Entry
	folders map[string][]string // folder -> sorted names of its entries; sub-folders end with a slash
}

// refusal is why a path is not read. Its text is for the model.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// openTree lists the base commit. Close releases the root.
func openTree(ctx context.Context, repo *git.Repo, workspace, base string) (*tree, error) {
	list, err := repo.LsTree(ctx, base)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, errand.Errorf(errand.CodeInvalid, err, "the workspace cannot be opened")
	}
	t := &tree{repo: repo, root: root, base: base, entries: make(map[string]git.Entry, len(list)), folders: map[string][]string{"": nil}}
	t.gitDir, _ = root.Lstat(".git")
	for _, e := range list {
		t.entries[e.Path] = e
		name := e.Path
		for {
			dir, leaf := path.Split(name)
			dir = strings.TrimSuffix(dir, "/")
			if name != e.Path {
				leaf += "/"
			}
			_, known := t.folders[dir]
			t.folders[dir] = append(t.folders[dir], leaf)
			if dir == "" || (known && name != e.Path) {
				break
			}
			name = dir
		}
	}
	for dir, names := range t.folders {
		slices.Sort(names)
		t.folders[dir] = slices.Compact(names)
	}
	return t, nil
}

func (t *tree) Close() error { return t.root.Close() }

// checkPath is the fence of letters.
func checkPath(p string) error {
	if err := git.CheckPath(p); err != nil {
		var e *errand.Error
		errors.As(err, &e)
		return refuse("refused: %s", e.Message)
	}
	if strings.ContainsRune(p, '\\') {
		return refuse("refused: the path holds a backslash; separate folders with /")
	}
	if strings.ContainsFunc(p, unicode.IsControl) {
		return refuse("refused: the path holds a control character")
	}
	// Some file systems pass over characters that cannot be seen, so that ".g<zero width>it" is .git to them.
	if _, hidden := scrub.Hidden(p); hidden > 0 {
		return refuse("refused: the path holds a hidden character")
	}
	return nil
}

// walk is the fence of the work tree. found tells whether the path is there; what is not there can still be read from the
// commit (a sparse checkout).
func (t *tree) walk(p string, folder bool) (info fs.FileInfo, found bool, err error) {
	parts := strings.Split(p, "/")
	for i := range parts {
		at := strings.Join(parts[:i+1], "/")
		info, err = t.root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, false, nil
		}
		last := i == len(parts)-1
		switch {
		case err != nil:
			return nil, false, refuse("refused: %s cannot be looked at", at)
		case t.gitDir != nil && os.SameFile(info, t.gitDir):
			return nil, false, refuse("refused: %s is the git folder", at)
		case info.Mode()&fs.ModeSymlink != 0:
			return nil, false, refuse("refused: %s is a symbolic link, and links are not followed", at)
		case (!last || folder) && !info.IsDir():
			return nil, false, refuse("refused: %s is not a folder", at)
		case last && !folder && info.IsDir():
			return nil, false, refuse("%s is a folder: use list_directory", at)
		case last && !folder && !info.Mode().IsRegular():
			return nil, false, refuse("refused: %s is not a regular file", at)
		}
	}
	return info, true, nil
}

// entry is the fence of the base commit.
func (t *tree) entry(p string) (git.Entry, error) {
	e, ok := t.entries[p]
	switch {
	case !ok && t.folders[p] != nil:
		return e, refuse("%s is a folder: use list_directory", p)
	case !ok:
		return e, refuse("there is no file %s in the repository", p)
	case e.Mode == git.ModeSymlink:
		return e, refuse("refused: %s is a symbolic link, and links are not followed", p)
	case e.Mode == git.ModeSubmodule:
		return e, refuse("refused: %s is a submodule, another repository", p)
	}
	return e, nil
}

// read gives a file of the base commit. The error is a *refusal unless something failed.
func (t *tree) read(ctx context.Context, p string) ([]byte, git.Entry, error) {
	if err := checkPath(p); err != nil {
		return nil, git.Entry{}, err
	}
	info, found, err := t.walk(p, false)
	if err != nil {
		return nil, git.Entry{}, err
	}
	e, err := t.entry(p)
	if err != nil {
		return nil, e, err
	}
	if found && info.Size() <= maxFile {
		if b, err := t.readWorkTree(p, info); err == nil && blobName(b, len(e.Hash)) == e.Hash {
			return b, e, nil
		}
	}
	b, _, err := t.repo.ReadFile(ctx, t.base, p, maxFile)
	if errand.CodeOf(err) == errand.CodeTooLarge {
		return nil, e, refuse("refused: %s is larger than %d bytes", p, maxFile)
	}
	return b, e, err
}

// readWorkTree reads the very file that walk looked at.
func (t *tree) readWorkTree(p string, seen fs.FileInfo) ([]byte, error) {
	f, err := t.root.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(info, seen) || !info.Mode().IsRegular() {
		return nil, errors.New("the file was exchanged while it was looked at")
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// blobName is git's name for content, in the repository's format.
func blobName(b []byte, digits int) string {
	var h hash.Hash
	if digits == 64 {
		h = sha256.New()
	} else {
		h = sha1.New() //nolint:gosec // git's object names
	}
	fmt.Fprintf(h, "blob %d\x00", len(b))
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil))
}

// list gives the entries of a folder; "" is the repository's root.
func (t *tree) list(p string) ([]string, error) {
	if p != "" {
		if err := checkPath(p); err != nil {
			return nil, err
		}
		if _, _, err := t.walk(p, true); err != nil {
			return nil, err
		}
	}
	names, ok := t.folders[p]
	if !ok {
		if _, isFile := t.entries[p]; isFile {
			return nil, refuse("%s is not a folder", p)
		}
		return nil, refuse("there is no folder %s in the repository", p)
	}
	return names, nil
}

// search names the files that contain query, at most limit.
func (t *tree) search(ctx context.Context, query, under string, limit int) (files []string, more bool, err error) {
	if under != "" {
		if err := checkPath(under); err != nil {
			return nil, false, err
		}
		if _, isFile := t.entries[under]; isFile {
			_, _, err = t.walk(under, false)
		} else {
			_, _, err = t.walk(under, true)
		}
		if err != nil {
			return nil, false, err
		}
	}
	found, more, err := t.repo.GrepAt(ctx, t.base, query, under, limit)
	if err != nil {
		if errand.CodeOf(err) == errand.CodeInvalid {
			return nil, false, refuse("refused: %v", err)
		}
		return nil, false, err
	}
	for _, f := range found {
		if checkPath(f) != nil {
			continue
		}
		if _, _, err := t.walk(f, false); err != nil {
			continue
		}
		files = append(files, f)
	}
	return files, more, nil
}

// binary tells whether content is not text: git's own rule, a NUL among the first 8000 bytes, applied to the whole.
func binary(b []byte) bool { return bytes.IndexByte(b, 0) >= 0 }
