package webhooks

import (
	"net/http"
	"slices"

	"github.com/errand-dev/errand"
)

// Preview reads a payload that a person pasted as a delivery of that kind would be read, scrubbing included, and keeps
// nothing. resource is what Sentry says in a header; "" tries those that carry an event. The event is nil for a payload
// that speaks of an issue alone. It returns Invalid for a payload that cannot be read or is one that is not used.
func (w *Webhooks) Preview(kind, resource string, body []byte) (errand.Issue, *errand.Event, error) {
	provider, ok := w.kinds[kind]
	if !ok {
		return errand.Issue{}, nil, errand.Invalid("kind", "%q is no kind of source: want one of %v", kind, kindNames(w.kinds))
	}
	if len(body) == 0 || len(body) > MaxBody {
		return errand.Issue{}, nil, errand.Invalid("payload", "has %d bytes: want 1 to %d", len(body), MaxBody)
	}
	resources := []string{resource}
	if resource == "" && kind == "sentry" {
		resources = []string{"error", "event_alert", "issue"}
	}
	var first error
	for _, r := range resources {
		p, err := provider.Parse(http.Header{sentryResource: {r}}, body, w.clock().UTC())
		if err == nil && p.Ignored != reasonNone {
			err = errand.Invalid("payload", "such a delivery is not used: %s", p.Ignored)
		}
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		w.normalise(&p, w.clock().UTC())
		return p.Issue, p.Event, nil
	}
	return errand.Issue{}, nil, first
}

func kindNames(kinds map[string]provider) (names []string) {
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
