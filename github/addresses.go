package github

import "strings"

// WebURL is where people see what the API at base is about: https://github.com for the public one, the enterprise's own host
// otherwise. It returns Invalid for a base that New refuses.
func WebURL(base string) (string, error) {
	u, err := parseBaseURL(base)
	if err != nil {
		return "", err
	}
	host := u.Host
	if rest, ok := strings.CutPrefix(host, "api."); ok && u.Path == "/" {
		host = rest
	}
	return u.Scheme + "://" + host, nil
}

// IssuerURL is who signs the ID tokens of the workflows there: on an Enterprise Server it is the server itself. An enterprise
// on github.com may have chosen an issuer of its own, which is for the operator to say.
func IssuerURL(base string) (string, error) {
	u, err := parseBaseURL(base)
	if err != nil {
		return "", err
	}
	switch rest, ok := strings.CutPrefix(u.Host, "api."); {
	case !ok || u.Path != "/":
		return u.Scheme + "://" + u.Host + "/_services/token", nil
	case rest == "github.com":
		return "https://token.actions.githubusercontent.com", nil
	default: // data residency: api.octo.ghe.com
		return u.Scheme + "://token.actions." + rest, nil
	}
}
