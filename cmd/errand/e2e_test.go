package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// The tests of this file drive the built programs from outside, as an operator, a tracker and GitHub would.

var built struct{ errand, runner string }

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "errand-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.errand, built.runner = filepath.Join(dir, "errand"), filepath.Join(dir, "errand-runner")
	code := 1
	for out, pkg := range map[string]string{built.errand: ".", built.runner: "../errand-runner"} {
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Stderr = os.Stderr
		if err = cmd.Run(); err != nil {
			break
		}
	}
	if err == nil {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// oneRunOnePullRequest waits for the end and holds that exactly one of each took effect.
func (h *house) oneRunOnePullRequest() {
	h.t.Helper()
	var list []store.Run
	h.await("the run to end", func() bool {
		list = h.runs()
		return len(list) > 0 && list[len(list)-1].State.Ended()
	})
	if len(list) != 1 || list[0].State != errand.PROpened {
		h.t.Fatalf("runs: %+v\n%v\n%s", list, h.world.explain(), tail(h.log.String(), 6000))
	}
	prs := h.world.sim.PullRequests()
	if len(prs) != 1 || prs[0].URL != list[0].PRURL || prs[0].Head != list[0].Branch {
		h.t.Errorf("pull requests %+v; the run says %s on %s", prs, list[0].PRURL, list[0].Branch)
	}
	if runs := h.world.sim.Runs(); len(runs) != 1 {
		h.t.Errorf("GitHub started %d workflow runs, want one: %+v", len(runs), runs)
	}
	if v := h.world.violations(); len(v) > 0 {
		h.t.Errorf("violations: %v", v)
	}
}

// kill -9 at each point where something has been promised and not yet written down everywhere.
func TestKillNineAtEachPointLosesNothingAndDoesNothingTwice(t *testing.T) {
	t.Parallel()
	isDispatch := func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/dispatches")
	}
	for _, point := range []struct {
		name string
		arm  func(h *house, kill func())
		now  bool // kill as soon as the delivery is answered
	}{
		{name: "after the delivery's commit", now: true, arm: func(h *house, _ func()) {
			// Nothing reaches GitHub before the kill, so that it is this point and no later one.
			h.github.stepIn(func(*http.Request) bool { return true }, nil)
		}},
		{name: "in dispatching, before GitHub accepted", arm: func(h *house, kill func()) {
			h.github.stepIn(func(r *http.Request) bool {
				if isDispatch(r) {
					kill()
					return true
				}
				return false
			}, nil)
		}},
		{name: "in dispatching, after GitHub accepted", arm: func(h *house, kill func()) {
			h.github.stepIn(nil, func(resp *http.Response) bool {
				if isDispatch(resp.Request) {
					kill()
					return true
				}
				return false
			})
		}},
		{name: "after the exchange, its answer lost", arm: func(h *house, kill func()) {
			h.public.stepIn(nil, func(resp *http.Response) bool {
				if strings.HasSuffix(resp.Request.URL.Path, "/runner/v1/exchange") {
					kill()
					return true
				}
				return false
			})
		}},
		{name: "after the pull request, before its result", arm: func(h *house, kill func()) {
			h.public.stepIn(func(r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/runner/v1/result") {
					kill()
					return true
				}
				return false
			}, nil)
		}},
	} {
		t.Run(point.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			killed := make(chan struct{})
			var once sync.Once
			kill := func() { once.Do(func() { h.kill(); close(killed) }) }
			point.arm(h, kill)
			body := h.crash()
			if status, answer := h.deliver(body); status != http.StatusAccepted || answer["outcome"] != "accepted" {
				t.Fatalf("the delivery: %d %v", status, answer)
			}
			if point.now {
				kill()
			}
			select {
			case <-killed:
			case <-time.After(60 * time.Second):
				t.Fatalf("the point was never reached\n%v\n%s", h.world.explain(), tail(h.log.String(), 6000))
			}
			h.github.stepIn(nil, nil)
			h.public.stepIn(nil, nil)
			h.start()
			h.oneRunOnePullRequest()
			if status, answer := h.deliver(body); status != http.StatusAccepted || answer["outcome"] != "duplicate" {
				t.Errorf("the same delivery after the restart: %d %v", status, answer)
			}
		})
	}
}

// After a whole run no line of the sample's source stands anywhere in the control plane's database.
func TestTheControlPlaneKeepsNoSourceLine(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	body := h.crash()
	lines, err := sourceLines()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < 40 || !bytes.Contains(body, []byte("return (shipping + parcels - 1) / parcels")) || !bytes.Contains(body, []byte("gift card for Robin")) {
		t.Fatalf("%d lines: the delivery must hold source lines and variables, or this test shows nothing", len(lines))
	}
	h.deliver(body)
	h.oneRunOnePullRequest()
	dump, rows := h.dump()
	if rows < 20 || !strings.Contains(dump, "integer divide by zero") {
		t.Fatalf("dumped %d rows: not the database of this run", rows)
	}
	for _, line := range append(lines, "gift card for Robin", "robin@example.com", "203.0.113.9") {
		if strings.Contains(dump, line) {
			t.Errorf("the database holds %q", line)
		}
	}
}

// The same delivery, fifty times at once, through the real server.
func TestFiftyDeliveriesAtOnceMakeOneIssueAndOneRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	body := h.crash()
	var wg sync.WaitGroup
	outcomes := make([]string, 50)
	for i := range outcomes {
		wg.Go(func() {
			_, text, err := postSentry(context.Background(), h.hook, h.secret, body)
			var answer map[string]string
			if err == nil {
				err = json.Unmarshal([]byte(text), &answer)
			}
			if err != nil {
				answer = map[string]string{"outcome": err.Error() + " " + text}
			}
			outcomes[i] = answer["outcome"]
		})
	}
	wg.Wait()
	count := map[string]int{}
	for _, o := range outcomes {
		count[o]++
	}
	if count["accepted"] != 1 || count["duplicate"] != 49 {
		t.Errorf("outcomes %v, want one accepted and 49 duplicates", count)
	}
	h.oneRunOnePullRequest()
}

func TestDemoOnceEndsWithOneJSONObject(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(built.errand, "demo", "--once", "--runner", built.runner)
	cmd.Env = withoutErrand(os.Environ())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.Bytes())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	dec := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	dec.DisallowUnknownFields()
	var s summary
	if err := dec.Decode(&s); err != nil {
		t.Fatalf("%s: %v", lines[len(lines)-1], err)
	}
	if s.State != errand.PROpened || s.Run == "" || s.Issue == "" || s.PullRequest == "" || !strings.HasPrefix(s.Branch, "errand/") ||
		len(s.Files) != 1 || s.Tokens["input"] == 0 || s.Tokens["output"] == 0 || s.CostUSD == nil || *s.CostUSD == "0.0000" || s.DurationMS <= 0 {
		t.Errorf("%+v", s)
	}
}

// An interrupted demo leaves neither a folder nor a process.
func TestAnInterruptedDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	tmp, err := os.MkdirTemp("", "errand-demo-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tmp, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	cmd := exec.Command(built.errand, "demo", "--runner", built.runner)
	cmd.Env = append(withoutErrand(os.Environ()), "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	link := make(chan string, 1)
	go func() {
		var seen []byte
		buf := make([]byte, 4096)
		for {
			n, err := out.Read(buf)
			seen = append(seen, buf[:n]...)
			if bytes.Contains(seen, []byte("/sign-in?token=")) || err != nil {
				link <- string(seen)
				_, _ = io.Copy(io.Discard, out)
				return
			}
		}
	}()
	select {
	case text := <-link:
		if !strings.Contains(text, "/sign-in?token=") {
			t.Errorf("no sign-in link:\n%s", text)
		}
	case <-time.After(90 * time.Second):
		t.Error("no sign-in link in time")
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("an interrupted demo ends with %v, want success", err)
	}
	left, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.Name() != "go-build" && !strings.HasPrefix(e.Name(), "go-build") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

// Under another secret key the source's secret cannot be opened, and every delivery would fail: the start is refused, and
// with the former key named it is not. Beside it, what an operator changes from the shell.
func TestAnOperatorIsToldAndCanMendIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if out := h.admin("limits", "--daily-cap", "3", "--cooldown", "1h"); !strings.Contains(out, "daily cap 3  cooldown 1h0m0s  max age 336h0m0s") {
		t.Errorf("limits: %s", out)
	}
	h.admin("mapping", "add", "--repository", demoOwner+"/"+demoRepo, "--source", "Sentry")
	h.kill()
	former := ""
	for i, e := range h.env {
		if k, v, _ := strings.Cut(e, "="); k == "ERRAND_SECRET_KEY" {
			former = v
			h.env[i] = k + "=" + base64.StdEncoding.EncodeToString(randomBytes(32))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, built.errand, "serve")
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "errand: ERRAND_SECRET_KEY: the secrets of 1 sources are sealed under another key") {
		t.Fatalf("under another key: %v\n%s", err, tail(string(out), 2000))
	}
	h.env = append(h.env, "ERRAND_PREVIOUS_SECRET_KEY="+former)
	h.start()
	if status, answer := h.deliver(h.crash()); status != http.StatusAccepted {
		t.Errorf("with the former key named: %d %v", status, answer)
	}
}

// An admin command in the wrong folder must not make a second database.
func TestAdminNeverMakesADatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(built.errand, "admin", "mapping", "list")
	cmd.Env, cmd.Dir = withoutErrand(os.Environ()), dir
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "errand: ERRAND_DATA_DIR: there is no database in") {
		t.Errorf("%v\n%s", err, out)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it made %s", left[0].Name())
	}
}

func TestServeRefusesToStartWithoutWhatKeepsItSafe(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"ERRAND_PUBLIC_URL": "https://errand.example.com", "ERRAND_SECRET_KEY": base64.StdEncoding.EncodeToString(randomBytes(32)),
		"ERRAND_GITHUB_APP_ID": "1", "ERRAND_GITHUB_PRIVATE_KEY": "none",
	}
	for _, c := range []struct{ name, variable, value, says string }{
		{"no secret key", "ERRAND_SECRET_KEY", "", "openssl rand -base64 32"},
		{"a short secret key", "ERRAND_SECRET_KEY", "c2hvcnQ=", "want 32"},
		{"a secret key that is not random", "ERRAND_SECRET_KEY", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 32)), "not random"},
		{"a secret key that is not base64", "ERRAND_SECRET_KEY", "!!!", "not base64"},
		{"no public address", "ERRAND_PUBLIC_URL", "", "https://errand.example.com"},
		{"a public address in the clear", "ERRAND_PUBLIC_URL", "http://errand.example.com", "not https"},
		{"no private key", "ERRAND_GITHUB_PRIVATE_KEY", "", "ERRAND_GITHUB_PRIVATE_KEY_FILE"},
		{"a private key that is none", "ERRAND_GITHUB_PRIVATE_KEY", "-----BEGIN-----", "errand: ERRAND_GITHUB_PRIVATE_KEY:"},
		{"no App", "ERRAND_GITHUB_APP_ID", "", "errand: ERRAND_GITHUB_APP_ID: is not set"},
		{"proxies that are no networks", "ERRAND_TRUSTED_PROXIES", "everybody", "10.0.0.0/8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(built.errand, "serve")
			cmd.Env = withoutErrand(os.Environ())
			for k, v := range good {
				if k != c.variable {
					cmd.Env = append(cmd.Env, k+"="+v)
				}
			}
			cmd.Env = append(cmd.Env, c.variable+"="+c.value)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("%v\n%s", err, out)
			}
			if !strings.Contains(string(out), c.says) {
				t.Errorf("says %s", out)
			}
		})
	}
}
