package github

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/errand-dev/errand"
)

// SignatureHeader is the one signature that is looked at. GitHub's older one, of SHA-1, is not.
const SignatureHeader = "X-Hub-Signature-256"

var (
	errUnsigned  = errors.New("the header " + SignatureHeader + " is missing")
	errSignature = errors.New("the signature is not that of this body and the App's webhook secret")
)

// VerifyWebhook holds the header against the body as it was received, in constant time. A missing header, and a missing
// secret, are failures.
func VerifyWebhook(secret []byte, header string, body []byte) error {
	if len(secret) == 0 {
		return errors.New("no webhook secret is set")
	}
	if header == "" {
		return errUnsigned
	}
	digits, ok := strings.CutPrefix(header, "sha256=")
	sent, err := hex.DecodeString(digits)
	if !ok || err != nil {
		return errSignature
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	if !hmac.Equal(mac.Sum(nil), sent) {
		return errSignature
	}
	return nil
}

// Webhook is what Errand reads of a delivery. There is no place in it for anybody's name, address or commit: what is not
// here is not decoded.
type Webhook struct {
	Event        string
	Action       string
	Installation int64 // 0 = the delivery names none
	Repository   int64 // GitHub's numeric id; 0 = none
	Run          *RunNews
	Ignored      string // why nothing follows from it; "" = something may
}

// RunNews is what a delivery says of a workflow run.
type RunNews struct {
	ID      int64
	Attempt int
	Status  string // queued, in_progress or completed
	Title   string // the run's name; "" when the delivery does not say it
}

// The reasons of Webhook.Ignored.
const (
	IgnoredEvent    = "event_not_used"
	IgnoredAction   = "action_not_used"
	IgnoredWorkflow = "another_workflow"
	IgnoredPing     = "ping"
)

type apiWebhook struct {
	Action       string `json:"action"`
	Installation struct {
		ID int64 `json:"id"`
	} `json:"installation"`
	Repository struct {
		ID int64 `json:"id"`
	} `json:"repository"`
	WorkflowRun *struct {
		ID           int64  `json:"id"`
		RunAttempt   int    `json:"run_attempt"`
		Event        string `json:"event"`
		Status       string `json:"status"`
		DisplayTitle string `json:"display_title"`
	} `json:"workflow_run"`
	WorkflowJob *struct {
		RunID      int64  `json:"run_id"`
		RunAttempt int    `json:"run_attempt"`
		Status     string `json:"status"`
	} `json:"workflow_job"`
}

// ParseWebhook reads a delivery whose signature has been verified. An event or action that Errand does not use is no error:
// GitHub's lists grow. It returns Invalid, naming the field, for a body that is not what its event promises.
func ParseWebhook(event string, body []byte) (Webhook, error) {
	w := Webhook{Event: event}
	switch event {
	case "":
		return w, errand.Invalid("X-GitHub-Event", "the header is missing: GitHub names its event there")
	case "ping":
		w.Ignored = IgnoredPing
		return w, nil
	case "workflow_run", "workflow_job", "installation", "installation_repositories":
	default:
		w.Ignored = IgnoredEvent
		return w, nil
	}
	var got apiWebhook
	if err := json.Unmarshal(body, &got); err != nil {
		return w, &errand.Error{Code: errand.CodeInvalid, Field: "body", Message: "it is not the JSON of a GitHub webhook", Cause: err}
	}
	w.Action, w.Installation, w.Repository = clip(got.Action), got.Installation.ID, got.Repository.ID
	switch event {
	case "workflow_run":
		return w.run(got)
	case "workflow_job":
		return w.job(got)
	default:
		if w.Installation <= 0 {
			return w, errand.Invalid("installation.id", "it is missing, or no positive number")
		}
		return w, nil
	}
}

// run reads a workflow_run event. Only what workflow_dispatch started can be ours.
func (w Webhook) run(got apiWebhook) (Webhook, error) {
	r := got.WorkflowRun
	switch {
	case r == nil || r.ID <= 0:
		return w, errand.Invalid("workflow_run.id", "it is missing, or no positive number")
	case w.Repository <= 0:
		return w, errand.Invalid("repository.id", "it is missing, or no positive number")
	case r.Event != "workflow_dispatch":
		w.Ignored = IgnoredWorkflow
		return w, nil
	}
	status := runStatus(w.Action)
	if status == "" {
		w.Ignored = IgnoredAction
		return w, nil
	}
	w.Run = &RunNews{ID: r.ID, Attempt: max(r.RunAttempt, 1), Status: status, Title: clip(r.DisplayTitle)}
	return w, nil
}

// job reads a workflow_job event. That one job is over does not end a workflow run of several.
func (w Webhook) job(got apiWebhook) (Webhook, error) {
	j := got.WorkflowJob
	switch {
	case j == nil || j.RunID <= 0:
		return w, errand.Invalid("workflow_job.run_id", "it is missing, or no positive number")
	case w.Repository <= 0:
		return w, errand.Invalid("repository.id", "it is missing, or no positive number")
	}
	status := runStatus(w.Action)
	if status == "" {
		w.Ignored = IgnoredAction
		return w, nil
	}
	if status == "completed" {
		status = "in_progress"
	}
	w.Run = &RunNews{ID: j.RunID, Attempt: max(j.RunAttempt, 1), Status: status}
	return w, nil
}

func runStatus(action string) string {
	switch action {
	case "requested", "queued", "waiting":
		return "queued"
	case "in_progress":
		return "in_progress"
	case "completed":
		return "completed"
	default:
		return ""
	}
}

// Marks gives the tokens of the title that may be the mark of a run, as `run` was sent in a dispatch.
func (n RunNews) Marks() (marks []string) {
	for _, token := range strings.FieldsFunc(n.Title, notMarker) {
		if token = strings.TrimRight(token, "."); strings.Count(token, ".") == 1 {
			marks = append(marks, token)
		}
	}
	return marks
}
