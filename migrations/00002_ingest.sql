-- +goose Up
-- What the ingest writer needs to put the deliveries of many senders and organisations into one commit.

-- The issue's only event stands for a word about it: the first real event takes its place.
ALTER TABLE issues ADD COLUMN stands_in boolean NOT NULL DEFAULT false;

-- The delivery whose job decides about the event; null for events from before this column.
ALTER TABLE events ADD COLUMN delivery_id uuid;

-- How often the key's processing was begun.
ALTER TABLE delivery_keys ADD COLUMN attempts integer NOT NULL DEFAULT 1;
CREATE INDEX delivery_keys_failed ON delivery_keys (delivery_id) WHERE failed_at IS NOT NULL;

-- Each event that is removed is looked for among the runs, by the foreign key too.
CREATE INDEX runs_by_event ON runs (event_id);

-- Removes of each issue the samples beyond the newest p_keep and, beside a real event, those that only stood for a word about
-- it; never the one event of p_kept that belongs to the issue, nor what a run speaks of. It runs as the owner because runs
-- show themselves to one organisation at a time; what is not of the transaction's organisations it does not touch. An event
-- that somebody is making a run of at this moment is locked, and is passed over until the next time.
-- +goose StatementBegin
CREATE FUNCTION prune_events(p_issues uuid[], p_kept uuid[], p_keep integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE orgs uuid[] := public.errand_orgs(); over uuid[]; removed integer;
BEGIN
  over := ARRAY(
    SELECT n.id FROM (SELECT unnest(p_issues) AS issue_id, unnest(p_kept) AS kept_id) k
    CROSS JOIN LATERAL (
      SELECT e.id, e.org_id, e.provider_id, row_number() OVER (ORDER BY e.seen_at DESC, e.id DESC) AS place
      FROM public.events e WHERE e.issue_id = k.issue_id) n
    WHERE (n.place > p_keep OR n.provider_id LIKE 'issue:%') AND n.id <> k.kept_id AND n.org_id = ANY (orgs)
      AND NOT EXISTS (SELECT 1 FROM public.runs r WHERE r.issue_id = k.issue_id AND r.event_id = n.id));
  DELETE FROM public.events WHERE id IN (SELECT e.id FROM public.events e WHERE e.id = ANY (over) ORDER BY e.id FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN removed;
END $$;
-- +goose StatementEnd

-- As before, but keys go 20,000 at a time, the oldest first: a whole day's at once would hold their locks and the disk for minutes.
-- It is called every few seconds.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION maintain_deliveries(p_day date, p_ahead integer, p_keep_from date) RETURNS integer
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
  DELETE FROM public.delivery_keys WHERE (source_id, key) IN (
    SELECT k.source_id, k.key FROM public.delivery_keys k WHERE k.received_at < p_keep_from ORDER BY k.received_at LIMIT 20000 FOR UPDATE SKIP LOCKED);
  RETURN made;
END $$;
-- +goose StatementEnd

-- A check that calls errand_orgs() for every new row costs as much as the row. As a subquery it is asked once a statement. What
-- is read keeps the bare call, which raises before the first row is looked at, on an empty table too.
-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['deliveries', 'delivery_keys', 'issues', 'events'] LOOP
    EXECUTE format('ALTER POLICY tenant ON %I WITH CHECK (org_id = ANY ((SELECT errand_orgs())::uuid[]))', t);
  END LOOP;
END $$;
-- +goose StatementEnd

-- Checked for every row and never broken: sources and organisations are not deleted, an issue's organisation is that of its
-- source, and the policies above hold org_id. Each check locks its source or organisation, in every transaction the same one.
ALTER TABLE delivery_keys DROP CONSTRAINT delivery_keys_source_id_fkey, DROP CONSTRAINT delivery_keys_org_id_fkey;
ALTER TABLE events DROP CONSTRAINT events_org_id_fkey;

-- +goose Down
ALTER TABLE events ADD CONSTRAINT events_org_id_fkey FOREIGN KEY (org_id) REFERENCES organisations;
ALTER TABLE delivery_keys ADD CONSTRAINT delivery_keys_source_id_fkey FOREIGN KEY (source_id) REFERENCES sources,
  ADD CONSTRAINT delivery_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES organisations;
-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['deliveries', 'delivery_keys', 'issues', 'events'] LOOP
    EXECUTE format('ALTER POLICY tenant ON %I WITH CHECK (org_id = ANY (errand_orgs()))', t);
  END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION prune_events;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION maintain_deliveries(p_day date, p_ahead integer, p_keep_from date) RETURNS integer
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
DROP INDEX runs_by_event;
DROP INDEX delivery_keys_failed;
ALTER TABLE delivery_keys DROP COLUMN attempts;
ALTER TABLE events DROP COLUMN delivery_id;
ALTER TABLE issues DROP COLUMN stands_in;
