package runner

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"

	"github.com/errand-dev/errand/scrub"
)

// console writes to the job's log. GitHub reads workflow commands ("::name::") out of every line of it, so that the
// first thing printed after the masks is the command that stops all commands until a random word; every other line stands
// after it and is inert, whoever wrote its text. Secrets are masked for GitHub and taken out by us as well: masking has
// missed values before (encoded, split, printed too early).
type console struct {
	mu      sync.Mutex
	w       io.Writer
	secrets []string
	word    string // the word that lets commands through again; "" = they are let through
}

func newConsole(w io.Writer) *console { return &console{w: w} }

// mask tells GitHub and this console of secrets. It must come before anything that could print one.
func (c *console) mask(values ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resume()
	for _, v := range values {
		for line := range strings.Lines(v) {
			if line = strings.TrimSpace(line); line != "" {
				_, _ = fmt.Fprintf(c.w, "::add-mask::%s\n", escapeData(line))
				c.secrets = append(c.secrets, line)
			}
		}
	}
	c.stop()
}

// say prints one line.
func (c *console) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.word == "" {
		c.stop()
	}
	_, _ = fmt.Fprintln(c.w, c.conceal(plain(fmt.Sprintf(format, args...))))
}

// fail prints one line and makes it an annotation of the job.
func (c *console) fail(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resume()
	_, _ = fmt.Fprintf(c.w, "::error title=Errand::%s\n", escapeData(c.conceal(plain(text))))
	c.stop()
}

// close lets commands through again, for the steps that follow in the same job.
func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resume()
}

func (c *console) stop() {
	if c.word != "" {
		return
	}
	var b [16]byte
	_, _ = rand.Read(b[:])
	c.word = hex.EncodeToString(b[:])
	_, _ = fmt.Fprintf(c.w, "::stop-commands::%s\n", c.word)
}

func (c *console) resume() {
	if c.word != "" {
		_, _ = fmt.Fprintf(c.w, "::%s::\n", c.word)
		c.word = ""
	}
}

// concealed takes secrets out of text that leaves the process.
func (c *console) concealed(s string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conceal(s)
}

func (c *console) conceal(s string) string {
	for _, secret := range c.secrets {
		s = strings.ReplaceAll(s, secret, "***")
	}
	return s
}

// plain makes text fit for one line of a log: no line break, no control character, nothing hidden.
func plain(s string) string {
	s, _ = scrub.Hidden(s)
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// escapeData escapes the value of a workflow command.
func escapeData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}
