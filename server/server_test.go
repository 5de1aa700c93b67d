package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/server"
)

type mount func(*echo.Echo)

func (m mount) Mount(e *echo.Echo) { m(e) }

func app(t *testing.T, ready func(context.Context) error, log io.Writer, mounts ...server.Mounter) *httptest.Server {
	t.Helper()
	e := server.New(server.Config{
		Log: slog.New(slog.NewJSONHandler(log, nil)), Clock: time.Now, Version: "test",
		Metrics: prometheus.NewRegistry(), Ready: ready, Pages: mounts,
	})
	ts := httptest.NewServer(e)
	t.Cleanup(ts.Close)
	return ts
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestAnErrorIsAProblemAndNeverItsPrivateCause(t *testing.T) {
	t.Parallel()
	secret := errors.New("password=hunter2 at 10.0.0.7")
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   string
	}{
		{"a field that is wrong", errand.Invalid("data.event", "want an object"), 422, "invalid"},
		{"not proven", errand.Unauthenticated(secret), 401, "unauthenticated"},
		{"not there", errand.NotFound("run"), 404, "not_found"},
		{"a conflict", errand.Conflict("already ended"), 409, "conflict"},
		{"too large", errand.Errorf(errand.CodeTooLarge, secret, "over 1 MiB"), 413, "too_large"},
		{"the database is away", errand.Errorf(errand.CodeUnavailable, secret, "try again"), 503, "unavailable"},
		{"internal, with words of its own", errand.Errorf(errand.CodeInternal, secret, "hunter2"), 500, "internal"},
		{"no code at all", secret, 500, "internal"},
		{"an error of the router", echo.ErrMethodNotAllowed, 405, "unsupported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := app(t, nil, io.Discard, mount(func(e *echo.Echo) { e.GET("/x", func(echo.Context) error { return c.err }) }))
			resp, body := get(t, ts.URL+"/x")
			if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != server.ProblemType {
				t.Errorf("%d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
			}
			var p server.Problem
			if err := json.Unmarshal([]byte(body), &p); err != nil || p.Code != c.code || p.Status != c.status {
				t.Errorf("%s (%v)", body, err)
			}
			if strings.Contains(body, "hunter2") {
				t.Errorf("the private cause was told: %s", body)
			}
		})
	}
}

func TestAPanicIsAnsweredAndLogged(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	ts := app(t, nil, &log, mount(func(e *echo.Echo) { e.GET("/x", func(echo.Context) error { panic("kaboom") }) }))
	resp, body := get(t, ts.URL+"/x")
	ts.Close()
	if resp.StatusCode != 500 || strings.Contains(body, "kaboom") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if !strings.Contains(log.String(), "kaboom") {
		t.Errorf("the log does not hold it: %s", log.String())
	}
}

func TestReadyMeansThatDeliveriesCanBeTaken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says string
		err  error
		log  string
	}{
		{"the database is away", errors.New("no database"), `"level":"WARN","msg":"not ready","error":"no database"`},
		{"on its way out", server.ErrNotServing, ""},
	} {
		var log strings.Builder
		ts := app(t, func(context.Context) error { return c.err }, &log)
		resp, _ := get(t, ts.URL+"/readyz")
		ts.Close()
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || resp.Header.Get("Content-Type") != server.ProblemType {
			t.Errorf("%s: %d %v", c.says, resp.StatusCode, resp.Header)
		}
		if strings.Contains(log.String(), "ERROR") || !strings.Contains(log.String(), c.log) || (c.log == "") != (log.Len() == 0) {
			t.Errorf("%s, and the log says %q", c.says, log.String())
		}
	}
	ts := app(t, nil, io.Discard)
	if resp, _ := get(t, ts.URL+"/healthz"); resp.StatusCode != 200 {
		t.Errorf("alive: %d", resp.StatusCode)
	}
	ts = app(t, func(context.Context) error { return nil }, io.Discard)
	if resp, _ := get(t, ts.URL+"/readyz"); resp.StatusCode != 200 {
		t.Errorf("ready: %d", resp.StatusCode)
	}
}

func TestTheAPIDescribesItself(t *testing.T) {
	t.Parallel()
	ts := app(t, nil, io.Discard)
	resp, body := get(t, ts.URL+"/api/openapi.json")
	if resp.StatusCode != 200 || !strings.Contains(body, `"openapi":"3.1`) {
		t.Errorf("%d %.100s", resp.StatusCode, body)
	}
}
