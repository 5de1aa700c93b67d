package claims

import (
	"encoding/json"
	"strings"
	"testing"
)

const good = `{
  "task_id": "T-1", "agent_id": "errand", "summary": "Guard against a missing total",
  "base": "0123456789abcdef0123456789abcdef01234567",
  "scope": {"paths": ["app/[id]/page.tsx", "src/new.py"]},
  "changes": [
    {"path": "app/[id]/page.tsx", "description": "checks for null"},
    {"path": "app/[id]/page.tsx", "description": "and is executable", "kind": "mode"},
    {"path": "src/new.py", "description": "moved here", "kind": "rename", "from": "src/old.py"}
  ]
}`

func TestParseTakesAClaim(t *testing.T) {
	t.Parallel()
	c, findings := Parse([]byte(good))
	if findings != nil {
		t.Fatal(findings)
	}
	if c.Changes[0].Path != "app/[id]/page.tsx" || c.Changes[2].From != "src/old.py" || c.Scope.Paths[1] != "src/new.py" || c.Base == "" {
		t.Errorf("%+v", c)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if again, findings := Parse(b); findings != nil || len(again.Changes) != 3 {
		t.Errorf("what is written is not read: %v", findings)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	with := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for _, tc := range []struct {
		name, in string
		want     []string // a part of each message, in the order of the report
	}{
		{"what is not JSON", `{"task_id": `, []string{"not JSON"}},
		{"nothing", ``, []string{"not JSON"}},
		{"two claims", good + good, []string{"not JSON"}},
		{"what is not UTF-8", with("T-1", "T\xff"), []string{"not UTF-8"}},
		{"a list", `[]`, []string{"agent_id: is missing", "changes: is missing", "scope.paths: is missing", "summary: is missing", "task_id: is missing", "want an object"}},
		{"an unknown field", with(`"summary"`, `"mood": 1, "summary"`), []string{"mood: is not a field"}},
		{"a field in another case", with(`"task_id"`, `"Task_ID"`), []string{"Task_ID: is not a field", "task_id: is missing"}},
		{"a field twice", with(`"summary"`, `"agent_id": "other", "summary"`), []string{"agent_id: is given twice"}},
		{"an unknown field inside", with(`"kind": "mode"`, `"kind": "mode", "why": ""`), []string{"changes[1].why: is not a field"}},
		{"a number for a text", with(`"T-1"`, `1`), []string{"task_id: want text"}},
		{"null for a text", with(`"mode"`, `null`), []string{"changes[1].kind: want text"}},
		{"an object for a list", with(`["app/[id]/page.tsx", "src/new.py"]`, `{}`), []string{"scope.paths: want a list", "is described and not in scope", "is described and not in scope", "is described and not in scope"}},
		{"a summary of 201 characters", with("Guard against a missing total", strings.Repeat("é", 201)), []string{"summary: has 201 characters"}},
		{"a blank summary", with("Guard against a missing total", " "), []string{"summary: is missing"}},
		{"a base by name", with("0123456789abcdef0123456789abcdef01234567", "main"), []string{"base: want the full name"}},
		{"an unknown kind", with(`"mode"`, `"chmod"`), []string{`changes[1].kind: "chmod" is none of`}},
		{"a rename from nowhere", with(`, "from": "src/old.py"`, ``), []string{"changes[2].from: a rename needs"}},
		{"a from without a rename", with(`"kind": "mode"`, `"kind": "mode", "from": "x"`), []string{"changes[1].from: only a rename"}},
		{"a rename to itself", with(`"src/old.py"`, `"src/new.py"`), []string{"is the same as path"}},
		{"a scope without a description", with(`"src/new.py"]`, `"src/new.py", "src/more.py"]`), []string{"is in scope and not described"}},
		{"a description out of scope", with(`, "src/new.py"]`, `]`), []string{"is described and not in scope"}},
		{"a path twice in scope", with(`"src/new.py"]`, `"src/new.py", "src/new.py"]`), []string{"is scope.paths[1] again"}},
		{"the claim itself", strings.ReplaceAll(good, "src/new.py", ".claim/claim.json"), []string{"cannot be claimed", "cannot be claimed"}},
		{"a way out", strings.ReplaceAll(good, "src/new.py", "../new.py"), []string{". or ..", ". or .."}},
		{"all faults at once", `{"task_id": 1, "x": 2, "scope": {"paths": []}, "changes": [{"path": "/a", "description": ""}]}`, []string{
			"agent_id: is missing", "scope.paths: is missing", "summary: is missing", "task_id: want text", "x: is not a field",
			"changes[0].path: \"/a\" cannot be", "changes[0].path: is described and not", "changes[0].description: is missing",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, findings := Parse([]byte(tc.in))
			left := map[int]bool{}
			for i := range findings {
				left[i] = true
				if findings[i].Code != ClaimInvalid {
					t.Errorf("code %s", findings[i].Code)
				}
			}
		next:
			for _, w := range tc.want {
				for i := range findings {
					if left[i] && strings.Contains(findings[i].Message, w) {
						delete(left, i)
						continue next
					}
				}
				t.Errorf("no finding says %q: %v", w, findings)
			}
			for i := range left {
				t.Errorf("and also: %s", findings[i].Message)
			}
		})
	}
}

func TestParseRefusesAHugeClaim(t *testing.T) {
	t.Parallel()
	if _, findings := Parse(make([]byte, maxClaimBytes+1)); len(findings) != 1 {
		t.Errorf("%v", findings)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"scope":{"paths":[1]},"changes":[[]]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, findings := Parse(in)
		if findings == nil && c.Validate() != nil {
			t.Errorf("taken, and not valid: %v", c.Validate())
		}
	})
}
