-- +goose Up
-- Who may exchange for a run token, and who did. With an ID token of GitHub's each job of a run exchanges for its own role; a
-- ticket alone works once.

ALTER TABLE organisations
  ADD COLUMN require_oidc boolean NOT NULL DEFAULT false, -- a ticket alone is not enough, in private repositories either
  ADD COLUMN allow_reruns boolean NOT NULL DEFAULT false; -- "Re-run" on GitHub's page goes on with a run that is still open

-- GitHub's word on a repository. Without it the visibility is unknown, which is treated as public.
ALTER TABLE repositories
  ADD COLUMN owner_id      bigint CHECK (owner_id > 0),
  ADD COLUMN visibility_at timestamptz; -- when GitHub last said whether it is private

CREATE TABLE run_exchanges (
  run_id               uuid NOT NULL REFERENCES runs,
  dispatch_attempt     integer NOT NULL,
  workflow_run_attempt integer NOT NULL,
  role                 text NOT NULL CHECK (role IN ('all', 'agent', 'verify', 'publish')),
  org_id               uuid NOT NULL REFERENCES organisations,
  nonce                bytea NOT NULL CHECK (length(nonce) = 32), -- digest of the exchange that counted
  proven               boolean NOT NULL,                          -- by an ID token
  exchanged_at         timestamptz NOT NULL,
  expires_at           timestamptz NOT NULL,
  CONSTRAINT run_exchanges_pkey PRIMARY KEY (run_id, dispatch_attempt, workflow_run_attempt, role)
);

-- +goose StatementBegin
DO $$
BEGIN
  EXECUTE 'ALTER TABLE run_exchanges ENABLE ROW LEVEL SECURITY';
  EXECUTE 'ALTER TABLE run_exchanges FORCE ROW LEVEL SECURITY';
  EXECUTE 'CREATE POLICY tenant ON run_exchanges TO errand_runtime USING (org_id = errand_org()) WITH CHECK (org_id = errand_org())';
  EXECUTE 'CREATE POLICY owner ON run_exchanges TO CURRENT_USER USING (true) WITH CHECK (true)';
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE run_exchanges;
ALTER TABLE repositories DROP COLUMN owner_id, DROP COLUMN visibility_at;
ALTER TABLE organisations DROP COLUMN require_oidc, DROP COLUMN allow_reruns;
