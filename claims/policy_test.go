package claims

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestDefaultPolicyProtects(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	m := newMatcher(p.Protected)
	for _, path := range []string{
		".github/workflows/ci.yml", ".github/CODEOWNERS", ".GitHub/Workflows/ci.yml", ".github", "CODEOWNERS", "docs/CodeOwners", "a/b/package.json",
		"package-lock.json", "go.sum", "sub/go.mod", "requirements-dev.txt", "x/requirements.txt", "Cargo.toml", "pom.xml", "src/App.csproj",
		"AGENTS.md", "pkg/agents.md", "CLAUDE.md", "CLAUDE.local.md", "sub/Claude.MD", ".cursor/rules/x.mdc", ".vscode/tasks.json", ".circleci/config.yml",
		".husky/a/b/c", "src/auth/login.py", "SRC/AUTH/x/y.py", ".gitmodules", ".errand/policy.yml", "pac\u212Aage.json", "yarn.loc\u212A",
	} {
		if _, ok := m.match(path); !ok {
			t.Errorf("%s is not protected", path)
		}
	}
	for _, path := range []string{
		"checkout/views.py", "src/authors.py", "lib/auth/x.py", "src/auth.py", "package.jsonc", "src/.hidden/x.py", ".eslintrc", "go.mod.txt", "docs/agents.txt",
		"app/[id]/page.tsx", "mygithub/x", "github/workflows/x", "\xff/x.py",
	} {
		if g, ok := m.match(path); ok {
			t.Errorf("%q is protected by %q", path, g)
		}
	}
}

func TestPolicyWith(t *testing.T) {
	t.Parallel()
	base := DefaultPolicy()
	p := base.With("secrets/", "db/**/*.sql", "**/conf.{yml,json}", `odd/\[id\].ts`)
	if len(base.Protected) == len(p.Protected) || base.Validate() != nil || p.Validate() != nil {
		t.Fatal("With changed the policy it was called on, or made an invalid one")
	}
	m := newMatcher(p.Protected)
	for path, want := range map[string]bool{
		"secrets/a/b": true, "SECRETS/x": true, "db/x.sql": true, "db/a/b.SQL": true, "x/conf.yml": true, "conf.json": true, "odd/[id].ts": true,
		"odd/i.ts": false, "mysecrets/a": false, "db/x.py": false,
	} {
		if _, ok := m.match(path); ok != want {
			t.Errorf("%s protected: %v, want %v", path, ok, want)
		}
	}
}

func TestPolicyRefuses(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]Policy{
		"the zero policy":           {},
		"no files":                  DefaultPolicy().WithLimits(0, 1),
		"less than no lines":        DefaultPolicy().WithLimits(1, -1),
		"an empty pattern":          DefaultPolicy().With(" "),
		"an unclosed class":         DefaultPolicy().With("src/[a"),
		"an unclosed brace":         DefaultPolicy().With("src/{a,b"),
		"a negation":                DefaultPolicy().With("!src/**"),
		"an absolute pattern":       DefaultPolicy().With("/src/**"),
		"a pattern from here":       DefaultPolicy().With("./src/**"),
		"a pattern that leads out":  DefaultPolicy().With("src/../x"),
		"a pattern with a NUL":      DefaultPolicy().With("a\x00"),
		"a pattern that is no text": DefaultPolicy().With("a\xff"),
	} {
		if p.Validate() == nil {
			t.Errorf("%s was taken", name)
		}
		r := Check(claimOf("a.py"), diffOf("a.py"), p)
		if r.Verdict != Rejected || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == PolicyInvalid }) {
			t.Errorf("%s let a change through: %+v", name, r)
		}
	}
	both := Policy{MaxFiles: 0, MaxLines: 0, Protected: []string{"!"}}
	if err := both.Validate(); err == nil || strings.Count(err.Error(), "invalid: ") != 3 {
		t.Errorf("not all reported: %v", err)
	}
}

func TestPolicyHash(t *testing.T) {
	t.Parallel()
	a := Policy{MaxFiles: 1, MaxLines: 2, Protected: []string{"a", "b"}}
	if a.Hash() != (Policy{MaxFiles: 1, MaxLines: 2, Protected: []string{"b", "a", "a"}}).Hash() {
		t.Error("order matters")
	}
	for _, other := range []Policy{a.With("c"), a.WithLimits(1, 3), {MaxFiles: 1, MaxLines: 2, Protected: a.Protected, AllowMode: true}} {
		if other.Hash() == a.Hash() {
			t.Errorf("the same hash for %+v", other)
		}
	}
}

// open allows everything that is claimed.
func open() Policy {
	return Policy{MaxFiles: math.MaxInt, MaxLines: math.MaxInt, AllowMode: true, AllowType: true, AllowBinary: true}
}
