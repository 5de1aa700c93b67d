package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
)

// The look-ups below run without an organisation. Each calls one SECURITY DEFINER function of the schema, which gives
// exactly the row asked for; all return NotFound when there is none.

// SourceSecret is what is needed to verify a delivery before its organisation is trusted.
type SourceSecret struct {
	ID                      errand.ID
	Org                     errand.ID
	Kind                    string
	SecretSealed            []byte
	PreviousSecretSealed    []byte // nil when there is none
	PreviousSecretExpiresAt *time.Time
	DisabledAt              *time.Time
}

// LookupSource finds a source by the id in its URL.
func (s *Store) LookupSource(ctx context.Context, publicID string) (SourceSecret, error) {
	var x SourceSecret
	err := s.pool.QueryRow(ctx, `select id, org_id, kind, secret_sealed, previous_secret_sealed, previous_secret_expires_at, disabled_at
		from lookup_source($1)`, publicID).
		Scan(&x.ID, &x.Org, &x.Kind, &x.SecretSealed, &x.PreviousSecretSealed, &x.PreviousSecretExpiresAt, &x.DisabledAt)
	return x, translate(err)
}

// LookupSources is LookupSource for several ids with one query. Those that do not exist are not in the answer.
func (s *Store) LookupSources(ctx context.Context, publicIDs []string) (map[string]SourceSecret, error) {
	rows, err := s.pool.Query(ctx, `select k.id, s.id, s.org_id, s.kind, s.secret_sealed, s.previous_secret_sealed, s.previous_secret_expires_at, s.disabled_at
		from unnest($1::text[]) as k(id), lookup_source(k.id) s`, publicIDs)
	if err != nil {
		return nil, translate(err)
	}
	found := make(map[string]SourceSecret, len(publicIDs))
	var id string
	var x SourceSecret
	_, err = pgx.ForEachRow(rows, []any{&id, &x.ID, &x.Org, &x.Kind, &x.SecretSealed, &x.PreviousSecretSealed, &x.PreviousSecretExpiresAt, &x.DisabledAt}, func() error {
		found[id] = x
		x = SourceSecret{}
		return nil
	})
	return found, translate(err)
}

// SessionPerson is who a session belongs to.
type SessionPerson struct {
	Org       errand.ID
	Person    errand.ID
	Role      string
	ExpiresAt time.Time
}

// LookupSession finds an unexpired, unrevoked session by the digest of its cookie.
func (s *Store) LookupSession(ctx context.Context, digest []byte, now time.Time) (SessionPerson, error) {
	var x SessionPerson
	err := s.pool.QueryRow(ctx, "select org_id, person_id, role, expires_at from lookup_session($1, $2)", digest, now).
		Scan(&x.Org, &x.Person, &x.Role, &x.ExpiresAt)
	return x, translate(err)
}

// UseSignInLink spends a one-time link by the digest of its token. The second use finds nothing.
func (s *Store) UseSignInLink(ctx context.Context, digest []byte, now time.Time) (org, person errand.ID, err error) {
	err = s.pool.QueryRow(ctx, "select org_id, person_id from use_sign_in_link($1, $2)", digest, now).Scan(&org, &person)
	return org, person, translate(err)
}

// LookupRunOrg finds the organisation of a run.
func (s *Store) LookupRunOrg(ctx context.Context, run errand.ID) (org errand.ID, err error) {
	err = s.pool.QueryRow(ctx, "select org_id from lookup_run_org($1)", run).Scan(&org)
	return org, translate(err)
}

// LookupInstallation finds the organisation that a GitHub installation is bound to.
func (s *Store) LookupInstallation(ctx context.Context, id int64) (org errand.ID, err error) {
	err = s.pool.QueryRow(ctx, "select org_id from lookup_installation($1)", id).Scan(&org)
	return org, translate(err)
}

// LookupOrganisation finds an organisation by its slug.
func (s *Store) LookupOrganisation(ctx context.Context, slug string) (org errand.ID, err error) {
	err = s.pool.QueryRow(ctx, "select org_id from lookup_organisation($1)", slug).Scan(&org)
	return org, translate(err)
}

// DueRun names a run whose deadline has passed.
type DueRun struct{ Org, Run errand.ID }

// DueRuns lists at most limit runs, of any organisation, whose deadline has passed, the longest overdue first.
func (s *Store) DueRuns(ctx context.Context, now time.Time, limit int) ([]DueRun, error) {
	rows, err := s.pool.Query(ctx, "select org_id, run_id from due_runs($1, $2)", now, limit)
	if err != nil {
		return nil, translate(err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DueRun])
	return due, translate(err)
}

// DueWait names an issue that waits and whose next look is due.
type DueWait struct{ Org, Issue errand.ID }

// DueWaits lists at most limit of them, of any organisation, the longest overdue first.
func (s *Store) DueWaits(ctx context.Context, now time.Time, limit int) ([]DueWait, error) {
	rows, err := s.pool.Query(ctx, "select org_id, issue_id from due_waits($1, $2)", now, limit)
	if err != nil {
		return nil, translate(err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DueWait])
	return due, translate(err)
}

// CheckSeals refuses a sealer that cannot open the secrets of every source: their deliveries could not be verified. It
// returns Invalid, with the id of the key that is missing.
func (s *Store) CheckSeals(ctx context.Context, sealer *Sealer) error {
	rows, err := s.pool.Query(ctx, "select prefix, sources from sealing_keys()")
	if err != nil {
		return translate(err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Prefix  []byte
		Sources int64
	}])
	if err != nil {
		return translate(err)
	}
	for _, k := range keys {
		if !sealer.knows(k.Prefix) {
			return errand.Invalid("ERRAND_SECRET_KEY", "the secrets of %d sources are sealed under another key (id %x): set that one, or name it in ERRAND_PREVIOUS_SECRET_KEY",
				k.Sources, k.Prefix[min(1, len(k.Prefix)):])
		}
	}
	return nil
}

// MaintainDeliveries makes the partitions of today and the next two days, and drops those of days that ended before
// keep ago.
func (s *Store) MaintainDeliveries(ctx context.Context, now time.Time, keep time.Duration) error {
	_, err := s.pool.Exec(ctx, "select maintain_deliveries($1::date, 2, $2::date)", now.UTC(), now.UTC().Add(-keep))
	return translate(err)
}
