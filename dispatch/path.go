package dispatch

import (
	"slices"
	"strings"
)

// stackPath is a frame's path, or a rule's root, in the one form in which they are compared. Trackers, SDKs and bundlers
// spell the same path in many ways: with a scheme, a drive letter, backslashes, dots.
type stackPath struct {
	host  string   // of an address with one; "" otherwise
	abs   bool     // from the root of a file system or a site; otherwise from wherever the build stood
	bare  bool     // a file's name without any folder: it says nothing about where
	parts []string // without empty ones and dots
}

// parsePath reads a path in any of the dialects:
//
//	/srv/app/a.py  C:\app\a.cs  file:///srv/app/a.py           absolute, drive letters dropped
//	https://example.com/static/a.js?v=1                        absolute, on a host, query dropped
//	app:///a.js  ~/a.js  ./a.js  ..\..\a.ts  src/a.ts          relative; `..` never leads out
//	webpack:///./src/a.ts  webpack-internal:///(rsc)/./src/a.ts  relative, namespace and layer dropped
func parsePath(s string) stackPath {
	var p stackPath
	s = strings.ReplaceAll(strings.TrimSpace(s), `\`, "/")
	p.bare = !strings.Contains(s, "/")
	bundled := false
	if scheme, rest, ok := cutScheme(s); ok {
		host, path, _ := strings.Cut(rest, "/")
		switch scheme {
		case "app":
			s = path
		case "webpack", "webpack-internal", "turbopack", "rsc":
			s, bundled = cutLayer(cutQuery(path)), true
		case "file":
			p.abs, s = true, path
		default:
			p.abs, p.host, s = true, strings.ToLower(host), cutQuery(path)
		}
	} else {
		s = strings.TrimPrefix(s, "~/")
	}
	if len(s) > 2 && s[1] == ':' && s[2] == '/' && letter(s[0]) {
		p.abs, s = true, s[2:]
	}
	if strings.HasPrefix(s, "/") && !bundled {
		p.abs = true
	}
	p.parts = components(s)
	return p
}

// components splits a path and resolves its dots; `..` at the top is dropped.
func components(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, "/") {
		switch part {
		case "", ".":
		case "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, part)
		}
	}
	return out
}

// cutScheme finds a scheme of two letters or more: one letter is a drive.
func cutScheme(s string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(s, "://")
	if !ok || len(scheme) < 2 || !letter(scheme[0]) {
		return "", "", false
	}
	for i := range len(scheme) {
		if c := scheme[i]; !letter(c) && (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' {
			return "", "", false
		}
	}
	return strings.ToLower(scheme), rest, true
}

func cutQuery(s string) string {
	if i := strings.IndexAny(s, "?#"); i >= 0 {
		return s[:i]
	}
	return s
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// cutLayer drops what a bundler puts before a path: (rsc), (ssr), [project]. Further in, such a name is a folder.
func cutLayer(s string) string {
	first, rest, _ := strings.Cut(s, "/")
	if strings.HasPrefix(first, "(") && strings.HasSuffix(first, ")") || first == "[project]" {
		return rest
	}
	return s
}

// under tells whether root prefixes p by whole components, and gives what is left below it. A root without a host holds on
// every host.
func (p stackPath) under(root stackPath) (rest []string, ok bool) {
	switch {
	case p.abs != root.abs, root.host != "" && root.host != p.host, len(p.parts) < len(root.parts):
		return nil, false
	case !slices.Equal(p.parts[:len(root.parts)], root.parts):
		return nil, false
	}
	return p.parts[len(root.parts):], true
}

func (p stackPath) String() string {
	s := strings.Join(p.parts, "/")
	if p.abs {
		s = "/" + s
	}
	if p.host != "" {
		s = "//" + p.host + s
	}
	return s
}

// moduleParts splits a module's or a class's name: com.example.shop.Cart, Shop\Cart, shop::cart.
func moduleParts(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(`./\:$`, r) })
}
