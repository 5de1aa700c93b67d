-- What the run's own endpoint reads and writes. The state of a run is written by package runs alone; here stand the other
-- columns, under the row's lock.

-- name: RunnerLockRun :one
SELECT * FROM runs WHERE id = @id FOR UPDATE;

-- name: RunnerRecordExchange :execrows
UPDATE runs SET
  workflow_run_url = CASE WHEN workflow_run_id = @workflow_run_id::bigint THEN workflow_run_url ELSE '' END, -- never another run's page
  workflow_run_id = @workflow_run_id::bigint, workflow_run_attempt = @workflow_run_attempt::integer,
  exchanged_at = @now::timestamptz, exchange_attempt = dispatch_attempt, exchange_nonce = @exchange_nonce::bytea,
  token_expires_at = @token_expires_at::timestamptz, provider = @provider, model = @model, updated_at = @now::timestamptz
WHERE id = @id;

-- Zero rows: that role of that attempt was exchanged before.
-- name: RunnerAddExchange :execrows
INSERT INTO run_exchanges (run_id, dispatch_attempt, workflow_run_attempt, role, org_id, nonce, proven, exchanged_at, expires_at)
VALUES (@run_id, @dispatch_attempt, @workflow_run_attempt, @role, errand_org(), @nonce, @proven, @exchanged_at, @expires_at)
ON CONFLICT ON CONSTRAINT run_exchanges_pkey DO NOTHING;

-- name: RunnerListExchanges :many
SELECT * FROM run_exchanges WHERE run_id = @run_id AND dispatch_attempt = @dispatch_attempt ORDER BY workflow_run_attempt DESC, exchanged_at;

-- What the organisation asks of an exchange, beside what the repository does.
-- name: RunnerExchangeRules :one
SELECT require_oidc, allow_reruns FROM organisations WHERE id = errand_org();

-- name: SetExchangeRules :execrows
UPDATE organisations SET require_oidc = @require_oidc, allow_reruns = @allow_reruns WHERE id = errand_org();

-- Whether a ticket is not enough in the repository. A visibility that nobody told us is that of a public one.
-- name: TicketNotEnough :one
SELECT (o.require_oidc OR NOT r.private OR r.visibility_at IS NULL)::boolean AS required
FROM repositories r JOIN organisations o ON o.id = r.org_id WHERE r.id = @id;

-- GitHub's word on the owner and the visibility.
-- name: SetRepositoryFacts :execrows
UPDATE repositories SET owner_id = @owner_id, private = @private, visibility_at = @visibility_at::timestamptz WHERE id = @id;

-- name: RunnerHeartbeat :exec
UPDATE runs SET heartbeat_at = @now::timestamptz WHERE id = @id;

-- name: RunnerRecordResult :exec
UPDATE runs SET
  summary = @summary, branch = @branch, pr_number = sqlc.narg(pr_number), pr_url = @pr_url, pr_draft = @pr_draft,
  result_digest = @result_digest::bytea, tool_calls = @tool_calls, model = CASE WHEN @model::text = '' THEN model ELSE @model::text END
WHERE id = @id;

-- A repeated line changes nothing. Zero rows: the line was there.
-- name: RunnerAddStep :execrows
INSERT INTO run_steps (run_id, seq, org_id, at, tool, path, outcome, count, duration_ms)
VALUES (@run_id, @seq, errand_org(), @at, @tool, @path, @outcome, @count, @duration_ms)
ON CONFLICT ON CONSTRAINT run_steps_pkey DO NOTHING;

-- name: RunnerGetStep :one
SELECT * FROM run_steps WHERE run_id = @run_id AND seq = @seq;

-- name: RunnerAddUsage :execrows
INSERT INTO usage_lines (run_id, seq, org_id, at, provider, model, request_id, raw, input, cache_read, cache_write_5m, cache_write_1h,
                         output, web_searches, amount_pico, catalogue, unpriced_reason)
VALUES (@run_id, @seq, errand_org(), @at, @provider, @model, @request_id, @raw, @input, @cache_read, @cache_write_5m, @cache_write_1h,
        @output, @web_searches, @amount_pico, @catalogue, @unpriced_reason)
ON CONFLICT ON CONSTRAINT usage_lines_pkey DO NOTHING;

-- name: RunnerGetUsage :one
SELECT * FROM usage_lines WHERE run_id = @run_id AND seq = @seq;

-- The oldest other run whose admitted change of the repository is still open and touches one of the paths.
-- name: RunnerBlockedBy :many
SELECT id FROM runs
WHERE repository_id = @repository_id AND id <> @id AND paths && @paths::text[]
  AND (state IN ('checking', 'publishing') OR (state = 'pr_opened' AND pr_fate IN ('', 'open') AND coalesce(pr_fate_at, finished_at) > @open_since::timestamptz))
ORDER BY created_at, id LIMIT 1;

-- name: RunnerCountJournal :one
SELECT count(*) FROM journal WHERE subject = @subject AND kind = @kind;
