-- The life of a run. No other file writes runs.state; a test of package runs holds this.

-- name: GetRun :one
SELECT * FROM runs WHERE id = @id;

-- name: RunsCreatedSince :one
SELECT count(*) FROM runs WHERE org_id = errand_org() AND created_at >= @since;

-- name: RunsOpenOfIssue :many
SELECT id FROM runs
WHERE issue_id = @issue_id AND state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing')
LIMIT 1;

-- What holds a place under the repository's cap: runs under way, and pull requests that stand, as far as anybody knows.
-- name: RunsOpenFixes :one
SELECT count(*) FROM runs
WHERE repository_id = @repository_id
  AND (state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing')
    OR state = 'pr_opened' AND pr_fate IN ('', 'open') AND coalesce(pr_fate_at, finished_at) > @news_since::timestamptz);

-- What runs cost since the beginning of the month and of the day, by the day of their creation. A run under way counts with
-- what it reserved, unless it has used more already; so does one that started and never reported anything, because what it
-- used is not known to be nothing.
-- name: RunsSpent :one
WITH spent AS (
  SELECT r.repository_id = @repository_id AS here, r.created_at >= @day AS today, u.unpriced,
    GREATEST(u.used, CASE WHEN r.finished_at IS NULL OR r.started_at IS NOT NULL AND u.lines = 0 THEN r.reserved_pico ELSE 0 END) AS cost
  FROM runs r CROSS JOIN LATERAL (
    SELECT coalesce(sum(l.amount_pico), 0) AS used, count(*) AS lines, count(*) - count(l.amount_pico) AS unpriced
    FROM usage_lines l WHERE l.run_id = r.id) u
  WHERE r.org_id = errand_org() AND r.created_at >= @month)
SELECT
  LEAST(coalesce(sum(cost), 0), 9223372036854775807)::bigint AS org_month, coalesce(sum(unpriced), 0)::bigint AS org_month_unpriced,
  LEAST(coalesce(sum(cost) FILTER (WHERE today), 0), 9223372036854775807)::bigint AS org_day,
  coalesce(sum(unpriced) FILTER (WHERE today), 0)::bigint AS org_day_unpriced,
  LEAST(coalesce(sum(cost) FILTER (WHERE here), 0), 9223372036854775807)::bigint AS repository_month,
  coalesce(sum(unpriced) FILTER (WHERE here), 0)::bigint AS repository_month_unpriced,
  LEAST(coalesce(sum(cost) FILTER (WHERE here AND today), 0), 9223372036854775807)::bigint AS repository_day,
  coalesce(sum(unpriced) FILTER (WHERE here AND today), 0)::bigint AS repository_day_unpriced
FROM spent;

-- What became of the pull request. Merged is final; otherwise the later word counts.
-- name: RunsSetFate :execrows
UPDATE runs SET pr_fate = @fate, pr_fate_at = @at::timestamptz, pr_fate_from = @said_by
WHERE id = @id AND state = 'pr_opened' AND pr_fate <> 'merged' AND (pr_fate_at IS NULL OR pr_fate_at <= @at::timestamptz);

-- What waited for this run: its own issue, the same problem elsewhere, a place under the repository's cap, money reserved.
-- Locked in one order, so that two ends never wait for each other in a circle.
-- name: RunsRelease :exec
UPDATE waits SET look_at = @now WHERE issue_id IN (
  SELECT w.issue_id FROM waits w
  WHERE w.org_id = errand_org() AND w.look_at > @now
    AND (w.holder = @run_id OR w.gate = 'open_fix_cap' AND w.repository_id = @repository_id OR w.gate = 'money_budget')
  ORDER BY w.issue_id FOR UPDATE);

-- name: RunsInsert :one
INSERT INTO runs (id, org_id, issue_id, event_id, repository_id, state, workflow_file, ref, base_dir, stack_root, source_root,
                  problem, reserved_pico, created_at, updated_at, deadline_at)
VALUES (@id, errand_org(), @issue_id, @event_id, @repository_id, 'queued', @workflow_file, @ref, @base_dir, @stack_root, @source_root,
        @problem, @reserved_pico, @now, @now, @deadline_at)
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
