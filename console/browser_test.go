package console_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
)

// chromium gives the browser's path. The test that needs one is run by `make browser` and by .ci/run, which install it
// and set ERRAND_BROWSER; then it must be there.
func chromium(t *testing.T) string {
	t.Helper()
	if os.Getenv("ERRAND_BROWSER") == "" {
		t.Skip("needs Chromium: run `make browser`")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("ERRAND_BROWSER is set and there is no chromium on the PATH: apt-get install chromium")
	return ""
}

// tab starts a browser of its own, without JavaScript: the console must not need any.
func tab(t *testing.T, path string) context.Context {
	t.Helper()
	opts := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path)) // as root it drops the sandbox by itself
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	tab, closeTab := chromedp.NewContext(alloc)
	t.Cleanup(closeTab)
	do(t, tab, "start Chromium") // before the deadline: one on the first call would bound the whole browser
	limited, cancel := context.WithTimeout(tab, 2*time.Minute)
	t.Cleanup(cancel)
	return limited
}

func do(t *testing.T, ctx context.Context, what string, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Signs in by the link and walks the pages a person walks, at both ends of the widths and in both colour schemes.
func TestInABrowserEveryPageFitsItsWindow(t *testing.T) {
	path := chromium(t)
	w := setup(t)
	w.seedSource(w.a)
	w.actions.err = &errand.Error{Code: errand.CodeConflict, Message: "the day's 25 runs are used up", Hint: "raise the daily cap, or wait until midnight (UTC)"}
	for _, view := range []struct {
		scheme        string
		width, height int64
	}{{"light", 1600, 1000}, {"dark", 1600, 1000}, {"light", 390, 844}, {"dark", 360, 780}, {"light", 1280, 900}} {
		t.Run(fmt.Sprintf("%s at %d px", view.scheme, view.width), func(t *testing.T) {
			ctx := tab(t, path)
			link, _ := w.link(w.a.org, access.Owner)
			do(t, ctx, "open the link",
				chromedp.EmulateViewport(view.width, view.height),
				withScheme(view.scheme), withoutScripts,
				chromedp.Navigate(w.server.URL+link))
			check(t, ctx, view.scheme, view.width, "sign-in")
			do(t, ctx, "sign in", chromedp.Click(chromedp.CSS("button.main")), chromedp.WaitVisible(chromedp.CSS("dl.figures")))
			for _, page := range []struct{ name, path, waitFor string }{
				{"overview", "/", "dl.figures"},
				{"issues", "/issues", "table.cards"},
				{"issue", "/issues/" + string(w.a.crash), ".frames"},
				{"issue-hostile", "/issues/" + string(w.a.hostile), ".frames"},
				{"issue-unreadable", "/issues/" + string(w.a.held), ".ledger"},
				{"runs", "/runs", "table.cards"},
				{"run", "/runs/" + string(w.a.opened), ".track"},
				{"run-failed", "/runs/" + string(w.a.failed), ".track"},
				{"run-open", "/runs/" + string(w.a.open), ".track"},
				{"sources", "/sources", "table.cards"},
				{"source", "/sources/" + string(w.a.source), "dl.facts"},
				{"not-found", "/runs/none", ".alone"},
			} {
				do(t, ctx, page.name, chromedp.Navigate(w.server.URL+page.path), chromedp.WaitVisible(chromedp.CSS(page.waitFor)))
				check(t, ctx, view.scheme, view.width, page.name)
			}
			do(t, ctx, "ask for a run that is refused", chromedp.Navigate(w.server.URL+"/issues/"+string(w.a.crash)),
				chromedp.Click(chromedp.CSS("button.main")), chromedp.WaitVisible(chromedp.CSS(".banner.bad[role=alert]")))
			check(t, ctx, view.scheme, view.width, "refused")
		})
	}
}

func withScheme(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	})
}

func withoutScripts(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
	_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	return chromedp.Void{}, err
}

// check asks the browser whether the page is wider than its window, and keeps a picture where one is asked for. The
// measuring is done from outside the page, with its own scripts off.
func check(t *testing.T, ctx context.Context, scheme string, width int64, name string) {
	t.Helper()
	content, err := chromedp.Run(ctx, chromedp.Evaluate[int64]("document.documentElement.scrollWidth"))
	if err != nil {
		t.Fatal(err)
	}
	if content > width {
		t.Errorf("%s is %d px wide in a window of %d px", name, content, width)
	}
	dir := os.Getenv("ERRAND_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, fmt.Sprintf("%s-%s-%d.png", name, scheme, width))
	if err := os.WriteFile(file, picture, 0o644); err != nil {
		t.Fatal(err)
	}
}
