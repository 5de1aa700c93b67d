package runner

import (
	"testing"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/git"
	"github.com/errand-dev/errand/wire"
)

func resolverOf(start wire.StartResponse, files ...string) *resolver {
	t := &tree{entries: map[string]git.Entry{}, folders: map[string][]string{}}
	for _, f := range files {
		t.entries[f] = git.Entry{Path: f, Mode: git.ModeFile}
	}
	return newResolver(start, t)
}

// B8, B9, B10: the frame's path, in any dialect, against the files of the repository.
func TestB8_B9_B10_AFrameIsFoundWhenExactlyOneFileFits(t *testing.T) {
	t.Parallel()
	hints := func(stack, source, base string) wire.StartResponse {
		return wire.StartResponse{StackRoot: stack, SourceRoot: source, BaseDir: base}
	}
	files := []string{"main.go", "src/App/Program.cs", "src/Other/Program.cs", "web/src/a.js", "services/pay/api/views.py", "services/cart/api/views.py", "lib/util/x.rb", "go/x.rb"}
	for name, row := range map[string]struct {
		start             wire.StartResponse
		filename, absPath string
		want              string
	}{
		"by its exact path":                                  {hints("", "", ""), "web/src/a.js", "", "web/src/a.js"},
		"by a suffix of the absolute path":                   {hints("", "", ""), "Program.cs", "/build/src/App/Program.cs", "src/App/Program.cs"},
		"not by a basename that two files have":              {hints("", "", ""), "Program.cs", "", ""},
		"by the mapping's rule":                              {hints("/opt/app", "web/src", ""), "", "/opt/app/a.js", "web/src/a.js"},
		"by the mapping's rule only on whole segments":       {hints("/opt/app", "web/src", ""), "", "/opt/application/a.js", ""},
		"not when two files share as many segments":          {hints("", "", ""), "api/views.py", "", ""},
		"by more segments than the other":                    {hints("", "", ""), "cart/api/views.py", "/x/cart/api/views.py", "services/cart/api/views.py"},
		"in the folder that the mapping names":               {hints("", "", "services/pay"), "api/views.py", "", "services/pay/api/views.py"},
		"in the app scheme":                                  {hints("", "", ""), "app:///web/src/a.js", "", "web/src/a.js"},
		"in webpack's scheme":                                {hints("", "", ""), "webpack:///./web/src/a.js?1f2e", "", "web/src/a.js"},
		"with a drive and backslashes":                       {hints("", "", ""), "", `C:\build\src\App\Program.cs`, "src/App/Program.cs"},
		"with parent segments":                               {hints("", "", ""), `..\..\web\src\a.js`, "", "web/src/a.js"},
		"below the home":                                     {hints("", "", ""), "~/web/src/a.js", "", "web/src/a.js"},
		"with a dot":                                         {hints("", "", ""), "./web/src/a.js", "", "web/src/a.js"},
		"at the root, by a basename that no other file has":  {hints("", "", ""), "main.go", "", "main.go"},
		"not at the root by a basename that is not the file": {hints("", "", ""), "a.js", "", ""},
		"not by one segment of a longer path":                {hints("", "", ""), "", "/somewhere/x.rb", ""},
		"nothing at all":                                     {hints("", "", ""), "", "", ""},
		"only dots":                                          {hints("", "", ""), "../..", "/", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := resolverOf(row.start, files...).file(errand.Frame{Filename: row.filename, AbsPath: row.absPath}); got != row.want {
				t.Errorf("%q %q: found %q, want %q", row.filename, row.absPath, got, row.want)
			}
		})
	}
}

func TestWhichFramesCount(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	event := func(inApp ...*bool) errand.Event {
		var frames []errand.Frame
		for i, a := range inApp {
			frames = append(frames, errand.Frame{Filename: []string{"src/here.go", "x/elsewhere.go"}[i%2], InApp: a})
		}
		return errand.Event{Exceptions: []errand.Exception{{Frames: frames}}}
	}
	for name, row := range map[string]struct {
		event           errand.Event
		inApp, resolved int
		wrong           bool
	}{
		"those that are marked":                             {event(&yes, &no), 1, 1, false},
		"all, when none is marked either way":               {event(nil, nil), 2, 1, false},
		"none of the unmarked when one is marked":           {event(nil, &yes), 1, 0, true},
		"none, when all are marked as not the application":  {event(&no, &no), 0, 0, false},
		"none, when there are no frames (B1)":               {event(), 0, 0, false},
		"none, when a frame names no file":                  {errand.Event{Exceptions: []errand.Exception{{Frames: []errand.Frame{{Function: "f", InApp: &yes}}}}}, 0, 0, false},
		"none of them here, and the repository is wrong so": {errand.Event{Exceptions: []errand.Exception{{Frames: []errand.Frame{{Filename: "x/y.go", InApp: &yes}}}}}, 1, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := resolverOf(wire.StartResponse{}, "src/here.go", "main.go").resolve(row.event)
			if got.InApp != row.inApp || got.Resolved != row.resolved || got.wrongRepository() != row.wrong {
				t.Errorf("%d in app, %d resolved, wrong repository %v", got.InApp, got.Resolved, got.wrongRepository())
			}
		})
	}
}

func TestF10_ABranchNameIsAlwaysAName(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]string{
		"TypeError: cart total": "errand/typeerror-cart-total-2f1f0a11",
		"--output=/x":           "errand/output-x-2f1f0a11",
		"../../main":            "errand/main-2f1f0a11",
		"":                      "errand/issue-2f1f0a11",
		"Ошибка":                "errand/issue-2f1f0a11",
		"a.lock":                "errand/a-lock-2f1f0a11",
		"x~^:?*[\\\x00\n@{}":    "errand/x-2f1f0a11",
		"one two three four five six seven eight nine ten": "errand/one-two-three-four-five-six-seven-eight-2f1f0a11",
	} {
		got := branchName(wire.StartResponse{Run: "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11", Issue: errand.Issue{Title: title}})
		if got != want {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
		if err := git.CheckRef(got); err != nil {
			t.Errorf("%q: %v", title, err)
		}
	}
}
