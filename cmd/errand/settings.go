package main

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/errand-dev/errand"
)

// databaseFlags say which database. They are shared by every command that needs it.
type databaseFlags struct {
	DatabaseURL      string `name:"database-url" env:"ERRAND_DATABASE_URL" placeholder:"URL" help:"PostgreSQL as the role errand_runtime. Empty: an embedded PostgreSQL in the data folder."`
	DatabaseOwnerURL string `name:"database-owner-url" env:"ERRAND_DATABASE_OWNER_URL" placeholder:"URL" help:"The same database as its owner, to migrate it at start. Empty with an external database: it must have been migrated (errand migrate)."`
	DataDir          string `name:"data-dir" env:"ERRAND_DATA_DIR" default:"errand-data" placeholder:"DIR" help:"Folder of the embedded PostgreSQL."`
	PostgresBin      string `name:"postgres-bin" env:"ERRAND_POSTGRES_BIN" placeholder:"DIR" help:"Folder of the programs postgres and initdb. Empty: they are looked for, and fetched if need be."`
}

// secretFlags hold the one secret from which every key is derived.
type secretFlags struct {
	SecretKey         string   `name:"secret-key" env:"ERRAND_SECRET_KEY" placeholder:"BASE64" help:"32 random bytes, base64: seals webhook secrets and signs run tokens. Make one with: openssl rand -base64 32"`
	PreviousSecretKey []string `name:"previous-secret-key" env:"ERRAND_PREVIOUS_SECRET_KEY" placeholder:"BASE64,..." help:"Earlier secret keys that are still honoured."`
}

// githubFlags say which GitHub App this deployment is.
type githubFlags struct {
	GitHubAppID          int64  `name:"github-app-id" env:"ERRAND_GITHUB_APP_ID" placeholder:"ID" help:"Number of the GitHub App."`
	GitHubPrivateKey     string `name:"github-private-key" env:"ERRAND_GITHUB_PRIVATE_KEY" placeholder:"PEM" help:"The App's private key. Or its file:"`
	GitHubPrivateKeyFile string `name:"github-private-key-file" env:"ERRAND_GITHUB_PRIVATE_KEY_FILE" placeholder:"FILE" help:"File of the App's private key."`
	GitHubAPIURL         string `name:"github-api-url" env:"ERRAND_GITHUB_API_URL" default:"https://api.github.com" placeholder:"URL" help:"GitHub's API; for Enterprise Server https://HOST/api/v3."`
}

// logFlags say how much is logged and how.
type logFlags struct {
	LogLevel  string `name:"log-level" env:"ERRAND_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"Least level that is logged (${enum})."`
	LogFormat string `name:"log-format" env:"ERRAND_LOG_FORMAT" default:"json" enum:"json,text" help:"${enum}."`
}

func (f logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // one of the enum above
	opts := &slog.HandlerOptions{Level: level}
	if f.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// masterKey reads a secret key and refuses one that is missing, short or plainly not random.
func masterKey(name, s string) ([]byte, error) {
	const how = "make one with  openssl rand -base64 32"
	if s == "" {
		return nil, &errand.Error{Code: errand.CodeInvalid, Field: name, Message: "is not set, and without it nothing is kept secret", Hint: how}
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
	if err != nil {
		return nil, &errand.Error{Code: errand.CodeInvalid, Field: name, Message: "is not base64", Hint: how}
	}
	if len(b) != 32 {
		return nil, &errand.Error{Code: errand.CodeInvalid, Field: name, Message: fmt.Sprintf("holds %d bytes, want 32", len(b)), Hint: how}
	}
	different := map[byte]bool{}
	for _, x := range b {
		different[x] = true
	}
	if len(different) < 16 { // 32 random bytes have about 30 different ones; fewer than 16 happens once in 10^13
		return nil, &errand.Error{Code: errand.CodeInvalid, Field: name, Message: "is not random", Hint: how}
	}
	return b, nil
}

// derived gives the key for one purpose. No key serves two.
func derived(master []byte, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, master, nil, "errand "+purpose, 32)
	if err != nil {
		panic(err) // only for a length that HKDF cannot give
	}
	return key
}

func (f secretFlags) masters() (current []byte, previous [][]byte, err error) {
	current, err = masterKey("ERRAND_SECRET_KEY", f.SecretKey)
	errs := []error{err}
	for _, s := range f.PreviousSecretKey {
		b, err := masterKey("ERRAND_PREVIOUS_SECRET_KEY", s)
		errs = append(errs, err)
		previous = append(previous, b)
	}
	return current, previous, errors.Join(errs...)
}

func (f githubFlags) privateKey() ([]byte, error) {
	switch {
	case f.GitHubPrivateKey != "" && f.GitHubPrivateKeyFile != "":
		return nil, errand.Invalid("ERRAND_GITHUB_PRIVATE_KEY", "is set, and so is ERRAND_GITHUB_PRIVATE_KEY_FILE: set one of them")
	case f.GitHubPrivateKey != "":
		return []byte(f.GitHubPrivateKey), nil
	case f.GitHubPrivateKeyFile != "":
		b, err := os.ReadFile(f.GitHubPrivateKeyFile)
		if err != nil {
			return nil, errand.Invalid("ERRAND_GITHUB_PRIVATE_KEY_FILE", "cannot be read: %v", err)
		}
		return b, nil
	}
	return nil, errand.Invalid("ERRAND_GITHUB_PRIVATE_KEY_FILE", "is not set: name the file of the GitHub App's private key (or put the key itself in ERRAND_GITHUB_PRIVATE_KEY)")
}

// publicURL checks the address under which trackers, runners and people reach this server.
func publicURL(s string) (string, error) {
	if s == "" {
		return "", errand.Invalid("ERRAND_PUBLIC_URL", "is not set: give the address under which this server is reached, such as https://errand.example.com")
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return "", errand.Invalid("ERRAND_PUBLIC_URL", "%q is not an address such as https://errand.example.com", s)
	case strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", errand.Invalid("ERRAND_PUBLIC_URL", "%q holds more than scheme and host", s)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return "", errand.Invalid("ERRAND_PUBLIC_URL", "%q is not https: run tokens and sessions would travel in the clear", s)
	}
	return u.Scheme + "://" + u.Host, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func parseProxies(list []string) ([]*net.IPNet, error) {
	var nets []*net.IPNet
	for _, s := range list {
		_, n, err := net.ParseCIDR(s)
		if err != nil {
			return nil, errand.Invalid("ERRAND_TRUSTED_PROXIES", "%q is not a network such as 10.0.0.0/8", s)
		}
		nets = append(nets, n)
	}
	return nets, nil
}
