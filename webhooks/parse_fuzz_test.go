package webhooks

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/errand-dev/errand/scrub"
)

func FuzzPosthogParse(f *testing.F) {
	files, err := filepath.Glob("testdata/posthog/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"kind":"$error_tracking_issue_spiking","delivery_id":"a","issue_id":"b","exception_props":{"$exception_types":["T",null],"$exception_values":[1],"$exception_releases":{"h":{"version":"1"},"i":7}}}`))
	f.Add([]byte(`{"event":{"event":"$exception","uuid":"a","properties":{"$exception_issue_id":"i","$exception_list":[null,{"stacktrace":{"frames":null}},{"mechanism":{"exception_id":1,"parent_id":1}}]}}}`))
	f.Add([]byte(`{"event":{"event":"$error_tracking_issue_resolved","uuid":"a","distinct_id":"i","timestamp":"0000-01-01T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		keeps(t, posthog{}, http.Header{"Webhook-Id": {"msg_1"}}, body)
	})
}

// Whatever stands in the headers, a Standard Webhook verifies only with the one signature over id, time and body, and a header
// secret only when it is the secret.
func FuzzStandardHeaders(f *testing.F) {
	key := bytes.Repeat([]byte{7}, 32)
	secret := standardPrefix + base64.StdEncoding.EncodeToString(key)
	sign := func(id, stamp string, body []byte) string {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body)
		return base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	now := fmt.Sprint(fuzzNow.Unix())
	f.Add("msg_1", now, "v1,"+sign("msg_1", now, []byte("x")), []byte("x"))
	f.Add("msg_1", now, "v1a,AAAA v1,"+sign("msg_1", now, nil), []byte(nil))
	f.Add("a.b", now, "v1,"+sign("a.b", now, []byte("x")), []byte("x"))
	f.Add("msg_1", "+"+now, "v1", []byte("x"))
	f.Add("msg_1", "99999999999999999999", ",,, v1,", []byte("x"))
	f.Fuzz(func(t *testing.T, id, stamp, signature string, body []byte) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {signature}, posthogSecret: {signature}}
		err := verifyStandard(h, body, []byte(secret), fuzzNow)
		if err == nil && (!strings.Contains(signature, "v1,"+sign(id, stamp, body)) || strings.Contains(id, ".") || stamp == "") {
			t.Errorf("%q %q %q verifies", id, stamp, signature)
		}
		if err != nil && (strings.Contains(err.Error(), sign(id, stamp, body)) || !utf8.ValidString(err.Error())) {
			t.Errorf("the answer gives the right signature away: %v", err)
		}
		if (posthogHeader{}).Verify(h, body, []byte("the-secret-of-this-header"), fuzzNow) == nil && signature != "the-secret-of-this-header" {
			t.Errorf("%q passes for the secret", signature)
		}
		if s, err := (posthog{}).Secret(signature); err == nil && verifyStandard(http.Header{}, body, []byte(s), fuzzNow) == nil {
			t.Error("no header verifies")
		}
	})
}

// The reader of JSON takes what has one reading and names the place of what has not: whatever it takes is JSON to the standard
// library too, has no name twice, and keeps no byte that is not UTF-8.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		`{"text":"a","count":3,"number":-1,"truth":true,"dropped":[1],"list":[{"text":"b"},null],"tags":[["a","b"]],"when":"2026-11-30T12:00:00Z"}`,
		`{"text":1,"text":2}`, `{"a":{"b":1,"b":2}}`, `{"text":"\ud800"}`, "{\"text\":\"\xff\"}", `{"count":1e99,"number":"9","truth":"yes"}`, `[`, `{} {}`, `{"list":{}}`, `{"dropped":{"":{}}}`,
		"\xef\xbb\xbf{}", `{"TEXT":"a"}`, `null`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var v struct {
			Text    text        `json:"text"`
			Count   count       `json:"count"`
			Number  number      `json:"number"`
			Truth   truth       `json:"truth"`
			Dropped dropped     `json:"dropped"`
			List    posthogTwo  `json:"list"`
			Tags    sentryTags  `json:"tags"`
			Stack   sentryStack `json:"stack"`
		}
		shape := shapeOf(scrub.New(), body)
		if len(shape) > shapeBytes || !utf8.ValidString(shape) {
			t.Errorf("a shape of %d bytes", len(shape))
		}
		err := decode(body, &v)
		if err != nil {
			if e := err.Error(); !utf8.ValidString(e) || strings.ContainsRune(e, 0) {
				t.Errorf("the error cannot be stored: %q", e)
			}
			return
		}
		if !utf8.ValidString(string(v.Text)) || v.Count < 0 || len(v.List.list) > 4 || len(v.Tags.list) > maxTags {
			t.Errorf("%+v", v)
		}
		if !json.Valid(bytes.ToValidUTF8(body, []byte("?"))) {
			t.Errorf("taken, and no JSON to the standard library: %q", body)
		}
		strict := jsontext.Value(bytes.Clone(body))
		if err := strict.Compact(jsontext.AllowInvalidUTF8(true)); err != nil {
			t.Errorf("taken, and not by the strict reader: %v", err)
		}
	})
}

type posthogTwo struct{ list []posthogExc }

func (p *posthogTwo) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	p.list, _, err = decodeList[posthogExc](dec, 2, 2)
	return err
}

// hostile are pieces that databases, terminals and cuts have stumbled over: NUL, control characters, bytes that are no UTF-8,
// halves of surrogate pairs, characters of one to four bytes. They are written as JSON texts hold them.
func hostile() []string {
	return []string{
		`\u0000`, "\\u0001", `\u001b[31m`, `\ud800`, `\udc00`, `\ud83d\ude00`, "\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "é", "中", "😀", "a", `\\`, `\"`, `\n`, "\u0085", "\u200b",
		strings.Repeat("é", 3000), strings.Repeat("😀", 2000), strings.Repeat("x", 9000),
	}
}

// A6, A18: one sanitiser for every text. Whatever pieces stand in whatever text or name of a delivery of any kind, what is to be
// stored is clean, within its bounds, and still tells the same issue.
func TestA6_A18_EveryTextOfEveryKindIsSanitised(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{}
	for kind, file := range map[string]string{
		"sentry": "testdata/sentry/event_alert.triggered.modern.derived.json", "posthog": "testdata/posthog/webhook.default.exception_event.derived.json",
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		bodies[kind] = string(b)
	}
	bodies["generic"] = `{"type":"error.occurred","data":{"issue":{"id":"1","title":"title","culprit":"culprit","platform":"go","project":"p","link":"https://e.example/i","fingerprint":"f"},
		"event":{"id":"e","time":"2026-11-30T11:00:00Z","release":"r","environment":"x","transaction":"t","message":"m","tags":[{"key":"k","value":"v"}],
		"exceptions":[{"type":"A","value":"v","module":"m","frames":[{"filename":"f","abs_path":"a","module":"m","function":"fn","line":1}]}]}}}`
	kinds, heads := providers(), http.Header{sentryResource: {"event_alert"}, "Webhook-Id": {"msg_1"}}
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom([]string{"sentry", "posthog", "generic"}).Draw(rt, "kind")
		piece := rapid.SampledFrom(hostile())
		bad := piece.Draw(rt, "first") + piece.Draw(rt, "second")
		body := bodies[kind]
		// Each text of the body is a place: ids and times keep their form, and are tried in other tests.
		places := textsOf(body)
		at := rapid.SampledFrom(places).Draw(rt, "place")
		keeps(t, kinds[kind], heads, []byte(body[:at]+bad+body[at:]))
	})
}

// textsOf gives the places inside the texts of a body, names of members among them.
func textsOf(body string) (places []int) {
	open := false
	for i := range len(body) {
		if body[i] == '"' && (i == 0 || body[i-1] != '\\') {
			if open = !open; open {
				places = append(places, i+1)
			}
		}
	}
	return places
}

// marker stands where trackers send source lines, variables and persons.
const marker = "MARKER-OF-THE-EDGE"

// What trackers send of the customer's code, data and people has no way in: a marker in each such place is nowhere in what is
// kept, not in the shape, and not in an error.
func TestNothingWithoutAPlaceIsKept(t *testing.T) {
	t.Parallel()
	line := func(names ...string) string {
		var b strings.Builder
		for _, n := range names {
			name := "x"
			if ownNames(n) { // the application chose the names too
				name = marker
			}
			fmt.Fprintf(&b, `%q:{%q:[%q,{%q:%q}]},`, n, name, marker, name, marker)
		}
		return b.String()
	}
	frames := `"frames":[{` + line("context_line", "pre_context", "post_context", "vars", "code_variables", "context", "data") + `"lineno":1,"line":1}]`
	xs := `[{` + line("raw_stacktrace", "thread") + `"type":"A","value":"v","stacktrace":{` + frames + `}}]`
	bodies := map[string]string{
		"sentry": `{"action":"triggered",` + line("actor") + `"data":{"event":{` + line("breadcrumbs", "request", "user", "extra", "contexts", "modules", "debug_meta", "_meta", "sdk") +
			`"event_id":"e","issue_id":"1","exception":{"values":` + xs + `}}}}`,
		"posthog": `{` + line("person", "groups", "source") + `"event":{` + line("elements_chain") + `"event":"$exception","uuid":"e","distinct_id":"` + marker + `","properties":{` +
			line("$set", "$set_once", "$ip", "$current_url", "$groups", "$exception_steps", "$geoip_city_name", "email") + `"$exception_issue_id":"1","$exception_list":` + xs + `}}}`,
	}
	for kind, body := range bodies {
		w, d := quiet(), &delivery{receivedAt: fuzzNow}
		if err := w.understand(d, providers()[kind], http.Header{sentryResource: {"event_alert"}}, []byte(body)); err != nil || d.outcome != accepted {
			t.Fatalf("%s: %s, %v", kind, d.outcome, err)
		}
		kept, err := json.Marshal(d.parsed)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(kept)+d.shape+string(d.reason), marker) {
			t.Errorf("%s keeps it: %s\n%s", kind, kept, d.shape)
		}
		if len(d.parsed.Event.Exceptions) != 1 || len(d.parsed.Event.Exceptions[0].Frames) != 1 {
			t.Errorf("%s: %+v", kind, d.parsed.Event)
		}
	}
}
