-- What a delivery writes: its key, its issue, an event sample and its own row, in one transaction. No statement asks for the
-- one organisation of the transaction, so that a writer may put deliveries of several into one commit.

-- Zero rows: the key was claimed before. One whose processing failed for good is claimed again.
-- name: WebhooksClaim :execrows
INSERT INTO delivery_keys (source_id, key, org_id, delivery_id, received_at) VALUES (@source_id, @key, @org_id, @delivery_id, @received_at)
ON CONFLICT ON CONSTRAINT delivery_keys_pkey
DO UPDATE SET failed_at = NULL, delivery_id = EXCLUDED.delivery_id, received_at = EXCLUDED.received_at
WHERE delivery_keys.failed_at IS NOT NULL;

-- name: WebhooksReclaim :exec
UPDATE delivery_keys SET failed_at = NULL, delivery_id = @delivery_id, received_at = @received_at WHERE source_id = @source_id AND key = @key;

-- name: WebhooksLockStatus :one
SELECT status, status_at FROM issues WHERE source_id = @source_id AND provider_id = @provider_id FOR UPDATE;

-- What is older than what is stored changes nothing but the ends of the span. A later occurrence re-opens a resolved issue.
-- name: WebhooksUpsertIssue :one
INSERT INTO issues (id, org_id, source_id, provider_id, fingerprint, title, culprit, level, platform, project, link,
                    status, status_at, first_seen, last_seen, deliveries, created_at)
VALUES (@id, @org_id, @source_id, @provider_id, @fingerprint, @title, @culprit, @level, @platform, @project, @link,
        @status, @status_at, @first_seen, @last_seen, 1, @created_at)
ON CONFLICT ON CONSTRAINT issues_provider_key DO UPDATE SET
  fingerprint = CASE WHEN EXCLUDED.last_seen >= issues.last_seen AND EXCLUDED.fingerprint <> '' OR issues.fingerprint = '' THEN EXCLUDED.fingerprint ELSE issues.fingerprint END,
  title       = CASE WHEN EXCLUDED.last_seen >= issues.last_seen THEN EXCLUDED.title ELSE issues.title END,
  culprit     = CASE WHEN EXCLUDED.last_seen >= issues.last_seen AND EXCLUDED.culprit <> '' OR issues.culprit = '' THEN EXCLUDED.culprit ELSE issues.culprit END,
  level       = CASE WHEN EXCLUDED.last_seen >= issues.last_seen AND EXCLUDED.level <> '' OR issues.level = '' THEN EXCLUDED.level ELSE issues.level END,
  platform    = CASE WHEN EXCLUDED.last_seen >= issues.last_seen AND EXCLUDED.platform <> '' OR issues.platform = '' THEN EXCLUDED.platform ELSE issues.platform END,
  project     = CASE WHEN EXCLUDED.last_seen >= issues.last_seen AND EXCLUDED.project <> '' OR issues.project = '' THEN EXCLUDED.project ELSE issues.project END,
  link        = CASE WHEN EXCLUDED.last_seen >= issues.last_seen AND EXCLUDED.link <> '' OR issues.link = '' THEN EXCLUDED.link ELSE issues.link END,
  status = CASE
    WHEN @says_status::boolean THEN CASE WHEN EXCLUDED.status_at >= issues.status_at THEN EXCLUDED.status ELSE issues.status END
    WHEN issues.status = 'resolved' AND EXCLUDED.last_seen > issues.status_at THEN 'open'
    ELSE issues.status END,
  status_at = CASE
    WHEN @says_status::boolean THEN GREATEST(EXCLUDED.status_at, issues.status_at)
    WHEN issues.status = 'resolved' AND EXCLUDED.last_seen > issues.status_at THEN EXCLUDED.last_seen
    ELSE issues.status_at END,
  first_seen = LEAST(EXCLUDED.first_seen, issues.first_seen),
  last_seen  = GREATEST(EXCLUDED.last_seen, issues.last_seen),
  deliveries = issues.deliveries + 1
RETURNING id, status_at, deliveries;

-- No row: the event is known.
-- name: WebhooksAddEvent :many
INSERT INTO events (id, org_id, issue_id, provider_id, seen_at, received_at, body)
VALUES (@id, @org_id, @issue_id, @provider_id, @seen_at, @received_at, @body)
ON CONFLICT ON CONSTRAINT events_provider_key DO NOTHING RETURNING id;

-- name: WebhooksFindEvent :one
SELECT id FROM events WHERE issue_id = @issue_id AND provider_id = @provider_id;

-- name: WebhooksNewestEvent :many
SELECT id FROM events WHERE issue_id = @issue_id ORDER BY seen_at DESC, id DESC LIMIT 1;

-- Removes the samples beyond the newest and, beside a real event, those that only stood for a word about the issue. What a
-- run speaks of stays; a run that is created at this very moment makes this statement fail, and the caller lets it.
-- name: WebhooksPruneEvents :execrows
DELETE FROM events WHERE id IN (
  SELECT e.id FROM events e
  WHERE e.issue_id = @issue_id AND e.id <> @keep_id
    AND (e.provider_id LIKE 'issue:%'
      OR e.id IN (SELECT n.id FROM events n WHERE n.issue_id = @issue_id ORDER BY n.seen_at DESC, n.id DESC OFFSET @keep))
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.issue_id = e.issue_id AND r.event_id = e.id));

-- name: WebhooksAddDelivery :exec
INSERT INTO deliveries (id, org_id, source_id, received_at, resource, action, request_id, outcome, reason, issue_id, event_id, body_sha256, body_bytes, shape)
VALUES (@id, @org_id, @source_id, @received_at, @resource, @action, @request_id, @outcome, @reason, @issue_id, @event_id, @body_sha256, @body_bytes, @shape);
