package githubsim

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Who calls.
const (
	callerNobody       = "nobody"
	callerApp          = "app"          // the App itself, by its JWT
	callerInstallation = "installation" // the App in an installation: what Errand's control plane uses
	callerJob          = "job"          // GITHUB_TOKEN of a workflow run
)

// token is an installation's or a job's.
type token struct {
	caller       string
	installation int64
	repositories []int64 // nil = every repository of the installation
	permissions  map[string]string
	narrowed     bool // the request named repositories (or asked for metadata alone) and permissions
	run          int64
	expires      time.Time
}

func (t *token) reaches(repository int64) bool {
	return t.repositories == nil || slices.Contains(t.repositories, repository)
}

// may tells whether the token has at least the level of the permission.
func (t *token) may(permission, level string) bool {
	have := t.permissions[permission]
	return have == level || have == "write" && level == "read"
}

// refusal is an answer that is not a success, as GitHub words it.
type refusal struct {
	status  int
	message string
	errors  []any
	header  http.Header
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, message: fmt.Sprintf(format, args...)}
}

const (
	notAccessible  = "Resource not accessible by integration"
	badCredentials = "Bad credentials"
)

// appJWT checks the App's own token as GitHub does.
func (s *Sim) appJWT(r *http.Request) *refusal {
	scheme, raw, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || strings.HasPrefix(raw, "ghs_") {
		return refuse(http.StatusUnauthorized, "A JSON web token could not be decoded")
	}
	var claims jwt.RegisteredClaims
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithoutClaimsValidation())
	if _, err := parser.ParseWithClaims(raw, &claims, func(*jwt.Token) (any, error) { return s.pub, nil }); err != nil {
		return refuse(http.StatusUnauthorized, "A JSON web token could not be decoded")
	}
	now := s.clock()
	switch {
	case claims.Issuer != strconv.FormatInt(s.cfg.AppID, 10):
		return refuse(http.StatusUnauthorized, "Integration not found")
	case claims.IssuedAt == nil || claims.IssuedAt.After(now):
		return refuse(http.StatusUnauthorized, "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
	case claims.ExpiresAt == nil || !claims.ExpiresAt.After(now):
		return refuse(http.StatusUnauthorized, "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")
	case claims.ExpiresAt.After(now.Add(10 * time.Minute)):
		return refuse(http.StatusUnauthorized, "'Expiration time' claim ('exp') is too far in the future")
	}
	return nil
}

// tokenOf reads the token of a request: as bearer, as token, or as the password of basic authentication (git).
func (s *Sim) tokenOf(r *http.Request) (*token, *refusal) {
	raw := ""
	if _, password, ok := r.BasicAuth(); ok {
		raw = password
	} else if scheme, value, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok &&
		(strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token")) {
		raw = strings.TrimSpace(value)
	}
	if raw == "" {
		return nil, refuse(http.StatusUnauthorized, "Requires authentication")
	}
	t := s.state.tokens[raw]
	if t == nil || !t.expires.After(s.clock()) {
		return nil, refuse(http.StatusUnauthorized, badCredentials)
	}
	if t.caller == callerInstallation {
		switch in := s.state.installations[t.installation]; {
		case in == nil:
			return nil, refuse(http.StatusUnauthorized, badCredentials)
		case !in.suspendedAt.IsZero():
			return nil, refuse(http.StatusForbidden, "This installation has been suspended")
		}
	}
	return t, nil
}

// newToken makes the text of a token, in the long form: nobody may count on 40 characters.
func (s *Sim) newToken(t *token) string {
	raw := make([]byte, 256)
	_, _ = rand.Read(raw)
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT"}`))
	text := fmt.Sprintf("ghs_%d_%s.%s.%s", s.cfg.AppID, head,
		base64.RawURLEncoding.EncodeToString(raw[:128]), base64.RawURLEncoding.EncodeToString(raw[128:]))
	s.state.tokens[text] = t
	return text
}

// revokeTokens drops the tokens of a finished run.
func (s *Sim) revokeTokens(runID int64) {
	maps.DeleteFunc(s.state.tokens, func(_ string, t *token) bool { return t.caller == callerJob && t.run == runID })
}

type tokenRequest struct {
	Repositories  []string          `json:"repositories"`
	RepositoryIDs []int64           `json:"repository_ids"`
	Permissions   map[string]string `json:"permissions"`
}

// createToken is POST /app/installations/{id}/access_tokens. A token never carries more than the installation has.
func (s *Sim) createToken(c *call) (int, any, *refusal) {
	in := s.state.installations[c.number("installation_id")]
	if in == nil {
		return 0, nil, refuse(http.StatusNotFound, "Not Found")
	}
	if !in.suspendedAt.IsZero() {
		return 0, nil, refuse(http.StatusForbidden, "This installation has been suspended")
	}
	var req tokenRequest
	if no := c.decode(&req); no != nil {
		return 0, nil, no
	}
	t := &token{caller: callerInstallation, installation: in.ID, expires: s.clock().Add(time.Hour).Truncate(time.Second), permissions: maps.Clone(in.Permissions)}
	if req.Permissions != nil {
		t.permissions = req.Permissions
	}
	granted := &token{permissions: in.Permissions}
	for name, level := range t.permissions {
		if !granted.may(name, level) {
			return 0, nil, refuse(http.StatusUnprocessableEntity, "The permissions requested are not granted to this installation.")
		}
	}
	repos, no := s.tokenRepositories(in, req)
	if no != nil {
		return 0, nil, no
	}
	for _, r := range repos {
		t.repositories = append(t.repositories, r.ID)
	}
	listing := len(req.Permissions) == 1 && req.Permissions["metadata"] == "read"
	t.narrowed = req.Permissions != nil && (repos != nil || listing)
	answer := object{
		"token": s.newToken(t), "expires_at": stamp(t.expires), "permissions": t.permissions, "repository_selection": "selected",
	}
	if repos != nil {
		list := make([]any, 0, len(repos))
		for _, r := range repos {
			list = append(list, s.repositoryJSON(r))
		}
		answer["repositories"] = list
	}
	return http.StatusCreated, answer, nil
}

// tokenRepositories resolves what the token is narrowed to; nil = to nothing.
func (s *Sim) tokenRepositories(in *installation, req tokenRequest) ([]*repository, *refusal) {
	var out []*repository
	for _, id := range req.RepositoryIDs {
		out = append(out, s.state.repositories[id])
	}
	for _, name := range req.Repositories {
		r, _ := s.lookUp(in.Account, name)
		out = append(out, r)
	}
	for _, r := range out {
		if r == nil || r.Installation != in.ID {
			return nil, refuse(http.StatusUnprocessableEntity, "There is at least one repository that does not exist or is not accessible to the parent installation.")
		}
	}
	return out, nil
}

// lookUp finds a repository by name; moved tells that the name is a former one.
func (s *Sim) lookUp(owner, name string) (r *repository, moved bool) {
	full := strings.ToLower(owner + "/" + name)
	for _, r := range s.state.repositories {
		if strings.ToLower(r.fullName()) == full {
			return r, false
		}
	}
	if id, ok := s.state.moved[full]; ok {
		return s.state.repositories[id], true
	}
	return nil, false
}
