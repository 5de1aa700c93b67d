package runner

import (
	"path"
	"regexp"
	"strings"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/wire"
)

// located is a frame and the tracked file it was found to be in; File is "" when none, or more than one, fits.
type located struct {
	Frame errand.Frame
	File  string
}

// resolution is where the stack lies in the repository.
type resolution struct {
	Frames   []located // of the exception that the event is about, oldest call first
	InApp    int       // frames of the application, over all exceptions
	Resolved int       // of these
}

// wrongRepository tells whether the application has frames and none of them is here.
func (r resolution) wrongRepository() bool { return r.InApp > 0 && r.Resolved == 0 }

// resolver finds the file of a frame among the files of the base commit.
type resolver struct {
	hints wire.StartResponse
	files map[string]bool
	byEnd map[string][]string // last two segments -> files
	names map[string]int      // last segment -> how many files
}

func newResolver(start wire.StartResponse, t *tree) *resolver {
	r := &resolver{hints: start, files: map[string]bool{}, byEnd: map[string][]string{}, names: map[string]int{}}
	for p := range t.entries {
		if _, err := t.entry(p); err != nil {
			continue
		}
		r.files[p] = true
		r.names[path.Base(p)]++
		if end, ok := lastTwo(p); ok {
			r.byEnd[end] = append(r.byEnd[end], p)
		}
	}
	return r
}

func lastTwo(p string) (string, bool) {
	s := strings.Split(p, "/")
	if len(s) < 2 {
		return "", false
	}
	return strings.Join(s[len(s)-2:], "/"), true
}

// resolve looks every frame up. A frame counts as the application's when the SDK says so; when no frame of the event is
// marked either way, all count.
func (r *resolver) resolve(e errand.Event) resolution {
	marked := false
	for _, x := range e.Exceptions {
		for _, f := range x.Frames {
			marked = marked || (f.InApp != nil && *f.InApp)
		}
	}
	var res resolution
	for i, x := range e.Exceptions {
		for _, f := range x.Frames {
			l := located{Frame: f, File: r.file(f)}
			if i == e.Primary {
				res.Frames = append(res.Frames, l)
			}
			inApp := f.InApp != nil && *f.InApp
			if !marked {
				inApp = f.InApp == nil
			}
			if !inApp || (f.Filename == "" && f.AbsPath == "") {
				continue
			}
			res.InApp++
			if l.File != "" {
				res.Resolved++
			}
		}
	}
	return res
}

// file finds one frame: by the mapping's rule, by its exact name, else by the longest common end.
func (r *resolver) file(f errand.Frame) string {
	names := []string{f.AbsPath, f.Filename}
	for _, n := range names {
		if root := r.hints.StackRoot; root != "" && n != "" {
			if rest, ok := under(normal(root), normal(n)); ok {
				if p := path.Join(r.hints.SourceRoot, rest); r.files[p] {
					return p
				}
			}
		}
	}
	for _, n := range names {
		p := strings.TrimPrefix(normal(n), "/")
		if p == "" {
			continue
		}
		if q := path.Join(r.hints.BaseDir, p); r.files[q] && (strings.Contains(p, "/") || r.hints.BaseDir != "" || r.names[p] == 1) {
			return q
		}
		if r.files[p] && strings.Contains(p, "/") {
			return p
		}
	}
	for _, n := range names {
		if p := r.byLongestEnd(strings.TrimPrefix(normal(n), "/")); p != "" {
			return p
		}
	}
	return ""
}

// byLongestEnd finds the one file that shares the most segments with p, counted from the end: at least two, and no other
// file may share as many.
func (r *resolver) byLongestEnd(p string) string {
	end, ok := lastTwo(p)
	if !ok {
		return ""
	}
	best, length, several := "", 0, false
	for _, c := range r.byEnd[end] {
		if _, ok := under(r.hints.BaseDir, c); r.hints.BaseDir != "" && !ok {
			continue
		}
		switch n := common(p, c); {
		case n > length:
			best, length, several = c, n, false
		case n == length:
			several = true
		}
	}
	if several {
		return ""
	}
	return best
}

func common(a, b string) int {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	n := 0
	for n < len(x) && n < len(y) && x[len(x)-1-n] == y[len(y)-1-n] {
		n++
	}
	return n
}

// under gives what follows dir in p, by whole segments.
func under(dir, p string) (string, bool) {
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		return strings.TrimPrefix(p, "/"), true
	}
	return strings.CutPrefix(p, dir+"/")
}

var (
	scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+:/{1,3}`) // app:///, webpack://, file:///; one letter is a drive
	drive  = regexp.MustCompile(`^/?[A-Za-z]:/`)
)

// normal brings the dialects of stack paths to one: forward slashes, no scheme, no drive, no query, no dot segments.
func normal(p string) string {
	p = strings.ReplaceAll(p, `\`, "/")
	p, _, _ = strings.Cut(p, "?")
	if !drive.MatchString(p) {
		if s := scheme.FindString(p); s != "" {
			p = "/" + strings.TrimPrefix(p, s)
		}
	}
	if d := drive.FindString(p); d != "" {
		p = "/" + strings.TrimPrefix(p, d)
	}
	p = strings.TrimPrefix(p, "~/")
	if p == "" {
		return ""
	}
	rooted := strings.HasPrefix(p, "/")
	p = path.Clean(p)
	for strings.HasPrefix(p, "../") {
		p = p[3:]
	}
	if p == "." || p == ".." || p == "/" {
		return ""
	}
	if rooted && !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return p
}
