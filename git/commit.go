package git

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/errand-dev/errand"
)

// Author is who a commit is by; committer is the same.
type Author struct {
	Name, Email string
	When        time.Time
}

// FileChange is the new state of one path. Content is taken byte for byte.
type FileChange struct {
	Path    string
	Mode    string // "" = the parent's mode, or ModeFile where the parent has no such file
	Content []byte
	Delete  bool
}

// CommitSpec describes a commit: Parent's tree with Changes and nothing else.
type CommitSpec struct {
	Parent  string
	Message string
	Author  Author
	Changes []FileChange
}

// Commit builds a commit in the private repository, in an index of its own, and gives its name; no branch is moved and
// the work tree is not looked at. The same spec gives the same commit.
//
// It returns an Invalid error when a path, mode or the message cannot be, when the same path is named twice, when a
// deleted file is not there, when nothing would change, or when the commit would change a path that was not declared
// (a new file a/b where a is a file).
func (r *Repo) Commit(ctx context.Context, spec CommitSpec) (string, error) {
	if err := spec.check(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(r.shadow, "index-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the whole shadow is removed at Close
	index := []string{"GIT_INDEX_FILE=" + dir + "/index"}
	if _, err := r.do(ctx, call{args: []string{"read-tree", spec.Parent}, env: index}); err != nil {
		return "", err
	}
	lines, err := r.indexLines(ctx, spec)
	if err != nil {
		return "", err
	}
	if _, err := r.do(ctx, call{args: []string{"update-index", "-z", "--index-info"}, env: index, in: lines}); err != nil {
		return "", errand.Errorf(errand.CodeInvalid, err, "git does not take one of the paths")
	}
	out, err := r.do(ctx, call{args: []string{"write-tree"}, env: index})
	if err != nil {
		return "", err
	}
	tree := strings.TrimSpace(string(out))
	if err := r.onlyDeclared(ctx, spec, tree); err != nil {
		return "", err
	}
	when := "@" + strconv.FormatInt(spec.Author.When.Unix(), 10) + " +0000"
	out, err = r.do(ctx, call{
		args: []string{"commit-tree", "-p", spec.Parent, "-F", "-", tree},
		in:   strings.NewReader(spec.Message),
		env: []string{
			"GIT_AUTHOR_NAME=" + spec.Author.Name, "GIT_AUTHOR_EMAIL=" + spec.Author.Email, "GIT_AUTHOR_DATE=" + when,
			"GIT_COMMITTER_NAME=" + spec.Author.Name, "GIT_COMMITTER_EMAIL=" + spec.Author.Email, "GIT_COMMITTER_DATE=" + when,
		},
	})
	return strings.TrimSpace(string(out)), err
}

func (s CommitSpec) check() error {
	if err := checkHash("parent", s.Parent); err != nil {
		return err
	}
	if strings.TrimSpace(s.Message) == "" || strings.IndexByte(s.Message, 0) >= 0 {
		return errand.Invalid("message", "a commit needs a message without NUL")
	}
	if s.Author.When.Unix() < 0 {
		return errand.Invalid("author", "the time lies before 1970")
	}
	for _, v := range []string{s.Author.Name, s.Author.Email} {
		if v == "" || strings.ContainsAny(v, "<>\n\x00") {
			return errand.Invalid("author", "name and e-mail are needed, without < > or a line break")
		}
	}
	if len(s.Changes) == 0 {
		return errand.Invalid("changes", "there is nothing to commit")
	}
	seen := map[string]bool{}
	for _, c := range s.Changes {
		if err := CheckPath(c.Path); err != nil {
			return err
		}
		if seen[c.Path] {
			return errand.Invalid("changes", "%q is named twice", c.Path)
		}
		seen[c.Path] = true
		switch c.Mode {
		case "", ModeFile, ModeExecutable, ModeSymlink:
		default:
			return errand.Invalid("changes", "%q: mode %q is not one of %s, %s, %s", c.Path, c.Mode, ModeFile, ModeExecutable, ModeSymlink)
		}
	}
	return nil
}

// indexLines writes the blobs and gives what update-index --index-info wants: "mode SP hash TAB path NUL".
func (r *Repo) indexLines(ctx context.Context, spec CommitSpec) (*bytes.Buffer, error) {
	parent, err := r.LsTree(ctx, spec.Parent)
	if err != nil {
		return nil, err
	}
	modes := make(map[string]string, len(parent))
	for _, e := range parent {
		modes[e.Path] = e.Mode
	}
	var lines bytes.Buffer
	for _, c := range spec.Changes {
		had := modes[c.Path]
		if c.Delete {
			if had == "" {
				return nil, errand.Invalid("changes", "%q cannot be deleted: the parent has no such file", c.Path)
			}
			fmt.Fprintf(&lines, "0 %s\t%s\x00", strings.Repeat("0", len(spec.Parent)), c.Path)
			continue
		}
		mode := c.Mode
		if mode == "" {
			if mode = had; mode == "" {
				mode = ModeFile
			}
		}
		if mode == ModeSubmodule {
			return nil, errand.Invalid("changes", "%q is a submodule and cannot be given content", c.Path)
		}
		hash, err := r.do(ctx, call{args: []string{"hash-object", "-w", "--no-filters", "--stdin"}, in: bytes.NewReader(c.Content)})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&lines, "%s %s\t%s\x00", mode, bytes.TrimSpace(hash), c.Path)
	}
	return &lines, nil
}

// onlyDeclared holds the tree that was written against what was asked for, before it becomes a commit.
func (r *Repo) onlyDeclared(ctx context.Context, spec CommitSpec, tree string) error {
	declared := make(map[string]bool, len(spec.Changes))
	for _, c := range spec.Changes {
		declared[c.Path] = true
	}
	diff, err := r.Diff(ctx, spec.Parent, tree)
	if err != nil {
		return err
	}
	if len(diff) == 0 {
		return errand.Invalid("changes", "the files already have this content: there is nothing to commit")
	}
	for _, c := range diff {
		if !declared[c.Path] {
			return errand.Invalid("changes", "the commit would also change %q, which was not declared", c.Path)
		}
	}
	return nil
}
