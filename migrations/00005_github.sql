-- +goose Up
-- What is known of GitHub: what each installation was granted and when it was asked, repositories that GitHub blocked, what its
-- webhooks said of a workflow run, and the one App of the deployment where the console made it.

ALTER TABLE installations
  ADD COLUMN permissions         text NOT NULL DEFAULT 'unknown' CHECK (permissions IN ('pass', 'fail', 'unknown')),
  ADD COLUMN permissions_extra   text[] NOT NULL DEFAULT '{}', -- "contents: read"
  ADD COLUMN permissions_missing text[] NOT NULL DEFAULT '{}',
  ADD COLUMN checked_at          timestamptz,                       -- when GitHub last answered about it
  ADD COLUMN check_at            timestamptz NOT NULL DEFAULT now(), -- when it is asked next
  ADD CONSTRAINT installations_checked CHECK (permissions = 'unknown' OR checked_at IS NOT NULL);
CREATE INDEX installations_due ON installations (check_at) WHERE deleted_at IS NULL;

ALTER TABLE repositories ADD COLUMN blocked_at timestamptz; -- GitHub answered 451

-- What a webhook said of a workflow run, forward only by its attempt and status. It is a reason to ask GitHub, never an answer.
ALTER TABLE runs
  ADD COLUMN github_run     bigint, -- GitHub's id of the workflow run that was spoken of
  ADD COLUMN github_attempt integer NOT NULL DEFAULT 0,
  ADD COLUMN github_status  text NOT NULL DEFAULT '' CHECK (github_status IN ('', 'queued', 'in_progress', 'completed'));

-- Webhooks that led to something: GitHub's redelivery carries the same id. Others are not written down.
CREATE TABLE github_deliveries (
  guid        text NOT NULL CHECK (length(guid) BETWEEN 1 AND 64),
  org_id      uuid NOT NULL REFERENCES organisations,
  event       text NOT NULL,
  received_at timestamptz NOT NULL,
  CONSTRAINT github_deliveries_pkey PRIMARY KEY (guid)
);
CREATE INDEX github_deliveries_by_age ON github_deliveries (received_at);

-- The App that the console made, of which a deployment has one. Its key and secrets are sealed.
CREATE TABLE github_app (
  id          boolean PRIMARY KEY DEFAULT true CHECK (id),
  app_id      bigint NOT NULL CHECK (app_id > 0),
  slug        text NOT NULL,
  name        text NOT NULL,
  page_url    text NOT NULL,
  client_id   text NOT NULL,
  sealed      bytea NOT NULL CHECK (length(sealed) > 0), -- dispatch.appSecrets as JSON
  created_at  timestamptz NOT NULL,
  created_by  uuid NOT NULL REFERENCES people
);

-- +goose StatementBegin
DO $$
BEGIN
  EXECUTE 'ALTER TABLE github_deliveries ENABLE ROW LEVEL SECURITY';
  EXECUTE 'ALTER TABLE github_deliveries FORCE ROW LEVEL SECURITY';
  EXECUTE 'CREATE POLICY tenant ON github_deliveries TO errand_runtime USING (org_id = errand_org()) WITH CHECK (org_id = errand_org())';
  EXECUTE 'CREATE POLICY owner ON github_deliveries TO CURRENT_USER USING (true) WITH CHECK (true)';
END $$;
-- +goose StatementEnd

-- Installations that are to be asked about, of any organisation: ids only, for the sweep.
-- +goose StatementBegin
CREATE FUNCTION due_installations(p_now timestamptz, p_limit integer) RETURNS TABLE (org_id uuid, installation_id bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT i.org_id, i.id FROM public.installations i WHERE i.check_at <= p_now AND i.deleted_at IS NULL ORDER BY i.check_at LIMIT p_limit
$$;
-- +goose StatementEnd

-- The run that GitHub's workflow run is of: by GitHub's ids, which the repository's own must confirm.
-- +goose StatementBegin
CREATE FUNCTION lookup_workflow_run(p_github_id bigint, p_workflow_run bigint) RETURNS TABLE (org_id uuid, run_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT r.org_id, r.id FROM public.runs r JOIN public.repositories p ON p.id = r.repository_id
  WHERE r.workflow_run_id = p_workflow_run AND p.github_id = p_github_id
  ORDER BY r.created_at DESC LIMIT 1
$$;
-- +goose StatementEnd

-- The same by the run's own mark, where GitHub has not said the workflow run's id yet.
-- +goose StatementBegin
CREATE FUNCTION lookup_marked_run(p_github_id bigint, p_run uuid, p_attempt integer) RETURNS TABLE (org_id uuid, run_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT r.org_id, r.id FROM public.runs r JOIN public.repositories p ON p.id = r.repository_id
  WHERE r.id = p_run AND r.dispatch_attempt = p_attempt AND r.workflow_run_id IS NULL AND p.github_id = p_github_id
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION drop_github_deliveries(p_before timestamptz) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH gone AS (DELETE FROM public.github_deliveries WHERE received_at < p_before RETURNING 1) SELECT count(*) FROM gone
$$;
-- +goose StatementEnd

-- The organisation that was there first: its owners speak for the deployment.
-- +goose StatementBegin
CREATE FUNCTION first_organisation() RETURNS TABLE (org_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT o.id FROM public.organisations o ORDER BY o.created_at, o.id LIMIT 1
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sealing_keys() RETURNS TABLE (prefix bytea, sources bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT k.prefix, count(*) FROM (
    SELECT substring(s.secret_sealed FROM 1 FOR 5) AS prefix FROM public.sources s
    UNION ALL SELECT substring(a.sealed FROM 1 FOR 5) FROM public.github_app a
  ) k GROUP BY 1 ORDER BY 1
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sealing_keys() RETURNS TABLE (prefix bytea, sources bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT substring(s.secret_sealed FROM 1 FOR 5), count(*) FROM public.sources s GROUP BY 1 ORDER BY 1
$$;
-- +goose StatementEnd
DROP FUNCTION first_organisation, drop_github_deliveries, lookup_marked_run, lookup_workflow_run, due_installations;
DROP TABLE github_app, github_deliveries;
ALTER TABLE runs DROP COLUMN github_run, DROP COLUMN github_attempt, DROP COLUMN github_status;
ALTER TABLE repositories DROP COLUMN blocked_at;
ALTER TABLE installations DROP COLUMN permissions, DROP COLUMN permissions_extra, DROP COLUMN permissions_missing, DROP COLUMN checked_at, DROP COLUMN check_at;
