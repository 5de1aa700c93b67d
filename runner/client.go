package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/wire"
)

// callTimeout bounds one call to the control plane or to GitHub.
const callTimeout = 30 * time.Second

// client speaks to the control plane's /runner/v1. The token is set once, by exchange, before anything runs beside it.
type client struct {
	base    string
	token   string
	version string
	http    *http.Client
	clock   errand.Clock
	sleep   func(context.Context, time.Duration) error
}

// apiError is an answer of the control plane that is none of its good ones (problem+json).
type apiError struct {
	Call       string
	Status     int
	Title      string          `json:"title"`
	Detail     string          `json:"detail"`
	Code       string          `json:"code"`
	State      errand.RunState `json:"state"` // of a run that has ended, with 409
	retryAfter time.Duration
}

func (e *apiError) Error() string {
	said := e.Detail
	if said == "" {
		said = e.Title
	}
	if said == "" {
		said = http.StatusText(e.Status)
	}
	return fmt.Sprintf("the control plane answered %s with %d: %s", e.Call, e.Status, said)
}

// passing tells whether the same call may succeed later.
func (e *apiError) passing() bool {
	return e.Status >= 500 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout
}

// once makes one attempt. A lost answer is an error that is no *apiError.
func (c *client) once(ctx context.Context, call string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/runner/v1/"+call, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", "errand-runner/"+c.version)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	b, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	if resp.StatusCode != http.StatusOK {
		e := &apiError{}
		_ = json.Unmarshal(b, e) // a body that is no problem is left out: the status says enough
		e.Call, e.Status, e.retryAfter = call, resp.StatusCode, retryAfter(resp.Header)
		return e
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s: the answer is not the JSON that was agreed: %w", call, err)
	}
	return nil
}

// until repeats a call while it may still succeed and the time is not over, waiting 1, 2, 4 ... at most 30 seconds, or what the
// control plane asks for. Every call of /runner/v1 may be repeated: the same body has the same effect once.
func (c *client) until(ctx context.Context, end time.Time, call string, in, out any) error {
	wait := time.Second
	for {
		err := c.once(ctx, call, in, out)
		var e *apiError
		if err == nil || ctx.Err() != nil || (errors.As(err, &e) && !e.passing()) {
			return err
		}
		pause := wait
		if e != nil {
			pause = max(pause, e.retryAfter)
		}
		if c.clock().Add(pause).After(end) {
			return fmt.Errorf("no success in the time there was: %w", err)
		}
		if err := c.sleep(ctx, pause); err != nil {
			return err
		}
		wait = min(wait*2, 30*time.Second)
	}
}

// exchange trades the ticket for the run token. It repeats with the same nonce, within the minute in which the control plane
// answers that the same.
func (c *client) exchange(ctx context.Context, req wire.ExchangeRequest) (wire.ExchangeResponse, error) {
	var out wire.ExchangeResponse
	err := c.until(ctx, c.clock().Add(50*time.Second), "exchange", req, &out)
	if err == nil && out.Token == "" {
		err = errors.New("exchange: the answer holds no token")
	}
	return out, err
}

func retryAfter(h http.Header) time.Duration {
	if n, err := strconv.Atoi(h.Get("Retry-After")); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return 0
}

// withoutRedirects gives a client that hands a redirect back as an answer, so that no token travels with one unseen.
func withoutRedirects(c *http.Client) *http.Client {
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
