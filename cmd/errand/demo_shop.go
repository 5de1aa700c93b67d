package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing/fstest"
	"time"
)

//go:embed all:_sample
var sampleFiles embed.FS

//go:embed demo_scenario.yaml
var scenarioFile []byte

// shop is the sample application, written out, with a crash that is real.
type shop struct{ dir string }

// sampleFS is the sample as a repository holds it. Its go.mod has another name here, because a folder with a go.mod
// could not be embedded.
func sampleFS() (fs.FS, error) {
	root, err := fs.Sub(sampleFiles, "_sample")
	if err != nil {
		return nil, err
	}
	files := fstest.MapFS{}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(root, name)
		files[strings.TrimSuffix(name, ".txt")] = &fstest.MapFile{Data: b, Mode: 0o644}
		return err
	})
	return files, err
}

func newShop(ctx context.Context, dir string) (*shop, error) {
	files, err := sampleFS()
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return nil, fmt.Errorf("write the sample application: %w", err)
	}
	s := &shop{dir: dir}
	if out, err := s.command(ctx, dir, "go", "build", "-o", "shop.bin", ".").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the sample application: %w\n%s", err, out)
	}
	return s, nil
}

func (s *shop) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off", "GOPROXY=off")
	return cmd
}

// stackRoot is the prefix of the crash's paths that the mapping replaces by the repository's root.
func (s *shop) stackRoot() string { return s.dir }

// test runs the sample's own tests as they stand in dir.
func (s *shop) test(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := s.command(ctx, dir, "go", "test", "-count=1", "./checkout").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// crashReport is what the sample's reporter wrote.
type crashReport struct {
	Type   string           `json:"type"`
	Value  string           `json:"value"`
	Frames []map[string]any `json:"frames"`
}

type crashFrame struct {
	AbsPath string
	Line    int
}

func (c crashReport) last() crashFrame {
	f := c.Frames[len(c.Frames)-1]
	line, _ := f["lineno"].(float64)
	path, _ := f["abs_path"].(string)
	return crashFrame{AbsPath: path, Line: int(line)}
}

// crash runs the sample until it crashes, and reads the report that it leaves.
func (s *shop) crash(ctx context.Context) (crashReport, error) {
	var c crashReport
	report := filepath.Join(s.dir, "crash.json")
	cmd := s.command(ctx, s.dir, filepath.Join(s.dir, "shop.bin"), "pay", "orders/1042.json")
	cmd.Env = append(cmd.Env, "SHOP_CRASH_REPORT="+report)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 3 {
		return c, fmt.Errorf("the sample was to crash and did not: %w\n%s", err, stderr.Bytes())
	}
	b, err := os.ReadFile(report)
	if err != nil {
		return c, fmt.Errorf("the sample crashed without a report: %w", err)
	}
	if err := json.Unmarshal(b, &c); err != nil || len(c.Frames) == 0 {
		return c, fmt.Errorf("the sample's report cannot be read: %w", err)
	}
	return c, nil
}

// sourceLines are the lines of the sample's code that are long enough to be told from any other text.
func sourceLines() ([]string, error) {
	files, err := sampleFS()
	if err != nil {
		return nil, err
	}
	var lines []string
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		b, err := fs.ReadFile(files, name)
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); len(line) >= 20 && strings.Contains(line, " ") {
				lines = append(lines, line)
			}
		}
		return err
	})
	return lines, err
}
