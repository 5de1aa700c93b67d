package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/storetest"
	"github.com/errand-dev/errand/transitions"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// fakeGitHub starts workflow runs in memory, and answers as a test scripts it. It counts every call, and fails the test on
// one that Errand must not make.
type fakeGitHub struct {
	t     *testing.T
	clock errand.Clock

	mu       sync.Mutex
	calls    map[string]int
	checks   int                                                       // questions about an installation
	answers  []func(start func() github.WorkflowRun) github.Dispatched // of the next dispatches; none left = accepted
	findErr  error
	runErr   error
	stop     error // of a cancellation
	runs     []github.WorkflowRun
	name     string // of the repository, now
	absentAt string // a name under which nothing is found any more
	during   func() // called within a dispatch, without the lock
	noTicket bool   // the inputs must hold no secret

	installation github.InstallationCheck
	checkErr     error // of a question about the installation
	listErr      error // of a list of its repositories
	repositories []github.Repo
}

func newFakeGitHub(t *testing.T, clock errand.Clock) *fakeGitHub {
	return &fakeGitHub{
		t: t, clock: clock, calls: map[string]int{}, name: "shop",
		installation: github.InstallationCheck{Installation: github.Installation{ID: 1, Account: "acme"}, Verdict: errand.Pass},
		repositories: []github.Repo{{ID: 7, Owner: "acme", Name: "shop", DefaultBranch: "main", Private: true}},
	}
}

func (f *fakeGitHub) called(call string, t github.Target) {
	f.t.Helper()
	f.calls[call]++
	if t.InstallationID != 1 || t.RepositoryID != 7 || t.Owner != "acme" || t.WorkflowFile != "errand.yml" {
		f.t.Errorf("%s of %+v", call, t)
	}
}

func (f *fakeGitHub) Dispatch(_ context.Context, t github.Target, inputs map[string]string) github.Dispatched {
	f.mu.Lock()
	f.called("dispatch", t)
	if keys := slices.Sorted(maps.Keys(inputs)); !slices.Equal(keys, []string{"run", "ticket"}) || t.Ref == "" {
		f.t.Errorf("C2: inputs %v, ref %q: want run and ticket, with the ref beside them", keys, t.Ref)
	}
	want := "ticket of " + inputs["run"]
	if f.noTicket {
		want = ""
	}
	if inputs["ticket"] != want {
		f.t.Errorf("ticket %q for run %q", inputs["ticket"], inputs["run"])
	}
	during := f.during
	f.mu.Unlock()
	if during != nil {
		during()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	start := func() github.WorkflowRun {
		id := int64(1000 + len(f.runs))
		jobs := 1
		w := github.WorkflowRun{
			ID: id, Attempt: 1, Status: "in_progress", URL: fmt.Sprintf("https://github.example/runs/%d", id), Title: "Errand " + inputs["run"],
			Event: "workflow_dispatch", CreatedAt: f.clock(), Jobs: &jobs,
		}
		f.runs = append(f.runs, w)
		return w
	}
	if len(f.answers) > 0 {
		next := f.answers[0]
		f.answers = f.answers[1:]
		return next(start)
	}
	if t.Name != f.name {
		return github.Dispatched{Outcome: github.Moved, MovedTo: &github.RepoName{Owner: "acme", Name: f.name}, Status: 307}
	}
	return took(start)
}

func took(start func() github.WorkflowRun) github.Dispatched {
	w := start()
	return github.Dispatched{Outcome: github.Accepted, RunID: w.ID, RunURL: w.URL, Status: 200}
}

func answers(o github.Outcome, after time.Duration) func(func() github.WorkflowRun) github.Dispatched {
	return func(func() github.WorkflowRun) github.Dispatched {
		return github.Dispatched{Outcome: o, RetryAfter: after, Message: "GitHub's words"}
	}
}

// lost is a dispatch that took effect, and whose answer did not come back.
func lost(start func() github.WorkflowRun) github.Dispatched {
	start()
	return github.Dispatched{Outcome: github.NoAnswer}
}

func (f *fakeGitHub) FindRuns(_ context.Context, t github.Target, marker string, since time.Time) (found []github.WorkflowRun, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called("find", t)
	if f.findErr != nil {
		return nil, f.findErr
	}
	for _, r := range f.runs {
		if strings.HasSuffix(r.Title, " "+marker) && !r.CreatedAt.Before(since) {
			found = append(found, r)
		}
	}
	return found, nil
}

func (f *fakeGitHub) Run(_ context.Context, t github.Target, id int64) (github.WorkflowRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called("run", t)
	if f.runErr != nil {
		return github.WorkflowRun{}, f.runErr
	}
	for _, r := range f.runs {
		if r.ID == id && t.Name != f.absentAt {
			return r, nil
		}
	}
	return github.WorkflowRun{}, &github.Error{Call: github.CallRead, Status: 404, Finding: github.Finding{Outcome: github.NotFound}}
}

func (f *fakeGitHub) Cancel(_ context.Context, t github.Target, _ int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called("cancel", t)
	return f.stop
}

func (f *fakeGitHub) ServerTime() time.Time { return f.clock() }

func (f *fakeGitHub) CheckInstallation(_ context.Context, id int64) (github.InstallationCheck, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checks++
	c := f.installation
	c.ID = id
	return c, f.checkErr
}

func (f *fakeGitHub) Repositories(context.Context, int64) ([]github.Repo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.repositories), f.listErr
}

// Repository finds by the numeric id, under whatever name the repository has now.
func (f *fakeGitHub) Repository(_ context.Context, _, id int64) (github.Repo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.repositories {
		if r.ID == id {
			r.Name = f.name
			return r, f.listErr
		}
	}
	return github.Repo{}, &github.Error{Call: github.CallRead, Status: 200, Finding: github.Finding{Outcome: github.Gone}}
}

// made asserts how often each call was made since the last time it was asked.
func (f *fakeGitHub) made(want map[string]int) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !maps.Equal(f.calls, want) {
		f.t.Errorf("calls %v, want %v", f.calls, want)
	}
	f.calls = map[string]int{}
}

func (f *fakeGitHub) script(a ...func(func() github.WorkflowRun) github.Dispatched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = a
}

func (f *fakeGitHub) change(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

type fakeTickets struct{}

func (fakeTickets) Ticket(run errand.ID, attempt int, _ time.Time) (string, error) {
	return fmt.Sprintf("ticket of %s.%d", run, attempt), nil
}

// world is an organisation with one repository, one mapping, and a GitHub.
type world struct {
	*storetest.DB
	t      *testing.T
	org    errand.ID
	src    errand.ID
	repo   errand.ID
	person errand.ID
	github *fakeGitHub
	d      *Dispatch
	policy *transitions.Policy

	mu  sync.Mutex
	now time.Time
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{DB: storetest.New(t), t: t, now: noon, src: errand.NewID(noon), person: errand.NewID(noon)}
	var err error
	if w.policy, err = transitions.RunPolicy(); err != nil {
		t.Fatal(err)
	}
	w.org = w.Org(t, "acme")
	w.github = newFakeGitHub(t, w.clock)
	w.d = w.replica(w.Store)
	w.sql(`insert into sources (id, org_id, kind, name, public_id, secret_sealed, created_at) values ($1, $2, 'sentry', 'Sentry', $3, 'x', $4)`,
		w.src, w.org, strings.Repeat("p", 24), noon)
	repos, err := w.d.Connect(t.Context(), w.org, 1)
	if err != nil || len(repos) != 1 {
		t.Fatalf("connect: %v, %v", repos, err)
	}
	w.repo = repos[0].ID
	must(t, w.d.AddMapping(t.Context(), w.org, NewMapping{Repository: w.repo, StackRoot: "/srv/app", SourceRoot: "src"}))
	// What a test is not about stands out of its way.
	w.sql("update organisations set breaker_issues = 0")
	w.sql("update repositories set open_fix_cap = 1000")
	return w
}

// replica is another process on the same database and GitHub.
func (w *world) replica(s *store.Store) *Dispatch {
	w.t.Helper()
	d, err := New(Config{Store: s, Runs: runs.New(w.policy, w.clock), GitHub: w.github, Tickets: fakeTickets{}, Clock: w.clock})
	must(w.t, err)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) sql(sql string, args ...any) {
	w.t.Helper()
	w.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		if _, err := c.Exec(ctx, sql, args...); err != nil {
			w.t.Fatalf("%s: %v", sql, err)
		}
	})
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	w.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		if err := c.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
			w.t.Fatalf("%s: %v", sql, err)
		}
	})
	return n
}

// delivery writes an issue with one event, as ingest would, and gives its job.
func (w *world) delivery() errand.ConsiderIssue {
	w.t.Helper()
	job := errand.ConsiderIssue{Org: w.org, Issue: errand.NewID(noon), Delivery: errand.NewID(noon)}
	w.sql(`insert into issues (id, org_id, source_id, provider_id, title, level, status_at, first_seen, last_seen, created_at)
		values ($1, $2, $3, $4, 'boom', 'error', $5, $5, $5, $5)`, job.Issue, w.org, w.src, string(job.Issue), w.clock())
	job.Event = w.event(job.Issue, w.clock())
	return job
}

func (w *world) event(issue errand.ID, seen time.Time) errand.ID {
	w.t.Helper()
	e := crash(file("/srv/app/cart.py"))
	e.Exceptions[0].Frames[0].Function = "of issue " + string(issue) // every issue is a problem of its own
	return w.eventOf(issue, seen, e)
}

func (w *world) eventOf(issue errand.ID, seen time.Time, e *errand.Event) errand.ID {
	w.t.Helper()
	body, err := json.Marshal(e)
	must(w.t, err)
	id := errand.NewID(noon)
	w.sql(`insert into events (id, org_id, issue_id, provider_id, seen_at, received_at, body) values ($1, $2, $3, $4, $5, $5, $6)`,
		id, w.org, issue, string(id), seen, string(body))
	return id
}

// queued considers a new delivery and gives the run that came of it.
func (w *world) queued() store.Run {
	w.t.Helper()
	job := w.delivery()
	_, err := w.d.consider(w.t.Context(), job)
	must(w.t, err)
	var id errand.ID
	w.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		must(w.t, c.QueryRow(ctx, "select id from runs where issue_id = $1", job.Issue).Scan(&id))
	})
	return w.run(id)
}

func (w *world) run(id errand.ID) (run store.Run) {
	w.t.Helper()
	must(w.t, w.InTx(w.t.Context(), w.org, func(tx *store.Tx) (err error) {
		run, err = tx.GetRun(w.t.Context(), id)
		return err
	}))
	return run
}

// dispatch works the run's job once.
func (w *world) dispatch(id errand.ID) time.Duration {
	w.t.Helper()
	again, err := w.d.dispatchRun(w.t.Context(), errand.DispatchRun{Org: w.org, Run: id})
	must(w.t, err)
	return again
}

func (w *world) reconcile(id errand.ID) {
	w.t.Helper()
	_, err := w.d.reconcileRun(w.t.Context(), errand.ReconcileRun{Org: w.org, Run: id})
	must(w.t, err)
}

// stands asserts a run's state and reason.
func (w *world) stands(id errand.ID, state errand.RunState, reason errand.Reason) store.Run {
	w.t.Helper()
	r := w.run(id)
	if r.State != state || r.Reason != reason {
		w.t.Errorf("the run is %s (%s: %s), want %s (%s)", r.State, r.Reason, r.Detail, state, reason)
	}
	return r
}

// decisions gives the gates of an issue's decisions, oldest first.
func (w *world) decisions(issue errand.ID) (out []journal.Decision) {
	w.t.Helper()
	must(w.t, w.InTx(w.t.Context(), w.org, func(tx *store.Tx) error {
		rows, err := tx.ListJournal(w.t.Context(), issue, journal.KindDecision, 100)
		for _, row := range slices.Backward(rows) {
			var d journal.Decision
			if err := json.Unmarshal([]byte(row.Body), &d); err != nil {
				return err
			}
			out = append(out, d)
		}
		return err
	}))
	return out
}

func (w *world) jobs(kind string) int {
	w.t.Helper()
	return w.count("select count(*) from river_job where kind = $1", kind)
}

// started brings a dispatched run into `running`, as its runner would.
func (w *world) started(id errand.ID) {
	w.t.Helper()
	w.sql("update runs set exchanged_at = $1, workflow_run_id = coalesce(workflow_run_id, 1000), workflow_run_attempt = 1 where id = $2", w.clock(), id)
	must(w.t, w.InTx(w.t.Context(), w.org, func(tx *store.Tx) error {
		_, err := w.d.runs.Fire(w.t.Context(), tx, id, runs.Move{
			Trigger: errand.TriggerRunStarted, To: errand.Running,
			Granted: []transitions.Grant{{Name: "ticket", Category: transitions.ErrorData, Expires: w.clock().Add(time.Hour)}},
		}, nil)
		return err
	}))
}

// look sweeps, works the looks at waits that it queued, and gives how many they were.
func (w *world) look() (n int) {
	w.t.Helper()
	_, err := w.d.sweep(w.t.Context(), errand.Sweep{})
	must(w.t, err)
	var jobs []errand.ConsiderIssue
	w.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, "delete from river_job where kind = 'consider_issue' returning args")
		must(w.t, err)
		jobs, err = pgx.CollectRows(rows, pgx.RowTo[errand.ConsiderIssue])
		must(w.t, err)
	})
	for _, j := range jobs {
		_, err := w.d.consider(w.t.Context(), j)
		must(w.t, err)
	}
	return len(jobs)
}
