package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// forge is the little of GitHub's REST API that the runner needs: open a pull request, and find one by its branch.
type forge struct {
	api     string // such as https://api.github.com
	repo    string // owner/name
	token   string
	version string
	http    *http.Client
	sleep   func(context.Context, time.Duration) error
}

// pull is the part of a pull request that is looked at.
type pull struct {
	Number  int    `json:"number"`
	HTMLURL string `json:"html_url"`
	Body    string `json:"body"`
	Draft   bool   `json:"draft"`
	Head    struct {
		Ref string `json:"ref"`
		SHA string `json:"sha"`
	} `json:"head"`
}

type newPull struct {
	Title string `json:"title"`
	Head  string `json:"head"`
	Base  string `json:"base"`
	Body  string `json:"body"`
	Draft bool   `json:"draft"`
}

// forgeError is an answer of GitHub that is none of its good ones.
type forgeError struct {
	Status     int
	Message    string `json:"message"`
	retryAfter time.Duration
	Errors     []json.RawMessage `json:"errors"` // objects with a message, or strings
}

func (e *forgeError) Error() string { return fmt.Sprintf("GitHub answered %d: %s", e.Status, e.said()) }

func (e *forgeError) said() string {
	words := []string{e.Message}
	for _, raw := range e.Errors {
		var text string
		var object struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &object) == nil {
			text = object.Message
		}
		if text != "" {
			words = append(words, plain(cut(text, 500)))
		}
	}
	return strings.Join(words, "; ")
}

// notPermitted is GitHub's refusal to let Actions open pull requests: a setting of the repository or the organisation.
func (e *forgeError) notPermitted() bool {
	return e.Status == http.StatusForbidden && strings.Contains(strings.ToLower(e.said()), "not permitted to create or approve pull requests")
}

func (e *forgeError) exists() bool {
	return e.Status == http.StatusUnprocessableEntity && strings.Contains(strings.ToLower(e.said()), "already exists")
}

func (e *forgeError) noDrafts() bool {
	return e.Status == http.StatusUnprocessableEntity && strings.Contains(strings.ToLower(e.said()), "draft pull requests are not supported")
}

// passing: a limit on the rate looks like a missing permission (403); its words or headers tell them apart.
func (e *forgeError) passing() bool {
	return e.Status >= 500 || e.Status == http.StatusTooManyRequests ||
		(e.Status == http.StatusForbidden && (e.retryAfter > 0 || strings.Contains(strings.ToLower(e.said()), "rate limit")))
}

// create opens a pull request. Where an answer was lost it looks whether the request was done after all before it asks again.
// found tells that the pull request was there already.
func (f *forge) create(ctx context.Context, p newPull, own func(pull) bool) (made pull, found bool, err error) {
	wait := time.Second
	for attempt := 1; ; attempt++ {
		err := f.call(ctx, http.MethodPost, "/repos/"+f.repo+"/pulls", p, &made)
		var e *forgeError
		known := errors.As(err, &e)
		switch {
		case err == nil && made.Number > 0 && made.HTMLURL != "":
			return made, false, nil
		case err == nil:
			err = errors.New("GitHub's answer names no pull request")
		case ctx.Err() != nil:
			return made, false, ctx.Err()
		case known && e.noDrafts() && p.Draft:
			p.Draft = false
			p.Title = "[needs review] " + p.Title
			continue
		case known && !e.exists() && !e.passing():
			return made, false, err
		}
		if there, ok, lookErr := f.find(ctx, p.Head, own); lookErr == nil && ok {
			return there, true, nil
		}
		if attempt == 4 || (known && e.exists()) {
			return made, false, err
		}
		pause := wait
		if known {
			pause = min(max(pause, e.retryAfter), 2*time.Minute)
		}
		if err := f.sleep(ctx, pause); err != nil {
			return made, false, err
		}
		wait *= 2
	}
}

// find looks for the pull request of a branch that is ours.
func (f *forge) find(ctx context.Context, branch string, own func(pull) bool) (pull, bool, error) {
	owner, _, _ := strings.Cut(f.repo, "/")
	q := url.Values{"head": {owner + ":" + branch}, "state": {"all"}, "per_page": {"100"}}
	var list []pull
	if err := f.call(ctx, http.MethodGet, "/repos/"+f.repo+"/pulls?"+q.Encode(), nil, &list); err != nil {
		return pull{}, false, err
	}
	for _, p := range list {
		// Some servers pass over an unknown filter and answer with everything.
		if p.Head.Ref == branch && own(p) {
			return p, true, nil
		}
	}
	return pull{}, false, nil
}

// call makes one request. A repository that was renamed answers 301, 307 or 308 with its new address, for POST too: it is
// followed on the same host, with the same method and body.
func (f *forge) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	target := f.api + path
	for range 3 {
		resp, err := f.send(ctx, method, target, body)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		switch resp.StatusCode {
		case http.StatusOK, http.StatusCreated:
			return json.Unmarshal(b, out)
		case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
			next, err := resp.Location()
			if err != nil || next.Scheme+"://"+next.Host != originOf(f.api) {
				return errors.New("GitHub answered with a redirect to another host, which is not followed")
			}
			target = next.String()
		default:
			e := &forgeError{}
			_ = json.Unmarshal(b, e)
			e.Status, e.retryAfter = resp.StatusCode, retryAfter(resp.Header)
			e.Message = plain(cut(e.Message, 1000))
			return e
		}
	}
	return errors.New("GitHub redirects in a circle")
}

func (f *forge) send(ctx context.Context, method, target string, body []byte) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("Authorization", "Bearer "+f.token)
	req.Header.Set("User-Agent", "errand-runner/"+f.version)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return f.http.Do(req)
}

func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
