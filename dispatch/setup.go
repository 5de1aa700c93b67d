package dispatch

import (
	"cmp"
	"context"
	"path"
	"strings"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

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
