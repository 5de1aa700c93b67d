package webhooks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/errand-dev/errand"
)

// The stages of a delivery that is taken, as they are timed. What is left of a request's time is HTTP.
const (
	stageLookup     = "lookup"     // the source is found
	stageVerify     = "verify"     // its secret is opened, the signature holds
	stageUnderstand = "understand" // parsed, outlined, normalised, scrubbed
	stageStore      = "store"      // waiting for a turn, and the commit
)

func newStages() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "errand_delivery_stage_seconds", Help: "Time of the stages of deliveries that were taken.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, 1},
	}, []string{"stage"})
}

type watch struct {
	clock  errand.Clock
	last   time.Time
	stages *prometheus.HistogramVec
}

func (w *Webhooks) startWatch() watch { return watch{w.clock, w.clock(), w.count.stages} }

func (w *watch) lap(stage string) {
	now := w.clock()
	w.stages.WithLabelValues(stage).Observe(now.Sub(w.last).Seconds())
	w.last = now
}
