package githubsim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// object is a JSON object of an answer. The answers carry every field that GitHub's own description requires; a test
// holds them against it.
type object map[string]any

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func stampOrNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}

func textOrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// orEmpty makes sure that an empty list is [] and not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func sortedByID[V any](m map[int64]V) []V {
	var out []V
	for _, id := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[id])
	}
	return out
}

func newestFirst[V any](m map[int64]V, id func(V) int64) []V {
	return slices.SortedFunc(maps.Values(m), func(a, b V) int { return cmp.Compare(id(b), id(a)) })
}

func (s *Sim) userJSON(login string, id int64, kind string) object {
	u := s.base + apiPrefix + "/users/" + login
	return object{
		"login": login, "id": id, "node_id": "U_" + strconv.FormatInt(id, 10), "avatar_url": s.base + "/avatars/" + login,
		"gravatar_id": "", "url": u, "html_url": s.base + "/" + login, "followers_url": u + "/followers",
		"following_url": u + "/following{/other_user}", "gists_url": u + "/gists{/gist_id}",
		"starred_url": u + "/starred{/owner}{/repo}", "subscriptions_url": u + "/subscriptions",
		"organizations_url": u + "/orgs", "repos_url": u + "/repos", "events_url": u + "/events{/privacy}",
		"received_events_url": u + "/received_events", "type": kind, "site_admin": false,
	}
}

// appUser is the App's own bot, who starts workflows; jobUser the one of GITHUB_TOKEN.
func (s *Sim) appUser() object { return s.userJSON(s.cfg.AppSlug+"[bot]", 900_000+s.cfg.AppID, "Bot") }
func (s *Sim) jobUser() object { return s.userJSON("github-actions[bot]", 41_898_282, "Bot") }

// ownerID is the owner's id: the account's of the installation, or one made from the name.
func (s *Sim) ownerID(r *repository) int64 {
	if in := s.state.installations[r.Installation]; in != nil {
		return in.AccountID
	}
	return 1 + r.ID
}

func (s *Sim) repositoryURL(r *repository) string {
	return s.base + apiPrefix + "/repos/" + r.fullName()
}

func (s *Sim) repositoryJSON(r *repository) object {
	u, web, at := s.repositoryURL(r), s.base+"/"+r.fullName(), stamp(r.created)
	o := object{
		"id": r.ID, "node_id": "R_" + strconv.FormatInt(r.ID, 10), "name": r.Name, "full_name": r.fullName(),
		"owner": s.userJSON(r.Owner, s.ownerID(r), "Organization"), "private": r.Private, "html_url": web, "url": u,
		"description": nil, "fork": false, "default_branch": r.DefaultBranch, "archived": r.archived, "disabled": false,
		"visibility": map[bool]string{true: "private", false: "public"}[r.Private],
		"git_url":    web + ".git", "ssh_url": web + ".git", "clone_url": web + ".git", "svn_url": web, "mirror_url": nil,
		"homepage": nil, "language": nil, "license": nil, "topics": []string{}, "size": 1,
		"forks": 0, "forks_count": 0, "stargazers_count": 0, "watchers": 0, "watchers_count": 0,
		"open_issues": 0, "open_issues_count": 0, "network_count": 0, "subscribers_count": 0,
		"has_issues": true, "has_projects": false, "has_wiki": false, "has_pages": false, "has_downloads": false,
		"has_discussions": false, "is_template": false, "allow_forking": true, "web_commit_signoff_required": false,
		"pushed_at": at, "created_at": at, "updated_at": at,
	}
	for field, path := range map[string]string{
		"archive_url": "/{archive_format}{/ref}", "assignees_url": "/assignees{/user}", "blobs_url": "/git/blobs{/sha}",
		"branches_url": "/branches{/branch}", "collaborators_url": "/collaborators{/collaborator}",
		"comments_url": "/comments{/number}", "commits_url": "/commits{/sha}", "compare_url": "/compare/{base}...{head}",
		"contents_url": "/contents/{+path}", "contributors_url": "/contributors", "deployments_url": "/deployments",
		"downloads_url": "/downloads", "events_url": "/events", "forks_url": "/forks", "git_commits_url": "/git/commits{/sha}",
		"git_refs_url": "/git/refs{/sha}", "git_tags_url": "/git/tags{/sha}", "hooks_url": "/hooks",
		"issue_comment_url": "/issues/comments{/number}", "issue_events_url": "/issues/events{/number}",
		"issues_url": "/issues{/number}", "keys_url": "/keys{/key_id}", "labels_url": "/labels{/name}",
		"languages_url": "/languages", "merges_url": "/merges", "milestones_url": "/milestones{/number}",
		"notifications_url": "/notifications{?since,all,participating}", "pulls_url": "/pulls{/number}",
		"releases_url": "/releases{/id}", "stargazers_url": "/stargazers", "statuses_url": "/statuses/{sha}",
		"subscribers_url": "/subscribers", "subscription_url": "/subscription", "tags_url": "/tags", "teams_url": "/teams",
		"trees_url": "/git/trees{/sha}",
	} {
		o[field] = u + path
	}
	return o
}

func (s *Sim) installationJSON(in *installation) object {
	o := object{
		"id": in.ID, "app_id": s.cfg.AppID, "app_slug": s.cfg.AppSlug, "client_id": "Iv1.0000000000000000",
		"target_id": in.AccountID, "target_type": "Organization", "account": s.userJSON(in.Account, in.AccountID, "Organization"),
		"repository_selection": "selected", "permissions": in.Permissions, "events": []string{"workflow_job", "workflow_run"},
		"access_tokens_url": fmt.Sprintf("%s%s/app/installations/%d/access_tokens", s.base, apiPrefix, in.ID),
		"repositories_url":  s.base + apiPrefix + "/installation/repositories",
		"html_url":          fmt.Sprintf("%s/organizations/%s/settings/installations/%d", s.base, in.Account, in.ID),
		"single_file_name":  nil, "created_at": stamp(in.created), "updated_at": stamp(in.created),
		"suspended_at": stampOrNil(in.suspendedAt), "suspended_by": nil,
	}
	if !in.suspendedAt.IsZero() {
		o["suspended_by"] = s.userJSON("octo-admin", 7, "User")
	}
	return o
}

func (s *Sim) runURL(r *run) string {
	return fmt.Sprintf("%s/actions/runs/%d", s.repositoryURL(r.repo), r.ID)
}

func (s *Sim) runHTML(r *run) string {
	return fmt.Sprintf("%s/%s/actions/runs/%d", s.base, r.repo.fullName(), r.ID)
}

func (s *Sim) runJSON(r *run) object {
	u := s.runURL(r)
	repo := s.repositoryJSON(r.repo)
	return object{
		"id": r.ID, "name": r.workflowName, "node_id": "WFR_" + strconv.FormatInt(r.ID, 10), "check_suite_id": r.ID + 1,
		"check_suite_node_id": "CS_" + strconv.FormatInt(r.ID, 10), "head_branch": r.Branch, "head_sha": r.SHA,
		"path": r.path, "display_title": r.Title, "run_number": r.number, "event": "workflow_dispatch", "status": r.Status,
		"conclusion": textOrNil(r.Conclusion), "workflow_id": r.workflowID, "url": u, "html_url": s.runHTML(r),
		"pull_requests": []any{}, "created_at": stamp(r.CreatedAt), "updated_at": stamp(r.updatedAt),
		"run_started_at": stamp(r.CreatedAt), "run_attempt": r.Attempt, "referenced_workflows": []any{},
		"actor": s.appUser(), "triggering_actor": s.appUser(), "previous_attempt_url": nil,
		"jobs_url": u + "/jobs", "logs_url": u + "/logs", "artifacts_url": u + "/artifacts", "cancel_url": u + "/cancel",
		"rerun_url": u + "/rerun", "check_suite_url": fmt.Sprintf("%s/check-suites/%d", s.repositoryURL(r.repo), r.ID+1),
		"workflow_url": fmt.Sprintf("%s/actions/workflows/%d", s.repositoryURL(r.repo), r.workflowID),
		"head_commit": object{
			"id": r.SHA, "tree_id": r.SHA, "message": "a commit", "timestamp": stamp(r.CreatedAt),
			"author":    object{"name": "Octo Developer", "email": "octo@example.com"},
			"committer": object{"name": "Octo Developer", "email": "octo@example.com"},
		},
		"repository": repo, "head_repository": repo,
	}
}

func (s *Sim) jobJSON(r *run, j *job) object {
	return object{
		"id": j.id, "run_id": r.ID, "run_url": s.runURL(r), "run_attempt": r.Attempt, "node_id": "CR_" + strconv.FormatInt(j.id, 10),
		"head_sha": r.SHA, "head_branch": r.Branch, "workflow_name": r.workflowName, "name": j.name,
		"url":      fmt.Sprintf("%s/actions/jobs/%d", s.repositoryURL(r.repo), j.id),
		"html_url": fmt.Sprintf("%s/job/%d", s.runHTML(r), j.id), "status": j.status, "conclusion": textOrNil(j.conclusion),
		"created_at": stamp(r.CreatedAt), "started_at": stamp(j.startedAt), "completed_at": stampOrNil(j.completedAt),
		"steps": []any{}, "check_run_url": fmt.Sprintf("%s/check-runs/%d", s.repositoryURL(r.repo), j.id),
		"labels": []string{"ubuntu-latest"}, "runner_id": 1, "runner_name": "githubsim", "runner_group_id": 1,
		"runner_group_name": "GitHub Actions",
	}
}
