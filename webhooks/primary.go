package webhooks

import (
	"cmp"
	"slices"

	"github.com/errand-dev/errand"
)

// Primary chooses the exception that an event is about and gives its index, or -1 when there is none.
//
// Exceptions come in the order of Sentry's protocol: the deepest cause first, the one that was finally raised last
// (a provider with another order turns it round before it asks). SDKs have sent that list in the wrong order, so position
// counts only where nothing better is known:
//
//  1. Where exceptions carry ids and parents (mechanism.exception_id, parent_id), they form a tree, whatever their order
//     in the list. The tree is walked from its root, the exception that was finally raised, to its causes, in the order
//     of their ids. Without ids the list is walked from its last to its first.
//  2. An exception group (ExceptionGroup, AggregateError) is an envelope: it is passed over for its members, which are
//     tried in their order.
//  3. Of those met on this walk the first with a frame inside the application wins; else the first with a frame of which
//     that is not known; else the first with any frame; else the first. So a wrapper raised by a framework gives way to
//     its cause in the application, and a chain all in the application is about what was finally raised.
func Primary(exceptions []errand.Exception) int {
	best, bestRank := -1, -1
	for _, i := range walk(exceptions) {
		if rank := standing(exceptions[i]); rank > bestRank {
			best, bestRank = i, rank
		}
	}
	return best
}

func standing(x errand.Exception) int {
	rank := 0
	for _, f := range x.Frames {
		switch {
		case f.InApp == nil:
			rank = max(rank, 2)
		case *f.InApp:
			return 3
		default:
			rank = max(rank, 1)
		}
	}
	return rank
}

// walk lists the indexes from what was raised to its causes. Groups with members are left out; so that a broken tree
// (unknown parents, circles, ids used twice) loses nothing, what the walk did not reach follows, last first.
func walk(xs []errand.Exception) []int {
	byID := map[int]int{}
	for i, x := range xs {
		if x.ID != nil {
			byID[*x.ID] = i
		}
	}
	children := map[int][]int{} // by index of the parent
	var roots []int
	for i := len(xs) - 1; i >= 0; i-- {
		x := xs[i]
		if x.Parent != nil {
			if p, ok := byID[*x.Parent]; ok && p != i {
				children[p] = append(children[p], i)
				continue
			}
		}
		roots = append(roots, i)
	}
	for _, c := range children {
		slices.SortStableFunc(c, func(a, b int) int { return cmp.Compare(idOf(xs[a]), idOf(xs[b])) })
	}
	var order []int
	seen := make([]bool, len(xs))
	var visit func(i int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		if !xs[i].Group || len(children[i]) == 0 {
			order = append(order, i)
		}
		for _, c := range children[i] {
			visit(c)
		}
	}
	for _, r := range roots {
		visit(r)
	}
	for i := len(xs) - 1; i >= 0; i-- {
		visit(i)
	}
	return order
}

func idOf(x errand.Exception) int {
	if x.ID == nil {
		return -1
	}
	return *x.ID
}
