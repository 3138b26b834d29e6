package storetest

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
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
