package errand_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/errand-dev/errand"

// rooms is the house: for each package what of ours it may import, beyond the root. It is DESIGN's table of floors written
// as permissions, so that a new import is a decision somebody takes here. Rooms that later issues build are in it too.
var rooms = map[string][]string{
	".": {},

	// 1a: self-contained words and tools.
	"journal": {}, "git": {}, "scrub": {}, "wire": {}, "migrations": {},

	// 1b: pure or self-contained; no store among them.
	"claims": {"git"}, "claims/land": {"git", "claims"}, "transitions": {}, "pricing": {}, "runtoken": {}, "depaudit": {},
	"models": {}, "models/modelsim": {},

	// 2a: the two things outside: Postgres and GitHub.
	"store": {"migrations", "store/internal/db"}, "store/internal/db": {}, "store/pgembed": {},
	"store/storetest": {"store", "store/pgembed"},
	"github":          {}, "github/githubsim": {},

	// 2b: a run's life, the sole writer of runs.state.
	"runs": {"store", "transitions", "journal"},

	// 3: features. They meet through rows, not calls.
	"webhooks":  {"store", "scrub", "journal"},
	"dispatch":  {"store", "github", "runs", "journal", "wire"},
	"runnerapi": {"store", "runs", "runtoken", "pricing", "transitions", "journal", "wire", "scrub"},
	"notify":    {"store", "journal", "scrub"},
	"access":    {"store", "journal"},
	"doctor":    {"store", "github"},
	"audits":    {"store", "depaudit", "journal"},

	// 4a: faces translate, features decide. 4b: the server mounts what stands below.
	"console": {"store", "access", "runs", "pricing", "transitions", "journal"},
	"mcp":     {"store", "access", "runs", "journal"},
	"server":  {"store", "access", "console", "mcp", "webhooks", "dispatch", "runnerapi", "notify", "doctor", "audits"},

	// The runner is a tower of its own.
	"runner": {"wire", "git", "scrub", "claims", "transitions", "models"},

	// 5: commands wire everything; nobody imports them. nil = anything below.
	"cmd/errand": nil, "cmd/errand-runner": {"runner", "models", "wire"},

	// Beside the house.
	"bench": nil, "bench/chaos": nil, "tools/rowalias": {}, "docs": {},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}

func room(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

// roomOf finds the room whose rules hold for a package: its own, or that of a command's sub-package.
func roomOf(r string) (string, bool) {
	if _, ok := rooms[r]; ok {
		return r, true
	}
	for parent := path.Dir(r); parent != "."; parent = path.Dir(parent) {
		if strings.HasPrefix(parent, "cmd/") {
			if _, ok := rooms[parent]; ok {
				return parent, true
			}
		}
	}
	return "", false
}

func TestImportsGoDownwardOnly(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		from, ok := roomOf(room(p.ImportPath))
		if !ok {
			t.Errorf("%s: a folder this table does not know: give it a floor in arch_test.go", room(p.ImportPath))
			continue
		}
		allowed := rooms[from]
		for _, imp := range p.Imports {
			if imp != module && !strings.HasPrefix(imp, module+"/") {
				if from == "." && strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
					t.Errorf("the root imports %s: it may import the standard library only", imp)
				}
				continue
			}
			to := room(imp)
			switch {
			case to == ".":
			case strings.HasPrefix(to, "cmd/") && !strings.HasPrefix(to, from+"/"):
				t.Errorf("%s imports %s: nobody imports a command", from, to)
			case allowed == nil:
			case strings.HasPrefix(to, from+"/") && strings.HasPrefix(from, "cmd/"):
			case !slices.Contains(allowed, to):
				t.Errorf("%s imports %s: not on its floor plan (DESIGN, the floors)", from, to)
			}
		}
	}
}

// The server must not compile a provider's SDK, nor the runner a database.
func TestHeavyDependenciesStayInTheirTower(t *testing.T) {
	t.Parallel()
	for target, forbidden := range map[string][]string{
		"./server":            {"anthropic-sdk-go", "openai-go", module + "/models", module + "/runner"},
		"./cmd/errand-runner": {"jackc/pgx", "riverqueue/river", "labstack/echo", module + "/store"},
	} {
		out, err := exec.Command("go", "list", "-deps", target).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", target, err)
		}
		for dep := range strings.Lines(string(out)) {
			for _, f := range forbidden {
				if strings.Contains(dep, f) {
					t.Errorf("%s depends on %s", target, strings.TrimSpace(dep))
				}
			}
		}
	}
}

// `ls` is the architecture: the top of the repository holds rooms and a few files, and nothing else.
func TestTheTopOfTheRepositoryIsTheArchitecture(t *testing.T) {
	t.Parallel()
	known := []string{
		".ci", ".git", ".github", ".gitignore", ".golangci.yml", ".dockerignore", "docs", "tools", "bench", "cmd", "action.yml", "Dockerfile",
		"docker-compose.yml", "Makefile", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "go.mod", "go.sum",
		".bin", ".data", // not tracked
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		_, isRoom := rooms[name]
		if slices.Contains(known, name) || isRoom || (!e.IsDir() && strings.HasSuffix(name, ".go")) {
			continue
		}
		t.Errorf("%s at the top of the repository: it is not in the house's plan", name)
	}
}

// Each package says what it is for.
func TestEveryPackageHasADocComment(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		dir := room(p.ImportPath)
		if dir == "store/internal/db" {
			continue // generated
		}
		found := false
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && file != dir:
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
				return nil
			}
			src, err := os.ReadFile(file)
			found = found || strings.HasPrefix(string(src), "// Package ") || strings.HasPrefix(string(src), "// Command ") ||
				strings.Contains(string(src), "\n// Package ") || strings.Contains(string(src), "\n// Command ")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			t.Errorf("%s has no package comment", dir)
		}
	}
}
