package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/dispatch"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/webhooks"
)

// plane is the demo's control plane: the same app that `errand serve` runs, in this process.
type plane struct {
	app     *app
	url     string
	org     errand.ID
	person  errand.ID
	hookURL string
	secret  string
	stop    context.CancelFunc
	ended   chan error
}

func startPlane(ctx context.Context, d *demo, w *world) (*plane, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", d.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	p := &plane{url: "http://" + listener.Addr().String(), ended: make(chan error, 1)}
	db, err := databaseFlags{DataDir: filepath.Join(d.dir, "data")}.open(ctx, d.log, false)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	p.app, err = newApp(ctx, db, appConfig{
		Log: d.log, PublicURL: p.url, Master: randomBytes(32),
		GitHub: github.Config{AppID: w.sim.AppID(), PrivateKey: w.sim.PrivateKey(), BaseURL: w.sim.APIURL(), Logger: d.log},
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close(), db.close())
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends by close, after the runs that still speak to it
	p.stop = stop
	go func() { p.ended <- p.app.serve(run, listener) }()
	return p, p.awaitReady(ctx)
}

func (p *plane) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if err := (healthCmd{URL: p.url + "/readyz"}).ask(ctx); err == nil {
			return nil
		}
		select {
		case err := <-p.ended:
			return fmt.Errorf("the control plane ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("the control plane is not ready: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *plane) close() error {
	p.stop()
	return errors.Join(<-p.ended, p.app.db.close())
}

// setUp does what a person would do in the console: an organisation, the repository, a source, a mapping.
func (p *plane) setUp(ctx context.Context, w *world, s *shop) error {
	if err := w.addShop(ctx, p.url); err != nil {
		return err
	}
	var err error
	if p.org, p.person, err = p.app.access.Bootstrap(ctx, "demo", "Demo", "Operator"); err != nil {
		return err
	}
	repos, err := p.app.dispatch.Connect(ctx, p.org, demoInstallation)
	if err != nil {
		return fmt.Errorf("connect the installation: %w", err)
	}
	if len(repos) != 1 {
		return fmt.Errorf("the installation reaches %d repositories, want one", len(repos))
	}
	p.secret = fmt.Sprintf("%x", randomBytes(32)) // as long as Sentry's client secrets
	src, err := p.app.hooks.CreateSource(ctx, p.org, webhooks.NewSource{Kind: "sentry", Name: "Sentry", Secret: p.secret})
	if err != nil {
		return err
	}
	p.hookURL = p.url + src.Path
	return p.app.dispatch.AddMapping(ctx, p.org, dispatch.NewMapping{Repository: repos[0].ID, Source: &src.ID, StackRoot: s.stackRoot()})
}

func (p *plane) deliver(ctx context.Context, body []byte) (string, error) {
	status, answer, err := postSentry(ctx, p.hookURL, p.secret, body)
	if err != nil {
		return "", err
	}
	if status != http.StatusAccepted {
		return "", fmt.Errorf("the delivery was answered %d: %s", status, answer)
	}
	return answer, nil
}

func (p *plane) signInLink(ctx context.Context) (string, error) {
	return p.app.access.NewSignInLink(ctx, p.org, p.person)
}

// follow prints what happens to the newest issue, as it is written down, until its run has ended.
func (p *plane) follow(ctx context.Context, d *demo) (issue, run errand.ID, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.wait)
	defer cancel()
	seen := map[int64]bool{} // by number, and not "after the last": rows may be committed out of order
	steps := 0
	for {
		ended := false
		err := p.app.db.InTx(ctx, p.org, func(tx *store.Tx) error {
			entries, err := tx.JournalOfOrganisation(ctx, 100)
			if err != nil {
				return err
			}
			for _, e := range slices.Backward(entries) { // newest first in the answer
				if !seen[e.Seq] {
					seen[e.Seq] = true
					d.say("%s", describeEntry(e))
				}
			}
			if issue, run, ended, err = newestRun(ctx, tx); err != nil || run == "" {
				return err
			}
			all, err := tx.ConsoleRunSteps(ctx, run, 100)
			if err != nil {
				return err
			}
			for ; steps < len(all); steps++ {
				d.say("  the agent: %s %s (%s)", all[steps].Tool, all[steps].Path, all[steps].Outcome)
			}
			return nil
		})
		if err != nil {
			return issue, run, fmt.Errorf("follow the run: %w", err)
		}
		if ended {
			return issue, run, nil
		}
		select {
		case err := <-p.ended:
			return issue, run, fmt.Errorf("the control plane ended: %w", err)
		case <-ctx.Done():
			return issue, run, fmt.Errorf("no end after %s: %w", d.wait, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func newestRun(ctx context.Context, tx *store.Tx) (issue, run errand.ID, ended bool, err error) {
	issues, err := tx.ListIssues(ctx, 1)
	if err != nil || len(issues) == 0 {
		return "", "", false, err
	}
	list, err := tx.ConsoleRunsOfIssue(ctx, issues[0].ID, 1)
	if err != nil || len(list) == 0 {
		return issues[0].ID, "", false, err
	}
	return issues[0].ID, list[0].ID, list[0].State.Ended(), nil
}
