package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/dispatch"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/transitions"
)

// asked is a GitHub that only notes that it was asked to start a workflow. Whatever else is asked of it is a fault of the bench.
type asked struct {
	dispatch.GitHub
	at chan time.Time
}

func (a asked) Dispatch(context.Context, github.Target, map[string]string) github.Dispatched {
	a.at <- time.Now()
	return github.Dispatched{Outcome: github.Accepted, RunID: time.Now().UnixNano(), RunURL: "https://github.example/run", At: time.Now()}
}

func (asked) CheckInstallation(_ context.Context, id int64) (github.InstallationCheck, error) {
	granted := map[string]string{"metadata": "read", "actions": "write"}
	return github.InstallationCheck{Installation: github.Installation{ID: id, Account: "acme", Permissions: granted}, Verdict: errand.Pass}, nil
}

func (asked) ServerTime() time.Time { return time.Now() }

// dispatchLatency measures (d): from the first byte of a delivery to the call that starts the workflow, one delivery after the
// other, each of a new issue, on a service that has nothing else to do.
func dispatchLatency(ctx context.Context, b *bed, p plan, f *figures) error {
	at, err := b.place(ctx)
	if err != nil {
		return err
	}
	hub := asked{at: make(chan time.Time, 1)}
	stop, err := at.work(ctx, hub)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	body := newBody(4 << 10)
	c := &client{conn: conn, in: bufio.NewReader(conn), text: bytes.Clone(body.text), body: body, path: at.source.Path, host: at.addr}
	n := 200
	if p.short {
		n = 40
	}
	var s sample
	for range n + 5 {
		k := eventNumber.Add(1)
		rename(c.text, k)
		begin := time.Now()
		if err := c.send(k, spread+k); err != nil {
			return err
		}
		select {
		case t := <-hub.at:
			s.took = append(s.took, t.Sub(begin))
		case <-time.After(10 * time.Second):
			return errors.Join(errors.New("a delivery led to no dispatch within ten seconds"), at.whyNot(ctx))
		}
	}
	s.took = s.took[5:] // the first ones make plans
	fmt.Printf("\n(d) delivery to dispatch, one at a time: p50 %.1f ms, p99 %.1f ms\n", s.ms(.5), s.ms(.99))
	f.DispatchP50Ms, f.DispatchP99Ms = figure(s.ms(.5), 1), figure(s.ms(.99), 1)
	return errors.Join(stop(ctx), at.close(ctx))
}

// rename gives the exception a type of its own: the same problem under another issue would wait for the first.
func rename(text []byte, n uint64) {
	const before, length = `"values":[{"type":"`, len("KeyError")
	at := bytes.Index(text, []byte(before)) + len(before)
	for i := range length {
		text[at+i] = byte('a' + n%26)
		n /= 26
	}
}

// whyNot tells the last decision.
func (p *place) whyNot(ctx context.Context) error {
	var last string
	err := p.super(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT coalesce((SELECT body FROM journal ORDER BY seq DESC LIMIT 1), 'no decision')").Scan(&last)
	})
	return errors.Join(err, errors.New(last))
}

// work starts the workers, for an organisation whose errors all belong to one repository and run without a cap in the way.
func (p *place) work(ctx context.Context, hub asked) (stop func(context.Context) error, err error) {
	err = p.super(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, fmt.Sprintf(`
			UPDATE organisations SET daily_run_cap = 1000000, breaker_issues = 1000000, max_age_s = 1000000000;
			INSERT INTO installations (id, org_id, account, created_at) VALUES (1, '%[1]s', 'acme', now());
			INSERT INTO repositories (id, org_id, installation_id, github_id, owner, name, default_branch, open_fix_cap, created_at) VALUES ('%[2]s', '%[1]s', 1, 1, 'acme', 'shop', 'main', 1000000, now());
			INSERT INTO mappings (id, org_id, position, stack_root, repository_id, created_at) VALUES ('%[2]s', '%[1]s', 1, '/app', '%[2]s', now())`,
			p.org, errand.NewID(time.Now())))
		return err
	})
	if err != nil {
		return nil, err
	}
	policy, err := transitions.RunPolicy()
	if err != nil {
		return nil, err
	}
	tickets, err := runtoken.NewKeys(benchKey("tickets"))
	if err != nil {
		return nil, err
	}
	d, err := dispatch.New(dispatch.Config{Store: p.store, Runs: runs.New(policy, time.Now), GitHub: hub, Tickets: tickets, Clock: time.Now})
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	d.AddWorkers(workers)
	var once sync.Once
	end, err := p.store.Work(ctx, store.WorkConfig{Workers: workers, MaxWorkers: 20, SweepEvery: time.Hour, OnDiscard: d.OnDiscard})
	return func(ctx context.Context) (err error) {
		once.Do(func() { err = end(ctx) })
		return err
	}, err
}
