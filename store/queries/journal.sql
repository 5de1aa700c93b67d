-- The append-only journal.

-- name: AppendJournal :exec
INSERT INTO journal (id, org_id, kind, subject, at, body) VALUES (@id, errand_org(), @kind, @subject, @at, @body);

-- name: ListJournal :many
SELECT * FROM journal WHERE subject = @subject AND kind = @kind ORDER BY seq DESC LIMIT @max_rows;

-- name: JournalOfOrganisation :many
SELECT * FROM journal WHERE org_id = errand_org() ORDER BY seq DESC LIMIT @max_rows;
