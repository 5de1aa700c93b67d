package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// The explanation is for signed-in people: without a session, and from another site, it is refused.
func TestExplainIsForSignedInPeopleOnly(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	ask := func(c *http.Client, change func(http.Header)) (int, map[string]any) {
		t.Helper()
		body := `{"kind":"sentry","payload":` + string(h.crash()) + `}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.public.URL+"/api/v1/mappings/explain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		change(req.Header)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Fatalf("%d: %v", resp.StatusCode, err)
		}
		return resp.StatusCode, answer
	}
	plain := func(http.Header) {}
	if status, answer := ask(browser, plain); status != http.StatusUnauthorized || answer["code"] != "unauthenticated" {
		t.Errorf("without a session: %d %v", status, answer)
	}
	link := regexp.MustCompile(`http\S+token=\S+`).FindString(h.admin("sign-in-link"))
	u, err := url.Parse(link)
	if err != nil || link == "" {
		t.Fatalf("the link %q: %v", link, err)
	}
	resp, err := browser.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	nonce := regexp.MustCompile(`name="nonce" value="([^"]+)"`).FindSubmatch(page)
	if nonce == nil {
		t.Fatalf("no nonce in %s", page)
	}
	resp, err = browser.PostForm(h.public.URL+"/sign-in", url.Values{"token": {u.Query().Get("token")}, "nonce": {string(nonce[1])}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	status, answer := ask(browser, plain)
	chosen, _ := answer["chosen"].(map[string]any)
	if status != http.StatusOK || chosen["repository"] != demoOwner+"/"+demoRepo || len(answer["frames"].([]any)) == 0 {
		t.Errorf("signed in: %d %v", status, answer)
	}
	if status, answer = ask(browser, func(x http.Header) { x.Set("Sec-Fetch-Site", "cross-site") }); status != http.StatusForbidden {
		t.Errorf("from another site: %d %v", status, answer)
	}
	if n := len(h.runs()); n != 0 {
		t.Errorf("explaining started %d runs", n)
	}
}
