package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/errand-dev/errand"
)

// maxOutput bounds what one call may print into memory, in bytes.
const maxOutput = 256 << 20

// call is one use of the git program.
type call struct {
	args    []string
	in      io.Reader
	names   *names // takes the output; nil = kept and returned, up to maxOutput
	env     []string
	network bool // authorization is added
}

// result is how it ended. exit is 0 or what git said; errors of starting or cancelling are no result.
type result struct {
	out    []byte
	stderr string // what git printed beside its output, secrets removed, cut to 8 KiB
	exit   int
}

// config is in force for every call, on top of the private repository's own file, which holds nothing of the checkout's.
// Most of these name programs that git would start; they are turned off although nothing here could turn them on, so
// that a later git with a new source of configuration changes nothing.
func config() [][2]string {
	return [][2]string{
		{"core.hooksPath", os.DevNull},
		{"core.fsmonitor", "false"},
		{"core.attributesFile", os.DevNull},
		{"core.excludesFile", os.DevNull},
		{"core.pager", "cat"},
		{"core.askPass", ""},
		// Asked by a fetch for the refs of the checkout we borrow objects from: without this, git would start a second
		// git inside the checkout, with the checkout's configuration.
		{"core.alternateRefsCommand", "true"},
		{"core.commitGraph", "false"}, // a file of the checkout that could lie about parents
		{"core.protectHFS", "true"},   // refuse names that some file system would read as .git
		{"core.protectNTFS", "true"},
		{"core.quotePath", "true"},
		{"credential.helper", ""},
		{"gc.auto", "0"},
		{"maintenance.auto", "false"},
		{"submodule.recurse", "false"},
		{"fetch.recurseSubmodules", "false"},
		{"protocol.allow", "never"}, // ext, ssh and git among them
		{"protocol.https.allow", "always"},
		{"protocol.http.allow", "always"},
		{"protocol.file.allow", "always"},
		{"http.followRedirects", "false"}, // a token goes to the host it is for and nowhere else
	}
}

// environment is everything git sees: nothing is inherited.
func (r *Repo) environment(c call) []string {
	env := []string{
		"PATH=" + filepath.Dir(r.git) + string(os.PathListSeparator) + "/usr/local/bin:/usr/bin:/bin",
		"HOME=" + filepath.Join(r.shadow, "home"),
		"LC_ALL=C",
		"GIT_DIR=" + r.gitDir(),
		"GIT_CEILING_DIRECTORIES=" + r.shadow,
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=" + os.DevNull,
		"GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_LITERAL_PATHSPECS=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_PROTOCOL_FROM_USER=0",
		"GIT_EDITOR=false",
	}
	env = append(env, r.env...)
	env = append(env, c.env...)
	settings := config()
	if c.network {
		settings = append(settings, r.auth...)
	}
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(settings)))
	for i, kv := range settings {
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+kv[0], "GIT_CONFIG_VALUE_"+n+"="+kv[1])
	}
	return env
}

// run starts git and waits for it. It is the only place that does.
func (r *Repo) run(ctx context.Context, c call) (result, error) {
	cmd := exec.CommandContext(ctx, r.git, c.args...)
	cmd.Dir = r.shadow
	cmd.Env = r.environment(c)
	cmd.Stdin = c.in
	kept := &limited{left: maxOutput}
	cmd.Stdout = kept
	if c.names != nil {
		cmd.Stdout = c.names
	}
	said := &limited{left: 64 << 10, drop: true}
	cmd.Stderr = said
	cmd.WaitDelay = 5 * time.Second // for helpers that outlive git with its pipes open
	ownGroup(cmd)
	err := cmd.Run()
	res := result{out: kept.buf.Bytes(), stderr: r.conceal(said.buf.String())}
	if err == nil {
		return res, nil
	}
	if ctx.Err() != nil {
		return res, fmt.Errorf("git %s: %w", c.args[0], context.Cause(ctx))
	}
	// A writer that stops closes the pipe, and git then ends by signal: what the writer knows is the answer.
	if c.names != nil && c.names.truncated {
		return res, nil
	}
	if kept.over {
		return res, errand.Errorf(errand.CodeTooLarge, nil, "git %s printed more than %d bytes", c.args[0], maxOutput)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		res.exit = exit.ExitCode()
		return res, nil
	}
	return res, fmt.Errorf("git %s: %w: %s", c.args[0], err, res.stderr)
}

// out runs a call that must exit 0 and gives what it printed.
func (r *Repo) out(ctx context.Context, args ...string) ([]byte, error) {
	return r.do(ctx, call{args: args})
}

func (r *Repo) do(ctx context.Context, c call) ([]byte, error) {
	res, err := r.run(ctx, c)
	if err != nil {
		return nil, err
	}
	if res.exit != 0 {
		return nil, fmt.Errorf("git %s: exit %d: %s", c.args[0], res.exit, res.stderr)
	}
	return res.out, nil
}

// conceal takes the token out of what git printed and cuts it to a length fit for an error.
func (r *Repo) conceal(s string) string {
	for _, secret := range r.secrets {
		s = strings.ReplaceAll(s, secret, "[removed]")
	}
	s = strings.ToValidUTF8(strings.TrimSpace(s), "?")
	if len(s) > 8<<10 {
		s = strings.ToValidUTF8(s[:8<<10], "") + " [cut]"
	}
	return s
}

var errStop = errors.New("enough read")

// limited keeps what is written up to a number of bytes. More is an error, or is dropped.
type limited struct {
	buf  bytes.Buffer
	left int
	drop bool
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) <= l.left {
		l.left -= len(p)
		return l.buf.Write(p)
	}
	l.over = true
	if !l.drop {
		return 0, errStop
	}
	l.buf.Write(p[:l.left])
	l.left = 0
	return len(p), nil
}
