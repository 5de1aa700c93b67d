-- +goose Up
-- What the ingest writer needs to put the deliveries of many senders and organisations into one commit.

-- The issue's only event stands for a word about it: the first real event takes its place.
ALTER TABLE issues ADD COLUMN stands_in boolean NOT NULL DEFAULT false;

-- The delivery whose job decides about the event; null for events from before this column.
ALTER TABLE events ADD COLUMN delivery_id uuid;

-- How often the key's processing was begun.
ALTER TABLE delivery_keys ADD COLUMN attempts integer NOT NULL DEFAULT 1;
CREATE INDEX delivery_keys_failed ON delivery_keys (delivery_id) WHERE failed_at IS NOT NULL;

-- Removes of each issue the samples beyond the newest p_keep and, beside a real event, those that only stood for a word about
-- it; never the one event of p_kept that belongs to the issue, nor what a run speaks of. It runs as the owner because runs
-- show themselves to one organisation at a time; what is not of the transaction's organisations it does not touch. An event
-- that somebody is making a run of at this moment is locked, and is passed over until the next time.
-- +goose StatementBegin
CREATE FUNCTION prune_events(p_issues uuid[], p_kept uuid[], p_keep integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE orgs uuid[] := public.errand_orgs(); removed integer;
BEGIN
  DELETE FROM public.events WHERE id IN (
    SELECT e.id FROM (SELECT unnest(p_issues) AS issue_id, unnest(p_kept) AS kept_id) k
    JOIN public.events e ON e.issue_id = k.issue_id AND e.id <> k.kept_id AND e.org_id = ANY (orgs)
    WHERE (e.provider_id LIKE 'issue:%'
        OR e.id IN (SELECT n.id FROM public.events n WHERE n.issue_id = k.issue_id ORDER BY n.seen_at DESC, n.id DESC OFFSET p_keep))
      AND NOT EXISTS (SELECT 1 FROM public.runs r WHERE r.issue_id = e.issue_id AND r.event_id = e.id)
    FOR UPDATE OF e SKIP LOCKED);
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN removed;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION prune_events;
DROP INDEX delivery_keys_failed;
ALTER TABLE delivery_keys DROP COLUMN attempts;
ALTER TABLE events DROP COLUMN delivery_id;
ALTER TABLE issues DROP COLUMN stands_in;
