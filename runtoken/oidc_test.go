package runtoken_test

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/runtoken"
)

const (
	issuer   = "https://token.actions.githubusercontent.com"
	audience = "https://errand.example.com"
)

// authority is an issuer whose documents a test makes. Its keys are made once for all tests: 2,048 bits take a while.
type authority struct {
	mu    sync.Mutex
	keys  map[string]*rsa.PublicKey
	extra []map[string]any // further members of the key document
	about map[string]any   // overrides of openid-configuration
	down  error
	asked map[string]int
}

var keyPair = sync.OnceValue(func() [2]*rsa.PrivateKey {
	var pair [2]*rsa.PrivateKey
	for i := range pair {
		pair[i], _ = rsa.GenerateKey(rand.Reader, 2048)
	}
	return pair
})

func newAuthority() *authority {
	return &authority{keys: map[string]*rsa.PublicKey{"k1": &keyPair()[0].PublicKey}, asked: map[string]int{}}
}

func (a *authority) fetch(_ context.Context, url string) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[url]++
	if a.down != nil {
		return nil, a.down
	}
	if url == issuer+"/.well-known/openid-configuration" {
		doc := map[string]any{"issuer": issuer, "jwks_uri": issuer + "/.well-known/jwks", "subject_types_supported": []string{"public"}}
		maps.Copy(doc, a.about)
		return json.Marshal(doc)
	}
	list := append([]map[string]any{}, a.extra...)
	for id, k := range a.keys {
		list = append(list, jwk(id, k))
	}
	return json.Marshal(map[string]any{"keys": list})
}

func jwk(id string, k *rsa.PublicKey) map[string]any {
	return map[string]any{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": id,
		"n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes()),
	}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (a *authority) identity(t testing.TB) *runtoken.Identity {
	t.Helper()
	id, err := runtoken.NewIdentity(runtoken.IdentityConfig{Issuer: issuer, Audience: audience, Fetch: a.fetch})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// claims are what GitHub says of a job, with ids as the strings that they are.
func claims() map[string]any {
	return map[string]any{
		"iss": issuer, "aud": audience, "sub": "anything:the:customer chose", "jti": "1",
		"iat": start.Unix(), "nbf": start.Unix() - 10, "exp": start.Add(5 * time.Minute).Unix(),
		"repository": "acme/shop", "repository_id": "7001", "repository_owner": "acme", "repository_owner_id": "9001",
		"repository_visibility": "private", "run_id": "30000000991", "run_number": "4", "run_attempt": "1",
		"actor": "errand[bot]", "actor_id": "901001", "event_name": "workflow_dispatch", "ref": "refs/heads/main", "ref_type": "branch",
		"workflow_ref":     "acme/shop/.github/workflows/errand.yml@refs/heads/main",
		"job_workflow_ref": "acme/shop/.github/workflows/errand.yml@refs/heads/main",
	}
}

// signed makes a token whatever its header and payload are.
func signed(header, payload string, key *rsa.PrivateKey) string {
	text := b64([]byte(header)) + "." + b64([]byte(payload))
	sum := sha256.Sum256([]byte(text))
	sig, _ := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	return text + "." + b64(sig)
}

const header = `{"typ":"JWT","alg":"RS256","kid":"k1"}`

func tokenWith(change func(map[string]any)) string {
	c := claims()
	if change != nil {
		change(c)
	}
	b, _ := json.Marshal(c)
	return signed(header, string(b), keyPair()[0])
}

func TestAnIDTokenIsReadAsItSays(t *testing.T) {
	t.Parallel()
	id := newAuthority().identity(t)
	want := runtoken.Workload{
		RepositoryID: 7001, OwnerID: 9001, ActorID: 901001, RunID: 30000000991, RunAttempt: 1, Event: "workflow_dispatch", Ref: "refs/heads/main",
		Repository: "acme/shop", WorkflowRef: "acme/shop/.github/workflows/errand.yml@refs/heads/main",
		JobWorkflowRef: "acme/shop/.github/workflows/errand.yml@refs/heads/main", Visibility: "private",
	}
	for says, change := range map[string]func(map[string]any){
		"as GitHub writes it":      nil,
		"with ids as numbers":      func(c map[string]any) { c["repository_id"], c["run_id"] = 7001, 30000000991 },
		"its audience in a list":   func(c map[string]any) { c["aud"] = []string{audience} },
		"with a sub of any form":   func(c map[string]any) { c["sub"] = "repo:acme@1/shop@2:ref:refs/heads/%3A" },
		"with members of tomorrow": func(c map[string]any) { c["repo_property_x"] = map[string]any{"a": 1} },
	} {
		if got, err := id.Verify(t.Context(), tokenWith(change), start); err != nil || got != want {
			t.Errorf("%s: %+v, %v", says, got, err)
		}
	}
}

func TestWhyAnIDTokenIsRefused(t *testing.T) {
	t.Parallel()
	a := newAuthority()
	id := a.identity(t)
	good := tokenWith(nil)
	set := func(name string, v any) string { return tokenWith(func(c map[string]any) { c[name] = v }) }
	without := func(name string) string { return tokenWith(func(c map[string]any) { delete(c, name) }) }
	payload, _ := json.Marshal(claims())
	twice := func(member string) string {
		return signed(header, strings.Replace(string(payload), "{", "{"+member+",", 1), keyPair()[0])
	}
	parts := strings.Split(good, ".")
	// HS256 over the public key, which a checker that takes the header's word would accept.
	der, _ := x509.MarshalPKIXPublicKey(&keyPair()[0].PublicKey)
	mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	confused := b64([]byte(`{"alg":"HS256","kid":"k1"}`)) + "." + parts[1]
	mac.Write([]byte(confused))
	confused += "." + b64(mac.Sum(nil))
	own, _ := json.Marshal(jwk("k1", &keyPair()[1].PublicKey))
	for _, row := range []struct {
		says, token string
		want        runtoken.Failure
	}{
		{"nothing", "", runtoken.IDMalformed},
		{"two parts", parts[0] + "." + parts[1], runtoken.IDMalformed},
		{"five parts, as encrypted ones have", "a.b.c.d.e", runtoken.IDMalformed},
		{"with a line break, which base64 would overlook", parts[0] + ".\n" + parts[1] + "." + parts[2], runtoken.IDMalformed},
		{"the JSON form", `{"payload":"","signatures":[]}`, runtoken.IDMalformed},
		{"larger than any token", good + strings.Repeat("A", 16<<10), runtoken.IDTooLarge},
		{"alg none", b64([]byte(`{"alg":"none","kid":"k1"}`)) + "." + parts[1] + ".", runtoken.IDAlgorithm},
		{"alg HS256 with the public key for a secret", confused, runtoken.IDAlgorithm},
		{"alg RS512", signed(`{"alg":"RS512","kid":"k1"}`, string(payload), keyPair()[0]), runtoken.IDAlgorithm},
		{"alg twice in the header", signed(`{"alg":"RS256","kid":"k1","alg":"RS256"}`, string(payload), keyPair()[0]), runtoken.IDMalformed},
		{"no key id", signed(`{"alg":"RS256"}`, string(payload), keyPair()[0]), runtoken.IDMalformed},
		{"a critical extension", signed(`{"alg":"RS256","kid":"k1","crit":["x"],"x":1}`, string(payload), keyPair()[0]), runtoken.IDBadSignature},
		{"a key of its own in the header", signed(`{"alg":"RS256","kid":"k1","jwk":`+string(own)+`}`, string(payload), keyPair()[1]), runtoken.IDBadSignature},
		{"signed by another key", signed(header, string(payload), keyPair()[1]), runtoken.IDBadSignature},
		{"a key id that nobody has", signed(`{"alg":"RS256","kid":"k9"}`, string(payload), keyPair()[0]), runtoken.IDUnknownKey},
		{"the payload of another token", parts[0] + "." + strings.Split(set("run_id", "5"), ".")[1] + "." + parts[2], runtoken.IDBadSignature},
		{"no JSON inside", signed(header, "hello", keyPair()[0]), runtoken.IDMalformed},
		{"repository_id twice", twice(`"repository_id":"1"`), runtoken.IDMalformed},
		{"aud twice", twice(`"aud":"x"`), runtoken.IDMalformed},
		{"from another issuer", set("iss", "https://token.actions.example.com"), runtoken.IDWrongIssuer},
		{"from an enterprise's issuer where that is not ours", set("iss", issuer+"/octo"), runtoken.IDWrongIssuer},
		{"without an issuer", without("iss"), runtoken.IDWrongIssuer},
		{"for the owner's address, GitHub's default", set("aud", "https://github.com/acme"), runtoken.IDWrongAudience},
		{"for our address with a slash more", set("aud", audience+"/"), runtoken.IDWrongAudience},
		{"for us and for somebody else", set("aud", []string{audience, "https://other.example.com"}), runtoken.IDWrongAudience},
		{"without an audience", without("aud"), runtoken.IDWrongAudience},
		{"over for longer than the clocks may differ", set("exp", start.Add(-61*time.Second).Unix()), runtoken.IDExpired},
		{"without an end", without("exp"), runtoken.IDIncomplete},
		{"an end that is no time", set("exp", "tomorrow"), runtoken.IDMalformed},
		{"not valid yet", set("nbf", start.Add(61*time.Second).Unix()), runtoken.IDNotYet},
		{"issued in the future", set("iat", start.Add(61*time.Second).Unix()), runtoken.IDIssuedLater},
		{"without its time of issue", without("iat"), runtoken.IDIncomplete},
		{"without a repository's id", without("repository_id"), runtoken.IDIncomplete},
		{"a repository's id of zero", set("repository_id", "0"), runtoken.IDIncomplete},
		{"a repository's id that is a name", set("repository_id", "acme/shop"), runtoken.IDMalformed},
		{"a repository's id with a zero before it", set("repository_id", "07001"), runtoken.IDMalformed},
		{"a negative id", set("repository_id", -7001), runtoken.IDMalformed},
		{"without an owner's id", without("repository_owner_id"), runtoken.IDIncomplete},
		{"without an actor's id", without("actor_id"), runtoken.IDIncomplete},
		{"without a run's id", without("run_id"), runtoken.IDIncomplete},
		{"without the run's attempt", without("run_attempt"), runtoken.IDIncomplete},
		{"an attempt that does not fit", set("run_attempt", "2147483648"), runtoken.IDMalformed},
		{"without its event", without("event_name"), runtoken.IDIncomplete},
		{"without its ref", without("ref"), runtoken.IDIncomplete},
		{"without its workflow", without("workflow_ref"), runtoken.IDIncomplete},
		{"the same names in capitals", tokenWith(func(c map[string]any) { c["REPOSITORY_ID"] = c["repository_id"]; delete(c, "repository_id") }), runtoken.IDIncomplete},
	} {
		if got, err := id.Verify(t.Context(), row.token, start); !errors.Is(err, row.want) || got != (runtoken.Workload{}) {
			t.Errorf("%s: %+v, %v; want %v", row.says, got, err, row.want)
		}
	}
	for says, token := range map[string]string{
		"over for less than the clocks may differ": set("exp", start.Add(-59*time.Second).Unix()),
		"issued within what the clocks may differ": set("iat", start.Add(59*time.Second).Unix()),
		"a time with a fraction":                   set("iat", 1.5+float64(start.Unix())),
		"without nbf, which nobody must say":       without("nbf"),
	} {
		if _, err := id.Verify(t.Context(), token, start); err != nil {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestOneChangedBitOfAnIDTokenIsRefused(t *testing.T) {
	t.Parallel()
	id := newAuthority().identity(t)
	good := tokenWith(nil)
	sig := strings.LastIndex(good, ".") + 1
	for i := 0; i < len(good); i += 1 + i%3 { // RSA is slow: a third of the positions, all bits in turn
		b := []byte(good)
		b[i] ^= 1 << (i % 7)
		if _, err := id.Verify(t.Context(), string(b), start); err == nil && (i < sig || i < len(good)-1) {
			t.Errorf("byte %d changed was accepted", i)
		}
	}
}

func TestKeysOfTheIssuerRotate(t *testing.T) {
	t.Parallel()
	a := newAuthority()
	id := a.identity(t)
	keys := issuer + "/.well-known/jwks"
	payload, _ := json.Marshal(claims())
	late := func(d time.Duration) string {
		return tokenWith(func(c map[string]any) { c["exp"] = start.Add(d + time.Minute).Unix() })
	}
	check := func(says, token string, at time.Time, want error, asked int) {
		t.Helper()
		_, err := id.Verify(t.Context(), token, at)
		if !errors.Is(err, want) || want == nil && err != nil || a.asked[keys] != asked {
			t.Errorf("%s: %v after %d questions; want %v after %d", says, err, a.asked[keys], want, asked)
		}
	}
	check("the first token", tokenWith(nil), start, nil, 1)
	check("the second one asks nobody", tokenWith(nil), start, nil, 1)
	other := signed(`{"alg":"RS256","kid":"k2"}`, string(payload), keyPair()[1])
	for range 5 {
		check("strangers' keys are not looked for again at once", other, start.Add(29*time.Second), runtoken.IDUnknownKey, 1)
	}
	a.keys["k2"] = &keyPair()[1].PublicKey
	check("a new key is looked for, once", other, start.Add(30*time.Second), nil, 2)
	check("and both are known", tokenWith(nil), start.Add(30*time.Second), nil, 2)
	delete(a.keys, "k1")
	check("a withdrawn key still counts within the hour", late(time.Hour), start.Add(30*time.Second+59*time.Minute), nil, 2)
	check("and not beyond it", late(time.Hour), start.Add(30*time.Second+time.Hour), runtoken.IDUnknownKey, 3)
}

func TestAnIssuerThatDoesNotAnswerIsUnknownAndNeverAPass(t *testing.T) {
	t.Parallel()
	a := newAuthority()
	id := a.identity(t)
	keys := issuer + "/.well-known/openid-configuration"
	a.down = errors.New("connection refused")
	verify := func(at time.Time) errand.Code {
		_, err := id.Verify(context.Background(), tokenWith(func(c map[string]any) { c["exp"] = at.Add(time.Minute).Unix() }), at)
		return errand.CodeOf(err)
	}
	if code := verify(start); code != errand.CodeUnavailable {
		t.Errorf("down from the start: %q", code)
	}
	if code := verify(start.Add(time.Second)); code != errand.CodeUnavailable || a.asked[keys] != 1 {
		t.Errorf("down, asked again at once: %q after %d questions", code, a.asked[keys])
	}
	a.down = nil
	if code := verify(start.Add(5 * time.Second)); code != "" {
		t.Errorf("back: %q", code)
	}
	a.down = errors.New("connection refused")
	if code := verify(start.Add(30 * time.Minute)); code != "" {
		t.Errorf("down, with its keys in hand: %q", code)
	}
	if code := verify(start.Add(2 * time.Hour)); code != errand.CodeUnavailable {
		t.Errorf("down, with keys of two hours ago: %q", code)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	a.down = context.Canceled
	fresh := a.identity(t)
	if _, err := fresh.Verify(gone, tokenWith(nil), start); errand.CodeOf(err) != errand.CodeUnavailable {
		t.Errorf("a caller that went away: %v", err)
	}
	a.down = nil
	if _, err := fresh.Verify(context.Background(), tokenWith(nil), start); err != nil {
		t.Errorf("the next one, at once: %v", err)
	}
}

func TestWhatAnIssuerMayNotSay(t *testing.T) {
	t.Parallel()
	small := rsa.PublicKey{N: new(big.Int).Rsh(keyPair()[0].N, 1024), E: 65537}
	for says, change := range map[string]func(*authority){
		"it is somebody else": func(a *authority) { a.about = map[string]any{"issuer": "https://other.example.com"} },
		"its keys are on another host": func(a *authority) {
			a.about = map[string]any{"jwks_uri": "https://token.actions.githubusercontent.com.evil.example/jwks"}
		},
		"its keys come unencrypted": func(a *authority) {
			a.about = map[string]any{"jwks_uri": "http://token.actions.githubusercontent.com/jwks"}
		},
		"it has no keys":           func(a *authority) { clear(a.keys) },
		"its key is of 1,024 bits": func(a *authority) { a.keys["k1"] = &small },
		"its key is for encryption": func(a *authority) {
			clear(a.keys)
			k := jwk("k1", &keyPair()[0].PublicKey)
			k["use"] = "enc"
			a.extra = append(a.extra, k)
		},
		"its key is a shared secret": func(a *authority) {
			clear(a.keys)
			a.extra = append(a.extra, map[string]any{"kty": "oct", "kid": "k1", "k": "c2VjcmV0"})
		},
		"two different keys under one name": func(a *authority) { a.extra = append(a.extra, jwk("k1", &keyPair()[1].PublicKey)) },
	} {
		a := newAuthority()
		change(a)
		if _, err := a.identity(t).Verify(t.Context(), tokenWith(nil), start); errand.CodeOf(err) != errand.CodeUnavailable {
			t.Errorf("%s: %v", says, err)
		}
	}
	// One that cannot be read does not spoil the others.
	a := newAuthority()
	a.extra = []map[string]any{{"kty": "quantum", "kid": "k7"}, {"kty": "RSA", "kid": "k8", "n": "!", "e": "AQAB"}}
	if _, err := a.identity(t).Verify(t.Context(), tokenWith(nil), start); err != nil {
		t.Errorf("beside a key of a kind that is not known: %v", err)
	}
}

func TestManyTokensAtOnceAskTheIssuerOnce(t *testing.T) {
	t.Parallel()
	a := newAuthority()
	id := a.identity(t)
	var wg sync.WaitGroup
	var failed atomic.Int32
	for range 20 {
		wg.Go(func() {
			if _, err := id.Verify(context.Background(), tokenWith(nil), start); err != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if n := a.asked[issuer+"/.well-known/jwks"]; n != 1 || failed.Load() != 0 {
		t.Errorf("%d failed, the issuer was asked %d times", failed.Load(), n)
	}
}

func TestTheIssuerIsReadOverHTTPWithoutRedirects(t *testing.T) {
	t.Parallel()
	a := newAuthority()
	var base string
	var moved, large atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if moved.Load() && !strings.HasPrefix(r.URL.Path, "/moved") {
			http.Redirect(w, r, "/moved"+r.URL.Path, http.StatusFound)
			return
		}
		if strings.HasSuffix(r.URL.Path, "openid-configuration") {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, base, base+"/keys")
			return
		}
		b, _ := a.fetch(r.Context(), "keys")
		if large.Load() {
			b = append(b, strings.Repeat(" ", 300<<10)...)
		}
		_, _ = w.Write(b)
	}))
	defer srv.Close()
	base = srv.URL
	for _, row := range []struct {
		says  string
		moved bool
		large bool
		code  errand.Code
	}{{"as it should be", false, false, ""}, {"redirected", true, false, errand.CodeUnavailable}, {"without end", false, true, errand.CodeUnavailable}} {
		moved.Store(row.moved)
		large.Store(row.large)
		id, err := runtoken.NewIdentity(runtoken.IdentityConfig{Issuer: base, Audience: audience})
		if err != nil {
			t.Fatal(err)
		}
		_, err = id.Verify(t.Context(), tokenWith(func(c map[string]any) { c["iss"] = base }), start)
		if errand.CodeOf(err) != row.code {
			t.Errorf("%s: %v", row.says, err)
		}
	}
}

func TestIssuersThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ issuer, audience string }{
		{"", audience},
		{"token.actions.githubusercontent.com", audience},
		{"http://ghes.example.com/_services/token", audience},
		{"https://u:p@ghes.example.com", audience},
		{"https://ghes.example.com?x=1", audience},
		{issuer, ""},
		{"ftp://127.0.0.1", audience},
	} {
		if _, err := runtoken.NewIdentity(runtoken.IdentityConfig{Issuer: row.issuer, Audience: row.audience}); errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%q for %q: %v", row.issuer, row.audience, err)
		}
	}
}

// FuzzIDTokenClaims signs whatever payload it is given: what is accepted must say that it is from the issuer, for us, and
// of a workload that is named in full.
func FuzzIDTokenClaims(f *testing.F) {
	good, _ := json.Marshal(claims())
	f.Add(string(good))
	f.Add(`{"iss":"` + issuer + `","aud":["` + audience + `"],"exp":1e9,"iat":0}`)
	f.Add(`{"aud":{},"repository_id":9223372036854775808}`)
	f.Add("[]")
	id := newAuthority().identity(f)
	f.Fuzz(func(t *testing.T, payload string) {
		w, err := id.Verify(context.Background(), signed(header, payload, keyPair()[0]), start)
		var why runtoken.Failure
		switch {
		case err == nil:
			var said map[string]any
			if json.Unmarshal([]byte(payload), &said) != nil || said["iss"] != issuer || w.RepositoryID < 1 || w.OwnerID < 1 || w.RunID < 1 ||
				w.RunAttempt < 1 || w.ActorID < 1 || w.Event == "" || w.Ref == "" || w.WorkflowRef == "" || !strings.Contains(payload, audience) {
				t.Errorf("accepted %q as %+v", payload, w)
			}
		case !errors.As(err, &why):
			t.Errorf("%q: the error %v is not a Failure", payload, err)
		}
	})
}

// FuzzIDToken has no key: whatever text it finds must be refused with a word for it.
func FuzzIDToken(f *testing.F) {
	id := newAuthority().identity(f)
	good := tokenWith(nil)
	f.Add(good[:len(good)-2])
	f.Add(b64([]byte(`{"alg":"none"}`)) + "..")
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, s string) {
		var why runtoken.Failure
		if _, err := id.Verify(context.Background(), s, start); !errors.As(err, &why) {
			t.Errorf("%q: %v", s, err)
		}
	})
}
