package github_test

import (
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
)

func TestWhereAGitHubsPagesAndTokensComeFrom(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ says, api, web, issuer string }{
		{"the public one", "https://api.github.com", "https://github.com", "https://token.actions.githubusercontent.com"},
		{"nothing said: the public one", "", "https://github.com", "https://token.actions.githubusercontent.com"},
		{"an Enterprise Server", "https://ghes.example.com/api/v3", "https://ghes.example.com", "https://ghes.example.com/_services/token"},
		{"an Enterprise Server on a port", "https://ghes.example.com:8443/api/v3/", "https://ghes.example.com:8443", "https://ghes.example.com:8443/_services/token"},
		{"one that is called api", "https://api.example.com/api/v3", "https://api.example.com", "https://api.example.com/_services/token"},
		{"data residency", "https://api.octo.ghe.com", "https://octo.ghe.com", "https://token.actions.octo.ghe.com"},
		{"the simulation", "http://127.0.0.1:4100/api/v3", "http://127.0.0.1:4100", "http://127.0.0.1:4100/_services/token"},
	} {
		web, err1 := github.WebURL(row.api)
		issuer, err2 := github.IssuerURL(row.api)
		if web != row.web || issuer != row.issuer || err1 != nil || err2 != nil {
			t.Errorf("%s: %s and %s (%v, %v)", row.says, web, issuer, err1, err2)
		}
	}
	for _, bad := range []string{"ftp://x", "http://ghes.example.com/api/v3", "https://ghes.example.com"} {
		if _, err := github.WebURL(bad); errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%s: %v", bad, err)
		}
		if _, err := github.IssuerURL(bad); errand.CodeOf(err) != errand.CodeInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
