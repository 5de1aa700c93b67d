package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/scrub"
	"github.com/errand-dev/errand/webhooks"
)

// adminSource is what an operator does with sources of errors.
type adminSource struct {
	Add     adminSourceAdd     `cmd:"" help:"Add a source of errors; prints its address and, once, a generated secret."`
	List    adminSourceList    `cmd:"" help:"List the sources and how they are doing."`
	Rotate  adminSourceRotate  `cmd:"" help:"Give a source a new secret; the one before verifies for 24 hours more."`
	Disable adminSourceDisable `cmd:"" help:"Take no more deliveries of a source: its address answers 404."`
	Enable  adminSourceEnable  `cmd:"" help:"Take deliveries of a disabled source again."`
}

// withSources runs fn with the use cases of sources. A command that reads or makes no secret needs no secret key.
func (f orgFlags) withSources(ctx context.Context, keys *secretFlags, fn func(hooks *webhooks.Webhooks, org errand.ID) error) error {
	cfg := appConfig{Master: randomBytes(32)}
	if keys != nil {
		var err error
		if cfg.Master, cfg.PreviousMasters, err = keys.masters(); err != nil {
			return err
		}
	}
	sealer, err := newSealer(cfg)
	if err != nil {
		return err
	}
	return f.within(ctx, func(db *database, org errand.ID) error {
		if keys != nil {
			if err := db.CheckSeals(ctx, sealer); err != nil {
				return err
			}
		}
		hooks, err := webhooks.New(webhooks.Config{Store: db.Store, Sealer: sealer, Scrubber: scrub.New(), Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		return errors.Join(byFlag(fn(hooks, org)), hooks.Close(ctx))
	})
}

// byFlag names what is wrong in the words of whoever typed the command.
func byFlag(err error) error {
	flags := map[string]string{"kind": "--kind", "name": "--name", "secret": "--secret-file"}
	var e *errand.Error
	if !errors.As(err, &e) || flags[e.Field] == "" {
		return err
	}
	named := *e
	named.Field = flags[e.Field]
	return &named
}

type adminSourceAdd struct {
	Kind       string `name:"kind" required:"" placeholder:"KIND" help:"sentry, posthog, posthog_header (for PostHog templates that cannot sign) or generic."`
	Name       string `name:"name" required:"" help:"What people call it; no other source of the organisation may be called so."`
	SecretFile string `name:"secret-file" placeholder:"FILE" help:"File of the secret that the tracker signs with (Sentry: the integration's Client Secret); - reads standard input. Empty: one is generated, where the kind allows it."`
	PublicURL  string `name:"public-url" env:"ERRAND_PUBLIC_URL" placeholder:"URL" help:"Address of the server."`
	secretFlags
	orgFlags
}

func (c adminSourceAdd) Run(ctx context.Context) error {
	base, err := publicURL(c.PublicURL)
	if err != nil {
		return err
	}
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return err
	}
	return c.withSources(ctx, &c.secretFlags, func(hooks *webhooks.Webhooks, org errand.ID) error {
		list, err := hooks.Sources(ctx, org)
		if err != nil {
			return err
		}
		for i := range list {
			if strings.EqualFold(list[i].Name, strings.TrimSpace(c.Name)) {
				return errand.Invalid("--name", "the source %s is called %q already: choose another name, or `errand admin source rotate` if only its secret is new", list[i].ID, list[i].Name)
			}
		}
		src, err := hooks.CreateSource(ctx, org, webhooks.NewSource{Kind: c.Kind, Name: c.Name, Secret: secret})
		if err != nil {
			return err
		}
		fmt.Printf("address: %s%s\n", base, src.Path)
		if secret == "" {
			fmt.Printf("secret (shown this once): %s\n", src.Secret)
		}
		return nil
	})
}

func readSecret(file string) (string, error) {
	var b []byte
	var err error
	switch file {
	case "":
		return "", nil
	case "-":
		b, err = io.ReadAll(io.LimitReader(os.Stdin, 4096))
	default:
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return "", errand.Invalid("--secret-file", "cannot be read: %v", err)
	}
	if s := strings.TrimSpace(string(b)); s != "" {
		return s, nil
	}
	return "", errand.Invalid("--secret-file", "%s is empty", file)
}

// pickSource finds a source by its name or its id.
func pickSource(ctx context.Context, hooks *webhooks.Webhooks, org errand.ID, nameOrID string) (webhooks.SourceState, error) {
	list, err := hooks.Sources(ctx, org)
	if err != nil {
		return webhooks.SourceState{}, err
	}
	var found []webhooks.SourceState
	for i := range list {
		if string(list[i].ID) == nameOrID || list[i].Name == nameOrID {
			found = append(found, list[i])
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return webhooks.SourceState{}, notOne(nameOrID, list, found)
}

// notOne says why a name names no one source, and what to type instead.
func notOne(name string, all, found []webhooks.SourceState) error {
	var words []string
	switch {
	case len(found) > 0:
		for i := range found {
			words = append(words, fmt.Sprintf("%s (%s, since %s)", found[i].ID, found[i].Kind, found[i].CreatedAt.UTC().Format(time.DateOnly)))
		}
		return errand.Invalid("source", "%d sources are called %q; say which by its id: %s", len(found), name, strings.Join(words, ", "))
	case len(all) == 0:
		return errand.Invalid("source", "there is no %q, nor any other source: `errand admin source add` makes one", name)
	}
	for i := range all {
		words = append(words, fmt.Sprintf("%q", all[i].Name))
	}
	slices.Sort(words)
	return errand.Invalid("source", "there is no %q; there are %s", name, strings.Join(slices.Compact(words), ", "))
}

type adminSourceList struct {
	JSON bool `name:"json" help:"Print JSON."`
	orgFlags
}

// sourceLine is one source as `source list --json` prints it. A time that is null was never.
type sourceLine struct {
	ID           errand.ID  `json:"id"`
	Kind         string     `json:"kind"`
	Name         string     `json:"name"`
	Path         string     `json:"path"`
	CreatedAt    time.Time  `json:"created_at"`
	DisabledAt   *time.Time `json:"disabled_at"`
	OverlapUntil *time.Time `json:"previous_secret_until"`
	LastReceived *time.Time `json:"last_received_at"`
	Accepted     int64      `json:"accepted"`
	Ignored      int64      `json:"ignored"`
	Rejected     int64      `json:"rejected"`
	Refused      int64      `json:"signature_failures"`
}

func (c adminSourceList) Run(ctx context.Context) error {
	return c.withSources(ctx, nil, func(hooks *webhooks.Webhooks, org errand.ID) error {
		list, err := hooks.Sources(ctx, org)
		if err != nil {
			return err
		}
		lines := make([]sourceLine, 0, len(list))
		for i := range list {
			s, h := &list[i], &list[i].Health
			lines = append(lines, sourceLine{
				ID: s.ID, Kind: s.Kind, Name: s.Name, Path: s.Path, CreatedAt: s.CreatedAt, DisabledAt: s.DisabledAt, OverlapUntil: s.OverlapUntil,
				LastReceived: h.LastReceived, Accepted: h.Accepted, Ignored: h.Ignored, Rejected: h.Rejected, Refused: h.Refused,
			})
		}
		if c.JSON {
			return json.NewEncoder(os.Stdout).Encode(lines)
		}
		return printSources(os.Stdout, lines)
	})
}

func printSources(w io.Writer, lines []sourceLine) error {
	if len(lines) == 0 {
		empty("There is no source yet: errand admin source add makes one.")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tKIND\tSTATE\tLAST RECEIVED\tACCEPTED\tNOT SIGNED\tADDRESS\tID")
	for _, l := range lines {
		state, last := "on", "never"
		switch {
		case l.DisabledAt != nil:
			state = "disabled"
		case l.OverlapUntil != nil:
			state = "on, old secret until " + l.OverlapUntil.UTC().Format("2006-01-02 15:04Z")
		}
		if l.LastReceived != nil {
			last = l.LastReceived.UTC().Format("2006-01-02 15:04Z")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", l.Name, l.Kind, state, last, l.Accepted, l.Refused, l.Path, l.ID)
	}
	return t.Flush()
}

// empty tells a person that a list holds nothing, and leaves standard output to the list.
func empty(sentence string) { fmt.Fprintln(os.Stderr, sentence) }

type adminSourceRotate struct {
	Source     string `arg:"" name:"source" help:"Name or id of the source."`
	SecretFile string `name:"secret-file" placeholder:"FILE" help:"File of the new secret, where the tracker makes it (Sentry); - reads standard input. Empty: one is generated, where the kind allows it."`
	Leaked     bool   `name:"leaked" help:"Take the secret before no longer, from now on."`
	secretFlags
	orgFlags
}

func (c adminSourceRotate) Run(ctx context.Context) error {
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return err
	}
	return c.withSources(ctx, &c.secretFlags, func(hooks *webhooks.Webhooks, org errand.ID) error {
		found, err := pickSource(ctx, hooks, org, c.Source)
		if err != nil {
			return err
		}
		src, err := hooks.RotateSecret(ctx, org, found.ID, secret)
		if err != nil {
			return err
		}
		if secret == "" {
			fmt.Printf("secret (shown this once): %s\n", src.Secret)
		}
		if c.Leaked {
			fmt.Println("the secret before is taken no longer")
			return hooks.ForgetPreviousSecret(ctx, org, found.ID)
		}
		fmt.Printf("the secret before is taken until %s\n", time.Now().Add(webhooks.Overlap).UTC().Format("2006-01-02 15:04Z"))
		return nil
	})
}

type adminSourceDisable struct {
	Source string `arg:"" name:"source" help:"Name or id of the source."`
	orgFlags
}

func (c adminSourceDisable) Run(ctx context.Context) error {
	return c.withSources(ctx, nil, func(hooks *webhooks.Webhooks, org errand.ID) error {
		found, err := pickSource(ctx, hooks, org, c.Source)
		if err != nil {
			return err
		}
		return hooks.DisableSource(ctx, org, found.ID)
	})
}

type adminSourceEnable struct {
	Source string `arg:"" name:"source" help:"Name or id of the source."`
	orgFlags
}

func (c adminSourceEnable) Run(ctx context.Context) error {
	return c.withSources(ctx, nil, func(hooks *webhooks.Webhooks, org errand.ID) error {
		found, err := pickSource(ctx, hooks, org, c.Source)
		if err != nil {
			return err
		}
		return hooks.EnableSource(ctx, org, found.ID)
	})
}
