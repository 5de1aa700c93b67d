package webhooks

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// samples is how many events of an issue are kept, the newest.
const samples = 10

// persist writes the delivery and what follows from it in one transaction and fills in its outcome. When it returns nil
// all of it is durable; otherwise none of it exists, and the delivery must not be acknowledged.
func (w *Webhooks) persist(ctx context.Context, d *delivery) error {
	return w.store.InTx(ctx, d.org, func(tx *store.Tx) error {
		if d.outcome == accepted {
			if err := w.accept(ctx, tx, d); err != nil {
				return err
			}
		}
		return tx.WebhooksAddDelivery(ctx, store.WebhooksAddDeliveryParams{
			ID: d.id, OrgID: d.org, SourceID: d.source, ReceivedAt: d.receivedAt,
			Resource: d.parsed.Resource, Action: d.parsed.Action, RequestID: d.parsed.RequestID,
			Outcome: string(d.outcome), Reason: string(d.reason), IssueID: d.issue, EventID: d.event,
			BodySHA256: d.sha256[:], BodyBytes: int32(d.size), Shape: d.shape, //nolint:gosec // at most MaxBody
		})
	})
}

// accept claims the key and writes issue, event and job. The order of locks is the same for every delivery (key, issue,
// event), so that two of them never wait for each other in a circle.
func (w *Webhooks) accept(ctx context.Context, tx *store.Tx, d *delivery) error {
	known, err := w.claim(ctx, tx, d)
	if err != nil {
		return err
	}
	if known {
		d.outcome, d.reason = duplicate, reasonKnown
		return nil
	}
	issue, err := w.upsertIssue(ctx, tx, d)
	if err != nil {
		return err
	}
	d.issue = &issue.ID
	if d.parsed.Status != "" && issue.StatusAt.After(d.parsed.StatusAt) {
		d.outcome, d.reason = ignored, reasonOlderStatus
		return nil
	}
	event, err := w.addEvent(ctx, tx, d, issue.ID)
	if err != nil {
		return err
	}
	if event == "" {
		return nil
	}
	d.event = &event
	if issue.Deliveries > 1 {
		w.prune(ctx, tx, issue.ID, event)
	}
	return tx.Enqueue(ctx, errand.ConsiderIssue{Org: d.org, Issue: issue.ID, Event: event, Delivery: d.id})
}

// claim takes the delivery's key, or says that it is known: received before, and not failed since.
func (w *Webhooks) claim(ctx context.Context, tx *store.Tx, d *delivery) (known bool, err error) {
	n, err := tx.WebhooksClaim(ctx, store.WebhooksClaimParams{
		SourceID: d.source, Key: d.parsed.Key, OrgID: d.org, DeliveryID: d.id, ReceivedAt: d.receivedAt,
	})
	if err != nil || n > 0 {
		return false, err
	}
	if !d.parsed.Repeatable {
		return true, nil
	}
	// Resolved, re-opened and resolved again without an event in between: the third word looks like the first. It is news
	// when the issue has another status by now, and a retry otherwise.
	is, err := tx.WebhooksLockStatus(ctx, d.source, d.parsed.Issue.ProviderID)
	switch {
	case errand.CodeOf(err) == errand.CodeNotFound:
		return true, nil
	case err != nil:
		return false, err
	case is.Status == d.parsed.Status || !d.parsed.StatusAt.After(is.StatusAt):
		return true, nil
	}
	return false, tx.WebhooksReclaim(ctx, store.WebhooksReclaimParams{
		DeliveryID: d.id, ReceivedAt: d.receivedAt, SourceID: d.source, Key: d.parsed.Key,
	})
}

func (w *Webhooks) upsertIssue(ctx context.Context, tx *store.Tx, d *delivery) (store.WebhooksUpsertIssueRow, error) {
	i := d.parsed.Issue
	status, at, says := "open", i.LastSeen, false
	if d.parsed.Status != "" {
		status, at, says = d.parsed.Status, d.parsed.StatusAt, true
	}
	return tx.WebhooksUpsertIssue(ctx, store.WebhooksUpsertIssueParams{
		ID: errand.NewID(d.receivedAt), OrgID: d.org, SourceID: d.source, ProviderID: i.ProviderID,
		Fingerprint: i.Fingerprint, Title: i.Title, Culprit: i.Culprit, Level: i.Level, Platform: i.Platform,
		Project: i.Project, Link: i.Link, Status: status, StatusAt: at, SaysStatus: says,
		FirstSeen: i.FirstSeen, LastSeen: i.LastSeen, CreatedAt: d.receivedAt,
	})
}

// addEvent keeps the event and gives its id; "" when dispatch need not be asked. A word about an issue carries no event:
// the newest one known stands for it, and where none is known, one without exceptions, so that the decision can say that
// there is no stack trace.
func (w *Webhooks) addEvent(ctx context.Context, tx *store.Tx, d *delivery, issue errand.ID) (errand.ID, error) {
	e := d.parsed.Event
	if !d.parsed.Consider || e == nil {
		return "", nil
	}
	if standsForAWord(e) {
		newest, err := tx.WebhooksNewestEvent(ctx, issue)
		if err != nil {
			return "", err
		}
		if len(newest) > 0 {
			if d.parsed.Status == "" {
				return "", nil // the issue's creation is no news: its event was considered when it came
			}
			return newest[0], nil
		}
	}
	body, err := json.Marshal(e)
	if err != nil {
		return "", errand.Errorf(errand.CodeInternal, err, "the event cannot be written as JSON")
	}
	added, err := tx.WebhooksAddEvent(ctx, store.WebhooksAddEventParams{
		ID: errand.NewID(d.receivedAt), OrgID: d.org, IssueID: issue, ProviderID: e.ProviderID,
		SeenAt: e.SeenAt, ReceivedAt: d.receivedAt, Body: string(body),
	})
	if err != nil {
		return "", err
	}
	if len(added) > 0 {
		return added[0], nil
	}
	return tx.WebhooksFindEvent(ctx, issue, e.ProviderID)
}

// prune is best effort: a run that is being created for one of the events at this moment undoes it, and the next
// delivery prunes again.
func (w *Webhooks) prune(ctx context.Context, tx *store.Tx, issue, keep errand.ID) {
	err := tx.Savepoint(ctx, func(tx *store.Tx) error {
		_, err := tx.WebhooksPruneEvents(ctx, issue, keep, samples)
		return err
	})
	if err != nil {
		w.log.LogAttrs(ctx, slog.LevelWarn, "old events were not removed", slog.String("issue", string(issue)), slog.String("error", err.Error()))
	}
}
