-- +goose Up
-- What the console's overview and its lists of runs read: each a range of one index, however much there is beside it.

CREATE INDEX runs_by_state ON runs (org_id, state, created_at DESC, id);
CREATE INDEX usage_lines_by_time ON usage_lines (org_id, at) INCLUDE (amount_pico);
CREATE INDEX events_by_receipt ON events (org_id, received_at) INCLUDE (issue_id);

-- +goose Down
DROP INDEX events_by_receipt, usage_lines_by_time, runs_by_state;
