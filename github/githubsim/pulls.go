package githubsim

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxPullBody is GitHub's limit of a pull request's text, in characters.
const maxPullBody = 65_536

type pullRequest struct {
	Title string `json:"title"`
	Body  string `json:"body"`
	Head  string `json:"head"`
	Base  string `json:"base"`
	Draft bool   `json:"draft"`
}

func invalidPull(message string) *refusal {
	no := refuse(http.StatusUnprocessableEntity, "Validation Failed")
	no.errors = []any{object{"resource": "PullRequest", "code": "custom", "message": message}}
	return no
}

func invalidField(field string) *refusal {
	no := refuse(http.StatusUnprocessableEntity, "Validation Failed")
	no.errors = []any{object{"resource": "PullRequest", "field": field, "code": "invalid"}}
	return no
}

func (s *Sim) createPull(c *call) (int, any, *refusal) {
	var req pullRequest
	if no := c.decode(&req); no != nil {
		return 0, nil, no
	}
	if c.token.caller == callerJob && !c.repo.PullRequests {
		return 0, nil, refuse(http.StatusForbidden, "GitHub Actions is not permitted to create or approve pull requests.")
	}
	ctx := c.r.Context()
	head := strings.TrimPrefix(req.Head, c.repo.Owner+":")
	headSHA, baseSHA, no := s.checkPull(ctx, c.repo, req, head)
	if no != nil {
		return 0, nil, no
	}
	for _, p := range s.state.pulls {
		if p.RepositoryID == c.repo.ID && p.State == "open" && p.Head == head && p.Base == req.Base {
			return 0, nil, invalidPull(fmt.Sprintf("A pull request already exists for %s:%s.", c.repo.Owner, head))
		}
	}
	c.repo.pullNo++
	now := s.clock()
	p := &pull{updatedAt: now, by: s.cfg.AppSlug + "[bot]", PullRequest: PullRequest{
		ID: s.state.id(), Number: c.repo.pullNo, RepositoryID: c.repo.ID, Title: req.Title, Body: req.Body,
		Head: head, HeadSHA: headSHA, Base: req.Base, BaseSHA: baseSHA, State: "open", Draft: req.Draft, CreatedAt: now,
		URL: fmt.Sprintf("%s/%s/pull/%d", s.base, c.repo.fullName(), c.repo.pullNo),
	}}
	if c.token.caller == callerJob {
		p.by = "github-actions[bot]"
	}
	s.state.pulls[p.ID] = p
	return http.StatusCreated, s.pullJSON(ctx, c.repo, p, true), nil
}

func (s *Sim) checkPull(ctx context.Context, r *repository, req pullRequest, head string) (headSHA, baseSHA string, no *refusal) {
	_, headSHA, headOK := resolveRef(ctx, r, "refs/heads/"+head)
	_, baseSHA, baseOK := resolveRef(ctx, r, "refs/heads/"+req.Base)
	switch {
	case strings.TrimSpace(req.Title) == "":
		no = invalidField("title")
	case utf8.RuneCountInString(req.Body) > maxPullBody:
		no = invalidPull(fmt.Sprintf("body is too long (maximum is %d characters)", maxPullBody))
	case !headOK:
		no = invalidField("head")
	case !baseOK:
		no = invalidField("base")
	case headSHA == baseSHA || head == req.Base:
		no = invalidPull(fmt.Sprintf("No commits between %s and %s", req.Base, head))
	default:
		ahead, err := runGit(ctx, r.dir, nil, "rev-list", "--count", baseSHA+".."+headSHA)
		if err == nil && ahead == "0" {
			no = invalidPull(fmt.Sprintf("No commits between %s and %s", req.Base, head))
		}
	}
	return headSHA, baseSHA, no
}

func (s *Sim) listPulls(c *call) (int, any, *refusal) {
	q := c.r.URL.Query()
	state := q.Get("state")
	if state == "" {
		state = "open"
	}
	var list []any
	for _, p := range newestFirst(s.state.pulls, func(p *pull) int64 { return p.ID }) {
		switch {
		case p.RepositoryID != c.repo.ID, state != "all" && p.State != state:
		case q.Get("head") != "" && q.Get("head") != c.repo.Owner+":"+p.Head, q.Get("base") != "" && q.Get("base") != p.Base:
		default:
			list = append(list, s.pullJSON(c.r.Context(), c.repo, p, false))
		}
	}
	return http.StatusOK, orEmpty(page(c, list)), nil
}

func (s *Sim) findPull(c *call) *pull {
	for _, p := range s.state.pulls {
		if p.RepositoryID == c.repo.ID && int64(p.Number) == c.number("number") {
			return p
		}
	}
	return nil
}

func (s *Sim) getPull(c *call) (int, any, *refusal) {
	p := s.findPull(c)
	if p == nil {
		return 0, nil, refuse(http.StatusNotFound, "Not Found")
	}
	return http.StatusOK, s.pullJSON(c.r.Context(), c.repo, p, true), nil
}

// updatePull changes title, text and state. Nothing else: there is no merge here.
func (s *Sim) updatePull(c *call) (int, any, *refusal) {
	p := s.findPull(c)
	if p == nil {
		return 0, nil, refuse(http.StatusNotFound, "Not Found")
	}
	var req struct {
		Title *string `json:"title"`
		Body  *string `json:"body"`
		State *string `json:"state"`
	}
	if no := c.decode(&req); no != nil {
		return 0, nil, no
	}
	if req.Title != nil {
		p.Title = *req.Title
	}
	if req.Body != nil {
		p.Body = *req.Body
	}
	p.updatedAt = s.clock()
	if req.State != nil && (*req.State == "open" || *req.State == "closed") {
		p.State, p.closedAt = *req.State, p.updatedAt
		if p.State == "open" {
			p.closedAt = time.Time{}
		}
	}
	return http.StatusOK, s.pullJSON(c.r.Context(), c.repo, p, true), nil
}

func (s *Sim) pullJSON(ctx context.Context, r *repository, p *pull, full bool) object {
	u := fmt.Sprintf("%s/pulls/%d", s.repositoryURL(r), p.Number)
	issue := fmt.Sprintf("%s/issues/%d", s.repositoryURL(r), p.Number)
	statuses := s.repositoryURL(r) + "/statuses/" + p.HeadSHA
	side := func(ref, sha string) object {
		return object{
			"label": r.Owner + ":" + ref, "ref": ref, "sha": sha, "repo": s.repositoryJSON(r),
			"user": s.userJSON(r.Owner, s.ownerID(r), "Organization"),
		}
	}
	link := func(href string) object { return object{"href": href} }
	by := s.jobUser()
	if p.by != "github-actions[bot]" {
		by = s.appUser()
	}
	o := object{
		"id": p.ID, "node_id": "PR_" + strconv.FormatInt(p.ID, 10), "number": p.Number, "state": p.State, "locked": false,
		"title": p.Title, "body": textOrNil(p.Body), "draft": p.Draft, "user": by, "url": u, "html_url": p.URL,
		"diff_url": p.URL + ".diff", "patch_url": p.URL + ".patch", "issue_url": issue, "commits_url": u + "/commits",
		"comments_url": issue + "/comments", "review_comments_url": u + "/comments",
		"review_comment_url": s.repositoryURL(r) + "/pulls/comments{/number}", "statuses_url": statuses,
		"created_at": stamp(p.CreatedAt), "updated_at": stamp(p.updatedAt), "closed_at": stampOrNil(p.closedAt), "merged_at": nil,
		"merge_commit_sha": nil, "assignee": nil, "assignees": []any{}, "requested_reviewers": []any{}, "requested_teams": []any{},
		"labels": []any{}, "milestone": nil, "author_association": "CONTRIBUTOR", "auto_merge": nil,
		"head": side(p.Head, p.HeadSHA), "base": side(p.Base, p.BaseSHA),
		"_links": object{
			"self": link(u), "html": link(p.URL), "issue": link(issue), "comments": link(issue + "/comments"),
			"review_comments": link(u + "/comments"), "review_comment": link(s.repositoryURL(r) + "/pulls/comments{/number}"),
			"commits": link(u + "/commits"), "statuses": link(statuses),
		},
	}
	if full {
		maps.Copy(o, object{
			"merged": false, "mergeable": true, "rebaseable": true, "mergeable_state": "clean", "merged_by": nil, "comments": 0,
			"review_comments": 0, "maintainer_can_modify": false,
		})
		o["commits"], o["additions"], o["deletions"], o["changed_files"] = countChanges(ctx, r, p)
	}
	return o
}

func countChanges(ctx context.Context, r *repository, p *pull) (commits, additions, deletions, files int) {
	if out, err := runGit(ctx, r.dir, nil, "rev-list", "--count", p.BaseSHA+".."+p.HeadSHA); err == nil {
		commits, _ = strconv.Atoi(out)
	}
	out, err := runGit(ctx, r.dir, nil, "diff", "--numstat", p.BaseSHA+"..."+p.HeadSHA)
	if err != nil || out == "" {
		return commits, 0, 0, 0
	}
	for line := range strings.Lines(out) {
		var a, d int
		_, _ = fmt.Sscanf(line, "%d\t%d", &a, &d)
		additions, deletions, files = additions+a, deletions+d, files+1
	}
	return commits, additions, deletions, files
}
