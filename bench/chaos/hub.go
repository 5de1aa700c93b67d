package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/errand-dev/errand/github/githubsim"
)

// hub is GitHub: githubsim, in this process, so that it outlives whatever happens to the rest, with one more fault than it
// has itself: a gateway that answers 502 although what stands behind it did as it was told.
type hub struct {
	sim     *githubsim.Sim
	server  *http.Server
	listen  net.Listener
	courier *courier

	mu      sync.Mutex
	gateway int // so many dispatches are yet to be answered so
	undo    []func()
}

const (
	dispatches   = "/repos/*/*/actions/workflows/*/dispatches"
	workflowRuns = "/repos/*/*/actions/workflows/*/runs"
)

func newHub(ctx context.Context, dir string, executor githubsim.Executor, hooks *courier) (*hub, error) {
	sim, err := githubsim.New(githubsim.Config{Dir: dir, Executor: executor})
	if err != nil {
		return nil, err
	}
	h := &hub{sim: sim, courier: hooks}
	if h.listen, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: silent()}
	go func() { _ = h.server.Serve(h.listen) }() // ends with close
	return h, nil
}

func (h *hub) addr() string { return h.listen.Addr().String() }

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if ok, _ := path.Match("/api/v3"+dispatches, r.URL.Path); ok && r.Method == http.MethodPost && h.takeGateway() {
		h.sim.ServeHTTP(&discard{header: http.Header{}}, r.WithContext(context.WithoutCancel(r.Context())))
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("<html><body>Server Error</body></html>"))
		return
	}
	if r.URL.Path == courierPath {
		h.courier.ServeHTTP(w, r)
		return
	}
	h.sim.ServeHTTP(w, r)
}

func (h *hub) takeGateway() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gateway == 0 {
		return false
	}
	h.gateway--
	return true
}

// misbehave arms one of GitHub's own faults for the next times requests.
func (h *hub) misbehave(f fault, times int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	post := func(g githubsim.Fault) {
		g.Times = times
		h.undo = append(h.undo, h.sim.Fault(g))
	}
	switch f {
	case hubGateway:
		h.gateway += times
	case hubLost:
		post(githubsim.Fault{Method: http.MethodPost, Path: dispatches, Cut: true})
	case hubLate:
		post(githubsim.Fault{Method: http.MethodPost, Path: dispatches, Late: true, Delay: 20 * time.Second})
	case hubError:
		post(githubsim.Fault{Status: http.StatusInternalServerError})
		post(githubsim.Fault{Method: http.MethodPost, Path: dispatches, Status: http.StatusServiceUnavailable})
	case hubLimit:
		post(githubsim.SecondaryLimit(http.MethodPost, dispatches, "2"))
	case hubBlind:
		post(githubsim.Fault{Method: http.MethodGet, Path: workflowRuns, Status: http.StatusBadGateway})
	default:
	}
}

// heal takes back what is still armed.
func (h *hub) heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gateway = 0
	for _, undo := range h.undo {
		undo()
	}
	h.undo = nil
}

func (h *hub) close() {
	_ = h.sim.Close() // first: it lets go of what its faults hold
	_ = h.server.Close()
	h.courier.close()
}

// discard takes an answer that nobody gets to see.
type discard struct {
	header http.Header
	body   bytes.Buffer
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return d.body.Write(b) }
func (d *discard) WriteHeader(int)             {}
