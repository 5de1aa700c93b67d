package dispatch

import (
	"cmp"
	"context"
	"path"
	"strings"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/github"
	"github.com/errand-dev/errand/store"
)

// Connect binds a GitHub installation to the organisation and brings the repositories that it reaches up to date, by their
// numeric ids: new ones are added, renamed ones renamed, those out of reach marked as gone. It gives those within reach.
// It returns Conflict for an installation that belongs to another organisation. That the caller may bind it is for the
// caller to know: an operator may, a visitor must have proven it to GitHub.
func (d *Dispatch) Connect(ctx context.Context, org errand.ID, installation int64) ([]store.Repository, error) {
	in, err := d.github.Installation(ctx, installation)
	if err != nil {
		return nil, errand.Errorf(errand.CodeUnavailable, err, "the installation %d could not be looked up at GitHub: %s", installation, said(err))
	}
	reached, err := d.github.Repositories(ctx, installation)
	if err != nil {
		return nil, errand.Errorf(errand.CodeUnavailable, err, "the repositories of the installation %d could not be listed: %s", installation, said(err))
	}
	owner, err := d.store.LookupInstallation(ctx, installation)
	switch {
	case errand.CodeOf(err) == errand.CodeNotFound:
	case err != nil:
		return nil, err
	case owner != org:
		return nil, errand.Conflict("the installation %d is bound to another organisation", installation)
	}
	var within []store.Repository
	err = d.store.InTx(ctx, org, func(tx *store.Tx) error {
		now := d.clock()
		if owner == "" {
			if err := tx.BindInstallation(ctx, installation, in.Account, now); err != nil {
				return err
			}
		}
		var suspended *time.Time
		if in.Suspended {
			suspended = &now
		}
		if _, err := tx.SetInstallationState(ctx, suspended, nil, installation); err != nil {
			return err
		}
		within, err = d.syncRepositories(ctx, tx, installation, reached)
		return err
	})
	return within, err
}

func (d *Dispatch) syncRepositories(ctx context.Context, tx *store.Tx, installation int64, reached []github.Repo) ([]store.Repository, error) {
	now := d.clock()
	known, err := tx.ListRepositories(ctx)
	if err != nil {
		return nil, err
	}
	byNumber := map[int64]store.Repository{}
	for _, k := range known {
		byNumber[k.GitHubID] = k
	}
	seen := map[int64]bool{}
	for _, r := range reached {
		seen[r.ID] = true
		k, ok := byNumber[r.ID]
		if !ok {
			err = tx.AddRepository(ctx, store.AddRepositoryParams{
				ID: errand.NewID(now), InstallationID: installation, GitHubID: r.ID, Owner: r.Owner, Name: r.Name,
				DefaultBranch: r.DefaultBranch, Archived: r.Archived, Private: r.Private, CreatedAt: now,
			})
		} else if _, err = tx.RenameRepository(ctx, store.RenameRepositoryParams{
			ID: k.ID, Owner: r.Owner, Name: r.Name, DefaultBranch: cmp.Or(r.DefaultBranch, k.DefaultBranch),
		}); err == nil {
			_, err = tx.SetRepositoryState(ctx, r.Archived, nil, k.ID)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, k := range known {
		if k.InstallationID == installation && !seen[k.GitHubID] && k.GoneAt == nil {
			if _, err := tx.SetRepositoryState(ctx, k.Archived, &now, k.ID); err != nil {
				return nil, err
			}
		}
	}
	all, err := tx.ListRepositories(ctx)
	var within []store.Repository
	for _, r := range all {
		if r.InstallationID == installation && r.GoneAt == nil {
			within = append(within, r)
		}
	}
	return within, err
}

// NewMapping is a rule to be. Conditions that are "" or nil ask for nothing.
type NewMapping struct {
	Repository   errand.ID
	Source       *errand.ID
	Project      string
	Platform     string
	Environment  string
	TagKey       string
	TagValue     string
	ModulePrefix string
	StackRoot    string // prefix of the stack's paths
	SourceRoot   string // what it stands for in the repository; "" = its root
	WorkflowFile string // "" = errand.yml
	Ref          string // "" = the default branch
	BaseDir      string
}

// AddMapping adds a rule behind the others. It returns Invalid for one that could not work: one that asks for nothing, or
// leads out of the repository.
func (d *Dispatch) AddMapping(ctx context.Context, org errand.ID, m NewMapping) error {
	m.WorkflowFile = cmp.Or(m.WorkflowFile, "errand.yml")
	if err := m.check(); err != nil {
		return err
	}
	return d.store.InTx(ctx, org, func(tx *store.Tx) error {
		if err := tx.Lock(ctx, "mappings", org); err != nil {
			return err
		}
		if _, err := tx.GetRepository(ctx, m.Repository); err != nil {
			return err
		}
		if m.Source != nil {
			if _, err := tx.GetSource(ctx, *m.Source); err != nil {
				return err
			}
		}
		rules, err := tx.ListMappings(ctx)
		if err != nil {
			return err
		}
		position := int32(1)
		if len(rules) > 0 {
			position = rules[len(rules)-1].Position + 1
		}
		now := d.clock()
		return tx.CreateMapping(ctx, store.CreateMappingParams{
			ID: errand.NewID(now), Position: position, SourceID: m.Source, Project: m.Project, Platform: m.Platform, Environment: m.Environment,
			TagKey: m.TagKey, TagValue: m.TagValue, ModulePrefix: m.ModulePrefix, StackRoot: m.StackRoot, SourceRoot: m.SourceRoot,
			RepositoryID: m.Repository, WorkflowFile: m.WorkflowFile, Ref: m.Ref, BaseDir: m.BaseDir, CreatedAt: now,
		})
	})
}

// RemoveMapping removes the rule at a position; the others keep theirs. It returns NotFound when there is none.
func (d *Dispatch) RemoveMapping(ctx context.Context, org errand.ID, position int32) error {
	return d.store.InTx(ctx, org, func(tx *store.Tx) error {
		n, err := tx.RemoveMapping(ctx, position)
		if err == nil && n == 0 {
			err = errand.NotFound("mapping")
		}
		return err
	})
}

func (m NewMapping) check() error {
	r := store.Mapping{SourceID: m.Source, Project: m.Project, Platform: m.Platform, Environment: m.Environment, TagKey: m.TagKey}
	switch {
	case m.StackRoot == "" && m.ModulePrefix == "" && conditions(&r) == 0:
		return errand.Invalid("mapping", "it asks for nothing and would apply to every error: give a stack root, a module prefix, a source or a project")
	case m.ModulePrefix != "" && len(moduleParts(m.ModulePrefix)) == 0:
		return errand.Invalid("mapping.module_prefix", "%q names no module: want something like com.example.shop", m.ModulePrefix)
	case m.StackRoot != "" && parsePath(m.StackRoot).bare && strings.Contains(m.StackRoot, ":"):
		return errand.Invalid("mapping.stack_root", "%q is no path: want something like /srv/app or app:///", m.StackRoot)
	case (m.TagKey == "") != (m.TagValue == ""):
		return errand.Invalid("mapping.tag", "a tag's key and its value go together")
	case m.SourceRoot != "" && m.StackRoot == "":
		return errand.Invalid("mapping.source_root", "a source root stands for a stack root: give both")
	}
	for field, dir := range map[string]string{"mapping.source_root": m.SourceRoot, "mapping.base_dir": m.BaseDir} {
		if dir != "" && (path.IsAbs(dir) || strings.ContainsAny(dir, "\\\x00") || path.Clean(dir) == ".." || strings.HasPrefix(path.Clean(dir), "../")) {
			return errand.Invalid(field, "%q is no folder of the repository: want something like services/shop", dir)
		}
	}
	return nil
}
