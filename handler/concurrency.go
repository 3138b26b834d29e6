package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/middleware"
)

// NewConcurrency returns middleware that limits how many requests of a key are in flight. A request holds a
// place of c while next runs. The middleware releases it when next returns or panics.
//
//   - A refusal is 429 with Retry-After: 1 and the body of a refusal by [New], because a place may be free at
//     any time. There are no RateLimit fields. Requests without a decision get what New answers.
//   - A stream or a hijacked connection holds its place until next returns. Work that goes on after that
//     has no place. [http.TimeoutHandler] leaves such work behind, so put it outside:
//     http.TimeoutHandler(limit(next), d, "").
//   - If a request lasts longer than [limiter.InFlight].Hold, its place is free for another request.
//   - The middleware releases the place before the request ends, also if the client has left, because AWS
//     Lambda freezes the process after the response. So a response that was not flushed arrives one round
//     trip later. The middleware retries a failed release for up to 1 s. If the request has a deadline that
//     has not passed, the last attempt begins 100 ms before it at the latest. Then [OnError] gets the error,
//     and the place is free when its lease ends.
//
// The options are [Skip], [SkipPreflight], [Refusal], [OnRefusal], [OnError], [DryRun] and [FailOpen]. With
// DryRun a request takes and releases a place, and passes also if there is none. To limit rates as well, put
// the middleware of New inside: limit(rates(next)). Then a refusal by a rate limit releases the place.
//
// NewConcurrency panics if c, key or an option is nil, or if it gets an option that is not in this list.
func NewConcurrency(c *limiter.Concurrency, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	m := newLimit(opts)
	if name := m.onlyForRates(); name != "" {
		panic("handler: NewConcurrency got the option " + name + ", which is for rate limits; leave it out")
	}
	if c == nil {
		panic("handler: the limiter is nil; pass what limiter.NewConcurrency returned")
	}
	var err error
	if m.rules, err = middleware.New(ruleOf(places{c}, key, nil), false); err != nil {
		panic("handler: " + err.Error())
	}
	return around(m.serveInFlight)
}

// places is a Concurrency as the Limiter of a rule.
type places struct{ *limiter.Concurrency }

func (p places) Policy() limiter.Policy { return p.Concurrency.Policy() }

// AllowN takes a place, and leaves it in ctx.
func (p places) AllowN(ctx context.Context, key string, _ int64) (limiter.Result, error) {
	lease, err := p.TryAcquire(ctx, key)
	ctx.(*inFlight).lease = lease
	return lease.Result, err
}

// inFlight is the context with which a request takes its place.
type inFlight struct {
	context.Context
	lease *limiter.Lease // nil if c was not asked
}

// serveInFlight takes a place, calls next if the request may pass, and releases the place.
func (m *limit) serveInFlight(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.skips(r) {
		next.ServeHTTP(w, r)
		return
	}
	request := &inFlight{Context: r.Context()}
	defer func() { m.release(r, request.lease) }() // also if next panics
	d := &decision{Context: r.Context()}
	if err := m.rules.Decide(request, r, &d.Decision); err != nil {
		m.noDecision(w, r, next, d, err)
		return
	}
	outer := r
	r = r.WithContext(d)
	defer copyBack(outer, r)
	if !d.Result.Allowed {
		m.refuse(w, r, next, d, retryInFlight)
		return
	}
	next.ServeHTTP(w, r)
}

const (
	// retryInFlight is the Retry-After of a refusal: a request rarely holds its place for as long as it may.
	retryInFlight = time.Second
	// releaseTime is how long a response waits for a release that fails.
	releaseTime = time.Second
	// releaseGrace is how long before the request's deadline no other attempt begins, so that the response can
	// still be sent.
	releaseGrace = 100 * time.Millisecond
	// releasePause is the time between two attempts.
	releasePause = 50 * time.Millisecond
)

// release frees the place of a request. A lease that holds none needs no I/O.
func (m *limit) release(r *http.Request, lease *limiter.Lease) {
	if lease == nil {
		return
	}
	begin, longest, attempts := time.Now(), releaseTime, releaseTime
	deadline, _ := r.Context().Deadline()
	if left := deadline.Sub(begin); left > 0 { // otherwise there is none, or nobody waits for the response
		longest, attempts = min(longest, left), min(attempts, left-releaseGrace)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), longest)
	defer cancel()
	first := lease.Release(ctx)
	for err := first; err != nil; err = lease.Release(ctx) {
		if time.Since(begin)+releasePause < attempts {
			<-time.After(releasePause)
			continue
		}
		if errors.Is(first, limiter.ErrCanceled) { // by longest, not by the client
			first = fmt.Errorf("%w: the store did not release the place within %v", limiter.ErrOutcomeUnknown, longest)
		}
		m.report(r, first)
		return
	}
}
