-- What GitHub said: about installations and repositories, and through its webhooks about workflow runs.

-- Zero rows: the delivery was taken before.
-- name: GitHubClaimDelivery :execrows
INSERT INTO github_deliveries (guid, org_id, event, received_at) VALUES (@guid, errand_org(), @event, @received_at)
ON CONFLICT (guid) DO NOTHING;

-- Forward only: an older word about the same workflow run changes nothing, and gives zero rows.
-- name: GitHubSawRun :execrows
UPDATE runs SET github_run = @workflow_run::bigint, github_attempt = @attempt, github_status = @status
WHERE id = @id AND (github_run IS DISTINCT FROM @workflow_run::bigint
  OR (github_attempt, array_position(ARRAY['', 'queued', 'in_progress', 'completed'], github_status))
    < (@attempt::integer, array_position(ARRAY['', 'queued', 'in_progress', 'completed'], @status::text)));

-- name: GitHubChecked :execrows
UPDATE installations SET permissions = @permissions, permissions_extra = @permissions_extra, permissions_missing = @permissions_missing,
  suspended_at = @suspended_at, deleted_at = NULL, account = @account, checked_at = @checked_at::timestamptz, check_at = @check_at
WHERE id = @id;

-- GitHub could not be asked, or something says that what is known is old.
-- name: GitHubCheckAt :execrows
UPDATE installations SET check_at = @check_at WHERE id = @id;

-- name: GitHubForgetPermissions :execrows
UPDATE installations SET permissions = 'unknown', permissions_extra = '{}', permissions_missing = '{}', check_at = @now::timestamptz WHERE id = @id;

-- name: GitHubSuspended :execrows
UPDATE installations SET suspended_at = coalesce(suspended_at, @now::timestamptz) WHERE id = @id;

-- name: GitHubUninstalled :execrows
UPDATE installations SET deleted_at = coalesce(deleted_at, @now::timestamptz) WHERE id = @id;

-- name: GitHubArchived :execrows
UPDATE repositories SET archived = true WHERE id = @id;

-- name: GitHubGone :execrows
UPDATE repositories SET gone_at = coalesce(gone_at, @now::timestamptz) WHERE id = @id;

-- name: GitHubBlocked :execrows
UPDATE repositories SET blocked_at = coalesce(blocked_at, @now::timestamptz) WHERE id = @id;

-- GitHub lists the repository: whatever stood against it is over, as far as is known. One that is blocked still says so at
-- the next dispatch.
-- name: GitHubReached :execrows
UPDATE repositories SET installation_id = @installation_id, archived = @archived, private = @private, gone_at = NULL, blocked_at = NULL WHERE id = @id;

-- name: GitHubApp :one
SELECT * FROM github_app;

-- name: GitHubCreateApp :execrows
INSERT INTO github_app (app_id, slug, name, page_url, client_id, sealed, created_at, created_by)
VALUES (@app_id, @slug, @name, @page_url, @client_id, @sealed, @created_at, @created_by)
ON CONFLICT (id) DO NOTHING;
