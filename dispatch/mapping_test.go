package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// B10: every way in which SDKs and bundlers spell a path, and the one form in which they are compared.
func TestB10_PathDialects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"/srv/app/cart.py", "/srv/app/cart.py"},
		{"/srv//app/./x/../cart.py", "/srv/app/cart.py"},
		{"app:///a.js", "a.js"},
		{"app:///src/a.js", "src/a.js"},
		{`C:\x\y.js`, "/x/y.js"},
		{"d:/x/y.js", "/x/y.js"},
		{`\\host\share\y.cs`, "/host/share/y.cs"},
		{`..\..\src\z.ts`, "src/z.ts"},
		{"../../../src/z.ts", "src/z.ts"},
		{"src/../../z.ts", "z.ts"},
		{"/../etc/passwd", "/etc/passwd"},
		{"~/static/app.js", "static/app.js"},
		{"./src/a.ts", "src/a.ts"},
		{"src/a.ts", "src/a.ts"},
		{"webpack:///./src/a.ts?4f2a", "src/a.ts"},
		{"webpack://shop/./src/a.ts", "src/a.ts"},
		{"webpack-internal:///(rsc)/./src/a.ts", "src/a.ts"},
		{"webpack-internal:///(app-pages-browser)/./(group)/a.ts", "(group)/a.ts"},
		{"webpack-internal:///./(group)/a.ts", "(group)/a.ts"},
		{"turbopack:///[project]/src/a.ts", "src/a.ts"},
		{"file:///srv/app/a.py", "/srv/app/a.py"},
		{"file:///C:/app/a.cs", "/app/a.cs"},
		{"https://Example.com/static/a.js?v=1#x", "//example.com/static/a.js"},
		{"node:internal/timers", "node:internal/timers"},
		{"", ""},
		{"  ", ""},
		{"://x", ":/x"},
	} {
		if got := parsePath(tt.in).String(); got != tt.want {
			t.Errorf("%q is read as %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestARootPrefixesByWholeComponents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		root, path, rest string
		ok               bool
	}{
		{"/srv/app", "/srv/app/cart.py", "cart.py", true},
		{"/srv/app/", "/srv/app/cart.py", "cart.py", true},
		{"/srv/app", "/srv/application/cart.py", "", false},
		{"/srv/app", "srv/app/cart.py", "", false},
		{"srv/app", "/srv/app/cart.py", "", false},
		{"app:///", "app:///a.js", "a.js", true},
		{"app:///", "~/a.js", "a.js", true},
		{"app:///", "/srv/a.js", "", false},
		{"/", "/srv/a.js", "srv/a.js", true},
		{`C:\app`, `C:\app\Cart.cs`, "Cart.cs", true},
		{"./src", "webpack:///./src/a.ts", "a.ts", true},
		{"https://a.example/static", "https://a.example/static/x.js", "x.js", true},
		{"https://a.example/static", "https://b.example/static/x.js", "", false},
		{"/static", "https://b.example/static/x.js", "x.js", true},
		{"/srv/App", "/srv/app/cart.py", "", false},
	} {
		rest, ok := parsePath(tt.path).under(parsePath(tt.root))
		if ok != tt.ok || strings.Join(rest, "/") != tt.rest {
			t.Errorf("%q under %q: %q, %v", tt.path, tt.root, rest, ok)
		}
	}
}

var yes, no = true, false

// rule numbers its repository after its position unless told otherwise.
func rule(position int32, change func(*store.Mapping)) store.Mapping {
	m := store.Mapping{
		ID: errand.ID(fmt.Sprint("rule-", position)), Position: position, WorkflowFile: "errand.yml",
		RepositoryID: errand.ID(fmt.Sprint("repo-", position)),
	}
	change(&m)
	return m
}

func root(position int32, stack, source string) store.Mapping {
	return rule(position, func(m *store.Mapping) { m.StackRoot, m.SourceRoot = stack, source })
}

// crash makes an event of one exception, oldest frame first.
func crash(frames ...errand.Frame) *errand.Event {
	return &errand.Event{Exceptions: []errand.Exception{{Type: "Boom", Frames: frames}}}
}

func file(name string) errand.Frame { return errand.Frame{Filename: name, InApp: &yes} }

func TestMapping(t *testing.T) {
	t.Parallel()
	source := errand.ID("source-a")
	for _, tt := range []struct {
		says  string
		rules []store.Mapping
		event *errand.Event
		gate  errand.Gate
		rule  int32
		path  string
	}{
		{"B9 only a matching root maps", []store.Mapping{root(1, "/opt/other", ""), root(2, "/srv/app", "src")}, crash(file("/srv/app/cart.py")), errand.GateOK, 2, "src/cart.py"},
		{"B9 no root matches, so none maps", []store.Mapping{root(1, "/opt/other", ""), root(2, "/srv/appl", "")}, crash(file("/srv/app/cart.py")), errand.GateNoMapping, 0, ""},
		{"B9 the longest root wins", []store.Mapping{root(1, "/srv", ""), root(2, "/srv/app/lib", "lib"), root(3, "/srv/app", "")}, crash(file("/srv/app/lib/x.py")), errand.GateOK, 2, "lib/x.py"},
		{"two equal roots are ambiguous", []store.Mapping{root(1, "/srv/app", ""), root(2, "/srv/app/", "")}, crash(file("/srv/app/x.py")), errand.GateAmbiguous, 0, ""},
		{"two equal roots to one place are one", []store.Mapping{root(2, "/srv/app", ""), rule(1, func(m *store.Mapping) { m.StackRoot, m.RepositoryID = "/srv/app/", "repo-2" })}, crash(file("/srv/app/x.py")), errand.GateOK, 1, "x.py"},
		{"of equal roots the one with more conditions wins", []store.Mapping{root(1, "/srv/app", ""), rule(2, func(m *store.Mapping) { m.StackRoot, m.Project = "/srv/app", "shop" })}, crash(file("/srv/app/x.py")), errand.GateOK, 2, "x.py"},
		{"B8 a bare file name is tried by its absolute path", []store.Mapping{root(1, "/src/App", "App")}, crash(errand.Frame{Filename: "Program.cs", AbsPath: "/src/App/Program.cs", InApp: &yes}), errand.GateOK, 1, "App/Program.cs"},
		{"B8 a bare file name alone is never guessed", []store.Mapping{root(1, "/src/App", "App")}, crash(file("Program.cs")), errand.GateMappingUnknown, 0, ""},
		{"a relative file name is also tried by its absolute path", []store.Mapping{root(1, "/srv", "")}, crash(errand.Frame{Filename: "app/x.py", AbsPath: "/srv/app/x.py", InApp: &yes}), errand.GateOK, 1, "app/x.py"},
		{"Java maps by module", []store.Mapping{rule(1, func(m *store.Mapping) { m.ModulePrefix = "com.example.shop" })}, crash(errand.Frame{Filename: "Cart.java", Module: "com.example.shop.Cart$Item", InApp: &yes}), errand.GateOK, 1, ""},
		{"a module prefix holds by whole components", []store.Mapping{rule(1, func(m *store.Mapping) { m.ModulePrefix = "com.example.sh" })}, crash(errand.Frame{Filename: "Cart.java", Module: "com.example.shop.Cart", InApp: &yes}), errand.GateNoMapping, 0, ""},
		{"a path outranks a module", []store.Mapping{rule(1, func(m *store.Mapping) { m.ModulePrefix = "a.b.c.d" }), root(2, "/srv", "")}, crash(errand.Frame{Filename: "/srv/x.py", Module: "a.b.c.d", InApp: &yes}), errand.GateOK, 2, "x.py"},
		{"a rule with both needs both", []store.Mapping{rule(1, func(m *store.Mapping) { m.ModulePrefix, m.StackRoot = "z", "/srv" })}, crash(errand.Frame{Filename: "/srv/x.py", Module: "a", InApp: &yes}), errand.GateNoMapping, 0, ""},
		{"the frame nearest the crash decides", []store.Mapping{root(1, "/srv/lib", ""), root(2, "/srv/app", "")}, crash(file("/srv/lib/a.py"), file("/srv/app/b.py")), errand.GateOK, 2, "b.py"},
		{"an ambiguity nearest the crash is not evaded further out", []store.Mapping{root(1, "/srv/lib", ""), root(2, "/srv/app", ""), root(3, "/srv/app", "")}, crash(file("/srv/lib/a.py"), file("/srv/app/b.py")), errand.GateAmbiguous, 0, ""},
		{"a frame outside the application is not asked", []store.Mapping{root(1, "/usr/lib", ""), root(2, "/srv", "")}, crash(file("/srv/a.py"), errand.Frame{Filename: "/usr/lib/x.py", InApp: &no}), errand.GateOK, 2, "a.py"},
		{"a frame of which it is not known is asked last", []store.Mapping{root(1, "/usr/lib", ""), root(2, "/srv", "")}, crash(file("/srv/a.py"), errand.Frame{Filename: "/usr/lib/x.py"}), errand.GateOK, 2, "a.py"},
		{"but it is asked", []store.Mapping{root(1, "/usr/lib", "")}, crash(file("/srv/a.py"), errand.Frame{Filename: "/usr/lib/x.py"}), errand.GateOK, 1, "x.py"},
		{"all frames outside the application", []store.Mapping{root(1, "/usr/lib", "")}, crash(errand.Frame{Filename: "/usr/lib/x.py", InApp: &no}), errand.GateNoMapping, 0, ""},
		{"B1 frames of null map nothing", []store.Mapping{root(1, "/", "")}, crash(), errand.GateNoStack, 0, ""},
		{"B1 an event without exceptions maps nothing", []store.Mapping{root(1, "/", "")}, &errand.Event{Primary: -1}, errand.GateNoStack, 0, ""},
		{"no event at all", []store.Mapping{root(1, "/", "")}, nil, errand.GateNoStack, 0, ""},
		{"a project rule holds where there is no stack", []store.Mapping{root(1, "/", ""), rule(2, func(m *store.Mapping) { m.Project = "shop" })}, crash(), errand.GateOK, 2, ""},
		{"a project rule holds where frames cannot be placed", []store.Mapping{root(1, "/srv", ""), rule(2, func(m *store.Mapping) { m.SourceID = &source })}, crash(file("Program.cs")), errand.GateOK, 2, ""},
		{"a frame rule stands above a project rule", []store.Mapping{rule(1, func(m *store.Mapping) { m.Project, m.SourceID = "shop", &source }), root(2, "/srv", "")}, crash(file("/srv/a.py")), errand.GateOK, 2, "a.py"},
		{"a rule that asks for nothing maps nothing", []store.Mapping{rule(1, func(*store.Mapping) {})}, crash(file("/srv/a.py")), errand.GateNoMapping, 0, ""},
		{"another project", []store.Mapping{rule(1, func(m *store.Mapping) { m.StackRoot, m.Project = "/srv", "web" })}, crash(file("/srv/a.py")), errand.GateNoMapping, 0, ""},
		{"another environment", []store.Mapping{rule(1, func(m *store.Mapping) { m.StackRoot, m.Environment = "/srv", "staging" })}, crash(file("/srv/a.py")), errand.GateNoMapping, 0, ""},
		{"another source", []store.Mapping{rule(1, func(m *store.Mapping) { id := errand.ID("source-b"); m.StackRoot, m.SourceID = "/srv", &id })}, crash(file("/srv/a.py")), errand.GateNoMapping, 0, ""},
		{"a tag that is not there", []store.Mapping{rule(1, func(m *store.Mapping) { m.StackRoot, m.TagKey, m.TagValue = "/srv", "team", "a" })}, crash(file("/srv/a.py")), errand.GateNoMapping, 0, ""},
		{"a source root cannot lead out", []store.Mapping{root(1, "/srv", "../../etc")}, crash(file("/srv/../srv/a.py")), errand.GateOK, 1, "etc/a.py"},
		{"no rules", nil, crash(file("/srv/a.py")), errand.GateNoMapping, 0, ""},
	} {
		c := choose(tt.rules, subject{source: source, project: "shop", platform: "python", event: tt.event})
		var got int32
		if c.rule != nil {
			got = c.rule.Position
		}
		if c.gate != tt.gate || got != tt.rule || c.path != tt.path {
			t.Errorf("%s: %s, rule %d, %q; want %s, rule %d, %q", tt.says, c.gate, got, c.path, tt.gate, tt.rule, tt.path)
		}
		if (c.gate == errand.GateOK) == (c.detail != "") {
			t.Errorf("%s: detail %q", tt.says, c.detail)
		}
	}
}

// words from which paths and roots are drawn, so that they meet often.
func somePath(t *rapid.T, label string) string {
	prefix := rapid.SampledFrom([]string{"", "/", "./", "~/", "../", "app:///", "C:\\", "webpack:///./", "webpack-internal:///(rsc)/./", "https://h.example/", "file:///"}).Draw(t, label+" prefix")
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"srv", "app", "src", "a.py", "..", ".", "", "lib"}), 0, 5).Draw(t, label+" parts")
	return prefix + strings.Join(parts, rapid.SampledFrom([]string{"/", "\\"}).Draw(t, label+" separator"))
}

func someRules(t *rapid.T) []store.Mapping {
	n := int32(rapid.IntRange(0, 6).Draw(t, "rules"))
	var out []store.Mapping
	for i := range n {
		m := store.Mapping{
			ID: errand.ID(fmt.Sprint("rule-", i)), Position: i, RepositoryID: errand.ID(rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "repository")),
			Project:      rapid.SampledFrom([]string{"", "", "shop", "web"}).Draw(t, "project"),
			ModulePrefix: rapid.SampledFrom([]string{"", "", "", "app", "app.cart"}).Draw(t, "module"),
		}
		if rapid.Bool().Draw(t, "rooted") {
			m.StackRoot = somePath(t, "root")
		}
		out = append(out, m)
	}
	return out
}

func someEvent(t *rapid.T) *errand.Event {
	var frames []errand.Frame
	for range rapid.IntRange(0, 4).Draw(t, "frames") {
		frames = append(frames, errand.Frame{
			Filename: somePath(t, "filename"), AbsPath: somePath(t, "abs_path"),
			Module: rapid.SampledFrom([]string{"", "app.cart.Cart", "lib"}).Draw(t, "frame module"),
			InApp:  rapid.SampledFrom([]*bool{nil, &yes, &yes, &no}).Draw(t, "in_app"),
		})
	}
	return crash(frames...)
}

func TestTheOrderOfRulesNeverMatters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules, event := someRules(t), someEvent(t)
		s := subject{project: "shop", event: event}
		first := choose(rules, s)
		shuffled := rapid.Permutation(slices.Clone(rules)).Draw(t, "order")
		second := choose(shuffled, s)
		if first.gate != second.gate || first.path != second.path || (first.rule == nil) != (second.rule == nil) {
			t.Fatalf("%s %q and, in another order, %s %q", first.gate, first.path, second.gate, second.path)
		}
		if first.rule != nil && first.rule.ID != second.rule.ID {
			t.Fatalf("rule %s and, in another order, %s", first.rule.ID, second.rule.ID)
		}
	})
}

func TestB9_TheChosenRootAlwaysPrefixesAFrame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		event := someEvent(t)
		c := choose(someRules(t), subject{project: "shop", event: event})
		if (c.gate == errand.GateOK) != (c.rule != nil) {
			t.Fatalf("gate %s with rule %v", c.gate, c.rule)
		}
		if c.rule == nil || c.rule.StackRoot == "" {
			return
		}
		holds := false
		for _, f := range event.Exceptions[0].Frames {
			for _, s := range []string{f.Filename, f.AbsPath} {
				p := parsePath(s)
				_, under := p.under(parsePath(c.rule.StackRoot))
				holds = holds || under && !p.bare
			}
		}
		if !holds {
			t.Fatalf("the root %q prefixes no frame of %+v", c.rule.StackRoot, event.Exceptions[0].Frames)
		}
		if strings.Contains("/"+c.path+"/", "/../") || strings.HasPrefix(c.path, "/") {
			t.Fatalf("the path %q leads out", c.path)
		}
	})
}

func TestAnyStringIsReadAsAPath(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := parsePath(rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z.:/\\~()\[\]?#]{0,20}`)).Draw(t, "path"))
		for _, part := range p.parts {
			if part == "" || part == "." || part == ".." || strings.ContainsAny(part, `/\`) {
				t.Fatalf("part %q of %+v", part, p)
			}
		}
		if again := parsePath(p.String()); p.host == "" && !strings.Contains(p.String(), ":") && p.String() != "" && !strings.HasPrefix(p.String(), "~") && again.String() != p.String() {
			t.Fatalf("%q read again is %q", p, again)
		}
		moduleParts(rapid.String().Draw(t, "module"))
	})
}
