package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/errand-dev/errand"
)

// sentryAlert is the body that Sentry's issue alert sends for a crash: with the source lines around each frame, and the
// variables that were at hand.
func sentryAlert(c crashReport, now time.Time) []byte {
	const project = 4505266709331968
	event := map[string]any{
		"event_id": fmt.Sprintf("%032x", now.UnixNano()), "project": project, "platform": "go", "type": "error", "level": "error",
		"title": c.Type + ": " + c.Value, "culprit": "main in pay", "message": "", "logger": "", "environment": "production",
		"release": "shop@1.4.2", "dist": nil, "version": "7", "location": "checkout/shipping.go",
		"datetime": now.UTC().Format("2006-01-02T15:04:05.000000Z"), "timestamp": float64(now.UnixMicro()) / 1e6, "received": float64(now.UnixMicro()) / 1e6,
		"metadata": map[string]any{"type": c.Type, "value": c.Value, "function": "perParcel", "filename": "checkout/shipping.go"},
		"tags":     [][2]string{{"environment", "production"}, {"level", "error"}, {"release", "shop@1.4.2"}, {"server_name", "web-1"}},
		"user":     map[string]any{"id": "88", "email": "robin@example.com", "ip_address": "203.0.113.9"},
		"contexts": map[string]any{"runtime": map[string]any{"name": "go", "type": "runtime"}},
		"sdk":      map[string]any{"name": "sentry.go", "version": "0.50.0"},
		"exception": map[string]any{"values": []any{map[string]any{
			"type": c.Type, "value": c.Value, "module": "main", "mechanism": map[string]any{"type": "generic", "handled": false},
			"stacktrace": map[string]any{"frames": c.Frames},
		}}},
		"url":       "https://sentry.io/api/0/projects/octo-demo/shop/events/1/",
		"web_url":   "https://sentry.io/organizations/octo-demo/issues/5550001042/events/1/",
		"issue_url": "https://sentry.io/api/0/organizations/octo-demo/issues/5550001042/",
		"issue_id":  "5550001042",
	}
	body, err := json.Marshal(map[string]any{
		"action":       "triggered",
		"installation": map[string]any{"uuid": "11111111-2222-4333-8444-555555555555"},
		"data":         map[string]any{"event": event, "triggered_rule": "Send new issues to Errand"},
		"actor":        map[string]any{"type": "application", "id": "sentry", "name": "Sentry"},
	})
	if err != nil {
		panic(err) // maps of plain values: cannot fail
	}
	return body
}

// postSentry sends the body as Sentry does: an HMAC of exactly these bytes, and the time unsigned beside it.
func postSentry(ctx context.Context, url, secret string, body []byte) (status int, answer string, err error) {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Request-Id", string(errand.NewID(time.Now())))
	req.Header.Set("Sentry-Hook-Resource", "event_alert")
	req.Header.Set("Sentry-Hook-Timestamp", strconv.FormatInt(time.Now().Unix(), 10))
	req.Header.Set("Sentry-Hook-Signature", hex.EncodeToString(mac.Sum(nil)))
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, string(bytes.TrimSpace(b)), err
}
