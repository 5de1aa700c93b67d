-- What the console's pages read, and nothing else: no statement here writes. Rows that may be absent come as '' or 0 with
-- a text or a flag that tells them from real ones.

-- Each run's lines are looked up by its key: the planner would read all lines of all time.
-- name: ConsoleSummary :one
WITH recent AS MATERIALIZED (SELECT id, state FROM runs WHERE org_id = errand_org() AND created_at >= @since),
spent AS (
  SELECT coalesce(sum(u.amount_pico), 0)::bigint AS amount_pico, coalesce(sum(u.unpriced), 0)::integer AS unpriced
  FROM recent CROSS JOIN LATERAL (
    SELECT sum(l.amount_pico) AS amount_pico, count(*) - count(l.amount_pico) AS unpriced FROM usage_lines l WHERE l.run_id = recent.id) u)
SELECT
  (SELECT count(*) FROM runs r WHERE r.org_id = errand_org()
    AND r.state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing')) AS open_runs,
  (SELECT count(*) FROM issues i WHERE i.org_id = errand_org() AND i.last_seen >= @since) AS issues_seen,
  (SELECT count(*) FROM recent) AS runs_started,
  (SELECT count(*) FROM recent WHERE recent.state = 'pr_opened') AS pull_requests,
  spent.amount_pico, spent.unpriced
FROM spent;

-- name: ConsoleIssues :many
SELECT i.id, i.title, i.culprit, i.level, i.platform, i.project, i.status, i.first_seen, i.last_seen, i.deliveries,
  coalesce(d.body, '')::text AS decision,
  coalesce(r.id::text, '')::text AS run_id, coalesce(r.state, '')::text AS run_state, coalesce(r.reason, '')::text AS run_reason
FROM issues i
LEFT JOIN LATERAL (SELECT j.body FROM journal j WHERE j.subject = i.id AND j.kind = 'decision' ORDER BY j.seq DESC LIMIT 1) d ON true
LEFT JOIN LATERAL (SELECT n.id, n.state, n.reason FROM runs n WHERE n.issue_id = i.id ORDER BY n.created_at DESC, n.id DESC LIMIT 1) r ON true
WHERE i.org_id = errand_org()
  AND i.last_seen <= @before_time AND (i.last_seen < @before_time OR i.id > @before_id::uuid)
ORDER BY i.last_seen DESC, i.id
LIMIT @max_rows;

-- name: ConsoleIssue :one
SELECT sqlc.embed(i), s.kind AS source_kind, s.name AS source_name FROM issues i JOIN sources s ON s.id = i.source_id WHERE i.id = @id;

-- name: ConsoleRuns :many
SELECT r.id, r.issue_id, r.state, r.reason, r.created_at, r.started_at, r.finished_at, r.provider, r.model, r.pr_number, r.pr_url, r.pr_draft,
  i.title AS issue_title, p.owner AS repository_owner, p.name AS repository_name,
  u.requests, u.amount_pico, u.unpriced, u.tokens, u.uncounted
FROM runs r
JOIN issues i ON i.id = r.issue_id
JOIN repositories p ON p.id = r.repository_id
CROSS JOIN LATERAL (
  SELECT count(*)::integer AS requests, coalesce(sum(l.amount_pico), 0)::bigint AS amount_pico, (count(*) - count(l.amount_pico))::integer AS unpriced,
    coalesce(sum(coalesce(l.input, 0) + coalesce(l.cache_read, 0) + coalesce(l.cache_write_5m, 0) + coalesce(l.cache_write_1h, 0) + coalesce(l.output, 0)), 0)::bigint AS tokens,
    (count(*) FILTER (WHERE (l.input + l.cache_read + l.cache_write_5m + l.cache_write_1h + l.output) IS NULL))::integer AS uncounted
  FROM usage_lines l WHERE l.run_id = r.id) u
WHERE r.org_id = errand_org() AND r.created_at <= @before_time
  AND (r.created_at < @before_time OR r.id > @before_id::uuid)
  AND (cardinality(@states::text[]) = 0 OR r.state = ANY (@states::text[]))
ORDER BY r.created_at DESC, r.id
LIMIT @max_rows;

-- name: ConsoleRunsOfIssue :many
SELECT r.id, r.issue_id, r.state, r.reason, r.created_at, r.started_at, r.finished_at, r.provider, r.model, r.pr_number, r.pr_url, r.pr_draft,
  i.title AS issue_title, p.owner AS repository_owner, p.name AS repository_name,
  u.requests, u.amount_pico, u.unpriced, u.tokens, u.uncounted
FROM runs r
JOIN issues i ON i.id = r.issue_id
JOIN repositories p ON p.id = r.repository_id
CROSS JOIN LATERAL (
  SELECT count(*)::integer AS requests, coalesce(sum(l.amount_pico), 0)::bigint AS amount_pico, (count(*) - count(l.amount_pico))::integer AS unpriced,
    coalesce(sum(coalesce(l.input, 0) + coalesce(l.cache_read, 0) + coalesce(l.cache_write_5m, 0) + coalesce(l.cache_write_1h, 0) + coalesce(l.output, 0)), 0)::bigint AS tokens,
    (count(*) FILTER (WHERE (l.input + l.cache_read + l.cache_write_5m + l.cache_write_1h + l.output) IS NULL))::integer AS uncounted
  FROM usage_lines l WHERE l.run_id = r.id) u
WHERE r.issue_id = @issue_id
ORDER BY r.created_at DESC, r.id
LIMIT @max_rows;

-- name: ConsoleRun :one
SELECT sqlc.embed(r), i.title AS issue_title, p.owner AS repository_owner, p.name AS repository_name, p.default_branch
FROM runs r JOIN issues i ON i.id = r.issue_id JOIN repositories p ON p.id = r.repository_id
WHERE r.id = @id;

-- name: ConsoleRunSteps :many
SELECT seq, at, tool, path, outcome, count, duration_ms FROM run_steps WHERE run_id = @run_id ORDER BY seq LIMIT @max_rows;

-- name: ConsoleRunUsage :many
SELECT seq, at, provider, model, request_id, input, cache_read, cache_write_5m, cache_write_1h, output, web_searches, amount_pico, catalogue, unpriced_reason
FROM usage_lines WHERE run_id = @run_id ORDER BY seq LIMIT @max_rows;

-- name: ConsoleJournal :many
SELECT seq, id, kind, at, body FROM journal WHERE subject = @subject AND org_id = errand_org() ORDER BY seq DESC LIMIT @max_rows;
