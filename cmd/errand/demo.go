package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/errand-dev/errand"
)

type demoCmd struct {
	Once   bool   `name:"once" help:"End after the first run; the last line is one JSON object."`
	Listen string `name:"listen" default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where the control plane listens."`
	Runner string `name:"runner" placeholder:"FILE" help:"The built errand-runner. Empty: beside this program."`
	Wait   string `name:"wait" default:"90s" placeholder:"DURATION" help:"How long a run may take before the demo gives up."`
	logFlags
}

// summary is what `errand demo --once` prints as its last line. Its keys are read by others.
type summary struct {
	Issue       errand.ID        `json:"issue"`
	Run         errand.ID        `json:"run"`
	State       errand.RunState  `json:"state"`
	PullRequest string           `json:"pull_request"`
	Branch      string           `json:"branch"`
	Files       []string         `json:"files"`
	Tokens      map[string]int64 `json:"tokens"`
	CostUSD     *string          `json:"cost_usd"` // null = not known
	DurationMS  int64            `json:"duration_ms"`
}

func (c demoCmd) Run(ctx context.Context) error {
	wait, err := time.ParseDuration(c.Wait)
	if err != nil || wait <= 0 {
		return errand.Invalid("--wait", "%q is not a duration such as 90s", c.Wait)
	}
	if err := c.check(); err != nil {
		return err
	}
	runner, err := c.runner()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "errand-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// Passable, not readable: as root the embedded PostgreSQL runs as another user, whose folder lies below.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	logFile, err := os.Create(filepath.Join(dir, "errand.log"))
	if err != nil {
		return err
	}
	defer logFile.Close()
	var log io.Writer = logFile
	if c.LogLevel == "debug" {
		log = os.Stderr
	}
	d := &demo{dir: dir, out: os.Stdout, runner: runner, listen: c.Listen, log: c.logger(log), wait: wait}
	s, err := d.run(ctx, c.Once)
	if err != nil {
		if ctx.Err() != nil && !c.Once {
			return nil // interrupted, as it should be
		}
		return err
	}
	if c.Once {
		line, err := json.Marshal(s)
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return nil
}

// runner finds the built runner, which the demo starts as the workflow would.
func (c demoCmd) runner() (string, error) {
	path := c.Runner
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(self), "errand-runner")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		return "", errand.Invalid("--runner", "there is no program %s: build it with `make build`, or name it", path)
	}
	return path, nil
}

// demo is one showing of the whole path.
type demo struct {
	dir    string
	out    io.Writer
	runner string
	listen string
	log    logger
	wait   time.Duration
	begun  time.Time
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.2fs  %s\n", time.Since(d.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) run(ctx context.Context, once bool) (s summary, err error) {
	d.begun = time.Now()
	shop, err := newShop(ctx, filepath.Join(d.dir, "shop"))
	if err != nil {
		return s, err
	}
	d.say("the sample application stands in %s", shop.dir)
	if err := shop.test(ctx, shop.dir); err == nil {
		return s, errors.New("the sample's own test passes before the fix, so a green test afterwards would show nothing")
	}
	d.say("its own test is red: go test ./checkout")

	w, err := newWorld(ctx, d)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	d.say("a GitHub to run against listens at %s, a scripted model at %s", w.sim.URL(), w.modelURL)
	p, err := startPlane(ctx, d, w)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	d.say("the control plane listens at %s; its embedded PostgreSQL is up and migrated", p.url)
	if err := p.setUp(ctx, w, shop); err != nil {
		return s, err
	}
	d.say("organisation demo: repository octo-demo/shop, a Sentry source, one mapping (%s -> the repository)", shop.stackRoot())

	crash, err := shop.crash(ctx)
	if err != nil {
		return s, err
	}
	d.say("crash: %s: %s, in %s line %d", crash.Type, crash.Value, crash.last().AbsPath, crash.last().Line)
	delivery := sentryAlert(crash, time.Now())
	answer, err := p.deliver(ctx, delivery)
	if err != nil {
		return s, err
	}
	d.say("Sentry's alert is delivered, signed: %d bytes with source lines and variables; the answer: %s", len(delivery), answer)

	issue, run, err := p.follow(ctx, d)
	if err != nil {
		return s, errors.Join(err, w.explain())
	}
	if s, err = p.summarise(ctx, d, issue, run); err != nil {
		return s, errors.Join(err, w.explain())
	}
	if err := w.proof(ctx, d, shop, s); err != nil {
		return s, err
	}
	if once {
		return s, nil
	}
	link, err := p.signInLink(ctx)
	if err != nil {
		return s, err
	}
	fmt.Fprintf(d.out, "\nThe console, signed in once by this link:\n  %s\nStays up until interrupted (Ctrl-C).\n", link)
	select {
	case <-ctx.Done():
		return s, nil
	case err := <-p.ended:
		return s, err
	}
}
