package webhooks

import (
	"context"
	"slices"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// issueRows is an issue and the rows of a batch that speak of it: however many there are, it is written once.
type issueRows struct {
	store.Issue
	rows     []*row
	newest   errand.ID // the last event that the batch added
	relieved bool      // its first real event has come, so that the one that stood in may go
}

// putIssues brings the issues of the batch up to date: what is stored is locked and read, the deliveries are applied to it in
// the order of arrival, and the outcome is written. An issue that another writer made in between is taken up again.
func (b *batch) putIssues(ctx context.Context, tx *store.Tx) error {
	for _, r := range b.live() {
		is, ok := b.issues[r.issueKey()]
		if !ok {
			is = &issueRows{}
			b.issues[r.issueKey()] = is
		}
		is.rows = append(is.rows, r)
	}
	open := make([]issueKey, 0, len(b.issues))
	for k := range b.issues {
		open = append(open, k)
	}
	slices.SortFunc(open, compareKeys)
	for range 3 {
		var err error
		if open, err = b.tryPutIssues(ctx, tx, open); err != nil || len(open) == 0 {
			return err
		}
	}
	return errand.Errorf(errand.CodeUnavailable, nil, "issues changed while they were written; try again")
}

// tryPutIssues gives back the keys of those that it could not write.
func (b *batch) tryPutIssues(ctx context.Context, tx *store.Tx, keys []issueKey) (left []issueKey, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	sources, providers := make([]errand.ID, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		sources[i], providers[i] = k.source, k.provider
	}
	stored, err := tx.WebhooksLockIssues(ctx, sources, providers)
	if err != nil {
		return nil, err
	}
	known := make(map[issueKey]store.Issue, len(stored))
	for _, i := range stored {
		known[issueKey{i.SourceID, i.ProviderID}] = i
	}
	var p store.WebhooksPutIssuesParams
	for _, k := range keys {
		is := b.issues[k]
		is.Issue, is.relieved = known[k], false
		is.apply()
		p.Ids, p.OrgIds, p.SourceIds, p.ProviderIds = append(p.Ids, is.ID), append(p.OrgIds, is.OrgID), append(p.SourceIds, is.SourceID), append(p.ProviderIds, is.ProviderID)
		p.Fingerprints, p.Titles, p.Culprits, p.Levels = append(p.Fingerprints, is.Fingerprint), append(p.Titles, is.Title), append(p.Culprits, is.Culprit), append(p.Levels, is.Level)
		p.Platforms, p.Projects, p.Links = append(p.Platforms, is.Platform), append(p.Projects, is.Project), append(p.Links, is.Link)
		p.Statuses, p.StatusAts = append(p.Statuses, is.Status), append(p.StatusAts, is.StatusAt)
		p.FirstSeens, p.LastSeens = append(p.FirstSeens, is.FirstSeen), append(p.LastSeens, is.LastSeen)
		p.Deliveries, p.CreatedAts, p.StandsIns = append(p.Deliveries, is.Deliveries), append(p.CreatedAts, is.CreatedAt), append(p.StandsIns, is.StandsIn)
	}
	written, err := tx.WebhooksPutIssues(ctx, p)
	if err != nil {
		return nil, err
	}
	for i, k := range keys {
		if !slices.Contains(written, p.Ids[i]) {
			left = append(left, k)
		}
	}
	return left, nil
}

// apply takes the rows into the issue in their order, and settles those whose word is older than what was known when their
// turn came.
func (is *issueRows) apply() {
	for _, r := range is.rows {
		if is.ID == "" {
			is.begin(r)
		} else {
			is.take(r.delivery)
		}
		id := is.ID
		r.issue = &id
		r.outcome, r.reason = accepted, reasonNone
		if r.parsed.Status != "" && is.StatusAt.After(r.parsed.StatusAt) {
			r.outcome, r.reason = ignored, reasonOlderStatus
		}
		if e := r.parsed.Event; is.StandsIn && r.parsed.Consider && e != nil && !standsForAWord(e) {
			is.StandsIn, is.relieved = false, true
		}
	}
}

func (is *issueRows) begin(r *row) {
	i := r.parsed.Issue
	is.Issue = store.Issue{
		ID: errand.NewID(r.receivedAt), OrgID: r.org, SourceID: r.source, ProviderID: i.ProviderID,
		Fingerprint: i.Fingerprint, Title: i.Title, Culprit: i.Culprit, Level: i.Level, Platform: i.Platform,
		Project: i.Project, Link: i.Link, Status: "open", StatusAt: i.LastSeen,
		FirstSeen: i.FirstSeen, LastSeen: i.LastSeen, Deliveries: 1, CreatedAt: r.receivedAt,
	}
	if r.parsed.Status != "" {
		is.Status, is.StatusAt = r.parsed.Status, r.parsed.StatusAt
	}
}

// take applies one more delivery. What is older than what is known changes nothing but the ends of the span. A later
// occurrence re-opens a resolved issue.
func (is *issueRows) take(d *delivery) {
	i := d.parsed.Issue
	newer := !d.parsed.Unseen && !i.LastSeen.Before(is.LastSeen)
	if newer {
		is.Title = i.Title
	}
	for _, f := range []struct {
		known *string
		said  string
	}{
		{&is.Fingerprint, i.Fingerprint},
		{&is.Culprit, i.Culprit},
		{&is.Level, i.Level},
		{&is.Platform, i.Platform},
		{&is.Project, i.Project},
		{&is.Link, i.Link},
	} {
		if newer && f.said != "" || *f.known == "" {
			*f.known = f.said
		}
	}
	switch {
	case d.parsed.Status != "":
		if !d.parsed.StatusAt.Before(is.StatusAt) {
			is.Status, is.StatusAt = d.parsed.Status, d.parsed.StatusAt
		}
	case is.Status == "resolved" && i.LastSeen.After(is.StatusAt):
		is.Status, is.StatusAt = "open", i.LastSeen
	}
	if !d.parsed.Unseen && i.FirstSeen.Before(is.FirstSeen) {
		is.FirstSeen = i.FirstSeen
	}
	if newer {
		is.LastSeen = i.LastSeen
	}
	is.Deliveries++
}
