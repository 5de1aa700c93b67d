package webhooks

import (
	"cmp"
	"context"
	"slices"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// samples is how many events of an issue are kept, the newest.
const samples = 10

// noID stands for an absent id in the lists of a statement.
const noID errand.ID = "00000000-0000-0000-0000-000000000000"

// settled is what became of a delivery.
type settled struct {
	outcome outcome
	reason  reason
	issue   *errand.ID
	event   *errand.ID
	apart   bool // not written: it has to be a batch of its own
}

// row is a delivery within one attempt to write it.
type row struct {
	*delivery // only read
	settled
	again    bool // the key is claimed once more, after a failure
	consider bool // dispatch is asked
	newID    errand.ID
}

func (r *row) duplicate(why reason) { r.outcome, r.reason = duplicate, why }

// live tells whether the row is still on its way to an event.
func (r *row) live() bool { return r.outcome == accepted && !r.apart }

// batch is what one transaction writes. Its rows stand in the order of arrival, and what comes of them is as if they had been
// written one by one in that order, with one liberty: a word about an issue finds the events of the whole batch.
type batch struct {
	rows   []*row
	alone  bool
	issues map[issueKey]*issueRows
}

type issueKey struct {
	source   errand.ID
	provider string
}

func compareKeys(a, b issueKey) int {
	return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.provider, b.provider))
}

func (d *delivery) issueKey() issueKey { return issueKey{d.source, d.parsed.Issue.ProviderID} }

// persist writes deliveries and what follows from them in one transaction and tells what became of each. When it returns
// nil all of it is durable, but for the ones it sets apart; otherwise none of it exists, and none may be acknowledged. The
// order of locks is the same for every batch (keys, issues, events, each sorted), so that two never wait in a circle.
func (w *Webhooks) persist(ctx context.Context, deliveries []*delivery) ([]settled, error) {
	b := &batch{alone: len(deliveries) == 1, issues: map[issueKey]*issueRows{}}
	var orgs []errand.ID
	for _, d := range deliveries {
		b.rows = append(b.rows, &row{delivery: d, settled: settled{outcome: d.outcome, reason: d.reason}, newID: errand.NewID(d.receivedAt)})
		if !slices.Contains(orgs, d.org) {
			orgs = append(orgs, d.org)
		}
	}
	if err := w.store.InTxOf(ctx, orgs, func(tx *store.Tx) error { return b.write(ctx, tx) }); err != nil {
		return nil, err
	}
	out := make([]settled, len(b.rows))
	for i, r := range b.rows {
		out[i] = r.settled
	}
	return out, nil
}

func (b *batch) write(ctx context.Context, tx *store.Tx) error {
	for _, step := range []func(context.Context, *store.Tx) error{b.claim, b.putIssues, b.addEvents, b.stand, b.prune, b.addDeliveries, b.enqueue} {
		if err := step(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) live() []*row {
	var list []*row
	for _, r := range b.rows {
		if r.live() {
			list = append(list, r)
		}
	}
	return list
}

// claim takes the deliveries' keys. Whoever's key is taken was received before, and not failed since.
func (b *batch) claim(ctx context.Context, tx *store.Tx) error {
	rows := b.live()
	slices.SortStableFunc(rows, func(x, y *row) int {
		return cmp.Or(cmp.Compare(x.source, y.source), cmp.Compare(x.parsed.Key, y.parsed.Key))
	})
	var p store.WebhooksClaimParams
	var first []*row
	for _, r := range rows {
		if n := len(first); n > 0 && first[n-1].source == r.source && first[n-1].parsed.Key == r.parsed.Key {
			if r.parsed.Repeatable {
				r.apart = true
			} else {
				r.duplicate(reasonKnown)
			}
			continue
		}
		first = append(first, r)
		p.SourceIds, p.Keys, p.OrgIds = append(p.SourceIds, r.source), append(p.Keys, r.parsed.Key), append(p.OrgIds, r.org)
		p.DeliveryIds, p.ReceivedAts = append(p.DeliveryIds, r.id), append(p.ReceivedAts, r.receivedAt)
	}
	if len(first) == 0 {
		return nil
	}
	got, err := tx.WebhooksClaim(ctx, p)
	if err != nil {
		return err
	}
	attempts := make(map[errand.ID]int32, len(got))
	for _, c := range got {
		attempts[c.DeliveryID] = c.Attempts
	}
	for _, r := range first {
		n, ok := attempts[r.id]
		switch {
		case ok:
			r.again = n > 1
		case !r.parsed.Repeatable:
			r.duplicate(reasonKnown)
		case !b.alone:
			r.apart = true
		default:
			if err := r.reclaim(ctx, tx); err != nil {
				return err
			}
		}
	}
	return nil
}

// reclaim looks at a word whose key is known. Resolved, re-opened and resolved again without an event in between: the third
// word looks like the first. It is news when the issue has another status by now, and a retry otherwise. It locks an issue
// before the others of a batch would be, so that only a batch of one may do it.
func (r *row) reclaim(ctx context.Context, tx *store.Tx) error {
	known, err := tx.WebhooksLockIssues(ctx, []errand.ID{r.source}, []string{r.parsed.Issue.ProviderID})
	if err != nil {
		return err
	}
	if len(known) == 0 || known[0].Status == r.parsed.Status || !r.parsed.StatusAt.After(known[0].StatusAt) {
		r.duplicate(reasonKnown)
		return nil
	}
	return tx.WebhooksReclaim(ctx, store.WebhooksReclaimParams{
		DeliveryID: r.id, ReceivedAt: r.receivedAt, SourceID: r.source, Key: r.parsed.Key,
	})
}

type eventKey struct {
	issue    errand.ID
	provider string
}

func (r *row) eventKey() eventKey { return eventKey{*r.issue, r.parsed.Event.ProviderID} }

// addEvents keeps the real events. One that is known was considered when it came, whatever delivery brings it now; only when
// that failed it is considered again.
func (b *batch) addEvents(ctx context.Context, tx *store.Tx) error {
	var rows []*row
	for _, r := range b.live() {
		if r.parsed.Consider && r.parsed.Event != nil && !standsForAWord(r.parsed.Event) {
			rows = append(rows, r)
		}
	}
	added, err := insertEvents(ctx, tx, rows)
	if err != nil {
		return err
	}
	var known []*row
	var p struct {
		issues    []errand.ID
		providers []string
	}
	for _, r := range rows {
		if slices.Contains(added, r.newID) {
			r.event, r.consider = &r.newID, true
			b.issues[r.issueKey()].newest = r.newID
			continue
		}
		known = append(known, r)
		p.issues, p.providers = append(p.issues, *r.issue), append(p.providers, r.parsed.Event.ProviderID)
	}
	if len(known) == 0 {
		return nil
	}
	found, err := tx.WebhooksKnownEvents(ctx, p.issues, p.providers)
	if err != nil {
		return err
	}
	events := make(map[eventKey]*store.WebhooksKnownEventsRow, len(found))
	for i, e := range found {
		events[eventKey{e.IssueID, e.ProviderID}] = &found[i]
	}
	for _, r := range known {
		e, ok := events[r.eventKey()]
		if !ok {
			return errand.Errorf(errand.CodeInternal, nil, "an event is neither new nor known")
		}
		r.event = &e.ID
		if !r.again && !e.Failed {
			r.duplicate(reasonEventKnown)
			continue
		}
		r.consider, e.Failed = true, false
		if err := tx.WebhooksReconsider(ctx, r.id, e.ID); err != nil {
			return err
		}
	}
	return nil
}

// insertEvents gives the ids of those that were not known.
func insertEvents(ctx context.Context, tx *store.Tx, rows []*row) ([]errand.ID, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	var p store.WebhooksAddEventsParams
	for _, r := range rows {
		e := r.parsed.Event
		p.Ids, p.OrgIds, p.IssueIds = append(p.Ids, r.newID), append(p.OrgIds, r.org), append(p.IssueIds, *r.issue)
		p.ProviderIds, p.SeenAts, p.ReceivedAts = append(p.ProviderIds, e.ProviderID), append(p.SeenAts, e.SeenAt), append(p.ReceivedAts, r.receivedAt)
		p.DeliveryIds, p.Bodies = append(p.DeliveryIds, r.id), append(p.Bodies, r.body)
	}
	return tx.WebhooksAddEvents(ctx, p)
}

// stand finds an event for words about issues, which carry none: the newest one known, and where none is known, one without
// exceptions, so that the decision can say that there is no stack trace.
func (b *batch) stand(ctx context.Context, tx *store.Tx) error {
	var words []*row
	var issues []errand.ID
	for _, r := range b.live() {
		if r.parsed.Consider && r.parsed.Event != nil && standsForAWord(r.parsed.Event) {
			words, issues = append(words, r), append(issues, *r.issue)
		}
	}
	if len(words) == 0 {
		return nil
	}
	found, err := tx.WebhooksNewestEvents(ctx, issues)
	if err != nil {
		return err
	}
	newest := map[errand.ID]errand.ID{}
	for _, e := range found {
		newest[e.IssueID] = e.ID
	}
	for _, r := range words {
		event, ok := newest[*r.issue]
		switch {
		case ok && r.parsed.Status == "": // the issue's creation is no news: its event was considered when it came
			continue
		case !ok:
			if added, err := insertEvents(ctx, tx, []*row{r}); err != nil {
				return err
			} else if len(added) == 0 {
				return errand.Errorf(errand.CodeInternal, nil, "an issue without events has one")
			}
			if err := tx.WebhooksStandsIn(ctx, *r.issue); err != nil {
				return err
			}
			event, newest[*r.issue] = r.newID, r.newID
		}
		r.event, r.consider = &event, true
	}
	return nil
}

// prune removes the samples beyond those that are kept, of the issues of this batch that may have too many.
func (b *batch) prune(ctx context.Context, tx *store.Tx) error {
	var issues, kept []errand.ID
	for _, is := range b.issues {
		if is.newest != "" && (is.relieved || is.Deliveries > samples) {
			issues, kept = append(issues, is.ID), append(kept, is.newest)
		}
	}
	if len(issues) == 0 {
		return nil
	}
	_, err := tx.WebhooksPruneEvents(ctx, issues, kept, samples)
	return err
}

func (b *batch) addDeliveries(ctx context.Context, tx *store.Tx) error {
	var p store.WebhooksAddDeliveriesParams
	for _, r := range b.rows {
		if r.apart {
			continue
		}
		p.Ids, p.OrgIds, p.SourceIds = append(p.Ids, r.id), append(p.OrgIds, r.org), append(p.SourceIds, r.source)
		p.ReceivedAts, p.Resources, p.Actions = append(p.ReceivedAts, r.receivedAt), append(p.Resources, r.parsed.Resource), append(p.Actions, r.parsed.Action)
		p.RequestIds, p.Outcomes, p.Reasons = append(p.RequestIds, r.parsed.RequestID), append(p.Outcomes, string(r.outcome)), append(p.Reasons, string(r.reason))
		p.IssueIds, p.EventIds = append(p.IssueIds, orNoID(r.issue)), append(p.EventIds, orNoID(r.event))
		p.BodySha256s, p.BodyBytes = append(p.BodySha256s, r.sha256[:]), append(p.BodyBytes, int32(r.size)) //nolint:gosec // at most MaxBody
		p.Shapes = append(p.Shapes, r.shape)
	}
	if len(p.Ids) == 0 {
		return nil
	}
	return tx.WebhooksAddDeliveries(ctx, p)
}

func orNoID(id *errand.ID) errand.ID {
	if id == nil {
		return noID
	}
	return *id
}

func (b *batch) enqueue(ctx context.Context, tx *store.Tx) error {
	var jobs []errand.JobArgs
	for _, r := range b.live() {
		if r.consider {
			jobs = append(jobs, errand.ConsiderIssue{Org: r.org, Issue: *r.issue, Event: *r.event, Delivery: r.id})
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	return tx.EnqueueMany(ctx, jobs)
}
