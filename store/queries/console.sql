-- What the console's pages read, and nothing else: no statement here writes. Rows that may be absent come as '' or 0 with
-- a text or a flag that tells them from real ones.

-- Issues are counted by receipt: an event that comes late was seen when it came. Each part is one range of one index
-- (migrations/00008_console.sql).
-- name: ConsoleSummary :one
SELECT
  (SELECT count(*) FROM runs r WHERE r.org_id = errand_org()
    AND r.state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing')) AS open_runs,
  (SELECT count(*) FROM (SELECT DISTINCT e.issue_id FROM events e WHERE e.org_id = errand_org() AND e.received_at >= @since) seen) AS issues_seen,
  (SELECT count(*) FROM runs r WHERE r.org_id = errand_org() AND r.created_at >= @since) AS runs_started,
  (SELECT count(*) FROM runs r WHERE r.org_id = errand_org() AND r.state = 'pr_opened' AND r.created_at >= @since) AS pull_requests,
  spent.amount_pico, spent.unpriced
FROM (
  SELECT coalesce(sum(l.amount_pico), 0)::bigint AS amount_pico, (count(*) - count(l.amount_pico))::integer AS unpriced
  FROM usage_lines l WHERE l.org_id = errand_org() AND l.at >= @since) spent;

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

-- The page is cut out before anything is joined to it.
-- name: ConsoleRuns :many
SELECT r.id, r.issue_id, r.state, r.reason, r.created_at, r.started_at, r.finished_at, r.provider, r.model, r.pr_number, r.pr_url, r.pr_draft,
  i.title AS issue_title, p.owner AS repository_owner, p.name AS repository_name,
  u.requests, u.amount_pico, u.unpriced, u.tokens, u.uncounted
FROM (
  SELECT * FROM runs n
  WHERE n.org_id = errand_org() AND n.created_at <= @before_time AND (n.created_at < @before_time OR n.id > @before_id::uuid)
  ORDER BY n.created_at DESC, n.id LIMIT @max_rows) r
JOIN issues i ON i.id = r.issue_id
JOIN repositories p ON p.id = r.repository_id
CROSS JOIN LATERAL (
  SELECT count(*)::integer AS requests, coalesce(sum(l.amount_pico), 0)::bigint AS amount_pico, (count(*) - count(l.amount_pico))::integer AS unpriced,
    coalesce(sum(coalesce(l.input, 0) + coalesce(l.cache_read, 0) + coalesce(l.cache_write_5m, 0) + coalesce(l.cache_write_1h, 0) + coalesce(l.output, 0)), 0)::bigint AS tokens,
    (count(*) FILTER (WHERE (l.input + l.cache_read + l.cache_write_5m + l.cache_write_1h + l.output) IS NULL))::integer AS uncounted
  FROM usage_lines l WHERE l.run_id = r.id) u
ORDER BY r.created_at DESC, r.id;

-- Of some states only: the newest of each, by its own range of runs_by_state, and of these the newest. A list of the open ones
-- must not read all that have ended.
-- name: ConsoleRunsIn :many
SELECT r.id, r.issue_id, r.state, r.reason, r.created_at, r.started_at, r.finished_at, r.provider, r.model, r.pr_number, r.pr_url, r.pr_draft,
  i.title AS issue_title, p.owner AS repository_owner, p.name AS repository_name,
  u.requests, u.amount_pico, u.unpriced, u.tokens, u.uncounted
FROM (
  SELECT n.* FROM unnest(@states::text[]) AS wanted(state)
  CROSS JOIN LATERAL (
    SELECT * FROM runs k
    WHERE k.org_id = errand_org() AND k.state = wanted.state AND k.created_at <= @before_time AND (k.created_at < @before_time OR k.id > @before_id::uuid)
    ORDER BY k.created_at DESC, k.id LIMIT @max_rows) n
  ORDER BY n.created_at DESC, n.id LIMIT @max_rows) r
JOIN issues i ON i.id = r.issue_id
JOIN repositories p ON p.id = r.repository_id
CROSS JOIN LATERAL (
  SELECT count(*)::integer AS requests, coalesce(sum(l.amount_pico), 0)::bigint AS amount_pico, (count(*) - count(l.amount_pico))::integer AS unpriced,
    coalesce(sum(coalesce(l.input, 0) + coalesce(l.cache_read, 0) + coalesce(l.cache_write_5m, 0) + coalesce(l.cache_write_1h, 0) + coalesce(l.output, 0)), 0)::bigint AS tokens,
    (count(*) FILTER (WHERE (l.input + l.cache_read + l.cache_write_5m + l.cache_write_1h + l.output) IS NULL))::integer AS uncounted
  FROM usage_lines l WHERE l.run_id = r.id) u
ORDER BY r.created_at DESC, r.id;

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

-- name: ConsoleDeliveries :many
SELECT d.id, d.received_at, d.resource, d.action, d.outcome, d.reason, d.body_bytes, d.shape, d.request_id,
  coalesce(i.id::text, '')::text AS issue_id, coalesce(i.title, '')::text AS issue_title
FROM deliveries d LEFT JOIN issues i ON i.id = d.issue_id
WHERE d.source_id = @source_id
ORDER BY d.received_at DESC, d.id DESC
LIMIT @max_rows;
