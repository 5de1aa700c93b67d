-- What dispatch reads to decide, and the few columns beside runs.state that it writes.

-- name: DispatchEndedRuns :many
SELECT * FROM runs WHERE issue_id = @issue_id AND finished_at IS NOT NULL ORDER BY finished_at DESC, id DESC LIMIT 20;

-- A decision's row carries its delivery's id: the same job worked again finds it.
-- name: DispatchDecided :one
SELECT count(*) FROM journal WHERE id = @delivery;

-- name: DispatchInstallations :many
SELECT * FROM installations ORDER BY id;

-- name: DispatchDeliveryFailed :execrows
UPDATE delivery_keys SET failed_at = @now::timestamptz WHERE delivery_id = @delivery_id;

-- Found by the run's marker. The exchange's word stands above it.
-- name: DispatchSetWorkflowRun :execrows
UPDATE runs SET workflow_run_id = @workflow_run_id::bigint, workflow_run_url = @workflow_run_url
WHERE id = @id AND exchanged_at IS NULL AND workflow_run_id IS NULL;
