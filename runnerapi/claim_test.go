package runnerapi_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/wire"
)

func TestAClaimLeadsWhereItsVerdictSays(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	type answer struct {
		claim    wire.ClaimRequest
		decision string
	}
	final := claimOf(1, "rejected", "a.js")
	final.Final = true
	nothing := claimOf(1, "rejected")
	for _, c := range []struct {
		name  string
		says  []answer
		state errand.RunState
		why   errand.Reason
	}{
		{"verified", []answer{{claimOf(1, "verified", "v.js"), "admitted"}}, errand.Publishing, ""},
		{"files verified, words not judged", []answer{{claimOf(1, "needs_review", "n.js"), "admitted"}}, errand.Publishing, ""},
		{"rejected, then put right", []answer{{claimOf(1, "rejected", "c.js"), "correct"}, {claimOf(2, "verified", "c.js"), "admitted"}}, errand.Publishing, ""},
		{"rejected twice", []answer{{claimOf(1, "rejected", "a.js"), "correct"}, {claimOf(2, "rejected", "a.js"), "rejected"}}, errand.Rejected, errand.ReasonClaimRejected},
		{"rejected, and no correction is offered", []answer{{final, "rejected"}}, errand.Rejected, errand.ReasonClaimRejected},
		{"rejected, with no change at all", []answer{{nothing, "correct"}}, errand.Running, ""},
	} {
		r := o.dispatched()
		token := r.running()
		for _, a := range c.says {
			for range 2 { // the answer may be lost: the same claim again gets it once more
				var out wire.ClaimResponse
				w.post("claim", token, a.claim).into(t, &out)
				if out.Decision != a.decision {
					t.Errorf("%s: claim %d was answered %s, want %s", c.name, a.claim.Seq, out.Decision, a.decision)
				}
			}
		}
		r.wantState(c.state, c.why)
		if rows := r.journal(journal.KindClaimVerdict); len(rows) != len(c.says) {
			t.Errorf("%s: %d rows in the journal: %v", c.name, len(rows), rows)
		}
		if run := r.row(); (c.state == errand.Publishing) != (len(run.Paths) == 1) {
			t.Errorf("%s: holds the paths %v", c.name, run.Paths)
		}
		if !c.state.Ended() {
			r.cancel()
		}
	}
}

func TestAClaimThatIsNotTheNextOneIsAConflict(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	r := o.dispatched()
	token := r.running()
	w.post("claim", token, claimOf(2, "verified", "a.js")).want(t, 409) // there was no first one
	w.post("claim", token, claimOf(1, "rejected", "a.js")).want(t, 200)
	w.post("claim", token, claimOf(1, "verified", "a.js")).want(t, 409) // the first one said something else
	w.post("claim", token, claimOf(2, "verified", "a.js")).want(t, 200)
	w.post("claim", token, claimOf(2, "verified", "b.js")).want(t, 409)
	r.wantState(errand.Publishing, "")

	early := o.dispatched()
	w.post("claim", early.token(), claimOf(1, "verified", "z.js")).want(t, 409)
	early.wantState(errand.Dispatched, "")
}

func TestAClaimIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	contradiction := claimOf(1, "verified", "a.js")
	contradiction.Findings = []wire.Finding{{Code: "PROTECTED_PATH", Path: "a.js"}}
	third := claimOf(3, "verified", "a.js")
	unknown := claimOf(1, "splendid", "a.js")
	for name, c := range map[string]wire.ClaimRequest{
		"verified with a finding": contradiction, "verified without a file": claimOf(1, "verified"), "a third one": third, "with a verdict that is none": unknown,
	} {
		if got := w.post("claim", token, c); got.status != 422 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	r.wantState(errand.Running, "")
}

// The verdict stands in the journal between the move into checking and the move that followed from it, by order and by time.
func TestTheVerdictStandsInTheJournalWhereItFell(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	w.post("claim", token, claimOf(1, "rejected", "a.js")).want(t, 200)
	w.post("claim", token, claimOf(2, "verified", "a.js")).want(t, 200)
	var order []string
	w.in(r.org, func(tx *store.Tx) error {
		rows, err := tx.ConsoleJournal(t.Context(), r.id, 100)
		slices.Reverse(rows)
		for i, row := range rows {
			var said struct{ To, Decision string }
			if err := json.Unmarshal([]byte(row.Body), &said); err != nil {
				return err
			}
			order = append(order, said.To+said.Decision)
			if i > 0 && row.At.Before(rows[i-1].At) {
				t.Errorf("%s is dated before %s", order[i], order[i-1])
			}
		}
		return err
	})
	if got, want := strings.Join(order, " "), "queued dispatching dispatched running checking correct running checking admitted publishing"; got != want {
		t.Errorf("the journal reads %q, want %q", got, want)
	}
}

func TestAnAnsweredClaimIsNotAnsweredAgainWhenTheRunHasEndedSince(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.publishing("a.js")
	r.cancel()
	w.post("claim", token, claimOf(1, "verified", "a.js")).want(t, 401)
}

func TestAnOpenChangeHoldsItsPaths(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	first := o.dispatched()
	token := first.publishing("src/cart.js", "src/price.js")
	for _, c := range []struct {
		name  string
		paths []string
		then  func()
		by    errand.ID
	}{
		{"while it is being published", []string{"README.md", "src/price.js"}, func() {}, first.id},
		{"on other paths", []string{"src/cart.test.js"}, func() {}, ""},
		{"when its pull request is open", []string{"src/cart.js"}, func() {
			w.post("result", token, wire.ResultRequest{State: errand.PROpened, PullRequest: first.pullRequest(5)}).want(t, 200)
		}, first.id},
		{"13 days later", []string{"src/cart.js"}, func() { w.clock.forward(13 * 24 * time.Hour) }, first.id},
		{"after 14 days without news", []string{"src/cart.js"}, func() { w.clock.forward(25 * time.Hour) }, ""},
	} {
		c.then()
		r := o.dispatched()
		token := r.running()
		for range 2 {
			var out wire.ClaimResponse
			w.post("claim", token, claimOf(1, "verified", c.paths...)).into(t, &out)
			want := "admitted"
			if c.by != "" {
				want = "blocked"
			}
			if out.Decision != want || out.BlockedBy != c.by {
				t.Errorf("%s: %+v, want %s %s", c.name, out, want, c.by)
			}
		}
		if c.by == "" {
			r.cancel()
			continue
		}
		r.wantState(errand.Rejected, errand.ReasonBlockedBy)
		if run := r.row(); !strings.Contains(run.Detail, string(c.by)) || len(run.Paths) != 0 {
			t.Errorf("%s: detail %q, paths %v", c.name, run.Detail, run.Paths)
		}
	}
}

func TestOfTwoClaimsOnOnePathAtOnceOneIsAdmitted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	const n = 6
	tokens := make([]string, n)
	for i := range tokens {
		tokens[i] = o.dispatched().running()
	}
	decisions := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			got, err := w.try("claim", tokens[i], claimOf(1, "verified", "src/cart.js"))
			if err != nil || got.status != 200 {
				t.Errorf("%v %d %s", err, got.status, got.body)
				return
			}
			var out wire.ClaimResponse
			got.into(t, &out)
			decisions[i] = out.Decision
		})
	}
	wg.Wait()
	all := strings.Join(decisions, " ")
	if strings.Count(all, "admitted") != 1 || strings.Count(all, "blocked") != n-1 {
		t.Errorf("decided %s", all)
	}
}

// While one claim of a repository is being decided, the next one waits for it.
func TestAClaimWaitsForTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	o := w.tenant("acme")
	first, second := o.dispatched(), o.dispatched()
	first.running()
	token := second.running()
	answered := make(chan reply, 1)
	w.in(o.org, func(tx *store.Tx) error {
		ctx := context.Background()
		if err := tx.Lock(ctx, "paths", o.repo); err != nil {
			return err
		}
		for _, m := range []runs.Move{{Trigger: errand.TriggerProposal, To: errand.Checking}, {Trigger: errand.TriggerAdmitted, To: errand.Publishing}} {
			if _, err := w.runs.Fire(ctx, tx, first.id, m, func(c *runs.Changes) { c.Paths = []string{"src/cart.js"} }); err != nil {
				return err
			}
		}
		go func() {
			got, err := w.try("claim", token, claimOf(1, "verified", "src/cart.js"))
			if err != nil {
				t.Error(err)
			}
			answered <- got
		}()
		for deadline := time.Now().Add(20 * time.Second); ; {
			var waiting int
			if err := w.conn.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waiting); err != nil {
				return err
			}
			if waiting > 0 {
				return nil
			}
			if time.Now().After(deadline) || len(answered) > 0 {
				t.Error("the second claim did not wait")
				return nil
			}
		}
	})
	var out wire.ClaimResponse
	(<-answered).into(t, &out)
	if out.Decision != "blocked" || out.BlockedBy != first.id {
		t.Errorf("the second claim: %+v", out)
	}
}

// A claim's record holds paths, codes and counts, and no word of the change.
func TestAVerdictIsKeptByCodeAndPath(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.tenant("acme").dispatched()
	token := r.running()
	c := claimOf(1, "rejected", "src/cart.js")
	c.Reason = "NO_JUDGE"
	w.post("claim", token, c).want(t, 200)
	rows := r.journal(journal.KindClaimVerdict)
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, part := range []string{"src/cart.js", "UNCLAIMED_CHANGE", "src/other.js", "NO_JUDGE", `"correct"`} {
		if !strings.Contains(rows[0], part) {
			t.Errorf("no %s in %s", part, rows[0])
		}
	}
}
