-- Issues and their events, read.

-- name: GetIssue :one
SELECT * FROM issues WHERE id = @id;

-- name: ListIssues :many
SELECT * FROM issues WHERE org_id = errand_org() ORDER BY last_seen DESC, id LIMIT @max_rows;

-- name: GetEvent :one
SELECT * FROM events WHERE id = @id;

-- name: NewestEvent :one
SELECT * FROM events WHERE issue_id = @issue_id ORDER BY seen_at DESC, id DESC LIMIT 1;

-- name: ListDeliveriesOfIssue :many
SELECT id, received_at, resource, action, outcome, reason FROM deliveries WHERE issue_id = @issue_id ORDER BY received_at DESC LIMIT @max_rows;
