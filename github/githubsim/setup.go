package githubsim

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// setUp is what a person does at GitHub's pages: making an App from a manifest, and saying who one is. Every request to these
// pages is the signed-in person's (SignIn).
type setUp struct {
	user          string
	reaches       []int64                // installations that the person can reach
	manifests     map[string]madeApp     // by code
	grants        map[string]grant       // by code of an authorisation
	users         map[string]userSession // by token
	clientSecret  string
	callbacks     []string
	noHookSecret  bool
	webhookSecret string // as the App set it
}

type madeApp struct {
	manifest manifest
	at       time.Time
}

type grant struct {
	redirect string
	user     userSession
}

type userSession struct{ reaches []int64 }

type manifest struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	Hook struct {
		URL string `json:"url"`
	} `json:"hook_attributes"`
	RedirectURL  string            `json:"redirect_url"`
	CallbackURLs []string          `json:"callback_urls"`
	SetupURL     string            `json:"setup_url"`
	Permissions  map[string]string `json:"default_permissions"`
	Events       []string          `json:"default_events"`
}

// ClientID is the App's, as GitHub's authorisation knows it.
const ClientID = "Iv1.5e1f5e1f5e1f5e1f"

// SignIn says who sits before the browser and which installations that person reaches.
func (s *Sim) SignIn(user string, reaches ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.setUp.user, s.state.setUp.reaches = user, reaches
}

// MakeNoWebhookSecret has GitHub answer a manifest with a null secret.
func (s *Sim) MakeNoWebhookSecret() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.setUp.noHookSecret = true
}

// WebhookSecret is what the App gave its webhook.
func (s *Sim) WebhookSecret() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.setUp.webhookSecret
}

func (s *Sim) setUpRoutes(mux *http.ServeMux) {
	locked := func(serve func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			serve(w, r)
		}
	}
	mux.HandleFunc("POST /settings/apps/new", locked(s.newApp))
	mux.HandleFunc("POST /organizations/{org}/settings/apps/new", locked(s.newApp))
	mux.HandleFunc("POST "+apiPrefix+"/app-manifests/{code}/conversions", locked(s.convert))
	mux.HandleFunc("GET /login/oauth/authorize", locked(s.authorize))
	mux.HandleFunc("POST /login/oauth/access_token", locked(s.accessToken))
	mux.HandleFunc("GET "+apiPrefix+"/user/installations", locked(s.userInstallations))
	mux.HandleFunc("PATCH "+apiPrefix+"/app/hook/config", locked(s.hookConfig))
}

// newApp is the page behind the form; the person presses its button at once.
func (s *Sim) newApp(w http.ResponseWriter, r *http.Request) {
	var m manifest
	err := json.Unmarshal([]byte(r.FormValue("manifest")), &m)
	switch {
	case s.state.setUp.user == "":
		http.Error(w, "sign in", http.StatusForbidden)
		return
	case err != nil || m.URL == "" || m.Hook.URL == "" || m.RedirectURL == "" || m.Name == "" || len(m.Name) > 34:
		http.Error(w, "the manifest is not valid", http.StatusUnprocessableEntity)
		return
	}
	for name, level := range m.Permissions {
		if (name != "actions" || level != "write") && (name != "metadata" || level != "read") {
			s.violation(r, callerNobody, "an App that wants "+name+": "+level)
		}
	}
	code := newGUID()
	s.state.setUp.manifests[code] = madeApp{m, s.clock()}
	redirect(w, r, m.RedirectURL, url.Values{"code": {code}, "state": {r.URL.Query().Get("state")}})
}

func redirect(w http.ResponseWriter, r *http.Request, to string, add url.Values) {
	u, err := url.Parse(to)
	if err != nil {
		http.Error(w, "no address", http.StatusUnprocessableEntity)
		return
	}
	u.RawQuery = add.Encode()
	http.Redirect(w, r, u.String(), http.StatusFound)
}

// convert works once, within an hour. The new App takes the place of this simulation's.
func (s *Sim) convert(w http.ResponseWriter, r *http.Request) {
	code := r.PathValue("code")
	made, ok := s.state.setUp.manifests[code]
	delete(s.state.setUp.manifests, code)
	if !ok || s.clock().Sub(made.at) > time.Hour {
		s.answerRefusal(w, r, refuse(http.StatusNotFound, "Not Found"))
		return
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		s.answerRefusal(w, r, refuse(http.StatusInternalServerError, "no key"))
		return
	}
	s.key, s.pub = key, &key.PublicKey
	s.state.setUp.clientSecret, s.state.setUp.callbacks = rand.Text(), made.manifest.CallbackURLs
	var secret any
	if !s.state.setUp.noHookSecret {
		s.state.setUp.webhookSecret = rand.Text()
		secret = s.state.setUp.webhookSecret
	}
	now := stamp(s.clock())
	s.answerJSON(w, http.StatusCreated, object{
		"id": s.cfg.AppID, "slug": s.cfg.AppSlug, "node_id": "A_1", "name": made.manifest.Name, "description": "", "external_url": made.manifest.URL,
		"html_url": s.base + "/github-apps/" + s.cfg.AppSlug, "owner": s.appUser(), "created_at": now, "updated_at": now,
		"permissions": made.manifest.Permissions, "events": made.manifest.Events, "client_id": ClientID,
		"client_secret": s.state.setUp.clientSecret, "webhook_secret": secret,
		"pem": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
}

// authorize is the page on which the person lets GitHub say who it is; the button is pressed at once.
func (s *Sim) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case s.state.setUp.user == "":
		http.Error(w, "sign in", http.StatusForbidden)
	case q.Get("client_id") != ClientID || s.state.setUp.clientSecret == "":
		http.Error(w, "no such App", http.StatusNotFound)
	case !slices.Contains(s.state.setUp.callbacks, q.Get("redirect_uri")):
		http.Error(w, "the redirect_uri is not associated with this application", http.StatusUnprocessableEntity)
	default:
		code := rand.Text()
		s.state.setUp.grants[code] = grant{q.Get("redirect_uri"), userSession{s.state.setUp.reaches}}
		redirect(w, r, q.Get("redirect_uri"), url.Values{"code": {code}, "state": {q.Get("state")}})
	}
}

// accessToken answers 200 whatever is wrong, as GitHub does.
func (s *Sim) accessToken(w http.ResponseWriter, r *http.Request) {
	code := r.PostFormValue("code")
	g, ok := s.state.setUp.grants[code]
	switch {
	case r.PostFormValue("client_id") != ClientID || r.PostFormValue("client_secret") != s.state.setUp.clientSecret:
		s.answerJSON(w, http.StatusOK, object{"error": "incorrect_client_credentials"})
		return
	case !ok:
		s.answerJSON(w, http.StatusOK, object{"error": "bad_verification_code"})
		return
	case g.redirect != r.PostFormValue("redirect_uri"):
		s.answerJSON(w, http.StatusOK, object{"error": "redirect_uri_mismatch"})
		return
	}
	delete(s.state.setUp.grants, code)
	token := "ghu_" + rand.Text()
	s.state.setUp.users[token] = g.user
	s.answerJSON(w, http.StatusOK, object{"access_token": token, "token_type": "bearer", "scope": ""})
}

func (s *Sim) userInstallations(w http.ResponseWriter, r *http.Request) {
	user, ok := s.state.setUp.users[bearer(r)]
	if !ok {
		s.answerRefusal(w, r, refuse(http.StatusUnauthorized, badCredentials))
		return
	}
	list := []any{}
	for _, id := range user.reaches {
		if in := s.state.installations[id]; in != nil {
			list = append(list, object{"id": in.ID, "app_id": s.cfg.AppID, "account": object{"login": in.Account, "id": in.AccountID}, "permissions": in.Permissions})
		}
	}
	total := len(list)
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	if page > 1 {
		list = []any{}
	}
	s.answerJSON(w, http.StatusOK, object{"total_count": total, "installations": list})
}

func bearer(r *http.Request) string {
	const prefix = "Bearer "
	if h := r.Header.Get("Authorization"); len(h) > len(prefix) {
		return h[len(prefix):]
	}
	return ""
}

func (s *Sim) hookConfig(w http.ResponseWriter, r *http.Request) {
	if no := s.appJWT(r); no != nil {
		s.answerRefusal(w, r, no)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	var cfg struct {
		URL         string `json:"url"`
		ContentType string `json:"content_type"`
		Secret      string `json:"secret"`
		InsecureSSL string `json:"insecure_ssl"`
	}
	if err != nil || json.Unmarshal(body, &cfg) != nil {
		s.answerRefusal(w, r, refuse(http.StatusBadRequest, "Problems parsing JSON"))
		return
	}
	if cfg.InsecureSSL == "1" || cfg.ContentType != "json" || cfg.Secret == "" {
		s.violation(r, callerApp, "a webhook without a secret, without TLS or as a form")
	}
	s.state.setUp.webhookSecret = cfg.Secret
	s.answerJSON(w, http.StatusOK, object{"url": cfg.URL, "content_type": cfg.ContentType, "secret": "********", "insecure_ssl": cfg.InsecureSSL})
}
