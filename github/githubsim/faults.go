package githubsim

import (
	"bytes"
	"context"
	"net/http"
	"path"
	"time"
)

// Fault is something that goes wrong with the next requests that match it.
type Fault struct {
	Method string // "" = any
	Path   string // path.Match pattern below /api/v3, e.g. "/repos/*/*/actions/workflows/*/dispatches"; "" = any of the API
	Times  int    // how many requests; 0 = one, negative = all until removed

	// Delay and Hold (until it is closed) come before the request is acted upon, or with Late after it and before the answer.
	Delay time.Duration
	Hold  <-chan struct{}
	Late  bool

	// Status answers instead of acting; 0 = act.
	Status int
	Header map[string]string
	Body   string // "" = a JSON message of the status

	// Cut acts on the request and closes the connection before a byte of the answer.
	Cut bool
}

type fault struct {
	Fault
	left int
}

// Fault makes something go wrong; remove takes it back.
func (s *Sim) Fault(f Fault) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := &fault{Fault: f, left: f.Times}
	if f.Times == 0 {
		kept.left = 1
	}
	s.state.faults = append(s.state.faults, kept)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		kept.left = 0
	}
}

// Held is how many requests a fault holds at the moment.
func (s *Sim) Held() int { return int(s.held.Load()) }

// SecondaryLimit is GitHub's answer to too much at once, with or without its header.
func SecondaryLimit(method, pattern, retryAfter string) Fault {
	f := Fault{
		Method: method, Path: pattern, Status: http.StatusForbidden,
		Body: `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits","status":"403"}`,
	}
	if retryAfter != "" {
		f.Header = map[string]string{"Retry-After": retryAfter}
	}
	return f
}

func (s *Sim) takeFault(r *http.Request) *Fault {
	if len(r.URL.Path) < len(apiPrefix) || r.URL.Path[:len(apiPrefix)] != apiPrefix {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.state.faults {
		if f.left == 0 || f.Method != "" && f.Method != r.Method {
			continue
		}
		if ok, _ := path.Match(f.Path, r.URL.Path[len(apiPrefix):]); f.Path != "" && !ok {
			continue
		}
		if f.left > 0 {
			f.left--
		}
		return &f.Fault
	}
	return nil
}

func (s *Sim) serveFault(w http.ResponseWriter, r *http.Request, f *Fault) {
	if !f.Late {
		s.pause(r, f)
	}
	switch {
	case f.Status != 0:
		for k, v := range f.Header {
			w.Header().Set(k, v)
		}
		if f.Body == "" {
			s.answerRefusal(w, r, refuse(f.Status, "%s", http.StatusText(f.Status)))
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(f.Status)
		_, _ = w.Write([]byte(f.Body))
	case f.Cut || f.Late:
		// The request is acted upon even when its sender is gone meanwhile.
		kept := &recorder{header: w.Header(), status: http.StatusOK}
		s.routes.ServeHTTP(kept, r.WithContext(context.WithoutCancel(r.Context())))
		if f.Late {
			s.pause(r, f)
		}
		if f.Cut {
			panic(http.ErrAbortHandler) // how net/http lets a handler drop the connection
		}
		w.WriteHeader(kept.status)
		_, _ = w.Write(kept.body.Bytes())
	default:
		s.routes.ServeHTTP(w, r)
	}
}

func (s *Sim) pause(r *http.Request, f *Fault) {
	if f.Delay > 0 {
		wait(r.Context(), s.ctx, time.After(f.Delay))
	}
	if f.Hold != nil {
		s.held.Add(1)
		defer s.held.Add(-1)
		wait(r.Context(), s.ctx, f.Hold)
	}
}

// wait holds until the channel delivers or the request or the simulation ends.
func wait[T any](ctx, sim context.Context, until <-chan T) {
	select {
	case <-until:
	case <-ctx.Done():
	case <-sim.Done():
	}
}

// recorder keeps an answer until it is its time.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
func (r *recorder) WriteHeader(status int)      { r.status = status }
