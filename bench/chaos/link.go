package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// link is a TCP address that stays while what stands behind it comes and goes, and on which things go wrong.
type link struct {
	listener net.Listener
	tasks    sync.WaitGroup

	mu     sync.Mutex
	dial   func(context.Context) (net.Conn, error)
	cut    bool          // nobody gets through
	delay  time.Duration // of every chunk, both ways
	pairs  map[*pair]struct{}
	closed bool
}

// pair is one connection with its other side. While mute, bytes are taken and not passed on.
type pair struct {
	near, far net.Conn
	mute      bool
}

func newLink(ctx context.Context) (*link, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{listener: l, pairs: map[*pair]struct{}{}}
	k.tasks.Go(k.accept)
	return k, nil
}

func (k *link) addr() string { return k.listener.Addr().String() }

// to says what stands behind the link from now on.
func (k *link) to(dial func(context.Context) (net.Conn, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dial = dial
}

func dialer(network, address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, address) }
}

func (k *link) accept() {
	for {
		near, err := k.listener.Accept()
		if err != nil {
			return // closed
		}
		k.tasks.Go(func() { k.serve(near) })
	}
}

func (k *link) serve(near net.Conn) {
	k.mu.Lock()
	dial, refused := k.dial, k.cut || k.closed
	k.mu.Unlock()
	if refused || dial == nil {
		reset(near)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	far, err := dial(ctx)
	cancel()
	if err != nil {
		reset(near)
		return
	}
	p := &pair{near: near, far: far}
	k.mu.Lock()
	if k.cut || k.closed {
		k.mu.Unlock()
		reset(near, far)
		return
	}
	k.pairs[p] = struct{}{}
	k.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { k.pump(p, p.far, p.near) })
	both.Go(func() { k.pump(p, p.near, p.far) })
	both.Wait()
	k.mu.Lock()
	delete(k.pairs, p)
	k.mu.Unlock()
}

// pump passes bytes on until one side ends, and then ends both.
func (k *link) pump(p *pair, to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		k.mu.Lock()
		delay, mute := k.delay, p.mute
		k.mu.Unlock()
		if delay > 0 {
			time.Sleep(delay)
		}
		if n > 0 && !mute {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// setCut cuts the link off, what is open included, or mends it.
func (k *link) setCut(cut bool) {
	k.mu.Lock()
	k.cut = cut
	k.mu.Unlock()
	if cut {
		k.resetAll(false)
	}
}

func (k *link) setDelay(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delay = d
}

// muteAll makes every open connection half open: it stands, and nothing comes of it. New ones work.
func (k *link) muteAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.pairs {
		p.mute = true
	}
}

// resetAll resets what is open, or only what was muted: a half-open connection does not come back to life, its end is
// noticed at last.
func (k *link) resetAll(mutedOnly bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.pairs {
		if p.mute || !mutedOnly {
			reset(p.near, p.far)
		}
	}
}

// heal takes back everything that is wrong.
func (k *link) heal() {
	k.setCut(false)
	k.setDelay(0)
	k.resetAll(true)
}

func (k *link) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	_ = k.listener.Close()
	k.resetAll(false)
	k.tasks.Wait()
}

// reset closes with a RST, as a machine that does not know the connection would.
func reset(conns ...net.Conn) {
	for _, c := range conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// balance gives a dial function that takes the addresses in turn, and the next one when one does not answer.
func balance(addresses ...string) func(context.Context) (net.Conn, error) {
	var mu sync.Mutex
	turn := 0
	return func(ctx context.Context) (net.Conn, error) {
		mu.Lock()
		turn++
		first := turn
		mu.Unlock()
		var errs []error
		for i := range addresses {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addresses[(first+i)%len(addresses)])
			if err == nil {
				return c, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
}
