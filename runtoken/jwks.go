package runtoken

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/errand-dev/errand"
)

const (
	keysFresh    = time.Hour        // after which the issuer is asked again before a key is believed
	keysAgain    = 30 * time.Second // between two looks for a key that is not among those known
	keysRetry    = 5 * time.Second  // after the issuer could not be asked
	fetchTimeout = 5 * time.Second
	maxDocument  = 256 << 10
	leastBits    = 2048
)

// Fetch reads one document of the issuer.
type Fetch func(ctx context.Context, url string) ([]byte, error)

// keySet is the issuer's keys as they were last read. Readers of a known key wait for nobody.
type keySet struct {
	issuer string
	host   string // scheme://host, which its key document must not leave
	fetch  Fetch
	known  atomic.Pointer[readKeys]
	turn   chan struct{} // held by the one who asks the issuer
	failed time.Time     // of the last attempt that failed; guarded by turn
	why    error
}

type readKeys struct {
	at   time.Time
	byID map[string]*rsa.PublicKey
}

func newKeySet(issuer, host string, fetch Fetch) *keySet {
	return &keySet{issuer: issuer, host: host, fetch: fetch, turn: make(chan struct{}, 1)}
}

// find gives the key of that id. One that is not known is looked for once at the issuer, which may have rotated, and not more
// often than every half minute, whatever strangers send. When the issuer does not answer, the key is unknown and not absent.
func (k *keySet) find(ctx context.Context, id string, now time.Time) (*rsa.PublicKey, error) {
	if key := k.known.Load().fresh(id, now); key != nil {
		return key, nil
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, errand.Errorf(errand.CodeUnavailable, ctx.Err(), "the keys of %s were not read in time", k.issuer)
	}
	had := k.known.Load()
	if key := had.fresh(id, now); key != nil { // read while we waited
		return key, nil
	}
	if had != nil && now.Sub(had.at).Abs() < keysAgain {
		return nil, IDUnknownKey
	}
	if !k.failed.IsZero() && now.Sub(k.failed).Abs() < keysRetry {
		return nil, errand.Errorf(errand.CodeUnavailable, k.why, "the keys of %s cannot be read just now", k.issuer)
	}
	got, err := k.read(ctx, now)
	if err != nil {
		if ctx.Err() == nil { // a caller that went away says nothing about the issuer
			k.failed, k.why = now, err
		}
		return nil, errand.Errorf(errand.CodeUnavailable, err, "the keys of %s cannot be read just now", k.issuer)
	}
	k.failed, k.why = time.Time{}, nil
	k.known.Store(got)
	if key := got.byID[id]; key != nil {
		return key, nil
	}
	return nil, IDUnknownKey
}

func (r *readKeys) fresh(id string, now time.Time) *rsa.PublicKey {
	if r == nil || now.Sub(r.at).Abs() >= keysFresh {
		return nil
	}
	return r.byID[id]
}

// read asks the issuer where its keys are, and reads them.
func (k *keySet) read(ctx context.Context, now time.Time) (*readKeys, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	b, err := k.fetch(ctx, k.issuer+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(b, &about); err != nil {
		return nil, fmt.Errorf("openid-configuration: %w", err)
	}
	if about.Issuer != k.issuer || !strings.HasPrefix(about.Keys, k.host+"/") {
		return nil, fmt.Errorf("openid-configuration is that of %q with keys at %q", about.Issuer, about.Keys)
	}
	if b, err = k.fetch(ctx, about.Keys); err != nil {
		return nil, err
	}
	return parseKeys(b, now)
}

// parseKeys keeps the RSA keys that may sign. A key of another kind, or one that cannot be read, is nobody's.
func parseKeys(document []byte, now time.Time) (*readKeys, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, fmt.Errorf("the key document: %w", err)
	}
	got := &readKeys{at: now, byID: map[string]*rsa.PublicKey{}}
	twice := map[string]bool{}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil {
			continue
		}
		public, ok := key.Key.(*rsa.PublicKey)
		if !ok || key.KeyID == "" || key.Use != "" && key.Use != "sig" || key.Algorithm != "" && key.Algorithm != string(jose.RS256) || public.N.BitLen() < leastBits {
			continue
		}
		if got.byID[key.KeyID] != nil {
			twice[key.KeyID] = true
		}
		got.byID[key.KeyID] = public
	}
	for id := range twice { // which of them is meant cannot be told
		delete(got.byID, id)
	}
	if len(got.byID) == 0 {
		return nil, errors.New("the key document holds no RSA key that signs")
	}
	return got, nil
}

// overHTTP follows no redirect: the issuer is where it says it is.
func overHTTP() Fetch {
	client := &http.Client{
		Timeout:       fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context, address string) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close() //nolint:errcheck // read only
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s answered %s", address, resp.Status)
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
		if err == nil && len(b) > maxDocument {
			err = fmt.Errorf("%s is larger than %d bytes", address, maxDocument)
		}
		return b, err
	}
}

// issuerURL checks the issuer's address and gives its scheme and host.
func issuerURL(issuer string) (string, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errand.Invalid("oidc.issuer", "is not a plain address: want something like https://token.actions.githubusercontent.com")
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())) {
		return "", errand.Invalid("oidc.issuer", "must begin with https:// (http:// only for this machine)")
	}
	return u.Scheme + "://" + u.Host, nil
}
