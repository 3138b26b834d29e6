package storetest

import (
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
)

// verb is what a call of a script does; the zero verb is AllowN.
type verb int

const (
	allow verb = iota
	peek       // of n, or of 1 if n is 0
	reserve
	refund
	reset
	charge
	upTo  // AllowUpTo
	block // for maxWait
)

// call is one call of a script: what is done at an offset from the epoch, and
// every field of the result, except those that follow from the policy.
type call struct {
	at      time.Duration
	verb    verb
	n       int64
	maxWait time.Duration // of a block: how long it lasts

	allowed         bool // of a refund: it gave something back
	remaining, used int64
	retry, reset    time.Duration
	delay           time.Duration // of a reservation that was allowed
	taken           int64         // by AllowUpTo
}

// script runs calls on one key, one after another.
func (f *fixture) script(l *limiter.Limiter, key string, calls []call) {
	f.Helper()
	for i, c := range calls {
		f.at(c.at)
		var got limiter.Result
		what := ""
		switch c.verb {
		case allow:
			what = fmt.Sprintf("AllowN(%d)", c.n)
			got = f.allow(l, key, c.n)
		case peek:
			what = fmt.Sprintf("PeekN(%d)", max(1, c.n))
			got = f.peekN(l, key, max(1, c.n))
		case reserve:
			what = fmt.Sprintf("Reserve(%d, %v)", c.n, c.maxWait)
			r := f.reserve(l, key, c.n, c.maxWait)
			if got = r.Result; r.Allowed && r.Delay != c.delay {
				f.Fatalf("call %d: %s at %v: Delay %v, want %v", i, what, c.at, r.Delay, c.delay)
			}
		case refund:
			f.refund(l, key, c.n, c.allowed)
			continue
		case reset:
			f.reset(l, key)
			continue
		case charge:
			what = fmt.Sprintf("Charge(%d)", c.n)
			got = f.charge(l, key, c.n)
		case upTo:
			what = fmt.Sprintf("AllowUpTo(%d)", c.n)
			got = f.allowUpTo(l, key, c.n)
		case block:
			f.block(l, key, c.maxWait)
			continue
		}
		want := limiter.Result{
			Allowed: c.allowed, Limit: limitOf(l.Policy()), Remaining: c.remaining, Used: c.used,
			RetryAfter: c.retry, ResetAfter: c.reset, Taken: c.taken, Source: limiter.SourceStore,
		}
		if c.allowed && (c.verb == allow || c.verb == reserve) || c.verb == charge {
			want.Taken = c.n
		}
		if got = visible(got); got != want {
			f.Fatalf("call %d: %+v: %s at %v\n got %+v\nwant %+v", i, l.Policy(), what, c.at, got, want)
		}
	}
}

// visible returns r without its unexported part, which a Result made here cannot have.
func visible(r limiter.Result) limiter.Result {
	return limiter.Result{
		Allowed: r.Allowed, Limit: r.Limit, Remaining: r.Remaining, Used: r.Used,
		RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Taken: r.Taken, Source: r.Source,
	}
}

// Durations that scripts are full of.
const (
	s  = time.Second
	ms = time.Millisecond
	ns = time.Nanosecond
)
