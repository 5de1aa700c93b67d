package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// identityTries bounds the questions for an ID token; each is answered in well under a second.
const identityTries = 3

// identity is how a job asks GitHub for an ID token: two variables that a job with `id-token: write` has.
type identity struct {
	requestURL string // "" = this job may not ask
	bearer     string
}

// token asks for one that only the control plane at that address honours. "" without an error: this job may not ask.
func (i identity) token(ctx context.Context, env Env, audience string) (string, error) {
	if i.requestURL == "" {
		return "", nil
	}
	u, err := url.Parse(i.requestURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && !loopback(u.Hostname()) {
		return "", errors.New("ACTIONS_ID_TOKEN_REQUEST_URL is no https address")
	}
	q := u.Query()
	q.Set("audience", audience)
	u.RawQuery = q.Encode()
	wait := time.Second
	for try := 1; ; try++ {
		text, err := i.once(ctx, withoutRedirects(env.HTTP), u.String())
		if err == nil || try == identityTries || ctx.Err() != nil {
			return text, err
		}
		if err := env.Sleep(ctx, wait); err != nil {
			return "", err
		}
		wait *= 2
	}
}

// once makes one attempt. Its errors hold neither the address, in which a path is secret, nor what was answered.
func (i identity) once(ctx context.Context, client *http.Client, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", errors.New("GitHub could not be asked for an ID token")
	}
	req.Header.Set("Authorization", "Bearer "+i.bearer)
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return "", errors.New("GitHub could not be asked for an ID token: no answer")
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GitHub answered the question for an ID token with %d", resp.StatusCode)
	}
	var answer struct {
		Value string `json:"value"`
	}
	if err := json.Unmarshal(b, &answer); err != nil || answer.Value == "" {
		return "", errors.New("GitHub's answer holds no ID token")
	}
	return answer.Value, nil
}
