package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/models"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/wire"
)

// The four tools. There is no shell, no network and no way to write but the last.
const (
	toolRead    = "get_file_contents"
	toolList    = "list_directory"
	toolSearch  = "search_code"
	toolPropose = "create_pull_request"
)

// Bounds of one tool's answer.
const (
	pageLines   = 400
	pageBytes   = 60_000
	lineBytes   = 2000
	listEntries = 500
	searchFiles = 20
)

// toolSet describes the tools to the model.
func toolSet() []models.Tool {
	return []models.Tool{
		{
			Name: toolRead, Description: "Read a text file of the repository. Answers numbered lines, at most 400 at a time; " +
				"ask for more with start_line. The number and the tab before each line are not part of the file.",
			Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"Path from the repository's root, with forward slashes."},"start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}`),
		},
		{
			Name: toolList, Description: "List a folder of the repository. Folders end with a slash. Use \".\" for the root.",
			Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`),
		},
		{
			Name: toolSearch, Description: "Find the files that contain a text, taken literally and on one line. Answers at most 20 file names.",
			Schema: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","minLength":1},"path":{"type":"string","description":"Search below this folder or in this file only."}},"required":["query"],"additionalProperties":false}`),
		},
		{
			Name: toolPropose, Description: "Propose the fix, once you are done looking. Each edit names a file and gives either find and replace " +
				"(find must be in the file exactly once) or content (the whole new file) or delete. The claim must name exactly the files that the " +
				"edits change, and say truthfully what was changed in each. It is checked against the real change before anybody sees it.",
			Schema: json.RawMessage(`{"type":"object","properties":{` +
				`"title":{"type":"string","minLength":1,"maxLength":200},` +
				`"body":{"type":"string","minLength":1,"description":"Markdown: what happened, the cause, the change. Add a section 'Uncertain fix' if you are not sure of the cause."},` +
				`"edits":{"type":"array","minItems":1,"items":{"type":"object","properties":{"path":{"type":"string"},"find":{"type":"string"},"replace":{"type":"string"},"content":{"type":"string"},"delete":{"type":"boolean"}},"required":["path"],"additionalProperties":false}},` +
				`"claim":{"type":"object","properties":{"summary":{"type":"string","minLength":1,"maxLength":200},"changes":{"type":"array","minItems":1,"items":{"type":"object","properties":{"path":{"type":"string"},"description":{"type":"string"},"kind":{"type":"string","enum":["edit","add","delete","rename"]},"from":{"type":"string"}},"required":["path","description"],"additionalProperties":false}}},"required":["summary","changes"],"additionalProperties":false}` +
				`},"required":["title","body","edits","claim"],"additionalProperties":false}`),
		},
	}
}

// toolbox runs the three tools that look.
type toolbox struct {
	tree  *tree
	clock errand.Clock
	rep   *reporter
}

// answer is what a tool found: the text for the model, and what is reported of it, which holds no content.
type answer struct {
	text  string
	path  string
	count int
}

// look runs one call and reports it as a step. The result is always an answer for the model.
func (b *toolbox) look(ctx context.Context, call models.ToolCall) models.ToolResult {
	started := b.clock()
	a, err := b.run(ctx, call)
	step := wire.Step{Tool: knownTool(call.Name), Path: a.path, Outcome: "ok", Count: a.count}
	result := models.ToolResult{CallID: call.ID, Content: a.text}
	var no *refusal
	switch {
	case errors.As(err, &no):
		step.Outcome, result.Content, result.IsError = "refused", no.text, true
	case err != nil:
		// The cause may name folders of this machine: the model learns only that it failed.
		step.Outcome, result.Content, result.IsError = "error", "the tool failed; try something else", true
	}
	if result.IsError {
		step.Count = 0
	}
	step.DurationMS = sinceMS(b.clock, started)
	b.rep.step(step)
	return result
}

// knownTool keeps a name of the model's own making out of the report.
func knownTool(name string) string {
	switch name {
	case toolRead, toolList, toolSearch, toolPropose:
		return name
	default:
		return "unknown"
	}
}

func (b *toolbox) run(ctx context.Context, call models.ToolCall) (answer, error) {
	switch call.Name {
	case toolRead:
		var in struct {
			Path      string `json:"path"`
			StartLine *int   `json:"start_line"`
			EndLine   *int   `json:"end_line"`
		}
		if err := decode(call.Input, &in); err != nil {
			return answer{}, err
		}
		return b.read(ctx, tidy(in.Path), in.StartLine, in.EndLine)
	case toolList:
		var in struct {
			Path string `json:"path"`
		}
		if err := decode(call.Input, &in); err != nil {
			return answer{}, err
		}
		return b.list(tidy(in.Path))
	case toolSearch:
		var in struct {
			Query string `json:"query"`
			Path  string `json:"path"`
		}
		if err := decode(call.Input, &in); err != nil {
			return answer{}, err
		}
		return b.search(ctx, in.Query, tidy(in.Path))
	default:
		return answer{}, refuse("there is no tool %q", cut(call.Name, 64))
	}
}

// decode reads a tool's input strictly; what is wrong is told to the model.
func decode(raw json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse("the input does not fit the tool: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return refuse("the input does not fit the tool: something follows the object")
	}
	return nil
}

// tidy takes away what people write round a path without meaning anything by it. The root is "".
func tidy(p string) string {
	p = strings.TrimSuffix(strings.TrimPrefix(p, "./"), "/")
	if p == "." {
		return ""
	}
	return p
}

// reportable is a path fit for a step: one that passed the fence of letters, else nothing, since a step has no place for
// text of a model's choosing.
func reportable(p string) string {
	if p == "" {
		return "."
	}
	if checkPath(p) != nil || len(p) > 1024 {
		return ""
	}
	return p
}

func (b *toolbox) read(ctx context.Context, p string, from, to *int) (answer, error) {
	a := answer{path: reportable(p)}
	content, _, err := b.tree.read(ctx, p)
	if err != nil {
		return a, err
	}
	if binary(content) {
		return a, refuse("%s is binary (%d bytes) and is not shown", p, len(content))
	}
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	if len(content) == 0 {
		a.text = p + " is empty"
		return a, nil
	}
	first, last := 1, len(lines)
	if from != nil {
		first = *from
	}
	if to != nil {
		last = min(last, *to)
	}
	if first < 1 || first > len(lines) || last < first {
		return a, refuse("%s has lines 1 to %d: lines %d to %d are not there", p, len(lines), first, last)
	}
	a.text, a.count = page(p, lines, first, last)
	return a, nil
}

// page numbers the lines first to last, as far as one answer reaches, and says how to go on.
func page(p string, lines []string, first, last int) (text string, shown int) {
	var out strings.Builder
	hidden, long := 0, 0
	n := first
	for ; n <= last && n < first+pageLines && out.Len() < pageBytes; n++ {
		line, found := scrub.Hidden(strings.TrimSuffix(lines[n-1], "\r"))
		hidden += found
		if len(line) > lineBytes {
			line = cut(line, lineBytes) + " [cut]"
			long++
		}
		fmt.Fprintf(&out, "%d\t%s\n", n, strings.ToValidUTF8(line, "\ufffd"))
	}
	head := fmt.Sprintf("%s, lines %d to %d of %d", p, first, n-1, len(lines))
	if n <= last {
		head += fmt.Sprintf("; go on with start_line %d", n)
	}
	if long > 0 {
		head += fmt.Sprintf("; %d long lines cut", long)
	}
	if hidden > 0 {
		head += fmt.Sprintf("; %d hidden characters left out", hidden)
	}
	return head + "\n" + out.String(), n - first
}

func (b *toolbox) list(p string) (answer, error) {
	a := answer{path: reportable(p)}
	names, err := b.tree.list(p)
	if err != nil {
		return a, err
	}
	var shown []string
	for _, n := range names {
		if checkPath(strings.TrimSuffix(n, "/")) == nil {
			shown = append(shown, n)
		}
	}
	a.count = len(shown)
	more := ""
	if len(shown) > listEntries {
		more = fmt.Sprintf("\n[%d more entries: list a sub-folder, or search]", len(shown)-listEntries)
		shown = shown[:listEntries]
	}
	a.text = strings.Join(shown, "\n") + more
	if a.text == "" {
		a.text = "[nothing that can be shown]"
	}
	return a, nil
}

func (b *toolbox) search(ctx context.Context, query, p string) (answer, error) {
	a := answer{path: reportable(p)}
	if query == "" || strings.ContainsAny(query, "\n\r\x00") {
		return a, refuse("give one line of text to search for")
	}
	files, more, err := b.tree.search(ctx, query, p, searchFiles)
	if err != nil {
		return a, err
	}
	a.count = len(files)
	switch {
	case len(files) == 0:
		a.text = "no file contains it"
	case more:
		a.text = strings.Join(files, "\n") + "\n[there are more: search for something rarer, or below a folder]"
	default:
		a.text = strings.Join(files, "\n")
	}
	return a, nil
}

// sinceMS is the time since t in milliseconds.
func sinceMS(clock errand.Clock, t time.Time) int64 { return clock().Sub(t).Milliseconds() }
