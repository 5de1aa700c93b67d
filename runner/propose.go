package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/claims"
	"github.com/errand-dev/errand/git"
	"github.com/errand-dev/errand/models"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/wire"
)

// policyFile is the repository's own policy, read from the base commit.
const policyFile = ".errand/policy.yml"

// proposal is the input of create_pull_request.
type proposal struct {
	Title string        `json:"title"`
	Body  string        `json:"body"`
	Edits []edit        `json:"edits"`
	Claim proposedClaim `json:"claim"`
}

// proposedClaim is what the agent writes of a claim. Scope follows from the changes where it is left out.
type proposedClaim struct {
	Summary string                 `json:"summary"`
	Scope   *claims.Scope          `json:"scope"`
	Changes []claims.ClaimedChange `json:"changes"`
}

// admitted is a proposal that was checked and let through: a commit that is not pushed yet.
type admitted struct {
	Title, Body string
	Claim       claims.Claim
	ClaimHash   string
	Commit      string
	Files       []wire.ClaimFile
	Report      claims.Report
	Draft       bool
}

// proposer checks a proposal and, when it is admitted, has it published.
type proposer struct {
	tree     *tree
	client   *client
	rep      *reporter
	clock    errand.Clock
	console  *console
	scrubber *scrub.Scrubber
	policy   claims.Policy
	start    wire.StartResponse
	agentID  string
	publish  func(ctx context.Context, a admitted) *ending
	seq      int            // proposals that the control plane has seen
	checked  *claims.Report // the last one
	files    []wire.ClaimFile
}

// propose handles one call of create_pull_request. last says that no tool call is left after it. A proposal that cannot be
// read or applied is answered like any other wrong call; one that could be applied is checked, and reported.
func (p *proposer) propose(ctx context.Context, call models.ToolCall, last bool) (models.ToolResult, *ending) {
	started := p.clock()
	step := wire.Step{Tool: toolPropose, Outcome: "ok"}
	result := models.ToolResult{CallID: call.ID, IsError: true}
	a, err := p.build(ctx, call.Input)
	var no *refusal
	switch {
	case ctx.Err() != nil:
		return result, cancelled(ctx)
	case errors.As(err, &no):
		step.Outcome, result.Content = "refused", no.text
	case err != nil:
		return result, ended(errand.Failed, errand.ReasonAgentError, err.Error())
	}
	step.Count, step.DurationMS = len(a.Files), sinceMS(p.clock, started)
	p.rep.step(step)
	if no != nil {
		return result, nil
	}
	return p.decide(ctx, call, a, last)
}

// build makes the commit in memory and in git's store, from the declared paths alone, and holds the claim against it.
func (p *proposer) build(ctx context.Context, input json.RawMessage) (admitted, error) {
	var in proposal
	if err := decode(input, &in); err != nil {
		return admitted{}, err
	}
	a := admitted{Title: p.public(in.Title), Body: p.public(in.Body)}
	a.Title = strings.TrimSpace(plain(quiet(a.Title)))
	switch {
	case a.Title == "" || utf8.RuneCountInString(a.Title) > 200:
		return a, refuse("the title needs 1 to 200 characters")
	case strings.TrimSpace(a.Body) == "":
		return a, refuse("the body is empty: say what happened, the cause and the change")
	}
	changes, err := p.tree.apply(ctx, in.Edits)
	if err != nil {
		return a, err
	}
	a.Claim = p.claim(in.Claim)
	written, _ := json.Marshal(a.Claim) // strings: it cannot fail
	sum := sha256.Sum256(written)
	a.ClaimHash = hex.EncodeToString(sum[:])
	a.Draft = uncertain(a.Body)
	a.Commit, err = p.tree.repo.Commit(ctx, git.CommitSpec{
		Parent: p.tree.base, Message: commitMessage(a, p.start.Run), Changes: changes,
		Author: git.Author{Name: "github-actions[bot]", Email: "41898282+github-actions[bot]@users.noreply.github.com", When: p.clock()},
	})
	if errand.CodeOf(err) == errand.CodeInvalid {
		return a, refuse("the change cannot be made: %v", err)
	}
	if err != nil {
		return a, err
	}
	return a, p.check(ctx, &a)
}

// claim completes what the agent wrote.
func (p *proposer) claim(in proposedClaim) claims.Claim {
	c := claims.Claim{
		TaskID: string(p.start.Run), AgentID: p.agentID, Base: p.tree.base,
		Summary: p.public(in.Summary), Changes: in.Changes,
	}
	for i := range c.Changes {
		c.Changes[i].Description = p.public(c.Changes[i].Description)
	}
	if in.Scope != nil {
		c.Scope = *in.Scope
		return c
	}
	for _, ch := range c.Changes {
		c.Scope.Paths = append(c.Scope.Paths, ch.Path)
		if ch.From != "" {
			c.Scope.Paths = append(c.Scope.Paths, ch.From)
		}
	}
	slices.Sort(c.Scope.Paths)
	c.Scope.Paths = slices.Compact(c.Scope.Paths)
	return c
}

// public makes text of the agent fit to be seen by others: nothing hidden, no secret, none of ours.
func (p *proposer) public(s string) string {
	s = legible(s)
	s, _ = p.scrubber.Text("text", p.console.concealed(s))
	return s
}

// check holds the claim against the difference of the two trees, and looks for secrets in what was added.
func (p *proposer) check(ctx context.Context, a *admitted) error {
	diff, err := p.tree.repo.Diff(ctx, p.tree.base, a.Commit)
	if err != nil {
		return err
	}
	entries := make([]git.Entry, 0, len(p.tree.entries))
	for _, e := range p.tree.entries {
		entries = append(entries, e)
	}
	added, err := p.tree.repo.AddedLines(ctx, p.tree.base, a.Commit)
	if err != nil {
		return err
	}
	more := append(claims.CaseCollisions(diff, entries), p.secrets(added)...)
	a.Report = claims.Check(a.Claim, diff, p.policy).With(more...)
	for _, c := range diff {
		a.Files = append(a.Files, wire.ClaimFile{Path: c.Path, Kind: string(claims.KindOf(c)), Added: c.Added, Removed: c.Removed})
	}
	a.Draft = a.Draft || (a.Report.Verdict == claims.NeedsReview && a.Report.Reason != claims.NoJudge)
	return nil
}

func (p *proposer) secrets(added map[string][]git.Line) []claims.Finding {
	var found []claims.Finding
	for path, lines := range added {
		var text strings.Builder
		starts := make([]int, len(lines))
		for i, l := range lines {
			if _, n := scrub.Hidden(strings.TrimPrefix(l.Text, "\ufeff")); n > 0 { // a mark at the start of a file is not meant to hide
				found = append(found, claims.Finding{
					Code: claims.HiddenCharacters, Path: path, Line: l.Number, Message: "an added line holds characters that a reader does not see",
				})
			}
			starts[i] = text.Len()
			text.WriteString(l.Text)
			text.WriteByte('\n')
		}
		for _, hit := range p.scrubber.FindSecrets(text.String()) {
			i, exact := slices.BinarySearch(starts, hit.Offset)
			if !exact {
				i--
			}
			found = append(found, claims.Finding{
				Code: claims.SecretAdded, Path: path, Line: lines[max(i, 0)].Number,
				Message: "an added line holds what looks like a secret (" + hit.Kind + ")",
			})
		}
	}
	return found
}

// decide reports the check and does what the control plane answers. A rejected change is never published, whatever the
// answer.
func (p *proposer) decide(ctx context.Context, call models.ToolCall, a admitted, last bool) (models.ToolResult, *ending) {
	p.seq++
	p.checked, p.files = &a.Report, a.Files
	req := wire.ClaimRequest{
		Seq: p.seq, Verdict: string(a.Report.Verdict), Reason: a.Report.Reason,
		Files: a.Files[:min(len(a.Files), 200)], Final: last || p.seq >= 2,
	}
	for _, f := range a.Report.Findings[:min(len(a.Report.Findings), 500)] {
		req.Findings = append(req.Findings, wire.Finding{Code: string(f.Code), Path: cut(f.Path, 1024), Line: f.Line})
	}
	result := models.ToolResult{CallID: call.ID, IsError: true}
	var resp wire.ClaimResponse
	if err := p.client.until(ctx, p.clock().Add(callWindow), "claim", req, &resp); err != nil {
		if ctx.Err() != nil {
			return result, cancelled(ctx)
		}
		var e *apiError
		if errors.As(err, &e) && (e.Status == 401 || e.Status == 409) {
			return result, &ending{State: errand.Cancelled, Reason: errand.ReasonCancelledByPerson, Detail: e.Error()}
		}
		return result, ended(errand.Failed, errand.ReasonAgentError, err.Error())
	}
	rejected := a.Report.Verdict == claims.Rejected
	switch {
	case resp.Decision == "admitted" && !rejected:
		return result, p.publish(ctx, a)
	case resp.Decision == "correct" && !req.Final:
		result.Content = findingsText(a.Report)
		return result, nil
	case resp.Decision == "blocked":
		return result, &ending{
			State: errand.Rejected, Reason: errand.ReasonBlockedBy, Summary: a.Claim.Summary,
			Detail: "another verified change to the same path is open: run " + string(resp.BlockedBy),
		}
	case resp.Decision == "rejected", resp.Decision == "correct" && rejected:
		return result, &ending{State: errand.Rejected, Reason: errand.ReasonClaimRejected, Summary: a.Claim.Summary, Detail: a.Report.Words()}
	default:
		return result, ended(errand.Failed, errand.ReasonAgentError, fmt.Sprintf("the control plane answered a %s claim with %q", a.Report.Verdict, cut(resp.Decision, 32)))
	}
}

// findingsText tells the agent what does not hold, once.
func findingsText(r claims.Report) string {
	var b strings.Builder
	b.WriteString("The proposal was refused: the claim and the change do not agree, or the change is not allowed. You may correct it once.\n")
	for i, f := range r.Findings {
		if i == 50 {
			fmt.Fprintf(&b, "... and %d more\n", len(r.Findings)-i)
			break
		}
		fmt.Fprintf(&b, "- %s", f.Code)
		if f.Path != "" {
			fmt.Fprintf(&b, " %s", f.Path)
		}
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		fmt.Fprintf(&b, ": %s\n", f.Message)
	}
	return b.String()
}

// policyOf is the union of what the runner, the workflow file, the control plane and the repository's base commit protect,
// under the lowest of their limits.
func policyOf(ctx context.Context, t *tree, own []string, start wire.StartResponse) (claims.Policy, error) {
	p := claims.DefaultPolicy().With(own...).With(start.Policy.ProtectedPaths...).
		WithLimits(min(start.Limits.MaxFiles, wire.RunFiles), min(start.Limits.MaxChangedLines, wire.RunLines))
	if _, ok := t.entries[policyFile]; ok {
		b, _, err := t.read(ctx, policyFile)
		if err != nil {
			return p, errand.Errorf(errand.CodeInvalid, err, "%s cannot be read", policyFile)
		}
		var file struct {
			Protected []string `yaml:"protected"`
			MaxFiles  *int     `yaml:"max_files"`
			MaxLines  *int     `yaml:"max_lines"`
		}
		if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(&file); err != nil && !errors.Is(err, io.EOF) {
			return p, errand.Errorf(errand.CodeInvalid, err, "%s is not valid: it may hold protected, max_files and max_lines", policyFile)
		}
		files, lines := p.MaxFiles, p.MaxLines
		if file.MaxFiles != nil {
			files = min(files, *file.MaxFiles)
		}
		if file.MaxLines != nil {
			lines = min(lines, *file.MaxLines)
		}
		p = p.With(file.Protected...).WithLimits(files, lines)
	}
	return p, p.Validate()
}
