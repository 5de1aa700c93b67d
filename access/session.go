package access

import (
	"context"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// SignedIn is a fresh session. Cookie is the secret for the browser; the database has its digest only.
type SignedIn struct {
	Identity
	Cookie    string
	ExpiresAt time.Time
}

// SignIn spends a link's token and begins a session under a new cookie; previous, the cookie that the browser sent with
// the request or "", is revoked, so that a session planted before the sign-in is worth nothing after it. It returns
// Unauthenticated for a token that is unknown, spent or past its time: these are not told apart.
func (a *Access) SignIn(ctx context.Context, token, previous string) (SignedIn, error) {
	now := a.clock()
	org, person, err := a.store.UseSignInLink(ctx, digest(token), now)
	if err != nil {
		return SignedIn{}, unauthenticated(err)
	}
	if err := a.SignOut(ctx, previous); err != nil {
		return SignedIn{}, err
	}
	s := SignedIn{Cookie: newSecret(), ExpiresAt: now.Add(SessionTTL)}
	err = a.store.InTx(ctx, org, func(tx *store.Tx) error {
		m, err := tx.GetMember(ctx, person)
		if err != nil {
			return unauthenticated(err) // no longer a member
		}
		s.Identity = Identity{Org: org, Person: person, Role: Role(m.Role)}
		return tx.CreateSession(ctx, store.CreateSessionParams{
			Digest: digest(s.Cookie), PersonID: person, CreatedAt: now, ExpiresAt: s.ExpiresAt,
		})
	})
	if err != nil {
		return SignedIn{}, err
	}
	a.log.InfoContext(ctx, "signed in", "org", org, "person", person)
	return s, nil
}

// Session finds whose cookie it is. It returns Unauthenticated for one that is unknown, revoked or past its time, and
// for a person who is no longer a member: the role is read anew each time.
func (a *Access) Session(ctx context.Context, cookie string) (Identity, error) {
	if cookie == "" {
		return Identity{}, errand.Unauthenticated(nil)
	}
	p, err := a.store.LookupSession(ctx, digest(cookie), a.clock())
	if err != nil {
		return Identity{}, unauthenticated(err)
	}
	return Identity{Org: p.Org, Person: p.Person, Role: Role(p.Role)}, nil
}

// SignOut revokes the cookie's session. A cookie without one is not an error.
func (a *Access) SignOut(ctx context.Context, cookie string) error {
	id, err := a.Session(ctx, cookie)
	switch {
	case errand.CodeOf(err) == errand.CodeUnauthenticated:
		return nil
	case err != nil:
		return err
	}
	return a.store.InTx(ctx, id.Org, func(tx *store.Tx) error {
		_, err := tx.RevokeSession(ctx, a.clock(), digest(cookie))
		return err
	})
}

// unauthenticated turns "no such row" into "not proven" and leaves every other error (a database that does not answer)
// what it is.
func unauthenticated(err error) error {
	if errand.CodeOf(err) == errand.CodeNotFound {
		return errand.Unauthenticated(err)
	}
	return err
}
