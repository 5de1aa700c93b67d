package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// What can go wrong, in the operator's words.
type fault string

const (
	replicaKill      fault = "replica: kill -9"
	replicaRestart   fault = "replica: SIGTERM"
	replicaPause     fault = "replica: SIGSTOP"
	replicaLongPause fault = "replica: SIGSTOP beyond every job's time"
	bothKill         fault = "both replicas: kill -9"

	pgKill        fault = "postgres: kill -9"
	pgRestart     fault = "postgres: fast shutdown"
	pgKillBackend fault = "postgres: kill -9 of one backend"
	pgPause       fault = "postgres: SIGSTOP"
	pgCut         fault = "postgres: connections cut off"
	pgReset       fault = "postgres: connections reset"
	pgHalfOpen    fault = "postgres: connections half open"
	pgSlow        fault = "postgres: slow"

	hubCut      fault = "github: connections cut off"
	hubHalfOpen fault = "github: connections half open"
	hubSlow     fault = "github: slow"
	hubLost     fault = "github: dispatches accepted, answers lost"
	hubLate     fault = "github: dispatches accepted, answers too late"
	hubGateway  fault = "github: dispatches accepted, answered 502"
	hubError    fault = "github: 500 and 503"
	hubLimit    fault = "github: secondary rate limit"
	hubBlind    fault = "github: lists of workflow runs fail"

	publicReset fault = "public address: connections reset"
)

// deck is every fault as often as it should come, relative to the others.
var deck = []fault{
	replicaKill, replicaKill, replicaRestart, replicaPause, bothKill,
	pgKill, pgRestart, pgKillBackend, pgPause, pgCut, pgReset, pgHalfOpen, pgSlow,
	hubCut, hubHalfOpen, hubSlow, hubLost, hubLost, hubLate, hubGateway, hubGateway, hubError, hubLimit, hubBlind,
	publicReset, publicReset,
}

// act is one fault of the plan.
type act struct {
	at    time.Duration // since the load began
	fault fault
	whom  int           // the replica, 1 or 2, or its link to PostgreSQL; 0 = both
	long  time.Duration // how long it lasts
	times int           // how many requests it hits, where it hits requests
}

func (a act) String() string {
	whom := "all"
	if a.whom != 0 {
		whom = fmt.Sprintf("replica %d", a.whom)
	}
	return fmt.Sprintf("%6.1fs  %s (%s, %s, %d times)", a.at.Seconds(), a.fault, whom, a.long.Round(time.Millisecond), a.times)
}

// makePlan draws the faults of a run: the same seed and length give the same plan. Every kind comes before one comes
// again, and each is short enough for others to fall into the recovery from it.
func makePlan(seed uint64, length time.Duration) []act {
	rng := rand.New(rand.NewPCG(seed, 0xC4A05))
	var plan []act
	var hand []fault
	longest := time.Duration(0)
	for at := time.Second + pause(rng, 500*time.Millisecond, 2*time.Second); at < length-time.Second; at += pause(rng, 600*time.Millisecond, 3200*time.Millisecond) {
		if len(hand) == 0 {
			for _, i := range rng.Perm(len(deck)) {
				hand = append(hand, deck[i])
			}
		}
		a := act{at: at, fault: hand[0], whom: rng.IntN(3), times: 1 + rng.IntN(4), long: pause(rng, 300*time.Millisecond, 4*time.Second)}
		hand = hand[1:]
		switch a.fault {
		case replicaKill, replicaRestart, replicaPause:
			a.whom = 1 + rng.IntN(2)
		case pgCut, pgReset, pgHalfOpen, pgSlow:
		default:
			a.whom = 0
		}
		if a.fault == pgHalfOpen || a.fault == hubHalfOpen {
			a.long *= 3
		}
		// Once in three minutes a replica sleeps until its jobs are taken from it, and wakes in the middle of them.
		if a.fault == replicaPause && at+95*time.Second < length && at-longest > 3*time.Minute-time.Second*100 {
			a.fault, a.long, longest = replicaLongPause, 75*time.Second+pause(rng, 0, 20*time.Second), at+75*time.Second
		}
		plan = append(plan, a)
	}
	return plan
}

func pause(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}
