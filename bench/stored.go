package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// stored measures (b): the whole path on a database that holds many deliveries already. The rows are made by SQL, spread over
// the last 30 days and over the issues; each has its key. The short form measures none of it.
func stored(ctx context.Context, b *bed, p plan, f *figures) error {
	if p.short {
		fmt.Println("\n(b) with many deliveries stored: only in the full form (make bench)")
		return nil
	}
	fmt.Printf("\n(b) the whole path with deliveries stored, 32 connections\n  %12s %12s\n", "stored", "accepted/s")
	at, err := b.place(ctx)
	if err != nil {
		return err
	}
	body := newBody(4 << 10)
	if _, err := at.load(ctx, 32, body, spread, p.slice/2); err != nil {
		return err
	}
	rates := map[int]float64{}
	held := 0
	for _, n := range []int{0, 1_000_000, 10_000_000} {
		if err := at.fill(ctx, held, n); err != nil {
			return err
		}
		held = n
		var rounds []float64
		for range p.rounds {
			s, err := at.load(ctx, 32, body, spread, p.slice)
			if err != nil {
				return err
			}
			rounds = append(rounds, s.perS())
		}
		rates[n] = median(rounds)
		fmt.Printf("  %12d %12.0f\n", n, rates[n])
	}
	f.Stored1mLoss, f.Stored10mLoss = figure(1-rates[1_000_000]/rates[0], 3), figure(1-rates[10_000_000]/rates[0], 3)
	return at.close(ctx)
}

// fill makes deliveries from..to, and analyses and checkpoints, so that what is measured is not the filling.
func (p *place) fill(ctx context.Context, from, to int) error {
	if to == from {
		return nil
	}
	return p.super(ctx, func(c *pgx.Conn) error {
		// One partition a day for the days that are kept: maintain_deliveries makes those to come only.
		for day := 1; day <= 30; day++ {
			if _, err := c.Exec(ctx, fmt.Sprintf("SELECT maintain_deliveries(current_date - %d, 0, current_date - 31)", day)); err != nil {
				return err
			}
		}
		for _, sql := range []string{
			"SET synchronous_commit = off",
			fmt.Sprintf(`INSERT INTO deliveries (id, org_id, source_id, received_at, resource, action, outcome, issue_id, event_id, body_sha256, body_bytes, shape)
				SELECT gen_random_uuid(), '%s', '%s', now() - interval '30 days' * ((n %% 1000003) / 1000003.0), 'event_alert', 'triggered', 'accepted',
				       md5((n %% %d)::text)::uuid, gen_random_uuid(), sha256(n::text::bytea), 4096, (SELECT shape FROM deliveries WHERE shape <> '' LIMIT 1)
				FROM generate_series(%d, %d) n`, p.org, p.source.ID, spread, from+1, to),
			fmt.Sprintf(`INSERT INTO delivery_keys (source_id, key, org_id, delivery_id, received_at)
				SELECT '%s', 'event:9' || lpad((n %% %d)::text, 9, '0') || ':' || md5(n::text), '%s', gen_random_uuid(), now() - interval '30 days' * ((n %% 1000003) / 1000003.0)
				FROM generate_series(%d, %d) n`, p.source.ID, spread, p.org, from+1, to),
			"ANALYZE deliveries", "ANALYZE delivery_keys", "CHECKPOINT",
		} {
			if _, err := c.Exec(ctx, sql); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
		}
		return nil
	})
}
