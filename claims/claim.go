package claims

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/git"
)

// Kind is what a claim says happened to a path. "" is an edit.
type Kind string

// The kinds of a claimed change.
const (
	KindEdit      Kind = "edit" // new content, of a file that was there or was not
	KindAdd       Kind = "add"
	KindDelete    Kind = "delete"
	KindRename    Kind = "rename" // From is gone and Path is new, whatever their content
	KindMode      Kind = "mode"
	KindBinary    Kind = "binary"
	KindSymlink   Kind = "symlink"
	KindSubmodule Kind = "submodule"
)

var kinds = []Kind{KindEdit, KindAdd, KindDelete, KindRename, KindMode, KindBinary, KindSymlink, KindSubmodule}

// Bounds of a claim.
const (
	maxClaimBytes  = 1 << 20
	maxID          = 200  // characters of task_id and agent_id
	maxSummary     = 200  // characters
	maxDescription = 2000 // characters
	maxPaths       = 2000 // of scope, and of changes
)

// Dir is where a claim lives in a branch. What is under it is outside every check and never part of a fix.
const Dir = ".claim/"

// Claim is .claim/claim.json: what an agent says it changed. Paths are exact names, never patterns.
type Claim struct {
	TaskID  string          `json:"task_id"`
	AgentID string          `json:"agent_id"`
	Summary string          `json:"summary"`
	Base    string          `json:"base,omitempty"` // the full name of the commit the change starts from
	Scope   Scope           `json:"scope"`
	Changes []ClaimedChange `json:"changes"`
}

// Scope is the paths that the agent says it touched.
type Scope struct {
	Paths []string `json:"paths"`
}

// ClaimedChange describes one change of one path. A path may have several descriptions.
type ClaimedChange struct {
	Path        string `json:"path"`
	Description string `json:"description"`
	Kind        Kind   `json:"kind,omitempty"`
	From        string `json:"from,omitempty"` // of a rename: the path before
}

// problem is one fault of a claim: where in the JSON, at which repository path if one is known, and what.
type problem struct{ field, path, what string }

// Parse reads a claim strictly: no unknown or repeated key, the right types, nothing after it, and every rule of
// Validate. All faults are reported together, each as a CLAIM_INVALID; none means that the claim stands.
func Parse(data []byte) (Claim, []Finding) {
	var c Claim
	if len(data) > maxClaimBytes {
		return c, invalid(problem{what: fmt.Sprintf("the claim has %d bytes, more than %d", len(data), maxClaimBytes)})
	}
	if !utf8.Valid(data) {
		return c, invalid(problem{what: "the claim is not UTF-8"})
	}
	if !json.Valid(data) {
		var any json.RawMessage
		err := json.Unmarshal(data, &any)
		var at *json.SyntaxError
		if errors.As(err, &at) {
			return c, invalid(problem{what: fmt.Sprintf("the claim is not JSON: %v (at byte %d)", err, at.Offset)})
		}
		return c, invalid(problem{what: "the claim is not JSON"})
	}
	d := &decoder{}
	d.object("", data, map[string]func(string, json.RawMessage){
		"task_id":  d.text(&c.TaskID),
		"agent_id": d.text(&c.AgentID),
		"summary":  d.text(&c.Summary),
		"base":     d.text(&c.Base),
		"scope": func(at string, raw json.RawMessage) {
			d.object(at, raw, map[string]func(string, json.RawMessage){
				"paths": func(at string, raw json.RawMessage) {
					d.list(at, raw, func(at string, raw json.RawMessage) {
						var p string
						d.text(&p)(at, raw)
						c.Scope.Paths = append(c.Scope.Paths, p)
					})
				},
			})
		},
		"changes": func(at string, raw json.RawMessage) {
			d.list(at, raw, func(at string, raw json.RawMessage) {
				var ch ClaimedChange
				d.object(at, raw, map[string]func(string, json.RawMessage){
					"path": d.text(&ch.Path), "description": d.text(&ch.Description), "kind": d.text((*string)(&ch.Kind)), "from": d.text(&ch.From),
				})
				c.Changes = append(c.Changes, ch)
			})
		},
	})
	faults := d.problems
	for _, p := range c.problems() {
		// A field of the wrong type was left empty: saying that it is empty too would only confuse.
		if !slices.ContainsFunc(d.problems, func(q problem) bool { return q.field != "" && strings.HasPrefix(p.field, q.field) }) {
			faults = append(faults, p)
		}
	}
	return c, invalid(faults...)
}

// Validate checks a claim that was made in memory. All faults are reported together, each as a CLAIM_INVALID.
func (c Claim) Validate() []Finding { return invalid(c.problems()...) }

func invalid(faults ...problem) []Finding {
	var all []Finding
	for _, p := range faults {
		message := p.what
		if p.field != "" {
			message = p.field + ": " + p.what
		}
		all = append(all, Finding{Code: ClaimInvalid, Path: shown(p.path), Message: message})
	}
	return newReport(all).Findings
}

func (c Claim) problems() []problem {
	var all []problem
	text := func(field, s string, limit int) {
		switch n := utf8.RuneCountInString(s); {
		case strings.TrimSpace(s) == "":
			all = append(all, problem{field: field, what: "is missing or empty"})
		case n > limit:
			all = append(all, problem{field: field, what: fmt.Sprintf("has %d characters, more than %d", n, limit)})
		case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
			all = append(all, problem{field: field, what: "holds a control character"})
		}
	}
	text("task_id", c.TaskID, maxID)
	text("agent_id", c.AgentID, maxID)
	text("summary", c.Summary, maxSummary)
	if c.Base != "" && !git.IsHash(c.Base) {
		all = append(all, problem{field: "base", what: "want the full name of a commit (40 or 64 lower-case hexadecimal digits)"})
	}
	scope := map[string]int{}
	for i, p := range c.Scope.Paths {
		field := fmt.Sprintf("scope.paths[%d]", i)
		if first, twice := scope[p]; twice {
			all = append(all, problem{field: field, path: p, what: fmt.Sprintf("is scope.paths[%d] again", first)})
			continue
		}
		scope[p] = i
		all = append(all, pathProblem(field, p)...)
	}
	described := map[string]bool{}
	for i, ch := range c.Changes {
		field := fmt.Sprintf("changes[%d]", i)
		all = append(all, pathProblem(field+".path", ch.Path)...)
		text(field+".description", ch.Description, maxDescription)
		all = append(all, ch.kindProblems(field)...)
		described[ch.Path] = true
		if ch.From != "" {
			described[ch.From] = true
		}
		if _, ok := scope[ch.Path]; !ok {
			all = append(all, problem{field: field + ".path", path: ch.Path, what: "is described and not in scope.paths: add it there"})
		}
	}
	for i, p := range c.Scope.Paths {
		if !described[p] {
			all = append(all, problem{field: fmt.Sprintf("scope.paths[%d]", i), path: p, what: "is in scope and not described: add a change for it"})
		}
	}
	for _, l := range []struct {
		field string
		n     int
	}{{"scope.paths", len(c.Scope.Paths)}, {"changes", len(c.Changes)}} {
		switch {
		case l.n == 0:
			all = append(all, problem{field: l.field, what: "is missing or empty"})
		case l.n > maxPaths:
			all = append(all, problem{field: l.field, what: fmt.Sprintf("has %d entries, more than %d", l.n, maxPaths)})
		}
	}
	return all
}

func (ch ClaimedChange) kindProblems(field string) []problem {
	switch {
	case ch.Kind != "" && !slices.Contains(kinds, ch.Kind):
		return []problem{{field: field + ".kind", path: ch.Path, what: fmt.Sprintf("%q is none of %v", ch.Kind, kinds)}}
	case ch.Kind == KindRename && ch.From == "":
		return []problem{{field: field + ".from", path: ch.Path, what: "a rename needs the path it was before"}}
	case ch.Kind != KindRename && ch.From != "":
		return []problem{{field: field + ".from", path: ch.Path, what: "only a rename has it"}}
	case ch.Kind == KindRename && ch.From == ch.Path:
		return []problem{{field: field + ".from", path: ch.Path, what: "is the same as path"}}
	case ch.Kind == KindRename:
		return pathProblem(field+".from", ch.From)
	default:
		return nil
	}
}

func pathProblem(field, p string) []problem {
	if err := git.CheckPath(p); err != nil {
		var e *errand.Error
		what := "is no repository path"
		if errors.As(err, &e) {
			what = e.Message
		}
		return []problem{{field: field, path: p, what: what}}
	}
	if strings.HasPrefix(p, Dir) {
		return []problem{{field: field, path: p, what: "is part of the claim itself and cannot be claimed"}}
	}
	return nil
}

// decoder reads JSON strictly and goes on after a fault, so that all are found in one reading.
type decoder struct{ problems []problem }

func (d *decoder) fault(at, format string, args ...any) {
	d.problems = append(d.problems, problem{field: at, what: fmt.Sprintf(format, args...)})
}

func (d *decoder) object(at string, raw json.RawMessage, fields map[string]func(string, json.RawMessage)) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		d.fault(at, "want an object")
		return
	}
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		key, ok := tok.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			d.fault(at, "cannot be read")
			return
		}
		place := strings.TrimPrefix(at+"."+key, ".")
		read, known := fields[key]
		switch {
		case !known:
			d.fault(place, "is not a field of a claim")
		case seen[key]:
			d.fault(place, "is given twice")
		default:
			read(place, value)
		}
		seen[key] = true
	}
	if at == "" { // the claim as a whole: nothing may follow it
		_, _ = dec.Token()
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			d.fault("", "something follows the claim")
		}
	}
}

func (d *decoder) list(at string, raw json.RawMessage, each func(string, json.RawMessage)) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil || items == nil {
		d.fault(at, "want a list")
		return
	}
	for i, item := range items {
		each(fmt.Sprintf("%s[%d]", at, i), item)
	}
}

func (d *decoder) text(to *string) func(string, json.RawMessage) {
	return func(at string, raw json.RawMessage) {
		var s *string
		if json.Unmarshal(raw, &s) != nil || s == nil {
			d.fault(at, "want text")
			return
		}
		*to = *s
	}
}
