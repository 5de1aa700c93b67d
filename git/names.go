package git

import (
	"strings"

	"github.com/errand-dev/errand"
)

// maxBranch leaves room for refs/heads/ in the 255 bytes that hosts and file systems allow a ref.
const maxBranch = 244

// CheckRef tells whether branch can be a branch's name: git's own rules for refs, and beyond them no leading dash (it
// would be an option), no refs/ prefix, and nothing that reads as a commit. It returns an Invalid error saying why not.
func CheckRef(branch string) error {
	bad := func(why string) error { return errand.Invalid("branch", "%q cannot be a branch: %s", branch, why) }
	switch {
	case branch == "":
		return bad("it is empty")
	case len(branch) > maxBranch:
		return bad("it is too long")
	case branch[0] == '-':
		return bad("it begins with a dash")
	case branch == "@" || branch == "HEAD":
		return bad("it has a meaning of its own")
	case strings.HasPrefix(branch, "refs/"):
		return bad("give the name without refs/heads/")
	case IsHash(branch):
		return bad("it reads as a commit")
	case strings.HasSuffix(branch, "."):
		return bad("it ends with a dot")
	case strings.Contains(branch, "..") || strings.Contains(branch, "@{"):
		return bad("it holds .. or @{")
	}
	for _, c := range []byte(branch) {
		if c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return bad("it holds a character that git forbids")
		}
	}
	for part := range strings.SplitSeq(branch, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return bad("a part of it is empty, begins with a dot, or ends with .lock")
		}
	}
	return nil
}

// CheckPath tells whether path can be a file of a repository: relative, with forward slashes, without empty, "." or ".."
// parts, and without a part that is .git in any spelling that some file system would take for it. (Git itself refuses
// the remaining spellings, see core.protectHFS.)
func CheckPath(path string) error {
	bad := func(why string) error { return errand.Invalid("path", "%q cannot be a repository path: %s", path, why) }
	switch {
	case path == "":
		return bad("it is empty")
	case len(path) > 4096:
		return bad("it is too long")
	case strings.IndexByte(path, 0) >= 0:
		return bad("it holds a NUL")
	case path[0] == '/':
		return bad("it is absolute")
	}
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "":
			return bad("a part of it is empty")
		case ".", "..":
			return bad("a part of it is . or ..")
		}
		// Windows drops trailing dots and blanks, and what follows a colon names a stream of the same file.
		name, _, _ := strings.Cut(part, ":")
		name = strings.ToLower(strings.TrimRight(name, ". "))
		if name == ".git" || name == "git~1" {
			return bad("it is inside .git")
		}
	}
	return nil
}

func checkHash(field, s string) error {
	if !IsHash(s) {
		return errand.Invalid(field, "%q is not a full object name (40 or 64 hexadecimal digits)", s)
	}
	return nil
}
