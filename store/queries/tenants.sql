-- Organisations, people, repositories, sources and mappings: what somebody set up.

-- name: CreateOrganisation :exec
INSERT INTO organisations (id, slug, name, created_at) VALUES (@id, @slug, @name, @created_at);

-- name: GetOrganisation :one
SELECT * FROM organisations WHERE id = errand_org();

-- name: SetOrganisationMode :execrows
UPDATE organisations SET mode = @mode WHERE id = errand_org();

-- name: SetOrganisationCaps :execrows
UPDATE organisations SET daily_run_cap = @daily_run_cap, cooldown_s = @cooldown_s WHERE id = errand_org();

-- name: SetOrganisationLimits :one
UPDATE organisations SET
  daily_run_cap = coalesce(sqlc.narg(daily_run_cap), daily_run_cap), cooldown_s = coalesce(sqlc.narg(cooldown_s), cooldown_s),
  max_age_s = coalesce(sqlc.narg(max_age_s), max_age_s), min_level = coalesce(sqlc.narg(min_level), min_level)
WHERE id = errand_org() RETURNING *;

-- name: CreatePerson :exec
INSERT INTO people (id, name, created_at) VALUES (@id, @name, @created_at);

-- name: AddMember :exec
INSERT INTO members (org_id, person_id, role, created_at) VALUES (errand_org(), @person_id, @role, @created_at);

-- name: GetMember :one
SELECT p.id, p.name, m.role FROM members m JOIN people p ON p.id = m.person_id WHERE m.person_id = @person_id;

-- name: ListMembers :many
SELECT p.id, p.name, m.role FROM members m JOIN people p ON p.id = m.person_id ORDER BY m.created_at, p.id;

-- name: CreateSignInLink :exec
INSERT INTO sign_in_links (digest, org_id, person_id, created_at, expires_at) VALUES (@digest, errand_org(), @person_id, @created_at, @expires_at);

-- name: CreateSession :exec
INSERT INTO sessions (digest, org_id, person_id, created_at, expires_at) VALUES (@digest, errand_org(), @person_id, @created_at, @expires_at);

-- name: RevokeSession :execrows
UPDATE sessions SET revoked_at = @now::timestamptz WHERE digest = @digest AND revoked_at IS NULL;

-- name: BindInstallation :exec
INSERT INTO installations (id, org_id, account, created_at) VALUES (@id, errand_org(), @account, @created_at);

-- name: GetInstallation :one
SELECT * FROM installations WHERE id = @id;

-- name: SetInstallationState :execrows
UPDATE installations SET suspended_at = @suspended_at, deleted_at = @deleted_at WHERE id = @id;

-- A repository as GitHub tells it.
-- name: AddRepository :exec
INSERT INTO repositories (id, org_id, installation_id, github_id, owner, owner_id, name, default_branch, archived, private, visibility_at, created_at)
VALUES (@id, errand_org(), @installation_id, @github_id, @owner, @owner_id, @name, @default_branch, @archived, @private, @created_at::timestamptz, @created_at::timestamptz);

-- name: GetRepository :one
SELECT * FROM repositories WHERE id = @id;

-- name: ListRepositories :many
SELECT * FROM repositories ORDER BY owner, name, id;

-- name: RenameRepository :execrows
UPDATE repositories SET owner = @owner, name = @name, default_branch = @default_branch WHERE id = @id;

-- name: SetRepositoryState :execrows
UPDATE repositories SET archived = @archived, gone_at = @gone_at WHERE id = @id;

-- name: SetRepositoryMode :execrows
UPDATE repositories SET mode = @mode WHERE id = @id;

-- name: CreateSource :exec
INSERT INTO sources (id, org_id, kind, name, public_id, secret_sealed, created_at)
VALUES (@id, errand_org(), @kind, @name, @public_id, @secret_sealed, @created_at);

-- name: GetSource :one
SELECT * FROM sources WHERE id = @id;

-- name: ListSources :many
SELECT id, org_id, kind, name, public_id, disabled_at, created_at FROM sources ORDER BY name, id;

-- name: RotateSourceSecret :execrows
UPDATE sources SET previous_secret_sealed = secret_sealed, previous_secret_expires_at = @previous_expires_at::timestamptz, secret_sealed = @secret_sealed
WHERE id = @id;

-- name: SetSourceDisabled :execrows
UPDATE sources SET disabled_at = @disabled_at WHERE id = @id;

-- name: CreateMapping :exec
INSERT INTO mappings (id, org_id, position, source_id, project, platform, environment, tag_key, tag_value, module_prefix,
                      stack_root, source_root, repository_id, workflow_file, ref, base_dir, created_at)
VALUES (@id, errand_org(), @position, @source_id, @project, @platform, @environment, @tag_key, @tag_value, @module_prefix,
        @stack_root, @source_root, @repository_id, @workflow_file, @ref, @base_dir, @created_at);

-- name: ListMappings :many
SELECT * FROM mappings ORDER BY position;
