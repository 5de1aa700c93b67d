-- Sources as their owners see them: how they are doing, and who may send. Creation and rotation stand in tenants.sql.

-- How each source of the organisation is doing. Counts are of the hours that are kept; those named recent are of the hours
-- from @since on. A time that is null was never.
-- name: SourceHealth :many
SELECT s.id, s.kind, s.name, s.public_id, s.created_at, s.disabled_at, s.previous_secret_expires_at,
       l.last_received_at, l.last_accepted_at, l.last_refused_at, coalesce(l.last_refused_reason, '')::text AS last_refused_reason,
       h.accepted, h.duplicate, h.ignored, h.rejected, h.refused, h.recent_received, h.recent_refused
FROM sources s
LEFT JOIN source_health l ON l.source_id = s.id
CROSS JOIN LATERAL (
  SELECT coalesce(sum(accepted), 0)::bigint AS accepted, coalesce(sum(duplicate), 0)::bigint AS duplicate,
         coalesce(sum(ignored), 0)::bigint AS ignored, coalesce(sum(rejected), 0)::bigint AS rejected, coalesce(sum(refused), 0)::bigint AS refused,
         coalesce(sum(accepted + duplicate + ignored + rejected) FILTER (WHERE hour >= @since::timestamptz), 0)::bigint AS recent_received,
         coalesce(sum(refused) FILTER (WHERE hour >= @since::timestamptz), 0)::bigint AS recent_refused
  FROM source_hours WHERE source_id = s.id
) h
ORDER BY s.name, s.id;

-- name: DisableSource :execrows
UPDATE sources SET disabled_at = coalesce(disabled_at, @now::timestamptz) WHERE id = @id;

-- name: EnableSource :execrows
UPDATE sources SET disabled_at = NULL WHERE id = @id;

-- name: ForgetPreviousSecret :execrows
UPDATE sources SET previous_secret_sealed = NULL, previous_secret_expires_at = NULL WHERE id = @id;

-- Adds to the hours of several sources, of several organisations. The lists have one element a source and hour, in one order
-- for every replica, so that two of them never wait for each other in a circle.
-- name: AddSourceHours :exec
INSERT INTO source_hours AS h (source_id, hour, org_id, accepted, duplicate, ignored, rejected, refused)
SELECT unnest(@sources::uuid[]), unnest(@hours::timestamptz[]), unnest(@orgs::uuid[]), unnest(@accepted::bigint[]),
       unnest(@duplicate::bigint[]), unnest(@ignored::bigint[]), unnest(@rejected::bigint[]), unnest(@refused::bigint[])
ON CONFLICT ON CONSTRAINT source_hours_pkey DO UPDATE SET
  accepted = h.accepted + EXCLUDED.accepted, duplicate = h.duplicate + EXCLUDED.duplicate, ignored = h.ignored + EXCLUDED.ignored,
  rejected = h.rejected + EXCLUDED.rejected, refused = h.refused + EXCLUDED.refused;

-- The newest of each kind of moment. What is null in the new row stays as it is.
-- name: SetSourceHealth :exec
INSERT INTO source_health AS h (source_id, org_id, last_received_at, last_accepted_at, last_refused_at, last_refused_reason)
VALUES (@source_id, @org_id, @last_received_at, @last_accepted_at, @last_refused_at, @last_refused_reason)
ON CONFLICT ON CONSTRAINT source_health_pkey DO UPDATE SET
  last_received_at = GREATEST(h.last_received_at, EXCLUDED.last_received_at),
  last_accepted_at = GREATEST(h.last_accepted_at, EXCLUDED.last_accepted_at),
  last_refused_reason = CASE WHEN EXCLUDED.last_refused_at > h.last_refused_at OR h.last_refused_at IS NULL THEN EXCLUDED.last_refused_reason ELSE h.last_refused_reason END,
  last_refused_at = GREATEST(h.last_refused_at, EXCLUDED.last_refused_at);

-- name: DropSourceHours :exec
DELETE FROM source_hours WHERE hour < @before::timestamptz;
