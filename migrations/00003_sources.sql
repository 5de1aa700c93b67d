-- +goose Up
-- What is known of each source's deliveries without counting them: replicas add up in memory and write once a second, so
-- that no delivery waits for a counter and no unsigned request writes a row.

CREATE TABLE source_hours (
  source_id uuid NOT NULL REFERENCES sources,
  hour      timestamptz NOT NULL,
  org_id    uuid NOT NULL REFERENCES organisations,
  accepted  bigint NOT NULL DEFAULT 0 CHECK (accepted >= 0),
  duplicate bigint NOT NULL DEFAULT 0 CHECK (duplicate >= 0),
  ignored   bigint NOT NULL DEFAULT 0 CHECK (ignored >= 0),
  rejected  bigint NOT NULL DEFAULT 0 CHECK (rejected >= 0),
  refused   bigint NOT NULL DEFAULT 0 CHECK (refused >= 0), -- the signature did not verify
  CONSTRAINT source_hours_pkey PRIMARY KEY (source_id, hour)
);

CREATE TABLE source_health (
  source_id           uuid NOT NULL REFERENCES sources,
  org_id              uuid NOT NULL REFERENCES organisations,
  last_received_at    timestamptz, -- authentic, whatever became of it
  last_accepted_at    timestamptz,
  last_refused_at     timestamptz,
  last_refused_reason text NOT NULL DEFAULT '',
  CONSTRAINT source_health_pkey PRIMARY KEY (source_id),
  CHECK ((last_refused_at IS NULL) = (last_refused_reason = ''))
);

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['source_hours', 'source_health'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY tenant ON %I TO errand_runtime USING (org_id = ANY (errand_orgs())) WITH CHECK (org_id = ANY (errand_orgs()))', t);
    EXECUTE format('CREATE POLICY owner ON %I TO CURRENT_USER USING (true) WITH CHECK (true)', t);
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE source_health, source_hours;
