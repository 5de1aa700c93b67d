-- What dispatch reads to decide, and the few columns beside runs.state that it writes.

-- name: DispatchEndedRuns :many
SELECT * FROM runs WHERE issue_id = @issue_id AND finished_at IS NOT NULL ORDER BY finished_at DESC, id DESC LIMIT 100;

-- A decision's row carries its delivery's id: the same job worked again finds it.
-- name: DispatchDecided :one
SELECT count(*) FROM journal WHERE id = @delivery;

-- name: DispatchInstallations :many
SELECT * FROM installations ORDER BY id;

-- Where an issue belongs. It is new at one time only, wherever its mapping leads later.
-- name: DispatchPlace :exec
INSERT INTO issue_places (issue_id, org_id, repository_id, new_at) VALUES (@issue_id, errand_org(), @repository_id, @new_at)
ON CONFLICT (issue_id) DO UPDATE SET repository_id = EXCLUDED.repository_id WHERE issue_places.repository_id <> EXCLUDED.repository_id;

-- name: DispatchNewIssues :many
SELECT new_at FROM issue_places WHERE repository_id = @repository_id AND new_at > @since ORDER BY new_at DESC LIMIT @max_rows;

-- The oldest run of another issue that works on the same problem: under way, or with a pull request that stands.
-- name: DispatchSameProblem :many
SELECT * FROM runs
WHERE repository_id = @repository_id AND issue_id <> @issue_id AND problem = @problem AND problem <> ''
  AND (state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing')
    OR state = 'pr_opened' AND pr_fate IN ('', 'open') AND coalesce(pr_fate_at, finished_at) > @news_since::timestamptz)
ORDER BY created_at, id LIMIT 1;

-- name: DispatchReopen :execrows
UPDATE issues SET status = 'open', status_at = @seen_at WHERE id = @id AND status = 'resolved' AND status_at < @seen_at;

-- Zero rows: the incident is known already, and is only prolonged.
-- name: DispatchIncident :execrows
INSERT INTO incidents (repository_id, org_id, opened_at, until_at) VALUES (@repository_id, errand_org(), @now, @until_at)
ON CONFLICT (repository_id) DO UPDATE SET opened_at = EXCLUDED.opened_at, until_at = EXCLUDED.until_at WHERE incidents.until_at <= @now;

-- name: DispatchProlongIncident :exec
UPDATE incidents SET until_at = @until_at WHERE repository_id = @repository_id AND until_at < @until_at;

-- name: DispatchGetWait :many
SELECT * FROM waits WHERE issue_id = @issue_id FOR UPDATE;

-- name: DispatchWait :exec
INSERT INTO waits (issue_id, org_id, gate, since, look_at, until_at, holder, repository_id)
VALUES (@issue_id, errand_org(), @gate, @now, @look_at, @until_at, @holder, @repository_id)
ON CONFLICT (issue_id) DO UPDATE SET
  since = CASE WHEN waits.gate = EXCLUDED.gate THEN waits.since ELSE EXCLUDED.since END,
  looks = CASE WHEN waits.gate = EXCLUDED.gate THEN waits.looks + 1 ELSE 0 END,
  gate = EXCLUDED.gate, look_at = EXCLUDED.look_at, until_at = EXCLUDED.until_at, holder = EXCLUDED.holder, repository_id = EXCLUDED.repository_id;

-- name: DispatchEndWait :exec
DELETE FROM waits WHERE issue_id = @issue_id;

-- Somebody changed a setting: every wait of the organisation is asked again.
-- name: DispatchLookNow :execrows
UPDATE waits SET look_at = @now WHERE org_id = errand_org() AND look_at > @now;

-- name: DispatchSetPolicy :one
UPDATE organisations SET
  min_events = coalesce(sqlc.narg(min_events), min_events),
  excluded_environments = coalesce(sqlc.narg(excluded_environments)::text[], excluded_environments),
  breaker_issues = coalesce(sqlc.narg(breaker_issues), breaker_issues),
  breaker_window_s = coalesce(sqlc.narg(breaker_window_s), breaker_window_s),
  run_ceiling_pico = coalesce(sqlc.narg(run_ceiling_pico), run_ceiling_pico),
  budget_day_pico = CASE WHEN @set_budget_day::boolean THEN sqlc.narg(budget_day_pico)::bigint ELSE budget_day_pico END,
  budget_month_pico = CASE WHEN @set_budget_month::boolean THEN sqlc.narg(budget_month_pico)::bigint ELSE budget_month_pico END
WHERE id = errand_org() RETURNING *;

-- name: DispatchSetRepositoryPolicy :one
UPDATE repositories SET
  open_fix_cap = coalesce(sqlc.narg(open_fix_cap), open_fix_cap),
  budget_day_pico = CASE WHEN @set_budget_day::boolean THEN sqlc.narg(budget_day_pico)::bigint ELSE budget_day_pico END,
  budget_month_pico = CASE WHEN @set_budget_month::boolean THEN sqlc.narg(budget_month_pico)::bigint ELSE budget_month_pico END
WHERE id = @id RETURNING *;

-- name: DispatchDeliveryFailed :execrows
UPDATE delivery_keys SET failed_at = @now::timestamptz WHERE delivery_id = @delivery_id;

-- Found by the run's marker. The exchange's word stands above it.
-- name: DispatchSetWorkflowRun :execrows
UPDATE runs SET workflow_run_id = @workflow_run_id::bigint, workflow_run_url = @workflow_run_url
WHERE id = @id AND exchanged_at IS NULL AND workflow_run_id IS NULL;
