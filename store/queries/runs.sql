-- The life of a run. No other file writes runs.state; a test of package runs holds this.

-- name: GetRun :one
SELECT * FROM runs WHERE id = @id;

-- name: RunsCreatedSince :one
SELECT count(*) FROM runs WHERE org_id = errand_org() AND created_at >= @since;

-- name: RunsOpenOfIssue :many
SELECT id FROM runs
WHERE issue_id = @issue_id AND state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing')
LIMIT 1;

-- name: RunsInsert :one
INSERT INTO runs (id, org_id, issue_id, event_id, repository_id, state, workflow_file, ref, base_dir, stack_root, source_root,
                  created_at, updated_at, deadline_at)
VALUES (@id, errand_org(), @issue_id, @event_id, @repository_id, 'queued', @workflow_file, @ref, @base_dir, @stack_root, @source_root,
        @now, @now, @deadline_at)
RETURNING *;

-- The one statement that changes a state: it takes effect only where the row is still as it was read. Null means
-- unchanged. What the exchange said of the workflow run is never overwritten.
-- name: RunsMove :many
UPDATE runs SET
  state = @to_state, reason = @reason, detail = @detail, version = version + 1, updated_at = @now::timestamptz,
  deadline_at = @deadline_at, finished_at = sqlc.narg(finished_at),
  dispatch_attempt = coalesce(sqlc.narg(dispatch_attempt), dispatch_attempt),
  dispatched_at = coalesce(sqlc.narg(dispatched_at), dispatched_at),
  workflow_run_id = CASE WHEN exchanged_at IS NULL THEN coalesce(sqlc.narg(workflow_run_id), workflow_run_id) ELSE workflow_run_id END,
  workflow_run_attempt = CASE WHEN exchanged_at IS NULL THEN coalesce(sqlc.narg(workflow_run_attempt), workflow_run_attempt) ELSE workflow_run_attempt END,
  workflow_run_url = CASE WHEN exchanged_at IS NULL OR workflow_run_id = sqlc.narg(workflow_run_id) THEN coalesce(sqlc.narg(workflow_run_url), workflow_run_url) ELSE workflow_run_url END,
  started_at = coalesce(started_at, sqlc.narg(started_at)),
  corrections = coalesce(sqlc.narg(corrections), corrections),
  verdict = coalesce(sqlc.narg(verdict), verdict),
  paths = coalesce(sqlc.narg(paths)::text[], paths),
  summary = coalesce(sqlc.narg(summary), summary),
  branch = coalesce(sqlc.narg(branch), branch),
  pr_number = coalesce(sqlc.narg(pr_number), pr_number),
  pr_url = coalesce(sqlc.narg(pr_url), pr_url),
  pr_draft = coalesce(sqlc.narg(pr_draft), pr_draft),
  result_digest = coalesce(sqlc.narg(result_digest), result_digest),
  tool_calls = coalesce(sqlc.narg(tool_calls), tool_calls)
WHERE id = @id AND version = @version AND state = @from_state
RETURNING *;

-- name: RunsLookAgain :execrows
UPDATE runs SET deadline_at = @deadline_at WHERE id = @id AND version = @version AND finished_at IS NULL;

-- Counts that never arrived are not zero: uncounted says how many requests have none.
-- name: RunsUsage :one
SELECT count(*)::integer AS requests,
  coalesce(sum(amount_pico), 0)::bigint AS amount_pico, (count(*) - count(amount_pico))::integer AS unpriced,
  coalesce(sum(input), 0)::bigint AS input, coalesce(sum(cache_read), 0)::bigint AS cache_read,
  coalesce(sum(coalesce(cache_write_5m, 0) + coalesce(cache_write_1h, 0)), 0)::bigint AS cache_write, coalesce(sum(output), 0)::bigint AS output,
  (count(*) FILTER (WHERE (input + cache_read + cache_write_5m + cache_write_1h + output) IS NULL))::integer AS uncounted
FROM usage_lines WHERE run_id = @run_id;
