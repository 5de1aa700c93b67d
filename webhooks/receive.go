package webhooks

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/store"
)

// outcome is what became of an authentic delivery.
type outcome string

const (
	accepted  outcome = "accepted"
	duplicate outcome = "duplicate"
	ignored   outcome = "ignored"
	rejected  outcome = "rejected"
)

// reason says why a delivery was not accepted: one of these words, for some with the name in question after a colon.
type reason string

const (
	reasonNone        reason = ""
	reasonEmptyBody   reason = "empty_body"
	reasonResource    reason = "resource_not_used" // :name
	reasonAction      reason = "action_not_used"   // :name
	reasonCategory    reason = "category_not_used" // :name
	reasonKnown       reason = "already_received"
	reasonOlderStatus reason = "older_than_known_status"
	reasonEventKnown  reason = "event_already_received" // under another delivery
)

// with adds a name that the sender chose, if it has the form of one.
func (r reason) with(name string) reason {
	if !plainName(name) {
		return r
	}
	return r + ":" + reason(name)
}

func plainName(s string) bool {
	return s != "" && len(s) <= 48 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == ""
}

// delivery is one authentic request on its way into the database.
type delivery struct {
	id         errand.ID
	org        errand.ID
	source     errand.ID
	kind       string
	receivedAt time.Time
	sha256     [sha256.Size]byte
	size       int
	shape      string
	parsed     parsed
	body       string // parsed.Event as it is stored

	settled // as far as it is settled before anything is written
}

// parsed is what a provider understood.
type parsed struct {
	Resource  string
	Action    string
	RequestID string // the sender's id of this request, for looking it up at the sender
	Ignored   reason // set: nothing but the delivery itself is kept

	Key string // the same occurrence has the same key, however often and under whatever request id it is sent
	// Repeatable: Key cannot tell a second change to the same status from a retry of the first (Sentry's issue hooks carry
	// neither an id nor a time of the change).
	Repeatable bool

	Issue errand.Issue
	// Unseen: the message does not say when the error occurred (it is a word about the issue), so that the issue's times stand
	// in for an issue that is not known yet and move nothing of one that is.
	Unseen   bool
	Status   string    // open, resolved, ignored; "" = the delivery says nothing about it
	StatusAt time.Time // when the tracker said so
	Event    *errand.Event
	Consider bool // ask dispatch about the issue
}

type answer struct {
	Delivery errand.ID `json:"delivery"`
	Outcome  outcome   `json:"outcome"`
	Reason   reason    `json:"reason"`
}

// receive takes one delivery. The order is the point: size, source, content type, signature over the bytes as they came,
// then parsing, and no acknowledgement before the commit. Nothing of a request is believed, and no key claimed, before
// its signature has verified.
func (w *Webhooks) receive(c echo.Context) error {
	req := c.Request()
	body, err := readBody(c.Response(), req)
	if err != nil {
		return err
	}
	watch := w.startWatch()
	src, kind, err := w.lookup(req.Context(), c.Param("source"))
	if err != nil {
		return err
	}
	watch.lap(stageLookup)
	if err := checkContentType(req.Header); err != nil {
		return err
	}
	now := w.clock().UTC().Truncate(time.Microsecond) // the database's precision
	if err := w.verify(req, src, kind, body, now); err != nil {
		return err
	}
	watch.lap(stageVerify)
	d, refusal := w.prepare(src, kind, req.Header, body, now)
	watch.lap(stageUnderstand)
	// A tracker that hangs up early does not send again by itself, so the delivery is kept all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), storeTimeout)
	defer cancel()
	if d.settled, err = w.writer.write(ctx, d); err != nil {
		w.count.lost.WithLabelValues(d.kind).Inc()
		w.logDelivery(ctx, slog.LevelError, d, slog.String("error", err.Error()))
		return &errand.Error{
			Code: errand.CodeUnavailable, Message: "the delivery could not be stored, so it is not acknowledged",
			Hint: "send it again", Cause: err,
		}
	}
	watch.lap(stageStore)
	w.count.deliveries.WithLabelValues(d.kind, string(d.outcome)).Inc()
	w.tally.add(d)
	w.logDelivery(ctx, slog.LevelInfo, d)
	if refusal != nil {
		return refusal
	}
	return c.JSON(http.StatusAccepted, answer{Delivery: d.id, Outcome: d.outcome, Reason: d.reason})
}

// prepare makes of an authentic body what is written. The refusal, if there is one, is for the sender: the delivery is
// written all the same, as rejected.
func (w *Webhooks) prepare(src store.SourceSecret, kind provider, h http.Header, body []byte, now time.Time) (d *delivery, refusal error) {
	d = &delivery{
		id: errand.NewID(now), org: src.Org, source: src.ID, kind: src.Kind, receivedAt: now,
		sha256: sha256.Sum256(body), size: len(body),
	}
	return d, w.understand(d, kind, h, body)
}

// Delivery is one authentic delivery, understood and not yet stored. Prepare and Store are the two halves of what the
// endpoint does after the signature, apart so that the writer can be measured without the rest.
type Delivery = delivery

// Prepare understands a body that is taken to be authentic.
func (w *Webhooks) Prepare(ctx context.Context, publicID string, h http.Header, body []byte) (*Delivery, error) {
	src, kind, err := w.lookup(ctx, publicID)
	if err != nil {
		return nil, err
	}
	return w.prepare(src, kind, h, body, w.clock().UTC().Truncate(time.Microsecond))
}

// Store returns when the delivery is durable, and tells what became of it.
func (w *Webhooks) Store(ctx context.Context, d *Delivery) (outcome string, err error) {
	s, err := w.writer.write(ctx, d)
	return string(s.outcome), err
}

// readBody holds the cap on the size that is announced and on what then comes.
func readBody(rw http.ResponseWriter, req *http.Request) ([]byte, error) {
	tooLarge := errand.Errorf(errand.CodeTooLarge, nil, "a delivery may have at most %d bytes", MaxBody)
	if req.ContentLength > MaxBody {
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, req.Body, MaxBody))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case err != nil:
		return nil, &errand.Error{Code: errand.CodeInvalid, Message: "the body ended before its announced length", Cause: err}
	}
	return body, nil
}

// lookup finds the source. Unknown, malformed and disabled are one answer.
func (w *Webhooks) lookup(ctx context.Context, publicID string) (store.SourceSecret, provider, error) {
	none := errand.NotFound("source")
	if !publicIDForm.MatchString(publicID) {
		return store.SourceSecret{}, nil, none
	}
	src, err := w.sources.source(ctx, publicID)
	switch {
	case errand.CodeOf(err) == errand.CodeNotFound:
		return src, nil, none
	case err != nil:
		return src, nil, err
	case src.DisabledAt != nil:
		return src, nil, none
	}
	kind, ok := w.kinds[src.Kind]
	if !ok {
		return src, nil, errand.Errorf(errand.CodeInternal, nil, "source %s is of the kind %q, which this program does not know", src.ID, src.Kind)
	}
	return src, kind, nil
}

func checkContentType(h http.Header) error {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return &errand.Error{
			Code: errand.CodeUnsupported, Field: "Content-Type", Message: "a delivery is application/json",
			Hint: "set the sender's content type; a form is not taken",
		}
	}
	if e := h.Get("Content-Encoding"); e != "" && e != "identity" {
		return &errand.Error{Code: errand.CodeUnsupported, Field: "Content-Encoding", Message: "a compressed delivery is not taken"}
	}
	return nil
}

// verify holds the signature against the source's secret and, while they overlap, the one before it.
func (w *Webhooks) verify(req *http.Request, src store.SourceSecret, kind provider, body []byte, now time.Time) error {
	sealed := [][]byte{src.SecretSealed}
	if src.PreviousSecretSealed != nil && src.PreviousSecretExpiresAt != nil && now.Before(*src.PreviousSecretExpiresAt) {
		sealed = append(sealed, src.PreviousSecretSealed)
	}
	var failure error
	for _, s := range sealed {
		secret, err := w.sealer.Open(s, string(src.ID))
		if err != nil {
			return err
		}
		err = kind.Verify(req.Header, body, secret, now)
		if err == nil {
			return nil
		}
		if failure == nil {
			failure = err
		}
	}
	w.count.unsigned.WithLabelValues(src.Kind).Inc()
	w.tally.refuse(&src, failure.Error(), now)
	w.log.LogAttrs(req.Context(), slog.LevelWarn, "delivery refused",
		slog.String("org", string(src.Org)), slog.String("source", string(src.ID)), slog.String("kind", src.Kind),
		slog.Int("bytes", len(body)), slog.String("problem", failure.Error()))
	return &errand.Error{Code: errand.CodeUnauthenticated, Message: failure.Error(), Hint: kind.Hint(req.Header, body)}
}

// understand parses, normalises and scrubs. A delivery that cannot be understood is kept as rejected, and the error says
// to the sender why.
func (w *Webhooks) understand(d *delivery, kind provider, h http.Header, body []byte) error {
	if len(body) == 0 {
		d.outcome, d.reason, d.shape = ignored, reasonEmptyBody, "empty"
		return nil
	}
	d.shape = shapeOf(w.scrubber, body)
	p, err := kind.Parse(h, body, d.receivedAt)
	p.Resource, p.Action, p.RequestID = w.label(p.Resource), w.label(p.Action), w.label(p.RequestID)
	d.parsed = p
	if err != nil {
		d.outcome, d.reason = rejected, w.rejection(err)
		return err
	}
	if p.Ignored != reasonNone {
		d.outcome, d.reason = ignored, p.Ignored
		return nil
	}
	w.normalise(&d.parsed, d.receivedAt)
	if d.parsed.Event != nil {
		stored, err := json.Marshal(d.parsed.Event)
		if err != nil {
			d.outcome, d.reason = rejected, "unreadable"
			return errand.Errorf(errand.CodeInternal, err, "the event cannot be written as JSON")
		}
		d.body = string(stored)
	}
	d.outcome = accepted
	return nil
}

// label makes a header's or a member's text fit for a column beside the delivery.
func (w *Webhooks) label(s string) string {
	s, _ = w.scrubber.Text("label", scrub.Sanitise(s, 1024))
	return scrub.Sanitise(s, 64)
}

// rejection is the stored form of a parse failure: the field and what was wrong with it, without a value.
func (w *Webhooks) rejection(err error) reason {
	var e *errand.Error
	if !errors.As(err, &e) {
		return "unreadable"
	}
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	text, _ = w.scrubber.Text("reason", scrub.Sanitise(text, 1024))
	return reason(scrub.Sanitise(text, 256))
}

func (w *Webhooks) logDelivery(ctx context.Context, level slog.Level, d *delivery, more ...slog.Attr) {
	attrs := append([]slog.Attr{
		slog.String("delivery", string(d.id)), slog.String("org", string(d.org)), slog.String("source", string(d.source)),
		slog.String("kind", d.kind), slog.String("resource", d.parsed.Resource), slog.String("action", d.parsed.Action),
		slog.String("sender_request", d.parsed.RequestID), slog.Int("bytes", d.size),
		slog.String("issue", idText(d.issue)), slog.String("event", idText(d.event)),
		slog.String("outcome", string(d.outcome)), slog.String("reason", string(d.reason)),
	}, more...)
	msg := "delivery"
	if level == slog.LevelError {
		msg = "delivery not stored"
	}
	w.log.LogAttrs(ctx, level, msg, attrs...)
}

func idText(id *errand.ID) string {
	if id == nil {
		return ""
	}
	return string(*id)
}
