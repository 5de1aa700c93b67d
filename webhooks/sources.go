package webhooks

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
)

// Overlap is how long the secret before the last rotation still verifies.
const Overlap = 24 * time.Hour

// NewSource says what to create.
type NewSource struct {
	Kind   string
	Name   string
	Secret string // the tracker's, where the tracker makes it (sentry); "" = one is made
}

// Source is a source as its creator sees it, once.
type Source struct {
	ID       errand.ID
	Kind     string
	Name     string
	PublicID string
	Path     string // of the URL to give to the tracker
	Secret   string // never shown again
}

// Kinds lists the kinds of source, in alphabetical order.
func (w *Webhooks) Kinds() []string { return slices.Sorted(maps.Keys(w.kinds)) }

// CreateSource makes a source. It returns Invalid for an unknown kind, an empty name or a secret that is too weak, and says
// how to come by a good one. The secret is sealed before it reaches the database.
func (w *Webhooks) CreateSource(ctx context.Context, org errand.ID, n NewSource) (Source, error) {
	kind, ok := w.kinds[n.Kind]
	if !ok {
		return Source{}, errand.Invalid("kind", "no such kind of source: want one of %s", strings.Join(w.Kinds(), ", "))
	}
	name := strings.TrimSpace(scrub.Sanitise(n.Name, 100))
	if name == "" {
		return Source{}, errand.Invalid("name", "a source needs a name, such as that of the tracker's project")
	}
	secret, err := kind.Secret(strings.TrimSpace(n.Secret))
	if err != nil {
		return Source{}, err
	}
	now := w.clock()
	s := Source{ID: errand.NewID(now), Kind: n.Kind, Name: name, PublicID: strings.ToLower(rand.Text()), Secret: secret}
	s.Path = "/hooks/" + s.PublicID
	sealed, err := w.sealer.Seal([]byte(secret), string(s.ID))
	if err != nil {
		return Source{}, err
	}
	err = w.store.InTx(ctx, org, func(tx *store.Tx) error {
		return tx.CreateSource(ctx, store.CreateSourceParams{
			ID: s.ID, Kind: s.Kind, Name: s.Name, PublicID: s.PublicID, SecretSealed: sealed, CreatedAt: now,
		})
	})
	if err != nil {
		return Source{}, err
	}
	w.log.LogAttrs(ctx, slog.LevelInfo, "source created", slog.String("org", string(org)), slog.String("source", string(s.ID)), slog.String("kind", s.Kind))
	return s, nil
}

// RotateSecret gives the source a new secret, the one given or one that it makes. The secret before verifies for Overlap
// longer; the one before that no more. It returns NotFound for a source that does not exist or is not the organisation's.
func (w *Webhooks) RotateSecret(ctx context.Context, org, source errand.ID, given string) (Source, error) {
	var s Source
	err := w.store.InTx(ctx, org, func(tx *store.Tx) error {
		row, err := tx.GetSource(ctx, source)
		if errand.CodeOf(err) == errand.CodeNotFound {
			return errand.NotFound("source")
		}
		if err != nil {
			return err
		}
		kind, ok := w.kinds[row.Kind]
		if !ok {
			return errand.Errorf(errand.CodeInternal, nil, "source %s is of the kind %q, which this program does not know", row.ID, row.Kind)
		}
		s = Source{ID: row.ID, Kind: row.Kind, Name: row.Name, PublicID: row.PublicID, Path: "/hooks/" + row.PublicID}
		if s.Secret, err = kind.Secret(strings.TrimSpace(given)); err != nil {
			return err
		}
		sealed, err := w.sealer.Seal([]byte(s.Secret), string(s.ID))
		if err != nil {
			return err
		}
		_, err = tx.RotateSourceSecret(ctx, w.clock().Add(Overlap), sealed, source)
		return err
	})
	if err != nil {
		return Source{}, err
	}
	w.log.LogAttrs(ctx, slog.LevelInfo, "secret rotated", slog.String("org", string(org)), slog.String("source", string(source)))
	return s, nil
}

// ForgetPreviousSecret ends the overlap of the last rotation at once: for a secret that has leaked. It returns NotFound for a
// source that does not exist or is not the organisation's.
func (w *Webhooks) ForgetPreviousSecret(ctx context.Context, org, source errand.ID) error {
	return w.change(ctx, org, source, "previous secret forgotten", func(tx *store.Tx) (int64, error) { return tx.ForgetPreviousSecret(ctx, source) })
}

// DisableSource makes the source answer 404 to every delivery, as an address does that does not exist. Its issues and runs
// stay. It returns NotFound for a source that does not exist or is not the organisation's; a disabled one stays disabled.
func (w *Webhooks) DisableSource(ctx context.Context, org, source errand.ID) error {
	return w.change(ctx, org, source, "source disabled", func(tx *store.Tx) (int64, error) { return tx.DisableSource(ctx, w.clock(), source) })
}

// EnableSource takes deliveries again, under the secret that the source has. It returns NotFound as DisableSource does.
func (w *Webhooks) EnableSource(ctx context.Context, org, source errand.ID) error {
	return w.change(ctx, org, source, "source enabled", func(tx *store.Tx) (int64, error) { return tx.EnableSource(ctx, source) })
}

func (w *Webhooks) change(ctx context.Context, org, source errand.ID, what string, do func(*store.Tx) (int64, error)) error {
	err := w.store.InTx(ctx, org, func(tx *store.Tx) error {
		n, err := do(tx)
		if err == nil && n == 0 {
			err = errand.NotFound("source")
		}
		return err
	})
	if err == nil {
		w.log.LogAttrs(ctx, slog.LevelInfo, what, slog.String("org", string(org)), slog.String("source", string(source)))
	}
	return err
}
