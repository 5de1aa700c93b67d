package store

import (
	"sync/atomic"
	"testing"
)

// Whoever calls while an announcement is under way is announced by the next: it may have committed after the first was sent.
func TestEachCommitIsFollowedByAnAnnouncement(t *testing.T) {
	t.Parallel()
	begun, let := make(chan struct{}), make(chan struct{})
	var count atomic.Int32
	h := herald{announce: func() {
		count.Add(1)
		begun <- struct{}{}
		<-let
	}}
	h.call()
	<-begun
	for range 5 {
		h.call()
	}
	let <- struct{}{}
	<-begun
	let <- struct{}{}
	for idle := false; !idle; {
		h.mu.Lock()
		idle = !h.busy
		h.mu.Unlock()
	}
	if n := count.Load(); n != 2 {
		t.Errorf("%d announcements of six calls", n)
	}
	h.call()
	<-begun
	let <- struct{}{}
}
