package main

import (
	"context"
	"fmt"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// adminExchange shows and changes what a workflow must bring for its run token (docs/data-boundaries.md).
type adminExchange struct {
	RequireOIDC *bool `name:"require-oidc" negatable:"" help:"A ticket is not enough, in private repositories either: only GitHub's ID token of the job is. In public ones that is always so."`
	AllowReruns *bool `name:"allow-reruns" negatable:"" help:"\"Re-run\" on GitHub's page goes on with a run that is still open, by its ID token."`
	orgFlags
}

// Run changes what is given and prints what then holds.
func (c adminExchange) Run(ctx context.Context) error {
	return c.within(ctx, func(db *database, org errand.ID) error {
		return db.InTx(ctx, org, func(tx *store.Tx) error {
			rules, err := tx.RunnerExchangeRules(ctx)
			if err != nil {
				return err
			}
			if c.RequireOIDC != nil {
				rules.RequireOidc = *c.RequireOIDC
			}
			if c.AllowReruns != nil {
				rules.AllowReruns = *c.AllowReruns
			}
			if _, err := tx.SetExchangeRules(ctx, rules.RequireOidc, rules.AllowReruns); err != nil {
				return err
			}
			fmt.Printf("require-oidc %t  allow-reruns %t\n", rules.RequireOidc, rules.AllowReruns)
			return nil
		})
	})
}
