package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/errand-dev/errand"
)

// source is one source of errors as its tracker knows it, with the stack roots of its organisation's repositories.
type source struct {
	id, kind, path, secret string
	roots                  []string
}

// message is one delivery: the same bytes however often it is sent.
type message struct {
	source       source
	id           string // webhook-id, of a generic one
	resource     string // of a Sentry one
	body         []byte
	again        bool // it was acknowledged before, with firstOutcome
	firstOutcome string
	forged       bool // signed with another secret
	copies       int  // sent so many times at once
}

// event is an error of the numbered issue, which is the same issue at every source and another one at each: trackers do
// not know of each other.
func (s source) event(rng *rand.Rand, number int) message {
	name, root, now := word(number), s.roots[number%len(s.roots)], time.Now().UTC()
	if s.kind == "generic" {
		return s.generic(rng, "error.occurred", now, map[string]any{
			"issue": map[string]any{"id": "issue-" + name, "title": name + "Error", "level": "error", "platform": "go", "project": "shop"},
			"event": map[string]any{
				"id": hex32(rng), "time": now.Format(time.RFC3339Nano), "environment": "production", "release": "shop@1.4.2",
				"exceptions": []any{map[string]any{"type": name + "Error", "value": "the " + name + " is gone", "frames": []any{
					map[string]any{"filename": "src/" + name + ".go", "abs_path": root + "/src/" + name + ".go", "function": name, "line": 17, "in_app": true},
				}}},
			},
		})
	}
	base := "https://sentry.example.com/api/0/organizations/octo/issues/" + strconv.Itoa(1000+number) + "/"
	body := must(map[string]any{
		"action": "triggered", "installation": map[string]any{"uuid": "11111111-2222-4333-8444-555555555555"},
		"actor": map[string]any{"type": "application", "id": "sentry", "name": "Sentry"},
		"data": map[string]any{"triggered_rule": "all", "event": map[string]any{
			"event_id": hex32(rng), "project": 4505266709331968, "platform": "go", "type": "error", "level": "error", "title": name + "Error",
			"culprit": name, "environment": "production", "release": "shop@1.4.2", "datetime": now.Format("2006-01-02T15:04:05.000000Z"),
			"timestamp": float64(now.UnixMicro()) / 1e6, "url": base + "events/1/", "web_url": base, "issue_url": base, "issue_id": strconv.Itoa(1000 + number),
			"tags": [][2]string{{"environment", "production"}, {"level", "error"}},
			"exception": map[string]any{"values": []any{map[string]any{
				"type": name + "Error", "value": "the " + name + " is gone", "module": "main",
				"mechanism": map[string]any{"type": "generic", "handled": false},
				"stacktrace": map[string]any{"frames": []any{map[string]any{
					"filename": "src/" + name + ".go", "abs_path": root + "/src/" + name + ".go", "function": name, "lineno": 17, "in_app": true,
				}}},
			}}},
		}},
	})
	return message{source: s, resource: "event_alert", body: body}
}

// word says that the issue was resolved, or opened again: it changes the issue and carries no event.
func (s source) word(rng *rand.Rand, number int) message {
	if s.kind != "generic" {
		return s.event(rng, number)
	}
	kind := []string{"issue.resolved", "issue.reopened"}[rng.IntN(2)]
	name := word(number)
	return s.generic(rng, kind, time.Now().UTC(), map[string]any{"issue": map[string]any{"id": "issue-" + name, "title": name + "Error"}})
}

// unknown is of a type that Errand does not use: acknowledged as ignored.
func (s source) unknown(rng *rand.Rand) message {
	if s.kind == "generic" {
		return s.generic(rng, "billing.changed", time.Now().UTC(), map[string]any{"n": rng.IntN(1 << 30)})
	}
	return message{source: s, resource: "metric_alert", body: must(map[string]any{"action": "resolved", "n": rng.IntN(1 << 30)})}
}

func (s source) generic(rng *rand.Rand, kind string, now time.Time, data map[string]any) message {
	body := must(map[string]any{"type": kind, "timestamp": now.Format(time.RFC3339Nano), "data": data})
	return message{source: s, id: "msg_" + hex32(rng), body: body}
}

// sign signs as the tracker does, anew for each attempt.
func (s source) sign(h http.Header, m message, now time.Time) {
	secret := s.secret
	if m.forged {
		secret = strings.Replace(secret, secret[len(secret)-8:len(secret)-4], "AAAA", 1)
	}
	if s.kind == "generic" {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			key = []byte(secret)
		}
		stamp := strconv.FormatInt(now.Unix(), 10)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", m.id, stamp, m.body)
		h.Set("webhook-id", m.id)
		h.Set("webhook-timestamp", stamp)
		h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		return
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(m.body)
	h.Set("Request-ID", string(errand.NewID(now))) // another with each attempt
	h.Set("Sentry-Hook-Resource", m.resource)
	h.Set("Sentry-Hook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	h.Set("Sentry-Hook-Signature", hex.EncodeToString(mac.Sum(nil)))
}

// word names an issue by letters alone, so that no two look like one problem with another number in it.
func word(number int) string {
	syllables := []string{"ba", "ke", "lo", "mi", "nu", "ra", "se", "to", "vi", "zu"}
	var b strings.Builder
	for n := number; ; n /= 10 {
		b.WriteString(syllables[n%10])
		if n < 10 {
			return b.String()
		}
	}
}

func hex32(rng *rand.Rand) string { return fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64()) }
