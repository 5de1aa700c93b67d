-- +goose Up
-- Two roles stand around this schema. The owner runs the migrations and owns everything; errand_runtime owns nothing
-- and bypasses nothing. Each tenant table has org_id NOT NULL and forced row-level security whose policy compares with
-- errand_org(), which raises when no organisation is set: a forgotten one is an error, not an empty answer.

-- +goose StatementBegin
CREATE FUNCTION errand_orgs() RETURNS uuid[] LANGUAGE plpgsql STABLE AS $$
DECLARE v text := current_setting('errand.orgs', true);
BEGIN
  IF v IS NULL OR v = '' THEN
    RAISE EXCEPTION 'no organisation is set for this transaction' USING ERRCODE = 'ER001';
  END IF;
  RETURN string_to_array(v, ',')::uuid[];
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION errand_org() RETURNS uuid LANGUAGE plpgsql STABLE AS $$
DECLARE v uuid[] := errand_orgs();
BEGIN
  IF array_length(v, 1) <> 1 THEN
    RAISE EXCEPTION 'several organisations are set where one is needed' USING ERRCODE = 'ER002';
  END IF;
  RETURN v[1];
END $$;
-- +goose StatementEnd

CREATE TABLE organisations (
  id            uuid PRIMARY KEY,
  slug          text NOT NULL CONSTRAINT organisations_slug_key UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  name          text NOT NULL CHECK (name <> ''),
  mode          text NOT NULL DEFAULT 'active' CHECK (mode IN ('active', 'observe', 'paused')),
  daily_run_cap integer NOT NULL DEFAULT 25 CHECK (daily_run_cap >= 0),
  cooldown_s    integer NOT NULL DEFAULT 86400 CHECK (cooldown_s >= 0),
  max_age_s     integer NOT NULL DEFAULT 1209600 CHECK (max_age_s > 0),
  min_level     text NOT NULL DEFAULT 'error' CHECK (min_level IN ('fatal', 'error', 'warning', 'info', 'debug')),
  created_at    timestamptz NOT NULL
);

CREATE TABLE people (
  id         uuid PRIMARY KEY,
  name       text NOT NULL CHECK (name <> ''),
  created_at timestamptz NOT NULL
);

CREATE TABLE members (
  org_id     uuid NOT NULL REFERENCES organisations,
  person_id  uuid NOT NULL REFERENCES people,
  role       text NOT NULL CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
  created_at timestamptz NOT NULL,
  CONSTRAINT members_pkey PRIMARY KEY (org_id, person_id)
);

-- Only digests of links and sessions are kept: what a dump shows cannot be used to sign in.
CREATE TABLE sign_in_links (
  digest     bytea PRIMARY KEY,
  org_id     uuid NOT NULL REFERENCES organisations,
  person_id  uuid NOT NULL REFERENCES people,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  used_at    timestamptz
);

CREATE TABLE sessions (
  digest       bytea PRIMARY KEY,
  org_id       uuid NOT NULL REFERENCES organisations,
  person_id    uuid NOT NULL REFERENCES people,
  created_at   timestamptz NOT NULL,
  expires_at   timestamptz NOT NULL,
  revoked_at   timestamptz
);

CREATE TABLE installations (
  id            bigint PRIMARY KEY, -- GitHub's own
  org_id        uuid NOT NULL REFERENCES organisations,
  account       text NOT NULL,
  suspended_at  timestamptz,
  deleted_at    timestamptz,
  created_at    timestamptz NOT NULL
);

CREATE TABLE repositories (
  id              uuid PRIMARY KEY,
  org_id          uuid NOT NULL REFERENCES organisations,
  installation_id bigint NOT NULL REFERENCES installations,
  github_id       bigint NOT NULL, -- survives renames; the name does not
  owner           text NOT NULL,
  name            text NOT NULL,
  default_branch  text NOT NULL,
  archived        boolean NOT NULL DEFAULT false,
  private         boolean NOT NULL DEFAULT true,
  gone_at         timestamptz,
  mode            text NOT NULL DEFAULT 'active' CHECK (mode IN ('active', 'observe', 'paused')),
  created_at      timestamptz NOT NULL,
  CONSTRAINT repositories_github_key UNIQUE (org_id, github_id)
);

-- A source cannot exist without a secret.
CREATE TABLE sources (
  id                         uuid PRIMARY KEY,
  org_id                     uuid NOT NULL REFERENCES organisations,
  kind                       text NOT NULL CHECK (kind ~ '^[a-z][a-z0-9_]{1,31}$'),
  name                       text NOT NULL CHECK (name <> ''),
  public_id                  text NOT NULL CONSTRAINT sources_public_id_key UNIQUE CHECK (length(public_id) >= 20),
  secret_sealed              bytea NOT NULL CHECK (length(secret_sealed) > 0),
  previous_secret_sealed     bytea,
  previous_secret_expires_at timestamptz,
  disabled_at                timestamptz,
  created_at                 timestamptz NOT NULL,
  CHECK ((previous_secret_sealed IS NULL) = (previous_secret_expires_at IS NULL))
);

CREATE TABLE mappings (
  id              uuid PRIMARY KEY,
  org_id          uuid NOT NULL REFERENCES organisations,
  position        integer NOT NULL,
  source_id       uuid REFERENCES sources,
  project         text NOT NULL DEFAULT '',
  platform        text NOT NULL DEFAULT '',
  environment     text NOT NULL DEFAULT '',
  tag_key         text NOT NULL DEFAULT '',
  tag_value       text NOT NULL DEFAULT '',
  module_prefix   text NOT NULL DEFAULT '',
  stack_root      text NOT NULL DEFAULT '',
  source_root     text NOT NULL DEFAULT '',
  repository_id   uuid NOT NULL REFERENCES repositories,
  workflow_file   text NOT NULL DEFAULT 'errand.yml' CHECK (workflow_file ~ '^[A-Za-z0-9._-]+\.ya?ml$'),
  ref             text NOT NULL DEFAULT '', -- '' = the default branch
  base_dir        text NOT NULL DEFAULT '',
  created_at      timestamptz NOT NULL,
  CONSTRAINT mappings_position_key UNIQUE (org_id, position)
);

CREATE TABLE issues (
  id           uuid PRIMARY KEY,
  org_id       uuid NOT NULL REFERENCES organisations,
  source_id    uuid NOT NULL REFERENCES sources,
  provider_id  text NOT NULL,
  fingerprint  text NOT NULL DEFAULT '',
  title        text NOT NULL,
  culprit      text NOT NULL DEFAULT '',
  level        text NOT NULL DEFAULT '',
  platform     text NOT NULL DEFAULT '',
  project      text NOT NULL DEFAULT '',
  link         text NOT NULL DEFAULT '',
  status       text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'resolved', 'ignored')),
  status_at    timestamptz NOT NULL, -- when the tracker said so: an older word never overwrites a newer one
  first_seen   timestamptz NOT NULL,
  last_seen    timestamptz NOT NULL,
  deliveries   bigint NOT NULL DEFAULT 0,
  created_at   timestamptz NOT NULL,
  CONSTRAINT issues_provider_key UNIQUE (source_id, provider_id)
);
CREATE INDEX issues_by_last_seen ON issues (org_id, last_seen DESC, id);

CREATE TABLE events (
  id           uuid PRIMARY KEY,
  org_id       uuid NOT NULL REFERENCES organisations,
  issue_id     uuid NOT NULL REFERENCES issues,
  provider_id  text NOT NULL,
  seen_at      timestamptz NOT NULL,
  received_at  timestamptz NOT NULL,
  body         text COMPRESSION lz4 NOT NULL, -- errand.Event as JSON: text takes 2.7 times the rate of jsonb (docs/performance.md)
  CONSTRAINT events_provider_key UNIQUE (issue_id, provider_id)
);
CREATE INDEX events_newest ON events (issue_id, seen_at DESC, id);

-- One row a delivery, by day, dropped by the day.
CREATE TABLE deliveries (
  id          uuid NOT NULL,
  org_id      uuid NOT NULL,
  source_id   uuid NOT NULL,
  received_at timestamptz NOT NULL,
  resource    text NOT NULL DEFAULT '',
  action      text NOT NULL DEFAULT '',
  request_id  text NOT NULL DEFAULT '', -- the sender's id of this request, when it sends one
  outcome     text NOT NULL CHECK (outcome IN ('accepted', 'duplicate', 'ignored', 'rejected')),
  reason      text NOT NULL DEFAULT '',
  issue_id    uuid,
  event_id    uuid,
  body_sha256 bytea NOT NULL CHECK (length(body_sha256) = 32),
  body_bytes  integer NOT NULL CHECK (body_bytes >= 0),
  shape       text COMPRESSION lz4 NOT NULL DEFAULT '', -- names and types of the payload, no values
  PRIMARY KEY (received_at, id)
) PARTITION BY RANGE (received_at);
CREATE INDEX deliveries_by_issue ON deliveries (issue_id, received_at DESC);
CREATE INDEX deliveries_by_source ON deliveries (source_id, received_at DESC);

-- Unpartitioned on purpose: a unique key over day partitions would have to contain the day, and the same delivery
-- after midnight would be new.
CREATE TABLE delivery_keys (
  source_id   uuid NOT NULL REFERENCES sources,
  key         text NOT NULL,
  org_id      uuid NOT NULL REFERENCES organisations,
  delivery_id uuid NOT NULL,
  received_at timestamptz NOT NULL,
  failed_at   timestamptz, -- its processing failed for good: the next same delivery runs it again
  CONSTRAINT delivery_keys_pkey PRIMARY KEY (source_id, key)
);
CREATE INDEX delivery_keys_by_age ON delivery_keys (received_at);

CREATE TABLE runs (
  id                   uuid PRIMARY KEY,
  org_id               uuid NOT NULL REFERENCES organisations,
  issue_id             uuid NOT NULL REFERENCES issues,
  event_id             uuid NOT NULL REFERENCES events,
  repository_id        uuid NOT NULL REFERENCES repositories,
  state                text NOT NULL CHECK (state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing',
                                                      'pr_opened', 'no_fix', 'rejected', 'failed', 'timed_out', 'cancelled')),
  reason               text NOT NULL DEFAULT '',
  detail               text NOT NULL DEFAULT '', -- one sentence beside the reason: GitHub's words, the refused limit
  version              bigint NOT NULL DEFAULT 1,
  workflow_file        text NOT NULL,
  ref                  text NOT NULL,
  base_dir             text NOT NULL DEFAULT '',
  stack_root           text NOT NULL DEFAULT '',
  source_root          text NOT NULL DEFAULT '',
  created_at           timestamptz NOT NULL,
  updated_at           timestamptz NOT NULL,
  deadline_at          timestamptz NOT NULL, -- when this state is looked into; every open run has one
  heartbeat_at         timestamptz,
  finished_at          timestamptz,
  dispatch_attempt     integer NOT NULL DEFAULT 0,
  dispatched_at        timestamptz, -- saved before GitHub is called
  workflow_run_id      bigint,      -- GitHub's; from the dispatch answer or the marker until the exchange says it
  workflow_run_attempt integer,
  workflow_run_url     text NOT NULL DEFAULT '',
  exchanged_at         timestamptz,
  exchange_attempt     integer,
  exchange_nonce       bytea,       -- digest of the nonce of the one exchange that counted
  token_expires_at     timestamptz,
  started_at           timestamptz,
  corrections          integer NOT NULL DEFAULT 0,
  provider             text NOT NULL DEFAULT '',
  model                text NOT NULL DEFAULT '',
  verdict              text NOT NULL DEFAULT '',
  paths                text[] NOT NULL DEFAULT '{}', -- of the admitted change
  summary              text NOT NULL DEFAULT '',
  branch               text NOT NULL DEFAULT '',
  pr_number            integer,
  pr_url               text NOT NULL DEFAULT '',
  pr_draft             boolean NOT NULL DEFAULT false,
  result_digest        bytea,
  tool_calls           integer NOT NULL DEFAULT 0,
  CHECK ((finished_at IS NOT NULL) = (state IN ('pr_opened', 'no_fix', 'rejected', 'failed', 'timed_out', 'cancelled'))),
  CHECK (state <> 'pr_opened' OR pr_number IS NOT NULL)
);
-- At most one open run an issue, whatever the code thinks.
CREATE UNIQUE INDEX runs_one_open ON runs (issue_id)
  WHERE state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing');
CREATE INDEX runs_by_time ON runs (org_id, created_at DESC, id);
CREATE INDEX runs_by_issue ON runs (issue_id, created_at DESC);
CREATE INDEX runs_due ON runs (deadline_at)
  WHERE state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing');
CREATE INDEX runs_by_workflow_run ON runs (workflow_run_id) WHERE workflow_run_id IS NOT NULL;

CREATE TABLE run_steps (
  run_id      uuid NOT NULL REFERENCES runs,
  seq         integer NOT NULL CHECK (seq > 0),
  org_id      uuid NOT NULL REFERENCES organisations,
  at          timestamptz NOT NULL,
  tool        text NOT NULL,
  path        text NOT NULL DEFAULT '',
  outcome     text NOT NULL CHECK (outcome IN ('ok', 'refused', 'error')),
  count       integer NOT NULL DEFAULT 0,
  duration_ms bigint NOT NULL DEFAULT 0,
  CONSTRAINT run_steps_pkey PRIMARY KEY (run_id, seq)
);

-- What one model request used. A null count or amount is unknown, never zero.
CREATE TABLE usage_lines (
  run_id            uuid NOT NULL REFERENCES runs,
  seq               integer NOT NULL CHECK (seq > 0),
  org_id            uuid NOT NULL REFERENCES organisations,
  at                timestamptz NOT NULL,
  provider          text NOT NULL,
  model             text NOT NULL,
  request_id        text NOT NULL DEFAULT '',
  raw               text NOT NULL DEFAULT '', -- the provider's own counts; '' = never arrived
  input             bigint CHECK (input >= 0), -- buckets are disjoint: their sum is the total
  cache_read        bigint CHECK (cache_read >= 0),
  cache_write_5m    bigint CHECK (cache_write_5m >= 0),
  cache_write_1h    bigint CHECK (cache_write_1h >= 0),
  output            bigint CHECK (output >= 0),
  web_searches      bigint CHECK (web_searches >= 0),
  amount_pico       bigint CHECK (amount_pico >= 0),
  catalogue         text NOT NULL DEFAULT '', -- version of the price catalogue that gave the amount
  unpriced_reason   text NOT NULL DEFAULT '',
  CONSTRAINT usage_lines_pkey PRIMARY KEY (run_id, seq),
  CHECK ((amount_pico IS NULL) = (unpriced_reason <> ''))
);

-- Decisions, run history, verdicts and people's actions: append-only, written in the transaction they speak of. The
-- runtime may insert and read, and neither change nor remove (store/grants.go).
CREATE TABLE journal (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         uuid NOT NULL,
  org_id     uuid NOT NULL REFERENCES organisations,
  kind       text NOT NULL CHECK (kind ~ '^[a-z]+(\.[a-z_]+)*$'),
  subject    uuid NOT NULL, -- the issue of a decision, the run of a transition, ...
  at         timestamptz NOT NULL,
  body       text COMPRESSION lz4 NOT NULL,
  CONSTRAINT journal_id_key UNIQUE (id)
);
CREATE INDEX journal_by_subject ON journal (subject, seq DESC);
CREATE INDEX journal_by_org ON journal (org_id, seq DESC);

-- Row-level security. Tables that the ingest writer fills in one transaction for several organisations compare with the
-- list; every other table with the one.
-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['members', 'sign_in_links', 'sessions', 'installations', 'repositories', 'sources', 'mappings',
                           'runs', 'run_steps', 'usage_lines', 'journal'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY tenant ON %I TO errand_runtime USING (org_id = errand_org()) WITH CHECK (org_id = errand_org())', t);
  END LOOP;
  FOREACH t IN ARRAY ARRAY['deliveries', 'delivery_keys', 'issues', 'events'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY tenant ON %I TO errand_runtime USING (org_id = ANY (errand_orgs())) WITH CHECK (org_id = ANY (errand_orgs()))', t);
  END LOOP;
  EXECUTE 'ALTER TABLE organisations ENABLE ROW LEVEL SECURITY';
  EXECUTE 'ALTER TABLE organisations FORCE ROW LEVEL SECURITY';
  EXECUTE 'CREATE POLICY tenant ON organisations TO errand_runtime USING (id = errand_org()) WITH CHECK (id = errand_org())';
  EXECUTE 'ALTER TABLE people ENABLE ROW LEVEL SECURITY';
  EXECUTE 'ALTER TABLE people FORCE ROW LEVEL SECURITY';
  EXECUTE 'CREATE POLICY tenant ON people FOR SELECT TO errand_runtime USING (EXISTS (SELECT 1 FROM members m WHERE m.person_id = people.id))';
  EXECUTE 'CREATE POLICY create_person ON people FOR INSERT TO errand_runtime WITH CHECK (errand_org() IS NOT NULL)';
  -- FORCE binds the owner too; this lets it in again, for the look-up functions below, which run as the owner. It could drop
  -- every policy anyway: what protects a tenant is that Errand never connects as the owner except to migrate.
  FOREACH t IN ARRAY ARRAY['organisations', 'people', 'members', 'sign_in_links', 'sessions', 'installations', 'repositories', 'sources',
                           'mappings', 'runs', 'run_steps', 'usage_lines', 'journal', 'deliveries', 'delivery_keys', 'issues', 'events'] LOOP
    EXECUTE format('CREATE POLICY owner ON %I TO CURRENT_USER USING (true) WITH CHECK (true)', t);
  END LOOP;
END $$;
-- +goose StatementEnd

-- What must be found before the organisation is known. Each gives exactly the one row.
-- +goose StatementBegin
CREATE FUNCTION lookup_source(p_public_id text)
RETURNS TABLE (id uuid, org_id uuid, kind text, secret_sealed bytea, previous_secret_sealed bytea, previous_secret_expires_at timestamptz, disabled_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT s.id, s.org_id, s.kind, s.secret_sealed, s.previous_secret_sealed, s.previous_secret_expires_at, s.disabled_at
  FROM public.sources s WHERE s.public_id = p_public_id
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION lookup_session(p_digest bytea, p_now timestamptz)
RETURNS TABLE (org_id uuid, person_id uuid, role text, expires_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT s.org_id, s.person_id, m.role, s.expires_at
  FROM public.sessions s JOIN public.members m ON m.org_id = s.org_id AND m.person_id = s.person_id
  WHERE s.digest = p_digest AND s.revoked_at IS NULL AND s.expires_at > p_now
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION use_sign_in_link(p_digest bytea, p_now timestamptz)
RETURNS TABLE (org_id uuid, person_id uuid)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE public.sign_in_links l SET used_at = p_now
  WHERE l.digest = p_digest AND l.used_at IS NULL AND l.expires_at > p_now
  RETURNING l.org_id, l.person_id
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION lookup_run_org(p_run uuid) RETURNS TABLE (org_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT r.org_id FROM public.runs r WHERE r.id = p_run
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION lookup_installation(p_id bigint) RETURNS TABLE (org_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT i.org_id FROM public.installations i WHERE i.id = p_id
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION lookup_organisation(p_slug text) RETURNS TABLE (org_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT o.id FROM public.organisations o WHERE o.slug = p_slug
$$;
-- +goose StatementEnd
-- Runs whose deadline has passed, of any organisation: ids only, for the sweep.
-- +goose StatementBegin
CREATE FUNCTION due_runs(p_now timestamptz, p_limit integer) RETURNS TABLE (org_id uuid, run_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT r.org_id, r.id FROM public.runs r
  WHERE r.deadline_at <= p_now AND r.state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing')
  ORDER BY r.deadline_at LIMIT p_limit
$$;
-- +goose StatementEnd

-- The ids of the keys under which secrets are sealed, of any organisation: at start each must be known.
-- +goose StatementBegin
CREATE FUNCTION sealing_keys() RETURNS TABLE (prefix bytea, sources bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT substring(s.secret_sealed FROM 1 FOR 5), count(*) FROM public.sources s GROUP BY 1 ORDER BY 1
$$;
-- +goose StatementEnd

-- Makes the partitions of deliveries for the given day and the p_ahead days after it, and drops those of days before
-- p_keep_from, with the keys of that time. Only the owner can do that; the runtime role asks for it through this function.
-- +goose StatementBegin
CREATE FUNCTION maintain_deliveries(p_day date, p_ahead integer, p_keep_from date) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE d date; n text; made integer := 0; c record;
BEGIN
  IF p_ahead NOT BETWEEN 0 AND 31 OR p_keep_from > p_day OR p_day > current_date + 366 THEN
    RAISE EXCEPTION 'maintain_deliveries: 0 to 31 days ahead, and nothing younger than its day may be dropped';
  END IF;
  PERFORM pg_advisory_xact_lock(hashtext('errand.deliveries'));
  FOR i IN 0..p_ahead LOOP
    d := p_day + i;
    n := 'deliveries_' || to_char(d, 'YYYYMMDD');
    IF to_regclass('public.' || n) IS NULL THEN
      EXECUTE format('CREATE TABLE public.%I PARTITION OF public.deliveries FOR VALUES FROM (%L) TO (%L)',
                     n, d::text || ' 00:00:00+00', (d + 1)::text || ' 00:00:00+00');
      EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', n);
      EXECUTE format('ALTER TABLE public.%I FORCE ROW LEVEL SECURITY', n);
      made := made + 1;
    END IF;
  END LOOP;
  FOR c IN SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'public.deliveries'::regclass LOOP
    IF c.name ~ '^deliveries_[0-9]{8}$' AND to_date(right(c.name, 8), 'YYYYMMDD') < p_keep_from THEN
      EXECUTE format('DROP TABLE public.%I', c.name);
    END IF;
  END LOOP;
  DELETE FROM public.delivery_keys WHERE received_at < p_keep_from;
  RETURN made;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION maintain_deliveries, sealing_keys, due_runs, lookup_organisation, lookup_installation, lookup_run_org, use_sign_in_link, lookup_session, lookup_source;
DROP TABLE journal, usage_lines, run_steps, runs, delivery_keys, deliveries, events, issues, mappings, sources, repositories,
  installations, sessions, sign_in_links, members, people, organisations;
DROP FUNCTION errand_org, errand_orgs;
