package storetest

import (
	"bufio"
	"bytes"
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
	Op      string        `json:"op"`
	Key     string        `json:"key"`
	N       int64         `json:"n"`
	MaxWait time.Duration `json:"max_wait"`
	Ref     int           `json:"ref"`
	Want    outcome       `json:"want"`
}

// outcome is what an operation returned; a nil field does not apply to it.
type outcome struct {
	Allowed    *bool          `json:"allowed,omitempty"`
	Limit      *int64         `json:"limit,omitempty"`
	Remaining  *int64         `json:"remaining,omitempty"`
	Used       *int64         `json:"used,omitempty"`
	RetryAfter *time.Duration `json:"retry_after,omitempty"`
	ResetAfter *time.Duration `json:"reset_after,omitempty"`
	Delay      *time.Duration `json:"delay,omitempty"`
	Taken      *int64         `json:"taken,omitempty"`
	Gave       *bool          `json:"gave,omitempty"` // a refund, where the history says so
	Error      string         `json:"error,omitempty"`
}

// runVectors replays every history through the public API.
func runVectors(t *testing.T, open func(t *testing.T) limiter.Store) {
	lines := bufio.NewScanner(bytes.NewReader(vectors))
	lines.Buffer(nil, 1<<20)
	store := open(t)
	for i := 0; lines.Scan(); i++ {
		var h vectorHistory
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			t.Fatalf("vectors.jsonl:%d: %v", i+1, err)
		}
		h.replay(t, store, fmt.Sprintf("vector-%d", i+1))
	}
}

func (h vectorHistory) replay(t *testing.T, store limiter.Store, name string) {
	t.Helper()
	ctx := context.Background()
	var now time.Time
	l, err := limiter.New(store, name, h.Policy.policy(), limiter.WithTimeout(timeLimit),
		limiter.WithClock(func() time.Time { return now }))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	booked := map[int]*limiter.Reservation{}
	for i, s := range h.Ops {
		now = time.Unix(0, s.At)
		var got outcome
		var err error
		switch s.Op {
		case "allow":
			var r limiter.Result
			r, err = l.AllowN(ctx, s.Key, s.N)
			got = outcomeOf(r)
		case "peek":
			var r limiter.Result
			r, err = l.PeekN(ctx, s.Key, max(1, s.N)) // without n it is a Peek
			got = outcomeOf(r)
		case "charge":
			var r limiter.Result
			r, err = l.Charge(ctx, s.Key, s.N)
			got = outcomeOf(r)
		case "allow_up_to":
			var r limiter.Result
			r, err = l.AllowUpTo(ctx, s.Key, s.N)
			got = outcomeOf(r)
			got.Taken = &r.Taken
		case "block":
			err = l.Block(ctx, s.Key, s.MaxWait)
		case "reserve":
			var r *limiter.Reservation
			r, err = l.Reserve(ctx, s.Key, s.N, s.MaxWait)
			got, booked[i] = outcomeOf(r.Result), r
			if r.Delay != math.MaxInt64 {
				got.Delay = &r.Delay
			}
		case "refund":
			var gave bool
			if gave, err = l.Refund(ctx, s.Key, s.N); s.Want.Gave != nil {
				got.Gave = &gave
			}
		case "cancel":
			err = booked[s.Ref].Cancel(ctx)
		case "reset":
			err = l.Reset(ctx, s.Key)
		default:
			t.Fatalf("%s op %d: unknown operation %q", name, i, s.Op)
		}
		if errors.Is(err, limiter.ErrExceedsCapacity) {
			got, err = outcome{Error: "ErrExceedsCapacity"}, nil
		}
		if err != nil {
			t.Fatalf("%s op %d: %s: %v", name, i, s.Op, err)
		}
		if g, w := got.String(), s.Want.String(); g != w {
			t.Fatalf("%s op %d: %+v\n %s of %d on %q = %s\n want %s", name, i, h.Policy.policy(), s.Op, s.N, s.Key, g, w)
		}
	}
}

func outcomeOf(r limiter.Result) outcome {
	return outcome{
		Allowed: &r.Allowed, Limit: &r.Limit, Remaining: &r.Remaining, Used: &r.Used,
		RetryAfter: &r.RetryAfter, ResetAfter: &r.ResetAfter,
	}
}

func (o outcome) String() string {
	b, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
