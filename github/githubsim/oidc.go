package githubsim

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/errand-dev/errand"
)

// issuerPath is where an Enterprise Server's issuer of ID tokens stands; idTokenPath is where a job asks for one.
const (
	issuerPath  = "/_services/token"
	idTokenPath = "/_services/actions/idtoken"
	idTokenLife = 5 * time.Minute
)

// issuer is the signing key in force and those that are published beside it.
type issuer struct {
	current   *rsa.PrivateKey // nil until the first need: making one takes a while
	id        string
	published []jose.JSONWebKey
	requests  map[string]idRequest // by the bearer token that a job was given
}

// idRequest is what a job's request token stands for.
type idRequest struct {
	run, job int64
	attempt  int
}

// IssuerURL is the address of the issuer of ID tokens.
func (s *Sim) IssuerURL() string { return s.URL() + issuerPath }

// RotateIssuer makes the issuer sign with another key from now on. The former one stays published only when it is kept.
func (s *Sim) RotateIssuer(keep bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !keep {
		s.state.issuer.published = nil
	}
	return s.state.issuer.rotate()
}

func (i *issuer) rotate() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("githubsim: %w", err)
	}
	i.current, i.id = key, randomHex(16)
	i.published = append(i.published, jose.JSONWebKey{Key: &key.PublicKey, KeyID: i.id, Algorithm: string(jose.RS256), Use: "sig"})
	return nil
}

func (i *issuer) sign(claims jwt.MapClaims) (string, error) {
	if i.current == nil {
		if err := i.rotate(); err != nil {
			return "", err
		}
	}
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	t.Header["kid"] = i.id
	return t.SignedString(i.current)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// IDToken makes the token that the run's first job would get for the audience. change, where given, alters what it says: a
// test's way to a token that GitHub would never sign.
func (s *Sim) IDToken(runID int64, audience string, change func(claims map[string]any)) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.state.runs[runID]
	if r == nil || len(r.jobs) == 0 {
		return "", errand.NotFound("workflow run with a job")
	}
	claims := s.claimsOf(r, r.jobs[0], audience)
	if change != nil {
		change(claims)
	}
	return s.state.issuer.sign(claims)
}

// claimsOf is what GitHub says of a job. Sim.mu is held.
func (s *Sim) claimsOf(r *run, j *job, audience string) jwt.MapClaims {
	now, full, owner := s.clock(), r.repo.fullName(), s.ownerID(r.repo)
	workflow := full + "/" + r.path + "@" + r.ref
	bot := s.appUser()
	if audience == "" {
		audience = s.base + "/" + r.repo.Owner
	}
	c := jwt.MapClaims{
		"iss": s.base + issuerPath, "aud": audience, "jti": randomHex(16),
		"sub": fmt.Sprintf("repo:%s@%d/%s@%d:ref:%s", r.repo.Owner, owner, r.repo.Name, r.repo.ID, r.ref),
		"iat": now.Unix(), "nbf": now.Add(-idTokenLife).Unix(), "exp": now.Add(idTokenLife).Unix(),
		"repository": full, "repository_owner": r.repo.Owner, "actor": bot["login"], "event_name": "workflow_dispatch",
		"repository_visibility": map[bool]string{true: "private", false: "public"}[r.repo.Private],
		"ref":                   r.ref, "ref_type": refType(r.ref), "base_ref": "", "head_ref": "", "sha": r.SHA, "runner_environment": "self-hosted",
		"workflow": r.workflowName, "workflow_ref": workflow, "workflow_sha": r.SHA, "job_workflow_ref": workflow, "job_workflow_sha": r.SHA,
	}
	for name, id := range map[string]int64{ // ids are strings
		"repository_id": r.repo.ID, "repository_owner_id": owner, "run_id": r.ID, "run_number": int64(r.number),
		"run_attempt": int64(r.Attempt), "actor_id": bot["id"].(int64), "check_run_id": j.id,
	} {
		c[name] = strconv.FormatInt(id, 10)
	}
	return c
}

// offerIDToken gives a job with `id-token: write` the two variables by which it asks. Sim.mu is held.
func (s *Sim) offerIDToken(spec *Job, r *run, j *job) {
	if !j.spec.mayAskForIDToken() {
		return
	}
	spec.IDTokenRequestToken = randomHex(32)
	spec.IDTokenRequestURL = fmt.Sprintf("%s%s/%d/%d?api-version=2.0", s.base, idTokenPath, r.ID, j.id)
	s.state.issuer.requests[spec.IDTokenRequestToken] = idRequest{run: r.ID, job: j.id, attempt: r.Attempt}
}

// mayAskForIDToken tells whether the file grants it: nothing does unless it is written there.
func (j JobSpec) mayAskForIDToken() bool {
	switch p := j.Permissions.(type) {
	case string:
		return p == "write-all"
	case map[string]any:
		return fmt.Sprint(p["id-token"]) == "write"
	default:
		return false
	}
}

func (s *Sim) issuerRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+issuerPath+"/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		base := s.IssuerURL()
		s.answerJSON(w, http.StatusOK, object{
			"issuer": base, "jwks_uri": base + "/.well-known/jwks", "subject_types_supported": []string{"public", "pairwise"},
			"response_types_supported": []string{"id_token"}, "id_token_signing_alg_values_supported": []string{"RS256"}, "scopes_supported": []string{"openid"},
		})
	})
	mux.HandleFunc("GET "+issuerPath+"/.well-known/jwks", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answerJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: orEmpty(s.state.issuer.published)})
	})
	mux.HandleFunc("GET "+idTokenPath+"/{run}/{job}", s.serveIDToken)
}

// serveIDToken answers a job that asks for its token, while that job runs.
func (s *Sim) serveIDToken(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	req, ok := s.state.issuer.requests[bearer]
	run := s.state.runs[req.run]
	if !ok || run == nil || run.Attempt != req.attempt || run.Status == "completed" ||
		r.URL.Path != fmt.Sprintf("%s/%d/%d", idTokenPath, req.run, req.job) || r.URL.Query().Get("api-version") == "" {
		s.answerRefusal(w, r, refuse(http.StatusUnauthorized, badCredentials))
		return
	}
	for _, j := range run.jobs {
		if j.id != req.job {
			continue
		}
		text, err := s.state.issuer.sign(s.claimsOf(run, j, r.URL.Query().Get("audience")))
		if err != nil {
			s.answerRefusal(w, r, refuse(http.StatusInternalServerError, "%v", err))
			return
		}
		s.answerJSON(w, http.StatusOK, object{"value": text, "count": len(text)})
		return
	}
	s.answerRefusal(w, r, refuse(http.StatusNotFound, "Not Found"))
}

// endIDTokens drops what a finished run's jobs could ask with. Sim.mu is held.
func (s *Sim) endIDTokens(runID int64) {
	maps.DeleteFunc(s.state.issuer.requests, func(_ string, q idRequest) bool { return q.run == runID })
}
