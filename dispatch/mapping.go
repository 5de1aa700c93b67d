package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// subject is what the rules are held against.
type subject struct {
	source   errand.ID
	project  string
	platform string
	event    *errand.Event // nil = none is known
}

// choice is the answer of the rules: the one that applies, or the gate that says why none does.
type choice struct {
	gate     errand.Gate // GateOK with a rule
	rule     *store.Mapping
	path     string // where the deciding frame lies in the repository; "" for module and project rules
	by       string // what decided, in words
	detail   string
	remedy   string
	evidence []errand.Evidence
}

// rank orders rules that apply to the same frame: a path is a stronger sign than a module's name, then the longer root,
// then the one that asks for more (project, environment, ...). The rules' order is no part of it.
type rank struct{ path, length, conditions int }

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.path, o.path), cmp.Compare(r.length, o.length), cmp.Compare(r.conditions, o.conditions))
}

type candidate struct {
	rule *store.Mapping
	rank rank
	path string
}

// maxFramesAsked bounds the work for one event; an application's own frames stand near the crash.
const maxFramesAsked = 100

// choose finds the rule for an event. The frames of the primary exception are asked from the crash outwards, those known to
// be in the application first, then those of which it is not known; the first frame to which any rule applies decides.
// Only then are the project rules asked: those that name neither a stack root nor a module, but a source, a project, a
// platform, an environment or a tag. Two rules of equal rank that lead to different places are ambiguous.
func choose(rules []store.Mapping, s subject) choice {
	var held []*store.Mapping // rules whose conditions hold
	var why []errand.Evidence
	for i := range rules {
		if reason := conditionsHold(&rules[i], s); reason != "" {
			why = append(why, evidence(&rules[i], reason))
			continue
		}
		held = append(held, &rules[i])
	}
	all, frames := applicationFrames(s.event)
	for _, f := range frames {
		var fit []candidate
		for _, r := range held {
			if c, ok := applies(r, f); ok {
				fit = append(fit, c)
			}
		}
		if len(fit) > 0 {
			return best(fit, "the frame "+frameName(f))
		}
	}
	var fit []candidate
	for _, r := range held {
		if isProjectRule(r) {
			fit = append(fit, candidate{rule: r, rank: rank{conditions: conditions(r)}})
		}
	}
	if len(fit) > 0 {
		return best(fit, "the error's project")
	}
	return none(held, why, all, frames)
}

// none says why no rule applies.
func none(held []*store.Mapping, why []errand.Evidence, all int, frames []errand.Frame) choice {
	c := choice{gate: errand.GateNoMapping, evidence: why}
	located, rooted := false, false
	for _, f := range frames {
		located = located || len(framePaths(f)) > 0
	}
	for _, r := range held {
		rooted = rooted || r.StackRoot != ""
		c.evidence = append(c.evidence, evidence(r, missed(r)))
	}
	switch {
	case all == 0:
		c.gate = errand.GateNoStack
		c.detail = "The event has no stack trace, and no rule covers its project as a whole."
		c.remedy = "Add a mapping that names the source or the project and no stack root."
	case len(frames) == 0:
		c.detail = fmt.Sprintf("None of the %d frames is in the application, as the SDK tells it.", all)
		c.remedy = "Set the SDK's in-app rules, or add a mapping for the whole project."
	case !located && rooted:
		c.gate = errand.GateMappingUnknown
		c.detail = "The frames name files without their folders, so no stack root can be held against them."
		c.remedy = "Add a mapping with a module prefix, or one for the whole project."
	default:
		c.detail = "No mapping applies to any frame, the nearest of which is " + frameName(frames[0]) + "."
		c.remedy = "Add a mapping whose stack root is the beginning of its path."
	}
	return c
}

// best picks the highest rank. Equal ranks that lead to the same place are one answer; which of them is named does not
// depend on their order.
func best(fit []candidate, of string) choice {
	top := slices.MaxFunc(fit, func(a, b candidate) int { return a.rank.compare(b.rank) }).rank
	fit = slices.DeleteFunc(fit, func(c candidate) bool { return c.rank != top })
	slices.SortFunc(fit, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rule.Position, b.rule.Position), cmp.Compare(a.rule.ID, b.rule.ID))
	})
	won := fit[0]
	c := choice{gate: errand.GateOK, rule: won.rule, path: won.path, by: "it applies to " + of}
	for _, other := range fit {
		c.evidence = append(c.evidence, evidence(other.rule, "applies to "+of))
		if !sameTarget(other.rule, won.rule) {
			c.gate, c.rule, c.path = errand.GateAmbiguous, nil, ""
		}
	}
	if c.gate == errand.GateAmbiguous {
		c.detail = fmt.Sprintf("%d mappings apply equally well to %s and lead to different places.", len(fit), of)
		c.remedy = "Make one of them longer, or give it a condition that the other lacks."
	} else if won.path != "" {
		c.evidence = append(c.evidence, errand.Evidence{From: "stack trace", Seen: of + " is " + won.path + " in the repository"})
	}
	return c
}

func sameTarget(a, b *store.Mapping) bool {
	return a.RepositoryID == b.RepositoryID && a.WorkflowFile == b.WorkflowFile && a.Ref == b.Ref && a.BaseDir == b.BaseDir &&
		slices.Equal(components(a.SourceRoot), components(b.SourceRoot))
}

// conditionsHold gives "" when what the rule asks of the error as a whole is so, and otherwise what is not.
func conditionsHold(r *store.Mapping, s subject) string {
	env := ""
	if s.event != nil {
		env = s.event.Environment
	}
	switch {
	case r.SourceID != nil && *r.SourceID != s.source:
		return "is for another source"
	case r.Project != "" && r.Project != s.project:
		return fmt.Sprintf("is for the project %q, not %q", r.Project, s.project)
	case r.Platform != "" && !strings.EqualFold(r.Platform, s.platform):
		return fmt.Sprintf("is for the platform %q, not %q", r.Platform, s.platform)
	case r.Environment != "" && r.Environment != env:
		return fmt.Sprintf("is for the environment %q, not %q", r.Environment, env)
	case r.TagKey != "" && !hasTag(s.event, r.TagKey, r.TagValue):
		return fmt.Sprintf("asks for the tag %s=%s", r.TagKey, r.TagValue)
	default:
		return ""
	}
}

func hasTag(e *errand.Event, key, value string) bool {
	return e != nil && slices.Contains(e.Tags, errand.Tag{Key: key, Value: value})
}

func conditions(r *store.Mapping) int {
	n := 0
	for _, set := range []bool{r.SourceID != nil, r.Project != "", r.Platform != "", r.Environment != "", r.TagKey != ""} {
		if set {
			n++
		}
	}
	return n
}

// isProjectRule: a rule that asks for nothing at all applies to nothing, so that an empty form maps no error.
func isProjectRule(r *store.Mapping) bool {
	return r.StackRoot == "" && r.ModulePrefix == "" && conditions(r) > 0
}

// applies holds a rule with a stack root or a module prefix (or both: then both must hold) against one frame.
func applies(r *store.Mapping, f errand.Frame) (candidate, bool) {
	c := candidate{rule: r, rank: rank{conditions: conditions(r)}}
	if r.StackRoot == "" && r.ModulePrefix == "" {
		return c, false
	}
	if r.ModulePrefix != "" {
		prefix, module := moduleParts(r.ModulePrefix), moduleParts(f.Module)
		if len(prefix) == 0 || len(module) < len(prefix) || !slices.Equal(module[:len(prefix)], prefix) {
			return c, false
		}
		c.rank.length = len(prefix)
	}
	if r.StackRoot == "" {
		return c, true
	}
	root := parsePath(r.StackRoot)
	for _, p := range framePaths(f) {
		if rest, ok := p.under(root); ok {
			c.rank.path, c.rank.length = 1, len(root.parts)
			c.path = strings.Join(append(components(strings.ReplaceAll(r.SourceRoot, `\`, "/")), rest...), "/")
			return c, true
		}
	}
	return c, false
}

// framePaths gives the frame's paths that say where: a bare file name does not, and then the absolute path may.
func framePaths(f errand.Frame) []stackPath {
	var out []stackPath
	for _, s := range []string{f.Filename, f.AbsPath} {
		if p := parsePath(s); !p.bare && len(p.parts) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// applicationFrames gives the frames to ask, in order, and how many the exception has altogether.
func applicationFrames(e *errand.Event) (all int, frames []errand.Frame) {
	if e == nil {
		return 0, nil
	}
	x, ok := e.PrimaryException()
	if !ok {
		return 0, nil
	}
	var unknown []errand.Frame
	for _, f := range slices.Backward(x.Frames) {
		switch {
		case f.InApp == nil:
			unknown = append(unknown, f)
		case *f.InApp:
			frames = append(frames, f)
		}
	}
	frames = append(frames, unknown...)
	return len(x.Frames), frames[:min(len(frames), maxFramesAsked)]
}

// frameName names a frame by all that a stack root may be the beginning of.
func frameName(f errand.Frame) string {
	if f.Filename != "" && f.AbsPath != "" && f.AbsPath != f.Filename {
		return f.Filename + " (" + f.AbsPath + ")"
	}
	for _, s := range []string{f.Filename, f.AbsPath, f.Module, f.Function} {
		if s != "" {
			return s
		}
	}
	return "without a name"
}

func evidence(r *store.Mapping, seen string) errand.Evidence {
	return errand.Evidence{From: fmt.Sprintf("mapping %d", r.Position), Seen: seen}
}

func missed(r *store.Mapping) string {
	switch {
	case r.StackRoot != "":
		return fmt.Sprintf("its stack root %q is the beginning of no frame's path", r.StackRoot)
	case r.ModulePrefix != "":
		return fmt.Sprintf("its module prefix %q is the beginning of no frame's module", r.ModulePrefix)
	default:
		return "it asks for nothing, and so applies to nothing"
	}
}
