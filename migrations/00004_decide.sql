-- +goose Up
-- What decisions rest on: the limits that an organisation and a repository set, the fate of pull requests, where an issue
-- belongs, what waits and for what, and incidents.

ALTER TABLE organisations
  ADD COLUMN min_events            integer NOT NULL DEFAULT 1 CHECK (min_events >= 1),
  ADD COLUMN excluded_environments text[] NOT NULL DEFAULT '{}',
  ADD COLUMN breaker_issues        integer NOT NULL DEFAULT 5 CHECK (breaker_issues >= 0), -- 0 = no breaker
  ADD COLUMN breaker_window_s      integer NOT NULL DEFAULT 600 CHECK (breaker_window_s > 0),
  ADD COLUMN budget_day_pico       bigint CHECK (budget_day_pico >= 0),   -- null = no budget
  ADD COLUMN budget_month_pico     bigint CHECK (budget_month_pico >= 0),
  ADD COLUMN run_ceiling_pico      bigint NOT NULL DEFAULT 5000000000000 CHECK (run_ceiling_pico > 0); -- what a run reserves

ALTER TABLE repositories
  ADD COLUMN open_fix_cap      integer NOT NULL DEFAULT 5 CHECK (open_fix_cap >= 0),
  ADD COLUMN budget_day_pico   bigint CHECK (budget_day_pico >= 0),
  ADD COLUMN budget_month_pico bigint CHECK (budget_month_pico >= 0);

ALTER TABLE runs
  ADD COLUMN problem       text NOT NULL DEFAULT '', -- dispatch.ProblemKey of its event; '' = cannot be told, equal to none
  ADD COLUMN reserved_pico bigint NOT NULL DEFAULT 0 CHECK (reserved_pico >= 0),
  ADD COLUMN pr_fate       text NOT NULL DEFAULT '' CHECK (pr_fate IN ('', 'open', 'merged', 'closed', 'declined')), -- '' = no news
  ADD COLUMN pr_fate_at    timestamptz,
  ADD COLUMN pr_fate_from  text NOT NULL DEFAULT '', -- who said it: outcome workflow, runner, person
  ADD CONSTRAINT runs_fate_check CHECK ((pr_fate = '') = (pr_fate_at IS NULL) AND (pr_fate = '' OR pr_number IS NOT NULL));
CREATE INDEX runs_holding ON runs (repository_id)
  WHERE state IN ('queued', 'dispatching', 'dispatched', 'running', 'checking', 'publishing', 'pr_opened');

-- An issue that was resolved and is open again. It is noted here, whoever writes the issue.
ALTER TABLE issues ADD COLUMN regressed_at timestamptz;
-- +goose StatementBegin
CREATE FUNCTION note_regression() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.regressed_at := NEW.status_at;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER issues_regression BEFORE UPDATE ON issues FOR EACH ROW
  WHEN (OLD.status = 'resolved' AND NEW.status = 'open') EXECUTE FUNCTION note_regression();

-- The repository that an issue's events lead to, and when the issue was new: what the incident breaker counts.
CREATE TABLE issue_places (
  issue_id      uuid PRIMARY KEY REFERENCES issues,
  org_id        uuid NOT NULL REFERENCES organisations,
  repository_id uuid NOT NULL REFERENCES repositories,
  new_at        timestamptz NOT NULL
);
CREATE INDEX issue_places_newest ON issue_places (repository_id, new_at DESC);

-- A decision to wait, until it is decided again. look_at is set for every one: nothing waits for ever unasked.
CREATE TABLE waits (
  issue_id      uuid PRIMARY KEY REFERENCES issues,
  org_id        uuid NOT NULL REFERENCES organisations,
  gate          text NOT NULL CHECK (gate <> ''),
  since         timestamptz NOT NULL,
  look_at       timestamptz NOT NULL,
  until_at      timestamptz,                     -- when it ends by itself; null = something must happen
  holder        uuid,                            -- the run whose end releases it; no foreign key: its check would wait for the run's lock
  repository_id uuid REFERENCES repositories,
  looks         integer NOT NULL DEFAULT 0       -- how often it was asked again and the answer was the same
);
CREATE INDEX waits_due ON waits (look_at);
CREATE INDEX waits_by_holder ON waits (holder) WHERE holder IS NOT NULL;
CREATE INDEX waits_by_gate ON waits (org_id, gate);

-- The breaker of a repository: the incident that is on, or the last one. It is said once an incident.
CREATE TABLE incidents (
  repository_id uuid PRIMARY KEY REFERENCES repositories,
  org_id        uuid NOT NULL REFERENCES organisations,
  opened_at     timestamptz NOT NULL,
  until_at      timestamptz NOT NULL
);

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['issue_places', 'waits', 'incidents'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY tenant ON %I TO errand_runtime USING (org_id = errand_org()) WITH CHECK (org_id = errand_org())', t);
    EXECUTE format('CREATE POLICY owner ON %I TO CURRENT_USER USING (true) WITH CHECK (true)', t);
  END LOOP;
END $$;
-- +goose StatementEnd

-- Waits whose next look is due, of any organisation: ids only, for the sweep.
-- +goose StatementBegin
CREATE FUNCTION due_waits(p_now timestamptz, p_limit integer) RETURNS TABLE (org_id uuid, issue_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT w.org_id, w.issue_id FROM public.waits w WHERE w.look_at <= p_now ORDER BY w.look_at LIMIT p_limit
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION due_waits;
DROP TABLE incidents, waits, issue_places;
DROP TRIGGER issues_regression ON issues;
DROP FUNCTION note_regression;
ALTER TABLE issues DROP COLUMN regressed_at;
ALTER TABLE runs DROP CONSTRAINT runs_fate_check, DROP COLUMN problem, DROP COLUMN reserved_pico, DROP COLUMN pr_fate, DROP COLUMN pr_fate_at, DROP COLUMN pr_fate_from;
ALTER TABLE repositories DROP COLUMN open_fix_cap, DROP COLUMN budget_day_pico, DROP COLUMN budget_month_pico;
ALTER TABLE organisations DROP COLUMN min_events, DROP COLUMN excluded_environments, DROP COLUMN breaker_issues, DROP COLUMN breaker_window_s,
  DROP COLUMN budget_day_pico, DROP COLUMN budget_month_pico, DROP COLUMN run_ceiling_pico;
