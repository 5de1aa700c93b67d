// Package git is a thin, hardened wrapper round the git program: list, search, read, build a commit, compare, fetch, push.
package git

import (
	"context"
	"time"
)

// Options say how a checkout is opened.
type Options struct {
	GitPath string   // the git program; "" = looked up on PATH
	Remote  string   // http(s) URL or absolute path of the remote; "" = no remote calls
	Token   string   // for http authorization; never on a command line
	TempDir string   // where the private repository is made; "" = the system's
	Env     []string // NAME=value; only proxy and certificate variables are taken
}

// Repo is an open checkout.
type Repo struct{}

// Entry is one file of a tree. Mode is git's: 100644, 100755, 120000 (symlink), 160000 (submodule).
type Entry struct{ Path, Mode, Hash string }

// Author is who a commit is by.
type Author struct {
	Name, Email string
	When        time.Time
}

// FileChange is one path's new content. Mode "" keeps the parent's mode, or is 100644 for a new file.
type FileChange struct {
	Path    string
	Mode    string
	Content []byte
	Delete  bool
}

// CommitSpec describes a commit to build: only Changes differ from Parent.
type CommitSpec struct {
	Parent  string
	Message string
	Author  Author
	Changes []FileChange
}

// Kind is what happened to a path.
type Kind string

// The kinds of change. Submodule wins over all others; a change of content and mode together is Edit.
const (
	Add       Kind = "add"
	Edit      Kind = "edit"
	Delete    Kind = "delete"
	ModeOnly  Kind = "mode"
	Type      Kind = "type" // a file became a symlink or the reverse
	Submodule Kind = "submodule"
)

// Change is one path that differs between two trees. Renames are a delete and an add.
type Change struct {
	Path             string
	OldMode, NewMode string // "000000" where the path is absent
	OldHash, NewHash string
	Kind             Kind
	Added, Removed   int // lines; 0 for a binary file
	Binary           bool
}

// Line is one line of the newer side.
type Line struct {
	Number int // 1-based
	Text   string
}

// PushKind says why a push was refused.
type PushKind string

// The reasons. Only PushUnreachable is worth another try with the same commit and branch.
const (
	PushExists             PushKind = "exists"
	PushNonFastForward     PushKind = "non_fast_forward"
	PushWorkflowPermission PushKind = "workflow_permission"
	PushTooLarge           PushKind = "too_large"
	PushProtected          PushKind = "protected"
	PushAuth               PushKind = "auth"
	PushUnreachable        PushKind = "unreachable"
	PushOther              PushKind = "other"
)

// PushError is a push that was refused, with what the remote said (token removed).
type PushError struct {
	Kind    PushKind
	Message string
}

func (e *PushError) Error() string { return "push refused (" + string(e.Kind) + "): " + e.Message }

func Open(ctx context.Context, dir string, opt Options) (*Repo, error)     { return nil, nil }
func (r *Repo) Close() error                                               { return nil }
func (r *Repo) Head(ctx context.Context) (string, error)                   { return "", nil }
func (r *Repo) LsFiles(ctx context.Context) ([]Entry, error)               { return nil, nil }
func (r *Repo) LsTree(ctx context.Context, commit string) ([]Entry, error) { return nil, nil }
func (r *Repo) ReadFile(ctx context.Context, commit, path string, max int64) ([]byte, Entry, error) {
	return nil, Entry{}, nil
}
func (r *Repo) Grep(ctx context.Context, query, under string, limit int) ([]string, bool, error) {
	return nil, false, nil
}
func (r *Repo) GrepAt(ctx context.Context, commit, query, under string, limit int) ([]string, bool, error) {
	return nil, false, nil
}
func (r *Repo) Commit(ctx context.Context, spec CommitSpec) (string, error) { return "", nil }
func (r *Repo) Diff(ctx context.Context, a, b string) ([]Change, error)     { return nil, nil }
func (r *Repo) AddedLines(ctx context.Context, a, b string) (map[string][]Line, error) {
	return nil, nil
}
func (r *Repo) Patch(ctx context.Context, a, b string) (string, error)         { return "", nil }
func (r *Repo) FetchBranch(ctx context.Context, branch string) (string, error) { return "", nil }
func (r *Repo) Push(ctx context.Context, commit, branch string) error          { return nil }
func (r *Repo) RemoteBranch(ctx context.Context, branch string) (commit string, ok bool, err error) {
	return "", false, nil
}
func CheckRef(branch string) error { return nil }
