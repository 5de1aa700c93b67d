package runtoken

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json" // refuses a member that stands twice, and knows A from a

	"github.com/errand-dev/errand"
)

// The failures of an ID token of GitHub Actions, in the order in which they are asked.
const (
	IDTooLarge      Failure = "oidc_too_large"
	IDMalformed     Failure = "oidc_malformed" // not a signed token, or one that says a thing twice or in another form
	IDAlgorithm     Failure = "oidc_algorithm" // not RS256: none, HS256 and all the others
	IDUnknownKey    Failure = "oidc_unknown_key"
	IDBadSignature  Failure = "oidc_bad_signature"
	IDWrongIssuer   Failure = "oidc_issuer"
	IDWrongAudience Failure = "oidc_audience"
	IDExpired       Failure = "oidc_expired"
	IDNotYet        Failure = "oidc_not_yet"   // its nbf is still to come
	IDIssuedLater   Failure = "oidc_issued_at" // its iat is still to come
	IDIncomplete    Failure = "oidc_incomplete"
)

const (
	maxIDToken = 16 << 10
	idSkew     = time.Minute // between the issuer's clock and ours
)

// Workload is the job that an ID token was given to, as GitHub says it. Names and `sub` are left out: a repository's name
// changes hands, and the form of `sub` is the customer's to choose.
type Workload struct {
	RepositoryID   int64
	OwnerID        int64
	ActorID        int64
	RunID          int64
	RunAttempt     int
	Event          string
	Ref            string // refs/heads/...
	Repository     string // owner/name at the time, which WorkflowRef begins with
	WorkflowRef    string // owner/name/.github/workflows/FILE@REF
	JobWorkflowRef string // the same for the file that the job stands in; "" = not said
	Visibility     string // public, private or internal; "" = not said
}

// Identity checks the ID tokens that one issuer of GitHub Actions signs for one audience. It is safe for concurrent use.
type Identity struct {
	issuer   string
	audience string
	keys     *keySet
}

// IdentityConfig says whose tokens are honoured.
type IdentityConfig struct {
	Issuer   string // https://token.actions.githubusercontent.com, or that of an enterprise or an Enterprise Server
	Audience string // the one audience: this deployment's public address
	Fetch    Fetch  // nil = over HTTPS
}

// NewIdentity returns Invalid for an issuer that is no https address (http for this machine alone) and for no audience.
func NewIdentity(cfg IdentityConfig) (*Identity, error) {
	base, err := issuerURL(cfg.Issuer)
	if err != nil {
		return nil, err
	}
	if cfg.Audience == "" {
		return nil, errand.Invalid("oidc.audience", "is missing: an ID token without an audience of ours could be made for anybody")
	}
	if cfg.Fetch == nil {
		cfg.Fetch = overHTTP()
	}
	issuer := strings.TrimRight(cfg.Issuer, "/")
	return &Identity{issuer: issuer, audience: cfg.Audience, keys: newKeySet(issuer, base, cfg.Fetch)}, nil
}

// idClaims are the members that are read. Pointers tell what is absent from what is zero.
type idClaims struct {
	Issuer         string   `json:"iss"`
	Audience       audList  `json:"aud"`
	Expires        *seconds `json:"exp"`
	NotBefore      *seconds `json:"nbf"`
	IssuedAt       *seconds `json:"iat"`
	RepositoryID   number   `json:"repository_id"`
	OwnerID        number   `json:"repository_owner_id"`
	ActorID        number   `json:"actor_id"`
	RunID          number   `json:"run_id"`
	RunAttempt     number   `json:"run_attempt"`
	Event          string   `json:"event_name"`
	Ref            string   `json:"ref"`
	Repository     string   `json:"repository"`
	WorkflowRef    string   `json:"workflow_ref"`
	JobWorkflowRef string   `json:"job_workflow_ref"`
	Visibility     string   `json:"repository_visibility"`
}

// Verify checks the token's form, signature, issuer, audience and times. Its error is a Failure, or Unavailable when the
// issuer's keys cannot be had: then nothing is known of the token, and the caller may ask again. What the workload must be
// is for the caller to hold against what it knows.
func (i *Identity) Verify(ctx context.Context, token string, now time.Time) (Workload, error) {
	if len(token) > maxIDToken {
		return Workload{}, IDTooLarge
	}
	if strings.Count(token, ".") != 2 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Workload{}, IDMalformed // base64 overlooks line breaks
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256})
	var algorithm *jose.ErrUnexpectedSignatureAlgorithm
	switch {
	case errors.As(err, &algorithm):
		return Workload{}, IDAlgorithm
	case err != nil || len(signed.Signatures) != 1 || signed.Signatures[0].Protected.KeyID == "":
		return Workload{}, IDMalformed
	}
	key, err := i.keys.find(ctx, signed.Signatures[0].Protected.KeyID, now)
	if err != nil {
		return Workload{}, err
	}
	payload, err := signed.Verify(key)
	if err != nil {
		return Workload{}, IDBadSignature
	}
	return i.read(payload, now)
}

// read holds the payload of a token whose signature is good against issuer, audience and time.
func (i *Identity) read(payload []byte, now time.Time) (Workload, error) {
	var c idClaims
	if err := json.Unmarshal(payload, &c); err != nil {
		return Workload{}, IDMalformed
	}
	switch {
	case c.Issuer != i.issuer:
		return Workload{}, IDWrongIssuer
	case len(c.Audience) != 1 || c.Audience[0] != i.audience:
		return Workload{}, IDWrongAudience
	case c.Expires == nil || c.IssuedAt == nil:
		return Workload{}, IDIncomplete
	case !now.Before(c.Expires.time().Add(idSkew)):
		return Workload{}, IDExpired
	case c.NotBefore != nil && now.Add(idSkew).Before(c.NotBefore.time()):
		return Workload{}, IDNotYet
	case now.Add(idSkew).Before(c.IssuedAt.time()):
		return Workload{}, IDIssuedLater
	}
	for _, n := range []number{c.RepositoryID, c.OwnerID, c.ActorID, c.RunID, c.RunAttempt} {
		if n < 1 {
			return Workload{}, IDIncomplete
		}
	}
	for _, s := range []string{c.Event, c.Ref, c.Repository, c.WorkflowRef} {
		if s == "" {
			return Workload{}, IDIncomplete
		}
	}
	if c.RunAttempt > 1<<31-1 {
		return Workload{}, IDMalformed
	}
	return Workload{
		RepositoryID: int64(c.RepositoryID), OwnerID: int64(c.OwnerID), ActorID: int64(c.ActorID), RunID: int64(c.RunID),
		RunAttempt: int(c.RunAttempt), Event: c.Event, Ref: c.Ref, Repository: c.Repository,
		WorkflowRef: c.WorkflowRef, JobWorkflowRef: c.JobWorkflowRef, Visibility: c.Visibility,
	}, nil
}

// number is an id: GitHub writes it as a string of digits, and nothing says that it always will.
type number int64

// UnmarshalJSON takes digits, with quotation marks or without.
func (n *number) UnmarshalJSON(b []byte) error {
	text := string(b)
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	v, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(v, 10) != text {
		return fmt.Errorf("%s is no id", b)
	}
	*n = number(v)
	return nil
}

// seconds is a time as tokens write it.
type seconds int64

// UnmarshalJSON takes a whole number of seconds since 1970, or one with a fraction, which is cut.
func (s *seconds) UnmarshalJSON(b []byte) error {
	whole, _, _ := strings.Cut(string(b), ".")
	v, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || v < 0 || v > 1<<40 {
		return fmt.Errorf("%s is no time", b)
	}
	*s = seconds(v)
	return nil
}

func (s seconds) time() time.Time { return time.Unix(int64(s), 0) }

// audList is one audience, or a list of them.
type audList []string

// UnmarshalJSON takes both forms.
func (a *audList) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audList{one}
		return nil
	}
	var list []string
	err := json.Unmarshal(b, &list)
	*a = list
	return err
}
