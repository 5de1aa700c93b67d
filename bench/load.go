package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Delivery bodies of the form of Sentry's event alerts, padded with frames as they come: source lines around each, and local
// variables. The event's and the issue's ids are written in place, so that making a body costs the client little.
const (
	eventMark = "00000000000000000000000000000000"
	issueMark = "9000000000"
)

type body struct {
	text         []byte
	event, issue int // offsets of the marks
}

func newBody(size int) body {
	frame := `{"function":"price_for_order_%d","module":"checkout.pricing.rules","filename":"checkout/pricing/rules_%d.py","abs_path":"/app/checkout/pricing/rules_%d.py",` +
		`"lineno":%d,"colno":null,"pre_context":["    order = load(order_id)","    if order is None:","        raise NotFound(order_id)"],` +
		`"context_line":"    amount = rules.price_for(order, order.meta[\"currency\"], strict=True)","post_context":["    charge(amount)","    return amount"],` +
		`"in_app":true,"vars":{"order_id":"'A-10012'","amount":"None","self":"<checkout.pricing.Rules object at 0x7f3c>"}}`
	head := `{"action":"triggered","installation":{"uuid":"11111111-2222-4333-8444-555555555555"},"data":{"event":{"event_id":"` + eventMark + `","project":4505266709331968,` +
		`"release":"checkout@1.42.0+9f3c2ab","dist":null,"platform":"python","message":"","datetime":"2026-09-14T09:21:44.123456Z","tags":[["environment","production"],["handled","no"],` +
		`["level","error"],["release","checkout@1.42.0+9f3c2ab"],["runtime","CPython 3.12.5"],["runtime.name","CPython"],["server_name","web-1"],["transaction","checkout.views.pay"],` +
		`["url","https://shop.example.com/pay"]],"environment":"production","contexts":{"runtime":{"name":"CPython","version":"3.12.5","type":"runtime"}},"culprit":"checkout.views in pay",` +
		`"exception":{"values":[{"type":"KeyError","value":"'currency'","module":null,"mechanism":{"type":"django","handled":false},"stacktrace":{"frames":[`
	tail := `]}}]},"issue_id":"` + issueMark + `","title":"KeyError: 'currency'","level":"error","web_url":"https://sentry.io/organizations/example-org/issues/` + issueMark + `/events/x/",` +
		`"url":"https://sentry.io/api/0/projects/example-org/checkout/events/x/"},"triggered_rule":"Production errors"}}`
	var b strings.Builder
	b.WriteString(head)
	for i := 0; b.Len()+len(tail) < size-len(frame)/2 || i == 0; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, frame, i, i, i, 10+i)
	}
	b.WriteString(tail)
	text := []byte(b.String())
	return body{text: text, event: bytes.Index(text, []byte(eventMark)), issue: bytes.Index(text, []byte(`"issue_id":"`)) + len(`"issue_id":"`)}
}

// number writes n at the end of the mark.
func number(at []byte, n uint64) {
	for i := len(at) - 1; i >= 0 && n > 0; i-- {
		at[i] = byte('0' + n%10)
		n /= 10
	}
}

// stamp makes the body the n-th event, of the issue.
func (b body) stamp(text []byte, n, issue uint64) {
	number(text[b.event:b.event+len(eventMark)], n)
	number(text[b.issue+1:b.issue+len(issueMark)], issue)
}

// client is one connection that sends one delivery after the other. It is written by hand because it shares the machine with
// what it measures.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	text []byte
	body body
	path string
	host string
}

func (c *client) send(n, issue uint64) error {
	number(c.text[c.body.event:c.body.event+len(eventMark)], 0)
	copy(c.text[c.body.event:], eventMark)
	copy(c.text[c.body.issue:], issueMark)
	c.body.stamp(c.text, n, issue)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(c.text)
	c.out = append(c.out[:0], "POST "...)
	c.out = append(append(c.out, c.path...), " HTTP/1.1\r\nHost: "...)
	c.out = append(append(c.out, c.host...), "\r\nContent-Type: application/json\r\nSentry-Hook-Resource: event_alert\r\nSentry-Hook-Signature: "...)
	c.out = hex.AppendEncode(c.out, mac.Sum(nil))
	c.out = strconv.AppendInt(append(c.out, "\r\nContent-Length: "...), int64(len(c.text)), 10)
	c.out = append(append(c.out, "\r\n\r\n"...), c.text...)
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	return c.accepted()
}

func (c *client) accepted() error {
	status, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	ok := bytes.HasPrefix(status, []byte("HTTP/1.1 202 "))
	line := string(status)
	length := 0
	for {
		h, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(h) <= 2 {
			break
		}
		if name, value, _ := bytes.Cut(h, []byte(":")); bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
	answer, err := c.in.Peek(length)
	if err != nil && err != io.EOF {
		return err
	}
	if !ok || !bytes.Contains(answer, []byte(`"outcome":"accepted"`)) {
		return fmt.Errorf("not accepted: %s %s", strings.TrimSpace(line), answer)
	}
	_, err = c.in.Discard(length)
	return err
}

// eventNumber gives every delivery of the whole bench an event of its own.
var eventNumber atomic.Uint64

// load sends deliveries over a number of connections, spread evenly over a number of issues, and gives what was accepted.
func (p *place) load(ctx context.Context, conns int, b body, issues uint64, length time.Duration) (sample, error) {
	clients := make([]*client, conns)
	for i := range clients {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.addr)
		if err != nil {
			return sample{}, err
		}
		defer func() { _ = conn.Close() }()
		clients[i] = &client{conn: conn, in: bufio.NewReader(conn), text: bytes.Clone(b.text), body: b, path: p.source.Path, host: p.addr}
	}
	return closedLoop(ctx, conns, length, func(i int) error {
		n := eventNumber.Add(1)
		return clients[i].send(n, 1+n%issues)
	})
}

// closedLoop lets each of n callers do the next thing as soon as the last is done. The first tenth only warms up.
func closedLoop(ctx context.Context, n int, length time.Duration, do func(caller int) error) (sample, error) {
	begin := time.Now().Add(length / 10)
	end := begin.Add(length)
	samples, errs := make([]sample, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				start := time.Now()
				if start.After(end) {
					return
				}
				errs[i] = do(i)
				if done := time.Now(); errs[i] == nil && start.After(begin) && done.Before(end) {
					samples[i].n++
					samples[i].took = append(samples[i].took, done.Sub(start))
				}
			}
		})
	}
	wg.Wait()
	all := sample{elapsed: length}
	for i, s := range samples {
		if errs[i] != nil {
			return all, errs[i]
		}
		all.n += s.n
		all.took = append(all.took, s.took...)
	}
	return all, ctx.Err()
}

// prepare makes the headers with which a body is understood without a signature.
func alertHeader() http.Header { return http.Header{"Sentry-Hook-Resource": {"event_alert"}} }
