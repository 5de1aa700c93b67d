// Package scruboracle holds the scrubber against another one: what gitleaks with its whole rule set finds in a planted corpus,
// Errand's anchored rules must have removed. It is a module of its own, so that gitleaks and what it needs are compiled here
// and nowhere else.
package scruboracle

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/errand-dev/errand/scrub"
)

const (
	digits = "0123456789"
	hexa   = digits + "abcdef"
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum  = digits + lower + upper
	base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
)

// planted is a secret of a made-up value and, where it has none of its own, the name that stands before it.
type planted struct {
	name  string // of the kind
	value string
	key   string // "" = the value says what it is
}

// dice makes values that look drawn by chance, and the same ones in each run. None is written down in this file.
type dice struct{ *rand.Rand }

func (d dice) of(set string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = set[d.IntN(len(set))]
	}
	return string(b)
}

func (d dice) jwt() string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + enc([]byte(`{"sub":"`+d.of(digits, 10)+`","name":"x","iat":`+d.of("123456789", 9)+`}`)) + "." + d.of(alnum, 43)
}

func (d dice) pem(kind string) string {
	var b strings.Builder
	b.WriteString("-----BEGIN " + kind + "-----\n")
	for range 12 {
		b.WriteString(d.of(alnum+"+/", 64) + "\n")
	}
	b.WriteString("-----END " + kind + "-----")
	return b.String()
}

// corpus is what applications have been seen to put into messages and tags: tokens of services with forms of their own, and
// values that only their names give away.
func (d dice) corpus() []planted {
	return []planted{
		{"AWS access key", "AKIA" + d.of(base32, 16), ""},
		{"AWS temporary key", "ASIA" + d.of(base32, 16), ""},
		{"AWS secret key", d.of(alnum, 40), "aws_secret_access_key"},
		{"GitHub personal token", "ghp_" + d.of(alnum, 36), ""},
		{"GitHub app token", "ghs_" + d.of(alnum, 36), ""},
		{"GitHub OAuth token", "gho_" + d.of(alnum, 36), ""},
		{"GitHub refresh token", "ghr_" + d.of(alnum, 36), ""},
		{"GitHub fine-grained token", "github_pat_" + d.of(alnum, 22) + "_" + d.of(alnum, 59), ""},
		{"GitLab token", "glpat-" + d.of(alnum, 20), ""},
		{"GitLab trigger token", "glptt-" + d.of(hexa, 40), ""},
		{"GitLab runner token", "glrt-" + d.of(alnum, 20), ""},
		{"GitLab deploy token", "gldt-" + d.of(alnum, 20), ""},
		{"Slack bot token", "xoxb-" + d.of("123456789", 12) + "-" + d.of("123456789", 12) + "-" + d.of(alnum, 24), ""},
		{"Slack user token", "xoxp-" + d.of("123456789", 12) + "-" + d.of("123456789", 12) + "-" + d.of("123456789", 12) + "-" + d.of(hexa, 32), ""},
		{"Slack app token", "xapp-1-A" + d.of(digits+upper, 10) + "-" + d.of(digits, 13) + "-" + d.of(hexa, 64), ""},
		{"Slack webhook", "https://hooks.slack.com/services/T" + d.of(alnum, 10) + "/B" + d.of(alnum, 10) + "/" + d.of(alnum, 24), ""},
		{"Stripe live key", "sk_live_" + d.of(alnum, 24), ""},
		{"Stripe restricted key", "rk_live_" + d.of(alnum, 24), ""},
		{"Anthropic key", "sk-ant-api03-" + d.of(alnum, 93) + "AA", ""},
		{"Anthropic admin key", "sk-ant-admin01-" + d.of(alnum, 93) + "AA", ""},
		{"OpenAI key", "sk-" + d.of(alnum, 20) + "T3BlbkFJ" + d.of(alnum, 20), ""},
		{"OpenAI project key", "sk-proj-" + d.of(alnum, 74) + "T3BlbkFJ" + d.of(alnum, 74), ""},
		{"Google API key", "AIza" + d.of(alnum, 35), ""},
		{"Hugging Face token", "hf_" + d.of(lower, 34), ""},
		{"Hugging Face organisation token", "api_org_" + d.of(lower, 34), ""},
		{"npm token", "npm_" + d.of(alnum, 36), ""},
		{"PyPI token", "pypi-AgEIcHlwaS5vcmc" + d.of(alnum, 60), ""},
		{"RubyGems token", "rubygems_" + d.of(hexa, 48), ""},
		{"Docker token", "dckr_pat_" + d.of(alnum, 27), ""},
		{"SendGrid key", "SG." + d.of(alnum, 22) + "." + d.of(alnum, 43), ""},
		{"Twilio key", "SK" + d.of(hexa, 32), ""},
		{"Mailchimp key", d.of(hexa, 32) + "-us12", "mailchimp_api_key"},
		{"Mailgun key", "key-" + d.of(hexa, 32), "mailgun_api_key"},
		{"Shopify token", "shpat_" + d.of(hexa, 32), ""},
		{"Shopify custom app token", "shpca_" + d.of(hexa, 32), ""},
		{"Shopify private app token", "shppa_" + d.of(hexa, 32), ""},
		{"DigitalOcean token", "dop_v1_" + d.of(hexa, 64), ""},
		{"DigitalOcean OAuth token", "doo_v1_" + d.of(hexa, 64), ""},
		{"Databricks token", "dapi" + d.of(hexa, 32), ""},
		{"Grafana service token", "glsa_" + d.of(alnum, 32) + "_" + d.of(hexa, 8), ""},
		{"Grafana cloud token", "glc_" + d.of(alnum, 48), ""},
		{"Linear key", "lin_api_" + d.of(alnum, 40), ""},
		{"Notion token", "ntn_" + d.of(digits, 11) + d.of(alnum, 35), ""},
		{"Postman key", "PMAK-" + d.of(hexa, 24) + "-" + d.of(hexa, 34), ""},
		{"Pulumi token", "pul-" + d.of(hexa, 40), ""},
		{"Doppler token", "dp.pt." + d.of(alnum, 43), ""},
		{"Vault token", "hvs." + d.of(alnum, 95), ""},
		{"Terraform Cloud token", d.of(alnum, 14) + ".atlasv1." + d.of(alnum, 64), ""},
		{"Sentry token", "sntryu_" + d.of(hexa, 64), ""},
		{"Sentry organisation token", "sntrys_eyJpYXQiO" + d.of(alnum, 100) + "LCJyZWdpb25fdXJs" + d.of(alnum, 50) + "_" + d.of(alnum, 43), ""},
		{"New Relic user key", "NRAK-" + strings.ToLower(d.of(alnum, 27)), "new_relic_key"},
		{"Square token", "EAAA" + d.of(alnum, 56), ""},
		{"PlanetScale token", "pscale_tkn_" + d.of(alnum, 43), ""},
		{"age key", "AGE-SECRET-KEY-1" + d.of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58), ""},
		{"Fly token", "fo1_" + d.of(alnum, 43), ""},
		{"Perplexity key", "pplx-" + d.of(alnum, 48), ""},
		{"JSON web token", d.jwt(), ""},
		{"private key", d.pem("RSA PRIVATE KEY"), ""},
		{"OpenSSH key", d.pem("OPENSSH PRIVATE KEY"), ""},
		{"EC key", d.pem("EC PRIVATE KEY"), ""},
		{"encrypted key", d.pem("ENCRYPTED PRIVATE KEY"), ""},
		{"an API key", d.of(alnum, 32), "api_key"},
		{"a client secret", d.of(alnum, 40), "client_secret"},
		{"an access token", d.of(alnum, 40), "access_token"},
		{"an auth token", d.of(hexa, 40), "authToken"},
		{"a password", d.of(alnum, 16), "DB_PASSWORD"},
		{"a Datadog key", d.of(hexa, 40), "datadog_access_token"},
		{"a Heroku key", d.of(hexa, 8) + "-" + d.of(hexa, 4) + "-" + d.of(hexa, 4) + "-" + d.of(hexa, 4) + "-" + d.of(hexa, 12), "heroku_api_key"},
		{"a Twitter secret", d.of(alnum, 45), "twitter_access_secret"},
		{"an Okta token", "00" + d.of(alnum, 40), "okta_token"},
		{"a Cloudflare key", d.of(hexa, 37), "cloudflare_api_key"},
		{"a Cloudflare token", d.of(alnum, 40), "cloudflare_token"},
		{"credentials", d.of(alnum, 32), "service_credential"},
		{"a curl header", d.of(alnum, 40), "curl"},
	}
}

// texts puts a secret where messages, tags and values of exceptions have it.
func (p planted) texts() []string {
	switch p.key {
	case "":
		return []string{
			"request failed: " + p.value, "KeyError: '" + p.value + "'", `{"config": "` + p.value + `", "n": 1}`, "url=https://x.example/?k=" + p.value + "&n=2",
			"token = \"" + p.value + "\"\n", p.value,
		}
	case "curl":
		return []string{"curl -H 'Authorization: Bearer " + p.value + "' https://x.example/api"}
	}
	return []string{
		p.key + "=" + p.value, p.key + " = \"" + p.value + "\"", `{"` + p.key + `": "` + p.value + `"}`, p.key + ": " + p.value,
		strings.ToUpper(p.key) + "='" + p.value + "'", "export " + p.key + "=" + p.value + "\nnext line",
	}
}

func TestWhatGitleaksFindsOursHasRemoved(t *testing.T) {
	t.Parallel()
	detector, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	ours := scrub.New()
	texts, found := 0, 0
	for seed := range uint64(8) {
		d := dice{rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // values that only look like secrets
		for _, p := range d.corpus() {
			for form, text := range p.texts() {
				texts++
				clean, _ := ours.Text("message", text)
				findings := detector.DetectString(text)
				if len(findings) > 0 {
					found++
				}
				for _, f := range findings {
					if strings.Contains(clean, f.Secret) {
						t.Errorf("%s, form %d: gitleaks' rule %s finds what ours left", p.name, form, f.RuleID)
					}
				}
				for _, f := range detector.DetectString(clean) {
					if !strings.Contains(f.Secret, "[removed") {
						t.Errorf("%s, form %d: gitleaks' rule %s finds something in what ours gave", p.name, form, f.RuleID)
					}
				}
			}
		}
	}
	// An oracle that finds nothing would prove nothing.
	if found < texts*6/10 {
		t.Errorf("gitleaks finds a secret in %d of %d texts only", found, texts)
	}
	t.Log(fmt.Sprintf("gitleaks finds a secret in %d of %d texts", found, texts))
}
