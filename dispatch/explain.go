package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// Payloads reads a tracker's payload as its deliveries are read (webhooks). It returns Invalid with the field at fault.
type Payloads interface {
	Preview(kind, resource string, body []byte) (errand.Issue, *errand.Event, error)
}

// Question is what is to be explained: an issue that is known, or a payload as it would arrive at a source.
type Question struct {
	Issue    errand.ID // "" = the payload
	Source   errand.ID // of the payload; "" = of none, so that rules for a source do not apply
	Kind     string    // of the payload's source, when Source is ""
	Resource string    // Sentry's Sentry-Hook-Resource; "" = found out
	Payload  []byte
}

// Explanation says which mapping rule is chosen for an error and why, or why none: rule by rule and frame by frame.
type Explanation struct {
	About  About            `json:"about"`
	Gate   errand.Gate      `json:"gate"` // ok, or the gate that the mapping alone gives
	Detail string           `json:"detail"`
	Remedy string           `json:"remedy,omitempty"`
	Chosen *Chosen          `json:"chosen"` // null = no rule
	Rules  []RuleAnswer     `json:"rules"`
	Frames []FrameAnswer    `json:"frames"` // from the crash outwards
	Now    *errand.Decision `json:"decision,omitempty"`
}

// About is what the rules are held against.
type About struct {
	Issue       errand.ID `json:"issue,omitempty"`
	Title       string    `json:"title"`
	Project     string    `json:"project"`
	Platform    string    `json:"platform"`
	Environment string    `json:"environment"`
	Source      errand.ID `json:"source,omitempty"`
	Exception   string    `json:"exception"` // type of the one the event is about; "" = none
}

// Chosen is where the error leads.
type Chosen struct {
	Rule         errand.ID `json:"rule"`
	Position     int32     `json:"position"`
	Repository   string    `json:"repository"` // owner/name
	WorkflowFile string    `json:"workflow_file"`
	Ref          string    `json:"ref"`
	BaseDir      string    `json:"base_dir"`
	Path         string    `json:"path"` // of the deciding frame in the repository; "" for module and project rules
}

// RuleAnswer is one rule and whether it could apply to the error at all; which frame it applies to stands at the frame.
type RuleAnswer struct {
	Rule       errand.ID      `json:"rule"`
	Position   int32          `json:"position"`
	Repository string         `json:"repository"`
	Asks       []string       `json:"asks"` // what it asks for, in words
	Answer     errand.Verdict `json:"answer"`
	Why        string         `json:"why"`
	Chosen     bool           `json:"chosen"`
}

// FrameAnswer is one frame and what each rule says to it.
type FrameAnswer struct {
	Number   int              `json:"number"` // 1 = the crash
	Name     string           `json:"name"`
	Function string           `json:"function"`
	Line     int              `json:"line"`
	InApp    *bool            `json:"in_app"` // null = the SDK did not say
	Asked    bool             `json:"asked"`
	Why      string           `json:"why"`   // of its being asked or not
	Read     []string         `json:"read"`  // its paths, as they are compared
	Rules    []FrameRuleReply `json:"rules"` // of the rules that could apply; empty when it is not asked
	Decides  bool             `json:"decides"`
}

// FrameRuleReply is what one rule says to one frame.
type FrameRuleReply struct {
	Position int32          `json:"position"`
	Answer   errand.Verdict `json:"answer"`
	Why      string         `json:"why"`
}

// Explain answers which rule is chosen for an error and why. For an issue it also says what would be decided now; it
// creates and changes nothing. It returns NotFound for an issue or a source that is not the organisation's, and Invalid for
// a payload that cannot be read.
func (d *Dispatch) Explain(ctx context.Context, org errand.ID, payloads Payloads, q Question) (Explanation, error) {
	if (q.Issue == "") == (len(q.Payload) == 0) {
		return Explanation{}, errand.Invalid("issue", "give the id of an issue, or a payload, and not both")
	}
	var in Input
	var now *errand.Decision
	err := d.store.InTx(ctx, org, func(tx *store.Tx) error {
		o, err := tx.GetOrganisation(ctx)
		if err != nil {
			return err
		}
		if q.Issue != "" {
			if in, _, err = d.load(ctx, tx, o, request{issue: q.Issue}); err != nil {
				return err
			}
			if _, _, err = d.tally(ctx, tx, &in, false); err != nil {
				return err
			}
			decision, _ := Decide(in)
			now = &decision
			return nil
		}
		in = Input{Now: d.clock(), Org: o, Repositories: map[errand.ID]store.Repository{}, Installations: map[int64]store.Installation{}}
		if q.Source != "" {
			source, err := tx.GetSource(ctx, q.Source)
			if err != nil {
				return err
			}
			q.Kind = source.Kind
		}
		return loadMapping(ctx, tx, &in)
	})
	if err != nil {
		return Explanation{}, err
	}
	if q.Issue == "" {
		issue, event, err := payloads.Preview(q.Kind, q.Resource, q.Payload)
		if err != nil {
			return Explanation{}, err
		}
		in.Event = event
		in.Issue = store.Issue{SourceID: q.Source, Title: issue.Title, Project: issue.Project, Platform: issue.Platform}
	}
	x := explain(in)
	x.Now = now
	return x, nil
}

// explain is the pure part.
func explain(in Input) Explanation {
	s := subjectOf(in)
	c := choose(in.Rules, s)
	x := Explanation{
		About: About{
			Issue: in.Issue.ID, Title: in.Issue.Title, Project: s.project, Platform: s.platform, Source: s.source,
			Environment: environment(s),
		},
		Gate: c.gate, Detail: c.detail, Remedy: c.remedy, Rules: []RuleAnswer{}, Frames: []FrameAnswer{},
	}
	name := func(id errand.ID) string {
		if r, ok := in.Repositories[id]; ok {
			return r.Owner + "/" + r.Name
		}
		return "a repository that is not connected"
	}
	if c.rule != nil {
		ref := c.rule.Ref
		if ref == "" {
			ref = in.Repositories[c.rule.RepositoryID].DefaultBranch
		}
		x.Chosen = &Chosen{
			Rule: c.rule.ID, Position: c.rule.Position, Repository: name(c.rule.RepositoryID), WorkflowFile: c.rule.WorkflowFile,
			Ref: ref, BaseDir: c.rule.BaseDir, Path: c.path,
		}
		x.Detail = fmt.Sprintf("Mapping %d is chosen: %s.", c.rule.Position, c.by)
	}
	var could []*store.Mapping
	for i := range in.Rules {
		r := &in.Rules[i]
		a := RuleAnswer{Rule: r.ID, Position: r.Position, Repository: name(r.RepositoryID), Asks: asks(r), Chosen: c.rule != nil && c.rule.ID == r.ID}
		a.Answer, a.Why = couldApply(r, s)
		if a.Answer == errand.Pass {
			could = append(could, r)
		}
		x.Rules = append(x.Rules, a)
	}
	if s.event == nil {
		return x
	}
	if e, ok := s.event.PrimaryException(); ok {
		x.About.Exception = e.Type
		x.Frames = explainFrames(e, could)
	}
	return x
}

func environment(s subject) string {
	if s.event == nil {
		return ""
	}
	return s.event.Environment
}

// explainFrames goes through the frames from the crash outwards. The first that any rule applies to decides; those known to
// be in the application are asked before those of which it is not known.
func explainFrames(e errand.Exception, could []*store.Mapping) []FrameAnswer {
	out := []FrameAnswer{}
	decides := -1
	for i, f := range slices.Backward(e.Frames) {
		if len(out) == maxFramesAsked {
			break
		}
		a := FrameAnswer{
			Number: len(e.Frames) - i, Name: frameName(f), Function: f.Function, Line: f.Line, InApp: f.InApp,
			Asked: f.InApp == nil || *f.InApp, Read: []string{}, Rules: []FrameRuleReply{},
		}
		for _, p := range framePaths(f) {
			a.Read = append(a.Read, p.String())
		}
		switch {
		case f.InApp == nil:
			a.Why = "the SDK does not say whether it is in the application: asked after those that are"
		case *f.InApp:
			a.Why = "in the application"
		default:
			a.Why = "not in the application, as the SDK tells it"
		}
		applied := false
		if a.Asked {
			for _, r := range could {
				reply := replyTo(r, f)
				a.Rules = append(a.Rules, reply)
				applied = applied || reply.Answer == errand.Pass
			}
		}
		out = append(out, a)
		if applied && (decides < 0 || out[decides].InApp == nil && f.InApp != nil) {
			decides = len(out) - 1
		}
	}
	if decides >= 0 {
		out[decides].Decides = true
	}
	return out
}

// replyTo says whether a rule applies to a frame. A frame that does not tell what the rule asks for is unknown to it.
func replyTo(r *store.Mapping, f errand.Frame) FrameRuleReply {
	reply := FrameRuleReply{Position: r.Position, Answer: errand.Fail}
	c, ok := applies(r, f)
	switch {
	case ok && c.path != "":
		reply.Answer, reply.Why = errand.Pass, "it is "+c.path+" in the repository"
	case ok:
		reply.Answer, reply.Why = errand.Pass, fmt.Sprintf("the module %q begins with %q", f.Module, r.ModulePrefix)
	case isProjectRule(r):
		reply.Why = "it is for the project as a whole, and is asked when no frame decides"
	case r.ModulePrefix != "" && f.Module == "":
		reply.Answer, reply.Why = errand.Unknown, "the frame names no module"
	case r.StackRoot != "" && len(framePaths(f)) == 0:
		reply.Answer, reply.Why = errand.Unknown, "the frame names a file without its folders, or none"
	case r.ModulePrefix != "" && r.StackRoot == "":
		reply.Why = fmt.Sprintf("the module %q does not begin with %q", f.Module, r.ModulePrefix)
	case r.StackRoot != "":
		reply.Why = fmt.Sprintf("its path does not begin with %q", parsePath(r.StackRoot).String())
	default:
		reply.Why = "the rule asks for nothing, and so applies to nothing"
	}
	return reply
}

// couldApply asks what a rule asks of the error as a whole. What the error does not tell is unknown, and an unknown does
// not apply either; one condition that is known not to hold settles it.
func couldApply(r *store.Mapping, s subject) (errand.Verdict, string) {
	why := conditionsHold(r, s)
	switch {
	case why == "" && len(asks(r)) == 0:
		return errand.Fail, "it asks for nothing, and so applies to nothing"
	case why == "":
		return errand.Pass, "what it asks of the error as a whole holds"
	}
	for _, untold := range []struct {
		asked bool
		lift  func(*store.Mapping)
	}{
		{r.SourceID != nil && s.source == "", func(m *store.Mapping) { m.SourceID = nil }},
		{r.Project != "" && s.project == "", func(m *store.Mapping) { m.Project = "" }},
		{r.Platform != "" && s.platform == "", func(m *store.Mapping) { m.Platform = "" }},
		{r.Environment != "" && environment(s) == "", func(m *store.Mapping) { m.Environment = "" }},
	} {
		if untold.asked {
			without := *r
			untold.lift(&without)
			r = &without
		}
	}
	if conditionsHold(r, s) == "" {
		return errand.Unknown, why + ", as far as the error tells"
	}
	return errand.Fail, conditionsHold(r, s)
}

// asks says what a rule asks for, in words.
func asks(r *store.Mapping) []string {
	out := []string{}
	add := func(what, value string) {
		if value != "" {
			out = append(out, what+" "+value)
		}
	}
	if r.SourceID != nil {
		add("source", string(*r.SourceID))
	}
	add("project", r.Project)
	add("platform", r.Platform)
	add("environment", r.Environment)
	if r.TagKey != "" {
		add("tag", r.TagKey+"="+r.TagValue)
	}
	add("module prefix", r.ModulePrefix)
	if r.StackRoot != "" {
		add("stack root", r.StackRoot+" -> "+strings.TrimSuffix("/"+strings.Trim(r.SourceRoot, "/"), "/")+"/")
	}
	return out
}
