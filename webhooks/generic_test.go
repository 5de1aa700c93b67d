package webhooks_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
)

// genericBody is a message as small as it may be.
func genericBody(event string) []byte {
	return fmt.Appendf(nil, `{"type":"error.occurred","data":{"issue":{"id":"i1","title":"boom"},"event":{"id":%q,"time":"2026-11-30T11:59:00Z"}}}`, event)
}

// What docs/sources.md shows is what works.
func TestTheExampleOfTheDocumentIsAccepted(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/sources.md")
	if err != nil {
		t.Fatal(err)
	}
	_, ours, _ := bytes.Cut(doc, []byte("## Anything else"))
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(ours, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d examples, want one error and one change of status", len(blocks))
	}
	w := setup(t)
	s := w.generic()
	for i, b := range blocks {
		if r := w.postGeneric(s, fmt.Sprintf("msg_%d", i), b[1]); r.Outcome != "accepted" {
			t.Errorf("%v", r)
		}
	}
	i := w.issue("checkout-17")
	if i.Status != "resolved" || i.Title != "KeyError: 'currency'" || i.Project != "checkout" || i.Platform != "python" || i.Level != "error" {
		t.Errorf("%+v", i)
	}
	e := w.event("0b6f3f3e")
	x, ok := e.PrimaryException()
	if !ok || x.Type != "KeyError" || len(x.Frames) != 2 || x.Frames[1].Line != 88 || e.Commit != "9f3c2ab" || e.Environment != "production" {
		t.Errorf("%+v", e)
	}
	if e.Provenance["exceptions"] != errand.FromOutsider || e.Provenance["provider_id"] != errand.FromTracker {
		t.Errorf("%v", e.Provenance)
	}
}

func TestAStandardWebhookIsVerifiedWhole(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	other := w.generic()
	body := genericBody("e1")
	good := ""
	{
		r := w.request("/", body, w.standard(s.Secret, "msg_1", noon, body)...)
		good = r.Header.Get("webhook-signature")
	}
	for _, c := range []struct {
		name string
		with []with
	}{
		{"no id", []with{without("webhook-id")}},
		{"no time", []with{without("webhook-timestamp")}},
		{"no signature", []with{without("webhook-signature")}},
		{"another id", []with{header("webhook-id", "msg_2")}},
		{"another time", []with{header("webhook-timestamp", fmt.Sprint(noon.Unix()+1))}},
		{"a time that is no number", []with{header("webhook-timestamp", "noon")}},
		{"a time with a sign", []with{header("webhook-timestamp", fmt.Sprint("+", noon.Unix()))}},
		{"a signature of another version", []with{header("webhook-signature", "v2,"+good[3:])}},
		{"an asymmetric signature", []with{header("webhook-signature", "v1a,"+good[3:])}},
		{"no version", []with{header("webhook-signature", good[3:])}},
		{"an empty signature", []with{header("webhook-signature", "v1,")}},
		{"the secret of another source", w.standard(other.Secret, "msg_1", noon, body)},
		{"six minutes old", w.standard(s.Secret, "msg_1", noon.Add(-6*time.Minute), body)},
		{"six minutes ahead", w.standard(s.Secret, "msg_1", noon.Add(6*time.Minute), body)},
		{"an id with a dot", w.standard(s.Secret, "msg.1", noon, body)},
		{"two ids", []with{func(r *http.Request) { r.Header.Add("webhook-id", "msg_2") }}},
		{"two signature headers", []with{func(r *http.Request) { r.Header.Add("webhook-signature", good) }}},
	} {
		if r := w.postGeneric(s, "msg_1", body, c.with...); r.status != 401 || !strings.Contains(r.Hint, "Standard Webhooks") {
			t.Errorf("%s: %v", c.name, r)
		}
	}
	w.expect(map[string]int{"deliveries": 0, "delivery_keys": 0})
	if r := w.postGeneric(s, "msg_10", body, w.standard(s.Secret, "msg_10", noon.Add(-4*time.Minute), body)...); r.Outcome != "accepted" {
		t.Errorf("four minutes old: %v", r)
	}
	// The messages below are authentic too, and carry the same event.
	if r := w.postGeneric(s, "msg_11", body, w.standard(s.Secret, "msg_11", noon.Add(4*time.Minute), body)...); r.Reason != "event_already_received" {
		t.Errorf("four minutes ahead: %v", r)
	}
	if r := w.postGeneric(s, "msg_1", body, header("webhook-signature", "v1,AAAA v1a,x "+good)); r.Reason != "event_already_received" {
		t.Errorf("several signatures, the last right: %v", r)
	}
	if r := w.postGeneric(s, "msg_1", body); r.Outcome != "duplicate" || r.Reason != "already_received" {
		t.Errorf("the same message again: %v", r)
	}
}

func TestOurOwnFormatIsReadStrictly(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	event := func(members string) string {
		return `{"type":"error.occurred","data":{"issue":{"id":"1","title":"t"},"event":{` + members + `}}}`
	}
	const ok = `"id":"e","time":"2026-11-30T11:00:00Z"`
	cases := []struct{ name, body, field string }{
		{"no type", `{"data":{}}`, "type"},
		{"a type that is a number", `{"type":1}`, "type"},
		{"a member that is not known", event(ok + `,"enviroment":"x"`), "data.event.enviroment"},
		{"a member of another case", event(ok + `,"Release":"x"`), "data.event.Release"},
		{"source lines", event(ok + `,"exceptions":[{"type":"A","frames":[{"context_line":"x"}]}]`), "data.event.exceptions[0].frames[0].context_line"},
		{"a member twice", event(ok + `,"id":"f"`), "data.event.id"},
		{"no event id", event(`"time":"2026-11-30T11:00:00Z"`), "data.event.id"},
		{"no time", event(`"id":"e"`), "data.event.time"},
		{"a time that is none", event(`"id":"e","time":"yesterday"`), "data.event.time"},
		{"a line that is a text", event(ok + `,"exceptions":[{"frames":[{"line":"3"}]}]`), "data.event.exceptions[0].frames[0].line"},
		{"tags as an object", event(ok + `,"tags":{"a":"b"}`), "data.event.tags"},
		{"a commit that is none", event(ok + `,"commit":"HEAD"`), "data.event.commit"},
		{"no event", `{"type":"error.occurred","data":{"issue":{"id":"1","title":"t"}}}`, "data.event"},
		{"no issue", `{"type":"error.occurred","data":{"event":{` + ok + `}}}`, "data.issue.id"},
		{"no title", `{"type":"error.occurred","data":{"issue":{"id":"1"},"event":{` + ok + `}}}`, "data.issue.title"},
		{"a level that is none", `{"type":"error.occurred","data":{"issue":{"id":"1","title":"t","level":"bad"},"event":{` + ok + `}}}`, "data.issue.level"},
		{"a change of status without its time", `{"type":"issue.resolved","data":{"issue":{"id":"1"}}}`, "timestamp"},
		{"a change of status with an event", `{"type":"issue.resolved","timestamp":"2026-11-30T11:00:00Z","data":{"issue":{"id":"1"},"event":{}}}`, "data.event"},
	}
	for i, c := range cases {
		if r := w.postGeneric(s, fmt.Sprintf("bad_%d", i), []byte(c.body)); r.status != 422 || r.Field != c.field || r.Detail == "" {
			t.Errorf("%s: %v, want 422 at %s", c.name, r, c.field)
		}
	}
	w.expect(map[string]int{"issues": 0, jobs: 0, "deliveries WHERE outcome = 'rejected'": len(cases)})
	if r := w.postGeneric(s, "msg_deploy", []byte(`{"type":"deploy.finished","data":{"anything":1}}`)); r.Outcome != "ignored" || r.Reason != "resource_not_used:deploy.finished" {
		t.Errorf("%v", r)
	}
}

func TestA13_OurOwnFormatOrdersChangesByTheirTime(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	n := 0
	word := func(typ string, minute int) reply {
		n++
		return w.postGeneric(s, fmt.Sprintf("w_%d", n), fmt.Appendf(nil, `{"type":%q,"timestamp":%q,"data":{"issue":{"id":"i1","title":"boom"}}}`,
			typ, noon.Add(time.Duration(minute-60)*time.Minute).Format(time.RFC3339)))
	}
	for _, c := range []struct {
		typ     string
		minute  int
		outcome string
		status  string
	}{
		{"issue.resolved", 10, "accepted", "resolved"},
		{"issue.reopened", 5, "ignored", "resolved"},
		{"issue.reopened", 20, "accepted", "open"},
		{"issue.ignored", 30, "accepted", "ignored"},
		{"issue.resolved", 25, "ignored", "ignored"},
	} {
		if r := word(c.typ, c.minute); r.Outcome != c.outcome || w.issue("i1").Status != c.status {
			t.Errorf("%s at %d: %v, issue %s", c.typ, c.minute, r, w.issue("i1").Status)
		}
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	frame := `{"filename":"` + strings.Repeat("d/", 60) + `x.go","function":"` + strings.Repeat("f", 700) + `","line":%d},`
	var frames strings.Builder
	for i := range 260 {
		fmt.Fprintf(&frames, frame, i+1)
	}
	exception := `{"type":"A","frames":[` + strings.TrimSuffix(frames.String(), ",") + `]},`
	send := func(id, members string) errand.Event {
		t.Helper()
		body := `{"type":"error.occurred","data":{"issue":{"id":"i1","title":"` + strings.Repeat("é", 600) + `"},"event":{"id":"` + id + `","time":"2026-11-30T11:00:00Z",` + members + `}}}`
		if r := w.postGeneric(s, id, []byte(body)); r.Outcome != "accepted" {
			t.Fatal(r)
		}
		return w.event(id)
	}
	e := send("frames", `"exceptions":[`+strings.TrimSuffix(exception, ",")+`]`)
	x := e.Exceptions[0]
	if len(x.Frames) != 200 || x.Frames[199].Line != 260 || len(x.Frames[0].Function) != 512 {
		t.Errorf("%d frames, the last at %d", len(x.Frames), x.Frames[len(x.Frames)-1].Line)
	}
	if len(w.issue("i1").Title) != 512 {
		t.Errorf("a title of %d bytes", len(w.issue("i1").Title))
	}
	e = send("exceptions", `"exceptions":[`+strings.Repeat(`{"type":"first"},`, 10)+strings.Repeat(`{"type":"middle"},`, 30)+strings.Repeat(`{"type":"last"},`, 9)+`{"type":"last"}]`)
	if len(e.Exceptions) != 20 || e.Exceptions[9].Type != "first" || e.Exceptions[10].Type != "last" || e.Primary != 19 {
		t.Errorf("%d exceptions, primary %d", len(e.Exceptions), e.Primary)
	}
	e = send("whole", `"exceptions":[`+strings.TrimSuffix(strings.Repeat(exception, 4), ",")+`]`)
	if n := w.count("events WHERE length(body) > 262144"); n != 0 || len(e.Exceptions) != 4 || e.Exceptions[0].Frames[len(e.Exceptions[0].Frames)-1].Line != 260 {
		t.Errorf("%d events over the cap", n)
	}
	if len(e.Removed) == 0 {
		t.Error("what went is not recorded")
	}
}

func TestAnIdOutOfWhichAPersonWasTakenStillTellsItsIssueFromOthers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.generic()
	for i, who := range []string{"jane@shop.example", "john@shop.example", "jane@shop.example"} {
		body := strings.Replace(string(genericBody(fmt.Sprintf("e%d-%s", i, who))), `"i1"`, `"crash-of-`+who+`"`, 1)
		if r := w.postGeneric(s, fmt.Sprintf("msg_%d", i), []byte(body)); r.Outcome != "accepted" {
			t.Fatal(r)
		}
	}
	w.expect(map[string]int{"issues": 2, "events": 3, "delivery_keys": 3})
	if strings.Contains(w.dump(), "jane") {
		t.Error("a person is in the database")
	}
}
