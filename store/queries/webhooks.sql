-- What a batch of deliveries writes: keys, issues, event samples and their own rows, in one transaction. No statement asks for
-- the one organisation of the transaction, because the batch may hold deliveries of several. Lists have one element a row,
-- in an order that is the same for every writer, so that two of them never wait for each other in a circle.

-- Gives the deliveries that have the key now. A key is claimed once; one whose processing failed for good, once more.
-- name: WebhooksClaim :many
INSERT INTO delivery_keys (source_id, key, org_id, delivery_id, received_at)
SELECT unnest(@source_ids::uuid[]), unnest(@keys::text[]), unnest(@org_ids::uuid[]), unnest(@delivery_ids::uuid[]), unnest(@received_ats::timestamptz[])
ON CONFLICT ON CONSTRAINT delivery_keys_pkey
DO UPDATE SET failed_at = NULL, delivery_id = EXCLUDED.delivery_id, received_at = EXCLUDED.received_at, attempts = delivery_keys.attempts + 1
WHERE delivery_keys.failed_at IS NOT NULL
RETURNING delivery_id, attempts;

-- name: WebhooksReclaim :exec
UPDATE delivery_keys SET failed_at = NULL, delivery_id = @delivery_id, received_at = @received_at WHERE source_id = @source_id AND key = @key;

-- The issues that exist already, locked in the order asked for until the transaction ends.
-- name: WebhooksLockIssues :many
SELECT i.* FROM (SELECT unnest(@source_ids::uuid[]) AS source_id, unnest(@provider_ids::text[]) AS provider_id) k
CROSS JOIN LATERAL (SELECT * FROM issues WHERE issues.source_id = k.source_id AND issues.provider_id = k.provider_id FOR NO KEY UPDATE) i;

-- Writes issues as they are to be: new ones, and those that WebhooksLockIssues gave. Gives the ids of those written; one that
-- somebody else made in between is not among them.
-- name: WebhooksPutIssues :many
INSERT INTO issues (id, org_id, source_id, provider_id, fingerprint, title, culprit, level, platform, project, link,
                    status, status_at, first_seen, last_seen, deliveries, created_at, stands_in)
SELECT unnest(@ids::uuid[]), unnest(@org_ids::uuid[]), unnest(@source_ids::uuid[]), unnest(@provider_ids::text[]), unnest(@fingerprints::text[]),
       unnest(@titles::text[]), unnest(@culprits::text[]), unnest(@levels::text[]), unnest(@platforms::text[]), unnest(@projects::text[]),
       unnest(@links::text[]), unnest(@statuses::text[]), unnest(@status_ats::timestamptz[]), unnest(@first_seens::timestamptz[]),
       unnest(@last_seens::timestamptz[]), unnest(@deliveries::bigint[]), unnest(@created_ats::timestamptz[]), unnest(@stands_ins::boolean[])
ON CONFLICT ON CONSTRAINT issues_provider_key DO UPDATE SET
  fingerprint = EXCLUDED.fingerprint, title = EXCLUDED.title, culprit = EXCLUDED.culprit, level = EXCLUDED.level,
  platform = EXCLUDED.platform, project = EXCLUDED.project, link = EXCLUDED.link, status = EXCLUDED.status, status_at = EXCLUDED.status_at,
  first_seen = EXCLUDED.first_seen, last_seen = EXCLUDED.last_seen, deliveries = EXCLUDED.deliveries, stands_in = EXCLUDED.stands_in
WHERE issues.id = EXCLUDED.id
RETURNING id;

-- name: WebhooksStandsIn :exec
UPDATE issues SET stands_in = true WHERE id = @id;

-- Gives the ids of those added: an event that is known is none of them.
-- name: WebhooksAddEvents :many
INSERT INTO events (id, org_id, issue_id, provider_id, seen_at, received_at, delivery_id, body)
SELECT unnest(@ids::uuid[]), unnest(@org_ids::uuid[]), unnest(@issue_ids::uuid[]), unnest(@provider_ids::text[]), unnest(@seen_ats::timestamptz[]),
       unnest(@received_ats::timestamptz[]), unnest(@delivery_ids::uuid[]), unnest(@bodies::text[])
ON CONFLICT ON CONSTRAINT events_provider_key DO NOTHING RETURNING id;

-- Events that were there before, and whether the job that was to decide about them failed for good.
-- name: WebhooksKnownEvents :many
SELECT n.id, n.issue_id, n.provider_id,
       EXISTS (SELECT 1 FROM delivery_keys d WHERE d.delivery_id = n.delivery_id AND d.failed_at IS NOT NULL) AS failed
FROM (SELECT unnest(@issue_ids::uuid[]) AS issue_id, unnest(@provider_ids::text[]) AS provider_id) k
CROSS JOIN LATERAL (SELECT e.id, e.issue_id, e.provider_id, e.delivery_id FROM events e WHERE e.issue_id = k.issue_id AND e.provider_id = k.provider_id LIMIT 1) n;

-- Another delivery's job decides about the event now.
-- name: WebhooksReconsider :exec
UPDATE events SET delivery_id = @delivery_id::uuid WHERE id = @id;

-- name: WebhooksNewestEvents :many
SELECT n.id, n.issue_id FROM (SELECT DISTINCT unnest(@issue_ids::uuid[]) AS issue_id) k
CROSS JOIN LATERAL (SELECT e.id, e.issue_id FROM events e WHERE e.issue_id = k.issue_id ORDER BY e.seen_at DESC, e.id DESC LIMIT 1) n;

-- name: WebhooksPruneEvents :one
SELECT prune_events(@issue_ids::uuid[], @kept_ids::uuid[], @keep::integer)::integer AS removed;

-- An issue or event id of zeros is none.
-- name: WebhooksAddDeliveries :exec
INSERT INTO deliveries (id, org_id, source_id, received_at, resource, action, request_id, outcome, reason, issue_id, event_id, body_sha256, body_bytes, shape)
SELECT unnest(@ids::uuid[]), unnest(@org_ids::uuid[]), unnest(@source_ids::uuid[]), unnest(@received_ats::timestamptz[]), unnest(@resources::text[]),
       unnest(@actions::text[]), unnest(@request_ids::text[]), unnest(@outcomes::text[]), unnest(@reasons::text[]),
       nullif(unnest(@issue_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), nullif(unnest(@event_ids::uuid[]), '00000000-0000-0000-0000-000000000000'),
       unnest(@body_sha256s::bytea[]), unnest(@body_bytes::integer[]), unnest(@shapes::text[]);
