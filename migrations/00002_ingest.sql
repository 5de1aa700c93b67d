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
DROP INDEX runs_by_event;
DROP INDEX delivery_keys_failed;
ALTER TABLE delivery_keys DROP COLUMN attempts;
ALTER TABLE events DROP COLUMN delivery_id;
ALTER TABLE issues DROP COLUMN stands_in;
