package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
	"github.com/errand-dev/errand/dispatch"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/runs"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/transitions"
	"github.com/errand-dev/errand/webhooks"
)

// adminCmd is what an operator does from a shell on the server's machine; whoever can read its database and secret key
// may do all of it. It joins the embedded PostgreSQL of a running server, or starts it for the length of the command.
type adminCmd struct {
	SignInLink adminSignInLink `cmd:"" help:"Print a link that signs an owner in once, within 15 minutes."`
	Connect    adminConnect    `cmd:"" help:"Bind a GitHub installation to an organisation and take up its repositories."`
	Source     adminSource     `cmd:"" help:"Sources of errors."`
	Mapping    struct {
		Add    adminMappingAdd    `cmd:"" help:"Add a rule that says which repository an error belongs to."`
		List   adminMappingList   `cmd:"" help:"List the rules, in their order."`
		Remove adminMappingRemove `cmd:"" help:"Remove a rule by its number in the list."`
	} `cmd:"" help:"Which repository an error belongs to."`
	Mode   adminMode   `cmd:"" help:"Set an organisation, or one repository, to active, observe (decide, start nothing) or paused."`
	Limits adminLimits `cmd:"" help:"Show the limits under which runs start, and change those that are given."`
	Policy adminPolicy `cmd:"" help:"Show what else decisions rest on (environments, incidents, open fixes, money), and change what is given."`

	Exchange adminExchange `cmd:"" help:"Show what a workflow must bring for its run token, and change what is given."`
}

type orgFlags struct {
	Org string `name:"org" env:"ERRAND_ORGANISATION" default:"default" placeholder:"SLUG" help:"The organisation."`
	databaseFlags
}

// within runs fn for the organisation on an open database.
func (f orgFlags) within(ctx context.Context, fn func(db *database, org errand.ID) error) error {
	db, err := f.open(ctx, slog.New(slog.DiscardHandler), true)
	if err != nil {
		return err
	}
	org, err := db.LookupOrganisation(ctx, f.Org)
	if errand.CodeOf(err) == errand.CodeNotFound {
		err = errand.Invalid("--org", "there is no organisation %q: `errand serve` makes the first one", f.Org)
	}
	if err == nil {
		err = fn(db, org)
	}
	return errors.Join(err, db.close())
}

type adminSignInLink struct {
	PublicURL string `name:"public-url" env:"ERRAND_PUBLIC_URL" placeholder:"URL" help:"Address of the server."`
	orgFlags
}

func (c adminSignInLink) Run(ctx context.Context) error {
	base, err := publicURL(c.PublicURL)
	if err != nil {
		return err
	}
	return c.within(ctx, func(db *database, org errand.ID) error {
		a, err := access.New(access.Config{Store: db.Store, Clock: time.Now, PublicURL: base, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		var members []store.ListMembersRow
		err = db.InTx(ctx, org, func(tx *store.Tx) error { members, err = tx.ListMembers(ctx); return err })
		if err != nil {
			return err
		}
		for _, m := range members {
			if m.Role != "owner" {
				continue
			}
			link, err := a.NewSignInLink(ctx, org, m.ID)
			if err == nil {
				fmt.Println(link)
			}
			return err
		}
		return errand.Invalid("--org", "%q has no owner", c.Org)
	})
}

type adminConnect struct {
	Installation int64 `name:"installation" required:"" placeholder:"ID" help:"Number of the installation: the last part of its settings page's address."`
	githubFlags
	orgFlags
}

func (c adminConnect) Run(ctx context.Context) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	gh, err := github.New(cfg)
	if err != nil {
		return err
	}
	return c.within(ctx, func(db *database, org errand.ID) error {
		d, err := setUpOnly(db, gh)
		if err != nil {
			return err
		}
		repos, err := d.Connect(ctx, org, c.Installation)
		for _, r := range repos {
			fmt.Printf("%s/%s (default branch %s)\n", r.Owner, r.Name, r.DefaultBranch)
		}
		return err
	})
}

// setUpOnly is dispatch without what starts runs.
func setUpOnly(db *database, gh *github.App) (*dispatch.Dispatch, error) {
	policy, err := transitions.RunPolicy()
	if err != nil {
		return nil, err
	}
	return dispatch.New(dispatch.Config{
		Store: db.Store, Runs: runs.New(policy, time.Now), GitHub: gh, Tickets: noTickets{}, Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
}

type noTickets struct{}

func (noTickets) Ticket(errand.ID, int, time.Time) (string, error) {
	return "", errors.New("an admin command starts no run")
}

type adminMappingAdd struct {
	Repository   string `name:"repository" required:"" placeholder:"OWNER/NAME" help:"Where such errors are mended."`
	Source       string `name:"source" placeholder:"NAME" help:"Only errors of this source, by its name or id."`
	StackRoot    string `name:"stack-root" placeholder:"PREFIX" help:"Prefix of the stack's paths, such as /app or app:///."`
	SourceRoot   string `name:"source-root" placeholder:"PATH" help:"What it stands for in the repository; empty: its root."`
	ModulePrefix string `name:"module-prefix" placeholder:"PREFIX" help:"For stacks without folders (Java, .NET): prefix of the module."`
	Project      string `name:"project" help:"Only errors of this project of the tracker."`
	Platform     string `name:"platform" help:"Only errors of this platform."`
	Environment  string `name:"environment" help:"Only errors of this environment."`
	Tag          string `name:"tag" placeholder:"KEY=VALUE" help:"Only errors with this tag; with --ref, the branch for such errors."`
	Workflow     string `name:"workflow" default:"errand.yml" help:"File in .github/workflows."`
	Ref          string `name:"ref" help:"Branch to fix; empty: the default branch."`
	BaseDir      string `name:"base-dir" help:"Part of a monorepo; empty: the whole."`
	orgFlags
}

func (c adminMappingAdd) Run(ctx context.Context) error {
	return c.within(ctx, func(db *database, org errand.ID) error {
		repo, err := findRepository(ctx, db, org, c.Repository)
		if err != nil {
			return err
		}
		source, err := findSource(ctx, db, org, c.Source)
		if err != nil {
			return err
		}
		d, err := setUpOnly(db, nil)
		if err != nil {
			return err
		}
		key, value, _ := strings.Cut(c.Tag, "=")
		return d.AddMapping(ctx, org, dispatch.NewMapping{
			TagKey: key, TagValue: value, Repository: repo, Source: source, StackRoot: c.StackRoot, SourceRoot: c.SourceRoot, ModulePrefix: c.ModulePrefix, Project: c.Project,
			Platform: c.Platform, Environment: c.Environment, WorkflowFile: c.Workflow, Ref: c.Ref, BaseDir: c.BaseDir,
		})
	})
}

func findRepository(ctx context.Context, db *database, org errand.ID, fullName string) (errand.ID, error) {
	var known []string
	var found errand.ID
	err := db.InTx(ctx, org, func(tx *store.Tx) error {
		repos, err := tx.ListRepositories(ctx)
		for _, r := range repos {
			known = append(known, r.Owner+"/"+r.Name)
			if strings.EqualFold(r.Owner+"/"+r.Name, fullName) {
				found = r.ID
			}
		}
		return err
	})
	if err == nil && found == "" {
		err = notConnected(fullName, known)
	}
	return found, err
}

func notConnected(fullName string, known []string) error {
	if len(known) == 0 {
		return errand.Invalid("--repository", "%q is not connected, nor is any other: run `errand admin connect`", fullName)
	}
	return errand.Invalid("--repository", "%q is not connected: choose one of %s, or run `errand admin connect`", fullName, strings.Join(known, ", "))
}

// findSource finds a source by its name or id; "" is none.
func findSource(ctx context.Context, db *database, org errand.ID, nameOrID string) (*errand.ID, error) {
	if nameOrID == "" {
		return nil, nil
	}
	var all, found []webhooks.SourceState
	err := db.InTx(ctx, org, func(tx *store.Tx) error {
		sources, err := tx.ListSources(ctx)
		for _, s := range sources {
			state := webhooks.SourceState{ID: s.ID, Kind: s.Kind, Name: s.Name, CreatedAt: s.CreatedAt}
			all = append(all, state)
			if s.Name == nameOrID || string(s.ID) == nameOrID {
				found = append(found, state)
			}
		}
		return err
	})
	if err == nil && len(found) != 1 {
		err = notOne(nameOrID, all, found)
	}
	if err != nil {
		return nil, err
	}
	return &found[0].ID, nil
}

type adminMappingList struct{ orgFlags }

func (c adminMappingList) Run(ctx context.Context) error {
	return c.within(ctx, func(db *database, org errand.ID) error {
		return db.InTx(ctx, org, func(tx *store.Tx) error {
			rules, err := tx.ListMappings(ctx)
			if err != nil {
				return err
			}
			if len(rules) == 0 {
				empty("There is no rule yet: errand admin mapping add makes one. Without one, no error starts a run.")
			}
			for _, r := range rules {
				repo, err := tx.GetRepository(ctx, r.RepositoryID)
				if err != nil {
					return err
				}
				fmt.Printf("%d  %s/%s  stack root %q -> %q  module %q  project %q  platform %q  environment %q  %s\n",
					r.Position, repo.Owner, repo.Name, r.StackRoot, r.SourceRoot, r.ModulePrefix, r.Project, r.Platform, r.Environment, r.WorkflowFile)
			}
			return nil
		})
	})
}

type adminMappingRemove struct {
	Number int32 `arg:"" name:"number" help:"The rule's number, as mapping list shows it."`
	orgFlags
}

func (c adminMappingRemove) Run(ctx context.Context) error {
	return c.within(ctx, func(db *database, org errand.ID) error {
		d, err := setUpOnly(db, nil)
		if err != nil {
			return err
		}
		err = d.RemoveMapping(ctx, org, c.Number)
		if errand.CodeOf(err) == errand.CodeNotFound {
			return errand.Invalid("number", "there is no rule %d: `errand admin mapping list` shows their numbers", c.Number)
		}
		return err
	})
}

type adminMode struct {
	Mode       string `arg:"" enum:"active,observe,paused" help:"${enum}."`
	Repository string `name:"repository" placeholder:"OWNER/NAME" help:"Only this repository."`
	orgFlags
}

func (c adminMode) Run(ctx context.Context) error {
	return c.within(ctx, func(db *database, org errand.ID) error {
		if c.Repository == "" {
			return db.InTx(ctx, org, func(tx *store.Tx) error { _, err := tx.SetOrganisationMode(ctx, c.Mode); return err })
		}
		repo, err := findRepository(ctx, db, org, c.Repository)
		if err != nil {
			return err
		}
		return db.InTx(ctx, org, func(tx *store.Tx) error { _, err := tx.SetRepositoryMode(ctx, c.Mode, repo); return err })
	})
}

type adminLimits struct {
	DailyCap *int32         `name:"daily-cap" placeholder:"N" help:"Runs a day (UTC) at most; 0: none."`
	Cooldown *time.Duration `name:"cooldown" placeholder:"DURATION" help:"Pause after a run of an issue has ended, such as 24h; 0s: none."`
	MaxAge   *time.Duration `name:"max-age" placeholder:"DURATION" help:"Events older than this start nothing, such as 336h."`
	MinLevel *string        `name:"min-level" placeholder:"LEVEL" help:"Least level: fatal, error, warning, info or debug."`
	orgFlags
}

func (c adminLimits) Run(ctx context.Context) error {
	change := store.SetOrganisationLimitsParams{DailyRunCap: c.DailyCap, MinLevel: c.MinLevel}
	var err error
	if change.CooldownS, err = seconds("--cooldown", c.Cooldown, 0); err != nil {
		return err
	}
	if change.MaxAgeS, err = seconds("--max-age", c.MaxAge, 1); err != nil {
		return err
	}
	if c.DailyCap != nil && *c.DailyCap < 0 {
		return errand.Invalid("--daily-cap", "is %d: 0 or more", *c.DailyCap)
	}
	if c.MinLevel != nil && !slices.Contains([]string{"fatal", "error", "warning", "info", "debug"}, *c.MinLevel) {
		return errand.Invalid("--min-level", "%q is not fatal, error, warning, info or debug", *c.MinLevel)
	}
	return c.within(ctx, func(db *database, org errand.ID) error {
		var o store.Organisation
		err := db.InTx(ctx, org, func(tx *store.Tx) (err error) {
			if o, err = tx.SetOrganisationLimits(ctx, change); err != nil {
				return err
			}
			_, err = tx.DispatchLookNow(ctx, time.Now()) // what waits for a limit is asked again
			return err
		})
		if err != nil {
			return err
		}
		fmt.Printf("daily cap %d  cooldown %s  max age %s  least level %s  mode %s\n", o.DailyRunCap,
			time.Duration(o.CooldownS)*time.Second, time.Duration(o.MaxAgeS)*time.Second, o.MinLevel, o.Mode)
		return nil
	})
}

// seconds gives a duration in whole seconds as the database keeps it; nil stays nil.
func seconds(flag string, d *time.Duration, least int64) (*int32, error) {
	if d == nil {
		return nil, nil
	}
	n := int64(d.Seconds())
	if n < least || n > math.MaxInt32 {
		return nil, errand.Invalid(flag, "%s is out of range: %d s to %d s", d, least, math.MaxInt32)
	}
	s := int32(n)
	return &s, nil
}
