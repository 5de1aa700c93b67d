package githubsim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/errand-dev/errand"
)

// state is everything that the simulation remembers; Sim.mu guards it.
type state struct {
	nextID        int64
	installations map[int64]*installation
	repositories  map[int64]*repository
	moved         map[string]int64 // former lower-case owner/name -> repository
	tokens        map[string]*token
	runs          map[int64]*run
	pulls         map[int64]*pull
	violations    []Violation
	faults        []*fault
	hookURL       string
	hookSecret    []byte
	setUp         setUp
	issuer        issuer
}

func newState() state {
	return state{
		nextID:        30_000_000_000, // workflow run ids have passed 32 bits long ago
		installations: map[int64]*installation{}, repositories: map[int64]*repository{}, moved: map[string]int64{},
		setUp:  setUp{manifests: map[string]madeApp{}, grants: map[string]grant{}, users: map[string]userSession{}},
		tokens: map[string]*token{}, runs: map[int64]*run{}, pulls: map[int64]*pull{}, issuer: issuer{requests: map[string]idRequest{}},
	}
}

func (st *state) id() int64 { st.nextID++; return st.nextID }

type installation struct {
	Installation
	created     time.Time
	suspendedAt time.Time // zero = not suspended
}

type repository struct {
	Repository
	dir       string // the bare repository
	archived  bool
	created   time.Time
	disabled  map[string]bool  // workflow files, by name
	workflows map[string]int64 // ids, by name
	runNumber int
	pullNo    int
}

func (r *repository) fullName() string { return r.Owner + "/" + r.Name }

// Violation is a call that Errand must never make.
type Violation struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Caller string    `json:"caller"` // app, installation, job or nobody
	Why    string    `json:"why"`
}

// Run is a workflow run as a test or the demo sees it.
type Run struct {
	ID           int64             `json:"id"`
	Attempt      int               `json:"attempt"`
	RepositoryID int64             `json:"repository_id"`
	Workflow     string            `json:"workflow"`
	Title        string            `json:"title"`
	Branch       string            `json:"branch"`
	SHA          string            `json:"sha"`
	Status       string            `json:"status"`
	Conclusion   string            `json:"conclusion"`
	Inputs       map[string]string `json:"-"` // the ticket is among them
	CreatedAt    time.Time         `json:"created_at"`
}

// PullRequest is a pull request as a test or the demo sees it.
type PullRequest struct {
	ID           int64     `json:"id"`
	Number       int       `json:"number"`
	RepositoryID int64     `json:"repository_id"`
	Title        string    `json:"title"`
	Body         string    `json:"body"`
	Head         string    `json:"head"`
	HeadSHA      string    `json:"head_sha"`
	Base         string    `json:"base"`
	BaseSHA      string    `json:"base_sha"`
	State        string    `json:"state"`
	Draft        bool      `json:"draft"`
	URL          string    `json:"url"`
	CreatedAt    time.Time `json:"created_at"`
}

type pull struct {
	PullRequest
	by        string // login
	updatedAt time.Time
	closedAt  time.Time
}

// AddInstallation installs the App in an account.
func (s *Sim) AddInstallation(in Installation) error {
	if in.ID <= 0 || in.Account == "" {
		return errand.Invalid("githubsim.installation", "an installation needs an id and an account")
	}
	if in.Permissions == nil {
		in.Permissions = map[string]string{"metadata": "read", "actions": "write"}
	}
	if in.AccountID == 0 {
		in.AccountID = in.ID + 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.installations[in.ID] = &installation{Installation: in, created: s.clock()}
	return nil
}

// Suspend suspends the installation or resumes it. Its tokens stop working at once.
func (s *Sim) Suspend(id int64, suspended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.state.installations[id]; in != nil {
		in.suspendedAt = time.Time{}
		if suspended {
			in.suspendedAt = s.clock()
		}
	}
}

// Uninstall removes the installation.
func (s *Sim) Uninstall(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.state.installations, id)
}

// Rename gives the repository another name, or another owner. The former name redirects.
func (s *Sim) Rename(id int64, owner, name string) {
	s.change(id, func(r *repository) {
		s.state.moved[strings.ToLower(r.fullName())] = id
		r.Owner, r.Name = owner, name
		delete(s.state.moved, strings.ToLower(r.fullName()))
	})
}

// Archive makes the repository read-only, or writable again.
func (s *Sim) Archive(id int64, archived bool) {
	s.change(id, func(r *repository) { r.archived = archived })
}

// RemoveFromInstallation takes the repository out of its installation.
func (s *Sim) RemoveFromInstallation(id int64) {
	s.change(id, func(r *repository) { r.Installation = 0 })
}

// AllowPullRequests is the setting "Allow GitHub Actions to create and approve pull requests".
func (s *Sim) AllowPullRequests(id int64, allowed bool) {
	s.change(id, func(r *repository) { r.PullRequests = allowed })
}

// DisableWorkflow disables a workflow file by name, or enables it.
func (s *Sim) DisableWorkflow(id int64, file string, disabled bool) {
	s.change(id, func(r *repository) { r.disabled[file] = disabled })
}

// SetWebhook says where the App's webhooks go from now on; "" = nowhere.
func (s *Sim) SetWebhook(url string, secret []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.hookURL, s.state.hookSecret = url, secret
}

func (s *Sim) change(id int64, f func(*repository)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.state.repositories[id]; r != nil {
		f(r)
	}
}

// Violations are the calls so far that Errand must never make.
func (s *Sim) Violations() []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.violations)
}

// Runs are all workflow runs, oldest first.
func (s *Sim) Runs() []Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Run
	for _, id := range slices.Sorted(maps.Keys(s.state.runs)) {
		all = append(all, s.state.runs[id].Run)
	}
	return all
}

// PullRequests are all pull requests, oldest first.
func (s *Sim) PullRequests() []PullRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []PullRequest
	for _, id := range slices.Sorted(maps.Keys(s.state.pulls)) {
		all = append(all, s.state.pulls[id].PullRequest)
	}
	return all
}

// RepositoryDir is the bare repository's folder, for a test's own git; "" when there is no such repository.
func (s *Sim) RepositoryDir(id int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.state.repositories[id]; r != nil {
		return r.dir
	}
	return ""
}

// Log is what the run's jobs printed, with masks applied. Real GitHub would show it to the App; Errand never asks.
func (s *Sim) Log(runID int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.state.runs[runID]; r != nil {
		return r.log.String()
	}
	return ""
}
