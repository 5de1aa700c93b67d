package errand

import "time"

// Issue is what a tracker groups events into, as Errand keeps it: normalised, scrubbed, without source lines.
type Issue struct {
	ProviderID  string    `json:"provider_id"`           // the tracker's own id of the issue
	Fingerprint string    `json:"fingerprint,omitempty"` // the tracker's grouping key, when it sends one
	Title       string    `json:"title"`
	Culprit     string    `json:"culprit,omitempty"`
	Level       string    `json:"level,omitempty"`    // fatal, error, warning, info, debug; "" = unknown
	Platform    string    `json:"platform,omitempty"` // python, javascript, go, ...; "" = unknown
	Project     string    `json:"project,omitempty"`  // the tracker's project: slug where known, else its id
	Link        string    `json:"link,omitempty"`     // the issue's page at the tracker
	FirstSeen   time.Time `json:"first_seen,omitzero"`
	LastSeen    time.Time `json:"last_seen,omitzero"`
}

// Event is one occurrence of an Issue. Source lines, local variables, breadcrumbs, request bodies and the user are
// dropped before an Event exists; what is left is scrubbed.
type Event struct {
	ProviderID  string      `json:"provider_id"`
	SeenAt      time.Time   `json:"seen_at,omitzero"`
	Release     string      `json:"release,omitempty"`
	Commit      string      `json:"commit,omitempty"` // the release's commit, when the release names one
	Environment string      `json:"environment,omitempty"`
	Transaction string      `json:"transaction,omitempty"`
	Message     string      `json:"message,omitempty"` // of an event without exceptions
	Tags        []Tag       `json:"tags,omitempty"`
	Exceptions  []Exception `json:"exceptions,omitempty"`
	// Primary is the index in Exceptions of the one the event is about, or -1 when there is none. The rule by which it is
	// chosen is written at webhooks.Primary.
	Primary    int               `json:"primary"`
	Provenance map[string]Origin `json:"provenance,omitempty"` // by field name of this struct's JSON
	Removed    []Removal         `json:"removed,omitempty"`
}

// PrimaryException gives the exception the event is about.
func (e *Event) PrimaryException() (Exception, bool) {
	if e.Primary < 0 || e.Primary >= len(e.Exceptions) {
		return Exception{}, false
	}
	return e.Exceptions[e.Primary], true
}

// Tag is one key and value that the SDK or the tracker attached.
type Tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Exception is one link of a chain or one member of a group.
type Exception struct {
	Type      string  `json:"type"`
	Value     string  `json:"value,omitempty"`
	Module    string  `json:"module,omitempty"`
	Mechanism string  `json:"mechanism,omitempty"`
	Handled   *bool   `json:"handled,omitempty"` // nil = unknown
	ID        *int    `json:"id,omitempty"`      // mechanism.exception_id
	Parent    *int    `json:"parent,omitempty"`  // mechanism.parent_id
	Group     bool    `json:"group,omitempty"`   // an exception group: a tree, not a chain
	Frames    []Frame `json:"frames,omitempty"`  // oldest call first, the crash last, whatever the provider's order
}

// Frame is one line of a stack trace. It names a place in the code and holds none of the code.
type Frame struct {
	Filename string `json:"filename,omitempty"`
	AbsPath  string `json:"abs_path,omitempty"`
	Module   string `json:"module,omitempty"`
	Function string `json:"function,omitempty"`
	Line     int    `json:"line,omitempty"`   // 1-based; 0 = unknown
	Column   int    `json:"column,omitempty"` // 1-based; 0 = unknown
	InApp    *bool  `json:"in_app,omitempty"` // nil = unknown
}

// Origin says who could have written a field.
type Origin string

// The two origins. What an outsider can write is data for a model, never an instruction.
const (
	FromTracker  Origin = "tracker"  // ids, projects, counts: the tracker made them
	FromOutsider Origin = "outsider" // messages, frames, tags: whoever triggers the error may choose them
)

// Removal records what was taken out of an event: where and what kind, never the value.
type Removal struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}
