// Package report writes down a crash the way an error tracker's SDK sends it: frames with the lines around them and the
// variables that were at hand.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Frame is one line of the stack, oldest call first.
type Frame struct {
	Function    string         `json:"function"`
	Module      string         `json:"module"`
	Filename    string         `json:"filename"`
	AbsPath     string         `json:"abs_path"`
	Line        int            `json:"lineno"`
	InApp       bool           `json:"in_app"`
	PreContext  []string       `json:"pre_context"`
	ContextLine string         `json:"context_line"`
	PostContext []string       `json:"post_context"`
	Vars        map[string]any `json:"vars,omitempty"`
}

// Crash, deferred, turns a panic into a report in the named file, and ends the program with status 3.
func Crash(file string, vars map[string]any) {
	p := recover()
	if p == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "crashed:", p)
	if file != "" {
		body, err := json.Marshal(map[string]any{"type": fmt.Sprintf("%T", p), "value": fmt.Sprint(p), "frames": frames(vars)})
		if err == nil {
			err = os.WriteFile(file, body, 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
		}
	}
	os.Exit(3)
}

func frames(vars map[string]any) []Frame {
	pcs := make([]uintptr, 64)
	var newestFirst []Frame
	for it := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)]); ; {
		f, more := it.Next()
		if !strings.HasPrefix(f.Function, "runtime.") {
			newestFirst = append(newestFirst, frame(f, vars))
		}
		if !more {
			break
		}
	}
	oldestFirst := make([]Frame, 0, len(newestFirst))
	for i := len(newestFirst) - 1; i >= 0; i-- {
		oldestFirst = append(oldestFirst, newestFirst[i])
	}
	return oldestFirst
}

func frame(f runtime.Frame, vars map[string]any) Frame {
	slash := strings.LastIndex(f.Function, "/") + 1
	dot := slash + strings.Index(f.Function[slash:], ".")
	out := Frame{
		Function: f.Function[dot+1:], Module: f.Function[:dot], Filename: filepath.Base(f.File), AbsPath: f.File, Line: f.Line,
		InApp: strings.HasPrefix(f.Function, "example.com/shop/") || strings.HasPrefix(f.Function, "main."), Vars: vars,
	}
	src, err := os.ReadFile(f.File)
	if err != nil {
		return out
	}
	lines := strings.Split(string(src), "\n")
	if at := f.Line - 1; at >= 0 && at < len(lines) {
		out.PreContext = lines[max(at-5, 0):at]
		out.ContextLine = lines[at]
		out.PostContext = lines[at+1 : min(at+6, len(lines))]
	}
	return out
}
