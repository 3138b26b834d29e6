package storetest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// verb is what a call of a script does, as vectors.jsonl calls it; the zero verb is AllowN.
type verb string

const (
	allow   verb = ""
	peek    verb = "peek" // of n, or of 1 if n is 0
	reserve verb = "reserve"
	refund  verb = "refund"
	cancel  verb = "cancel" // of what the call ref has booked
	reset   verb = "reset"
	charge  verb = "charge"
	upTo    verb = "allow_up_to"
	block   verb = "block" // for maxWait
)

// call is one call of a script: what is done at an offset from the epoch, and
// every field of the result, except those that follow from the policy.
type call struct {
	at      time.Duration
	verb    verb
	key     string // if it is not the script's
	n       int64
	maxWait time.Duration // of a block: how long it lasts
	ref     int

	exceeds         bool // the error is ErrExceedsCapacity
	allowed         bool // of a refund: it gave something back
	mayGive         bool // of a refund: allowed does not count
	remaining, used int64
	retry, reset    time.Duration
	delay           time.Duration // of a reservation that was allowed
	taken           int64         // by AllowUpTo
}

// script runs calls on a limiter, one after another.
func (f *fixture) script(l *limiter.Limiter, key string, calls []call) {
	f.Helper()
	booked := map[int]*limiter.Reservation{}
	for i, c := range calls {
		f.at(c.at)
		key, what := cmp.Or(c.key, key), cmp.Or(c.verb, "allow")
		var got limiter.Result
		var err error
		delay := time.Duration(0)
		switch c.verb {
		case allow:
			got, err = l.AllowN(context.Background(), key, c.n)
		case peek:
			got, err = l.PeekN(context.Background(), key, max(1, c.n))
		case reserve:
			var r *limiter.Reservation
			r, err = l.Reserve(context.Background(), key, c.n, c.maxWait)
			got, delay, booked[i] = r.Result, r.Delay, r
		case charge:
			got, err = l.Charge(context.Background(), key, c.n)
		case upTo:
			got, err = l.AllowUpTo(context.Background(), key, c.n)
		case refund:
			gave, err := l.Refund(context.Background(), key, c.n)
			if f.ok(err, "call %d: refund of %d", i, c.n); gave != c.allowed && !c.mayGive {
				f.Fatalf("call %d: %+v: refund of %d at %v = %v, want %v", i, l.Policy(), c.n, c.at, gave, c.allowed)
			}
			continue
		case cancel:
			f.cancel(booked[c.ref])
			continue
		case reset:
			f.reset(l, key)
			continue
		case block:
			f.block(l, key, c.maxWait)
			continue
		default:
			f.Fatalf("call %d: unknown verb %q", i, c.verb)
		}
		if c.exceeds {
			if !errors.Is(err, limiter.ErrExceedsCapacity) {
				f.Fatalf("call %d: %+v: %s of %d at %v: %v, want ErrExceedsCapacity", i, l.Policy(), what, c.n, c.at, err)
			}
			continue
		}
		f.ok(err, "call %d: %s of %d", i, what, c.n)
		want := limiter.Result{
			Allowed: c.allowed, Limit: limitOf(l.Policy()), Remaining: c.remaining, Used: c.used,
			RetryAfter: c.retry, ResetAfter: c.reset, Taken: c.taken, Source: limiter.SourceStore,
		}
		if c.allowed && c.verb != peek && c.verb != upTo || c.verb == charge {
			want.Taken = c.n
		}
		if c.verb == reserve && !c.allowed {
			c.delay = math.MaxInt64
		}
		if got = visible(got); got != want || delay != c.delay {
			f.Fatalf("call %d: %+v: %s of %d at %v\n got %+v, Delay %v\nwant %+v, Delay %v",
				i, l.Policy(), what, c.n, c.at, got, delay, want, c.delay)
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

// vectors holds histories with exact outcomes, from models that are independent of [limiter.Op.Apply]:
// one JSON object a line.
//
//go:embed vectors.jsonl
var vectors []byte

type vectorHistory struct {
	Policy vectorPolicy `json:"policy"`
	Ops    []vectorOp   `json:"ops"`
}

type vectorOp struct {
	At      int64         `json:"at"`
	Op      verb          `json:"op"`
	Key     string        `json:"key"`
	N       int64         `json:"n"`
	MaxWait time.Duration `json:"max_wait"`
	Ref     int           `json:"ref"`
	Want    struct {
		Allowed    bool          `json:"allowed"`
		Remaining  int64         `json:"remaining"`
		Used       int64         `json:"used"`
		RetryAfter time.Duration `json:"retry_after"`
		ResetAfter time.Duration `json:"reset_after"`
		Delay      time.Duration `json:"delay"`
		Taken      int64         `json:"taken"`
		Gave       *bool         `json:"gave"` // a refund, where the history says so
		Error      string        `json:"error"`
	} `json:"want"`
}

// runVectors replays every history through the public API.
func runVectors(t *testing.T, open func(t *testing.T) limiter.Store) {
	lines := bufio.NewScanner(bytes.NewReader(vectors))
	lines.Buffer(nil, 1<<20)
	store := open(t)
	for i := 1; lines.Scan(); i++ {
		var h vectorHistory
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			t.Fatalf("vectors.jsonl:%d: %v", i, err)
		}
		t.Run(fmt.Sprint("line ", i), func(t *testing.T) {
			f := &fixture{T: t, store: store, prefix: fmt.Sprint("vector-", i)}
			f.script(f.limiter("", h.Policy.policy()), "", h.calls())
		})
	}
}

// calls are the operations as a script.
func (h vectorHistory) calls() (calls []call) {
	for _, o := range h.Ops {
		w := o.Want
		c := call{
			at: time.Unix(0, o.At).Sub(epoch), verb: o.Op, key: o.Key, n: o.N, maxWait: o.MaxWait, ref: o.Ref,
			exceeds: w.Error == "ErrExceedsCapacity", allowed: w.Allowed, remaining: w.Remaining, used: w.Used,
			retry: w.RetryAfter, reset: w.ResetAfter, delay: w.Delay, taken: w.Taken,
		}
		switch o.Op {
		case "allow":
			c.verb = allow
		case refund:
			c.mayGive = w.Gave == nil
			c.allowed = !c.mayGive && *w.Gave
		default:
		}
		calls = append(calls, c)
	}
	return calls
}
