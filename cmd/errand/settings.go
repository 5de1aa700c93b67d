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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
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
	GitHubAppID          string `name:"github-app-id" env:"ERRAND_GITHUB_APP_ID" placeholder:"ID" help:"Number of the GitHub App."`
	GitHubPrivateKey     string `name:"github-private-key" env:"ERRAND_GITHUB_PRIVATE_KEY" placeholder:"PEM" help:"The App's private key. Or its file:"`
	GitHubPrivateKeyFile string `name:"github-private-key-file" env:"ERRAND_GITHUB_PRIVATE_KEY_FILE" placeholder:"FILE" help:"File of the App's private key."`
	GitHubAPIURL         string `name:"github-api-url" env:"ERRAND_GITHUB_API_URL" default:"https://api.github.com" placeholder:"URL" help:"GitHub's API; for Enterprise Server https://HOST/api/v3."`
}

// logFlags say how much is logged and how.
type logFlags struct {
	LogLevel  string `name:"log-level" env:"ERRAND_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"Least level that is logged: debug, info, warn or error."`
	LogFormat string `name:"log-format" env:"ERRAND_LOG_FORMAT" default:"json" placeholder:"FORMAT" help:"json or text."`
}

func (f logFlags) check() error {
	var errs []error
	if !slices.Contains([]string{"", "debug", "info", "warn", "error"}, f.LogLevel) {
		errs = append(errs, errand.Invalid("ERRAND_LOG_LEVEL", "%q is no level: set debug, info, warn or error", f.LogLevel))
	}
	if !slices.Contains([]string{"", "json", "text"}, f.LogFormat) {
		errs = append(errs, errand.Invalid("ERRAND_LOG_FORMAT", "%q is no format: set json or text", f.LogFormat))
	}
	return errors.Join(errs...)
}

// logger logs to w. Flags that check refuses log as if they were not set.
func (f logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	if level.UnmarshalText([]byte(f.LogLevel)) != nil {
		level = slog.LevelInfo
	}
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
	for i, s := range f.PreviousSecretKey {
		b, err := masterKey(fmt.Sprintf("ERRAND_PREVIOUS_SECRET_KEY (number %d)", i+1), s)
		errs = append(errs, err)
		previous = append(previous, b)
	}
	return current, previous, errors.Join(errs...)
}

// config checks the App's number, key and address, each for itself, so that all that is wrong is told at once.
func (f githubFlags) config() (github.Config, error) {
	cfg := github.Config{BaseURL: f.GitHubAPIURL}
	var errs []error
	id, err := strconv.ParseInt(strings.TrimSpace(f.GitHubAppID), 10, 64)
	switch {
	case f.GitHubAppID == "":
		errs = append(errs, errand.Invalid("ERRAND_GITHUB_APP_ID", "is not set: it is the number on the GitHub App's settings page"))
	case err != nil || id <= 0:
		errs = append(errs, errand.Invalid("ERRAND_GITHUB_APP_ID", "is not a number above 0: it is the App ID on the GitHub App's settings page (not the client ID)"))
	}
	cfg.AppID = id
	key, keyErr := f.privateKey()
	cfg.PrivateKey = key
	errs = append(errs, keyErr)
	if err := github.CheckConfig(cfg); err != nil {
		for _, e := range flatten(err) {
			var ours *errand.Error
			told := errors.As(e, &ours) && (ours.Field == "github.app_id" || ours.Field == "github.private_key" && keyErr != nil)
			if !told {
				errs = append(errs, f.bySetting(e))
			}
		}
	}
	return cfg, errors.Join(errs...)
}

// bySetting names the setting in the words of whoever set it.
func (f githubFlags) bySetting(err error) error {
	settings := map[string]string{"github.private_key": "ERRAND_GITHUB_PRIVATE_KEY", "github.api_url": "ERRAND_GITHUB_API_URL"}
	if f.GitHubPrivateKeyFile != "" {
		settings["github.private_key"] = "ERRAND_GITHUB_PRIVATE_KEY_FILE"
	}
	var e *errand.Error
	if !errors.As(err, &e) || settings[e.Field] == "" {
		return err
	}
	named := *e
	named.Field = settings[e.Field]
	return &named
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
			return nil, errand.Invalid("ERRAND_GITHUB_PRIVATE_KEY_FILE", "cannot be read (%v): name a file that the user who runs errand may read", err)
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
	case strings.Contains(s, "@"): // whatever stands before it is not repeated here
		return "", errand.Invalid("ERRAND_PUBLIC_URL", "holds an @: give scheme and host only, such as https://errand.example.com")
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return "", errand.Invalid("ERRAND_PUBLIC_URL", "%q is not an address such as https://errand.example.com", s)
	case strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", errand.Invalid("ERRAND_PUBLIC_URL", "%q holds more than scheme and host: leave out what comes after the host", s)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return "", errand.Invalid("ERRAND_PUBLIC_URL", "%q is not https: run tokens and sessions would travel in the clear; give an https address", s)
	}
	return u.Scheme + "://" + u.Host, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func parseProxies(list []string) ([]*net.IPNet, error) {
	var nets []*net.IPNet
	var errs []error
	for _, s := range list {
		_, n, err := net.ParseCIDR(strings.TrimSpace(s))
		if err != nil {
			errs = append(errs, errand.Invalid("ERRAND_TRUSTED_PROXIES", "%q is not a network: write it as 10.0.0.0/8, one machine as 10.0.0.7/32", s))
			continue
		}
		nets = append(nets, n)
	}
	return nets, errors.Join(errs...)
}

// checkAddress checks an address to listen on.
func checkAddress(name, s string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errand.Invalid(name, "%q is not HOST:PORT: set something like 127.0.0.1:8080, or :8080 for every network", s)
	}
	return nil
}

var slug = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`) // as the schema checks it

func checkSlug(s string) error {
	if !slug.MatchString(s) {
		return errand.Invalid("ERRAND_ORGANISATION", "%q is no name for an organisation: set 1 to 63 lower-case letters, digits and hyphens, the first no hyphen", s)
	}
	return nil
}

func (f databaseFlags) check() error {
	switch {
	case f.DatabaseURL == "" && f.DatabaseOwnerURL != "":
		return errors.Join(
			errand.Invalid("ERRAND_DATABASE_OWNER_URL", "is set without ERRAND_DATABASE_URL: give both, or neither for the embedded database"),
			checkDatabaseURL("ERRAND_DATABASE_OWNER_URL", f.DatabaseOwnerURL))
	case f.DatabaseOwnerURL != "":
		return errors.Join(checkDatabaseURL("ERRAND_DATABASE_URL", f.DatabaseURL), checkDatabaseURL("ERRAND_DATABASE_OWNER_URL", f.DatabaseOwnerURL))
	case f.DatabaseURL != "":
		return checkDatabaseURL("ERRAND_DATABASE_URL", f.DatabaseURL)
	}
	return nil
}

// checkDatabaseURL never repeats the address, nor what the parser says about it: there is a password in it.
func checkDatabaseURL(name, s string) error {
	if _, err := pgxpool.ParseConfig(s); err != nil {
		return errand.Invalid(name, "is not the address of a PostgreSQL database: set postgres://USER:PASSWORD@HOST:5432/DATABASE, "+
			"with each of @ / : ? # %% in the password written as %%40 %%2F %%3A %%3F %%23 %%25")
	}
	return nil
}

// parseDrain reads how long to go on taking requests after the signal to stop.
func parseDrain(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > 5*time.Minute {
		return 0, errand.Invalid("ERRAND_DRAIN", "%q is not a duration of 0s to 5m: set something like 5s", s)
	}
	return d, nil
}
