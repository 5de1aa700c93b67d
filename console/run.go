package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/store"
)

const (
	maxSteps   = 500
	maxUsage   = 500
	maxHistory = 200

	refreshSeconds = 5
)

type runPage struct {
	frame
	Run        store.Run
	IssueTitle string
	Repository string
	Label      label
	Took       time.Duration
	Track      []station
	History    []entry // oldest first
	Verdicts   []verdict
	Steps      []step
	Usage      usage
	MayCancel  bool
	Live       bool // the person asked for the page to renew itself
}

// run shows one run. With ?live=1 an open run's page renews itself: only who asks for that gets it, since a page that
// moves by itself disturbs a reader.
func (c *Console) run(ec echo.Context) error {
	id, err := pathID(ec, "run")
	if err != nil {
		return err
	}
	var p runPage
	p.frame, err = c.read(ec, "Run "+id.Short(), "runs", func(ctx context.Context, tx *store.Tx, f *frame) error {
		row, err := tx.ConsoleRun(ctx, id)
		if err != nil {
			return err
		}
		p.Run, p.IssueTitle = row.Run, row.IssueTitle
		p.Repository = row.RepositoryOwner + "/" + row.RepositoryName
		return p.readParts(ctx, tx, f.Now)
	})
	if err != nil {
		return err
	}
	p.Label = stateLabel(p.Run.State)
	open := !p.Run.State.Ended()
	p.MayCancel = open && p.Identity.May(access.CancelRun)
	if p.Live = open && ec.QueryParam("live") == "1"; p.Live {
		ec.Response().Header().Set("Refresh", strconv.Itoa(refreshSeconds))
	}
	return c.render(ec, http.StatusOK, runView(p))
}

func (p *runPage) readParts(ctx context.Context, tx *store.Tx, now time.Time) error {
	rows, err := tx.ConsoleJournal(ctx, p.Run.ID, maxHistory)
	if err != nil {
		return err
	}
	slices.Reverse(rows)
	names, err := memberNames(ctx, tx)
	if err != nil {
		return err
	}
	p.History, p.Verdicts = readHistory(rows, names)
	end := now
	if p.Run.FinishedAt != nil {
		end = *p.Run.FinishedAt
	}
	p.Took = end.Sub(p.Run.CreatedAt)
	p.Track = track(p.Run, p.History, now)
	steps, err := tx.ConsoleRunSteps(ctx, p.Run.ID, maxSteps)
	if err != nil {
		return err
	}
	p.Steps = layOut(steps)
	lines, err := tx.ConsoleRunUsage(ctx, p.Run.ID, maxUsage)
	p.Usage = sumUsage(lines)
	return err
}

func memberNames(ctx context.Context, tx *store.Tx) (map[errand.ID]string, error) {
	members, err := tx.ListMembers(ctx)
	if err != nil {
		return nil, err
	}
	names := map[errand.ID]string{}
	for _, m := range members {
		names[m.ID] = m.Name
	}
	return names, nil
}

// station is a state on the run's way, as the track draws it.
type station struct {
	State  errand.RunState
	Label  label
	At     time.Time     // when it was last entered; zero = never
	Took   time.Duration // until the next was entered, or so far
	Times  int           // how often it was entered
	Status stationStatus
}

type stationStatus string

const (
	stationPassed  stationStatus = "passed"
	stationCurrent stationStatus = "current"
	stationStopped stationStatus = "stopped" // where a run was when it ended without a pull request
	stationSkipped stationStatus = "skipped" // the run ended before it
	stationAhead   stationStatus = "ahead"
	stationEnd     stationStatus = "end"
)

var way = []errand.RunState{errand.Queued, errand.Dispatching, errand.Dispatched, errand.Running, errand.Checking, errand.Publishing}

// track puts a run's history on the straight way from queued to its end. Times come from the history; a state whose
// entry is not in it has no time, and none is made up.
func track(run store.Run, history []entry, now time.Time) []station {
	entered := map[errand.RunState]station{}
	var last errand.RunState // the last one that is not an end
	for i, h := range history {
		if h.Transition == nil {
			continue
		}
		s := entered[h.Transition.To]
		until := now
		for _, later := range history[i+1:] {
			if later.Transition != nil {
				until = later.At
				break
			}
		}
		s.At, s.Times, s.Took = h.At, s.Times+1, s.Took+until.Sub(h.At)
		entered[h.Transition.To] = s
		if !h.Transition.To.Ended() {
			last = h.Transition.To
		}
	}
	ended := run.State.Ended()
	stations := make([]station, 0, len(way)+1)
	for _, state := range way {
		s := entered[state]
		s.State, s.Label = state, stateLabel(state)
		switch {
		case state == run.State:
			s.Status = stationCurrent
		case state == last && ended && run.State != errand.PROpened:
			s.Status = stationStopped
		case s.Times > 0 && (ended || slices.Index(way, state) < slices.Index(way, run.State)):
			s.Status = stationPassed
		case ended && last != "":
			s.Status = stationSkipped
		case ended:
			s.Status = stationPassed // no history to say otherwise: drawn without a time
		case slices.Index(way, state) < slices.Index(way, run.State):
			s.Status = stationPassed
		default:
			s.Status, s.Times, s.At = stationAhead, 0, time.Time{}
		}
		stations = append(stations, s)
	}
	end := station{Label: label{"End", toneWait}, Status: stationAhead}
	if ended {
		end = station{State: run.State, Label: stateLabel(run.State), Status: stationEnd, Times: 1}
		if run.FinishedAt != nil {
			end.At = *run.FinishedAt
		}
	}
	return append(stations, end)
}

// step is one thing the agent did, with its place on the run's time line in thousandths of the whole.
type step struct {
	store.ConsoleRunStepsRow
	Since       time.Duration // since the first step
	Left, Width int
}

const timeline = 1000

func layOut(rows []store.ConsoleRunStepsRow) []step {
	if len(rows) == 0 {
		return nil
	}
	first := rows[0].At
	var whole time.Duration
	for _, r := range rows {
		whole = max(whole, r.At.Sub(first)+time.Duration(r.DurationMs)*time.Millisecond)
	}
	whole = max(whole, time.Millisecond)
	steps := make([]step, len(rows))
	for i, r := range rows {
		since := max(r.At.Sub(first), 0)
		left := int(since * timeline / whole)
		width := max(int(time.Duration(r.DurationMs)*time.Millisecond*timeline/whole), 12)
		steps[i] = step{ConsoleRunStepsRow: r, Since: since, Left: min(left, timeline-12), Width: min(width, timeline-min(left, timeline-12))}
	}
	return steps
}

func (s step) Tone() tone {
	switch s.Outcome {
	case "ok":
		return toneGood
	case "refused":
		return toneWarn
	default:
		return toneBad
	}
}

// usage is what a run's model requests took.
type usage struct {
	Lines   []store.ConsoleRunUsageRow
	Buckets []bucket
	Cost    errand.Cost
	Err     string // set when the sum does not fit
}

// bucket is one kind of tokens over all requests. Buckets are disjoint.
type bucket struct {
	Name    string
	Key     string // of its colour in the stylesheet
	Sum     int64
	Unknown int // requests that did not say
	Left    int // on the bar, in thousandths
	Width   int
}

func (b bucket) Text() string {
	switch {
	case b.Unknown == 0:
		return count(b.Sum)
	case b.Sum == 0:
		return "unknown"
	default:
		return "at least " + count(b.Sum)
	}
}

func sumUsage(lines []store.ConsoleRunUsageRow) usage {
	u := usage{Lines: lines, Buckets: []bucket{
		{Name: "Input", Key: "input"}, {Name: "Cache read", Key: "read"}, {Name: "Cache write", Key: "write"}, {Name: "Output", Key: "output"},
	}}
	add := func(i int, n *int64) {
		if n == nil {
			u.Buckets[i].Unknown++
			return
		}
		u.Buckets[i].Sum += *n
	}
	for _, l := range lines {
		add(0, l.Input)
		add(1, l.CacheRead)
		add(2, cacheWrite(l))
		add(3, l.Output)
		if l.AmountPico == nil {
			u.Cost.Unpriced++
			continue
		}
		sum, err := u.Cost.Known.Add(errand.Picodollars(*l.AmountPico))
		if err != nil {
			u.Err = err.Error()
			continue
		}
		u.Cost.Known = sum
	}
	var all int64
	for _, b := range u.Buckets {
		all += b.Sum
	}
	at := int64(0)
	for i := range u.Buckets {
		if all > 0 {
			u.Buckets[i].Left = int(at * timeline / all)
			at += u.Buckets[i].Sum
			u.Buckets[i].Width = int(at*timeline/all) - u.Buckets[i].Left
		}
	}
	return u
}

// cacheWrite is the sum of the two kinds of cache writes; unknown when either is.
func cacheWrite(l store.ConsoleRunUsageRow) *int64 {
	if l.CacheWrite5m == nil || l.CacheWrite1h == nil {
		return nil
	}
	sum := *l.CacheWrite5m + *l.CacheWrite1h
	return &sum
}

// Total says the cost in words.
func (u usage) Total() string {
	switch {
	case u.Err != "":
		return "unknown: " + u.Err
	case len(u.Lines) == 0:
		return "none reported"
	default:
		return u.Cost.String()
	}
}

// amountText is a request's price, or "unpriced".
func amountText(l store.ConsoleRunUsageRow) string {
	if l.AmountPico == nil {
		return "unpriced"
	}
	return "$" + errand.Picodollars(*l.AmountPico).USD(6)
}
