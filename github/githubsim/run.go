package githubsim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/errand-dev/errand"
)

// run is a workflow run; Sim.mu guards it, except log, which guards itself.
type run struct {
	Run
	repo         *repository
	ref          string
	number       int
	path         string
	workflowName string
	workflowID   int64
	updatedAt    time.Time
	spec         *workflow
	jobs         []*job
	log          *logBuffer
	ctx          context.Context // ends when the run is cancelled or the simulation closes
	stop         context.CancelFunc
}

type job struct {
	id          int64
	name        string
	spec        JobSpec
	status      string
	conclusion  string
	startedAt   time.Time
	completedAt time.Time
}

// logBuffer keeps what jobs print, up to a bound.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxLog = 8 << 20

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() < maxLog {
		l.buf.Write(b)
	}
	return len(b), nil
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// execute runs the jobs one after the other, in the order of the file; one whose needs did not succeed is skipped.
func (s *Sim) execute(r *run) {
	defer r.stop()
	s.mu.Lock()
	r.Status, r.updatedAt = "in_progress", s.clock()
	s.emitRun("in_progress", r)
	s.mu.Unlock()

	ended := map[string]string{}
	overall := "success"
	for _, j := range r.jobs {
		conclusion := ""
		switch {
		case r.ctx.Err() != nil:
			conclusion = "cancelled"
		case slices.ContainsFunc(j.spec.needs(), func(n string) bool { return ended[n] != "success" }):
			conclusion = "skipped"
		default:
			conclusion = s.executeJob(r, j)
		}
		ended[j.spec.Key] = conclusion
		if overall == "success" && conclusion != "success" && conclusion != "skipped" {
			overall = conclusion
		}
		s.mu.Lock()
		j.status, j.conclusion, j.completedAt = "completed", conclusion, s.clock()
		s.emitJob("completed", r, j)
		s.mu.Unlock()
	}
	if len(r.jobs) == 0 {
		overall = "startup_failure"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(r, overall)
}

// finish ends the run and its tokens. Sim.mu is held.
func (s *Sim) finish(r *run, conclusion string) {
	r.Status, r.Conclusion, r.updatedAt = "completed", conclusion, s.clock()
	s.revokeTokens(r.ID)
	s.endIDTokens(r.ID)
	s.emitRun("completed", r)
}

func (s *Sim) executeJob(r *run, j *job) string {
	limit := j.spec.TimeoutMinutes
	if limit <= 0 {
		limit = 360
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Duration(limit*float64(time.Minute)))
	defer cancel()

	s.mu.Lock()
	j.status, j.startedAt = "in_progress", s.clock()
	s.emitJob("in_progress", r, j)
	spec, err := s.jobFor(r, j)
	s.mu.Unlock()
	if err != nil {
		s.log.Error("githubsim: job not started", "run", r.ID, "error", err)
		return "failure"
	}
	spec.Stop = ctx.Done()
	conclusion, err := s.cfg.Executor.Execute(s.ctx, spec)
	if err != nil {
		s.log.Warn("githubsim: job", "run", r.ID, "job", j.name, "error", err)
		fmt.Fprintf(r.log, "##[error]%v\n", err)
	}
	switch {
	case r.ctx.Err() != nil:
		return "cancelled"
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "timed_out"
	case conclusion == "":
		return "failure"
	default:
		return conclusion
	}
}

// jobFor makes what the executor gets, with a token of the permissions that the file declares. Sim.mu is held.
func (s *Sim) jobFor(r *run, j *job) (Job, error) {
	event, err := json.Marshal(object{
		"inputs": r.Inputs, "ref": r.ref, "workflow": r.path, "repository": s.repositoryJSON(r.repo), "sender": s.appUser(),
	})
	if err != nil {
		return Job{}, err
	}
	t := &token{
		caller: callerJob, repositories: []int64{r.repo.ID}, permissions: j.spec.tokenPermissions(), narrowed: true, run: r.ID,
		expires: s.clock().Add(24 * time.Hour),
	}
	out := Job{
		ID: j.id, Name: j.spec.Key, RunID: r.ID, RunNumber: r.number, Attempt: r.Attempt, Owner: r.repo.Owner, Repo: r.repo.Name,
		OwnerID: s.ownerID(r.repo), RepositoryID: r.repo.ID, DefaultBranch: r.repo.DefaultBranch, Ref: r.ref, SHA: r.SHA,
		WorkflowName: r.workflowName, WorkflowPath: r.path, Actor: s.cfg.AppSlug + "[bot]", ServerURL: s.base,
		APIURL: s.base + apiPrefix, Token: s.newToken(t), Inputs: r.Inputs, Secrets: r.repo.Secrets, Event: event, Spec: j.spec, Log: r.log,
	}
	s.offerIDToken(&out, r, j)
	return out, nil
}

// SetRun moves a run by hand, where there is no Executor: to in_progress, or to completed with a conclusion.
func (s *Sim) SetRun(id int64, status, conclusion string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.state.runs[id]
	if r == nil {
		return errand.NotFound("workflow run")
	}
	if status == "completed" {
		for _, j := range r.jobs {
			j.status, j.conclusion, j.completedAt = status, conclusion, s.clock()
		}
		if conclusion == "startup_failure" {
			r.jobs = nil
		}
		s.finish(r, conclusion)
		return nil
	}
	r.Status, r.updatedAt = status, s.clock()
	s.emitRun(status, r)
	return nil
}

// Rerun is a person's "Re-run all jobs": the same inputs under the next attempt. GitHub offers it for a finished run only.
func (s *Sim) Rerun(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.state.runs[id]
	if r == nil {
		return errand.NotFound("workflow run")
	}
	if r.Status != "completed" {
		return errand.Conflict("the workflow run is %s: GitHub re-runs a completed one", r.Status)
	}
	r.Attempt++
	r.Status, r.Conclusion, r.updatedAt = "queued", "", s.clock()
	r.ctx, r.stop = context.WithCancel(s.ctx)
	for _, j := range r.jobs {
		j.status, j.conclusion, j.startedAt, j.completedAt = "queued", "", s.clock(), time.Time{}
	}
	s.emitRun("requested", r)
	if s.cfg.Executor != nil {
		s.tasks.Go(func() { s.execute(r) })
	}
	return nil
}

// DeleteRun removes a run, as a person can on the Actions page.
func (s *Sim) DeleteRun(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.state.runs, id)
}
