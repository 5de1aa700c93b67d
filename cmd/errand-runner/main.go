// Command errand-runner is the program that action.yml runs inside the customer's workflow. Everything it needs comes by
// environment (see package runner, which is all it wires) and nothing by argument.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/errand-dev/errand/runner"
)

// version is set by the release build (-ldflags "-X main.version=v1.2.3").
var version = ""

type commands struct {
	Run           struct{}         `cmd:"" help:"Carry one errand out: the action's step."`
	ReportFailure struct{}         `cmd:"" help:"Report an end that 'run' could not: the action's last step."`
	Version       kong.VersionFlag `help:"Print the version."`
}

func main() {
	var c commands
	parsed := kong.Parse(&c, kong.Name("errand-runner"), kong.Vars{"version": built()},
		kong.Description("The part of Errand that runs in your workflow. It is configured by ERRAND_* variables, as action.yml sets them."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	exit := runner.ReportFailure
	if parsed.Command() == "run" {
		exit = runner.Run
	}
	code := exit(ctx, runner.System(built()))
	stop()
	os.Exit(int(code))
}

// built is the version, or the commit that the program was built from.
func built() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "development"
}
