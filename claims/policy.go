package claims

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/errand-dev/errand"
)

// Policy bounds a change. The zero value is invalid: a limit must be a number above zero, and "no limit" cannot be said.
type Policy struct {
	// Protected are doublestar globs over whole repository paths, matched without regard to case. "dir/" means "dir/**".
	Protected []string `json:"protected"`
	MaxFiles  int      `json:"max_files"`
	MaxLines  int      `json:"max_lines"` // added + removed, over all files
	// What is not allowed is a finding even when the claim says so; what is allowed must still be said by the claim.
	AllowMode   bool `json:"allow_mode"`
	AllowType   bool `json:"allow_type"` // symlinks and submodules
	AllowBinary bool `json:"allow_binary"`
}

// The size of a change whose claim is checked by itself, when no policy says otherwise. A run of Errand has bounds of its own
// (wire.RunFiles, wire.RunLines), which take the place of these: the runner states both before it checks.
const (
	DefaultFiles = 20
	DefaultLines = 200 // added + removed
)

// DefaultPolicy is what holds when nobody says otherwise: DefaultFiles, DefaultLines, no change of mode or type, nothing
// binary, and the paths by which a change could reach past its review: workflows, owners, dependencies, build
// manifests, the rules of agents, authentication.
func DefaultPolicy() Policy {
	p := Policy{MaxFiles: DefaultFiles, MaxLines: DefaultLines, Protected: []string{
		".github/**", ".*/*/**", // every top-level folder whose name begins with a dot
		"**/.claude/**", "**/.cursor/**", "**/.cargo/**", // rules of agents and of builds, also in a part of the tree
		"src/auth/**",
	}}
	for _, name := range []string{
		"CODEOWNERS", "AGENTS.md", "AGENTS.*.md", "CLAUDE.md", "CLAUDE.*.md", "GEMINI.md", ".cursorrules", ".gitmodules", ".gitattributes",
		".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".envrc", ".pre-commit-config.yaml",
		"package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "pnpm-workspace.yaml", "bun.lock", "bun.lockb",
		"deno.json", "deno.lock", "go.mod", "go.sum", "go.work", "go.work.sum", "Cargo.toml", "Cargo.lock",
		"requirements*.txt", "constraints*.txt", "pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock", "pdm.lock",
		"environment.yml", "conda-lock.yml", "Gemfile", "Gemfile.lock", "*.gemspec", "composer.json", "composer.lock",
		"pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.lockfile", "gradle.properties", "libs.versions.toml",
		"gradle-wrapper.properties", "build.sbt", "*.csproj", "*.fsproj", "*.vbproj", "packages.config", "packages.lock.json",
		"Directory.Build.props", "Directory.Packages.props", "NuGet.config", "mix.exs", "mix.lock", "rebar.config", "rebar.lock",
		"pubspec.yaml", "pubspec.lock", "Podfile", "Podfile.lock", "Package.swift", "Package.resolved", "Cartfile", "Cartfile.resolved",
		// What other CI systems run from a pushed branch, before anybody has looked at it.
		".gitlab-ci.yml", ".travis.yml", ".drone.yml", "Jenkinsfile", "azure-pipelines.yml", "bitbucket-pipelines.yml", "appveyor.yml",
		".appveyor.yml", "cloudbuild.yaml", "cloudbuild.yml", "buildspec.yml", "action.yml", "action.yaml", "Makefile", "GNUmakefile",
		"Dockerfile", "gradlew", "gradlew.bat", "mvnw", "mvnw.cmd", "build.rs", "conftest.py", "deno.jsonc",
		"flake.nix", "flake.lock", "MODULE.bazel", "MODULE.bazel.lock", "WORKSPACE",
	} {
		p.Protected = append(p.Protected, "**/"+name)
	}
	return p
}

// With gives the policy with more protected paths: it can only become tighter.
func (p Policy) With(protected ...string) Policy {
	p.Protected = append(slices.Clone(p.Protected), protected...)
	return p
}

// WithLimits gives the policy with other limits.
func (p Policy) WithLimits(files, lines int) Policy {
	p.MaxFiles, p.MaxLines = files, lines
	return p
}

// Validate reports everything that keeps the policy from being applied, as Invalid errors joined.
func (p Policy) Validate() error {
	var all []error
	if p.MaxFiles < 1 {
		all = append(all, errand.Invalid("max_files", "want a number of at least 1, have %d", p.MaxFiles))
	}
	if p.MaxLines < 1 {
		all = append(all, errand.Invalid("max_lines", "want a number of at least 1, have %d", p.MaxLines))
	}
	for _, g := range p.Protected {
		if why := badGlob(g); why != "" {
			all = append(all, errand.Invalid("protected", "%q: %s", g, why))
		}
	}
	return errors.Join(all...)
}

func badGlob(g string) string {
	switch {
	case strings.TrimSpace(g) == "":
		return "is empty"
	case g[0] == '!':
		return "a policy cannot take protection away"
	case g[0] == '/' || strings.HasPrefix(g, "./"):
		return "write it from the repository's root, without a leading / or ./"
	case slices.Contains(strings.Split(g, "/"), ".."):
		return "holds .."
	case !utf8.ValidString(g) || strings.ContainsFunc(g, unicode.IsControl):
		return "holds a character that cannot be matched"
	case !doublestar.ValidatePattern(g):
		return "is not a valid pattern (an unclosed [ or { ?)"
	default:
		return ""
	}
}

// Hash names the policy: the same rules give the same hash, in whatever order they were written.
func (p Policy) Hash() string {
	p.Protected = slices.Compact(slices.Sorted(slices.Values(p.Protected)))
	b, _ := json.Marshal(p) // strings, numbers and booleans: it cannot fail
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// matcher is a policy's patterns made ready: plain names in any folder by look-up, all others by matching.
type matcher struct {
	names map[string]string // folded last part -> pattern as written
	globs [][2]string       // folded, as written
}

// newMatcher takes the valid patterns; the others are reported by Validate.
func newMatcher(patterns []string) matcher {
	m := matcher{names: map[string]string{}}
	for _, g := range slices.Sorted(slices.Values(patterns)) {
		if badGlob(g) != "" {
			continue
		}
		full := g
		if strings.HasSuffix(full, "/") {
			full += "**"
		}
		full = fold(full)
		if name, ok := strings.CutPrefix(full, "**/"); ok && !strings.ContainsAny(name, `/*?[]{}\`) {
			if _, have := m.names[name]; !have {
				m.names[name] = g
			}
			continue
		}
		m.globs = append(m.globs, [2]string{full, g})
	}
	return m
}

// match gives the first pattern, in their sorted order, that protects path.
func (m matcher) match(path string) (pattern string, ok bool) {
	path = fold(path)
	if g, ok := m.names[path[strings.LastIndexByte(path, '/')+1:]]; ok {
		return g, true
	}
	for _, g := range m.globs {
		if doublestar.MatchUnvalidated(g[0], path) {
			return g[1], true
		}
	}
	return "", false
}

// fold makes two names equal when a file system that ignores case would take them for one: each character becomes the
// least of its case variants (so that the Kelvin sign is a K, and the long s an S).
func fold(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n <= 1 {
			b.WriteByte(s[i])
			i++
			continue
		}
		i += n
		if r < utf8.RuneSelf {
			b.WriteByte(byte(unicode.ToUpper(r)))
			continue
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		b.WriteRune(least)
	}
	return b.String()
}
