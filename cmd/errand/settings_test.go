package main

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hidden stands in every value that is a secret: no line of the program may hold it.
const hidden = "5ecret-5auce"

// runErrand runs the built program with these settings and no others.
func runErrand(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), built.errand, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(withoutErrand(os.Environ()), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the code tells
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Each row is what is set; beside it each line that the program says before it ends, as the variable at fault and a word
// of what is wrong or to be done.
func TestEverythingWrongWithTheSettingsIsToldAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := base64.StdEncoding.EncodeToString(randomBytes(32))
	notAKey := filepath.Join(dir, "not-a-key.pem")
	if err := os.WriteFile(notAKey, []byte(hidden), 0o600); err != nil {
		t.Fatal(err)
	}
	good := []string{
		"ERRAND_PUBLIC_URL=https://errand.example.com", "ERRAND_SECRET_KEY=" + key, "ERRAND_GITHUB_APP_ID=1",
		"ERRAND_GITHUB_PRIVATE_KEY_FILE=" + testKey(t, dir),
	}
	for _, row := range []struct {
		says string
		env  []string
		want [][2]string
	}{
		{"nothing is set", nil, [][2]string{
			{"ERRAND_PUBLIC_URL", "https://errand.example.com"},
			{"ERRAND_SECRET_KEY", "openssl rand"},
		}},
		{"a key without its App", []string{"ERRAND_PUBLIC_URL=https://errand.example.com", "ERRAND_SECRET_KEY=" + key, "ERRAND_GITHUB_PRIVATE_KEY_FILE=" + testKey(t, dir)}, [][2]string{
			{"ERRAND_GITHUB_APP_ID", "settings page"},
		}},
		{"an App without its key", []string{"ERRAND_PUBLIC_URL=https://errand.example.com", "ERRAND_SECRET_KEY=" + key, "ERRAND_GITHUB_APP_ID=1"}, [][2]string{
			{"ERRAND_GITHUB_PRIVATE_KEY_FILE", "name the file"},
		}},
		{"no App, and a GitHub that is none", []string{"ERRAND_PUBLIC_URL=https://errand.example.com", "ERRAND_SECRET_KEY=" + key, "ERRAND_GITHUB_API_URL=ghe.example"}, [][2]string{
			{"ERRAND_GITHUB_API_URL", "https://"},
		}},
		{"a webhook secret that can be guessed", append(good, "ERRAND_GITHUB_WEBHOOK_SECRET="+hidden), [][2]string{{"ERRAND_GITHUB_WEBHOOK_SECRET", "at least 16"}}},
		{"two webhook secrets", append(good, "ERRAND_GITHUB_WEBHOOK_SECRET="+hidden, "ERRAND_GITHUB_WEBHOOK_SECRET_FILE="+notAKey), [][2]string{{"ERRAND_GITHUB_WEBHOOK_SECRET", "set one of them"}}},
		{"a file of a webhook secret that is not there", append(good, "ERRAND_GITHUB_WEBHOOK_SECRET_FILE="+filepath.Join(dir, "none")), [][2]string{{"ERRAND_GITHUB_WEBHOOK_SECRET_FILE", "cannot be read"}}},
		{"everything is wrong", []string{
			"ERRAND_PUBLIC_URL=https://me:" + hidden + "@errand.example.com", "ERRAND_SECRET_KEY=" + hidden, "ERRAND_PREVIOUS_SECRET_KEY=" + key + "," + hidden,
			"ERRAND_GITHUB_APP_ID=x" + hidden, "ERRAND_GITHUB_PRIVATE_KEY_FILE=" + notAKey, "ERRAND_GITHUB_API_URL=https://me:" + hidden + "@github.example.com",
			"ERRAND_LISTEN=8080", "ERRAND_METRICS_LISTEN=127.0.0.1:http", "ERRAND_TRUSTED_PROXIES=10.0.0.0,10.0.0.0/8,proxy", "ERRAND_ORGANISATION=Octo Org", "ERRAND_DRAIN=5",
			"ERRAND_DATABASE_URL=postgres://u:" + hidden + "#/@h/d", "ERRAND_DATABASE_OWNER_URL=postgres://u:" + hidden + "%zz@h/d",
			"ERRAND_LOG_LEVEL=loud", "ERRAND_LOG_FORMAT=xml", "ERRAND_SENTRY_DSN=" + hidden,
		}, [][2]string{
			{"ERRAND_PUBLIC_URL", "scheme and host"},
			{"ERRAND_SECRET_KEY", "openssl rand"},
			{"ERRAND_PREVIOUS_SECRET_KEY (number 2)", "openssl rand"},
			{"ERRAND_GITHUB_APP_ID", "number"},
			{"ERRAND_GITHUB_PRIVATE_KEY_FILE", "-----BEGIN"},
			{"ERRAND_GITHUB_API_URL", "https://api.github.com"},
			{"ERRAND_LISTEN", "HOST:PORT"},
			{"ERRAND_METRICS_LISTEN", "HOST:PORT"},
			{"ERRAND_TRUSTED_PROXIES", `"10.0.0.0" is not a network`},
			{"ERRAND_TRUSTED_PROXIES", `"proxy" is not a network`},
			{"ERRAND_ORGANISATION", "lower-case"},
			{"ERRAND_DRAIN", "5s"},
			{"ERRAND_DATABASE_URL", "postgres://USER"},
			{"ERRAND_DATABASE_OWNER_URL", "postgres://USER"},
			{"ERRAND_SENTRY_DSN", "https://"},
			{"ERRAND_LOG_LEVEL", "debug, info"},
			{"ERRAND_LOG_FORMAT", "json or text"},
		}},
		{"the App's number is 0", append(good, "ERRAND_GITHUB_APP_ID=0"), [][2]string{{"ERRAND_GITHUB_APP_ID", "above 0"}}},
		{"the key is in the variable, and it is none", append(good[:3:3], "ERRAND_GITHUB_PRIVATE_KEY="+hidden), [][2]string{{"ERRAND_GITHUB_PRIVATE_KEY", "not PEM"}}},
		{"the key is given twice", append(good, "ERRAND_GITHUB_PRIVATE_KEY="+hidden), [][2]string{{"ERRAND_GITHUB_PRIVATE_KEY", "one of them"}}},
		{"the key's file is not there", append(good, "ERRAND_GITHUB_PRIVATE_KEY_FILE="+dir+"/none"), [][2]string{{"ERRAND_GITHUB_PRIVATE_KEY_FILE", "no such file"}}},
		{"the owner's database without the runtime's", append(good, "ERRAND_DATABASE_OWNER_URL=postgres://u:"+hidden+"@h/d"), [][2]string{{"ERRAND_DATABASE_OWNER_URL", "give both"}}},
		{"an address that is not https", append(good, "ERRAND_PUBLIC_URL=http://errand.example.com"), [][2]string{{"ERRAND_PUBLIC_URL", "https"}}},
		{"a port beyond the last", append(good, "ERRAND_LISTEN=:70000"), [][2]string{{"ERRAND_LISTEN", "HOST:PORT"}}},
		{"an organisation that begins with a hyphen", append(good, "ERRAND_ORGANISATION=-a"), [][2]string{{"ERRAND_ORGANISATION", "hyphen"}}},
		{"an hour of draining", append(good, "ERRAND_DRAIN=1h"), [][2]string{{"ERRAND_DRAIN", "5m"}}},
	} {
		t.Run(row.says, func(t *testing.T) {
			t.Parallel()
			_, stderr, code := runErrand(t, row.env, "serve")
			if code != 1 || strings.Contains(stderr, hidden) {
				t.Errorf("ended with %d; a secret is told: %v", code, strings.Contains(stderr, hidden))
			}
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			for _, want := range row.want {
				i := slices.IndexFunc(lines, func(l string) bool {
					return strings.HasPrefix(l, "errand: "+want[0]+": ") && strings.Contains(l, want[1])
				})
				if i < 0 {
					t.Errorf("no line of %s says %q", want[0], want[1])
					continue
				}
				lines = slices.Delete(lines, i, i+1)
			}
			if len(lines) > 0 {
				t.Errorf("beyond what is wrong:\n%s", strings.Join(lines, "\n"))
			}
			if t.Failed() {
				t.Logf("it said:\n%s", stderr)
			}
		})
	}
}

func TestMigrateNamesItsSetting(t *testing.T) {
	t.Parallel()
	for says, env := range map[string][]string{"not set": nil, "no address": {"ERRAND_DATABASE_OWNER_URL=postgres://u:" + hidden + "%zz@h/d"}} {
		_, stderr, code := runErrand(t, env, "migrate")
		if code != 1 || !strings.HasPrefix(stderr, "errand: ERRAND_DATABASE_OWNER_URL: is ") || strings.Contains(stderr, hidden) {
			t.Errorf("%s: %d %s", says, code, stderr)
		}
	}
}

func TestHealthAsksWhereTheServerListens(t *testing.T) {
	t.Parallel()
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(ts.Close)
	_, port, err := net.SplitHostPort(ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, listen := range []string{"127.0.0.1:" + port, ":" + port, "0.0.0.0:" + port} {
		if out, stderr, code := runErrand(t, []string{"ERRAND_LISTEN=" + listen}, "health"); code != 0 || out != "ready\n" {
			t.Errorf("%s: %d %s%s", listen, code, out, stderr)
		}
	}
	if _, stderr, code := runErrand(t, []string{"ERRAND_LISTEN=" + freePort(t)}, "health"); code != 1 || stderr == "" {
		t.Errorf("nobody listens there: %d %q", code, stderr)
	}
	if _, stderr, code := runErrand(t, []string{"ERRAND_LISTEN=x"}, "health"); code != 1 || !strings.Contains(stderr, "ERRAND_LISTEN: ") {
		t.Errorf("not an address: %d %q", code, stderr)
	}
	if got := readyURL("[::]:1"); got != "http://[::1]:1/readyz" {
		t.Errorf("every address of IPv6: %s", got)
	}
}

// testKey writes a key of an App to a file and gives its name.
func testKey(t *testing.T, dir string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "app.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
