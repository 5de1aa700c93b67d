package webhooks

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
)

// The bounds of what is kept. Strings are in bytes.
const (
	maxID         = 200
	maxTitle      = 512
	maxShort      = 200 // release, environment, tags, types
	maxPath       = 512 // file names, links, functions
	maxMessage    = 4096
	maxTags       = 100
	maxFrames     = 200 // of one exception, from the crash outwards
	maxExceptions = 20  // the first ten and the last ten: both ends of a chain matter
	maxRemovals   = 200
	maxEvent      = 256 << 10 // of the whole event as JSON
)

// kindOverLimit is the kind of a removal that only made room.
const kindOverLimit = "over_limit"

// normalise makes what a provider understood fit to be kept, in this order, which matters: first characters that no text
// may hold are taken out (a NUL inside a token would hide it from the scrubber), then secrets and persons, and only then
// texts are cut (a secret cut in half is no longer recognised). now is the time of receipt: nothing was seen later.
func (w *Webhooks) normalise(p *parsed, now time.Time) {
	e, i := p.Event, &p.Issue
	rawIssueID, rawKey := i.ProviderID, p.Key
	eachIssueText(i, func(s *string, _ int) { *s = scrub.Sanitise(*s, MaxBody) })
	removed := w.scrubber.Issue(i)
	i.ProviderID = identity(rawIssueID, i.ProviderID)
	i.Link = webLink(i.Link)
	eachIssueText(i, cutText)
	if i.Title == "" {
		i.Title = "(no title)"
	}
	i.FirstSeen, i.LastSeen = notAfter(i.FirstSeen, now), notAfter(i.LastSeen, now)
	if i.FirstSeen.After(i.LastSeen) {
		i.FirstSeen = i.LastSeen
	}
	p.StatusAt = notAfter(p.StatusAt, now)
	clean, _ := w.scrubber.Text("key", scrub.Sanitise(p.Key, MaxBody))
	p.Key = identity(rawKey, clean)
	if e == nil {
		return
	}
	rawEventID := e.ProviderID
	eachEventText(e, func(s *string, _ int) { *s = scrub.Sanitise(*s, MaxBody) })
	w.scrubber.Event(e)
	e.ProviderID = identity(rawEventID, e.ProviderID)
	e.Removed = append(e.Removed, removed...)
	eachEventText(e, cutText)
	e.SeenAt = notAfter(e.SeenAt, now)
	e.Provenance = provenance(e, i)
	e.Primary = Primary(e.Exceptions)
	fit(e)
}

// identity keeps two things apart that the scrubber would make one: an id out of which it took something becomes a digest
// of the id.
func identity(raw, clean string) string {
	if raw == clean {
		return clean
	}
	sum := sha256.Sum256([]byte(raw))
	return "sha256:" + hex.EncodeToString(sum[:16])
}

func cutText(s *string, limit int) { *s = scrub.Sanitise(*s, limit) }

func eachIssueText(i *errand.Issue, do func(s *string, limit int)) {
	do(&i.ProviderID, maxID)
	do(&i.Fingerprint, maxShort)
	do(&i.Title, maxTitle)
	do(&i.Culprit, maxPath)
	do(&i.Level, maxShort)
	do(&i.Platform, maxShort)
	do(&i.Project, maxShort)
	do(&i.Link, 2*maxPath)
}

func eachEventText(e *errand.Event, do func(s *string, limit int)) {
	do(&e.ProviderID, maxID)
	do(&e.Release, maxShort)
	do(&e.Commit, maxShort)
	do(&e.Environment, maxShort)
	do(&e.Transaction, maxPath)
	do(&e.Message, maxMessage)
	for i := range e.Tags {
		do(&e.Tags[i].Key, maxShort)
		do(&e.Tags[i].Value, maxShort)
	}
	for i := range e.Exceptions {
		x := &e.Exceptions[i]
		do(&x.Type, maxShort)
		do(&x.Value, maxMessage)
		do(&x.Module, maxPath)
		do(&x.Mechanism, maxShort)
		for j := range x.Frames {
			f := &x.Frames[j]
			do(&f.Filename, maxPath)
			do(&f.AbsPath, maxPath)
			do(&f.Module, maxPath)
			do(&f.Function, maxPath)
		}
	}
}

// provenance says of each field that is there who could have written it; the fields of the issue that a run is told are
// among them. Whatever an SDK sends can be chosen by whoever triggers the error, and in a browser by anybody who knows the
// public key; the tracker makes ids, times, the project and what is counted. What nobody is said to have written counts as an
// outsider's.
func provenance(e *errand.Event, i *errand.Issue) map[string]errand.Origin {
	p := map[string]errand.Origin{"provider_id": errand.FromTracker, "seen_at": errand.FromTracker}
	note := func(there bool, field string, from errand.Origin) {
		if there {
			p[field] = from
		}
	}
	note(e.Release != "", "release", errand.FromOutsider)
	note(e.Commit != "", "commit", errand.FromOutsider)
	note(e.Environment != "", "environment", errand.FromOutsider)
	note(e.Transaction != "", "transaction", errand.FromOutsider)
	note(e.Message != "", "message", errand.FromOutsider)
	note(len(e.Tags) > 0, "tags", errand.FromOutsider)
	note(len(e.Exceptions) > 0, "exceptions", errand.FromOutsider)
	note(true, "title", errand.FromOutsider)
	note(i.Culprit != "", "culprit", errand.FromOutsider)
	note(i.Level != "", "level", errand.FromOutsider)
	note(i.Platform != "", "platform", errand.FromOutsider)
	note(i.Project != "", "project", errand.FromTracker)
	return p
}

// fit holds the cap on the whole event: frames far from the crash go first, then tags, then all frames. What went is
// recorded.
func fit(e *errand.Event) {
	if len(e.Removed) > maxRemovals {
		e.Removed = append(e.Removed[:maxRemovals-1:maxRemovals-1], errand.Removal{Path: "removed", Kind: kindOverLimit})
	}
	for keep := maxFrames / 2; size(e) > maxEvent; keep /= 2 {
		for i := range e.Exceptions {
			x := &e.Exceptions[i]
			if len(x.Frames) > keep {
				x.Frames = x.Frames[len(x.Frames)-keep:]
				e.Removed = addRemoval(e.Removed, "exceptions["+strconv.Itoa(i)+"].frames", kindOverLimit)
			}
		}
		if keep == 0 {
			break
		}
		if keep < 10 && len(e.Tags) > 0 {
			e.Tags = nil
			e.Removed = addRemoval(e.Removed, "tags", kindOverLimit)
		}
	}
}

func addRemoval(list []errand.Removal, path, kind string) []errand.Removal {
	for _, r := range list {
		if r.Path == path && r.Kind == kind {
			return list
		}
	}
	return append(list, errand.Removal{Path: path, Kind: kind})
}

func size(e *errand.Event) int {
	b, err := json.Marshal(e)
	if err != nil {
		return 0 // persist says so
	}
	return len(b)
}

// webLink keeps addresses that a browser may be sent to.
func webLink(s string) string {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return ""
	}
	return s
}

// notAfter bounds a time by that of the receipt, which stands in for one that is not known.
func notAfter(t, now time.Time) time.Time {
	if t.IsZero() || t.After(now) {
		return now
	}
	return t.UTC().Truncate(time.Microsecond)
}

var (
	wholeCommit = regexp.MustCompile(`^[0-9a-f]{40}$`)
	shortCommit = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
)

// CommitOf reads the commit that a release names, or gives "". A release names one when all of it, or all behind its first
// @, is 40 hexadecimal digits, or when what follows its last + is 7 to 40 of them with at least one letter: build numbers
// are written there too, and one of digits only would be taken for a commit.
func CommitOf(release string) string {
	if _, rest, ok := strings.Cut(release, "@"); ok {
		release = rest
	}
	if wholeCommit.MatchString(release) {
		return release
	}
	plus := strings.LastIndexByte(release, '+')
	if plus < 0 {
		return ""
	}
	suffix := release[plus+1:]
	if wholeCommit.MatchString(suffix) || (shortCommit.MatchString(suffix) && strings.ContainsAny(suffix, "abcdef")) {
		return suffix
	}
	return ""
}

// idForm is what an id of an issue, an event or a message may look like.
var idForm = regexp.MustCompile(`^[\x21-\x7e]{1,200}$`)

func checkID(field, id string) error {
	switch {
	case id == "":
		return errand.Invalid(field, "it is missing")
	case !idForm.MatchString(id):
		return errand.Invalid(field, "an id has 1 to 200 visible ASCII characters and no space")
	case strings.HasPrefix(id, wordPrefix):
		return errand.Invalid(field, "an id must not begin with %q, which stands for events that Errand makes", wordPrefix)
	}
	return nil
}

// wordPrefix begins the id of an event that was made to stand for a word about an issue.
const wordPrefix = "issue:"

func standsForAWord(e *errand.Event) bool { return strings.HasPrefix(e.ProviderID, wordPrefix) }
