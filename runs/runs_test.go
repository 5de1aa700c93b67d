package runs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/storetest"
	"github.com/errand-dev/errand/transitions"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is an organisation with a repository and as many issues as a test wants.
type world struct {
	*storetest.DB
	t    *testing.T
	org  errand.ID
	repo errand.ID
	src  errand.ID
	runs *runs.Runs

	mu  sync.Mutex
	now time.Time
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) at(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = t
}

func setup(t *testing.T) *world {
	t.Helper()
	policy, err := transitions.RunPolicy()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{DB: storetest.New(t), t: t, now: noon, repo: errand.NewID(noon), src: errand.NewID(noon)}
	w.org = w.Org(t, "acme")
	w.runs = runs.New(policy, w.clock)
	w.Super(t, func(ctx context.Context, c *pgx.Conn) {
		exec(t, c, `insert into installations (id, org_id, account, created_at) values (1, $1, 'acme', $2)`, w.org, noon)
		exec(t, c, `insert into repositories (id, org_id, installation_id, github_id, owner, name, default_branch, created_at)
			values ($1, $2, 1, 7, 'acme', 'shop', 'main', $3)`, w.repo, w.org, noon)
		exec(t, c, `insert into sources (id, org_id, kind, name, public_id, secret_sealed, created_at)
			values ($1, $2, 'sentry', 'Sentry', $3, 'x', $4)`, w.src, w.org, strings.Repeat("p", 24), noon)
	})
	return w
}

func exec(t *testing.T, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := c.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// issue makes an issue with one event and gives the run that could be about it.
func (w *world) issue() runs.NewRun {
	w.t.Helper()
	issue, event := errand.NewID(noon), errand.NewID(noon)
	w.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		exec(w.t, c, `insert into issues (id, org_id, source_id, provider_id, title, status_at, first_seen, last_seen, created_at)
			values ($1, $2, $3, $5, 'boom', $4, $4, $4, $4)`, issue, w.org, w.src, noon, string(issue))
		exec(w.t, c, `insert into events (id, org_id, issue_id, provider_id, seen_at, received_at, body) values ($1, $2, $3, 'e', $4, $4, '{}')`,
			event, w.org, issue, noon)
	})
	return runs.NewRun{Issue: issue, Event: event, Repository: w.repo, WorkflowFile: "errand.yml", Ref: "main", Actor: "dispatch"}
}

func (w *world) create(n runs.NewRun) (run store.Run, err error) {
	err = w.InTx(context.Background(), w.org, func(tx *store.Tx) error {
		run, err = w.runs.Create(context.Background(), tx, n)
		return err
	})
	return run, err
}

func (w *world) fire(id errand.ID, m runs.Move, set func(*runs.Changes)) (run store.Run, err error) {
	err = w.InTx(context.Background(), w.org, func(tx *store.Tx) error {
		run, err = w.runs.Fire(context.Background(), tx, id, m, set)
		return err
	})
	return run, err
}

func (w *world) cap(n int) {
	w.t.Helper()
	w.Super(w.t, func(ctx context.Context, c *pgx.Conn) { exec(w.t, c, "update organisations set daily_run_cap = $1", n) })
}

// history gives the steps of a run as "from>to trigger", oldest first.
func (w *world) history(id errand.ID) (out []string) {
	w.t.Helper()
	err := w.InTx(context.Background(), w.org, func(tx *store.Tx) error {
		rows, err := tx.ListJournal(context.Background(), id, journal.KindTransition, 100)
		for i := len(rows) - 1; i >= 0; i-- {
			var s journal.Transition
			if err := json.Unmarshal([]byte(rows[i].Body), &s); err != nil {
				return err
			}
			out = append(out, fmt.Sprintf("%s>%s %s", s.From, s.To, s.Trigger))
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	w.Super(w.t, func(ctx context.Context, c *pgx.Conn) {
		if err := c.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
			w.t.Fatal(err)
		}
	})
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// steps on the way to running and on.
func (w *world) walk(id errand.ID, moves ...runs.Move) (run store.Run) {
	w.t.Helper()
	for _, m := range moves {
		var err error
		if run, err = w.fire(id, m, nil); err != nil {
			w.t.Fatalf("%s -> %s: %v", m.Trigger, m.To, err)
		}
	}
	return run
}

func started() runs.Move {
	return runs.Move{Trigger: errand.TriggerDispatchStarted, To: errand.Dispatching}
}

func accepted() runs.Move {
	return runs.Move{Trigger: errand.TriggerGitHubAccepted, To: errand.Dispatched}
}

func running(expires time.Time) runs.Move {
	return runs.Move{Trigger: errand.TriggerRunStarted, To: errand.Running, Granted: []transitions.Grant{
		{Name: "ticket", IssuedBy: "runnerapi", Category: transitions.ErrorData, Expires: expires},
	}}
}

func TestARunIsCreatedWithItsHistoryAndItsJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	if run.State != errand.Queued || run.Version != 1 || !run.DeadlineAt.Equal(noon.Add(15*time.Minute)) || run.OrgID != w.org {
		t.Errorf("%+v", run)
	}
	if got := w.history(run.ID); len(got) != 1 || got[0] != "new>queued created" {
		t.Errorf("history %v", got)
	}
	if n := w.count(`select count(*) from river_job where kind = 'dispatch_run' and args->>'run' = $1`, string(run.ID)); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// D12: a second run of the same issue cannot be made while the first is open.
func TestD12_AnIssueHasAtMostOneOpenRun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	n := w.issue()
	run, err := w.create(n)
	must(t, err)
	if _, err := w.create(n); !errors.Is(err, runs.ErrRunOpen) || errand.CodeOf(err) != errand.CodeConflict {
		t.Errorf("a second one: %v", err)
	}
	w.walk(run.ID, runs.Move{Trigger: errand.TriggerCancel, To: errand.Cancelled, Reason: errand.ReasonCancelledByPerson})
	if _, err := w.create(n); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if n := w.count("select count(*) from runs"); n != 2 {
		t.Errorf("%d runs", n)
	}
}

func TestTheDayIsUTCAndCountsWhatFailed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.cap(1)
	w.at(time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC))
	run, err := w.create(w.issue())
	must(t, err)
	w.walk(run.ID, runs.Move{Trigger: errand.TriggerDeadline, To: errand.Failed, Reason: errand.ReasonNotDispatched})
	if _, err := w.create(w.issue()); !errors.Is(err, runs.ErrDailyCap) {
		t.Errorf("a failed run did not count: %v", err)
	}
	w.at(time.Date(2026, 12, 1, 2, 0, 0, 0, time.FixedZone("east", 2*3600))) // midnight UTC
	if _, err := w.create(w.issue()); err != nil {
		t.Errorf("on the next day: %v", err)
	}
	w.cap(0)
	if _, err := w.create(w.issue()); !errors.Is(err, runs.ErrDailyCap) {
		t.Errorf("a cap of 0 let one through: %v", err)
	}
}

func TestALifeFromCreationToPullRequest(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	w.walk(run.ID, started(), accepted())
	if _, err := w.fire(run.ID, runs.Move{Trigger: errand.TriggerRunStarted, To: errand.Running}, nil); !errors.Is(err, runs.ErrDenied) {
		t.Errorf("running without the ticket: %v", err)
	}
	if _, err := w.fire(run.ID, running(noon), nil); !errors.Is(err, runs.ErrDenied) {
		t.Errorf("running with a ticket that is over: %v", err)
	}
	w.at(noon.Add(time.Minute))
	got := w.walk(run.ID, running(noon.Add(time.Hour)))
	if got.StartedAt == nil || !got.StartedAt.Equal(noon.Add(time.Minute)) || !got.DeadlineAt.Equal(noon.Add(time.Minute+runs.Lease)) {
		t.Errorf("running: %+v", got)
	}
	proposal := runs.Move{Trigger: errand.TriggerProposal, To: errand.Checking}
	w.at(noon.Add(5 * time.Minute))
	correction := running(noon.Add(time.Hour))
	correction.Trigger = errand.TriggerCorrection
	got = w.walk(run.ID, proposal, correction)
	if !got.StartedAt.Equal(noon.Add(time.Minute)) {
		t.Errorf("a correction moved the start: %v", got.StartedAt)
	}
	w.walk(run.ID, proposal, runs.Move{Trigger: errand.TriggerAdmitted, To: errand.Publishing})
	number, url := int32(12), "https://github.example/acme/shop/pull/12"
	got, err = w.fire(run.ID, runs.Move{Trigger: errand.TriggerPullRequest, To: errand.PROpened}, func(c *runs.Changes) {
		c.PRNumber, c.PRURL, c.Paths = &number, &url, []string{"shop/cart.py"}
	})
	must(t, err)
	if got.State != errand.PROpened || got.FinishedAt == nil || *got.PRNumber != 12 || got.PRURL != url || len(got.Paths) != 1 || got.Version != 9 {
		t.Errorf("%+v", got)
	}
	want := "new>queued created, queued>dispatching dispatch_started, dispatching>dispatched github_accepted, dispatched>running run_started, " +
		"running>checking proposal, checking>running correction, running>checking proposal, checking>publishing admitted, publishing>pr_opened pull_request"
	if h := strings.Join(w.history(run.ID), ", "); h != want {
		t.Errorf("history\n%s\nwant\n%s", h, want)
	}
}

// D8: twelve callers have all read the same row.
func TestD8_OneOfManyStepsAtOnceIsTaken(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	replicas := []*store.Store{w.Store, w.Open(t, 8)}
	moves := []runs.Move{started(), {Trigger: errand.TriggerCancel, To: errand.Cancelled, Reason: errand.ReasonCancelledByPerson}}
	var wg sync.WaitGroup
	read := make(chan struct{})
	var ready sync.WaitGroup
	results := make([]error, 12)
	ready.Add(len(results))
	for i := range results {
		wg.Go(func() {
			results[i] = replicas[i%2].InTx(context.Background(), w.org, func(tx *store.Tx) error {
				_, err := tx.GetRun(context.Background(), run.ID)
				ready.Done()
				<-read // all have read the same row
				if err != nil {
					return err
				}
				m := moves[i%2]
				m.Version = run.Version
				_, err = w.runs.Fire(context.Background(), tx, run.ID, m, nil)
				return err
			})
		})
	}
	ready.Wait()
	close(read)
	wg.Wait()
	taken := 0
	for _, err := range results {
		switch {
		case err == nil:
			taken++
		case !errors.Is(err, runs.ErrStale) && !errors.Is(err, runs.ErrTerminal):
			t.Errorf("%v", err)
		}
	}
	if h := w.history(run.ID); taken != 1 || len(h) != 2 {
		t.Errorf("%d steps were taken, history %v", taken, h)
	}
}

// D11: what comes after the end has an answer of its own, which is neither a conflict of versions nor a forbidden step.
func TestD11_ALateStepChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	before := w.walk(run.ID, runs.Move{Trigger: errand.TriggerCancel, To: errand.Cancelled, Reason: errand.ReasonCancelledByPerson})
	for _, m := range []runs.Move{started(), {Trigger: errand.TriggerRunnerFailed, To: errand.Failed, Reason: errand.ReasonAgentError}} {
		_, err := w.fire(run.ID, m, func(c *runs.Changes) { s := "late"; c.Summary = &s })
		if !errors.Is(err, runs.ErrTerminal) || errors.Is(err, runs.ErrStale) || errors.Is(err, runs.ErrDenied) {
			t.Errorf("%s: %v", m.Trigger, err)
		}
	}
	var after store.Run
	must(t, w.InTx(context.Background(), w.org, func(tx *store.Tx) error {
		after, err = tx.GetRun(context.Background(), run.ID)
		return err
	}))
	if after.Version != before.Version || after.State != errand.Cancelled || after.Summary != "" || after.Reason != errand.ReasonCancelledByPerson {
		t.Errorf("%+v", after)
	}
}

func TestAStepIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	for says, tt := range map[string]struct {
		id   errand.ID
		m    runs.Move
		want error
		code errand.Code
	}{
		"that is not in the table":         {run.ID, accepted(), runs.ErrDenied, errand.CodeConflict},
		"decided upon another version":     {run.ID, runs.Move{Trigger: errand.TriggerDispatchStarted, To: errand.Dispatching, Version: 7}, runs.ErrStale, errand.CodeConflict},
		"of a run that is not there":       {errand.NewID(noon), started(), nil, errand.CodeNotFound},
		"with a reason that is not listed": {run.ID, runs.Move{Trigger: errand.TriggerCancel, To: errand.Cancelled, Reason: "whim"}, nil, errand.CodeInternal},
	} {
		_, err := w.fire(tt.id, tt.m, nil)
		if errand.CodeOf(err) != tt.code || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("a step %s: %v", says, err)
		}
	}
	other := w.Org(t, "other")
	err = w.InTx(context.Background(), other, func(tx *store.Tx) error {
		_, err := w.runs.Fire(context.Background(), tx, run.ID, started(), nil)
		return err
	})
	if errand.CodeOf(err) != errand.CodeNotFound {
		t.Errorf("another organisation's run: %v", err)
	}
	if h := w.history(run.ID); len(h) != 1 {
		t.Errorf("history %v", h)
	}
}

func TestAStepThatIsRolledBackLeavesNoHistory(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	boom := errors.New("boom")
	err = w.InTx(context.Background(), w.org, func(tx *store.Tx) error {
		if _, err := w.runs.Fire(context.Background(), tx, run.ID, started(), nil); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if h := w.history(run.ID); len(h) != 1 {
		t.Errorf("history %v", h)
	}
}

// C10: what the exchange said of the workflow run stands above every guess.
func TestC10_TheExchangesWorkflowRunIsNeverOverwritten(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	w.walk(run.ID, started())
	w.Super(t, func(ctx context.Context, c *pgx.Conn) {
		exec(t, c, "update runs set exchanged_at = $1, workflow_run_id = 111, workflow_run_attempt = 1 where id = $2", noon, run.ID)
	})
	guess, url := int64(222), "https://github.example/guess"
	got, err := w.fire(run.ID, accepted(), func(c *runs.Changes) { c.WorkflowRunID, c.WorkflowRunURL = &guess, &url })
	must(t, err)
	if *got.WorkflowRunID != 111 || got.WorkflowRunURL != "" {
		t.Errorf("workflow run %d, %q", *got.WorkflowRunID, got.WorkflowRunURL)
	}
}

func TestLookAgainMovesTheDeadlineOfTheRunAsItWasRead(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	look := func(r store.Run, at time.Time) error {
		return w.InTx(context.Background(), w.org, func(tx *store.Tx) error { return w.runs.LookAgain(context.Background(), tx, &r, at) })
	}
	must(t, look(run, noon.Add(time.Hour)))
	due, err := w.DueRuns(context.Background(), noon.Add(59*time.Minute), 10)
	if err != nil || len(due) != 0 {
		t.Errorf("due too early: %v, %v", due, err)
	}
	w.walk(run.ID, started())
	if err := look(run, noon); !errors.Is(err, runs.ErrStale) {
		t.Errorf("after a step: %v", err)
	}
}

func TestCostSaysWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run, err := w.create(w.issue())
	must(t, err)
	cost := func() (c errand.Cost, k runs.Tokens) {
		must(t, w.InTx(context.Background(), w.org, func(tx *store.Tx) error {
			c, k, err = w.runs.Cost(context.Background(), tx, run.ID)
			return err
		}))
		return c, k
	}
	if c, k := cost(); c != (errand.Cost{}) || k != (runs.Tokens{}) {
		t.Errorf("before anything: %v %v", c, k)
	}
	w.Super(t, func(ctx context.Context, c *pgx.Conn) {
		exec(t, c, `insert into usage_lines (run_id, seq, org_id, at, provider, model, input, cache_read, cache_write_5m, cache_write_1h, output, amount_pico)
			values ($1, 1, $2, $3, 'p', 'm', 100, 10, 3, 4, 20, 5000000)`, run.ID, w.org, noon)
		exec(t, c, `insert into usage_lines (run_id, seq, org_id, at, provider, model, unpriced_reason) values ($1, 2, $2, $3, 'p', 'm', 'lost')`, run.ID, w.org, noon)
	})
	c, k := cost()
	if c != (errand.Cost{Known: 5000000, Unpriced: 1}) {
		t.Errorf("cost %+v", c)
	}
	if k != (runs.Tokens{Input: 100, CacheRead: 10, CacheWrite: 7, Output: 20, Requests: 2, Uncounted: 1}) {
		t.Errorf("tokens %+v", k)
	}
}

// TestNobodyElseWritesAState reads every query of the house and every other Go file for one that sets runs.state.
func TestNobodyElseWritesAState(t *testing.T) {
	t.Parallel()
	update := regexp.MustCompile(`(?is)\bupdate\s+(only\s+)?"?runs"?\b[^;]*?\bset\b(.*?)(\bwhere\b|;|$)`)
	state := regexp.MustCompile(`(?i)(^|[\s,(])"?state"?\s*(=|,|\))`)
	writers := map[string]int{}
	look := func(file string) {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, m := range update.FindAllStringSubmatch(string(text), -1) {
			if state.MatchString(m[2]) {
				writers[filepath.Base(file)]++
			}
		}
	}
	files, err := filepath.Glob("../store/queries/*.sql")
	must(t, err)
	if len(files) < 5 {
		t.Fatalf("found %d files of queries", len(files))
	}
	for _, f := range files {
		look(f)
	}
	if len(writers) != 1 || writers["runs.sql"] != 1 {
		t.Errorf("statements that set runs.state: %v, want one, in runs.sql", writers)
	}
	for _, dir := range []string{"../store", "../dispatch", "../runnerapi", "../webhooks", "../console", "../access", "../server"} {
		sources, err := filepath.Glob(dir + "/*.go")
		must(t, err)
		for _, f := range sources {
			if !strings.HasSuffix(f, "_test.go") {
				writers = map[string]int{}
				if look(f); len(writers) > 0 {
					t.Errorf("%s sets runs.state", f)
				}
			}
		}
	}
}
