package dispatch

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/store"
)

// HookPath is where GitHub sends the App's webhooks.
const HookPath = "/hooks/github"

// maxHook bounds a delivery. A workflow run's has some 20 KB, an installation's 150 bytes a repository. What GitHub would send
// beyond it is learned by asking (refreshInstallation).
const maxHook = 4 << 20

// Mount adds GitHub's webhooks.
func (d *Dispatch) Mount(e *echo.Echo) { e.POST(HookPath, d.hook) }

// hookAnswer says what became of a delivery: accepted, duplicate or ignored.
type hookAnswer struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
}

const (
	hookAccepted  = "accepted"
	hookDuplicate = "duplicate"
	hookIgnored   = "ignored"
)

// hook takes one delivery. A webhook changes no run and no installation by itself: what it is believed in is that GitHub is
// worth asking, so that neither its order nor its truth matters, and only the question is written down. Until its signature
// has verified nothing of it is read, and no id is claimed.
func (d *Dispatch) hook(c echo.Context) error {
	req := c.Request()
	body, err := readHook(c.Response(), req)
	if err != nil {
		return err
	}
	secret, err := d.hookSecret(req.Context())
	if err != nil {
		return err
	}
	if media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return &errand.Error{Code: errand.CodeUnsupported, Field: "Content-Type", Message: "a webhook is application/json", Hint: "set the App's webhook to the content type application/json"}
	}
	if err := github.VerifyWebhook(secret, req.Header.Get(github.SignatureHeader), body); err != nil {
		d.count.hooks.WithLabelValues("", "refused").Inc()
		d.log.LogAttrs(req.Context(), slog.LevelWarn, "github webhook refused", slog.Int("bytes", len(body)), slog.String("problem", err.Error()))
		return &errand.Error{Code: errand.CodeUnauthenticated, Message: err.Error(), Hint: "set the same webhook secret at the App and here"}
	}
	guid := req.Header.Get("X-GitHub-Delivery")
	if guid == "" || len(guid) > 64 || strings.IndexFunc(guid, notGUID) >= 0 {
		return errand.Invalid("X-GitHub-Delivery", "the header is missing, or not an id of GitHub's")
	}
	w, err := github.ParseWebhook(req.Header.Get("X-GitHub-Event"), body)
	if err != nil {
		d.count.hooks.WithLabelValues("", "rejected").Inc()
		return err
	}
	answer := hookAnswer{Outcome: hookIgnored, Reason: w.Ignored}
	if w.Ignored == "" {
		if answer, err = d.told(req.Context(), guid, w); err != nil {
			return errand.Errorf(errand.CodeUnavailable, err, "the delivery could not be stored, so it is not acknowledged")
		}
	}
	event := w.Event
	if answer.Reason == github.IgnoredEvent {
		event = "other" // the sender's word is no label
	}
	d.count.hooks.WithLabelValues(event, answer.Outcome).Inc()
	d.log.LogAttrs(req.Context(), slog.LevelDebug, "github webhook", slog.String("event", event), slog.String("delivery", guid),
		slog.String("outcome", answer.Outcome), slog.String("reason", answer.Reason))
	return c.JSON(http.StatusAccepted, answer)
}

func notGUID(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-'
}

func readHook(rw http.ResponseWriter, req *http.Request) ([]byte, error) {
	tooLarge := errand.Errorf(errand.CodeTooLarge, nil, "a webhook may have at most %d bytes", maxHook)
	if req.ContentLength > maxHook {
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, req.Body, maxHook))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case err != nil:
		return nil, &errand.Error{Code: errand.CodeInvalid, Message: "the body ended before its announced length", Cause: err}
	}
	return body, nil
}

// hookSecret: where there is none there is no such endpoint.
func (d *Dispatch) hookSecret(ctx context.Context) ([]byte, error) {
	if d.webhookSecret == nil {
		return nil, errand.NotFound("source")
	}
	secret, err := d.webhookSecret(ctx)
	if err == nil && len(secret) == 0 {
		err = errand.NotFound("source")
	}
	return secret, err
}

// told writes down what is to be asked of GitHub because of a delivery, or says why nothing is.
func (d *Dispatch) told(ctx context.Context, guid string, w github.Webhook) (hookAnswer, error) {
	if w.Run != nil {
		return d.toldOfRun(ctx, guid, w)
	}
	org, err := d.store.LookupInstallation(ctx, w.Installation)
	if errand.CodeOf(err) == errand.CodeNotFound { // nobody has proven to own it
		return hookAnswer{Outcome: hookIgnored, Reason: "installation_not_bound"}, nil
	}
	if err != nil {
		return hookAnswer{}, err
	}
	return d.claim(ctx, guid, w.Event, org, func(tx *store.Tx) (string, error) {
		return "", tx.Enqueue(ctx, errand.RefreshInstallation{Org: org, Installation: w.Installation})
	})
}

// toldOfRun: only a workflow run of ours is worth a row. It is found by GitHub's id of it, or by its mark as long as GitHub has
// not said the id.
func (d *Dispatch) toldOfRun(ctx context.Context, guid string, w github.Webhook) (hookAnswer, error) {
	org, run, err := d.store.LookupWorkflowRun(ctx, w.Repository, w.Run.ID)
	for _, mark := range w.Run.Marks() {
		if errand.CodeOf(err) != errand.CodeNotFound {
			break
		}
		if id, attempt, ok := parseMarker(mark); ok {
			org, run, err = d.store.LookupMarkedRun(ctx, w.Repository, id, attempt)
		}
	}
	if errand.CodeOf(err) == errand.CodeNotFound {
		return hookAnswer{Outcome: hookIgnored, Reason: github.IgnoredWorkflow}, nil
	}
	if err != nil {
		return hookAnswer{}, err
	}
	return d.claim(ctx, guid, w.Event, org, func(tx *store.Tx) (string, error) {
		n, err := tx.GitHubSawRun(ctx, store.GitHubSawRunParams{ID: run, WorkflowRun: w.Run.ID, Attempt: int32(min(w.Run.Attempt, 1<<30)), Status: w.Run.Status})
		switch {
		case err != nil:
			return "", err
		case n == 0:
			return "older_than_known", nil
		case w.Run.Status != "completed":
			return "", nil
		}
		return "", tx.Enqueue(ctx, errand.ReconcileRun{Org: org, Run: run, Told: true})
	})
}

// claim does the work of a delivery once, in the transaction that keeps its id.
func (d *Dispatch) claim(ctx context.Context, guid, event string, org errand.ID, work func(*store.Tx) (ignored string, err error)) (answer hookAnswer, err error) {
	err = d.store.InTx(ctx, org, func(tx *store.Tx) error {
		n, err := tx.GitHubClaimDelivery(ctx, guid, event, d.clock())
		if err != nil || n == 0 {
			answer = hookAnswer{Outcome: hookDuplicate, Reason: "already_received"}
			return err
		}
		ignored, err := work(tx)
		answer = hookAnswer{Outcome: hookAccepted}
		if ignored != "" {
			answer = hookAnswer{Outcome: hookIgnored, Reason: ignored}
		}
		return err
	})
	return answer, err
}

// parseMarker reads what marker makes.
func parseMarker(mark string) (run errand.ID, attempt int32, ok bool) {
	id, number, _ := strings.Cut(mark, ".")
	run, err := errand.ParseID(id)
	n, nErr := strconv.ParseInt(number, 10, 32)
	return run, int32(n), err == nil && nErr == nil && n > 0
}
