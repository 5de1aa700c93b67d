// Package access answers who is asking and what that person may do: organisations' members, one-time sign-in links,
// sessions, and the one table of roles.
//
// It imports the root, store and journal. Start reading at Access.SignIn (a link becomes a session), Access.Session (a
// cookie becomes an Identity) and Identity.May (the table of roles). RequireSession and Require are the Echo middlewares
// that stand before every page and call of a person.
//
// Only digests of links and sessions are stored: nothing in a dump of the database signs anybody in.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

const (
	// LinkTTL is how long a sign-in link can be used.
	LinkTTL = 15 * time.Minute
	// SessionTTL is how long a session lasts, whatever is done in it.
	SessionTTL = 7 * 24 * time.Hour

	secretBytes = 32 // of a link's token and of a session's cookie
)

// Config says what Access needs.
type Config struct {
	Store     *store.Store
	Clock     errand.Clock // nil = time.Now
	PublicURL string       // where people reach the console: scheme and host, no path
	Logger    *slog.Logger // nil = silent
}

// Access is the service of this package.
type Access struct {
	store  *store.Store
	clock  errand.Clock
	public *url.URL
	log    *slog.Logger
}

// New returns Invalid when the public URL is not an absolute http or https address.
func New(cfg Config) (*Access, error) {
	public, err := url.Parse(cfg.PublicURL)
	if err != nil || (public.Scheme != "https" && public.Scheme != "http") || public.Host == "" {
		return nil, errand.Invalid("ERRAND_PUBLIC_URL", "%q is not an address: want something like https://errand.example.com", cfg.PublicURL)
	}
	if public.User != nil || public.RawQuery != "" || public.Fragment != "" || strings.Trim(public.Path, "/") != "" {
		return nil, errand.Invalid("ERRAND_PUBLIC_URL", "%q has more than a scheme and a host: Errand answers at the root of its own host", cfg.PublicURL)
	}
	a := &Access{store: cfg.Store, clock: cfg.Clock, public: public, log: cfg.Logger}
	if a.clock == nil {
		a.clock = time.Now
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	return a, nil
}

// Identity is a person in an organisation, proven by a session.
type Identity struct {
	Org    errand.ID
	Person errand.ID
	Role   Role
}

// Bootstrap makes the first organisation and its owner, and gives those that are there when it has been called before:
// any number of replicas may call it at once. An owner is known again by the name.
func (a *Access) Bootstrap(ctx context.Context, orgSlug, orgName, personName string) (org, person errand.ID, err error) {
	org, err = a.store.LookupOrganisation(ctx, orgSlug)
	if errand.CodeOf(err) == errand.CodeNotFound {
		org, err = a.createOrganisation(ctx, orgSlug, orgName)
	}
	if err != nil {
		return "", "", fmt.Errorf("bootstrap the organisation %q: %w", orgSlug, err)
	}
	err = a.store.InTx(ctx, org, func(tx *store.Tx) error {
		if err := tx.Lock(ctx, "bootstrap", org); err != nil {
			return err
		}
		members, err := tx.ListMembers(ctx)
		if err != nil {
			return err
		}
		for _, m := range members {
			if m.Name == personName && Role(m.Role) == Owner {
				person = m.ID
				return nil
			}
		}
		now := a.clock()
		person = errand.NewID(now)
		if err := tx.CreatePerson(ctx, person, personName, now); err != nil {
			return err
		}
		return tx.AddMember(ctx, person, string(Owner), now)
	})
	if err != nil {
		return "", "", fmt.Errorf("bootstrap the owner of %q: %w", orgSlug, err)
	}
	return org, person, nil
}

func (a *Access) createOrganisation(ctx context.Context, slug, name string) (errand.ID, error) {
	now := a.clock()
	org := errand.NewID(now)
	err := a.store.InTx(ctx, org, func(tx *store.Tx) error {
		return tx.CreateOrganisation(ctx, store.CreateOrganisationParams{ID: org, Slug: slug, Name: name, CreatedAt: now})
	})
	if errand.CodeOf(err) == errand.CodeConflict { // another replica was first
		return a.store.LookupOrganisation(ctx, slug)
	}
	return org, err
}

// NewSignInLink makes a link that signs the member in once, within LinkTTL. It returns NotFound when the person is not a
// member of the organisation. The link is a secret: it is given to that person and never logged.
func (a *Access) NewSignInLink(ctx context.Context, org, person errand.ID) (string, error) {
	token := newSecret()
	now := a.clock()
	err := a.store.InTx(ctx, org, func(tx *store.Tx) error {
		if _, err := tx.GetMember(ctx, person); err != nil {
			return err
		}
		return tx.CreateSignInLink(ctx, store.CreateSignInLinkParams{
			Digest: digest(token), PersonID: person, CreatedAt: now, ExpiresAt: now.Add(LinkTTL),
		})
	})
	if err != nil {
		return "", fmt.Errorf("make a sign-in link: %w", err)
	}
	link := a.public.JoinPath("/sign-in")
	link.RawQuery = url.Values{"token": {token}}.Encode()
	return link.String(), nil
}

func newSecret() string {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return base64.RawURLEncoding.EncodeToString(b)
}

// digest is what the database keeps of a secret. The secrets are 256 random bits, so a plain hash is enough: there is
// nothing to guess.
func digest(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
