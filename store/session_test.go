package store_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
	"github.com/errand-dev/errand/store/storetest"
)

// pooler stands before PostgreSQL as PgBouncer does. In transaction mode a client is lent a session until ReadyForQuery says
// that its transaction is over; in session mode it keeps one. It asks for no password and speaks no TLS.
type pooler struct {
	t       *testing.T
	behind  string // the database's address
	session bool
	inTurn  bool // lends the session that has waited longest, instead of the one that came back last

	mu   sync.Mutex
	idle []*pgconn.HijackedConn
}

// listen gives the pooler's own address.
func (p *pooler) listen() string {
	p.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			clients.Go(func() {
				defer c.Close()
				p.serve(c)
			})
		}
	})
	p.t.Cleanup(func() {
		l.Close()
		clients.Wait()
		for _, s := range p.idle {
			s.Conn.Close()
		}
	})
	u, err := url.Parse(p.behind)
	if err != nil {
		p.t.Fatal(err)
	}
	u.Host, u.RawQuery = l.Addr().String(), "sslmode=disable"
	return u.String()
}

func (p *pooler) take() *pgconn.HijackedConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		at := n - 1
		if p.inTurn {
			at = 0
		}
		s := p.idle[at]
		p.idle = append(p.idle[:at:at], p.idle[at+1:]...)
		return s
	}
	c, err := pgconn.Connect(ctx, p.behind)
	if err != nil {
		p.t.Errorf("the pooler: %v", err)
		return nil
	}
	s, err := c.Hijack()
	if err != nil {
		p.t.Errorf("the pooler: %v", err)
		return nil
	}
	return s
}

func (p *pooler) give(s *pgconn.HijackedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

// serve speaks with one client until it leaves.
func (p *pooler) serve(c net.Conn) {
	client := pgproto3.NewBackend(c, c)
	if _, err := client.ReceiveStartupMessage(); err != nil {
		return
	}
	lent := p.take()
	if lent == nil {
		return
	}
	client.Send(&pgproto3.AuthenticationOk{})
	for k, v := range lent.ParameterStatuses {
		client.Send(&pgproto3.ParameterStatus{Name: k, Value: v})
	}
	client.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for ready := byte('I'); ; {
		if ready == 'I' && !p.session { // before the client knows of it
			p.give(lent)
			lent = nil
		}
		if ready != 0 && client.Flush() != nil {
			break
		}
		m, err := client.Receive()
		if _, leaves := m.(*pgproto3.Terminate); err != nil || leaves {
			break
		}
		if lent == nil {
			if lent = p.take(); lent == nil {
				return
			}
		}
		lent.Frontend.Send(m)
		ready = 0
		switch m.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
			if ready = pass(lent.Frontend, client); ready == 0 {
				return
			}
		}
	}
	if lent != nil {
		lent.Conn.Close()
	}
}

// pass hands on what was sent, and the answers to it, and gives the transaction's status after them; 0 = the session ended.
func pass(server *pgproto3.Frontend, client *pgproto3.Backend) byte {
	if server.Flush() != nil {
		return 0
	}
	for {
		m, err := server.Receive()
		if err != nil {
			return 0
		}
		client.Send(m)
		if end, ok := m.(*pgproto3.ReadyForQuery); ok {
			return end.TxStatus
		}
	}
}

// What a pooler in transaction mode does to prepared statements, and that Errand starts before none of them: neither at
// work, where the queue's LISTEN would hear nothing (H3) and statements be lost at random (H6), nor to migrate under a lock.
func TestH3_H6_APoolerInTransactionModeIsRefused(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for says, p := range map[string]*pooler{
		"the last one first": {t: t, behind: db.RuntimeURL}, "in turn": {t: t, behind: db.RuntimeURL, inTurn: true}, "two in turn": {t: t, behind: db.RuntimeURL, inTurn: true},
	} {
		if says == "two in turn" {
			one, other := p.take(), p.take()
			p.give(one)
			p.give(other)
		}
		address := p.listen()
		if s, err := store.Open(ctx, store.Config{URL: address}); errand.CodeOf(err) != errand.CodeInvalid || !strings.Contains(err.Error(), "ERRAND_DATABASE_URL: connections share sessions") {
			if s != nil {
				s.Close()
			}
			t.Errorf("%s: opened through it: %v", says, err)
		}
		var a, b *pgx.Conn
		for _, c := range []**pgx.Conn{&a, &b} {
			var err error
			if *c, err = pgx.Connect(ctx, address); err != nil {
				t.Fatal(err)
			}
			defer (*c).Close(ctx)
		}
		if code := lostStatement(a, b); code != "26000" && code != "42P05" {
			t.Errorf("%s: statements work through it (%s): it is none", says, code)
		}
	}
	owner := &pooler{t: t, behind: db.OwnerURL}
	if err := store.Migrate(ctx, owner.listen(), time.Now()); errand.CodeOf(err) != errand.CodeInvalid || !strings.Contains(err.Error(), "ERRAND_DATABASE_OWNER_URL: connections share sessions") {
		t.Errorf("migrated through it: %v", err)
	}
}

// lostStatement gives the code of the error that comes of one statement on two connections, by turns.
func lostStatement(a, b *pgx.Conn) string {
	for range 3 {
		var n int
		err := errors.Join(a.QueryRow(ctx, "select $1::int", 1).Scan(&n), pgx.BeginFunc(ctx, b, func(tx pgx.Tx) error {
			return errors.Join(tx.QueryRow(ctx, "select $1::int", 1).Scan(&n), a.QueryRow(ctx, "select $1::int", 1).Scan(&n))
		}))
		var pg *pgconn.PgError
		if errors.As(err, &pg) {
			return pg.Code
		}
	}
	return ""
}

func TestAPoolerInSessionModeIsTaken(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s, err := store.Open(ctx, store.Config{URL: (&pooler{t: t, behind: db.RuntimeURL, session: true}).listen()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	org := db.Org(t, "acme")
	for range 3 {
		err := s.InTx(context.WithoutCancel(ctx), org, func(tx *store.Tx) error { _, err := tx.ListRepositories(ctx); return err })
		if err != nil {
			t.Error(err)
		}
	}
	if err := store.Migrate(ctx, (&pooler{t: t, behind: db.OwnerURL, session: true}).listen(), time.Now()); err != nil {
		t.Error(err)
	}
}
