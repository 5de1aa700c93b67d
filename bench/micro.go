package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/dispatch"
	"github.com/errand-dev/errand/runtoken"
	"github.com/errand-dev/errand/store"
)

// micro measures (e): the run token beside a bare HMAC-SHA256 of the same bytes, and one decision.
func micro(_ context.Context, _ *bed, p plan, f *figures) error {
	testing.Init()
	if p.short {
		if err := flag.Set("test.benchtime", "250ms"); err != nil {
			return err
		}
	}
	now := time.Now()
	keys, err := runtoken.NewKeys(benchKey("current"))
	if err != nil {
		return err
	}
	run := errand.NewID(now)
	token, err := keys.Token(run, 1, runtoken.RoleAll, now.Add(time.Hour))
	if err != nil {
		return err
	}
	var failed error
	signed := []byte(token)[:57]
	mac, sum := hmac.New(sha256.New, bytes.Repeat([]byte{3}, 32)), make([]byte, 0, sha256.Size)
	bare := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			mac.Reset()
			mac.Write(signed)
			sum = mac.Sum(sum[:0])
		}
	})
	verify := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := keys.VerifyToken(token, now); err != nil {
				failed = err
			}
		}
	})
	mint := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := keys.Token(run, 1, runtoken.RoleAll, now.Add(time.Hour)); err != nil {
				failed = err
			}
		}
	})
	in := decision(now)
	if d, _ := dispatch.Decide(in); d.Outcome != errand.OutcomeRun {
		failed = errors.Join(failed, fmt.Errorf("the bench's decision is %s (%s)", d.Outcome, d.Gate))
	}
	decide := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			dispatch.Decide(in)
		}
	})
	if failed != nil {
		return failed
	}
	ratio := ns(verify) / ns(bare)
	fmt.Printf("\n(e) of one call\n  bare HMAC-SHA256 %6.0f ns\n  token, verify    %6.0f ns %3d allocations   %.2f of the bare HMAC\n  token, mint      %6.0f ns %3d allocations\n  Decide           %6.0f ns %3d allocations\n",
		ns(bare), ns(verify), verify.AllocsPerOp(), ratio, ns(mint), mint.AllocsPerOp(), ns(decide), decide.AllocsPerOp())
	f.TokenMintNs, f.TokenVerifyNs, f.TokenVerifyVsHMAC = figure(ns(mint), 0), figure(ns(verify), 0), figure(ratio, 2)
	f.TokenVerifyAllocs, f.DecideUs, f.DecideAllocs = figure(float64(verify.AllocsPerOp()), 0), figure(ns(decide)/1000, 2), figure(float64(decide.AllocsPerOp()), 0)
	return nil
}

func ns(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(max(r.N, 1)) }

func benchKey(name string) runtoken.Key {
	sum := sha256.Sum256([]byte("bench " + name))
	return sum[:]
}

// decision is an input that passes every gate to its end, with two rules of which one fits.
func decision(now time.Time) dispatch.Input {
	yes := true
	event := &errand.Event{
		ProviderID: "e", SeenAt: now.Add(-time.Minute), Environment: "production", Primary: 0,
		Exceptions: []errand.Exception{{Type: "KeyError", Value: "'currency'", Frames: []errand.Frame{
			{Filename: "django/core/handlers/base.py", AbsPath: "/usr/lib/python3/django/core/handlers/base.py", Function: "_get_response", Line: 197},
			{Filename: "checkout/views.py", AbsPath: "/app/checkout/views.py", Module: "checkout.views", Function: "pay", Line: 88, InApp: &yes},
		}}},
	}
	return dispatch.Input{
		Now: now,
		Org: store.Organisation{
			Mode: "active", DailyRunCap: 25, CooldownS: 86400, MaxAgeS: 14 * 86400, MinLevel: "error", MinEvents: 1,
			BreakerIssues: 5, BreakerWindowS: 600, RunCeilingPico: 5_000_000_000_000,
		},
		Issue: store.Issue{ID: "i", Status: "open", Level: "error", StatusAt: now.Add(-time.Hour), Deliveries: 1},
		Event: event, EventAt: event.SeenAt, Newest: true,
		Rules: []store.Mapping{
			{ID: "rule-1", Position: 1, StackRoot: "/srv/other", RepositoryID: "repo-1", WorkflowFile: "errand.yml"},
			{ID: "rule-2", Position: 2, StackRoot: "/app", RepositoryID: "repo-1", WorkflowFile: "errand.yml"},
		},
		Repositories:  map[errand.ID]store.Repository{"repo-1": {ID: "repo-1", InstallationID: 1, Owner: "acme", Name: "shop", DefaultBranch: "main", Mode: "active", OpenFixCap: 5}},
		Installations: map[int64]store.Installation{1: {ID: 1}},
		Counts:        map[errand.ID]dispatch.Counts{"repo-1": {}},
	}
}
