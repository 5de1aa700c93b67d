// Command chaos runs two replicas of the built server against one PostgreSQL and one GitHub (githubsim) under load, kills,
// pauses, slows, cuts off and restarts all of them at random, heals, waits, and then lets an oracle compare what senders
// and runners were told with what is stored and with what GitHub saw. It is for `make chaos`; docs/chaos.md says what it
// checks. It may import what a command may.
//
// Start reading at run, then plan.go (what goes wrong), world.go (what runs), judge.go (the oracle).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type config struct {
	length time.Duration
	seed   uint64
	rate   int
	binary string
	race   bool
	plant  string
	calm   bool
	plan   bool
}

// summary is the last line of the output.
type summary struct {
	Seconds         int `json:"seconds"`
	Acknowledged    int `json:"acknowledged"`
	Lost            int `json:"lost"`
	DispatchedTwice int `json:"dispatched_twice"`
	Stuck           int `json:"stuck"`
	Faults          int `json:"faults"`
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == guardArgument {
		keepGuard(os.Stdin)
		return
	}
	cfg, err := readConfig(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	good, err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}

func readConfig(args []string) (config, error) {
	var cfg config
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	seconds := f.Int("s", number("CHAOS_S", 60), "seconds of load and faults (CHAOS_S)")
	seed := f.Uint64("seed", uint64(number("CHAOS_SEED", 0)), "draws the same plan of faults again; 0 = a new one (CHAOS_SEED)")
	f.IntVar(&cfg.rate, "rate", number("CHAOS_RATE", 50), "deliveries a second (CHAOS_RATE)")
	f.StringVar(&cfg.binary, "errand", "", "the built server; empty = build it")
	f.BoolVar(&cfg.race, "race", false, "build it with the race detector")
	f.StringVar(&cfg.plant, "plant", "", "plant one fault for the oracle to find: lost, twice or stuck")
	f.BoolVar(&cfg.calm, "calm", false, "load without faults")
	f.BoolVar(&cfg.plan, "plan", false, "print the plan and do nothing")
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	if *seconds < 5 || *seconds > 7200 || cfg.rate < 1 || cfg.rate > 2000 {
		return cfg, errors.New("want 5 to 7200 seconds and 1 to 2000 deliveries a second")
	}
	if _, ok := plants[cfg.plant]; !ok && cfg.plant != "" {
		return cfg, fmt.Errorf("-plant %s: want lost, twice or stuck", cfg.plant)
	}
	if cfg.seed = *seed; cfg.seed == 0 {
		cfg.seed = uint64(rand.Uint32()) + 1
	}
	cfg.length = time.Duration(*seconds) * time.Second
	return cfg, nil
}

// number reads a whole number from the environment; what is none is left to the flag's own check.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// run is one whole run. It gives whether the oracle found nothing; an error means that there was no verdict.
func run(ctx context.Context, cfg config, out io.Writer) (good bool, err error) {
	var mu sync.Mutex
	began := time.Now()
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	plan := makePlan(cfg.seed, cfg.length)
	if cfg.plan {
		for _, a := range plan {
			fmt.Fprintln(out, a)
		}
		return true, nil
	}
	say("seed %d: CHAOS_SEED=%d CHAOS_S=%d draws the same %d faults again", cfg.seed, cfg.seed, int(cfg.length.Seconds()), len(plan))
	w, err := newWorld(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer func() {
		if !good && ctx.Err() == nil {
			where, kept := w.keepLogs()
			fmt.Fprintln(os.Stderr, "chaos: the replicas' logs are kept in", where)
			err = errors.Join(err, kept)
		}
		err = errors.Join(err, w.close())
	}()
	say("two replicas serve %d organisations at %s", len(tenants), w.publicURL())

	s := &senders{
		base: w.publicURL(), sources: w.sources, most: 2_000_000, rng: rand.New(rand.NewPCG(cfg.seed, 0x5E4D)),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inFlight}},
	}
	faults := w.loadAndBreak(ctx, s, cfg, plan, say)
	if ctx.Err() != nil {
		return false, errors.New("interrupted: no verdict")
	}
	moved, err := w.settle(ctx, say)
	if err != nil {
		return false, fmt.Errorf("settle: %w", err)
	}
	f, err := w.gather(ctx, s, moved, cfg.plant)
	if err != nil {
		return false, fmt.Errorf("gather: %w", err)
	}
	v := judge(f)
	tell(say, s, f, v)
	line, err := json.Marshal(summary{
		Seconds: int(cfg.length.Seconds()), Acknowledged: s.acknowledged(), Lost: len(v.lost), DispatchedTwice: len(v.twice), Stuck: len(v.stuck), Faults: faults,
	})
	fmt.Fprintln(out, string(line))
	return v.good(), err
}

// loadAndBreak sends and breaks things at the same time, and returns when all of it is over and mended.
func (w *world) loadAndBreak(ctx context.Context, s *senders, cfg config, plan []act, say func(string, ...any)) (faults int) {
	var all sync.WaitGroup
	var done atomic.Int64
	all.Go(func() { s.load(ctx, cfg.length, cfg.rate) })
	began := time.Now()
	var acts sync.WaitGroup
	for _, a := range plan {
		if cfg.calm {
			break
		}
		sleep(ctx, time.Until(began.Add(a.at)))
		if ctx.Err() != nil {
			break
		}
		say("%s", a)
		done.Add(1)
		acts.Go(func() {
			w.commit(ctx, a)
			if over := time.Since(began) - a.at - a.long; over > 4*time.Second {
				say("        (%s: took %.1f s longer)", a.fault, over.Seconds())
			}
		})
	}
	sleep(ctx, time.Until(began.Add(cfg.length)))
	acts.Wait()
	w.heal()
	say("healed; %d deliveries acknowledged so far", s.acknowledged())
	all.Wait()
	return int(done.Load())
}

// commit does what the plan says, and takes it back when its time is over.
func (w *world) commit(ctx context.Context, a act) {
	hurt := func(links []*link, begin, end func(*link)) {
		for _, k := range links {
			begin(k)
		}
		sleep(ctx, a.long)
		for _, k := range links {
			end(k)
		}
	}
	toPG, toHub := w.toPG[:], []*link{w.toHub}
	if a.whom != 0 {
		toPG = w.toPG[a.whom-1 : a.whom]
	}
	cut, mend := func(k *link) { k.setCut(true) }, func(k *link) { k.setCut(false) }
	slow, fast := func(k *link) { k.setDelay(a.long / 20) }, func(k *link) { k.setDelay(0) }
	mute, unmute := func(k *link) { k.muteAll() }, func(k *link) { k.resetAll(true) }
	restart := func(sig syscall.Signal) {
		if err := w.pg.restart(ctx, sig, a.long/4); err != nil {
			w.observe("postgres does not start again: %v", err)
		}
	}
	switch a.fault {
	case replicaKill:
		w.replicas[a.whom-1].end(syscall.SIGKILL)
	case replicaRestart:
		w.replicas[a.whom-1].end(syscall.SIGTERM)
	case bothKill:
		w.replicas[0].end(syscall.SIGKILL)
		w.replicas[1].end(syscall.SIGKILL)
	case replicaPause, replicaLongPause:
		w.replicas[a.whom-1].pause(ctx, a.long)
	case pgKill:
		restart(syscall.SIGKILL)
	case pgRestart:
		restart(syscall.SIGINT)
	case pgKillBackend:
		if err := w.pg.killBackend(a.times * 7); err != nil {
			w.observe("%v", err)
		}
	case pgPause:
		w.pg.pause(ctx, a.long)
	case pgCut:
		hurt(toPG, cut, mend)
	case pgReset:
		hurt(toPG, func(k *link) { k.resetAll(false) }, func(*link) {})
	case pgHalfOpen:
		hurt(toPG, mute, unmute)
	case pgSlow:
		hurt(toPG, slow, fast)
	case hubCut:
		hurt(toHub, cut, mend)
	case hubHalfOpen:
		hurt(toHub, mute, unmute)
	case hubSlow:
		hurt(toHub, slow, fast)
	case publicReset:
		w.public.resetAll(false)
	case hubLost, hubLate, hubGateway, hubError, hubLimit, hubBlind:
		w.hub.misbehave(a.fault, a.times)
	}
}

// gather collects the facts, after the planted fault if there is one.
func (w *world) gather(ctx context.Context, s *senders, moved time.Time, plant string) (*facts, error) {
	conn, err := w.pg.admin(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if plant != "" {
		if err := plants[plant](ctx, w, conn); err != nil {
			return nil, fmt.Errorf("plant %s: %w", plant, err)
		}
	}
	f := &facts{told: s.told, granted: w.runners.granted, reported: w.runners.reported, moved: moved}
	f.observed = append(append(append(f.observed, s.observed...), w.runners.observed...), w.observed...)
	for _, r := range w.replicas {
		f.observed = append(f.observed, r.complaints()...)
	}
	for _, v := range w.hub.sim.Violations() {
		note(&f.observed, "GitHub was asked what it must never be asked: %s %s (%s)", v.Method, v.Path, v.Why)
	}
	for _, r := range w.hub.sim.Runs() {
		f.accepted = append(f.accepted, started{marker: r.Inputs["run"], id: r.ID})
	}
	return f, f.read(ctx, conn)
}

// tell prints what was found, and what the run was made of, so that an idle one is seen to be idle.
func tell(say func(string, ...any), s *senders, f *facts, v *verdict) {
	states, outcomes := map[string]int{}, map[string]int{}
	for _, r := range f.runs {
		states[r.state]++
	}
	for _, t := range f.told {
		outcomes[t.outcome]++
	}
	say("%d sent, %d given up by their senders, told: %v; %d stored", s.sent, s.gaveUp, outcomes, len(f.deliveries))
	say("%d issues, %d decisions, %d runs %v, %d workflow runs at GitHub, %d exchanged, %d results and reports acknowledged",
		len(f.issues), len(f.decisions), len(f.runs), states, len(f.accepted), len(f.granted), len(f.reported))
	for _, found := range []struct {
		name string
		list []string
	}{{"lost", v.lost}, {"twice", v.twice}, {"stuck", v.stuck}, {"broken", v.broken}} {
		for i, words := range found.list {
			if i == 25 {
				say("%s: and %d more", found.name, len(found.list)-i)
				break
			}
			say("%s: %s", found.name, words)
		}
	}
}
