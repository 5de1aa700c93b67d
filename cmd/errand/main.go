// Command errand is the control plane and its tools. `errand serve` takes errors from trackers and starts runs; `errand
// demo` shows the whole path on one machine. Start reading at app.go: it is the map of the service.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/errand-dev/errand"
)

var version = "dev" // set by the linker

type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run the control plane."`
	Migrate migrateCmd `cmd:"" help:"Bring an external database up to date, as its owner, and end."`
	Admin   adminCmd   `cmd:"" help:"Set things up from the command line: sign-in links, sources, repositories, mappings."`
	Demo    demoCmd    `cmd:"" help:"Run everything on this machine: a real crash becomes a pull request."`
	Health  healthCmd  `cmd:"" help:"Ask a running server whether it is ready (for container health checks)."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

type versionCmd struct{}

func (versionCmd) Run() error { fmt.Println(version); return nil }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	var c cli
	parser, err := kong.New(&c, kong.Name("errand"), kong.Description("An error from production becomes a reviewed pull request."),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Vars{})
	if err != nil {
		return complain(err)
	}
	k, err := parser.Parse(args)
	if err != nil {
		parser.FatalIfErrorf(err)
	}
	if err := k.Run(); err != nil {
		return complain(err)
	}
	return 0
}

// complain tells a person what went wrong, a line each: the message, and not the code it travels under.
func complain(err error) int {
	for _, e := range flatten(err) {
		fmt.Fprintln(os.Stderr, "errand: "+sentence(e))
	}
	return 1
}

// sentence is what was wrong, where, and what to do.
func sentence(err error) string {
	var ours *errand.Error
	s := err.Error()
	if errors.As(err, &ours) {
		switch {
		case ours.Field != "":
			s = ours.Field + ": " + ours.Message
		case ours.Message != "":
			s = ours.Message
			if ours.Cause != nil { // what is private to a server's callers is not to its operator
				s = withCause(s, sentence(ours.Cause))
			}
		}
		if ours.Hint != "" {
			s += ": " + ours.Hint
		}
	}
	return s
}

// withCause adds the cause to a message, and says what stands in both of them once.
func withCause(message, cause string) string {
	if strings.Contains(message, cause) {
		return message
	}
	for rest := message; ; {
		_, tail, more := strings.Cut(rest, ": ")
		if !more {
			return message + ": " + cause
		}
		if strings.HasSuffix(cause, tail) {
			return strings.TrimSuffix(message, tail) + cause
		}
		rest = tail
	}
}

func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the top only: a wrapped join belongs to its wrapper
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	return []error{err}
}
