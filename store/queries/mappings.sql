-- Mappings are made and listed in tenants.sql.

-- name: RemoveMapping :execrows
DELETE FROM mappings WHERE position = @position;
