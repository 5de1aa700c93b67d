package githubsim

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// hook is one delivery, made while the state was locked and sent later.
type hook struct {
	url, event, guid string
	body             []byte
	signature        string
}

func (s *Sim) emitRun(action string, r *run) {
	s.emit("workflow_run", r.repo, object{
		"action": action, "workflow_run": s.runJSON(r),
		"workflow": object{
			"id": r.workflowID, "node_id": "W_" + strconv.FormatInt(r.workflowID, 10), "name": r.workflowName, "path": r.path, "state": "active",
			"url":       fmt.Sprintf("%s/actions/workflows/%d", s.repositoryURL(r.repo), r.workflowID),
			"html_url":  s.base + "/" + r.repo.fullName() + "/blob/" + r.repo.DefaultBranch + "/" + r.path,
			"badge_url": s.base + "/" + r.repo.fullName() + "/workflows/badge.svg", "created_at": stamp(r.repo.created), "updated_at": stamp(r.repo.created),
		},
	})
}

func (s *Sim) emitJob(action string, r *run, j *job) {
	s.emit("workflow_job", r.repo, object{"action": action, "workflow_job": s.jobJSON(r, j)})
}

// emit puts a delivery in the queue. Best effort, as GitHub's: a full queue drops it. Sim.mu is held.
func (s *Sim) emit(event string, r *repository, body object) {
	if s.state.hookURL == "" || r.Installation == 0 {
		return
	}
	body["repository"], body["sender"] = s.repositoryJSON(r), s.appUser()
	body["installation"] = object{"id": r.Installation, "node_id": "I_" + strconv.FormatInt(r.Installation, 10)}
	text, err := json.Marshal(body)
	if err != nil {
		s.log.Error("githubsim: webhook", "error", err)
		return
	}
	mac := hmac.New(sha256.New, s.state.hookSecret)
	mac.Write(text)
	h := hook{url: s.state.hookURL, event: event, guid: newGUID(), body: text, signature: "sha256=" + hex.EncodeToString(mac.Sum(nil))}
	select {
	case s.hooks <- h:
	default:
		s.log.Warn("githubsim: webhook dropped, the queue is full", "event", event)
	}
}

func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// deliver sends what is in the queue, in order, each once.
func (s *Sim) deliver() {
	client := &http.Client{Timeout: 10 * time.Second}
	for {
		select {
		case <-s.ctx.Done():
			return
		case h := <-s.hooks:
			if err := s.send(client, h); err != nil {
				s.log.Info("githubsim: webhook not delivered", "event", h.event, "guid", h.guid, "error", err)
			}
		}
	}
}

func (s *Sim) send(client *http.Client, h hook) error {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, h.url, bytes.NewReader(h.body))
	if err != nil {
		return err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "GitHub-Hookshot/githubsim", "X-GitHub-Event": h.event,
		"X-GitHub-Delivery": h.guid, "X-Hub-Signature-256": h.signature, "X-GitHub-Hook-ID": "1",
		"X-GitHub-Hook-Installation-Target-ID": strconv.FormatInt(s.cfg.AppID, 10), "X-GitHub-Hook-Installation-Target-Type": "integration",
	} {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}
